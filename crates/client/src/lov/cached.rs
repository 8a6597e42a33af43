//! Writes into the write-back cache ([`crate::writeback`]), and the flushes that other operations
//! need first.
//!
//! Invariants:
//! * a write is cached under PW locks on its whole range, which are in use until the data is
//!   stored;
//! * while a lock is waited for, no other lock is in use;
//! * a write is not cached if an owner of the file is near a limit of space;
//! * an operation that bypasses the cache (larger writes, reads, truncates, …) first flushes the
//!   dirty data in its range.

use std::sync::Arc;

use sheen_layout::Layout;
use sheen_rt::join::join_all;
use sheen_wire::{
    Bulk, Errno, Fid,
    ldlm::{Enqueued, Flags, Mode, Policy, Resource},
    ost::ObjectAttr,
};

use super::{
    Lov, Ost,
    split::{Run, Split},
    stripe,
    write::deal,
};
use crate::{
    failure::Result,
    limits::{CACHED_WRITE_BYTES_MAX, PAGE_BYTES},
    locks::LockRef,
    writeback::{Put, pattern::Stride},
};

/// Maximum number of attempts to lock a write before it is sent lockless.
const ROUNDS_MAX: usize = 4;
/// Alignment of the locks for small writes, in bytes: a power of two.
const CHUNK_BYTES: u64 = 1 << 20;
/// Maximum number of records that are locked ahead: a few megabytes, which travel in one request.
const AHEAD_MAX: usize = 63;
/// Maximum number of records that are looked at for that: some are in other objects.
const RECORDS_MAX: usize = 8 * AHEAD_MAX;
/// The byte range of a whole object.
const WHOLE: (u64, u64) = (0, u64::MAX);

/// Returns the first and the last byte of a run in its object.
fn range(run: &Run) -> (u64, u64) {
    (run.offset, run.offset + (run.len - 1))
}

/// Returns the first and the last byte, in the object of a stripe, of a range of the file with this
/// first and last byte. `None`: no part of the range is in this object.
fn in_object(layout: &Layout, stripe: usize, (first, last): (u64, u64)) -> Option<(u64, u64)> {
    let len = (last - first).checked_add(1)?;
    let chunks = layout.map(first, len).filter(|chunk| chunk.stripe == stripe);
    let ranges = chunks.map(|chunk| (chunk.object_offset, chunk.object_offset + (chunk.len - 1)));
    // All chunks of a contiguous range are contiguous in their object.
    ranges.reduce(|(start, _), (_, end)| (start, end))
}

impl Lov {
    /// Buffers a write in the write-back cache. Returns `false` if it must go to the OSTs. `begun`:
    /// set if a part was cached although the write as a whole was not.
    ///
    /// # Errors
    /// The error of an OST that was asked for locks.
    pub async fn keep(&self, layout: &Layout, split: &Split, data: &Bulk, begun: &mut bool) -> Result<bool> {
        if self.tight.contains(layout.fid()) || !self.may_keep(layout, split) {
            return Ok(false);
        }
        let stride = self.note_write(layout, split);
        for _ in 0..ROUNDS_MAX {
            let Some(locks) = self.lock_runs(layout, split, stride, true).await? else { return Ok(false) };
            // The replies with the locks may say so.
            if self.tight.contains(layout.fid()) {
                return Ok(false);
            }
            let put = self.put(layout, split, data)?;
            drop(locks);
            *begun |= put.is_err() && split.runs.len() > 1;
            match put {
                Ok(()) => return Ok(true),
                Err((_, Put::NoGrant | Put::NoMemory | Put::Done)) => return Ok(false),
                Err((ost, Put::Full)) => ost.writeback.room().await,
            }
        }
        Ok(false)
    }

    /// Notes a write to a file. Returns the stride that it continues.
    fn note_write(&self, layout: &Layout, split: &Split) -> Option<Stride> {
        let len = split.runs.iter().map(|run| run.len).sum();
        // Always the same object, because each sees only some of the writes.
        let (ost, object) = layout.stripes().iter().find_map(|s| Some((self.get(s.ost)?, s.object)))?;
        ost.writeback.note_write(object, split.offset, len)
    }

    /// Requests PW on a run of the write at `offset`, which continues a stride, and waits for it.
    /// The same request asks for locks on what the following records have in the same object, if
    /// nothing conflicts with them. All locks have exactly the size of the data. So writers with
    /// interleaved records do not revoke each other's locks. Returns the lock on the run, and
    /// whether it was refused.
    async fn lock_records(
        &self,
        layout: &Layout,
        run: &Run,
        offset: u64,
        stride: Stride,
    ) -> Result<(Option<LockRef>, bool)> {
        let stripe = stripe(layout, run.stripe)?;
        let exact = Flags { no_expand: true, ..Flags::default() };
        let ahead = Flags { nowait: true, ..exact };
        let first = std::iter::once((range(run), exact));
        let records = stride.after(offset, RECORDS_MAX);
        let here = records.filter_map(|record| in_object(layout, run.stripe, record));
        let is_missing = |&(start, end): &(u64, u64)| {
            let run = Run { stripe: run.stripe, offset: start, len: end - start + 1 };
            self.lock_on(layout, &run).is_none()
        };
        let next = here.filter(is_missing).take(AHEAD_MAX).map(|range| (range, ahead));
        let wants: Vec<_> = first
            .chain(next)
            .map(|((start, end), flags)| (layout.fid(), stripe.object, Policy::extent(start, end), flags))
            .collect();
        let answers = self.enqueue_each(stripe.ost, &wants, Mode::Pw).await?;
        let Some((lock, answer, _)) = answers.into_iter().next() else { return Err(Errno::EPROTO.into()) };
        Ok((lock, matches!(answer, Enqueued::Refused(_))))
    }

    /// Whether the OSTs are active and have granted enough space. Without that, locks would be
    /// useless.
    fn may_keep(&self, layout: &Layout, split: &Split) -> bool {
        split.runs.iter().all(|run| {
            let ost = layout.stripes().get(run.stripe).and_then(|s| self.get(s.ost));
            ost.is_some_and(|ost| ost.osc.active() && ost.writeback.has_grant(run.len + 2 * PAGE_BYTES))
        })
    }

    /// Stores a write in the caches of its OSTs. If one rejects its part, returns this OST and the
    /// reason.
    fn put(&self, layout: &Layout, split: &Split, data: &Bulk) -> Result<std::result::Result<(), (Arc<Ost>, Put)>> {
        let file = layout.fid();
        let put = |run: &Run, data: &Bulk| {
            let stripe = stripe(layout, run.stripe)?;
            let ost = self.get(stripe.ost).ok_or(Errno::EIO)?;
            let put = ost.writeback.put(file, stripe.object, run.offset, data);
            Ok(if put == Put::Done { Ok(()) } else { Err((ost, put)) })
        };
        if let [only] = &split.runs[..] {
            return put(only, data);
        }
        for (run, data) in split.runs.iter().zip(deal(layout, split, data)) {
            if let Err(refused) = put(run, &data)? {
                return Ok(Err(refused));
            }
        }
        Ok(Ok(()))
    }

    /// Locks the whole range of a write in PW. With the `stride` that the write continues, also
    /// requests locks ahead. `None`: the write is sent lockless, because an object is contended
    /// (`lockless`: such an object needs no lock), or because locks are revoked faster than they
    /// are granted.
    ///
    /// # Errors
    /// The error of an OST.
    pub async fn lock_runs(
        &self,
        layout: &Layout,
        split: &Split,
        stride: Option<Stride>,
        lockless: bool,
    ) -> Result<Option<Vec<LockRef>>> {
        for _ in 0..ROUNDS_MAX {
            let there = split.runs.iter().map(|run| self.lock_on(layout, run));
            if let Some(locks) = there.collect::<Option<Vec<_>>>() {
                return Ok(Some(locks));
            }
            for run in &split.runs {
                if self.lock_on(layout, run).is_some() {
                    continue;
                }
                let is_granted = match stride {
                    Some(stride) => match self.lock_records(layout, run, split.offset, stride).await? {
                        // Used once, even if it is revoked already.
                        (Some(lock), _) if split.runs.len() == 1 => return Ok(Some(vec![lock])),
                        (_, is_refused) => !is_refused,
                    },
                    None => self.lock_run(layout, run, lockless).await?,
                };
                if !is_granted {
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }

    /// Returns the PW or group lock on a run, if it is held.
    fn lock_on(&self, layout: &Layout, run: &Run) -> Option<LockRef> {
        let stripe = layout.stripes().get(run.stripe)?;
        let (start, end) = range(run);
        let (resource, policy) = (Resource::extent(stripe.object), Policy::extent(start, end));
        self.get(stripe.ost)?.osc.locks().matching_in(resource, Mode::Pw, &policy)
    }

    /// Requests PW on a run, and waits for it. Returns whether it was granted; it may have been
    /// revoked since.
    async fn lock_run(&self, layout: &Layout, run: &Run, lockless: bool) -> Result<bool> {
        let stripe = stripe(layout, run.stripe)?;
        let ost = self.ost(stripe.ost).await?;
        if lockless && ost.writeback.is_contended(stripe.object) {
            return Ok(false);
        }
        let ((mut start, mut end), flags) = (range(run), Flags { lockless, ..Flags::default() });
        if run.len < CACHED_WRITE_BYTES_MAX as u64 {
            // If the OST does not expand locks, one lock should serve more than one small write.
            (start, end) = (start & !(CHUNK_BYTES - 1), end | (CHUNK_BYTES - 1));
        }
        let objects = [(layout.fid(), stripe.object)];
        let answers = self.enqueue(stripe.ost, &objects, Mode::Pw, Policy::extent(start, end), flags).await?;
        let Some((lock, answer, _)) = answers.into_iter().next() else { return Err(Errno::EPROTO.into()) };
        if answer == Enqueued::Contended {
            ost.writeback.note_contended(stripe.object);
        }
        Ok(lock.is_some())
    }

    /// Flushes the dirty data of a range, and waits for it.
    pub async fn settle(&self, layout: &Layout, split: &Split) {
        if !self.keeps_writes() {
            return;
        }
        for run in &split.runs {
            let Ok(stripe) = stripe(layout, run.stripe) else { continue };
            if let Some(ost) = self.get(stripe.ost)
                && ost.writeback.holds(stripe.object, range(run))
            {
                ost.writeback.flush(stripe.object, range(run)).await;
            }
        }
    }

    /// Flushes the dirty data of a file, and waits for it. [`Lov::take_error`] returns the error of
    /// a failed write.
    pub async fn settle_file(&self, layout: &Layout) {
        let flushes = self.dirty_of(layout).into_iter().map(|(ost, object)| async move {
            ost.writeback.flush(object, WHOLE).await;
        });
        join_all(flushes).await;
    }

    /// Starts to flush the dirty data of a file.
    pub fn begin_settle(&self, layout: &Layout) {
        self.dirty_of(layout).into_iter().for_each(|(ost, object)| ost.writeback.begin_flush(object));
    }

    /// Flushes all dirty data, and waits for it.
    pub async fn settle_all(&self) {
        if self.keeps_writes() {
            let osts = self.all();
            join_all(osts.iter().map(|ost| ost.writeback.flush_all())).await;
        }
    }

    /// Returns and clears the stored write error of a file.
    pub fn take_error(&self, layout: &Layout) -> Option<Errno> {
        let osts: std::collections::BTreeSet<u32> = layout.stripes().iter().map(|s| s.ost).collect();
        let errors: Vec<Errno> =
            osts.into_iter().filter_map(|ost| self.get(ost)?.writeback.take_error(layout.fid())).collect();
        errors.into_iter().next()
    }

    /// Returns the attributes of the objects' dirty data, by stripe; empty if there is none. Call
    /// it before the OSTs are asked, because the data may be flushed meanwhile.
    pub fn dirty_attrs(&self, layout: &Layout) -> Vec<Option<ObjectAttr>> {
        if !self.keeps_writes() {
            return Vec::new();
        }
        layout.stripes().iter().map(|s| self.get(s.ost)?.writeback.attr(s.object)).collect()
    }

    fn dirty_of(&self, layout: &Layout) -> Vec<(Arc<Ost>, Fid)> {
        if !self.keeps_writes() {
            return Vec::new();
        }
        let held = |s: &sheen_layout::Stripe| {
            let ost = self.get(s.ost)?;
            ost.writeback.holds(s.object, WHOLE).then_some((ost, s.object))
        };
        layout.stripes().iter().filter_map(held).collect()
    }
}

/// Merges the OST's attributes of an object with those of its earlier dirty data.
pub fn with_dirty(attr: ObjectAttr, dirty: Option<ObjectAttr>) -> ObjectAttr {
    let Some(dirty) = dirty else { return attr };
    ObjectAttr {
        size: attr.size.max(dirty.size),
        blocks: attr.blocks.saturating_add(dirty.blocks),
        mtime: attr.mtime.max(dirty.mtime),
    }
}

#[cfg(test)]
mod tests {
    use sheen_layout::Stripe;

    use super::*;

    const MI: u64 = 1 << 20;

    #[test]
    fn records_are_found_in_their_object() {
        let stripes = [0, 1].map(|ost| Stripe { object: Fid::new(0x1_0000_0000, ost + 5), ost });
        let layout = Layout::new(Fid::new(0x2_0000_0400, 1), MI as u32, None, stripes.to_vec()).unwrap();
        let first = |record: (u64, u64)| in_object(&layout, 0, record);
        assert_eq!(first((4096, 51_103)), Some((4096, 51_103)));
        assert_eq!(first((2 * MI + 4096, 2 * MI + 51_103)), Some((MI + 4096, MI + 51_103)), "its second unit");
        assert_eq!(first((MI + 4096, MI + 51_103)), None, "in the other object");
        assert_eq!(first((MI - 1, MI)), Some((MI - 1, MI - 1)), "its part");
        assert_eq!(first((MI - 4096, 3 * MI)), Some((MI - 4096, 2 * MI - 1)), "two parts, around the other's");
        assert_eq!(first((0, u64::MAX)), None);
    }
}
