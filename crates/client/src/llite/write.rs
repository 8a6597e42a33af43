//! pwrite(2).
//!
//! Where the file has no objects yet, the client requests them first (`place`). An append looks up
//! the file's size and writes there. Within this client, appends to one file take turns. Locks on
//! all objects of the file exclude other clients.

use std::{pin::pin, sync::atomic::Ordering::Relaxed};

use sheen_layout::Layout;
use sheen_wire::{Bulk, Errno, Fid, Result, bulk::BULK_BYTES_MAX, mds::flags};

use super::{
    layout_lookup::{AGAIN_MAX, HOLD_MAX, Placed},
    mirrors::Began,
    swap_layouts::Begun,
};
use crate::{
    Client, OpenFile,
    cache::data::Reads,
    lov::{How, InUse},
    stats::Op,
};

/// Most times that an append looks for the end again because the file got objects meanwhile.
const APPENDS_MAX: usize = 64;
/// Attempts of an append to get a LAYOUT lock on a mirrored file before it goes on without. Without
/// the lock the end may be looked up in a mirror under resync, which is not complete yet.
const GUARDED_MAX: usize = 8;

impl Client {
    /// Writes `data` at `offset`, or at the end of a file that is open for appending. Returns the
    /// number of bytes written, at most 16 MiB per call. `data` is passed on without a copy. With
    /// O_SYNC or O_DSYNC the data is durable on return.
    ///
    /// # Errors
    /// EBADF: not open for writing. EFBIG: past the layout's largest size. ENODATA: past its end.
    /// EIO, with O_SYNC: earlier writes without O_SYNC may be lost, as reported by
    /// [`Client::fsync`]. ENOSPC, EIO and other errors of the OSTs, if not even the first byte was
    /// written.
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
        let answer = self.write_for(file, offset, data, append, sync, false).await;
        self.drop_older_pages(fid, reads).await;
        answer
    }

    pub(super) async fn write_for(
        &self,
        file: &OpenFile,
        offset: u64,
        data: Bulk,
        append: bool,
        sync: bool,
        page: bool,
    ) -> Result<usize> {
        let _timer = self.stats.time(Op::Write);
        if !flags::writes(file.flags()) {
            return Err(Errno::EBADF);
        }
        let _turn = if file.mirror() == 0 { None } else { Box::pin(self.repairing(file)).await };
        let data = if data.len() > BULK_BYTES_MAX { data.slice(0, BULK_BYTES_MAX) } else { data };
        let mut moves = 0;
        let (written, generation) = loop {
            let answer = if append {
                Box::pin(self.append(file, data.clone(), sync)).await
            } else if page {
                Box::pin(self.write_inside(file, offset, data.clone())).await
            } else {
                self.write_once(file, offset, data.clone(), sync, false).await
            };
            match answer {
                Err(Errno::MOVED | Errno::MOVED_PARTLY) => drop(Box::pin(self.moved(file.fid(), &mut moves)).await?),
                answer => break answer?,
            }
        };
        self.stats.record(Op::WriteBytes, written as u64);
        let durable = u64::from(generation) + 1;
        if sync && file.durable.load(Relaxed) != durable {
            // The bytes are durable. The file and its list of objects must be durable as well.
            Box::pin(self.sync_inode(file)).await?;
            file.durable.store(durable, Relaxed);
        }
        Ok(written)
    }

    /// If the layout changed during the write and the written mirror is now stale, repeats the
    /// write with the new layout.
    #[allow(clippy::too_many_arguments, reason = "the parameters of the write")]
    async fn write_overtaken(
        &self,
        file: &OpenFile,
        layout: &Layout,
        mut began: Began,
        offset: u64,
        data: Bulk,
        sync: bool,
        mut done: (usize, u32),
    ) -> Result<(usize, u32)> {
        let mut by = None;
        for _ in 0..AGAIN_MAX {
            if !self.is_overtaken(file, by.as_deref().unwrap_or(layout), began).await? {
                return Ok(done);
            }
            let changes = file.inode.changes();
            let placed = self.place_for_writing(file, offset, data.len() as u64, false).await?;
            let layout = placed.layout;
            began = self.began(file, &layout, changes);
            let (how, none) = (How { sync, ..How::default() }, InUse::default());
            let work = pin!(self.write_at(file, &layout, offset, data.clone(), how, &none));
            let answer = self.under(file.fid(), placed.guard, work).await.0;
            done = (self.unless_failed(file.fid(), &layout, offset, answer).await?, layout.generation());
            by = Some(layout.clone());
        }
        Err(Errno::EIO)
    }

    /// Writes at an offset. Returns the number of bytes, and the generation of the layout that was
    /// used.
    pub(super) async fn write_once(
        &self,
        file: &OpenFile,
        offset: u64,
        data: Bulk,
        sync: bool,
        page: bool,
    ) -> Result<(usize, u32)> {
        let len = data.len();
        let changes = file.inode.changes();
        let Placed { layout, guard } = self.place_for_writing(file, offset, len as u64, page).await?;
        let began = self.began(file, &layout, changes);
        let (how, none) = (self.how(file, offset, len, sync, page), InUse::default());
        let work = pin!(self.write_at(file, &layout, offset, data.clone(), how, &none));
        let answer = self.under(file.fid(), guard, work).await.0;
        if answer == Err(Errno::MOVED_PARTLY) {
            return Box::pin(self.finish_write(file, &layout, offset, data)).await;
        }
        let done = (self.unless_failed(file.fid(), &layout, offset, answer).await?, layout.generation());
        match began.is_now(file) {
            true => Ok(done),
            false => Box::pin(self.write_overtaken(file, &layout, began, offset, data, sync, done)).await,
        }
    }

    /// Completes a write that was done in part, in the same objects under their present names.
    /// MOVED: they have none, and the write must be repeated with the file's layout. The same holds
    /// for an open file that uses one mirror, if the mirror may still be written.
    async fn finish_write(&self, file: &OpenFile, layout: &Layout, offset: u64, data: Bulk) -> Result<(usize, u32)> {
        if file.mirror() != 0 {
            return Err(Errno::MOVED);
        }
        let begun = Begun::Write(file, offset, data);
        let written = self.finish(file.fid(), layout, &begun).await?.ok_or(Errno::MOVED)?;
        Ok((written, layout.generation()))
    }

    /// As [`Client::finish_write`], for an append. If the file still has its objects, because a
    /// migration in the same group was refused, the remaining bytes belong behind the written part.
    /// No other append may come between, so the locks stay in use as long as they may.
    async fn finish_append(
        &self,
        file: &OpenFile,
        layout: &Layout,
        end: u64,
        data: Bulk,
        how: How,
        locks: InUse,
    ) -> Result<(usize, u32)> {
        for _ in 0..AGAIN_MAX {
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
            if done != Err(Errno::MOVED) || layout.is_mirrored() || has_left {
                return done;
            }
            match self.write_at(file, layout, end, data.clone(), how, &locks).await {
                Err(Errno::MOVED | Errno::MOVED_PARTLY) => {}
                written => return Ok((written?, layout.generation())),
            }
        }
        Err(Errno::EIO)
    }

    /// Writes at the end of the file. Returns the number of bytes, and the generation of the layout
    /// that was used.
    async fn append(&self, file: &OpenFile, data: Bulk, sync: bool) -> Result<(usize, u32)> {
        if file.mirror() != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let (fid, len) = (file.fid(), data.len() as u64);
        let _turn = file.inode.append.lock().await;
        for round in 0..APPENDS_MAX {
            let changes = file.inode.changes();
            let Placed { layout, guard } = self.place_given(file).await?;
            if guard.is_none() && layout.is_mirrored() && round < GUARDED_MAX {
                continue;
            }
            // The OSTs may take long to grant the locks.
            let guarded = guard.map(|guard| guard.cookie());
            let (end, locks) = self.lov.lock_end(&layout).await?;
            if len > 0 && end >= layout.end() {
                return Err(Errno::ENODATA);
            }
            if layout.needs_intent(end, len) {
                drop(locks);
                self.intend(file, end, len, false).await?;
                continue;
            }
            // Under this lock, other clients cannot add objects behind the locked ones.
            let guard = guarded.and_then(|cookie| self.guard_again(fid, cookie));
            if guard.is_none() && guarded.is_some() {
                continue;
            }
            let began = self.began(file, &layout, changes);
            let (how, locks) =
                (How { sync, guarded: true, ..How::default() }, InUse::new(&layout, locks.into_iter().enumerate()));
            let work = self.write_at(file, &layout, end, data.clone(), how, &locks);
            let answer = self.under(fid, guard, work).await.0;
            if answer == Err(Errno::MOVED_PARTLY) {
                return Box::pin(self.finish_append(file, &layout, end, data, how, locks)).await;
            }
            drop(locks);
            let done = (self.unless_failed(fid, &layout, end, answer).await?, layout.generation());
            // With another layout the end may be elsewhere.
            if !Box::pin(self.is_overtaken(file, &layout, began)).await?
                || Box::pin(self.is_there(file, end, &data)).await?
            {
                return Ok(done);
            }
        }
        tracing::warn!("{fid}: append fails with ENOLCK: the layout changed during every attempt; try again");
        Err(Errno::ENOLCK)
    }

    /// Returns whether the mirror that is fresh now has these bytes at this offset.
    async fn is_there(&self, file: &OpenFile, offset: u64, data: &Bulk) -> Result<bool> {
        for _ in 0..AGAIN_MAX {
            let (len, changes) = (data.len() as u64, file.inode.changes());
            let Placed { layout, guard } = self.place_for_writing(file, offset, len, false).await?;
            let began = self.began(file, &layout, changes);
            let read = pin!(self.lov.read(&layout, offset, len, false));
            let (found, _) = self.under(file.fid(), guard, read).await.0?;
            if !self.is_overtaken(file, &layout, began).await? {
                return Ok(found.into_bytes() == data.clone().into_bytes());
            }
        }
        Err(Errno::EIO)
    }

    /// Chooses how to do a write at an offset. The first write through an inode's open files is
    /// sent to the OSTs at once, without a lock of this client. So a small file that is written in
    /// one call costs one request. Pages of the kernel's page cache are not buffered a second time.
    fn how(&self, file: &OpenFile, offset: u64, len: usize, sync: bool, page: bool) -> How {
        let rest = file.goes_on(offset, len);
        let first = !file.inode.written.swap(true, Relaxed);
        let direct = file.flags() & flags::DIRECT != 0;
        if first || sync || page || direct {
            return How { sync, ..How::default() };
        }
        let keep = self.lov.keeping() && !file.inode.through.load(Relaxed);
        How { sync, keep, rest, lock: self.lov.locks_write(len), guarded: false }
    }

    pub(super) async fn write_at(
        &self,
        file: &OpenFile,
        layout: &Layout,
        offset: u64,
        data: Bulk,
        how: How,
        locks: &InUse,
    ) -> Result<usize> {
        // Also on failure: a part may have been written.
        file.note_write();
        let change = self.cache.change(&[file.fid()], true);
        let answer = self.lov.write(layout, offset, data, how, locks).await;
        change.end(&answer);
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
