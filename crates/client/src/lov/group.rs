//! Group locks on all objects of a file.
//!
//! As for an append, the client locks one OST after the other, by index, with all locks of an OST
//! in one request. So no two groups wait for each other in a cycle. The locks are in use until the
//! program leaves the group, and are then cancelled at once. A client that waits for them waits for
//! a program. After a restart of an OST, the client requests them again (`regroup`).

use std::time::Duration;

use sheen_layout::Layout;
use sheen_wire::{
    Errno, Fid,
    ldlm::{Enqueued, Flags, Mode, Policy, Resource},
};

use super::{Lov, enqueue::WHOLE, split::by_ost, stripe};
use crate::{
    failure::{Failure, Result},
    locks::LockRef,
};

/// Pause before a `nowait` lock request is repeated. In the meantime, other clients cancel the
/// conflicting locks that the request revoked.
const ASK_PAUSE: Duration = Duration::from_millis(20);
/// Maximum number of attempts, for as long as a flush may take.
const ASKS_MAX: usize = 250;

impl Lov {
    /// Locks all objects in GROUP mode. `nowait`: fails if another group holds a lock, or if a
    /// client does not release a conflicting lock.
    ///
    /// # Errors
    /// EAGAIN, with `nowait`. ENOLCK: locks were lost repeatedly. Otherwise the error of an OST.
    pub async fn lock_group(&self, layout: &Layout, gid: u64, nowait: bool) -> Result<Vec<LockRef>> {
        let mut locks = Vec::with_capacity(layout.stripe_count());
        for (ost, stripes) in by_ost(layout, 0..layout.stripe_count())? {
            let object = |s: &usize| Ok((layout.fid(), stripe(layout, *s)?.object));
            let objects = stripes.iter().map(object).collect::<Result<Vec<_>>>()?;
            locks.extend(self.group_on(ost, &objects, gid, nowait).await?);
        }
        Ok(locks)
    }

    async fn group_on(&self, ost: u32, objects: &[(Fid, Fid)], gid: u64, nowait: bool) -> Result<Vec<LockRef>> {
        let flags = Flags { nowait, ask: nowait, ..Flags::default() };
        for _ in 0..ASKS_MAX {
            let answers = self.enqueue(ost, objects, Mode::Group, Policy::group(gid), flags).await?;
            let mut another = false;
            for (_, answer, _) in &answers {
                match answer {
                    Enqueued::Refused(errno) => return Err(Failure::of_reply(*errno)),
                    Enqueued::WouldBlock { by } => another |= by.mode == Mode::Group,
                    _ => {}
                }
            }
            match answers.into_iter().map(|(lock, ..)| lock).collect() {
                Some(locks) => return Ok(locks),
                // The OST was restarted or has evicted this client, which forgot the request.
                None if !nowait => {}
                None if another => return Err(Errno::EAGAIN.into()),
                None => self.rt.sleep(ASK_PAUSE).await,
            }
        }
        Err(if nowait { Errno::EAGAIN } else { Errno::ENOLCK }.into())
    }

    /// Whether other clients hold a stripe's object by a group lock, or wait for one. Sends no
    /// blocking callback.
    ///
    /// # Errors
    /// The error of the OST.
    pub async fn is_in_other_group(&self, layout: &Layout, index: usize) -> Result<bool> {
        let stripe = stripe(layout, index)?;
        let objects = [(layout.fid(), stripe.object)];
        let flags = Flags { nowait: true, ..Flags::default() };
        let answers = self.enqueue(stripe.ost, &objects, Mode::Pr, WHOLE, flags).await?;
        Ok(matches!(answers.first(), Some((_, Enqueued::WouldBlock { by }, _)) if by.mode == Mode::Group))
    }

    /// Whether a group lock of this client is held on a stripe's object.
    pub fn in_group(&self, layout: &Layout, index: usize) -> bool {
        let stripe = layout.stripes().get(index);
        let lock = stripe.and_then(|s| self.get(s.ost)?.osc.locks().in_group(Resource::extent(s.object)));
        lock.is_some()
    }
}
