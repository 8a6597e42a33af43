//! Runs a survey.

use std::{collections::BTreeSet, fs::File, io, path::Path};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use crate::{
    output::named,
    session::Session,
    survey::{
        args::Test,
        load::Load,
        outcome::{Outcome, Rates},
        plan::Plan,
        print::Printer,
    },
};

const MIB: f64 = 1_048_576.0;

/// Runs a plan. Removes the objects, also after an error.
///
/// # Errors
/// Of an OST, or an interruption by the user. `outcome` then has the results so far.
pub fn run(
    plan: &Plan,
    load: &dyn Load,
    outcome: &mut Outcome,
    session: &mut Session,
    printer: &mut Printer,
) -> io::Result<()> {
    outcome.osts = plan.osts.len();
    let result = points(plan, load, outcome, session, printer);
    // Also after an interruption.
    for warning in load.end() {
        session.warn(warning);
    }
    result
}

/// Locks the directories of the control sockets, so that there is one survey at a time.
///
/// # Errors
/// There is another one.
pub fn lock(plan: &Plan) -> io::Result<Vec<File>> {
    let dirs: BTreeSet<&Path> = plan.targets.iter().map(|target| target.process.dir()).collect();
    let lock = |dir: &Path| {
        let file = File::open(dir).map_err(|e| named("open", dir, &e))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Err(io::Error::other("another survey runs on this host")),
            done => done.map(|()| file).map_err(|e| named("lock", dir, &e.into())),
        }
    };
    dirs.into_iter().map(lock).collect()
}

fn points(
    plan: &Plan,
    load: &dyn Load,
    outcome: &mut Outcome,
    session: &mut Session,
    printer: &mut Printer,
) -> io::Result<()> {
    session.measure_noise();
    for &point in &plan.points {
        let mut all: Vec<Rates> = Test::ALL
            .map(|test| Rates { point, test: test.name(), total: Vec::new(), single: Vec::new() })
            .into_iter()
            .collect();
        session.begin(&format!("{} objects, {} threads", point.objects, point.threads));
        for _ in 0..plan.repetitions {
            load.remove()?;
            for (test, rates) in Test::ALL.into_iter().zip(&mut all) {
                let done = load.test(point, test)?;
                let rate = |bytes: u64, micros: u64| bytes as f64 / MIB / (micros.max(1) as f64 / 1e6);
                let bytes = done.iter().map(|done| done.bytes).sum();
                let micros = done.iter().map(|done| done.micros).max().unwrap_or(0);
                rates.total.push(rate(bytes, micros));
                rates.single.extend(done.iter().map(|done| rate(done.bytes, done.micros)));
            }
        }
        session.measure_noise();
        all.retain(|rates| plan.tests().any(|test| test.name() == rates.test));
        session.end(|| printer.point(plan, point, &all));
        outcome.rates.extend(all);
    }
    Ok(())
}
