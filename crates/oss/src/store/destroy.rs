//! Destroy: removes objects for good. The OST answers when the removal is durable. The MDT forgets
//! the objects at that answer, so the space of an object that reappeared after a crash would never
//! be freed.
//!
//! The files are removed first. Then each directory that contained them is synced once. Missing
//! objects count as removed just now: an earlier destroy may have removed them and crashed before
//! it synced.

use std::collections::BTreeSet;

use sheen_objects::name::Dir;
use sheen_wire::{Fid, Result};

use super::Store;

/// Lost objects whose bits are cleared at a time.
const LOST_AT_ONCE: usize = 1024;

impl Store {
    /// Removes `objects`.
    ///
    /// # Errors
    /// Errors of the local file system; some of the objects may be deleted then.
    pub async fn destroy(&self, objects: &[Fid]) -> Result<()> {
        let mut dirs = BTreeSet::new();
        for &object in objects {
            // The marker of a sealed object stays: see `seal`.
            self.files.destroy(object)?;
            dirs.insert(Dir::of(object));
        }
        for dir in dirs {
            self.files.settle(dir).await?;
        }
        Ok(())
    }

    /// Returns the objects in `dir` whose id is in `first..=last`.
    ///
    /// # Errors
    /// Errors of the local file system.
    pub fn list(&self, dir: Dir, first: u32, last: u32) -> Result<Vec<Fid>> {
        Ok(self.files.list(dir)?.into_iter().filter(|object| (first..=last).contains(&object.oid)).collect())
    }

    /// Removes all objects of sequence `seq` whose id is in `first..=last`. Reads one directory at
    /// a time, so at most a thirty-second of the sequence's names is in memory.
    ///
    /// # Errors
    /// As [`Store::destroy`].
    pub async fn destroy_range(&self, seq: u64, first: u32, last: u32) -> Result<()> {
        for dir in Dir::all(seq) {
            for object in self.list(dir, first, last)? {
                // Not remembered as destroyed: there may be very many.
                self.files.remove(object)?;
            }
            self.files.settle(dir).await?;
        }
        // Lost objects have no file. A new object of such a name is not lost.
        let lost = || self.files.durable().in_range(seq, first, last, LOST_AT_ONCE);
        let mut objects = lost();
        while !objects.is_empty() {
            objects.into_iter().try_for_each(|object| self.files.remove(object))?;
            objects = lost();
        }
        self.files.durable().sync(seq).await?;
        // The MDT may name other objects so. An owner may be known of one that never existed.
        Ok(self.files.clear_owners(seq, first, last).await?)
    }
}
