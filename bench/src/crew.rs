//! Jobs done by processes of their own that start together, if wanted on different mounts.
//!
//! The parent ([`run`]) starts this program again as `… crew JOB` for each job, with the job as
//! JSON. A worker opens its files, prints `ready`, waits for a line, and works. It prints `wrote`
//! when the last write(2) has returned, and `done` when its data is durable. The result is the wall
//! time from the release of the workers to the last worker's message.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Write},
    ops::{Deref, DerefMut},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::stop;

const WORD: &str = "crew";
/// Page size of memory in bytes.
const PAGE: usize = 4096;

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
    pub aside: usize,
}

/// Bytes in memory that begins at a given offset in a page.
struct Memory {
    bytes: Vec<u8>,
    from: usize,
}

impl Memory {
    fn new(content: impl ExactSizeIterator<Item = u8>, aside: usize) -> Memory {
        let mut bytes = Vec::<u8>::with_capacity(content.len() + PAGE + aside);
        let from = bytes.as_ptr().align_offset(PAGE) + aside;
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

    fn buffer(&self) -> Memory {
        Memory::new((0..self.bytes).map(|i| (i * 31 + self.rank) as u8), self.aside)
    }

    fn offset(&self, index: usize) -> u64 {
        self.first + index as u64 * self.stride
    }

    fn write(&self, file: &File) -> io::Result<()> {
        let mut buffer = self.buffer();
        for index in 0..self.count {
            self.fill(&mut buffer, index);
            file.write_all_at(&buffer, self.offset(index))?;
        }
        Ok(())
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

/// The job of a process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Job {
    /// Write the records, then fsync. Creates the file if it does not exist.
    Write(Records),
    /// Read the records, and fail if they differ from those of `Write`.
    Check(Records),
    /// Create a number of files of a number of bytes each in a directory.
    Fill(PathBuf, usize, usize),
    /// Open, read and close each of these files.
    Open(PathBuf, usize),
    /// Call `stat` on each of these files.
    Stat(PathBuf, usize),
}

/// Wall time of a crew.
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
    stop::check()?;
    let me = std::env::current_exe()?;
    let mut workers = Vec::new();
    for job in jobs {
        let job = serde_json::to_string(job).map_err(io::Error::other)?;
        workers.push(Worker::start(Command::new(&me).args([WORD, &job]))?);
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
#[derive(Debug)]
pub struct Worker {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts a worker.
    pub fn start(command: &mut Command) -> io::Result<Worker> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        stop::born(child.id());
        let out = child.stdout.take().ok_or_else(|| io::Error::other("no pipe from the worker"))?;
        Ok(Worker { child, lines: BufReader::new(out) })
    }

    /// Waits until the worker prints `word`.
    pub fn expect(&mut self, word: &str) -> io::Result<()> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        if line.trim() == word { Ok(()) } else { Err(io::Error::other(format!("worker printed {line:?}, not {word}"))) }
    }

    /// Lets the worker begin.
    pub fn release(&mut self) -> io::Result<()> {
        let stdin = self.child.stdin.as_mut().ok_or_else(|| io::Error::other("no pipe to the worker"))?;
        stdin.write_all(b"go\n")?;
        stdin.flush()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        stop::gone(self.child.id());
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
pub fn ready() -> io::Result<()> {
    say("ready")?;
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    if line.is_empty() { Err(io::Error::other("the parent process has ended")) } else { Ok(()) }
}

/// Prints a word for the parent.
pub fn say(word: &str) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{word}")?;
    out.flush()
}

fn work(job: &Job) -> io::Result<()> {
    match job {
        Job::Write(records) => write(records)?,
        Job::Check(records) => check(records)?,
        Job::Fill(dir, files, bytes) => {
            fs::create_dir_all(dir)?;
            let content = vec![b's'; *bytes];
            each(dir, *files, |path| File::create(path)?.write_all(&content))?;
        }
        Job::Open(dir, files) => {
            let mut content = Vec::new();
            each(dir, *files, |path| {
                content.clear();
                File::open(path)?.read_to_end(&mut content).map(drop)
            })?;
        }
        Job::Stat(dir, files) => each(dir, *files, |path| fs::symlink_metadata(path).map(drop))?,
    }
    say("done")
}

fn write(records: &Records) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&records.path)?;
    ready()?;
    records.write(&file)?;
    say("wrote")?;
    file.sync_all()
}

fn check(records: &Records) -> io::Result<()> {
    let file = File::open(&records.path)?;
    ready()?;
    records.check(&file)?;
    say("wrote")
}

fn each(dir: &Path, files: usize, mut act: impl FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let names: Vec<PathBuf> = (0..files).map(|i| dir.join(format!("file.{i:08}"))).collect();
    ready()?;
    names.iter().try_for_each(|name| act(name))?;
    say("wrote")
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
            aside: 16,
        };
        of(0).write(&file).unwrap();
        assert!(of(1).check(&file).is_err(), "the records of process 1 are missing");
        of(1).write(&file).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 6000, "the records fill the file without a gap");
        of(0).check(&file).unwrap();
        of(1).check(&file).unwrap();
        file.write_all_at(b"?", 5999).unwrap();
        of(0).check(&file).unwrap();
        let told = of(1).check(&file).unwrap_err().to_string();
        assert_eq!(told, "shared: record 2 of process 1 is not what was written");
    }
}
