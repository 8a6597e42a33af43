//! Records of several processes, each on its own mount, interleaved in one file of one stripe
//! (IOR's "hard" shape). It is compared with the same data in a file per process. Locking is
//! contention-adaptive or not.
//!
//! ```text
//! shared [--rounds 5] [--record 47008] [--count 2000] [--mounts 4] [--only tcp|lo] [--json FILE]
//! ```
//!
//! Record `i` of process `p` is at `(i × processes + p) × record`. Processes start together and
//! fsync at the end, which is part of the time. Another mount reads and checks the data. Ratios are
//! formed within a round.

use std::{collections::BTreeMap, io, path::PathBuf, process::ExitCode};

use clap::Parser;
use sheen_bench::{
    cluster::{CALLBACKS, Cluster, GRANTS, OWN, Plan, RunDir},
    counters::Counters,
    report::{Cell, Options, Progress, Table, finish, program},
    stats::{median, ratios},
    workers::{self, Job, Records},
};

/// Interleaved records of several mounts in one file of one stripe, against a file for
/// each process
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    options: Options,
    /// Size of a record in bytes
    #[arg(long, default_value_t = 47_008)]
    record: usize,
    /// Number of records of a process
    #[arg(long, default_value_t = 2000)]
    count: usize,
    /// Number of mounts, with one process on each
    #[arg(long, default_value_t = 4)]
    mounts: usize,
    /// Number of OSTs of the file system
    #[arg(long, default_value_t = 4)]
    osts: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Shape {
    FilePerProcess,
    Shared { adaptive: bool },
}

impl Shape {
    const ALL: [Shape; 3] =
        [Shape::FilePerProcess, Shape::Shared { adaptive: true }, Shape::Shared { adaptive: false }];

    fn name(self) -> &'static str {
        match self {
            Shape::FilePerProcess => "one file per process",
            Shape::Shared { adaptive: true } => "one file",
            Shape::Shared { adaptive: false } => "one file, lock_adaptive=0",
        }
    }
}

/// One measurement: the write rate and the read rate on other mounts, in MiB/s, and the servers'
/// counters of the writes.
struct Point {
    rate: f64,
    read_rate: f64,
    counters: Counters,
}

fn main() -> ExitCode {
    program(run)
}

fn run() -> io::Result<()> {
    let args = Args::parse();
    let run_dir = RunDir::claim(&args.options.base, "shared", &args.options.sheen)?;
    let columns = [
        "mounts",
        "written into",
        "MiB/s (min–max)",
        "ratio to one file per process (min–max)",
        "goal",
        "write requests",
        "locks granted",
        "blocking callbacks",
        "server's own locks",
        "read on another mount, MiB/s",
    ];
    let mut table = Table::new("", columns);
    for (name, lo) in [("tcp", false), ("lo first", true)] {
        if args.options.wants(name) {
            let plan = Plan { name, osts: args.osts, mounts: args.mounts, lo, threads: args.options.threads };
            measure(&args, &Cluster::up(&run_dir, plan)?, &mut table)?;
        }
    }
    finish(&[table], &args.options)
}

fn measure(args: &Args, cluster: &Cluster, table: &mut Table) -> io::Result<()> {
    let mut points: BTreeMap<Shape, Vec<Point>> = BTreeMap::new();
    let progress = Progress::new(args.options.rounds as usize * Shape::ALL.len());
    for round in 0..args.options.rounds {
        for shape in Shape::ALL {
            let what = format!("{}, {}", cluster.plan.name, shape.name());
            let point = progress.step(&what, || write(args, cluster, shape, round))?;
            points.entry(shape).or_default().push(point);
        }
    }
    drop(progress);
    let rates = |shape| points[&shape].iter().map(|p| p.rate).collect::<Vec<f64>>();
    for shape in Shape::ALL {
        let ratios = ratios(&rates(shape), &rates(Shape::FilePerProcess));
        row(table, cluster, shape, &points[&shape], &ratios);
    }
    Ok(())
}

/// Writes the files, checks them, and removes them.
fn write(args: &Args, cluster: &Cluster, shape: Shape, round: u32) -> io::Result<Point> {
    let dir = cluster.mounts[0].join(format!("{round}.{}", shape.name().replace([' ', ','], "")));
    std::fs::create_dir(&dir)?;
    if let Shape::Shared { adaptive } = shape {
        cluster.sheen.set_param("ldlm.namespaces.filter-*.lock_adaptive", u8::from(adaptive))?;
        cluster.setstripe(&dir.join("file"), &["-c", "1"])?;
    }
    let records = |rank: usize, mount: usize| Records {
        path: path(cluster, &dir, shape, rank, mount),
        bytes: args.record,
        first: if shape == Shape::FilePerProcess { 0 } else { (rank * args.record) as u64 },
        stride: (args.record * if shape == Shape::FilePerProcess { 1 } else { args.mounts }) as u64,
        count: args.count,
        rank,
        page_offset: 0,
    };
    let jobs: Vec<Job> = (0..args.mounts).map(|rank| Job::Write(records(rank, rank))).collect();
    let before = cluster.counters()?;
    let took = workers::run(&jobs)?;
    let counters = cluster.counters()?.since(&before);
    let others: Vec<Job> = (0..args.mounts).map(|rank| Job::Check(records(rank, (rank + 1) % args.mounts))).collect();
    let read = workers::run(&others)?;
    cluster.remove(&dir)?;
    let mib = (args.record * args.count * args.mounts) as f64 / f64::from(1 << 20);
    Ok(Point { rate: mib / took.done.as_secs_f64(), read_rate: mib / read.done.as_secs_f64(), counters })
}

/// Returns the file of a process on a mount.
fn path(cluster: &Cluster, dir: &std::path::Path, shape: Shape, rank: usize, mount: usize) -> PathBuf {
    let dir = cluster.mounts[mount].join(dir.file_name().unwrap_or_default());
    match shape {
        Shape::FilePerProcess => dir.join(format!("file.{rank}")),
        Shape::Shared { .. } => dir.join("file"),
    }
}

fn row(table: &mut Table, cluster: &Cluster, shape: Shape, points: &[Point], ratios: &[f64]) {
    let all = |get: &dyn Fn(&Point) -> f64| points.iter().map(get).collect::<Vec<f64>>();
    let counter = |name: &'static str| Cell::number(median(&all(&|p| p.counters.get(name).count as f64)), 0, "");
    let mounts = match cluster.plan.lo {
        true => format!("1 lo, {} tcp", cluster.mounts.len() - 1),
        false => format!("{} tcp", cluster.mounts.len()),
    };
    let adaptive = shape == Shape::Shared { adaptive: true };
    table.row(vec![
        mounts.into(),
        shape.name().into(),
        Cell::range(&all(&|p| p.rate), 0, ""),
        if shape == Shape::FilePerProcess { Cell::empty() } else { Cell::range(ratios, 2, "") },
        if adaptive { "≥ 0.5".into() } else { Cell::empty() },
        counter("write"),
        counter(GRANTS),
        counter(CALLBACKS),
        counter(OWN),
        Cell::range(&all(&|p| p.read_rate), 0, ""),
    ]);
}
