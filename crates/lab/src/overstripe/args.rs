//! Options of `sheen lab overstripe`.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use crate::{output::OutputArgs, scratch::ScratchArgs, size};

const EXAMPLES: &str = "\
Examples:
  sheen lab overstripe --report overstripe.html            4 nodes, an OST as fast as this machine
  sheen lab overstripe --ost-model flash --nodes 1-8       an OST as fast as a flash disk, 1 to 8 nodes
  sheen lab overstripe --locks growing,adaptive            Lustre's locks, and Sheen's
  sheen lab overstripe --mounts /mnt/a,/mnt/b --osts 0,1   an existing file system
  sheen lab overstripe --simulate flash --nodes 48 -b 16m  the 48 nodes of the paper, in virtual time";

/// Compare numbers of stripes on an OST, for a file that several nodes write
#[derive(Parser, Clone, Debug)]
#[command(name = "sheen lab overstripe", after_help = EXAMPLES, args_override_self = true, max_term_width = 100)]
pub struct OverstripeArgs {
    /// Mounts of an existing file system, which stand for nodes [default: the tool sets up a file
    /// system of its own, and removes it at the end]
    #[arg(long, value_name = "DIR,…", value_delimiter = ',')]
    pub mounts: Vec<PathBuf>,
    #[command(flatten)]
    pub scratch: ScratchArgs,
    /// Simulate the machines of a published system, in virtual time: flash or l300n. Nodes run the
    /// code of Sheen, whose processing takes no time. Each point is computed once
    #[arg(long, value_name = "SYSTEM", conflicts_with_all = ["mounts", "scratch", "ost_model", "repetitions"])]
    pub simulate: Option<String>,
    /// Seed of a simulation. Equal seeds give equal results
    #[arg(long, value_name = "N", default_value_t = 1, requires = "simulate")]
    pub seed: u64,
    /// Indices of the OSTs that the file is on
    #[arg(long, value_name = "INDEX,…", value_delimiter = ',', default_value = "0")]
    pub osts: Vec<u32>,
    /// Stripes on each OST: numbers, and ranges LOW-HIGH in which each number is twice the last
    #[arg(long, value_name = "RANGE,…", default_value = "1-32")]
    pub stripes: String,
    /// Number of nodes that write, likewise [default: the mounts, or 4]
    #[arg(long, value_name = "RANGE,…")]
    pub nodes: Option<String>,
    /// Processes on each node
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub ppn: u32,
    /// Bytes of a record, and of a stripe, likewise
    #[arg(short = 't', long, value_name = "RANGE,…", default_value = "1m")]
    pub records: String,
    /// Bytes that each node writes
    #[arg(short = 'b', long, value_name = "SIZE", default_value = "64m", value_parser = size::parse)]
    pub size: u64,
    /// Locks of the OSTs [default: as they are set]
    #[arg(long, value_name = "KIND,…", value_delimiter = ',')]
    pub locks: Vec<Locks>,
    /// Also read the file, each node what the next one has written
    #[arg(short = 'r', long)]
    pub read: bool,
    /// Number of rounds; the median counts
    #[arg(short = 'i', long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: u32,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// A kind of locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Locks {
    /// As large as possible, as Lustre's.
    Growing,
    /// Only what was asked for.
    Exact,
    /// As large as possible until clients contend, and then none: Sheen's default.
    Adaptive,
}

impl Locks {
    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Locks::Growing => "growing",
            Locks::Exact => "exact",
            Locks::Adaptive => "adaptive",
        }
    }
}
