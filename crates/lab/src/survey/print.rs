//! The lines of obdfilter-survey.

use crate::{
    machine,
    output::Lines,
    survey::{
        args::Case,
        outcome::{Limits, Rates},
        plan::{Plan, Point},
    },
};

/// Prints a survey.
pub struct Printer {
    /// Where to print.
    pub lines: Lines,
}

impl Printer {
    /// Prints what is known before the run.
    pub fn header(&mut self, case: Case, began: &str) {
        let [_, host, _] = machine::system();
        self.lines.line(&format!("{began} Obdfilter-survey for case={} from {host}", case.name()));
    }

    /// Prints the results of a point: the median in MiB/s, and the extremes of single OSTs.
    /// Objects and threads are those of all OSTs together, as in the original.
    pub fn point(&mut self, plan: &Plan, point: Point, all: &[Rates]) {
        let osts = plan.osts.len() as u64;
        let mut text = format!(
            "ost {osts:2} sz {:9}K rsz {:4}K obj {:4} thr {:4}",
            osts * plan.size / 1024,
            point.record / 1024,
            osts * point.objects,
            osts * point.threads
        );
        for rates in all {
            let (total, low, high) = rates.summary();
            text.push_str(&format!(" {} {total:8.2} [{low:8.2}, {high:8.2}]", rates.test));
        }
        self.lines.line(&text);
    }

    /// Prints the limits of an OST.
    pub fn limits(&mut self, all: &[Limits]) {
        if !all.is_empty() {
            self.lines.line("");
        }
        for Limits { test, record, fewest, few, peak, objects } in all {
            let record = record / 1024;
            let objects = crate::stats::counted(*objects, "object");
            let fewest = crate::stats::counted(*fewest, "object");
            self.lines.line(&format!(
                "{test}, records of {record} KiB: {few:.0} MiB/s with {fewest}, peak of an OST {peak:.0} MiB/s with {objects}"
            ));
        }
    }
}
