//! pwrite(2).
//!
//! Where the file has no objects yet, the client requests them first (`place`). An append looks up
//! the file's size and writes there. Within this client, appends to one file take turns. Locks on
//! all objects of the file exclude other clients.

use std::{pin::pin, sync::atomic::Ordering::Relaxed};

use sheen_layout::Layout;
use sheen_wire::{Bulk, Errno, Fid, Result, bulk::BULK_BYTES_MAX, mds::flags};

use super::{
    layout_lookup::{Changing, HOLD_MAX, Placed},
    swap_layouts::Begun,
    with_layout::{Attempt, LayoutUse, Retries},
};
use crate::{
    Client, OpenFile,
    access_patterns::Access,
    cache::data::Reads,
    failure::Failure,
    lov::{InUse, WriteMode},
    stats::Op,
};

/// Attempts of an append to get a LAYOUT lock on a mirrored file before it goes on without. Without
/// the lock the end may be looked up in a mirror under resync, which is not complete yet.
const GUARDED_MAX: u32 = 8;

impl Client {
    /// Writes `data` at `offset`, or at the end of a file that is open for appending. Returns the
    /// number of bytes written, at most 16 MiB per call. `data` is passed on without a copy. With
    /// O_SYNC or O_DSYNC the data is durable on return.
    ///
    /// # Errors
    /// EBADF: not open for writing. EFBIG: past the layout's largest size. ENODATA: past its end.
    /// EIO: the open file is in a group whose locks were lost, or the locks of an append were lost.
    /// EIO, with O_SYNC: earlier writes without O_SYNC may be lost, as reported by
    /// [`Client::fsync`]. ENOSPC, EDQUOT, EIO and other errors of the OSTs, if not even the first
    /// byte was written.
    pub async fn write(&self, file: &OpenFile, offset: u64, data: Bulk) -> Result<usize> {
        self.write_as(file, offset, data, file.appends(), file.syncs()).await
    }

    /// As [`Client::write`], with `append` and `sync` from the caller instead of from the open.
    /// fcntl(F_SETFL) changes O_APPEND of an open file, and pages of a mapping never append.
    ///
    /// # Errors
    /// As [`Client::write`].
    pub async fn write_as(&self, file: &OpenFile, offset: u64, data: Bulk, append: bool, sync: bool) -> Result<usize> {
        let (fid, reads) = (file.fid(), self.page_reads(file.fid()));
        let answer = self.write_for(file, offset, data, append, sync, None).await;
        self.drop_older_pages(fid, reads).await;
        answer
    }

    /// Counts a write of a program, as [`Client::count_read`].
    pub fn count_write(&self, pid: u32, file: &OpenFile, offset: u64, bytes: u64) {
        self.io_stats.count(Access::Write, pid, file.id, offset, bytes);
    }

    pub(super) async fn write_for(
        &self,
        file: &OpenFile,
        offset: u64,
        data: Bulk,
        append: bool,
        sync: bool,
        page: Option<u64>,
    ) -> Result<usize> {
        let _timer = self.stats.time(Op::Write);
        if !flags::writes(file.flags()) {
            return Err(Errno::EBADF);
        }
        self.check_group(file)?;
        let _turn = if file.mirror() == 0 { None } else { Box::pin(self.repairing(file)).await };
        let data = if data.len() > BULK_BYTES_MAX { data.slice(0, BULK_BYTES_MAX) } else { data };
        let (written, generation) = if append {
            Box::pin(self.append(file, data, sync)).await?
        } else if let Some(valid) = page {
            Box::pin(self.write_inside(file, offset, data, valid)).await?
        } else {
            let attempt = |attempt| self.try_write(file, offset, &data, sync, None, attempt);
            self.with_layout("write", file, attempt).await?
        };
        self.stats.record(Op::WriteBytes, written as u64);
        if !append {
            self.access_patterns.note(file.fid(), &file.accesses, Access::Write, offset, written);
        }
        let durable = u64::from(generation) + 1;
        if sync && file.durable.load(Relaxed) != durable {
            // The bytes are durable. The file and its list of objects must be durable as well.
            Box::pin(self.sync_inode(file)).await?;
            file.durable.store(durable, Relaxed);
        }
        Ok(written)
    }

    /// Writes at an offset. Returns the number of bytes, and the generation of the layout that was
    /// used. `page`: as in [`WriteMode`]. `attempt`: the number of attempts before.
    pub(super) async fn try_write(
        &self,
        file: &OpenFile,
        offset: u64,
        data: &Bulk,
        sync: bool,
        page: Option<u64>,
        attempt: u32,
    ) -> Result<Attempt<(usize, u32)>, Failure> {
        let (fid, len, changes) = (file.fid(), data.len(), file.inode.changes());
        let Placed { layout, guard } = self.place_for_writing(file, offset, len as u64, page.is_some()).await?;
        let used = LayoutUse::new(file, layout, changes);
        let layout = &used.layout;
        let mode = match attempt {
            0 => self.write_mode(file, len, sync, page),
            _ => WriteMode { sync, page, ..WriteMode::default() },
        };
        let (guard, locks) = self.lock_change(file, &used, guard).await?;
        let answer = {
            let work = pin!(self.write_at(file, layout, offset, data.clone(), mode, &locks));
            self.under(fid, guard, work).await.0
        };
        drop(locks);
        if answer == Err(Failure::MOVED_PARTLY) {
            return Ok(Attempt::Done(Box::pin(self.finish_write(file, layout, offset, data.clone())).await?));
        }
        let written = self.unless_failed(Changing::of(file), layout, offset, answer).await?;
        Ok(Attempt::DoneUnlessStale((written, layout.generation()), used))
    }

    /// Completes a write that was done in part, in the same objects under their present names.
    /// MOVED: they have none, and the write must be repeated with the file's layout. The same holds
    /// for an open file that uses one mirror, if the mirror may still be written.
    async fn finish_write(
        &self,
        file: &OpenFile,
        layout: &Layout,
        offset: u64,
        data: Bulk,
    ) -> Result<(usize, u32), Failure> {
        if file.mirror() != 0 {
            return Err(Failure::MOVED);
        }
        let begun = Begun::Write(file, offset, data);
        let written = self.finish(file.fid(), layout, &begun).await?.ok_or(Failure::MOVED)?;
        Ok((written, layout.generation()))
    }

    /// As [`Client::finish_write`], for an append. If the file still has its objects, because a
    /// migration in the same group was refused, the remaining bytes belong behind the written part.
    /// No other append may come between, so the locks stay in use as long as they may. EIO: they
    /// were lost.
    async fn finish_append(
        &self,
        file: &OpenFile,
        layout: &Layout,
        end: u64,
        data: Bulk,
        mode: WriteMode,
        locks: InUse,
    ) -> Result<(usize, u32), Failure> {
        let mut retries = Retries::new("append", file.fid());
        loop {
            let mut finish = pin!(self.finish_write(file, layout, end, data.clone()));
            let done = match self.rt.timeout(HOLD_MAX, finish.as_mut()).await {
                Ok(done) => done,
                Err(_) => {
                    drop(locks);
                    return finish.await;
                }
            };
            // The layout that the MDT has just sent.
            let now = file.inode.last();
            let has_left = now.is_none_or(|now| now.stripes().first() != layout.stripes().first());
            if done != Err(Failure::MOVED) || layout.is_mirrored() || has_left {
                return done;
            }
            self.lov.resume_append(&locks)?;
            match self.write_at(file, layout, end, data.clone(), mode, &locks).await {
                Err(Failure::LayoutMoved { .. }) => retries.again()?,
                written => return Ok((written?, layout.generation())),
            }
        }
    }

    /// Writes at the end of the file. Returns the number of bytes, and the generation of the layout
    /// that was used.
    async fn append(&self, file: &OpenFile, data: Bulk, sync: bool) -> Result<(usize, u32)> {
        if file.mirror() != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let _turn = file.inode.append.lock().await;
        self.with_layout("append", file, |attempt| self.try_append(file, &data, sync, attempt)).await
    }

    async fn try_append(
        &self,
        file: &OpenFile,
        data: &Bulk,
        sync: bool,
        attempt: u32,
    ) -> Result<Attempt<(usize, u32)>, Failure> {
        let (fid, len, changes) = (file.fid(), data.len() as u64, file.inode.changes());
        let Placed { layout, guard } = self.place_given(file).await?;
        if guard.is_none() && layout.is_mirrored() && attempt < GUARDED_MAX {
            return Ok(Attempt::Repeat);
        }
        // The OSTs may take long to grant the locks.
        let guarded = guard.map(|guard| guard.cookie());
        let (end, locks, under) = self.lov.lock_end(&layout).await?;
        if len > 0 && end >= layout.end() {
            return Err(Errno::ENODATA.into());
        }
        if layout.needs_intent(end, len) {
            drop(locks);
            self.intend(file, end, len, false).await?;
            return Ok(Attempt::Repeat);
        }
        // Under this lock, other clients cannot add objects behind the locked ones.
        let guard = guarded.and_then(|cookie| self.guard_again(fid, cookie));
        if guard.is_none() && guarded.is_some() {
            return Ok(Attempt::Repeat);
        }
        let used = LayoutUse::new(file, layout.clone(), changes);
        let mode = WriteMode { sync, guarded: true, ..WriteMode::default() };
        let work = self.write_at(file, &layout, end, data.clone(), mode, &locks);
        let answer = self.under(fid, guard, work).await.0;
        if answer == Err(Failure::MOVED_PARTLY) {
            let finish = self.finish_append(file, &layout, end, data.clone(), mode, locks);
            return Ok(Attempt::Done(Box::pin(finish).await?));
        }
        // After a write in part, bytes behind that part may be in other objects.
        if answer == Ok(data.len()) {
            self.lov.appended(&layout, under, end + len);
        }
        drop(locks);
        let done = (self.unless_failed(Changing::of(file), &layout, end, answer).await?, layout.generation());
        // With another layout the end may be elsewhere.
        let is_done = used.is_current(file)
            || !Box::pin(self.is_stale(file, &used)).await?
            || Box::pin(self.is_there(file, end, &data.slice(0, done.0))).await?;
        if !is_done {
            return Ok(Attempt::Repeat);
        }
        self.access_patterns.note(fid, &file.accesses, Access::Write, end, done.0);
        Ok(Attempt::Done(done))
    }

    /// Returns whether the mirror that is fresh now has these bytes at this offset.
    async fn is_there(&self, file: &OpenFile, offset: u64, data: &Bulk) -> Result<bool> {
        let attempt = |_| async move {
            let (len, changes) = (data.len() as u64, file.inode.changes());
            let Placed { layout, guard } = self.place_for_writing(file, offset, len, false).await?;
            let used = LayoutUse::new(file, layout.clone(), changes);
            let read = pin!(self.lov.read(&layout, offset, len, false));
            let (found, _) = self.under(file.fid(), guard, read).await.0?;
            let is_same = found.into_bytes() == data.clone().into_bytes();
            Ok(Attempt::DoneUnlessStale(is_same, used))
        };
        self.with_layout("append", file, attempt).await
    }

    /// Chooses how to do a write at an offset. The first write through an inode's open files is
    /// sent to the OSTs at once, without a lock of this client. So a small file that is written in
    /// one call costs one request. Pages of the kernel's page cache are not buffered a second time.
    fn write_mode(&self, file: &OpenFile, len: usize, sync: bool, page: Option<u64>) -> WriteMode {
        let first = !file.inode.written.swap(true, Relaxed);
        let direct = file.flags() & flags::DIRECT != 0;
        if first || sync || page.is_some() || direct {
            return WriteMode { sync, page, ..WriteMode::default() };
        }
        let cache = self.lov.keeping() && !file.inode.through.load(Relaxed);
        WriteMode { sync, cache, lock: self.lov.locks_write(len), ..WriteMode::default() }
    }

    pub(super) async fn write_at(
        &self,
        file: &OpenFile,
        layout: &Layout,
        offset: u64,
        data: Bulk,
        mode: WriteMode,
        locks: &InUse,
    ) -> Result<usize, Failure> {
        // Also on failure: a part may have been written.
        file.note_write();
        let change = self.cache.change(&[file.fid()], true);
        let answer = self.lov.write(layout, offset, data, mode, locks).await;
        change.end_data(&answer);
        answer
    }

    pub(super) fn page_reads(&self, fid: Fid) -> Reads {
        self.cache.data.get(fid).map(|data| data.reads()).unwrap_or_default()
    }

    /// Drops pages that the kernel read during a write past the page cache: they may have the old
    /// bytes.
    async fn drop_older_pages(&self, fid: Fid, before: Reads) {
        let Some(data) = self.cache.data.get(fid) else { return };
        let now = data.reads();
        if now != before || now.under_way > 0 {
            if let Some(dropped) = self.cache.flush_pages(&data) {
                dropped.await;
            }
            self.cache.data.tidy(fid);
        }
    }
}
