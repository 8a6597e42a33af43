//! Writeback of mapped pages from the kernel's page cache.
//!
//! A store through a mapping changes bytes of the file and never its length. The kernel cuts the
//! last page at the file size that it knows, and that size may be old. A reply with the size can
//! arrive after the truncate by another mount that made it invalid. So the client cuts the page
//! here, at the size of the objects.
//!
//! **Another mount may truncate the file between the size check and the write.** The kernel has the
//! page under a lock on the object that contains it, and the lock is cancelled only when the page
//! is written. A truncate of that object waits for the lock. So the write comes first, and the
//! truncate removes its bytes. Only an object that ends before the page, in a file that continues
//! in other objects, need not be truncated. Then the write may come after the truncate and counts
//! as a later one, as with any write beside a truncate of several objects.
//!
//! **After an eviction by an OST** other clients may have written the bytes of a page that a
//! program stored before. So the write of such a page fails, and the kernel reports EIO at
//! msync(2). A write in flight at the eviction is not sent again, nor is one that has begun and
//! that still waits for the size. A later one fails while the kernel drops its pages.
//!
//! **A restarted OST** accepts a page before other clients write, because it was stored under a
//! lock. That holds for a write that has begun when the client notices the restart and that knows
//! the size. A later one asks the OST for the size, and gets it after the recovery. Then another
//! client may have written to the page, and the write replaces these bytes by older ones.
//!
//! **The write of a page waits for nothing that waits for the page.** An invalidation waits for the
//! page, and it delays the cancel of locks. So the write requests no lock. Clients that know more
//! than the OSTs are queried (glimpse) and keep their locks. The MDT is not asked if the layout is
//! known.

use std::{pin::pin, sync::Arc};

use sheen_layout::Layout;
use sheen_wire::{Bulk, Errno, Result};

use super::{
    layout_lookup::Placed,
    with_layout::{Attempt, LayoutUse},
};
use crate::{Client, OpenFile};

impl Client {
    /// Writes a page of the kernel's page cache (FUSE_WRITE_CACHE). The kernel is not asked to drop
    /// pages, because it would wait for this one. Bytes beyond the end of the file count as written
    /// and are discarded.
    ///
    /// # Errors
    /// As [`Client::write`]. EINVAL: the open file uses one mirror, of which no page is cached.
    /// EIO: an OST has evicted this client since a program stored into the page.
    pub async fn write_page(&self, file: &OpenFile, offset: u64, data: Bulk) -> Result<usize> {
        if file.mirror() != 0 {
            return Err(Errno::EINVAL);
        }
        // In this order: pages are marked before an eviction is counted.
        let valid = self.lov.evictions().discards();
        if self.cache.data.get(file.fid()).is_some_and(|data| data.discards_page()) {
            return Err(Errno::EIO);
        }
        self.write_for(file, offset, data, false, false, Some(valid)).await
    }

    /// Writes the part of a page that lies in the file. Returns the number of bytes, and the
    /// generation of the layout that was used. `valid`: as [`crate::lov::WriteMode::page`].
    pub(super) async fn write_inside(
        &self,
        file: &OpenFile,
        offset: u64,
        data: Bulk,
        valid: u64,
    ) -> Result<(usize, u32)> {
        let (data, len) = (&data, data.len());
        let attempt = |attempt| async move {
            let (inside, generation) = self.inside(file, offset, len as u64).await?;
            if inside == 0 {
                return Ok(Attempt::Done((len, generation)));
            }
            let written = self.try_write(file, offset, &data.slice(0, inside), false, Some(valid), attempt).await?;
            Ok(written.map(|(written, generation)| (if written == inside { len } else { written }, generation)))
        };
        self.with_layout("write", file, attempt).await
    }

    /// Returns how many of `len` bytes at `offset` lie in the file, and the generation of the
    /// layout that was used.
    async fn inside(&self, file: &OpenFile, offset: u64, len: u64) -> Result<(usize, u32)> {
        self.with_layout("write", file, |_| async move {
            let changes = file.inode.changes();
            let held = if file.is_unsure() { None } else { file.inode.held() };
            let Placed { layout, guard } = match held {
                Some(layout) => {
                    file.check_not_lost()?;
                    Placed { layout, guard: self.layout_lock(file.fid()) }
                }
                None => self.place_given(file).await?,
            };
            let used = LayoutUse::new(file, layout.clone(), changes);
            let look = |layout: Arc<Layout>| async move { self.lov.inside(&layout, offset, len).await };
            let work = pin!(self.lov.by_any(&layout, look));
            let inside = self.under(file.fid(), guard, work).await.0?;
            let answer = (inside as usize, layout.generation());
            // A mirror that is stale by now may have been truncated.
            Ok(if inside == len { Attempt::Done(answer) } else { Attempt::DoneUnlessStale(answer, used) })
        })
        .await
    }
}
