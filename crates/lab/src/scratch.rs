//! A file system with several mounts, for measurements only. The servers run in one process of
//! `sheen up`. Each mount has a process of its own over tcp. Optionally, the first mount is in the
//! servers' process over `lo`.
//!
//! All files of a run are in its [`RunDir`], which is removed at the end, even after a failure. The
//! next run removes the leftovers of a killed run.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use rustix::process::{Signal, getuid};

use crate::{counters::Counters, output::named, program::Sheen, progress::Progress, stop};

/// Time in which a process must end by itself and write back its dirty data.
const END_TIMEOUT: Duration = Duration::from_secs(20);
/// Statistics that count the destruction of objects: those of the OSTs, and of data on the MDT.
const DESTROYS: &[&str] = &["obdfilter.*.stats", "dom.*.stats"];
/// Time limit for the destruction of a removed file's objects. A file without a layout takes this
/// long.
const DESTROY_TIMEOUT: Duration = Duration::from_secs(3);
/// All objects are destroyed when none has been destroyed for this long.
const DESTROY_QUIET: Duration = Duration::from_millis(50);
/// Address of servers and mounts on one host.
const LOOPBACK: &str = "127.0.0.1";
const POLL: Duration = Duration::from_millis(20);
/// FUSE threads of each mount of a tool's own file system.
const FUSE_THREADS: usize = 4;

// A doc comment here would become the description of the tool in `--help`.
#[allow(missing_docs, reason = "as above")]
#[derive(Args, Clone, Debug, Default)]
pub struct ScratchArgs {
    /// Directory of the tool's own file system [default: one in memory, in /dev/shm]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// Disks of the tool's own file system: hdd, flash, or a file, as for sheen up [default: not
    /// modelled]
    #[arg(long, value_name = "MODEL")]
    pub ost_model: Option<String>,
}

/// Counter of locks granted to clients, in the statistics of a namespace.
pub const GRANTS: &str = "grants";
/// Counter of blocking callbacks sent to clients.
pub const CALLBACKS: &str = "ldlm_bl_callback";
/// Counter of locks that the server took for itself, to serve clients that hold no lock.
pub const OWN: &str = "local";

/// The directory of one run of a program.
#[derive(Debug)]
pub struct RunDir {
    dir: PathBuf,
    program: PathBuf,
}

impl RunDir {
    /// Creates `base/NAME.PID`, and removes what killed runs have left in `base`.
    pub fn claim(base: &Path, name: &str, program: &Path) -> io::Result<RunDir> {
        fs::create_dir_all(base)?;
        let program = program
            .canonicalize()
            .map_err(|e| io::Error::other(format!("{}: {e}; `make build` builds it", program.display())))?;
        for entry in fs::read_dir(base)?.flatten() {
            let left = entry.file_name().to_str().and_then(|n| n.rsplit_once('.')?.1.parse::<u32>().ok());
            if left.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
                eprintln!("removing the leftovers of a killed run: {}", entry.path().display());
                clear(&entry.path(), &program);
            }
        }
        let dir = base.canonicalize()?.join(format!("{name}.{}", std::process::id()));
        fs::create_dir_all(&dir)?;
        Ok(RunDir { dir, program })
    }

    /// Returns the path of the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        clear(&self.dir, &self.program);
    }
}

/// The parameters of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Name in tables, and name of its directory.
    pub name: &'static str,
    /// Number of OSTs, all in the servers' process.
    pub osts: usize,
    /// Number of mounts.
    pub mounts: usize,
    /// Whether the first mount is in the servers' process, over `lo`.
    pub lo: bool,
    /// FUSE threads of each mount.
    pub threads: usize,
}

/// A running file system.
#[derive(Debug)]
pub struct Cluster {
    /// Its parameters.
    pub plan: Plan,
    address: &'static str,
    /// Argument of `--ost-model`.
    model: Option<String>,
    /// Its mount points.
    pub mounts: Vec<PathBuf>,
    /// The program that serves it.
    pub sheen: Sheen,
    dir: PathBuf,
    program: PathBuf,
}

impl Cluster {
    /// Starts a file system and its mounts.
    pub fn up(run_dir: &RunDir, plan: Plan) -> io::Result<Cluster> {
        Cluster::start(run_dir, plan, LOOPBACK, None)
    }

    /// As [`Cluster::up`], with modelled disks: an argument of `--ost-model`.
    pub fn up_modelled(run_dir: &RunDir, plan: Plan, model: Option<String>) -> io::Result<Cluster> {
        Cluster::start(run_dir, plan, LOOPBACK, model)
    }

    /// As [`Cluster::up`]; the servers listen on this IP address.
    pub fn up_at(run_dir: &RunDir, plan: Plan, address: &'static str) -> io::Result<Cluster> {
        Cluster::start(run_dir, plan, address, None)
    }

    fn start(run_dir: &RunDir, plan: Plan, address: &'static str, model: Option<String>) -> io::Result<Cluster> {
        let dir = run_dir.dir.join(plan.name.replace(' ', "-"));
        fs::create_dir_all(&dir)?;
        let mounts: Vec<PathBuf> = (0..plan.mounts).map(|i| dir.join(format!("m{i}"))).collect();
        let sheen = Sheen::new(&run_dir.program, dir.join("run"));
        let cluster = Cluster { plan, address, model, mounts, sheen, dir, program: run_dir.program.clone() };
        let progress = Progress::new(1 + plan.mounts - usize::from(plan.lo));
        progress.step(&format!("{}: servers", plan.name), || cluster.serve())?;
        for at in cluster.mounts.iter().skip(usize::from(plan.lo)) {
            progress.step(&format!("{}: mounts", plan.name), || cluster.mount(at))?;
        }
        drop(progress);
        Ok(cluster)
    }

    fn serve(&self) -> io::Result<()> {
        let (osts, threads) = (self.plan.osts.to_string(), self.plan.threads.to_string());
        let listen = format!("{}:0", self.address);
        let mut words =
            vec!["up", "--default-layout", "plain", "--osts", &osts, "--listen", &listen, "--fuse-threads", &threads];
        let (fs, first) = (self.fs(), self.mounts.first().map(|m| m.to_string_lossy()).unwrap_or_default());
        words.extend(["--dir", &fs]);
        words.extend(self.model.iter().flat_map(|model| ["--ost-model", model]));
        if self.plan.lo {
            words.extend(["--mount", &first]);
        }
        self.sheen.run(words).map(drop)
    }

    fn mount(&self, at: &Path) -> io::Result<()> {
        let status = self.sheen.run(["status", "--json", "--dir", &self.fs()])?;
        let status: serde_json::Value = serde_json::from_str(&status).map_err(io::Error::other)?;
        let source = status["source"].as_str().ok_or_else(|| io::Error::other("the servers do not run"))?;
        let threads = self.plan.threads.to_string();
        self.sheen.run(["mount", source, &at.to_string_lossy(), "--fuse-threads", &threads]).map(drop)
    }

    fn fs(&self) -> String {
        self.dir.join("fs").to_string_lossy().into_owned()
    }

    /// Unmounts and mounts again, so that the client's caches are empty. Over `lo`, this restarts
    /// the servers as well.
    pub fn remount(&self, index: usize) -> io::Result<()> {
        if self.plan.lo && index == 0 {
            self.sheen.run(["down", "--dir", &self.fs()])?;
            return self.serve();
        }
        let at = &self.mounts[index];
        let before = self.sheen.pids().len();
        self.sheen.run(["umount", &at.to_string_lossy()])?;
        until(|| self.sheen.pids().len() < before);
        self.mount(at)
    }

    /// As [`remove`], for a file or directory.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        remove(&self.sheen, DESTROYS, path)
    }

    /// Returns the counters of the OSTs (`write`, `write_bytes`) and of their locks: [`GRANTS`],
    /// [`CALLBACKS`], [`OWN`].
    ///
    /// # Errors
    /// If a server lacks one of the lock counters: conclusions from them would be wrong.
    pub fn counters(&self) -> io::Result<Counters> {
        let all = self.sheen.counters(&["obdfilter.*.stats", "ldlm.namespaces.filter-*.stats"])?;
        match [GRANTS, CALLBACKS, OWN].into_iter().find(|name| !all.has(name)) {
            Some(name) => Err(io::Error::other(format!("ldlm.namespaces.filter-*.stats does not count {name}"))),
            None => Ok(all),
        }
    }

    /// Returns the counters of requests to MDT and OSTs.
    pub fn requests(&self) -> io::Result<Counters> {
        self.sheen.counters(&["mdt.*.md_stats", "obdfilter.*.stats"])
    }

    /// As [`Sheen::setstripe`].
    pub fn setstripe(&self, path: &Path, words: &[&str]) -> io::Result<()> {
        self.sheen.setstripe(path, words)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        take_down(&self.dir, &self.program);
    }
}

/// A tool's own file system. It is taken down at the end.
#[derive(Debug)]
pub struct Own {
    /// The file system.
    pub cluster: Cluster,
    // Dropped after the cluster.
    run_dir: RunDir,
}

impl Own {
    /// Sets up a file system. `tool` names its directory.
    ///
    /// # Errors
    /// The directory is another user's; a process does not start.
    pub fn up(args: &ScratchArgs, tool: &str, osts: usize, mounts: usize) -> io::Result<Own> {
        let base = args.scratch.clone().unwrap_or_else(|| format!("/dev/shm/sheen-lab-{}", getuid().as_raw()).into());
        private(&base)?;
        let run_dir = RunDir::claim(&base, tool, &std::env::current_exe()?)?;
        let plan = Plan { name: "lab", osts, mounts, lo: false, threads: FUSE_THREADS };
        let cluster = Cluster::up_modelled(&run_dir, plan, args.ost_model.clone())?;
        Ok(Own { cluster, run_dir })
    }

    /// Returns a directory of the run, outside of the file system.
    pub fn dir(&self) -> &Path {
        self.run_dir.dir()
    }
}

/// Creates a directory for this user alone, or checks that it is the user's.
fn private(base: &Path) -> io::Result<()> {
    let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(base);
    created.map_err(|e| named("create", base, &e))?;
    let owner = fs::symlink_metadata(base).map_err(|e| named("look at", base, &e))?.uid();
    if owner == getuid().as_raw() {
        return Ok(());
    }
    Err(io::Error::other(format!("{} belongs to another user: name a directory with --scratch", base.display())))
}

/// Removes a file, or a directory with its content, and waits until the servers have destroyed the
/// objects. Otherwise the destruction would run during the next measurement. `counted`: the
/// statistics of the servers.
pub fn remove(sheen: &Sheen, counted: &[&str], path: &Path) -> io::Result<()> {
    let destroyed = || Ok::<u64, io::Error>(sheen.counters(counted)?.get("destroy").count);
    let before = destroyed()?;
    if path.is_dir() {
        fs::remove_dir_all(path)?
    } else {
        fs::remove_file(path)?
    }
    // Objects are destroyed after the MDT has committed the removal of their files.
    fs::File::open(path.parent().unwrap_or(path))?.sync_all()?;
    let (end, mut last) = (Instant::now() + DESTROY_TIMEOUT, before);
    while Instant::now() < end {
        thread::sleep(DESTROY_QUIET);
        let now = destroyed()?;
        if now == last && now > before {
            break;
        }
        last = now;
    }
    Ok(())
}

/// Stops all clusters in the directory of a run, and removes it.
fn clear(run_dir: &Path, program: &Path) {
    for entry in fs::read_dir(run_dir).into_iter().flatten().flatten() {
        take_down(&entry.path(), program);
    }
    let _ = fs::remove_dir(run_dir);
}

/// Unmounts the mounts in the directory, ends its processes, and removes it.
fn take_down(dir: &Path, program: &Path) {
    let sheen = Sheen::new(program, dir.join("run"));
    let fs_dir = dir.join("fs");
    for at in mounted_below(dir) {
        if sheen.run(["umount", &at]).is_err() {
            let _ = Command::new("umount").args(["--lazy", &at]).stderr(Stdio::null()).status();
        }
    }
    // Clients write back their dirty data before the servers end.
    until(|| sheen.pids().len() <= 1);
    if fs_dir.exists() {
        let _ = sheen.run(["down", "--force", "--dir", &fs_dir.to_string_lossy()]);
    }
    if !until(|| sheen.pids().is_empty()) {
        for pid in sheen.pids() {
            eprintln!("process {pid} does not end; killing it");
            stop::kill(pid, Signal::KILL);
        }
    }
    // If a file system is still mounted, remove_dir_all would delete its content.
    if mounted_below(dir).is_empty() {
        let _ = fs::remove_dir_all(dir);
    }
}

/// Returns the mount points in a directory, the newest first.
fn mounted_below(dir: &Path) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let points = mounts.lines().rev().filter_map(|line| line.split(' ').nth(1));
    points.filter(|at| Path::new(at).starts_with(dir)).map(str::to_owned).collect()
}

/// Waits until a condition holds, for at most [`END_TIMEOUT`]. Returns whether it holds.
fn until(mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + END_TIMEOUT;
    while !holds() {
        if Instant::now() > end {
            return false;
        }
        thread::sleep(POLL);
    }
    true
}
