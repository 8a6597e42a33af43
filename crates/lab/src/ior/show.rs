//! Runs IOR for a user: options, output, files with results.

use std::io;

use crate::{
    chart::{Chart, Panel, Scale, Values},
    clock::Moment,
    ior::{
        args::IorArgs,
        json,
        outcome::{Outcome, Phase},
        plan::Plan,
        prediction::{self, Predictions},
        print::Printer,
        run::run,
        step::Access,
    },
    launch, machine,
    output::{Format, Lines},
    record::Circumstances,
    report::Report,
    session::Session,
    stats::{counted, median, range},
    status_file,
    table::Table,
};

/// Runs IOR. `words` is the command line, for the record.
///
/// # Errors
/// A message for the user.
pub fn main(args: &IorArgs, words: &str) -> Result<(), String> {
    let plan = Plan::new(args)?;
    args.places.check()?;
    machine::check_memory(plan.memory_bytes() / u64::from(launch::hosts()))?;
    status_file::check(plan.status_file.as_deref(), plan.write)?;
    let format = args.output.format.unwrap_or_default();
    let began = Moment::now();
    let phases = [plan.write, plan.check_write, plan.read || plan.check_read];
    let phases = phases.iter().filter(|phase| **phase).count() * plan.repetitions as usize;
    let mut session = Session::new(phases, &args.output)?;
    let mut printer = Printer { plan: &plan, format, lines: Lines::to(io::stdout()) };
    printer.header(words);
    if let Some(path) = plan.existing_file() {
        let fate = if plan.use_existing { "overwritten" } else { "deleted" };
        session.warn(format!("the file {} exists already and will be {fate}", path.display()));
    }
    let models = prediction::models(&plan);
    let mut outcome = Outcome { wants_layout: models.is_some(), ..Outcome::default() };
    let result = run(&plan, &mut outcome, &mut session, &mut printer);
    printer.summary(&outcome);
    let mut predictions = Predictions::default();
    if let (Ok(()), Some(models)) = (&result, &models) {
        predictions = models.compare(&plan, &outcome, began);
        printer.predictions(&predictions);
        if let Some(warning) = &predictions.not_stored {
            session.warn(warning.clone());
        }
    }
    let mut run = Circumstances::new("sheen lab ior", words, plan.repetitions, began);
    run.file_system = machine::mount_of(&plan.path(0, 0, 0));
    let fields = json::fields(&plan, &outcome, &predictions);
    session.conclude(run, result, fields, || report(&plan, &outcome))?;
    match outcome.errors {
        0 => Ok(()),
        errors => Err(format!("the data of {errors} transfers is wrong")),
    }
}

/// Runs a part of another benchmark, which prints the results.
///
/// # Errors
/// Of the tasks, or an interruption by the user.
pub fn run_quietly(plan: &Plan, session: &mut Session) -> io::Result<Outcome> {
    quietly(plan, session, Outcome::default())
}

/// As [`run_quietly`]. The results have the layout of the files.
///
/// # Errors
/// As [`run_quietly`].
pub fn run_with_layout(plan: &Plan, session: &mut Session) -> io::Result<Outcome> {
    quietly(plan, session, Outcome { wants_layout: true, ..Outcome::default() })
}

fn quietly(plan: &Plan, session: &mut Session, mut outcome: Outcome) -> io::Result<Outcome> {
    let mut printer = Printer { plan, format: Format::Json, lines: Lines::to(io::sink()) };
    run(plan, &mut outcome, session, &mut printer).map(|()| outcome)
}

fn report(plan: &Plan, outcome: &Outcome) -> io::Result<Report> {
    let kind = if plan.file_per_process { "a file for each task" } else { "one shared file" };
    let rates = |access| outcome.of(access).map(Phase::bandwidth).collect::<Vec<f64>>();
    let rate = |access, verb: &str| {
        let rates = rates(access);
        let (low, high) = range(&rates);
        (!rates.is_empty()).then(|| format!("{verb} {:.0} MiB/s ({low:.0}–{high:.0})", median(&rates)))
    };
    let result: Vec<String> =
        [rate(Access::Write, "writes"), rate(Access::Read, "reads")].into_iter().flatten().collect();
    Ok(Report {
        title: format!("IOR: {} on {}, {kind}", counted(plan.tasks, "task"), counted(plan.node_count(), "node")),
        result: format!(
            "Median of {} (minimum–maximum): {}.",
            counted(plan.repetitions, "repetition"),
            result.join(", ")
        ),
        charts: vec![chart(plan, outcome).svg()?],
        tables: vec![table(outcome)],
        facts: vec![("file".into(), plan.file.display().to_string())],
        ..Report::default()
    })
}

fn table(outcome: &Outcome) -> Table {
    let columns = ["access", "repetition", "MiB/s", "IOPS", "open (s)", "transfer (s)", "close (s)", "total (s)"];
    let row = |phase: &Phase| {
        vec![
            phase.name().to_owned(),
            phase.repetition.to_string(),
            format!("{:.1}", phase.bandwidth()),
            format!("{:.0}", phase.iops),
            format!("{:.6}", phase.open),
            format!("{:.6}", phase.transfer),
            format!("{:.6}", phase.close),
            format!("{:.6}", phase.total),
        ]
    };
    Table::new("Phases", columns).with(outcome.phases.iter().map(row))
}

fn chart(plan: &Plan, outcome: &Outcome) -> Chart {
    let accesses = [(Access::Write, "write"), (Access::Read, "read")];
    let measured: Vec<_> = accesses.into_iter().filter(|(access, _)| outcome.of(*access).next().is_some()).collect();
    let values = |of: &dyn Fn(&Phase) -> f64| {
        let curve = |access| (0..plan.repetitions).map(move |i| outcome.of(access).find(|p| p.repetition == i).map(of));
        Values::Curves(measured.iter().map(|(access, _)| curve(*access).collect()).collect())
    };
    let panel = |title: &str, values| Panel { title: title.into(), scale: Scale::Linear, values };
    Chart {
        title: "Bandwidth and latency of each repetition".into(),
        axis: "repetition".into(),
        categories: (0..plan.repetitions).map(|i| i.to_string()).collect(),
        series: measured.iter().map(|(_, name)| (*name).to_owned()).collect(),
        panels: vec![
            panel("bandwidth, MiB/s", values(&Phase::bandwidth)),
            panel("latency of a transfer, ms", values(&|p| p.latency * 1e3)),
        ],
    }
}
