//! Work on a directory, done by processes of their own that start together.
//!
//! The parent ([`run`]) starts this program again as `… worker KIND DIR RANK COUNT` for each rank.
//! A worker opens its files, prints `ready`, waits for a line, works, and prints `done`. The result
//! is the wall time from the release of the workers to the last `done`.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Size in bytes of a read or write.
pub const BLOCK: usize = 1 << 20;
const O_DIRECT: i32 = 0o40000;

/// Kinds of work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `count` O_DIRECT writes of 1 MiB into one file per process.
    Write,
    /// `count` O_DIRECT reads of 1 MiB from the files of `Write`.
    Read,
    /// Creation of `count` empty files.
    Create,
    /// `stat` of the files of `Create`.
    Stat,
    /// `unlink` of the files of `Create`.
    Unlink,
}

impl Kind {
    /// Returns its name on the command line and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Write => "write",
            Kind::Read => "read",
            Kind::Create => "create",
            Kind::Stat => "stat",
            Kind::Unlink => "unlink",
        }
    }

    fn parse(s: &str) -> Option<Kind> {
        [Kind::Write, Kind::Read, Kind::Create, Kind::Stat, Kind::Unlink].into_iter().find(|k| k.name() == s)
    }

    /// Returns whether the work `name` uses the files of this one.
    pub fn leaves_for(self, name: &str) -> bool {
        match self {
            Kind::Write => name.starts_with("read"),
            Kind::Create => name.starts_with("stat") || name.starts_with("unlink"),
            _ => false,
        }
    }

    /// Returns whether it transfers data (its rate is MiB/s) or does operations (its rate is 1/s).
    pub fn is_data(self) -> bool {
        matches!(self, Kind::Write | Kind::Read)
    }
}

/// Runs `kind` in `dir` with `processes` processes, `count` times each. Returns the rate in
/// operations (or MiB) per second. Each process has a directory of its own.
pub fn run(kind: Kind, dir: &Path, processes: usize, count: usize) -> io::Result<f64> {
    start_and_time(kind, dir, processes, count, "worker")
}

/// As [`run`], with all files in one directory, `dir/shared`.
pub fn run_in_one_directory(kind: Kind, dir: &Path, processes: usize, count: usize) -> io::Result<f64> {
    fs::create_dir_all(dir.join("shared"))?;
    start_and_time(kind, dir, processes, count, SHARED)
}

const SHARED: &str = "worker-shared";

fn start_and_time(kind: Kind, dir: &Path, processes: usize, count: usize, word: &str) -> io::Result<f64> {
    let me = std::env::current_exe()?;
    let mut workers = Vec::new();
    for rank in 0..processes {
        let child = Command::new(&me)
            .args([word, kind.name()])
            .arg(dir)
            .args([rank.to_string(), count.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        workers.push(Worker::new(child)?);
    }
    for worker in &mut workers {
        worker.expect("ready")?;
    }
    let start = Instant::now();
    for worker in &mut workers {
        worker.release()?;
    }
    for worker in &mut workers {
        worker.expect("done")?;
    }
    let elapsed = start.elapsed();
    Ok((processes * count) as f64 / elapsed.as_secs_f64())
}

struct Worker {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Worker {
    fn new(mut child: Child) -> io::Result<Worker> {
        let out = child.stdout.take().ok_or_else(|| io::Error::other("no pipe from the worker"))?;
        Ok(Worker { child, lines: BufReader::new(out) })
    }

    fn expect(&mut self, word: &str) -> io::Result<()> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        if line.trim() == word { Ok(()) } else { Err(io::Error::other(format!("worker printed {line:?}, not {word}"))) }
    }

    fn release(&mut self) -> io::Result<()> {
        let stdin = self.child.stdin.as_mut().ok_or_else(|| io::Error::other("no pipe to the worker"))?;
        stdin.write_all(b"go\n")?;
        stdin.flush()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Works and returns true if this process was started as a worker. To be called first in `main`.
pub fn maybe_worker() -> io::Result<bool> {
    let args: Vec<String> = std::env::args().collect();
    let [_, word, kind, dir, rank, count] = args.as_slice() else { return Ok(false) };
    if word != "worker" && word != SHARED {
        return Ok(false);
    }
    let kind = Kind::parse(kind).ok_or_else(|| io::Error::other("unknown kind of work"))?;
    let number = |s: &str| s.parse::<usize>().map_err(io::Error::other);
    work(kind, Path::new(dir), number(rank)?, number(count)?, word == SHARED)?;
    Ok(true)
}

fn start() -> io::Result<()> {
    println!("ready");
    io::stdout().flush()?;
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    Ok(())
}

fn done() -> io::Result<()> {
    println!("done");
    io::stdout().flush()
}

fn work(kind: Kind, dir: &Path, rank: usize, count: usize, shared: bool) -> io::Result<()> {
    let mine = dir.join(format!("rank{rank}"));
    let name = |i: usize| match shared {
        true => dir.join(format!("shared/rank{rank}.{i:08}")),
        false => mine.join(format!("file.mdtest.{i:08}")),
    };
    let names: Vec<PathBuf> = (0..count).map(name).collect();
    match kind {
        Kind::Write => {
            let file = direct(&mine.with_extension("data"), true)?;
            let block = aligned(BLOCK);
            for (i, b) in block.iter_mut().enumerate() {
                *b = (i * 31 + rank) as u8;
            }
            start()?;
            for i in 0..count {
                file.write_all_at(block, (i * BLOCK) as u64)?;
            }
        }
        Kind::Read => {
            let file = direct(&mine.with_extension("data"), false)?;
            let block = aligned(BLOCK);
            start()?;
            for i in 0..count {
                file.read_exact_at(block, (i * BLOCK) as u64)?;
            }
        }
        Kind::Create => {
            fs::create_dir_all(&mine)?;
            start()?;
            for name in &names {
                drop(OpenOptions::new().write(true).create_new(true).open(name)?);
            }
        }
        Kind::Stat => {
            start()?;
            for name in &names {
                fs::symlink_metadata(name)?;
            }
        }
        Kind::Unlink => {
            start()?;
            for name in &names {
                fs::remove_file(name)?;
            }
        }
    }
    done()
}

fn direct(path: &Path, write: bool) -> io::Result<File> {
    OpenOptions::new().read(!write).write(write).create(write).custom_flags(O_DIRECT).open(path)
}

/// Returns a page-aligned buffer, as O_DIRECT requires.
fn aligned(len: usize) -> &'static mut [u8] {
    let spare = Box::leak(vec![0u8; len + 4096].into_boxed_slice());
    let skip = spare.as_ptr().align_offset(4096);
    &mut spare[skip..skip + len]
}

/// Runs a command and returns its duration.
pub fn time(command: &mut Command) -> io::Result<Duration> {
    let start = Instant::now();
    let status = command.status()?;
    if status.success() { Ok(start.elapsed()) } else { Err(io::Error::other(format!("{command:?}: {status}"))) }
}
