//! `*.*.waits` and `sheen top`: who waits for which lock, and who holds it.

use std::{
    fs::{File, OpenOptions},
    path::Path,
    thread,
};

use rustix::fs::{FlockOperation, flock};
use serde_json::Value;
use sheen_tests::{
    mounts::{LIMIT, TwoMounts, get_param},
    run, sheen, two_mounts,
    wait::{eventually, eventually_some},
};

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("a file")
}

/// Returns the uuid of a mount, by which servers know it.
fn uuid(mount: &Path) -> String {
    let name = run(sheen(), ["lfs", "getname", &mount.to_string_lossy()]).ok();
    let param = get_param(&format!("llite.{}.uuid", name.trim()));
    param.trim().split_once('=').expect("name=value").1.to_owned()
}

/// Returns the waits in parameters of this file system.
fn waits(two: &TwoMounts, pattern: &str) -> Vec<Value> {
    let text = two.param(pattern);
    let objects = text.lines().filter_map(|line| line.strip_prefix("- "));
    objects.map(|object| serde_json::from_str(object).unwrap_or_else(|e| panic!("{e}: {object}"))).collect()
}

/// Returns the waits that `sheen top` shows.
fn top(two: &TwoMounts) -> Vec<Value> {
    let text = run(sheen(), ["top", "--json", "--interval", "1", "--fsname", &two.fsname]).ok();
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    report["waits"].as_array().expect("a list").clone()
}

#[test]
fn waiting_flock_is_listed_with_its_holder_until_it_is_released() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    let (a, b) = (open(&at.a("f")), open(&at.b("f")));
    let (holder, waiter) = (uuid(&two.fs.mnt), uuid(&two.second.mnt));
    assert_ne!(holder, waiter);
    flock(&a, FlockOperation::LockExclusive).expect("nobody has it");
    let is_ours = |wait: &Value| wait["kind"] == "lock" && wait["client"] == waiter.as_str();
    let waiting = thread::spawn(move || flock(&b, FlockOperation::LockExclusive));

    let of_mdt = eventually_some("the MDT lists the wait", || waits(&two, "mdt.{}-*.waits").into_iter().find(is_ours));
    assert_eq!(of_mdt["held_by"][0]["client"], holder.as_str(), "{of_mdt}");
    assert_eq!(of_mdt["held_by"][0]["granted"], true, "{of_mdt}");
    assert_eq!(of_mdt["target"], format!("{}-MDT0000", two.fsname), "{of_mdt}");
    let of_mount =
        eventually_some("the mount lists the wait", || waits(&two, "llite.{}-*.waits").into_iter().find(is_ours));
    assert_eq!((&of_mount["object"], &of_mount["mode"]), (&of_mdt["object"], &of_mdt["mode"]), "{of_mount}");

    let shown = eventually_some("sheen top shows the wait", || {
        let found: Vec<Value> = top(&two).into_iter().filter(is_ours).collect();
        found.iter().any(|wait| wait["held_by"][0]["client"] == holder.as_str()).then_some(found)
    });
    assert_eq!(shown.len(), 1, "the list of the mount adds no second line: {shown:?}");
    let table = run(sheen(), ["top", "--once", "--interval", "1", "--fsname", &two.fsname]).ok();
    for part in ["HELD BY", "READS/s", &format!("{}-MDT0000", two.fsname)] {
        assert!(table.contains(part), "{part}: {table}");
    }

    flock(&a, FlockOperation::Unlock).expect("it is held");
    waiting.join().expect("no panic").expect("the lock is granted");
    eventually("nothing waits for a lock", || {
        [waits(&two, "mdt.{}-*.waits"), waits(&two, "llite.{}-*.waits")].iter().flatten().all(|wait| !is_ours(wait))
    });
}

#[test]
fn top_refuses_invalid_intervals() {
    let ran = run(sheen(), ["top", "--once", "--interval", "0"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
}
