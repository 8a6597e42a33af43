//! The tables of the workloads.

use crate::{
    output::Lines,
    stats::median,
    workloads::outcome::{Group, Measured, Outcome, Quantity},
};

/// Prints the results.
pub struct Printer {
    /// Where to print.
    pub lines: Lines,
}

impl Printer {
    /// Prints a workload: all values, and then the best experiments.
    pub fn group(&mut self, group: &Group) {
        self.lines.line(&format!("\n{}", group.title));
        self.lines.line(
            "experiment  striping                    quantity                                    median [     min,      max]  gain  static",
        );
        for measured in group.results() {
            let Measured { experiment, striping, quantity, .. } = &measured;
            let [middle, low, high] = measured.summary();
            self.lines.line(&format!(
                "{experiment:11} {striping:27} {:38} {middle:>9.2} [{low:>8.2}, {high:>8.2}] {:>5.2} {:>7.2}",
                name(*quantity),
                median(&measured.gains),
                median(&measured.static_gains)
            ));
        }
        self.lines.line("");
        comparisons(group).iter().for_each(|comparison| self.lines.line(comparison));
    }
}

/// Returns the seconds of each workload and of the run.
pub fn durations(outcome: &Outcome) -> String {
    let total = ("total", outcome.seconds);
    let all = outcome.durations.iter().copied().chain([total]);
    all.map(|(name, seconds)| format!("{name} {seconds:.1} s")).collect::<Vec<_>>().join(", ")
}

/// Compares the experiments by each quantity in a sentence: the best static one with the first, and
/// the best dynamic one with the best static one.
pub fn comparisons(group: &Group) -> Vec<String> {
    let of = |quantity: Quantity| {
        let best = |dynamic| group.best(quantity, dynamic).and_then(|experiment| group.get(experiment, quantity));
        let fixed = best(false)?;
        let first = group.experiments.first()?.name;
        let mut text = format!("{}: best static {}", name(quantity), fixed.experiment);
        if fixed.experiment != first && !fixed.gains.is_empty() {
            text += &format!(" (gain {:.2} over {first})", median(&fixed.gains));
        }
        if let Some(dynamic) = best(true) {
            let gain = median(&dynamic.static_gains);
            text += &format!(", best dynamic {} (gain {gain:.2} over {})", dynamic.experiment, fixed.experiment);
        }
        Some(text)
    };
    group.quantities().into_iter().filter_map(of).collect()
}

/// Returns the name of a quantity with its unit.
pub fn name(quantity: Quantity) -> String {
    let Quantity { name, unit, variation } = quantity;
    let variation = if variation.is_empty() { String::new() } else { format!(" ({variation})") };
    format!("{name}, {unit}{variation}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::patterns::IOR;

    #[test]
    fn durations_are_those_of_each_workload_and_of_the_run() {
        let mut outcome = Outcome { seconds: 3.04, ..Outcome::default() };
        assert_eq!(durations(&outcome), "total 3.0 s");
        outcome.durations = vec![("IOR", 15.21), ("netflow", 34.5)];
        outcome.seconds = 52.96;
        assert_eq!(durations(&outcome), "IOR 15.2 s, netflow 34.5 s, total 53.0 s");
    }

    #[test]
    fn comparisons_name_the_best_static_and_dynamic_experiments() {
        let read = Quantity { name: "read", unit: "MiB/s", variation: "" };
        let mut outcome = Outcome::default();
        outcome.begin("IOR".into(), &IOR.iter().collect::<Vec<_>>());
        outcome.add(&IOR[0], read, 4.0);
        assert_eq!(comparisons(&outcome.groups[0]), ["read, MiB/s: best static IOR.1"]);
        for (number, value) in [(1, 8.0), (3, 4.0), (5, 10.0)] {
            outcome.add(&IOR[number], read, value);
        }
        let text = "read, MiB/s: best static IOR.2 (gain 2.00 over IOR.1), best dynamic IOR.6 (gain 1.25 over IOR.2)";
        assert_eq!(comparisons(&outcome.groups[0]), [text]);
    }
}
