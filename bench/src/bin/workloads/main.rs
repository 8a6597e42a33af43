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

use std::{io, path::PathBuf, process::ExitCode};

use clap::Parser;
use sheen_bench::{
    chart::{Panel, Scale, Values},
    cluster::{Cluster, Plan, RunDir},
    patterns::{Experiment, Factors},
    report::{Options, finish, program},
    stats::{median, range},
};

mod blast;
mod flows;
mod ior;

/// The workloads of the paper on dynamic striping, small: IOR, netflow analysis, BLAST
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    options: Options,
    /// Number of mounts; the paper has 16 nodes for IOR and netflow, 8 for BLAST
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    mounts: u16,
    /// Number of OSTs; if a pattern has more stripes, several are on one OST
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=256))]
    osts: u16,
    /// IOR: divisor of the paper's 4 TiB and its watermarks
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u64).range(64..))]
    ior_factor: u64,
    /// netflow: divisor of the paper's 55 GiB and its watermarks
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(8..))]
    netflow_factor: u64,
    /// BLAST: number of queries, divided among the mounts
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=500))]
    queries: u16,
    /// BLAST: directory of the protein sets DB.fasta.gz and QUERY.fasta.gz, as in Debian's
    /// package mmseqs2-examples
    #[arg(long, default_value = "/usr/share/doc/mmseqs2/example-data")]
    proteins: PathBuf,
    /// IOR: offset in a page of the memory from which is written: 0 as with IOR, 16 as with malloc
    #[arg(long, default_value_t = 0)]
    page_offset: usize,
    /// Directory of the pictures
    #[arg(long, default_value = "docs/pictures")]
    pictures: PathBuf,
}

const MIB: f64 = 1048576.0;

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

impl Args {
    fn factors(&self, bytes: u64, widths: u64) -> Factors {
        Factors { bytes, widths, osts: u64::from(self.osts) }
    }
}

/// Returns the experiments of a round with their positions. Each round begins with another
/// experiment.
fn turns(experiments: &'static [Experiment], round: u32) -> impl Iterator<Item = (usize, &'static Experiment)> {
    let first = round as usize % experiments.len();
    experiments.iter().enumerate().cycle().skip(first).take(experiments.len())
}

/// Remounts all mounts, so that the clients' caches are empty.
fn empty_caches(cluster: &Cluster) -> io::Result<()> {
    (0..cluster.mounts.len()).try_for_each(|mount| cluster.remount(mount))
}

/// Sets the pattern of a file, or of the files that will be created in a directory.
fn stripe(cluster: &Cluster, path: &std::path::Path, experiment: &Experiment, factors: Factors) -> io::Result<()> {
    let words = experiment.words(factors);
    cluster.setstripe(path, &words.iter().map(String::as_str).collect::<Vec<&str>>())
}

/// Compares the layout of a file with the pattern.
fn check(cluster: &Cluster, path: &std::path::Path, experiment: &Experiment, factors: Factors) -> io::Result<()> {
    let shown = cluster.sheen.run(["lfs", "getstripe", &path.to_string_lossy()])?;
    experiment.check(factors, std::fs::metadata(path)?.len(), &shown)
}

/// Returns a panel with the median and range of each category, for each series.
fn panel(title: &str, series: &[Vec<Vec<f64>>]) -> Panel {
    let one = |values: &Vec<f64>| {
        let (low, high) = range(values);
        (!values.is_empty()).then(|| [low, median(values), high])
    };
    let ranges = series.iter().map(|categories| categories.iter().map(one).collect()).collect();
    Panel { title: title.into(), scale: Scale::Linear, values: Values::Ranges(ranges) }
}

/// Returns the numbers of the experiments, for an axis.
fn numbers(experiments: &[Experiment]) -> Vec<String> {
    (1..=experiments.len()).map(|n| n.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use sheen_bench::patterns::IOR;

    use super::*;

    #[test]
    fn each_round_runs_all_experiments_and_starts_with_another() {
        for round in 0..7 {
            let turns: Vec<usize> = turns(IOR, round).map(|(i, _)| i).collect();
            assert_eq!(turns[0], round as usize % IOR.len());
            let mut sorted = turns.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3, 4, 5]);
        }
    }

    #[test]
    fn panel_omits_missing_measurements() {
        let panel = panel("s", &[vec![vec![3.0, 1.0, 2.0], vec![]]]);
        assert_eq!(panel.values, Values::Ranges(vec![vec![Some([1.0, 2.0, 3.0]), None]]));
    }
}
