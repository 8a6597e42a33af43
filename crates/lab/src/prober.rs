//! Measures jobs on a user's file system by runs of IOR, for tools that model it. Each job has a
//! layout of the tool's choice. The mounts are the tool's own, and the directory of the files is
//! removed at the end.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::{
    ior::{self, args::IorArgs, step},
    nodes::PlaceArgs,
    output::named,
    own_mounts::{OwnMounts, below},
    predict::{
        costs::{Costs, Prediction},
        load::{Direction, Load, Workload},
        shape::Shape,
        system::System,
    },
    program::Sheen,
    scratch,
    session::Session,
    size::{human, with_kib},
    stats::{counted, median},
    stop,
};

const NAME: &str = "data";

/// A job, and the layout of its files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    /// The accesses.
    pub workload: Workload,
    /// The layout: arguments of `lfs setstripe`.
    pub layout: Vec<String>,
}

/// A measurement.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Measured {
    /// Writes or reads.
    pub direction: Direction,
    /// The accesses.
    pub workload: Workload,
    /// The layout.
    pub shape: Shape,
    /// MiB/s: the median of the repetitions.
    pub rate: f64,
}

impl Measured {
    /// Returns the load of the job.
    pub fn load(&self, osts: u32) -> Load {
        Load::of(&self.workload, &self.shape, osts)
    }

    /// Returns the prediction of the job by costs.
    pub fn predicted(&self, costs: &Costs, osts: u32) -> Prediction {
        costs.predict(&self.load(osts))
    }
}

/// Measures jobs. Its mounts stand for nodes.
pub struct Prober<'a> {
    dir: PathBuf,
    system: &'a System,
    mounts: OwnMounts,
    program: Sheen,
    repetitions: u32,
}

impl Prober<'_> {
    /// Mounts the file system that contains the directory `at` as often as there are nodes.
    ///
    /// # Errors
    /// A mount fails.
    pub fn new<'a>(at: &Path, system: &'a System, tool: &str, nodes: u32, repetitions: u32) -> io::Result<Prober<'a>> {
        let mounts = OwnMounts::new(at, nodes, tool)?;
        let dir = at.join(format!("{tool}.{}", std::process::id()));
        Ok(Prober { dir, system, mounts, program: Sheen::here()?, repetitions })
    }

    /// Measures jobs in their order. Calls `done` after each one, with its number.
    ///
    /// # Errors
    /// Of the tasks, or an interruption by the user.
    pub fn run(
        &self,
        jobs: &[Job],
        session: &mut Session,
        mut done: impl FnMut(usize, Vec<Measured>),
    ) -> io::Result<()> {
        fs::create_dir(&self.dir).map_err(|e| named("create", &self.dir, &e))?;
        let result = jobs.iter().enumerate().try_for_each(|(number, job)| {
            stop::check()?;
            session.part(&describe(&job.workload));
            let result = self.measure(job, session);
            // Before the next job, the servers must have destroyed the objects of this one.
            let place = self.place();
            let removed = if place.exists() { self.remove(&place) } else { Ok(()) };
            done(number, result?);
            removed
        });
        let removed = fs::remove_dir(&self.dir).map_err(|e| named("remove", &self.dir, &e));
        result.and(removed)
    }

    fn place(&self) -> PathBuf {
        self.dir.join("run")
    }

    fn remove(&self, place: &Path) -> io::Result<()> {
        let stats = format!("obdfilter.{}-*.stats", self.system.key.fsname);
        match self.program.get_param(&stats)? {
            Some(_) => scratch::remove(&self.program, &[&stats], place),
            None => fs::remove_dir_all(place).map_err(|e| named("remove", place, &e)),
        }
    }

    /// Writes, and reads what other nodes have written. Reads on one node come from its cache, and
    /// are left out.
    fn measure(&self, job: &Job, session: &mut Session) -> io::Result<Vec<Measured>> {
        let (workload, place) = (job.workload, self.place());
        fs::create_dir(&place).map_err(|e| named("create", &place, &e))?;
        self.program.setstripe(&place, &job.layout.iter().map(String::as_str).collect::<Vec<_>>())?;
        let run = self.ior(&workload).map_err(io::Error::other)?;
        let outcome = ior::run_with_layout(&run, session)?;
        let shape = outcome.layout.as_ref().map(|layout| layout.shape).ok_or_else(|| {
            io::Error::other(format!("a file with the layout {} has no stripes", job.layout.join(" ")))
        })?;
        let accesses = [(Direction::Write, step::Access::Write), (Direction::Read, step::Access::Read)];
        let measured = accesses.into_iter().filter_map(|(direction, access)| {
            let rates: Vec<f64> = outcome.of(access).map(ior::Phase::bandwidth).collect();
            (!rates.is_empty()).then(|| Measured { direction, workload, shape, rate: median(&rates) })
        });
        Ok(measured.collect())
    }

    /// Returns the run of IOR. Its files are below the first of the mounts.
    fn ior(&self, workload: &Workload) -> Result<ior::Plan, String> {
        let Workload { tasks, nodes, transfer, block, size, files } = *workload;
        let mounts = self.mounts.mounts[..nodes as usize].to_vec();
        let below = below(&self.place()).map_err(|e| named("find the mount of", &self.dir, &e).to_string())?;
        ior::plan(&IorArgs {
            tasks: Some(tasks),
            file: Some(mounts[0].join(below).join(NAME)),
            places: PlaceArgs { mounts, no_bind: false, rendezvous: None },
            transfer: Some(transfer),
            block: Some(block),
            segments: Some(size / block),
            file_per_process: files,
            repetitions: Some(self.repetitions),
            keep: true,
            fsync: true,
            reorder: true,
            write: true,
            read: nodes > 1,
            ..IorArgs::default()
        })
    }
}

/// Checks that the data of each job fits into the file system.
///
/// # Errors
/// A message for the user.
pub fn check_space(at: &Path, jobs: &[Job]) -> Result<(), String> {
    let bytes = |job: &Job| job.workload.size.saturating_mul(job.workload.tasks.into());
    let most = jobs.iter().map(bytes).max().unwrap_or(0);
    let space = rustix::fs::statvfs(at).map_err(|e| named("look at", at, &e.into()).to_string())?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    if most <= free {
        return Ok(());
    }
    Err(format!("a run takes {}, and {} has {} free", human(most), at.display(), human(free)))
}

/// Returns a job in words.
pub fn describe(workload: &Workload) -> String {
    let Workload { tasks, nodes, transfer, block, files, .. } = *workload;
    let how = match () {
        () if files => "a file each",
        () if block > transfer || tasks == 1 => "one file",
        () => "one file in turn",
    };
    format!("{}, {}, {}, {how}", counted(tasks, "task"), counted(nodes, "node"), with_kib(transfer))
}
