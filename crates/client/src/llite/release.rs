//! The last close of an open file.

use std::sync::Arc;

use sheen_wire::{
    Result,
    mds::{NO_HANDLE, flags},
};

use crate::{Client, OpenDir, OpenFile, stats::Op};

impl Client {
    /// Closes a file; a second call does nothing. The MDT learns whether the file was read, for its
    /// access time. If that does not matter, and the file was opened without a request, the MDT
    /// gets no close.
    ///
    /// The close may be sent some moments later, with others ([`crate::open::Closes`]). Otherwise
    /// the request is sent when the future is first polled, before any later request.
    ///
    /// # Errors
    /// Any error of the MDT. The client has closed the file even then.
    pub async fn release(&self, file: Arc<OpenFile>) -> Result<()> {
        let _timer = self.stats.time(Op::Close);
        let Some(handle) = self.files.remove(&file) else { return Ok(()) };
        file.leave_group();
        self.access_patterns.close(file.fid(), &file.accesses);
        let (fid, read, wrote) = (file.fid(), file.was_read(), file.was_written());
        let orphan = file.inode.orphan.load(std::sync::atomic::Ordering::Relaxed);
        if let Some(layout) = file.inode.last().filter(|_| wrote && !orphan) {
            self.lov.begin_settle(&layout);
        }
        if handle == NO_HANDLE {
            return if read && self.reading_shows(fid) {
                self.closes.note(fid, handle, read, None).await
            } else {
                Ok(())
            };
        }
        // The MDT waits for the last close of a file without a name, to delete it. A writer may
        // wait for the close of a running program (ETXTBSY).
        let waited = orphan || file.flags() & flags::EXEC != 0;
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
