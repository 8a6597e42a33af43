//! Reads for the kernel's pages that wait until their file is elsewhere, or until an invalidation
//! has ended, and which of its pages those are.
//!
//! A read of the first kind met an object that the file leaves (a migration, an exchange of
//! objects). It goes on when the MDT says where the file is, and that is when all of the objects
//! are closed: when this client has given up its locks on the others as well. Before a lock is
//! given up the kernel drops the file's pages, and it cannot drop those that the read is to fill,
//! which it has locked. So an invalidation leaves them out: there is nothing in them, and what they
//! will hold is read where the file is then, under locks that are looked up after this wait.
//!
//! Invariant: in a range that is noted here the kernel has no bytes. It locks the pages, so nobody
//! else asks for them; if somebody does all the same, the read was given up (its program was
//! killed), and the range is struck out before there can be an answer.

use std::collections::BTreeMap;

/// The kernel's pages, in bytes; larger ones are waited for.
const PAGE: u64 = 4096;

/// The reads of a file that wait so.
#[derive(Default)]
pub struct Stalls {
    /// What they are to fill, from the first byte to behind the last. Bounded by the reads under
    /// way.
    ranges: BTreeMap<u64, (u64, u64)>,
    begun: u64,
}

impl Stalls {
    /// One begins to wait, for the pages in `[start, end)`. The number to end it by.
    pub fn begin(&mut self, start: u64, end: u64) -> u64 {
        self.begun += 1;
        let whole = (start.next_multiple_of(PAGE), end / PAGE * PAGE);
        if whole.0 < whole.1 {
            self.ranges.insert(self.begun, whole);
        }
        self.begun
    }

    /// It goes on.
    pub fn end(&mut self, number: u64) {
        self.ranges.remove(&number);
    }

    /// A read asks for bytes of `[start, end)`: nobody waits for them any more.
    pub fn overtake(&mut self, start: u64, end: u64) {
        if !self.ranges.is_empty() {
            self.ranges.retain(|_, (from, to)| *to <= start || *from >= end);
        }
    }

    /// How many have begun so far.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// What no read waits for, in order; the last range ends at [`u64::MAX`].
    pub fn others(&self) -> Vec<(u64, u64)> {
        let mut taken: Vec<(u64, u64)> = self.ranges.values().copied().collect();
        taken.sort_unstable();
        let mut from = 0;
        let mut others = Vec::with_capacity(taken.len() + 1);
        for (start, end) in taken.into_iter().chain([(u64::MAX, u64::MAX)]) {
            if from < start {
                others.push((from, start));
            }
            from = from.max(end);
        }
        others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_are_the_whole_pages_that_somebody_waits_for() {
        let mut stalls = Stalls::default();
        assert_eq!(stalls.others(), [(0, u64::MAX)]);
        let first = stalls.begin(8192, 12288);
        assert_eq!(stalls.others(), [(0, 8192), (12288, u64::MAX)]);
        let second = stalls.begin(0, 8192);
        let third = stalls.begin(12289, 20481);
        assert_eq!(stalls.others(), [(12288, 16384), (20480, u64::MAX)]);
        stalls.end(first);
        assert_eq!(stalls.others(), [(8192, 16384), (20480, u64::MAX)]);
        stalls.overtake(8192, 16384);
        stalls.overtake(4096, 4097);
        assert_eq!(stalls.others(), [(0, 16384), (20480, u64::MAX)]);
        stalls.end(second);
        stalls.end(third);
        assert!(stalls.is_empty() && stalls.begun() == 3);
        stalls.begin(100, 4000);
        assert!(stalls.is_empty(), "no whole page");
    }
}
