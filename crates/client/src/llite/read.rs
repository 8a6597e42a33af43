//! pread(2).

use std::{pin::pin, sync::Arc};

use sheen_layout::Layout;
use sheen_wire::{Bulk, Errno, Fid, Result, bulk::BULK_BYTES_MAX, mds::flags};

use super::{
    layout_lookup::{HOLD_MAX, Placed},
    with_layout::{LayoutUse, Retries},
};
use crate::{
    Client, OpenFile, ReadData,
    access_patterns::Access,
    cache::{
        ReadRefs,
        data::{PATIENCE, Reading},
    },
    failure::Failure,
    locks::LockRef,
    stats::Op,
};

/// Most times that a read requests its locks before it goes on without.
const ROUNDS_MAX: usize = 4;

/// The range of a read, in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    pub offset: u64,
    pub len: u64,
    /// The data may be returned in place if its server is in this process ([`ReadData::live`]).
    pub in_place: bool,
}

impl Client {
    /// Reads `len` bytes at `offset`, fewer at the end of the file; at most 16 MiB per call.
    /// Nothing is copied: the pieces are those of the OSTs' replies, and all holes share one buffer
    /// of zeros.
    ///
    /// Unless the file is open with O_DIRECT, the kernel may cache the data under the locks that
    /// come with it: as [`Client::read_as`] with `pages`.
    ///
    /// # Errors
    /// EBADF: not open for reading. EIO: the open file is in a group whose locks were lost. EIO and
    /// other errors of the OSTs.
    pub async fn read(&self, file: &OpenFile, offset: u64, len: usize) -> Result<ReadData> {
        let pages = self.cache.kernel().is_some() && file.flags() & flags::DIRECT == 0;
        self.read_as(file, offset, len, pages).await
    }

    /// As [`Client::read`]; `pages` says whether the data goes into the kernel's page cache. Such a
    /// read takes locks on the objects, and writers on other clients have to wait for these. So do
    /// not set it for reads past the page cache.
    ///
    /// # Errors
    /// As [`Client::read`]. EINVAL: `pages` for an open file that uses one mirror, because other
    /// programs would find these pages.
    pub async fn read_as(&self, file: &OpenFile, offset: u64, len: usize, pages: bool) -> Result<ReadData> {
        self.read_from(file, offset, len, pages, false).await
    }

    /// As [`Client::read_as`], but the data may be returned in place if its server is in this
    /// process ([`ReadData::live`]).
    ///
    /// # Errors
    /// As [`Client::read`].
    pub async fn read_in_place(&self, file: &OpenFile, offset: u64, len: usize, pages: bool) -> Result<ReadData> {
        self.read_from(file, offset, len, pages, true).await
    }

    /// Counts a read of a program for `llite.*.extents_stats`, if that is on. `pid`: its thread; 0:
    /// unknown.
    pub fn count_read(&self, pid: u32, file: &OpenFile, offset: u64, bytes: u64) {
        self.io_stats.count(Access::Read, pid, file.id, offset, bytes);
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
        if !flags::reads(file.flags()) {
            return Err(Errno::EBADF);
        }
        self.check_group(file)?;
        if pages && file.mirror() != 0 {
            return Err(Errno::EINVAL);
        }
        file.note_read();
        let range = Range { offset, len: len.min(BULK_BYTES_MAX) as u64, in_place };
        let read = self.read_with_layout(file, range, pages).await;
        read.inspect(|read| {
            self.stats.record(Op::ReadBytes, read.len() as u64);
            self.access_patterns.note(file.fid(), &file.accesses, Access::Read, offset, read.len());
        })
    }

    /// Repeats a read while the layout changes, as [`Client::with_layout`]. A read for the page
    /// cache asks the MDT in another way: an invalidation of the file must not wait for it.
    async fn read_with_layout(&self, file: &OpenFile, range: Range, pages: bool) -> Result<ReadData> {
        let (fid, Range { offset, len, .. }) = (file.fid(), range);
        let mut retries = Retries::new("read", fid);
        // The data of the attempt before, and its layout. The mirror may be stale by now, or may
        // have just been copied to. This data is not cached.
        let mut unsure: Option<(Arc<Layout>, ReadData)> = None;
        loop {
            // Registered before the layout lookup: this client itself may request objects
            // meanwhile, and write to them.
            let mut reading = pages.then(|| self.cache.data.reading(fid, offset, len));
            let changes = file.inode.changes();
            let placed = match &mut reading {
                Some(reading) => self.place_for_pages(file, reading).await?,
                None => self.place(file).await?,
            };
            let Some(placed) = placed else {
                return match unsure {
                    Some((layout, _)) if layout.is_mirrored() => Err(Errno::EIO),
                    Some((_, read)) => Ok(read),
                    None => Ok(self.read_nothing(fid, reading)),
                };
            };
            if let Some((_, read)) = unsure.take_if(|(before, _)| !placed.layout.overtakes(before)) {
                return Ok(read);
            }
            if unsure.is_some() {
                retries.again()?;
            }
            let used = LayoutUse::new(file, placed.layout.clone(), changes);
            match self.read_placed(fid, range, placed, reading).await {
                Ok(read) if file.mirror() != 0 || used.is_current(file) => return Ok(read),
                Ok(mut read) => {
                    // No lock is in use while the MDT is asked.
                    self.keep_none(&mut read.refs);
                    unsure = Some((used.layout, read));
                }
                Err(Failure::LayoutMoved { .. }) => {
                    unsure = None;
                    // The kernel has these pages locked. When other objects are sealed, the
                    // invalidation must not wait for these pages.
                    let _stalled = pages.then(|| self.cache.data.stall(fid, offset, len));
                    drop(Box::pin(self.layout_after_seal(&mut retries)).await?);
                }
                Err(failure) => return Err(failure.into_errno()),
            }
        }
    }

    /// Reads a file without a layout, which was never written.
    fn read_nothing(&self, fid: Fid, reading: Option<Reading>) -> ReadData {
        if reading.is_some() {
            drop(reading);
            self.cache.data.tidy(fid);
        }
        ReadData { bulk: Bulk::new(), live: None, refs: ReadRefs::default() }
    }

    /// Reads with a layout.
    async fn read_placed(
        &self,
        fid: Fid,
        range: Range,
        placed: Placed,
        reading: Option<Reading>,
    ) -> Result<ReadData, Failure> {
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

    /// Returns the locks under which the kernel may cache a range of a file, in use. While one of
    /// the file's locks is being cancelled, returns none. The invalidation is then repeated until
    /// all such reads are done.
    pub(super) async fn read_locks(
        &self,
        layout: &Layout,
        offset: u64,
        len: u64,
        mut reading: Reading,
    ) -> Result<ReadRefs, Failure> {
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
            // No callback reports what other members of a group write. Another program may join the
            // group while this read waits.
            if stripes.iter().any(|s| self.lov.in_group(layout, *s)) {
                break;
            }
            let locks: Option<Vec<LockRef>> = stripes.iter().map(|s| self.lov.matching(layout, *s)).collect();
            if let Some(locks) = locks {
                return Ok(ReadRefs::new(locks, reading));
            }
            if !data.is_guarded() {
                // The invalidation leaves out the pages of this read, so it need not wait for them.
                let stalled = self.cache.data.stall(layout.fid(), offset, len);
                let _ = self.rt.timeout(PATIENCE, data.flush_ends()).await;
                drop(stalled);
                if reading.unlock_if_flushing() {
                    return Ok(ReadRefs::new(Vec::new(), reading));
                }
            }
            // One lock after the other; none of them is in use during the request for the next.
            for stripe in stripes.iter().filter(|s| self.lov.matching(layout, **s).is_none()) {
                let locked = tokio::select! {
                    biased;
                    locked = self.lov.lock(layout, *stripe) => Some(locked?),
                    () = data.flush_begins() => None,
                };
                match locked {
                    // The only lock: in use from its grant on, even if a blocking callback has
                    // arrived.
                    Some(Some(lock)) if stripes.len() == 1 => return Ok(ReadRefs::new(vec![lock], reading)),
                    Some(_) => {}
                    None => break,
                }
            }
        }
        // Too many writers want the locks, or a group has one.
        self.keep_nothing(&mut reading);
        Ok(ReadRefs::new(Vec::new(), reading))
    }

    /// Reads with locks in use, but for at most [`HOLD_MAX`]: the size query may depend on another
    /// client that does not answer.
    pub(super) async fn read_under(
        &self,
        layout: &Layout,
        range: Range,
        mut refs: ReadRefs,
    ) -> Result<ReadData, Failure> {
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

    /// Releases the locks of a read, and has the kernel drop its pages.
    fn keep_none(&self, refs: &mut ReadRefs) {
        if let Some(reading) = refs.reading() {
            self.keep_nothing(reading);
        }
        refs.release();
    }

    /// Lets the kernel cache holes for want of objects under the LAYOUT lock.
    pub(super) fn keep_holes(&self, refs: &mut ReadRefs, guard: Option<LockRef>) {
        match (guard, refs.reading()) {
            (_, None) => {}
            (Some(guard), Some(_)) => refs.add_layout(guard),
            (None, Some(reading)) => self.keep_nothing(reading),
        }
    }

    /// Starts to drop the kernel's pages of a read.
    fn keep_nothing(&self, reading: &mut Reading) {
        reading.unlock();
        if let Some(dropped) = self.cache.flush_pages(&reading.file) {
            drop(self.rt.spawn("ldlm_invalidate", dropped));
        }
    }
}
