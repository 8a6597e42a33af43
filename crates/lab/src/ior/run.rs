//! Runs IOR: the parent of the tasks.

use std::{
    fs, io, thread,
    time::{Duration, Instant},
};

use crate::{
    clock,
    ior::{
        outcome::{Outcome, Phase},
        plan::Plan,
        print::Printer,
        step::{Access, Job, Progress, Report, Step, Transfer},
        task,
    },
    session::Session,
    stop,
    team::Team,
};

/// Runs a plan. After an error, removes the files that it writes, unless `-k` is set.
///
/// # Errors
/// Of the tasks, or an interruption by the user. `outcome` then has the results so far.
pub fn run(plan: &Plan, outcome: &mut Outcome, session: &mut Session, printer: &mut Printer<'_>) -> io::Result<()> {
    let jobs = (0..plan.tasks).map(|rank| Job { plan: plan.clone(), rank });
    let team = Team::start(plan.bind, jobs.map(crate::job::Job::Ior))?;
    let mut run = Run { plan, team, outcome, session, printer, began: Instant::now(), repetition: 0 };
    let result = run.repetitions();
    match &result {
        Ok(()) => run.team.finish(),
        Err(_) => {
            let repetition = run.repetition;
            drop(run.team); // tasks must not write while their files are removed
            if plan.write && !plan.keep {
                for rank in 0..plan.tasks {
                    // The error that ended the run matters more.
                    let _ = task::remove(plan, rank, repetition);
                }
            }
        }
    }
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
}

impl Run<'_, '_> {
    fn repetitions(&mut self) -> io::Result<()> {
        self.warn_of_existing_files();
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

    fn warn_of_existing_files(&mut self) {
        let path = self.plan.path(0, 0, 0);
        if self.plan.write && path.exists() {
            let fate = if self.plan.use_existing { "overwritten" } else { "deleted" };
            self.session.warn(format!("the file {} exists already and will be {fate}", path.display()));
        }
    }

    fn repetition(&mut self) -> io::Result<()> {
        let (plan, before) = (self.plan, self.outcome.errors);
        let signature = plan.signature.unwrap_or_else(|| clock::seconds() as u32);
        let own: Vec<u32> = (0..plan.tasks).collect();
        // Number of transfers of each task's data; 0: all.
        let mut limits = vec![plan.iterations; plan.tasks as usize];
        if plan.write {
            if !plan.use_existing {
                self.remove()?;
            }
            let reports = self.transfer(Access::Write, signature, own, limits.clone())?;
            if plan.deadline > 0 {
                limits = reports.iter().map(|report| report.transfers).collect();
            }
            self.store_iterations(&limits)?;
        }
        if plan.check_write {
            self.transfer(Access::CheckWrite, signature, plan.read_ranks(self.repetition), limits.clone())?;
        }
        if plan.read || plan.check_read {
            if let (false, Some(path)) = (plan.write, &plan.status_file) {
                limits = vec![stored_iterations(path)?; plan.tasks as usize];
            }
            self.transfer(Access::Read, signature, plan.read_ranks(self.repetition), limits)?;
        }
        let wrong = self.outcome.errors > before;
        // Unlike IOR, a run that only reads removes nothing: the file may be a user's.
        if !plan.write || plan.keep || (wrong && plan.keep_with_error) {
            return Ok(());
        }
        let start = Instant::now();
        self.remove()?;
        let seconds = start.elapsed().as_secs_f64();
        self.outcome.removals.push(seconds);
        self.printer.removed(self.repetition, seconds);
        Ok(())
    }

    fn remove(&mut self) -> io::Result<()> {
        self.team.send(&Step::Remove { repetition: self.repetition })?;
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
        thread::sleep(Duration::from_secs(if access.is_timed() { plan.delay } else { 0 }));
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
        let phase = Phase::new(plan, access, repetition, &reports, stonewall);
        self.note(phase);
        Ok(reports)
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
            if plan.min_seconds == 0
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

    fn store_iterations(&self, limits: &[u64]) -> io::Result<()> {
        let Some(path) = &self.plan.status_file else { return Ok(()) };
        let most = limits.iter().max().copied().unwrap_or(0);
        fs::write(path, format!("{most}\n"))
            .map_err(|e| io::Error::new(e.kind(), format!("cannot write {}: {e}", path.display())))
    }
}

fn stored_iterations(path: &std::path::Path) -> io::Result<u64> {
    let text = fs::read_to_string(path)
        .map_err(|e| io::Error::new(e.kind(), format!("cannot read {}: {e}", path.display())))?;
    text.trim().parse().map_err(|_| io::Error::other(format!("{}: expected a number", path.display())))
}
