//! The gain from caches under locks: the table of the caches in `docs/performance.md`.
//!
//! ```text
//! caches [--rounds 5] [--files 10000] [--mib 1024] [--delay-us 1000]
//!        [--sheen PATH] [--base DIR] [--only NAME]
//! ```
//!
//! Ratios are formed within a round, and the table shows the median over the rounds. Where the
//! caches should make requests unnecessary, it also shows the requests that reached the servers.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use clap::Parser;
use sheen_bench::{
    stage::Stage,
    stats::{median, range},
};

#[derive(Parser)]
struct Args {
    /// Number of rounds; the median is reported.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Number of files for stat and ls.
    #[arg(long, default_value_t = 10_000)]
    files: usize,
    /// Size of the file that is read repeatedly, in MiB.
    #[arg(long, default_value_t = 1024)]
    mib: usize,
    /// Delay of each message in the measurements with delay, in microseconds.
    #[arg(long, default_value_t = 1000)]
    delay_us: u64,
    /// Path of the sheen program.
    #[arg(long, default_value = "target/release/sheen")]
    sheen: PathBuf,
    /// Directory of the file systems; in memory.
    #[arg(long, default_value = "/dev/shm/sheen-bench")]
    base: PathBuf,
    /// FUSE threads of every file system.
    #[arg(long, default_value_t = 4)]
    threads: usize,
    /// Run only measurements whose names contain this.
    #[arg(long)]
    only: Option<String>,
}

/// Passes over the files in one measurement.
const PASSES: usize = 10;
const MIB: usize = 1 << 20;

fn main() -> io::Result<()> {
    let args = Args::parse();
    let wanted = |name: &str| args.only.as_ref().is_none_or(|o| name.contains(o.as_str()));
    println!("| work | this | compared with | ratio (min–max) | asked | requests to servers |");
    println!("|---|---|---|---|---|---|");
    if wanted("stat") {
        warm_stat(&args)?;
    }
    if wanted("re-read") {
        reread(&args)?;
    }
    if wanted("ls") {
        cold_list(&args)?;
    }
    if wanted("small files") {
        cold_read(&args, 0)?;
        cold_read(&args, args.delay_us)?;
    }
    Ok(())
}

fn row(work: &str, mine: &str, other: &str, ratios: &[f64], asked: &str, requests: &str) {
    let (low, high) = range(ratios);
    println!("| {work} | {mine} | {other} | {:.2} ({low:.2}–{high:.2}) | {asked} | {requests} |", median(ratios));
}

/// Repeated `stat` of known files, which needs no request.
fn warm_stat(args: &Args) -> io::Result<()> {
    let baseline = Stage::baseline_cached(&args.base, args.threads)?;
    let sheen = Stage::sheen_lo(&args.base, &args.sheen, args.threads)?;
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
    let (mut rates, mut ratios, mut asked) = ((Vec::new(), Vec::new()), Vec::new(), 0);
    for _ in 0..args.rounds {
        let theirs = stat_all(&theirs, PASSES)?;
        let before = requests(&sheen)?;
        let ours = stat_all(&ours, PASSES)?;
        asked += requests(&sheen)? - before;
        ratios.push(ours / theirs);
        rates.0.push(ours);
        rates.1.push(theirs);
    }
    let show = |rates: &[f64]| format!("{:.0} /s", median(rates));
    row(
        "repeated stat, warm",
        &show(&rates.0),
        &format!("{} cached null FUSE", show(&rates.1)),
        &ratios,
        "≥ 0.9",
        &asked.to_string(),
    );
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
fn reread(args: &Args) -> io::Result<()> {
    let sheen = Stage::sheen_lo(&args.base, &args.sheen, args.threads)?;
    let (ours, theirs) = (sheen.mount.join("large"), args.base.join("large"));
    for path in [&ours, &theirs] {
        let mut file = File::create(path)?;
        let block: Vec<u8> = (0..MIB).map(|i| (i * 31) as u8).collect();
        for _ in 0..args.mib {
            file.write_all(&block)?;
        }
    }
    read_all(&ours, args.mib)?;
    let (mut rates, mut ratios, mut asked) = ((Vec::new(), Vec::new()), Vec::new(), 0);
    for _ in 0..args.rounds {
        let theirs = read_all(&theirs, args.mib)?;
        let before = requests(&sheen)?;
        let ours = read_all(&ours, args.mib)?;
        asked += requests(&sheen)? - before;
        ratios.push(ours / theirs);
        rates.0.push(ours);
        rates.1.push(theirs);
    }
    fs::remove_file(theirs)?;
    let show = |rates: &[f64]| format!("{:.0} MiB/s", median(rates));
    row(
        "re-read of a cached file",
        &show(&rates.0),
        &format!("{} tmpfs", show(&rates.1)),
        &ratios,
        "≥ 0.9",
        &asked.to_string(),
    );
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
fn cold_list(args: &Args) -> io::Result<()> {
    let mut sheen = Stage::sheen_tcp(&args.base, &args.sheen, args.threads)?;
    let dir = sheen.mount.join("list");
    fs::create_dir(&dir)?;
    for i in 0..args.files {
        File::create(dir.join(format!("file.{i:08}")))?.write_all(b"content")?;
    }
    let (mut seconds, mut ratios) = ((Vec::new(), Vec::new()), Vec::new());
    for _ in 0..args.rounds {
        let mut took = [0.0; 2];
        for (with, took) in took.iter_mut().enumerate() {
            sheen.remount(args.threads, if with == 1 { &[] } else { &["-o", "nordplus"] })?;
            sheen.sheen.set_param("llite.*.statahead_max", if with == 1 { 64 } else { 0 })?;
            sheen.sheen.set_param("lnet.delay_us", args.delay_us)?;
            let start = Instant::now();
            let listed = Command::new("ls").arg("-l").arg(&dir).stdout(std::process::Stdio::null()).status()?;
            *took = start.elapsed().as_secs_f64();
            sheen.sheen.set_param("lnet.delay_us", 0)?;
            if !listed.success() {
                return Err(io::Error::other("ls failed"));
            }
        }
        ratios.push(took[1] / took[0]);
        seconds.0.push(took[1]);
        seconds.1.push(took[0]);
    }
    let show = |seconds: &[f64]| format!("{:.2} s", median(seconds));
    row(
        "ls -l, cold, tcp with delay",
        &show(&seconds.0),
        &format!("{} without statahead and readdir attributes", show(&seconds.1)),
        &ratios,
        "≤ 0.05",
        "",
    );
    Ok(())
}

/// Size of a small file in bytes.
const SMALL_BYTES: usize = 4096;

/// Read of small files with empty caches, in the order in which their directory lists them. Uses a
/// fifth of the files.
fn cold_read(args: &Args, delay_us: u64) -> io::Result<()> {
    let mut sheen = Stage::sheen_tcp(&args.base, &args.sheen, args.threads)?;
    let dir = sheen.mount.join("small");
    fs::create_dir(&dir)?;
    let count = args.files.div_ceil(5);
    for i in 0..count {
        fs::write(dir.join(format!("file.{i:08}")), vec![i as u8; SMALL_BYTES])?;
    }
    let (mut seconds, mut ratios) = ((Vec::new(), Vec::new()), Vec::new());
    for _ in 0..args.rounds {
        let mut took = [0.0; 2];
        for (with, took) in took.iter_mut().enumerate() {
            sheen.remount(args.threads, if with == 1 { &[] } else { &["-o", "nordplus"] })?;
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
        ratios.push(took[0] / took[1]);
        seconds.0.push(took[1]);
        seconds.1.push(took[0]);
    }
    let show = |seconds: &[f64]| format!("{:.0} /s", count as f64 / median(seconds));
    row(
        &format!("reading {count} small files in their order, cold, tcp with {delay_us} us delay"),
        &show(&seconds.0),
        &format!("{} without statahead and readdir attributes", show(&seconds.1)),
        &ratios,
        "",
        "",
    );
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
