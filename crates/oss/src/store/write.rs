//! Write: bytes to several objects, in order; objects that do not exist are created.
//!
//! A write that fails (ENOSPC, EDQUOT, EIO …) may have been done up to some part; where a later part overlaps an earlier one,
//! the later wins.

use sheen_objects::runs;
use sheen_wire::{Bulk, Result, ost::Part};

use super::Store;

impl Store {
    /// Writes `bulk` to `parts`, whose lengths add up to its length.
    ///
    /// # Errors
    /// What the local file system says.
    pub fn write(&self, parts: &[Part], bulk: &Bulk) -> Result<()> {
        let mut start = 0;
        for run in runs(parts).filter(|run| run.len > 0) {
            let object = self.files.create(run.object)?;
            let done = if run.len == bulk.len() {
                object.file.write_all_vectored_at(run.offset, bulk.segments())
            } else {
                object.file.write_all_vectored_at(run.offset, bulk.slice(start, run.len).segments())
            };
            self.files.changed(&object, self.rt.wall()); // also after a failure: a part may have been written
            done?;
            start += run.len;
        }
        Ok(())
    }
}
