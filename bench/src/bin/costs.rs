//! The costs of records, statistics and quotas: work of an ordinary user without them, and with one
//! of them at a time.
//!
//! `costs [--rounds 5] [--files 16000] [--mib 768] [--accesses 8000] [--only NAME] [--old PATH]
//! [--json FILE]`. Needs root, to act as another user. The OSTs, the MDT and the mount are in one
//! process over `lo`, where an added cost is the largest part. Ratios are formed within a round, in
//! which the order changes. `--old` compares with another build as well, for costs without a
//! switch, such as `brw_stats`.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Parser;
use sheen_bench::{
    report::{Cell, Options, Progress, Table, finish, program},
    stage::{self, Stage, Transport},
    stats::ratios,
    workers::{self, Files, Job, Records},
};

/// Costs of the changelog, job statistics, I/O statistics and quotas
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    options: Options,
    /// Number of files for creates, opens and unlinks
    #[arg(long, default_value_t = 16_000)]
    files: usize,
    /// Size of the large file in MiB
    #[arg(long, default_value_t = 768)]
    mib: usize,
    /// Number of accesses of 4 KiB to the large file
    #[arg(long, default_value_t = 8000)]
    accesses: usize,
    /// Path of another build, which is compared with this one
    #[arg(long)]
    old: Option<PathBuf>,
}

/// Bytes of a small file, and of an access.
const SMALL: usize = 4096;
/// Bytes of a large write.
const LARGE: usize = 1 << 20;
/// The MDT of a file system with the default name.
const MDT: &str = "sheen-MDT0000";
/// Types of records that are not recorded by default.
const ACCESSES: &str = "+OPEN +NOPEN +GXATR +ATIME";

/// One of the sides that are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    /// All switches are off.
    Without,
    /// A changelog user with the default mask.
    Changelog,
    /// A changelog user who also has the records of accesses.
    Accesses,
    /// Job ids, and so job statistics.
    Jobs,
    /// Statistics of the mount by size and offset.
    IoStats,
    /// A limit of the user who works, which is not reached.
    Quota,
    /// Another build, without any of these.
    Old,
}

impl Side {
    const SWITCHES: [Side; 5] = [Side::Changelog, Side::Accesses, Side::Jobs, Side::IoStats, Side::Quota];

    /// Returns its name in tables.
    fn name(self) -> &'static str {
        match self {
            Side::Without => "without",
            Side::Changelog => "changelog",
            Side::Accesses => "changelog of accesses",
            Side::Jobs => "job statistics",
            Side::IoStats => "I/O statistics",
            Side::Quota => "quota",
            Side::Old => "other build",
        }
    }

    /// Returns the least ratio to aim at.
    fn goal(self) -> &'static str {
        match self {
            Side::Changelog => "≥ 0.90",
            Side::Jobs => "≥ 0.98",
            _ => "",
        }
    }

    /// Switches it on. Returns a word for [`Side::end`].
    fn begin(self, stage: &Stage) -> io::Result<String> {
        match self {
            Side::Without | Side::Old => {}
            Side::Changelog => return register(stage, &[]),
            Side::Accesses => return register(stage, &["-m", ACCESSES]),
            Side::Jobs => stage.sheen.set_param("jobid_var", "procname_uid")?,
            Side::IoStats => stage.sheen.set_param("llite.*.extents_stats", 1)?,
            Side::Quota => limit(stage, "1T", "100000000")?,
        }
        Ok(String::new())
    }

    /// Switches it off.
    fn end(self, stage: &Stage, word: &str) -> io::Result<()> {
        match self {
            Side::Without | Side::Old => Ok(()),
            Side::Changelog | Side::Accesses => {
                stage.sheen.run(["lctl", "--device", MDT, "changelog_deregister", word]).map(drop)
            }
            Side::Jobs => stage.sheen.set_param("jobid_var", "disable"),
            Side::IoStats => stage.sheen.set_param("llite.*.extents_stats", 0),
            Side::Quota => limit(stage, "0", "0"),
        }
    }
}

/// Registers a changelog user, and returns its id.
fn register(stage: &Stage, options: &[&str]) -> io::Result<String> {
    let words = ["lctl", "--device", MDT, "changelog_register", "-n"];
    Ok(stage.sheen.run(words.iter().chain(options))?.trim().to_owned())
}

/// Sets the hard limits of the user who works.
fn limit(stage: &Stage, bytes: &str, files: &str) -> io::Result<()> {
    let (uid, mount) = (stage::NOBODY.to_string(), stage.mount.to_string_lossy());
    stage.sheen.run(["lfs", "setquota", "-u", &uid, "-B", bytes, "-I", files, &mount]).map(drop)
}

/// Kinds of work, in the order in which they use each other's files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    Create,
    Fill,
    Open,
    Write,
    Overwrite,
    Read,
    Unlink,
}

impl Work {
    const ALL: [Work; 7] =
        [Work::Create, Work::Fill, Work::Open, Work::Write, Work::Overwrite, Work::Read, Work::Unlink];

    /// Returns its name in the table.
    fn name(self) -> &'static str {
        match self {
            Work::Create => "create",
            Work::Fill => "create and write 4 KiB",
            Work::Open => "open, read and close these",
            Work::Write => "write 1 MiB",
            Work::Overwrite => "overwrite 4 KiB, `O_DIRECT`",
            Work::Read => "read 4 KiB, `O_DIRECT`",
            Work::Unlink => "unlink",
        }
    }

    /// Returns the job in a directory, and the number of its operations.
    fn job(self, args: &Args, dir: &Path) -> (Job, usize) {
        let files = |name: &str| Files::new(dir.join(name), args.files);
        let records = |bytes: usize, count: usize| Records {
            path: dir.join("large"),
            bytes,
            first: 0,
            stride: bytes as u64,
            count,
            rank: 0,
            page_offset: 0,
        };
        match self {
            Work::Create => (Job::Create(files("empty")), args.files),
            Work::Fill => (Job::Fill(files("small"), SMALL), args.files),
            Work::Open => (Job::Open(files("small")), args.files),
            Work::Write => (Job::Write(records(LARGE, args.mib)), args.mib),
            Work::Overwrite => (Job::WriteDirect(records(SMALL, args.accesses)), args.accesses),
            Work::Read => (Job::ReadDirect(records(SMALL, args.accesses)), args.accesses),
            Work::Unlink => (Job::Unlink(files("empty")), args.files),
        }
    }

    /// Returns the rate, in operations per second.
    fn rate(self, args: &Args, dir: &Path) -> io::Result<f64> {
        let (job, count) = self.job(args, dir);
        let took = workers::run_as(Some(stage::NOBODY), &[job])?;
        Ok(count as f64 / took.done.as_secs_f64())
    }
}

fn main() -> ExitCode {
    program(run)
}

fn run() -> io::Result<()> {
    let args = Args::parse();
    let Options { base, sheen, threads, .. } = &args.options;
    if args.accesses * SMALL > args.mib * LARGE {
        return Err(io::Error::other("--accesses: they do not fit into the large file, see --mib"));
    }
    let up = |base: &Path, sheen: &Path| Stage::sheen_lo(base, sheen, *threads, Transport::Device);
    let new = up(base, sheen)?;
    let old = args.old.as_ref().map(|program| up(&base.join("old"), program)).transpose()?;
    let mut sides = vec![(Side::Without, &new)];
    sides.extend(Side::SWITCHES.into_iter().filter(|side| args.options.wants(side.name())).map(|side| (side, &new)));
    sides.extend(old.as_ref().map(|stage| (Side::Old, stage)));
    let rates = measure(&args, &sides)?;
    finish(&[table(&sides, &rates)], &args.options)
}

/// Rates by side and work, one for each round.
type Rates = Vec<[Vec<f64>; Work::ALL.len()]>;

fn measure(args: &Args, sides: &[(Side, &Stage)]) -> io::Result<Rates> {
    let mut rates: Rates = sides.iter().map(|_| Default::default()).collect();
    let rounds = args.options.rounds as usize;
    let progress = Progress::new((rounds + 1) * sides.len());
    // The first round warms up.
    for round in 0..=rounds {
        for at in stage::order(round, sides.len()) {
            let (side, stage) = sides[at];
            let measured = progress.step(side.name(), || measure_side(args, side, stage))?;
            if round > 0 {
                rates[at].iter_mut().zip(measured).for_each(|(all, rate)| all.push(rate));
            }
        }
    }
    Ok(rates)
}

/// Does all works once.
fn measure_side(args: &Args, side: Side, stage: &Stage) -> io::Result<Vec<f64>> {
    let dir = stage.mount.join("costs");
    fs::create_dir(&dir)?;
    stage::for_all(&dir)?;
    let word = side.begin(stage)?;
    let rates = Work::ALL.iter().map(|work| work.rate(args, &dir)).collect();
    side.end(stage, &word)?;
    fs::remove_dir_all(&dir)?;
    stage::settle(&args.options.base)?;
    rates
}

fn table(sides: &[(Side, &Stage)], rates: &Rates) -> Table {
    let [_, others @ ..] = sides else { return Table::default() };
    let column = |(side, _): &(Side, &Stage)| format!("{} (min–max)", side.name());
    let columns = ["work".to_owned(), "rate without (min–max)".to_owned()];
    let mut table = Table::new("", columns.into_iter().chain(others.iter().map(column)));
    for (at, work) in Work::ALL.into_iter().enumerate() {
        let without = &rates[0][at];
        let ratio = |side: &[Vec<f64>; Work::ALL.len()]| Cell::range(&ratios(&side[at], without), 2, "");
        let cells = [work.name().into(), Cell::range(without, 0, "/s")];
        table.row(cells.into_iter().chain(rates.iter().skip(1).map(ratio)).collect());
    }
    let goals = others.iter().map(|(side, _)| Cell::from(side.goal()));
    table.row([Cell::from("goal"), Cell::empty()].into_iter().chain(goals).collect());
    table
}
