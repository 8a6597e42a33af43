//! Runs a measurement of the network for a user: options, output, files with results.

use std::io;

use serde_json::{Value, json};
use sheen_lnet::Trust;

use crate::{
    chart::{Chart, Panel, Scale, Values},
    clock::Moment,
    net::{
        args::{NetArgs, Test},
        clients::{self, ClientCosts},
        files::{Costs, OPERATIONS, STRIPES},
        load::Load,
        model::{Model, Predicted},
        node::Node,
        outcome::{Outcome, Rates},
        plan::{Plan, Point},
        print::Printer,
        run::run,
    },
    output::{Format, Lines},
    processes,
    record::Circumstances,
    report::Report,
    session::Session,
    size::human,
    table::Table,
};

/// Runs a measurement. `wan`: with the defaults and the model of `sheen lab wan`. `trust`: of this
/// process. `words` is the command line, for the record.
///
/// # Errors
/// A message for the user.
pub fn main(args: &NetArgs, wan: bool, trust: Trust, words: &str) -> Result<(), String> {
    let plan = Plan::new(args, wan)?;
    // Before the measurements of the network, which take minutes.
    if let Some(dir) = &plan.files {
        processes::of_mount(dir).map_err(|e| e.to_string())?;
    }
    let began = Moment::now();
    let of_files = if plan.files.is_some() { STRIPES.len() + plan.clients.len() } else { 0 };
    let mut session = Session::new(plan.points().len() + of_files, &args.output)?;
    let load = Load::connect(trust, &plan)?;
    let mut printer = Printer { lines: Lines::new(&args.output) };
    printer.header(plan.from.as_ref(), &plan.to);
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
    let program = if plan.models { "sheen lab wan" } else { "sheen lab net" };
    let mut run = Circumstances::new(program, words, plan.repetitions, began);
    run.file_system = Some(match &plan.from {
        Some(from) => ["servers".into(), format!("{from} to {}", plan.to)],
        None => ["server".into(), plan.to.to_string()],
    });
    session.conclude(run, result, fields(&plan, &outcome, &models), || report(&plan, &outcome, &models))
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

fn fields(plan: &Plan, outcome: &Outcome, models: &[(Test, Model)]) -> Value {
    json!({
        "Parameters": plan,
        "round trips": outcome.round_trips,
        "Results": outcome.rates,
        "models": models,
        "files": outcome.files,
        "clients": outcome.clients,
    })
}

fn report(plan: &Plan, outcome: &Outcome, models: &[(Test, Model)]) -> io::Result<Report> {
    let row = |rates: &Rates| {
        let (point, [middle, low, high]) = (rates.point, rates.bandwidth());
        let numbers = [rates.rate(), middle, low, high].map(|number| format!("{number:.0}"));
        [point.test.name().to_owned(), point.delay.to_string(), human(point.size), point.in_flight.to_string()]
            .into_iter()
            .chain(numbers)
            .chain([format!("{:.3}", rates.milliseconds())])
            .collect::<Vec<_>>()
    };
    let columns = ["test", "added ms", "size", "in flight", "RPC/s", "MiB/s", "minimum", "maximum", "ms per RPC"];
    let mut tables =
        vec![Table::new("All points: median, minimum and maximum", columns).with(outcome.rates.iter().map(row))];
    tables.extend(models.iter().map(|(test, model)| {
        let columns = ["added ms", "size", "in flight", "measured", "predicted", "error", "regime"];
        let rows = model.points.iter().map(predicted_row);
        Table::new(format!("The model of {}, MiB/s", test.name()), columns).with(rows)
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
    let network = if plan.models { "a wide area network" } else { "the network" };
    let from = plan.from.as_ref().map_or_else(|| "this process".to_owned(), Node::description);
    Ok(Report {
        title: match &plan.from {
            Some(from) => format!("Requests over {network}, from {from} to {}", plan.to),
            None => format!("Requests over {network}"),
        },
        result: models.first().map_or_else(
            || format!("Round trip: {}.", trips.join(", ")),
            |_| models.iter().map(|(test, model)| in_words(*test, model)).collect::<Vec<_>>().join(" "),
        ),
        charts,
        tables,
        facts: vec![
            ("from".into(), from),
            ("to".into(), plan.to.description()),
            ("round trips".into(), trips.join(", ")),
        ],
        ..Report::default()
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
    Table::new("Round trips of operations on files", columns).with(files.iter().map(row))
}

fn clients_table(clients: &[ClientCosts]) -> Table {
    let columns = clients::OPERATIONS.iter().flat_map(|name| [format!("{name}, least"), format!("{name}, mean")]);
    let row = |costs: &ClientCosts| {
        let numbers = costs.least.iter().zip(&costs.mean).flat_map(|(least, mean)| [least, mean]);
        std::iter::once(costs.clients.to_string()).chain(numbers.map(|n| format!("{n:.2}"))).collect::<Vec<_>>()
    };
    let columns = std::iter::once("clients".to_owned()).chain(columns);
    Table::new("Round trips of clients that write a file each in one directory", columns).with(clients.iter().map(row))
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
