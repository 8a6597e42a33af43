//! Writing a range of a file: kept for a while (`cached`), or at once.

use std::pin::pin;

use sheen_layout::Layout;
use sheen_wire::{
    Bulk, Errno, Fid, Result,
    ost::{Grant, Part, Reply, Request},
};

use super::{
    Lov,
    append::PATIENCE,
    follow::after,
    in_use::InUse,
    split::{Rpc, Split},
};
use crate::{join::join_all, locks::LockRef};

/// From this size on a write is not kept: gathering would cost more than it saves.
pub const KEEP_BYTES_MAX: usize = 256 << 10;
/// What an OST's refusal to let a write wait looks like inside of this module.
const LOCK_FIRST: Errno = Errno::EBUSY;
/// Times that a write asks for its locks because too many writes wait.
const ROUNDS_MAX: usize = 64;

/// How a write is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct How {
    /// Durable before the answer.
    pub sync: bool,
    /// A small one may be kept for a while.
    pub keep: bool,
    /// A small one that goes on where a large one ended, most likely as its rest: the kernel takes
    /// only so many pages at a time.
    pub rest: bool,
    /// Under locks of this client, unless the objects are contended. Else the OSTs lock for it.
    pub lock: bool,
    /// At a place that is right only under locks which the caller has: not once they are lost.
    pub guarded: bool,
}

impl Lov {
    /// Writes `data` at `offset`, under the locks that the caller has, and returns how many bytes
    /// from its start are in the file: all, or fewer where an OST refused the rest, or where the
    /// layout's largest file size cuts it (as write(2) does).
    ///
    /// # Errors
    /// EFBIG: at or past the largest size. MOVED: objects are closed, and nothing is written;
    /// MOVED_PARTLY: something may be. EIO, with `sync`: what was written without it before may be
    /// lost (told once). What an OST answers, if not even the first byte was written.
    pub async fn write(&self, layout: &Layout, offset: u64, data: Bulk, how: How, held: &InUse) -> Result<usize> {
        let room = layout.max_file_size().saturating_sub(offset);
        if data.is_empty() {
            return Ok(0);
        }
        if room == 0 {
            return Err(Errno::EFBIG);
        }
        let data = if data.len() as u64 > room { data.slice(0, room as usize) } else { data };
        let split = Split::new(layout, offset, data.len() as u64);
        let mut begun = false;
        let answer = self.write_split(layout, &split, offset, data, how, held, &mut begun).await;
        after(begun, answer)
    }

    /// `begun`: set when a part is in the file, or on its way there, and the rest is not certain to
    /// follow.
    #[allow(clippy::too_many_arguments, reason = "what the write is")]
    async fn write_split(
        &self,
        layout: &Layout,
        split: &Split,
        offset: u64,
        data: Bulk,
        how: How,
        held: &InUse,
        begun: &mut bool,
    ) -> Result<usize> {
        if how.keep && data.len() < KEEP_BYTES_MAX && self.keep(layout, split, offset, &data, how.rest, begun).await? {
            return Ok(data.len());
        }
        let in_use = |locks: Vec<LockRef>| InUse::new(layout, split.runs.iter().map(|run| run.stripe).zip(locks));
        let mut locks = if how.lock { self.lock_runs(layout, split, true).await?.map(in_use) } else { None };
        for _ in 0..ROUNDS_MAX {
            let mut settling = pin!(self.settle(layout, split));
            if locks.is_some() && self.rt.timeout(PATIENCE, settling.as_mut()).await.is_err() {
                // The OSTs lock for it.
                locks = None;
            }
            if locks.is_none() {
                settling.await;
            }
            match self.write_through(layout, split, offset, &data, how, locks.as_ref().unwrap_or(held), begun).await {
                Err(LOCK_FIRST) => {}
                answer => return answer,
            }
            drop(locks.take());
            locks = self.lock_runs(layout, split, false).await?.map(in_use);
        }
        Err(Errno::EIO)
    }

    #[allow(clippy::too_many_arguments, reason = "what the write is")]
    async fn write_through(
        &self,
        layout: &Layout,
        split: &Split,
        offset: u64,
        data: &Bulk,
        how: How,
        held: &InUse,
        begun: &mut bool,
    ) -> Result<usize> {
        let (file, len) = (layout.fid(), data.len());
        let mut rpcs = split.rpcs(layout, |ost| self.max_bytes(ost))?;
        held.begin(rpcs.iter().map(|rpc| rpc.ost));
        if rpcs.len() == 1 && split.runs.len() == 1 {
            let Rpc { ost, parts, .. } = rpcs.swap_remove(0);
            self.write_rpc(file, ost, parts, how, data.clone()).await?;
            return Ok(len);
        }
        let runs = deal(layout, split, offset, data);
        let runs = &runs;
        let calls = rpcs.into_iter().map(|Rpc { ost, parts, pieces, .. }| async move {
            let mut bulk = Bulk::new();
            pieces.iter().for_each(|p| bulk.append(runs[p.run].slice(p.pos as usize, p.len as usize)));
            self.write_rpc(file, ost, parts, how, bulk).await.map_err(|errno| (errno, pieces))?;
            held.done(ost);
            Ok(())
        });
        // Of each run, how much is certainly written.
        let mut written: Vec<u64> = split.runs.iter().map(|r| r.len).collect();
        let mut failed = None;
        let answers = join_all(calls).await;
        *begun |= answers.iter().any(|answer| !matches!(answer, Err((Errno::MOVED | LOCK_FIRST, _))));
        for (errno, pieces) in answers.into_iter().filter_map(|a| a.err()) {
            let is_closed = matches!(failed, Some(Errno::MOVED | Errno::MOVED_PARTLY));
            failed = if is_closed { failed } else { Some(errno) };
            pieces.iter().for_each(|p| written[p.run] = written[p.run].min(p.pos));
        }
        match failed {
            None => Ok(len),
            // What is written goes there once more, with the rest.
            Some(errno @ (Errno::MOVED | Errno::MOVED_PARTLY)) => Err(errno),
            Some(errno) => match prefix(layout, split, &written) {
                0 => Err(errno),
                prefix => Ok(prefix as usize),
            },
        }
    }

    async fn write_rpc(&self, file: Fid, ost: u32, parts: Vec<Part>, how: How, bulk: Bulk) -> Result<()> {
        let How { sync, guarded, .. } = how;
        let osc = self.osc(ost).await?;
        let before = if sync { self.unsynced.before(file, ost) } else { None };
        // What is appended is never kept, and a promise that is not used is space that nobody has.
        let grant = Grant { used: 0, want: if guarded { 0 } else { osc.writeback().want() } };
        let request = Request::Write { parts, sync, mtime: None, grant };
        let answer = if guarded { osc.call_guarded(request, bulk).await } else { osc.call(request, bulk).await };
        match answer?.0 {
            Reply::Done { epoch, granted } => {
                osc.writeback().granted(granted);
                if sync {
                    return self.unsynced.changed_durably(file, ost, before, epoch);
                }
                self.unsynced.changed(file, ost, epoch);
                Ok(())
            }
            Reply::LockFirst => Err(LOCK_FIRST),
            _ => Err(Errno::EPROTO),
        }
    }
}

/// Each run's bytes, sharing memory with `data`.
pub(super) fn deal(layout: &Layout, split: &Split, offset: u64, data: &Bulk) -> Vec<Bulk> {
    let mut runs = vec![Bulk::new(); split.runs.len()];
    for (run, _, chunk) in split.chunks(layout) {
        runs[run].append(data.slice((chunk.file_offset - offset) as usize, chunk.len as usize));
    }
    runs
}

/// How many bytes from the range's start are written, given how much of each run is.
fn prefix(layout: &Layout, split: &Split, written: &[u64]) -> u64 {
    let mut sum = 0;
    for (run, pos, chunk) in split.chunks(layout) {
        let here = written[run].saturating_sub(pos).min(chunk.len);
        sum += here;
        if here < chunk.len {
            break;
        }
    }
    sum
}
