//! Options of `sheen lab net` and `sheen lab wan`.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use serde::Serialize;

use crate::output::OutputArgs;

const EXAMPLES: &str = "\
Examples:
  sheen lab net                                       the server on this host
  sheen lab net --to oss1:7990@tcp --sizes 4k-16m --in-flight 1-64
  sheen lab net --from scratch-MDT0000 --to scratch-OST0001   between two servers
  sheen lab wan --report wan.html                     as over 60, 200 and 400 km of fibre
  sheen lab wan --files /mnt/sheen                    also create, write, read … in round trips
  sheen lab wan --delays 40 --sizes 1m,4m             as over 4,000 km";

/// Measure requests over the network: size, number in flight, latency
#[derive(Parser, Clone, Debug)]
#[command(name = "sheen lab net", after_help = EXAMPLES, args_override_self = true, max_term_width = 100)]
pub struct NetArgs {
    /// Server that sends the requests: the name of a target, or a NID [default: this process]
    #[arg(long, value_name = "NODE")]
    pub from: Option<String>,
    /// Server that answers: the name of a target, a NID, or 0@lo for this process alone. A NID
    /// without a port takes 7988, of an MGS [default: a server on this host]
    #[arg(long, value_name = "NODE")]
    pub to: Option<String>,
    /// Tests [default: ping,write,read; wan: write]
    #[arg(long, value_name = "TEST,…", value_delimiter = ',')]
    pub tests: Vec<Test>,
    /// Bytes of a request's data: numbers, and ranges LOW-HIGH in which each is twice the last
    /// [default: 4k,64k,1m,4m; wan: 4k,32k,128k,1m,4m]
    #[arg(long, value_name = "RANGE,…")]
    pub sizes: Option<String>,
    /// Requests in flight, likewise [default: 1,8; wan: 1-64]
    #[arg(long, value_name = "RANGE,…")]
    pub in_flight: Option<String>,
    /// Added round-trip times in milliseconds [default: none; wan: 0.72,2.17,4.14]
    #[arg(long, value_name = "MS,…", value_delimiter = ',')]
    pub delays: Vec<f64>,
    /// wan: also measure operations on files in this directory. Its mount has a process of its own
    #[arg(long, value_name = "DIR")]
    pub files: Option<PathBuf>,
    /// With --files: numbers of clients that write a file each [default: 1-16]
    #[arg(long, value_name = "RANGE,…", requires = "files")]
    pub clients: Option<String>,
    /// Milliseconds of each measurement
    #[arg(long, value_name = "MS", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    pub time: u64,
    /// Number of runs; the median counts
    #[arg(short = 'i', long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: u32,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// A test.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
pub enum Test {
    /// Requests without data.
    Ping,
    /// Data travels to the server.
    Write,
    /// Data travels from the server.
    Read,
}

impl Test {
    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Test::Ping => "ping",
            Test::Write => "write",
            Test::Read => "read",
        }
    }
}
