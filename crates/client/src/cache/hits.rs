//! `llite.*.cache_stats`: hits and misses of the caches.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sheen_params::Snapshot;

/// Hit counters of the caches.
#[derive(Default)]
pub struct Hits {
    /// Attributes: complete, or with only the size missing.
    pub attr: AtomicU64,
    /// Names found.
    pub name: AtomicU64,
    /// Names known to be absent.
    pub absent: AtomicU64,
    /// Files opened without a request.
    pub open: AtomicU64,
    /// Replies of the MDT to lookup or getattr.
    pub miss: AtomicU64,
}

impl Hits {
    /// Increments a counter.
    pub fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Relaxed);
    }

    /// Resets all counters.
    pub fn clear(&self) {
        [&self.attr, &self.name, &self.absent, &self.open, &self.miss].iter().for_each(|count| count.store(0, Relaxed));
    }

    /// Returns the values of now.
    pub fn snapshot(&self) -> Snapshot {
        let counts = [
            ("attr_hits", &self.attr),
            ("name_hits", &self.name),
            ("absent_hits", &self.absent),
            ("open_hits", &self.open),
            ("misses", &self.miss),
        ];
        Snapshot::of_counts(counts.map(|(name, count)| (name, count.load(Relaxed))))
    }
}

/// Returns the text of the parameter.
pub fn cache_stats_text(stats: &Snapshot) -> String {
    stats.counts_text(|name, count| format!("{name} {count}\n"))
}
