//! Runs a measurement of the network for a user: options, output, files with results.

use std::io;

use serde_json::{Value, json};
use sheen_lnet::Trust;

use crate::{
    chart::{Chart, Panel, Scale, Values},
    clock::Moment,
    machine,
    net::{
        args::{NetArgs, Test},
        clients::{self, ClientCosts},
        files::{Costs, OPERATIONS, STRIPES},
        load::Load,
        model::{Model, Predicted},
        outcome::{Outcome, Rates},
        plan::{Plan, Point},
        print::Printer,
        run::run,
    },
    noise::Noise,
    output::{Format, Lines},
    report::{Report, Table},
    session::{Session, facts},
    size::human,
};

/// Runs a measurement. `wan`: with the defaults and the model of `sheen lab wan`. `trust`: of this
/// process. `words` is the command line, for the record.
///
/// # Errors
/// A message for the user.
pub fn main(args: &NetArgs, wan: bool, trust: Trust, words: &str) -> Result<(), String> {
    let plan = Plan::new(args, wan)?;
    let began = Moment::now();
    let of_files = if plan.files.is_some() { STRIPES.len() + plan.clients.len() } else { 0 };
    let mut session = Session::new(plan.points().len() + of_files, &args.output)?;
    let load = Load::connect(trust, &plan.name()?).map_err(|e| format!("{}: {e}", plan.to))?;
    let mut printer = Printer { lines: Lines::new(&args.output) };
    printer.header(&plan.to);
    let mut outcome = Outcome::default();
    let result = run(&plan, &load, &mut outcome, &mut session, &mut printer);
    let models: Vec<(Test, Model)> = match plan.models {
        true => plan.tests.iter().filter_map(|test| Some((*test, Model::fit(&outcome, *test)?))).collect(),
        false => Vec::new(),
    };
    models.iter().for_each(|(test, model)| printer.model(test.name(), model));
    if args.output.format == Some(Format::Csv) {
        csv(&outcome);
    }
    let record = |noise: &Noise| record(&plan, &outcome, &models, &began, words, noise);
    session.conclude(result, record, |record, warnings| report(&plan, &outcome, &models, warnings, record))
}

fn csv(outcome: &Outcome) {
    println!("test,delay(ms),size,in_flight,RPC/s,MiB/s,min,max");
    for rates in &outcome.rates {
        let (point, [middle, low, high]) = (rates.point, rates.bandwidth());
        println!(
            "{},{},{},{},{:.0},{middle:.2},{low:.2},{high:.2}",
            point.test.name(),
            point.delay,
            point.size,
            point.in_flight,
            rates.rate()
        );
    }
}

fn record(
    plan: &Plan,
    outcome: &Outcome,
    models: &[(Test, Model)],
    began: &Moment,
    words: &str,
    noise: &Noise,
) -> Value {
    let tool = if plan.models { "wan" } else { "net" };
    json!({
        "Version": format!("sheen lab {tool} {}", env!("CARGO_PKG_VERSION")),
        "Began": began.ctime(),
        "Command line": words,
        "machine": machine::describe(),
        "file system": ["server", plan.to],
        "noise": noise.spread(),
        "Parameters": plan,
        "round trips": outcome.round_trips,
        "Results": outcome.rates,
        "models": models,
        "files": outcome.files,
        "clients": outcome.clients,
    })
}

fn report(
    plan: &Plan,
    outcome: &Outcome,
    models: &[(Test, Model)],
    warnings: Vec<String>,
    record: Value,
) -> io::Result<Report> {
    let columns = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let row = |rates: &Rates| {
        let (point, [middle, low, high]) = (rates.point, rates.bandwidth());
        let numbers = [rates.rate(), middle, low, high].map(|number| format!("{number:.0}"));
        [point.test.name().to_owned(), point.delay.to_string(), human(point.size), point.in_flight.to_string()]
            .into_iter()
            .chain(numbers)
            .chain([format!("{:.3}", rates.milliseconds())])
            .collect()
    };
    let mut tables = vec![Table {
        title: "All points: median, minimum and maximum".into(),
        columns: columns(&[
            "test",
            "added ms",
            "size",
            "in flight",
            "RPC/s",
            "MiB/s",
            "minimum",
            "maximum",
            "ms per RPC",
        ]),
        rows: outcome.rates.iter().map(row).collect(),
    }];
    tables.extend(models.iter().map(|(test, model)| Table {
        title: format!("The model of {}, MiB/s", test.name()),
        columns: columns(&["added ms", "size", "in flight", "measured", "predicted", "error", "regime"]),
        rows: model.points.iter().map(predicted_row).collect(),
    }));
    if !outcome.files.is_empty() {
        tables.push(files_table(&outcome.files));
    }
    if !outcome.clients.is_empty() {
        tables.push(clients_table(&outcome.clients));
    }
    let tests = plan.tests.iter().filter(|test| **test != Test::Ping);
    let mut charts = Vec::new();
    for test in tests {
        let model = models.iter().find(|(of, _)| of == test).map(|(_, model)| model);
        for delay in &plan.delays {
            charts.push(chart(plan, outcome, *test, *delay, model).svg()?);
        }
    }
    let trips: Vec<String> =
        outcome.round_trips.iter().map(|(added, trip)| format!("{trip:.3} ms with {added} ms added")).collect();
    Ok(Report {
        title: if plan.models {
            "Requests over a wide area network".into()
        } else {
            "Requests over the network".into()
        },
        result: models.first().map_or_else(
            || format!("Round trip: {}.", trips.join(", ")),
            |_| models.iter().map(|(test, model)| in_words(*test, model)).collect::<Vec<_>>().join(" "),
        ),
        warnings,
        charts,
        tables,
        facts: facts(&record, &[("round trips", trips.join(", "))]),
        record,
    })
}

fn in_words(test: Test, model: &Model) -> String {
    let name = test.name();
    match model.errors() {
        Some((middle, most)) => format!(
            "{name}: k = {:.2}; where only the data in flight limits, the model's error is {:.1} % (median), at most {:.1} %.",
            model.k,
            middle * 100.0,
            most * 100.0
        ),
        None => format!("{name}: no point is limited by the data in flight alone, so the model was not fitted."),
    }
}

fn files_table(files: &[Costs]) -> Table {
    let columns = std::iter::once("stripes").chain(OPERATIONS).chain(["new file", "Lustre"]);
    let row = |costs: &Costs| {
        let numbers =
            costs.round_trips.iter().chain([&costs.of_new_file()]).map(|n| format!("{n:.2}")).collect::<Vec<_>>();
        [vec![costs.stripes.to_string()], numbers, vec![costs.of_lustre().to_string()]].concat()
    };
    Table {
        title: "Round trips of operations on files".into(),
        columns: columns.map(str::to_owned).collect(),
        rows: files.iter().map(row).collect(),
    }
}

fn clients_table(clients: &[ClientCosts]) -> Table {
    let columns = clients::OPERATIONS.iter().flat_map(|name| [format!("{name}, least"), format!("{name}, mean")]);
    let row = |costs: &ClientCosts| {
        let numbers = costs.least.iter().zip(&costs.mean).flat_map(|(least, mean)| [least, mean]);
        std::iter::once(costs.clients.to_string()).chain(numbers.map(|n| format!("{n:.2}"))).collect()
    };
    Table {
        title: "Round trips of clients that write a file each in one directory".into(),
        columns: std::iter::once("clients".to_owned()).chain(columns).collect(),
        rows: clients.iter().map(row).collect(),
    }
}

fn predicted_row(p: &Predicted) -> Vec<String> {
    vec![
        p.point.delay.to_string(),
        human(p.point.size),
        p.point.in_flight.to_string(),
        format!("{:.1}", p.measured),
        format!("{:.1}", p.predicted),
        format!("{:.1} %", p.error() * 100.0),
        p.regime.name().to_owned(),
    ]
}

/// Draws the bandwidth over the requests in flight, a curve for each size: measured, and beside it
/// predicted.
fn chart(plan: &Plan, outcome: &Outcome, test: Test, delay: f64, model: Option<&Model>) -> Chart {
    let curves = |of: &dyn Fn(Point) -> Option<f64>| {
        let curve = |size| {
            plan.in_flight.iter().map(|&in_flight| of(Point { test, delay, size, in_flight })).collect::<Vec<_>>()
        };
        Values::Curves(plan.sizes.iter().map(|size| curve(*size)).collect())
    };
    let panel = |title: &str, scale, values| Panel { title: title.into(), scale, values };
    let measured = |point| outcome.bandwidth(point);
    let second = match model {
        Some(model) => {
            let predicted = |point| match model.points.iter().find(|p| p.point == point) {
                Some(p) => Some(p.predicted),
                None => (point == model.base).then_some(model.b0),
            };
            panel("predicted, MiB/s", Scale::Log, curves(&predicted))
        }
        None => panel("measured, MiB/s, linear", Scale::Linear, curves(&measured)),
    };
    Chart {
        title: format!("{}, round trip {delay} ms added", test.name()),
        axis: "requests in flight".into(),
        categories: plan.in_flight.iter().map(u64::to_string).collect(),
        series: plan.sizes.iter().map(|size| human(*size)).collect(),
        panels: vec![panel("measured, MiB/s", Scale::Log, curves(&measured)), second],
    }
}
