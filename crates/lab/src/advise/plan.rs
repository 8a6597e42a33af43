//! The job and the model of an advice, checked.

use std::{io, path::Path};

use sheen_layout::PROGRESSIVE_ON_MDT;

use crate::{
    advise::{
        args::AdviseArgs,
        candidates::Common,
        choice::Site,
        observed::{self, Observed},
        present,
        watch::watch,
    },
    ior,
    output::Outputs,
    predict::{
        load::{Direction, Workload},
        mirrors::Mirrors,
        presets::{PRESETS, Preset, preset},
        store::{Model, Store},
        system::{System, calibration},
    },
    stats::counted,
};

const NO_READS: &str = "the model was calibrated with one node, without reads; calibrate it with more --nodes";

/// The model of an advice.
pub struct Basis {
    /// Name of the system.
    pub name: String,
    /// Where the recommended layout is.
    pub site: Site,
    /// Where the present layout is.
    pub present: Site,
    /// Accesses of the job that the model does not know: the advice leaves them out.
    pub left_out: Vec<Direction>,
    /// The file system or pool, unless it is a published one.
    pub system: Option<System>,
    /// The published system.
    pub published: Option<&'static Preset>,
    /// Properties of all recommended layouts.
    pub common: Common,
    /// A property of the present layout that no recommended one has.
    pub lost: Option<&'static str>,
    /// A warning about the rates.
    pub warning: Option<String>,
}

impl Basis {
    /// Leaves out the costs of accesses that a job does not have, and notes which of the job's
    /// accesses have no costs. The mirrors that a job reads depend on whether it writes.
    ///
    /// # Errors
    /// A message for the user: none are left.
    pub fn only(mut self, directions: &[Direction]) -> Result<Basis, String> {
        let writes = directions.contains(&Direction::Write);
        for site in [&mut self.site, &mut self.present] {
            site.costs.retain(|(direction, _)| directions.contains(direction));
            if writes && !site.mirrors.resync {
                site.mirrors.fresh = 1;
            }
            site.mirrors.resync &= writes;
        }
        let costs = &self.site.costs;
        let is_known = |wanted: &Direction| costs.iter().any(|(direction, _)| direction == wanted);
        self.left_out = directions.iter().copied().filter(|direction| !is_known(direction)).collect();
        if self.site.costs.is_empty() { Err(NO_READS.into()) } else { Ok(self) }
    }

    /// Returns warnings for the user. The accesses that are left out are reads, for each model
    /// knows writes.
    pub fn warnings(&self) -> Vec<String> {
        let left_out =
            (!self.left_out.is_empty()).then(|| format!("the advice leaves out the job's reads: {NO_READS}"));
        left_out.into_iter().chain(self.warning.clone()).collect()
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
    let (block, nodes) = (args.block.unwrap_or(transfer), args.nodes_of(tasks));
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

/// Finds the model: that of the file system or pool, or of a published one.
///
/// # Errors
/// A message for the user.
pub fn basis(args: &AdviseArgs) -> Result<Basis, String> {
    match &args.system {
        Some(name) => of_published(args, name),
        None => of_file_system(args),
    }
}

fn of_published(args: &AdviseArgs, name: &str) -> Result<Basis, String> {
    let known: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
    let found = preset(name).ok_or_else(|| format!("--system {name}: expected {}", known.join(", ")))?;
    let of = |direction| if direction == Direction::Write { found.write } else { found.read };
    let costs = args.directions().into_iter().map(|direction| (direction, of(direction))).collect();
    let site = Site { osts: args.osts, costs, mirrors: Mirrors::ONE };
    Ok(Basis {
        name: format!("{} ({})", found.what, counted(args.osts, "OST")),
        present: site.clone(),
        site,
        left_out: Vec::new(),
        system: None,
        published: Some(found),
        common: Common::NONE,
        lost: None,
        warning: None,
    })
}

fn of_file_system(args: &AdviseArgs) -> Result<Basis, String> {
    // An error if the path is not on a mount of Sheen.
    System::of(&args.path).map_err(|e| e.to_string())?;
    let store = Store::of_user().ok_or("no directory for models: set SHEEN_LAB_DIR or HOME")?;
    let traits = present::traits(&args.path);
    let lost = traits.lost(args.pool.is_some());
    if let (Some(what), true) = (lost, args.apply) {
        let path = args.path.display();
        return Err(format!("--apply: {path} has {what}, which no recommended layout has: set a layout with lfs"));
    }
    if args.resync && traits.mirrors == 1 {
        return Err(format!("--resync: {} has no mirrors", args.path.display()));
    }
    let pool = args.pool.as_ref().or(traits.pool.as_ref());
    let found = Modelled::find(&args.path, pool.map(String::as_str), &store)?;
    let site = found.site(args, traits.mirrors, traits.mirrors)?;
    // A resync makes all of them up to date.
    let fresh = if args.resync { traits.mirrors } else { traits.fresh };
    let present = match pool == traits.pool.as_ref() {
        true => found.site(args, traits.mirrors, fresh)?,
        // Without a model of that pool, its OSTs have the rates of the recommended ones.
        false => {
            let own = Modelled::find(&args.path, traits.pool.as_deref(), &store);
            let other = own.and_then(|own| own.site(args, traits.mirrors, fresh));
            other.unwrap_or_else(|_| Site { mirrors: Mirrors { fresh, ..site.mirrors }, ..site.clone() })
        }
    };
    Ok(Basis {
        name: format!("{} ({})", found.system.name(), counted(found.system.osts, "OST")),
        site,
        present,
        left_out: Vec::new(),
        common: Common { mirrors: traits.mirrors, pool: pool.cloned() },
        lost,
        warning: found.warning(&args.path),
        system: Some(found.system),
        published: None,
    })
}

/// A file system or pool with its model.
struct Modelled {
    system: System,
    model: Model,
    /// Whether the model is that of all OSTs, although the system is a pool.
    is_of_all: bool,
}

impl Modelled {
    /// Finds the model of a pool, or else that of the whole file system.
    fn find(path: &Path, pool: Option<&str>, store: &Store) -> Result<Modelled, String> {
        let text = |e: io::Error| e.to_string();
        let system = System::in_pool(path, pool).map_err(text)?;
        if let Some(model) = system.model(store).map_err(text)? {
            return Ok(Modelled { system, model, is_of_all: false });
        }
        let of_all = match pool {
            Some(_) => System::of(path).and_then(|all| all.model(store)).map_err(text)?,
            None => None,
        };
        match of_all {
            Some(model) => Ok(Modelled { system, model, is_of_all: true }),
            None => Err(format!("no model of {}: run `{}` first", system.name(), calibration(dir_at(path), pool))),
        }
    }

    /// Returns the site of files with mirrors, of which `fresh` are up to date.
    fn site(&self, args: &AdviseArgs, mirrors: u16, fresh: u16) -> Result<Site, String> {
        let of = |direction| self.model.costs(direction).map(|costs| (direction, *costs));
        let costs: Vec<_> = args.directions().into_iter().filter_map(of).collect();
        if costs.is_empty() || (args.resync && self.model.read.is_none()) {
            return Err(NO_READS.into());
        }
        let copy = self.model.read.map(|read| (self.model.write, read));
        Ok(Site {
            osts: self.system.osts,
            costs,
            mirrors: Mirrors { count: mirrors, fresh, copy, resync: args.resync },
        })
    }

    /// Returns a warning if the rates are not those of the pool.
    fn warning(&self, path: &Path) -> Option<String> {
        let command = calibration(dir_at(path), self.system.key.pool.as_deref());
        let text = || format!("the rates are those of all OSTs: `{command}` measures those of the pool");
        self.is_of_all.then(text)
    }
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
    use crate::predict::costs::Costs;

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

    fn basis_with(costs: &[Direction], mirrors: Mirrors) -> Basis {
        let costs = costs.iter().map(|direction| (*direction, Costs::TYPICAL)).collect();
        let site = Site { osts: 1, costs, mirrors };
        Basis {
            name: String::new(),
            present: site.clone(),
            site,
            left_out: Vec::new(),
            system: None,
            published: None,
            common: Common::NONE,
            lost: None,
            warning: None,
        }
    }

    #[test]
    fn reads_without_costs_are_left_out_with_a_warning() {
        let of = |directions: &[Direction]| basis_with(&[Direction::Write], Mirrors::ONE).only(directions);
        let both = of(&Direction::ALL).unwrap();
        assert_eq!(both.left_out, [Direction::Read]);
        assert!(both.warnings()[0].contains("leaves out the job's reads"));
        assert!(of(&[Direction::Write]).unwrap().warnings().is_empty());
        assert!(of(&[Direction::Read]).is_err());
    }

    #[test]
    fn job_that_writes_reads_one_mirror_unless_it_resyncs() {
        let fresh = |directions: &[Direction], resync| {
            let mirrors = Mirrors { count: 3, fresh: 3, copy: None, resync };
            let mirrors = basis_with(&Direction::ALL, mirrors).only(directions).unwrap().site.mirrors;
            (mirrors.fresh, mirrors.resync)
        };
        assert_eq!(fresh(&Direction::ALL, false), (1, false));
        assert_eq!(fresh(&Direction::ALL, true), (3, true));
        assert_eq!(fresh(&[Direction::Read], false), (3, false));
        assert_eq!(fresh(&[Direction::Read], true), (3, false), "nothing to resync");
    }
}
