//! The tables of a model.

use crate::{
    output::Lines,
    predict::{
        costs::{COSTS, Costs},
        fit::Errors,
        load::Direction,
        store::{Model, Run},
    },
    prober::describe,
    stats::counted,
};

/// Names of the costs, in the order of [`Costs::to_array`], and their unit.
const NAMES: [(&str, Unit); COSTS] = [
    ("a task, of a transfer", Unit::Microseconds),
    ("a task", Unit::Rate),
    ("a mount", Unit::Rate),
    ("a file on a mount, of a transfer", Unit::Microseconds),
    ("a file on a mount, small transfers", Unit::Rate),
    ("a file on a mount, transfers from 256 KiB", Unit::Rate),
    ("all together, of a transfer that does not follow the last", Unit::Microseconds),
    ("all together, of a transfer", Unit::Microseconds),
    ("all together", Unit::Rate),
    ("an object", Unit::Rate),
    ("an OST", Unit::Rate),
    ("locks, of a change between nodes", Unit::Microseconds),
    ("locks, of a MiB before a change", Unit::Microseconds),
    ("a file, to open and close", Unit::Microseconds),
];
/// A part that is faster than this, in MiB/s, limits nothing.
const NO_LIMIT: f64 = 1e5;
/// A cost below this, in µs, limits nothing.
const NOTHING: f64 = 0.1;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// MiB/s.
    Rate,
    Microseconds,
}

/// The rows of a table of costs: the part and the unit, then writes and reads.
pub fn rows(model: &Model) -> Vec<[String; 3]> {
    let column = |costs: Option<&Costs>| costs.map(|costs| costs.to_array());
    let [write, read] = Direction::ALL.map(|direction| column(model.costs(direction)));
    let value = |unit: Unit, seconds: f64| match unit {
        Unit::Rate if 1.0 / seconds > NO_LIMIT => "no limit".into(),
        Unit::Rate => format!("{:.0} MiB/s", 1.0 / seconds),
        Unit::Microseconds if seconds * 1e6 < NOTHING => "0 µs".into(),
        Unit::Microseconds => format!("{:.1} µs", seconds * 1e6),
    };
    let row = |(n, (name, unit)): (usize, &(&str, Unit))| {
        let cell = |costs: Option<[f64; COSTS]>| costs.map_or("–".into(), |costs| value(*unit, costs[n]));
        [(*name).to_owned(), cell(write), cell(read)]
    };
    NAMES.iter().enumerate().map(row).collect()
}

/// Returns errors in words.
pub fn errors(errors: &Errors) -> String {
    format!(
        "median {:.1} % of {}, nine of ten within {:.0} %",
        errors.median * 100.0,
        counted(errors.runs as u32, "run"),
        errors.most * 100.0
    )
}

/// Prints a model.
pub struct Printer {
    /// Where to print.
    pub lines: Lines,
}

impl Printer {
    /// Prints the costs.
    pub fn model(&mut self, model: &Model) {
        let osts = counted(model.osts, "OST");
        self.lines.line(&format!(
            "model of {} ({osts}) on {}, calibrated {}",
            model.key.name(),
            model.key.host,
            model.calibrated
        ));
        self.lines.line(&format!("{:58}{:>14}{:>14}", "part", "write", "read"));
        for [part, write, read] in rows(model) {
            self.lines.line(&format!("{part:58}{write:>14}{read:>14}"));
        }
    }

    /// Prints a line with errors.
    pub fn errors(&mut self, what: &str, of: Option<&Errors>) {
        if let Some(of) = of {
            self.lines.line(&format!("{what}: {}", errors(of)));
        }
    }

    /// Prints the runs.
    pub fn runs(&mut self, runs: &[Run]) {
        self.lines.line("");
        self.lines.line(&format!(
            "{:9}{:52}{:40}{:>10}{:>10}{:>8}",
            "access", "job", "layout", "measured", "predicted", "error"
        ));
        for run in runs {
            self.lines.line(&format!(
                "{:9}{:52}{:40}{:>10.0}{:>10.0}{:>6.0} %",
                run.direction.name(),
                describe(&run.workload),
                run.shape.name(),
                run.measured,
                run.predicted.rate,
                run.error() * 100.0
            ));
        }
    }
}
