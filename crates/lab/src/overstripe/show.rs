//! Runs a comparison for a user: options, output, files with results.

use std::io;

use serde_json::json;

use crate::{
    chart::{Chart, Panel, Scale, Values},
    clock::Moment,
    machine,
    machines::Machines,
    output::{Format, Lines},
    overstripe::{
        args::OverstripeArgs,
        outcome::{Gain, Outcome, Point, gains},
        plan::{Layout, Plan},
        print::{Printer, name, sentence},
        run::run,
        simulated,
        system::System,
    },
    record::Circumstances,
    report::Report,
    session::Session,
    size::human,
    table::{Cell, Table},
};

/// Runs a comparison. `words` is the command line, for the record.
///
/// # Errors
/// A message for the user.
pub fn main(args: &OverstripeArgs, words: &str) -> Result<(), String> {
    let plan = Plan::new(args)?;
    plan.check_memory()?;
    let began = Moment::now();
    let points = plan.curves.len() * plan.layouts.len();
    let runs = plan.repetitions as usize * (1 + usize::from(plan.read)) + 1;
    let phases = if plan.machines.is_some() { points } else { points * runs };
    let mut session = Session::new(phases, &args.output)?;
    let system = match plan.machines {
        Some(_) => None,
        None => Some(System::new(args, &plan).map_err(|e| e.to_string())?),
    };
    let file_system = system.as_ref().and_then(|system| machine::mount_of(&system.dir));
    let mut printer = Printer { lines: Lines::new(&args.output) };
    printer.header(&plan);
    let mut outcome = Outcome::new(&plan);
    let result = match (&system, &plan.machines) {
        (Some(system), _) => run(&plan, system, &mut outcome, &mut session),
        (None, Some(machines)) => simulated::run(&plan, machines, &mut outcome, &mut session),
        (None, None) => Ok(()),
    };
    drop(system);
    let points = outcome.points();
    let gains = gains(&plan, &points);
    session.above(|| {
        printer.points(&points);
        printer.gains(&gains);
        if args.output.format == Some(Format::Csv) {
            csv(&points);
        }
    });
    let mut run = Circumstances::new("sheen lab overstripe", words, plan.repetitions, began);
    run.file_system = file_system;
    let fields = json!({ "Parameters": plan, "Results": points, "summary": gains });
    session.conclude(run, result, fields, || report(&plan, &points, &gains))
}

fn csv(points: &[Point]) {
    println!("locks,nodes,record,stripes,write(MiB/s),min,max,read(MiB/s),locks granted,callbacks");
    for point in points {
        let [middle, low, high] = point.write;
        let number = |value: Option<f64>| value.map_or_else(String::new, |v| format!("{v:.2}"));
        println!(
            "{},{},{},{},{middle:.2},{low:.2},{high:.2},{},{},{}",
            point.curve.locks.unwrap_or("as set"),
            point.curve.nodes,
            point.curve.record,
            point.layout.name(),
            number(point.read.map(|[middle, ..]| middle)),
            number(point.grants),
            number(point.callbacks)
        );
    }
}

fn report(plan: &Plan, points: &[Point], gains: &[Gain]) -> io::Result<Report> {
    let number = |value: Option<f64>, decimals| value.map_or("–".into(), |value| Cell::number(value, decimals, ""));
    // The median and both ends of a range have the same median and range.
    let rates = |all: [f64; 3]| Cell::range(&all, 0, "");
    let row = |point: &Point| {
        vec![
            name(point.curve).into(),
            point.layout.name().into(),
            rates(point.write),
            point.read.map_or("–".into(), rates),
            number(point.grants, 0),
            number(point.callbacks, 0),
            number(point.mib_per_callback, 1),
            number(point.own_locks, 0),
        ]
    };
    let gain = |gain: &Gain| {
        vec![
            name(gain.curve).into(),
            format!("{:.0} ({})", gain.fewest.0, gain.fewest.1).into(),
            format!("{:.0} ({})", gain.best.0, gain.best.1).into(),
            Cell::number(gain.best.0 / gain.fewest.0, 2, ""),
            number(gain.files, 0),
        ]
    };
    Ok(Report {
        title: "Overstriping: a file that several nodes write in turn".into(),
        result: gains.iter().map(sentence).collect::<Vec<_>>().join(". "),
        charts: vec![chart(plan, points).svg()?],
        tables: vec![
            Table::new(
                "What more stripes bring, MiB/s written (stripes on an OST)",
                ["nodes and record", "fewest stripes", "best", "ratio", "a file for each task"],
            )
            .with(gains.iter().map(gain)),
            Table::new(
                "All points: median (minimum–maximum) of all rounds",
                [
                    "nodes and record",
                    "stripes on an OST",
                    "write, MiB/s",
                    "read, MiB/s",
                    "locks granted",
                    "blocking callbacks",
                    "MiB per callback",
                    "the OST's own locks",
                ],
            )
            .with(points.iter().map(row)),
        ],
        facts: vec![
            ("bytes of each node".into(), human(plan.size)),
            ("disks".into(), plan.ost_model.clone().unwrap_or_else(|| "not modelled".into())),
        ]
        .into_iter()
        .chain(machines(plan))
        .collect(),
        ..Report::default()
    })
}

/// Describes the machines of a simulation.
fn machines(plan: &Plan) -> Vec<(String, String)> {
    let of = |machines: &Machines| {
        vec![
            ("simulated".into(), format!("{}: {}", machines.name, machines.stated)),
            ("assumed".into(), machines.assumed.into()),
        ]
    };
    plan.machines.as_ref().map_or_else(Vec::new, of)
}

/// Draws each curve over the layouts, and the counters that explain it.
fn chart(plan: &Plan, points: &[Point]) -> Chart {
    let curves = |of: &dyn Fn(&Point) -> Option<f64>| {
        let at = |curve, layout| points.iter().find(|p| p.curve == curve && p.layout == layout).and_then(of);
        let curve = |curve| plan.layouts.iter().map(|layout| at(curve, *layout)).collect();
        Values::Curves(plan.curves.iter().map(|c| curve(*c)).collect())
    };
    let panel = |title: &str, scale, of: &dyn Fn(&Point) -> Option<f64>| Panel {
        title: title.into(),
        scale,
        values: curves(of),
    };
    let mut panels = vec![panel("write with fsync, MiB/s", Scale::Linear, &|p| Some(p.write[0]))];
    if points.iter().any(|point| point.read.is_some()) {
        panels.push(panel("read, MiB/s", Scale::Linear, &|p| p.read.map(|[middle, ..]| middle)));
    }
    if points.iter().any(|point| point.callbacks.is_some()) {
        panels.push(panel("locks granted", Scale::Log, &|p| p.grants));
        panels.push(panel("blocking callbacks", Scale::Log, &|p| p.callbacks));
        panels.push(panel("MiB written for each callback", Scale::Log, &|p| p.mib_per_callback));
    }
    Chart {
        title: format!(
            "{} written by each node, {} on each",
            human(plan.size),
            crate::stats::counted(plan.ppn, "task")
        ),
        axis: "stripes on each OST; files: one file for each task".into(),
        categories: plan.layouts.iter().map(|layout: &Layout| layout.name()).collect(),
        series: plan.curves.iter().map(|curve| name(*curve)).collect(),
        panels,
    }
}
