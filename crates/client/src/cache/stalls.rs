//! Stalled reads: reads into the kernel's page cache that wait for an event which an invalidation
//! of the same file must not delay. Such a read waits for the file's new layout, or for the end of
//! an invalidation.
//!
//! A read of the first kind met a sealed object (a migration, a layout swap). It resumes when the
//! MDT returns the new layout, that is, when all objects of the file are sealed. Sealing the other
//! objects requires that this client cancels its locks on them, and before each cancel the kernel
//! drops the file's pages. The kernel cannot drop the pages that the stalled read is to fill,
//! because it has locked them. So the invalidation leaves these pages out. They have no content
//! yet; the read fills them from the new objects, under locks that it looks up after this wait.
//!
//! Invariant: the kernel has no data in a range that is registered here. The kernel locks the
//! pages, so no second read asks for them. If a second read asks all the same, the stalled read was
//! aborted (its program was killed). Its range is then removed before the second read gets a reply.

use std::collections::BTreeMap;

/// Page size of the kernel, in bytes. Invalidations wait for larger pages.
const PAGE: u64 = 4096;

/// The stalled reads of a file.
#[derive(Default)]
pub struct Stalls {
    /// Page ranges that the reads are to fill, as `[start, end)`, by number of the read. Bounded by
    /// the reads in flight.
    ranges: BTreeMap<u64, (u64, u64)>,
    begun: u64,
}

impl Stalls {
    /// Registers a stalled read of the pages in `[start, end)`. Returns the number for
    /// [`Stalls::end`].
    pub fn begin(&mut self, start: u64, end: u64) -> u64 {
        self.begun += 1;
        let whole = (start.next_multiple_of(PAGE), end / PAGE * PAGE);
        if whole.0 < whole.1 {
            self.ranges.insert(self.begun, whole);
        }
        self.begun
    }

    /// Removes a stalled read that resumes.
    pub fn end(&mut self, number: u64) {
        self.ranges.remove(&number);
    }

    /// Removes the stalled reads that overlap `[start, end)`, because another read asks for these
    /// bytes: the stalled ones were aborted.
    pub fn overtake(&mut self, start: u64, end: u64) {
        if !self.ranges.is_empty() {
            self.ranges.retain(|_, (from, to)| *to <= start || *from >= end);
        }
    }

    /// Returns the number of reads registered so far.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Whether no read is stalled.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the ranges that no stalled read is to fill, in order. The last range ends at
    /// [`u64::MAX`].
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
    fn invalidation_leaves_out_whole_pages_of_stalled_reads() {
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
