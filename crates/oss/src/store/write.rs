//! Write: bytes to several objects, in order; objects that do not exist are created.
//!
//! A write that fails (ENOSPC, EDQUOT, EIO …) may have been done up to some part; where a later
//! part overlaps an earlier one, the later wins.
//!
//! Bytes that come from a cache were written earlier than they arrive. The object is dated by that
//! then, unless it has changed since.

use sheen_objects::{runs, sums};
use sheen_wire::{Bulk, Result, Time, ost::Part};

use super::Store;

impl Store {
    /// Writes `bulk` to `parts`, whose lengths add up to its length. `sum`: it is worth to note
    /// checksums, because it may be read over a network. `mtime`: when the bytes were written, if
    /// not now.
    ///
    /// # Errors
    /// What the local file system says.
    pub fn write(&self, parts: &[Part], bulk: &Bulk, sum: bool, mtime: Option<Time>) -> Result<()> {
        self.check_open(parts.iter().map(|part| part.object))?;
        let mut start = 0;
        for run in runs(parts).filter(|run| run.len > 0) {
            let object = self.files.create(run.object)?;
            let piece;
            let segments = if run.len == bulk.len() {
                bulk.segments()
            } else {
                piece = bulk.slice(start, run.len);
                piece.segments()
            };
            if mtime.is_some() {
                object.note_time()?;
            }
            let claim = object.sums().begin(run.offset, run.len as u64, true);
            let done = object.file.write_all_vectored_at(run.offset, segments);
            // Also after a failure: a part may have been written.
            let now = self.rt.wall();
            match mtime {
                Some(mtime) => self.files.changed_before(&object, mtime.min(now)), // a client's clock may be ahead
                None => self.files.changed(&object, now),
            }
            let noted = if sum && done.is_ok() {
                sums::of_pieces(run.offset, segments.iter().map(|s| &s[..]))
            } else {
                Vec::new()
            };
            object.sums().end(claim, noted);
            done?;
            start += run.len;
        }
        Ok(())
    }
}
