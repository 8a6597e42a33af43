//! The three workloads of "Evaluating Dynamic File Striping For Lustre", smaller by a stated
//! factor, over its striping patterns: IOR, a netflow analysis, and BLAST on real proteins.
//!
//! `workloads [--rounds 5] [--only ior|netflow|blast] [--mounts 4] [--osts 64] [--ior-factor 8192] [--netflow-factor 1024] [--queries 4] [--pictures docs/pictures] [--json FILE]`.
//! Servers are one process, every mount is one of its own over tcp; before whatever is read all
//! mounts are made anew, so that nothing is in their caches. Patterns are made by `lfs setstripe`
//! and compared with what `lfs getstripe` says of the full file. Patterns take turns within a
//! round, each round beginning with another one; speedups are formed within a round, and the median
//! over the rounds is shown. Each workload draws a picture.

use std::{io, path::PathBuf, process::ExitCode};

use clap::Parser;
use sheen_bench::{
    chart::{Panel, Scale},
    cluster::{Cluster, Place, Plan},
    patterns::{Experiment, Scale as Factors},
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
    /// Mounts; the paper has 16 nodes for IOR and netflow, 8 for BLAST
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    mounts: u16,
    /// OSTs; where a pattern has more stripes than that, several lie on one
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=256))]
    osts: u16,
    /// IOR: the paper's 4 TiB and its watermarks are divided by this
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u64).range(64..))]
    ior_factor: u64,
    /// netflow: the paper's 55 GiB and its watermarks are divided by this
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(8..))]
    netflow_factor: u64,
    /// BLAST: queries, shared out among the mounts
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=500))]
    queries: u16,
    /// BLAST: where the protein sets DB.fasta.gz and QUERY.fasta.gz are, as Debian's
    /// mmseqs2-examples brings them
    #[arg(long, default_value = "/usr/share/doc/mmseqs2/example-data")]
    proteins: PathBuf,
    /// IOR: where the memory begins that is written, counted from the beginning of a page: 0 as
    /// IOR's, 16 as what malloc gives
    #[arg(long, default_value_t = 0)]
    aside: usize,
    /// Where the pictures go
    #[arg(long, default_value = "docs/pictures")]
    pictures: PathBuf,
}

const MIB: f64 = 1048576.0;

fn main() -> ExitCode {
    program(run)
}

fn run() -> io::Result<()> {
    let args = Args::parse();
    let place = Place::claim(&args.options.base, "workloads", &args.options.sheen)?;
    let plan = Plan {
        name: "tcp",
        osts: usize::from(args.osts),
        mounts: usize::from(args.mounts),
        lo: false,
        threads: args.options.threads,
    };
    let cluster = Cluster::up(&place, plan)?;
    let mut tables = Vec::new();
    if args.options.wants("ior") {
        tables.push(ior::measure(&args, &cluster)?);
    }
    if args.options.wants("netflow") {
        tables.push(flows::measure(&args, &cluster)?);
    }
    if args.options.wants("blast") {
        match blast::Input::prepare(&args, &place)? {
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

/// The experiments of a round, beginning with another one each time; with their positions.
fn turns(experiments: &'static [Experiment], round: u32) -> impl Iterator<Item = (usize, &'static Experiment)> {
    let first = round as usize % experiments.len();
    experiments.iter().enumerate().cycle().skip(first).take(experiments.len())
}

/// Makes all mounts anew: no client knows anything.
fn forget(cluster: &Cluster) -> io::Result<()> {
    (0..cluster.mounts.len()).try_for_each(|mount| cluster.remount(mount))
}

/// Gives a file, or what is made in a directory from now on, the pattern.
fn stripe(cluster: &Cluster, path: &std::path::Path, experiment: &Experiment, factors: Factors) -> io::Result<()> {
    let words = experiment.words(factors);
    cluster.setstripe(path, &words.iter().map(String::as_str).collect::<Vec<&str>>())
}

/// Compares the pattern with what the file has.
fn check(cluster: &Cluster, path: &std::path::Path, experiment: &Experiment, factors: Factors) -> io::Result<()> {
    let shown = cluster.sheen.run(["lfs", "getstripe", &path.to_string_lossy()])?;
    experiment.check(factors, std::fs::metadata(path)?.len(), &shown)
}

/// The median, with the range.
fn shown(values: &[f64], digits: usize) -> String {
    let (low, high) = range(values);
    format!("{:.digits$} ({low:.digits$}–{high:.digits$})", median(values))
}

/// Values over those of the first experiment in the same round.
fn against(values: &[f64], first: &[f64]) -> Vec<f64> {
    values.iter().zip(first).map(|(value, first)| value / first).collect()
}

/// A panel of dots: for each series, the figures of each category.
fn panel(title: &str, series: &[Vec<Vec<f64>>]) -> Panel {
    let of = |get: fn(&[f64]) -> (f64, f64)| -> Vec<Vec<Option<(f64, f64)>>> {
        let one = |values: &Vec<f64>| (!values.is_empty()).then(|| get(values));
        series.iter().map(|categories| categories.iter().map(one).collect()).collect()
    };
    let middle = of(|values| (median(values), 0.0));
    Panel {
        title: title.into(),
        scale: Scale::Linear,
        curves: middle.into_iter().map(|c| c.into_iter().map(|v| v.map(|(m, _)| m)).collect()).collect(),
        spreads: of(range),
    }
}

/// Numbers of the experiments, for an axis.
fn numbers(experiments: &[Experiment]) -> Vec<String> {
    (1..=experiments.len()).map(|n| n.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use sheen_bench::patterns::IOR;

    use super::*;

    #[test]
    fn each_round_has_all_experiments_and_begins_with_another() {
        for round in 0..7 {
            let turns: Vec<usize> = turns(IOR, round).map(|(i, _)| i).collect();
            assert_eq!(turns[0], round as usize % IOR.len());
            let mut sorted = turns.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3, 4, 5]);
        }
    }

    #[test]
    fn what_was_not_measured_is_not_drawn() {
        let panel = panel("s", &[vec![vec![3.0, 1.0, 2.0], vec![]]]);
        assert_eq!(panel.curves, [[Some(2.0), None]]);
        assert_eq!(panel.spreads, [[Some((1.0, 3.0)), None]]);
        assert_eq!(against(&[2.0, 9.0], &[1.0, 3.0]), [2.0, 3.0]);
    }
}
