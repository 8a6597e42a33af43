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
        plan::{Plan, Reorder, dir_of},
        step::Access,
    },
    launch,
    predict::{
        costs::Prediction,
        fit,
        load::{Direction, Load, Workload},
        store::{Model, Run, Store},
        system::System,
    },
    stats::median,
};

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
    let store = Store::of_user()?;
    let covered = launch::hosts() == 1
        && plan.random_offset.is_none()
        && !(plan.direct || plan.fsync_per_write)
        && plan.deadline == 0
        && plan.iterations == 0
        && plan.min_seconds == 0;
    let path = plan.path(0, 0, 0);
    let system = System::of(dir_of(&path)).ok().filter(|_| covered)?;
    system.model(&store).ok().flatten().map(|model| (store, model))
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
    let from_others = plan.node_count() > 1 && plan.reorder != Reorder::None;
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
