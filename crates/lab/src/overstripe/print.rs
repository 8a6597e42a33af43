//! The table of a comparison.

use crate::{
    output::Lines,
    overstripe::{
        outcome::{Gain, Point},
        plan::{Curve, Plan},
    },
    size::human,
    stats::counted,
};

/// Prints a comparison.
pub struct Printer {
    /// Where to print.
    pub lines: Lines,
}

impl Printer {
    /// Prints what is known before the run.
    pub fn header(&mut self, plan: &Plan) {
        let osts: Vec<String> = plan.osts.iter().map(u32::to_string).collect();
        if let Some(machines) = &plan.machines {
            self.lines.line(&format!("simulated: {}: {}", machines.name, machines.stated));
            self.lines.line(&format!("  assumed: {}", machines.assumed));
        }
        let reading = if plan.read { ", then read it" } else { "" };
        self.lines.line(&format!(
            "nodes with {} each write {} to a file on OST {}, record by record in turn, and fsync{reading}",
            counted(plan.ppn, "task"),
            human(plan.size),
            osts.join(",")
        ));
    }

    /// Prints all points.
    pub fn points(&mut self, points: &[Point]) {
        let read = points.iter().any(|point| point.read.is_some());
        let title = if read { "        read [     min,      max]" } else { "" };
        self.lines.line(&format!(
            "locks    nodes     record stripes/OST  write MiB/s [     min,      max]{title}   locks callbacks MiB/callback"
        ));
        for point in points {
            let rates = |[middle, low, high]: [f64; 3]| format!("{middle:>12.1} [{low:>8.1}, {high:>8.1}]");
            let number = |value: Option<f64>, digits| value.map_or("-".into(), |v| format!("{v:.digits$}"));
            let Curve { locks, nodes, record } = point.curve;
            self.lines.line(&format!(
                "{:8} {nodes:>5} {:>10} {:>11} {}{} {:>7} {:>9} {:>12}",
                locks.unwrap_or("as set"),
                human(record),
                point.layout.name(),
                rates(point.write),
                point.read.map_or_else(String::new, rates),
                number(point.grants, 0),
                number(point.callbacks, 0),
                number(point.mib_per_callback, 1)
            ));
        }
    }

    /// Prints what more stripes bring.
    pub fn gains(&mut self, gains: &[Gain]) {
        if !gains.is_empty() {
            self.lines.line("");
        }
        gains.iter().for_each(|gain| self.lines.line(&sentence(gain)));
    }
}

/// Returns the gain of a curve in words.
pub fn sentence(gain: &Gain) -> String {
    let Gain { curve, fewest, best, files } = gain;
    let files = files.map_or_else(String::new, |rate| format!("; a file for each task: {rate:.0} MiB/s"));
    format!(
        "{}: {:.0} MiB/s with {} on an OST; best {:.0} MiB/s with {} ({:.2} ×){files}",
        name(*curve),
        fewest.0,
        counted(fewest.1, "stripe"),
        best.0,
        counted(best.1, "stripe"),
        best.0 / fewest.0
    )
}

/// Returns the name of a curve.
pub fn name(curve: Curve) -> String {
    let locks = curve.locks.map_or_else(String::new, |locks| format!(", {locks} locks"));
    format!("{}, {}{locks}", counted(curve.nodes, "node"), human(curve.record))
}
