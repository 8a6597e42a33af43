//! Histograms by powers of two, such as that of latencies in microseconds.
//!
//! Bucket 0 counts values up to 1. Bucket `i` counts values above `2^(i-1)` and up to `2^i`. The
//! last bucket also counts larger values. To record a value is one atomic addition, without a lock.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

/// Number of buckets: up to `2^39`, which is 6 days in microseconds.
const BUCKETS: usize = 40;

/// A histogram that several threads record into.
pub struct Histogram([AtomicU64; BUCKETS]);

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram(array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Histogram {
    /// Counts a value.
    pub fn record(&self, value: u64) {
        self.0[bucket_of(value)].fetch_add(1, Relaxed);
    }

    /// Resets all counts.
    pub fn clear(&self) {
        self.0.iter().for_each(|count| count.store(0, Relaxed));
    }

    /// Returns the counts of now.
    pub fn buckets(&self) -> Buckets {
        let mut counts: Vec<u64> = self.0.iter().map(|count| count.load(Relaxed)).collect();
        counts.truncate(counts.iter().rposition(|n| *n > 0).map_or(0, |last| last + 1));
        Buckets(counts)
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|count| count.load(Relaxed)).sum()
    }
}

/// The counts of a [`Histogram`] at one moment, up to the last bucket that is not empty.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Buckets(Vec<u64>);

impl Buckets {
    /// Returns whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.0.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Returns the largest value of each bucket, and the bucket's count.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().enumerate().map(|(i, count)| (upper(i), *count))
    }

    /// Returns the counts of the buckets, up to the last one that is not empty.
    pub fn counts(&self) -> &[u64] {
        &self.0
    }

    /// Counts a value, as [`Histogram::record`]. For statistics under a lock.
    pub fn add(&mut self, value: u64) {
        let bucket = bucket_of(value);
        if self.0.len() <= bucket {
            self.0.resize(bucket + 1, 0);
        }
        self.0[bucket] += 1;
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Buckets) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(count, more)| *count = count.saturating_add(*more));
    }

    /// Returns the value that `per_mille` of all values do not exceed: 999 for the 99.9th
    /// percentile. Values are taken to be evenly spread inside a bucket, so the result is exact to
    /// a factor of 2. `None`: there are no values.
    pub fn percentile(&self, per_mille: u64) -> Option<u64> {
        let rank = (u128::from(self.count()) * u128::from(per_mille.min(1000))).div_ceil(1000).max(1);
        let mut below = 0;
        for (i, count) in self.0.iter().enumerate() {
            let count = u128::from(*count);
            if below + count >= rank {
                let low = i.checked_sub(1).map_or(0, upper);
                let width = u128::from(upper(i) - low);
                let inside = (width * (rank - below)).div_ceil(count);
                return Some(low.saturating_add(u64::try_from(inside).unwrap_or(u64::MAX)));
            }
            below += count;
        }
        None
    }
}

/// Returns the largest value of bucket `i` as Lustre prints it: `512`, `4K`, `1M`.
pub fn bucket_label(i: usize) -> String {
    let (shift, unit) = match i {
        0..10 => (0, ""),
        10..20 => (10, "K"),
        20..30 => (20, "M"),
        _ => (30, "G"),
    };
    format!("{}{unit}", upper(i) >> shift)
}

/// Returns the bucket of a value.
fn bucket_of(value: u64) -> usize {
    // The number of bits of the value minus 1 is the exponent, rounded up.
    let bucket = 64 - value.saturating_sub(1).leading_zeros() as usize;
    bucket.min(BUCKETS - 1)
}

/// Returns the largest value of bucket `i`.
fn upper(i: usize) -> u64 {
    u32::try_from(i).ok().and_then(|i| 1u64.checked_shl(i)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = u64>) -> Buckets {
        let histogram = Histogram::default();
        values.into_iter().for_each(|value| histogram.record(value));
        assert_eq!(histogram.count(), histogram.buckets().count());
        histogram.buckets()
    }

    #[test]
    fn histogram_rounds_values_up_to_powers_of_two() {
        let buckets = of([0, 1, 2, 3, 4, 5, 8, 9, 1 << 20]);
        let filled: Vec<_> = buckets.iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(1, 2), (2, 1), (4, 2), (8, 2), (16, 1), (1 << 20, 1)]);
        assert_eq!(of([u64::MAX, 1 << 50]).iter().last(), Some((1 << 39, 2)), "larger values are in the last bucket");
        assert!(of([]).is_empty());
    }

    #[test]
    fn buckets_count_values_as_a_histogram_does() {
        let values = [0, 1, 2, 3, 4096, 4097, 1 << 20, u64::MAX];
        let mut buckets = Buckets::default();
        values.into_iter().for_each(|value| buckets.add(value));
        assert_eq!(buckets, of(values));
    }

    #[test]
    fn bucket_labels_have_units_of_1024() {
        let labels = [0, 9, 10, 12, 19, 20, 30, 39].map(bucket_label);
        assert_eq!(labels, ["1", "512", "1K", "4K", "512K", "1M", "1G", "512G"]);
    }

    #[test]
    fn histogram_clear_removes_all_values() {
        let histogram = Histogram::default();
        histogram.record(7);
        histogram.clear();
        assert_eq!((histogram.count(), histogram.buckets()), (0, Buckets::default()));
    }

    #[test]
    fn percentiles_are_exact_to_a_factor_of_two() {
        let mut values: Vec<u64> = (0..10_000u64).map(|i| i * i % 9_973 + i / 3).collect();
        let buckets = of(values.iter().copied());
        values.sort_unstable();
        let mut last = 0;
        for per_mille in [1, 500, 900, 990, 999, 1000] {
            let exact = values[(values.len() * per_mille as usize).div_ceil(1000) - 1];
            let found = buckets.percentile(per_mille).unwrap();
            assert!(found >= exact / 2 && found <= exact * 2, "{per_mille}: {found} for {exact}");
            assert!(found >= last, "{per_mille}: {found} after {last}");
            last = found;
        }
    }

    #[test]
    fn percentiles_of_few_values_lie_in_their_buckets() {
        assert_eq!(of([]).percentile(500), None);
        assert_eq!(of([0]).percentile(500), Some(1));
        let buckets = of(vec![10; 999].into_iter().chain([100_000]));
        assert!((9..=16).contains(&buckets.percentile(500).unwrap()));
        assert!((9..=16).contains(&buckets.percentile(999).unwrap()), "999 of 1000 values are 10");
        assert!((65_537..=131_072).contains(&buckets.percentile(1000).unwrap()));
    }

    /// A peer of another release may send more buckets.
    #[test]
    fn percentiles_of_any_buckets_do_not_overflow() {
        for buckets in [vec![0; 200], vec![u64::MAX; 200], vec![0, 0, 3]] {
            let buckets = Buckets(buckets);
            for per_mille in [0, 500, 1000, u64::MAX] {
                let _ = buckets.percentile(per_mille);
            }
            assert_eq!(buckets.iter().count(), buckets.counts().len());
        }
    }
}
