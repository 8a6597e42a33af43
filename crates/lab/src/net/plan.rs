//! A measurement of the network, checked.

use std::{path::PathBuf, time::Duration};

use serde::Serialize;
use sheen_lnet::NidName;
use sheen_rpc::RPCS_IN_FLIGHT_LIMIT;
use sheen_wire::bulk::BULK_BYTES_MAX;

use crate::{
    net::args::{NetArgs, Test},
    processes,
    size::numbers,
};

/// Longest added round trip in milliseconds.
const DELAY_MAX: f64 = 10_000.0;
/// Round trips of the paper's links of 60, 200 and 400 km, in milliseconds.
const WAN_DELAYS: [f64; 3] = [0.72, 2.17, 4.14];

/// Most clients: mounts of this host.
const CLIENTS_MAX: usize = 64;

/// A point that is measured.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Point {
    /// The test.
    pub test: Test,
    /// Added round trip in milliseconds.
    pub delay: f64,
    /// Bytes of data.
    pub size: u64,
    /// Requests in flight.
    pub in_flight: u64,
}

/// A checked measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// NID of the server.
    pub to: String,
    /// The tests.
    pub tests: Vec<Test>,
    /// Added round trips in milliseconds.
    pub delays: Vec<f64>,
    /// Bytes of data.
    pub sizes: Vec<u64>,
    /// Requests in flight.
    pub in_flight: Vec<u64>,
    /// Milliseconds of each measurement.
    pub time: u64,
    /// Number of runs.
    pub repetitions: u32,
    /// Whether the model is compared.
    pub models: bool,
    /// Directory for operations on files.
    pub files: Option<PathBuf>,
    /// Numbers of clients for these operations.
    pub clients: Vec<u64>,
}

impl Plan {
    /// Checks the options, and finds a server. `wan`: with the defaults of `sheen lab wan`.
    ///
    /// # Errors
    /// A message for the user.
    pub fn new(args: &NetArgs, wan: bool) -> Result<Plan, String> {
        let mut plan = Plan::of(args, wan)?;
        if plan.to.is_empty() {
            plan.to = processes::nids()
                .into_iter()
                .find(|nid| nid.ends_with("@tcp"))
                .ok_or("no server on this host answers: name one with --to HOST@tcp")?;
        }
        let name = plan.name()?;
        if name == NidName::Lo && plan.delays.iter().any(|delay| *delay > 0.0) {
            return Err("--delays: requests within a process have no latency; name a server with --to HOST@tcp".into());
        }
        Ok(plan)
    }

    fn of(args: &NetArgs, wan: bool) -> Result<Plan, String> {
        let (sizes, in_flight) = if wan { ("4k,32k,128k,1m,4m", "1-64") } else { ("4k,64k,1m,4m", "1,8") };
        if args.files.is_some() && !wan {
            return Err("--files: only sheen lab wan measures operations on files".into());
        }
        if args.files.is_some() && args.delays.len() == 1 {
            return Err("--files needs two delays or more: the cost is the difference between them".into());
        }
        let within = |option: &str, given: &Option<String>, default: &str, high: usize| {
            let text = given.as_deref().unwrap_or(default);
            let values = numbers(text).map_err(|e| format!("{option} {text}: {e}"))?;
            match values.iter().find(|value| **value > high as u64) {
                Some(value) => Err(format!("{option}: {value} is more than {high}")),
                None => Ok(values),
            }
        };
        let or = |given: &[Test], default: &[Test]| if given.is_empty() { default.to_vec() } else { given.to_vec() };
        let default_delays: &[f64] = if wan { &WAN_DELAYS } else { &[0.0] };
        let delays = if args.delays.is_empty() { default_delays.to_vec() } else { args.delays.clone() };
        if let Some(delay) = delays.iter().find(|delay| !(0.0..=DELAY_MAX).contains(*delay)) {
            return Err(format!("--delays: {delay} is not in 0 to {DELAY_MAX} ms"));
        }
        if wan && !args.tests.is_empty() && args.tests.iter().all(|test| *test == Test::Ping) {
            return Err("--tests: the model needs write or read".into());
        }
        if wan && delays.contains(&0.0) {
            return Err("--delays: a wide area network has a latency above 0".into());
        }
        Ok(Plan {
            to: args.to.clone().unwrap_or_default(),
            tests: or(&args.tests, if wan { &[Test::Write] } else { &[Test::Ping, Test::Write, Test::Read] }),
            delays,
            sizes: within("--sizes", &args.sizes, sizes, BULK_BYTES_MAX)?,
            in_flight: within("--in-flight", &args.in_flight, in_flight, RPCS_IN_FLIGHT_LIMIT)?,
            time: args.time,
            repetitions: args.repetitions,
            models: wan,
            files: args.files.clone(),
            clients: within("--clients", &args.clients, "1-16", CLIENTS_MAX)?,
        })
    }

    /// Returns the server.
    ///
    /// # Errors
    /// A message for the user.
    pub fn name(&self) -> Result<NidName, String> {
        self.to.parse().map_err(|e| format!("--to {}: {e}", self.to))
    }

    /// Returns the duration of each measurement.
    pub fn duration(&self) -> Duration {
        Duration::from_millis(self.time)
    }

    /// Returns the points, in their order. Requests without data have one size.
    pub fn points(&self) -> Vec<Point> {
        let mut points = Vec::new();
        for &delay in &self.delays {
            for &test in &self.tests {
                let sizes: &[u64] = if test == Test::Ping { &[0] } else { &self.sizes };
                for &size in sizes {
                    points.extend(self.in_flight.iter().map(|&in_flight| Point { test, delay, size, in_flight }));
                }
            }
        }
        points
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn plan(line: &str, wan: bool) -> Result<Plan, String> {
        Plan::of(&NetArgs::try_parse_from(["net"].into_iter().chain(line.split_whitespace())).unwrap(), wan)
    }

    #[test]
    fn points_cover_all_values() {
        assert_eq!(plan("", false).unwrap().points().len(), 2 + 2 * 4 * 2);
        assert_eq!(plan("", true).unwrap().points().len(), 3 * 5 * 7);
        let few = plan("--tests read --sizes 4k-16k --in-flight 3 --delays 0,1.5", false).unwrap();
        let points: Vec<_> = few.points().iter().map(|p| (p.delay, p.size, p.in_flight)).collect();
        assert_eq!(points[..3], [(0.0, 4096, 3), (0.0, 8192, 3), (0.0, 16_384, 3)]);
        assert_eq!(points.len(), 6);
    }

    #[test]
    fn contradictions_are_refused_before_the_run() {
        for (line, wan, message) in [
            ("--sizes 32m", false, "--sizes: 33554432 is more than"),
            ("--in-flight 512", false, "is more than 256"),
            ("--in-flight 0", false, "expected a number"),
            ("--delays 20000", false, "is not in 0 to"),
            ("--files /mnt", false, "only sheen lab wan"),
            ("--files /mnt --delays 1", true, "two delays or more"),
            ("--tests ping", true, "needs write or read"),
            ("--delays 0,1", true, "a latency above 0"),
        ] {
            let refused = plan(line, wan).unwrap_err();
            assert!(refused.contains(message), "{line}: {refused}");
        }
    }
}
