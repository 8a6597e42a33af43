//! Results of a measurement of the network.

use serde::Serialize;
use sheen_wire::selftest::Done;

use crate::{
    net::{clients::ClientCosts, files::Costs, plan::Point},
    stats::{median, range},
};

/// Bytes of a MiB.
pub const MIB: f64 = 1_048_576.0;

/// The rates of a point, in each run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Rates {
    /// The point.
    pub point: Point,
    /// Requests per second.
    pub requests: Vec<f64>,
}

impl Rates {
    /// Adds a run.
    pub fn add(&mut self, done: Done) {
        self.requests.push(done.requests as f64 / done.seconds());
    }

    /// Returns median, minimum and maximum of the bandwidth in MiB/s.
    pub fn bandwidth(&self) -> [f64; 3] {
        let (low, high) = range(&self.requests);
        [median(&self.requests), low, high].map(|rate| rate * self.point.size as f64 / MIB)
    }

    /// Returns the median of the requests per second.
    pub fn rate(&self) -> f64 {
        median(&self.requests)
    }

    /// Returns the mean time of a request in milliseconds.
    pub fn milliseconds(&self) -> f64 {
        self.point.in_flight as f64 / self.rate() * 1e3
    }
}

/// All results.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// In the order of the measurements.
    pub rates: Vec<Rates>,
    /// Measured round trip in milliseconds for each added one.
    pub round_trips: Vec<(f64, f64)>,
    /// Costs of operations on files, for each number of stripes.
    pub files: Vec<Costs>,
    /// Costs of operations of several clients, for each number of clients.
    pub clients: Vec<ClientCosts>,
}

impl Outcome {
    /// Returns the bandwidth at a point in MiB/s.
    pub fn bandwidth(&self, point: Point) -> Option<f64> {
        self.rates.iter().find(|r| r.point == point).map(|r| r.bandwidth()[0])
    }

    /// Returns the measured round trip in milliseconds.
    pub fn round_trip(&self, delay: f64) -> Option<f64> {
        self.round_trips.iter().find(|(added, _)| *added == delay).map(|(_, measured)| *measured)
    }
}
