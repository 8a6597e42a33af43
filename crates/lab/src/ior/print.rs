//! IOR's output for people, and its CSV.

use crate::{
    clock::Moment,
    ior::{
        outcome::{Outcome, Phase},
        plan::{Plan, Reorder},
        prediction::{Compared, Predictions},
        step::Access,
    },
    machine,
    output::{Format, Lines},
    size::human,
    stats::Spread,
};

const KIB: f64 = 1024.0;
/// MiB/s in MB/s.
const MB: f64 = 1.048_576;
const PHASES: &str = "\
\naccess    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter
------    ---------  ----       ----------  ---------- ---------  --------   --------   --------   --------   ----";
const CSV: &str = "access,bw(MiB/s),IOPS,Latency,block(KiB),xfer(KiB),open(s),wr/rd(s),close(s),total(s),numTasks,iter";
const SUMMARY: &str = "\
Operation   Max(MiB)   Min(MiB)  Mean(MiB)     StdDev   Max(OPs)   Min(OPs)  Mean(OPs)     StdDev    Mean(s) \
Stonewall(s) Stonewall(MiB) Test# #Tasks tPN reps fPP reord reordoff reordrand seed segcnt   blksiz    xsize \
aggs(MiB)   API RefNum";

/// Prints a run.
pub struct Printer<'a> {
    /// The run.
    pub plan: &'a Plan,
    /// [`Format::Default`] or [`Format::Csv`]; anything else prints nothing.
    pub format: Format,
    /// Where to print.
    pub lines: Lines,
}

impl Printer<'_> {
    fn pair(&mut self, key: &str, value: impl std::fmt::Display) {
        self.lines.line(&format!("{key:<20}: {value}"));
    }

    fn is_table(&self) -> bool {
        self.format == Format::Default
    }

    /// Prints what is known before the run.
    pub fn header(&mut self, command_line: &str) {
        if self.format == Format::Csv {
            self.lines.line(CSV);
        }
        if !self.is_table() {
            return;
        }
        let plan = self.plan;
        let [system, host, release] = machine::system();
        let now = Moment::now().ctime();
        self.lines.line(&format!("sheen lab ior {} (options and output of IOR 4)", env!("CARGO_PKG_VERSION")));
        self.pair("Began", &now);
        self.pair("Command line", command_line);
        let detail = if plan.verbose >= 2 { format!(" {release}") } else { String::new() };
        self.pair("Machine", format!("{system} {host}{detail}"));
        self.pair("TestID", 0);
        self.pair("StartTime", &now);
        let path = plan.path(0, 0, 0);
        self.pair("Path", path.display());
        if let Some(space) = machine::space(&path) {
            self.pair("FS", space);
        }
        self.lines.line("\nOptions: ");
        self.options();
        self.lines.line("\nResults: ");
        self.lines.line(PHASES);
    }

    fn options(&mut self) {
        let plan = self.plan;
        self.pair("api", "POSIX");
        self.pair("test filename", plan.file.display());
        self.pair("access", if plan.file_per_process { "file-per-process" } else { "single-shared-file" });
        self.pair("type", "independent");
        self.pair("segments", plan.segments);
        self.pair("ordering in a file", if plan.random_offset.is_some() { "random" } else { "sequential" });
        match plan.reorder {
            Reorder::None => self.pair("ordering inter file", "no tasks offsets"),
            Reorder::Constant(distance) => {
                self.pair("ordering inter file", "constant task offset");
                self.pair("task offset", distance);
            }
            Reorder::Random { seed, .. } | Reorder::Shuffled { seed } => {
                self.pair("ordering inter file", "random task offset");
                self.pair("reorder random seed", seed);
            }
        }
        self.pair("nodes", plan.node_count());
        self.pair("tasks", plan.tasks);
        self.pair("clients per node", plan.tasks.div_ceil(plan.node_count()));
        self.pair("repetitions", plan.repetitions);
        self.pair("xfersize", human(plan.transfer));
        self.pair("blocksize", human(plan.block));
        self.pair("aggregate filesize", human(plan.bytes()));
        if plan.verbose > 0 {
            self.pair("verbose", plan.verbose);
        }
        if plan.deadline > 0 {
            self.pair("stonewallingTime", plan.deadline);
            self.pair("stoneWallingWearOut", u8::from(plan.wear_out));
        }
    }

    /// Prints a phase.
    pub fn phase(&mut self, phase: &Phase) {
        let plan = self.plan;
        let numbers = [
            phase.bandwidth(),
            phase.iops,
            phase.latency,
            plan.block as f64 / KIB,
            plan.transfer as f64 / KIB,
            phase.open,
            phase.transfer,
            phase.close,
            phase.total,
        ];
        match self.format {
            Format::Default => {
                if let (Some(tasks), true) = (&phase.stonewall, plan.verbose > 0) {
                    for (rank, task) in tasks.iter().enumerate() {
                        self.lines.line(&format!("{rank}: stonewalling pairs accessed: {}", task.transfers));
                    }
                }
                if let (Some(tasks), Some((seconds, _))) = (&phase.stonewall, phase.until_stonewall()) {
                    let counts = tasks.iter().map(|t| t.transfers);
                    let gib = |bytes: u64| bytes as f64 / 1_073_741_824.0;
                    let least = tasks.iter().map(|t| t.bytes).min().unwrap_or(0);
                    let mean = tasks.iter().map(|t| t.bytes).sum::<u64>() / tasks.len().max(1) as u64;
                    self.lines.line(&format!(
                        "stonewalling pairs accessed min: {} max: {} -- min data: {:.1} GiB mean data: {:.1} GiB time: {seconds:.1}s",
                        counts.clone().min().unwrap_or(0),
                        counts.max().unwrap_or(0),
                        gib(least),
                        gib(mean),
                    ));
                }
                let [bandwidth, iops, latency, rest @ ..] = numbers.map(number);
                let rest = rest.join(" ");
                let name = phase.name();
                self.lines.line(&format!("{name:<10}{bandwidth} {iops} {latency}  {rest} {:<4}", phase.repetition));
            }
            Format::Csv => {
                let numbers = numbers.map(|number| format!("{number:.4}")).join(",");
                self.lines.line(&format!("{},{numbers},{},{}", phase.name(), plan.tasks, phase.repetition));
            }
            Format::Json => {}
        }
    }

    /// Prints the time of a removal.
    pub fn removed(&mut self, repetition: u32, seconds: f64) {
        if self.is_table() && self.plan.verbose > 0 {
            let nothing =
                format!("{:<11}{:<11}{:<12}{:<11}{:<11}", "-", "-", "-", "-", "-") + &format!("{:<11}", "-").repeat(3);
            self.lines.line(&format!("{:<10}{nothing}{} {repetition:<4}", "remove", number(seconds)));
        }
    }

    /// Prints the summary.
    pub fn summary(&mut self, outcome: &Outcome) {
        if !self.is_table() {
            return;
        }
        for (access, name) in [(Access::Write, "Max Write: "), (Access::Read, "Max Read:  ")] {
            if let Some(best) = outcome.of(access).map(Phase::bandwidth).reduce(f64::max) {
                self.lines.line(&format!("{name}{best:.2} MiB/sec ({:.2} MB/sec)", best * MB));
            }
        }
        self.lines.line("\nSummary of all tests:");
        self.lines.line(SUMMARY);
        for access in [Access::Write, Access::Read] {
            if outcome.of(access).next().is_some() {
                let row = self.summary_row(outcome, access);
                self.lines.line(&row);
            }
        }
        self.pair("Finished", Moment::now().ctime());
    }

    /// Prints what the model of the file system or pool has predicted, or why it has not.
    pub fn predictions(&mut self, predictions: &Predictions) {
        if !self.is_table() {
            return;
        }
        if let Some(reason) = &predictions.missing {
            self.pair("no prediction", reason);
        }
        for Compared { direction, predicted, measured, error } in &predictions.compared {
            let text = format!(
                "{:.0} MiB/s ({measured:.0} measured, error {:.0} %), limited by {}",
                predicted.rate,
                error * 100.0,
                predicted.limit.name()
            );
            self.pair(&format!("predicted {}", direction.name()), text);
        }
    }

    fn summary_row(&self, outcome: &Outcome, access: Access) -> String {
        let plan = self.plan;
        let phases: Vec<&Phase> = outcome.of(access).collect();
        let values = |of: &dyn Fn(&Phase) -> f64| phases.iter().map(|p| of(p)).collect::<Vec<f64>>();
        let bandwidth = Spread::of(&values(&Phase::bandwidth));
        // IOR's summary divides by the whole time, unlike its column IOPS.
        let operations = Spread::of(&values(&|p| p.bytes as f64 / plan.transfer as f64 / p.total));
        let spread = |s: Spread| format!("{:10.2} {:10.2} {:10.2} {:10.2}", s.max, s.min, s.mean, s.deviation);
        let stonewalls: Vec<(f64, f64)> = phases.iter().filter_map(|p| p.until_stonewall()).collect();
        let mean = |of: fn(&(f64, f64)) -> f64| stonewalls.iter().map(of).sum::<f64>() / stonewalls.len() as f64;
        let stonewall = if stonewalls.is_empty() {
            format!("{:>10} {:>13}", "NA", "NA")
        } else {
            format!("{:10.2} {:13.2}", mean(|s| s.0), mean(|s| s.1))
        };
        let (constant, distance, random, seed) = match plan.reorder {
            Reorder::None => (0, 1, 0, 0),
            Reorder::Constant(distance) => (1, distance, 0, 0),
            Reorder::Random { distance, seed } => (0, distance, 1, seed),
            Reorder::Shuffled { seed } => (0, 1, 2, seed),
        };
        format!(
            "{:<9} {} {} {:10.5} {stonewall} {:5} {:6} {:3} {:4} {:3} {constant:5} {distance:8} {random:9} {seed:4} \
             {:6} {:8} {:8} {:9.1} {:>3} {:6}",
            if access == Access::Write { "write" } else { "read" },
            spread(bandwidth),
            spread(operations),
            Spread::of(&values(&|p| p.total)).mean,
            0,
            plan.tasks,
            plan.tasks.div_ceil(plan.node_count()),
            plan.repetitions,
            u8::from(plan.file_per_process),
            plan.segments,
            plan.block,
            plan.transfer,
            phases.first().map_or(0.0, |p| p.bytes as f64 / 1_048_576.0),
            "POSIX",
            plan.reference,
        )
    }
}

/// Formats a number in ten columns: six decimals below 1, two below 3600, else none.
fn number(value: f64) -> String {
    let decimals = match value {
        v if v < 1.0 => 6,
        v if v < 3600.0 => 2,
        _ => 0,
    };
    format!("{value:<10.decimals$}")
}
