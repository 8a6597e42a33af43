//! Costs from measurements: those with which the model errs least.
//!
//! The error of a measurement is the logarithm of predicted to measured rate, so that 2 × too fast
//! counts as much as 2 × too slow. The sum of the absolute errors is minimised, so that single bad
//! measurements do not matter. Each cost is changed in turn by a factor that becomes smaller.
//!
//! A search can end at costs that are only better than their surroundings. So there are several
//! searches, from different beginnings, and the best one counts.

use crate::{
    predict::{
        costs::{COSTS, Costs},
        load::Load,
    },
    stats::median,
};

/// First factor.
const COARSE: f64 = 4.0;
/// Last factor.
const FINE: f64 = 1.01;
/// Part by which the sum of errors must become smaller, else the factor does.
const PROGRESS: f64 = 1e-4;
/// Where searches begin: how much slower than typical an object, an OST and the locks are.
const BEGINNINGS: [[f64; 3]; 8] = [
    [1.0, 1.0, 1.0],
    [10.0, 1.0, 1.0],
    [1.0, 10.0, 1.0],
    [20.0, 10.0, 1.0],
    [1.0, 1.0, 10.0],
    [10.0, 1.0, 10.0],
    [1.0, 10.0, 10.0],
    [20.0, 10.0, 10.0],
];

/// A measurement.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// The job.
    pub load: Load,
    /// MiB/s.
    pub rate: f64,
}

/// Returns the costs that fit best.
pub fn fit(samples: &[Sample]) -> Costs {
    let begin = |slower: &[f64; 3]| {
        let [object, ost, locks] = *slower;
        let typical = Costs::TYPICAL;
        Costs {
            object_mib: typical.object_mib * object,
            ost_mib: typical.ost_mib * ost,
            handover: typical.handover * locks,
            handover_mib: typical.handover_mib * locks,
            ..typical
        }
    };
    let searches = BEGINNINGS.iter().map(|slower| search(begin(slower), samples));
    let best = searches.min_by(|a, b| a.1.total_cmp(&b.1));
    best.map_or(Costs::TYPICAL, |(costs, _)| costs)
}

/// Searches from `begin`. Returns the costs that fit best, and their sum of errors.
fn search(begin: Costs, samples: &[Sample]) -> (Costs, f64) {
    let error_of = |costs: [f64; COSTS]| sum_of_errors(&Costs::from_array(costs), samples);
    let mut best = begin.to_array();
    let mut least = error_of(best);
    let mut factor = COARSE;
    while factor > FINE {
        let before = least;
        for cost in 0..COSTS {
            for by in [factor, 1.0 / factor] {
                let mut changed = best;
                changed[cost] *= by;
                let error = error_of(changed);
                if error < least {
                    (best, least) = (changed, error);
                }
            }
        }
        let progresses = least < before * (1.0 - PROGRESS);
        if !progresses {
            factor = factor.sqrt();
        }
    }
    (Costs::from_array(best), least)
}

fn sum_of_errors(costs: &Costs, samples: &[Sample]) -> f64 {
    samples.iter().map(|sample| (costs.predict(&sample.load).rate / sample.rate).ln().abs()).sum()
}

/// How well a model predicts.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Errors {
    /// Number of measurements.
    pub runs: usize,
    /// Median of the errors: 0.1 is 10 %.
    pub median: f64,
    /// Error that nine of ten do not exceed.
    pub most: f64,
}

impl Errors {
    /// Summarises errors; `None` if there are none.
    pub fn of(errors: &[f64]) -> Option<Errors> {
        let mut sorted = errors.to_vec();
        sorted.sort_by(f64::total_cmp);
        let most = *sorted.get((sorted.len() * 9).div_ceil(10).checked_sub(1)?)?;
        Some(Errors { runs: sorted.len(), median: median(&sorted), most })
    }
}

/// Returns the error of a prediction: 0.1 is 10 %.
pub fn error(predicted: f64, measured: f64) -> f64 {
    (predicted / measured - 1.0).abs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::{load::Workload, shape::Shape};

    /// Rates of a system with these costs.
    fn samples(costs: &Costs) -> Vec<Sample> {
        let mut samples = Vec::new();
        for (tasks, nodes) in [(1, 1), (2, 1), (4, 1), (2, 2), (4, 4)] {
            for transfer in [4096, 65_536, 1 << 20] {
                for (stripes, files) in [(1, false), (4, false), (16, false), (1, true)] {
                    let workload = Workload { tasks, nodes, transfer, block: transfer, size: 64 << 20, files };
                    let shape = Shape { stripes, osts: stripes.min(4), stripe_size: 1 << 20, all_osts: None };
                    let load = Load::of(&workload, &shape, 4);
                    samples.push(Sample { load, rate: costs.predict(&load).rate });
                }
            }
        }
        samples
    }

    #[test]
    fn fit_finds_costs_that_explain_all_rates() {
        let slow = Costs { ost_mib: 5e-3, object_mib: 8e-3, handover: 2e-3, ..Costs::TYPICAL };
        let measured = samples(&slow);
        let found = fit(&measured);
        let errors: Vec<f64> = measured.iter().map(|s| error(found.predict(&s.load).rate, s.rate)).collect();
        let errors = Errors::of(&errors).unwrap();
        assert!(errors.median < 0.02 && errors.most < 0.1, "{errors:?}: {found:?}");
    }

    #[test]
    fn fit_ends_without_samples_and_with_impossible_ones() {
        assert_eq!(fit(&[]), Costs::TYPICAL);
        let load = samples(&Costs::TYPICAL)[0].load;
        for rate in [0.0, f64::NAN, f64::INFINITY] {
            let _ = fit(&[Sample { load, rate }]);
        }
    }

    #[test]
    fn errors_are_summarised_by_median_and_nine_of_ten() {
        let errors: Vec<f64> = (1..=10).map(f64::from).collect();
        assert_eq!(Errors::of(&errors), Some(Errors { runs: 10, median: 5.5, most: 9.0 }));
        assert_eq!(Errors::of(&[]), None);
        assert!((error(110.0, 100.0) - 0.1).abs() < 1e-9 && (error(90.0, 100.0) - 0.1).abs() < 1e-9);
    }
}
