//! Counters in the form of Lustre's `stats` files.
//!
//! ```text
//! snapshot_time                       1795290918.712480880 secs.nsecs
//! start_time                          1795290897.913419543 secs.nsecs
//! elapsed_time                        20.799061337 secs.nsecs
//! open                                129 samples [usecs] 365 32900 333235 2244011785
//! ```
//!
//! A line contains name, count, unit, minimum, maximum, sum and sum of squares. Recording takes no
//! lock. A reader may see the count of a sample a moment before its sum.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use sheen_wire::Time;

/// A set of counters whose names are known from the start.
pub struct Stats {
    counters: Vec<Counter>,
    start: Mutex<Time>,
}

struct Counter {
    name: &'static str,
    unit: &'static str,
    count: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
    sum: AtomicU64,
    sum_squares: AtomicU64,
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

    /// Adds a sample to the counter at `index` in the list given to [`Stats::new`]. For hot paths.
    pub fn record_at(&self, index: usize, value: u64) {
        if let Some(counter) = self.counters.get(index) {
            counter.record(value);
        }
    }

    /// Returns the number of samples of `name`.
    pub fn count(&self, name: &str) -> u64 {
        self.counters.iter().find(|c| c.name == name).map_or(0, |c| c.count.load(Relaxed))
    }

    /// Resets all counters (`lctl set_param …stats=clear`). They start again at `now`.
    pub fn clear(&self, now: Time) {
        *self.start.lock() = now;
        self.counters.iter().for_each(Counter::clear);
    }

    /// Returns the text of the file. Omits counters without a sample.
    pub fn render(&self, now: Time) -> String {
        let start = *self.start.lock();
        let mut out = String::new();
        let elapsed = elapsed(start, now);
        for (name, time) in [("snapshot_time", now), ("start_time", start), ("elapsed_time", elapsed)] {
            let _ = writeln!(out, "{name:<35} {}.{:09} secs.nsecs", time.sec, time.nsec);
        }
        self.counters.iter().for_each(|c| c.render(&mut out));
        out
    }
}

impl Counter {
    fn new(name: &'static str, unit: &'static str) -> Counter {
        let zero = || AtomicU64::new(0);
        let min = AtomicU64::new(u64::MAX);
        Counter { name, unit, count: zero(), min, max: zero(), sum: zero(), sum_squares: zero() }
    }

    fn record(&self, value: u64) {
        self.count.fetch_add(1, Relaxed);
        self.min.fetch_min(value, Relaxed);
        self.max.fetch_max(value, Relaxed);
        self.sum.fetch_add(value, Relaxed);
        self.sum_squares.fetch_add(value.wrapping_mul(value), Relaxed);
    }

    fn clear(&self) {
        self.count.store(0, Relaxed);
        self.min.store(u64::MAX, Relaxed);
        self.max.store(0, Relaxed);
        self.sum.store(0, Relaxed);
        self.sum_squares.store(0, Relaxed);
    }

    fn render(&self, out: &mut String) {
        let count = self.count.load(Relaxed);
        if count == 0 {
            return;
        }
        let (name, unit) = (self.name, self.unit);
        let (min, max) = (self.min.load(Relaxed).min(self.max.load(Relaxed)), self.max.load(Relaxed));
        let (sum, squares) = (self.sum.load(Relaxed), self.sum_squares.load(Relaxed));
        let _ = writeln!(out, "{name:<35} {count} samples [{unit}] {min} {max} {sum} {squares}");
    }
}

fn elapsed(start: Time, now: Time) -> Time {
    let nanos = |t: Time| i128::from(t.sec) * 1_000_000_000 + i128::from(t.nsec);
    let span = (nanos(now) - nanos(start)).max(0);
    Time { sec: (span / 1_000_000_000) as i64, nsec: (span % 1_000_000_000) as u32 }
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
        assert_eq!(stats.render(at(1795290918, 712480880)), want);
        stats.clear(at(1795290918, 0));
        assert!(!stats.render(at(1795290919, 0)).contains("open"));
        assert_eq!(stats.count("open"), 0);
    }
}
