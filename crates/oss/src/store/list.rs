//! List: the objects of an OST, for finding objects that belong to no file, and objects without a
//! file on the disk.
//!
//! The order is that of directories: by sequence, then by slot, then by name. One directory's names
//! are in memory at a time. An object that is created or removed meanwhile may be listed or not.

use rustc_hash::FxHashSet;
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

    /// Returns the directories of the sequences that have had durable objects, in the order of the
    /// list.
    pub fn durable_dirs(&self) -> impl Iterator<Item = Dir> + use<> {
        self.files.durable().sequences().into_iter().flat_map(Dir::all)
    }

    /// Returns at most `max` objects of `dir` that follow `after` ([`Fid::ZERO`]: from the first
    /// on), were durable once, and have no name there. An object that was made meanwhile may be
    /// among them.
    ///
    /// # Errors
    /// Errors of the local file system.
    pub fn unlisted(&self, dir: Dir, after: Fid, max: usize) -> Result<Vec<Fid>> {
        let listed: FxHashSet<Fid> = self.files.list(dir)?.into_iter().collect();
        let durable = self.files.durable().in_dir(dir, after);
        Ok(durable.filter(|object| !listed.contains(object)).take(max).collect())
    }
}
