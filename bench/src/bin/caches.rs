//! The gain from caches under locks: the table of the caches in `docs/performance.md`.
//!
//! `caches [--rounds 5] [--files 10000] [--mib 1024] [--delay-us 1000] [--only NAME]`.
//! Ratios are formed within a round, and the table shows the median over the rounds. Where the
//! caches should make requests unnecessary, it also shows the requests that reached the servers.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::Instant,
};

use clap::Parser;
use sheen_bench::{
    report::{Cell, Options, Table, finish, program},
    stage::{Stage, Transport},
};

/// Gain from caches under locks: repeated stat, repeated read, ls -l, reading small files
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    options: Options,
    /// Number of files for stat and ls
    #[arg(long, default_value_t = 10_000)]
    files: usize,
    /// Size of the file that is read repeatedly, in MiB
    #[arg(long, default_value_t = 1024)]
    mib: usize,
    /// Delay of each message in the measurements with delay, in microseconds
    #[arg(long, default_value_t = 1000)]
    delay_us: u64,
}

/// Passes over the files in one measurement.
const PASSES: usize = 10;
const MIB: usize = 1 << 20;
/// The other side of the measurements with empty caches.
const WITHOUT: &str = "without statahead and readdir attributes";

fn main() -> ExitCode {
    program(run)
}

fn run() -> io::Result<()> {
    let args = Args::parse();
    let columns =
        ["work", "Sheen", "the other side", "compared with", "ratio (min–max)", "goal", "requests to servers"];
    let mut table = Table::new("", columns);
    if args.options.wants("stat") {
        warm_stat(&args, &mut table)?;
    }
    if args.options.wants("re-read") {
        reread(&args, &mut table)?;
    }
    if args.options.wants("ls") {
        cold_list(&args, &mut table)?;
    }
    if args.options.wants("small files") {
        cold_read(&args, 0, &mut table)?;
        cold_read(&args, args.delay_us, &mut table)?;
    }
    finish(&[table], &args.options)
}

/// The figures of both sides of a comparison and their ratios, one for each round, and the requests
/// of all rounds.
#[derive(Default)]
struct Comparison {
    ours: Vec<f64>,
    theirs: Vec<f64>,
    ratios: Vec<f64>,
    requests: u64,
}

impl Comparison {
    /// Adds a round of rates or of seconds, with `ratio` as the ratio.
    fn add(&mut self, ours: f64, theirs: f64, ratio: f64) {
        self.ours.push(ours);
        self.theirs.push(theirs);
        self.ratios.push(ratio);
    }

    /// Adds a row to the table. `that` is the other side, and `unit` that of the figures.
    fn row(&self, table: &mut Table, work: &str, that: &str, goal: &str, unit: &str, counted: bool) {
        let decimals = if unit == "s" { 2 } else { 0 };
        table.row(vec![
            work.into(),
            Cell::range(&self.ours, decimals, unit),
            Cell::range(&self.theirs, decimals, unit),
            that.into(),
            Cell::range(&self.ratios, 2, ""),
            goal.into(),
            if counted { Cell::number(self.requests as f64, 0, "") } else { Cell::empty() },
        ]);
    }
}

/// Repeated `stat` of known files, which needs no request.
fn warm_stat(args: &Args, table: &mut Table) -> io::Result<()> {
    let baseline = Stage::baseline_cached(&args.options.base, args.options.threads)?;
    let sheen = Stage::sheen_lo(&args.options.base, &args.options.sheen, args.options.threads, Transport::Device)?;
    let prepare = |stage: &Stage| -> io::Result<Vec<PathBuf>> {
        let dir = stage.mount.join("stat");
        fs::create_dir(&dir)?;
        let names: Vec<PathBuf> = (0..args.files).map(|i| dir.join(format!("file.{i:08}"))).collect();
        for name in &names {
            File::create(name)?.write_all(b"content")?;
        }
        stat_all(&names, 1)?;
        Ok(names)
    };
    let (theirs, ours) = (prepare(&baseline)?, prepare(&sheen)?);
    let mut all = Comparison::default();
    for _ in 0..args.options.rounds {
        let theirs = stat_all(&theirs, PASSES)?;
        let before = requests(&sheen)?;
        let ours = stat_all(&ours, PASSES)?;
        all.requests += requests(&sheen)? - before;
        all.add(ours, theirs, ours / theirs);
    }
    all.row(table, "repeated stat of cached files", "null FUSE with kernel caching", "≥ 0.9", "/s", true);
    Ok(())
}

fn stat_all(names: &[PathBuf], passes: usize) -> io::Result<f64> {
    let start = Instant::now();
    for _ in 0..passes {
        for name in names {
            fs::symlink_metadata(name)?;
        }
    }
    Ok((names.len() * passes) as f64 / start.elapsed().as_secs_f64())
}

/// Returns the number of requests that MDT and OSTs have executed so far, by their statistics.
fn requests(stage: &Stage) -> io::Result<u64> {
    Ok(stage.sheen.counters(&["mdt.*.md_stats", "obdfilter.*.stats"])?.requests())
}

/// Repeated read of a file that is in the kernel's page cache.
fn reread(args: &Args, table: &mut Table) -> io::Result<()> {
    let sheen = Stage::sheen_lo(&args.options.base, &args.options.sheen, args.options.threads, Transport::Device)?;
    let (ours, theirs) = (sheen.mount.join("large"), args.options.base.join("large"));
    for path in [&ours, &theirs] {
        let mut file = File::create(path)?;
        let block: Vec<u8> = (0..MIB).map(|i| (i * 31) as u8).collect();
        for _ in 0..args.mib {
            file.write_all(&block)?;
        }
    }
    read_all(&ours, args.mib)?;
    let mut all = Comparison::default();
    for _ in 0..args.options.rounds {
        let theirs = read_all(&theirs, args.mib)?;
        let before = requests(&sheen)?;
        let ours = read_all(&ours, args.mib)?;
        all.requests += requests(&sheen)? - before;
        all.add(ours, theirs, ours / theirs);
    }
    fs::remove_file(theirs)?;
    all.row(table, "second read of a cached file", "tmpfs", "≥ 0.9", "MiB/s", true);
    Ok(())
}

fn read_all(path: &Path, mib: usize) -> io::Result<f64> {
    let file = File::open(path)?;
    let mut block = vec![0; MIB];
    let start = Instant::now();
    for i in 0..mib {
        file.read_exact_at(&mut block, (i * MIB) as u64)?;
    }
    Ok(mib as f64 / start.elapsed().as_secs_f64())
}

/// `ls -l` with empty caches and delayed messages: with attributes and locks in readdir, and
/// without.
fn cold_list(args: &Args, table: &mut Table) -> io::Result<()> {
    let mut sheen = Stage::sheen_tcp(&args.options.base, &args.options.sheen, args.options.threads, Transport::Device)?;
    let dir = sheen.mount.join("list");
    fs::create_dir(&dir)?;
    for i in 0..args.files {
        File::create(dir.join(format!("file.{i:08}")))?.write_all(b"content")?;
    }
    let mut all = Comparison::default();
    for _ in 0..args.options.rounds {
        let mut took = [0.0; 2];
        for (with, took) in took.iter_mut().enumerate() {
            sheen.remount(args.options.threads, if with == 1 { &[] } else { &["-o", "nordplus"] })?;
            sheen.sheen.set_param("llite.*.statahead_max", if with == 1 { 64 } else { 0 })?;
            sheen.sheen.set_param("lnet.delay_us", args.delay_us)?;
            let start = Instant::now();
            let listed = Command::new("ls").arg("-l").arg(&dir).stdout(Stdio::null()).status()?;
            *took = start.elapsed().as_secs_f64();
            sheen.sheen.set_param("lnet.delay_us", 0)?;
            if !listed.success() {
                return Err(io::Error::other("ls failed"));
            }
        }
        all.add(took[1], took[0], took[1] / took[0]);
    }
    let work = format!("ls -l, cold, tcp with {} us delay", args.delay_us);
    all.row(table, &work, WITHOUT, "≤ 0.05", "s", false);
    Ok(())
}

/// Size of a small file in bytes.
const SMALL_BYTES: usize = 4096;

/// Read of small files with empty caches, in the order in which their directory lists them. Uses a
/// fifth of the files.
fn cold_read(args: &Args, delay_us: u64, table: &mut Table) -> io::Result<()> {
    let mut sheen = Stage::sheen_tcp(&args.options.base, &args.options.sheen, args.options.threads, Transport::Device)?;
    let dir = sheen.mount.join("small");
    fs::create_dir(&dir)?;
    let count = args.files.div_ceil(5);
    for i in 0..count {
        fs::write(dir.join(format!("file.{i:08}")), vec![i as u8; SMALL_BYTES])?;
    }
    let mut all = Comparison::default();
    for _ in 0..args.options.rounds {
        let mut took = [0.0; 2];
        for (with, took) in took.iter_mut().enumerate() {
            sheen.remount(args.options.threads, if with == 1 { &[] } else { &["-o", "nordplus"] })?;
            if with == 0 {
                sheen.sheen.set_param("llite.*.statahead_max", 0)?;
            }
            sheen.sheen.set_param("lnet.delay_us", delay_us)?;
            let start = Instant::now();
            let read = read_in_order(&dir);
            *took = start.elapsed().as_secs_f64();
            sheen.sheen.set_param("lnet.delay_us", 0)?;
            if read? != count {
                return Err(io::Error::other("files are missing"));
            }
        }
        let rate = |seconds: f64| count as f64 / seconds;
        all.add(rate(took[1]), rate(took[0]), took[0] / took[1]);
    }
    let work =
        format!("reading {count} files of {SMALL_BYTES} bytes in directory order, cold, tcp with {delay_us} us delay");
    all.row(table, &work, WITHOUT, "", "/s", false);
    Ok(())
}

/// Reads all files of a directory and checks their content. Returns their number.
fn read_in_order(dir: &Path) -> io::Result<usize> {
    let names = fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>()?;
    for name in &names {
        let content = fs::read(name)?;
        if content.len() != SMALL_BYTES || content.iter().any(|byte| *byte != content[0]) {
            return Err(io::Error::other(format!("{} is not what was written", name.display())));
        }
    }
    Ok(names.len())
}
