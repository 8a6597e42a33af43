//! Writing a range of a file.

use sheen_layout::Layout;
use sheen_wire::{
    Bulk, Errno, Fid, Result,
    ost::{Grant, Request},
};

use super::{
    Lov, done,
    split::{Rpc, Split},
};
use crate::join::join_all;

impl Lov {
    /// Writes `data` at `offset` and returns how many bytes from its start are in the file: all, or fewer where an OST refused the
    /// rest, or where the layout's largest file size cuts it (as write(2) does). `sync`: durable before the answer.
    ///
    /// # Errors
    /// EFBIG: at or past the largest size. EIO, with `sync`: what was written without it before may be lost (told once). What an OST answers, if not even the first byte was written.
    pub async fn write(&self, layout: &Layout, offset: u64, data: Bulk, sync: bool) -> Result<usize> {
        let room = layout.max_file_size().saturating_sub(offset);
        if data.is_empty() {
            return Ok(0);
        }
        if room == 0 {
            return Err(Errno::EFBIG);
        }
        let data = if data.len() as u64 > room { data.slice(0, room as usize) } else { data };
        let len = data.len();
        let split = Split::new(layout, offset, len as u64);
        let mut rpcs = split.rpcs(layout, |ost| self.max_bytes(ost))?;
        if rpcs.len() == 1 && split.runs.len() == 1 {
            let Rpc { ost, parts, .. } = rpcs.swap_remove(0);
            self.write_rpc(
                layout.fid(),
                ost,
                Request::Write { parts, sync, mtime: None, grant: Grant::default() },
                data,
            )
            .await?;
            return Ok(len);
        }
        let runs = deal(layout, &split, offset, &data);
        let runs = &runs;
        let calls = rpcs.into_iter().map(|Rpc { ost, parts, pieces, .. }| async move {
            let mut bulk = Bulk::new();
            pieces.iter().for_each(|p| bulk.append(runs[p.run].slice(p.pos as usize, p.len as usize)));
            let answer = self
                .write_rpc(
                    layout.fid(),
                    ost,
                    Request::Write { parts, sync, mtime: None, grant: Grant::default() },
                    bulk,
                )
                .await;
            answer.map_err(|errno| (errno, pieces))
        });
        // Of each run, how much is certainly written.
        let mut written: Vec<u64> = split.runs.iter().map(|r| r.len).collect();
        let mut failed = None;
        for (errno, pieces) in join_all(calls).await.into_iter().filter_map(|a| a.err()) {
            failed = Some(errno);
            pieces.iter().for_each(|p| written[p.run] = written[p.run].min(p.pos));
        }
        match failed {
            None => Ok(len),
            Some(errno) => match prefix(layout, &split, &written) {
                0 => Err(errno),
                prefix => Ok(prefix as usize),
            },
        }
    }

    async fn write_rpc(&self, file: Fid, ost: u32, request: Request, bulk: Bulk) -> Result<()> {
        if !matches!(request, Request::Write { sync: true, .. }) {
            return self.change(file, ost, request, bulk).await;
        }
        let before = self.unsynced.before(file, ost);
        let epoch = done(self.call(ost, request, bulk).await?.0)?;
        self.unsynced.changed_durably(file, ost, before, epoch)
    }
}

/// Each run's bytes, sharing memory with `data`.
fn deal(layout: &Layout, split: &Split, offset: u64, data: &Bulk) -> Vec<Bulk> {
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
