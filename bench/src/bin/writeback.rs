//! The gain from write-back: sequential buffered 4 KiB writes of one process that the client
//! gathers, against writes that it sends at once (`llite.*.writeback=0`), over `lo` and over tcp.
//!
//! `writeback [--rounds 5] [--mib 64] [--only lo|tcp] [--json FILE]`. Ratios are formed within a
//! round. The table shows the median over the rounds, until the last write(2) returned and until
//! the data is durable. The null FUSE baseline, which stores the data in memory, shows the minimum
//! cost of a 4 KiB request.

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Parser;
use sheen_bench::{
    cluster::{Cluster, Plan, RunDir},
    counters::Counters,
    report::{Cell, Options, Progress, Table, finish, program},
    stage::Stage,
    stats::{median, ratios},
    workers::{self, Job, Records, Took},
};

/// Gain from write-back: 4 KiB sequential writes that the client gathers, against writes that it
/// sends at once
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    options: Options,
    /// Size of a write in bytes
    #[arg(long, default_value_t = 4096)]
    bytes: usize,
    /// MiB written in each measurement
    #[arg(long, default_value_t = 64)]
    mib: usize,
}

const SWITCH: &str = "llite.*.writeback";

/// One measurement: writes per second until the last write(2) returned and until the data was
/// durable, and the number of requests.
#[derive(Clone, Copy)]
struct Point {
    wrote: f64,
    durable: f64,
    requests: f64,
}

fn main() -> ExitCode {
    program(run)
}

fn run() -> io::Result<()> {
    let args = Args::parse();
    let run_dir = RunDir::claim(&args.options.base, "writeback", &args.options.sheen)?;
    let columns = [
        "mount",
        "write-back",
        "writes/s (min–max)",
        "ratio to write-through (min–max)",
        "until durable, writes/s (min–max)",
        "ratio to write-through (min–max)",
        "requests",
        "goal",
    ];
    let mut table = Table::new("", columns);
    if args.options.wants("baseline") {
        baseline(&args, &run_dir, &mut table)?;
    }
    for (name, lo) in [("lo", true), ("tcp", false)] {
        if args.options.wants(name) {
            let plan = Plan { name, osts: 4, mounts: 1, lo, threads: args.options.threads };
            measure(&args, &Cluster::up(&run_dir, plan)?, &mut table)?;
        }
    }
    finish(&[table], &args.options)
}

fn write(args: &Args, path: PathBuf) -> io::Result<(Took, f64)> {
    let (bytes, stride) = (args.bytes, args.bytes as u64);
    let count = (args.mib << 20) / args.bytes.max(1);
    let took = workers::run(&[Job::Write(Records { path, bytes, first: 0, stride, count, rank: 0, page_offset: 0 })])?;
    Ok((took, count as f64))
}

fn point(args: &Args, path: &Path, cluster: Option<&Cluster>) -> io::Result<Point> {
    let counters = || cluster.map_or_else(|| Ok(Counters::default()), Cluster::requests);
    let before = counters()?;
    let (took, count) = write(args, path.to_owned())?;
    let requests = counters()?.since(&before).get("write").count as f64;
    cluster.map_or_else(|| std::fs::remove_file(path), |c| c.remove(path))?;
    Ok(Point { wrote: count / took.wrote.as_secs_f64(), durable: count / took.done.as_secs_f64(), requests })
}

fn baseline(args: &Args, run_dir: &RunDir, table: &mut Table) -> io::Result<()> {
    let stage = Stage::baseline(run_dir.dir(), args.options.threads)?;
    let progress = Progress::new(args.options.rounds as usize);
    let path = stage.mount.join("sequential");
    let mut points = Vec::new();
    for _ in 0..args.options.rounds {
        points.push(progress.step("baseline", || point(args, &path, None))?);
    }
    row(table, "null FUSE", "", &points, None);
    Ok(())
}

fn measure(args: &Args, cluster: &Cluster, table: &mut Table) -> io::Result<()> {
    let can_switch = cluster.sheen.get_param(SWITCH)?.is_some();
    if !can_switch {
        eprintln!("{}: there is no parameter {SWITCH}: results have nothing to compare with", cluster.plan.name);
    }
    let states: &[bool] = if can_switch { &[false, true] } else { &[true] };
    let mut points = [Vec::new(), Vec::new()];
    let progress = Progress::new(args.options.rounds as usize * states.len());
    for round in 0..args.options.rounds {
        for &on in states {
            if can_switch {
                cluster.sheen.set_param(SWITCH, u8::from(on))?;
            }
            let what = format!("{}, write-back {}", cluster.plan.name, if on { "on" } else { "off" });
            // A new file each time, without locks and contention of the last one.
            let path = cluster.mounts[0].join(format!("sequential.{round}.{on}"));
            points[usize::from(on)].push(progress.step(&what, || point(args, &path, Some(cluster)))?);
        }
    }
    drop(progress);
    let [off, on] = points;
    if can_switch {
        row(table, cluster.plan.name, "off", &off, None);
    }
    row(table, cluster.plan.name, "on", &on, can_switch.then_some(&off));
    Ok(())
}

fn row(table: &mut Table, name: &str, state: &str, points: &[Point], through: Option<&Vec<Point>>) {
    let all = |of: fn(&Point) -> f64| points.iter().map(of).collect::<Vec<f64>>();
    let ratio = |of: fn(&Point) -> f64| {
        let against = |through: &Vec<Point>| ratios(&all(of), &through.iter().map(of).collect::<Vec<f64>>());
        through.map_or_else(Cell::empty, |through| Cell::range(&against(through), 2, ""))
    };
    let requests = Cell::number(median(&all(|p| p.requests)), 0, "");
    table.row(vec![
        name.into(),
        state.into(),
        Cell::range(&all(|p| p.wrote), 0, ""),
        ratio(|p| p.wrote),
        Cell::range(&all(|p| p.durable), 0, ""),
        ratio(|p| p.durable),
        if name == "null FUSE" { Cell::empty() } else { requests },
        if through.is_some() { "≥ 10".into() } else { Cell::empty() },
    ]);
}
