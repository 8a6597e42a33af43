//! Writes that are kept ([`crate::writeback`]), and what has to come before other things are done
//! to what is kept.
//!
//! Invariants:
//! * a write is kept under PW locks on all that it touches, in use until it is in;
//! * while a lock is waited for no other one is in use;
//! * what goes past the cache (larger writes, reads, truncates, …) first has written what is kept
//!   of the same bytes.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use sheen_layout::Layout;
use sheen_wire::{
    Bulk, Errno, Fid, Result,
    ldlm::{Enqueued, Flags, Mode, Policy, Resource},
    ost::ObjectAttr,
};

use super::{
    Lov,
    split::{Run, Split},
    stripe,
    write::{KEEP_BYTES_MAX, deal},
};
use crate::{
    join::join_all,
    locks::LockRef,
    osc::{Osc, PAGE_BYTES},
    writeback::{Put, pattern::Stride},
};

/// Times that the locks for a write are asked for before it goes without.
const ROUNDS_MAX: usize = 4;
/// A lock for a small write is on whole chunks of this size: a power of two.
const CHUNK_BYTES: u64 = 1 << 20;
/// Records for which locks are asked for ahead: a few megabytes, which travel in one request.
const AHEAD_MAX: usize = 63;
/// All of an object.
const WHOLE: (u64, u64) = (0, u64::MAX);

/// What of an object a run is.
fn range(run: &Run) -> (u64, u64) {
    (run.offset, run.offset + (run.len - 1))
}

impl Lov {
    /// Whether anything is kept at all: asked before everything else.
    pub fn keeps_writes(&self) -> bool {
        self.kept.load(Relaxed) > 0
    }

    /// Keeps a write. `false`: it has to go to the OSTs. `rest`: it is that of a large write, which
    /// has none of a small one's patterns. `begun`: parts of it are kept all the same.
    ///
    /// # Errors
    /// What the OSTs answer who are asked for locks.
    pub async fn keep(
        &self,
        layout: &Layout,
        split: &Split,
        offset: u64,
        data: &Bulk,
        rest: bool,
        begun: &mut bool,
    ) -> Result<bool> {
        if !self.may_keep(layout, split) {
            return Ok(false);
        }
        let stride = if rest { None } else { self.note_write(layout, split) };
        for _ in 0..ROUNDS_MAX {
            let locks = match stride {
                Some(stride) => self.lock_ahead_of(layout, split, stride).await?,
                None if rest => self.lock_rest(layout, split).await?,
                None => self.lock_runs(layout, split, true).await?,
            };
            let Some(locks) = locks else { return Ok(false) };
            let put = self.put(layout, split, offset, data)?;
            drop(locks);
            *begun |= put.is_err() && split.runs.len() > 1;
            match put {
                Ok(()) => return Ok(true),
                Err((_, Put::NoGrant | Put::Done)) => return Ok(false),
                Err((osc, Put::Full)) => osc.writeback().room().await,
            }
        }
        Ok(false)
    }

    /// The stride that a write to one object goes on with.
    fn note_write(&self, layout: &Layout, split: &Split) -> Option<Stride> {
        let [run] = &split.runs[..] else { return None };
        let stripe = layout.stripes().get(run.stripe)?;
        self.get(stripe.ost)?.writeback().note_write(stripe.object, run.offset, run.len)
    }

    /// PW on what a write touches, which goes on with a stride: with it locks on the records that
    /// follow are asked for, of exactly their size, if nobody is in the way. So writers whose
    /// records interleave do not meet in their locks.
    async fn lock_ahead_of(&self, layout: &Layout, split: &Split, stride: Stride) -> Result<Option<Vec<LockRef>>> {
        let [run] = &split.runs[..] else { return Ok(None) };
        for _ in 0..ROUNDS_MAX {
            if let Some(lock) = self.lock_on(layout, run) {
                return Ok(Some(vec![lock]));
            }
            let stripe = stripe(layout, run.stripe)?;
            let exact = Flags { no_expand: true, ..Flags::default() };
            let ahead = Flags { nowait: true, ..exact };
            let first = std::iter::once((range(run), exact));
            let next = stride.after(run.offset, AHEAD_MAX).map(|range| (range, ahead));
            let wants: Vec<_> = first
                .chain(next)
                .map(|((start, end), flags)| (layout.fid(), stripe.object, Policy::extent(start, end), flags))
                .collect();
            let answers = self.enqueue_each(stripe.ost, &wants, Mode::Pw).await?;
            match answers.into_iter().next() {
                Some((Some(lock), ..)) => return Ok(Some(vec![lock])),
                Some((None, Enqueued::Refused(_), _)) => return Ok(None),
                _ => {}
            }
        }
        Ok(None)
    }

    /// PW on the rest of a large write: what is there, or what is worth asking for
    /// ([`super::rests`]).
    async fn lock_rest(&self, layout: &Layout, split: &Split) -> Result<Option<Vec<LockRef>>> {
        let there: Option<Vec<_>> = split.runs.iter().map(|run| self.lock_on(layout, run)).collect();
        if self.note_rest(layout.fid(), there.is_some()) {
            return self.lock_runs(layout, split, true).await;
        }
        Ok(there)
    }

    /// Whether the OSTs have promised the space: else locks for it would be of no use.
    fn may_keep(&self, layout: &Layout, split: &Split) -> bool {
        split.runs.iter().all(|run| {
            let osc = layout.stripes().get(run.stripe).and_then(|s| self.get(s.ost));
            osc.is_some_and(|osc| osc.writeback().has_grant(run.len + 2 * PAGE_BYTES))
        })
    }

    /// Puts a write into the caches. Who would not take its part, and why.
    fn put(
        &self,
        layout: &Layout,
        split: &Split,
        offset: u64,
        data: &Bulk,
    ) -> Result<std::result::Result<(), (Arc<Osc>, Put)>> {
        let file = layout.fid();
        let put = |run: &Run, data: &Bulk| {
            let stripe = stripe(layout, run.stripe)?;
            let osc = self.get(stripe.ost).ok_or(Errno::EIO)?;
            let put = osc.writeback().put(file, stripe.object, run.offset, data);
            Ok(if put == Put::Done { Ok(()) } else { Err((osc, put)) })
        };
        if let [only] = &split.runs[..] {
            return put(only, data);
        }
        for (run, data) in split.runs.iter().zip(deal(layout, split, offset, data)) {
            if let Err(refused) = put(run, &data)? {
                return Ok(Err(refused));
            }
        }
        Ok(Ok(()))
    }

    /// PW on all that a write touches, in use. `None`: it goes without, because an object is
    /// contended (`lockless`: if so, no lock is wanted) or locks are taken away faster than they
    /// come.
    ///
    /// # Errors
    /// What the OSTs answer.
    pub async fn lock_runs(&self, layout: &Layout, split: &Split, lockless: bool) -> Result<Option<Vec<LockRef>>> {
        for _ in 0..ROUNDS_MAX {
            let there = split.runs.iter().map(|run| self.lock_on(layout, run));
            if let Some(locks) = there.collect::<Option<Vec<_>>>() {
                return Ok(Some(locks));
            }
            for run in &split.runs {
                if self.lock_on(layout, run).is_none() && !self.lock_run(layout, run, lockless).await? {
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }

    /// PW, or a group's lock, on what a run is, if it is there.
    fn lock_on(&self, layout: &Layout, run: &Run) -> Option<LockRef> {
        let stripe = layout.stripes().get(run.stripe)?;
        let (start, end) = range(run);
        let (resource, policy) = (Resource::extent(stripe.object), Policy::extent(start, end));
        self.get(stripe.ost)?.locks().matching_in(resource, Mode::Pw, &policy)
    }

    /// Asks for PW on what a run is, and waits for it. Whether it came: it need not be there any
    /// longer.
    async fn lock_run(&self, layout: &Layout, run: &Run, lockless: bool) -> Result<bool> {
        let stripe = stripe(layout, run.stripe)?;
        let osc = self.osc(stripe.ost).await?;
        if lockless && osc.writeback().is_contended(stripe.object) {
            return Ok(false);
        }
        let ((mut start, mut end), flags) = (range(run), Flags { lockless, ..Flags::default() });
        if run.len < KEEP_BYTES_MAX as u64 {
            // Where locks do not grow, one is to be of use for more than one small write.
            (start, end) = (start & !(CHUNK_BYTES - 1), end | (CHUNK_BYTES - 1));
        }
        let objects = [(layout.fid(), stripe.object)];
        let answers = self.enqueue(stripe.ost, &objects, Mode::Pw, Policy::extent(start, end), flags).await?;
        let Some((lock, answer, _)) = answers.into_iter().next() else { return Err(Errno::EPROTO) };
        if answer == Enqueued::Contended {
            osc.writeback().note_contended(stripe.object);
        }
        Ok(lock.is_some())
    }

    /// Has written what is kept of a range, and waits for it.
    pub async fn settle(&self, layout: &Layout, split: &Split) {
        if !self.keeps_writes() {
            return;
        }
        for run in &split.runs {
            let Ok(stripe) = stripe(layout, run.stripe) else { continue };
            if let Some(osc) = self.get(stripe.ost)
                && osc.writeback().holds(stripe.object, range(run))
            {
                osc.writeback().flush(stripe.object, range(run)).await;
            }
        }
    }

    /// Has written what is kept of a file, and waits for it. What could not be written is told by
    /// [`Lov::take_error`].
    pub async fn settle_file(&self, layout: &Layout) {
        let flushes = self.kept_of(layout).into_iter().map(|(osc, object)| async move {
            osc.writeback().flush(object, WHOLE).await;
        });
        join_all(flushes).await;
    }

    /// Sends what is kept of a file on its way.
    pub fn begin_settle(&self, layout: &Layout) {
        self.kept_of(layout).into_iter().for_each(|(osc, object)| osc.writeback().begin_flush(object));
    }

    /// Has written all that is kept, and waits for it.
    pub async fn settle_all(&self) {
        if self.keeps_writes() {
            let oscs = self.all();
            join_all(oscs.iter().map(|osc| osc.writeback().flush_all())).await;
        }
    }

    /// Why something of a file could not be written; told once.
    pub fn take_error(&self, layout: &Layout) -> Option<Errno> {
        let osts: std::collections::BTreeSet<u32> = layout.stripes().iter().map(|s| s.ost).collect();
        let errors: Vec<Errno> =
            osts.into_iter().filter_map(|ost| self.get(ost)?.writeback().take_error(layout.fid())).collect();
        errors.into_iter().next()
    }

    /// What is kept of objects, by stripe; to be taken before the OSTs are asked, for it may be
    /// written meanwhile. Empty: nothing.
    pub fn kept_attrs(&self, layout: &Layout) -> Vec<Option<ObjectAttr>> {
        if !self.keeps_writes() {
            return Vec::new();
        }
        layout.stripes().iter().map(|s| self.get(s.ost)?.writeback().attr(s.object)).collect()
    }

    fn kept_of(&self, layout: &Layout) -> Vec<(Arc<Osc>, Fid)> {
        if !self.keeps_writes() {
            return Vec::new();
        }
        let held = |s: &sheen_layout::Stripe| {
            let osc = self.get(s.ost)?;
            osc.writeback().holds(s.object, WHOLE).then_some((osc, s.object))
        };
        layout.stripes().iter().filter_map(held).collect()
    }
}

/// What an object is, given what the OST said and what was kept before.
pub fn with_kept(attr: ObjectAttr, kept: Option<ObjectAttr>) -> ObjectAttr {
    let Some(kept) = kept else { return attr };
    ObjectAttr {
        size: attr.size.max(kept.size),
        blocks: attr.blocks.saturating_add(kept.blocks),
        mtime: attr.mtime.max(kept.mtime),
    }
}
