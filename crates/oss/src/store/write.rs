//! Write: bytes to several objects, in order; objects that do not exist are created.
//!
//! A write that fails (ENOSPC, EDQUOT, EIO …) may have been done up to some part. Where a later
//! part overlaps an earlier one, the later one wins.
//!
//! Bytes from a client's cache were written earlier than they arrive. Then the object gets the time
//! of that write, unless it has a later change.

use sheen_objects::{runs, sums};
use sheen_wire::{Bulk, Fid, Result, Time, ost::Part};

use super::Store;

impl Store {
    /// Writes `bulk` to `parts` of objects of `file`. The lengths of the parts add up to that of
    /// the bulk. `sum`: record checksums, because the bytes may be read over a network. `mtime`:
    /// the time of the write, if it is not now.
    ///
    /// # Errors
    /// MOVED: an object is sealed. Errors of the local file system.
    pub fn write(&self, file: Fid, parts: &[Part], bulk: &Bulk, sum: bool, mtime: Option<Time>) -> Result<()> {
        self.check_unsealed(parts.iter().map(|part| part.object))?;
        self.write_parts(file, parts, bulk, sum, mtime)
    }

    /// As [`Store::write`], also to sealed objects.
    pub(super) fn write_parts(
        &self,
        file: Fid,
        parts: &[Part],
        bulk: &Bulk,
        sum: bool,
        mtime: Option<Time>,
    ) -> Result<()> {
        let mut start = 0;
        for run in runs(parts).filter(|run| run.len > 0) {
            let object = self.files.create(run.object, file)?;
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
            let claim = object.begin_change(run.offset, run.len as u64)?;
            let done = object.file.write_all_vectored_at(run.offset, segments);
            // Also after an error: some of the bytes may have been written.
            let (now, end) = (self.rt.wall(), Some(run.offset + run.len as u64));
            match mtime {
                Some(mtime) => self.files.changed_before(&object, mtime.min(now), end), // a client's clock may be ahead
                None => self.files.changed(&object, now, end),
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
