//! The cost of a million files: time to create, list and remove them, memory of the server and of
//! another mount, and time to restart.
//!
//! `million [--files 10000,100000,1000000] [--sheen PATH] [--base DIR] [--json FILE]`. The server
//! is the all-in-one process of `sheen up`, so its memory includes MDT, OSTs and a client. The
//! other mount has a process of its own, over tcp. Each number of files is measured once, on a file
//! system of its own.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use clap::Parser;
use sheen_bench::{
    report::{Cell, Table, program, show, store},
    workers::{self, Files, Job},
};

#[derive(Parser)]
struct Args {
    /// Numbers of files; four processes create them in one directory.
    #[arg(long, value_delimiter = ',', default_value = "10000,100000,1000000")]
    files: Vec<usize>,
    /// Path of the sheen program.
    #[arg(long, default_value = "target/release/sheen")]
    sheen: PathBuf,
    /// Directory of the file system.
    #[arg(long, default_value = "/dev/shm/sheen-million")]
    base: PathBuf,
    /// Also write the record to this file, as JSON: circumstances and table
    #[arg(long)]
    json: Option<PathBuf>,
}

const PROCESSES: usize = 4;
/// Time in which idle processes are watched.
const IDLE: Duration = Duration::from_secs(5);

/// Values of a number of files, in the order of [`ROWS`].
type Values = [Cell; ROWS.len()];

const ROWS: [&str; 13] = [
    "create, four processes, one directory",
    "memory of the server after that",
    "`ls -f` on another mount",
    "`ls -l` there, cold",
    "`ls -l` there again",
    "memory of the other mount, idle",
    "processor time of server and other mount, idle for 5 s",
    "memory of the other mount at the end",
    "restart: `sheen down`",
    "restart: `sheen up`",
    "memory of the server after that",
    "first `stat` after that",
    "unlink, four processes",
];

fn main() -> ExitCode {
    program(run_all)
}

fn run_all() -> io::Result<()> {
    let args = Args::parse();
    let mut all = Vec::new();
    for files in &args.files {
        all.push(run_and_clean_up(&args, *files)?);
    }
    let columns = args.files.iter().map(|&files| Cell::number(files as f64, 0, "files").to_string());
    let mut table = Table::new("", std::iter::once(String::new()).chain(columns));
    for (number, name) in ROWS.iter().enumerate() {
        let cells = all.iter().map(|values: &Values| values[number].clone());
        table.row(std::iter::once(Cell::from(*name)).chain(cells).collect());
    }
    let tables = [table];
    show(&tables);
    args.json.as_ref().map_or(Ok(()), |path| store(path, 1, &tables))
}

fn run_and_clean_up(args: &Args, files: usize) -> io::Result<Values> {
    let outcome = measure(args, files);
    let _ = Command::new(&args.sheen)
        .arg("umount")
        .arg("--force")
        .arg(args.base.join("idle"))
        .stderr(Stdio::null())
        .status();
    let _ = up_down(args, &["down", "--force"]);
    let _ = fs::remove_dir_all(&args.base);
    outcome
}

fn measure(args: &Args, wanted: usize) -> io::Result<Values> {
    let mnt = args.base.join("mnt");
    let up = ["up", "--mount", &mnt.to_string_lossy(), "--listen", "127.0.0.1:0"];
    up_down(args, &up)?;
    let dir = mnt.join("shared");
    let count = wanted / PROCESSES;
    let files = |rank: usize| Files { dir: dir.clone(), prefix: format!("rank{rank}."), count };
    let rate = |work: fn(Files) -> Job| -> io::Result<Cell> {
        let took = workers::run(&(0..PROCESSES).map(|rank| work(files(rank))).collect::<Vec<Job>>())?;
        Ok(Cell::number((PROCESSES * count) as f64 / took.done.as_secs_f64(), 0, "/s"))
    };
    let created = rate(Job::Create)?;
    let after_create = rss(server(args)?)?;
    let listed = fs::read_dir(&dir)?.count();
    if listed != PROCESSES * count {
        return Err(io::Error::other(format!("{listed} entries listed, {} created", PROCESSES * count)));
    }
    let idle = args.base.join("idle");
    fs::create_dir_all(&idle)?;
    let status = json(args)?;
    let source = status["source"].as_str().unwrap_or_default().to_owned();
    run(Command::new(&args.sheen).arg("mount").arg(source).arg(&idle))?;
    let memory_idle = rss(client(&idle)?)?;
    let idle_ticks = ticks_when_idle(&[server(args)?, client(&idle)?])?;
    let list = |option: &str| seconds(|| run(Command::new("ls").arg(option).arg(idle.join("shared"))));
    let (names, cold, again) = (list("-f")?, list("-l")?, list("-l")?);
    let memory_at_end = rss(client(&idle)?)?;
    run(Command::new(&args.sheen).arg("umount").arg(&idle))?;
    let down = seconds(|| up_down(args, &["down"]))?;
    let restarted = seconds(|| up_down(args, &up))?;
    let after_restart = rss(server(args)?)?;
    let start = Instant::now();
    fs::metadata(dir.join("rank0.00000000"))?;
    let stat = Cell::number(start.elapsed().as_secs_f64() * 1e3, 1, "ms");
    let removed = rate(Job::Unlink)?;
    Ok([
        created,
        after_create,
        names,
        cold,
        again,
        memory_idle,
        idle_ticks,
        memory_at_end,
        down,
        restarted,
        after_restart,
        stat,
        removed,
    ])
}

/// Returns the duration of an action.
fn seconds(act: impl FnOnce() -> io::Result<()>) -> io::Result<Cell> {
    let start = Instant::now();
    act()?;
    Ok(Cell::number(start.elapsed().as_secs_f64(), 2, "s"))
}

fn up_down(args: &Args, words: &[&str]) -> io::Result<()> {
    run(Command::new(&args.sheen).args(words).arg("--dir").arg(args.base.join("fs")))
}

fn run(command: &mut Command) -> io::Result<()> {
    let status = command.stdout(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{command:?}: {status}"))) }
}

fn json(args: &Args) -> io::Result<serde_json::Value> {
    let out = Command::new(&args.sheen).args(["status", "--json", "--dir"]).arg(args.base.join("fs")).output()?;
    serde_json::from_slice(&out.stdout).map_err(io::Error::other)
}

fn server(args: &Args) -> io::Result<u64> {
    json(args)?["pid"].as_u64().ok_or_else(|| io::Error::other("the server does not run"))
}

/// Returns the process that serves a mount of its own: the one with the mount point on its command
/// line.
fn client(mountpoint: &Path) -> io::Result<u64> {
    let wanted = mountpoint.to_string_lossy().into_owned();
    for process in fs::read_dir("/proc")?.flatten() {
        let Ok(pid) = process.file_name().to_string_lossy().parse::<u64>() else { continue };
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        if line.contains(&wanted) && line.contains("--foreground") {
            return Ok(pid);
        }
    }
    Err(io::Error::other("the mount's process was not found"))
}

/// Returns the processor time that processes use while nobody uses the file system, in clock ticks.
fn ticks_when_idle(pids: &[u64]) -> io::Result<Cell> {
    let all = || pids.iter().map(|pid| ticks(*pid)).sum::<io::Result<u64>>();
    let before = all()?;
    thread::sleep(IDLE);
    Ok(Cell::number((all()? - before) as f64, 0, "ticks"))
}

/// Returns the processor time of a process so far, in clock ticks.
fn ticks(pid: u64) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name of the program is in parentheses, and may contain spaces.
    let (_, fields) = stat.rsplit_once(')').unwrap_or_default();
    Ok(fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum())
}

/// Returns the resident memory of a process.
fn rss(pid: u64) -> io::Result<Cell> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap_or_default();
    let kib: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or_default();
    Ok(Cell::number((kib >> 10) as f64, 0, "MiB"))
}
