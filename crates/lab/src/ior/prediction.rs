//! The prediction of a run by the model of its file system.
//!
//! A run is predicted if the model covers it: data that reaches the servers (writes with `-e`,
//! reads of what another node has written), whole phases, contiguous blocks, one host.

use std::io;

use serde::Serialize;

use crate::{
    clock::Moment,
    ior::{
        outcome::{Outcome, Phase},
        plan::{Plan, dir_of},
        step::Access,
    },
    launch,
    predict::{
        costs::Prediction,
        fit,
        load::{Direction, Load, Workload},
        store::{Model, Run, Store},
        system::model_at,
    },
    stats::median,
};

/// Repetitions whose ranks are looked at.
const REPETITIONS_MAX: u32 = 100;

/// A phase, predicted and measured.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Compared {
    /// Writes or reads.
    pub direction: Direction,
    /// The prediction.
    pub predicted: Prediction,
    /// MiB/s: the median of the repetitions.
    pub measured: f64,
    /// Error of the prediction: 0.1 is 10 %.
    pub error: f64,
}

/// Returns the model of the file system of a run; `None`: there is none, or it does not cover the
/// run.
pub fn model(plan: &Plan) -> Option<(Store, Model)> {
    let covered = launch::hosts() == 1
        && plan.random_offset.is_none()
        && !(plan.direct || plan.fsync_per_write)
        && plan.deadline == 0
        && plan.iterations == 0
        && plan.min_seconds == 0;
    let store = Store::of_user().filter(|_| covered)?;
    let path = plan.path(0, 0, 0);
    let dir = dir_of(&path).ancestors().find(|dir| dir.exists())?;
    model_at(dir, &store).map(|model| (store, model))
}

/// Whether each task reads what another node has written, and no node has read it before.
fn reads_from_others(plan: &Plan) -> bool {
    let nodes = plan.node_count();
    let node = |rank: u32| rank % nodes;
    let once = plan.write || plan.repetitions == 1;
    let others = |repetition| {
        let ranks = plan.read_ranks(repetition);
        (0..plan.tasks).zip(ranks).all(|(reader, writer)| node(reader) != node(writer))
    };
    // More repetitions tell nothing new.
    once && !plan.check_read && !plan.check_write && (0..plan.repetitions.min(REPETITIONS_MAX)).all(others)
}

/// Compares a run with its prediction, and stores both.
///
/// # Errors
/// They cannot be stored.
pub fn compare(
    plan: &Plan,
    outcome: &Outcome,
    began: Moment,
    (store, model): &(Store, Model),
) -> (Vec<Compared>, io::Result<()>) {
    let workload = workload(plan);
    let Some(shape) = outcome.shape else { return (Vec::new(), Ok(())) };
    let load = Load::of(&workload, &shape, model.osts);
    let from_others = reads_from_others(plan);
    let covered = [(Direction::Write, Access::Write, plan.fsync), (Direction::Read, Access::Read, from_others)];
    let (mut all, mut stored) = (Vec::new(), Ok(()));
    for (direction, access, covered) in covered {
        let rates: Vec<f64> = outcome.of(access).map(Phase::bandwidth).collect();
        let Some(costs) = model.costs(direction).filter(|_| covered && !rates.is_empty()) else { continue };
        let (predicted, measured) = (costs.predict(&load), median(&rates));
        let run = Run::new(model, &began.iso(), direction, (workload, shape), predicted, measured);
        stored = stored.and(store.add(&run));
        all.push(Compared { direction, predicted, measured, error: fit::error(predicted.rate, measured) });
    }
    (all, stored)
}

fn workload(plan: &Plan) -> Workload {
    Workload {
        tasks: plan.tasks,
        nodes: plan.node_count(),
        transfer: plan.transfer,
        block: plan.block,
        size: plan.block * plan.segments,
        files: plan.file_per_process,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::ior::args::IorArgs;

    #[test]
    fn only_reads_of_what_other_nodes_wrote_are_predicted() {
        let reads = |line: &str| {
            let words = ["ior"].into_iter().chain(line.split_whitespace());
            reads_from_others(&Plan::new(&IorArgs::try_parse_from(words).unwrap()).unwrap())
        };
        assert!(reads("-N 4 --mounts /a,/b -o f -w -r -C -i 3"));
        for cached in [
            "-N 4 -o f -w -r -C",
            "-N 4 --mounts /a,/b -o f -w -r",
            "-N 4 --mounts /a,/b -o f -w -r -C -Q 2",
            "-N 4 --mounts /a,/b -o f -r -C -i 2",
            "-N 4 --mounts /a,/b -o f -w -R -C",
        ] {
            assert!(!reads(cached), "{cached}");
        }
    }
}
