//! swap_layouts: two files exchange their objects, and with them their bytes.
//!
//! What others have of them goes as when a file is moved ([`super::moved`]); this client is to the
//! OSTs one of the others. So nothing is written or dropped here that the OSTs would not ask for,
//! but for what is under locks of the MDT, which spares whoever asks.
//!
//! **A change of several objects** may be under way meanwhile: some are changed before they are
//! closed, the others are not. It came before the swap then, for all of it, and the others have to
//! be changed where they are now, in the other file ([`Client::finish`]). Doing it once more in the
//! file as it is now, as after a migration, would leave a part of it in the other one. Mirrored
//! files are not open elsewhere when they are exchanged, so of them nothing is to be finished.

use std::collections::BTreeSet;

use sheen_layout::Layout;
use sheen_wire::{
    Bulk, Errno, Fid, Result, Time,
    mds::{Request, flags},
    ost::Allocate,
};

use crate::{
    Caller, Client, OpenFile,
    lov::{How, InUse},
    mdc,
};

/// How often objects are followed that go on under other names again and again.
const FOLLOWS_MAX: usize = 32;

/// A change of a file's bytes, done in part.
pub(crate) enum Begun<'a> {
    /// Bytes at an offset; through this open file.
    Write(&'a OpenFile, u64, Bulk),
    /// To a size.
    Truncate(u64),
    /// fallocate: offset and length.
    Allocate(Allocate, u64, u64),
}

impl Client {
    /// Exchanges the layouts of an open file and of another one that is open on this mount. Owner,
    /// mode and times stay where they are. Nothing is done for one and the same file, as in Lustre.
    ///
    /// # Errors
    /// EINVAL: one is no regular file with a layout, or the other one is not open here. EACCES: the
    /// caller may not write to both. EPERM: they are not of the same user and group. EBUSY:
    /// somebody does not let go of one, or one is mirrored and one is open elsewhere; nothing is
    /// changed. What the MDT answers.
    pub async fn swap_layouts(&self, who: &Caller, file: &OpenFile, other: Fid) -> Result<()> {
        if file.flags() & flags::DIRECTORY != 0 {
            return Err(Errno::EINVAL);
        }
        let fids = [file.fid(), other];
        if file.fid() == other {
            return Ok(());
        }
        // Whoever has it open was let through to it.
        self.files.any(other).ok_or(Errno::EINVAL)?;
        let mut mtimes = [Time::default(); 2];
        for (fid, mtime) in fids.into_iter().zip(&mut mtimes) {
            let open = self.files.any(fid);
            *mtime = self.getattr(fid, open.as_deref()).await?.attr.mtime;
        }
        let (reads, nonce) = (fids.map(|fid| self.page_reads(fid)), self.rt.random_u64());
        let request = |cred| Request::SwapLayouts { cred, fids, mtimes, nonce };
        let change = self.cache.change(&fids, false);
        let answer = self.mdc.call_as(who, request).await;
        change.end(&answer);
        for (fid, before) in fids.into_iter().zip(reads) {
            // A failure shows at the next use.
            let _ = self.ask_where(fid).await;
            self.drop_holes(fid, before, false).await;
        }
        answer.and_then(mdc::done)
    }

    /// Does a change of a file where the objects of `layout` are now, by which it was done in part
    /// ([`Errno::MOVED_PARTLY`]). It is durable afterwards: who syncs the file would not sync
    /// another one's objects. Bytes written. `None`: they have no other names; it is to be done by
    /// the layout that the file has.
    ///
    /// # Errors
    /// EIO: they go on and on; or it was a mirrored file's layout. What the change answers, and the
    /// OSTs.
    pub(crate) async fn finish(&self, fid: Fid, layout: &Layout, begun: &Begun<'_>) -> Result<Option<usize>> {
        let mut moves = 0;
        for _ in 0..FOLLOWS_MAX {
            // When nobody is at it any more, and what the file keeps is open again.
            let now = self.moved(fid, &mut moves).await?;
            if now.stripes().first() == layout.stripes().first() {
                return Ok(None);
            }
            let there = match self.lov.follow(layout).await {
                Err(Errno::MOVED) => return Ok(None),
                Err(Errno::EAGAIN) => continue,
                Ok(there) if layout.is_mirrored() => return finished_mirror(layout, &there),
                there => there?,
            };
            let owners: BTreeSet<Fid> =
                there.stripes().iter().filter_map(|s| self.cache.data.owner(s.object)).collect();
            let owners: Vec<Fid> = owners.into_iter().collect();
            let changing = self.cache.change(&owners, true);
            let done = self.change_by(&there, begun).await;
            changing.end(&done);
            for owner in owners {
                self.drop_changed(owner).await;
            }
            match done {
                Err(Errno::MOVED | Errno::MOVED_PARTLY) => continue,
                Err(errno) => return Err(errno),
                Ok(done) => match self.lov.sync(&there).await {
                    // Closed since: what was written is durable under the next name.
                    Ok(()) | Err(Errno::MOVED) => return Ok(Some(done)),
                    Err(errno) => return Err(errno),
                },
            }
        }
        Err(Errno::EIO)
    }

    async fn change_by(&self, layout: &Layout, begun: &Begun<'_>) -> Result<usize> {
        match begun {
            Begun::Write(file, offset, data) => {
                self.write_at(file, layout, *offset, data.clone(), How::default(), &InUse::default()).await
            }
            Begun::Truncate(size) => self.lov.truncate(layout, *size).await.map(|()| 0),
            Begun::Allocate(mode, offset, len) => self.lov.allocate(layout, *mode, *offset, *len).await.map(|()| 0),
        }
    }

    /// Another file's bytes were changed by this client, whose own locks on them were not in the
    /// way.
    async fn drop_changed(&self, fid: Fid) {
        if let Some(dropped) = self.cache.drop_attr(fid) {
            dropped.await;
        }
        let Some(data) = self.cache.data.get(fid) else { return };
        if let Some(dropped) = self.cache.flush_pages(&data) {
            dropped.await;
        }
        self.cache.data.tidy(&data);
    }
}

/// What becomes of a change that was done in part to a mirror. It is done again by the file's
/// layout, as if nothing were done, unless the objects are another file's now: it was not open when
/// it went there ([`Client::swap_layouts`]), but cut by its name just then. Who finished that would
/// make one of several mirrors differ from the others.
fn finished_mirror(layout: &Layout, there: &Layout) -> Result<Option<usize>> {
    if there.stripes() == layout.stripes() { Ok(None) } else { Err(Errno::EIO) }
}
