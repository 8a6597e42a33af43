//! Sync: what was written to objects survives a crash of the host: their bytes by fdatasync, and
//! the names of those that are new by a sync of their directories. The times of their last change
//! are written to the files before.

use std::{io, sync::Arc};

use sheen_wire::{Fid, Result};

use super::{Store, files::Object};

/// Objects that are synced by one call to the blocking pool: bounds the files held open by it.
pub(super) const BATCH: usize = 256;

impl Store {
    /// Answers when all that was written to `objects` is durable; none given means all objects.
    /// Missing ones are fine.
    ///
    /// # Errors
    /// What the local file system says; EIO means that data was lost.
    pub async fn sync(&self, objects: &[Fid]) -> Result<()> {
        if objects.is_empty() {
            return self.sync_all().await;
        }
        self.sync_written(objects).await?;
        // What was written to a file that left them lies elsewhere.
        self.check_open(objects.iter().copied())
    }

    /// As [`Store::sync`], for who has just written to these very objects. If they are closed
    /// since, what was written is among what the file took along, and not to be written once more:
    /// somebody may have written over it meanwhile.
    ///
    /// # Errors
    /// What the local file system says.
    pub async fn sync_written(&self, objects: &[Fid]) -> Result<()> {
        for batch in objects.chunks(BATCH) {
            let mut open = Vec::with_capacity(batch.len());
            for &object in batch {
                // Also one that is not cached: it may have been written and closed since.
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

    /// Everything on the file system of the OST's directory.
    async fn sync_all(&self) -> Result<()> {
        self.rt.block_in_place(|| self.files.save_times());
        Ok(self.home.held().sync_fs().await?)
    }
}
