//! Runs IOR: the parent of the tasks.

use std::{
    fs, io,
    path::PathBuf,
    time::{Duration, Instant},
};

use crate::{
    clock,
    ior::{
        outcome::{Outcome, Phase},
        plan::{Plan, dir_of},
        print::Printer,
        step::{Access, Job, Progress, Report, Step, Transfer},
        task,
    },
    output::named,
    predict::shape::JobLayout,
    session::Session,
    status_file, stop,
    team::Team,
};

/// Most files whose layouts are read.
const LAYOUTS_MAX: usize = 64;

/// Runs a plan. Removes the files that it has created, unless `-k` is set; also after an error.
///
/// # Errors
/// Of the tasks, or an interruption by the user. `outcome` then has the results so far.
pub fn run(plan: &Plan, outcome: &mut Outcome, session: &mut Session, printer: &mut Printer<'_>) -> io::Result<()> {
    let jobs = (0..plan.tasks).map(|rank| Job { plan: plan.clone(), rank });
    let team = Team::start(plan.bind, jobs.map(crate::job::Job::Ior))?;
    let began = Instant::now();
    let (ours, dirs) = (Vec::new(), Vec::new());
    let mut run = Run { plan, team, outcome, session, printer, began, repetition: 0, errors_before: 0, ours, dirs };
    let result = run.repetitions();
    let (repetition, removes, ours, dirs) = (run.repetition, run.removes(), run.ours, run.dirs);
    match &result {
        Ok(()) => run.team.finish(),
        Err(_) => {
            drop(run.team); // tasks must not write while their files are removed
            if removes {
                // The error that ended the run matters more.
                ours.iter().for_each(|rank| drop(task::remove(plan, *rank, repetition)));
            }
        }
    }
    // Fails if files are left, for example because of -k.
    dirs.iter().for_each(|dir| drop(fs::remove_dir(dir)));
    result
}

struct Run<'a, 'p> {
    plan: &'a Plan,
    team: Team,
    outcome: &'a mut Outcome,
    session: &'a mut Session,
    printer: &'a mut Printer<'p>,
    began: Instant,
    repetition: u32,
    /// Number of errors when the repetition began.
    errors_before: u64,
    /// The ranks whose files this repetition creates. Only these are removed: `-E` may name a file
    /// of the user.
    ours: Vec<u32>,
    /// The directories of `-u` that the run has created.
    dirs: Vec<PathBuf>,
}

impl Run<'_, '_> {
    fn repetitions(&mut self) -> io::Result<()> {
        self.session.measure_noise();
        for repetition in 0..self.plan.repetitions {
            let limit = Duration::from_secs(self.plan.max_minutes * 60);
            if self.plan.max_minutes > 0 && self.began.elapsed() > limit {
                break;
            }
            self.repetition = repetition;
            self.repetition()?;
            self.session.measure_noise();
        }
        Ok(())
    }

    fn repetition(&mut self) -> io::Result<()> {
        let plan = self.plan;
        self.errors_before = self.outcome.errors;
        let signature = plan.signature.unwrap_or_else(|| clock::seconds() as u32);
        // Number of transfers of each task's data; 0: all.
        let mut limits = vec![plan.iterations; plan.tasks as usize];
        if plan.write {
            self.prepare()?;
            let own = (0..plan.tasks).collect();
            let reports = self.transfer(Access::Write, signature, own, limits.clone())?;
            if plan.deadline > 0 {
                limits = reports.iter().map(|report| report.transfers).collect();
            }
            if let Some(path) = &plan.status_file {
                status_file::store(path, limits.iter().max().copied().unwrap_or(0))?;
            }
        }
        if plan.check_write {
            self.transfer(Access::CheckWrite, signature, plan.check_ranks(), limits.clone())?;
        }
        if plan.read || plan.check_read {
            if let (false, Some(path)) = (plan.write, &plan.status_file) {
                limits = vec![status_file::load(path)?; plan.tasks as usize];
            }
            self.transfer(Access::Read, signature, plan.read_ranks(self.repetition), limits)?;
        }
        // Unlike IOR, a run without -w removes nothing: the file may be a user's.
        if !self.removes() {
            return Ok(());
        }
        let start = Instant::now();
        self.remove(self.ours.clone())?;
        self.ours.clear();
        let seconds = start.elapsed().as_secs_f64();
        self.outcome.removals.push(seconds);
        self.printer.removed(self.repetition, seconds);
        Ok(())
    }

    /// Removes old files, unless -E is set, and creates the directories of `-u`.
    fn prepare(&mut self) -> io::Result<()> {
        let (plan, repetition) = (self.plan, self.repetition);
        self.ours.clear();
        let mut writers = plan.writers();
        if plan.use_existing {
            writers.retain(|rank| !plan.path(*rank, *rank, repetition).exists());
        } else {
            self.remove(writers.clone())?;
        }
        if plan.unique_dir {
            for path in writers.iter().map(|rank| plan.path(*rank, *rank, repetition)) {
                let dir = dir_of(&path);
                match fs::create_dir(dir) {
                    Ok(()) => self.dirs.push(dir.to_owned()),
                    Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                    Err(e) => return Err(named("create", dir, &e)),
                }
            }
        }
        self.ours = writers;
        Ok(())
    }

    /// Whether the files of this repetition are removed.
    fn removes(&self) -> bool {
        let wrong = self.outcome.errors > self.errors_before;
        self.plan.write && !self.plan.keep && !(wrong && self.plan.keep_with_error)
    }

    fn remove(&mut self, ranks: Vec<u32>) -> io::Result<()> {
        self.team.send(&Step::Remove { repetition: self.repetition, ranks })?;
        self.team.gather::<()>().map(drop)
    }

    /// Lets the tasks transfer, and returns their reports.
    fn transfer(
        &mut self,
        access: Access,
        signature: u32,
        ranks: Vec<u32>,
        limits: Vec<u64>,
    ) -> io::Result<Vec<Report>> {
        let plan = self.plan;
        stop::check()?;
        self.session.begin(match access {
            Access::Write => "write",
            Access::CheckWrite => "check",
            Access::Read => "read",
        });
        stop::sleep(Duration::from_secs(if access.is_timed() { plan.delay } else { 0 }))?;
        let repetition = self.repetition;
        self.team.send(&Step::Transfer(Transfer { access, repetition, signature, ranks, limits }))?;
        self.team.barrier()?;
        let within = plan.barriers && access.is_timed();
        if within {
            self.team.barrier()?;
        }
        let stonewall = self.stonewall(access)?;
        if within {
            self.team.barrier()?;
        }
        self.team.barrier()?;
        let reports: Vec<Report> = self.team.gather()?;
        if self.outcome.wants_layout && self.outcome.layout.is_none() {
            self.outcome.layout = self.layout();
        }
        let phase = Phase::new(plan, access, repetition, &reports, stonewall);
        self.note(phase);
        Ok(reports)
    }

    /// Returns the layout of the files.
    fn layout(&self) -> Option<JobLayout> {
        let plan = self.plan;
        let ranks = plan.writers().into_iter().take(LAYOUTS_MAX);
        let paths: Vec<PathBuf> = ranks.map(|rank| plan.path(rank, rank, self.repetition)).collect();
        let files = if plan.file_per_process { u64::from(plan.tasks) } else { 1 };
        JobLayout::of_files(&paths, plan.bytes() / files)
    }

    fn stonewall(&mut self, access: Access) -> io::Result<Option<Vec<Progress>>> {
        if !self.plan.wear_out || !access.is_timed() {
            return Ok(None);
        }
        let progress: Vec<Progress> = self.team.gather()?;
        self.team.send(&progress.iter().map(|p| p.transfers).max().unwrap_or(0))?;
        Ok(Some(progress))
    }

    fn note(&mut self, phase: Phase) {
        let plan = self.plan;
        if phase.access.is_timed() {
            let expected = plan.bytes();
            let read_part = phase.access == Access::Read && phase.size >= phase.bytes;
            // With a status file, another run sets or uses the number of transfers.
            if plan.status_file.is_none()
                && plan.min_seconds == 0
                && plan.iterations == 0
                && (phase.bytes != expected || (phase.size != phase.bytes && !read_part))
            {
                let reason = if plan.deadline > 0 { " (the deadline of -D has stopped tasks)" } else { "" };
                self.session.warn(format!(
                    "expected {expected} bytes, transferred {}, size by stat {}{reason}",
                    phase.bytes, phase.size
                ));
            }
            self.session.end(|| self.printer.phase(&phase));
        }
        if phase.errors > 0 {
            self.outcome.errors += phase.errors;
            self.session.warn(format!("{}: the data of {} transfers is wrong", phase.name(), phase.errors));
        }
        if phase.access.is_timed() {
            self.outcome.phases.push(phase);
        }
    }
}
