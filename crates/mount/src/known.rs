//! The files that the kernel knows, or is about to know, by its own count: an answer that brings it
//! a file counts as a lookup of that file, and FORGET gives lookups back.
//!
//! Invariant: a file is here from before the answer that brings it is sent until the kernel has
//! said that it forgot it.

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// Requests are answered by several threads.
const SHARDS: usize = 64;

/// Lookups of files by their node ids. Bounded by the kernel's own inodes, which are far larger.
pub struct Known([Mutex<FxHashMap<u64, u64>>; SHARDS]);

impl Default for Known {
    fn default() -> Known {
        Known(std::array::from_fn(|_| Mutex::default()))
    }
}

impl Known {
    /// An answer that brings a file is about to be sent.
    pub fn add(&self, nodeid: u64) {
        *self.shard(nodeid).lock().entry(nodeid).or_default() += 1;
    }

    /// The kernel gave lookups back, or did not get an answer.
    pub fn remove(&self, nodeid: u64, lookups: u64) {
        let mut known = self.shard(nodeid).lock();
        if let Some(count) = known.get_mut(&nodeid) {
            *count = count.saturating_sub(lookups);
            if *count == 0 {
                known.remove(&nodeid);
            }
        }
    }

    /// Whether the kernel knows a file, or is about to.
    pub fn has(&self, nodeid: u64) -> bool {
        self.shard(nodeid).lock().contains_key(&nodeid)
    }

    fn shard(&self, nodeid: u64) -> &Mutex<FxHashMap<u64, u64>> {
        // Names that are made one after the other are used so.
        &self.0[nodeid as usize % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_until_all_lookups_are_given_back() {
        let known = Known::default();
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
