//! Runs a survey for a user: options, output, files with results.

use std::io;

use serde_json::json;
use sheen_lnet::Trust;

use crate::{
    chart::{Chart, Panel, Scale, Values},
    clock::Moment,
    output::{Format, Lines},
    record::Circumstances,
    report::Report,
    session::Session,
    size::human,
    stats::counted,
    survey::{
        args::{Case, SurveyArgs},
        client::ClientLoad,
        disk::DiskLoad,
        load::Load,
        outcome::{Limits, Outcome, Rates},
        plan::Plan,
        print::Printer,
        run::{lock, run},
    },
    table::Table,
};

/// Runs a survey. `trust` returns whom this process trusts. `words` is the command line, for the
/// record.
///
/// # Errors
/// A message for the user.
pub fn main(args: &SurveyArgs, trust: impl FnOnce() -> Trust, words: &str) -> Result<(), String> {
    let plan = Plan::new(args)?;
    let _alone = lock(&plan).map_err(|e| e.to_string())?;
    let began = Moment::now();
    let mut session = Session::new(plan.points.len(), &args.output)?;
    let load: Box<dyn Load + '_> = match plan.case {
        Case::Disk => Box::new(DiskLoad(&plan)),
        Case::Netdisk | Case::Network => Box::new(ClientLoad::connect(&plan, trust()).map_err(|e| e.to_string())?),
    };
    let mut printer = Printer { lines: Lines::new(&args.output) };
    printer.header(plan.case, &began.ctime());
    let mut outcome = Outcome::default();
    let result = run(&plan, &*load, &mut outcome, &mut session, &mut printer);
    drop(load);
    let limits = limits(&plan, &outcome);
    printer.limits(&limits);
    if args.output.format == Some(Format::Csv) {
        csv(&outcome);
    }
    let mut run = Circumstances::new("sheen lab survey", words, plan.repetitions, began);
    run.file_system = Some(["OSTs".into(), plan.osts.join(",")]);
    let fields = json!({ "Parameters": plan, "Results": outcome.rates, "summary": limits });
    session.conclude(run, result, fields, || report(&plan, &outcome, &limits))
}

fn limits(plan: &Plan, outcome: &Outcome) -> Vec<Limits> {
    records(plan)
        .into_iter()
        .flat_map(|record| plan.tests().filter_map(move |test| outcome.limits(test, record)))
        .collect()
}

fn records(plan: &Plan) -> Vec<u64> {
    let mut records: Vec<u64> = plan.points.iter().map(|point| point.record).collect();
    records.dedup();
    records
}

fn csv(outcome: &Outcome) {
    println!("test,record,objects,threads,median(MiB/s),min,max");
    for rates in &outcome.rates {
        let (total, low, high) = rates.summary();
        let point = rates.point;
        println!("{},{},{},{},{total:.2},{low:.2},{high:.2}", rates.test, point.record, point.objects, point.threads);
    }
}

fn report(plan: &Plan, outcome: &Outcome, limits: &[Limits]) -> io::Result<Report> {
    let row = |rates: &Rates| {
        let (total, low, high) = rates.summary();
        let point = rates.point;
        let numbers = [total, low, high].map(|rate| format!("{rate:.0}"));
        [rates.test.to_owned(), human(point.record), point.objects.to_string(), point.threads.to_string()]
            .into_iter()
            .chain(numbers)
            .collect::<Vec<_>>()
    };
    let limit = |l: &Limits| {
        vec![
            l.test.to_owned(),
            human(l.record),
            format!("{:.0} ({})", l.few, counted(l.fewest, "object")),
            format!("{:.0}", l.peak),
            l.objects.to_string(),
        ]
    };
    let best = limits.first().map_or_else(
        || "Nothing was measured.".to_owned(),
        |l| {
            format!(
                "{}: {:.0} MiB/s with {}; the peak of an OST is {:.0} MiB/s, with {}.",
                l.test,
                l.few,
                counted(l.fewest, "object"),
                l.peak,
                counted(l.objects, "object")
            )
        },
    );
    Ok(Report {
        title: format!("Survey of {}, case {}", counted(plan.osts.len() as u64, "OST"), plan.case.name()),
        result: best,
        charts: records(plan)
            .into_iter()
            .map(|record| chart(plan, outcome, record).svg())
            .collect::<io::Result<_>>()?,
        tables: vec![
            Table::new("Limits of an OST, MiB/s", ["test", "record", "fewest objects", "peak", "objects at the peak"])
                .with(limits.iter().map(limit)),
            Table::new(
                "All points, MiB/s: the median of all OSTs together, and the extremes of single ones",
                ["test", "record", "objects", "threads", "median", "minimum", "maximum"],
            )
            .with(outcome.rates.iter().map(row)),
        ],
        facts: vec![("bytes of each OST in a test".into(), human(plan.size))],
        ..Report::default()
    })
}

/// Draws the rate of an OST over objects: with the best number of threads, and with each number for
/// the first test.
fn chart(plan: &Plan, outcome: &Outcome, record: u64) -> Chart {
    let mut objects: Vec<u64> = plan.points.iter().map(|point| point.objects).collect();
    objects.sort_unstable();
    objects.dedup();
    let curve = |test| objects.iter().map(|n| outcome.best(test, record, *n)).collect::<Vec<_>>();
    let panel = |title: &str, scale| Panel {
        title: title.into(),
        scale,
        values: Values::Curves(plan.tests().map(curve).collect()),
    };
    Chart {
        title: format!("One OST, records of {}: best number of threads", human(record)),
        axis: "objects".into(),
        categories: objects.iter().map(u64::to_string).collect(),
        series: plan.tests().map(|test| test.name().to_owned()).collect(),
        panels: vec![panel("MiB/s, linear", Scale::Linear), panel("MiB/s, logarithmic", Scale::Log)],
    }
}
