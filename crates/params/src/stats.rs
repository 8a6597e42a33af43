//! Counters in the form of Lustre's `stats` files.
//!
//! ```text
//! snapshot_time                       1795290918.712480880 secs.nsecs
//! start_time                          1795290897.913419543 secs.nsecs
//! elapsed_time                        20.799061337 secs.nsecs
//! open                                129 samples [usecs] 365 32900 333235 2244011785
//! ```
//!
//! A line contains name, count, unit, minimum, maximum, sum and sum of squares. Counters usually
//! also have a histogram, from which `lctl get_param --json` computes percentiles. Counters without
//! one take 48 bytes instead of 368, for statistics of each client. Recording takes no lock. A
//! reader may see the count of a sample a moment before its sum.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use sheen_wire::Time;

use crate::histogram::{Buckets, Histogram};
use crate::snapshot::{Sample, Snapshot};
use crate::spread::Spread;

/// Names and units of counters.
type Names = &'static [(&'static str, &'static str)];

/// A set of counters whose names are known from the start.
pub struct Stats {
    names: Names,
    /// In the order of the names.
    counters: Vec<Counter>,
    start: Mutex<Time>,
}

struct Counter {
    samples: Samples,
    spread: Spread,
}

/// The number of samples of a counter, alone or by size.
enum Samples {
    Histogram(Box<Histogram>),
    Count(AtomicU64),
}

impl Stats {
    /// Creates counters from `(name, unit)` pairs, with units such as `usecs`, `bytes` or `reqs`.
    /// They are printed in this order. `now`: real time.
    pub fn new(counters: &'static [(&'static str, &'static str)], now: Time) -> Stats {
        Stats::of(counters, || Samples::Histogram(Box::default()), now)
    }

    /// As [`Stats::new`], without histograms.
    pub fn without_histograms(counters: &'static [(&'static str, &'static str)], now: Time) -> Stats {
        Stats::of(counters, || Samples::Count(AtomicU64::new(0)), now)
    }

    fn of(names: Names, samples: impl Fn() -> Samples, now: Time) -> Stats {
        let counters = names.iter().map(|_| Counter { samples: samples(), spread: Spread::default() }).collect();
        Stats { names, counters, start: Mutex::new(now) }
    }

    /// Adds a sample to the counter `name`. Ignores an unknown name.
    pub fn record(&self, name: &str, value: u64) {
        if let Some(index) = self.index_of(name) {
            self.record_at(index, value);
        }
    }

    /// Returns the index of the counter `name` in the list given to [`Stats::new`].
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|(known, _)| *known == name)
    }

    /// Adds a sample to the counter at `index` in the list given to [`Stats::new`]. For hot paths.
    pub fn record_at(&self, index: usize, value: u64) {
        if let Some(counter) = self.counters.get(index) {
            counter.record(value);
        }
    }

    /// Returns the number of samples of `name`.
    pub fn count(&self, name: &str) -> u64 {
        self.index_of(name).and_then(|index| self.counters.get(index)).map_or(0, Counter::count)
    }

    /// Resets all counters (`lctl set_param …stats=clear`). They start again at `now`.
    pub fn clear(&self, now: Time) {
        *self.start.lock() = now;
        self.counters.iter().for_each(Counter::clear);
    }

    /// Returns the values of now. Omits counters without a sample.
    pub fn snapshot(&self, now: Time) -> Snapshot {
        let since = *self.start.lock();
        let counters = self.names.iter().zip(&self.counters);
        let samples = counters.filter_map(|((name, unit), counter)| counter.sample(name, unit)).collect();
        Snapshot { taken: Some(now), since: Some(since), samples }
    }
}

impl Counter {
    fn record(&self, value: u64) {
        match &self.samples {
            Samples::Histogram(histogram) => histogram.record(value),
            Samples::Count(count) => {
                count.fetch_add(1, Relaxed);
            }
        }
        self.spread.record(value);
    }

    fn clear(&self) {
        match &self.samples {
            Samples::Histogram(histogram) => histogram.clear(),
            Samples::Count(count) => count.store(0, Relaxed),
        }
        self.spread.clear();
    }

    fn count(&self) -> u64 {
        match &self.samples {
            Samples::Histogram(histogram) => histogram.count(),
            Samples::Count(count) => count.load(Relaxed),
        }
    }

    /// Returns the values of now, or `None` if there are none.
    fn sample(&self, name: &str, unit: &str) -> Option<Sample> {
        let (count, buckets) = match &self.samples {
            Samples::Histogram(histogram) => {
                let buckets = histogram.buckets();
                (buckets.count(), buckets)
            }
            Samples::Count(count) => (count.load(Relaxed), Buckets::default()),
        };
        (count > 0).then(|| Sample { buckets, ..self.spread.sample(name, unit, count) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stats_render_as_in_lustre() {
        let at = |sec, nsec| Time { sec, nsec };
        let stats = Stats::new(&[("open", "usecs"), ("close", "usecs")], at(1795290897, 913419543));
        stats.record("open", 365);
        stats.record_at(0, 32900);
        stats.record("nosuch", 1);
        let want = "\
snapshot_time                       1795290918.712480880 secs.nsecs
start_time                          1795290897.913419543 secs.nsecs
elapsed_time                        20.799061337 secs.nsecs
open                                2 samples [usecs] 365 32900 33265 1082543225
";
        let snapshot = stats.snapshot(at(1795290918, 712480880));
        assert_eq!(snapshot.stats_text(), want);
        let open = snapshot.get("open").unwrap();
        assert!((365..=512).contains(&open.percentile(500).unwrap()));
        assert_eq!(open.percentile(999), Some(32900), "not more than the maximum");
        stats.clear(at(1795290918, 0));
        assert!(stats.snapshot(at(1795290919, 0)).samples.is_empty());
        assert_eq!(stats.count("open"), 0);
    }

    #[test]
    fn stats_without_histograms_render_as_those_with_them() {
        let at = |sec| Time { sec, nsec: 5 };
        let counters = &[("read_bytes", "bytes"), ("open", "usecs")];
        let [with, without] = [Stats::new(counters, at(10)), Stats::without_histograms(counters, at(10))];
        for stats in [&with, &without] {
            [4096, 1024].into_iter().for_each(|bytes| stats.record("read_bytes", bytes));
            stats.record_at(9, 1);
            assert_eq!((stats.count("read_bytes"), stats.count("open"), stats.count("nosuch")), (2, 0, 0));
        }
        let [snapshot, plain] = [&with, &without].map(|stats| stats.snapshot(at(12)));
        assert_eq!(plain.stats_text(), snapshot.stats_text());
        assert_eq!((snapshot.counts_of("read_bytes").len(), plain.counts_of("read_bytes").len()), (13, 0));
        without.clear(at(13));
        let cleared = without.snapshot(at(14));
        assert_eq!((cleared.samples.len(), cleared.since), (0, Some(at(13))));
    }

    #[test]
    fn stats_of_several_threads_lose_no_sample() {
        let stats = Stats::new(&[("open", "usecs")], Time::default());
        std::thread::scope(|scope| {
            for thread in 1..=4 {
                let stats = &stats;
                scope.spawn(move || (0..1000).for_each(|i| stats.record_at(0, thread * 1000 + i)));
            }
        });
        let snapshot = stats.snapshot(Time::default());
        let open = &snapshot.samples[0];
        assert_eq!((open.count, open.min, open.max), (4000, Some(1000), Some(4999)));
        assert_eq!(open.sum, Some((1000..5000).sum()));
    }
}
