//! False sharing and its remedies. Processes on mounts of their own write alternating blocks of 1
//! MiB into one file on one OST, with 1, 2, 4, … overstripes. Three kinds of locking are compared:
//! locks that expand as in Lustre, locks that do not expand, and contention-adaptive locking.
//!
//! ```text
//! overstripe [--rounds 5] [--mounts 8] [--mib 64] [--stripes 1,2,4,8,16,32] [--delay-us 0]
//!            [--pictures docs/pictures] [--only NAME] [--json FILE]
//! ```
//!
//! Draws the curve, and the counters that explain it, as `overstripe.svg`:
//! locks granted, blocking callbacks, and bytes written per callback. A measurement ends when all
//! processes have fsynced. `--delay-us` delays each message.

use std::{collections::BTreeMap, io, path::PathBuf, process::ExitCode};

use clap::Parser;
use serde_json::json;
use sheen_bench::{
    chart::{Chart, Panel, Scale, Values},
    cluster::{CALLBACKS, Cluster, GRANTS, OWN, Plan, RunDir},
    report::{Options, Progress, Table, program},
    stats::{median, median_and_range, range},
    workers::{self, Job, Records},
};

/// False sharing and its remedies: shared strided writes with more and more stripes on one OST;
/// draws the curve
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    options: Options,
    /// Number of mounts, with one process on each
    #[arg(long, default_value_t = 8)]
    mounts: usize,
    /// MiB that each process writes, in blocks of 1 MiB
    #[arg(long, default_value_t = 64)]
    mib: usize,
    /// Stripe counts of the file; all stripes are on one OST
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 32])]
    stripes: Vec<usize>,
    /// Delay of each message over tcp, in microseconds
    #[arg(long, default_value_t = 0)]
    delay_us: u64,
    /// Offset in a page of the memory from which is written: 0 as with IOR, 16 as with malloc
    #[arg(long, default_value_t = 0)]
    page_offset: usize,
    /// Directory of the pictures
    #[arg(long, default_value = "docs/pictures")]
    pictures: PathBuf,
}

const BLOCK: usize = 1 << 20;
/// The default of `lockless_write_kb`.
const LOCKLESS_KB: u64 = 256;

/// The kinds of locking on the OST.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Policy {
    Growing,
    Exact,
    Adaptive,
}

impl Policy {
    const ALL: [Policy; 3] = [Policy::Growing, Policy::Exact, Policy::Adaptive];

    fn name(self) -> &'static str {
        match self {
            Policy::Growing => "locks grow (Lustre)",
            Policy::Exact => "locks do not grow",
            Policy::Adaptive => "contention-adaptive",
        }
    }

    fn set(self, cluster: &Cluster) -> io::Result<()> {
        let set =
            |name: &str, on: bool| cluster.sheen.set_param(&format!("ldlm.namespaces.filter-*.{name}"), u8::from(on));
        set("lock_expand", self != Policy::Exact)?;
        set("lock_adaptive", self == Policy::Adaptive)?;
        // Without adaptive locking, clients take locks for large writes, as Lustre's do. With it,
        // they leave that to the OST, as by default.
        let from_kb = if self == Policy::Adaptive { LOCKLESS_KB } else { 0 };
        cluster.sheen.set_param("llite.*.lockless_write_kb", from_kb)
    }
}

/// One measurement.
#[derive(Clone, Copy, Default)]
struct Point {
    mib_per_s: f64,
    grants: f64,
    callbacks: f64,
    local: f64,
    mib_written: f64,
}

impl Point {
    /// Returns the median of each figure.
    fn median(points: &[Point]) -> Point {
        let of = |get: fn(&Point) -> f64| median(&points.iter().map(get).collect::<Vec<f64>>());
        Point {
            mib_per_s: of(|p| p.mib_per_s),
            grants: of(|p| p.grants),
            callbacks: of(|p| p.callbacks),
            local: of(|p| p.local),
            mib_written: of(|p| p.mib_written),
        }
    }

    /// Returns the MiB written per callback. `None` if there was no callback.
    fn mib_per_callback(&self) -> Option<f64> {
        (self.callbacks > 0.0).then(|| self.mib_written / self.callbacks)
    }
}

type Points = BTreeMap<(Policy, usize), Vec<Point>>;

fn main() -> ExitCode {
    program(run)
}

fn run() -> io::Result<()> {
    let args = Args::parse();
    let run_dir = RunDir::claim(&args.options.base, "overstripe", &args.options.sheen)?;
    let plan = Plan { name: "tcp", osts: 1, mounts: args.mounts, lo: false, threads: args.options.threads };
    let cluster = Cluster::up(&run_dir, plan)?;
    let policies: Vec<Policy> = Policy::ALL.into_iter().filter(|p| args.options.wants(p.name())).collect();
    let points = measure(&args, &cluster, &policies)?;
    drop(cluster);
    draw(&args, &policies, &points)?;
    show(&args, &policies, &points)
}

fn measure(args: &Args, cluster: &Cluster, policies: &[Policy]) -> io::Result<Points> {
    let mut points = Points::new();
    let progress = Progress::new(args.options.rounds as usize * policies.len() * args.stripes.len());
    for round in 0..args.options.rounds {
        for &policy in policies {
            policy.set(cluster)?;
            for &stripes in &args.stripes {
                let what = format!("{}, {stripes} stripes", policy.name());
                let point = progress.step(&what, || write(args, cluster, stripes, round == 0))?;
                points.entry((policy, stripes)).or_default().push(point);
            }
        }
    }
    Ok(points)
}

/// Writes the file, and removes it. Each measurement uses a new file, which has no contention yet.
fn write(args: &Args, cluster: &Cluster, stripes: usize, check: bool) -> io::Result<Point> {
    let path = cluster.mounts[0].join("shared");
    cluster.setstripe(&path, &["-C", &stripes.to_string(), "-S", "1M"])?;
    let records = |rank: usize, mount: usize| Records {
        path: cluster.mounts[mount].join("shared"),
        bytes: BLOCK,
        first: (rank * BLOCK) as u64,
        stride: (args.mounts * BLOCK) as u64,
        count: args.mib,
        rank,
        page_offset: args.page_offset,
    };
    let jobs: Vec<Job> = (0..args.mounts).map(|rank| Job::Write(records(rank, rank))).collect();
    cluster.sheen.set_param("lnet.delay_us", args.delay_us)?;
    let before = cluster.counters()?;
    let took = workers::run(&jobs)?;
    let counters = cluster.counters()?.since(&before);
    cluster.sheen.set_param("lnet.delay_us", 0)?;
    if check {
        let others = (0..args.mounts).map(|rank| Job::Check(records(rank, (rank + 1) % args.mounts)));
        workers::run(&others.collect::<Vec<Job>>())?;
    }
    cluster.remove(&path)?;
    let count = |name: &str| counters.get(name).count as f64;
    Ok(Point {
        mib_per_s: (args.mib * args.mounts) as f64 / took.done.as_secs_f64(),
        grants: count(GRANTS),
        callbacks: count(CALLBACKS),
        local: count(OWN),
        mib_written: counters.get("write_bytes").sum as f64 / BLOCK as f64,
    })
}

fn draw(args: &Args, policies: &[Policy], points: &Points) -> io::Result<()> {
    let curves = |get: fn(&Point) -> Option<f64>| -> Vec<Vec<Option<f64>>> {
        let curve = |p: &Policy| args.stripes.iter().map(|s| get(&Point::median(&points[&(*p, *s)]))).collect();
        policies.iter().map(curve).collect()
    };
    let panel = |title: &str, scale, get| Panel { title: title.into(), scale, values: Values::Curves(curves(get)) };
    let delay =
        if args.delay_us > 0 { format!(", each message delayed by {} µs", args.delay_us) } else { String::new() };
    let chart = Chart {
        title: format!("Shared strided 1 MiB writes: {} mounts, 1 OST{delay}", args.mounts),
        axis: "overstripes".into(),
        categories: args.stripes.iter().map(usize::to_string).collect(),
        series: policies.iter().map(|p| p.name().to_owned()).collect(),
        panels: vec![
            panel("write, MiB/s", Scale::Linear, |p| Some(p.mib_per_s)),
            panel("locks granted", Scale::Log, |p| Some(p.grants)),
            panel("blocking callbacks", Scale::Log, |p| Some(p.callbacks)),
            panel("MiB written per blocking callback", Scale::Log, Point::mib_per_callback),
        ],
    };
    chart.save(&args.pictures, "overstripe")
}

fn show(args: &Args, policies: &[Policy], points: &Points) -> io::Result<()> {
    let columns = [
        "locking",
        "overstripes",
        "MiB/s (min–max)",
        "locks granted",
        "blocking callbacks",
        "MiB per callback",
        "server's own locks",
    ];
    let mut table = Table::new(&columns);
    for &policy in policies {
        for &stripes in &args.stripes {
            let all = &points[&(policy, stripes)];
            let rates: Vec<f64> = all.iter().map(|p| p.mib_per_s).collect();
            let (low, high) = range(&rates);
            let p = Point::median(all);
            let per_callback = p.mib_per_callback();
            table.row(
                vec![
                    policy.name().into(),
                    stripes.to_string(),
                    median_and_range(&rates, 0),
                    format!("{:.0}", p.grants),
                    format!("{:.0}", p.callbacks),
                    per_callback.map_or("–".into(), |mib| format!("{mib:.2}")),
                    format!("{:.0}", p.local),
                ],
                json!({
                    "locking": policy.name(), "stripes": stripes, "mib_per_s": p.mib_per_s, "mib_per_s_min": low,
                    "mib_per_s_max": high, "grants": p.grants, "blocking_callbacks": p.callbacks,
                    "mib_per_callback": per_callback, "local": p.local,
                }),
            );
        }
    }
    table.finish(&args.options)?;
    if let Some(ratios) = against_best(args, points) {
        println!(
            "\n{} on the fewest stripes: {} of the best rate of {}; goal: ≥ 1",
            Policy::Adaptive.name(),
            median_and_range(&ratios, 2),
            Policy::Growing.name()
        );
    }
    Ok(())
}

/// Returns the ratios of the fewest stripes with adaptive locking to the best point with expanding
/// locks (by the median), one for each round.
fn against_best(args: &Args, points: &Points) -> Option<Vec<f64>> {
    let first = args.stripes.first()?;
    let rate = |stripes: usize| Some(Point::median(points.get(&(Policy::Growing, stripes))?).mib_per_s);
    let best = args
        .stripes
        .iter()
        .copied()
        .max_by(|a, b| rate(*a).partial_cmp(&rate(*b)).unwrap_or(std::cmp::Ordering::Equal))?;
    let (ours, theirs) = (points.get(&(Policy::Adaptive, *first))?, points.get(&(Policy::Growing, best))?);
    Some(ours.iter().zip(theirs).map(|(a, b)| a.mib_per_s / b.mib_per_s).collect())
}
