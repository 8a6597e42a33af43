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
        blast, dresden,
        point::{Basis, Point, error},
        points::points,
        simulate,
        systems::{System, systems},
    },
    session::Session,
    table::Table,
    workloads::patterns::FIG11,
};

/// Most values of a chart that all have a label.
const LABELS_MAX: usize = 15;

/// A stated value and that of the model.
#[derive(Clone, Copy, Debug, Serialize)]
struct Compared {
    system: &'static str,
    place: &'static str,
    what: &'static str,
    unit: &'static str,
    stated: [f64; 2],
    predicted: f64,
    basis: Basis,
    /// `None`: the text states no number.
    error: Option<f64>,
    /// Whether a statement without a number holds.
    holds: Option<bool>,
    /// The value of a simulation.
    simulated: Option<f64>,
    /// The error of the simulation, as that of the model.
    simulated_error: Option<f64>,
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
    let mut all: Vec<Compared> = points().iter().filter(|point| of(point)).map(Compared::of).collect();
    let mut session = Session::new(0, &args.output)?;
    let began = Moment::now();
    let result = if args.simulate { simulate(&systems, &mut all, &mut session) } else { Ok(()) };
    let summary = Summary::of(&all);
    print(&mut Lines::new(&args.output), &systems, &all, &summary);
    if args.output.format == Some(Format::Csv) {
        println!("system,place,value,unit,stated (low),stated (high),model,error,basis,simulated");
        all.iter().for_each(|compared| println!("{}", compared.csv()));
    }
    let run = Circumstances::new("sheen lab reproduce", words, 1, began);
    let fields = json!({ "systems": systems, "Results": all, "summary": summary });
    session.conclude(run, result, fields, || report(&all, &summary))
}

/// Adds the values of simulations.
fn simulate(systems: &[System], all: &mut [Compared], session: &mut Session) -> io::Result<()> {
    for system in systems {
        for (place, what, value) in simulate::values(system.name, session)? {
            let of = |c: &&mut Compared| (c.system, c.place, c.what) == (system.name, place, what);
            all.iter_mut().find(of).into_iter().for_each(|compared| compared.add(value));
        }
    }
    Ok(())
}

fn named(name: &str) -> Result<System, String> {
    let known = systems();
    let names: Vec<&str> = known.iter().map(|system| system.name).collect();
    let found = known.iter().find(|system| system.name.eq_ignore_ascii_case(name)).copied();
    found.ok_or_else(|| format!("{name}: no such system; there are {}", names.join(", ")))
}

/// How far the models are off. `None`: there are no such values.
#[derive(Clone, Copy, Debug, Serialize)]
struct Summary {
    /// All values but those of formulas.
    #[serde(flatten)]
    models: Option<Errors>,
    /// Of these, the values by which costs were chosen.
    calibrated: Option<Errors>,
    /// Of these, the others.
    predicted: Option<Errors>,
    /// Formulas that the texts state. They test no model.
    formulas: Option<Errors>,
    /// Simulations.
    simulated: Option<Errors>,
}

impl Summary {
    fn of(all: &[Compared]) -> Summary {
        let errors = |wanted: &[Basis]| {
            let of = all.iter().filter(|compared| wanted.contains(&compared.basis));
            Errors::of(&of.filter_map(|compared| compared.error).collect::<Vec<f64>>())
        };
        Summary {
            models: errors(&[Basis::Calibrated, Basis::Predicted]),
            calibrated: errors(&[Basis::Calibrated]),
            predicted: errors(&[Basis::Predicted]),
            formulas: errors(&[Basis::Formula]),
            simulated: Errors::of(&all.iter().filter_map(|c| c.simulated_error).collect::<Vec<f64>>()),
        }
    }

    /// Describes the errors, the most important ones first.
    fn lines(&self) -> Vec<String> {
        let line = |name: &str, errors: Option<Errors>| {
            errors.map(|of| format!("{name}: median {:.1} % of {} values", of.median * 100.0, of.runs))
        };
        let several = self.predicted.is_some() || self.formulas.is_some();
        let parts = several.then(|| {
            [
                line("  calibrated", self.calibrated),
                line("  predicted", self.predicted),
                line("formulas of the texts", self.formulas),
            ]
        });
        let parts = parts.into_iter().flatten().flatten();
        let simulated = line("simulations", self.simulated);
        line("error", self.models).into_iter().chain(parts).chain(simulated).collect()
    }
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
    fn of(point: &Point) -> Compared {
        let Point { system, place, what, stated, predicted, basis, lacks, .. } = *point;
        let (unit, error, holds) = (point.unit.name(), point.error(), point.holds());
        let (simulated, simulated_error) = (None, None);
        Compared {
            system,
            place,
            what,
            unit,
            stated,
            predicted,
            basis,
            error,
            holds,
            simulated,
            simulated_error,
            lacks,
        }
    }

    /// Adds the value of a simulation.
    fn add(&mut self, value: f64) {
        (self.simulated, self.simulated_error) = (Some(value), error(self.stated, value));
    }

    /// Says how far the model is off.
    fn verdict(&self) -> String {
        match self.error {
            Some(error) => format!("error {:>3.0} %, {}", error * 100.0, self.basis.name()),
            None if self.holds == Some(true) => "holds".into(),
            None => "does not hold".into(),
        }
    }

    /// Describes the value of the simulation, if there is one.
    fn simulation(&self) -> String {
        let error = self.simulated_error.map_or_else(String::new, |error| format!(", error {:.0} %", error * 100.0));
        self.simulated.map_or_else(String::new, |value| format!("; simulated {value:.2}{error}"))
    }

    fn csv(&self) -> String {
        let Compared { system, place, what, unit, stated: [low, high], predicted, .. } = *self;
        let error = self.error.map_or_else(String::new, |error| format!("{error:.3}"));
        let basis = self.basis.name();
        let simulated = self.simulated.map_or_else(String::new, |value| format!("{value:.3}"));
        format!("{system},{place},\"{what}\",{unit},{low},{high},{predicted:.3},{error},{basis},{simulated}")
    }
}

fn print(lines: &mut Lines, systems: &[System], all: &[Compared], summary: &Summary) {
    for system in systems {
        lines.line(&format!("{}: {}", system.name, system.what));
        lines.line(&format!("  stated:  {}", system.stated));
        lines.line(&format!("  assumed: {}", system.assumed));
        for c in all.iter().filter(|c| c.system == system.name) {
            let lacks = if c.lacks.is_empty() { String::new() } else { format!("  the model lacks: {}", c.lacks) };
            lines.line(&format!(
                "  {:10}{:40}{:>12} {:6}model {:>8.2}, {}{}{lacks}",
                c.place,
                c.what,
                range(c.stated),
                c.unit,
                c.predicted,
                c.verdict(),
                c.simulation()
            ));
        }
        lines.line("");
    }
    summary.lines().iter().for_each(|line| lines.line(line));
}

fn report(all: &[Compared], summary: &Summary) -> io::Result<Report> {
    let mut of_systems: Vec<&str> = all.iter().map(|compared| compared.system).collect();
    of_systems.dedup();
    let mut charts = of_systems.iter().filter_map(|name| chart(name, all)).collect::<Vec<Chart>>();
    let row = |c: &Compared| {
        vec![
            format!("{}, {}", c.system, c.place),
            c.what.to_owned(),
            format!("{} {}", range(c.stated), c.unit).trim_end().to_owned(),
            format!("{:.2}", c.predicted),
            c.error.map_or_else(|| c.verdict(), |error| format!("{:.0}", error * 100.0)),
            c.basis.name().to_owned(),
            c.simulated.map_or_else(|| "–".into(), |value| format!("{value:.2}")),
            c.lacks.to_owned(),
        ]
    };
    let columns = ["place", "value", "stated", "model", "error, %", "basis", "simulated", "the model lacks"];
    let mut tables = vec![Table::new("Values", columns).with(all.iter().map(row))];
    if of_systems.contains(&blast::SYSTEM) {
        charts.push(times_of_blast());
    }
    if of_systems.contains(&dresden::SYSTEM) {
        charts.extend(dresden::charts());
        tables.push(dresden::table());
    }
    let lines = summary.lines();
    Ok(Report {
        title: "Published rates, and models of their systems".into(),
        result: format!(
            "Models of published systems; {}.",
            lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join("; ")
        ),
        charts: charts.iter().map(Chart::svg).collect::<io::Result<_>>()?,
        tables,
        ..Report::default()
    })
}

/// Draws the values of a system that its text states as numbers. `None`: there are none but those
/// of formulas.
fn chart(system: &str, all: &[Compared]) -> Option<Chart> {
    let of = |c: &&Compared| c.system == system && c.error.is_some() && c.basis != Basis::Formula;
    let all: Vec<&Compared> = all.iter().filter(of).collect();
    let curve = |of: fn(&Compared) -> f64| all.iter().map(|c| Some(of(c))).collect();
    let label = |n: usize| if all.len() <= LABELS_MAX || n.is_multiple_of(5) { n.to_string() } else { String::new() };
    (!all.is_empty()).then(|| Chart {
        title: format!("{system}: stated values and those of the model"),
        axis: "values with a number, in the order of the table, without formulas".into(),
        categories: (1..=all.len()).map(label).collect(),
        series: vec!["stated".into(), "model".into()],
        panels: vec![Panel {
            title: "in their units".into(),
            scale: Scale::Log,
            values: Values::Curves(vec![curve(|c| (c.stated[0] + c.stated[1]) / 2.0), curve(|c| c.predicted)]),
        }],
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::point::{MORE, Unit};

    #[test]
    fn summary_separates_calibrated_predicted_and_formulas() {
        let point = |basis, predicted, stated| Point {
            system: "stallo",
            place: "Fig. 1",
            what: "a rate, of one client",
            unit: Unit::Ratio,
            stated,
            predicted,
            basis,
            lacks: "",
        };
        let calibrated = point(Basis::Calibrated, 1.25, [1.0, 1.0]);
        let one = Summary::of(&[Compared::of(&calibrated)]);
        assert_eq!(one.lines(), ["error: median 25.0 % of 1 values"]);
        let predicted = [point(Basis::Predicted, 2.0, MORE), point(Basis::Predicted, 1.75, [1.0, 1.0])];
        let formula = point(Basis::Formula, 1.0, [1.0, 1.0]);
        let all: Vec<Compared> = predicted.iter().chain([&calibrated, &formula]).map(Compared::of).collect();
        let lines = Summary::of(&all).lines();
        let expected = [
            "error: median 50.0 % of 2 values",
            "  calibrated: median 25.0 % of 1 values",
            "  predicted: median 75.0 % of 1 values",
            "formulas of the texts: median 0.0 % of 1 values",
        ];
        assert_eq!(lines, expected);
        assert_eq!(all[0].csv(), "stallo,Fig. 1,\"a rate, of one client\",×,1,inf,2.000,,predicted,");
        assert_eq!(all[0].verdict(), "holds");
    }

    #[test]
    fn report_has_a_chart_for_each_system_with_numbers() {
        let all: Vec<Compared> = points().iter().map(Compared::of).collect();
        let report = report(&all, &Summary::of(&all)).unwrap();
        // Two more are Fig. 3 and 4 of the link, one is Fig. 11 of BLAST.
        assert_eq!((report.charts.len(), report.tables.len()), (systems().len() + 3, 2));
        assert!(all.iter().all(|compared| systems().iter().any(|system| system.name == compared.system)));
    }
}
