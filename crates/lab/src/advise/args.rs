//! Options of `sheen lab advise`. Those that describe the job are IOR's.

use std::{ffi::OsString, path::PathBuf};

use clap::Parser;

use crate::{output::OutputArgs, predict::load::Direction, size};

const EXAMPLES: &str = "\
Examples:
  sheen lab advise ~/sheen/out                              for what this host's mounts have seen there
  sheen lab advise ~/sheen/out --watch mpirun -n 8 ./job    run a job, and advise for what it does
  sheen lab advise -N 8 -t 1m -b 1m -s 512 ~/sheen/out      8 tasks write 1 MiB records in turn
  sheen lab advise -N 8 -F -t 1m -b 4g ~/sheen/out --apply  a file for each task; set the layout
  sheen lab advise -N 8 -t 1m -b 4g ~/sheen/out/big.dat     for a file; --apply migrates it
  sheen lab advise -N 48 -t 16m -b 16m -s 64 --system flash for a published system

IOR's options describe a job. Without them, it is the one that the mounts have observed. First calibrate a model: sheen lab model --calibrate ~/sheen";

/// Recommend a layout for a job
#[derive(Parser, Clone, Debug)]
#[command(name = "sheen lab advise", after_help = EXAMPLES, args_override_self = true, max_term_width = 100)]
pub struct AdviseArgs {
    /// A directory for new files, or a file
    #[arg(value_name = "PATH", default_value = ".")]
    pub path: PathBuf,
    /// Number of tasks [default: 1]
    #[arg(short = 'N', long = "tasks", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub tasks: Option<u32>,
    /// Number of nodes on which they run [default: one for each task]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub nodes: Option<u32>,
    /// Bytes of one read or write [default: 1m]
    #[arg(short = 't', value_name = "SIZE", value_parser = size::parse)]
    pub transfer: Option<u64>,
    /// Size of a block: the contiguous bytes of a task in a segment [default: as -t]
    #[arg(short = 'b', value_name = "SIZE", value_parser = size::parse)]
    pub block: Option<u64>,
    /// Number of segments: blocks of each task [default: 1]
    #[arg(short = 's', value_name = "N", value_parser = size::parse)]
    pub segments: Option<u64>,
    /// One file for each task
    #[arg(short = 'F')]
    pub files: bool,
    /// The job writes [default: it writes and reads, or what was observed]
    #[arg(short = 'w')]
    pub write: bool,
    /// The job reads what other nodes have written
    #[arg(short = 'r')]
    pub read: bool,
    /// Run a job, which is the rest of the line, and observe it
    #[arg(long, value_name = "COMMAND", num_args = 1.., allow_hyphen_values = true, conflicts_with_all = ["system", "measure"])]
    pub watch: Vec<OsString>,
    /// Observations of another host: its `lctl get_param llite.*.access_patterns`
    #[arg(long, value_name = "FILE", conflicts_with = "system")]
    pub observed: Vec<PathBuf>,
    /// Set the layout: of the directory for new files, or of the file by a migration
    #[arg(long, conflicts_with_all = ["system", "measure"])]
    pub apply: bool,
    /// Also measure all candidates, and compare the recommended one with the best
    #[arg(long, conflicts_with = "system")]
    pub measure: bool,
    /// With --measure: repetitions of each run; the median counts
    #[arg(short = 'i', long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: u32,
    /// A published system instead of this file system: flash, l300n, stallo or es400nvx2
    #[arg(long, value_name = "NAME")]
    pub system: Option<String>,
    /// With --system: number of OSTs
    #[arg(long, value_name = "N", default_value_t = 1, requires = "system", value_parser = clap::value_parser!(u32).range(1..=2000))]
    pub osts: u32,
    #[command(flatten)]
    pub output: OutputArgs,
}

impl AdviseArgs {
    /// Whether options describe the job. Otherwise it is the observed one.
    pub fn describe_a_job(&self) -> bool {
        let numbers = [self.tasks, self.nodes].iter().any(Option::is_some);
        let sizes = [self.transfer, self.block, self.segments].iter().any(Option::is_some);
        numbers || sizes || self.files || self.system.is_some()
    }

    /// Returns the kinds of accesses that the user wants to consider.
    pub fn directions(&self) -> Vec<Direction> {
        let both = self.write == self.read;
        let wanted = |direction: &Direction| both || (*direction == Direction::Write) == self.write;
        Direction::ALL.into_iter().filter(wanted).collect()
    }
}
