//! Reading a range of a file.
//!
//! If an object ends inside the range, the missing bytes are a hole or lie beyond the end of the
//! file. Bytes that follow in another object show that they are a hole, to be filled with zeros.
//! Only if the missing bytes end the range, the client requests the file size. A file with one
//! object never needs that, because the object's end is the file's end. Bytes in components without
//! objects count as missing, too.
//!
//! A single large read from one object of a remote OST would keep only one processor busy at a
//! time. The server reads and checksums all of it, then sends it, then the client verifies it. So
//! it is sent as two concurrent requests, whose phases overlap (a third faster over tcp on one
//! machine). Several concurrent reads overlap without that.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use sheen_layout::Layout;
use sheen_lnet::{Live, Nid};
use sheen_rpc::Response;
use sheen_rt::join::join_all;
use sheen_wire::{
    Bulk, Errno,
    ost::{ObjectAttr, Reply, Request},
};

use super::{
    Lov,
    glimpse::size,
    split::{Piece, Rpc, Split},
};
use crate::failure::{Failure, Result};

/// Zeros shared by all holes. 64 KiB is the smallest stripe size, so a hole of one stripe is one
/// piece.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Minimum size in bytes of a single read that is split in two. For smaller reads a second request
/// costs more than it saves.
const HALVE_BYTES_MIN: u64 = 512 << 10;
/// Maximum number of searches for missing bytes when the file grows meanwhile.
const LOOKS_MAX: usize = 8;
/// Alignment in bytes of the split: a page.
const HALVE_ALIGN: u64 = 4096;

/// Counts a read as under way until it is dropped.
struct Reading<'a>(&'a AtomicUsize);

impl<'a> Reading<'a> {
    /// Registers a read. Also returns whether it is the only one.
    fn begin(count: &'a AtomicUsize) -> (Reading<'a>, bool) {
        let alone = count.fetch_add(1, Relaxed) == 0;
        (Reading(count), alone)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Lov {
    /// Returns the bytes `[offset, offset + len)`, fewer at the end of the file, without copying.
    /// The caller bounds `len`. With `in_place`, an OST in this process may return the location of
    /// all bytes (`Live`) instead of a bulk.
    pub async fn read(&self, layout: &Layout, offset: u64, len: u64, in_place: bool) -> Result<(Bulk, Option<Live>)> {
        let len = len.min(layout.max_file_size().saturating_sub(offset));
        if len == 0 {
            return Ok((Bulk::new(), None));
        }
        self.settle(layout, &Split::new(layout, offset, len)).await;
        let dirty = self.dirty_attrs(layout);
        let (mut data, live) = self.found(layout, offset, len, in_place).await?;
        if live.is_none() && (data.len() as u64) < len {
            self.append_rest(layout, &dirty, offset, len, &mut data).await?;
        }
        Ok((data, live))
    }

    /// Returns the bytes of a range that the objects have, with zeros for holes before the last
    /// byte found.
    async fn found(&self, layout: &Layout, offset: u64, len: u64, in_place: bool) -> Result<(Bulk, Option<Live>)> {
        let split = Split::new(layout, offset, len);
        let (_reading, alone) = Reading::begin(&self.reads);
        let halve = alone && split.runs.len() == 1 && len >= HALVE_BYTES_MIN;
        let half = len.div_ceil(2).next_multiple_of(HALVE_ALIGN);
        let mut rpcs = split.rpcs(layout, |ost| {
            let max = self.max_bytes(ost);
            if halve && self.is_remote(ost) { max.min(half) } else { max }
        })?;
        let mut runs = vec![Bulk::new(); split.runs.len()];
        if rpcs.is_empty() {
            // The range has no objects.
        } else if rpcs.len() == 1 {
            let Rpc { ost, parts, pieces, .. } = rpcs.swap_remove(0);
            let (reply, bulk) = match *parts {
                [part] if in_place && u64::from(part.len) == len => {
                    let ost = self.ost(ost).await?;
                    let request = Request::Read { parts: vec![part] };
                    let Response { body, bulk, live, .. } = ost.osc.request(request).send_in_place().await?;
                    if live.is_some() {
                        return Ok((bulk, live));
                    }
                    (body, bulk)
                }
                _ => self.call(ost, Request::Read { parts }, Bulk::new()).await?,
            };
            distribute(&mut runs, &pieces, reply, bulk)?;
        } else {
            let calls = rpcs.into_iter().map(|Rpc { ost, parts, pieces, .. }| async move {
                Ok::<_, Failure>((self.call(ost, Request::Read { parts }, Bulk::new()).await?, pieces))
            });
            for answer in join_all(calls).await {
                let ((reply, bulk), pieces) = answer?;
                distribute(&mut runs, &pieces, reply, bulk)?;
            }
        }
        let data = match &mut runs[..] {
            [only] if split.runs[0].len == len => std::mem::take(only),
            _ => assemble(layout, &split, &runs),
        };
        Ok((data, None))
    }

    /// Completes a read whose range ends in missing bytes. Appends nothing if the file ends there,
    /// zeros for a hole, or bytes that were written since. It accepts a hole only if the objects'
    /// attributes were the same before and after the search. Otherwise the file was shorter before,
    /// and has grown.
    #[cold]
    async fn append_rest(
        &self,
        layout: &Layout,
        dirty: &[Option<ObjectAttr>],
        offset: u64,
        len: u64,
        data: &mut Bulk,
    ) -> Result<()> {
        // If this client holds a lock on the only object, no other client can have written there.
        // Then the object's end is the file's end, at no cost. The caller determined the cached
        // sizes before the read.
        if layout.stripe_count() == 1 && self.matching(layout, 0).is_some() {
            let end = dirty.first().copied().flatten().map_or(0, |dirty| layout.file_size(0, dirty.size));
            push_zeros(data, end.min(offset + len).saturating_sub(offset + data.len() as u64));
            return Ok(());
        }
        for left in (0..LOOKS_MAX).rev() {
            let (known, objects) = (offset + data.len() as u64, self.glimpse(layout).await?);
            let end = size(layout, &objects).min(offset + len);
            if end <= known {
                break;
            }
            data.append(self.found(layout, known, end - known, false).await?.0);
            let hole = end - (offset + data.len() as u64);
            if hole == 0 {
                break;
            }
            if left == 0 || self.glimpse(layout).await? == objects {
                push_zeros(data, hole);
                break;
            }
        }
        Ok(())
    }

    /// Whether an OST is known to run in another process.
    fn is_remote(&self, ost: u32) -> bool {
        let nid = self.get(ost).and_then(|ost| ost.osc.import().current_nid());
        nid.is_some_and(|nid| nid != Nid::Lo)
    }
}

/// Distributes the bytes of a reply to the runs of its pieces.
fn distribute(runs: &mut [Bulk], pieces: &[Piece], reply: Reply, bulk: Bulk) -> Result<()> {
    let Reply::Read(lens) = reply else { return Err(Errno::EPROTO.into()) };
    let fits = lens.len() == pieces.len() && lens.iter().zip(pieces).all(|(len, piece)| *len <= piece.len);
    if !fits || lens.iter().map(|l| *l as usize).sum::<usize>() != bulk.len() {
        return Err(Errno::EPROTO.into());
    }
    if let ([piece], [_]) = (pieces, &lens[..])
        && piece.pos == 0
    {
        runs[piece.run] = bulk;
        return Ok(());
    }
    let mut start = 0;
    for (piece, len) in pieces.iter().zip(lens) {
        let run = &mut runs[piece.run];
        if len > 0 {
            // The object grew between two requests: the bytes missing in the first reply are a
            // hole.
            let hole = piece.pos.saturating_sub(run.len() as u64);
            push_zeros(run, hole);
            run.append(bulk.slice(start, len as usize));
        }
        start += len as usize;
    }
    Ok(())
}

/// Returns the runs' bytes in file order, with zeros for holes before the last byte found.
fn assemble(layout: &Layout, split: &Split, runs: &[Bulk]) -> Bulk {
    let mut data = Bulk::new();
    for (run, pos, chunk) in split.chunks(layout) {
        let found = runs[run].slice(pos as usize, chunk.len as usize);
        if !found.is_empty() {
            let hole = (chunk.file_offset - split.offset).saturating_sub(data.len() as u64);
            push_zeros(&mut data, hole);
            data.append(found);
        }
    }
    data
}

fn push_zeros(data: &mut Bulk, mut len: u64) {
    while len > 0 {
        let take = len.min(ZEROS.len() as u64);
        data.push(Bytes::from_static(&ZEROS[..take as usize]));
        len -= take;
    }
}
