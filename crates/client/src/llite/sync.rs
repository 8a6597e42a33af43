//! fsync, fdatasync, syncfs.

use sheen_wire::{Errno, Result, mds::Request};

use crate::{Client, OpenDir, OpenFile, mdc, stats::Op};

impl Client {
    /// Answers when all that was written to the file, and the file itself, survive a crash of any
    /// server. `datasync` promises less but costs the same: the size lies with the data, and the
    /// MDT's part is only that the file exists.
    ///
    /// # Errors
    /// EIO: something could not be made durable, or something that was written before, through this
    /// open file or another one of this mount, may be lost: the host of an OST lost power before it
    /// was synced. That is told once for a file; then it starts anew.
    pub async fn fsync(&self, file: &OpenFile, _datasync: bool) -> Result<()> {
        let _timer = self.stats.time(Op::Fsync);
        let objects = async {
            // What is waited for can take long: the layout's lock is not in use meanwhile. Objects
            // that come need no sync of this client.
            let mut moves = 0;
            loop {
                let Some(layout) = self.place(file).await?.map(|placed| placed.layout) else { return Ok(()) };
                match self.lov.sync(&layout).await {
                    Err(Errno::MOVED) => drop(Box::pin(self.moved(file.fid(), &mut moves)).await?),
                    answer => return answer,
                }
            }
        };
        let (objects, inode) = tokio::join!(objects, self.sync_inode(file));
        inode?;
        objects
    }

    /// The file is durable, and the objects that it was known to have are its.
    ///
    /// # Errors
    /// ESTALE: the MDT has lost it, or them.
    pub(super) async fn sync_inode(&self, file: &OpenFile) -> Result<()> {
        mdc::done(self.mdc.call(Request::Sync { fid: Some(file.fid()) }).await?)?;
        if file.is_unsure() {
            // It was a restarted MDT that answered. What it knows of objects that were written
            // before was durable already.
            drop(Box::pin(self.place(file)).await?);
        }
        Ok(())
    }

    /// fsync of a directory: its entries are durable.
    ///
    /// # Errors
    /// EIO.
    pub async fn fsyncdir(&self, dir: &OpenDir) -> Result<()> {
        mdc::done(self.mdc.call(Request::Sync { fid: Some(dir.fid()) }).await?)
    }

    /// Answers when everything that was done through this client before is durable on the MDT and
    /// on all active OSTs; of what others did, what has reached them.
    ///
    /// # Errors
    /// EIO: as [`Client::fsync`], for all files. It is told once here, and fsync of a file tells it
    /// as well.
    pub async fn syncfs(&self) -> Result<()> {
        let (objects, names) = tokio::join!(self.lov.sync_all(), self.mdc.call(Request::Sync { fid: None }));
        mdc::done(names?)?;
        objects
    }
}
