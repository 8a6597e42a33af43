//! Points from statistics: counts by operation, and histograms.

use sheen_params::{Sample, Snapshot};

use crate::point::{LabelSet, Point, PointValue, with};
use crate::table::{Field, Select, Take};

/// Unit of times.
const USECS: &str = "usecs";
/// Unit of sizes of requests.
const PAGES: &str = "pages";
/// Microseconds in a second.
const USECS_PER_SECOND: f64 = 1e6;
/// Upper bounds of times, as powers of two of microseconds: 16 µs to 17 s, each twice the one
/// before.
const TIME_EXPONENTS: std::ops::RangeInclusive<u32> = 4..=24;
/// Upper bounds of sizes, as powers of two of bytes: 4 KiB to 64 MiB, each four times the one
/// before.
const SIZE_EXPONENTS: [u32; 8] = [12, 14, 16, 18, 20, 22, 24, 26];
/// Statistics of sizes in bytes, and the operations that they belong to.
const SIZES: [(&str, &str); 2] = [("read_bytes", "read"), ("write_bytes", "write")];

/// Returns the points that `take` selects. `labels`: those of the parameter.
pub fn points(stats: &Snapshot, take: Take, labels: &LabelSet) -> Vec<Point> {
    match take {
        Take::Since => stats.since.map(|time| Point::number(labels.clone(), time.sec)).into_iter().collect(),
        Take::One(name, operation, field) => {
            let number = stats.get(name).and_then(|sample| field.of(sample));
            let labels = if operation.is_empty() { labels.clone() } else { by_operation(labels, operation) };
            number.map(|number| Point::number(labels, number)).into_iter().collect()
        }
        Take::Each(select, field) => {
            let selected = stats.samples.iter().filter(|sample| select.has(sample));
            selected.filter_map(|s| Some(Point::number(by_operation(labels, &s.name), field.of(s)?))).collect()
        }
        Take::Seconds => {
            let times = stats.samples.iter().filter(|sample| sample.unit == USECS);
            let point = |s: &Sample| histogram(s, TIME_EXPONENTS, USECS_PER_SECOND, by_operation(labels, &s.name));
            times.filter_map(point).collect()
        }
        Take::Bytes => {
            let sizes = SIZES.iter().filter_map(|(name, operation)| Some((stats.get(name)?, *operation)));
            sizes.filter_map(|(s, of)| histogram(s, SIZE_EXPONENTS, 1.0, by_operation(labels, of))).collect()
        }
        Take::Pages => {
            let pages = stats.samples.iter().filter(|s| s.unit == PAGES);
            pages.flat_map(|s| by_bucket(s, &by_operation(labels, &s.name), "pages")).collect()
        }
        Take::Sizes(end) => {
            let of = |operation: &'static str| {
                Some((stats.get(&format!("{operation}_{end}"))?, by_operation(labels, operation)))
            };
            let found = ["read", "write"].into_iter().filter_map(of);
            found.flat_map(|(sample, labels)| by_bucket(sample, &labels, "size")).collect()
        }
        Take::Number
        | Take::Health
        | Take::Connected
        | Take::ConnectedIfUsed
        | Take::Version
        | Take::Recovery(_)
        | Take::Quota(_) => Vec::new(),
    }
}

/// Returns the labels and the operation. Some names of statistics contain spaces.
fn by_operation(labels: &LabelSet, operation: &str) -> LabelSet {
    with(labels, "operation", &operation.replace(' ', "_"))
}

/// Returns a point for each bucket. Its largest value is the label `name`.
fn by_bucket(sample: &Sample, labels: &LabelSet, name: &'static str) -> Vec<Point> {
    let point = |(upto, count): (u64, u64)| Point::number(with(labels, name, &upto.to_string()), count);
    sample.buckets.iter().map(point).collect()
}

/// Returns the histogram of a statistic, with powers of two as upper bounds, divided by `divisor`.
/// `None`: its buckets or its sum are unknown.
fn histogram(
    sample: &Sample,
    exponents: impl IntoIterator<Item = u32>,
    divisor: f64,
    labels: LabelSet,
) -> Option<Point> {
    let sum = sample.sum? as f64 / divisor;
    if sample.buckets.is_empty() {
        return None;
    }
    let (mut buckets, mut total) = (Vec::new(), 0u64);
    let mut left = sample.buckets.iter().peekable();
    // Another process may send any counts; their sum must not overflow.
    let mut add = |count: &mut u64, more: u64| {
        let more = more.min(u64::MAX - total);
        total += more;
        *count += more;
    };
    for exponent in exponents {
        let (bound, mut count) = (1u64 << exponent, 0);
        while let Some((_, more)) = left.next_if(|(upto, _)| *upto <= bound) {
            add(&mut count, more);
        }
        buckets.push((bound as f64 / divisor, count));
    }
    let mut larger = 0;
    left.for_each(|(_, more)| add(&mut larger, more));
    buckets.push((f64::MAX, larger));
    Some(Point { labels, value: PointValue::Histogram { sum, count: total, buckets } })
}

impl Select {
    fn has(self, sample: &Sample) -> bool {
        match self {
            Select::All => true,
            Select::Unit(unit) => sample.unit == unit,
            Select::Only(names) => names.contains(&sample.name.as_str()),
            Select::Except(names) => !names.contains(&sample.name.as_str()),
        }
    }
}

impl Field {
    fn of(self, sample: &Sample) -> Option<u64> {
        match self {
            Field::Count => Some(sample.count),
            Field::Min => sample.min,
            Field::Max => sample.max,
            Field::Sum => sample.sum,
        }
    }
}
