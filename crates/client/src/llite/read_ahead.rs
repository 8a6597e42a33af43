//! `llite.*.read_ahead_stats`: how many pages were read at the expected position, and how many
//! elsewhere.
//!
//! On a FUSE mount, the kernel reads ahead. The client does not see which cached pages programs
//! read, but only the kernel's requests. A request that continues where the last one of the open
//! file ended belongs to a readahead window and counts as hits. Other requests count as misses.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sheen_params::{Sample, Snapshot, Stats};
use sheen_rt::Rt;

use crate::{limits::PAGE_BYTES, open::ReadEnd};

/// Name and unit of the size statistics of sequential requests.
const REQUESTS: (&str, &str) = ("readahead_pages", "pages");
/// Width of the names.
const NAME_WIDTH: usize = 25;

/// The readahead statistics of a mount.
pub struct ReadAhead {
    rt: Rt,
    requests: Stats,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl ReadAhead {
    /// Creates the statistics, all zero.
    pub fn new(rt: &Rt) -> ReadAhead {
        let zero = || AtomicU64::new(0);
        ReadAhead { rt: rt.clone(), requests: Stats::new(&[REQUESTS], rt.wall()), hits: zero(), misses: zero() }
    }

    /// Counts a read of an open file.
    pub fn note(&self, file: &ReadEnd, offset: u64, len: u64) {
        let pages = len.div_ceil(PAGE_BYTES);
        if file.goes_on(offset, len) {
            self.hits.fetch_add(pages, Relaxed);
            self.requests.record_at(0, pages);
        } else {
            self.misses.fetch_add(pages, Relaxed);
        }
    }

    /// Resets all statistics.
    pub fn clear(&self) {
        self.requests.clear(self.rt.wall());
        self.hits.store(0, Relaxed);
        self.misses.store(0, Relaxed);
    }

    /// Returns the values of now. Counters without a sample are left out.
    pub fn snapshot(&self) -> Snapshot {
        let mut stats = self.requests.snapshot(self.rt.wall());
        let counts = [("hits", &self.hits), ("misses", &self.misses)].map(|(name, n)| (name, n.load(Relaxed)));
        let counts = counts.into_iter().filter(|(_, pages)| *pages > 0);
        stats.samples.splice(..0, counts.map(|(name, pages)| Sample::of_count(name, REQUESTS.1, pages)));
        stats
    }
}

/// Returns the text of the parameter in Lustre's format.
pub fn read_ahead_text(stats: &Snapshot) -> String {
    stats.samples.iter().fold(stats.times(), |out, sample| out + &sample.line(NAME_WIDTH))
}

#[cfg(test)]
mod tests {
    use sheen_rt::sim::{Sim, SimConfig};

    use super::*;

    #[test]
    fn read_ahead_stats_count_sequential_and_other_reads() {
        let sim = Sim::new(1, SimConfig::default());
        let counts = ReadAhead::new(&sim.rt(1));
        let lines = || read_ahead_text(&counts.snapshot()).lines().skip(3).map(str::to_owned).collect::<Vec<_>>();
        assert!(lines().is_empty());
        let (file, other) = (ReadEnd::default(), ReadEnd::default());
        const M: u64 = 1 << 20;
        // The requests of the window arrive out of order.
        for mib in [0, 2, 1, 3] {
            counts.note(&file, mib * M, M);
        }
        counts.note(&other, 0, 100);
        counts.note(&other, 100 * M, 5000);
        assert_eq!(
            lines(),
            [
                "hits                      768 samples [pages]",
                "misses                    259 samples [pages]",
                "readahead_pages           3 samples [pages] 256 256 768 196608",
            ]
        );
        counts.clear();
        assert!(lines().is_empty());
    }
}
