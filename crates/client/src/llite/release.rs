//! The last close of an open file.

use std::sync::Arc;

use sheen_wire::{
    Result,
    mds::{NO_HANDLE, Reply, Request},
};

use crate::{Client, OpenDir, OpenFile, mdc, stats::Op};

impl Client {
    /// Closes a file; a second time does nothing. The MDT learns whether it was read, for its access time; where that does not matter, and
    /// the file was opened without asking, it is not told.
    ///
    /// A request is on its way when the future is first polled, before anything that is asked afterwards. Of reads alone it may be told some
    /// moments later, with others ([`crate::accessed`]).
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
            return if read && self.reading_shows(fid) { self.accessed.note(fid).await } else { Ok(()) };
        }
        match self.mdc.call(Request::Close { fid, handle, read, wrote }).await? {
            // Whether the access time moves, the MDT decides: by what it was before.
            Reply::Entry(entry) => {
                self.cache.meta.lock().accessed(&entry.attr);
                Ok(())
            }
            reply => mdc::done(reply),
        }
    }

    /// Closes a directory.
    ///
    /// # Errors
    /// As [`Client::release`].
    pub async fn releasedir(&self, dir: Arc<OpenDir>) -> Result<()> {
        self.release(dir.file.clone()).await
    }
}
