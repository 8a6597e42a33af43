//! The job and the model of an advice, checked.

use std::{io, path::Path};

use sheen_layout::PROGRESSIVE_ON_MDT;

use crate::{
    advise::{
        args::AdviseArgs,
        observed::{self, Observed},
        watch::watch,
    },
    ior,
    output::Outputs,
    predict::{
        costs::Costs,
        load::{Direction, Workload},
        presets::{PRESETS, Preset, preset},
        store::Store,
        system::System,
    },
    stats::counted,
};

const NO_READS: &str = "the model was calibrated with one node, without reads; calibrate it with more --nodes";

/// The model of an advice.
pub struct Basis {
    /// Name of the system.
    pub name: String,
    /// Number of OSTs.
    pub osts: u32,
    /// Costs of the job's accesses.
    pub costs: Vec<(Direction, Costs)>,
    /// Accesses of the job that the model does not know: the advice leaves them out.
    pub left_out: Vec<Direction>,
    /// The file system, unless it is a published one.
    pub system: Option<System>,
    /// The published system.
    pub published: Option<&'static Preset>,
}

impl Basis {
    /// Leaves out the costs of accesses that a job does not have, and notes which of the job's
    /// accesses have no costs.
    ///
    /// # Errors
    /// A message for the user: none are left.
    pub fn only(mut self, directions: &[Direction]) -> Result<Basis, String> {
        self.costs.retain(|(direction, _)| directions.contains(direction));
        let is_known = |wanted: &Direction| self.costs.iter().any(|(direction, _)| direction == wanted);
        self.left_out = directions.iter().copied().filter(|direction| !is_known(direction)).collect();
        if self.costs.is_empty() { Err(NO_READS.into()) } else { Ok(self) }
    }

    /// Returns a warning for the user if accesses of the job are left out. These are reads, for
    /// each model knows writes.
    pub fn warning(&self) -> Option<String> {
        (!self.left_out.is_empty()).then(|| format!("the advice leaves out the job's reads: {NO_READS}"))
    }
}

/// The job of an advice.
pub struct Job {
    /// Its accesses.
    pub workload: Workload,
    /// Their kinds.
    pub directions: Vec<Direction>,
    /// Whether it is about small files.
    pub are_small: bool,
    /// The observation in words; `None`: options describe the job.
    pub observed: Option<String>,
    /// A warning about the observation.
    pub warning: Option<String>,
}

/// Finds the job: that which options describe, or the observed one. Runs it first if the user wants
/// to watch it. Also opens the files for the results: before that run, so that a mistyped name is
/// an error before anything runs.
///
/// # Errors
/// A message for the user.
pub fn job(args: &AdviseArgs) -> Result<(Job, Outputs), String> {
    if args.describe_a_job() {
        let job = described(args)?;
        return Ok((job, Outputs::open(&args.output)?));
    }
    let outputs = Outputs::open(&args.output)?;
    watch(args)?;
    let found = observed::job(&args.path, &args.observed, &args.directions())?;
    let Observed { workload, directions, are_small, text, warning } = found;
    Ok((Job { workload, directions, are_small, observed: Some(text), warning }, outputs))
}

/// Returns the job that options describe.
fn described(args: &AdviseArgs) -> Result<Job, String> {
    if !args.watch.is_empty() || !args.observed.is_empty() {
        return Err("--watch and --observed: leave out the options that describe a job".into());
    }
    let workload = workload(args)?;
    let of_file = if workload.files { 1 } else { u64::from(workload.tasks) };
    let are_small = workload.size.saturating_mul(of_file) <= PROGRESSIVE_ON_MDT;
    Ok(Job { workload, directions: args.directions(), are_small, observed: None, warning: None })
}

/// Checks the description of the job.
fn workload(args: &AdviseArgs) -> Result<Workload, String> {
    let (tasks, transfer, segments) =
        (args.tasks.unwrap_or(1), args.transfer.unwrap_or(1 << 20), args.segments.unwrap_or(1));
    let (block, nodes) = (args.block.unwrap_or(transfer), args.nodes.unwrap_or(tasks));
    if transfer == 0 || block == 0 || segments == 0 {
        return Err("-t, -b and -s: at least 1".into());
    }
    if !block.is_multiple_of(transfer) {
        return Err(format!("-b {block}: not a multiple of the transfer size {transfer}"));
    }
    if nodes > tasks {
        return Err(format!("--nodes: {nodes} nodes are more than {tasks} tasks"));
    }
    let size = block.checked_mul(segments);
    let size = size.filter(|size| size.checked_mul(tasks.into()).is_some_and(|all| all <= i64::MAX as u64));
    let size = size.ok_or("the file would be larger than 8 EiB: choose smaller -b or -s")?;
    Ok(Workload { tasks, nodes, transfer, block, size, files: args.files })
}

/// Finds the model: that of the file system, or of a published one.
///
/// # Errors
/// A message for the user.
pub fn basis(args: &AdviseArgs) -> Result<Basis, String> {
    let directions = args.directions().into_iter();
    if let Some(name) = &args.system {
        let known: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        let found = preset(name).ok_or_else(|| format!("--system {name}: expected {}", known.join(", ")))?;
        let of = |direction| if direction == Direction::Write { found.write } else { found.read };
        let costs = directions.map(|direction| (direction, of(direction))).collect();
        let osts = counted(args.osts, "OST");
        return Ok(Basis {
            name: format!("{} ({osts})", found.what),
            osts: args.osts,
            costs,
            left_out: Vec::new(),
            system: None,
            published: Some(found),
        });
    }
    let text = |e: io::Error| e.to_string();
    let system = System::of(&args.path).map_err(text)?;
    let store = Store::of_user().ok_or("no directory for models: set SHEEN_LAB_DIR or HOME")?;
    let model = system.model(&store).map_err(text)?.ok_or_else(|| {
        let dir = dir_at(&args.path);
        format!("no model of this file system: run `sheen lab model --calibrate {}` first", dir.display())
    })?;
    let costs: Vec<_> =
        directions.filter_map(|direction| model.costs(direction).map(|costs| (direction, *costs))).collect();
    if costs.is_empty() {
        return Err(NO_READS.into());
    }
    let name = format!("{} ({})", system.key.fsname, counted(system.osts, "OST"));
    Ok(Basis { name, osts: system.osts, costs, left_out: Vec::new(), system: Some(system), published: None })
}

/// Returns the directory of a file, or the directory itself.
pub fn dir_at(path: &Path) -> &Path {
    if path.is_file() { ior::dir_of(path) } else { path }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use clap::Parser;

    use super::*;

    fn workload_of(line: &str) -> Result<Workload, String> {
        workload(&AdviseArgs::try_parse_from(["advise"].into_iter().chain(line.split_whitespace())).unwrap())
    }

    #[test]
    fn job_is_described_as_for_ior() {
        let all = workload_of("-N 8 --nodes 2 -t 1m -b 4m -s 3").unwrap();
        assert_eq!((all.tasks, all.nodes, all.transfer, all.block, all.size), (8, 2, 1 << 20, 4 << 20, 12 << 20));
        assert_eq!(workload_of("-N 8 -t 64k").unwrap().block, 64 << 10);
        for (line, message) in [
            ("-t 3 -b 8", "not a multiple"),
            ("-t 0", "at least 1"),
            ("-N 2 --nodes 3", "3 nodes are more than 2 tasks"),
            ("-t 1t -s 8191t", "larger than 8 EiB"),
        ] {
            let refused = workload_of(line).unwrap_err();
            assert!(refused.contains(message), "{line}: {refused}");
        }
    }

    #[test]
    fn watched_job_does_not_begin_without_files_for_its_results() {
        let dir = tempfile::tempdir().unwrap();
        let (json, ran) = (dir.path().join("missing/json"), dir.path().join("ran"));
        let words = ["advise", "--json"].map(OsStr::new).into_iter().chain([json.as_os_str()]);
        let words = words.chain(["--watch", "touch"].map(OsStr::new)).chain([ran.as_os_str()]);
        let args = AdviseArgs::try_parse_from(words).unwrap();
        let refused = job(&args).map(drop).unwrap_err();
        assert!(refused.starts_with("cannot write ") && !ran.exists(), "{refused}");
    }

    #[test]
    fn reads_without_costs_are_left_out_with_a_warning() {
        let of = |directions: &[Direction]| {
            let costs = vec![(Direction::Write, Costs::TYPICAL)];
            let (name, left_out) = (String::new(), Vec::new());
            Basis { name, osts: 1, costs, left_out, system: None, published: None }.only(directions)
        };
        let both = of(&Direction::ALL).unwrap();
        assert_eq!(both.left_out, [Direction::Read]);
        assert!(both.warning().is_some_and(|text| text.contains("leaves out the job's reads")));
        assert_eq!(of(&[Direction::Write]).unwrap().warning(), None);
        assert!(of(&[Direction::Read]).is_err());
    }
}
