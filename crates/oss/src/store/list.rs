//! List: the objects of an OST, for finding objects that belong to no file.
//!
//! The order is that of directories: by sequence, then by slot, then by name. One directory's names
//! are in memory at a time. An object that is created or removed meanwhile may be listed or not.

use sheen_objects::name::Dir;
use sheen_wire::{Fid, Result};

use super::Store;

impl Store {
    /// Returns the sequences that may have objects.
    ///
    /// # Errors
    /// Errors of the local file system.
    pub fn sequences(&self) -> Result<Vec<u64>> {
        Ok(self.files.sequences()?)
    }

    /// Returns at most `max` objects that follow `after`; [`Fid::ZERO`]: from the first on.
    ///
    /// # Errors
    /// Errors of the local file system.
    pub fn objects_after(&self, after: Fid, max: usize) -> Result<Vec<Fid>> {
        let begun = (after != Fid::ZERO).then(|| Dir::of(after));
        let mut found = Vec::new();
        let mut seqs = self.files.sequences()?;
        seqs.sort_unstable();
        for dir in seqs.into_iter().flat_map(Dir::all).filter(|dir| begun.is_none_or(|begun| *dir >= begun)) {
            let mut objects = self.files.list(dir)?;
            objects.retain(|object| begun != Some(dir) || *object > after);
            objects.sort_unstable();
            found.extend(objects.into_iter().take(max - found.len()));
            if found.len() == max {
                break;
            }
        }
        Ok(found)
    }
}
