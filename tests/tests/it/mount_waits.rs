//! A new mount while servers are in recovery, not there or moved: its messages, its end by a user,
//! and the waits of programs afterwards.

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    path::Path,
    process::{Child, ChildStderr, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use sheen_tests::{
    Guarded, Mount, can_mount,
    cluster::{Cluster, bash},
    is_root, new_dir, processes, run,
    sandbox::Sandbox,
    sheen,
    wait::{blocks, eventually},
};

/// Begins to mount the file system of a cluster. Returns the command, and its messages.
fn begin(cluster: &Cluster, at: &Path) -> (Guarded, BufReader<ChildStderr>) {
    fs::create_dir_all(at).unwrap();
    let mut command = Command::new(sheen());
    command.args(["mount", &format!("{}:/many", cluster.nid("mgs"))]).arg(at);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child: Child = command.spawn().unwrap();
    let messages = BufReader::new(child.stderr.take().unwrap());
    (Guarded(child), messages)
}

#[test]
fn mount_during_a_recovery_reports_its_wait_until_it_is_interrupted_or_the_recovery_ends() {
    if !can_mount() || !is_root() {
        return println!("skipped: needs root and /dev/fuse");
    }
    Sandbox::enter("mount-waits", |sandbox| {
        let mut cluster = Cluster::start();
        let mount = cluster.mount();
        bash(&mount.mnt, "echo before > f && sync f").ok();
        // The restarted MDT waits for this mount.
        mount.freeze();
        cluster.kill("mds");
        cluster.spawn("mds");
        // Dropped before the cluster, also after a failure: it unmounts what a command has mounted.
        let later = Mount { mnt: cluster.base.join("later") };
        let words = [OsStr::new("mount"), later.mnt.as_os_str()];
        for is_interrupted in [true, false] {
            let (mut command, mut messages) = begin(&cluster, &later.mnt);
            // Before, the command may wait for the start of the MDT.
            let mut lines = (&mut messages).lines().map(Result::unwrap);
            let message = lines.find(|line| line.contains(" is in recovery")).expect("a message");
            assert!(message.starts_with("sheen: many-MDT0000 is in recovery: waiting up to "), "{message}");
            if is_interrupted {
                // A shell lets its background processes ignore SIGINT, and so possibly this test.
                kill_process(Pid::from_child(&command.0), Signal::TERM).unwrap();
                assert!(!command.0.wait().unwrap().success());
                eventually("the background process has ended", || processes(&words).is_empty());
            } else {
                sandbox.sh(Path::new("/"), "lctl --device many-MDT0000 abort_recovery").ok();
                assert!(command.0.wait().unwrap().success());
            }
        }
        assert_eq!(bash(&later.mnt, "cat f").ok(), "before\n");
    });
}

#[test]
fn mount_that_waits_for_the_mdt_follows_it_to_another_port() {
    if !can_mount() {
        return println!("skipped: /dev/fuse cannot be opened here");
    }
    let mut cluster = Cluster::start();
    cluster.kill("mds");
    // Dropped before the cluster, also after a failure.
    let later = Mount { mnt: cluster.base.join("later") };
    let (mut command, messages) = begin(&cluster, &later.mnt);
    let mut lines = messages.lines().map(Result::unwrap);
    let message = lines.find(|line| line.contains("many-MDT0000")).expect("a message");
    assert!(message.starts_with("sheen: waiting up to "), "{message}");
    cluster.spawn_at("mds", "127.0.0.1:0@tcp");
    assert!(command.0.wait().unwrap().success());
    assert_eq!(bash(&later.mnt, "echo x > f && cat f").ok(), "x\n");
}

#[test]
fn read_waits_for_the_recovery_of_an_ost_that_its_mount_reaches_later() {
    if !can_mount() || !is_root() {
        return println!("skipped: needs root and /dev/fuse");
    }
    Sandbox::enter("mount-waits-ost", |sandbox| {
        let mut cluster = Cluster::start();
        let mount = cluster.mount();
        bash(&mount.mnt, "echo before > f && sync f").ok();
        // The restarted OST waits for this mount.
        mount.freeze();
        cluster.kill("oss");
        let later = cluster.mount_as("later");
        cluster.spawn("oss");
        eventually("the log of the mount names the recovery", || {
            let log = fs::read_to_string("/run/sheen/mount.log").unwrap_or_default();
            log.lines().any(|line| line.contains("the target is in recovery") && line.contains("many-OST"))
        });
        let file = later.path("f");
        let reading = blocks("a read", Duration::from_millis(100), move || fs::read_to_string(file));
        let abort = "lctl --device many-OST0000 abort_recovery && lctl --device many-OST0001 abort_recovery";
        sandbox.sh(Path::new("/"), abort).ok();
        assert_eq!(reading.join().unwrap().unwrap(), "before\n");
    });
}

#[test]
fn mount_from_a_wrong_port_fails_with_the_address_and_the_reason() {
    let at = new_dir(Path::new("/dev/shm"));
    // A port that was free a moment ago.
    let nid = format!("{}@tcp", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    let ran = run(sheen(), ["mount", &format!("{nid}:/sheen"), &at.to_string_lossy()]);
    let _ = fs::remove_dir_all(&at);
    assert_eq!(ran.code, 1, "{ran:?}");
    let error = format!("cannot mount {nid}:/sheen: cannot reach the MGS at {nid}: Connection refused");
    assert!(ran.err.contains(&error), "{ran:?}");
    assert!(!ran.err.contains("waiting"), "{ran:?}");
}
