//! Locks for split-write tails: decides when the tail of a large write is worth a lock.
//!
//! If a write of a megabyte comes from memory that is not page-aligned, the kernel splits it into
//! two requests: most of it, and a tail of a few bytes. Large writes need no lock. Under a lock,
//! the tail can be cached and sent together with other data. But if several clients write to one
//! object in turns, the lock blocks the other clients' large writes. So the client requests the
//! lock, and backs off exponentially while it keeps being revoked before the next tail.
use std::num::NonZeroUsize;

use sheen_wire::Fid;

use super::Lov;

/// Maximum number of files whose back-off state is remembered.
pub(super) const FILES_MAX: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// Maximum number of tails without a lock before the next lock request.
const PAUSE_MAX: u32 = 63;

/// Back-off state of one file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rests {
    /// Number of tails without a lock after the next lock request.
    pause: u32,
    /// Number of tails without a lock before the next lock request.
    left: u32,
}

impl Rests {
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

impl Lov {
    /// Notes a split-write tail. `found`: all its locks are held. Returns whether to request the
    /// locks.
    pub(super) fn note_rest(&self, file: Fid, found: bool) -> bool {
        let mut files = self.rests.lock();
        let rests = files.get_or_insert_mut(file, Rests::default);
        if found {
            rests.note_found();
            return false;
        }
        rests.asks()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_lock_requests_back_off_while_locks_are_lost() {
        let mut rests = Rests::default();
        let asked: Vec<usize> = (0..200).filter(|_| rests.asks()).collect();
        assert_eq!(asked, [0, 1, 3, 7, 15, 31, 63, 127, 191]);
    }

    #[test]
    fn tail_lock_back_off_shrinks_while_locks_are_found() {
        let mut rests = Rests::default();
        (0..200).for_each(|_| {
            rests.asks();
        });
        (0..6).for_each(|_| rests.note_found());
        while !rests.asks() {}
        assert!(rests.asks(), "the pause is over");
    }
}
