//! Options of `sheen lab advise`. Those that describe the job are IOR's.

use std::{ffi::OsString, path::PathBuf};

use clap::Parser;

use crate::{
    output::OutputArgs,
    predict::{load::Direction, system::pool_name},
    size,
};

const EXAMPLES: &str = "\
Examples:
  sheen lab advise ~/sheen/out                              for what this host's mounts have seen there
  sheen lab advise ~/sheen/out --watch mpirun -n 8 ./job    run a job, and advise for what it does
  sheen lab advise -N 8 -t 1m -b 1m -s 512 ~/sheen/out      8 tasks write 1 MiB records in turn
  sheen lab advise -N 8 -F -t 1m -b 4g ~/sheen/out --apply  a file for each task; set the layout
  sheen lab advise -N 8 -t 1m -b 4g ~/sheen/out/big.dat     for a file; --apply migrates it
  sheen lab advise -N 32 --nodes 1 -F -b 4g --round-trip 10 ~/sheen/out  as over 1,000 km of fibre
  sheen lab advise -N 8 -t 1m -b 4g ~/sheen/out --pool flash on the OSTs of a pool
  sheen lab advise -N 48 -t 16m -b 16m -s 64 --system flash for a published system

IOR's options describe a job. Without them, it is the one that the mounts have observed. First calibrate a model: sheen lab model --calibrate ~/sheen";

/// Recommend a layout and RPC parameters for a job
#[derive(Parser, Clone, Debug)]
#[command(name = "sheen lab advise", after_help = EXAMPLES, args_override_self = true, max_term_width = 100)]
pub struct AdviseArgs {
    /// A directory for new files, or a file
    #[arg(value_name = "PATH", default_value = ".")]
    pub path: PathBuf,
    /// Number of tasks [default: 1]
    #[arg(short = 'N', long = "tasks", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub tasks: Option<u32>,
    /// Number of nodes on which they run [default: those of --mounts, else one for each task]
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
    /// Advice for the OSTs of this pool [default: the pool of the present layout, or all OSTs]
    #[arg(long, value_name = "POOL", conflicts_with = "system", value_parser = pool_name)]
    pub pool: Option<String>,
    /// The time of the job includes a resync of the mirrors after its writes, so that it reads all
    /// of them
    #[arg(long, conflicts_with_all = ["system", "measure"])]
    pub resync: bool,
    /// Mounts of the job on this host, which stand for nodes: RPC parameters and readahead of all
    /// count [default: the mount of PATH]
    #[arg(long, value_name = "DIR,…", value_delimiter = ',', conflicts_with = "system")]
    pub mounts: Vec<PathBuf>,
    /// Round trip to the OSTs in milliseconds, for RPC parameters [default: measured]
    #[arg(long, value_name = "MS", value_parser = milliseconds)]
    pub round_trip: Option<f64>,
    /// Rate of an OST in MiB/s, for RPC parameters [default: that of the model]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub ost_rate: Option<f64>,
    /// Set the layout: of the directory for new files, or of the file by a migration. Also set the
    /// RPC parameters and the readahead of the mounts
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

/// Largest round trip in milliseconds.
const ROUND_TRIP_MAX: f64 = 60_000.0;

/// Reads a round trip.
fn milliseconds(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=ROUND_TRIP_MAX).contains(number));
    number.ok_or_else(|| format!("expected 0 to {ROUND_TRIP_MAX} milliseconds"))
}

/// Reads a rate.
fn rate(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "expected a number above 0".to_owned())
}

impl AdviseArgs {
    /// Whether options describe the job. Otherwise it is the observed one.
    pub fn describe_a_job(&self) -> bool {
        let numbers = [self.tasks, self.nodes].iter().any(Option::is_some);
        let sizes = [self.transfer, self.block, self.segments].iter().any(Option::is_some);
        numbers || sizes || self.files || self.system.is_some()
    }

    /// Returns the number of nodes of a job that options describe.
    pub fn nodes_of(&self, tasks: u32) -> u32 {
        let mounts = u32::try_from(self.mounts.len()).ok().filter(|mounts| *mounts > 0);
        self.nodes.unwrap_or_else(|| mounts.map_or(tasks, |mounts| mounts.min(tasks)))
    }

    /// Returns the kinds of accesses that the user wants to consider.
    pub fn directions(&self) -> Vec<Direction> {
        let both = self.write == self.read;
        let wanted = |direction: &Direction| both || (*direction == Direction::Write) == self.write;
        Direction::ALL.into_iter().filter(wanted).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<AdviseArgs, clap::Error> {
        AdviseArgs::try_parse_from(["advise"].iter().chain(words))
    }

    #[test]
    fn mounts_are_nodes_unless_their_number_is_stated() {
        let nodes = |words: &[&str]| parsed(words).unwrap().nodes_of(4);
        assert_eq!((nodes(&[]), nodes(&["--mounts", "/a,/b"]), nodes(&["--mounts", "/a,/b,/c,/d,/e"])), (4, 2, 4));
        assert_eq!(nodes(&["--mounts", "/a,/b", "--nodes", "3"]), 3);
        assert!(!parsed(&["--mounts", "/a,/b"]).unwrap().describe_a_job(), "the mounts may have observed it");
        assert!(parsed(&["--pool", "no pool"]).is_err() && parsed(&["--pool", "flash"]).is_ok());
    }

    #[test]
    fn round_trip_and_rate_are_checked() {
        let args = parsed(&["--round-trip", "4.14", "--ost-rate", "1000"]).unwrap();
        assert_eq!((args.round_trip, args.ost_rate), (Some(4.14), Some(1000.0)));
        assert!(!args.describe_a_job(), "they do not describe the accesses");
        for wrong in ["-1", "60001", "NaN", "inf", "x", ""] {
            assert!(parsed(&[format!("--round-trip={wrong}").as_str()]).is_err(), "{wrong}");
        }
        for wrong in ["0", "-1", "NaN", "inf", "x"] {
            assert!(parsed(&[format!("--ost-rate={wrong}").as_str()]).is_err(), "{wrong}");
        }
    }
}
