//! A file system with several mounts: servers in one process of `sheen up`, each mount in a process
//! of its own over tcp, the first one if wanted in the servers' process over `lo`. All that belongs
//! to a run lies in its [`Place`] and is taken down with it, also after a failure; what a killed
//! run has left, the next one clears away.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::{
    report::Progress,
    sheen::{Counters, Sheen},
    stop,
};

/// How long a process may take to end by itself, writing back what it holds.
const END_TIMEOUT: Duration = Duration::from_secs(20);
/// How long objects of a removed file may take to go, if there are any.
const DESTROY_TIMEOUT: Duration = Duration::from_secs(3);
/// Nothing is destroyed for so long when all is.
const DESTROY_QUIET: Duration = Duration::from_millis(50);
const POLL: Duration = Duration::from_millis(20);

/// Locks granted to clients, in the statistics of a namespace.
pub const GRANTS: &str = "grants";
/// Locks that clients were asked to give back.
pub const CALLBACKS: &str = "ldlm_bl_callback";
/// Locks that the server took for itself, to do what a client without a lock asks for.
pub const OWN: &str = "local";

/// The directory of one run of a program.
#[derive(Debug)]
pub struct Place {
    dir: PathBuf,
    program: PathBuf,
}

impl Place {
    /// Makes `base/NAME.PID`, and clears away what killed runs have left in `base`.
    pub fn claim(base: &Path, name: &str, program: &Path) -> io::Result<Place> {
        fs::create_dir_all(base)?;
        let program = program
            .canonicalize()
            .map_err(|e| io::Error::other(format!("{}: {e}; `make build` builds it", program.display())))?;
        for entry in fs::read_dir(base)?.flatten() {
            let left = entry.file_name().to_str().and_then(|n| n.rsplit_once('.')?.1.parse::<u32>().ok());
            if left.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
                eprintln!("clearing away what a killed run has left in {}", entry.path().display());
                clear(&entry.path(), &program);
            }
        }
        let dir = base.canonicalize()?.join(format!("{name}.{}", std::process::id()));
        fs::create_dir_all(&dir)?;
        Ok(Place { dir, program })
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        clear(&self.dir, &self.program);
    }
}

/// What a cluster consists of.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Name in tables; also of its directory.
    pub name: &'static str,
    /// OSTs, all in the servers' process.
    pub osts: usize,
    /// Mounts.
    pub mounts: usize,
    /// Whether the first mount is one of the servers' process, over `lo`.
    pub lo: bool,
    /// FUSE threads of each mount.
    pub threads: usize,
}

/// A file system that is up.
#[derive(Debug)]
pub struct Cluster {
    /// What it is.
    pub plan: Plan,
    /// Where it is mounted.
    pub mounts: Vec<PathBuf>,
    /// Its program.
    pub sheen: Sheen,
    dir: PathBuf,
    program: PathBuf,
}

impl Cluster {
    /// Brings it up.
    pub fn up(place: &Place, plan: Plan) -> io::Result<Cluster> {
        let dir = place.dir.join(plan.name.replace(' ', "-"));
        fs::create_dir_all(&dir)?;
        let mounts: Vec<PathBuf> = (0..plan.mounts).map(|i| dir.join(format!("m{i}"))).collect();
        let sheen = Sheen::new(&place.program, dir.join("run"));
        let cluster = Cluster { plan, mounts, sheen, dir, program: place.program.clone() };
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
        let mut words = vec![
            "up",
            "--default-layout",
            "plain",
            "--osts",
            &osts,
            "--listen",
            "127.0.0.1:0",
            "--fuse-threads",
            &threads,
        ];
        let (fs, first) = (self.fs(), self.mounts.first().map(|m| m.to_string_lossy()).unwrap_or_default());
        words.extend(["--dir", &fs]);
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

    /// Takes a mount away and brings it back, so that its client knows nothing; over `lo` the
    /// servers start anew with it.
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

    /// Removes a file or a directory with all in it, and waits until its objects are destroyed too:
    /// else that would be part of what is measured next.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        let destroyed = || Ok::<u64, io::Error>(self.sheen.counters(&["obdfilter.*.stats"])?.get("destroy").count);
        let before = destroyed()?;
        if path.is_dir() {
            fs::remove_dir_all(path)?
        } else {
            fs::remove_file(path)?
        }
        // Objects go when the MDT has committed that their files are gone.
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

    /// What the OSTs have done so far (`write`, `write_bytes`), and what their locks cost:
    /// [`GRANTS`], [`CALLBACKS`], [`OWN`].
    ///
    /// # Errors
    /// A server does not count one of these: what is explained by them would be wrong.
    pub fn counters(&self) -> io::Result<Counters> {
        let all = self.sheen.counters(&["obdfilter.*.stats", "ldlm.namespaces.filter-*.stats"])?;
        match [GRANTS, CALLBACKS, OWN].into_iter().find(|name| !all.has(name)) {
            Some(name) => Err(io::Error::other(format!("ldlm.namespaces.filter-*.stats does not count {name}"))),
            None => Ok(all),
        }
    }

    /// Requests to MDT and OSTs so far.
    pub fn requests(&self) -> io::Result<Counters> {
        self.sheen.counters(&["mdt.*.md_stats", "obdfilter.*.stats"])
    }

    /// Makes an empty file with this layout, given as words of `lfs setstripe`.
    pub fn setstripe(&self, path: &Path, words: &[&str]) -> io::Result<()> {
        let path = path.to_string_lossy();
        let words = ["lfs", "setstripe"].iter().chain(words).copied().chain([path.as_ref()]);
        self.sheen.run(words).map(drop)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        take_down(&self.dir, &self.program);
    }
}

/// Takes down all clusters in a place, and removes it.
fn clear(place: &Path, program: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        take_down(&entry.path(), program);
    }
    let _ = fs::remove_dir(place);
}

/// Unmounts what is mounted in the directory, ends what runs there, and removes it.
fn take_down(dir: &Path, program: &Path) {
    let sheen = Sheen::new(program, dir.join("run"));
    let fs_dir = dir.join("fs");
    for at in mounted_below(dir) {
        if sheen.run(["umount", &at]).is_err() {
            let _ = Command::new("umount").args(["--lazy", &at]).stderr(Stdio::null()).status();
        }
    }
    // Clients write back what they hold before the servers go.
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
    // What still is mounted would be emptied, not removed.
    if mounted_below(dir).is_empty() {
        let _ = fs::remove_dir_all(dir);
    }
}

/// Mount points in a directory, the newest first.
fn mounted_below(dir: &Path) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let points = mounts.lines().rev().filter_map(|line| line.split(' ').nth(1));
    points.filter(|at| Path::new(at).starts_with(dir)).map(str::to_owned).collect()
}

/// Waits until something holds, for a while; whether it does.
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
