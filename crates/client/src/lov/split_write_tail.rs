//! Locks for split-write tails: decides when the tail of a large write is worth a lock.
//!
//! If a write of a megabyte comes from memory that is not page-aligned, the kernel splits it into
//! two requests: most of it, and a tail of a few bytes. Large writes need no lock. Under a lock,
//! the tail can be cached and sent together with other data. But if several clients write to one
//! object in turns, the lock blocks the other clients' large writes. So the client requests the
//! lock, and backs off exponentially while it keeps being revoked before the next tail.

use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use sheen_wire::Fid;

/// Maximum number of files whose back-off state is remembered.
const FILES_MAX: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// Maximum number of tails without a lock before the next lock request.
const PAUSE_MAX: u32 = 63;

/// Back-off state of one file.
#[derive(Clone, Copy, Debug, Default)]
struct TailBackoff {
    /// Number of tails without a lock after the next lock request.
    pause: u32,
    /// Number of tails without a lock before the next lock request.
    left: u32,
}

impl TailBackoff {
    /// Notes a tail whose lock is held: halves the back-off.
    fn note_found(&mut self) {
        (self.pause, self.left) = (self.pause / 2, self.left / 2);
    }

    /// Notes a tail whose lock is not held. Returns whether to request it.
    fn asks(&mut self) -> bool {
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            return false;
        }
        self.left = self.pause;
        self.pause = (2 * self.pause + 1).min(PAUSE_MAX);
        true
    }
}

/// Back-off states by file.
pub struct TailBackoffs(Mutex<LruCache<Fid, TailBackoff, FxBuildHasher>>);

impl TailBackoffs {
    /// Creates an empty table.
    pub fn new() -> TailBackoffs {
        TailBackoffs(Mutex::new(LruCache::with_hasher(FILES_MAX, FxBuildHasher)))
    }

    /// Notes a split-write tail. `found`: all its locks are held. Returns whether to request the
    /// locks.
    pub fn note(&self, file: Fid, found: bool) -> bool {
        let mut files = self.0.lock();
        let backoff = files.get_or_insert_mut(file, TailBackoff::default);
        if found {
            backoff.note_found();
            return false;
        }
        backoff.asks()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_lock_requests_back_off_while_locks_are_lost() {
        let mut backoff = TailBackoff::default();
        let asked: Vec<usize> = (0..200).filter(|_| backoff.asks()).collect();
        assert_eq!(asked, [0, 1, 3, 7, 15, 31, 63, 127, 191]);
    }

    #[test]
    fn tail_lock_back_off_shrinks_while_locks_are_found() {
        let mut backoff = TailBackoff::default();
        (0..200).for_each(|_| {
            backoff.asks();
        });
        (0..6).for_each(|_| backoff.note_found());
        while !backoff.asks() {}
        assert!(backoff.asks(), "the pause is over");
    }
}
