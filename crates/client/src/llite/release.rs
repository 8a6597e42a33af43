//! The last close of an open file.

use std::sync::Arc;

use sheen_wire::{Result, mds::Request};

use crate::{Client, OpenDir, OpenFile, mdc, stats::Op};

impl Client {
    /// Closes a file; a second time does nothing. The MDT learns whether it was read and written, for its times.
    ///
    /// The request is on its way when the future is first polled, before anything that is asked afterwards.
    ///
    /// # Errors
    /// What the MDT answers; the file is closed for this client in any case.
    pub async fn release(&self, file: Arc<OpenFile>) -> Result<()> {
        let _timer = self.stats.time(Op::Close);
        if !self.files.remove(&file) {
            return Ok(());
        }
        let (fid, handle) = (file.fid(), file.handle());
        let (read, wrote) = (file.was_read(), file.was_written());
        // Whether the access time moves, the MDT decides: by what it was before.
        let change = (read || wrote).then(|| self.cache.change(&[fid], false));
        let answer = self.mdc.call(Request::Close { fid, handle, read, wrote }).await;
        if let Some(change) = change {
            change.end(&answer);
        }
        mdc::done(answer?)
    }

    /// Closes a directory.
    ///
    /// # Errors
    /// As [`Client::release`].
    pub async fn releasedir(&self, dir: Arc<OpenDir>) -> Result<()> {
        self.release(dir.file.clone()).await
    }
}
