//! Destroy: removes objects for good. It is answered when the removal is durable: an MDT forgets an
//! object then, so one that came back after a crash would be lost space for ever.
//!
//! The files are removed first, then each directory that they lay in is synced once. Missing
//! objects count as removed just now: an earlier destroy may have removed them and not lived to
//! sync.

use std::collections::BTreeSet;

use sheen_objects::name::Dir;
use sheen_wire::{Fid, Result};

use super::Store;

impl Store {
    /// Removes `objects`.
    ///
    /// # Errors
    /// What the local file system says; some of the objects may be gone then.
    pub async fn destroy(&self, objects: &[Fid]) -> Result<()> {
        let mut dirs = BTreeSet::new();
        for &object in objects {
            // That a file has left it stays known: see `close`.
            self.files.destroy(object)?;
            dirs.insert(Dir::of(object));
        }
        for dir in dirs {
            self.files.settle(dir).await?;
        }
        Ok(())
    }

    /// The objects in `dir` whose id is in `first..=last`.
    ///
    /// # Errors
    /// What the local file system says.
    pub fn list(&self, dir: Dir, first: u32, last: u32) -> Result<Vec<Fid>> {
        Ok(self.files.list(dir)?.into_iter().filter(|object| (first..=last).contains(&object.oid)).collect())
    }

    /// Removes all objects of sequence `seq` whose id is in `first..=last`. Reads one directory at
    /// a time: a thirty-second of the sequence's names is in memory at most.
    ///
    /// # Errors
    /// As [`Store::destroy`].
    pub async fn destroy_range(&self, seq: u64, first: u32, last: u32) -> Result<()> {
        for dir in Dir::all(seq) {
            for object in self.list(dir, first, last)? {
                // Not remembered: there may be very many.
                self.files.remove(object)?;
            }
            self.files.settle(dir).await?;
        }
        Ok(())
    }
}
