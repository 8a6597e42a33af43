//! `scripts/jail.sh`, which runs each test on a mount: what it prints for a test that hangs, and what
//! it leaves behind.

use std::{
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

/// Starts a script in a jail that prints its directory, its process group and then hangs.
fn start_hanging() -> (Child, PathBuf, BufReader<impl Read>) {
    let mut child = jail("echo $TMPDIR; exec sleep 1000003").stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut dir = String::new();
    out.read_line(&mut dir).unwrap();
    (child, dir.trim_end().into(), out)
}

/// The runner ends a test that hangs with SIGTERM to its process group, and later with SIGKILL.
#[test]
fn hanging_test_prints_its_stacks_before_it_ends() {
    if !is_root() {
        return println!("skipped: needs root for namespaces");
    }
    let (mut child, dir, mut out) = start_hanging();
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
    let (mut child, dir, mut out) = start_hanging();
    kill_process_group(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    // The pipe ends when no process has it open any more.
    let mut said = String::new();
    out.read_to_string(&mut said).unwrap();
    assert_eq!(said, "");
    eventually("no process sleeps", || sheen_tests::processes(&["sleep".as_ref(), "1000003".as_ref()]).is_empty());
    let _ = std::fs::remove_dir_all(dir);
}
