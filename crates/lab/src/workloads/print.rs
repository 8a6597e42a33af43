//! The tables of the workloads.

use crate::{
    output::Lines,
    stats::median,
    workloads::outcome::{Group, Measured, Quantity},
};

/// Prints the results.
pub struct Printer {
    /// Where to print.
    pub lines: Lines,
}

impl Printer {
    /// Prints a workload.
    pub fn group(&mut self, group: &Group) {
        self.lines.line(&format!("\n{}", group.title));
        self.lines.line(
            "experiment  striping                    quantity                                    median [     min,      max]  gain",
        );
        for measured in group.results() {
            let Measured { experiment, striping, quantity, .. } = &measured;
            let [middle, low, high] = measured.summary();
            self.lines.line(&format!(
                "{experiment:11} {striping:27} {:38} {middle:>9.2} [{low:>8.2}, {high:>8.2}] {:>5.2}",
                name(*quantity),
                median(&measured.gains)
            ));
        }
    }
}

/// Returns the name of a quantity with its unit.
pub fn name(quantity: Quantity) -> String {
    let Quantity { name, unit, variation } = quantity;
    let variation = if variation.is_empty() { String::new() } else { format!(" ({variation})") };
    format!("{name}, {unit}{variation}")
}
