//! fsync, fdatasync, syncfs.

use sheen_wire::{Result, mds::Request};

use super::with_layout::Attempt;
use crate::{Client, OpenDir, OpenFile, failure::Failure, mdc, stats::Op};

impl Client {
    /// Returns when all data written to the file, and the file itself, survive a crash of any
    /// server. `datasync` guarantees less but costs the same: the OSTs have the size with the data,
    /// and on the MDT only the file's existence must be durable.
    ///
    /// # Errors
    /// EIO: a sync failed, or earlier writes through any open file of this mount may be lost. That
    /// happens if the host of an OST loses power before a sync. Or answered changes of the inode
    /// were lost in a restart of the MDT. The error is reported once for a file. Later changes
    /// start without an error.
    pub async fn fsync(&self, file: &OpenFile, _datasync: bool) -> Result<()> {
        let _timer = self.stats.time(Op::Fsync);
        // A sync can take long, so the LAYOUT lock is not in use meanwhile. Objects that are added
        // need no sync of this client.
        let objects = self.with_layout("fsync", file, |_| async {
            let Some(layout) = self.place(file).await?.map(|placed| placed.layout) else {
                return Ok(Attempt::Done(()));
            };
            self.lov.sync(&layout).await.map(Attempt::Done)
        });
        let (objects, inode) = tokio::join!(objects, self.sync_inode(file));
        inode?;
        objects
    }

    /// Makes the file durable on the MDT, with the objects that it was known to have.
    ///
    /// # Errors
    /// ESTALE: the MDT has lost the file or its objects. EIO: it has lost changes of the inode.
    pub(super) async fn sync_inode(&self, file: &OpenFile) -> Result<()> {
        mdc::done(self.mdc.request(Request::Sync { fid: Some(file.fid()) }).reply().await?)?;
        self.mdc.uncommitted().synced(file.fid())?;
        if file.is_unsure() {
            // The MDT that answered was restarted. Objects that it still knows from before were
            // durable already.
            drop(Box::pin(self.place(file)).await?);
        }
        Ok(())
    }

    /// fsync of a directory: makes its entries durable.
    ///
    /// # Errors
    /// EIO: a sync failed, or answered changes of its entries or attributes were lost in a restart
    /// of the MDT. The loss is reported once.
    pub async fn fsyncdir(&self, dir: &OpenDir) -> Result<()> {
        mdc::done(self.mdc.request(Request::Sync { fid: Some(dir.fid()) }).reply().await?)?;
        self.mdc.uncommitted().synced(dir.fid())
    }

    /// Returns when everything that was done through this client before is durable on the MDT and
    /// on all active OSTs. Changes by other clients are durable if they had reached the servers.
    ///
    /// # Errors
    /// EIO: as [`Client::fsync`], for all files. It is reported once here, and fsync of a file
    /// reports it as well.
    pub async fn syncfs(&self) -> Result<()> {
        let (objects, names) = tokio::join!(self.lov.sync_all(), self.mdc.request(Request::Sync { fid: None }).reply());
        mdc::done(names?)?;
        self.mdc.uncommitted().synced_all()?;
        objects.map_err(Failure::into_errno)
    }
}
