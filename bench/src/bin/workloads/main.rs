//! The three workloads of "Evaluating Dynamic File Striping For Lustre" with its striping patterns:
//! IOR, a netflow analysis, and BLAST on real proteins. Files are smaller than in the paper by a
//! given factor.
//!
//! ```text
//! workloads [--rounds 5] [--only ior|netflow|blast] [--mounts 4] [--osts 64]
//!           [--ior-factor 8192] [--netflow-factor 1024] [--queries 4]
//!           [--pictures docs/pictures] [--json FILE]
//! ```
//!
//! The servers are one process, and every mount has a process of its own over tcp. Before each read
//! phase, all mounts are unmounted and mounted again, so that their caches are empty.
//! `lfs setstripe` sets a pattern, and the layout of the full file is compared with it by
//! `lfs getstripe`. Within a round the patterns take turns, and each round begins with another one.
//! Speedups are formed within a round, and the table shows the median over the rounds. Each
//! workload draws a picture.

use std::{io, process::ExitCode};

use clap::Parser;
use sheen_bench::{
    cluster::{Cluster, Plan, RunDir},
    report::{finish, program},
};

use common::Args;

mod blast;
mod common;
mod flows;
mod ior;

fn main() -> ExitCode {
    program(run)
}

fn run() -> io::Result<()> {
    let args = Args::parse();
    let run_dir = RunDir::claim(&args.options.base, "workloads", &args.options.sheen)?;
    let plan = Plan {
        name: "tcp",
        osts: usize::from(args.osts),
        mounts: usize::from(args.mounts),
        lo: false,
        threads: args.options.threads,
    };
    let cluster = Cluster::up(&run_dir, plan)?;
    let mut tables = Vec::new();
    if args.options.wants("ior") {
        tables.push(ior::measure(&args, &cluster)?);
    }
    if args.options.wants("netflow") {
        tables.push(flows::measure(&args, &cluster)?);
    }
    if args.options.wants("blast") {
        match blast::Input::prepare(&args, &run_dir)? {
            Ok(input) => tables.push(blast::measure(&args, &cluster, &input)?),
            Err(missing) => eprintln!("BLAST is skipped: {missing}; `apt-get install ncbi-blast+ mmseqs2-examples`"),
        }
    }
    drop(cluster);
    finish(tables, &args.options)
}
