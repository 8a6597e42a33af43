//! Replay: makes a change once more that this store may have lost, as it was made before.
//!
//! The object may have been sealed since. Its file may still return to it, so the change is made
//! all the same. If it has a new name already, its bytes were durable before it got that name. An
//! object that was destroyed since is not created again. A power failure can have undone the
//! clearing of its bit in the index of durable objects, but not its removal. Then it looks like a
//! lost object, and the replay leaves it alone as well. If it really is lost, reads and syncs of
//! the object fail. A sync of everything does not notice it.

use std::collections::BTreeSet;

use sheen_objects::change::pieces;
use sheen_wire::{Bulk, Errno, Fid, Result, ost::Change};

use super::Store;

impl Store {
    /// Makes a change again, except for objects that `is_destroyed`. `bulk`: the bytes of a write.
    /// Returns the objects that changed.
    ///
    /// # Errors
    /// Errors of the local file system.
    pub fn replay(&self, change: &Change, bulk: &Bulk, is_destroyed: impl Fn(Fid) -> bool) -> Result<BTreeSet<Fid>> {
        let mut changed = BTreeSet::new();
        let mut one = |object: Fid, make: &dyn Fn() -> Result<()>| {
            let has_new_name = self.is_sealed(object) && self.follow(&[object]) != Err(Errno::MOVED);
            if has_new_name {
                return Ok(());
            }
            // Also if it was destroyed: the destroy is answered when no client replays this.
            changed.insert(object);
            if is_destroyed(object) || self.files.is_missing(object) {
                return Ok(());
            }
            match make() {
                Err(Errno::ESTALE) => Ok(()), // destroyed
                made => made,
            }
        };
        match change {
            Change::Write { file, parts, mtime } => {
                for (object, (parts, bulk)) in pieces(parts, bulk) {
                    one(object, &|| self.write_parts(*file, &parts, &bulk, true, Some(*mtime)))?;
                }
            }
            Change::Truncate { file, objects } => {
                objects.iter().try_for_each(|&(object, size)| one(object, &|| self.set_size(*file, object, size)))?;
            }
            Change::Allocate { file, mode, runs } => {
                runs.iter().try_for_each(|run| one(run.0, &|| self.allocate_run(*file, *mode, *run)))?;
            }
        }
        Ok(changed)
    }
}
