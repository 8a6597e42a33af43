//! Replay of changes to a restarted MDT.
//!
//! The import retains the changes that the MDT has answered and not reported as committed. If the
//! MDT waits for this client, those up to its last committed transno are committed, and the others
//! are sent again. If it does not wait, nobody knows which of them survived, and all count as lost.
//! The next sync reports what is lost (module `uncommitted`).

use std::collections::BTreeSet;

use bytes::Bytes;
use sheen_rpc::{Cause, Recovering, RequestError, RetainedChange};
use sheen_wire::{
    Errno, Mds, Result, frame,
    mds::{Answer, Call, Change, REPLAYS_MAX, Replay, Reply, Request},
};

/// Maximum bytes of changes or layouts in one request.
const BYTES_AT_ONCE: usize = 256 << 10;

/// The fate of the retained changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Changes up to this transno are committed. 0: nobody knows.
    pub committed: u64,
    /// Transnos above that whose changes were replayed.
    pub replayed: BTreeSet<u64>,
}

/// Replays the retained changes. Passes those that the MDT cannot replay to `not_replayed`.
///
/// # Errors
/// The connection broke: repeat this over the next one.
pub async fn replay(mdt: &Recovering<Mds>, not_replayed: impl Fn(&BTreeSet<u64>)) -> Result<Outcome> {
    let retained = mdt.retained();
    let committed = mdt.welcome().last_committed;
    let replays: Vec<Replay> =
        retained.iter().filter(|change| change.transno > committed).filter_map(to_replay).collect();
    let forget = |survives: &dyn Fn(u64) -> bool| {
        mdt.forget(retained.iter().map(|change| change.transno).filter(|transno| !survives(*transno)));
    };
    let mut outcome = Outcome { committed, replayed: BTreeSet::new() };
    let (mut rest, mut first) = (&replays[..], true);
    loop {
        let (some, others) = rest.split_at(part(rest, REPLAYS_MAX, size));
        let request = Request::Replay { replays: some.to_vec(), first, last: others.is_empty() };
        match mdt.call(request).await {
            // At once, because this recovery may be repeated at yet another MDT.
            Ok(response) => not_replayed(&outcome.record(some, response.body.reply)?),
            // An MDT has no list of the clients in its own process: they do not survive a crash. It
            // stopped in order, so everything is committed.
            Err(e) if is_refusal(&e) && mdt.is_local() && retained.is_empty() => break,
            Err(e) if is_refusal(&e) => {
                // ESTALE is the usual one: the MDT does not wait for this client.
                if e != Errno::ESTALE || !replays.is_empty() {
                    tracing::warn!("{e}: {} uncommitted changes are lost", replays.len());
                }
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

/// Returns whether the MDT answered a request of the recovery with an error. Otherwise the
/// connection broke, and the next recovery repeats the request.
pub fn is_refusal(error: &RequestError) -> bool {
    matches!(error.cause(), Cause::Answered(errno) if *errno != Errno::ESHUTDOWN)
}

impl Outcome {
    /// Records the outcomes of one request. Returns the changes that were not replayed.
    fn record(&mut self, sent: &[Replay], reply: Reply) -> Result<BTreeSet<u64>> {
        let Reply::Replayed(outcomes) = reply else { return Err(Errno::EPROTO) };
        if outcomes.len() != sent.len() {
            return Err(Errno::EPROTO);
        }
        let (done, lost): (Vec<_>, Vec<_>) = sent.iter().zip(&outcomes).partition(|(_, outcome)| outcome.is_ok());
        self.replayed.extend(done.iter().map(|(replay, _)| replay.transno));
        Ok(lost.iter().map(|(replay, _)| replay.transno).collect())
    }
}

/// Returns how many of these are sent in one request: at most `count_max`, and [`BYTES_AT_ONCE`]
/// unless the first is larger.
pub fn part<T>(items: &[T], count_max: usize, size: impl Fn(&T) -> usize) -> usize {
    let mut bytes = 0;
    let fits = items.iter().take(count_max).take_while(|item| {
        bytes += size(item);
        bytes <= BYTES_AT_ONCE
    });
    fits.count().max(1).min(items.len())
}

/// Returns the approximate bytes of a change in a request.
fn size(replay: &Replay) -> usize {
    replay.call.len() + replay.layout.as_ref().map_or(0, Bytes::len)
}

/// Returns what is sent for a retained change. `None`: it is not replayed, or was recorded as
/// already durable.
fn to_replay(retained: &RetainedChange) -> Option<Replay> {
    let answer: Answer = frame::from_body(&retained.reply).ok()?;
    let Change { time, layout, proof } = answer.change?;
    let mut call: Call = frame::from_body(&retained.request).ok()?;
    let encoded: Bytes = match call.request.prepare_replay(&answer.reply, time) {
        true => frame::to_body(&call).ok()?.into(),
        false => retained.request.clone(),
    };
    let named = match &answer.reply {
        Reply::Opened { entry, .. } => vec![entry.attr.fid],
        _ => answer.invalidations,
    };
    let layout = layout.or(match answer.reply {
        Reply::Opened { entry, .. } | Reply::Entry(entry) => entry.layout,
        _ => None,
    });
    call.request.is_replayed().then_some(Replay {
        transno: retained.transno,
        call: encoded,
        time,
        layout,
        named,
        proof,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheen_wire::{
        Attr, Bulk, Cred, Fid, FileKind, Time,
        mds::{Closed, Entry, NO_HANDLE, Opener, flags},
    };

    fn retained(request: Request, change: Option<Change>) -> RetainedChange {
        let body = |bytes: Vec<u8>| Bytes::from(bytes);
        let reply = Answer { change, ..Reply::Ok.into() };
        let (request, reply) = (frame::to_body(&Call::from(request)).unwrap(), frame::to_body(&reply).unwrap());
        RetainedChange {
            transno: 7,
            request: body(request),
            bulk: Bulk::new(),
            reply: body(reply),
            at: Time::default(),
        }
    }

    #[test]
    fn change_is_replayed_with_the_time_and_layout_of_its_reply() {
        let intent = Request::LayoutIntent { fid: Fid::new(1, 2), start: 0, end: 1, opener: Opener::UNKNOWN };
        let change =
            Change { time: Time { sec: 3, nsec: 4 }, layout: Some(Bytes::from_static(b"layout")), proof: None };
        let replay = to_replay(&retained(intent.clone(), Some(change.clone()))).unwrap();
        assert_eq!((replay.transno, replay.time, replay.layout), (7, change.time, change.layout.clone()));
        assert!(to_replay(&retained(intent, None)).is_none());
        assert!(to_replay(&retained(Request::AllocSeq, Some(change))).is_none());
    }

    #[test]
    fn replayed_create_opens_no_other_file() {
        let (name, cred, fid) = (Bytes::from_static(b"f"), Cred::ROOT, Fid::new(1, 2));
        let create = Request::OpenCreate { cred, parent: fid, name, fid, flags: flags::RDWR, mode: 0, umask: 0 };
        for created in [true, false] {
            let attr = Attr::new(fid, FileKind::Regular, 0o644, Time::default());
            let entry = Entry { attr, layout: None, xattrs: false };
            let change = Some(Change { time: Time::default(), layout: None, proof: None });
            let reply = Answer { change, ..Reply::Opened { handle: 1, entry, created, tight: false }.into() };
            let body = |bytes: Vec<u8>| Bytes::from(bytes);
            let request = body(frame::to_body(&Call::from(create.clone())).unwrap());
            let reply = body(frame::to_body(&reply).unwrap());
            let replay = to_replay(&RetainedChange { request, reply, ..retained(Request::Cancel, None) }).unwrap();
            let Request::OpenCreate { flags, .. } = frame::from_body::<Call>(&replay.call).unwrap().request else {
                panic!("another request")
            };
            assert_eq!(flags & flags::EXCL != 0, created);
        }
    }

    #[test]
    fn close_is_replayed_with_the_reads_in_its_reply() {
        let fid = Fid::new(1, 2);
        let closed = |handle, read| Closed { fid, handle, read };
        let close = Request::Close { files: vec![closed(5, None), closed(NO_HANDLE, Some(7))] };
        let replayed = |attrs: Vec<Attr>| {
            let change = Some(Change { time: Time { sec: 0, nsec: 9_000 }, layout: None, proof: None });
            let reply = frame::to_body(&Answer { change, ..Reply::Attrs(attrs).into() }).unwrap().into();
            to_replay(&RetainedChange { reply, ..retained(close.clone(), None) })
        };
        let replay = replayed(vec![Attr::new(fid, FileKind::Regular, 0o644, Time::default())]).unwrap();
        match frame::from_body::<Call>(&replay.call).unwrap().request {
            Request::Close { files } => assert_eq!(files, [closed(NO_HANDLE, Some(9))], "the time of the reply"),
            other => panic!("{other:?}"),
        }
        assert!(replayed(Vec::new()).is_none(), "the file is deleted");
    }

    #[test]
    fn replays_are_sent_in_parts() {
        let replay = |bytes: usize| Replay {
            transno: 1,
            call: Bytes::from(vec![0; bytes]),
            time: Time::default(),
            layout: None,
            named: Vec::new(),
            proof: None,
        };
        let part = |replays: &[Replay]| part(replays, REPLAYS_MAX, size);
        assert_eq!(part(&[]), 0);
        assert_eq!(part(&[replay(BYTES_AT_ONCE * 2), replay(1)]), 1);
        assert_eq!(part(&[replay(BYTES_AT_ONCE / 2), replay(BYTES_AT_ONCE / 2), replay(1)]), 2);
        assert_eq!(part(&vec![replay(1); REPLAYS_MAX + 1]), REPLAYS_MAX);
    }
}
