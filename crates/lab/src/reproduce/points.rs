//! The stated rates. A range is stated as its bounds, a single value as a range of its own.

use crate::predict::{
    load::{
        Direction::{self, Read, Write},
        Load, Workload,
    },
    presets::{GB, Preset, preset},
    shape::Shape,
};

const MIB: u64 = 1 << 20;
/// Stripes of an OST that the paper on overstriping tried besides one.
const OVERSTRIPED: [u32; 5] = [2, 4, 8, 16, 32];

/// Unit of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// GB/s.
    Gb,
    /// MiB/s.
    Mib,
    /// One rate divided by another.
    Ratio,
}

impl Unit {
    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Gb => "GB/s",
            Unit::Mib => "MiB/s",
            Unit::Ratio => "×",
        }
    }
}

/// A stated value.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Name of the system.
    pub system: &'static str,
    /// Figure or section.
    pub place: &'static str,
    /// Description of the value.
    pub what: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Lowest and highest stated value.
    pub stated: [f64; 2],
    value: Value,
    /// The effect that the model lacks, if it is far off.
    pub lacks: &'static str,
}

/// The value of a model, in MiB/s or as a ratio.
#[derive(Clone, Copy, Debug)]
enum Value {
    /// A rate.
    Rate(Job),
    /// The best rate of [`OVERSTRIPED`].
    Best(Job),
    /// That, divided by the rate with one stripe.
    Gain(Job),
    /// The first rate divided by the second.
    Ratio(Job, Job),
}

/// A job on a system.
#[derive(Clone, Copy, Debug)]
struct Job {
    direction: Direction,
    nodes: u32,
    record: u64,
    /// Whether nodes write records in turn, or each a contiguous part.
    in_turn: bool,
    stripes: u32,
    osts: u32,
}

const fn in_turn(nodes: u32, record_mib: u64, stripes: u32) -> Job {
    Job { direction: Write, nodes, record: record_mib * MIB, in_turn: true, stripes, osts: 1 }
}

const fn apart(direction: Direction, nodes: u32, stripes: u32, osts: u32) -> Job {
    Job { direction, nodes, record: 4 * MIB, in_turn: false, stripes, osts }
}

const fn point(
    system: &'static str,
    place: &'static str,
    what: &'static str,
    unit: Unit,
    stated: [f64; 2],
    value: Value,
) -> Point {
    Point { system, place, what, unit, stated, value, lacks: "" }
}

use Unit::{Gb, Mib, Ratio};
use Value::{Best, Gain, Rate, Ratio as Divided};

/// All stated values. The figures themselves are drawings without numbers.
pub const POINTS: [Point; 22] = [
    point("flash", "Fig. 6", "write of one object", Gb, [6.8, 7.1], Rate(apart(Write, 48, 1, 1))),
    point("flash", "Fig. 6", "write of several objects", Gb, [11.2, 11.7], Rate(apart(Write, 48, 4, 1))),
    point("flash", "Fig. 7", "read of one object", Gb, [7.1, 7.5], Rate(apart(Read, 48, 1, 1))),
    point("flash", "Fig. 7", "read of several objects", Gb, [11.2, 11.7], Rate(apart(Read, 48, 4, 1))),
    point(
        "flash",
        "III.B",
        "one object, of the OST's rate",
        Ratio,
        [0.6, 0.6],
        Divided(apart(Write, 48, 1, 1), apart(Write, 48, 4, 1)),
    ),
    point("flash", "I.A", "write of one client", Gb, [3.0, 5.0], Rate(apart(Write, 1, 1, 1))),
    point("flash", "Fig. 13", "1 MiB in turn, 48 nodes, one stripe", Gb, [3.0, 3.0], Rate(in_turn(48, 1, 1))),
    point("flash", "Fig. 13", "16 MiB in turn, 48 nodes, one stripe", Gb, [6.0, 6.0], Rate(in_turn(48, 16, 1))),
    point("flash", "Fig. 13", "1 MiB in turn, 48 nodes, best", Gb, [11.1, 11.4], Best(in_turn(48, 1, 1))),
    point("flash", "Fig. 13", "16 MiB in turn, 48 nodes, best", Gb, [11.1, 11.4], Best(in_turn(48, 16, 1))),
    point("flash", "Fig. 14", "read, 48 nodes, one stripe", Gb, [7.1, 7.5], Rate(apart(Read, 48, 1, 1))),
    point("flash", "Fig. 14", "read, 48 nodes, more stripes", Gb, [11.7, 11.7], Rate(apart(Read, 48, 2, 1))),
    Point {
        lacks: "locks cost more with more nodes",
        ..point(
            "flash",
            "Fig. 15",
            "1 MiB, one stripe: 48 nodes to 32",
            Ratio,
            [0.6, 0.6],
            Divided(in_turn(48, 1, 1), in_turn(32, 1, 1)),
        )
    },
    point("flash", "Fig. 15", "1 MiB in turn, gain by stripes", Ratio, [2.0, 4.0], Gain(in_turn(48, 1, 1))),
    point("l300n", "Fig. 9", "1 MiB in turn, gain by stripes", Ratio, [2.0, 6.0], Gain(in_turn(8, 1, 1))),
    point("l300n", "Fig. 10", "16 MiB in turn, gain by stripes", Ratio, [2.0, 6.0], Gain(in_turn(8, 16, 1))),
    point("l300n", "Fig. 17", "4 MiB in turn, best", Gb, [6.0, 6.0], Best(in_turn(16, 4, 1))),
    point("l300n", "Fig. 17", "16 MiB in turn, best", Gb, [6.0, 6.0], Best(in_turn(16, 16, 1))),
    Point {
        lacks: "small records cost an OST more than large ones",
        ..point("l300n", "Fig. 17", "1 MiB in turn, gain by stripes", Ratio, [5.0, 5.0], Gain(in_turn(16, 1, 1)))
    },
    point("stallo", "Serial IO", "one process, one OST", Mib, [25.0, 25.0], Rate(apart(Write, 1, 1, 32))),
    point("stallo", "Serial IO", "one process, 8 OSTs", Mib, [190.0, 200.0], Rate(apart(Write, 1, 8, 32))),
    point("stallo", "Serial IO", "one process, 32 OSTs", Mib, [428.0, 428.0], Rate(apart(Write, 1, 32, 32))),
];

impl Job {
    /// Returns the rate in MiB/s.
    fn rate(self, system: &Preset) -> f64 {
        let size = 1024 * MIB;
        let block = if self.in_turn { self.record } else { size };
        let tasks = self.nodes;
        let workload = Workload { tasks, nodes: self.nodes, transfer: self.record, block, size, files: false };
        // The paper's stripes are as large as its records.
        let stripe_size = if self.in_turn { self.record } else { MIB };
        let shape = Shape { stripes: self.stripes, osts: self.stripes.min(self.osts), stripe_size, all_osts: None };
        let costs = if self.direction == Write { &system.write } else { &system.read };
        costs.predict(&Load::of(&workload, &shape, self.osts)).rate
    }

    fn best(self, system: &Preset) -> f64 {
        OVERSTRIPED.iter().map(|&stripes| Job { stripes, ..self }.rate(system)).fold(0.0, f64::max)
    }
}

impl Point {
    /// Returns the value of the model, in the unit of the point. `None`: there is no such system.
    pub fn predicted(&self) -> Option<f64> {
        let system = preset(self.system)?;
        let value = match self.value {
            Rate(job) => job.rate(system),
            Best(job) => job.best(system),
            Gain(job) => job.best(system) / job.rate(system),
            Divided(above, below) => above.rate(system) / below.rate(system),
        };
        Some(if self.unit == Gb { value / GB } else { value })
    }

    /// Returns the error of the model: 0.1 is 10 %. 0 within a stated range.
    pub fn error(&self, predicted: f64) -> f64 {
        let [low, high] = self.stated;
        let nearest = predicted.clamp(low, high);
        (predicted / nearest - 1.0).abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::fit::Errors;

    #[test]
    fn models_agree_with_the_stated_values() {
        let errors: Vec<f64> = POINTS.iter().map(|point| point.error(point.predicted().unwrap())).collect();
        let all = Errors::of(&errors).unwrap();
        assert!(all.median <= 0.2, "{all:?}");
        for (point, error) in POINTS.iter().zip(&errors) {
            assert!(*error <= 0.2 || !point.lacks.is_empty(), "{} {}: {error}", point.place, point.what);
        }
    }
}
