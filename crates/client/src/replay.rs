//! Replay of changes to a restarted MDT.
//!
//! The import retains the changes that the MDT has answered and not reported as committed. If the
//! MDT waits for this client, those up to its last committed transno are committed, and the others
//! are sent again. If it does not wait, nobody knows which of them survived, and all count as lost.
//! The next sync reports what is lost (module `uncommitted`).

use std::collections::BTreeSet;

use bytes::Bytes;
use sheen_rpc::{Recovering, RetainedChange};
use sheen_wire::{
    Errno, Mds, Result, frame,
    mds::{Answer, Call, Change, REPLAYS_MAX, Replay, Reply, Request},
};

/// Maximum bytes of requests in one `Replay`.
const BYTES_AT_ONCE: usize = 256 << 10;

/// The fate of the retained changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Changes up to this transno are committed. 0: nobody knows.
    pub committed: u64,
    /// Transnos above that whose changes were replayed.
    pub replayed: BTreeSet<u64>,
}

/// Replays the retained changes.
///
/// # Errors
/// The connection broke: repeat this over the next one.
pub async fn replay(mdt: &Recovering<Mds>) -> Result<Outcome> {
    let retained = mdt.retained();
    let committed = mdt.welcome().last_committed;
    if mdt.is_local() && retained.is_empty() {
        // An MDT does not wait for clients of its own process: they do not survive a crash.
        return Ok(Outcome { committed, ..Outcome::default() });
    }
    let replays: Vec<Replay> =
        retained.iter().filter(|change| change.transno > committed).filter_map(to_replay).collect();
    let forget = |survives: &dyn Fn(u64) -> bool| {
        mdt.forget(retained.iter().map(|change| change.transno).filter(|transno| !survives(*transno)));
    };
    let mut outcome = Outcome { committed, replayed: BTreeSet::new() };
    let (mut rest, mut first) = (&replays[..], true);
    loop {
        let (some, others) = rest.split_at(part(rest));
        let request = Request::Replay { replays: some.to_vec(), first, last: others.is_empty() };
        match mdt.call(request).await {
            Ok(response) => outcome.record(some, response.body.reply)?,
            Err(refused) if refused == Errno::ESTALE => {
                forget(&|_| false);
                return Ok(Outcome::default());
            }
            Err(broken) => return Err(broken.errno()),
        }
        if others.is_empty() {
            break;
        }
        (rest, first) = (others, false);
    }
    forget(&|transno| outcome.replayed.contains(&transno));
    if !replays.is_empty() {
        let (target, done, all) = (mdt.target(), outcome.replayed.len(), replays.len());
        tracing::info!("{target}: the MDT was restarted: replayed {done} of {all} uncommitted changes");
    }
    Ok(outcome)
}

impl Outcome {
    fn record(&mut self, sent: &[Replay], reply: Reply) -> Result<()> {
        let Reply::Replayed(outcomes) = reply else { return Err(Errno::EPROTO) };
        if outcomes.len() != sent.len() {
            return Err(Errno::EPROTO);
        }
        self.replayed.extend(sent.iter().zip(&outcomes).filter(|(_, o)| o.is_ok()).map(|(replay, _)| replay.transno));
        Ok(())
    }
}

/// Returns how many of these fit into one request.
fn part(replays: &[Replay]) -> usize {
    let mut bytes = 0;
    let fits = replays.iter().take(REPLAYS_MAX).take_while(|replay| {
        bytes += replay.call.len() + replay.layout.as_ref().map_or(0, Bytes::len);
        bytes <= BYTES_AT_ONCE
    });
    fits.count().max(1).min(replays.len())
}

/// Returns what is sent for a retained change. `None`: it is not replayed, or was recorded as
/// already durable.
fn to_replay(retained: &RetainedChange) -> Option<Replay> {
    let answer: Answer = frame::from_body(&retained.reply).ok()?;
    let Change { time, layout } = answer.change?;
    let layout = layout.or(match answer.reply {
        Reply::Opened { entry, .. } | Reply::Entry(entry) => entry.layout,
        _ => None,
    });
    let call: Call = frame::from_body(&retained.request).ok()?;
    call.request.is_replayed().then(|| Replay {
        transno: retained.transno,
        call: retained.request.clone(),
        time,
        layout,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheen_wire::{Fid, Time};

    fn retained(request: Request, change: Option<Change>) -> RetainedChange {
        let body = |bytes: Vec<u8>| Bytes::from(bytes);
        let reply = Answer { change, ..Reply::Ok.into() };
        let (request, reply) = (frame::to_body(&Call::from(request)).unwrap(), frame::to_body(&reply).unwrap());
        RetainedChange { transno: 7, request: body(request), reply: body(reply) }
    }

    #[test]
    fn change_is_replayed_with_the_time_and_layout_of_its_reply() {
        let intent = Request::LayoutIntent { fid: Fid::new(1, 2), start: 0, end: 1 };
        let change = Change { time: Time { sec: 3, nsec: 4 }, layout: Some(Bytes::from_static(b"layout")) };
        let replay = to_replay(&retained(intent.clone(), Some(change.clone()))).unwrap();
        assert_eq!((replay.transno, replay.time, replay.layout), (7, change.time, change.layout.clone()));
        assert!(to_replay(&retained(intent, None)).is_none());
        assert!(to_replay(&retained(Request::AllocSeq, Some(change))).is_none());
    }

    #[test]
    fn replays_are_sent_in_parts() {
        let replay = |bytes: usize| Replay {
            transno: 1,
            call: Bytes::from(vec![0; bytes]),
            time: Time::default(),
            layout: None,
        };
        assert_eq!(part(&[]), 0);
        assert_eq!(part(&[replay(BYTES_AT_ONCE * 2), replay(1)]), 1);
        assert_eq!(part(&[replay(BYTES_AT_ONCE / 2), replay(BYTES_AT_ONCE / 2), replay(1)]), 2);
        assert_eq!(part(&vec![replay(1); REPLAYS_MAX + 1]), REPLAYS_MAX);
    }
}
