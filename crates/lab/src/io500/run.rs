//! Runs the IO500.

use std::{fs, io, path::Path, time::Instant};

use crate::{
    io500::{
        find::find,
        outcome::{Outcome, PhaseResult},
        phase::Phase,
        plan::{Part, Plan},
        print::Printer,
    },
    ior, mdtest,
    output::named,
    session::Session,
    stop,
};

/// Where the system drops its caches.
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";
const MIB_PER_GIB: f64 = 1024.0;

/// Runs a plan. Removes all files of the run, also after an error.
///
/// # Errors
/// Of the tasks, or an interruption by the user. `outcome` then has the results so far.
pub fn run(plan: &Plan, outcome: &mut Outcome, session: &mut Session, printer: &mut Printer) -> io::Result<()> {
    for repetition in 0..plan.repetitions {
        let plan = &Plan { signature: plan.signature.wrapping_add(repetition), ..plan.clone() };
        outcome.runs.push(Vec::new());
        fs::create_dir(&plan.dir).map_err(|e| named("create", &plan.dir, &e))?;
        let result = phases(plan, outcome, session, printer);
        match outcome.runs.last() {
            Some(run) if result.is_ok() => session.above(|| printer.score(run)),
            _ => session.above(|| printer.no_score()),
        }
        session.part("removal of all files");
        let removed = fs::remove_dir_all(&plan.dir).map_err(|e| named("remove", &plan.dir, &e));
        if let (Err(_), Err(e)) = (&result, &removed) {
            session.warn(format!("files are left: {e}"));
        }
        result.and(removed)?;
    }
    Ok(())
}

/// Checks whether the caches of this host can be dropped.
///
/// # Errors
/// A message for the user.
pub fn check_drop_caches() -> Result<(), String> {
    let opened = fs::OpenOptions::new().write(true).open(DROP_CACHES);
    opened.map(drop).map_err(|e| format!("--drop-caches: {}", named("write", Path::new(DROP_CACHES), &e)))
}

fn phases(plan: &Plan, outcome: &mut Outcome, session: &mut Session, printer: &mut Printer) -> io::Result<()> {
    for dir in ["ior-easy", "ior-hard"] {
        let dir = plan.data().join(dir);
        fs::create_dir_all(&dir).map_err(|e| named("create", &dir, &e))?;
    }
    for phase in Phase::ALL {
        stop::check()?;
        if plan.drop_caches {
            fs::write(DROP_CACHES, "3\n").map_err(|e| named("write", Path::new(DROP_CACHES), &e))?;
        }
        session.part(phase.name());
        let start = Instant::now();
        let (score, fault) = measure(plan, phase, session).map_err(|e| explain(phase, e))?;
        let result = PhaseResult::new(phase, score, start.elapsed().as_secs_f64(), plan.stonewall, fault);
        session.above(|| printer.phase(&result));
        outcome.runs.last_mut().into_iter().for_each(|run| run.push(result.clone()));
        if phase == Phase::MdtestEasyWrite {
            let path = plan.timestamp();
            fs::write(&path, "").map_err(|e| named("write", &path, &e))?;
        }
    }
    Ok(())
}

/// Returns the result of a phase, and why it would not count.
fn measure(plan: &Plan, phase: Phase, session: &mut Session) -> io::Result<(f64, Option<String>)> {
    let wrong = |errors: u64| (errors > 0).then(|| "data is wrong".to_owned());
    match plan.part(phase).map_err(io::Error::other)? {
        Part::Ior(part) => {
            let outcome = ior::run_quietly(&part, session)?;
            let bandwidth = outcome.phases.last().map_or(0.0, ior::Phase::bandwidth);
            Ok((bandwidth / MIB_PER_GIB, wrong(outcome.errors)))
        }
        Part::Mdtest(part) => {
            let outcome = mdtest::run_quietly(&part, session)?;
            let rate = outcome.phases.iter().find(|p| p.kind.is_about_files()).map_or(0.0, mdtest::Phase::rate);
            Ok((rate / 1e3, wrong(outcome.errors())))
        }
        Part::Find => {
            session.begin("find");
            let found = find(&plan.find_roots().map_err(io::Error::other)?, &plan.timestamp())?;
            session.end(|| {});
            let fault = (found.matched == 0).then(|| "find has found nothing: raise the stonewall".to_owned());
            Ok((found.total as f64 / found.seconds / 1e3, fault))
        }
    }
}

fn explain(phase: Phase, e: io::Error) -> io::Error {
    let advice = match e.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT) => FULL,
        _ if e.to_string().contains("No space left") => FULL,
        _ => "",
    };
    io::Error::new(e.kind(), format!("{}: {e}{advice}", phase.name()))
}

const FULL: &str = "\n  limit the data with --easy-block and --segments, or set a shorter --stonewall";
