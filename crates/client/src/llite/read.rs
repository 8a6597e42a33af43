//! pread(2).

use std::{pin::pin, sync::Arc};

use sheen_layout::Layout;
use sheen_wire::{Bulk, Errno, Fid, Result, bulk::BULK_BYTES_MAX, mds::flags};

use super::{
    mirrors::AGAIN_MAX,
    place::{HOLD_MAX, Placed},
};
use crate::{
    Client, OpenFile, ReadData, ReadRefs,
    cache::data::{PATIENCE, Reading},
    locks::LockRef,
    stats::Op,
};

/// Times that a read asks for its locks before it goes on without.
const ROUNDS_MAX: usize = 4;

/// What of a file is read.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    pub offset: u64,
    pub len: u64,
    /// Bytes of a server in this process may be left where they lie.
    pub in_place: bool,
}

impl Client {
    /// Reads `len` bytes at `offset`, fewer at the end of the file; at most 16 MiB in one call.
    /// Nothing is copied: the pieces are those in which the OSTs' answers arrived, holes are zeros
    /// that all share.
    ///
    /// Of a file that is not open past the caches (O_DIRECT) the kernel may keep what it read,
    /// under the locks that come with it: [`Client::read_as`] with `pages`.
    ///
    /// # Errors
    /// EBADF: not open for reading. EIO and what else the OSTs answer.
    pub async fn read(&self, file: &OpenFile, offset: u64, len: usize) -> Result<ReadData> {
        let pages = self.cache.kernel().is_some() && file.flags() & flags::DIRECT == 0;
        self.read_as(file, offset, len, pages).await
    }

    /// As [`Client::read`]; `pages` says whether the answer goes into the kernel's page cache. Such
    /// a read takes locks on the objects, which others who write have to wait for: not to be asked
    /// for where a program reads past the page cache.
    ///
    /// # Errors
    /// As [`Client::read`]. EINVAL: `pages` of a file that is one mirror: others would find them.
    pub async fn read_as(&self, file: &OpenFile, offset: u64, len: usize, pages: bool) -> Result<ReadData> {
        self.read_from(file, offset, len, pages, false).await
    }

    /// As [`Client::read_as`]; bytes of a server in this process may be left where they lie
    /// ([`ReadData::live`]).
    ///
    /// # Errors
    /// As [`Client::read`].
    pub async fn read_in_place(&self, file: &OpenFile, offset: u64, len: usize, pages: bool) -> Result<ReadData> {
        self.read_from(file, offset, len, pages, true).await
    }

    async fn read_from(
        &self,
        file: &OpenFile,
        offset: u64,
        len: usize,
        pages: bool,
        in_place: bool,
    ) -> Result<ReadData> {
        let _timer = self.stats.time(Op::Read);
        self.read_ahead.note(&file.read_end, offset, len as u64);
        let mut moves = 0;
        loop {
            match self.read_once(file, offset, len, pages, in_place).await {
                Err(Errno::MOVED) => {
                    // The kernel keeps the pages locked, which the close of other objects must not
                    // wait for.
                    let _stalled = pages.then(|| self.cache.data.stall(file.fid(), offset, len as u64));
                    drop(Box::pin(self.moved(file.fid(), &mut moves)).await?);
                }
                answer => {
                    return answer.inspect(|read| self.stats.record(Op::ReadBytes, read.len() as u64));
                }
            }
        }
    }

    async fn read_once(
        &self,
        file: &OpenFile,
        offset: u64,
        len: usize,
        pages: bool,
        in_place: bool,
    ) -> Result<ReadData> {
        if !flags::reads(file.flags()) {
            return Err(Errno::EBADF);
        }
        if pages && file.mirror() != 0 {
            return Err(Errno::EINVAL);
        }
        file.note_read();
        let (fid, range) = (file.fid(), Range { offset, len: len.min(BULK_BYTES_MAX) as u64, in_place });
        // Before the layout is looked up, for this client itself may ask for objects meanwhile, and
        // writes there.
        let mut reading = pages.then(|| self.cache.data.reading(fid, offset, range.len));
        let changes = file.inode.changes();
        let placed = match &mut reading {
            Some(reading) => self.place_for_pages(file, reading).await?,
            None => self.place(file).await?,
        };
        let Some(placed) = placed else {
            // A file without a layout was never written.
            if let Some(data) = reading.map(|reading| reading.file.clone()) {
                self.cache.data.tidy(&data);
            }
            return Ok(ReadData { bulk: Bulk::new(), live: None, refs: ReadRefs::default() });
        };
        let layout = placed.layout.clone();
        let began = self.began(file, &layout, changes);
        let read = self.read_placed(fid, range, placed, reading).await?;
        match file.mirror() != 0 || began.is_now(file) {
            true => Ok(read),
            false => Box::pin(self.read_overtaken(file, range, pages, layout, read)).await,
        }
    }

    /// Reads by a layout.
    async fn read_placed(&self, fid: Fid, range: Range, placed: Placed, reading: Option<Reading>) -> Result<ReadData> {
        if placed.layout.is_mirrored() {
            return Box::pin(self.read_mirrored(fid, range, placed, reading)).await;
        }
        let (Placed { layout, guard }, Range { offset, len, .. }) = (placed, range);
        let pages = reading.is_some();
        let work = pin!(async {
            let refs = match reading {
                Some(reading) => self.read_locks(&layout, offset, len, reading).await?,
                None => ReadRefs::default(),
            };
            match self.known_content(&layout, offset, len) {
                Some(bulk) => Ok(ReadData { bulk, live: None, refs }),
                None => self.read_under(&layout, range, refs).await,
            }
        });
        let (read, guard) = self.under(fid, guard, work).await;
        let mut read = read?;
        if pages && layout.missing(offset, len).is_some() {
            self.keep_holes(&mut read.refs, guard);
        }
        Ok(read)
    }

    /// A read is done, and the layout may have become another one meanwhile: reads once more where
    /// it may have been a mirror that counts no more, or one that was just copied to. Nothing of
    /// such a read is kept, and no lock is in use while the MDT is asked.
    async fn read_overtaken(
        &self,
        file: &OpenFile,
        range: Range,
        pages: bool,
        layout: Arc<Layout>,
        read: ReadData,
    ) -> Result<ReadData> {
        let (fid, mut layout, mut read) = (file.fid(), layout, read);
        for _ in 0..AGAIN_MAX {
            self.keep_none(&mut read.refs);
            let mut reading = pages.then(|| self.cache.data.reading(fid, range.offset, range.len));
            let changes = file.inode.changes();
            let placed = match &mut reading {
                Some(reading) => self.place_for_pages(file, reading).await?,
                None => self.place(file).await?,
            };
            let placed = match placed {
                Some(placed) if placed.layout.overtakes(&layout) => placed,
                None if layout.is_mirrored() => return Err(Errno::EIO),
                _ => return Ok(read),
            };
            layout = placed.layout.clone();
            let began = self.began(file, &layout, changes);
            read = self.read_placed(fid, range, placed, reading).await?;
            if began.is_now(file) {
                return Ok(read);
            }
        }
        tracing::warn!("{fid}: its layout changes too often for reading");
        Err(Errno::EIO)
    }

    /// The locks under which the kernel may keep a range of a file, in use; or, while one of the
    /// file's locks is being given up, none: the kernel is told to drop what it read as often as
    /// somebody does so.
    pub(super) async fn read_locks(
        &self,
        layout: &Layout,
        offset: u64,
        len: u64,
        mut reading: Reading,
    ) -> Result<ReadRefs> {
        if reading.is_unlocked() {
            return Ok(ReadRefs::new(Vec::new(), reading));
        }
        let data = reading.file.clone();
        let mut stripes: Vec<usize> = match layout.is_plain() {
            true => layout.map(offset, len).take(layout.stripe_count()).map(|c| c.stripe).collect(),
            false => layout.map(offset, len).map(|c| c.stripe).collect(),
        };
        stripes.sort_unstable();
        stripes.dedup();
        for _ in 0..ROUNDS_MAX {
            // What others of the group write nobody has to tell. Another program may join it while
            // this waits.
            if stripes.iter().any(|s| self.lov.in_group(layout, *s)) {
                break;
            }
            let locks: Option<Vec<LockRef>> = stripes.iter().map(|s| self.lov.matching(layout, *s)).collect();
            if let Some(locks) = locks {
                return Ok(ReadRefs::new(locks, reading));
            }
            if !data.is_guarded() {
                // What this is to fill is left out of the invalidation, which need not wait for it
                // so.
                let stalled = self.cache.data.stall(layout.fid(), offset, len);
                let _ = self.rt.timeout(PATIENCE, data.flush_ends()).await;
                drop(stalled);
                if reading.unlock_if_flushing() {
                    return Ok(ReadRefs::new(Vec::new(), reading));
                }
            }
            // One after the other, none of them in use while the next is waited for.
            for stripe in stripes.iter().filter(|s| self.lov.matching(layout, **s).is_none()) {
                let locked = tokio::select! {
                    biased;
                    locked = self.lov.lock(layout, *stripe) => Some(locked?),
                    () = data.flush_begins() => None,
                };
                match locked {
                    // The only one: in use from its grant on, though it may have been asked for
                    // already.
                    Some(Some(lock)) if stripes.len() == 1 => return Ok(ReadRefs::new(vec![lock], reading)),
                    Some(_) => {}
                    None => break,
                }
            }
        }
        // Too many want to write, or a group does.
        self.keep_nothing(&mut reading);
        Ok(ReadRefs::new(Vec::new(), reading))
    }

    /// Reads with locks in use, but not for long: somebody else may be asked how far the file
    /// reaches, who does not answer.
    pub(super) async fn read_under(&self, layout: &Layout, range: Range, mut refs: ReadRefs) -> Result<ReadData> {
        let Range { offset, len, in_place } = range;
        let mut work = pin!(self.lov.read(layout, offset, len, in_place));
        let read = match refs.is_empty() {
            true => work.await,
            false => match self.rt.timeout(HOLD_MAX, work.as_mut()).await {
                Ok(read) => read,
                Err(_) => {
                    self.keep_none(&mut refs);
                    work.await
                }
            },
        };
        let (bulk, live) = read?;
        Ok(ReadData { bulk, live, refs })
    }

    /// Of what is read nothing is kept, and no lock is in use for it any more.
    fn keep_none(&self, refs: &mut ReadRefs) {
        if let Some(reading) = refs.reading() {
            self.keep_nothing(reading);
        }
        refs.release();
    }

    /// The kernel may keep holes for want of objects under the layout's lock.
    pub(super) fn keep_holes(&self, refs: &mut ReadRefs, guard: Option<LockRef>) {
        match (guard, refs.reading()) {
            (_, None) => {}
            (Some(guard), Some(_)) => refs.add_layout(guard),
            (None, Some(reading)) => self.keep_nothing(reading),
        }
    }

    /// What the kernel keeps of a read is dropped at once.
    fn keep_nothing(&self, reading: &mut Reading) {
        reading.unlock();
        if let Some(dropped) = self.cache.flush_pages(&reading.file) {
            let (cache, data) = (self.cache.clone(), reading.file.clone());
            drop(self.rt.spawn("ldlm_invalidate", async move {
                dropped.await;
                cache.data.tidy(&data);
            }));
        }
    }
}
