//! Mirrored files: how reads and writes differ for them, and open files that use one mirror alone.
//!
//! Every operation on a mirrored file uses the file's layout, as with any layout that may change
//! ([`super::layout_lookup`]). The kernel's pages of the file are dropped together with the LAYOUT
//! lock, because another mirror may be written after that.
//!
//! An operation that lost the LAYOUT lock while it ran, or had none, may have used a mirror that is
//! stale by now. So a write checks at its end whether the layout is still the one that it used
//! ([`Client::is_stale`]). If not, the write is repeated, and a client that resyncs mirrors
//! meanwhile learns that it has to begin again. Until then the write has not returned, so no
//! program may rely on it. Reads and searches for the size or for holes do the same: the mirror may
//! have been truncated before a copy to it.
//!
//! **One mirror**: tools that compare, copy and repair mirrors name one ([`Client::use_mirror`]).
//! It can be read whether it is stale or not. It can be written only while it is stale, which makes
//! no other mirror stale. Nothing of it is cached. A write needs the layout generation in which the
//! mirror was named. Otherwise it fails with EBUSY: another tool may be copying to the mirror, or
//! the mirror may be fresh by now. The declaration that a mirror is fresh waits for writes in
//! progress: through the LAYOUT lock, and in this client through [`crate::open::Inode::repairs`].

use std::sync::Arc;

use bytes::Bytes;
use sheen_layout::Layout;
use sheen_wire::{
    Cred, Errno, Fid, Result,
    mds::{Request, flags},
    mirror::{self, MirrorChange},
};
use tokio::sync::RwLockReadGuard;

use super::{
    layout_lookup::{Changing, HOLD_MAX, Located, Placed},
    read::Range,
    with_layout::{LayoutUse, Retries},
};
use crate::{
    Caller, Client, OpenFile, ReadData,
    cache::{ReadRefs, data::Reading},
    failure::Failure,
    locks::LockRef,
    lov::InUse,
    mdc,
};

impl Client {
    /// Makes an open file read and write that mirror alone, whether it is stale or not. 0: the
    /// whole file again.
    ///
    /// # Errors
    /// EINVAL: there is no mirror with that id, or the kernel may cache reads of this open file,
    /// where other programs would find them. Open it with O_DIRECT, or for writing. EPERM: it is
    /// open for writing, and the caller is neither the file's owner nor root.
    pub async fn use_mirror(&self, who: &Caller, file: &OpenFile, id: u16) -> Result<()> {
        if id != 0 && file.cached() {
            return Err(Errno::EINVAL);
        }
        file.set_mirror(0, 0);
        if id == 0 {
            return Ok(());
        }
        if flags::writes(file.flags()) && who.cred.uid != 0 {
            let attr =
                mdc::entry(self.mdc.request(Request::GetAttr { fid: file.fid(), layout_known: true }).reply().await?)?
                    .attr;
            if attr.uid != who.cred.uid {
                return Err(Errno::EPERM);
            }
        }
        let placed = self.place(file).await?.ok_or(Errno::EINVAL)?;
        placed.layout.mirror(id).ok_or(Errno::EINVAL)?;
        // Earlier writes to the whole file must be in its mirrors.
        self.lov.settle_file(&placed.layout).await;
        file.set_mirror(id, placed.layout.generation());
        Ok(())
    }

    /// Returns the layout of the mirror that an open file uses.
    ///
    /// # Errors
    /// EINVAL: the mirror was removed.
    pub(crate) fn through(&self, file: &OpenFile, placed: Placed) -> Result<Placed> {
        let id = file.mirror();
        let known = placed.layout.mirrors().iter().find(|m| m.mirror_id() == id).cloned();
        let layout = match known {
            Some(mirror) => mirror,
            None => Arc::new(placed.layout.mirror(id).ok_or(Errno::EINVAL)?),
        };
        Ok(Placed { layout, guard: placed.guard })
    }

    /// Takes the shared lock for writes to one mirror, if the open file uses one.
    pub(crate) async fn repairing<'a>(&self, file: &'a OpenFile) -> Option<RwLockReadGuard<'a, ()>> {
        if file.mirror() == 0 { None } else { Some(file.inode.repairs.read().await) }
    }

    /// Returns the layout of that mirror, with objects for `[offset, offset + len)`.
    ///
    /// # Errors
    /// EBUSY: the mirror is not stale, or was named in an older layout.
    pub(crate) async fn place_in_mirror(&self, file: &OpenFile, offset: u64, len: u64) -> Result<Placed> {
        let mut asked: Option<Arc<Layout>> = None;
        let mut retries = Retries::new("write", file.fid());
        loop {
            let placed = self.place(file).await?.ok_or(Errno::EIO)?;
            // The only change since is the request for objects below.
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
            let change = MirrorChange::Objects { mirror: file.mirror(), start: offset, end };
            let value = Bytes::from(change.encode()?);
            // Permission was checked at the open, as with objects for the file itself.
            let name = Bytes::from_static(mirror::XATTR.as_bytes());
            let request = Request::SetXattr { cred: Cred::ROOT, fid, name, value, flags: 0 };
            let change = self.cache.change(&[fid], false);
            let answer = self.mdc.request(request).reply().await;
            change.end(&answer);
            mdc::done(answer?)?;
            self.edited(fid).await;
            retries.again()?;
        }
    }

    /// Returns the locks under which the data of an open file may be changed. `guard`: the LAYOUT
    /// lock, if the client holds it. If the file uses one mirror, the client locks the mirror's
    /// objects instead.
    ///
    /// # Errors
    /// As [`Client::lock_mirror`].
    pub(crate) async fn lock_change(
        &self,
        file: &OpenFile,
        used: &LayoutUse,
        guard: Option<LockRef>,
    ) -> Result<(Option<LockRef>, InUse), Failure> {
        if file.mirror() == 0 {
            return Ok((guard, InUse::default()));
        }
        // Not in use while the other locks are waited for.
        drop(guard);
        Ok((None, Box::pin(self.lock_mirror(file, used)).await?))
    }

    /// Locks all objects of the mirror that an open file uses, before a change of them, and then
    /// checks that the mirror may still be written. A change that is sent under these locks cannot
    /// reach the mirror after a later resync by another client: that resync has to lock the
    /// objects, too. The LAYOUT lock would not exclude it, because it is not in use for long.
    ///
    /// # Errors
    /// EBUSY: the mirror is not stale, was named in an older layout, or cannot be locked. Otherwise
    /// the error of an OST.
    pub(crate) async fn lock_mirror(&self, file: &OpenFile, used: &LayoutUse) -> Result<InUse, Failure> {
        let locks = self.lov.lock_objects(&used.layout).await?.ok_or(Errno::EBUSY)?;
        if used.is_current(file) {
            return Ok(locks);
        }
        // OSTs wait for these locks for a limited time.
        match self.rt.timeout(HOLD_MAX, self.is_stale(file, used)).await {
            Ok(checked) => checked?,
            Err(_) => return Err(Errno::EBUSY.into()),
        };
        Ok(locks)
    }

    /// Returns whether an operation with this layout has to be repeated, because the file is
    /// mirrored and its layout changed meanwhile. Never for an open file that uses one mirror; but
    /// see the error.
    ///
    /// # Errors
    /// EBUSY: the open file uses one mirror, which should not have been written.
    pub(crate) async fn is_stale(&self, file: &OpenFile, used: &LayoutUse) -> Result<bool> {
        let Some(now) = self.place(file).await? else { return Ok(used.layout.is_mirrored()) };
        if file.mirror() != 0 {
            return check_repairable(file, &now.layout).map(|()| false);
        }
        Ok(now.layout.overtakes(&used.layout))
    }

    /// Passes on the result of a change of a file's bytes around offset `at`. A failed change may
    /// have reached a mirror all the same, if the OST evicted this client before it replied. Other
    /// mirrors may even have been copied from this one before that. So the MDT chooses one mirror
    /// again, and mirrors that may differ from it become stale.
    pub(crate) async fn unless_failed<T>(
        &self,
        changing: Changing,
        layout: &Layout,
        at: u64,
        answer: Result<T, Failure>,
    ) -> Result<T, Failure> {
        let fid = changing.fid;
        match answer {
            Err(failure) if layout.is_mirrored() && !failure.is_moved() => {
                if let Err(again) = Box::pin(self.ask_objects(changing, at, at.saturating_add(1))).await {
                    tracing::error!(
                        "{fid}: a change failed ({failure}), and marking the other mirrors stale failed ({again}): \
                         they may differ, run lfs mirror verify"
                    );
                }
                Err(failure)
            }
            answer => answer,
        }
    }

    /// Reads a mirrored file from any fresh mirror.
    pub(crate) async fn read_mirrored(
        &self,
        fid: Fid,
        range: Range,
        placed: Placed,
        reading: Option<Reading>,
    ) -> Result<ReadData, Failure> {
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
        // The LAYOUT lock guards which mirrors are fresh.
        self.keep_holes(&mut read.refs, guard);
        Ok(read)
    }

    /// Returns the layout for a truncate to `size` bytes: with objects for the last byte, and with
    /// the other mirrors stale.
    ///
    /// # Errors
    /// ENODATA: the layout ends before `size`. Any error of the MDT.
    pub(crate) async fn place_for_cutting(&self, changing: Changing, known: Located, size: u64) -> Result<Located> {
        if size > known.layout.end() {
            return Err(Errno::ENODATA);
        }
        let last = size.saturating_sub(1);
        if !known.layout.needs_intent(last, u64::from(size > 0)) {
            return Ok(known);
        }
        let reads = self.page_reads(changing.fid);
        let located = self.ask_objects_locked(changing, last, last + 1).await?;
        self.drop_holes(changing.fid, reads, false).await;
        Ok(located)
    }
}

/// Returns EBUSY if an open file that uses one mirror must not write with this layout.
fn check_repairable(file: &OpenFile, mirror: &Layout) -> Result<()> {
    let is_as_named = mirror.generation() == file.mirror_generation();
    if is_as_named && !mirror.is_fresh() { Ok(()) } else { Err(Errno::EBUSY) }
}
