//! swap_layouts: two files exchange their objects, and with them their bytes.
//!
//! Other clients drop what they have cached as in a migration ([`super::relayout`]), and for the
//! OSTs this client is like the others. So it flushes and drops only what the OSTs ask for. The
//! exception is what locks of the MDT guard, because the MDT does not revoke the requester's locks.
//!
//! **A change of several objects** may be in progress meanwhile: some objects are changed before
//! they are sealed, and the others are not. The whole change then counts as earlier than the swap.
//! The remaining objects have to be changed where they are now, in the other file
//! ([`Client::finish`]). To repeat the change in the file as it is now, as after a migration, would
//! leave a part of it in the other file. Mirrored files are not open elsewhere during a swap, so
//! their changes need not be finished.

use std::collections::BTreeSet;

use sheen_layout::Layout;
use sheen_wire::{
    Bulk, Errno, Fid, Result, Time,
    mds::{Request, flags},
    ost::Allocate,
};

use super::with_layout::Retries;
use crate::{
    Caller, Client, OpenFile,
    failure::Failure,
    lov::{InUse, WriteMode},
    mdc,
};

/// A change of a file's bytes that was done in part.
pub(crate) enum Begun<'a> {
    /// A write through this open file: offset and bytes.
    Write(&'a OpenFile, u64, Bulk),
    /// A truncate to this size in bytes.
    Truncate(u64),
    /// fallocate: mode, offset and length in bytes.
    Allocate(Allocate, u64, u64),
}

impl Client {
    /// Exchanges the layouts of an open file and of another file that is open on this mount. Owner,
    /// mode and times stay with their files. Does nothing if both are the same file, as in Lustre.
    ///
    /// # Errors
    /// EINVAL: one is no regular file with a layout, or the other one is not open here. EACCES: the
    /// caller may not write to both. EPERM: they are not of the same user and group. EBUSY: a
    /// client does not release its locks on one of them, or one is mirrored and one is open
    /// elsewhere; nothing is changed. Any error of the MDT.
    pub async fn swap_layouts(&self, who: &Caller, file: &OpenFile, other: Fid) -> Result<()> {
        if file.flags() & flags::DIRECTORY != 0 {
            return Err(Errno::EINVAL);
        }
        let fids = [file.fid(), other];
        if file.fid() == other {
            return Ok(());
        }
        // The open of `other` has checked that its opener has access.
        self.files.any(other).ok_or(Errno::EINVAL)?;
        let mut mtimes = [Time::default(); 2];
        for (fid, mtime) in fids.into_iter().zip(&mut mtimes) {
            let open = self.files.any(fid);
            *mtime = self.getattr_of(fid, open.as_deref()).await?.attr.mtime;
        }
        let (reads, nonce) = (fids.map(|fid| self.page_reads(fid)), self.rt.random_u64());
        let request = |cred| Request::SwapLayouts { cred, fids, mtimes, nonce };
        let change = self.cache.change(&fids, false);
        let answer = self.mdc.request_as(who, request).reply().await;
        change.end(&answer);
        for (fid, before) in fids.into_iter().zip(reads) {
            // An error recurs at the next use.
            let _ = self.ask_where(fid).await;
            self.drop_holes(fid, before, false).await;
        }
        answer.and_then(mdc::done)
    }

    /// Completes a change that was done in part by `layout` ([`Failure::MOVED_PARTLY`]), in the
    /// same objects under their present names. Also syncs it, because an fsync of the file would
    /// not sync another file's objects. Returns the number of bytes written. `None`: the objects
    /// have no other names, and the change must be repeated with the file's layout.
    ///
    /// # Errors
    /// EIO: the objects are renamed too often, or `layout` is that of a mirrored file. Any error of
    /// the change and the OSTs.
    pub(crate) async fn finish(&self, fid: Fid, layout: &Layout, begun: &Begun<'_>) -> Result<Option<usize>> {
        let mut retries = Retries::new("a change of several objects", fid);
        loop {
            // Returns when the swap is over and the file's objects are open again.
            let now = self.layout_after_seal(&mut retries).await?;
            if now.stripes().first() == layout.stripes().first() {
                return Ok(None);
            }
            let there = match self.lov.follow(layout).await {
                Err(Failure::LayoutMoved { .. }) => return Ok(None),
                Err(failure) if failure.errno() == Some(Errno::EAGAIN) => continue,
                Ok(there) if layout.is_mirrored() => return finished_mirror(layout, &there),
                there => there.map_err(Failure::into_errno)?,
            };
            let owners: BTreeSet<Fid> =
                there.stripes().iter().filter_map(|s| self.lov.objects().file_of(s.object)).collect();
            let owners: Vec<Fid> = owners.into_iter().collect();
            let changing = self.cache.change(&owners, true);
            let done = self.change_by(&there, begun).await;
            changing.end_data(&done);
            for owner in owners {
                self.drop_changed(owner).await;
            }
            match done {
                Err(Failure::LayoutMoved { .. }) => continue,
                Err(failure) => return Err(failure.into_errno()),
                Ok(done) => match self.lov.sync(&there).await {
                    // Sealed again: the data is durable under the next name.
                    Ok(()) | Err(Failure::LayoutMoved { .. }) => return Ok(Some(done)),
                    Err(failure) => return Err(failure.into_errno()),
                },
            }
        }
    }

    async fn change_by(&self, layout: &Layout, begun: &Begun<'_>) -> Result<usize, Failure> {
        match begun {
            Begun::Write(file, offset, data) => {
                self.write_at(file, layout, *offset, data.clone(), WriteMode::default(), &InUse::default()).await
            }
            Begun::Truncate(size) => self.lov.truncate(layout, *size).await.map(|()| 0),
            Begun::Allocate(mode, offset, len) => {
                let none = InUse::default();
                self.lov.allocate(layout, *mode, (*offset, *len), &none).await.map(|()| 0)
            }
        }
    }

    /// Drops the cached attributes and pages of another file whose bytes this client has changed.
    /// The client's own locks on that file did not conflict with the change.
    async fn drop_changed(&self, fid: Fid) {
        if let Some(dropped) = self.cache.drop_attr(fid) {
            dropped.await;
        }
        let Some(data) = self.cache.data.get(fid) else { return };
        if let Some(dropped) = self.cache.flush_pages(&data) {
            dropped.await;
        }
        self.cache.data.tidy(fid);
    }
}

/// Decides about a change that was done in part to a mirror. It is repeated with the file's layout,
/// as if nothing had been done, unless the objects belong to another file now. In that case the
/// file was not open during the swap ([`Client::swap_layouts`]), but was truncated by its name at
/// that moment. To finish this change would make one of several mirrors differ from the others.
fn finished_mirror(layout: &Layout, there: &Layout) -> Result<Option<usize>> {
    if there.stripes() == layout.stripes() { Ok(None) } else { Err(Errno::EIO) }
}
