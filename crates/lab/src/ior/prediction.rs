//! The prediction of a run by the model of its file system, or of the pool of its files.
//!
//! A run is predicted if the model covers it: data that reaches the servers (writes with `-e`,
//! reads of what another node has written), whole phases, contiguous blocks, one host.
//!
//! Invariants:
//! * Files of a pool are predicted by the model of this pool alone.
//! * A user without any model of the file system sees nothing of predictions.

use std::{collections::BTreeSet, path::PathBuf};

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
        shape::JobLayout,
        store::{Model, Run, Store},
        system::{System, calibration, is_modelled},
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

/// The predictions of a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Predictions {
    /// The predicted phases.
    pub compared: Vec<Compared>,
    /// Why the run is not predicted although it could be, and the command that changes that.
    pub missing: Option<String>,
    /// Why a prediction was not stored.
    pub not_stored: Option<String>,
}

/// The models of the file system of a run, and of its pools.
#[derive(Debug)]
pub struct Models {
    store: Store,
    /// A directory of the file system: the nearest one to the run's files.
    dir: PathBuf,
}

/// Returns the models of the file system of a run. `None`: there are none, or they do not cover the
/// run.
pub fn models(plan: &Plan) -> Option<Models> {
    let covered = launch::hosts() == 1
        && plan.random_offset.is_none()
        && !(plan.direct || plan.fsync_per_write)
        && plan.deadline == 0
        && plan.iterations == 0
        && plan.min_seconds == 0;
    let store = Store::of_user().filter(|_| covered)?;
    let path = plan.path(0, 0, 0);
    let dir = dir_of(&path).ancestors().find(|dir| dir.exists())?;
    is_modelled(dir, &store).then(|| Models { store, dir: dir.to_owned() })
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

/// Returns the phases of a run that a model can predict, each with the rates of its repetitions.
fn covered(plan: &Plan, outcome: &Outcome) -> Vec<(Direction, Vec<f64>)> {
    let from_others = reads_from_others(plan);
    let phases = [(Direction::Write, Access::Write, plan.fsync), (Direction::Read, Access::Read, from_others)];
    let phases = phases.into_iter().filter(|(.., covered)| *covered);
    let rates = |access| outcome.of(access).map(Phase::bandwidth).collect::<Vec<f64>>();
    let rated = phases.map(|(direction, access, _)| (direction, rates(access)));
    rated.filter(|(_, rates)| !rates.is_empty()).collect()
}

impl Models {
    /// Compares a run with its prediction, and stores both.
    pub fn compare(&self, plan: &Plan, outcome: &Outcome, began: Moment) -> Predictions {
        let mut predictions = Predictions::default();
        let phases = covered(plan, outcome);
        // A layout that is not known, or is on the MDT, has no prediction.
        let Some(JobLayout { shape, pools }) = outcome.layout.as_ref().filter(|_| !phases.is_empty()) else {
            return predictions;
        };
        let model = match self.of_pools(pools) {
            Ok(model) => model,
            Err(reason) => return Predictions { missing: Some(reason), ..predictions },
        };
        let workload = workload(plan);
        let load = Load::of(&workload, shape, model.osts);
        for (direction, rates) in phases {
            let Some(costs) = model.costs(direction) else { continue };
            let (predicted, measured) = (costs.predict(&load), median(&rates));
            let run = Run::new(&model, &began.iso(), direction, (workload, *shape), predicted, measured);
            if let Err(e) = self.store.add(&run) {
                predictions.not_stored = Some(e.to_string());
            }
            let error = fit::error(predicted.rate, measured);
            predictions.compared.push(Compared { direction, predicted, measured, error });
        }
        predictions
    }

    /// Returns the model of the pool of a job's files; that of the file system if they are in none.
    ///
    /// # Errors
    /// There is no such model, or the files are in several pools. A text for the user.
    fn of_pools(&self, pools: &BTreeSet<Option<String>>) -> Result<Model, String> {
        let pool = match pools.first() {
            Some(pool) if pools.len() == 1 => pool.as_deref(),
            _ => return Err("the files are in different pools".into()),
        };
        let system = System::in_pool(&self.dir, pool).map_err(|e| e.to_string())?;
        let model = system.model(&self.store).map_err(|e| e.to_string())?;
        model.ok_or_else(|| {
            let calibrate = calibration(&self.dir, pool);
            format!("there is no model of {} with its present OSTs: run `{calibrate}`", system.name())
        })
    }
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
