//! Runs the workloads for a user: options, output, files with results.

use std::{io, time::Instant};

use serde_json::{Map, json};

use crate::{
    chart::{Chart, Panel, Scale, Values},
    clock::Moment,
    machine,
    output::{Format, Lines},
    record::Circumstances,
    report::Report,
    session::Session,
    stats::{median, range},
    table::{Cell, Table},
    user_mounts::twice,
    workloads::{
        args::WorkloadsArgs,
        blast, ior, netflow,
        outcome::{Group, Measured, Outcome, Quantity},
        print::{Printer, comparisons, durations, name},
        selection::{Selection, Workload},
        setup::Setup,
        system::System,
    },
};

/// Runs the workloads. `words` is the command line, for the record.
///
/// # Errors
/// A message for the user.
pub fn main(args: &WorkloadsArgs, words: &str) -> Result<(), String> {
    let (began, start) = (Moment::now(), Instant::now());
    if let Some(twice) = twice(&args.mounts) {
        return Err(format!("--mounts: {} is named twice", twice.display()));
    }
    let mut chosen = args.selections();
    let has = |chosen: &[Selection], workload: Workload| chosen.iter().any(|selection| selection.workload == workload);
    let missing = has(&chosen, Workload::Blast).then(|| blast::missing(args)).flatten();
    match (&missing, args.selecting_option()) {
        (Some(missing), Some(option)) => return Err(format!("{option}: {missing}")),
        (Some(_), None) => chosen.retain(|selection| selection.workload != Workload::Blast),
        (None, _) => {}
    }
    let largest = chosen.iter().map(|selection| args.bytes(selection.workload)).max().unwrap_or(0);
    if has(&chosen, Workload::Netflow) {
        // The records, and an index of them.
        machine::check_memory(2 * args.bytes(Workload::Netflow))?;
    }
    let steps = |selection: &Selection| selection.workload.phases() * selection.experiments.len();
    let phases = args.repetitions as usize * chosen.iter().map(steps).sum::<usize>();
    let mut session = Session::new(phases, &args.output)?;
    if let Some(missing) = missing {
        session.warn(format!("BLAST is left out: {missing}"));
    }
    let system = System::new(args, largest).map_err(|e| e.to_string())?;
    if let Some(warning) = system.warning() {
        session.warn(warning.into());
    }
    let (mounts, osts, described) = (system.mounts.len(), system.osts, system.described.clone());
    let mut outcome = Outcome::default();
    let result = run(args, &chosen, &system, &mut session, &mut outcome);
    drop(system);
    outcome.seconds = start.elapsed().as_secs_f64();
    let mut printer = Printer { lines: Lines::new(&args.output) };
    session.above(|| {
        outcome.groups.iter().for_each(|group| printer.group(group));
        printer.lines.line(&format!("\nDuration: {}", durations(&outcome)));
        if args.output.format == Some(Format::Csv) {
            csv(&outcome);
        }
    });
    let mut run = Circumstances::new("sheen lab workloads", words, args.repetitions, began);
    run.file_system = described;
    let group = |group: &Group| json!({ "workload": group.title, "results": group.results() });
    let of_workloads: Map<_, _> =
        outcome.durations.iter().map(|(name, seconds)| ((*name).to_owned(), json!(seconds))).collect();
    let fields = json!({
        "Parameters": { "nodes": mounts, "osts": osts, "ost_model": args.scratch.ost_model },
        "seconds": { "workloads": of_workloads, "total": outcome.seconds },
        "Results": outcome.groups.iter().map(group).collect::<Vec<_>>(),
    });
    session.conclude(run, result, fields, || report(args, (mounts, osts), &outcome))
}

fn run(
    args: &WorkloadsArgs,
    chosen: &[Selection],
    system: &System,
    session: &mut Session,
    outcome: &mut Outcome,
) -> io::Result<()> {
    let mut setup = Setup { args, system, session, outcome };
    for Selection { workload, experiments } in chosen {
        let start = Instant::now();
        let result = match workload {
            Workload::Ior => ior::measure(&mut setup, experiments),
            Workload::Netflow => netflow::measure(&mut setup, experiments),
            Workload::Blast => {
                blast::Input::prepare(args, system).and_then(|input| blast::measure(&mut setup, &input, experiments))
            }
        };
        setup.outcome.durations.push((workload.name(), start.elapsed().as_secs_f64()));
        result?;
    }
    Ok(())
}

fn csv(outcome: &Outcome) {
    println!("experiment,quantity,variation,unit,median,min,max,gain,static_gain");
    for measured in outcome.groups.iter().flat_map(Group::results) {
        let [middle, low, high] = measured.summary();
        let Quantity { name, unit, variation } = measured.quantity;
        let [gain, static_gain] = [&measured.gains, &measured.static_gains].map(|gains| median(gains));
        println!(
            "{},{name},{variation},{unit},{middle:.3},{low:.3},{high:.3},{gain:.3},{static_gain:.3}",
            measured.experiment
        );
    }
}

fn report(args: &WorkloadsArgs, (mounts, osts): (usize, u64), outcome: &Outcome) -> io::Result<Report> {
    Ok(Report {
        title: "Workloads with static and dynamic striping".into(),
        result: outcome.groups.iter().flat_map(comparisons).collect::<Vec<_>>().join(". "),
        charts: outcome.groups.iter().map(|group| chart(group).svg()).collect::<io::Result<_>>()?,
        tables: outcome.groups.iter().map(table).collect(),
        facts: vec![
            ("mounts and OSTs".into(), format!("{mounts} and {osts}")),
            ("disks".into(), args.scratch.ost_model.clone().unwrap_or_else(|| "not modelled".into())),
            ("duration".into(), durations(outcome)),
        ],
        ..Report::default()
    })
}

fn table(group: &Group) -> Table {
    let row = |m: Measured| {
        vec![
            m.experiment.into(),
            m.striping.into(),
            name(m.quantity).into(),
            Cell::range(&m.values, 2, ""),
            Cell::range(&m.gains, 2, ""),
            Cell::range(&m.static_gains, 2, ""),
        ]
    };
    let columns = [
        "experiment",
        "striping",
        "quantity",
        "median (minimum–maximum)",
        "gain over the first",
        "gain over the best static one",
    ];
    Table::new(group.title.clone(), columns).with(group.results().into_iter().map(row))
}

/// Draws each quantity over the experiments, and for times also the speedup. Variations are series.
fn chart(group: &Group) -> Chart {
    let quantities = group.quantities();
    let mut variations: Vec<&str> = quantities.iter().map(|q| q.variation).collect();
    variations.dedup();
    variations.sort_unstable();
    variations.dedup();
    let mut names: Vec<(&'static str, &'static str)> = Vec::new();
    for quantity in &quantities {
        if !names.contains(&(quantity.name, quantity.unit)) {
            names.push((quantity.name, quantity.unit));
        }
    }
    let bar = |values: &[f64]| {
        let (low, high) = range(values);
        (!values.is_empty()).then(|| [low, median(values), high])
    };
    let panel = |(of, unit): (&'static str, &'static str), title: String, values: fn(&Measured) -> &[f64]| {
        let series = |variation: &&str| {
            let same = |q: &&Quantity| (q.name, q.unit, q.variation) == (of, unit, *variation);
            let quantity = quantities.iter().find(same);
            let at = |experiment: &'static str| {
                let measured = quantity.and_then(|q| group.get(experiment, *q))?;
                bar(values(&measured))
            };
            group.experiments.iter().map(|experiment| at(experiment.name)).collect()
        };
        Panel { title, scale: Scale::Linear, values: Values::Ranges(variations.iter().map(series).collect()) }
    };
    let mut panels = Vec::new();
    for (of, unit) in names {
        panels.push(panel((of, unit), format!("{of}, {unit}"), values_of));
        if unit == "s"
            && let Some(first) = group.experiments.first()
        {
            panels.push(panel((of, unit), format!("speedup over {}", first.name), gains_of));
        }
    }
    let series = |variation: &&str| if variation.is_empty() { "median and range" } else { variation }.to_owned();
    Chart {
        title: group.title.clone(),
        axis: "number of the experiment".into(),
        categories: group.experiments.iter().map(|experiment| experiment.number().to_owned()).collect(),
        series: variations.iter().map(series).collect(),
        panels,
    }
}

fn values_of(measured: &Measured) -> &[f64] {
    &measured.values
}

fn gains_of(measured: &Measured) -> &[f64] {
    &measured.gains
}
