//! Fits the costs of a file system to measurements.

use crate::{
    predict::{
        costs::Costs,
        fit::{self, Errors, Sample, fit},
        load::Direction,
    },
    prober::Measured,
};

/// Returns the costs that fit measurements best, and their errors; `None` without measurements.
pub fn fitted(measured: &[Measured], direction: Direction, osts: u32) -> Option<(Costs, Errors)> {
    let of_direction = || measured.iter().filter(|m| m.direction == direction);
    let samples: Vec<Sample> = of_direction().map(|m| Sample { load: m.load(osts), rate: m.rate }).collect();
    if samples.is_empty() {
        return None;
    }
    let costs = fit(&samples);
    let errors: Vec<f64> = of_direction().map(|m| fit::error(m.predicted(&costs, osts).rate, m.rate)).collect();
    Errors::of(&errors).map(|errors| (costs, errors))
}
