//! The report of a check, for people and for programs.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;

use serde::Serialize;
use sheen_mds::{Check, Identity, Problem, RedbStore};

use crate::error::{Context, Result};

/// The report.
#[derive(Serialize)]
pub struct Report {
    fsname: String,
    mdt: String,
    files: u64,
    objects: u64,
    /// Indices of the OSTs whose objects were checked.
    osts: BTreeSet<u32>,
    /// Indices of the other OSTs that have objects of files.
    unchecked_osts: BTreeSet<u32>,
    problems: Vec<Found>,
    /// Number of all problems that the first check found, or a repair brought up.
    pub problem_count: u64,
    repaired: u64,
    /// Number of problems after the repair, or without one.
    pub left: u64,
    /// Copy of the metadata from before the repair.
    pub copy: Option<PathBuf>,
    /// A repair had no effect: the store itself is damaged.
    #[serde(rename = "damaged")]
    pub is_stuck: bool,
    /// Number of records that were copied from a damaged store to a new one.
    pub salvaged: Option<u64>,
}

#[derive(Serialize)]
struct Found {
    problem: &'static str,
    fid: Option<String>,
    path: Option<String>,
    text: String,
    /// The change that a repair makes; `None`: there is no repair.
    repair: Option<&'static str>,
    repaired: bool,
}

impl Report {
    /// Begins the report of a check of these OSTs.
    pub fn new(mdt: &Identity, check: &Check, osts: BTreeSet<u32>) -> Report {
        Report {
            fsname: mdt.fsname.clone(),
            mdt: format!("{}-MDT{:04x}", mdt.fsname, mdt.index),
            files: check.files_count(),
            objects: check.objects_count(),
            unchecked_osts: check.osts().difference(&osts).copied().collect(),
            osts,
            problems: Vec::new(),
            problem_count: check.problem_count(),
            repaired: 0,
            left: 0,
            copy: None,
            is_stuck: false,
            salvaged: None,
        }
    }

    /// Adds the problems of a check that no earlier one has found.
    pub fn found(&mut self, store: &RedbStore, check: &Check) {
        let known: HashSet<String> = self.problems.iter().map(|found| found.text.clone()).collect();
        for problem in check.problems() {
            let text = problem.to_string();
            if !known.contains(&text) {
                self.problems.push(Found {
                    problem: problem.name(),
                    fid: problem.fid().map(|fid| fid.to_string()),
                    path: problem.fid().and_then(|fid| Check::path(store, fid)),
                    text,
                    repair: problem.repair(),
                    repaired: false,
                });
            }
        }
        self.problem_count = self.problem_count.max(self.problems.len() as u64).max(check.problem_count());
    }

    /// Records which problems the last check still found.
    pub fn finish(&mut self, last: &Check) {
        let left: HashSet<String> = last.problems().iter().map(Problem::to_string).collect();
        for found in &mut self.problems {
            found.repaired = !left.contains(&found.text);
        }
        (self.files, self.objects) = (last.files_count(), last.objects_count());
        self.left = last.problem_count();
        // The last check may find problems that no earlier one found.
        self.problem_count = self.problem_count.max(self.left);
        self.repaired = self.problem_count - self.left;
    }

    /// Prints the report.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn print(&self, json: bool) -> Result {
        if json {
            println!("{}", serde_json::to_string_pretty(self).context("cannot print")?);
            return Ok(());
        }
        for Found { path, text, repair, repaired, .. } in &self.problems {
            let path = path.as_ref().map(|path| format!(" ({path})")).unwrap_or_default();
            println!("{text}{path}");
            match (repair, repaired) {
                (Some(repair), true) => println!("  repaired: {repair}"),
                (Some(repair), false) => println!("  repair: {repair}"),
                (None, _) => println!("  there is no repair"),
            }
        }
        let unlisted = self.problem_count - self.problems.len() as u64;
        if unlisted > 0 {
            println!("and {unlisted} more problems");
        }
        if let Some(records) = self.salvaged {
            println!("the damaged metadata store was replaced by a new one with {records} readable records");
        }
        if self.is_stuck && self.left > 0 {
            println!("repairs have no effect, because the store itself is damaged; --salvage makes a new one");
        }
        for ost in &self.unchecked_osts {
            println!("the objects on OST{ost:04x} were not checked; add --dir with its directory");
        }
        println!("{}", self.summary());
        Ok(())
    }

    fn summary(&self) -> String {
        let Report { mdt, files, objects, problem_count, repaired, .. } = self;
        let osts = self.osts.len();
        let checked = format!("{mdt}: {files} files and {objects} objects, on {osts} checked OSTs");
        match (problem_count, &self.copy) {
            (0, _) => format!("{checked}: no problems"),
            (_, Some(copy)) => {
                let copy = copy.display();
                format!(
                    "{checked}: {problem_count} problems, {repaired} repaired\nthe metadata before the repair: {copy}"
                )
            }
            _ if self.problems.iter().any(|found| found.repair.is_some()) => {
                format!("{checked}: {problem_count} problems; --repair repairs them, and copies the metadata first")
            }
            _ => format!("{checked}: {problem_count} problems"),
        }
    }
}
