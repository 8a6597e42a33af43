//! Runs a survey.

use std::{
    collections::{BTreeSet, HashMap},
    fs::File,
    io,
    path::Path,
    time::Duration,
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use crate::{
    output::named,
    processes::Process,
    session::Session,
    stop,
    survey::{
        args::Test,
        outcome::{Outcome, Rates},
        plan::{PARAM, Plan, Point},
        print::Printer,
    },
};

const POLL: Duration = Duration::from_millis(10);
const MIB: f64 = 1_048_576.0;

/// Runs a plan. Removes the objects, also after an error.
///
/// # Errors
/// Of an OST, or an interruption by the user. `outcome` then has the results so far.
pub fn run(plan: &Plan, outcome: &mut Outcome, session: &mut Session, printer: &mut Printer) -> io::Result<()> {
    outcome.osts = plan.osts.len();
    let result = points(plan, outcome, session, printer);
    // Also after an interruption.
    for ost in osts(plan) {
        let cleaned = ost.set("stop").and_then(|()| ost.wait()).and_then(|_| ost.set("remove"));
        if let Err(e) = cleaned.and_then(|()| ost.wait().map(drop)) {
            session.warn(format!("{}: the objects of the survey are left until its next start: {e}", ost.name));
        }
    }
    result
}

/// Locks the directories of the control sockets, so that there is one survey at a time.
///
/// # Errors
/// There is another one.
pub fn lock(plan: &Plan) -> io::Result<Vec<File>> {
    let dirs: BTreeSet<&Path> = plan.processes.iter().map(Process::dir).collect();
    let lock = |dir: &Path| {
        let file = File::open(dir).map_err(|e| named("open", dir, &e))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Err(io::Error::other("another survey runs on this host")),
            done => done.map(|()| file).map_err(|e| named("lock", dir, &e.into())),
        }
    };
    dirs.into_iter().map(lock).collect()
}

fn points(plan: &Plan, outcome: &mut Outcome, session: &mut Session, printer: &mut Printer) -> io::Result<()> {
    session.measure_noise();
    for &point in &plan.points {
        let mut all: Vec<Rates> = Test::ALL
            .map(|test| Rates { point, test: test.name(), total: Vec::new(), single: Vec::new() })
            .into_iter()
            .collect();
        session.begin(&format!("{} objects, {} threads", point.objects, point.threads));
        for _ in 0..plan.repetitions {
            together(plan, "remove")?;
            for (test, rates) in Test::ALL.into_iter().zip(&mut all) {
                let done = together(plan, &order(plan, point, test))?;
                let rate = |bytes: u64, micros: u64| bytes as f64 / MIB / (micros.max(1) as f64 / 1e6);
                let bytes = done.iter().map(|status| status.bytes).sum();
                let micros = done.iter().map(|status| status.micros).max().unwrap_or(0);
                rates.total.push(rate(bytes, micros));
                rates.single.extend(done.iter().map(|status| rate(status.bytes, status.micros)));
            }
        }
        session.measure_noise();
        all.retain(|rates| plan.tests().any(|test| test.name() == rates.test));
        session.end(|| printer.point(plan, point, &all));
        outcome.rates.extend(all);
    }
    Ok(())
}

fn order(plan: &Plan, point: Point, test: Test) -> String {
    let Point { record, objects, threads } = point;
    let word = if test == Test::Read { "read" } else { "write" };
    format!("{word} {objects} {threads} {record} {}", plan.size)
}

/// Gives all OSTs the same order, and waits until they have executed it.
fn together(plan: &Plan, order: &str) -> io::Result<Vec<Status>> {
    stop::check()?;
    for ost in osts(plan) {
        ost.set(order).map_err(|e| explain(ost.name, &e))?;
    }
    osts(plan).map(|ost| ost.finished().map_err(|e| named_ost(ost.name, &e))).collect()
}

fn explain(ost: &str, e: &io::Error) -> io::Error {
    match e.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC) => io::Error::other(format!("{ost}: --size is more than half of its free space")),
        Some(Errno::BUSY) => io::Error::other(format!("{ost}: another survey runs")),
        _ => named_ost(ost, e),
    }
}

fn named_ost(ost: &str, e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("{ost}: {e}"))
}

/// An OST, and its process.
struct Ost<'a> {
    name: &'a str,
    process: &'a Process,
}

fn osts(plan: &Plan) -> impl Iterator<Item = Ost<'_>> {
    plan.osts.iter().zip(&plan.processes).map(|(name, process)| Ost { name, process })
}

impl Ost<'_> {
    fn param(&self) -> String {
        format!("obdfilter.{}.{PARAM}", self.name)
    }

    fn set(&self, order: &str) -> io::Result<()> {
        self.process.set(&self.param(), order)
    }

    fn status(&self) -> io::Result<Status> {
        self.process.get(&self.param()).map(|text| Status::read(&text))
    }

    /// Waits for the end of a load.
    fn wait(&self) -> io::Result<Status> {
        loop {
            let status = self.status()?;
            if !status.is_running() {
                return Ok(status);
            }
            std::thread::sleep(POLL);
        }
    }

    /// Waits for the success of a load, or an interruption.
    fn finished(&self) -> io::Result<Status> {
        loop {
            let status = self.status()?;
            match status.state.as_str() {
                "running" => stop::sleep(POLL)?,
                "done" => return Ok(status),
                _ => return Err(io::Error::other(status.error)),
            }
        }
    }
}

/// State of a load, as the OST tells it.
#[derive(Debug, Default)]
struct Status {
    state: String,
    bytes: u64,
    micros: u64,
    error: String,
}

impl Status {
    fn is_running(&self) -> bool {
        self.state == "running"
    }

    fn read(text: &str) -> Status {
        let lines: HashMap<&str, &str> = text.lines().filter_map(|line| line.split_once(": ")).collect();
        let text = |key: &str| lines.get(key).copied().unwrap_or_default().to_owned();
        let number = |key: &str| lines.get(key).and_then(|value| value.parse().ok()).unwrap_or(0);
        Status { state: text("state"), bytes: number("bytes"), micros: number("microseconds"), error: text("error") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_has_all_values() {
        let status = Status::read("state: done\ntest: read\nbytes: 4096\nmicroseconds: 17\n");
        assert_eq!(
            (status.state.as_str(), status.bytes, status.micros, status.is_running()),
            ("done", 4096, 17, false)
        );
        assert_eq!(Status::read("state: failed\nerror: Input/output error\n").error, "Input/output error");
    }
}
