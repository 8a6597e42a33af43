//! Runs `sheen lab model` for a user: options, output, files with results.

use std::io;

use serde_json::json;

use crate::{
    chart::{Chart, Panel, Scale, Values},
    clock::Moment,
    machine,
    model::{
        args::ModelArgs,
        calibrate::fitted,
        print::{Printer, errors, rows},
        probes::probes,
    },
    output::{Format, Lines},
    predict::{
        fit::Errors,
        load::{Direction, Workload},
        shape::Shape,
        store::{Model, Run, Store},
        system::{System, calibration},
    },
    prober::{Job, Measured, Prober, check_space, describe},
    record::Circumstances,
    report::Report,
    session::Session,
    table::Table,
};

/// Least bytes of a run.
const SIZE_MIN: u64 = 1 << 20;

/// Calibrates a model, or shows one. `words` is the command line, for the record.
///
/// # Errors
/// A message for the user.
pub fn main(args: &ModelArgs, words: &str) -> Result<(), String> {
    let text = |e: io::Error| e.to_string();
    let system = System::in_pool(&args.dir, args.pool.as_deref()).map_err(text)?;
    let store = Store::of_user().ok_or("no directory for models: set SHEEN_LAB_DIR or HOME")?;
    if args.calibrate {
        return calibrate(args, words, &system, &store);
    }
    let model = system.model(&store).map_err(text)?.ok_or_else(|| {
        let calibrate = calibration(&args.dir, args.pool.as_deref());
        format!("there is no model of {} in {}: run `{calibrate}`", system.name(), store.dir().display())
    })?;
    let mut runs = store.runs(&system.key).map_err(text)?;
    runs.retain(|run| run.calibrated == model.calibrated);
    let session = Session::new(0, &args.output)?;
    let all: Vec<f64> = runs.iter().map(Run::error).collect();
    let of_runs = Errors::of(&all);
    let mut printer = Printer { lines: Lines::new(&args.output) };
    printer.model(&model);
    if !runs.is_empty() {
        printer.runs(&runs);
    }
    printer.errors("error of the predictions", of_runs.as_ref());
    if args.output.format == Some(Format::Csv) {
        csv(&runs);
    }
    let mut circumstances = Circumstances::new("sheen lab model", words, 1, Moment::now());
    circumstances.file_system = machine::mount_of(&args.dir);
    let fields = json!({ "model": model, "Results": runs, "summary": of_runs });
    session.conclude(circumstances, Ok(()), fields, || {
        let points = runs.iter().map(|run| (run.measured, run.predicted.rate));
        let row = |run: &Run| {
            vec![
                describe(&run.workload),
                run.shape.name(),
                run.direction.name().to_owned(),
                format!("{:.0}", run.measured),
                format!("{:.0}", run.predicted.rate),
                format!("{:.0}", run.error() * 100.0),
                run.predicted.limit.name().to_owned(),
            ]
        };
        let result = of_runs.as_ref().map_or("no runs of IOR since the calibration".into(), errors);
        report(&model, format!("Error of the predictions: {result}."), points.collect(), runs.iter().map(row).collect())
    })
}

fn csv(runs: &[Run]) {
    println!("access,tasks,nodes,transfer,block,size,files,stripes,osts,stripe size,measured(MiB/s),predicted(MiB/s)");
    for run in runs {
        let job = fields(run.direction, &run.workload, &run.shape);
        println!("{job},{:.2},{:.2}", run.measured, run.predicted.rate);
    }
}

/// Returns a job as comma-separated values.
fn fields(direction: Direction, w: &Workload, s: &Shape) -> String {
    let name = direction.name();
    format!(
        "{name},{},{},{},{},{},{},{},{},{}",
        w.tasks, w.nodes, w.transfer, w.block, w.size, w.files, s.stripes, s.osts, s.stripe_size
    )
}

fn calibrate(args: &ModelArgs, words: &str, system: &System, store: &Store) -> Result<(), String> {
    let text = |e: io::Error| e.to_string();
    let began = Moment::now();
    if args.size < SIZE_MIN {
        return Err(format!("--size: {} is less than 1 MiB", args.size));
    }
    store.check().map_err(text)?;
    let jobs = probes(args.nodes, args.size, system);
    let phase = |job: &Job| 1 + usize::from(job.workload.nodes > 1);
    let phases = jobs.iter().map(phase).sum::<usize>() * args.repetitions as usize;
    let buffers = jobs.iter().map(|job| job.workload.transfer * u64::from(job.workload.tasks)).max().unwrap_or(0);
    machine::check_memory(buffers)?;
    check_space(&args.dir, &jobs)?;
    let mut session = Session::new(phases, &args.output)?;
    let prober = Prober::new(&args.dir, system, "model", args.nodes, args.repetitions).map_err(text)?;
    let mut measured: Vec<Measured> = Vec::new();
    let fs = machine::mount_of(&args.dir);
    let result = prober.run(&jobs, &mut session, |_, of_job| measured.extend(of_job));
    drop(prober);
    let fits = Direction::ALL.map(|direction| match &result {
        Ok(()) => fitted(&measured, direction, system.osts),
        Err(_) => None,
    });
    let model = match (&result, fits) {
        (Ok(()), [Some((write, _)), read]) => {
            Some(Model::new(system.key.clone(), began.iso(), system.osts, write, read.map(|(costs, _)| costs)))
        }
        _ => None,
    };
    let errors_of = fits.map(|fit| fit.map(|(_, errors)| errors));
    let mut result = result;
    if let Some(model) = &model {
        result = result.and(store.save(model));
        let mut printer = Printer { lines: Lines::new(&args.output) };
        session.above(|| {
            printer.model(model);
            for (direction, of) in Direction::ALL.iter().zip(&errors_of) {
                printer.errors(&format!("error of the fit, {}", direction.name()), of.as_ref());
            }
        });
    }
    if args.output.format == Some(Format::Csv) {
        println!("access,tasks,nodes,transfer,block,size,files,stripes,osts,stripe size,measured(MiB/s)");
        for m in &measured {
            println!("{},{:.2}", fields(m.direction, &m.workload, &m.shape), m.rate);
        }
    }
    let mut circumstances = Circumstances::new("sheen lab model", words, args.repetitions, began);
    circumstances.file_system = fs;
    let summary = json!({ "write": errors_of[0], "read": errors_of[1] });
    let fields = json!({ "model": model, "Results": measured, "summary": summary });
    session.conclude(circumstances, result, fields, || {
        let Some(model) = &model else { return Err(io::Error::other("the calibration did not end")) };
        let predicted = measured.iter().filter_map(|m| Some((m, m.predicted(model.costs(m.direction)?, system.osts))));
        let all: Vec<_> = predicted.collect();
        let row = |(m, predicted): &(&Measured, crate::predict::costs::Prediction)| {
            let error = crate::predict::fit::error(predicted.rate, m.rate);
            vec![
                describe(&m.workload),
                m.shape.name(),
                m.direction.name().to_owned(),
                format!("{:.0}", m.rate),
                format!("{:.0}", predicted.rate),
                format!("{:.0}", error * 100.0),
                predicted.limit.name().to_owned(),
            ]
        };
        let fits = Direction::ALL.iter().zip(&errors_of);
        let fits: Vec<String> = fits
            .filter_map(|(direction, of)| Some(format!("{}: {}", direction.name(), errors(of.as_ref()?))))
            .collect();
        report(
            model,
            format!("Error of the fit: {}.", fits.join("; ")),
            all.iter().map(|(m, predicted)| (m.rate, predicted.rate)).collect(),
            all.iter().map(row).collect(),
        )
    })
}

/// `points`: measured and predicted rates.
fn report(model: &Model, result: String, mut points: Vec<(f64, f64)>, runs: Vec<Vec<String>>) -> io::Result<Report> {
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let columns = ["job", "layout", "access", "measured, MiB/s", "predicted", "error, %", "limited by"];
    // Names of all runs would overlap.
    let label = |n: usize| if n == 1 || n.is_multiple_of(10) { n.to_string() } else { String::new() };
    let curve = |of: fn(&(f64, f64)) -> f64| points.iter().map(|point| Some(of(point))).collect();
    let chart = Chart {
        title: format!("Model of {}: predicted and measured", model.key.name()),
        axis: "runs, the slowest first".into(),
        categories: (1..=points.len()).map(label).collect(),
        series: vec!["measured".into(), "predicted".into()],
        panels: vec![Panel {
            title: "MiB/s".into(),
            scale: Scale::Log,
            values: Values::Curves(vec![curve(|p| p.0), curve(|p| p.1)]),
        }],
    };
    Ok(Report {
        title: format!("Model of {} on {}", model.key.name(), model.key.host),
        result,
        charts: if points.is_empty() { Vec::new() } else { vec![chart.svg()?] },
        tables: vec![
            Table::new("Runs", columns).with(runs),
            Table::new("Costs: rates of parts, and times", ["part", "write", "read"])
                .with(rows(model).into_iter().map(Vec::<String>::from)),
        ],
        facts: vec![("calibrated".into(), model.calibrated.clone()), ("OSTs".into(), model.osts.to_string())],
        ..Report::default()
    })
}
