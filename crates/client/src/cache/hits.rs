//! `llite.*.cache_stats`: hits and misses of the caches.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

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

    /// Returns the text of the parameter.
    pub fn render(&self) -> String {
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        let (attr, name, absent) = (get(&self.attr), get(&self.name), get(&self.absent));
        let (open, miss) = (get(&self.open), get(&self.miss));
        format!("attr_hits {attr}\nname_hits {name}\nabsent_hits {absent}\nopen_hits {open}\nmisses {miss}\n")
    }
}
