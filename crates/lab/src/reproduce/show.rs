//! Compares for a user: options, output, files with results.

use std::io;

use serde::Serialize;
use serde_json::json;

use crate::{
    chart::{Chart, Panel, Scale, Values},
    clock::Moment,
    output::{Format, Lines},
    predict::{
        fit::Errors,
        presets::{PRESETS, Preset, preset},
    },
    record::Circumstances,
    report::Report,
    reproduce::{
        args::ReproduceArgs,
        points::{POINTS, Point},
    },
    session::Session,
    table::Table,
};

/// A stated value and that of the model.
#[derive(Clone, Copy, Debug, Serialize)]
struct Compared {
    system: &'static str,
    place: &'static str,
    what: &'static str,
    unit: &'static str,
    stated: [f64; 2],
    predicted: f64,
    error: f64,
    lacks: &'static str,
}

/// Compares the stated values with the models. `words` is the command line, for the record.
///
/// # Errors
/// A message for the user.
pub fn main(args: &ReproduceArgs, words: &str) -> Result<(), String> {
    let systems: Vec<&Preset> = match args.systems.as_slice() {
        [] => PRESETS.iter().collect(),
        names => names.iter().map(|name| named(name)).collect::<Result<_, _>>()?,
    };
    let of = |point: &Point| systems.iter().any(|system| system.name == point.system);
    let all: Vec<Compared> = POINTS.iter().filter(|point| of(point)).filter_map(compare).collect();
    let errors: Vec<f64> = all.iter().map(|compared| compared.error).collect();
    let errors = Errors::of(&errors);
    let session = Session::new(0, &args.output)?;
    print(&mut Lines::new(&args.output), &systems, &all, errors.as_ref());
    if args.output.format == Some(Format::Csv) {
        println!("system,place,value,unit,stated (low),stated (high),model,error");
        for c in &all {
            let [low, high] = c.stated;
            println!("{},{},{},{},{low},{high},{:.3},{:.3}", c.system, c.place, c.what, c.unit, c.predicted, c.error);
        }
    }
    let about = |system: &&Preset| json!({ "name": system.name, "stated": system.stated, "assumed": system.assumed });
    let run = Circumstances::new("sheen lab reproduce", words, 1, Moment::now());
    let systems: Vec<_> = systems.iter().map(about).collect();
    let fields = json!({ "systems": systems, "Results": all, "summary": errors });
    session.conclude(run, Ok(()), fields, || report(&all, errors.as_ref()))
}

fn named(name: &str) -> Result<&'static Preset, String> {
    let known: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
    preset(name).ok_or_else(|| format!("{name}: no such system; there are {}", known.join(", ")))
}

fn compare(point: &Point) -> Option<Compared> {
    let predicted = point.predicted()?;
    Some(Compared {
        system: point.system,
        place: point.place,
        what: point.what,
        unit: point.unit.name(),
        stated: point.stated,
        predicted,
        error: point.error(predicted),
        lacks: point.lacks,
    })
}

/// Formats a stated value: a range as `11.1–11.4`.
fn range([low, high]: [f64; 2]) -> String {
    if low == high { low.to_string() } else { format!("{low}–{high}") }
}

fn print(lines: &mut Lines, systems: &[&Preset], all: &[Compared], errors: Option<&Errors>) {
    for system in systems {
        lines.line(&format!("{}: {}", system.name, system.what));
        lines.line(&format!("  stated:  {}", system.stated));
        lines.line(&format!("  assumed: {}", system.assumed));
        for c in all.iter().filter(|c| c.system == system.name) {
            let lacks = if c.lacks.is_empty() { String::new() } else { format!("  the model lacks: {}", c.lacks) };
            lines.line(&format!(
                "  {:10}{:40}{:>12} {:6}model {:>8.2}, error {:>3.0} %{lacks}",
                c.place,
                c.what,
                range(c.stated),
                c.unit,
                c.predicted,
                c.error * 100.0
            ));
        }
        lines.line("");
    }
    if let Some(of) = errors {
        lines.line(&format!("error: median {:.1} % of {} values", of.median * 100.0, of.runs));
    }
}

fn report(all: &[Compared], errors: Option<&Errors>) -> io::Result<Report> {
    let curve = |of: fn(&Compared) -> f64| all.iter().map(|c| Some(of(c))).collect();
    let stated = |c: &Compared| (c.stated[0] + c.stated[1]) / 2.0;
    let chart = Chart {
        title: "Stated values and those of the models".into(),
        axis: "values, in the order of the table".into(),
        categories: (1..=all.len()).map(|n| n.to_string()).collect(),
        series: vec!["stated".into(), "model".into()],
        panels: vec![Panel {
            title: "GB/s, MiB/s or ratio".into(),
            scale: Scale::Log,
            values: Values::Curves(vec![curve(stated), curve(|c| c.predicted)]),
        }],
    };
    let row = |c: &Compared| {
        vec![
            format!("{}, {}", c.system, c.place),
            c.what.to_owned(),
            format!("{} {}", range(c.stated), c.unit),
            format!("{:.2}", c.predicted),
            format!("{:.0}", c.error * 100.0),
            c.lacks.to_owned(),
        ]
    };
    let columns = ["place", "value", "stated", "model", "error, %", "the model lacks"];
    let median = errors.map_or(0.0, |errors| errors.median * 100.0);
    Ok(Report {
        title: "Published rates, and models of their systems".into(),
        result: format!("Median error {median:.1} % of {} values.", all.len()),
        charts: vec![chart.svg()?],
        tables: vec![Table::new("Values", columns).with(all.iter().map(row))],
        ..Report::default()
    })
}
