//! The last close of an open file.

use std::sync::Arc;

use sheen_wire::{
    Result,
    mds::{NO_HANDLE, flags},
};

use crate::{Client, OpenDir, OpenFile, stats::Op};

impl Client {
    /// Closes a file; a second time does nothing. The MDT learns whether it was read, for its
    /// access time; where that does not matter, and the file was opened without asking, it is not
    /// told.
    ///
    /// It may be told some moments later, with others ([`crate::closed`]). Else the request is on
    /// its way when the future is first polled, before anything that is asked afterwards.
    ///
    /// # Errors
    /// What the MDT answers; the file is closed for this client in any case.
    pub async fn release(&self, file: Arc<OpenFile>) -> Result<()> {
        let _timer = self.stats.time(Op::Close);
        let Some(handle) = self.files.remove(&file) else { return Ok(()) };
        file.leave_group();
        let (fid, read, wrote) = (file.fid(), file.was_read(), file.was_written());
        let nameless = file.inode.nameless.load(std::sync::atomic::Ordering::Relaxed);
        if let Some(layout) = file.inode.last().filter(|_| wrote && !nameless) {
            self.lov.begin_settle(&layout);
        }
        if handle == NO_HANDLE {
            return if read && self.reading_shows(fid) {
                self.closes.note(fid, handle, read, None).await
            } else {
                Ok(())
            };
        }
        // Of a file without a name the MDT waits for the last close, to remove it; of a program
        // somebody may, to write it.
        let waited = nameless || file.flags() & flags::EXEC != 0;
        let lock = if waited { None } else { self.layout_lock(fid) };
        self.closes.note(fid, handle, read, lock).await
    }

    /// Closes a directory.
    ///
    /// # Errors
    /// As [`Client::release`].
    pub async fn releasedir(&self, dir: Arc<OpenDir>) -> Result<()> {
        self.release(dir.file.clone()).await
    }
}
