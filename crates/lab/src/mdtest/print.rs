//! mdtest's output for people, and CSV.

use crate::{
    clock::Moment,
    machine,
    mdtest::{
        outcome::{Outcome, Phase},
        phase::Kind,
        plan::Plan,
    },
    output::{Format, Lines},
    stats::Spread,
};

const CSV: &str = "operation,iteration,items,seconds,ops/sec";

/// Quantity in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Show {
    /// Operations per second.
    Rate,
    /// Milliseconds of an operation.
    Time,
    /// First one, then the other.
    Both,
}

/// Prints a run.
pub struct Printer<'a> {
    /// The run.
    pub plan: &'a Plan,
    /// [`Format::Default`] or [`Format::Csv`]; anything else prints nothing.
    pub format: Format,
    /// Quantity in the table.
    pub show: Show,
    /// Where to print.
    pub lines: Lines,
}

impl Printer<'_> {
    /// Prints what is known before the run.
    pub fn header(&mut self, command_line: &str) {
        if self.format == Format::Csv {
            self.lines.line(CSV);
        }
        if self.format != Format::Default {
            return;
        }
        let plan = self.plan;
        self.lines.line(&format!("-- started at {} --\n", Moment::now().slashes()));
        self.lines.line(&format!(
            "sheen lab mdtest {} (options and output of mdtest 4) was launched with {} total task(s) on {} node(s)",
            env!("CARGO_PKG_VERSION"),
            plan.tasks,
            plan.node_count()
        ));
        self.lines.line(&format!("Command line used: {command_line}"));
        let dir = plan.dir(0);
        self.lines.line(&format!("{:<20}: {}", "Path", dir.display()));
        if let Some(space) = machine::space(&dir) {
            self.lines.line(&format!("{:<20}: {space}", "FS"));
        }
        if plan.stride > 0 {
            self.lines.line(&format!("Shifting ranks by {} for each phase.", plan.stride));
        }
        let items = u64::from(plan.tasks) * plan.items;
        let what = match (plan.test_files, plan.test_dirs) {
            (true, true) => "files/directories",
            (true, false) => "files",
            _ => "directories",
        };
        self.lines.line(&format!("{} tasks, {items} {what}", plan.tasks));
    }

    /// Prints a phase, if the user wants details.
    pub fn phase(&mut self, phase: &Phase) {
        match self.format {
            Format::Default => {
                if let Some(tasks) = &phase.stonewall {
                    let items = tasks.iter().map(|t| t.items);
                    let mean = items.clone().sum::<u64>() as f64 / tasks.len().max(1) as f64;
                    let (min, max) = (items.clone().min().unwrap_or(0), items.max().unwrap_or(0));
                    self.lines.line(&format!("Continue stonewall hit min: {min} max: {max} avg: {mean:.1} \n"));
                }
                if self.plan.verbose > 0 {
                    self.lines.line(&format!(
                        "V-1:   {:<18}: {:14.3} sec, {:14.3} ops/sec",
                        phase.kind.name(),
                        phase.seconds,
                        phase.rate()
                    ));
                }
            }
            Format::Csv => self.lines.line(&format!(
                "{},{},{},{:.6},{:.3}",
                phase.kind.name(),
                phase.iteration,
                phase.items,
                phase.seconds,
                phase.rate()
            )),
            Format::Json => {}
        }
    }

    /// Prints the tables.
    pub fn summary(&mut self, outcome: &Outcome) {
        if self.format != Format::Default {
            return;
        }
        if self.show != Show::Time {
            self.table("SUMMARY rate (in ops/sec)", outcome, Phase::rate);
        }
        if self.show != Show::Rate {
            self.table("SUMMARY time (in ms/op)", outcome, Phase::milliseconds);
        }
        self.lines.line(&format!("-- finished at {} --", Moment::now().slashes()));
    }

    fn table(&mut self, title: &str, outcome: &Outcome, of: fn(&Phase) -> f64) {
        self.lines.line(&format!("\n{title}: (of {} iterations)", self.plan.iterations));
        self.lines.line("   Operation                     Max            Min           Mean        Std Dev");
        self.lines.line("   ---------                     ---            ---           ----        -------");
        for kind in Kind::ALL {
            if (kind.is_about_dirs() && !self.plan.test_dirs) || (kind.is_about_files() && !self.plan.test_files) {
                continue;
            }
            let values: Vec<f64> = outcome.of(kind).map(of).collect();
            let spread = Spread::of(&values);
            // mdtest estimates the deviation of all runs from these.
            let deviation = match values.len() {
                0 | 1 => 0.0,
                n => spread.deviation * (n as f64 / (n - 1) as f64).sqrt(),
            };
            self.lines.line(&format!(
                "   {:<22} {:14.3} {:14.3} {:14.3} {deviation:14.3}",
                kind.name(),
                spread.max,
                spread.min,
                spread.mean
            ));
        }
    }
}
