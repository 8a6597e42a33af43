//! Options of `sheen lab workloads`.

use std::path::PathBuf;

use clap::Parser;

use crate::{
    output::OutputArgs,
    scratch::ScratchArgs,
    workloads::selection::{self, Selection, Workload},
};

/// Largest factors: each part of a file between watermarks has at least one stripe of 1 MiB.
const IOR_FACTOR_MAX: u64 = 1 << 20;
const NETFLOW_FACTOR_MAX: u64 = 10 << 10;
/// Bytes of the paper's files.
pub const IOR_BYTES: u64 = 4 << 40;
pub const NETFLOW_BYTES: u64 = 55 << 30;
const EXAMPLES: &str = "\
Examples:
  sheen lab workloads --report workloads.html        all workloads, on OSTs in memory
  sheen lab workloads --only ior --ost-model hdd     the sequential one, on modelled disks
  sheen lab workloads --experiment IOR.5,blast.13-15 some experiments, beside the static ones
  sheen lab workloads --mounts /mnt/a,/mnt/b         an existing file system

The experiments are IOR.1-6, netflow.1-6 and blast.1-18.

With the defaults and 2 processors, IOR takes about a minute, netflow two, and BLAST one. -i 1 takes
a third of that. The output ends with the seconds of each workload.";

/// Run the workloads of the paper on dynamic striping: IOR, a netflow analysis, BLAST
#[derive(Parser, Clone, Debug)]
#[command(name = "sheen lab workloads", after_help = EXAMPLES, args_override_self = true, max_term_width = 100)]
pub struct WorkloadsArgs {
    /// Workloads [default: all; BLAST only if it is installed]
    #[arg(long, value_name = "WORKLOAD,…", value_delimiter = ',')]
    pub only: Vec<Workload>,
    /// Experiments by their names in the paper, such as IOR.4 or blast.10-12. Dynamic ones run with
    /// the static ones of their workload, with which they are compared
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = selection::parse, conflicts_with = "only")]
    pub experiment: Vec<Selection>,
    /// Mounts of an existing file system, which stand for nodes [default: the tool sets up a file
    /// system of its own, and removes it at the end]
    #[arg(long, value_name = "DIR,…", value_delimiter = ',', conflicts_with_all = ["nodes", "osts", "scratch", "ost_model"])]
    pub mounts: Vec<PathBuf>,
    /// Number of mounts, which stand for nodes; the paper has 16 for IOR and netflow, 8 for BLAST
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub nodes: u16,
    /// Number of OSTs; if a pattern has more stripes, several are on one OST
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub osts: u16,
    /// IOR: divisor of the paper's 4 TiB and its watermarks
    #[arg(long, value_name = "N", default_value_t = 8192, value_parser = clap::value_parser!(u64).range(64..=IOR_FACTOR_MAX))]
    pub ior_factor: u64,
    /// netflow: divisor of the paper's 55 GiB and its watermarks
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(8..=NETFLOW_FACTOR_MAX))]
    pub netflow_factor: u64,
    /// BLAST: number of queries, divided among the mounts
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=500))]
    pub queries: u16,
    /// BLAST: directory of the protein sets DB.fasta.gz and QUERY.fasta.gz, as in Debian's package
    /// mmseqs2-examples
    #[arg(long, value_name = "DIR", default_value = "/usr/share/doc/mmseqs2/example-data")]
    pub proteins: PathBuf,
    #[command(flatten)]
    pub scratch: ScratchArgs,
    /// Number of rounds; the median counts
    #[arg(short = 'i', long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: u32,
    #[command(flatten)]
    pub output: OutputArgs,
}

impl WorkloadsArgs {
    /// Returns the experiments that the options select; all if none selects any.
    pub fn selections(&self) -> Vec<Selection> {
        let selected: Vec<Selection> = match (self.experiment.is_empty(), self.only.is_empty()) {
            (false, _) => self.experiment.clone(),
            (true, false) => self.only.iter().map(|workload| workload.whole()).collect(),
            (true, true) => Workload::ALL.map(Workload::whole).to_vec(),
        };
        selection::select(&selected)
    }

    /// Returns the option that selects experiments, if the user has set one.
    pub fn selecting_option(&self) -> Option<&'static str> {
        match (self.experiment.is_empty(), self.only.is_empty()) {
            (false, _) => Some("--experiment"),
            (true, false) => Some("--only"),
            (true, true) => None,
        }
    }

    /// Returns the bytes of the largest file of a workload.
    pub fn bytes(&self, workload: Workload) -> u64 {
        match workload {
            Workload::Ior => IOR_BYTES / self.ior_factor,
            Workload::Netflow => NETFLOW_BYTES / self.netflow_factor,
            // 18 copies of a database of some 10 MB.
            Workload::Blast => 256 << 20,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<WorkloadsArgs, clap::Error> {
        WorkloadsArgs::try_parse_from(std::iter::once("workloads").chain(words.iter().copied()))
    }

    #[test]
    fn selections_follow_the_option_that_is_set() {
        let counts = |words: &[&str]| -> Vec<usize> {
            parse(words).unwrap().selections().iter().map(|selection| selection.experiments.len()).collect()
        };
        assert_eq!(counts(&[]), [6, 6, 18]);
        assert_eq!(counts(&["--only", "blast,ior"]), [6, 18]);
        assert_eq!(counts(&["--experiment", "blast.2,IOR.4-5"]), [5, 1]);
    }

    #[test]
    fn parse_refuses_unknown_names_and_two_selections() {
        let error = parse(&["--experiment", "IOR.1,IOR.7"]).unwrap_err().to_string();
        assert!(error.contains("'IOR.7'") && error.contains("the paper has the experiments IOR.1-6"), "{error}");
        assert!(parse(&["--only", "ior", "--experiment", "IOR.1"]).is_err());
        for own in [["--osts", "4"], ["--nodes", "2"], ["--ost-model", "hdd"], ["--scratch", "/dev/shm/x"]] {
            let mixed = parse(&["--mounts", "/a,/b", own[0], own[1]]).unwrap_err().to_string();
            assert!(mixed.contains("cannot be used with") && mixed.contains(own[0]), "{mixed}");
        }
        assert_eq!(parse(&["--mounts", "/a,/b"]).unwrap().mounts.len(), 2);
    }
}
