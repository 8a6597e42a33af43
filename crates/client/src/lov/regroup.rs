//! Group locks that programs hold, requested again from a restarted OST.
//!
//! The client requests them in the OST's recovery, as the first thing after the replay, and before
//! it sends data. In a recovery all data of a group comes from its members. Without a lock of the
//! sender, the locks of the other members would block it.
//!
//! The OST grants these requests at once. It knows them by their flags: GROUP, `nowait` and not
//! `ask`. All other lock requests wait until the end of the recovery. Only a write of another
//! member that is being executed can conflict with the request. Then the client repeats it.

use std::{sync::Arc, time::Duration};

use sheen_ldlm::client::Held;
use sheen_rpc::{Cause, Recovering};
use sheen_wire::{
    Errno, Fid, Ost, Result,
    ldlm::{Cookie, Enqueue, Enqueued, Flags, Mode, Resource},
    ost::{PARTS_MAX, Reply, Request, rights},
};

use super::replay::present_for;
use crate::{capabilities::Presented, locks::LockTable};

/// Pause before a request is repeated. A write takes less on most disks.
const PAUSE: Duration = Duration::from_millis(20);
/// Maximum number of attempts: a minute, which is longer than a disk stalls.
const ATTEMPTS_MAX: u32 = 3000;

/// Requests the group locks of before the restart again. Drops those that the OST does not grant,
/// and returns their number.
///
/// # Errors
/// The connection broke: repeat this over the next one.
pub async fn regroup(ost: &Recovering<Ost>, locks: &Arc<LockTable>, presented: &Presented) -> Result<usize> {
    let mut left = locks.ungranted();
    if left.is_empty() {
        return Ok(0);
    }
    let mut lost: Vec<Cookie> = Vec::new();
    if presented.are_needed() {
        let mut wanted: Vec<(Fid, u8)> = left.iter().map(|(object, _)| (object.fid, rights::WRITE)).collect();
        wanted.dedup();
        let lacking = present_for(ost, presented, &wanted).await?;
        left.retain(|(object, held)| {
            let may = !lacking.contains(&object.fid);
            if !may {
                lost.push(held.cookie);
            }
            may
        });
    }
    for attempt in 0..ATTEMPTS_MAX {
        if attempt > 0 {
            locks.rt().sleep(PAUSE).await;
        }
        let mut blocked = Vec::new();
        for some in left.chunks(PARTS_MAX) {
            let answers = request(ost, some, presented).await?;
            for (one, answer) in some.iter().zip(answers) {
                match answer {
                    Enqueued::Granted { id, .. } => locks.regranted(one.1.cookie, id),
                    Enqueued::WouldBlock { by } if by.mode != Mode::Group => blocked.push(*one),
                    _ => lost.push(one.1.cookie),
                }
            }
        }
        left = blocked;
        if left.is_empty() {
            break;
        }
    }
    lost.extend(left.iter().map(|(_, held)| held.cookie));
    let count = lost.len();
    locks.lose(lost);
    Ok(count)
}

/// Requests these locks again, and returns the OST's replies.
async fn request(ost: &Recovering<Ost>, some: &[(Resource, Held)], presented: &Presented) -> Result<Vec<Enqueued>> {
    let flags = Flags { nowait: true, ..Flags::default() };
    let lock = |(resource, held): &(Resource, Held)| Enqueue {
        flags,
        ..Enqueue::new(*resource, Mode::Group, held.policy, held.cookie)
    };
    match ost.call(Request::Enqueue { locks: some.iter().map(lock).collect(), want: 0 }).await {
        Ok(response) => match response.body {
            Reply::Enqueued { locks: answers, .. } if answers.len() == some.len() => {
                Ok(answers.into_iter().map(|(answer, _)| answer).collect())
            }
            _ => Err(Errno::EPROTO),
        },
        Err(e) => match e.cause() {
            // The OST stops.
            Cause::Answered(Errno::ESHUTDOWN) => Err(Errno::ESHUTDOWN),
            Cause::Answered(Errno::NO_CAPABILITY) => {
                presented.refused(&some.iter().map(|(object, _)| (object.fid, rights::WRITE)).collect::<Vec<_>>());
                Err(Errno::NO_CAPABILITY)
            }
            Cause::Answered(errno) => Ok(vec![Enqueued::Refused(*errno); some.len()]),
            _ => Err(e.errno()),
        },
    }
}
