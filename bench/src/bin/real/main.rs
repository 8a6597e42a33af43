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
use sheen_bench::{
    report::{Cell, Options, Progress, Table, finish, program},
    stage::{self, Stage, Transport},
    stats::ratios,
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

/// Shows a row for each phase: the passthrough, and for both file systems result, ratio and goal.
fn show(args: &Args, stages: &[Stage], groups: &[Group], results: &Results) -> io::Result<()> {
    let [reference, others @ ..] = stages else { return Ok(()) };
    let of_stage = others.iter().flat_map(|stage| [stage.name, "ratio (min–max)", "goal"]);
    let mut table = Table::new("", ["work", reference.name].into_iter().chain(of_stage));
    for (g, group) in groups.iter().enumerate() {
        for (p, phase) in group.phases.iter().enumerate() {
            let of = |s: usize| &results[&(g, p, s)];
            let result = |s: usize| Cell::range(of(s), phase.digits(), phase.unit);
            let mut cells = vec![format!("{} {}", group.name, phase.name).into(), result(0)];
            for s in 1..stages.len() {
                cells.extend([result(s), Cell::range(&ratios(of(s), of(0)), 2, ""), goal(phase, s).into()]);
            }
            table.row(cells);
        }
    }
    finish(&[table], &args.options)
}

/// Returns the goal of stage `s` for its ratio to the passthrough, as text.
fn goal(phase: &Phase, s: usize) -> String {
    let sign = if phase.better == Better::More { "≥" } else { "≤" };
    let goal = if s == 0 { None } else { phase.goals.and_then(|goals| goals.get(s - 1).copied()) };
    goal.map(|goal| format!("{sign} {goal}")).unwrap_or_default()
}
