//! Writing a range of a file: into the write-back cache (`cached`), or directly to the OSTs.

use std::{pin::pin, time::Duration};

use sheen_layout::Layout;
use sheen_rt::join::join_all;
use sheen_wire::{
    Bulk, Errno, Fid,
    ost::{Grant, Part, Reply, Request},
};

use super::{
    Lov,
    enqueue::PATIENCE,
    follow::after,
    in_use::InUse,
    split::{Rpc, Split},
};
use crate::{
    failure::{Failure, Result},
    limits::CACHED_WRITE_BYTES_MAX,
    locks::LockRef,
    writeback::Changed,
};

/// Maximum number of times that a write requests its locks because of `LockFirst` replies.
const ROUNDS_MAX: u32 = 64;
/// Pause after the n-th of these times if the write had its locks: n times this. Then the OST holds
/// the bytes of too many writes that wait for something else, such as quotas.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Why a write was not executed.
enum NotWritten {
    Failure(Failure),
    /// Too many writes already wait for locks at an OST, or it is in recovery
    /// ([`Reply::LockFirst`]): lock first.
    LockFirst,
}

impl<F: Into<Failure>> From<F> for NotWritten {
    fn from(failure: F) -> NotWritten {
        NotWritten::Failure(failure.into())
    }
}

/// Mode of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriteMode {
    /// Whether the data must be durable before the write returns.
    pub sync: bool,
    /// Whether a small write may be cached.
    pub cache: bool,
    /// Whether the client takes locks, unless the objects are contended. Otherwise the OSTs lock
    /// internally.
    pub lock: bool,
    /// Whether the offset is valid only under locks that the caller holds: an append. If they are
    /// lost by an eviction, the write fails. A restarted OST accepts it before other clients get
    /// locks ([`crate::writeback::Appending`]).
    pub guarded: bool,
    /// For a page of the kernel's cache, which a program stored under a lock of this client: the
    /// count of `Evictions::discards` when the page was valid. If an OST evicts the client later,
    /// and before it answers, the write fails.
    pub page: Option<u64>,
}

impl Lov {
    /// Writes `data` at `offset`, under the locks in `held`. Returns how many bytes from the start
    /// of `data` are in the file. That is all of it, or less if an OST rejected the remainder or
    /// the layout's maximum file size cuts it (as with write(2)).
    ///
    /// # Errors
    /// EFBIG: `offset` is at or beyond the maximum file size. MOVED: objects are sealed, and
    /// nothing is written. MOVED_PARTLY: objects are sealed, and something may be written. EIO,
    /// with `sync`: an earlier write without `sync` may be lost (reported once). Otherwise the
    /// error of an OST, if not even the first byte was written.
    pub async fn write(
        &self,
        layout: &Layout,
        offset: u64,
        data: Bulk,
        mode: WriteMode,
        held: &InUse,
    ) -> Result<usize> {
        let room = layout.max_file_size().saturating_sub(offset);
        if data.is_empty() {
            return Ok(0);
        }
        if room == 0 {
            return Err(Errno::EFBIG.into());
        }
        let data = if data.len() as u64 > room { data.slice(0, room as usize) } else { data };
        let split = Split::new(layout, offset, data.len() as u64);
        let _changing = self.ends.changing(layout);
        let mut begun = false;
        let answer = self.write_split(layout, &split, data, mode, held, &mut begun).await;
        after(begun, answer)
    }

    /// Writes the runs of `split`. Sets `begun` when a part is in the file or in flight, while the
    /// remainder may fail.
    async fn write_split(
        &self,
        layout: &Layout,
        split: &Split,
        data: Bulk,
        mode: WriteMode,
        held: &InUse,
        begun: &mut bool,
    ) -> Result<usize> {
        if mode.cache && data.len() < CACHED_WRITE_BYTES_MAX && self.keep(layout, split, &data, begun).await? {
            return Ok(data.len());
        }
        let in_use = |locks: Vec<LockRef>| InUse::new(layout, split.runs.iter().map(|run| run.stripe).zip(locks));
        let mut locks = if mode.lock { self.lock_runs(layout, split, None, true).await?.map(in_use) } else { None };
        for round in 0..ROUNDS_MAX {
            let mut settling = pin!(self.settle(layout, split));
            if locks.is_some() && self.rt.timeout(PATIENCE, settling.as_mut()).await.is_err() {
                // The flush takes too long: release the locks, and let the OSTs lock internally.
                locks = None;
            }
            if locks.is_none() {
                settling.await;
            }
            match self.write_through(layout, split, &data, mode, locks.as_ref().unwrap_or(held), begun).await {
                Err(NotWritten::LockFirst) => {}
                Err(NotWritten::Failure(failure)) => return Err(failure),
                Ok(written) => return Ok(written),
            }
            if locks.take().is_some() {
                self.rt.sleep(BUSY_PAUSE * round).await;
            }
            locks = self.lock_runs(layout, split, None, false).await?.map(in_use);
        }
        Err(Errno::EIO.into())
    }

    async fn write_through(
        &self,
        layout: &Layout,
        split: &Split,
        data: &Bulk,
        mode: WriteMode,
        held: &InUse,
        begun: &mut bool,
    ) -> Result<usize, NotWritten> {
        let (file, len) = (layout.fid(), data.len());
        let mut rpcs = split.rpcs(layout, |ost| self.max_bytes(ost))?;
        held.begin(rpcs.iter().map(|rpc| rpc.ost));
        if rpcs.len() == 1 && split.runs.len() == 1 {
            let Rpc { ost, parts, .. } = rpcs.swap_remove(0);
            self.write_rpc(file, ost, parts, mode, data.clone(), held).await?;
            return Ok(len);
        }
        let runs = deal(layout, split, data);
        let runs = &runs;
        let calls = rpcs.into_iter().map(|Rpc { ost, parts, pieces, .. }| async move {
            let mut bulk = Bulk::new();
            pieces.iter().for_each(|p| bulk.append(runs[p.run].slice(p.pos as usize, p.len as usize)));
            self.write_rpc(file, ost, parts, mode, bulk, held).await.map_err(|e| (e, pieces))?;
            held.done(ost);
            Ok(())
        });
        // The number of bytes of each run that are certainly written.
        let mut written: Vec<u64> = split.runs.iter().map(|r| r.len).collect();
        let mut failed = None;
        let answers = join_all(calls).await;
        let is_unwritten = |e: &NotWritten| matches!(e, NotWritten::Failure(Failure::MOVED) | NotWritten::LockFirst);
        *begun |= answers.iter().any(|answer| !matches!(answer, Err((e, _)) if is_unwritten(e)));
        for (error, pieces) in answers.into_iter().filter_map(|a| a.err()) {
            failed = Some(match (failed, error) {
                (Some(sealed @ NotWritten::Failure(Failure::LayoutMoved { .. })), _) => sealed,
                (Some(other), NotWritten::LockFirst) => other,
                (_, error) => error,
            });
            pieces.iter().for_each(|p| written[p.run] = written[p.run].min(p.pos));
        }
        match failed {
            None => Ok(len),
            // The caller repeats the whole write.
            Some(error @ (NotWritten::Failure(Failure::LayoutMoved { .. }) | NotWritten::LockFirst)) => Err(error),
            Some(error) => match prefix(layout, split, &written) {
                0 => Err(error),
                prefix => Ok(prefix as usize),
            },
        }
    }

    async fn write_rpc(
        &self,
        file: Fid,
        ost: u32,
        parts: Vec<Part>,
        mode: WriteMode,
        bulk: Bulk,
        held: &InUse,
    ) -> Result<(), NotWritten> {
        let WriteMode { sync, guarded, page, .. } = mode;
        let target = self.ost(ost).await?;
        let (osc, writeback) = (&target.osc, &target.writeback);
        let before = if sync { self.unsynced.before(file, ost) } else { None };
        // A guarded write is an append, which is never cached. An unused grant would be space that
        // no client can use.
        let grant = Grant { used: 0, want: if guarded { 0 } else { writeback.want() } };
        // A page was stored under a lock, so a restarted OST accepts it before other clients write.
        let under_lock = guarded || page.is_some();
        let request = Request::Write { file, parts, sync, mtime: None, grant, held: under_lock };
        let request = osc.request(request).bulk(bulk);
        let append = if guarded { held.append(ost) } else { None };
        let request = if append.is_none() && under_lock { request.guarded() } else { request };
        // After `guarded`: an eviction from now on makes the request fail.
        if page.is_some_and(|valid| target.has_discarded_since(valid)) {
            return Err(Errno::EIO.into());
        }
        let response = match append {
            Some(append) => append.send(request).await.inspect_err(|_| held.end_append(ost))?,
            None => request.send().await?,
        };
        match response.body {
            Reply::Done { epoch, granted, tight, .. } => {
                writeback.granted(granted);
                self.tight.note(file, tight);
                if sync {
                    return Ok(self.unsynced.changed_durably(file, ost, before, epoch)?);
                }
                writeback.changed(file, Changed { epoch, transno: response.transno });
                Ok(())
            }
            Reply::LockFirst => Err(NotWritten::LockFirst),
            _ => Err(Errno::EPROTO.into()),
        }
    }
}

/// Returns each run's bytes, sharing memory with `data`.
pub(super) fn deal(layout: &Layout, split: &Split, data: &Bulk) -> Vec<Bulk> {
    let mut runs = vec![Bulk::new(); split.runs.len()];
    for (run, _, chunk) in split.chunks(layout) {
        runs[run].append(data.slice((chunk.file_offset - split.offset) as usize, chunk.len as usize));
    }
    runs
}

/// Returns how many bytes from the start of the range are written, given the number for each run.
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
