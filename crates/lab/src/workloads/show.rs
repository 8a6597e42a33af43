//! Runs the workloads for a user: options, output, files with results.

use std::io;

use serde_json::{Value, json};

use crate::{
    chart::{Chart, Panel, Scale, Values},
    clock::Moment,
    machine,
    noise::Noise,
    output::{Format, Lines},
    report::{Report, Table},
    scratch::Own,
    session::{Session, facts},
    stats::{median, median_and_range},
    workloads::{
        args::{Workload, WorkloadsArgs},
        blast, ior, netflow,
        outcome::{Group, Measured, Outcome, Quantity},
        print::{Printer, name},
        setup::Setup,
    },
};

/// Runs the workloads. `words` is the command line, for the record.
///
/// # Errors
/// A message for the user.
pub fn main(args: &WorkloadsArgs, words: &str) -> Result<(), String> {
    let began = Moment::now();
    let mut chosen = match args.only.is_empty() {
        true => Workload::ALL.to_vec(),
        false => Workload::ALL.into_iter().filter(|workload| args.only.contains(workload)).collect(),
    };
    let missing = blast::missing(args).filter(|_| chosen.contains(&Workload::Blast));
    match &missing {
        Some(missing) if !args.only.is_empty() => return Err(format!("--only: {missing}")),
        Some(_) => chosen.retain(|workload| *workload != Workload::Blast),
        None => {}
    }
    let largest = chosen.iter().map(|workload| workload.bytes(args)).max().unwrap_or(0);
    args.scratch.check_space(largest).map_err(|e| e.to_string())?;
    if chosen.contains(&Workload::Netflow) {
        // The records, and an index of them.
        machine::check_memory(2 * Workload::Netflow.bytes(args))?;
    }
    let phases = args.repetitions as usize * chosen.iter().map(|workload| workload.phases()).sum::<usize>();
    let mut session = Session::new(phases, &args.output)?;
    if let Some(missing) = missing {
        session.warn(format!("BLAST is left out: {missing}"));
    }
    let own = Own::up(&args.scratch, "workloads", args.osts.into(), args.nodes.into()).map_err(|e| e.to_string())?;
    let fs = machine::mount_of(&own.cluster.mounts[0]);
    let mut outcome = Outcome::default();
    let result = run(args, &chosen, &own, &mut session, &mut outcome);
    drop(own);
    let mut printer = Printer { lines: Lines::new(&args.output) };
    session.above(|| {
        outcome.groups.iter().for_each(|group| printer.group(group));
        if args.output.format == Some(Format::Csv) {
            csv(&outcome);
        }
    });
    let record = |noise: &Noise| {
        json!({
            "Version": concat!("sheen lab workloads ", env!("CARGO_PKG_VERSION")),
            "Began": began.ctime(),
            "Command line": words,
            "machine": machine::describe(),
            "file system": fs,
            "noise": noise.spread(),
            "Parameters": {
                "nodes": args.nodes,
                "osts": args.osts,
                "ost_model": args.scratch.ost_model,
                "repetitions": args.repetitions,
            },
            "Results": outcome.groups.iter().map(|g| json!({ "workload": g.title, "results": g.results() })).collect::<Vec<_>>(),
        })
    };
    session.conclude(result, record, |record, warnings| report(args, &outcome, warnings, record))
}

fn run(
    args: &WorkloadsArgs,
    chosen: &[Workload],
    own: &Own,
    session: &mut Session,
    outcome: &mut Outcome,
) -> io::Result<()> {
    let mut setup = Setup { args, cluster: &own.cluster, session, outcome };
    for workload in chosen {
        match workload {
            Workload::Ior => ior::measure(&mut setup)?,
            Workload::Netflow => netflow::measure(&mut setup)?,
            Workload::Blast => blast::measure(&mut setup, &blast::Input::prepare(args, own)?)?,
        }
    }
    Ok(())
}

fn csv(outcome: &Outcome) {
    println!("experiment,quantity,variation,unit,median,min,max,gain");
    for measured in outcome.groups.iter().flat_map(Group::results) {
        let [middle, low, high] = measured.summary();
        let Quantity { name, unit, variation } = measured.quantity;
        let gain = median(&measured.gains);
        println!("{},{name},{variation},{unit},{middle:.3},{low:.3},{high:.3},{gain:.3}", measured.experiment);
    }
}

fn report(args: &WorkloadsArgs, outcome: &Outcome, warnings: Vec<String>, record: Value) -> io::Result<Report> {
    let best = |group: &Group| {
        let of = |quantity: Quantity| {
            let results = group.results().into_iter().filter(move |m| m.quantity == quantity);
            let best = results.max_by(|a, b| median(&a.gains).total_cmp(&median(&b.gains)))?;
            let gain = median(&best.gains);
            Some(format!("{}: best with {} ({gain:.2} × the first)", name(quantity), best.experiment))
        };
        group.quantities().into_iter().filter_map(of).collect::<Vec<_>>()
    };
    Ok(Report {
        title: "Workloads with static and dynamic striping".into(),
        result: outcome.groups.iter().flat_map(best).collect::<Vec<_>>().join(". "),
        warnings,
        charts: outcome.groups.iter().map(|group| chart(group).svg()).collect::<io::Result<_>>()?,
        tables: outcome.groups.iter().map(table).collect(),
        facts: facts(
            &record,
            &[
                ("mounts and OSTs", format!("{} and {}", args.nodes, args.osts)),
                ("disks", args.scratch.ost_model.clone().unwrap_or_else(|| "not modelled".into())),
            ],
        ),
        record,
    })
}

fn table(group: &Group) -> Table {
    let row = |m: Measured| {
        vec![
            m.experiment.to_owned(),
            m.striping.to_owned(),
            name(m.quantity),
            median_and_range(&m.values, 2),
            median_and_range(&m.gains, 2),
        ]
    };
    let columns = ["experiment", "striping", "quantity", "median (minimum–maximum)", "gain over the first"];
    Table {
        title: group.title.clone(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: group.results().into_iter().map(row).collect(),
    }
}

/// Draws each quantity over the experiments; variations are series.
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
    let bar = |m: Measured| {
        let [middle, low, high] = m.summary();
        [low, middle, high]
    };
    let panel = |(of, unit): (&'static str, &'static str)| {
        let series = |variation: &&str| {
            let same = |q: &&Quantity| (q.name, q.unit, q.variation) == (of, unit, *variation);
            let quantity = quantities.iter().find(same);
            let at = |experiment: &'static str| quantity.and_then(|q| group.get(experiment, *q)).map(bar);
            group.experiments.iter().map(|experiment| at(experiment.name)).collect()
        };
        Panel {
            title: format!("{of}, {unit}"),
            scale: Scale::Linear,
            values: Values::Ranges(variations.iter().map(series).collect()),
        }
    };
    let series = |variation: &&str| if variation.is_empty() { "median and range" } else { variation }.to_owned();
    Chart {
        title: group.title.clone(),
        axis: "number of the experiment".into(),
        categories: (1..=group.experiments.len()).map(|n| n.to_string()).collect(),
        series: variations.iter().map(series).collect(),
        panels: names.into_iter().map(panel).collect(),
    }
}
