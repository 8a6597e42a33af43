//! All stated values: here those of the systems of which the texts state rates of jobs, and of
//! BLAST. The costs of these models were chosen by these values.

use crate::{
    predict::{
        load::{
            Direction::{self, Read, Write},
            Load, Workload,
        },
        presets::{GB, Preset, preset},
        shape::Shape,
    },
    reproduce::{
        blast, dresden, es400,
        point::{Basis, LESS, MORE, Point, Unit},
    },
};

const MIB: u64 = 1 << 20;
/// Stripes of an OST that the paper on overstriping tried besides one.
const OVERSTRIPED: [u32; 5] = [2, 4, 8, 16, 32];

/// A stated value of a system with a preset, or of BLAST.
#[derive(Clone, Copy, Debug)]
struct Stated {
    system: &'static str,
    place: &'static str,
    what: &'static str,
    unit: Unit,
    stated: [f64; 2],
    value: Value,
    lacks: &'static str,
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
    /// The speedup of an experiment with BLAST.
    Speedup(&'static str),
    /// The least ratio of the time of one striping of Fig. 11 to that of another one.
    Least(&'static str, &'static str),
    /// The greatest ratio, likewise.
    Most(&'static str, &'static str),
}

/// Bounds of the speedups of the static experiments in Fig. 9, without two that the text excepts.
const SPEEDUPS: [f64; 2] = [1.22, 1.26];

/// A job on a system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// Writes or reads.
    pub direction: Direction,
    /// Nodes with a task each.
    pub nodes: u32,
    /// Bytes of a record.
    pub record: u64,
    /// Whether nodes write records in turn, or each a contiguous part.
    pub in_turn: bool,
    /// Stripes of the file.
    pub stripes: u32,
    /// OSTs of the file system.
    pub osts: u32,
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
) -> Stated {
    Stated { system, place, what, unit, stated, value, lacks: "" }
}

use Unit::{Gb, Mib, Ratio};
use Value::{Best, Gain, Least, Most, Rate, Ratio as Divided, Speedup};

/// The values of these systems. The figures themselves are drawings without numbers.
const STATED: [Stated; 33] = [
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
    Stated {
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
    Stated {
        lacks: "small records cost an OST more than large ones",
        ..point("l300n", "Fig. 17", "1 MiB in turn, gain by stripes", Ratio, [5.0, 5.0], Gain(in_turn(16, 1, 1)))
    },
    point("stallo", "Serial IO", "one process, one OST", Mib, [25.0, 25.0], Rate(apart(Write, 1, 1, 32))),
    point("stallo", "Serial IO", "one process, 8 OSTs", Mib, [190.0, 200.0], Rate(apart(Write, 1, 8, 32))),
    point("stallo", "Serial IO", "one process, 32 OSTs", Mib, [428.0, 428.0], Rate(apart(Write, 1, 32, 32))),
    point("titan", "Fig. 9", "speedup, 16 stripes of 1 MiB", Ratio, SPEEDUPS, Speedup("blast.2")),
    point("titan", "Fig. 9", "speedup, 64 stripes of 1 MiB", Ratio, SPEEDUPS, Speedup("blast.3")),
    point("titan", "Fig. 9", "speedup, 4 stripes of 2 MiB", Ratio, SPEEDUPS, Speedup("blast.4")),
    point("titan", "Fig. 9", "speedup, 16 stripes of 2 MiB", Ratio, SPEEDUPS, Speedup("blast.5")),
    point("titan", "Fig. 9", "speedup, 16 stripes of 4 MiB", Ratio, SPEEDUPS, Speedup("blast.8")),
    point("titan", "Fig. 9", "speedup, 64 stripes of 4 MiB", Ratio, SPEEDUPS, Speedup("blast.9")),
    point("titan", "Fig. 10", "speedup, 4 stripes, wider at marks", Ratio, [1.26, 1.26], Speedup("blast.10")),
    point("titan", "Fig. 10", "speedup, 64 stripes, wider at marks", Ratio, [1.22, 1.22], Speedup("blast.12")),
    point("titan", "Fig. 11", "64 OSTs, time of 16 OSTs", Ratio, MORE, Least("64 OSTs", "16 OSTs")),
    point("titan", "Fig. 11", "128 OSTs, time of 64 OSTs", Ratio, MORE, Least("128 OSTs", "64 OSTs")),
    point("titan", "Fig. 11", "dynamic, time of 128 OSTs", Ratio, LESS, Most("dynamic", "128 OSTs")),
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
}

impl Value {
    /// Computes the value from rates of jobs in MiB/s. `None`: it is no value of jobs, or `rate`
    /// has none.
    fn of(self, rate: &mut dyn FnMut(Job) -> Option<f64>) -> Option<f64> {
        let best = |job: Job, rate: &mut dyn FnMut(Job) -> Option<f64>| {
            let rates: Option<Vec<f64>> = OVERSTRIPED.iter().map(|&stripes| rate(Job { stripes, ..job })).collect();
            rates?.into_iter().reduce(f64::max)
        };
        match self {
            Rate(job) => rate(job),
            Best(job) => best(job, rate),
            Gain(job) => Some(best(job, rate)? / rate(job)?),
            Divided(above, below) => Some(rate(above)? / rate(below)?),
            Speedup(_) | Least(..) | Most(..) => None,
        }
    }
}

impl Stated {
    /// Returns the point. `None`: there is no such system.
    fn point(&self) -> Option<Point> {
        let value = match self.value {
            Rate(_) | Best(_) | Gain(_) | Divided(..) => {
                let system = preset(self.system)?;
                self.value.of(&mut |job| Some(job.rate(system)))?
            }
            Speedup(name) => blast::speedup(name)?,
            Least(name, base) => blast::ratios(name, base).into_iter().reduce(f64::min)?,
            Most(name, base) => blast::ratios(name, base).into_iter().reduce(f64::max)?,
        };
        let Stated { system, place, what, unit, stated, lacks, .. } = *self;
        let predicted = in_unit(value, unit);
        Some(Point { system, place, what, unit, stated, predicted, basis: Basis::Calibrated, lacks })
    }
}

/// Returns a rate in MiB/s in another unit. A ratio remains.
fn in_unit(value: f64, unit: Unit) -> f64 {
    if unit == Gb { value / GB } else { value }
}

/// Computes the stated values of a system by rates of simulated jobs in MiB/s: place, description,
/// value. `rate` gets each job once.
///
/// # Errors
/// Those of `rate`.
pub fn simulated<E>(
    system: &str,
    mut rate: impl FnMut(&Job) -> Result<f64, E>,
) -> Result<Vec<(&'static str, &'static str, f64)>, E> {
    let (mut known, mut failed) = (Vec::<(Job, f64)>::new(), None);
    let mut values = Vec::new();
    for stated in STATED.iter().filter(|stated| stated.system == system) {
        let value = stated.value.of(&mut |job| match known.iter().find(|(other, _)| *other == job) {
            Some((_, rate)) => Some(*rate),
            None => match rate(&job) {
                Ok(rate) => {
                    known.push((job, rate));
                    Some(rate)
                }
                Err(e) => {
                    failed = Some(e);
                    None
                }
            },
        });
        if let Some(e) = failed {
            return Err(e);
        }
        values.extend(value.map(|value| (stated.place, stated.what, in_unit(value, stated.unit))));
    }
    Ok(values)
}

/// Returns the stated values of all systems.
pub fn points() -> Vec<Point> {
    let of_presets = STATED.iter().filter_map(Stated::point);
    of_presets.chain(es400::points()).chain(dresden::points()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::fit::Errors;

    #[test]
    fn models_agree_with_the_stated_values() {
        let (mut errors, mut predicted) = (Vec::new(), Vec::new());
        let (points, mut statements) = (points(), 0);
        for point in &points {
            let name = format!("{} {} {}: {}", point.system, point.place, point.what, point.predicted);
            let Some(error) = point.error() else {
                assert_eq!(point.holds(), Some(true), "{name}");
                statements += 1;
                continue;
            };
            assert!(error <= 0.2 || !point.lacks.is_empty(), "{name}: {error}");
            match point.basis {
                Basis::Calibrated => errors.push(error),
                Basis::Predicted => predicted.push(error),
                Basis::Formula => assert!(error < 0.03, "{name}: {error}"),
            }
        }
        let of_presets = points.iter().filter(|point| ![es400::SYSTEM, dresden::SYSTEM].contains(&point.system));
        assert_eq!((of_presets.count(), statements), (STATED.len(), 6), "Fig. 11 of BLAST alone has three");
        assert!(Errors::of(&errors).unwrap().median <= 0.2, "{errors:?}");
        assert!(Errors::of(&predicted).unwrap().median <= 0.2, "{predicted:?}");
    }
}
