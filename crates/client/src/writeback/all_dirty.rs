//! The dirty data of all OSTs of a mount, and its bound.
//!
//! `max_dirty_mb` bounds the dirty data of one OST. With many OSTs, the sum of these bounds can
//! exceed the memory. So the sum of the dirty data has a bound of its own. A write that would
//! exceed it is not cached: the OST gets it at once, and its writer waits for that OST alone.
//!
//! Invariant: the sum never exceeds the bound.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Dirty bytes of all OSTs of a mount, including data in flight.
#[derive(Debug)]
pub struct AllDirty {
    bytes: AtomicU64,
    max: u64,
}

impl AllDirty {
    /// Creates the count with its bound in bytes.
    pub fn new(max: u64) -> AllDirty {
        AllDirty { bytes: AtomicU64::new(0), max }
    }

    /// Whether there is any dirty data. A quick test before any lookup.
    pub fn is_any(&self) -> bool {
        self.bytes.load(Relaxed) > 0
    }

    /// Adds bytes that are about to become dirty. Returns `false`, and adds nothing, if the sum
    /// would exceed the bound.
    pub fn add(&self, bytes: u64) -> bool {
        if bytes == 0 {
            return true; // an overwrite of dirty data
        }
        let added = |sum: u64| sum.checked_add(bytes).filter(|sum| *sum <= self.max);
        self.bytes.fetch_update(Relaxed, Relaxed, added).is_ok()
    }

    /// Removes bytes that were written or discarded.
    pub fn remove(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn add_refuses_bytes_beyond_the_bound() {
        let all = AllDirty::new(100);
        assert!(!all.is_any());
        assert!(all.add(60) && all.is_any());
        assert!(!all.add(41) && !all.add(u64::MAX), "nothing is added");
        assert!(all.add(40) && all.add(0));
        all.remove(60);
        assert!(all.add(60) && !all.add(1));
        all.remove(100);
        assert!(!all.is_any());
    }
}
