//! Counters in the form of Lustre's `stats` files.
//!
//! ```text
//! snapshot_time                       1795290918.712480880 secs.nsecs
//! start_time                          1795290897.913419543 secs.nsecs
//! elapsed_time                        20.799061337 secs.nsecs
//! open                                129 samples [usecs] 365 32900 333235 2244011785
//! ```
//!
//! A line contains name, count, unit, minimum, maximum, sum and sum of squares. Each counter also
//! has a histogram, from which `lctl get_param --json` computes percentiles. Recording takes no
//! lock. A reader may see the count of a sample a moment before its sum.

use parking_lot::Mutex;
use sheen_wire::Time;

use crate::histogram::Histogram;
use crate::snapshot::{Sample, Snapshot};
use crate::spread::Spread;

/// A set of counters whose names are known from the start.
pub struct Stats {
    counters: Vec<Counter>,
    start: Mutex<Time>,
}

/// A counter. Its number of samples is that of its histogram.
struct Counter {
    name: &'static str,
    unit: &'static str,
    histogram: Histogram,
    spread: Spread,
}

impl Stats {
    /// Creates counters from `(name, unit)` pairs, with units such as `usecs`, `bytes` or `reqs`.
    /// They are printed in this order. `now`: real time.
    pub fn new(counters: &[(&'static str, &'static str)], now: Time) -> Stats {
        let counters = counters.iter().map(|&(name, unit)| Counter::new(name, unit)).collect();
        Stats { counters, start: Mutex::new(now) }
    }

    /// Adds a sample to the counter `name`. Ignores an unknown name.
    pub fn record(&self, name: &str, value: u64) {
        if let Some(counter) = self.counters.iter().find(|c| c.name == name) {
            counter.record(value);
        }
    }

    /// Returns the index of the counter `name` in the list given to [`Stats::new`].
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.counters.iter().position(|c| c.name == name)
    }

    /// Adds a sample to the counter at `index` in the list given to [`Stats::new`]. For hot paths.
    pub fn record_at(&self, index: usize, value: u64) {
        if let Some(counter) = self.counters.get(index) {
            counter.record(value);
        }
    }

    /// Returns the number of samples of `name`.
    pub fn count(&self, name: &str) -> u64 {
        self.counters.iter().find(|c| c.name == name).map_or(0, |c| c.histogram.count())
    }

    /// Resets all counters (`lctl set_param …stats=clear`). They start again at `now`.
    pub fn clear(&self, now: Time) {
        *self.start.lock() = now;
        self.counters.iter().for_each(Counter::clear);
    }

    /// Returns the values of now. Omits counters without a sample.
    pub fn snapshot(&self, now: Time) -> Snapshot {
        let since = *self.start.lock();
        let samples = self.counters.iter().filter_map(Counter::sample).collect();
        Snapshot { taken: Some(now), since: Some(since), samples }
    }
}

impl Counter {
    fn new(name: &'static str, unit: &'static str) -> Counter {
        Counter { name, unit, histogram: Histogram::default(), spread: Spread::default() }
    }

    fn record(&self, value: u64) {
        self.histogram.record(value);
        self.spread.record(value);
    }

    fn clear(&self) {
        self.histogram.clear();
        self.spread.clear();
    }

    /// Returns the values of now, or `None` if there are none.
    fn sample(&self) -> Option<Sample> {
        let buckets = self.histogram.buckets();
        let sample =
            || Sample { buckets: buckets.clone(), ..self.spread.sample(self.name, self.unit, buckets.count()) };
        (!buckets.is_empty()).then(sample)
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
