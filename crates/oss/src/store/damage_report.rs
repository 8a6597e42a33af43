//! Reports of damage: log lines, the status of the scrub, and requests for repairs.

use sheen_wire::{
    Fid,
    ost::{DAMAGED_MAX, Damaged, DamagedBlock},
};
use tracing::error;

use super::{Store, damage::Added};

/// Damaged blocks that the status lists.
const SHOWN_MAX: usize = 100;

/// The damage of an OST.
#[derive(Clone, Debug, Default)]
pub struct DamageReport {
    /// Number of damaged blocks and lost objects.
    pub damaged_now: usize,
    /// The first of them.
    pub damaged: Vec<Damaged>,
    /// Number of those that were repaired since the OST started.
    pub repaired: u64,
    /// The last of them.
    pub last_repaired: Vec<Damaged>,
}

/// Names an object and its file in a log line.
pub(super) fn name(object: Fid, file: Fid) -> String {
    if file.is_zero() { format!("object {object}") } else { format!("object {object} of file {file}") }
}

impl Store {
    /// Returns the file of an object. [`Fid::ZERO`]: unknown.
    pub fn file_of(&self, object: Fid) -> Fid {
        self.accounting().index().read(object).map_or(Fid::ZERO, |record| record.file)
    }

    fn with_file(&self, (object, block): (Fid, DamagedBlock)) -> Damaged {
        Damaged { object, file: self.file_of(object), block }
    }

    /// Logs and lists damage that was not found before, and asks the MDT to repair it. If the list
    /// is full, logs that once.
    pub(super) fn note_damage(&self, object: Fid, block: DamagedBlock) {
        let mut added = self.damaged.add(object, block);
        let was_full = added == Added::Full;
        if was_full {
            self.damage(); // removes blocks that are not damaged any more
            added = self.damaged.add(object, block);
        }
        if added != Added::New && !was_full {
            return;
        }
        error!(
            "{}: {} is damaged: {} bytes from offset {} differ from their checksum; reads of them fail with EIO \
             until they are repaired from another mirror. Without a mirror, restore the file from a copy. Check \
             the device",
            self.home.dir().display(),
            name(object, self.file_of(object)),
            block.len,
            block.offset
        );
        if added == Added::New {
            self.accounting().needs.notify_waiters();
        } else {
            error!(
                "{}: the list of damaged blocks is full: more damage is not logged, listed or repaired. Restore \
                 damaged files, and start a scrub",
                self.home.dir().display()
            );
        }
    }

    /// Returns the damaged blocks and lost objects that were found, by object. Blocks that have
    /// been written, destroyed or found intact since are removed from the list.
    pub fn damage(&self) -> Vec<(Fid, DamagedBlock)> {
        let all = self.damaged.all().into_iter();
        let (still, changed): (Vec<_>, Vec<_>) = all.partition(|(object, block)| self.is_still_damaged(*object, block));
        self.damaged.remove(&changed);
        still
    }

    fn is_still_damaged(&self, object: Fid, block: &DamagedBlock) -> bool {
        if block.is_whole() {
            return self.files.is_missing(object);
        }
        let object = self.files.existing(object).ok().flatten();
        let stored = object.and_then(|object| object.at_rest.stored());
        stored.is_some_and(|known| known.stored.find(block).is_some_and(|number| !known.is_intact(number)))
    }

    /// Returns the damage for the status of the scrub.
    pub fn damage_report(&self) -> DamageReport {
        let damaged = self.damage();
        let (repaired, last_repaired) = self.damaged.repairs();
        let shown = damaged.iter().take(SHOWN_MAX).map(|damaged| self.with_file(*damaged)).collect();
        DamageReport { damaged_now: damaged.len(), damaged: shown, repaired, last_repaired }
    }

    /// Lets the MDT be asked about an object if it was durable once, and has no file. Returns
    /// `false` if that has to wait, because too many others wait for the MDT.
    pub fn suspect(&self, object: Fid) -> bool {
        if !self.files.is_missing(object) {
            return true;
        }
        // Only the scrub adds suspects, one after the other.
        if self.damaged.is_full_of_suspects() {
            return false;
        }
        if self.damaged.suspect(object) {
            self.accounting().needs.notify_waiters();
        }
        true
    }

    /// Returns damage that the MDT is to be asked to repair, and was not asked for so far.
    pub fn damage_to_repair(&self) -> Vec<Damaged> {
        let unasked = self.damaged.take_unasked(DAMAGED_MAX);
        unasked.into_iter().map(|damaged| self.with_file(damaged)).collect()
    }

    /// Lets the MDT be asked now to repair all blocks that are still damaged.
    pub fn ask_for_repairs_again(&self) {
        self.damage(); // removes the others
        if self.damaged.ask_again() {
            self.accounting().needs.notify_waiters();
        }
    }

    /// Begins a round of requests for repairs: lets the MDT be asked for the blocks whose turn it
    /// is, and that are still damaged. A block that is not repaired has its turn less and less
    /// often.
    pub fn ask_for_due_repairs(&self) {
        self.damage(); // removes the others
        if self.damaged.begin_round() {
            self.accounting().needs.notify_waiters();
        }
    }
}
