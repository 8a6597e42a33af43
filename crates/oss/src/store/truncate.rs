//! Truncate: sets the sizes of objects. A missing object is created unless its size is to be 0.

use sheen_wire::{Fid, Result};

use super::Store;

impl Store {
    /// Sets the size of each of `objects`, which belong to `file`.
    ///
    /// # Errors
    /// MOVED: an object is sealed. Errors of the local file system. Objects before the failing one
    /// have their new size.
    pub fn truncate(&self, file: Fid, objects: &[(Fid, u64)]) -> Result<()> {
        for &(object, size) in objects {
            self.check_unsealed([object])?;
            self.set_size(file, object, size)?;
        }
        Ok(())
    }

    /// Sets the size of one object, also of a sealed one.
    pub(super) fn set_size(&self, file: Fid, object: Fid, size: u64) -> Result<()> {
        let open = match size {
            0 => self.files.existing_to_change(object, file)?,
            _ => Some(self.files.create(object, file)?),
        };
        if let Some(open) = open {
            let claim = open.begin_change(size, u64::MAX)?;
            let done = open.file.set_len(size);
            // Also after an error: some of the bytes may be removed.
            self.files.changed(&open, self.rt.wall(), None);
            open.sums().end(claim, []);
            done?;
        }
        Ok(())
    }
}
