//! How much of a range lies within the file: of a page of a mapping no more is written.
//!
//! The object that has the last byte of the range is asked alone first, for if it reaches so far,
//! so does the file. What it was seen to have is remembered with the lock on it, under which nobody
//! else can cut it ([`crate::cache::data`]): as long as that is held, nobody is asked.

use sheen_layout::{Chunk, Layout};
use sheen_wire::{Result, ldlm::Cookie};

use super::{Lov, cached::with_kept, enqueue::WHOLE, stripe};

impl Lov {
    /// How many of `len` bytes at `offset` lie before the end of the file, what this client keeps
    /// of it included. Waits for nobody's lock.
    ///
    /// # Errors
    /// MOVED: objects are closed. What an OST answers.
    pub async fn inside(&self, layout: &Layout, offset: u64, len: u64) -> Result<u64> {
        let Some(end) = offset.checked_add(len) else { return Ok(0) };
        let last = layout.map(end.saturating_sub(1), 1).next();
        let reach = match &last {
            Some(last) => self.reach(layout, last).await?,
            None => 0,
        };
        let is_whole = reach >= end || last.is_some() && layout.stripe_count() == 1;
        let end = if is_whole { reach } else { self.size(layout).await? };
        Ok(end.saturating_sub(offset).min(len))
    }

    /// How far the file reaches at least, by the object of a chunk.
    async fn reach(&self, layout: &Layout, chunk: &Chunk) -> Result<u64> {
        let (index, stripe) = (chunk.stripe, *stripe(layout, chunk.stripe)?);
        let osc = self.osc(stripe.ost).await?;
        let file = self.cache().data.get(layout.fid());
        let is_held = |lock: Cookie| osc.locks().is_held(lock, &WHOLE);
        let seen = file.as_ref().and_then(|file| file.seen(stripe.object));
        if let Some((lock, size)) = seen
            && size > chunk.object_offset
            && is_held(lock)
        {
            return Ok(layout.file_size(index, size));
        }
        let lock = self.matching(layout, index).map(|lock| lock.cookie());
        let cuts = file.as_ref().and_then(|file| file.cuts());
        let kept = osc.writeback().attr(stripe.object);
        let attrs = self.object_attrs(stripe.ost, vec![stripe.object]).await?;
        let size = attrs.first().map_or(0, |attr| with_kept(*attr, kept).size);
        if let (Some(file), Some(lock), Some(cuts)) = (file, lock, cuts) {
            file.see(stripe.object, lock, size, cuts);
        }
        Ok(layout.file_size(index, size))
    }
}
