//! pread(2).

use sheen_layout::Layout;
use sheen_wire::{Bulk, Errno, Result, bulk::BULK_BYTES_MAX, mds::flags};

use crate::{Client, OpenFile, ReadData, ReadRefs, cache::data::PATIENCE, locks::LockRef, stats::Op};

/// Times that a read asks for its locks before it goes on without.
const ROUNDS_MAX: usize = 4;

impl Client {
    /// Reads `len` bytes at `offset`, fewer at the end of the file; at most 16 MiB in one call. Nothing is copied: the pieces
    /// are those in which the OSTs' answers arrived, holes are zeros that all share.
    ///
    /// Of a file that is not open past the caches (O_DIRECT) the kernel may keep what it read, under the locks that come with it:
    /// [`Client::read_as`] with `pages`.
    ///
    /// # Errors
    /// EBADF: not open for reading. EIO and what else the OSTs answer.
    pub async fn read(&self, file: &OpenFile, offset: u64, len: usize) -> Result<ReadData> {
        let pages = self.cache.kernel().is_some() && file.flags() & flags::DIRECT == 0;
        self.read_as(file, offset, len, pages).await
    }

    /// As [`Client::read`]; `pages` says whether the answer goes into the kernel's page cache. Such a read takes locks on the
    /// objects, which others who write have to wait for: not to be asked for where a program reads past the page cache.
    ///
    /// # Errors
    /// As [`Client::read`].
    pub async fn read_as(&self, file: &OpenFile, offset: u64, len: usize, pages: bool) -> Result<ReadData> {
        self.read_from(file, offset, len, pages, false).await
    }

    /// As [`Client::read_as`]; bytes of a server in this process may be left where they lie ([`ReadData::live`]).
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
        if !flags::reads(file.flags()) {
            return Err(Errno::EBADF);
        }
        file.note_read();
        let refs_of_nothing = || ReadData { bulk: Bulk::new(), live: None, refs: ReadRefs::default() };
        // A file without a layout was never written.
        let Some(layout) = self.layout_of_file(file).await? else { return Ok(refs_of_nothing()) };
        let len = len.min(BULK_BYTES_MAX) as u64;
        let refs = if pages { self.read_locks(&layout, offset, len).await? } else { ReadRefs::default() };
        let (bulk, live) = self.lov.read(&layout, offset, len, in_place).await?;
        let read = ReadData { bulk, live, refs };
        self.stats.record(Op::ReadBytes, read.len() as u64);
        Ok(read)
    }

    /// The locks under which the kernel may keep a range of a file, in use; or, while one of the file's locks is being given up, none:
    /// the kernel is told to drop what it read as often as somebody does so.
    async fn read_locks(&self, layout: &Layout, offset: u64, len: u64) -> Result<ReadRefs> {
        let mut reading = self.cache.data.reading(layout.fid());
        let data = reading.file.clone();
        let mut stripes: Vec<usize> = layout.map(offset, len).take(layout.stripe_count()).map(|c| c.stripe).collect();
        stripes.sort_unstable();
        stripes.dedup();
        // What others of the group write nobody has to tell.
        let rounds = if stripes.iter().any(|s| self.lov.in_group(layout, *s)) { 0 } else { ROUNDS_MAX };
        for _ in 0..rounds {
            let locks: Option<Vec<LockRef>> = stripes.iter().map(|s| self.lov.matching(layout, *s)).collect();
            if let Some(locks) = locks {
                return Ok(ReadRefs::new(locks, reading));
            }
            if !data.is_guarded() {
                let _ = self.rt.timeout(PATIENCE, data.flush_ends()).await;
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
                if locked.is_none() {
                    break;
                }
            }
        }
        // Too many want to write: what the kernel keeps of this is dropped at once.
        reading.unlock();
        if let Some(dropped) = self.cache.flush_pages(&data) {
            drop(self.rt.spawn("ldlm_invalidate", dropped));
        }
        Ok(ReadRefs::new(Vec::new(), reading))
    }
}
