//! Options of `sheen lab ior`, with IOR's letters.

use std::path::PathBuf;

use clap::Parser;

use crate::{clock::MAX_SECONDS, nodes::PlaceArgs, output::OutputArgs, size};

const EXAMPLES: &str = "\
Examples:
  sheen lab ior -N 4 -w -r -C -e -t 1m -b 64m -i 5 -o ~/sheen/file     one file, written and read
  sheen lab ior -N 4 -w -r -C -e -F -t 1m -b 64m -o ~/sheen/file       a file for each task
  sheen lab ior -N 4 -w -e -t 47008 -b 47008 -s 1000 -o ~/sheen/file   small interleaved records
  sheen lab ior -N 8 --mounts /mnt/a,/mnt/b -w -r -C -o file           two mounts, as two nodes";

/// Measure reads and writes of parallel tasks: IOR's options and output
#[derive(Parser, Clone, Debug, Default)]
#[command(name = "sheen lab ior", after_help = EXAMPLES, args_override_self = true, max_term_width = 100)]
pub struct IorArgs {
    /// Interface: POSIX
    #[arg(short = 'a', value_name = "API")]
    pub api: Option<String>,
    /// Number for your reference in the summary
    #[arg(short = 'A', value_name = "N", allow_negative_numbers = true)]
    pub reference: Option<i64>,
    /// Size of a block: the contiguous bytes of a task in a segment [default: 1m]
    #[arg(short = 'b', value_name = "SIZE", value_parser = size::parse)]
    pub block: Option<u64>,
    /// Read the data that the task `Q` ranks further has written (see -Q)
    #[arg(short = 'C')]
    pub reorder: bool,
    /// Pause in seconds before each phase
    #[arg(short = 'd', value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=MAX_SECONDS))]
    pub delay: Option<u64>,
    /// Stop each phase after this many seconds (stonewall)
    #[arg(short = 'D', value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=MAX_SECONDS))]
    pub deadline: Option<u64>,
    /// Call fsync after the writes of each task
    #[arg(short = 'e')]
    pub fsync: bool,
    /// Write into an existing file instead of removing it first
    #[arg(short = 'E')]
    pub use_existing: bool,
    /// One file for each task
    #[arg(short = 'F')]
    pub file_per_process: bool,
    /// Barriers between open, transfer and close
    #[arg(short = 'g')]
    pub barriers: bool,
    /// Signature of the data (with -l random or incompressible: the seed)
    #[arg(short = 'G', value_name = "N")]
    pub signature: Option<u32>,
    /// Number of repetitions [default: 1]
    #[arg(short = 'i', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub repetitions: Option<u32>,
    /// Do not remove the files at the end
    #[arg(short = 'k')]
    pub keep: bool,
    /// Do not remove files with errors that a check found
    #[arg(short = 'K')]
    pub keep_with_error: bool,
    /// Data: timestamp, offset, incompressible or random [default: timestamp]
    #[arg(short = 'l', value_name = "TYPE")]
    pub packet: Option<String>,
    /// Another file for each repetition
    #[arg(short = 'm')]
    pub multi_file: bool,
    /// Number of tasks, each a process [default: 1]
    #[arg(short = 'N', long = "tasks", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub tasks: Option<u32>,
    /// The file to write and read [default: testFile]
    #[arg(short = 'o', value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Directives NAME=VALUE of IOR's scripts, separated by commas
    #[arg(short = 'O', value_name = "DIRECTIVES", value_delimiter = ',')]
    pub directives: Vec<String>,
    /// Distance of the task whose data is read, in nodes, with -C or -Z [default: 1]
    #[arg(short = 'Q', value_name = "N")]
    pub task_offset: Option<u32>,
    /// Read the file
    #[arg(short = 'r')]
    pub read: bool,
    /// Read the file and compare the data with what -w writes
    #[arg(short = 'R')]
    pub check_read: bool,
    /// Number of segments: blocks of each task [default: 1]
    #[arg(short = 's', value_name = "N", value_parser = size::parse)]
    pub segments: Option<u64>,
    /// Bytes of one read or write [default: 256k]
    #[arg(short = 't', value_name = "SIZE", value_parser = size::parse)]
    pub transfer: Option<u64>,
    /// Begin no further repetition after this many minutes
    #[arg(short = 'T', value_name = "MINUTES", value_parser = clap::value_parser!(u64).range(..=MAX_SECONDS / 60))]
    pub max_minutes: Option<u64>,
    /// A directory for each task, with -F
    #[arg(short = 'u')]
    pub unique_dir: bool,
    /// Print more; repeat for still more
    #[arg(short = 'v', action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Write the file
    #[arg(short = 'w')]
    pub write: bool,
    /// Read back and compare after the write
    #[arg(short = 'W')]
    pub check_write: bool,
    /// Seed of -Z; negative: another one for each repetition
    #[arg(short = 'X', value_name = "SEED", allow_negative_numbers = true)]
    pub reorder_seed: Option<i64>,
    /// Call fsync after each write
    #[arg(short = 'Y')]
    pub fsync_per_write: bool,
    /// Access the transfers of a block in random order
    #[arg(short = 'z')]
    pub random_offset: bool,
    /// Seed of -z
    #[arg(long = "random-offset-seed", value_name = "SEED")]
    pub offset_seed: Option<u64>,
    /// Read the data of random tasks; twice: of shuffled tasks, so that each file is read once
    #[arg(short = 'Z', action = clap::ArgAction::Count)]
    pub reorder_random: u8,
    /// Open with O_DIRECT
    #[arg(long = "posix.odirect")]
    pub direct: bool,
    #[command(flatten)]
    pub places: PlaceArgs,
    /// After the deadline of -D, let all tasks transfer as much as the fastest one
    /// (-O stoneWallingWearOut=1)
    #[arg(long)]
    pub wear_out: bool,
    /// Number of transfers of each task (-O stoneWallingWearOutIterations=N)
    #[arg(long, value_name = "N")]
    pub iterations: Option<u64>,
    /// File for the number of transfers before the stonewall: written by -w, read by -r
    /// (-O stoneWallingStatusFile=FILE)
    #[arg(long, value_name = "FILE")]
    pub status_file: Option<PathBuf>,
    /// Repeat the accesses until this many seconds have passed (-O minTimeDuration=N)
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=MAX_SECONDS))]
    pub min_seconds: Option<u64>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// IOR's directives that are also options: names in lower case, and the option's letter. An option
/// with `true` is given as often as the number says; 0 leaves it as it is.
const OPTIONS: &[(&str, &str, bool)] = &[
    ("api", "-a", false),
    ("refnum", "-A", false),
    ("blocksize", "-b", false),
    ("reordertasksconstant", "-C", true),
    ("reordertasks", "-C", true),
    ("intertestdelay", "-d", false),
    ("deadlineforstonewalling", "-D", false),
    ("fsync", "-e", true),
    ("useexistingtestfile", "-E", true),
    ("fileperproc", "-F", true),
    ("intratestbarriers", "-g", true),
    ("settimestampsignature", "-G", false),
    ("repetitions", "-i", false),
    ("keepfile", "-k", true),
    ("keepfilewitherror", "-K", true),
    ("datapackettype", "-l", false),
    ("multifile", "-m", true),
    ("numtasks", "-N", false),
    ("testfile", "-o", false),
    ("taskpernodeoffset", "-Q", false),
    ("readfile", "-r", true),
    ("checkread", "-R", true),
    ("segmentcount", "-s", false),
    ("transfersize", "-t", false),
    ("maxtimeduration", "-T", false),
    ("uniquedir", "-u", true),
    ("verbose", "-v", true),
    ("writefile", "-w", true),
    ("checkwrite", "-W", true),
    ("reordertasksrandomseed", "-X", false),
    ("fsyncperwrite", "-Y", true),
    ("randomoffset", "-z", true),
    ("reordertasksrandom", "-Z", true),
    ("useo_direct", "--posix.odirect", true),
    ("stonewallingwearout", "--wear-out", true),
    ("stonewallingwearoutiterations", "--iterations", false),
    ("stonewallingstatusfile", "--status-file", false),
    ("mintimeduration", "--min-seconds", false),
    ("summaryformat", "--format", false),
    ("summaryfile", "--json", false),
];

/// No option has an effect if it is given more often.
const MOST_TIMES: u64 = 5;

/// Returns the options that the directives of `-O` stand for.
///
/// # Errors
/// A message for the user if a directive is unknown, or if its value is not a number but must be.
pub fn expand(directives: &[String]) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    for directive in directives {
        let wrong = |reason: &str| format!("-O {directive}: {reason}");
        let (name, value) = directive.split_once('=').ok_or_else(|| wrong("expected NAME=VALUE"))?;
        let known = OPTIONS.iter().find(|(known, ..)| name.eq_ignore_ascii_case(known));
        let (_, option, flag) = known.ok_or_else(|| wrong("unknown directive"))?;
        match (flag, value.parse::<u64>()) {
            (true, Ok(times)) => words.extend((0..times.min(MOST_TIMES)).map(|_| (*option).to_owned())),
            (true, Err(_)) => return Err(wrong("the value is not a number")),
            (false, _) => words.extend([(*option).to_owned(), value.to_owned()]),
        }
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_stand_for_options() {
        let directives = ["blocksize=4m", "fsync=1", "keepFile=0", "stoneWallingWearOut=1", "verbose=2", "refNum=-1"];
        let directives = directives.map(str::to_owned);
        assert_eq!(expand(&directives).unwrap(), ["-b", "4m", "-e", "--wear-out", "-v", "-v", "-A", "-1"]);
        let words = ["ior", "-wrC", "-i=3", "-b", "1m"].into_iter().map(str::to_owned);
        let args = IorArgs::try_parse_from(words.chain(expand(&directives).unwrap())).unwrap();
        assert_eq!((args.block, args.repetitions), (Some(4 << 20), Some(3)), "the last one counts");
        assert_eq!((args.verbose, args.reference), (2, Some(-1)));
        assert!(args.fsync && !args.keep && args.wear_out && args.write && args.read && args.reorder);
    }

    #[test]
    fn wrong_directives_are_refused_by_name() {
        let refused = |directive: &str| expand(&[directive.to_owned()]).unwrap_err();
        assert_eq!(refused("flux=1"), "-O flux=1: unknown directive");
        assert_eq!(refused("fsync"), "-O fsync: expected NAME=VALUE");
        assert_eq!(refused("fsync=yes"), "-O fsync=yes: the value is not a number");
    }

    #[test]
    fn every_directive_stands_for_an_existing_option() {
        for (name, option, flag) in OPTIONS {
            let directive = format!("{name}={}", if *name == "summaryformat" { "json" } else { "1" });
            let words = expand(&[directive]).unwrap();
            assert_eq!(words.len(), if *flag { 1 } else { 2 });
            let words = std::iter::once("ior".to_owned()).chain(words);
            IorArgs::try_parse_from(words).unwrap_or_else(|e| panic!("{name}, {option}: {e}"));
        }
    }
}
