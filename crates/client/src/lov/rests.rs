//! When the rest of a large write is worth a lock.
//!
//! The kernel sends a write of a megabyte from memory that does not begin with a page in two
//! requests: nearly all of it, and a few bytes. Large writes need no lock. Under a lock the few
//! bytes can wait, and travel with others; but where several write to one object in turns it stands
//! in the way of the others' large writes. So it is asked for, and more seldom the more often it
//! was gone when the next rest came.

use std::num::NonZeroUsize;

use sheen_wire::Fid;

use super::Lov;

/// Files of which it is remembered.
pub(super) const FILES_MAX: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// Most rests that go without a lock before one is asked for again.
const PAUSE_MAX: u32 = 63;

/// Of one file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rests {
    /// Rests that will go without after the next lock.
    pause: u32,
    /// Rests that go without until then.
    left: u32,
}

impl Rests {
    /// A rest comes, and its lock is there.
    fn note_found(&mut self) {
        (self.pause, self.left) = (self.pause / 2, self.left / 2);
    }

    /// A rest comes, and there is no lock for it: whether one is to be asked for.
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
    /// The rest of a large write comes, and all its locks are there, or not: whether they are to be
    /// asked for.
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
    fn locks_that_are_of_no_use_are_asked_for_ever_less() {
        let mut rests = Rests::default();
        let asked: Vec<usize> = (0..200).filter(|_| rests.asks()).collect();
        assert_eq!(asked, [0, 1, 3, 7, 15, 31, 63, 127, 191]);
    }

    #[test]
    fn those_that_are_of_use_are_asked_for_at_once() {
        let mut rests = Rests::default();
        (0..200).for_each(|_| {
            rests.asks();
        });
        (0..6).for_each(|_| rests.note_found());
        while !rests.asks() {}
        assert!(rests.asks(), "the pause is over");
    }
}
