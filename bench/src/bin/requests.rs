//! Counts of what a work costs: the requests that the kernel sends to a mount, and the system calls
//! of servers and mount for a read. They are counts, so noise of the machine does not matter.
//!
//! `requests [--files 1000] [--tree 2000] [--reads 2000] [--json FILE]`. Needs root and tracefs.
//! The file system is that of `speed` over tcp. Cold phases begin with a new mount.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use clap::Parser;
use sheen_bench::{
    report::{Cell, Table, program, show, store},
    stage::{Stage, Transport},
    trace::{Event, Trace, count},
    tree,
    workers::{self, Files, Job, Records},
};

/// Requests of the kernel to a mount, and system calls of a read
#[derive(Parser)]
struct Args {
    /// Number of files in one directory
    #[arg(long, default_value_t = 1000)]
    files: usize,
    /// Number of source files in the archive
    #[arg(long, default_value_t = 2000)]
    tree: usize,
    /// Number of reads of 4 KiB
    #[arg(long, default_value_t = 2000)]
    reads: usize,
    /// Path of the sheen program
    #[arg(long, default_value = "target/release/sheen")]
    sheen: PathBuf,
    /// Directory of the file system; in memory
    #[arg(long, default_value = "/dev/shm/sheen-bench")]
    base: PathBuf,
    /// Also write the record to this file, as JSON: circumstances and tables
    #[arg(long)]
    json: Option<PathBuf>,
}

/// FUSE threads of the mount.
const THREADS: usize = 4;
/// Bytes of a small file.
const SMALL: usize = 3901;
/// Bytes of a read, and bytes from the start of one to the start of the next.
const READ: usize = 4096;
const STRIDE: usize = 9 * READ;
/// Bytes of a write.
const WRITE: usize = 1 << 20;
/// The event of a request of the kernel.
const SEND: &str = "events/fuse/fuse_request_send";
/// Requests that do not belong to one operation.
const IGNORED: [&str; 3] = ["FORGET", "BATCH_FORGET", "INTERRUPT"];
/// A system call is shown from this number for a read.
const SHOWN_MIN: f64 = 0.05;

fn main() -> ExitCode {
    program(run)
}

fn run() -> io::Result<()> {
    let args = Args::parse();
    let tables = [requests(&args)?, system_calls(&args)?];
    show(&tables);
    args.json.as_ref().map_or(Ok(()), |path| store(path, 1, &tables))
}

/// Counts the requests of the kernel.
fn requests(args: &Args) -> io::Result<Table> {
    let mut stage = Stage::sheen_tcp(&args.base, &args.sheen, THREADS, Transport::Device)?;
    let archive = tree::archive(&args.base, args.tree)?;
    let trace = Trace::new("sheen-requests")?;
    trace.set(&format!("{SEND}/enable"), "1")?;
    let mut table = Table::new("Requests of the kernel", ["phase", "requests"]);
    let mut phase = |name: &str, mount: &Path, act: &dyn Fn() -> io::Result<()>| -> io::Result<()> {
        let connection = rustix::fs::minor(fs::metadata(mount)?.dev());
        trace.set(&format!("{SEND}/filter"), &format!("connection == {connection}"))?;
        let counts = count(trace.record(act)?.iter().filter_map(kind));
        table.row(vec![name.into(), rendered(counts.into_iter().map(|(name, n)| (name, n as f64)), 0).into()]);
        Ok(())
    };
    let mount = stage.mount.clone();
    let files = |name: &str| Files::new(mount.join(name), args.files);
    let job = |job: Job| workers::run(&[job]).map(drop);
    let source = mount.join("source");
    fs::create_dir(&source)?;
    let n = args.files;
    phase(&format!("create {n} empty files, one directory"), &mount, &|| job(Job::Create(files("empty"))))?;
    phase("stat them", &mount, &|| job(Job::Stat(files("empty"))))?;
    phase("open, read and close them", &mount, &|| job(Job::Open(files("empty"))))?;
    phase("unlink them", &mount, &|| job(Job::Unlink(files("empty"))))?;
    phase(&format!("create and write {n} files of {SMALL} bytes"), &mount, &|| job(Job::Fill(files("small"), SMALL)))?;
    phase("open, read and close them", &mount, &|| job(Job::Open(files("small"))))?;
    let command = |words: &[&str], path: &Path| -> io::Result<()> {
        tree::time(Command::new(words[0]).args(&words[1..]).arg(path).current_dir(&source).stdout(Stdio::null()))
            .map(drop)
    };
    phase(&format!("`tar x` of {} files", args.tree), &mount, &|| command(&["tar", "xf"], &archive))?;
    fs::remove_file(&archive)?;
    stage.remount(THREADS, &[])?;
    phase("cold `du` of them", &mount, &|| command(&["du", "-s"], &source))?;
    stage.remount(THREADS, &[])?;
    phase("cold `ls -lR`", &mount, &|| command(&["ls", "-lR"], &source))?;
    phase("`ls -lR` again", &mount, &|| command(&["ls", "-lR"], &source))?;
    let remove = || tree::time(Command::new("rm").arg("-rf").arg(&source)).map(drop);
    phase("`rm -rf`", &mount, &remove)?;
    Ok(table)
}

/// Returns the kind of a request, such as `LOOKUP`, unless it is ignored.
fn kind(event: &Event) -> Option<String> {
    let (_, rest) = event.text.split_once("(FUSE_")?;
    let (kind, _) = rest.split_once(')')?;
    (!IGNORED.contains(&kind)).then(|| kind.to_owned())
}

/// Formats numbers with names, the largest first: `2000 GETATTR, 1000 CREATE`.
fn rendered(counts: impl Iterator<Item = (String, f64)>, decimals: usize) -> String {
    let mut all: Vec<(String, f64)> = counts.collect();
    all.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let words: Vec<String> = all.iter().map(|(name, count)| format!("{count:.decimals$} {name}")).collect();
    words.join(", ")
}

/// Counts the system calls of servers and mount, for each read of 4 KiB over tcp.
fn system_calls(args: &Args) -> io::Result<Table> {
    let mut stage = Stage::sheen_tcp(&args.base, &args.sheen, THREADS, Transport::Ring)?;
    let records = |bytes: usize, stride: usize, count: usize| Records {
        path: stage.mount.join("large"),
        bytes,
        first: 0,
        stride: stride as u64,
        count,
        rank: 0,
        page_offset: 0,
    };
    let written = Job::Write(records(WRITE, WRITE, (args.reads * STRIDE).div_ceil(WRITE)));
    let read = Job::ReadDirect(records(READ, STRIDE, args.reads));
    workers::run(&[written])?;
    stage.remount(THREADS, &[])?;
    let threads = threads(&stage.sheen.pids())?;
    let trace = Trace::new("sheen-calls")?;
    trace.system_calls(&threads.iter().map(|(tid, _)| *tid).collect::<Vec<u32>>())?;
    let events = trace.record(|| workers::run(&[read]).map(drop))?;
    let role = |event: &Event| {
        let known = threads.iter().find(|(tid, _)| *tid == event.tid);
        let role = known.map_or("new thread", |(_, role)| role.as_str());
        format!("{role}: {}", event.thread.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-'))
    };
    let mut table = Table::new("System calls of a read of 4 KiB over tcp", ["process and thread", "system calls"]);
    let call = |event: &Event| Some(event.text.strip_prefix("sys_")?.split_once('(')?.0.to_owned());
    for (row, _) in count(events.iter().map(role)) {
        let counts = count(events.iter().filter(|&event| role(event) == row).filter_map(call));
        let each = counts.into_iter().map(|(name, n)| (name, n as f64 / args.reads as f64));
        let calls = rendered(each.filter(|(_, each)| *each >= SHOWN_MIN), 1);
        if !calls.is_empty() {
            table.row(vec![row.into(), Cell::from(calls)]);
        }
    }
    Ok(table)
}

/// Returns the ids of all threads of some processes, with the commands of `sheen` that run there.
fn threads(pids: &[u32]) -> io::Result<Vec<(u32, String)>> {
    let mut all = Vec::new();
    for pid in pids {
        let line = fs::read(format!("/proc/{pid}/cmdline"))?;
        let role = line.split(|byte| *byte == 0).nth(1).unwrap_or_default();
        let role = String::from_utf8_lossy(role).into_owned();
        for task in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
            all.extend(task.file_name().to_str().and_then(|tid| tid.parse().ok()).map(|tid| (tid, role.clone())));
        }
    }
    Ok(all)
}
