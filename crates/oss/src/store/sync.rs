//! Sync: makes written objects durable, so that they survive a crash of the host. First the times
//! of the last change are written to the files. Then fdatasync makes the bytes durable, and a sync
//! of the directories the names of new objects.

use std::{io, sync::Arc};

use sheen_wire::{Fid, Result};

use super::{Store, files::Object};

/// Most objects per call to the blocking pool: bounds the files that one sync holds open.
pub(super) const BATCH: usize = 256;

impl Store {
    /// Returns when all data written to `objects` is durable. No objects means all objects of the
    /// OST. Missing objects are no error.
    ///
    /// # Errors
    /// EIO: data was lost. MOVED: one of the objects is sealed. Other errors of the local file
    /// system.
    pub async fn sync(&self, objects: &[Fid]) -> Result<()> {
        if objects.is_empty() {
            return self.sync_all().await;
        }
        self.sync_written(objects).await?;
        // Data written to a file that has left these objects is elsewhere.
        self.check_unsealed(objects.iter().copied())
    }

    /// As [`Store::sync`], for a client that has just written to these objects. If they have been
    /// sealed since, that is no error: the written data moved with the file. The client must not
    /// repeat the write, because another client may have overwritten it meanwhile.
    ///
    /// # Errors
    /// Errors of the local file system.
    pub async fn sync_written(&self, objects: &[Fid]) -> Result<()> {
        for batch in objects.chunks(BATCH) {
            let mut open = Vec::with_capacity(batch.len());
            for &object in batch {
                // Also for an object that is not cached: its file may have been closed after a
                // write.
                open.extend(self.files.existing(object)?);
            }
            self.sync_files(&open).await?;
        }
        Ok(())
    }

    pub(super) async fn sync_files(&self, objects: &[Arc<Object>]) -> io::Result<()> {
        objects.iter().for_each(|o| o.save_time());
        match objects {
            [] => return Ok(()),
            [one] => one.file.sync_data().await?,
            many => {
                let many = many.to_vec();
                self.rt.run_blocking(move || many.iter().try_for_each(|o| o.file.sync_data_blocking())).await?;
            }
        }
        for object in objects {
            self.files.settle_object(object).await?;
        }
        Ok(())
    }

    /// Syncs the whole file system of the OST's directory.
    pub(super) async fn sync_all(&self) -> Result<()> {
        self.rt.block_in_place(|| self.files.save_times());
        let syncing = self.files.durable().begin_sync();
        self.home.held().sync_fs().await?;
        self.rt.block_in_place(|| syncing.done());
        Ok(())
    }
}
