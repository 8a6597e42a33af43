//! A survey, checked: the points that it measures.

use serde::Serialize;
use sheen_rpc::RPCS_IN_FLIGHT_LIMIT;

use crate::{
    machine,
    size::{human, numbers},
    survey::{
        args::{Case, SurveyArgs, Test},
        targets::{self, Target},
    },
};

/// Default of `--threads`, as far as the maximum allows it.
const THREADS: &str = "1-16";
/// Most threads of all OSTs together, which may share a process: half of its threads for blocking
/// work.
const OST_THREADS_MAX: u64 = 32;
/// Most threads of this process: requests that a connection has under way.
const CLIENT_THREADS_MAX: u64 = RPCS_IN_FLIGHT_LIMIT as u64;
/// Most objects of an OST, in all cases: a thread of the OST for each.
pub const OBJECTS_MAX: u64 = OST_THREADS_MAX;
/// Limits of the OST (`oss/src/loads.rs`).
pub const RECORD_MIN: u64 = 4096;
const RECORD_MAX: u64 = 16 << 20;

/// Numbers of one point.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Point {
    /// Bytes of a record.
    pub record: u64,
    /// Objects of each OST.
    pub objects: u64,
    /// Threads of each OST.
    pub threads: u64,
}

/// A checked survey.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// The parts that are measured.
    pub case: Case,
    /// Names of the OSTs.
    pub osts: Vec<String>,
    /// The same OSTs.
    #[serde(skip)]
    pub targets: Vec<Target>,
    /// Bytes of each OST in a test.
    pub size: u64,
    /// The points, in their order.
    pub points: Vec<Point>,
    /// Whether the write, the rewrite and the read are shown.
    pub shown: [bool; 3],
    /// Number of runs.
    pub repetitions: u32,
}

impl Plan {
    /// Checks the options, and finds the OSTs.
    ///
    /// # Errors
    /// A message for the user.
    pub fn new(args: &SurveyArgs) -> Result<Plan, String> {
        let mut here = targets::find(args.case);
        let (uses, places) = match args.case {
            Case::Disk => ("serves", "`sheen up` or `sheen oss` runs"),
            Case::Netdisk | Case::Network => ("serves or mounts", "`sheen up`, `sheen oss` or `sheen mount` runs"),
        };
        if here.is_empty() {
            return Err(format!("no OST on this host answers: run it where {places}, as their user"));
        }
        if let Some(twice) = here.windows(2).find(|pair| pair[0].name == pair[1].name) {
            let name = &twice[0].name;
            return Err(format!("two processes serve {name}: set SHEEN_RUNTIME_DIR to the directory of one of them"));
        }
        if let Some(missing) = args.osts.iter().find(|ost| here.iter().all(|target| target.name != **ost)) {
            let known: Vec<&str> = here.iter().map(|target| target.name.as_str()).collect();
            return Err(format!(
                "--osts: no process of yours on this host {uses} {missing}; there are {}",
                known.join(", ")
            ));
        }
        if !args.osts.is_empty() {
            here.retain(|target| args.osts.contains(&target.name));
        }
        let mut plan = Plan::of(args, here.len() as u64)?;
        if plan.case.is_remote() {
            if let Some(target) = here.iter().find(|target| target.nids.is_empty()) {
                return Err(format!("{} has no address in a network: start its server with --listen", target.name));
            }
            machine::check_memory(plan.buffer_bytes(here.len() as u64))?;
        }
        plan.osts = here.iter().map(|target| target.name.clone()).collect();
        plan.targets = here;
        Ok(plan)
    }

    fn of(args: &SurveyArgs, osts: u64) -> Result<Plan, String> {
        let within = |option: &str, text: &str, low: u64, high: u64| {
            let values = numbers(text).map_err(|e| format!("{option} {text}: {e}"))?;
            match values.iter().find(|value| !(low..=high).contains(*value)) {
                Some(value) => Err(format!("{option}: {value} is not in {low} to {high}")),
                None => Ok(values),
            }
        };
        let threads_max = if args.case.is_remote() { CLIENT_THREADS_MAX } else { OST_THREADS_MAX };
        let objects = within("--objects", &args.objects, 1, OBJECTS_MAX)?;
        let threads = match &args.threads {
            Some(threads) => within("--threads", threads, 1, threads_max)?,
            None => {
                within("--threads", THREADS, 1, threads_max)?.into_iter().filter(|n| n * osts <= threads_max).collect()
            }
        };
        if let Some(threads) = threads.iter().find(|n| *n * osts > threads_max) {
            return Err(format!(
                "--threads: {threads} on each of {osts} OSTs are more than {threads_max} together: set fewer, or name some --osts"
            ));
        }
        let records = within("--records", &args.records, RECORD_MIN, RECORD_MAX)?;
        let mut points = Vec::new();
        for &record in &records {
            for &objects in &objects {
                let enough = threads.iter().filter(|threads| **threads >= objects);
                points.extend(enough.map(|&threads| Point { record, objects, threads }));
            }
        }
        if points.is_empty() {
            return Err("--threads: each object needs a thread, so set as many as objects or more".into());
        }
        if let Some(point) = points.iter().find(|point| args.size < point.record * point.threads) {
            let (threads, record) = (point.threads, human(point.record));
            return Err(format!("--size: {threads} threads need at least a record of {record} each"));
        }
        let shown = Test::ALL.map(|test| args.tests.contains(&test));
        Ok(Plan {
            case: args.case,
            osts: Vec::new(),
            targets: Vec::new(),
            size: args.size,
            points,
            shown,
            repetitions: args.repetitions,
        })
    }

    /// Returns the bytes of the records that may be under way at a time.
    fn buffer_bytes(&self, osts: u64) -> u64 {
        self.points.iter().map(|point| osts * point.threads * point.record).max().unwrap_or(0)
    }

    /// Returns the tests that are shown.
    pub fn tests(&self) -> impl Iterator<Item = Test> + use<'_> {
        Test::ALL.into_iter().filter(|test| self.shown[*test as usize])
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn plan(line: &str) -> Result<Plan, String> {
        Plan::of(&SurveyArgs::try_parse_from(["survey"].into_iter().chain(line.split_whitespace())).unwrap(), 2)
    }

    #[test]
    fn points_have_a_thread_for_each_object() {
        let plan = plan("--objects 1-4 --threads 1,2,6 --records 64k-256k").unwrap();
        let of_first: Vec<_> =
            plan.points.iter().filter(|p| p.record == 65_536).map(|p| (p.objects, p.threads)).collect();
        assert_eq!(of_first, [(1, 1), (1, 2), (1, 6), (2, 2), (2, 6), (4, 6)]);
        assert_eq!(plan.points.len(), 3 * 6);
        assert_eq!(plan.tests().map(Test::name).collect::<Vec<_>>(), ["write", "rewrite", "read"]);
    }

    #[test]
    fn cases_over_the_network_have_the_same_points_and_allow_more_threads() {
        let disk = plan("").unwrap();
        for (word, case) in [("netdisk", Case::Netdisk), ("network", Case::Network)] {
            let remote = plan(&format!("--case {word}")).unwrap();
            assert_eq!((remote.case, case.name(), &remote.points), (case, word, &disk.points));
            let many = plan(&format!("--case {word} --objects 1 --threads 128 --records 64k")).unwrap();
            assert_eq!((many.points.len(), many.buffer_bytes(2)), (1, 2 * 128 * 65_536));
        }
        assert_eq!(disk.case, Case::Disk);
    }

    #[test]
    fn contradictions_are_refused_before_the_run() {
        for (line, message) in [
            ("--objects 17", "each object needs a thread"),
            ("--objects 0", "expected a number"),
            ("--objects 8-4", "expected a number"),
            ("--objects x", "not a size"),
            ("--threads 64", "is not in 1 to 32"),
            ("--threads 8-32", "32 on each of 2 OSTs are more than 32 together"),
            ("--records 1k", "is not in 4096"),
            ("--objects 4 --threads 2", "each object needs a thread"),
            ("--size 1m --threads 2 --objects 1", "--size: 2 threads"),
            ("--case network --objects 33", "is not in 1 to 32"),
            ("--case netdisk --threads 257", "is not in 1 to 256"),
            ("--case network --threads 129", "129 on each of 2 OSTs are more than 256 together"),
            ("--case netdisk --objects 4 --threads 2", "each object needs a thread"),
        ] {
            let refused = plan(line).unwrap_err();
            assert!(refused.contains(message), "{line}: {refused}");
        }
    }
}
