//! copy_file_range(2): the bytes pass through this process, not through the program's memory.

use sheen_wire::{Errno, Result, bulk::BULK_BYTES_MAX};

use crate::{Client, OpenFile};

/// Most bytes copied in one call: 64 MiB. A copy can be interrupted between calls.
const COPY_BYTES_MAX: u64 = 64 << 20;

impl Client {
    /// Copies up to `len` bytes and returns how many: fewer at the end of the source, and at most
    /// 64 MiB.
    ///
    /// # Errors
    /// EINVAL: the ranges overlap in one file. EBADF: not open for reading or writing, or the
    /// target is open for appending. An error of reading or writing, if nothing was copied.
    pub async fn copy_file_range(
        &self,
        from: &OpenFile,
        from_offset: u64,
        to: &OpenFile,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        let apart = from_offset.saturating_add(len) <= to_offset || to_offset.saturating_add(len) <= from_offset;
        if from.fid() == to.fid() && !apart {
            return Err(Errno::EINVAL);
        }
        if to.appends() {
            return Err(Errno::EBADF);
        }
        let len = len.min(COPY_BYTES_MAX);
        let mut copied = 0;
        while copied < len {
            let round = (len - copied).min(BULK_BYTES_MAX as u64) as usize;
            match self.copy_round(from, from_offset + copied, to, to_offset + copied, round).await {
                Ok(n) => {
                    copied += n;
                    // The source ended. If both are one file, the bytes that were just written may
                    // follow its former end.
                    if n < round as u64 {
                        break;
                    }
                }
                Err(errno) if copied == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        Ok(copied)
    }

    async fn copy_round(&self, from: &OpenFile, at: u64, to: &OpenFile, to_at: u64, len: usize) -> Result<u64> {
        let data = self.read_as(from, at, len, false).await?.bulk;
        if data.is_empty() {
            return Ok(0);
        }
        Ok(self.write(to, to_at, data).await? as u64)
    }
}
