//! A measurement of the network, checked.

use std::{path::PathBuf, time::Duration};

use serde::Serialize;
use sheen_rpc::RPCS_IN_FLIGHT_LIMIT;
use sheen_wire::{
    bulk::BULK_BYTES_MAX,
    selftest::{LOAD_DELAY_US_MAX, LOAD_TIME_MS_MAX, Load},
};

use crate::{
    net::{
        args::{NetArgs, Test},
        node::Node,
    },
    processes,
    size::numbers,
    target_nids,
};

/// Longest added round trip in milliseconds.
const DELAY_MAX: f64 = LOAD_DELAY_US_MAX as f64 / 1e3;
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

impl Point {
    /// Returns the requests of a run.
    pub fn load(self, time: Duration) -> Load {
        // At most BULK_BYTES_MAX.
        let size = self.size as u32;
        let (sent_bytes, reply_bytes) = match self.test {
            Test::Ping => (0, 0),
            Test::Write => (size, 0),
            Test::Read => (0, size),
        };
        let (in_flight, delay_us) = (self.in_flight as u32, (self.delay * 1e3).round() as u32);
        Load { sent_bytes, reply_bytes, in_flight, time_ms: time.as_millis() as u32, delay_us }
    }
}

/// A checked measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// The server that sends the requests. `None`: this process.
    pub from: Option<Node>,
    /// The server that answers them.
    pub to: Node,
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
        let plan = Plan::of(args, wan)?;
        let named = |option, name: &String| Node::named(option, name, target_nids::of_target);
        let from = args.from.as_ref().map(|name| named("--from", name)).transpose()?;
        let to = match &args.to {
            Some(name) => named("--to", name)?,
            None => default_server(from.as_ref())?,
        };
        plan.between(from, to)
    }

    /// Sets the nodes.
    fn between(self, from: Option<Node>, to: Node) -> Result<Plan, String> {
        let plan = Plan { from, to, ..self };
        let Some(from) = &plan.from else {
            if plan.to.is_here() && plan.delays.iter().any(|delay| *delay > 0.0) {
                return Err(
                    "--delays: requests within a process have no latency; name a server with --to HOST@tcp".into()
                );
            }
            return Ok(plan);
        };
        if from.is_here() || plan.to.is_here() {
            return Err("--from: 0@lo means this process alone; name two servers".into());
        }
        if from.is_at(&plan.to) {
            return Err(same_server(from, &plan.to));
        }
        if plan.files.is_some() {
            return Err("--files measures a mount of this host: leave out --from".into());
        }
        if plan.time > u64::from(LOAD_TIME_MS_MAX) {
            return Err(format!("--time: {} is more than {LOAD_TIME_MS_MAX}, the limit with --from", plan.time));
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
            from: None,
            to: Node::default(),
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

/// Returns a server on this host, other than `from`.
fn default_server(from: Option<&Node>) -> Result<Node, String> {
    let others = processes::nids().into_iter().filter(|nid| nid.ends_with("@tcp"));
    let mut nodes = others.filter_map(|nid| Node::named("--to", &nid, |_| Ok(Vec::new())).ok());
    let other = nodes.find(|node| from.is_none_or(|from| !from.is_at(node)));
    let text = "no server on this host answers: name one with --to HOST@tcp";
    other.ok_or_else(|| if from.is_some() { text.replace(" server", " other server") } else { text.into() })
}

/// Returns the error of a measurement between a server and itself.
pub fn same_server(from: &Node, to: &Node) -> String {
    format!("--from {from} and --to {to} are one server, and requests within it have no network: name another one")
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

    #[test]
    fn nodes_are_two_servers_or_this_process_and_one() {
        let between = |line: &str, from: Option<&str>, to: &str| {
            let node = |name: &str| Node::named("--to", name, |_| Ok(Vec::new())).unwrap();
            plan(line, line.contains("--files"))?.between(from.map(node), node(to))
        };
        let (a, b) = ("10.0.0.1@tcp", "10.0.0.2@tcp");
        for (line, from, to) in [("", None, a), ("", None, "0@lo"), ("--time 60000 --delays 1", Some(a), b)] {
            let plan = between(line, from, to).unwrap();
            let names = (plan.from.map(|from| from.to_string()), plan.to.to_string());
            assert_eq!(names, (from.map(str::to_owned), to.to_owned()));
        }
        for (line, from, to, message) in [
            ("--delays 1", None, "0@lo", "have no latency"),
            ("", Some("0@lo"), a, "0@lo means this process alone"),
            ("", Some(a), "0@lo", "0@lo means this process alone"),
            ("", Some(a), "10.0.0.1:7988@tcp", "--from 10.0.0.1@tcp and --to 10.0.0.1:7988@tcp are one server"),
            ("--files /mnt", Some(a), b, "leave out --from"),
            ("--time 60001", Some(a), b, "--time: 60001 is more than 60000"),
        ] {
            let refused = between(line, from, to).unwrap_err();
            assert!(refused.contains(message), "{line}: {refused}");
        }
    }

    #[test]
    fn loads_of_all_points_are_within_the_limits_of_servers() {
        let time = Duration::from_millis(LOAD_TIME_MS_MAX.into());
        for (line, wan) in [("", false), ("", true), ("--sizes 16m --in-flight 256 --delays 10000", false)] {
            let points = plan(line, wan).unwrap().points();
            assert!(points.iter().all(|point| point.load(time).is_within_limits()), "{line}");
        }
        let point = Point { test: Test::Read, delay: 0.72, size: 4096, in_flight: 3 };
        let load = Load { sent_bytes: 0, reply_bytes: 4096, in_flight: 3, time_ms: 200, delay_us: 720 };
        assert_eq!(point.load(Duration::from_millis(200)), load);
        let write = Point { test: Test::Write, ..point }.load(Duration::ZERO);
        assert_eq!((write.sent_bytes, write.reply_bytes, write.time_ms), (4096, 0, 0));
    }
}
