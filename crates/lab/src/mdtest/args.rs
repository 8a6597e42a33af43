//! Options of `sheen lab mdtest`, with mdtest's letters.

use std::path::PathBuf;

use clap::Parser;

use crate::{clock::MAX_SECONDS, nodes::PlaceArgs, output::OutputArgs, size};

const EXAMPLES: &str = "\
Examples:
  sheen lab mdtest --tasks 4 -n 1000 -i 3 -d ~/sheen/md          files and directories, one directory
  sheen lab mdtest --tasks 4 -n 1000 -F -u -N 1 -d ~/sheen/md    a directory for each task
  sheen lab mdtest --tasks 4 -n 1000 -F -w 3901 -e 3901 -N 1 -d ~/sheen/md    small files with data
  sheen lab mdtest --tasks 8 --mounts /mnt/a,/mnt/b -n 1000 -N 1 -d md        two mounts, as two nodes";

/// Measure operations on names of parallel tasks: mdtest's options and output
#[derive(Parser, Clone, Debug, Default)]
#[command(name = "sheen lab mdtest", after_help = EXAMPLES, args_override_self = true, max_term_width = 100)]
pub struct MdtestArgs {
    /// Interface: POSIX
    #[arg(short = 'a', value_name = "API")]
    pub api: Option<String>,
    /// Number of directories in each directory of the tree [default: 1]
    #[arg(short = 'b', value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub branches: Option<u64>,
    /// Only create
    #[arg(short = 'C')]
    pub create: bool,
    /// Directory of the test; several, separated by @, need -u [default: ./out]
    #[arg(short = 'd', value_name = "DIR")]
    pub dir: Option<String>,
    /// Only directories, no files
    #[arg(short = 'D')]
    pub dirs_only: bool,
    /// Bytes to read from each file [default: 0]
    #[arg(short = 'e', value_name = "SIZE", value_parser = size::parse)]
    pub read_bytes: Option<u64>,
    /// Only read files
    #[arg(short = 'E')]
    pub read: bool,
    /// Only files, no directories
    #[arg(short = 'F')]
    pub files_only: bool,
    /// Seed of the data
    #[arg(short = 'G', value_name = "N", allow_negative_numbers = true)]
    pub seed: Option<i64>,
    /// Number of iterations [default: 1]
    #[arg(short = 'i', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub iterations: Option<u32>,
    /// Number of items in each directory of the tree, in place of -n
    #[arg(short = 'I', value_name = "N")]
    pub items_per_dir: Option<u64>,
    /// Items only in the lowest directories of the tree
    #[arg(short = 'L')]
    pub leaf_only: bool,
    /// Number of items of each task
    #[arg(short = 'n', value_name = "N")]
    pub items: Option<u64>,
    /// In each phase, use the items of the task that is this many ranks further
    #[arg(short = 'N', value_name = "N")]
    pub stride: Option<u32>,
    /// Pause in seconds before each iteration
    #[arg(short = 'p', value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=MAX_SECONDS))]
    pub delay: Option<u64>,
    /// Print rates and times
    #[arg(short = 'P')]
    pub rate_and_time: bool,
    /// Only remove
    #[arg(short = 'r')]
    pub remove: bool,
    /// Stat and read in random order
    #[arg(short = 'R')]
    pub random: bool,
    /// Seed of -R
    #[arg(long = "random-seed", value_name = "SEED")]
    pub random_seed: Option<u64>,
    /// Include the waits for the other tasks before each phase, with -u
    #[arg(short = 't')]
    pub time_unique_dir: bool,
    /// Only stat
    #[arg(short = 'T')]
    pub stat: bool,
    /// A directory for each task
    #[arg(short = 'u')]
    pub unique_dir: bool,
    /// Only rename directories
    #[arg(short = 'U')]
    pub rename: bool,
    /// Print more
    #[arg(short = 'v', action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Level of detail, as a number
    #[arg(short = 'V', value_name = "N")]
    pub verbosity: Option<u8>,
    /// Bytes to write to each new file [default: 0]
    #[arg(short = 'w', value_name = "SIZE", value_parser = size::parse)]
    pub write_bytes: Option<u64>,
    /// Create files for this many seconds; then all tasks create as many as the fastest one
    #[arg(short = 'W', value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=MAX_SECONDS))]
    pub stonewall: Option<u64>,
    /// File for the number of items before the stonewall: written by -C, read by the other phases
    #[arg(short = 'x', value_name = "FILE")]
    pub status_file: Option<PathBuf>,
    /// Compare the data that is read with the data that is written
    #[arg(short = 'X', long = "verify-read")]
    pub verify_read: bool,
    /// Call fsync after the write of each file
    #[arg(short = 'y')]
    pub fsync: bool,
    /// Call sync after each phase; its time counts
    #[arg(short = 'Y')]
    pub sync: bool,
    /// Depth of the tree [default: 0]
    #[arg(short = 'z', value_name = "N", value_parser = clap::value_parser!(u32).range(0..=64))]
    pub depth: Option<u32>,
    /// Print times, not rates
    #[arg(short = 'Z')]
    pub print_time: bool,
    /// Number of tasks, each a process [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub tasks: Option<u32>,
    #[command(flatten)]
    pub places: PlaceArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}
