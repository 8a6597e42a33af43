//! `scripts/demo-space.sh`, with which `make demo` begins: it compares the free space with what the
//! demonstration needs.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use sheen_tests::{Ran, noise, run_command};

/// Space that the demonstration needs, in KiB: 6 GB.
const NEED: u64 = 5_859_375;

/// Runs the script for a directory, on a disk with this free space in KiB. `bin` gets a `df`.
fn check(bin: &Path, dir: &Path, free: u64) -> Ran {
    let df = bin.join("df");
    fs::write(&df, format!("#!/bin/sh\necho Avail\necho {free}\n")).expect("a program");
    fs::set_permissions(&df, PermissionsExt::from_mode(0o755)).expect("executable");
    let path = std::env::var("PATH").expect("a path");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/demo-space.sh");
    let mut command = Command::new("bash");
    command.arg(script).arg(dir).env("PATH", format!("{}:{path}", bin.display()));
    run_command(command)
}

#[test]
fn demo_refuses_a_disk_without_space_before_it_builds() {
    let bin = tempfile::tempdir().expect("a directory");
    let dir: PathBuf = bin.path().join("new/demo");
    let enough = check(bin.path(), &dir, NEED).ok();
    assert!(enough.starts_with("make demo needs 6.0 GB in "), "{enough}");
    let refused = check(bin.path(), &dir, NEED - 1);
    let said = "make demo: only 5.9 GB are free there: choose another directory with 'make demo DEMO=DIR'\n";
    assert!(refused.code == 1 && refused.err == said, "{refused:?}");
    assert!(!dir.exists(), "it creates nothing");
    // A second run uses the space of the first one again.
    fs::create_dir_all(&dir).expect("a directory");
    fs::write(dir.join("large.tar"), noise(1, 1 << 20)).expect("written");
    check(bin.path(), &dir, NEED - 512).ok();
}
