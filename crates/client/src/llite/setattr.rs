//! chmod, chown, utimensat, truncate, and the loss of set-user-id at a write.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use sheen_layout::Layout;
use sheen_wire::{
    Errno, Fid, Result,
    ldlm::Cookie,
    mds::{Entry, NO_HANDLE, Request, SetAttr, flags},
};

use crate::{Caller, Client, EntryAttr, OpenFile, layouts::is_settled, mdc, stats::Op};

/// S_ISUID, S_ISGID and the group's x, which together with S_ISGID makes the bit mean what it says.
const SUID: u32 = 0o4000;
const SGID: u32 = 0o2000;
const GROUP_X: u32 = 0o010;

impl Client {
    /// Sets attributes. `file`: the open file through which ftruncate came, whose open allows what the mode forbids now.
    ///
    /// Truncate goes to the MDT first, which checks and stamps the times, then to the objects.
    ///
    /// # Errors
    /// EPERM, EACCES: the MDT says no. EFBIG: larger than the layout can hold. ENODATA: past its end.
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
        let asking = self.asking(fid);
        let change = self.cache.change(&[fid], false);
        let answer = self.set_all(who, fid, &set, file, asking.wants()).await;
        let asking = asking.changed(change.end(&answer));
        let (entry, lock) = answer?;
        let told = self.told_under(&entry, lock, &asking)?;
        self.completed(told).await
    }

    /// The MDT's part and that of the objects. Also the handle of the lock that came.
    async fn set_all(
        &self,
        who: &Caller,
        fid: Fid,
        set: &SetAttr,
        file: Option<&OpenFile>,
        keep: u64,
    ) -> Result<(Entry, Option<Cookie>)> {
        if let Some(layout) = self.last_layout(fid).filter(|_| set.mtime.is_some()) {
            // What was written before it must not be stamped after it.
            self.lov.settle_file(&layout).await;
        }
        let (mut entry, lock) = self.set_attr(who, fid, set, file, keep).await?;
        if let Some(size) = set.size {
            if entry.layout.is_none() && self.layouts.get(fid).is_none() {
                let again = Request::GetAttr { fid, layout_known: false };
                entry.layout = mdc::entry(self.mdc.call(again).await?)?.layout;
            }
            if let Some(mut layout) = self.known_layout(&entry)? {
                let mut moves = 0;
                loop {
                    layout = self.with_last_byte(&mut entry, layout, size).await?;
                    let guard = if is_settled(&layout) { None } else { self.layout_lock(fid) };
                    let (cut, guard) = self.under(fid, guard, self.lov.truncate(&layout, size)).await;
                    drop(guard);
                    match cut {
                        Err(Errno::MOVED) => layout = Box::pin(self.moved(fid, &mut moves)).await?,
                        cut => break cut?,
                    }
                    entry.layout = Some(layout.encode().into());
                }
            }
        }
        Ok((entry, lock))
    }

    /// The layout with objects for the last of `size` bytes.
    ///
    /// # Errors
    /// ENODATA: the layout ends before. What the MDT answers.
    async fn with_last_byte(&self, entry: &mut Entry, layout: Arc<Layout>, size: u64) -> Result<Arc<Layout>> {
        if size > layout.end() {
            return Err(Errno::ENODATA);
        }
        let Some(last) = size.checked_sub(1).filter(|last| layout.missing(*last, 1).is_some()) else {
            return Ok(layout);
        };
        let fid = entry.attr.fid;
        let reads = self.page_reads(fid);
        let layout = self.ask_objects(fid, last, size).await?;
        self.drop_holes(fid, reads, false).await;
        entry.layout = Some(layout.encode().into());
        Ok(layout)
    }

    /// Before a write by somebody without CAP_FSETID: takes set-user-id and set-group-id away, if the file was last seen with
    /// them; else it costs nothing.
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
        if let Some(kernel) = self.cache.kernel() {
            kernel.attr(file.fid());
        }
        Ok(())
    }

    /// The MDT's part. A request that is sent again to a restarted MDT still names the open file as the MDT knew it before: then once
    /// more by its new handle.
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
            self.mdc.call_keeping_as(who, request, keep)
        };
        let present = || file.map(OpenFile::handle).filter(|handle| *handle != NO_HANDLE);
        let handle = present();
        let answer = match (ask(handle).await, file) {
            (Err(Errno::EBADF), _) if present() != handle => ask(present()).await,
            // What the mode forbids now, the open file may allow: but the MDT does not know that it is open.
            (Err(Errno::EACCES), Some(file)) if handle.is_none() => {
                self.register(file).await?;
                ask(present()).await
            }
            (answer, _) => answer,
        };
        let kept = answer?;
        let lock = kept.locks.first().map(|(_, lock)| lock.cookie());
        Ok((mdc::entry(kept.reply)?, lock))
    }
}
