//! Extremes and sums of values, for counters that several threads record into.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::snapshot::Sample;

/// The smallest and largest of some values, their sum and the sum of their squares.
pub struct Spread {
    /// `u64::MAX`: no value.
    min: AtomicU64,
    max: AtomicU64,
    sum: AtomicU64,
    sum_squares: AtomicU64,
}

impl Default for Spread {
    fn default() -> Spread {
        let zero = || AtomicU64::new(0);
        Spread { min: AtomicU64::new(u64::MAX), max: zero(), sum: zero(), sum_squares: zero() }
    }
}

impl Spread {
    /// Adds a value.
    pub fn record(&self, value: u64) {
        // A new extreme is rare, and a load is cheaper than the atomic operation.
        if value < self.min.load(Relaxed) {
            self.min.fetch_min(value, Relaxed);
        }
        if value > self.max.load(Relaxed) {
            self.max.fetch_max(value, Relaxed);
        }
        self.sum.fetch_add(value, Relaxed);
        self.sum_squares.fetch_add(value.wrapping_mul(value), Relaxed);
    }

    /// Removes all values.
    pub fn clear(&self) {
        self.min.store(u64::MAX, Relaxed);
        self.max.store(0, Relaxed);
        self.sum.store(0, Relaxed);
        self.sum_squares.store(0, Relaxed);
    }

    /// Returns a sample of `count` values, without a histogram. Without a value the extremes are 0.
    pub fn sample(&self, name: &str, unit: &str, count: u64) -> Sample {
        let max = self.max.load(Relaxed);
        Sample {
            min: Some(self.min.load(Relaxed).min(max)),
            max: Some(max),
            sum: Some(self.sum.load(Relaxed)),
            sum_squares: Some(self.sum_squares.load(Relaxed)),
            ..Sample::of_count(name, unit, count)
        }
    }
}
