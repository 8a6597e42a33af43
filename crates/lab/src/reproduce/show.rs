//! Compares for a user: options, output, files with results.

use std::io;

use serde::Serialize;
use serde_json::json;

use crate::{
    chart::{Chart, Panel, Scale, Values},
    clock::Moment,
    output::{Format, Lines},
    predict::fit::Errors,
    record::Circumstances,
    report::Report,
    reproduce::{
        args::ReproduceArgs,
        blast,
        points::{POINTS, Point},
        systems::{System, systems},
    },
    session::Session,
    table::Table,
    workloads::patterns::FIG11,
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
    /// `None`: the text states no number.
    error: Option<f64>,
    /// Whether a statement without a number holds.
    holds: Option<bool>,
    lacks: &'static str,
}

/// Compares the stated values with the models. `words` is the command line, for the record.
///
/// # Errors
/// A message for the user.
pub fn main(args: &ReproduceArgs, words: &str) -> Result<(), String> {
    let systems: Vec<System> = match args.systems.as_slice() {
        [] => systems(),
        names => names.iter().map(|name| named(name)).collect::<Result<_, _>>()?,
    };
    let of = |point: &Point| systems.iter().any(|system| system.name == point.system);
    let all: Vec<Compared> = POINTS.iter().filter(|point| of(point)).filter_map(compare).collect();
    let errors: Vec<f64> = all.iter().filter_map(|compared| compared.error).collect();
    let errors = Errors::of(&errors);
    let session = Session::new(0, &args.output)?;
    print(&mut Lines::new(&args.output), &systems, &all, errors.as_ref());
    if args.output.format == Some(Format::Csv) {
        println!("system,place,value,unit,stated (low),stated (high),model,error");
        for c in &all {
            let [low, high] = c.stated;
            let error = c.error.map_or_else(String::new, |error| format!("{error:.3}"));
            println!("{},{},{},{},{low},{high},{:.3},{error}", c.system, c.place, c.what, c.unit, c.predicted);
        }
    }
    let run = Circumstances::new("sheen lab reproduce", words, 1, Moment::now());
    let fields = json!({ "systems": systems, "Results": all, "summary": errors });
    session.conclude(run, Ok(()), fields, || report(&all, errors.as_ref()))
}

fn named(name: &str) -> Result<System, String> {
    let known = systems();
    let names: Vec<&str> = known.iter().map(|system| system.name).collect();
    let found = known.iter().find(|system| system.name.eq_ignore_ascii_case(name)).copied();
    found.ok_or_else(|| format!("{name}: no such system; there are {}", names.join(", ")))
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
        holds: point.holds(predicted),
        lacks: point.lacks,
    })
}

/// Formats a stated value: a range as `11.1–11.4`, a statement without a number as `> 1`.
fn range([low, high]: [f64; 2]) -> String {
    match () {
        () if low == high => low.to_string(),
        () if high.is_infinite() => format!("> {low}"),
        () if low == 0.0 => format!("< {high}"),
        () => format!("{low}–{high}"),
    }
}

impl Compared {
    /// Says how far the model is off.
    fn verdict(&self) -> String {
        match self.error {
            Some(error) => format!("error {:>3.0} %", error * 100.0),
            None if self.holds == Some(true) => "holds".into(),
            None => "does not hold".into(),
        }
    }
}

fn print(lines: &mut Lines, systems: &[System], all: &[Compared], errors: Option<&Errors>) {
    for system in systems {
        lines.line(&format!("{}: {}", system.name, system.what));
        lines.line(&format!("  stated:  {}", system.stated));
        lines.line(&format!("  assumed: {}", system.assumed));
        for c in all.iter().filter(|c| c.system == system.name) {
            let lacks = if c.lacks.is_empty() { String::new() } else { format!("  the model lacks: {}", c.lacks) };
            lines.line(&format!(
                "  {:10}{:40}{:>12} {:6}model {:>8.2}, {}{lacks}",
                c.place,
                c.what,
                range(c.stated),
                c.unit,
                c.predicted,
                c.verdict()
            ));
        }
        lines.line("");
    }
    if let Some(of) = errors {
        lines.line(&format!("error: median {:.1} % of {} values", of.median * 100.0, of.runs));
    }
}

fn report(all: &[Compared], errors: Option<&Errors>) -> io::Result<Report> {
    let mut charts = Vec::new();
    if errors.is_some() {
        charts.push(chart(all).svg()?);
    }
    if all.iter().any(|compared| compared.system == blast::SYSTEM) {
        charts.push(times_of_blast().svg()?);
    }
    let row = |c: &Compared| {
        vec![
            format!("{}, {}", c.system, c.place),
            c.what.to_owned(),
            format!("{} {}", range(c.stated), c.unit),
            format!("{:.2}", c.predicted),
            c.error.map_or_else(|| c.verdict(), |error| format!("{:.0}", error * 100.0)),
            c.lacks.to_owned(),
        ]
    };
    let columns = ["place", "value", "stated", "model", "error, %", "the model lacks"];
    let (median, values) = errors.map_or((0.0, 0), |errors| (errors.median * 100.0, errors.runs));
    Ok(Report {
        title: "Published rates, and models of their systems".into(),
        result: format!("Median error {median:.1} % of {values} values."),
        charts,
        tables: vec![Table::new("Values", columns).with(all.iter().map(row))],
        ..Report::default()
    })
}

/// Draws the values that the texts state as numbers.
fn chart(all: &[Compared]) -> Chart {
    let all: Vec<&Compared> = all.iter().filter(|compared| compared.error.is_some()).collect();
    let curve = |of: fn(&Compared) -> f64| all.iter().map(|c| Some(of(c))).collect();
    Chart {
        title: "Stated values and those of the models".into(),
        axis: "values with a number, in the order of the table".into(),
        categories: (1..=all.len()).map(|n| n.to_string()).collect(),
        series: vec!["stated".into(), "model".into()],
        panels: vec![Panel {
            title: "GB/s, MiB/s or ratio".into(),
            scale: Scale::Log,
            values: Values::Curves(vec![curve(|c| (c.stated[0] + c.stated[1]) / 2.0), curve(|c| c.predicted)]),
        }],
    }
}

/// Draws Fig. 11 by the model.
fn times_of_blast() -> Chart {
    let curve = |striping| blast::NODES.iter().map(|&nodes| Some(blast::time(striping, nodes))).collect();
    Chart {
        title: "Fig. 11, BLAST on Titan: the model".into(),
        axis: "nodes".into(),
        categories: blast::NODES.iter().map(u32::to_string).collect(),
        series: FIG11.iter().map(|striping| striping.name.to_owned()).collect(),
        panels: vec![Panel {
            title: "time, by that of computing on 8 nodes".into(),
            scale: Scale::Linear,
            values: Values::Curves(FIG11.iter().map(curve).collect()),
        }],
    }
}
