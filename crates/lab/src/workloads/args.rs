//! Options of `sheen lab workloads`.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use crate::{
    output::OutputArgs,
    scratch::ScratchArgs,
    workloads::patterns::{BLAST, IOR, NETFLOW},
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
  sheen lab workloads --only ior --ost-model hdd     the sequential one, on modelled disks";

/// Run the workloads of the paper on dynamic striping: IOR, a netflow analysis, BLAST
#[derive(Parser, Clone, Debug)]
#[command(name = "sheen lab workloads", after_help = EXAMPLES, args_override_self = true, max_term_width = 100)]
pub struct WorkloadsArgs {
    /// Workloads [default: all; BLAST only if it is installed]
    #[arg(long, value_name = "WORKLOAD,…", value_delimiter = ',')]
    pub only: Vec<Workload>,
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

/// A workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Workload {
    /// Tasks write and read one file, each its own part.
    Ior,
    /// Index a file of flow records, then read each record.
    Netflow,
    /// Search for proteins in a database.
    Blast,
}

impl Workload {
    /// All workloads, in their order.
    pub const ALL: [Workload; 3] = [Workload::Ior, Workload::Netflow, Workload::Blast];

    /// Returns the steps of the progress bar in a round: a write and a read, two variations, or a
    /// search, of each experiment.
    pub fn phases(self) -> usize {
        match self {
            Workload::Ior => 2 * IOR.len(),
            Workload::Netflow => 2 * NETFLOW.len(),
            Workload::Blast => BLAST.len(),
        }
    }

    /// Returns the bytes of its largest file.
    pub fn bytes(self, args: &WorkloadsArgs) -> u64 {
        match self {
            Workload::Ior => IOR_BYTES / args.ior_factor,
            Workload::Netflow => NETFLOW_BYTES / args.netflow_factor,
            // 18 copies of a database of some 10 MB.
            Workload::Blast => 256 << 20,
        }
    }
}
