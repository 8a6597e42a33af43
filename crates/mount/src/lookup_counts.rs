//! The files that the kernel knows, or is about to know, with the kernel's own lookup counts. A
//! reply that brings the kernel a file adds a lookup, and FORGET subtracts lookups.
//!
//! Invariant: a file is in the table from before the reply that brings it is sent, until the kernel
//! has sent FORGET for it.

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// Shards of the table, because several threads answer requests.
const SHARDS: usize = 64;

/// Lookup counts of files by node id. Bounded by the kernel's own inodes, which take far more
/// memory.
pub struct LookupCounts([Mutex<FxHashMap<u64, u64>>; SHARDS]);

impl Default for LookupCounts {
    fn default() -> LookupCounts {
        LookupCounts(std::array::from_fn(|_| Mutex::default()))
    }
}

impl LookupCounts {
    /// Adds a lookup for a reply that is about to be sent.
    pub fn add(&self, nodeid: u64) {
        *self.shard(nodeid).lock().entry(nodeid).or_default() += 1;
    }

    /// Subtracts lookups that the kernel has forgotten, or whose reply did not arrive.
    pub fn remove(&self, nodeid: u64, lookups: u64) {
        let mut known = self.shard(nodeid).lock();
        if let Some(count) = known.get_mut(&nodeid) {
            *count = count.saturating_sub(lookups);
            if *count == 0 {
                known.remove(&nodeid);
            }
        }
    }

    /// Returns whether the kernel knows a file, or is about to.
    pub fn has(&self, nodeid: u64) -> bool {
        self.shard(nodeid).lock().contains_key(&nodeid)
    }

    fn shard(&self, nodeid: u64) -> &Mutex<FxHashMap<u64, u64>> {
        // FIDs that are allotted one after the other are used at the same time: they get different
        // shards.
        &self.0[nodeid as usize % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_known_until_all_lookups_are_forgotten() {
        let known = LookupCounts::default();
        (0..3).for_each(|_| known.add(7));
        known.add(7 + SHARDS as u64);
        known.remove(7, 2);
        assert!(known.has(7) && known.has(7 + SHARDS as u64) && !known.has(8));
        known.remove(7, 1);
        known.remove(8, 1);
        assert!(!known.has(7) && known.has(7 + SHARDS as u64));
        known.remove(7 + SHARDS as u64, u64::MAX);
        assert!(known.0.iter().all(|shard| shard.lock().is_empty()));
    }
}
