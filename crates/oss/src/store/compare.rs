//! Comparison of bytes read with the checksums that are stored with their object.

use sheen_wire::{Bulk, Errno, Fid, Result};
use tracing::error;

use super::{
    Store,
    at_rest::{Damage, Known},
    files::Object,
};

impl Store {
    /// Compares bytes with stored checksums: those of a read of `len` bytes from `offset` on.
    ///
    /// # Errors
    /// EIO: they differ. Errors of the local file system.
    pub(super) fn compare(
        &self,
        object: &Object,
        known: &Known,
        (offset, len): (u64, u64),
        bytes: &Bulk,
    ) -> Result<()> {
        match object.at_rest.compare(known, offset, len, bytes)? {
            None => Ok(()),
            Some(damage) => {
                self.note_damage(object.fid(), damage);
                Err(Errno::EIO)
            }
        }
    }

    /// Logs and lists damage that was not found before.
    pub(super) fn note_damage(&self, object: Fid, damage: Damage) {
        if self.damaged.add(object, damage) {
            error!(
                "{}: object {object} is damaged: {} bytes from offset {} differ from their checksum; reads of them \
                 fail with EIO. Restore the file from a mirror or a copy, and check the device",
                self.home.dir().display(),
                damage.len,
                damage.offset
            );
        }
    }

    /// Returns the damaged blocks that were found, by object. Those that have been written or
    /// destroyed since are left out.
    pub fn damage(&self) -> Vec<(Fid, Damage)> {
        let (still, repaired): (Vec<_>, Vec<_>) = self.damaged.all().into_iter().partition(|(object, damage)| {
            let object = self.files.existing(*object).ok().flatten();
            let stored = object.and_then(|object| object.at_rest.stored());
            stored.is_some_and(|known| damage.is_in(&known.stored))
        });
        self.damaged.remove(&repaired);
        still
    }
}
