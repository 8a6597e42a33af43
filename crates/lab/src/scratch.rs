//! A file system with several mounts, for measurements only. The servers run in one process of
//! `sheen up`. Each mount has a process of its own over tcp. Optionally, the first mount is in the
//! servers' process over `lo`.
//!
//! All files of a run are in its [`RunDir`], which is removed at the end, even after a failure. The
//! next run removes the leftovers of a killed run.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use rustix::process::getuid;

pub use crate::run_dir::RunDir;
use crate::{counters::Counters, program::Sheen, progress::Progress, run_dir, size::human};

/// Statistics that count the destruction of objects: those of the OSTs, and of data on the MDT.
const DESTROYS: &[&str] = &["obdfilter.*.stats", "dom.*.stats"];
/// Time limit for the destruction of a removed file's objects. A file without a layout takes this
/// long.
const DESTROY_TIMEOUT: Duration = Duration::from_secs(3);
/// All objects are destroyed when none has been destroyed for this long.
const DESTROY_QUIET: Duration = Duration::from_millis(50);
/// Address of servers and mounts on one host.
const LOOPBACK: &str = "127.0.0.1";
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

impl ScratchArgs {
    /// Returns the directory of the file system.
    fn base(&self) -> PathBuf {
        self.scratch.clone().unwrap_or_else(base_in_memory)
    }

    /// Checks that a file of this many bytes fits, with as much again for logs and databases.
    ///
    /// # Errors
    /// It does not. The message says what to do.
    pub fn check_space(&self, bytes: u64) -> io::Result<()> {
        let base = self.base();
        let Some(space) = base.ancestors().find_map(|dir| rustix::fs::statvfs(dir).ok()) else { return Ok(()) };
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        if bytes.saturating_mul(2) <= free {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "the largest file takes {}, and {} has {} free: name a directory with --scratch, or measure less data",
            human(bytes),
            base.display(),
            human(free)
        )))
    }
}

/// Returns the directory of this user's runs, in memory.
pub fn base_in_memory() -> PathBuf {
    format!("/dev/shm/sheen-lab-{}", getuid().as_raw()).into()
}

/// Counter of locks granted to clients, in the statistics of a namespace.
pub const GRANTS: &str = "grants";
/// Counter of blocking callbacks sent to clients.
pub const CALLBACKS: &str = "ldlm_bl_callback";
/// Counter of locks that the server took for itself, to serve clients that hold no lock.
pub const OWN: &str = "local";

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
        let dir = run_dir.dir().join(plan.name.replace(' ', "-"));
        fs::create_dir_all(&dir)?;
        let mounts: Vec<PathBuf> = (0..plan.mounts).map(|i| dir.join(format!("m{i}"))).collect();
        let sheen = Sheen::new(run_dir.program(), dir.join("run")).with_keys(dir.join("keys"));
        let cluster = Cluster { plan, address, model, mounts, sheen, dir, program: run_dir.program().to_owned() };
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
        run_dir::until(|| self.sheen.pids().len() < before);
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
        run_dir::take_down(&self.dir, &self.program);
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
        let run_dir = RunDir::claim(&args.base(), tool, &std::env::current_exe()?)?;
        let plan = Plan { name: "lab", osts, mounts, lo: false, threads: FUSE_THREADS };
        let cluster = Cluster::up_modelled(&run_dir, plan, args.ost_model.clone())?;
        Ok(Own { cluster, run_dir })
    }

    /// Returns a directory of the run, outside of the file system.
    pub fn dir(&self) -> &Path {
        self.run_dir.dir()
    }
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
