//! Recommends a layout and RPC parameters for a user: options, output, files with results.

use std::io;

use serde_json::json;
use sheen_layout::PROGRESSIVE_OPTIONS;

use crate::{
    advise::{
        advice::{Advice, Recommended},
        apply,
        args::AdviseArgs,
        candidates::{Common, words},
        choice::Rated,
        measure::{measure, reached},
        mount_rpcs,
        print::Printer,
        rpcs::RpcAdvice,
    },
    chart::{Chart, Panel, Scale, Values},
    clock::Moment,
    machine,
    output::{Format, Lines},
    predict::{load::Direction, shape::Shape},
    prober::describe,
    record::Circumstances,
    report::Report,
    table::Table,
};

const CSV_COLUMNS: &str = "recommended,stripes,osts,stripe size,write(MiB/s),read(MiB/s),seconds,limited by,layout";

/// Recommends a layout and RPC parameters. `line` is the command line, for the record.
///
/// # Errors
/// A message for the user.
pub fn main(args: &AdviseArgs, line: &str) -> Result<(), String> {
    let began = Moment::now();
    let (advice, outputs) = Advice::new(args)?;
    let mut printer = Printer { lines: Lines::new(&args.output) };
    printer.advice(&advice);
    if args.output.format == Some(Format::Csv) {
        csv(&advice.all, advice.recommended, &advice.basis.common).iter().for_each(|line| println!("{line}"));
    }
    let (mut session, mut result, timed) = measure(args, &advice.workload, &advice.basis, &advice.all, outputs)?;
    let of_basis = if advice.are_small { Vec::new() } else { advice.basis.warnings() };
    advice.warning.iter().cloned().chain(of_basis).for_each(|warning| session.warn(warning));
    let reached = advice.chosen().and_then(|chosen| reached(&timed, &chosen.shape));
    if !timed.is_empty() {
        let rows: Vec<(Shape, f64)> = timed.iter().map(|timed| (timed.shape, timed.seconds)).collect();
        session.above(|| printer.measured(&rows, reached));
    }
    if args.apply && advice.command.is_some() {
        result = result.and_then(|()| apply::apply(&args.path, &advice.layout));
        if result.is_ok() {
            printer.line("The layout is set.");
        }
    }
    if args.apply
        && let Some(rpcs) = advice.rpcs().filter(|rpcs| !rpcs.settings.is_empty())
        && result.is_ok()
    {
        match mount_rpcs::apply(&rpcs.settings) {
            Ok(()) => printer.line("The RPC parameters are set, until the mounts end."),
            Err(e) => session.warn(not_set(rpcs, &e)),
        }
    }
    let about = advice.basis.published.map(|preset| json!({ "stated": preset.stated, "assumed": preset.assumed }));
    let mut run = Circumstances::new("sheen lab advise", line, args.repetitions, began);
    run.file_system = machine::mount_of(&args.path);
    let fields = json!({
        "system": advice.basis.name,
        "published": about,
        "job": advice.workload,
        "left out": advice.basis.left_out,
        "observed": advice.observed,
        "present": advice.now,
        "recommended": advice.chosen(),
        "layout": advice.layout,
        "command": advice.command,
        "gain": advice.gain(),
        "reason": advice.reason,
        "mirrors": advice.basis.common.mirrors,
        "pool": advice.basis.common.pool,
        "notes": advice.notes,
        "rpcs": advice.rpcs(),
        "rpcs command": advice.rpcs().and_then(RpcAdvice::command),
        "candidates": advice.all,
        "measured": timed,
        "reached": reached,
    });
    session.conclude(run, result, fields, || report(&advice))
}

/// Returns the warning that RPC parameters could not be set. Those of root's mounts need root.
fn not_set(rpcs: &RpcAdvice, e: &io::Error) -> String {
    let command = rpcs.command().unwrap_or_default();
    format!("the RPC parameters are not set: run `{command}` as the user of the mount ({e})")
}

/// Returns the lines of the CSV: the columns, the default layout if it is recommended, and all
/// candidates.
fn csv(all: &[Rated], recommended: Recommended, common: &Common) -> Vec<String> {
    let default = (recommended == Recommended::DefaultLayout).then(|| format!("1,,,,,,,,{PROGRESSIVE_OPTIONS}"));
    let row = |(index, rated): (usize, &Rated)| {
        let rate = |direction| rated.rate(direction).map_or_else(String::new, |rate| format!("{rate:.2}"));
        format!(
            "{},{},{},{},{},{},{:.4},{},{}",
            u8::from(recommended == Recommended::Candidate(index)),
            rated.shape.stripes,
            rated.shape.osts,
            rated.shape.stripe_size,
            rate(Direction::Write),
            rate(Direction::Read),
            rated.seconds,
            rated.limit().name(),
            words(&rated.shape, common).join(" ")
        )
    };
    let rows = all.iter().enumerate().map(row);
    [CSV_COLUMNS.to_owned()].into_iter().chain(default).chain(rows).collect()
}

/// Returns the reasons, each with its command.
fn sentences(advice: &Advice) -> String {
    let layout = [Some(advice.reason.clone()), advice.command.clone()];
    let layout = layout.into_iter().flatten().chain(advice.notes.iter().cloned());
    let rpcs = advice.rpcs().map_or([None, None], |rpcs| [Some(rpcs.reason.clone()), rpcs.command()]);
    layout.chain(rpcs.into_iter().flatten()).collect::<Vec<_>>().join(" ")
}

fn report(advice: &Advice) -> io::Result<Report> {
    let all = &advice.all;
    // The curves are over the number of stripes; of several stripe sizes the best one counts.
    let mut stripes: Vec<u32> = all.iter().map(|rated| rated.shape.stripes).collect();
    stripes.dedup();
    let best = |count: u32, direction| {
        let of_count = all.iter().filter(|rated| rated.shape.stripes == count);
        of_count.filter_map(|rated| rated.rate(direction)).reduce(f64::max)
    };
    let curve = |direction| stripes.iter().map(|count| best(*count, direction)).collect::<Vec<_>>();
    let has = |direction: &Direction| all.iter().any(|rated| rated.rate(*direction).is_some());
    let directions: Vec<Direction> = Direction::ALL.into_iter().filter(has).collect();
    let chart = Chart {
        title: "Predicted rate over the number of stripes".into(),
        axis: "stripes".into(),
        categories: stripes.iter().map(u32::to_string).collect(),
        series: directions.iter().map(|direction| direction.name().to_owned()).collect(),
        panels: vec![Panel {
            title: "MiB/s".into(),
            scale: Scale::Linear,
            values: Values::Curves(directions.iter().map(|direction| curve(*direction)).collect()),
        }],
    };
    let row = |rated: &Rated| {
        let rate = |direction| rated.rate(direction).map_or("–".into(), |rate| format!("{rate:.0}"));
        vec![
            rated.shape.name(),
            rate(Direction::Write),
            rate(Direction::Read),
            format!("{:.3}", rated.seconds),
            rated.limit().name().to_owned(),
        ]
    };
    let columns = ["layout", "write, MiB/s", "read, MiB/s", "seconds of the job", "limited by"];
    let rpcs = advice.rpcs();
    let candidates = Table::new("Candidates", columns).with(all.iter().map(row));
    let command = |command: Option<String>| command.unwrap_or_else(|| "no change".into());
    let layout = ("recommended".to_owned(), command(advice.command.clone()));
    let parameters = rpcs.map(|rpcs| ("RPC parameters".to_owned(), command(rpcs.command())));
    Ok(Report {
        title: format!("Layout for {}", describe(&advice.workload)),
        result: sentences(advice),
        charts: vec![chart.svg()?],
        tables: [candidates].into_iter().chain(rpcs.and_then(RpcAdvice::table)).collect(),
        facts: [layout].into_iter().chain(parameters).collect(),
        ..Report::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        advise::{
            candidates::candidates,
            choice::{Site, rate},
        },
        predict::{load::Workload, mirrors::Mirrors, presets::preset},
    };

    #[test]
    fn csv_marks_the_recommended_layout_also_if_it_is_no_candidate() {
        let job = Workload { tasks: 1, nodes: 1, transfer: 4096, block: 4096, size: 4096, files: true };
        let costs = vec![(Direction::Write, preset("flash").unwrap().write)];
        let site = Site { osts: 2, costs, mirrors: Mirrors::ONE };
        let all: Vec<Rated> = candidates(&job, 2, 1).iter().map(|shape| rate(&job, shape, &site)).collect();
        let marked = |recommended| {
            let lines = csv(&all, recommended, &Common::NONE);
            assert!(lines.iter().all(|line| line.split(',').count() == CSV_COLUMNS.split(',').count()));
            lines.into_iter().filter(|line| line.starts_with("1,")).collect::<Vec<_>>()
        };
        assert_eq!(marked(Recommended::Nothing), Vec::<String>::new());
        assert_eq!(marked(Recommended::DefaultLayout), [format!("1,,,,,,,,{PROGRESSIVE_OPTIONS}")]);
        let candidate = marked(Recommended::Candidate(1));
        assert!(
            candidate.len() == 1 && candidate[0].ends_with(&words(&all[1].shape, &Common::NONE).join(" ")),
            "{candidate:?}"
        );
    }
}
