//! A value that a text states, beside that of a model.
//!
//! A range is stated as its bounds, a single value as a range of its own. A statement without a
//! number has 0 or infinity as a bound.

use serde::Serialize;

/// Bounds of a ratio of which the text says that it is more than 1.
pub const MORE: [f64; 2] = [1.0, f64::INFINITY];
/// Bounds of a ratio of which the text says that it is less than 1.
pub const LESS: [f64; 2] = [0.0, 1.0];

/// Unit of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// GB/s.
    Gb,
    /// GiB/s.
    Gib,
    /// MiB/s.
    Mib,
    /// Thousands of operations per second.
    Kiops,
    /// Round trips of the network.
    Trips,
    /// One value divided by another.
    Ratio,
    /// A number without a unit.
    Number,
}

impl Unit {
    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Gb => "GB/s",
            Unit::Gib => "GiB/s",
            Unit::Mib => "MiB/s",
            Unit::Kiops => "kIOPS",
            Unit::Trips => "RTT",
            Unit::Ratio => "×",
            Unit::Number => "",
        }
    }
}

/// The basis of a model's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Costs that were chosen by this value, among others.
    Calibrated,
    /// Facts and other values only.
    Predicted,
    /// A formula that the text itself states. The error says whether the tool computes the same.
    Formula,
}

impl Basis {
    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Basis::Calibrated => "calibrated",
            Basis::Predicted => "predicted",
            Basis::Formula => "formula",
        }
    }
}

/// A stated value.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Name of the system.
    pub system: &'static str,
    /// Figure, section or list.
    pub place: &'static str,
    /// Description of the value.
    pub what: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Lowest and highest stated value.
    pub stated: [f64; 2],
    /// The value of the model.
    pub predicted: f64,
    /// Its basis.
    pub basis: Basis,
    /// The effect that the model lacks, if it is far off.
    pub lacks: &'static str,
}

/// Returns the error of a value. `None`: `stated` has no number.
pub fn error(stated: [f64; 2], value: f64) -> Option<f64> {
    let [low, high] = stated;
    let nearest = value.clamp(low, high);
    (low > 0.0 && high.is_finite()).then(|| (value / nearest - 1.0).abs())
}

impl Point {
    /// Returns the error of the model: 0.1 is 10 %. 0 within a stated range. `None`: the text
    /// states no number.
    pub fn error(&self) -> Option<f64> {
        error(self.stated, self.predicted)
    }

    /// Returns whether a statement without a number holds for the model. `None`: it has a number.
    pub fn holds(&self) -> Option<bool> {
        let [low, high] = self.stated;
        self.error().is_none().then_some(low < self.predicted && self.predicted < high)
    }
}
