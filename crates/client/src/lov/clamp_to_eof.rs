//! Clamps a range to the end of the file, because a write of a mapped page must not extend the
//! file.
//!
//! The client first asks the object that contains the last byte of the range. If the object reaches
//! that far, the file does as well. The object's size is remembered together with the lock on it,
//! under which no other client can truncate it ([`super::LockedObjects`]). As long as the lock is
//! held, no further request is needed.

use sheen_layout::{Chunk, Layout};
use sheen_wire::ldlm::Cookie;

use super::{Lov, cached::with_dirty, enqueue::WHOLE, stripe};
use crate::failure::Result;

impl Lov {
    /// Returns how many of `len` bytes at `offset` lie before the end of the file, including this
    /// client's dirty data. Requests no locks, so it does not wait for other clients.
    ///
    /// # Errors
    /// MOVED: objects are sealed. Otherwise the error of an OST.
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

    /// Returns the minimum size of the file that follows from the size of a chunk's object.
    async fn reach(&self, layout: &Layout, chunk: &Chunk) -> Result<u64> {
        let (index, stripe) = (chunk.stripe, *stripe(layout, chunk.stripe)?);
        let (ost, file) = (self.ost(stripe.ost).await?, layout.fid());
        let is_held = |lock: Cookie| ost.osc.locks().is_held(lock, &WHOLE);
        if let Some((lock, size)) = self.objects.size(stripe.object)
            && size > chunk.object_offset
            && is_held(lock)
        {
            return Ok(layout.file_size(index, size));
        }
        let lock = self.matching(layout, index).map(|lock| lock.cookie());
        let truncates = self.objects.truncates(file);
        let dirty = ost.writeback.attr(stripe.object);
        let attrs = self.object_attrs(stripe.ost, vec![stripe.object]).await?;
        let size = attrs.first().map_or(0, |attr| with_dirty(*attr, dirty).size);
        if let (Some(lock), Some(truncates)) = (lock, truncates) {
            self.objects.note_size(file, stripe.object, lock, size, truncates);
        }
        Ok(layout.file_size(index, size))
    }
}
