//! Open, read and close of small files, and `stat` of them: with empty caches and again with full
//! caches. Shows the requests that the servers received.
//!
//! `opens [--rounds 5] [--files 10000] [--bytes 1024] [--only lo|tcp] [--json FILE]`. The cold pass
//! follows a remount of the file system (over `lo` this restarts the servers as well). The warm
//! pass is also compared with the null FUSE baseline, whose names and attributes the kernel caches.
//! Ratios are formed within a round.

use std::{io, path::Path, process::ExitCode};

use clap::Parser;
use sheen_bench::{
    cluster::{Cluster, Plan, RunDir},
    report::{Cell, Options, Progress, Table, finish, program},
    stage::Stage,
    stats::ratios,
    workers::{self, Files, Job},
};

/// Open, read, close and stat of small files, cold and again, with the requests that the servers
/// receive
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    options: Options,
    /// Number of files
    #[arg(long, default_value_t = 10_000)]
    files: usize,
    /// Size of a file in bytes
    #[arg(long, default_value_t = 1024)]
    bytes: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Open,
    Stat,
}

impl Kind {
    const ALL: [Kind; 2] = [Kind::Open, Kind::Stat];

    fn name(self) -> &'static str {
        match self {
            Kind::Open => "open, read, close",
            Kind::Stat => "stat",
        }
    }

    fn job(self, args: &Args, mount: &Path) -> Job {
        match self {
            Kind::Open => Job::Open(files(args, mount)),
            Kind::Stat => Job::Stat(files(args, mount)),
        }
    }
}

/// Rates of a pass over the rounds, and the requests of the last round.
#[derive(Default)]
struct Pass {
    rates: Vec<f64>,
    requests: String,
}

fn main() -> ExitCode {
    program(run)
}

fn run() -> io::Result<()> {
    let args = Args::parse();
    let run_dir = RunDir::claim(&args.options.base, "opens", &args.options.sheen)?;
    let columns = ["work", "mount", "files/s (min–max)", "ratio to null FUSE (min–max)", "requests to servers"];
    let mut table = Table::new("", columns);
    let baseline = Stage::baseline_cached(run_dir.dir(), args.options.threads)?;
    fill(&args, &baseline.mount)?;
    for (name, lo) in [("lo", true), ("tcp", false)] {
        if args.options.wants(name) {
            let plan = Plan { name, osts: 4, mounts: 1, lo, threads: args.options.threads };
            let cluster = Cluster::up(&run_dir, plan)?;
            fill(&args, &cluster.mounts[0])?;
            measure(&args, &baseline, &cluster, &mut table)?;
        }
    }
    finish(&[table], &args.options)
}

fn files(args: &Args, mount: &Path) -> Files {
    Files::new(mount.join("small"), args.files)
}

fn fill(args: &Args, mount: &Path) -> io::Result<()> {
    workers::run(&[Job::Fill(files(args, mount), args.bytes)]).map(drop)
}

fn measure(args: &Args, baseline: &Stage, cluster: &Cluster, table: &mut Table) -> io::Result<()> {
    let progress = Progress::new(args.options.rounds as usize * Kind::ALL.len());
    // By kind: the baseline's warm rates, the cold pass, the warm pass.
    let mut passes: [(Vec<f64>, Pass, Pass); 2] = Default::default();
    for _ in 0..args.options.rounds {
        for (kind, (null, cold, warm)) in Kind::ALL.into_iter().zip(&mut passes) {
            progress.step(&format!("{}, {}", cluster.plan.name, kind.name()), || {
                // The first pass of the baseline refreshes attributes that the reads of the last
                // round made stale.
                rate(args, kind, &baseline.mount)?;
                null.push(rate(args, kind, &baseline.mount)?);
                cluster.remount(0)?;
                cold.add(args, kind, cluster)?;
                warm.add(args, kind, cluster)
            })?;
        }
    }
    drop(progress);
    for (kind, (null, cold, warm)) in Kind::ALL.into_iter().zip(&passes) {
        let ratios = ratios(&warm.rates, null);
        row(table, &format!("{}, cold", kind.name()), cluster, cold, None);
        row(table, &format!("{}, warm", kind.name()), cluster, warm, Some(&ratios));
    }
    Ok(())
}

fn rate(args: &Args, kind: Kind, mount: &Path) -> io::Result<f64> {
    let took = workers::run(&[kind.job(args, mount)])?;
    Ok(args.files as f64 / took.done.as_secs_f64())
}

impl Pass {
    fn add(&mut self, args: &Args, kind: Kind, cluster: &Cluster) -> io::Result<()> {
        let before = cluster.requests()?;
        self.rates.push(rate(args, kind, &cluster.mounts[0])?);
        self.requests = cluster.requests()?.since(&before).render_requests();
        Ok(())
    }
}

fn row(table: &mut Table, work: &str, cluster: &Cluster, pass: &Pass, ratios: Option<&[f64]>) {
    table.row(vec![
        work.into(),
        cluster.plan.name.into(),
        Cell::range(&pass.rates, 0, ""),
        ratios.map_or_else(Cell::empty, |ratios| Cell::range(ratios, 2, "")),
        pass.requests.clone().into(),
    ]);
}
