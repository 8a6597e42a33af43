//! The cost of a million files: time to create, list and remove them, memory of the server and of
//! another mount, and time to restart.
//!
//! `million [--files 1000000] [--sheen PATH] [--base DIR]`. The server is the all-in-one process of
//! `sheen up`, so its memory includes MDT, OSTs and a client. The other mount has a process of its
//! own, over tcp.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::Instant,
};

use clap::Parser;
use sheen_bench::{
    report::program,
    workers::{self, Files, Job},
};

#[derive(Parser)]
struct Args {
    /// Number of files; four processes create them in one directory.
    #[arg(long, default_value_t = 1_000_000)]
    files: usize,
    /// Path of the sheen program.
    #[arg(long, default_value = "target/release/sheen")]
    sheen: PathBuf,
    /// Directory of the file system.
    #[arg(long, default_value = "/dev/shm/sheen-million")]
    base: PathBuf,
}

const PROCESSES: usize = 4;

fn main() -> ExitCode {
    program(run_and_clean_up)
}

fn run_and_clean_up() -> io::Result<()> {
    let args = Args::parse();
    let outcome = measure(&args);
    let _ = Command::new(&args.sheen)
        .arg("umount")
        .arg("--force")
        .arg(args.base.join("idle"))
        .stderr(Stdio::null())
        .status();
    let _ = up_down(&args, &["down", "--force"]);
    let _ = fs::remove_dir_all(&args.base);
    outcome
}

fn measure(args: &Args) -> io::Result<()> {
    let mnt = args.base.join("mnt");
    let up = ["up", "--mount", &mnt.to_string_lossy(), "--listen", "127.0.0.1:0"];
    up_down(args, &up)?;
    let dir = mnt.join("shared");
    let count = args.files / PROCESSES;
    let files = |rank: usize| Files { dir: dir.clone(), prefix: format!("rank{rank}."), count };
    let took = workers::run(&(0..PROCESSES).map(|rank| Job::Create(files(rank))).collect::<Vec<Job>>())?;
    let rate = (PROCESSES * count) as f64 / took.done.as_secs_f64();
    println!("create, {PROCESSES} processes, one directory: {rate:.0} files/s");
    println!("server, {} files: {} MiB resident", args.files, rss(server(args)?)?);
    let start = Instant::now();
    let listed = fs::read_dir(&dir)?.count();
    println!("readdir of {listed} entries: {:.1} s", start.elapsed().as_secs_f64());
    if listed != args.files {
        return Err(io::Error::other(format!("{listed} entries listed, {} created", args.files)));
    }
    println!("server after listing: {} MiB resident", rss(server(args)?)?);
    let idle = args.base.join("idle");
    fs::create_dir_all(&idle)?;
    let status = json(args)?;
    let source = status["source"].as_str().unwrap_or_default().to_owned();
    run(Command::new(&args.sheen).arg("mount").arg(source).arg(&idle))?;
    println!("another mount, idle: {} MiB resident", rss(client(&idle)?)?);
    for (how, option) in [("ls -f", "-f"), ("ls -l, cold", "-l"), ("ls -l again", "-l")] {
        let start = Instant::now();
        run(Command::new("ls").arg(option).arg(idle.join("shared")))?;
        let (took, resident) = (start.elapsed().as_secs_f64(), rss(client(&idle)?)?);
        println!("{how} there: {took:.2} s, {resident} MiB resident");
    }
    run(Command::new(&args.sheen).arg("umount").arg(&idle))?;
    let start = Instant::now();
    up_down(args, &["down"])?;
    println!("down: {:.2} s", start.elapsed().as_secs_f64());
    let start = Instant::now();
    up_down(args, &up)?;
    println!("up again: {:.2} s, {} MiB resident", start.elapsed().as_secs_f64(), rss(server(args)?)?);
    let start = Instant::now();
    fs::metadata(dir.join("rank0.00000000"))?;
    println!("first stat after that: {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    let took = workers::run(&(0..PROCESSES).map(|rank| Job::Unlink(files(rank))).collect::<Vec<Job>>())?;
    let rate = (PROCESSES * count) as f64 / took.done.as_secs_f64();
    println!("unlink, {PROCESSES} processes: {rate:.0} files/s");
    Ok(())
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

/// Returns the resident memory of a process, in MiB.
fn rss(pid: u64) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap_or_default();
    let kib: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or_default();
    Ok(kib >> 10)
}
