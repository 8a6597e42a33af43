//! Runs mdtest: the parent of the tasks.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
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
    session::Session,
    stop,
    team::Team,
};

/// Runs a plan. After an error, removes the directories that the run has created.
///
/// # Errors
/// Of the tasks, or an interruption by the user. `outcome` then has the results so far.
pub fn run(plan: &Plan, outcome: &mut Outcome, session: &mut Session, printer: &mut Printer<'_>) -> io::Result<()> {
    let new: Vec<u32> = (0..plan.dirs.len() as u32).filter(|rank| !plan.dir(*rank).exists()).collect();
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
        // Only directories that this run has created, and only if they are empty.
        new.iter().for_each(|rank| drop(fs::remove_dir(plan.dir(*rank))));
    }
    result
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
        thread::sleep(Duration::from_secs(plan.delay));
        self.created.clear();
        if plan.create {
            self.create_test_dirs()?;
        }
        let mut items = plan.items;
        if let (false, Some(path)) = (plan.create, &plan.status_file) {
            items = stored_items(path)?;
        }
        for kind in plan.phases() {
            let phase = self.phase(kind, items)?;
            if kind == Kind::FileCreate && plan.stonewall > 0 {
                items = phase.items / u64::from(plan.tasks);
                self.store_items(items)?;
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
            if dir.exists() {
                return Err(io::Error::other(format!(
                    "{} exists already: remove it, or set another -d",
                    dir.display()
                )));
            }
            fs::create_dir_all(&dir)
                .map_err(|e| io::Error::new(e.kind(), format!("cannot create {}: {e}", dir.display())))?;
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

    fn store_items(&self, items: u64) -> io::Result<()> {
        let Some(path) = &self.plan.status_file else { return Ok(()) };
        fs::write(path, format!("{items}\n"))
            .map_err(|e| io::Error::new(e.kind(), format!("cannot write {}: {e}", path.display())))
    }
}

fn stored_items(path: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(path)
        .map_err(|e| io::Error::new(e.kind(), format!("cannot read {}: {e}", path.display())))?;
    text.trim().parse().map_err(|_| io::Error::other(format!("{}: expected a number", path.display())))
}
