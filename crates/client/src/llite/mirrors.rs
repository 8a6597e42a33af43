//! Mirrored files: what is particular to them in reading and writing, and files of which one mirror
//! alone is read and written.
//!
//! All that is done to a mirrored file is done under its layout, as with any layout that may change
//! ([`super::place`]); and pages that the kernel keeps of it go with the lock on LAYOUT, for
//! another mirror may be written then.
//!
//! An operation that took so long that the lock was lost meanwhile, or that had none, may have gone
//! to a mirror that counts no more. So a write looks at its end whether the layout is still the one
//! by which it was done, and if not is done once more ([`Client::is_overtaken`]): whoever brings
//! mirrors up to date then hears that it has to begin again. It has not returned, so nobody may
//! rely on it yet. Who reads, or asks for the size or for holes, does the same: the mirror may have
//! been cut, to be copied to.
//!
//! **One mirror**: tools that compare, copy and repair mirrors name one ([`Client::use_mirror`]).
//! It is read, stale or not, and written if it is stale, which makes no other one stale; nothing is
//! kept of it. It is written as long as the layout is of the generation in which it was named, else
//! EBUSY: another tool may be copying to it, or it counts as fresh by now. Who declares it fresh
//! waits for writes that are under way by the lock on LAYOUT, and in this client by
//! [`crate::file::Inode::repairs`].

use std::sync::Arc;

use bytes::Bytes;
use sheen_layout::Layout;
use sheen_wire::{
    Cred, Errno, Fid, Result,
    mds::{Request, flags},
    mirror::{self, Change},
};
use tokio::sync::RwLockReadGuard;

use super::{place::Placed, read::Range};
use crate::{Caller, Client, OpenFile, ReadData, ReadRefs, cache::data::Reading, layouts::is_settled, mdc};

/// Times that something is done anew because the layout changed meanwhile.
pub(crate) const AGAIN_MAX: usize = 16;

/// What an operation knows of its layout when it begins, by which it sees at its end whether that
/// is the file's still.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Began {
    changes: u64,
    /// Where the layout may become another one, this client has a lock by which it hears of it:
    /// changes are counted then. A lock that is asked back before its answer is here goes
    /// uncounted.
    hears: bool,
}

impl Began {
    /// Whether nothing can have changed since, without asking.
    pub(crate) fn is_now(self, file: &OpenFile) -> bool {
        self.hears && file.inode.changes() == self.changes
    }
}

impl Client {
    /// From now on an open file is that mirror, whether it is stale or not; 0: the file again.
    ///
    /// # Errors
    /// EINVAL: there is no mirror with that id, or what is read of the open file may be kept by the
    /// kernel, where others would find it (it is to be opened with O_DIRECT, or for writing).
    /// EPERM: it is open for writing, and the caller is neither the file's owner nor root.
    pub async fn use_mirror(&self, who: &Caller, file: &OpenFile, id: u16) -> Result<()> {
        if id != 0 && file.cached() {
            return Err(Errno::EINVAL);
        }
        file.set_mirror(0, 0);
        if id == 0 {
            return Ok(());
        }
        if flags::writes(file.flags()) && who.cred.uid != 0 {
            let attr = mdc::entry(self.mdc.call(Request::GetAttr { fid: file.fid(), layout_known: true }).await?)?.attr;
            if attr.uid != who.cred.uid {
                return Err(Errno::EPERM);
            }
        }
        let placed = self.place(file).await?.ok_or(Errno::EINVAL)?;
        placed.layout.mirror(id).ok_or(Errno::EINVAL)?;
        // What was written to the file as a whole is in its mirrors.
        self.lov.settle_file(&placed.layout).await;
        file.set_mirror(id, placed.layout.generation());
        Ok(())
    }

    /// The layout of the mirror that an open file is.
    ///
    /// # Errors
    /// EINVAL: it is gone.
    pub(crate) fn through(&self, file: &OpenFile, placed: Placed) -> Result<Placed> {
        let id = file.mirror();
        let known = placed.layout.mirrors().iter().find(|m| m.mirror_id() == id).cloned();
        let layout = match known {
            Some(mirror) => mirror,
            None => Arc::new(placed.layout.mirror(id).ok_or(Errno::EINVAL)?),
        };
        Ok(Placed { layout, guard: placed.guard })
    }

    /// A turn at writing, for an open file that is a mirror.
    pub(crate) async fn repairing<'a>(&self, file: &'a OpenFile) -> Option<RwLockReadGuard<'a, ()>> {
        if file.mirror() == 0 { None } else { Some(file.inode.repairs.read().await) }
    }

    /// The layout of that mirror, with objects for `[offset, offset + len)`.
    ///
    /// # Errors
    /// EBUSY: it is not stale, or was named in an older layout.
    pub(crate) async fn place_in_mirror(&self, file: &OpenFile, offset: u64, len: u64) -> Result<Placed> {
        let mut asked: Option<Arc<Layout>> = None;
        for _ in 0..AGAIN_MAX {
            let placed = self.place(file).await?.ok_or(Errno::EIO)?;
            // That of the objects which were asked for here.
            if asked.as_ref().is_some_and(|before| placed.layout.follows(before)) {
                file.set_mirror(file.mirror(), placed.layout.generation());
            }
            check_repairable(file, &placed.layout)?;
            if placed.layout.missing(offset, len).is_none() {
                return if len > 0 && offset >= placed.layout.end() { Err(Errno::ENODATA) } else { Ok(placed) };
            }
            asked = Some(placed.layout);
            drop(placed.guard);
            let (fid, end) = (file.fid(), offset.saturating_add(len));
            let change = Change::Objects { mirror: file.mirror(), start: offset, end };
            let value = Bytes::from(change.encode()?);
            // Permission was checked at the open, as with objects for the file itself.
            let name = Bytes::from_static(mirror::XATTR.as_bytes());
            let request = Request::SetXattr { cred: Cred::ROOT, fid, name, value, flags: 0 };
            let change = self.cache.change(&[fid], false);
            let answer = self.mdc.call(request).await;
            change.end(&answer);
            mdc::done(answer?)?;
            self.edited(fid).await;
        }
        Err(Errno::EIO)
    }

    /// Something is to be done to a file by this layout. `changes`: as they were counted before the
    /// layout was looked up.
    pub(crate) fn began(&self, file: &OpenFile, layout: &Layout, changes: u64) -> Began {
        // One that lacks objects may become that of a mirrored file.
        let stays = file.mirror() == 0 && is_settled(layout);
        let hears = stays || file.inode.held().is_some_and(|held| held.generation() == layout.generation());
        Began { changes, hears }
    }

    /// Whether something that was done to a file by this layout has to be done again, because it is
    /// mirrored and another layout came meanwhile. Of a mirror: no, but see the error.
    ///
    /// # Errors
    /// EBUSY: it is a mirror, which should not have been written.
    pub(crate) async fn is_overtaken(&self, file: &OpenFile, layout: &Layout, began: Began) -> Result<bool> {
        if began.is_now(file) {
            return Ok(false);
        }
        let Some(now) = self.place(file).await? else { return Ok(layout.is_mirrored()) };
        if file.mirror() != 0 {
            return check_repairable(file, &now.layout).map(|()| false);
        }
        Ok(now.layout.overtakes(layout))
    }

    /// What became of a change of a file's bytes around `at`, by this layout. One that failed may
    /// have been done to a mirror all the same (the OST gave this client up before its answer was
    /// here), and that after others were made from this one: so one mirror is chosen anew, and none
    /// counts that differs from it.
    pub(crate) async fn unless_failed<T>(&self, fid: Fid, layout: &Layout, at: u64, answer: Result<T>) -> Result<T> {
        match answer {
            Err(errno) if layout.is_mirrored() && !matches!(errno, Errno::MOVED | Errno::MOVED_PARTLY) => {
                if let Err(again) = Box::pin(self.ask_objects(fid, at, at.saturating_add(1))).await {
                    tracing::error!("{fid}: a change failed ({errno}), and no mirror could be chosen since: {again}");
                }
                Err(errno)
            }
            answer => answer,
        }
    }

    /// Reads a mirrored file, from any fresh mirror.
    pub(crate) async fn read_mirrored(
        &self,
        fid: Fid,
        range: Range,
        placed: Placed,
        reading: Option<Reading>,
    ) -> Result<ReadData> {
        let Range { offset, len, .. } = range;
        let (pages, mut first) = (reading.is_some(), reading);
        let Placed { layout, guard } = placed;
        let one = |mirror: Arc<Layout>| {
            let reading = first.take().or_else(|| pages.then(|| self.cache.data.reading(fid, offset, len)));
            async move {
                let refs = match reading {
                    Some(reading) => self.read_locks(&mirror, offset, len, reading).await?,
                    None => ReadRefs::default(),
                };
                self.read_under(&mirror, range, refs).await
            }
        };
        let (read, guard) = self.under(fid, guard, self.lov.by_any(&layout, one)).await;
        let mut read = read?;
        // Which mirror counts is so under the layout's lock.
        self.keep_holes(&mut read.refs, guard);
        Ok(read)
    }

    /// The layout by which a file is cut to `size` bytes: with objects for the last of them, and
    /// other mirrors stale.
    ///
    /// # Errors
    /// ENODATA: the layout ends before. What the MDT answers.
    pub(crate) async fn place_for_cutting(&self, fid: Fid, layout: Arc<Layout>, size: u64) -> Result<Arc<Layout>> {
        if size > layout.end() {
            return Err(Errno::ENODATA);
        }
        let last = size.saturating_sub(1);
        if !layout.needs_intent(last, u64::from(size > 0)) {
            return Ok(layout);
        }
        let reads = self.page_reads(fid);
        let layout = self.ask_objects(fid, last, last + 1).await?;
        self.drop_holes(fid, reads, false).await;
        Ok(layout)
    }
}

/// EBUSY if an open file that is a mirror with this layout must not be written.
fn check_repairable(file: &OpenFile, mirror: &Layout) -> Result<()> {
    let is_as_named = mirror.generation() == file.mirror_generation();
    if is_as_named && !mirror.is_fresh() { Ok(()) } else { Err(Errno::EBUSY) }
}
