//! Measures all candidates of an advice.

use std::io;

use serde::Serialize;

use crate::{
    advise::{
        args::AdviseArgs,
        candidates::words,
        choice::Rated,
        plan::{Basis, dir_at},
    },
    machine,
    output::Outputs,
    predict::{
        load::{Direction, Workload},
        shape::Shape,
    },
    prober::{Job, Prober, check_space},
    session::Session,
};

/// Most bytes that a job of `--measure` moves in a run, if each task then has a transfer: the
/// pattern matters, not the amount.
const MEASURED_MAX: u64 = 256 << 20;
/// Most nodes of `--measure`: mounts of this host.
const NODES_MAX: u32 = 64;
/// Most tasks of `--measure`: processes.
const TASKS_MAX: u32 = 4096;

/// Measured seconds of a candidate.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Timed {
    /// The layout.
    pub shape: Shape,
    /// Seconds of the job.
    pub seconds: f64,
}

/// Checks that the candidates can be measured, if the user wants it.
///
/// # Errors
/// A message for the user.
pub fn check(args: &AdviseArgs, workload: &Workload, basis: &Basis) -> Result<(), String> {
    let Workload { tasks, nodes, .. } = *workload;
    let reads = basis.site.costs.iter().any(|(direction, _)| *direction == Direction::Read);
    match () {
        () if !args.measure => Ok(()),
        () if nodes > NODES_MAX => {
            Err(format!("--measure: {nodes} nodes are more than {NODES_MAX} mounts of this host"))
        }
        () if tasks > TASKS_MAX => Err(format!("--measure: {tasks} tasks are more than {TASKS_MAX}")),
        () if nodes == 1 && reads && args.describe_a_job() => {
            Err("--measure: one node reads from its cache; add --nodes, or -w".into())
        }
        () if nodes == 1 && reads => Err("--measure: one node reads from its cache; add -w".into()),
        () => Ok(()),
    }
}

/// Measures the candidates if the user wants it. Returns their seconds, the shortest first.
/// `outputs`: the files for the results, which are open.
///
/// # Errors
/// A message for the user. That of a run is in the second place, and ends the session.
pub fn measure(
    args: &AdviseArgs,
    workload: &Workload,
    basis: &Basis,
    all: &[Rated],
    outputs: Outputs,
) -> Result<(Session, io::Result<()>, Vec<Timed>), String> {
    let Some(system) = basis.system.as_ref().filter(|_| args.measure) else {
        return Ok((Session::with_outputs(0, &args.output, outputs), Ok(()), Vec::new()));
    };
    let workload = smaller(workload);
    machine::check_memory(workload.transfer.saturating_mul(workload.tasks.into()))?;
    let job = |rated: &Rated| Job { workload, layout: words(&rated.shape, &basis.common) };
    let jobs: Vec<Job> = all.iter().map(job).collect();
    let phases = jobs.len() * args.repetitions as usize * (1 + usize::from(workload.nodes > 1));
    let mut session = Session::with_outputs(phases, &args.output, outputs);
    let dir = dir_at(&args.path);
    check_space(dir, &jobs)?;
    let prober = Prober::new(dir, system, "advise", workload.nodes, args.repetitions).map_err(|e| e.to_string())?;
    let directions: Vec<Direction> = basis.site.costs.iter().map(|(direction, _)| *direction).collect();
    let mut timed = Vec::new();
    let result = prober.run(&jobs, &mut session, |number, measured| {
        let counted = measured.iter().filter(|m| directions.contains(&m.direction));
        let seconds = counted.map(|m| m.load(system.osts).mib / m.rate).sum();
        timed.push(Timed { shape: all[number].shape, seconds });
    });
    timed.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    Ok((session, result, timed))
}

/// Returns a job of the same pattern that moves less.
fn smaller(workload: &Workload) -> Workload {
    let Workload { tasks, transfer, block, size, .. } = *workload;
    let most = (MEASURED_MAX / u64::from(tasks)).max(transfer);
    if size <= most {
        return *workload;
    }
    let block = block.min(most / transfer * transfer);
    Workload { block, size: most / block * block, ..*workload }
}

/// Returns the part of the best rate that the chosen layout reaches.
pub fn reached(timed: &[Timed], chosen: &Shape) -> Option<f64> {
    let of_chosen = timed.iter().find(|timed| timed.shape == *chosen)?;
    Some(timed.first()?.seconds / of_chosen.seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MI: u64 = 1 << 20;

    fn job(tasks: u32, transfer: u64, block: u64, size: u64) -> Workload {
        Workload { tasks, nodes: tasks, transfer, block, size, files: false }
    }

    #[test]
    fn measured_job_has_the_same_pattern() {
        let less = smaller(&job(4, MI, MI, 100_000 * MI));
        assert_eq!((less.transfer, less.block, less.size), (MI, MI, 64 * MI));
        let blocks = smaller(&job(4, 3 * MI, 3072 * MI, 3072 * MI));
        assert_eq!((blocks.transfer, blocks.block, blocks.size), (3 * MI, 63 * MI, 63 * MI));
        assert_eq!(smaller(&job(512, MI, MI, 4 * MI)).size, MI);
    }

    #[test]
    fn reached_is_the_part_of_the_best_rate() {
        let timed = |stripes, seconds| Timed { shape: shape(stripes), seconds };
        assert_eq!(reached(&[timed(4, 1.0), timed(2, 1.25)], &shape(2)), Some(0.8));
        assert_eq!(reached(&[], &shape(2)), None);
    }

    fn shape(stripes: u32) -> Shape {
        Shape { stripes, osts: 1, stripe_size: MI, all_osts: None }
    }
}
