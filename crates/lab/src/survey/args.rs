//! Options of `sheen lab survey`.

use clap::{Parser, ValueEnum};
use serde::Serialize;

use crate::{output::OutputArgs, size};

const EXAMPLES: &str = "\
Examples:
  sheen lab survey                                          all OSTs of this host, 1 to 16 objects and threads
  sheen lab survey --size 8g --report survey.html           more data than the memory of the host
  sheen lab survey --osts sheen-OST0000 --records 64k-4m --objects 1 --threads 1-32
  sheen lab survey --case netdisk                           the same load, sent over the network
  sheen lab survey --case network                           and without the disks

Run it on a host with OSTs, as the user of their process or as root; netdisk and network also on a
host with a mount. No file is changed. The objects of the survey take --size bytes of each OST while
it runs, except in the case network.";

/// Measure OSTs by themselves: disks, network, or both
#[derive(Parser, Clone, Debug)]
#[command(name = "sheen lab survey", after_help = EXAMPLES, args_override_self = true, max_term_width = 100)]
pub struct SurveyArgs {
    /// Parts that are measured
    #[arg(long, value_enum, value_name = "CASE", default_value_t = Case::Disk)]
    pub case: Case,
    /// Names of OSTs, separated by commas [default: all that this host serves; netdisk and network:
    /// also those of its mounts]
    #[arg(long, value_name = "OST,…", value_delimiter = ',')]
    pub osts: Vec<String>,
    /// Bytes that each OST writes and reads in a test
    #[arg(long, value_name = "SIZE", default_value = "256m", value_parser = size::parse)]
    pub size: u64,
    /// Objects of each OST: numbers, and ranges LOW-HIGH in which each number is twice the last
    #[arg(long, value_name = "RANGE,…", default_value = "1-16")]
    pub objects: String,
    /// Threads of each OST, likewise; at least one for each object, and at most 32 of all OSTs
    /// together (netdisk and network: 256) [default: 1-16]
    #[arg(long, value_name = "RANGE,…")]
    pub threads: Option<String>,
    /// Bytes of a record, likewise
    #[arg(long, value_name = "RANGE,…", default_value = "1m")]
    pub records: String,
    /// Tests to show
    #[arg(long, value_name = "TEST,…", value_delimiter = ',', default_value = "write,rewrite,read")]
    pub tests: Vec<Test>,
    /// Number of runs; the median counts
    #[arg(short = 'i', long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: u32,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// The parts that are measured, with the names of obdfilter-survey.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Case {
    /// The disks: OSTs of this host make the load.
    Disk,
    /// Network and disks: this process sends the load to OSTs.
    Netdisk,
    /// The network: this process sends the load to servers, which drop it.
    Network,
}

impl Case {
    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Case::Disk => "disk",
            Case::Netdisk => "netdisk",
            Case::Network => "network",
        }
    }

    /// Whether this process sends the load over the network.
    pub fn is_remote(self) -> bool {
        self != Case::Disk
    }
}

/// A test.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Test {
    /// Write new objects.
    Write,
    /// Write the same objects again.
    Rewrite,
    /// Read the objects.
    Read,
}

impl Test {
    /// All tests, in their order.
    pub const ALL: [Test; 3] = [Test::Write, Test::Rewrite, Test::Read];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Test::Write => "write",
            Test::Rewrite => "rewrite",
            Test::Read => "read",
        }
    }
}
