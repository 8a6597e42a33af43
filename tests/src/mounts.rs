//! Two mounts of one file system: setup, a watchdog for hanging operations, and counts of the
//! requests that the mounts send.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    ffi::OsStr,
    fmt::Display,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    Fs, Mount, abort, print_stacks, processes, run, sheen,
    wait::{eventually, eventually_some, let_pass},
};

/// Time limit of a test with a [`Watch`]. It is below the test runner's limit, so that the test
/// itself reports the hanging operation.
pub const LIMIT: Duration = Duration::from_secs(580);

/// Time without a request after which mounts count as quiet. Clients send close requests in
/// batches, about 20 ms after close(2) returned.
const QUIET: Duration = Duration::from_millis(100);

/// Counts of requests, by device and operation.
pub type Counts = BTreeMap<String, u64>;

/// A file system with two mounts. The process that serves it has the first one. A process of its
/// own has the second one, over tcp.
pub struct TwoMounts {
    /// The file system's name, which is unique on this machine.
    pub fsname: String,
    /// Aborts the mounts when an operation hangs. Declared before the mounts, so that it is dropped
    /// first.
    _watch: Watch,
    /// The second mount.
    pub second: Mount,
    /// The file system with the first mount.
    pub fs: Fs,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

impl TwoMounts {
    /// Starts a file system with 4 OSTs and 64 KiB stripes, so that files of 200 KiB have objects
    /// on all OSTs. A test that takes longer than `limit` is aborted.
    #[track_caller]
    pub fn up(limit: Duration) -> TwoMounts {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let fsname = format!("t{:x}", (std::process::id() << 6 | n & 0x3f) & 0xfff_ffff);
        let fs = Fs::up_in(Path::new("/dev/shm"), 4, &["--fsname", &fsname]);
        let second = fs.second_mount();
        fs.lfs("setstripe -c 4 -S 64K .").ok();
        fs::set_permissions(&fs.mnt, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("the root's mode");
        let watch = Watch::over(&[&fs.mnt, &second.mnt], limit);
        TwoMounts { fsname, _watch: watch, second, fs }
    }

    /// Creates directory `name` and returns its paths on the two mounts.
    #[track_caller]
    pub fn dir(&self, name: &str) -> Two {
        fs::create_dir_all(self.fs.path(name)).expect("a directory");
        Two { a: self.fs.path(name), b: self.second.path(name) }
    }

    /// Returns the output of `lctl get_param` for parameters of this file system. `{}` in the
    /// pattern stands for the file system's name.
    #[track_caller]
    pub fn param(&self, pattern: &str) -> String {
        get_param(&pattern.replace("{}", &self.fsname))
    }

    /// Returns the requests that all mounts have sent to the servers so far, by device and
    /// operation. It leaves out statfs, which mounts send periodically.
    #[track_caller]
    pub fn requests(&self) -> Counts {
        let mut found = self.counters("mdc.{}-*.stats", "[usecs]");
        found.extend(self.counters("osc.{}-*.stats", "[usecs]"));
        found.extend(self.counters("dom.{}-*-dom-*.stats", "[usecs]"));
        // The first line of times is their sum.
        found.retain(|name, _| !name.ends_with("_statfs") && !name.ends_with(" req_waittime"));
        found
    }

    /// Returns the operations that the MDT has counted so far. They distinguish opens from creates.
    #[track_caller]
    pub fn served(&self) -> Counts {
        self.counters("mdt.{}-*.md_stats", "[usecs]")
    }

    /// Returns the kernel's requests that all mounts have executed so far, by mount and operation.
    #[track_caller]
    pub fn operations(&self) -> Counts {
        self.counters("llite.{}-*.stats", "[usecs]")
    }

    /// Returns the requests that the mounts send to the servers while `work` runs.
    #[track_caller]
    pub fn cost(&self, work: impl FnOnce()) -> Counts {
        let before = self.requests();
        work();
        between(&before, &self.requests())
    }

    /// Repeats `work` until `is_so` holds for the requests of one pass. Mounts send some requests
    /// by themselves (closes, writes of old dirty data), which may fall into any pass. `work` gets
    /// the number of the pass: if `work` has its effect only once per file, it uses another file in
    /// each pass.
    #[track_caller]
    pub fn cost_settles(&self, what: impl Display, work: impl FnMut(usize), is_so: impl FnMut(&Counts) -> bool) {
        settles(what, || self.requests(), work, is_so);
    }

    /// As [`TwoMounts::cost_settles`], but counts the requests that the kernel sends to the mounts.
    #[track_caller]
    pub fn operations_settle(&self, what: impl Display, work: impl FnMut(usize), is_so: impl FnMut(&Counts) -> bool) {
        settles(what, || self.operations(), work, is_so);
    }

    /// Waits until no mount has dirty data and none has sent a request for `QUIET`.
    #[track_caller]
    pub fn quiet(&self) {
        eventually("no mount sends a request", || {
            let dirty = self.param("osc.{}-*.cur_dirty_bytes") + &self.param("dom.{}-*.cur_dirty_bytes");
            dirty.lines().all(|line| line.ends_with("=0")) && self.cost(|| let_pass(QUIET)).is_empty()
        });
    }

    /// Returns the number of evictions by each target.
    pub fn evictions(&self) -> Counts {
        let log = fs::read_to_string(self.fs.dir().join("sheen.log")).expect("the log of the servers");
        let mut found = Counts::new();
        for line in log.lines().filter(|line| line.contains("evicting a client")) {
            let target = line.split_once("target_name=").map_or(line, |(_, rest)| rest);
            *found.entry(target.split(' ').next().unwrap_or(target).to_owned()).or_default() += 1;
        }
        found
    }

    #[track_caller]
    fn counters(&self, pattern: &str, unit: &str) -> Counts {
        let text = self.param(pattern);
        assert!(text.contains("snapshot_time"), "{pattern} shows no statistics: {text}");
        let mut device = "";
        let mut found = BTreeMap::new();
        for line in text.lines() {
            if let Some((name, _)) = line.split_once('=') {
                device = name;
            } else if line.contains(unit)
                && let [op, count, ..] = line.split_whitespace().collect::<Vec<_>>()[..]
            {
                found.insert(format!("{device} {op}"), count.parse().expect("a count"));
            }
        }
        found
    }
}

/// Returns the output of `lctl get_param`, with the values of all processes that have such
/// parameters. lctl leaves out a process that does not answer within 300 ms. On a slow machine a
/// live process may exceed that, so the command is repeated until none is left out.
#[track_caller]
pub fn get_param(pattern: &str) -> String {
    eventually_some(format!("all processes answer lctl get_param {pattern}"), || {
        let ran = run(sheen(), ["lctl", "get_param", pattern]);
        (!ran.err.contains("is left out")).then(|| ran.ok())
    })
}

/// Returns the counters of the kernel's requests to the mount at `at` (`llite.*.fuse_stats`).
#[track_caller]
pub fn fuse_stats(at: &Path) -> BTreeMap<String, String> {
    let name = run(sheen(), [OsStr::new("lfs"), OsStr::new("getname"), at.as_os_str()]).ok();
    let text = get_param(&format!("llite.{}.fuse_stats", name.trim()));
    text.lines().filter_map(|line| line.split_once(": ")).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

/// Repeats `work` until `is_so` holds for the counts that one pass adds to `count`.
#[track_caller]
fn settles(
    what: impl Display,
    count: impl Fn() -> Counts,
    mut work: impl FnMut(usize),
    mut is_so: impl FnMut(&Counts) -> bool,
) {
    let last = RefCell::new(Counts::new());
    let mut passes = 0..;
    eventually(format_args!("{what}: the last pass cost {last:?}"), || {
        let before = count();
        work(passes.next().unwrap_or_default());
        *last.borrow_mut() = between(&before, &count());
        is_so(&last.borrow())
    });
}

/// Returns the difference between two counts.
pub fn between(before: &Counts, after: &Counts) -> Counts {
    let more = |(name, n): (&String, &u64)| {
        let more = n - before.get(name).copied().unwrap_or(0);
        (more > 0).then(|| (name.clone(), more))
    };
    after.iter().filter_map(more).collect()
}

/// One directory on two mounts.
#[derive(Clone, Debug)]
pub struct Two {
    /// On mount A.
    pub a: PathBuf,
    /// On mount B.
    pub b: PathBuf,
}

impl Two {
    /// Returns the same directory with the mounts swapped.
    pub fn swapped(&self) -> Two {
        Two { a: self.b.clone(), b: self.a.clone() }
    }

    /// Returns the path of `name` on mount A.
    pub fn a(&self, name: &str) -> PathBuf {
        self.a.join(name)
    }

    /// Returns the path of `name` on mount B.
    pub fn b(&self, name: &str) -> PathBuf {
        self.b.join(name)
    }

    /// Returns both paths.
    pub fn both(&self) -> [&Path; 2] {
        [&self.a, &self.b]
    }
}

/// A watchdog. If a test takes too long, it aborts all operations on some mounts. The operations
/// fail, the test's threads return, and the test fails.
#[derive(Debug)]
pub struct Watch {
    done: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
    fired: Arc<AtomicBool>,
}

impl Watch {
    /// Starts the watchdog.
    pub fn over(mounts: &[&Path], limit: Duration) -> Watch {
        let mounts: Vec<PathBuf> = mounts.iter().map(|m| m.to_path_buf()).collect();
        let (done, wait) = mpsc::channel::<()>();
        let fired = Arc::new(AtomicBool::new(false));
        let flag = fired.clone();
        let thread = thread::spawn(move || {
            if wait.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
                flag.store(true, Ordering::SeqCst);
                eprintln!(
                    "test not finished after {limit:?}: aborting the FUSE connections ({}, …)",
                    mounts[0].display()
                );
                print_stacks();
                mounts.iter().for_each(|m| abort(m));
            }
        });
        Watch { done: Some(done), thread: Some(thread), fired }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.done.take());
        let _ = self.thread.take().map(thread::JoinHandle::join);
        assert!(!self.fired.load(Ordering::SeqCst) || thread::panicking(), "the test took too long");
    }
}

impl Mount {
    /// Returns the id of the process that serves this mount.
    #[track_caller]
    pub fn pid(&self) -> Pid {
        let found = processes(&[OsStr::new("mount"), self.mnt.as_os_str()]);
        *found.first().unwrap_or_else(|| panic!("no process serves {}", self.mnt.display()))
    }

    /// Kills the process that serves this mount with SIGKILL.
    #[track_caller]
    pub fn kill(&self) {
        let pid = self.pid();
        kill_process(pid, Signal::KILL).expect("kills what it started");
        eventually("the killed process has ended", || {
            !fs::exists(format!("/proc/{pid}/stat")).unwrap_or(false) || is_zombie(pid)
        });
    }

    /// Stops the process that serves this mount with SIGSTOP, until [`Mount::resume`] or the end of
    /// the test.
    #[track_caller]
    pub fn freeze(&self) {
        let pid = self.pid();
        kill_process(pid, Signal::STOP).expect("stops what it started");
        // A thread that still runs could take a request of the kernel, and never answer it.
        eventually("all threads of the process are stopped", || {
            let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            let mut stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
            stats.all(|stat| stat.rsplit(") ").next().is_some_and(|state| state.starts_with('T')))
        });
    }

    /// Continues a process that [`Mount::freeze`] stopped.
    #[track_caller]
    pub fn resume(&self) {
        kill_process(self.pid(), Signal::CONT).expect("continues what it started");
    }
}

fn is_zombie(pid: Pid) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| s.contains(") Z "))
}

/// Returns a command that runs a script as an unprivileged user who is in no group.
pub fn as_nobody(script: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "bash", "-c", script]);
    command
}

/// Mounts a new file system twice ([`TwoMounts::up`] with this limit). With the name of a
/// directory, it also returns that directory on both mounts. If this machine allows no FUSE mounts,
/// it prints a message and the test returns.
#[macro_export]
macro_rules! two_mounts {
    ($limit:expr) => {
        match $crate::can_mount().then(|| $crate::mounts::TwoMounts::up($limit)) {
            Some(two) => two,
            None => return println!("skipped: /dev/fuse cannot be opened here"),
        }
    };
    ($limit:expr, $dir:expr) => {{
        let two = $crate::two_mounts!($limit);
        let at = two.dir($dir);
        (two, at)
    }};
}
