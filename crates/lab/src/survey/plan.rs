//! A survey, checked: the points that it measures.

use serde::Serialize;

use crate::{
    processes::{self, Process},
    size::{human, numbers},
    survey::args::{SurveyArgs, Test},
};

/// The parameter of an OST that starts a load.
pub const PARAM: &str = "survey";
/// Default of `--threads`, as far as [`THREADS_MAX`] allows it.
const THREADS: &str = "1-16";
/// Most threads of all OSTs together, which may share a process: half of its threads for blocking
/// work.
const THREADS_MAX: u64 = 32;
/// Limits of the OST (`oss/src/loads.rs`).
const RECORD_MIN: u64 = 4096;
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
    /// Names of the OSTs.
    pub osts: Vec<String>,
    /// Their processes.
    #[serde(skip)]
    pub processes: Vec<Process>,
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
        let here = processes::with(&format!("obdfilter.*.{PARAM}")).found;
        let mut here: Vec<(String, Process)> = here
            .into_iter()
            .filter_map(|(name, process)| Some((name.split('.').nth(1)?.to_owned(), process)))
            .collect();
        here.sort_by(|a, b| a.0.cmp(&b.0));
        if here.is_empty() {
            return Err(
                "no OST on this host answers: run it where `sheen up` or `sheen oss` runs, as their user".into()
            );
        }
        if let Some(twice) = here.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let name = &twice[0].0;
            return Err(format!("two processes serve {name}: set SHEEN_RUNTIME_DIR to the directory of one of them"));
        }
        if let Some(missing) = args.osts.iter().find(|ost| here.iter().all(|(name, _)| name != *ost)) {
            let known: Vec<&str> = here.iter().map(|(name, _)| name.as_str()).collect();
            return Err(format!(
                "--osts: no process of yours on this host serves {missing}; there are {}",
                known.join(", ")
            ));
        }
        if !args.osts.is_empty() {
            here.retain(|(name, _)| args.osts.contains(name));
        }
        let mut plan = Plan::of(args, here.len() as u64)?;
        (plan.osts, plan.processes) = here.into_iter().unzip();
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
        let objects = within("--objects", &args.objects, 1, THREADS_MAX)?;
        let threads = match &args.threads {
            Some(threads) => within("--threads", threads, 1, THREADS_MAX)?,
            None => {
                within("--threads", THREADS, 1, THREADS_MAX)?.into_iter().filter(|n| n * osts <= THREADS_MAX).collect()
            }
        };
        if let Some(threads) = threads.iter().find(|n| *n * osts > THREADS_MAX) {
            return Err(format!(
                "--threads: {threads} on each of {osts} OSTs are more than {THREADS_MAX} together: set fewer, or name some --osts"
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
            osts: Vec::new(),
            processes: Vec::new(),
            size: args.size,
            points,
            shown,
            repetitions: args.repetitions,
        })
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
        ] {
            let refused = plan(line).unwrap_err();
            assert!(refused.contains(message), "{line}: {refused}");
        }
    }
}
