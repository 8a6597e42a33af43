//! The case `disk`: the OSTs of this host make the load themselves (`obdfilter.*.survey`).

use std::{collections::HashMap, io, time::Duration};

use rustix::io::Errno;

use crate::{
    processes::Process,
    stop,
    survey::{
        args::Test,
        load::{Done, Load, named_ost, objects_left},
        plan::{Plan, Point, RECORD_MIN},
        targets::PARAM,
    },
};

/// The error of an OST that has too little space.
pub const TOO_LARGE: &str = "--size is more than half of its free space";

const POLL: Duration = Duration::from_millis(10);

/// The load of the OSTs.
pub struct DiskLoad<'a>(pub &'a Plan);

impl Load for DiskLoad<'_> {
    fn remove(&self) -> io::Result<()> {
        together(self.0, "remove").map(drop)
    }

    fn test(&self, point: Point, test: Test) -> io::Result<Vec<Done>> {
        let statuses = together(self.0, &order(self.0, point, test))?;
        Ok(statuses.iter().map(|status| Done { bytes: status.bytes, micros: status.micros }).collect())
    }

    fn end(&self) -> Vec<String> {
        let left = |ost: Ost<'_>| {
            let cleaned = ost.set("stop").and_then(|()| ost.wait()).and_then(|_| ost.set("remove"));
            cleaned.and_then(|()| ost.wait()).err().map(|e| objects_left(ost.name, &e))
        };
        served(self.0).filter_map(left).collect()
    }
}

/// Makes the OSTs that this host serves drop what a read of this many objects would find in memory.
///
/// # Errors
/// Of an OST, or an interruption by the user.
pub fn drop_cached(plan: &Plan, objects: u64) -> io::Result<()> {
    // An OST does so before a read, here one of nothing.
    together(plan, &format!("read {objects} {objects} {RECORD_MIN} 0")).map(drop)
}

fn order(plan: &Plan, point: Point, test: Test) -> String {
    let Point { record, objects, threads } = point;
    let word = if test == Test::Read { "read" } else { "write" };
    format!("{word} {objects} {threads} {record} {}", plan.size)
}

/// Gives all OSTs of this host the same order, and waits until they have executed it.
fn together(plan: &Plan, order: &str) -> io::Result<Vec<Status>> {
    stop::check()?;
    for ost in served(plan) {
        ost.set(order).map_err(|e| explain(ost.name, &e))?;
    }
    served(plan).map(|ost| ost.finished().map_err(|e| named_ost(ost.name, &e))).collect()
}

fn explain(ost: &str, e: &io::Error) -> io::Error {
    match e.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC) => io::Error::other(format!("{ost}: {TOO_LARGE}")),
        Some(Errno::BUSY) => io::Error::other(format!("{ost}: another survey runs")),
        _ => named_ost(ost, e),
    }
}

/// An OST, and its process.
struct Ost<'a> {
    name: &'a str,
    process: &'a Process,
}

fn served(plan: &Plan) -> impl Iterator<Item = Ost<'_>> {
    let served = plan.targets.iter().filter(|target| target.is_served);
    served.map(|target| Ost { name: &target.name, process: &target.process })
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

/// State of a load, as the OST reports it.
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
