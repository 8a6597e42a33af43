//! Repair of damaged blocks, with bytes that the MDT has read from another mirror of the file.
//!
//! The stored checksum decides which bytes are right. So it does not matter what happens to the
//! file and its other mirrors meanwhile.
//!
//! Invariants:
//! * a block is written only while its checksum is stored, and no change of it is in progress. A
//!   change removes the checksum first, so a repair never undoes a change;
//! * a block that is intact when it is compared again is not written: a read may have failed only
//!   once;
//! * bytes for a whole block are written only if they have the checksum;
//! * the object's time of the last change and its data version remain;
//! * a block counts as repaired when it was compared and is durable. Otherwise the damage could
//!   return after a power failure, when the checksum does not count any more.

use std::sync::Arc;

use sheen_wire::{
    Bulk, Errno, Fid, Result,
    ost::{Damaged, DamagedBlock},
};
use tracing::info;

use super::{Store, damage_report::name, files::Object};

impl Store {
    /// Compares a block that was found damaged once more, before it is repaired.
    ///
    /// # Errors
    /// ESTALE: the block is intact, or was changed since. Then it leaves the list of damage. Errors
    /// of the local file system.
    pub async fn check_damaged(&self, object: Fid, block: &DamagedBlock) -> Result<()> {
        let is_damaged = match self.files.existing(object)? {
            Some(open) => self.is_damaged(&open, block).await,
            None => Err(Errno::ESTALE),
        };
        match is_damaged {
            Ok(true) => Ok(()),
            Ok(false) | Err(Errno::ESTALE) => {
                self.damaged.remove(&[(object, *block)]);
                Err(Errno::ESTALE)
            }
            Err(errno) => Err(errno),
        }
    }

    /// Compares a block with its checksum. Returns whether it is damaged.
    ///
    /// # Errors
    /// ESTALE: it was changed. Errors of the local file system.
    async fn is_damaged(&self, open: &Arc<Object>, block: &DamagedBlock) -> Result<bool> {
        let (known, number) = open.at_rest.find(self.epoch(), block).ok_or(Errno::ESTALE)?;
        let reader = open.clone();
        let compare = self.rt.run_blocking(move || reader.at_rest.damaged_blocks(&known, number..number + 1));
        Ok(!compare.await?.is_empty())
    }

    /// Writes bytes to offset `at` of a damaged block of an object. The caller makes sure that no
    /// other request changes the block meanwhile.
    ///
    /// # Errors
    /// ESTALE: the block was changed since it was found damaged. EUCLEAN: the bytes are the whole
    /// block, and do not have its checksum. MOVED: the object is sealed. Errors of the local file
    /// system.
    pub fn repair(&self, object: Fid, block: &DamagedBlock, at: u64, bytes: &Bulk) -> Result<()> {
        self.check_unsealed([object])?;
        let open = self.files.existing_to_change(object, Fid::ZERO)?;
        let Some(open) = open.filter(|open| open.at_rest.find(self.epoch(), block).is_some()) else {
            self.damaged.remove(&[(object, *block)]);
            return Err(Errno::ESTALE);
        };
        let len = bytes.len() as u64;
        if len == block.len && bytes.crc() != block.sum {
            return Err(Errno::EUCLEAN);
        }
        open.note_time()?;
        let claim = open.sums().begin(at, len, true);
        let written = open.file.write_all_vectored_at(at, bytes.segments());
        open.restore_time();
        self.files.recount(&open);
        open.sums().end(claim, []);
        Ok(written?)
    }

    /// Compares a repaired block with its checksum, and makes it durable.
    ///
    /// # Errors
    /// ESTALE: it was changed. EUCLEAN: it is still damaged. Errors of the local file system.
    pub async fn end_repair(&self, object: Fid, block: &DamagedBlock) -> Result<()> {
        let open = self.files.existing(object)?.ok_or(Errno::ESTALE)?;
        if self.is_damaged(&open, block).await? {
            return Err(Errno::EUCLEAN);
        }
        open.file.sync_data().await?;
        let file = self.file_of(object);
        self.damaged.repaired(Damaged { object, file, block: *block });
        info!(
            "{}: {}: repaired {} bytes from offset {} from another mirror",
            self.home.dir().display(),
            name(object, file),
            block.len,
            block.offset
        );
        Ok(())
    }
}
