//! Values of statistics at one moment.

use std::fmt::Write;

use serde::{Deserialize, Serialize};
use sheen_wire::Time;

use crate::histogram::Buckets;

/// Width of the names in Lustre's `stats` files.
const NAME_WIDTH: usize = 35;
/// Width of the names in Lustre's files of histograms, with their colons.
const HISTOGRAM_NAME_WIDTH: usize = 25;

/// One statistic: how often something happened and, if it is known, how its values are spread.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Lustre's name for it, where Lustre has one: `open`, `read_bytes`.
    pub name: String,
    /// Unit of the values, such as `usecs`, `bytes` or `pages`. Empty: it only counts.
    pub unit: String,
    /// Number of values.
    pub count: u64,
    /// Smallest value.
    pub min: Option<u64>,
    /// Largest value.
    pub max: Option<u64>,
    /// Sum of the values.
    pub sum: Option<u64>,
    /// Sum of the squares of the values; wraps around.
    pub sum_squares: Option<u64>,
    /// Histogram of the values. Empty: unknown.
    pub buckets: Buckets,
}

impl Sample {
    /// Creates a sample that has only a count.
    pub fn of_count(name: &str, unit: &str, count: u64) -> Sample {
        Sample { name: name.to_owned(), unit: unit.to_owned(), count, ..Sample::default() }
    }

    /// Creates a sample that has only a histogram, with its count.
    pub fn of_buckets(name: &str, unit: &str, buckets: Buckets) -> Sample {
        let count = buckets.count();
        Sample { buckets, ..Sample::of_count(name, unit, count) }
    }

    /// Adds the values of `other`, which has the same unit.
    pub fn merge(&mut self, other: &Sample) {
        let both = |a: Option<u64>, b: Option<u64>, pick: fn(u64, u64) -> u64| match (a, b) {
            (Some(a), Some(b)) => Some(pick(a, b)),
            (a, b) => a.or(b),
        };
        self.count = self.count.saturating_add(other.count);
        self.min = both(self.min, other.min, u64::min);
        self.max = both(self.max, other.max, u64::max);
        self.sum = both(self.sum, other.sum, u64::saturating_add);
        self.sum_squares = both(self.sum_squares, other.sum_squares, u64::wrapping_add);
        self.buckets.merge(&other.buckets);
    }

    /// Returns a percentile of the values, as [`Buckets::percentile`], within their range.
    pub fn percentile(&self, per_mille: u64) -> Option<u64> {
        let found = self.buckets.percentile(per_mille)?;
        let max = self.max.unwrap_or(u64::MAX);
        Some(found.clamp(self.min.unwrap_or(0).min(max), max))
    }

    /// Returns the line of a `stats` file: name, count, unit, minimum, maximum, sum and sum of
    /// squares, as far as they are known. The name takes at least `width` columns.
    pub fn line(&self, width: usize) -> String {
        let mut out = format!("{:<width$} {} samples [{}]", self.name, self.count, self.unit);
        for number in [self.min, self.max, self.sum, self.sum_squares].into_iter().flatten() {
            // Writing to a string cannot fail.
            let _ = write!(out, " {number}");
        }
        out.push('\n');
        out
    }
}

/// All statistics of one parameter.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// Time at which they were read.
    pub taken: Option<Time>,
    /// Time since which they count.
    pub since: Option<Time>,
    /// The statistics, in the order in which they are printed.
    pub samples: Vec<Sample>,
}

impl Snapshot {
    /// Creates a snapshot of plain counts.
    pub fn of_counts<'a>(counts: impl IntoIterator<Item = (&'a str, u64)>) -> Snapshot {
        let samples = counts.into_iter().map(|(name, count)| Sample::of_count(name, "", count)).collect();
        Snapshot { samples, ..Snapshot::default() }
    }

    /// Returns the sample of this name.
    pub fn get(&self, name: &str) -> Option<&Sample> {
        self.samples.iter().find(|sample| sample.name == name)
    }

    /// Returns the histogram of the sample of this name, as [`Buckets::counts`]. Empty: unknown.
    pub fn counts_of(&self, name: &str) -> &[u64] {
        self.get(name).map(|sample| sample.buckets.counts()).unwrap_or_default()
    }

    /// Returns the first lines of a `stats` file: the times.
    pub fn times(&self) -> String {
        self.lines_of_times("", NAME_WIDTH)
    }

    /// Returns the first lines of Lustre's files of histograms, such as `brw_stats`: the times.
    pub fn times_of_histogram(&self) -> String {
        self.lines_of_times(":", HISTOGRAM_NAME_WIDTH)
    }

    fn lines_of_times(&self, mark: &str, width: usize) -> String {
        let mut out = String::new();
        for (name, time) in self.named_times() {
            let name = format!("{name}{mark}");
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{name:<width$} {}.{:09} secs.nsecs", time.sec, time.nsec);
        }
        out
    }

    /// Returns the times that are known, with Lustre's names.
    pub(crate) fn named_times(&self) -> impl Iterator<Item = (&'static str, Time)> {
        let elapsed = self.taken.zip(self.since).map(|(taken, since)| elapsed(since, taken));
        let times = [("snapshot_time", self.taken), ("start_time", self.since), ("elapsed_time", elapsed)];
        times.into_iter().filter_map(|(name, time)| Some((name, time?)))
    }

    /// Returns the text of a `stats` file of Lustre.
    pub fn stats_text(&self) -> String {
        self.samples.iter().fold(self.times(), |out, sample| out + &sample.line(NAME_WIDTH))
    }

    /// Returns one line for each sample, with its name and its count.
    pub fn counts_text(&self, line: impl Fn(&str, u64) -> String) -> String {
        self.samples.iter().map(|sample| line(&sample.name, sample.count)).collect()
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
    use crate::histogram::Histogram;

    #[test]
    fn sample_percentiles_stay_within_the_range() {
        let histogram = Histogram::default();
        (0..100).for_each(|_| histogram.record(1000));
        let sample =
            Sample { count: 100, min: Some(1000), max: Some(1000), buckets: histogram.buckets(), ..Sample::default() };
        assert_eq!([500, 900, 990, 999].map(|p| sample.percentile(p)), [Some(1000); 4]);
        let odd = Sample { min: Some(5), max: Some(2), ..sample };
        assert_eq!(odd.percentile(500), Some(2), "a reader may see a new minimum before its maximum");
        assert_eq!(Sample::of_count("hits", "pages", 3).percentile(500), None);
    }

    #[test]
    fn sample_merge_adds_values_and_keeps_extremes() {
        let sample = |values: &[u64]| {
            let histogram = Histogram::default();
            values.iter().for_each(|value| histogram.record(*value));
            Sample {
                min: values.iter().copied().min(),
                max: values.iter().copied().max(),
                sum: Some(values.iter().sum()),
                sum_squares: Some(values.iter().map(|value| value * value).sum()),
                ..Sample::of_buckets("open", "usecs", histogram.buckets())
            }
        };
        let mut all = Sample::of_count("open", "usecs", 0);
        all.merge(&sample(&[3, 4]));
        all.merge(&sample(&[1000]));
        assert_eq!(all, sample(&[3, 4, 1000]));
        assert_eq!(all.line(6), "open   3 samples [usecs] 3 1000 1007 1000025\n");
    }

    #[test]
    fn snapshot_times_of_histograms_have_colons() {
        let at = |sec| Some(Time { sec, nsec: 5 });
        let snapshot = Snapshot { taken: at(12), since: at(10), samples: Vec::new() };
        let want = "\
snapshot_time:            12.000000005 secs.nsecs
start_time:               10.000000005 secs.nsecs
elapsed_time:             2.000000000 secs.nsecs
";
        assert_eq!(snapshot.times_of_histogram(), want);
    }

    #[test]
    fn snapshot_without_times_prints_none() {
        let snapshot = Snapshot::of_counts([("hits", 3), ("misses", 0)]);
        assert_eq!(snapshot.counts_text(|name, n| format!("{name} {n}\n")), "hits 3\nmisses 0\n");
        assert_eq!(snapshot.times(), "");
        assert_eq!(Sample::of_count("hits", "pages", 3).line(8), "hits     3 samples [pages]\n");
    }
}
