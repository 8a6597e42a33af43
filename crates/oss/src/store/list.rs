//! Which objects there are: for who looks for those that belong to nobody.
//!
//! In the order of directories: by sequence, then by `oid %` [`SUBDIRS`], then by oid. One directory's names are in memory at a time. An
//! object that is made or removed meanwhile may be told of or not.

use sheen_objects::name::{Dir, SUBDIRS};
use sheen_wire::{Fid, Result};

use super::Store;

impl Store {
    /// At most `max` objects that follow `after`; [`Fid::ZERO`]: from the first on.
    ///
    /// # Errors
    /// What the local file system says.
    pub fn objects_after(&self, after: Fid, max: usize) -> Result<Vec<Fid>> {
        let slot = after.oid % SUBDIRS;
        let mut found = Vec::new();
        let mut seqs = self.files.sequences()?;
        seqs.sort_unstable();
        for dir in seqs.into_iter().filter(|seq| *seq >= after.seq).flat_map(Dir::all) {
            let begun = dir.seq == after.seq;
            if begun && dir.slot < slot {
                continue;
            }
            let first = if begun && dir.slot == slot { after.oid.saturating_add(1) } else { 0 };
            let mut objects = self.list(dir, first, u32::MAX)?;
            objects.sort_unstable();
            found.extend(objects.into_iter().take(max - found.len()));
            if found.len() == max {
                break;
            }
        }
        Ok(found)
    }
}
