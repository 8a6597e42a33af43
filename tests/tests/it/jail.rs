//! `scripts/jail.sh`, which runs each test on a mount: what it prints for a test that hangs, and
//! what it leaves behind.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process_group};
use sheen_tests::{is_root, wait::eventually};

fn jail(script: &str) -> Command {
    let jail = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/jail.sh");
    let mut command = Command::new("bash");
    command.arg(jail).args(["bash", "-c", script]).process_group(0).stdin(Stdio::null());
    command
}

/// Returns the processes that sleep for this time.
fn sleepers(seconds: &str) -> Vec<Pid> {
    sheen_tests::processes(&["sleep".as_ref(), seconds.as_ref()])
}

/// Returns the kernel stack of a process; empty if it has ended.
fn stack(pid: Pid) -> String {
    fs::read_to_string(format!("/proc/{pid}/stack")).unwrap_or_default()
}

/// Starts a script in a jail that prints its directory, and waits until it sleeps. Each test has a
/// time of its own, because tests run at once.
fn start_hanging(seconds: &str) -> (Child, PathBuf, BufReader<impl Read>) {
    let mut child = jail(&format!("echo $TMPDIR; exec sleep {seconds}")).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut dir = String::new();
    out.read_line(&mut dir).unwrap();
    eventually("the program sleeps", || sleepers(seconds).iter().any(|pid| stack(*pid).contains("nanosleep")));
    (child, dir.trim_end().into(), out)
}

/// The runner ends a test that hangs with SIGTERM to its process group, and later with SIGKILL.
#[test]
fn hanging_test_prints_its_stacks_before_it_ends() {
    if !is_root() {
        return println!("skipped: needs root for namespaces");
    }
    let (mut child, dir, mut out) = start_hanging("1000003");
    kill_process_group(Pid::from_child(&child), Signal::TERM).unwrap();
    let mut said = String::new();
    out.read_to_string(&mut said).unwrap();
    assert!(said.contains("-- sleep (") && said.contains("sleep 1000003"), "{said}");
    assert!(said.contains("nanosleep"), "the kernel stack: {said}");
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(!dir.exists(), "the directory of the test is removed");
}

#[test]
fn killed_jail_leaves_no_process() {
    if !is_root() {
        return println!("skipped: needs root for namespaces");
    }
    let (mut child, dir, mut out) = start_hanging("1000004");
    kill_process_group(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    // The pipe ends when no process has it open any more.
    let mut said = String::new();
    out.read_to_string(&mut said).unwrap();
    assert_eq!(said, "");
    eventually("no process sleeps", || sleepers("1000004").is_empty());
    let _ = fs::remove_dir_all(dir);
}
