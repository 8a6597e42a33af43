//! Reading a range of a file.
//!
//! An object that ends early means a hole, or the end of the file. Bytes that follow in another
//! object settle it: the file goes on, so what is missing before them is zeros. Only where the
//! range ends in missing bytes is the file's size asked for. A file with one object never needs
//! that: its object's end is its own. What lies in components without objects is missing as well.
//!
//! A large read that is the only one, from one object of another process, would use one processor
//! after another: the server reads and checksums all of it, then sends it, then the client checks
//! it. It goes as two requests at once, so that the halves overlap (a third faster over tcp on one
//! machine). Where several reads run they overlap by themselves.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use sheen_layout::Layout;
use sheen_lnet::{Live, Nid};
use sheen_wire::{
    Bulk, Errno, Result,
    ost::{ObjectAttr, Reply, Request},
};

use super::{
    Lov,
    glimpse::size,
    split::{Piece, Rpc, Split},
};
use crate::join::join_all;

/// The zeros that all holes share. 64 KiB: the smallest stripe, so a hole of one stripe is one
/// piece.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// From this size on a lone read is halved: smaller ones take less time than a second request
/// costs.
const HALVE_BYTES_MIN: u64 = 512 << 10;
/// Times that what a read found missing is looked for, because the file becomes longer meanwhile.
const LOOKS_MAX: usize = 8;
/// Halves begin at a page.
const HALVE_ALIGN: u64 = 4096;

/// Counts a read as under way until it is dropped.
struct Reading<'a>(&'a AtomicUsize);

impl<'a> Reading<'a> {
    /// Also whether it is the only one.
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
    /// Bytes `[offset, offset + len)`, fewer at the end of the file, without copying. The caller
    /// bounds `len`. With `in_place` all of them may be left where they are: then there is no bulk.
    pub async fn read(&self, layout: &Layout, offset: u64, len: u64, in_place: bool) -> Result<(Bulk, Option<Live>)> {
        let len = len.min(layout.max_file_size().saturating_sub(offset));
        if len == 0 {
            return Ok((Bulk::new(), None));
        }
        self.settle(layout, &Split::new(layout, offset, len)).await;
        let kept = self.kept_attrs(layout);
        let (mut data, live) = self.found(layout, offset, len, in_place).await?;
        if live.is_none() && (data.len() as u64) < len {
            self.append_rest(layout, &kept, offset, len, &mut data).await?;
        }
        Ok((data, live))
    }

    /// What the objects have of a range, with zeros for holes before the last byte found.
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
            // There are no objects.
        } else if rpcs.len() == 1 {
            let Rpc { ost, parts, pieces, .. } = rpcs.swap_remove(0);
            let (reply, bulk) = match *parts {
                [part] if in_place && u64::from(part.len) == len => {
                    let (reply, bulk, live) = self.osc(ost).await?.read_in_place(part).await?;
                    if live.is_some() {
                        return Ok((bulk, live));
                    }
                    (reply, bulk)
                }
                _ => self.call(ost, Request::Read { parts }, Bulk::new()).await?,
            };
            distribute(&mut runs, &pieces, reply, bulk)?;
        } else {
            let calls = rpcs.into_iter().map(|Rpc { ost, parts, pieces, .. }| async move {
                Ok::<_, Errno>((self.call(ost, Request::Read { parts }, Bulk::new()).await?, pieces))
            });
            for answer in join_all(calls).await {
                let ((reply, bulk), pieces) = answer?;
                distribute(&mut runs, &pieces, reply, bulk)?;
            }
        }
        let data = match &mut runs[..] {
            [only] if split.runs[0].len == len => std::mem::take(only),
            _ => assemble(layout, &split, &runs, offset),
        };
        Ok((data, None))
    }

    /// What a range has behind the bytes that were found: nothing where the file ends, zeros in a
    /// hole, or what was written there since. A hole is one if the objects were the same before and
    /// after it was looked for: else the file was shorter then, and is longer now.
    #[cold]
    async fn append_rest(
        &self,
        layout: &Layout,
        kept: &[Option<ObjectAttr>],
        offset: u64,
        len: u64,
        data: &mut Bulk,
    ) -> Result<()> {
        // A lone object's end is the file's, if nobody else can have written there: then this costs
        // nothing. What is kept here the caller looked up before the read.
        if layout.stripe_count() == 1 && self.matching(layout, 0).is_some() {
            let end = kept.first().copied().flatten().map_or(0, |kept| layout.file_size(0, kept.size));
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

    /// Whether an OST is known to live in another process.
    fn is_remote(&self, ost: u32) -> bool {
        let nid = self.get(ost).and_then(|osc| osc.import().current_nid());
        nid.is_some_and(|nid| nid != Nid::Lo)
    }
}

/// Gives the bytes of a reply to the runs that its parts are pieces of.
fn distribute(runs: &mut [Bulk], pieces: &[Piece], reply: Reply, bulk: Bulk) -> Result<()> {
    let Reply::Read(lens) = reply else { return Err(Errno::EPROTO) };
    let fits = lens.len() == pieces.len() && lens.iter().zip(pieces).all(|(len, piece)| *len <= piece.len);
    if !fits || lens.iter().map(|l| *l as usize).sum::<usize>() != bulk.len() {
        return Err(Errno::EPROTO);
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
            // The object grew between two requests: what the first found missing is a hole.
            let hole = piece.pos.saturating_sub(run.len() as u64);
            push_zeros(run, hole);
            run.append(bulk.slice(start, len as usize));
        }
        start += len as usize;
    }
    Ok(())
}

/// Puts the runs' bytes in file order, with zeros for holes before the last byte found.
fn assemble(layout: &Layout, split: &Split, runs: &[Bulk], offset: u64) -> Bulk {
    let mut data = Bulk::new();
    for (run, pos, chunk) in split.chunks(layout) {
        let found = runs[run].slice(pos as usize, chunk.len as usize);
        if !found.is_empty() {
            let hole = (chunk.file_offset - offset).saturating_sub(data.len() as u64);
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
