//! The programs that sites measure with, against libfuse's example `passthrough_hp`: IOR, mdtest,
//! fio, and tar, find, du and rm on a tree of source files.
//!
//! ```text
//! real [--rounds 5] [--only NAME] [--quick] [--ior PATH] [--mdtest PATH] [--mpiexec PATH]
//!      [--fio PATH] [--passthrough PATH] [--transport device|ring] [--json FILE]
//! ```
//!
//! Programs that are not found are left out, with a line about it. Each phase begins with empty
//! caches of the mount: the file system is mounted again before it. Ratios are formed within a
//! round.

mod args;
mod works;

use std::{collections::BTreeMap, fs, io, process::ExitCode};

use clap::Parser;
use serde_json::json;
use sheen_bench::{
    report::{Options, Progress, Table, program},
    stage::{self, Stage, Transport},
    stats::{median, median_and_range, ratios},
    tree,
};

use crate::{
    args::Args,
    works::{Better, Group, Phase},
};

fn main() -> ExitCode {
    program(run)
}

fn run() -> io::Result<()> {
    let args = Args::parse();
    let base = &args.options.base;
    fs::create_dir_all(base)?;
    let mut stages = bring_up(&args)?;
    let archive = tree::archive(base, 2300)?;
    let groups: Vec<Group> = works::groups(&args, &archive)
        .into_iter()
        .filter(|group| args.options.wants(group.name) || group.phases.iter().any(|p| args.options.wants(p.name)))
        .filter(|group| group.missing().inspect(|what| eprintln!("{}: left out, no {what}", group.name)).is_none())
        .collect();
    let results = measure(&args, &mut stages, &groups);
    fs::remove_file(archive)?;
    show(&args, &stages, &groups, &results?)
}

fn bring_up(args: &Args) -> io::Result<Vec<Stage>> {
    let Options { base, sheen, threads, .. } = &args.options;
    let transport = if args.transport == "ring" { Transport::Ring } else { Transport::Device };
    let program = works::found(&args.passthrough).ok_or_else(|| {
        let name = args.passthrough.display();
        io::Error::other(format!("{name}: not found; libfuse's examples have it. Give its path with --passthrough"))
    })?;
    let reference = Stage::passthrough(base, &program, transport)?;
    let lo = Stage::sheen_lo(base, sheen, *threads, transport)?;
    Ok(vec![reference, lo, Stage::sheen_tcp(base, sheen, *threads, transport)?])
}

/// Results by (group, phase, stage), one for each round.
type Results = BTreeMap<(usize, usize, usize), Vec<f64>>;

fn measure(args: &Args, stages: &mut [Stage], groups: &[Group]) -> io::Result<Results> {
    let Options { rounds, base, threads, .. } = &args.options;
    let phases: usize = groups.iter().map(|group| group.phases.len()).sum();
    let progress = Progress::new(*rounds as usize * phases * stages.len());
    let mut results = Results::new();
    let count = stages.len();
    for round in 0..*rounds as usize {
        let turns = groups.iter().enumerate().flat_map(|turn| stage::order(round, count).map(move |s| (turn, s)));
        for ((g, group), s) in turns {
            let stage = &mut stages[s];
            let dir = stage.mount.join(format!("round{round}"));
            fs::create_dir_all(&dir)?;
            group.prepare(&dir)?;
            for (p, phase) in group.phases.iter().enumerate() {
                stage.remount(*threads, &[])?;
                let name = format!("{}, {} {}", stage.name, group.name, phase.name);
                let result = progress.step(&name, || phase.run(&dir))?;
                results.entry((g, p, s)).or_default().push(result);
            }
            fs::remove_dir_all(dir)?;
            stage::settle(base)?;
        }
    }
    Ok(results)
}

fn show(args: &Args, stages: &[Stage], groups: &[Group], results: &Results) -> io::Result<()> {
    let mut table = Table::new(&["work", "file system", "result", "ratio (min–max)", "goal"]);
    for (g, group) in groups.iter().enumerate() {
        for (p, phase) in group.phases.iter().enumerate() {
            for (s, stage) in stages.iter().enumerate() {
                let (result, ratios) = (&results[&(g, p, s)], ratios(&results[&(g, p, s)], &results[&(g, p, 0)]));
                let work = format!("{} {}", group.name, phase.name);
                let (median_result, unit, ratio) = (median(result), phase.unit, median(&ratios));
                let figures =
                    json!({"work": work, "stage": stage.name, "result": median_result, "unit": unit, "ratio": ratio});
                let cells = vec![
                    work,
                    stage.name.to_owned(),
                    format!("{median_result:.*} {unit}", phase.digits()),
                    median_and_range(&ratios, 2),
                    goal(phase, s),
                ];
                table.row(cells, figures);
            }
        }
    }
    table.finish(&args.options)
}

/// Returns the goal of stage `s` for its ratio to the passthrough, as text.
fn goal(phase: &Phase, s: usize) -> String {
    let sign = if phase.better == Better::More { "≥" } else { "≤" };
    let goal = if s == 0 { None } else { phase.goals.and_then(|goals| goals.get(s - 1).copied()) };
    goal.map(|goal| format!("{sign} {goal}")).unwrap_or_default()
}
