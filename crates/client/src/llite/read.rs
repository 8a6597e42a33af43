//! pread(2).

use sheen_wire::{Bulk, Errno, Result, bulk::BULK_BYTES_MAX, mds::flags};

use crate::{Client, OpenFile, stats::Op};

impl Client {
    /// Reads `len` bytes at `offset`, fewer at the end of the file; at most 16 MiB in one call. Nothing is copied: the pieces
    /// are those in which the OSTs' answers arrived, holes are zeros that all share.
    ///
    /// # Errors
    /// EBADF: not open for reading. EIO and what else the OSTs answer.
    pub async fn read(&self, file: &OpenFile, offset: u64, len: usize) -> Result<Bulk> {
        let _timer = self.stats.time(Op::Read);
        if !flags::reads(file.flags()) {
            return Err(Errno::EBADF);
        }
        file.note_read();
        // A file without a layout was never written.
        let Some(layout) = self.layout_of_file(file).await? else { return Ok(Bulk::new()) };
        let data = self.lov.read(&layout, offset, len.min(BULK_BYTES_MAX) as u64).await?;
        self.stats.record(Op::ReadBytes, data.len() as u64);
        Ok(data)
    }
}
