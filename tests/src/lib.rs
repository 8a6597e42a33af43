//! Helpers shared by the tests: a file system brought up as a user does it, and commands that
//! cannot hang.
//!
//! The tests use the program that `cargo build -p sheen` made for the same profile ([`sheen`]);
//! `scripts/test.sh` builds it first.

pub mod cluster;
pub mod mounts;
pub mod moving;
pub mod posix;
pub mod progress;
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

use crate::wait::eventually;

/// A command on a mount may take this long before the mount counts as stuck.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);

/// A command that cleans up may take this long before what it waits for is killed.
const CLEAN_UP_TIMEOUT: Duration = Duration::from_secs(30);

/// The sheen program beside the running test.
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

/// Whether this machine lets us mount at all.
pub fn can_mount() -> bool {
    fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok()
}

/// Whether the test runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Objects in the directories of OSTs (and of data services of MDTs) at or below this one.
pub fn objects_below(dir: &Path) -> usize {
    fn count(dir: &Path, inside: bool) -> usize {
        let Ok(entries) = fs::read_dir(dir) else { return 0 };
        let of = |path: &Path| if path.is_dir() { count(path, inside || path.ends_with("O")) } else { inside.into() };
        entries.flatten().map(|e| of(&e.path())).sum()
    }
    count(dir, false)
}

/// What a command printed and how it ended.
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
    /// Asserts success and returns what it printed.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "failed: {}\n{}", self.out, self.err);
        self.out
    }
}

/// Runs a command with a time limit; one that overruns it is killed and fails the test.
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

/// Runs what was prepared, with a time limit.
#[track_caller]
pub fn run_command(command: Command) -> Ran {
    run_within(command, COMMAND_TIMEOUT)
}

/// Runs what was prepared, within `limit`.
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

/// Runs a command of a guard: without its output, for at most [`CLEAN_UP_TIMEOUT`], and without a
/// panic, which would end the whole test program. Whether it succeeded.
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
    // Not waited for: it may hang in the kernel until its mount is aborted.
    let _ = child.kill();
    eprintln!("{command:?} hangs and is killed");
    false
}

/// Processes whose command lines have all of these words.
pub fn processes(words: &[&OsStr]) -> Vec<Pid> {
    let is_one = |pid: &Pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.iter().all(|word| line.split(|byte| *byte == 0).any(|found| found == word.as_encoded_bytes()))
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter(is_one).collect()
}

/// Sends a signal to each of the [`processes`] that have these words.
pub fn signal_all(words: &[&OsStr], signal: Signal) {
    for pid in processes(words) {
        let _ = kill_process(pid, signal);
    }
}

/// A process of a test, which is killed when this is dropped.
#[derive(Debug)]
pub struct Guarded(pub Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Copies a program to where every user may run it. By another process: while this one has it open
/// for writing, a child that another test is just starting has it open as well, and nobody can run
/// it (ETXTBSY).
#[track_caller]
pub fn copy_program(from: &Path, to: &Path) {
    run("cp", [from, to]).ok();
}

/// The layout of files where a test asks for none: one stripe, or what `SHEEN_TEST_LAYOUT` says, to
/// see whether a suite holds for another one.
fn default_layout() -> String {
    std::env::var("SHEEN_TEST_LAYOUT").unwrap_or_else(|_| "plain".into())
}

/// A new directory below `place`; the caller removes it. Its name is unique also between process
/// namespaces, where numbers of processes are not.
pub fn new_dir(place: &Path) -> PathBuf {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    let made = tempfile::Builder::new().prefix("sheen-test-").permissions(mode).tempdir_in(place);
    made.unwrap_or_else(|e| panic!("a directory below {}: {e}", place.display())).keep()
}

/// A file system made by `sheen up` in a directory of its own; stopped and removed when dropped.
pub struct Fs {
    base: PathBuf,
    /// Where it is mounted.
    pub mnt: PathBuf,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

impl Fs {
    /// With `osts` OSTs, its bytes in memory.
    #[track_caller]
    pub fn up(osts: u32) -> Fs {
        Fs::up_in(Path::new("/dev/shm"), osts, &[])
    }

    /// With its bytes below `place`, and further options of `sheen up`.
    #[track_caller]
    pub fn up_in(place: &Path, osts: u32, options: &[&str]) -> Fs {
        let base = new_dir(place);
        let fs = Fs { mnt: base.join("mnt"), base };
        let osts = osts.to_string();
        let mut words = vec!["--osts", &osts, "--listen", "127.0.0.1:0"];
        words.extend(options);
        fs.start(&words).ok();
        fs
    }

    /// Starts it (again).
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

    /// Stops it.
    #[track_caller]
    pub fn stop(&self) -> Ran {
        let mut command = Command::new(sheen());
        command.arg("down").arg("--dir").arg(self.dir());
        run_command(command)
    }

    /// Its directory.
    pub fn dir(&self) -> PathBuf {
        self.base.join("fs")
    }

    /// A path on the mount.
    pub fn path(&self, name: &str) -> PathBuf {
        self.mnt.join(name)
    }

    /// What `sheen status --json` says.
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

    /// A second mount of the same file system, by a process of its own over tcp.
    #[track_caller]
    pub fn second_mount(&self) -> Mount {
        let at = self.base.join(format!("mnt{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        let source = self.status()["source"].as_str().expect("a running file system has a source").to_owned();
        Mount::new(&source, at)
    }

    /// Kills the serving process outright.
    #[track_caller]
    pub fn kill(&self) {
        let pid = self.status()["pid"].as_u64().expect("it runs");
        let pid = Pid::from_raw(pid as i32).expect("a pid");
        kill_process(pid, Signal::KILL).expect("kills its own child");
        eventually("the killed process is gone", || self.status()["running"].as_bool() != Some(true));
        detach(&self.mnt);
    }

    /// Ends it, whatever it takes. For guards.
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
        if !thread::panicking() || std::env::var_os("SHEEN_TEST_KEEP").is_none() {
            let _ = fs::remove_dir_all(&self.base);
        }
    }
}

/// A mount made by `sheen mount`; unmounted when dropped.
pub struct Mount {
    /// Where.
    pub mnt: PathBuf,
}

impl Mount {
    /// Mounts `source` at `at`.
    #[track_caller]
    pub fn new(source: &str, at: PathBuf) -> Mount {
        fs::create_dir_all(&at).expect("a mount point");
        let mut command = Command::new(sheen());
        command.args(["mount", source]).arg(&at);
        // Before the command: a mount that hangs on its way is cleaned up as well.
        let mount = Mount { mnt: at };
        run_command(command).ok();
        mount
    }

    /// A path on the mount.
    pub fn path(&self, name: &str) -> PathBuf {
        self.mnt.join(name)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let words = [OsStr::new("mount"), self.mnt.as_os_str()];
        // A test may have stopped it.
        signal_all(&words, Signal::CONT);
        let unmounted = clean_up(Command::new(sheen()).args(["umount", "--force"]).arg(&self.mnt));
        if !unmounted || is_mounted(&self.mnt) || thread::panicking() {
            abort(&self.mnt);
            signal_all(&words, Signal::KILL);
            detach(&self.mnt);
        }
    }
}

/// Whether anything is mounted there, without touching it.
pub fn is_mounted(at: &Path) -> bool {
    let at = at.to_string_lossy();
    fs::read_to_string("/proc/mounts").is_ok_and(|m| m.lines().any(|l| l.split(' ').nth(1) == Some(&at)))
}

/// Ends the kernel's side of a stuck mount, so that nothing on it stays unkillable.
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

/// Takes a dead mount out of the way.
pub fn detach(at: &Path) {
    clean_up(Command::new("umount").arg("-l").arg(at));
    clean_up(Command::new("fusermount3").args(["-u", "-z"]).arg(at));
}

/// Pseudo-random bytes from a seed: the same for the same seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes
}

/// The output of a command, for those who need it raw.
pub fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"))
}
