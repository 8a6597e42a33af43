//! Worker processes that do their jobs at the same time, if wanted on different mounts.
//!
//! The parent ([`run`]) starts this program again as `… worker JOB` for each job, with the job as
//! JSON. A worker opens its files, prints `ready`, waits for a line, and works. It prints `wrote`
//! when the last write(2) has returned, and `done` when its data is durable. The result is the wall
//! time from the release of the workers to the last worker's message.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Write},
    ops::{Deref, DerefMut},
    os::unix::{
        fs::{FileExt, OpenOptionsExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::stop;

/// First argument of a worker process.
const WORD: &str = "worker";
/// Page size of memory in bytes.
const PAGE: usize = 4096;
const O_DIRECT: i32 = 0o40000;

/// Records of one process in a file, at the offsets `first`, `first + stride`, …
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Records {
    /// The file.
    pub path: PathBuf,
    /// Bytes of a record.
    pub bytes: usize,
    /// Offset of the first record.
    pub first: u64,
    /// Bytes from the start of one record to the start of the next.
    pub stride: u64,
    /// Number of records.
    pub count: usize,
    /// Rank of the process, which is part of the content.
    pub rank: usize,
    /// Offset in a page of the memory from which records are written. IOR uses 0, `malloc` returns
    /// 16.
    pub page_offset: usize,
}

/// Bytes in memory that begins at a given offset in a page.
struct Memory {
    bytes: Vec<u8>,
    from: usize,
}

impl Memory {
    fn new(content: impl ExactSizeIterator<Item = u8>, page_offset: usize) -> Memory {
        let mut bytes = Vec::<u8>::with_capacity(content.len() + PAGE + page_offset);
        let from = bytes.as_ptr().align_offset(PAGE) + page_offset;
        bytes.resize(from, 0);
        bytes.extend(content);
        Memory { bytes, from }
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.from..]
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.from..]
    }
}

impl Records {
    /// Puts the rank and the index at the start of `buffer`, which then has the content of record
    /// `index`.
    fn fill(&self, buffer: &mut [u8], index: usize) {
        for (to, number) in buffer.chunks_mut(8).zip([self.rank as u64, index as u64]) {
            to.copy_from_slice(&number.to_le_bytes()[..to.len()]);
        }
    }

    /// Returns memory for a record. It is created before the release, so that it costs no measured
    /// time.
    fn buffer(&self) -> Memory {
        Memory::new((0..self.bytes).map(|i| (i * 31 + self.rank) as u8), self.page_offset)
    }

    fn offset(&self, index: usize) -> u64 {
        self.first + index as u64 * self.stride
    }

    fn write(&self, file: &File, buffer: &mut [u8]) -> io::Result<()> {
        for index in 0..self.count {
            self.fill(buffer, index);
            file.write_all_at(buffer, self.offset(index))?;
        }
        Ok(())
    }

    fn read(&self, file: &File, buffer: &mut [u8]) -> io::Result<()> {
        (0..self.count).try_for_each(|index| file.read_exact_at(buffer, self.offset(index)))
    }

    fn check(&self, file: &File) -> io::Result<()> {
        let (mut want, mut got) = (self.buffer(), vec![0; self.bytes]);
        for index in 0..self.count {
            self.fill(&mut want, index);
            file.read_exact_at(&mut got, self.offset(index))?;
            if got[..] != want[..] {
                let (path, rank) = (self.path.display(), self.rank);
                return Err(io::Error::other(format!(
                    "{path}: record {index} of process {rank} is not what was written"
                )));
            }
        }
        Ok(())
    }
}

/// Small files of one process: `DIR/PREFIX00000000` and so on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Files {
    /// Their directory.
    pub dir: PathBuf,
    /// The part of their names before the number.
    pub prefix: String,
    /// Number of files.
    pub count: usize,
}

impl Files {
    /// Returns `count` files in a directory that no other process uses.
    pub fn new(dir: PathBuf, count: usize) -> Files {
        Files { dir, prefix: "file.".into(), count }
    }

    fn paths(&self) -> Vec<PathBuf> {
        (0..self.count).map(|i| self.dir.join(format!("{}{i:08}", self.prefix))).collect()
    }
}

/// The job of a process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Job {
    /// Write the records, then fsync. Creates the file if it does not exist.
    Write(Records),
    /// Read the records, and fail if they differ from those of `Write`.
    Check(Records),
    /// Write the records with O_DIRECT, without fsync. Creates the file if it does not exist.
    WriteDirect(Records),
    /// Read the records with O_DIRECT.
    ReadDirect(Records),
    /// Create the directory, and files of a number of bytes each.
    Fill(Files, usize),
    /// Create the directory, and empty files with O_EXCL.
    Create(Files),
    /// Open, read and close each file.
    Open(Files),
    /// Call `stat` on each file.
    Stat(Files),
    /// Unlink each file.
    Unlink(Files),
}

/// Wall time of the workers.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    /// Until the last write(2) of all workers returned.
    pub wrote: Duration,
    /// Until all data was durable.
    pub done: Duration,
}

/// Runs the jobs, all at the same time.
///
/// # Errors
/// If a worker failed (it reports the reason on standard error), or if the user interrupts the
/// program.
pub fn run(jobs: &[Job]) -> io::Result<Took> {
    run_as(None, jobs)
}

/// As [`run`], as the user and group of this id.
///
/// # Errors
/// As [`run`].
pub fn run_as(uid: Option<u32>, jobs: &[Job]) -> io::Result<Took> {
    stop::check()?;
    let me = std::env::current_exe()?;
    let mut workers = Vec::new();
    for job in jobs {
        let job = serde_json::to_string(job).map_err(io::Error::other)?;
        let mut command = Command::new(&me);
        if let Some(uid) = uid {
            command.uid(uid).gid(uid);
        }
        workers.push(Worker::start(command.args([WORD, &job]))?);
    }
    expect(&mut workers, "ready")?;
    let start = Instant::now();
    for worker in &mut workers {
        worker.release()?;
    }
    expect(&mut workers, "wrote")?;
    let wrote = start.elapsed();
    expect(&mut workers, "done")?;
    Ok(Took { wrote, done: start.elapsed() })
}

fn expect(workers: &mut [Worker], word: &str) -> io::Result<()> {
    for worker in workers {
        worker.expect(word).or_else(|e| stop::check().and(Err(e)))?;
    }
    Ok(())
}

/// A process that reports its progress.
struct Worker {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Worker {
    fn start(command: &mut Command) -> io::Result<Worker> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        stop::worker_started(child.id());
        let out = child.stdout.take().ok_or_else(|| io::Error::other("no pipe from the worker"))?;
        Ok(Worker { child, lines: BufReader::new(out) })
    }

    /// Waits until the worker prints `word`.
    fn expect(&mut self, word: &str) -> io::Result<()> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        if line.trim() == word { Ok(()) } else { Err(io::Error::other(format!("worker printed {line:?}, not {word}"))) }
    }

    /// Lets the worker begin.
    fn release(&mut self) -> io::Result<()> {
        let stdin = self.child.stdin.as_mut().ok_or_else(|| io::Error::other("no pipe to the worker"))?;
        stdin.write_all(b"go\n")?;
        stdin.flush()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        stop::worker_ending(self.child.id());
        if stop::check().is_err() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// Runs the job and returns true if this process was started as a worker. To be called first in
/// `main`.
pub fn maybe_worker() -> io::Result<bool> {
    let args: Vec<String> = std::env::args().collect();
    let [_, word, job] = args.as_slice() else { return Ok(false) };
    if word != WORD {
        return Ok(false);
    }
    work(&serde_json::from_str(job).map_err(io::Error::other)?)?;
    Ok(true)
}

/// Prints `ready`, and waits until the parent releases this worker. Fails if the parent process has
/// ended.
fn ready() -> io::Result<()> {
    say("ready")?;
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    if line.is_empty() { Err(io::Error::other("the parent process has ended")) } else { Ok(()) }
}

/// Prints a word for the parent.
fn say(word: &str) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{word}")?;
    out.flush()
}

fn work(job: &Job) -> io::Result<()> {
    match job {
        Job::Write(records) => {
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(&records.path)?;
            let mut buffer = records.buffer();
            timed(|| records.write(&file, &mut buffer))?;
            file.sync_all()?;
        }
        Job::Check(records) => {
            let file = File::open(&records.path)?;
            timed(|| records.check(&file))?;
        }
        Job::WriteDirect(records) => {
            let file = direct().write(true).create(true).truncate(false).open(&records.path)?;
            let mut buffer = records.buffer();
            timed(|| records.write(&file, &mut buffer))?;
        }
        Job::ReadDirect(records) => {
            let file = direct().read(true).open(&records.path)?;
            let mut buffer = records.buffer();
            timed(|| records.read(&file, &mut buffer))?;
        }
        Job::Fill(files, bytes) => {
            fs::create_dir_all(&files.dir)?;
            let content = vec![b's'; *bytes];
            each(files, |path| File::create(path)?.write_all(&content))?;
        }
        Job::Create(files) => {
            fs::create_dir_all(&files.dir)?;
            each(files, |path| OpenOptions::new().write(true).create_new(true).open(path).map(drop))?;
        }
        Job::Open(files) => {
            let mut content = Vec::new();
            each(files, |path| {
                content.clear();
                File::open(path)?.read_to_end(&mut content).map(drop)
            })?;
        }
        Job::Stat(files) => each(files, |path| fs::symlink_metadata(path).map(drop))?,
        Job::Unlink(files) => each(files, |path| fs::remove_file(path))?,
    }
    say("done")
}

fn direct() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(O_DIRECT);
    options
}

/// Waits for the release, and acts.
fn timed(act: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    ready()?;
    act()?;
    say("wrote")
}

fn each(files: &Files, mut act: impl FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let paths = files.paths();
    timed(|| paths.iter().try_for_each(|path| act(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_finds_missing_and_damaged_records() {
        let file = tempfile::tempfile().unwrap();
        let of = |rank: usize| Records {
            path: "shared".into(),
            bytes: 1000,
            first: rank as u64 * 1000,
            stride: 2000,
            count: 3,
            rank,
            page_offset: 16,
        };
        let write = |rank: usize| of(rank).write(&file, &mut of(rank).buffer()).unwrap();
        write(0);
        assert!(of(1).check(&file).is_err(), "the records of process 1 are missing");
        write(1);
        assert_eq!(file.metadata().unwrap().len(), 6000, "the records fill the file without a gap");
        of(0).check(&file).unwrap();
        of(1).check(&file).unwrap();
        file.write_all_at(b"?", 5999).unwrap();
        of(0).check(&file).unwrap();
        let message = of(1).check(&file).unwrap_err().to_string();
        assert_eq!(message, "shared: record 2 of process 1 is not what was written");
    }
}
