//! Arguments of `workloads`, and what the three workloads share: turns, patterns, panels.

use std::{io, path::PathBuf};

use clap::Parser;
use sheen_bench::{
    chart::{Panel, Scale, Values},
    cluster::Cluster,
    patterns::{Experiment, Factors},
    report::Options,
    stats::{median, range},
};

/// A MiB in bytes.
pub const MIB: f64 = 1048576.0;

/// The workloads of the paper on dynamic striping, small: IOR, netflow analysis, BLAST
#[derive(Parser)]
pub struct Args {
    #[command(flatten)]
    pub options: Options,
    /// Number of mounts; the paper has 16 nodes for IOR and netflow, 8 for BLAST
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub mounts: u16,
    /// Number of OSTs; if a pattern has more stripes, several are on one OST
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub osts: u16,
    /// IOR: divisor of the paper's 4 TiB and its watermarks
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u64).range(64..))]
    pub ior_factor: u64,
    /// netflow: divisor of the paper's 55 GiB and its watermarks
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(8..))]
    pub netflow_factor: u64,
    /// BLAST: number of queries, divided among the mounts
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=500))]
    pub queries: u16,
    /// BLAST: directory of the protein sets DB.fasta.gz and QUERY.fasta.gz, as in Debian's
    /// package mmseqs2-examples
    #[arg(long, default_value = "/usr/share/doc/mmseqs2/example-data")]
    pub proteins: PathBuf,
    /// IOR: offset in a page of the memory from which is written: 0 as with IOR, 16 as with malloc
    #[arg(long, default_value_t = 0)]
    pub page_offset: usize,
    /// Directory of the pictures
    #[arg(long, default_value = "docs/pictures")]
    pub pictures: PathBuf,
}

impl Args {
    /// Returns the factors by which an experiment is smaller than the paper's.
    pub fn factors(&self, bytes: u64, widths: u64) -> Factors {
        Factors { bytes, widths, osts: u64::from(self.osts) }
    }
}

/// Returns the experiments of a round with their positions. Each round begins with another
/// experiment.
pub fn turns(experiments: &'static [Experiment], round: u32) -> impl Iterator<Item = (usize, &'static Experiment)> {
    let first = round as usize % experiments.len();
    experiments.iter().enumerate().cycle().skip(first).take(experiments.len())
}

/// Remounts all mounts, so that the clients' caches are empty.
pub fn empty_caches(cluster: &Cluster) -> io::Result<()> {
    (0..cluster.mounts.len()).try_for_each(|mount| cluster.remount(mount))
}

/// Sets the pattern of a file, or of the files that will be created in a directory.
pub fn stripe(cluster: &Cluster, path: &std::path::Path, experiment: &Experiment, factors: Factors) -> io::Result<()> {
    let words = experiment.words(factors);
    cluster.setstripe(path, &words.iter().map(String::as_str).collect::<Vec<&str>>())
}

/// Compares the layout of a file with the pattern.
pub fn check(cluster: &Cluster, path: &std::path::Path, experiment: &Experiment, factors: Factors) -> io::Result<()> {
    let shown = cluster.sheen.run(["lfs", "getstripe", &path.to_string_lossy()])?;
    experiment.check(factors, std::fs::metadata(path)?.len(), &shown)
}

/// Returns a panel with the median and range of each category, for each series.
pub fn panel(title: &str, series: &[Vec<Vec<f64>>]) -> Panel {
    let one = |values: &Vec<f64>| {
        let (low, high) = range(values);
        (!values.is_empty()).then(|| [low, median(values), high])
    };
    let ranges = series.iter().map(|categories| categories.iter().map(one).collect()).collect();
    Panel { title: title.into(), scale: Scale::Linear, values: Values::Ranges(ranges) }
}

/// Returns the numbers of the experiments, for an axis.
pub fn numbers(experiments: &[Experiment]) -> Vec<String> {
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
