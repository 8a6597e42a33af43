//! Options of `sheen lab io500`.

use std::path::PathBuf;

use clap::Parser;

use crate::{clock::MAX_SECONDS, nodes::PlaceArgs, output::OutputArgs, size};

const EXAMPLES: &str = "\
Examples:
  sheen lab io500 -d ~/sheen                                         a first look, in two minutes
  sheen lab io500 -d ~/sheen --tasks 8 --stonewall 60 --report io500.html
  sheen lab io500 --mounts /mnt/a,/mnt/b --tasks 4                   two mounts, as two nodes
  sheen lab io500 -d ~/sheen --easy-block 1g --segments 10000        at most 1 GiB a task, and 10,000 records

The score is comparable with scores of the IO500 list only after 300 seconds of each write phase.
It is no official submission in any case.";

/// Compute the score of the IO500: bandwidth, metadata and find in twelve phases
#[derive(Parser, Clone, Debug)]
#[command(name = "sheen lab io500", after_help = EXAMPLES, args_override_self = true, max_term_width = 100)]
pub struct Io500Args {
    /// Directory on the measured file system; with --mounts, by default, the first of these
    #[arg(short = 'd', long = "dir", value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Number of tasks, each a process [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub tasks: Option<u32>,
    /// Seconds of each write phase; then all tasks write as much as the fastest one
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=MAX_SECONDS))]
    pub stonewall: u64,
    /// Bytes of a transfer of ior-easy
    #[arg(long, value_name = "SIZE", default_value = "2m", value_parser = size::parse)]
    pub easy_transfer: u64,
    /// Maximum bytes of each task in ior-easy
    #[arg(long, value_name = "SIZE", default_value = "9920000m", value_parser = size::parse)]
    pub easy_block: u64,
    /// One shared file in ior-easy, in place of a file for each task
    #[arg(long)]
    pub easy_shared: bool,
    /// Maximum number of records of 47,008 bytes of each task in ior-hard
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    pub segments: u64,
    /// Maximum number of files of each task in mdtest-easy, and in mdtest-hard
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1_000_000)]
    pub items: u64,
    /// Drop the caches of this host before each phase (needs root)
    #[arg(long)]
    pub drop_caches: bool,
    /// Number of runs
    #[arg(short = 'i', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: u32,
    #[command(flatten)]
    pub places: PlaceArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}
