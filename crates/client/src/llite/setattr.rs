//! chmod, chown, utimensat, truncate, and the removal of set-user-id at a write.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use sheen_layout::Layout;
use sheen_wire::{
    Errno, Fid, Result,
    ldlm::Cookie,
    mds::{Entry, NO_HANDLE, Opener, Request, SetAttr, flags},
};

use super::{
    attr_cache::Asking,
    layout_lookup::{Changing, Located},
    swap_layouts::Begun,
    with_layout::{LayoutUse, Retries},
};
use crate::{Caller, Client, EntryAttr, OpenFile, failure::Failure, mdc, stats::Op};

/// S_ISUID, S_ISGID, and the group's x bit, without which S_ISGID does not mean set-group-id.
const SUID: u32 = 0o4000;
const SGID: u32 = 0o2000;
const GROUP_X: u32 = 0o010;

impl Client {
    /// Sets attributes. `file`: the open file of an ftruncate. Its open allows the truncate even if
    /// the mode forbids it now.
    ///
    /// A truncate goes to the MDT first, which checks permissions and sets the times, and then to
    /// the objects.
    ///
    /// # Errors
    /// EPERM, EACCES: the MDT refuses. EFBIG: larger than the layout can hold. ENODATA: past the
    /// layout's end.
    pub async fn setattr(&self, who: &Caller, fid: Fid, set: SetAttr, file: Option<&OpenFile>) -> Result<EntryAttr> {
        let _timer = self.stats.time(if set.size.is_some() { Op::Truncate } else { Op::Setattr });
        if self.virtual_attr(fid).is_some() {
            return Err(Errno::EPERM);
        }
        if set.size.is_some() && file.is_some_and(|file| !flags::writes(file.flags())) {
            return Err(Errno::EINVAL);
        }
        if let (Some(size), Some(layout)) = (set.size, self.layouts.get(fid))
            && size > layout.max_file_size()
        {
            return Err(Errno::EFBIG);
        }
        if let (Some(size), Some(file)) = (set.size, file)
            && file.mirror() != 0
        {
            Box::pin(self.cut_mirror(file, size)).await?;
            return self.getattr_of(fid, Some(file)).await;
        }
        let asking = self.asking(fid);
        let change = self.cache.change(&[fid], false);
        if set.size.is_some() {
            self.cache.begin_truncate(fid);
        }
        let answer = self.set_all(who, fid, &set, file, &asking).await;
        let asking = asking.changed(change.end(&answer));
        let (entry, lock) = answer?;
        let reply = self.cache_attr_under(&entry, lock, &asking)?;
        match set.size {
            Some(_) => self.completed(reply).await,
            None => self.changed(reply).await,
        }
    }

    /// Does the MDT's part and that of the objects. Also returns the handle of the lock from the
    /// reply.
    async fn set_all(
        &self,
        who: &Caller,
        fid: Fid,
        set: &SetAttr,
        file: Option<&OpenFile>,
        asking: &Asking,
    ) -> Result<(Entry, Option<Cookie>)> {
        if let Some(layout) = self.last_layout(fid).filter(|_| set.mtime.is_some()) {
            // Flush earlier writes: they must not change the new mtime later.
            self.lov.settle_file(&layout).await;
        }
        let (mut entry, lock) = self.set_attr(who, fid, set, file, asking.wants()).await?;
        if let Some(size) = set.size {
            if entry.layout.is_none() {
                let again = Request::GetAttr { fid, layout_known: false };
                entry.layout = mdc::entry(self.mdc.request(again).reply().await?)?.layout;
            }
            if let Some(layout) = self.layout_of(&entry.attr, entry.layout.as_ref())? {
                let known = Located { layout: layout.clone(), lock: asking.lock(fid, lock) };
                let changing = Changing { fid, opener: file.map_or_else(|| Opener::of(&who.cred), OpenFile::opener) };
                let located = self.place_for_cutting(changing, known, size).await?;
                let cut = self.cut(changing, located, size).await?;
                if !Arc::ptr_eq(&cut, &layout) {
                    entry.layout = Some(cut.encode().into());
                }
            }
        }
        Ok((entry, lock))
    }

    /// Truncates the objects of a file. Returns the layout by which it did so in the end.
    ///
    /// Repeats the truncate if the file was migrated meanwhile, or if another mirror may have
    /// become the valid one. Only the LAYOUT lock under which the MDT sent `located` excludes the
    /// latter.
    pub(super) async fn cut(&self, changing: Changing, mut located: Located, size: u64) -> Result<Arc<Layout>> {
        let fid = changing.fid;
        let mut retries = Retries::new("truncate", fid);
        let mut met_destroyed = false;
        loop {
            let Located { layout, lock } = located;
            let guard = lock.and_then(|cookie| self.guard_again(fid, cookie));
            let guarded = guard.is_some();
            let (cut, guard) = self.under(fid, guard, self.lov.truncate(&layout, size)).await;
            if cut.as_ref().is_err_and(Failure::is_moved) {
                drop(guard);
                if cut == Err(Failure::MOVED_PARTLY)
                    && Box::pin(self.finish(fid, &layout, &Begun::Truncate(size))).await?.is_some()
                {
                    return Box::pin(self.layout_after_seal(&mut retries)).await;
                }
                let layout = Box::pin(self.layout_after_seal(&mut retries)).await?;
                let moved = Located { layout, lock: None };
                located = self.place_for_cutting(changing, moved, size).await?;
                continue;
            }
            let is_destroyed = cut.as_ref().is_err_and(|failure| failure.errno() == Some(Errno::ESTALE));
            if is_destroyed && !std::mem::replace(&mut met_destroyed, true) {
                drop(guard);
                // The file has left a mirror, or was deleted.
                let layout = Box::pin(self.layout_after_seal(&mut retries)).await;
                let moved = Located { layout: layout.map_err(|_| Errno::ESTALE)?, lock: None };
                located = self.place_for_cutting(changing, moved, size).await?;
                continue;
            }
            let cut = self.unless_failed(changing, &layout, size.saturating_sub(1), cut).await;
            cut.map_err(Failure::into_errno)?;
            if guarded && guard.is_some() {
                return Ok(layout);
            }
            // The file may have got mirrors meanwhile, and only one of them is truncated.
            if !layout.is_mirrored() && !Box::pin(self.got_mirrors(fid)).await? {
                return Ok(layout);
            }
            // A resync by another client makes a new generation. This request makes none if nothing
            // has changed.
            let last = size.saturating_sub(1);
            let now = self.ask_objects_locked(changing, last, last + 1).await?;
            if now.layout.generation() == layout.generation() {
                return Ok(layout);
            }
            retries.again()?;
            located = now;
        }
    }

    /// Asks the MDT whether a file is mirrored now.
    async fn got_mirrors(&self, fid: Fid) -> Result<bool> {
        match self.ask_attr(fid, None).await {
            Ok(reply) => Ok(reply.layout.is_some_and(|layout| layout.is_mirrored())),
            // The file was deleted.
            Err(Errno::ENOENT | Errno::ESTALE) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Truncates one mirror of a file. The file's attributes stay as they are.
    ///
    /// # Errors
    /// EBUSY: the mirror may not be written, see [`super::mirrors`]; or the file has left that
    /// mirror.
    async fn cut_mirror(&self, file: &OpenFile, size: u64) -> Result<()> {
        let _turn = self.repairing(file).await;
        let changes = file.inode.changes();
        let placed = self.place_for_writing(file, size.saturating_sub(1), u64::from(size > 0), false).await?;
        let used = LayoutUse::new(file, placed.layout, changes);
        drop(placed.guard);
        let failed = |failure: Failure| if failure.is_moved() { Errno::EBUSY } else { failure.into_errno() };
        let locks = self.lock_mirror(file, &used).await.map_err(failed)?;
        let change = self.cache.change(&[file.fid()], true);
        let answer = self.lov.truncate_locked(&used.layout, size, &locks).await;
        change.end_data(&answer);
        drop(locks);
        answer.map_err(failed)?;
        if used.is_current(file) {
            return Ok(());
        }
        self.is_stale(file, &used).await.map(drop)
    }

    /// Removes set-user-id and set-group-id before a write by a caller without CAP_FSETID, if the
    /// file was last seen with them. Otherwise sends no request.
    pub async fn kill_priv(&self, who: &Caller, file: &OpenFile) -> Result<()> {
        let perm = file.inode.perm.load(Relaxed);
        if perm & SUID == 0 && perm & (SGID | GROUP_X) != SGID | GROUP_X {
            return Ok(());
        }
        let set = SetAttr { kill_priv: true, ..SetAttr::default() };
        let change = self.cache.change(&[file.fid()], false);
        let answer = self.set_attr(who, file.fid(), &set, Some(file), 0).await;
        change.end(&answer);
        self.files.note(&answer?.0.attr);
        if let Some(dropped) = self.cache.drop_attr(file.fid()) {
            dropped.await;
        }
        Ok(())
    }

    /// Does the MDT's part. A request that is resent to a restarted MDT still has the former handle
    /// of the open file. Then it is repeated with the new handle.
    async fn set_attr(
        &self,
        who: &Caller,
        fid: Fid,
        set: &SetAttr,
        file: Option<&OpenFile>,
        keep: u64,
    ) -> Result<(Entry, Option<Cookie>)> {
        let ask = |handle| {
            let request = move |cred| Request::SetAttr { cred, fid, set: set.clone(), handle };
            self.mdc.request_as(who, request).with_locks(keep).send()
        };
        let present = || file.map(OpenFile::handle).filter(|handle| *handle != NO_HANDLE);
        let mut handle = present();
        let first = loop {
            match ask(handle).await {
                Err(Errno::EBADF) if present() != handle => handle = present(),
                answer => break answer,
            }
        };
        let answer = match (first, file) {
            // The open file may allow what the mode forbids now, but the MDT does not know of the
            // open yet.
            (Err(Errno::EACCES), Some(file)) if handle.is_none() => {
                self.register(file).await?;
                ask(present()).await
            }
            (answer, _) => answer,
        };
        let answer = answer?;
        let lock = answer.locks.first().map(|(_, lock)| lock.cookie());
        Ok((mdc::entry(answer.reply)?, lock))
    }
}
