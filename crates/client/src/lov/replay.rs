//! Replay of changes to an OST whose host has failed.
//!
//! The import retains the changes that the OST has answered and not reported as durable. They are
//! sent again in order of transno. The OST executes them in one order with those of other clients.
//!
//! Most changes have one transno. A change of several objects of which some had to wait for locks
//! has one for each object, and is sent as several changes.

use rustc_hash::FxHashSet;
use sheen_rpc::{Cause, Recovering, RetainedChange};
use sheen_wire::{
    Bulk, Errno, Fid, Ost, Result, frame,
    ost::{Change, Part, REPLAYS_MAX, Reply, Request},
};

use crate::{capabilities::Presented, writeback::Survival};

/// Maximum bytes of one request: of file data, and of the changes. A single change may be larger.
const DATA_AT_ONCE: usize = 1 << 20;
const CHANGES_AT_ONCE: usize = 256 << 10;

/// A change to be sent.
struct Replay {
    transno: u64,
    change: Change,
    bulk: Bulk,
    /// Transno of the retained change that it is a part of.
    of: u64,
    /// Bytes of the request that it is a part of.
    size: usize,
}

/// How a restarted OST received this client.
pub enum Return {
    /// It did not wait for this client, so others may have changed its files since.
    Late,
    /// It is in this process, and did not wait for this client. It has everything that it has
    /// answered.
    Unawaited,
    /// It has everything that it has answered.
    Complete,
    /// Its host failed, and it has these changes.
    Replayed(Survival),
}

/// Reports to a restarted OST, and replays the changes that it may have lost. An OST in this
/// process waits only for others.
///
/// # Errors
/// The connection broke: repeat this over the next one.
pub async fn recover(ost: &Recovering<Ost>, presented: &Presented) -> Result<Return> {
    let (epoch, lost) = match ost.call(Request::Recover).await {
        Ok(response) => match response.body {
            Reply::Recovering { lost, .. } if lost.is_empty() => return Ok(Return::Complete),
            Reply::Recovering { epoch, lost } => (epoch, lost),
            _ => return Err(Errno::EPROTO),
        },
        Err(e) if e.errno() == Errno::ESTALE => return Ok(late(ost)),
        Err(e) => return Err(e.errno()),
    };
    let committed = ost.welcome().last_committed;
    let retained = ost.retained();
    let mut replays: Vec<Replay> =
        retained.iter().filter(|change| change.transno > committed).flat_map(replays_of).collect();
    replays.sort_by_key(|replay| replay.transno);
    let (all, mut wanted) = (replays.len(), Vec::new());
    if presented.are_needed() {
        replays.iter().for_each(|replay| replay.change.objects(&mut |object, right| wanted.push((object, right))));
        wanted.sort_unstable();
        wanted.dedup();
    }
    let mut failed = present(ost, presented, &wanted, &mut replays).await?;
    let (mut rest, mut first) = (&replays[..], true);
    loop {
        let (some, others) = rest.split_at(part(rest));
        let changes = some.iter().map(|replay| (replay.transno, replay.change.clone())).collect();
        let mut bulk = Bulk::new();
        some.iter().for_each(|replay| bulk.append(replay.bulk.clone()));
        let request = Request::Replay { changes, first, last: others.is_empty() };
        match ost.call_with(request, bulk).await.map(|response| response.body) {
            Ok(Reply::Replayed(outcomes)) if outcomes.len() == some.len() => {
                let is_lost = |(_, outcome): &(&Replay, Result<()>)| outcome.is_err();
                failed.extend(some.iter().zip(outcomes).filter(is_lost).map(|(replay, _)| replay.of));
            }
            Ok(_) => return Err(Errno::EPROTO),
            Err(e) if matches!(e.cause(), Cause::Answered(errno) if *errno == Errno::ESTALE) => return Ok(late(ost)),
            Err(e) => {
                if e.errno() == Errno::NO_CAPABILITY {
                    presented.refused(&wanted);
                }
                return Err(e.errno());
            }
        }
        if others.is_empty() {
            break;
        }
        (rest, first) = (others, false);
    }
    ost.forget(failed.iter().copied());
    if all > 0 {
        tracing::info!("{}: its host failed: replayed {} of {all} changes", ost.target(), all - failed.len());
    }
    Ok(Return::Replayed(Survival { epoch, lost, committed, dropped: ost.dropped(), failed }))
}

/// Presents the capabilities that the changes need. Removes the changes for which the mount gets
/// none: its user may not change a file any more, or the MDT does not answer. Returns the changes
/// of which they are parts.
///
/// # Errors
/// The connection broke.
async fn present(
    ost: &Recovering<Ost>,
    presented: &Presented,
    wanted: &[(Fid, u8)],
    replays: &mut Vec<Replay>,
) -> Result<Vec<u64>> {
    let lacking = present_for(ost, presented, wanted).await?;
    let mut failed = Vec::new();
    replays.retain(|replay| {
        let mut may = true;
        replay.change.objects(&mut |object, _| may &= !lacking.contains(&object));
        if !may {
            failed.push(replay.of);
        }
        may
    });
    if !failed.is_empty() {
        let count = failed.len();
        tracing::warn!("{}: {count} changes cannot be replayed: the MDT gave no capability for them", ost.target());
    }
    Ok(failed)
}

/// Presents the capabilities for these rights on objects. Returns the objects for which the mount
/// gets none.
///
/// # Errors
/// The connection broke.
pub(super) async fn present_for(
    ost: &Recovering<Ost>,
    presented: &Presented,
    wanted: &[(Fid, u8)],
) -> Result<FxHashSet<Fid>> {
    let (missing, lacking) = presented.for_recovery(wanted).await;
    if let Some(mut missing) = missing {
        for present in missing.requests.drain(..) {
            ost.call(present).await.map_err(|e| e.errno())?;
        }
        presented.sent(missing);
    }
    Ok(lacking)
}

fn late(ost: &Recovering<Ost>) -> Return {
    if ost.is_local() {
        return Return::Unawaited;
    }
    ost.forget(ost.retained().iter().map(|change| change.transno));
    Return::Late
}

/// Returns how many of these are sent in one request.
fn part(replays: &[Replay]) -> usize {
    let (mut data, mut changes) = (0, 0);
    let fits = replays.iter().take(REPLAYS_MAX).take_while(|replay| {
        data += replay.bulk.len();
        changes += replay.size;
        data <= DATA_AT_ONCE && changes <= CHANGES_AT_ONCE
    });
    fits.count().max(1).min(replays.len())
}

/// Returns what is sent for a retained change.
fn replays_of(retained: &RetainedChange) -> Vec<Replay> {
    let (Ok(request), Ok(reply)) = (frame::from_body(&retained.request), frame::from_body(&retained.reply)) else {
        return Vec::new(); // messages of this client's own import
    };
    let Reply::Done { transnos, .. } = reply else { return Vec::new() };
    let (of, size) = (retained.transno, retained.request.len());
    let replay = |transno, change, bulk| Replay { transno, change, bulk, of, size };
    let change = match request {
        Request::Write { file, parts, mtime, .. } => Change::Write { file, parts, mtime: mtime.unwrap_or(retained.at) },
        Request::Truncate { file, objects } => Change::Truncate { file, objects },
        Request::Allocate { file, mode, runs } => Change::Allocate { file, mode, runs },
        _ => return Vec::new(),
    };
    if transnos.is_empty() {
        return vec![replay(of, change, retained.bulk.clone())];
    }
    let mut replays: Vec<Replay> = Vec::new();
    let mut numbers: Vec<u64> = transnos.iter().map(|(_, transno)| *transno).collect();
    numbers.dedup();
    for transno in numbers {
        let has = |object: Fid| transnos.contains(&(object, transno));
        let (change, bulk) = part_of(&change, &retained.bulk, has);
        replays.push(replay(transno, change, bulk));
    }
    replays
}

/// Returns the part of a change that concerns the objects which `has` picks, with its bytes.
fn part_of(change: &Change, bulk: &Bulk, has: impl Fn(Fid) -> bool) -> (Change, Bulk) {
    let (mut bytes, mut at) = (Bulk::new(), 0);
    let part = match change {
        Change::Write { file, parts, mtime } => {
            let mut some: Vec<Part> = Vec::new();
            for part in parts {
                let len = part.len as usize;
                if has(part.object) {
                    some.push(*part);
                    bytes.append(bulk.slice(at, len));
                }
                at += len;
            }
            Change::Write { file: *file, parts: some, mtime: *mtime }
        }
        Change::Truncate { file, objects } => {
            let some = objects.iter().filter(|one| has(one.0)).copied().collect();
            Change::Truncate { file: *file, objects: some }
        }
        Change::Allocate { file, mode, runs } => {
            let some = runs.iter().filter(|run| has(run.0)).copied().collect();
            Change::Allocate { file: *file, mode: *mode, runs: some }
        }
    };
    (part, bytes)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sheen_wire::{Time, ost::Grant};

    use super::*;

    const AT: Time = Time { sec: 7, nsec: 0 };
    const FILE: Fid = Fid::new(8, 1);

    fn fid(oid: u32) -> Fid {
        Fid::new(9, oid)
    }

    fn retained(transnos: Vec<(Fid, u64)>) -> RetainedChange {
        let part = |(oid, len)| Part { object: fid(oid), offset: 0, len };
        let parts = [(1, 2), (2, 3), (1, 1)].map(part).to_vec();
        let grant = Grant::default();
        let request = Request::Write { file: FILE, parts, sync: false, mtime: None, grant, held: false };
        let reply = Reply::Done { epoch: 1, granted: 0, transnos, tight: false };
        let (request, reply) = (frame::to_body(&request).unwrap().into(), frame::to_body(&reply).unwrap().into());
        RetainedChange { transno: 9, request, bulk: Bytes::from_static(b"aabbba").into(), reply, at: AT }
    }

    /// Transno, objects and bytes of each change.
    fn shown(replays: Vec<Replay>) -> Vec<(u64, Vec<u32>, Vec<u8>)> {
        let one = |replay: Replay| {
            let Change::Write { file: FILE, parts, mtime: AT } = replay.change else { panic!("not a write") };
            (replay.transno, parts.iter().map(|part| part.object.oid).collect(), replay.bulk.into_bytes().to_vec())
        };
        replays.into_iter().map(one).collect()
    }

    #[test]
    fn change_of_several_objects_is_replayed_in_its_parts() {
        assert_eq!(shown(replays_of(&retained(Vec::new()))), [(9, vec![1, 2, 1], b"aabbba".to_vec())]);
        let parts = shown(replays_of(&retained(vec![(fid(1), 4), (fid(2), 9)])));
        assert_eq!(parts, [(4, vec![1, 1], b"aaa".to_vec()), (9, vec![2], b"bbb".to_vec())]);
        let together = shown(replays_of(&retained(vec![(fid(1), 9), (fid(2), 9)])));
        assert_eq!(together, [(9, vec![1, 2, 1], b"aabbba".to_vec())]);
    }

    #[test]
    fn replays_are_sent_in_requests_of_bounded_size() {
        let replay = |len: usize| Replay {
            transno: 1,
            change: Change::Truncate { file: FILE, objects: Vec::new() },
            bulk: Bytes::from(vec![0; len]).into(),
            of: 1,
            size: 10,
        };
        let replays = |len, count| (0..count).map(|_| replay(len)).collect::<Vec<_>>();
        assert_eq!(part(&replays(DATA_AT_ONCE / 2, 3)), 2);
        assert_eq!(part(&replays(DATA_AT_ONCE * 2, 3)), 1);
        assert_eq!(part(&replays(0, REPLAYS_MAX + 1)), REPLAYS_MAX);
        assert_eq!(part(&[]), 0);
    }
}
