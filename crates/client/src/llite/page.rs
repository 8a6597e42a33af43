//! Pages of mappings, as the kernel writes them back.
//!
//! What a program stores through a mapping changes bytes of the file and never its length. The
//! kernel cuts the last page at the size that it knows, and that may be an old one: an answer about
//! the size that another mount's truncate has overtaken can arrive after the truncate was heard of.
//! So it is cut here, at the size that the objects have.
//!
//! **Another mount may cut the file between the look and the write.** The kernel has the page under
//! a lock on the object that it lies in, which is given up when the page is written. Who cuts that
//! object waits for it, so the write comes first, and the cut takes what it wrote. Only an object
//! that ends before the page, in a file that goes on in others, need not be cut: then the write may
//! come after the truncate and count as one that came later, as with any write beside a truncate of
//! several objects.
//!
//! **Nothing that a page waits for waits for its page**: an invalidation does, and holds up the
//! locks that the client gives up meanwhile. So no lock is asked for; those who know more than the
//! OSTs are asked for what they know, and keep their locks; and the MDT is not waited for where the
//! layout is known.

use std::{pin::pin, sync::Arc};

use sheen_layout::Layout;
use sheen_wire::{Bulk, Errno, Result};

use super::{mirrors::AGAIN_MAX, place::Placed};
use crate::{Client, OpenFile};

impl Client {
    /// Writes a page of the kernel's page cache, which has it already (FUSE_WRITE_CACHE): the
    /// kernel is not asked to drop pages, for it would wait for this one. What lies beyond the end
    /// of the file counts as written, and is not.
    ///
    /// # Errors
    /// As [`Client::write`]. EINVAL: the file is one mirror, of which no page is kept.
    pub async fn write_page(&self, file: &OpenFile, offset: u64, data: Bulk) -> Result<usize> {
        if file.mirror() != 0 {
            return Err(Errno::EINVAL);
        }
        self.write_for(file, offset, data, false, false, true).await
    }

    /// Writes what of a page is in the file; as [`Client::write_once`].
    pub(super) async fn write_inside(&self, file: &OpenFile, offset: u64, data: Bulk) -> Result<(usize, u32)> {
        let len = data.len();
        let (inside, generation) = self.inside(file, offset, len as u64).await?;
        if inside == 0 {
            return Ok((len, generation));
        }
        let (written, generation) = self.write_once(file, offset, data.slice(0, inside), false, true).await?;
        Ok((if written == inside { len } else { written }, generation))
    }

    /// How many of `len` bytes at `offset` lie in the file, and by which generation of its layout.
    async fn inside(&self, file: &OpenFile, offset: u64, len: u64) -> Result<(usize, u32)> {
        for _ in 0..AGAIN_MAX {
            let changes = file.inode.changes();
            let held = if file.is_unsure() { None } else { file.inode.held() };
            let Placed { layout, guard } = match held {
                Some(layout) => {
                    file.check_not_lost()?;
                    Placed { layout, guard: self.layout_lock(file.fid()) }
                }
                None => self.place_given(file).await?,
            };
            let began = self.began(file, &layout, changes);
            let look = |layout: Arc<Layout>| async move { self.lov.inside(&layout, offset, len).await };
            let work = pin!(self.lov.by_any(&layout, look));
            let inside = self.under(file.fid(), guard, work).await.0?;
            // A mirror that counts no more may have been cut.
            if inside == len || !self.is_overtaken(file, &layout, began).await? {
                return Ok((inside as usize, layout.generation()));
            }
        }
        Err(Errno::EIO)
    }
}
