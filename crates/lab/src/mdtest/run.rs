//! Runs mdtest: the parent of the tasks.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    mdtest::{
        outcome::{Outcome, Phase},
        phase::Kind,
        plan::Plan,
        print::Printer,
        step::{Job, Progress, Report, Step},
    },
    output::named,
    session::Session,
    status_file, stop,
    team::Team,
};

/// Runs a plan. Removes the directories that the run has created: when they are empty, and after an
/// error with all that is in them.
///
/// # Errors
/// Of the tasks, or an interruption by the user. `outcome` then has the results so far.
pub fn run(plan: &Plan, outcome: &mut Outcome, session: &mut Session, printer: &mut Printer<'_>) -> io::Result<()> {
    let new = missing_dirs(plan);
    let jobs = (0..plan.tasks).map(|rank| Job { plan: plan.clone(), rank });
    let team = Team::start(plan.bind, jobs.map(crate::job::Job::Mdtest))?;
    let mut run = Run { plan, team, outcome, session, printer, created: Vec::new(), iteration: 0 };
    let result = run.iterations();
    let created = run.created;
    match &result {
        Ok(()) => run.team.finish(),
        Err(_) => {
            drop(run.team); // tasks must not create items while these are removed
            created.iter().for_each(|dir| drop(fs::remove_dir_all(dir)));
        }
    }
    if plan.remove || result.is_err() {
        // Another run may use them by now.
        new.iter().for_each(|dir| drop(fs::remove_dir(dir)));
    }
    result
}

/// Returns the directories of the test that do not exist, and those above them, the lowest first.
fn missing_dirs(plan: &Plan) -> Vec<PathBuf> {
    let mut missing = Vec::new();
    each_dir(plan, |rank| {
        let dir = plan.dir(rank);
        let above = dir.ancestors().take_while(|dir| !dir.as_os_str().is_empty() && !dir.exists());
        missing.extend(above.map(Path::to_owned));
    });
    missing
}

fn each_dir(plan: &Plan, act: impl FnMut(u32)) {
    (0..plan.dirs.len() as u32).for_each(act);
}

struct Run<'a, 'p> {
    plan: &'a Plan,
    team: Team,
    outcome: &'a mut Outcome,
    session: &'a mut Session,
    printer: &'a mut Printer<'p>,
    /// The directories that this run has created for the present iteration.
    created: Vec<PathBuf>,
    iteration: u32,
}

impl Run<'_, '_> {
    fn iterations(&mut self) -> io::Result<()> {
        self.session.measure_noise();
        for iteration in 0..self.plan.iterations {
            self.iteration = iteration;
            self.iteration()?;
            self.session.measure_noise();
        }
        Ok(())
    }

    fn iteration(&mut self) -> io::Result<()> {
        let plan = self.plan;
        stop::sleep(Duration::from_secs(plan.delay))?;
        self.created.clear();
        if plan.create {
            self.create_test_dirs()?;
        }
        let mut items = plan.items;
        if let (false, Some(path)) = (plan.create, &plan.status_file) {
            items = status_file::load(path)?;
        }
        for kind in plan.phases() {
            let phase = self.phase(kind, items)?;
            if kind == Kind::FileCreate && plan.stonewall > 0 {
                items = phase.items / u64::from(plan.tasks);
                if let Some(path) = &plan.status_file {
                    status_file::store(path, items)?;
                }
            }
            if phase.errors > 0 {
                self.session.warn(format!("{}: the data of {} files is wrong", kind.name(), phase.errors));
            }
            self.session.end(|| self.printer.phase(&phase));
            self.outcome.phases.push(phase);
        }
        if plan.remove {
            // Fails if the test of another run is inside.
            each_dir(plan, |rank| drop(fs::remove_dir(plan.test_dir(rank, self.iteration))));
            self.created.clear();
        }
        Ok(())
    }

    fn create_test_dirs(&mut self) -> io::Result<()> {
        for rank in 0..self.plan.dirs.len() as u32 {
            let dir = self.plan.test_dir(rank, self.iteration);
            fs::create_dir_all(self.plan.dir(rank)).and_then(|()| fs::create_dir(&dir)).map_err(|e| {
                match e.kind() {
                    io::ErrorKind::AlreadyExists => {
                        io::Error::other(format!("{} exists already: remove it, or set another -d", dir.display()))
                    }
                    _ => named("create", &dir, &e),
                }
            })?;
            self.created.push(dir);
        }
        Ok(())
    }

    fn phase(&mut self, kind: Kind, items: u64) -> io::Result<Phase> {
        let plan = self.plan;
        stop::check()?;
        self.session.begin(kind.name());
        self.team.send(&Step { kind, iteration: self.iteration, items })?;
        self.team.barrier()?;
        let create = kind == Kind::FileCreate;
        if create && plan.unique_dir && !plan.time_unique_dir {
            self.team.barrier()?;
        }
        let mut stonewall = None;
        if create && plan.stonewall > 0 {
            let progress: Vec<Progress> = self.team.gather()?;
            self.team.send(&progress.iter().map(|p| p.items).max().unwrap_or(0))?;
            stonewall = Some(progress);
        }
        let reports: Vec<Report> = self.team.gather()?;
        Ok(Phase::new(plan, kind, self.iteration, &reports, stonewall))
    }
}
