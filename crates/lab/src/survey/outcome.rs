//! Results of a survey.

use serde::Serialize;

use crate::{
    stats::{median, range},
    survey::{args::Test, plan::Point},
};

/// Part of the peak from which it counts as reached.
const REACHED: f64 = 0.95;

/// The rates of a test at one point, in MiB/s.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Rates {
    /// The point.
    pub point: Point,
    /// Name of the test.
    pub test: &'static str,
    /// All OSTs together, in each run.
    pub total: Vec<f64>,
    /// Each OST, in each run.
    pub single: Vec<f64>,
}

impl Rates {
    /// Returns the median of all OSTs together, and the extremes of single ones.
    pub fn summary(&self) -> (f64, f64, f64) {
        let (low, high) = range(&self.single);
        (median(&self.total), low, high)
    }
}

/// The limits of an OST in a test, in MiB/s.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Limits {
    /// Name of the test.
    pub test: &'static str,
    /// Bytes of a record.
    pub record: u64,
    /// Objects of the first point.
    pub fewest: u64,
    /// Best rate with so few objects.
    pub few: f64,
    /// Best rate.
    pub peak: f64,
    /// Fewest objects that reach 95 % of it.
    pub objects: u64,
}

/// All results.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// In the order of the measurements.
    pub rates: Vec<Rates>,
    /// Number of OSTs.
    pub osts: usize,
}

impl Outcome {
    /// Returns the results of a test.
    pub fn of(&self, test: Test) -> impl Iterator<Item = &Rates> {
        self.rates.iter().filter(move |rates| rates.test == test.name())
    }

    /// Returns the best rate of one OST with this record and number of objects, over all numbers of
    /// threads.
    pub fn best(&self, test: Test, record: u64, objects: u64) -> Option<f64> {
        let rates = self.of(test).filter(|r| r.point.record == record && r.point.objects == objects);
        rates.map(|r| r.summary().0 / self.osts as f64).reduce(f64::max)
    }

    /// Returns the limits of an OST in a test; `None`: nothing was measured.
    pub fn limits(&self, test: Test, record: u64) -> Option<Limits> {
        let mut objects: Vec<u64> = self.rates.iter().map(|r| r.point.objects).collect();
        objects.sort_unstable();
        objects.dedup();
        let best: Vec<(u64, f64)> =
            objects.into_iter().filter_map(|n| Some((n, self.best(test, record, n)?))).collect();
        let (fewest, few) = *best.first()?;
        let peak = best.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        let objects = best.iter().find(|(_, rate)| *rate >= REACHED * peak).map_or(fewest, |(n, _)| *n);
        Some(Limits { test: test.name(), record, fewest, few, peak, objects })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_the_best_number_of_threads() {
        let rates = |objects, threads, rate: f64| Rates {
            point: Point { record: 1 << 20, objects, threads },
            test: "write",
            total: vec![2.0 * rate - 2.0, 2.0 * rate, 2.0 * rate + 100.0],
            single: vec![rate],
        };
        let all = vec![rates(1, 1, 90.0), rates(1, 2, 100.0), rates(2, 2, 191.0), rates(4, 4, 200.0)];
        let outcome = Outcome { rates: all, osts: 2 };
        let limits = outcome.limits(Test::Write, 1 << 20).unwrap();
        assert_eq!((limits.fewest, limits.few, limits.peak, limits.objects), (1, 100.0, 200.0, 2));
        assert_eq!(outcome.limits(Test::Read, 1 << 20), None);
    }
}
