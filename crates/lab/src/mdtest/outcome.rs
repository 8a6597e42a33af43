//! Results of a run of mdtest.
//!
//! The rate of a phase is the number of items of all tasks, divided by the time from the first
//! begin to the last end.

use crate::{
    mdtest::{
        phase::Kind,
        plan::Plan,
        step::{Progress, Report},
    },
    span::Span,
};

/// A phase of one iteration.
#[derive(Clone, PartialEq, Debug)]
pub struct Phase {
    /// Kind of the phase.
    pub kind: Kind,
    /// The iteration.
    pub iteration: u32,
    /// Number of items of all tasks.
    pub items: u64,
    /// Seconds from the first begin to the last end.
    pub seconds: f64,
    /// Files whose data was wrong.
    pub errors: u64,
    /// Progress of each task when the stonewall was hit.
    pub stonewall: Option<Vec<Progress>>,
}

impl Phase {
    /// Combines the reports of the tasks.
    pub fn new(plan: &Plan, kind: Kind, iteration: u32, reports: &[Report], stonewall: Option<Vec<Progress>>) -> Phase {
        let trees = matches!(kind, Kind::TreeCreate | Kind::TreeRemove);
        Phase {
            kind,
            iteration,
            // mdtest counts the directories of one tree.
            items: if trees { plan.tree.dirs() } else { reports.iter().map(|r| r.items).sum() },
            seconds: Span::around(reports.iter().map(|r| r.span)).seconds(),
            errors: reports.iter().map(|r| r.errors).sum(),
            stonewall,
        }
    }

    /// Returns the operations per second.
    pub fn rate(&self) -> f64 {
        self.items as f64 / self.seconds
    }

    /// Returns the milliseconds of an operation.
    pub fn milliseconds(&self) -> f64 {
        self.seconds * 1e3 / self.items as f64
    }
}

/// All results of a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// The phases, in their order.
    pub phases: Vec<Phase>,
}

impl Outcome {
    /// Returns the phases of a kind.
    pub fn of(&self, kind: Kind) -> impl Iterator<Item = &Phase> {
        self.phases.iter().filter(move |phase| phase.kind == kind)
    }

    /// Returns the number of files whose data was wrong.
    pub fn errors(&self) -> u64 {
        self.phases.iter().map(|phase| phase.errors).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_counts_the_items_of_all_tasks() {
        let plan = Plan::example("-n 100 --tasks 2 -b 2 -z 1").unwrap();
        let report = |start: u64, end: u64| Report { span: Span { start, end }, items: 99, errors: 0 };
        let reports = [report(0, 1_000_000_000), report(1_000_000_000, 2_000_000_000)];
        let phase = |kind| Phase::new(&plan, kind, 0, &reports, None);
        assert_eq!((phase(Kind::FileStat).rate(), phase(Kind::TreeCreate).rate()), (99.0, 1.5));
        assert!((phase(Kind::FileStat).milliseconds() - 10.1).abs() < 0.01);
    }
}
