//! Runs mdtest for a user: options, output, files with results.

use std::io;

use serde_json::{Value, json};

use crate::{
    chart::{Chart, Panel, Scale, Values},
    clock::Moment,
    launch, machine,
    mdtest::{
        args::MdtestArgs,
        outcome::{Outcome, Phase},
        phase::Kind,
        plan::Plan,
        print::{Printer, Show},
        run::run,
    },
    output::{Format, Lines},
    record::Circumstances,
    report::Report,
    session::Session,
    stats::{counted, median, range},
    status_file,
    table::Table,
};

/// Runs mdtest. `words` is the command line, for the record.
///
/// # Errors
/// A message for the user.
pub fn main(args: &MdtestArgs, words: &str) -> Result<(), String> {
    let plan = Plan::new(args)?;
    args.places.check()?;
    machine::check_memory(plan.memory_bytes() / u64::from(launch::hosts()))?;
    status_file::check(plan.status_file.as_deref(), plan.create)?;
    let format = args.output.format.unwrap_or_default();
    let began = Moment::now();
    let show = match (args.rate_and_time, args.print_time) {
        (true, _) => Show::Both,
        (false, true) => Show::Time,
        (false, false) => Show::Rate,
    };
    let mut session = Session::new(plan.phases().len() * plan.iterations as usize, &args.output)?;
    let mut printer = Printer { plan: &plan, format, show, lines: Lines::to(io::stdout()) };
    printer.header(words);
    let mut outcome = Outcome::default();
    let result = run(&plan, &mut outcome, &mut session, &mut printer);
    printer.summary(&outcome);
    let mut run = Circumstances::new("sheen lab mdtest", words, plan.iterations, began);
    run.file_system = machine::mount_of(&plan.dir(0));
    session.conclude(run, result, fields(&plan, &outcome), || report(&plan, &outcome))?;
    match outcome.errors() {
        0 => Ok(()),
        errors => Err(format!("the data of {errors} files is wrong")),
    }
}

/// Runs a part of another benchmark, which prints the results.
///
/// # Errors
/// Of the tasks, or an interruption by the user.
pub fn run_quietly(plan: &Plan, session: &mut Session) -> io::Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut printer = Printer { plan, format: Format::Json, show: Show::Rate, lines: Lines::to(io::sink()) };
    run(plan, &mut outcome, session, &mut printer).map(|()| outcome)
}

fn fields(plan: &Plan, outcome: &Outcome) -> Value {
    let phase = |phase: &Phase| {
        json!({
            "operation": phase.kind.name(),
            "iteration": phase.iteration,
            "items": phase.items,
            "seconds": phase.seconds,
            "rate": phase.rate(),
            "errors": phase.errors,
        })
    };
    let summary = |kind: &Kind| {
        let rates: Vec<f64> = outcome.of(*kind).map(Phase::rate).collect();
        let (min, max) = range(&rates);
        (!rates.is_empty())
            .then(|| json!({ "operation": kind.name(), "max": max, "min": min, "median": median(&rates) }))
    };
    json!({
        "Parameters": plan,
        "Results": outcome.phases.iter().map(phase).collect::<Vec<_>>(),
        "summary": Kind::ALL.iter().filter_map(summary).collect::<Vec<_>>(),
    })
}

fn report(plan: &Plan, outcome: &Outcome) -> io::Result<Report> {
    let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| outcome.of(*kind).next().is_some()).collect();
    let rates = |kind| outcome.of(kind).map(Phase::rate).collect::<Vec<f64>>();
    let row = |kind: &Kind| {
        let rates = rates(*kind);
        let (low, high) = range(&rates);
        let numbers = [median(&rates), low, high].map(|rate| format!("{rate:.0}"));
        std::iter::once(kind.name().to_owned()).chain(numbers).collect::<Vec<_>>()
    };
    let columns = ["operation", "median, ops/s", "minimum", "maximum"];
    let place = if plan.unique_dir { "a directory for each task" } else { "one shared directory" };
    Ok(Report {
        title: format!("mdtest: {} on {}, {place}", counted(plan.tasks, "task"), counted(plan.node_count(), "node")),
        result: format!("{} of each task, {}.", counted(plan.items, "item"), counted(plan.iterations, "iteration")),
        charts: vec![chart(&kinds, outcome).svg()?],
        tables: vec![Table::new("Operations per second", columns).with(kinds.iter().map(row))],
        facts: vec![("directory".into(), plan.dir(0).display().to_string())],
        ..Report::default()
    })
}

/// Draws the rates of directories beside those of files.
fn chart(kinds: &[Kind], outcome: &Outcome) -> Chart {
    let operations = ["create", "stat", "read", "rename", "remove"];
    let range_of = |kind: Kind| {
        let rates: Vec<f64> = outcome.of(kind).map(Phase::rate).collect();
        let (low, high) = range(&rates);
        kinds.contains(&kind).then(|| [low, median(&rates), high])
    };
    let dirs = [Some(Kind::DirCreate), Some(Kind::DirStat), None, Some(Kind::DirRename), Some(Kind::DirRemove)];
    let files = [Some(Kind::FileCreate), Some(Kind::FileStat), Some(Kind::FileRead), None, Some(Kind::FileRemove)];
    let row = |row: [Option<Kind>; 5]| row.into_iter().map(|kind| kind.and_then(range_of)).collect::<Vec<_>>();
    let panel =
        |title: &str, scale| Panel { title: title.into(), scale, values: Values::Ranges(vec![row(dirs), row(files)]) };
    Chart {
        title: "Operations per second: minimum, median and maximum".into(),
        axis: "operation".into(),
        categories: operations.map(str::to_owned).to_vec(),
        series: vec!["directories".into(), "files".into()],
        panels: vec![panel("ops/s, linear", Scale::Linear), panel("ops/s, logarithmic", Scale::Log)],
    }
}
