//! Servers in processes of their own, over tcp: what their clients notice when servers are killed.

use std::{
    fs,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use sheen_tests::{
    Guarded, Mount,
    cluster::{Cluster, bash},
    detach,
    mounts::LIMIT,
    noise, run, run_command, sheen, two_mounts,
    wait::{blocks, eventually, let_pass, while_down},
};

/// MiB that are written when the OSS is killed, the first and the second time. The copy has 64 MiB.
const KILLED_AT: [usize; 2] = [16, 40];
/// Pause after each MiB, so that the OSS is killed during the copy.
const COPY_PAUSE: Duration = Duration::from_millis(10);
/// How long a killed OSS is down.
const DOWN: Duration = Duration::from_millis(200);
/// After this time, a program that waits for a server is still expected to wait.
const A_WHILE: Duration = Duration::from_millis(300);
/// A time in which several signals arrive.
const SOME_SIGNALS: Duration = Duration::from_millis(2500);

#[test]
fn copy_completes_although_its_oss_is_killed_and_restarted() {
    let Some(mut cluster) = Cluster::start_or_skip() else { return };
    let mount = cluster.mount();
    let data = noise(1, 64 << 20);
    bash(&mount.mnt, &format!("{} lfs setstripe -c 2 -S 64K f", sheen().display())).ok();
    let (path, bytes) = (mount.path("f"), data.clone());
    let written = Arc::new(AtomicUsize::new(0));
    let count = written.clone();
    let writer = thread::spawn(move || {
        let mut file = fs::OpenOptions::new().write(true).open(path).unwrap();
        for piece in bytes.chunks(1 << 20) {
            std::io::Write::write_all(&mut file, piece).unwrap();
            count.fetch_add(1, SeqCst);
            let_pass(COPY_PAUSE);
        }
        file.sync_all().unwrap();
    });
    for mib in KILLED_AT {
        eventually(format!("{mib} MiB are written"), || written.load(SeqCst) >= mib);
        cluster.kill("oss");
        let_pass(DOWN);
        cluster.spawn("oss");
    }
    writer.join().unwrap();
    assert!(fs::read(mount.path("f")).unwrap() == data);
}

#[test]
fn metadata_operations_continue_after_mds_and_mgs_restarts() {
    let Some(mut cluster) = Cluster::start_or_skip() else { return };
    let mount = cluster.mount();
    bash(&mount.mnt, "mkdir before && echo x > before/f && sync .").ok();
    let open = fs::OpenOptions::new().read(true).append(true).create(true).open(mount.path("open")).unwrap();
    open.sync_all().unwrap();
    fs::remove_file(mount.path("open")).unwrap();
    bash(&mount.mnt, "sync .").ok();
    cluster.kill("mds");
    cluster.spawn("mds");
    bash(&mount.mnt, "mkdir after && echo y > after/g && cat before/f after/g").ok();
    std::io::Write::write_all(&mut &open, b"alive").unwrap();
    assert_eq!(open.metadata().unwrap().len(), 5, "the orphan survives the restart");
    cluster.kill("mgs");
    bash(&mount.mnt, "echo z > after/h").ok();
    cluster.spawn("mgs");
    let second = Mount::new(&format!("{}:/many", cluster.nid("mgs")), cluster.base.join("mnt2"));
    assert_eq!(bash(&second.mnt, "cat before/f after/g after/h").ok(), "x\ny\nz\n");
}

#[test]
fn mds_that_starts_without_its_mgs_serves_existing_files() {
    let Some(mut cluster) = Cluster::start_or_skip() else { return };
    let mount = cluster.mount();
    bash(&mount.mnt, "mkdir d && echo x > d/f && sync .").ok();
    cluster.kill("mgs");
    cluster.kill("mds");
    cluster.spawn("mds");
    let mnt = mount.mnt.clone();
    let used = "cat d/f && mv d/f d/g && chmod 600 d/g && stat -c '%n %a' d/g";
    let found = while_down("operations on an existing file", move || bash(&mnt, used).ok());
    assert_eq!(found, "x\nd/g 600\n");
    cluster.spawn("mgs");
    eventually("files can be created", || bash(&mount.mnt, "echo y > d/new").code == 0);
    assert_eq!(bash(&mount.mnt, "cat d/g d/new").ok(), "x\ny\n");
}

#[test]
fn stopped_mgs_logs_no_error() {
    let Some(mut cluster) = Cluster::start_or_skip() else { return };
    let mount = cluster.mount(); // the MDT and this mount wait at the MGS for changes of the configuration
    let at = cluster.children.iter().position(|(k, _)| *k == "mgs").unwrap();
    let (_, mut mgs) = cluster.children.remove(at);
    bash(&cluster.base, &format!("kill -TERM {}", mgs.id())).ok();
    assert!(mgs.wait().unwrap().success());
    let log = cluster.log();
    assert!(!log.contains("ERROR"), "{log}");
    fs::write(mount.path("f"), "goes on").unwrap();
}

#[test]
fn waiter_for_a_killed_server_dies_by_sigkill_and_survives_other_signals() {
    let Some(mut cluster) = Cluster::start_or_skip() else { return };
    let mount = cluster.mount();
    bash(&mount.mnt, "echo content > f && sync .").ok();
    cluster.kill("oss");
    let cat = Command::new("cat").arg(mount.path("f")).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut cat = Guarded(cat.unwrap());
    let_pass(A_WHILE);
    assert!(cat.0.try_wait().unwrap().is_none(), "cat waits for the server");
    while_down("the end of a program that is killed", move || drop(cat));
    let script = "
import os, signal
signal.signal(signal.SIGALRM, lambda *a: None); signal.siginterrupt(signal.SIGALRM, True)
signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
print(os.popen('true').close(), end=' ')
fd = os.open('f', os.O_RDONLY)
print(os.pread(fd, 100, 0).decode(), end='')
signal.setitimer(signal.ITIMER_REAL, 0)";
    fs::write(cluster.base.join("alarm.py"), script).unwrap();
    let mut reader = Command::new("python3");
    reader.arg(cluster.base.join("alarm.py")).current_dir(&mount.mnt);
    let reader = blocks("a reader that gets signals", SOME_SIGNALS, move || run_command(reader));
    cluster.spawn("oss");
    assert_eq!(reader.join().unwrap().ok(), "None content\n", "SIGALRM is no reason to fail");
}

#[test]
fn umount_returns_when_the_mount_has_left_its_servers() {
    let two = two_mounts!(LIMIT);
    let param = |name: &str| run(sheen(), ["lctl", "get_param", "-n", name]);
    let exports = || -> u64 {
        let lines = param("obdfilter.*.num_exports").ok();
        lines.lines().map(|line| line.parse::<u64>().unwrap()).sum()
    };
    let data = noise(3, 3 << 20);
    fs::write(two.second.path("f"), &data).unwrap();
    fs::read(two.fs.path("f")).unwrap();
    let before = exports();
    let at = two.second.mnt.display().to_string();
    assert!(param("llite.*.mount_point").ok().lines().any(|line| line == at));
    run(sheen(), ["umount", &at]).ok();
    assert!(exports() < before, "the OSTs still know the client");
    assert!(!param("llite.*.mount_point").ok().lines().any(|line| line == at));
    assert!(fs::read(two.fs.path("f")).unwrap() == data);
}

/// The mount goes on where it is bound to: there is nothing to wait for.
#[test]
fn umount_succeeds_if_the_file_system_is_mounted_elsewhere_as_well() {
    let two = two_mounts!(LIMIT);
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(two.second.path("f"), "data").unwrap();
    let paths = [two.second.mnt.as_os_str(), elsewhere.path().as_os_str()];
    if run("mount", ["--bind".as_ref(), paths[0], paths[1]]).code != 0 {
        return println!("skipped: needs root");
    }
    let left = run(sheen(), ["umount".as_ref(), paths[0]]);
    let there = fs::read_to_string(elsewhere.path().join("f"));
    run("umount", [paths[1]]).ok();
    assert_eq!((left.code, left.err.as_str(), there.unwrap().as_str()), (0, "", "data"));
}

#[test]
fn keys_withdrawn_at_the_mgs_are_withdrawn_on_all_servers() {
    let Some(cluster) = Cluster::start_or_skip() else { return };
    let (base, sheen) = (cluster.base.clone(), sheen().display().to_string());
    let keys = format!("SHEEN_KEY_DIR={}/theirs", base.display());
    bash(&base, &format!("{sheen} key issue --dir mgs --host | {keys} {sheen} key add -")).ok();
    let mount = Mount { mnt: base.join("mnt") };
    let mount_line = format!("{keys} {sheen} mount {}:/many {}", cluster.nid("mgs"), mount.mnt.display());
    bash(&base, &mount_line).ok();
    bash(&mount.mnt, "echo text > f; sync f").ok();
    let id = bash(&base, "basename mgs/keys/*.issued .issued").ok().trim().to_owned();
    bash(&base, &format!("{sheen} key revoke {id} --dir mgs")).ok();
    for server in ["mds", "oss"] {
        let file = base.join(server).join("keys").join(format!("{id}.withdrawn"));
        eventually(format!("{server} has withdrawn the key"), || file.exists());
    }
    detach(&mount.mnt);
    let refused = bash(&base, &mount_line);
    assert!(refused.code != 0 && refused.err.contains("key"), "{}", refused.err);
}
