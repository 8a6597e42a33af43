//! Which directory entries are durable. `fdatasync` of a new file makes its bytes durable but not
//! necessarily its name; only a sync of the directory does. [`Births`] numbers the creations in one
//! directory, so that a sync of the directory is paid once for all that were created before it, and
//! never for an object whose name is durable already.
//!
//! Invariants: a creation is counted after the entry exists; [`Births::begin_sync`] is read before
//! the directory is synced. Hence every entry numbered up to the mark that is handed to
//! [`Births::synced`] was there when the sync began. An object whose number is not known (opened,
//! not created) counts as born just now: that is never too early.

use std::sync::atomic::{AtomicU64, Ordering};

/// The creations in one directory, and up to which they are durable.
#[derive(Debug)]
pub struct Births {
    born: AtomicU64,
    durable: AtomicU64,
}

impl Default for Births {
    fn default() -> Births {
        Births::new()
    }
}

impl Births {
    /// A directory of which nothing is known: what is in it may have been created by a process that
    /// crashed before it synced the directory, so the first sync is due.
    pub fn new() -> Births {
        Births { born: AtomicU64::new(1), durable: AtomicU64::new(0) }
    }

    /// Counts an entry that has just been created; returns its number.
    pub fn born(&self) -> u64 {
        self.born.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// A number for an entry that exists, whenever it was created.
    pub fn latest(&self) -> u64 {
        self.born.load(Ordering::Acquire)
    }

    /// Whether the entry of this number is durable.
    pub fn is_durable(&self, number: u64) -> bool {
        number <= self.durable.load(Ordering::Acquire)
    }

    /// Whether no sync of the directory has been noted yet: its own entry in its parent may not be
    /// durable either.
    pub fn is_fresh(&self) -> bool {
        self.durable.load(Ordering::Acquire) == 0
    }

    /// Call before the directory is synced; hand the mark to [`Births::synced`] when that
    /// succeeded.
    pub fn begin_sync(&self) -> u64 {
        self.latest()
    }

    /// Notes that the directory was synced.
    pub fn synced(&self, mark: u64) {
        self.durable.fetch_max(mark, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_covers_what_was_born_before_it_began() {
        let dir = Births::new();
        let a = dir.born();
        let mark = dir.begin_sync();
        let b = dir.born(); // while the directory is being synced
        dir.synced(mark);
        assert!(dir.is_durable(a));
        assert!(!dir.is_durable(b));
        dir.synced(dir.begin_sync());
        assert!(dir.is_durable(b));
    }

    #[test]
    fn what_an_earlier_process_left_needs_a_sync() {
        let dir = Births::new();
        assert!(dir.is_fresh());
        assert!(!dir.is_durable(dir.latest()));
        dir.synced(dir.begin_sync());
        assert!(!dir.is_fresh());
        assert!(dir.is_durable(dir.latest()));
    }

    #[test]
    fn a_late_sync_does_not_undo_an_earlier_one() {
        let dir = Births::new();
        let old = dir.begin_sync();
        let a = dir.born();
        dir.synced(dir.begin_sync());
        dir.synced(old);
        assert!(dir.is_durable(a));
    }
}
