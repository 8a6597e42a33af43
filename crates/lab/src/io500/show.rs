//! Runs the IO500 for a user: options, output, files with results.

use std::io;

use serde_json::{Value, json};

use crate::{
    chart::{Chart, Panel, Scale, Values},
    clock::Moment,
    io500::{
        args::Io500Args,
        outcome::{Outcome, PhaseResult, Score},
        phase::Phase,
        plan::Plan,
        print::Printer,
        run::{check_drop_caches, run},
    },
    machine,
    nodes::check_dir,
    output::{Format, Lines},
    record::Circumstances,
    report::Report,
    session::Session,
    stats::{counted, median, range},
    table::Table,
};

/// Steps of the progress bar in one run: mdtest counts the creation and removal of its trees.
const STEPS: usize = Phase::ALL.len() + 4;

/// Runs the IO500. `words` is the command line, for the record.
///
/// # Errors
/// A message for the user.
pub fn main(args: &Io500Args, words: &str) -> Result<(), String> {
    let plan = Plan::new(args)?;
    args.places.check()?;
    // The run creates a directory of its own in that of the user.
    plan.dir.parent().map_or(Ok(()), |dir| check_dir("-d", dir))?;
    if plan.drop_caches {
        check_drop_caches()?;
    }
    let began = Moment::now();
    let mut session = Session::new(STEPS * plan.repetitions as usize, &args.output)?;
    let mut printer = Printer { lines: Lines::new(&args.output) };
    printer.header();
    if plan.node_count() == 1 && !plan.drop_caches {
        session.warn("one mount: reads may come from its caches; set --mounts or --drop-caches".into());
    }
    if plan.drop_caches && crate::launch::hosts() > 1 {
        session.warn("--drop-caches: only the caches of this host are dropped".into());
    }
    let mut outcome = Outcome::default();
    let result = run(&plan, &mut outcome, &mut session, &mut printer);
    if args.output.format == Some(Format::Csv) {
        csv(&outcome);
    }
    let mut run = Circumstances::new("sheen lab io500", words, plan.repetitions, began);
    run.file_system = machine::mount_of(&plan.dir);
    session.conclude(run, result, fields(&plan, &outcome), || report(&plan, &outcome))
}

fn csv(outcome: &Outcome) {
    println!("run,phase,score,unit,seconds,valid");
    for (run, results) in outcome.runs.iter().enumerate() {
        for PhaseResult { phase, score, seconds, fault } in results {
            println!("{run},{},{score:.6},{},{seconds:.3},{}", phase.name(), phase.unit(), fault.is_none());
        }
    }
}

fn fields(plan: &Plan, outcome: &Outcome) -> Value {
    let phase = |r: &PhaseResult| {
        json!({
            "phase": r.phase.name(),
            "score": r.score,
            "unit": r.phase.unit(),
            "seconds": r.seconds,
            "invalid": r.fault,
        })
    };
    let run = |results: &Vec<PhaseResult>| {
        let score = (results.len() == Phase::ALL.len()).then(|| {
            let Score { bandwidth, metadata, total } = Score::of(results);
            json!({ "bandwidth": bandwidth, "metadata": metadata, "total": total })
        });
        json!({ "Results": results.iter().map(phase).collect::<Vec<_>>(), "score": score })
    };
    json!({
        "official": false,
        "Parameters": plan,
        "runs": outcome.runs.iter().map(run).collect::<Vec<_>>(),
    })
}

fn report(plan: &Plan, outcome: &Outcome) -> io::Result<Report> {
    let numbers = |values: &[f64]| {
        let (low, high) = range(values);
        [median(values), low, high].map(|value| format!("{value:.3}"))
    };
    let row = |name: &str, unit: &str, values: &[f64]| {
        std::iter::once(name.to_owned()).chain(numbers(values)).chain([unit.to_owned()]).collect::<Vec<_>>()
    };
    let measured = Phase::ALL.into_iter().filter(|phase| !outcome.of(*phase).is_empty());
    let mut rows: Vec<_> = measured.map(|phase| row(phase.name(), phase.unit(), &outcome.of(phase))).collect();
    let scores = outcome.scores();
    let score = |of: fn(&Score) -> f64| scores.iter().map(of).collect::<Vec<f64>>();
    if !scores.is_empty() {
        rows.push(row("score: bandwidth", "GiB/s", &score(|s| s.bandwidth)));
        rows.push(row("score: metadata", "kIOPS", &score(|s| s.metadata)));
        rows.push(row("score: total", "", &score(|s| s.total)));
    }
    let result = match scores.as_slice() {
        [] => "The run did not end, so it has no score.".to_owned(),
        _ => format!(
            "Total score {:.2}: median of {}. No official submission.",
            median(&score(|s| s.total)),
            counted(scores.len() as u64, "run")
        ),
    };
    let columns = ["phase", "median", "minimum", "maximum", "unit"];
    Ok(Report {
        title: format!("IO500: {} on {}", counted(plan.tasks, "task"), counted(plan.node_count(), "node")),
        result,
        charts: vec![chart(outcome).svg()?],
        tables: vec![Table::new("Results", columns).with(rows)],
        facts: vec![
            ("stonewall".into(), format!("{} s", plan.stonewall)),
            ("directory".into(), plan.dir.display().to_string()),
        ],
        ..Report::default()
    })
}

/// Draws easy phases beside hard ones.
fn chart(outcome: &Outcome) -> Chart {
    use Phase::*;
    let bar = |phase: Option<Phase>| {
        let values = outcome.of(phase?);
        let (low, high) = range(&values);
        (!values.is_empty()).then(|| [low, median(&values), high])
    };
    let series = |phases: [Option<Phase>; 5]| phases.into_iter().map(bar).collect::<Vec<_>>();
    let panel = |title: &str, rows: [[Option<Phase>; 5]; 2]| Panel {
        title: title.into(),
        scale: Scale::Log,
        values: Values::Ranges(rows.map(series).to_vec()),
    };
    Chart {
        title: "The phases of the IO500".into(),
        axis: "operation".into(),
        categories: ["write", "read", "stat", "delete", "find"].map(str::to_owned).to_vec(),
        series: vec!["easy".into(), "hard, and find".into()],
        panels: vec![
            panel(
                "bandwidth (IOR), GiB/s",
                [
                    [Some(IorEasyWrite), Some(IorEasyRead), None, None, None],
                    [Some(IorHardWrite), Some(IorHardRead), None, None, None],
                ],
            ),
            panel(
                "metadata (mdtest), thousands of operations per second",
                [
                    [Some(MdtestEasyWrite), None, Some(MdtestEasyStat), Some(MdtestEasyDelete), None],
                    [
                        Some(MdtestHardWrite),
                        Some(MdtestHardRead),
                        Some(MdtestHardStat),
                        Some(MdtestHardDelete),
                        Some(Find),
                    ],
                ],
            ),
        ],
    }
}
