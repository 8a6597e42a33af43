//! Notes what changes while a check reads a snapshot, so that a repair can tell whether a finding
//! of the check is still true.
//!
//! Invariants:
//! * A watch begins before the snapshot is made, and the snapshot contains everything that was
//!   executed before the watch. So each change that the snapshot lacks is noted.
//! * Changes of names are noted: for the directory, and for each file that gains or loses an entry.
//!   Creations and deletions are noted, too. No other change alters what a check counts.
//! * A number that a change could not lower, because it was 0, is noted. Each other change alters
//!   the stored and the right number alike.

use std::collections::BTreeSet;

use rustc_hash::FxHashSet;
use sheen_wire::{Fid, quota::Id};

use crate::record::{Bucket, Dentry, Inode};

/// Maximum number of files that are noted. With more, all files count as changed.
const FILES_MAX: usize = 1 << 20;

/// The changes since the watch began.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    changed: FxHashSet<Fid>,
    is_full: bool,
    /// The files to note. `None`: all files.
    only: Option<FxHashSet<Fid>>,
    /// The ids whose number of files could not be lowered.
    below_zero: BTreeSet<Id>,
    /// Whether the number of all files could not be lowered.
    has_files_below_zero: bool,
}

impl Watch {
    /// Notes changes of the entries of one hash.
    pub(crate) fn bucket(&mut self, dir: Fid, old: Option<&Bucket>, new: Option<&Bucket>) {
        self.file(dir);
        for (one, other) in [(old, new), (new, old)] {
            for entry in entries(one).filter(|entry| entries(other).all(|is| is != *entry)) {
                self.file(entry.fid);
            }
        }
    }

    /// Notes a creation, a deletion, or another owner. `used`: the number of files of an id before
    /// the change.
    pub(crate) fn inode(&mut self, fid: Fid, old: Option<&Inode>, new: Option<&Inode>, used: impl Fn(Id) -> u64) {
        if old.is_none() || new.is_none() {
            self.file(fid);
        }
        if let Some(old) = old.map(Inode::owner).filter(|old| new.map(Inode::owner) != Some(*old)) {
            self.below_zero.extend(old.ids().into_iter().filter(|id| used(*id) == 0));
        }
    }

    /// Notes that a file is deleted, and the number of all files is 0 already.
    pub(crate) fn files_below_zero(&mut self) {
        self.has_files_below_zero = true;
    }

    /// Forgets all other files, and notes none of them from now on.
    pub(crate) fn only(&mut self, files: FxHashSet<Fid>) {
        self.changed.retain(|fid| files.contains(fid));
        self.only = Some(files);
    }

    /// Whether the names of a file, or the entries of a directory, may have changed.
    pub(crate) fn has_changed(&self, fid: Fid) -> bool {
        self.is_full || self.changed.contains(&fid)
    }

    /// Whether the number of files of an id could not be lowered. `None`: the number of all files.
    pub(crate) fn was_below_zero(&self, id: Option<Id>) -> bool {
        id.map_or(self.has_files_below_zero, |id| self.below_zero.contains(&id))
    }

    fn file(&mut self, fid: Fid) {
        if self.only.as_ref().is_some_and(|only| !only.contains(&fid)) {
            return;
        }
        if self.changed.len() < FILES_MAX {
            self.changed.insert(fid);
        } else {
            self.is_full = true;
        }
    }
}

fn entries(bucket: Option<&Bucket>) -> impl Iterator<Item = &Dentry> {
    bucket.into_iter().flat_map(Bucket::iter)
}
