//! Drops what the system caches of an object, so that the next read comes from the disk. For
//! measurements; bytes that are not yet on the disk stay.

use sheen_wire::{Fid, Result};

use super::Store;

impl Store {
    /// Drops the cached bytes of `object`. Does nothing if it does not exist, or if the local file
    /// system stores it in memory.
    ///
    /// # Errors
    /// Errors of the local file system.
    pub fn drop_cached(&self, object: Fid) -> Result<()> {
        match self.files.existing(object)? {
            Some(object) => Ok(object.file.drop_cached()?),
            None => Ok(()),
        }
    }
}
