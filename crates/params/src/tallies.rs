//! Counters as [`crate::Stats`], without histograms: 40 bytes each, for statistics of each client.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use sheen_wire::Time;

use crate::snapshot::Snapshot;
use crate::spread::Spread;

/// A set of counters without histograms.
pub struct Tallies {
    /// Names and units.
    counters: &'static [(&'static str, &'static str)],
    /// As `counters`.
    tallies: Vec<Tally>,
    start: Mutex<Time>,
}

#[derive(Default)]
struct Tally {
    count: AtomicU64,
    spread: Spread,
}

impl Tallies {
    /// Creates counters from `(name, unit)` pairs. They are printed in this order. `now`: real
    /// time.
    pub fn new(counters: &'static [(&'static str, &'static str)], now: Time) -> Tallies {
        Tallies { counters, tallies: counters.iter().map(|_| Tally::default()).collect(), start: Mutex::new(now) }
    }

    /// Adds a sample to the counter at `index` in the list given to [`Tallies::new`].
    pub fn record_at(&self, index: usize, value: u64) {
        if let Some(tally) = self.tallies.get(index) {
            tally.count.fetch_add(1, Relaxed);
            tally.spread.record(value);
        }
    }

    /// Resets all counters. They start again at `now`.
    pub fn clear(&self, now: Time) {
        *self.start.lock() = now;
        for tally in &self.tallies {
            tally.count.store(0, Relaxed);
            tally.spread.clear();
        }
    }

    /// Returns the values of now. Omits counters without a sample.
    pub fn snapshot(&self, now: Time) -> Snapshot {
        let since = *self.start.lock();
        let counted = self.counters.iter().zip(&self.tallies).map(|(of, tally)| (of, tally, tally.count.load(Relaxed)));
        let used = counted.filter(|(_, _, count)| *count > 0);
        let samples = used.map(|((name, unit), tally, count)| tally.spread.sample(name, unit, count)).collect();
        Snapshot { taken: Some(now), since: Some(since), samples }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_render_as_stats_in_lustre() {
        let tallies = Tallies::new(&[("read_bytes", "bytes"), ("open", "usecs")], Time { sec: 10, nsec: 0 });
        [4096, 1024].into_iter().for_each(|bytes| tallies.record_at(0, bytes));
        tallies.record_at(9, 1);
        let want = "\
snapshot_time                       12.000000005 secs.nsecs
start_time                          10.000000000 secs.nsecs
elapsed_time                        2.000000005 secs.nsecs
read_bytes                          2 samples [bytes] 1024 4096 5120 17825792
";
        assert_eq!(tallies.snapshot(Time { sec: 12, nsec: 5 }).stats_text(), want);
        tallies.clear(Time { sec: 13, nsec: 0 });
        let cleared = tallies.snapshot(Time { sec: 14, nsec: 0 });
        assert_eq!((cleared.samples.len(), cleared.since), (0, Some(Time { sec: 13, nsec: 0 })));
    }
}
