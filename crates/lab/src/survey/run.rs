//! Runs a survey.

use std::{collections::HashMap, io, time::Duration};

use rustix::io::Errno;

use crate::{
    processes,
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
    for ost in &plan.osts {
        let _ = processes::set(&param(ost), "stop");
    }
    // After an interruption, too.
    for ost in &plan.osts {
        while status(ost).is_ok_and(|status| status.is_running()) {
            std::thread::sleep(POLL);
        }
        if let Err(e) = processes::set(&param(ost), "remove") {
            session.warn(format!("{ost}: the objects of the survey are left until its next start: {e}"));
        }
    }
    for ost in &plan.osts {
        while status(ost).is_ok_and(|status| status.is_running()) {
            std::thread::sleep(POLL);
        }
    }
    result
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
    for ost in &plan.osts {
        processes::set(&param(ost), order).map_err(|e| explain(ost, &e))?;
    }
    plan.osts.iter().map(|ost| finished(ost)).collect()
}

fn finished(ost: &str) -> io::Result<Status> {
    loop {
        let status = status(ost)?;
        match status.state.as_str() {
            "running" => stop::sleep(POLL)?,
            "done" => return Ok(status),
            _ => return Err(io::Error::other(format!("{ost}: {}", status.error))),
        }
    }
}

fn explain(ost: &str, e: &io::Error) -> io::Error {
    let text = match e.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC) => "--size is more than half of its free space".to_owned(),
        Some(Errno::BUSY) => "another survey runs".to_owned(),
        _ => e.to_string(),
    };
    io::Error::other(format!("{ost}: {text}"))
}

fn param(ost: &str) -> String {
    format!("obdfilter.{ost}.{PARAM}")
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

fn status(ost: &str) -> io::Result<Status> {
    match processes::get(&param(ost)).into_iter().next() {
        Some((_, text)) => Ok(Status::read(&text)),
        None => Err(io::Error::other(format!("{ost}: its process has ended"))),
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
