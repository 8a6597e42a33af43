//! The model of "HPC File Systems in Wide Area Networks" (Aguilera and others), equations 1 to 4.
//!
//! As long as nothing else limits a connection, its bandwidth is proportional to the data in flight
//! and inversely proportional to the round trip:
//!
//! ```text
//! b = (s1/s0 · c1/c0 · l0/l1) · b0 / k
//! ```
//!
//! with sizes `s`, requests in flight `c` and round trips `l`. `b0` is the bandwidth of one request
//! of the smallest size at a middle latency. `k` is fitted: the paper's network had 2.27.
//!
//! * unthrottled: with `k` = 1, the model predicts less than a tenth of both peaks, which are the
//!   largest bandwidth and the largest number of requests per second measured. `k` is the median
//!   over these points;
//! * saturated: at least 90 % of a peak;
//! * throttled: between these.

use serde::Serialize;

use crate::{
    net::{
        args::Test,
        outcome::{MIB, Outcome},
        plan::Point,
    },
    stats::median,
};

/// Part of a peak below which a connection is unthrottled: the transfer itself then takes little
/// time beside the round trip.
const UNTHROTTLED: f64 = 0.1;
/// Part of a peak from which a connection is saturated.
const SATURATED: f64 = 0.9;

/// The limit of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Regime {
    /// Only the data in flight.
    Unthrottled,
    /// More than that.
    Throttled,
    /// Processors or links.
    Saturated,
}

impl Regime {
    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Regime::Unthrottled => "unthrottled",
            Regime::Throttled => "throttled",
            Regime::Saturated => "saturated",
        }
    }
}

/// A measured point, and its prediction.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Predicted {
    /// The point.
    pub point: Point,
    /// Measured, in MiB/s.
    pub measured: f64,
    /// Predicted, in MiB/s.
    pub predicted: f64,
    /// Its limit.
    pub regime: Regime,
}

impl Predicted {
    /// Returns the relative error of the prediction.
    pub fn error(&self) -> f64 {
        (self.predicted / self.measured - 1.0).abs()
    }
}

/// The equations, with the constants of a network.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Law {
    /// Overhead of larger requests.
    pub k: f64,
    /// The point of `b0`.
    pub base: Point,
    /// Its round trip in milliseconds.
    pub round_trip: f64,
    /// Its bandwidth in MiB/s.
    pub b0: f64,
    /// Largest bandwidth, in MiB/s.
    pub peak: f64,
    /// Largest number of requests per second.
    pub most: f64,
}

/// Returns the bytes in flight (equation 2).
pub fn in_flight(point: Point) -> f64 {
    point.size as f64 * point.in_flight as f64
}

impl Law {
    /// Returns the bytes that fit in the network at a round trip in milliseconds (equation 1). The
    /// buffers of the network do not count.
    pub fn capacity(&self, round_trip: f64) -> f64 {
        self.peak * MIB * round_trip / 1e3
    }

    /// Returns the bandwidth in MiB/s at a round trip in milliseconds, without overhead and peaks
    /// (equation 3).
    pub fn ideal(&self, point: Point, round_trip: f64) -> f64 {
        in_flight(point) / in_flight(self.base) * self.round_trip / round_trip * self.b0
    }

    /// Returns the bandwidth in MiB/s at a round trip in milliseconds (equation 4). It is at most
    /// the peak.
    pub fn predict(&self, point: Point, round_trip: f64) -> f64 {
        (self.ideal(point, round_trip) / self.k).min(self.peak)
    }

    /// Returns the limit of a point at a round trip in milliseconds. `bandwidth`: in MiB/s.
    pub fn regime(&self, point: Point, round_trip: f64, bandwidth: f64) -> Regime {
        match () {
            () if self.part(point, self.ideal(point, round_trip)) < UNTHROTTLED => Regime::Unthrottled,
            () if self.part(point, bandwidth) >= SATURATED => Regime::Saturated,
            () => Regime::Throttled,
        }
    }

    /// Returns the part of the peaks that a bandwidth takes.
    fn part(&self, point: Point, bandwidth: f64) -> f64 {
        (bandwidth / self.peak).max(bandwidth * MIB / point.size as f64 / self.most)
    }
}

/// The model of one test.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Model {
    /// Overhead of larger requests.
    pub k: f64,
    /// The point of `b0`.
    pub base: Point,
    /// Its bandwidth in MiB/s.
    pub b0: f64,
    /// Largest bandwidth measured, in MiB/s.
    pub peak: f64,
    /// All points but the base.
    pub points: Vec<Predicted>,
}

impl Model {
    /// Fits the model to the results of a test; `None` if there are too few of them.
    pub fn fit(outcome: &Outcome, test: Test) -> Option<Model> {
        let rates: Vec<_> = outcome.rates.iter().filter(|r| r.point.test == test && r.point.size > 0).collect();
        let mut delays: Vec<f64> = rates.iter().map(|r| r.point.delay).collect();
        delays.sort_by(f64::total_cmp);
        delays.dedup();
        let middle = *delays.get((delays.len().max(1) - 1) / 2)?;
        let at_middle = rates.iter().filter(|r| r.point.delay == middle);
        let base = at_middle.min_by_key(|r| (r.point.size, r.point.in_flight))?.point;
        let (b0, l0) = (outcome.bandwidth(base)?, outcome.round_trip(base.delay)?);
        let peak = rates.iter().map(|r| r.bandwidth()[0]).fold(0.0, f64::max);
        let most = rates.iter().map(|r| r.rate()).fold(0.0, f64::max);
        let law = Law { k: 1.0, base, round_trip: l0, b0, peak, most };
        // Point, measured bandwidth and round trip.
        let others: Vec<(Point, f64, f64)> = rates
            .iter()
            .filter(|r| r.point != base)
            .filter_map(|r| Some((r.point, r.bandwidth()[0], outcome.round_trip(r.point.delay)?)))
            .collect();
        let is_free = |point, measured, trip| law.regime(point, trip, measured) == Regime::Unthrottled;
        let free = others.iter().filter(|(point, measured, trip)| is_free(*point, *measured, *trip));
        let ratios: Vec<f64> = free.map(|(point, measured, trip)| law.ideal(*point, *trip) / measured).collect();
        let k = if ratios.is_empty() { 1.0 } else { median(&ratios) };
        let law = Law { k, ..law };
        let points = others.into_iter().map(|(point, measured, trip)| {
            let (predicted, regime) = (law.predict(point, trip), law.regime(point, trip, measured));
            Predicted { point, measured, predicted, regime }
        });
        Some(Model { k, base, b0, peak, points: points.collect() })
    }

    /// Returns the errors of the unthrottled points: median and maximum.
    pub fn errors(&self) -> Option<(f64, f64)> {
        let free = self.points.iter().filter(|p| p.regime == Regime::Unthrottled);
        let errors: Vec<f64> = free.map(Predicted::error).collect();
        let most = errors.iter().copied().reduce(f64::max)?;
        Some((median(&errors), most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::outcome::Rates;

    /// Results of a network with the peak 10,000 MiB/s, in which data beyond the first 4 KiB counts
    /// half.
    fn outcome() -> Outcome {
        let mut outcome = Outcome { round_trips: vec![(0.72, 0.8), (2.17, 2.2), (4.14, 4.2)], ..Outcome::default() };
        for (delay, round_trip) in outcome.round_trips.clone() {
            for size in [4096, 131_072, 1 << 20] {
                for in_flight in [1, 8, 64] {
                    let k = if size == 4096 { 1.0 } else { 2.0 };
                    let free = size as f64 * in_flight as f64 / k / (round_trip / 1e3) / MIB;
                    let point = Point { test: Test::Write, delay, size, in_flight };
                    outcome.rates.push(Rates { point, requests: vec![free.min(10_000.0) * MIB / size as f64] });
                }
            }
        }
        outcome
    }

    #[test]
    fn model_fits_what_it_describes() {
        let model = Model::fit(&outcome(), Test::Write).unwrap();
        assert_eq!((model.base.delay, model.base.size, model.base.in_flight), (2.17, 4096, 1));
        assert!((1.0..=2.0).contains(&model.k), "{}", model.k);
        let of = |delay, size, in_flight| {
            let point = Point { test: Test::Write, delay, size, in_flight };
            model.points.iter().find(|p| p.point == point).copied().unwrap()
        };
        assert_eq!(of(0.72, 1 << 20, 64).regime, Regime::Saturated);
        assert_eq!(of(4.14, 4096, 8).regime, Regime::Unthrottled);
        assert_eq!(of(0.72, 1 << 20, 8).regime, Regime::Throttled);
        assert!(model.points.iter().all(|p| p.predicted <= model.peak));
        let (middle, most) = model.errors().unwrap();
        assert!(middle <= 0.01 && most <= 1.01, "{middle} {most}");
    }

    #[test]
    fn law_is_proportional_to_the_data_in_flight_up_to_the_peak() {
        let point = |size, in_flight| Point { test: Test::Write, delay: 2.0, size, in_flight };
        let base = point(4096, 1);
        let law = Law { k: 2.0, base, round_trip: 2.0, b0: 2.0, peak: 1000.0, most: 1e6 };
        assert_eq!((in_flight(point(8192, 4)), law.capacity(2.0)), (32_768.0, 2.0 * MIB));
        assert_eq!((law.ideal(base, 2.0), law.ideal(point(8192, 4), 4.0)), (2.0, 8.0));
        assert_eq!((law.predict(point(8192, 4), 4.0), law.predict(point(1 << 20, 64), 4.0)), (4.0, 1000.0));
        let regime = |point| law.regime(point, 2.0, law.predict(point, 2.0));
        assert_eq!(regime(point(65_536, 3)), Regime::Unthrottled, "96 MiB/s by equation 3");
        assert_eq!(regime(point(65_536, 8)), Regime::Throttled);
        assert_eq!(regime(point(1 << 20, 8)), Regime::Saturated);
    }

    #[test]
    fn model_needs_a_round_trip() {
        assert_eq!(Model::fit(&Outcome::default(), Test::Write), None);
        assert_eq!(Model::fit(&Outcome { round_trips: Vec::new(), ..outcome() }, Test::Write), None);
    }
}
