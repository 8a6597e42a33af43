//! Helpers shared by the tests: they start a file system as a user does, and run commands with a
//! time limit.
//!
//! The tests use the program that `cargo build -p sheen` built for the same profile ([`sheen`]).
//! `scripts/test.sh` builds it first.

pub mod address;
pub mod cluster;
pub mod hosts;
pub mod mounts;
pub mod posix;
pub mod progress;
pub mod relayout;
pub mod sandbox;
pub mod sim;
pub mod transcript;
pub mod tree;
pub mod wait;

use std::{
    ffi::OsStr,
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{address::own_address, wait::eventually};

/// Time limit of a command on a mount. A command that takes longer fails the test.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);

/// Time limit of a cleanup command, which is then killed.
const CLEAN_UP_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the path of the sheen program that was built beside the running test.
pub fn sheen() -> PathBuf {
    let mut path = std::env::current_exe().expect("the test has a path");
    path.pop();
    if path.ends_with("deps") {
        path.pop();
    }
    let path = path.join("sheen");
    assert!(path.exists(), "{} is missing: cargo build -p sheen", path.display());
    path
}

/// Returns the path of a program that `scripts/tools.sh` has installed.
pub fn tool(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/bin").join(name);
    path.canonicalize().ok()
}

/// Returns whether this machine allows FUSE mounts.
pub fn can_mount() -> bool {
    fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok()
}

/// Whether the test runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns the number of objects of OSTs, and of DoM data of MDTs, whose directories are `dir` or
/// below it.
pub fn objects_below(dir: &Path) -> usize {
    fn count(dir: &Path, inside: bool) -> usize {
        let Ok(entries) = fs::read_dir(dir) else { return 0 };
        let of = |path: &Path| if path.is_dir() { count(path, inside || path.ends_with("O")) } else { inside.into() };
        entries.flatten().map(|e| of(&e.path())).sum()
    }
    count(dir, false)
}

/// Output and exit code of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// Exit code, or -1 after a signal.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Ran {
    /// Asserts success and returns the standard output.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "failed: {}\n{}", self.out, self.err);
        self.out
    }
}

/// Runs a command with a time limit. A command that exceeds it is killed and the test fails.
#[track_caller]
pub fn run<S: AsRef<OsStr>>(program: impl AsRef<OsStr>, args: impl IntoIterator<Item = S>) -> Ran {
    let mut command = Command::new(program);
    command.args(args);
    run_command(command)
}

/// Runs a shell script with a time limit.
#[track_caller]
pub fn sh(script: &str) -> Ran {
    run("bash", ["-c", script])
}

/// Runs a prepared command with a time limit of [`COMMAND_TIMEOUT`].
#[track_caller]
pub fn run_command(command: Command) -> Ran {
    run_within(command, COMMAND_TIMEOUT)
}

/// Runs a prepared command. If it takes longer than `limit`, it is killed and the test fails.
#[track_caller]
pub fn run_within(mut command: Command, limit: Duration) -> Ran {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let drain = |pipe: Option<Box<dyn Read + Send>>| {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut pipe) = pipe {
                let _ = pipe.read_to_end(&mut bytes);
            }
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let out = drain(child.stdout.take().map(|p| Box::new(p) as _));
    let err = drain(child.stderr.take().map(|p| Box::new(p) as _));
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            break status;
        }
        if start.elapsed() > limit {
            print_stacks();
            let _ = child.kill();
            panic!("{command:?} hangs");
        }
        thread::sleep(Duration::from_millis(5));
    };
    Ran {
        code: status.code().unwrap_or(-1),
        out: out.join().expect("reads the pipe"),
        err: err.join().expect("reads the pipe"),
    }
}

/// Runs a cleanup command of a guard and returns whether it succeeded. Its output is discarded. It
/// is killed after [`CLEAN_UP_TIMEOUT`]. This function never panics: a panic in a destructor would
/// end the whole test program.
pub fn clean_up(command: &mut Command) -> bool {
    let started = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let Ok(mut child) = started else { return false };
    let start = Instant::now();
    while start.elapsed() < CLEAN_UP_TIMEOUT {
        match child.try_wait() {
            Ok(None) => thread::sleep(Duration::from_millis(5)),
            Ok(Some(status)) => return status.success(),
            Err(_) => return false,
        }
    }
    // The child is not waited for: it may hang in the kernel until its mount is aborted.
    let _ = child.kill();
    eprintln!("{command:?} hangs: killed");
    false
}

/// Prints the kernel stack of each thread of the test and of the processes that it started, if they
/// have a process namespace of their own (`scripts/jail.sh`).
pub fn print_stacks() {
    if std::env::var_os("SHEEN_TEST_JAIL").is_none() {
        return;
    }
    let entries = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    for process in entries("/proc".into()) {
        for task in entries(process.join("task")) {
            let text = |name: &str| fs::read_to_string(task.join(name)).unwrap_or_default();
            eprint!("-- {} ({})\n{}", text("comm").trim_end(), task.display(), text("stack"));
        }
    }
}

/// Returns the processes whose command lines contain all of these words.
pub fn processes(words: &[&OsStr]) -> Vec<Pid> {
    let is_one = |pid: &Pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.iter().all(|word| line.split(|byte| *byte == 0).any(|found| found == word.as_encoded_bytes()))
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter(is_one).collect()
}

/// Sends a signal to each of the [`processes`] whose command lines contain these words.
pub fn signal_all(words: &[&OsStr], signal: Signal) {
    for pid in processes(words) {
        let _ = kill_process(pid, signal);
    }
}

/// A process started by a test. It is killed when this is dropped.
#[derive(Debug)]
pub struct Guarded(pub Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Copies a program to a place where every user may run it. The copy is made by cp(1). If this
/// process wrote the file itself, a child that another test is just starting could inherit the open
/// descriptor. Running the program would then fail with ETXTBSY.
#[track_caller]
pub fn copy_program(from: &Path, to: &Path) {
    run("cp", [from, to]).ok();
}

/// Returns the default layout for tests that ask for none: the value of `SHEEN_TEST_LAYOUT`, or one
/// stripe. The variable runs a whole suite with another layout.
fn default_layout() -> String {
    std::env::var("SHEEN_TEST_LAYOUT").unwrap_or_else(|_| "plain".into())
}

/// Creates a new directory below `place`. The caller removes it. Its name is unique even across PID
/// namespaces, in which process numbers repeat.
pub fn new_dir(place: &Path) -> PathBuf {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    let made = tempfile::Builder::new().prefix("sheen-test-").permissions(mode).tempdir_in(place);
    made.unwrap_or_else(|e| panic!("a directory below {}: {e}", place.display())).keep()
}

/// A file system started by `sheen up` in a directory of its own. It is stopped and removed on
/// drop.
pub struct Fs {
    /// A directory of its own: for its data, and for other files of the test.
    pub base: PathBuf,
    /// Where it is mounted.
    pub mnt: PathBuf,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

impl Fs {
    /// Starts a file system with `osts` OSTs in memory.
    #[track_caller]
    pub fn up(osts: u32) -> Fs {
        Fs::up_in(Path::new("/dev/shm"), osts, &[])
    }

    /// Starts a file system whose directory is below `place`, with further options of `sheen up`.
    #[track_caller]
    pub fn up_in(place: &Path, osts: u32, options: &[&str]) -> Fs {
        Fs::up_with(place, osts, &format!("{}:0", own_address()), options)
    }

    /// As [`Fs::up`]. If this machine allows no FUSE mounts, prints that the test is skipped, and
    /// returns `None`.
    #[track_caller]
    pub fn up_or_skip(osts: u32) -> Option<Fs> {
        Fs::up_with_or_skip(osts, &[])
    }

    /// As [`Fs::up_or_skip`], with further options of `sheen up`.
    #[track_caller]
    pub fn up_with_or_skip(osts: u32, options: &[&str]) -> Option<Fs> {
        if !can_mount() {
            println!("skipped: /dev/fuse cannot be opened here");
            return None;
        }
        Some(Fs::up_in(Path::new("/dev/shm"), osts, options))
    }

    /// As [`Fs::up_or_skip`]. It also returns `None` if the test does not run as root.
    #[track_caller]
    pub fn up_as_root_or_skip(osts: u32) -> Option<Fs> {
        if !is_root() {
            println!("skipped: needs root");
            return None;
        }
        Fs::up_or_skip(osts)
    }

    /// Starts a file system with one OST that listens at this address.
    #[track_caller]
    pub fn up_at(place: &Path, listen: &str) -> Fs {
        Fs::up_with(place, 1, listen, &[])
    }

    #[track_caller]
    fn up_with(place: &Path, osts: u32, listen: &str, options: &[&str]) -> Fs {
        let base = new_dir(place);
        let fs = Fs { mnt: base.join("mnt"), base };
        let osts = osts.to_string();
        let mut words = vec!["--osts", &osts, "--listen", listen];
        words.extend(options);
        fs.start(&words).ok();
        fs
    }

    /// Starts the file system, for the first time or again.
    #[track_caller]
    pub fn start(&self, options: &[&str]) -> Ran {
        let mut command = Command::new(sheen());
        command.arg("up").arg("--dir").arg(self.dir()).arg("--mount").arg(&self.mnt);
        if !options.contains(&"--default-layout") {
            command.args(["--default-layout", &default_layout()]);
        }
        command.args(options);
        run_command(command)
    }

    /// Stops the file system.
    #[track_caller]
    pub fn stop(&self) -> Ran {
        let mut command = Command::new(sheen());
        command.arg("down").arg("--dir").arg(self.dir());
        run_command(command)
    }

    /// Returns the directory of the file system.
    pub fn dir(&self) -> PathBuf {
        self.base.join("fs")
    }

    /// Returns the path of `name` on the mount.
    pub fn path(&self, name: &str) -> PathBuf {
        self.mnt.join(name)
    }

    /// Returns the output of `sheen status --json`.
    #[track_caller]
    pub fn status(&self) -> serde_json::Value {
        let text = run(sheen(), ["status", "--json", "--dir", &self.dir().to_string_lossy()]).ok();
        serde_json::from_str(&text).expect("status prints JSON")
    }

    /// Runs `lfs` in the root of the mount.
    #[track_caller]
    pub fn lfs(&self, line: &str) -> Ran {
        let mut command = Command::new(sheen());
        command.arg("lfs").args(line.split(' ').filter(|w| !w.is_empty())).current_dir(&self.mnt);
        run_command(command)
    }

    /// Runs a shell script in the root of the mount.
    #[track_caller]
    pub fn sh(&self, script: &str) -> Ran {
        let mut command = Command::new("bash");
        command.args(["-c", script]).current_dir(&self.mnt);
        run_command(command)
    }

    /// Mounts the same file system a second time, by a process of its own over tcp.
    #[track_caller]
    pub fn second_mount(&self) -> Mount {
        let at = self.base.join(format!("mnt{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        Mount::new(&self.source(), at)
    }

    /// Returns what `sheen mount` takes to mount it.
    #[track_caller]
    pub fn source(&self) -> String {
        self.status()["source"].as_str().expect("a running file system has a source").to_owned()
    }

    /// Kills the serving process with SIGKILL.
    #[track_caller]
    pub fn kill(&self) {
        let pid = self.status()["pid"].as_u64().expect("it runs");
        let pid = Pid::from_raw(pid as i32).expect("a pid");
        kill_process(pid, Signal::KILL).expect("kills its own child");
        eventually("the killed process has ended", || self.status()["running"].as_bool() != Some(true));
        detach(&self.mnt);
    }

    /// Checks the directories of the file system, which is stopped, with `sheen fsck`. A test may
    /// have removed some of them.
    #[track_caller]
    fn check(&self) {
        let found = run(sheen(), ["fsck", "--dir", &self.dir().to_string_lossy()]);
        let is_removed = found.code == 8 && ["holds no MDT", "No such file"].iter().any(|why| found.err.contains(why));
        assert!(found.code == 0 || is_removed, "problems in {}:\n{}\n{}", self.dir().display(), found.out, found.err);
    }

    /// Ends the file system: `sheen down --force`, and if that fails, abort and SIGKILL. For
    /// guards.
    pub fn end(&self) {
        let dir = self.dir();
        let ended = clean_up(Command::new(sheen()).args(["down", "--force", "--dir"]).arg(&dir));
        if !ended || is_mounted(&self.mnt) {
            abort(&self.mnt);
            signal_all(&[OsStr::new("up"), dir.as_os_str()], Signal::KILL);
            detach(&self.mnt);
        }
    }
}

impl Drop for Fs {
    fn drop(&mut self) {
        self.end();
        if !thread::panicking() {
            self.check();
        }
        if !thread::panicking() || std::env::var_os("SHEEN_TEST_KEEP").is_none() {
            let _ = fs::remove_dir_all(&self.base);
        }
    }
}

/// A mount made by `sheen mount`. It is unmounted on drop.
pub struct Mount {
    /// Where.
    pub mnt: PathBuf,
}

impl Mount {
    /// Mounts `source` at `at`.
    #[track_caller]
    pub fn new(source: &str, at: PathBuf) -> Mount {
        Mount::with(source, at, &[])
    }

    /// Mounts `source` at `at`, with further options of `sheen mount`.
    #[track_caller]
    pub fn with(source: &str, at: PathBuf, options: &[&str]) -> Mount {
        fs::create_dir_all(&at).expect("a mount point");
        let mut command = Command::new(sheen());
        command.args(["mount", source]).arg(&at).args(options);
        // Created before the command runs: a mount that hangs while it starts is cleaned up as
        // well.
        let mount = Mount { mnt: at };
        run_command(command).ok();
        mount
    }

    /// Returns the path of `name` on the mount.
    pub fn path(&self, name: &str) -> PathBuf {
        self.mnt.join(name)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let words = [OsStr::new("mount"), self.mnt.as_os_str()];
        // A test may have stopped the process with SIGSTOP.
        signal_all(&words, Signal::CONT);
        let unmounted = clean_up(Command::new(sheen()).args(["umount", "--force"]).arg(&self.mnt));
        if !unmounted || is_mounted(&self.mnt) || thread::panicking() {
            abort(&self.mnt);
            signal_all(&words, Signal::KILL);
            detach(&self.mnt);
        }
    }
}

/// Returns whether anything is mounted at `at`. Reads /proc/mounts, because touching a dead mount
/// may hang.
pub fn is_mounted(at: &Path) -> bool {
    let at = at.to_string_lossy();
    fs::read_to_string("/proc/mounts").is_ok_and(|m| m.lines().any(|l| l.split(' ').nth(1) == Some(&at)))
}

/// Aborts the FUSE connection of a stuck mount, so that no process that uses it stays unkillable.
pub fn abort(at: &Path) {
    if is_root() && !fs::read_dir("/sys/fs/fuse/connections").is_ok_and(|mut d| d.next().is_some()) {
        clean_up(Command::new("mount").args(["-t", "fusectl", "none", "/sys/fs/fuse/connections"]));
    }
    let Ok(info) = fs::read_to_string("/proc/self/mountinfo") else { return };
    let at = at.to_string_lossy();
    for line in info.lines().filter(|l| l.split(' ').nth(4) == Some(&at)) {
        if let Some(minor) = line.split(' ').nth(2).and_then(|d| d.split(':').nth(1)) {
            let _ = fs::write(format!("/sys/fs/fuse/connections/{minor}/abort"), "1");
        }
    }
}

/// Detaches a dead mount.
pub fn detach(at: &Path) {
    clean_up(Command::new("umount").arg("-l").arg(at));
    clean_up(Command::new("fusermount3").args(["-u", "-z"]).arg(at));
}

/// Returns pseudo-random bytes. Equal seeds give equal bytes.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes
}

/// Runs a command and returns its raw output.
pub fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"))
}
