//! Owners of objects, and the space that a write takes at most: what quotas need of the objects.

use sheen_objects::grants::{self, BLOCK_BYTES};
use sheen_wire::{
    Errno, Fid, Result,
    ost::{Owned, Seek},
    quota::Owner,
};

use super::{Store, accounting::Accounting};

/// Maximum holes of a range that are looked for. The rest of the range counts as a hole.
const HOLES_MAX: usize = 65_536;

impl Store {
    /// The sums by owner.
    pub fn accounting(&self) -> &Accounting {
        self.files.accounting()
    }

    /// Whether the owner of an object, which need not exist, is unknown and will become known. Then
    /// asks the MDT for it, as that of an object of `file`.
    pub fn awaits_owner(&self, object: Fid, file: Fid) -> bool {
        self.files.awaits_owner(object, file)
    }

    /// Returns the owner of an object, which need not exist. `None`: unknown.
    pub fn owner(&self, object: Fid) -> Option<Owner> {
        self.files.owner(object)
    }

    /// Sets files and owners of objects. The objects need not exist. `only_unowned`: those with a
    /// known owner stay as they are, and the others are not durable.
    ///
    /// # Errors
    /// Errors of the local file system; some of the owners may be set then.
    pub async fn set_owners(&self, owners: &[Owned], only_unowned: bool) -> Result<()> {
        let set = |owned: &Owned| self.files.set_owner(owned, only_unowned);
        let done = self.rt.block_in_place(|| owners.iter().try_for_each(set));
        self.accounting().answered.notify_waiters();
        done?;
        if only_unowned {
            return Ok(()); // without its record, an object is asked for again
        }
        Ok(self.accounting().index().sync(owners.iter().map(|owned| owned.object)).await?)
    }

    /// Counts objects, unless they are counted. `again`: also looks whether the owners of counted
    /// objects are known.
    pub fn count_objects(&self, objects: &[Fid], again: bool) {
        objects.iter().filter(|object| !self.is_moved(**object)).for_each(|object| self.files.count(*object, again));
    }

    /// Counts an object in the second count of all objects ([`Accounting::begin_recount`]).
    ///
    /// # Errors
    /// Errors of the local file system: the second count lacks the object.
    pub fn count_again(&self, object: Fid) -> Result<()> {
        if self.is_moved(object) { Ok(()) } else { Ok(self.files.count_again(object)?) }
    }

    /// Whether an object is sealed, and counted under its other name.
    pub(super) fn is_moved(&self, object: Fid) -> bool {
        self.is_sealed(object) && self.follow(&[object]) != Err(Errno::MOVED)
    }

    /// Counts the objects again that have changed lately: the local file system may have released
    /// space that it had reserved for them.
    pub fn recount_changed(&self) {
        self.files.recount_changed();
    }

    /// Whether a write to a range takes no space for certain. Cheap; false if it is not known.
    pub fn is_overwrite(&self, object: Fid, offset: u64, len: u64) -> bool {
        self.files.is_overwrite(object, offset.saturating_add(len))
    }

    /// Returns how many bytes of space a write to a range may take: its blocks that are holes now.
    ///
    /// # Errors
    /// Errors of the local file system.
    pub fn missing_bytes(&self, object: Fid, offset: u64, len: u64) -> Result<u64> {
        let end = offset.saturating_add(len);
        if len == 0 || self.is_overwrite(object, offset, len) || self.is_dense(object, end) {
            return Ok(0);
        }
        let Some(open) = self.files.existing(object)? else { return Ok(grants::blocks(offset, len)) };
        let (mut at, end) = (offset - offset % BLOCK_BYTES, end.next_multiple_of(BLOCK_BYTES));
        let mut missing = 0;
        for _ in 0..HOLES_MAX {
            // The end of the file may be inside a block, which takes space then.
            let hole = open.file.seek(Seek::Hole, at)?.unwrap_or(at).next_multiple_of(BLOCK_BYTES).min(end);
            let data = open.file.seek(Seek::Data, hole)?.unwrap_or(end).min(end);
            missing += data.saturating_sub(hole);
            at = data.max(hole);
            if at >= end {
                return Ok(missing);
            }
        }
        Ok(missing + (end - at))
    }
}
