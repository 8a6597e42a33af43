//! Durability of the directory entries of objects. `fdatasync` of a new file makes its bytes
//! durable but not necessarily its name; only a sync of the directory does. [`DentryDurability`]
//! numbers the creations in one directory. One sync of the directory then serves all entries
//! created before it, and an object whose name is durable already causes none.
//!
//! Invariants:
//!
//! * A creation is counted after the entry exists, and [`DentryDurability::begin_sync`] is called
//!   before the directory is synced. Hence every entry numbered up to the mark passed to
//!   [`DentryDurability::synced`] existed when the sync began.
//! * An object whose number is not known (opened, not created) counts as created just now: that is
//!   never too early.

use std::sync::atomic::{AtomicU64, Ordering};

/// Creations in one directory, and up to which number they are durable.
#[derive(Debug)]
pub struct DentryDurability {
    created: AtomicU64,
    durable: AtomicU64,
}

impl Default for DentryDurability {
    fn default() -> DentryDurability {
        DentryDurability::new()
    }
}

impl DentryDurability {
    /// Returns the state of a directory of which nothing is known. A process that crashed before it
    /// synced the directory may have created entries, so the first sync is due.
    pub fn new() -> DentryDurability {
        DentryDurability { created: AtomicU64::new(1), durable: AtomicU64::new(0) }
    }

    /// Counts an entry that was just created; returns its number.
    pub fn created(&self) -> u64 {
        self.created.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Returns a number for an existing entry of unknown age.
    pub fn latest(&self) -> u64 {
        self.created.load(Ordering::Acquire)
    }

    /// Whether the entry of this number is durable.
    pub fn is_durable(&self, number: u64) -> bool {
        number <= self.durable.load(Ordering::Acquire)
    }

    /// Whether no sync of the directory has been recorded yet. Its own entry in its parent may then
    /// not be durable either.
    pub fn is_fresh(&self) -> bool {
        self.durable.load(Ordering::Acquire) == 0
    }

    /// Returns a mark. Call this before the directory is synced, and pass the mark to
    /// [`DentryDurability::synced`] after the sync succeeded.
    pub fn begin_sync(&self) -> u64 {
        self.latest()
    }

    /// Records that the directory was synced.
    pub fn synced(&self, mark: u64) {
        self.durable.fetch_max(mark, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sync_covers_entries_created_before_it_began() {
        let dir = DentryDurability::new();
        let a = dir.created();
        let mark = dir.begin_sync();
        let b = dir.created(); // while the directory is being synced
        dir.synced(mark);
        assert!(dir.is_durable(a));
        assert!(!dir.is_durable(b));
        dir.synced(dir.begin_sync());
        assert!(dir.is_durable(b));
    }

    #[test]
    fn directory_of_an_earlier_process_needs_a_sync() {
        let dir = DentryDurability::new();
        assert!(dir.is_fresh());
        assert!(!dir.is_durable(dir.latest()));
        dir.synced(dir.begin_sync());
        assert!(!dir.is_fresh());
        assert!(dir.is_durable(dir.latest()));
    }

    #[test]
    fn late_sync_does_not_undo_an_earlier_one() {
        let dir = DentryDurability::new();
        let old = dir.begin_sync();
        let a = dir.created();
        dir.synced(dir.begin_sync());
        dir.synced(old);
        assert!(dir.is_durable(a));
    }
}
