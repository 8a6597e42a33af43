//! Results of a comparison.

use serde::Serialize;

use crate::{
    overstripe::{
        plan::{Curve, Layout, Plan},
        system::Explained,
    },
    stats::{median, range},
};

/// A measurement.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// MiB/s of the write, with fsync.
    pub write: f64,
    /// MiB/s of the read.
    pub read: Option<f64>,
    /// Counters of the write.
    pub explained: Option<Explained>,
}

/// A point of a curve, with the medians of its rounds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Point {
    /// The curve.
    pub curve: Curve,
    /// The layout.
    pub layout: Layout,
    /// MiB/s of the write: median, minimum, maximum.
    pub write: [f64; 3],
    /// MiB/s of the read, likewise.
    pub read: Option<[f64; 3]>,
    /// Locks granted to clients.
    pub grants: Option<f64>,
    /// Blocking callbacks.
    pub callbacks: Option<f64>,
    /// MiB written for each callback; `None` without callbacks.
    pub mib_per_callback: Option<f64>,
    /// Locks that the OSTs took for themselves.
    pub own_locks: Option<f64>,
}

impl Point {
    fn new(curve: Curve, layout: Layout, samples: &[Sample]) -> Point {
        let summary = |values: &[f64]| {
            let (low, high) = range(values);
            [median(values), low, high]
        };
        let all = |of: fn(&Sample) -> Option<f64>| samples.iter().filter_map(of).collect::<Vec<f64>>();
        let counted = |of: fn(&Explained) -> f64| {
            let values: Vec<f64> = samples.iter().filter_map(|s| s.explained.as_ref().map(of)).collect();
            (!values.is_empty()).then(|| median(&values))
        };
        let reads = all(|sample| sample.read);
        let (callbacks, mib) = (counted(|e| e.callbacks), counted(|e| e.mib));
        Point {
            curve,
            layout,
            write: summary(&all(|sample| Some(sample.write))),
            read: (!reads.is_empty()).then(|| summary(&reads)),
            grants: counted(|e| e.grants),
            callbacks,
            mib_per_callback: callbacks.zip(mib).filter(|(n, _)| *n > 0.0).map(|(n, mib)| mib / n),
            own_locks: counted(|e| e.own),
        }
    }
}

/// The gain of a curve by more stripes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Gain {
    /// The curve.
    pub curve: Curve,
    /// MiB/s with the fewest stripes, and their number.
    pub fewest: (f64, u64),
    /// MiB/s with the best number of stripes, and that number.
    pub best: (f64, u64),
    /// MiB/s with a file for each process.
    pub files: Option<f64>,
}

/// All results: the samples of each curve and layout, in the order of the plan.
#[derive(Debug)]
pub struct Outcome {
    samples: Vec<(Curve, Layout, Vec<Sample>)>,
}

impl Outcome {
    /// Returns an outcome without results.
    pub fn new(plan: &Plan) -> Outcome {
        let of = |curve: &Curve| plan.layouts.iter().map(|layout| (*curve, *layout, Vec::new())).collect::<Vec<_>>();
        Outcome { samples: plan.curves.iter().flat_map(of).collect() }
    }

    /// Adds a measurement.
    pub fn add(&mut self, curve: Curve, layout: Layout, sample: Sample) {
        let found = self.samples.iter_mut().find(|(c, l, _)| (*c, *l) == (curve, layout));
        found.into_iter().for_each(|(.., samples)| samples.push(sample));
    }

    /// Returns the points that have been measured.
    pub fn points(&self) -> Vec<Point> {
        let measured = self.samples.iter().filter(|(.., samples)| !samples.is_empty());
        measured.map(|(curve, layout, samples)| Point::new(*curve, *layout, samples)).collect()
    }
}

/// Returns the gain of each curve, as far as it has been measured.
pub fn gains(plan: &Plan, points: &[Point]) -> Vec<Gain> {
    let gain = |curve: &Curve| {
        let rates = |point: &Point| match point.layout {
            Layout::Shared(stripes) => Some((point.write[0], stripes)),
            Layout::Files => None,
        };
        let of_curve = || points.iter().filter(|point| point.curve == *curve);
        let fewest = of_curve().find_map(rates)?;
        let best = of_curve().filter_map(rates).fold(fewest, |best, other| if other.0 > best.0 { other } else { best });
        let files = of_curve().find(|point| point.layout == Layout::Files).map(|point| point.write[0]);
        Some(Gain { curve: *curve, fewest, best, files })
    };
    plan.curves.iter().filter_map(gain).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::overstripe::args::OverstripeArgs;

    #[test]
    fn gain_is_that_of_the_best_number_of_stripes() {
        let args = OverstripeArgs::try_parse_from(["overstripe", "--stripes", "1-4"]).unwrap();
        let plan = Plan::new(&args).unwrap();
        let mut outcome = Outcome::new(&plan);
        let curve = plan.curves[0];
        let explained = |callbacks| Some(Explained { grants: 1.0, callbacks, own: 0.0, mib: 64.0 });
        for (layout, rates) in [
            (Layout::Shared(1), [90.0, 100.0, 130.0]),
            (Layout::Shared(2), [200.0, 190.0, 220.0]),
            (Layout::Files, [250.0, 250.0, 250.0]),
        ] {
            for write in rates {
                let callbacks = if layout == Layout::Shared(1) { 16.0 } else { 0.0 };
                outcome.add(curve, layout, Sample { write, read: None, explained: explained(callbacks) });
            }
        }
        let points = outcome.points();
        assert_eq!(points.len(), 3, "what has not been measured is left out");
        assert_eq!((points[0].write, points[0].mib_per_callback), ([100.0, 90.0, 130.0], Some(4.0)));
        assert_eq!((points[1].mib_per_callback, points[1].read), (None, None));
        let gains = gains(&plan, &points);
        assert_eq!((gains[0].fewest, gains[0].best, gains[0].files), ((100.0, 1), (200.0, 2), Some(250.0)));
    }
}
