//! Where the last read of an open file ended.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Maximum distance in bytes from the end of the last request for a request that counts as
/// sequential. The requests of one window are in flight together and overtake each other.
const NEAR_BYTES: u64 = 4 << 20;

/// The position where the last read of an open file ended.
pub struct ReadEnd(AtomicU64);

impl Default for ReadEnd {
    fn default() -> ReadEnd {
        ReadEnd(AtomicU64::new(u64::MAX))
    }
}

impl ReadEnd {
    /// Notes a read. Returns whether it continues where the last one ended.
    pub fn goes_on(&self, offset: u64, len: u64) -> bool {
        let last = self.0.swap(offset.saturating_add(len), Relaxed);
        last != u64::MAX && offset.abs_diff(last) <= NEAR_BYTES
    }
}
