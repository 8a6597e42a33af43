//! Comparison of bytes read with the checksums that are stored with their object.

use sheen_wire::{Bulk, Errno, Result};

use super::{Store, at_rest::Known, files::Object};

impl Store {
    /// Compares bytes with stored checksums: those of a read of `len` bytes from `offset` on.
    ///
    /// # Errors
    /// EIO: they differ. Errors of the local file system.
    pub(super) fn compare(
        &self,
        object: &Object,
        known: &Known,
        (offset, len): (u64, u64),
        bytes: &Bulk,
    ) -> Result<()> {
        match object.at_rest.compare(known, offset, len, bytes)? {
            None => Ok(()),
            Some(block) => {
                self.note_damage(object.fid(), block);
                Err(Errno::EIO)
            }
        }
    }
}
