//! The cost of retained data: a mount keeps copies of its writes until the OST's disk has them,
//! except for an OST at a loopback address. Writes of 1 MiB with O_DIRECT, over an address that is
//! not loopback and over one that is, in turn.
//!
//! `retained [--rounds 11] [--mib 1024] [--base DIR] [--json FILE]`. Needs root and `ip` of
//! iproute2: it runs in a network namespace of its own. Ratios are formed within a round.

use std::{
    env, io,
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
};

use clap::Parser;
use sheen_bench::{
    cluster::{Cluster, Plan, RunDir},
    report::{Cell, Options, Progress, Table, finish, program},
    stats::ratios,
    workers::{self, Job, Records},
};

/// Cost of the copies that a mount keeps until the OST's disk has its writes
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    options: Options,
    /// MiB written in each measurement
    #[arg(long, default_value_t = 1024)]
    mib: usize,
    /// The program runs in its own network already
    #[arg(long, hide = true)]
    inside: bool,
}

/// The address that is not loopback. It belongs to the interface `lo` of the namespace, so both
/// ways through the kernel are the same.
const ADDRESS: &str = "10.99.0.1";
const LOOPBACK: &str = "127.0.0.1";
const SET_UP: &str = "ip link set lo up && ip addr add 10.99.0.1/32 dev lo && exec \"$@\" --inside";
const RECORD: usize = 1 << 20;

fn main() -> ExitCode {
    program(run)
}

fn run() -> io::Result<()> {
    let args = Args::parse();
    if !args.inside {
        let mut unshare = Command::new("unshare");
        unshare.args(["--net", "sh", "-c", SET_UP, "sh"]).arg(env::current_exe()?).args(env::args_os().skip(1));
        return Err(io::Error::other(format!("unshare: {}", unshare.exec())));
    }
    let run_dir = RunDir::claim(&args.options.base, "retained", &args.options.sheen)?;
    let plan = |name| Plan { name, osts: 1, mounts: 1, lo: false, threads: args.options.threads };
    let loopback = Cluster::up_at(&run_dir, plan("loopback"), LOOPBACK)?;
    let network = Cluster::up_at(&run_dir, plan("network"), ADDRESS)?;
    let mut rates = [Vec::new(), Vec::new()];
    // The first round meets empty caches.
    let progress = Progress::new(2 * (1 + args.options.rounds as usize));
    for round in 0..=args.options.rounds {
        // The order changes, so that a drift of the machine favours none.
        for at in [round % 2, (round + 1) % 2].map(|at| at as usize) {
            let cluster = [&loopback, &network][at];
            let rate = progress.step(cluster.plan.name, || rate(&args, cluster))?;
            if round > 0 {
                rates[at].push(rate);
            }
        }
    }
    drop(progress);
    report(&args, &rates)
}

/// Writes a file, and removes it. Returns the rate in MiB/s.
fn rate(args: &Args, cluster: &Cluster) -> io::Result<f64> {
    let path = cluster.mounts[0].join("file");
    let records = Records {
        path: path.clone(),
        bytes: RECORD,
        first: 0,
        stride: RECORD as u64,
        count: args.mib,
        rank: 0,
        page_offset: 0,
    };
    let took = workers::run(&[Job::WriteDirect(records)])?;
    cluster.remove(&path)?;
    Ok(args.mib as f64 / took.wrote.as_secs_f64())
}

fn report(args: &Args, [loopback, network]: &[Vec<f64>; 2]) -> io::Result<()> {
    let mut table = Table::new("", ["writes of 1 MiB", "MiB/s (min–max)", "ratio (min–max)", "goal"]);
    let ratio = ratios(network, loopback);
    let nothing = "nothing retained (loopback)".into();
    table.row(vec![nothing, Cell::range(loopback, 0, ""), Cell::empty(), Cell::empty()]);
    let rate = Cell::range(network, 0, "");
    table.row(vec!["retained (network)".into(), rate, Cell::range(&ratio, 2, ""), "≥ 0.97".into()]);
    finish(&[table], &args.options)
}
