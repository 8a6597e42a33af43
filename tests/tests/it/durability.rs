//! Durability: what survives clean stops, `kill -9`, and a second start on the same directory.

use std::{
    fs::{self, File},
    io::Write,
    os::{fd::AsRawFd, unix::fs::FileExt},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    thread,
};

use sheen_tests::{
    Fs, Mount, can_mount,
    cluster::{Cluster, bash},
    mounts::get_param,
    noise, objects_below, run, sheen,
    wait::eventually,
};

/// Files that a writer has written before the file system's process is killed.
const FILES_WHEN_KILLED: u32 = 5;

/// Starts a file system on a disk, not in memory.
fn on_disk(osts: u32) -> Option<Fs> {
    can_mount().then(|| Fs::up_in(&std::env::temp_dir(), osts, &[]))
}

macro_rules! disk {
    () => {
        match on_disk(4) {
            Some(fs) => fs,
            None => return println!("skipped: /dev/fuse cannot be opened here"),
        }
    };
}

#[test]
fn a_stop_and_a_start_keep_everything() {
    let fs = disk!();
    fs.lfs("setstripe -C 8 -S 64K over").ok();
    fs::write(fs.path("over"), noise(1, 3 << 20)).unwrap();
    fs.sh("mkdir -p a/b && echo x > a/b/f && ln a/b/f a/l && ln -s b a/s && chmod 640 a/b/f && setfattr -n user.k -v v a/b/f && touch -d '2001-02-03 04:05:06.5' a/b").ok();
    let listing = "find . -printf '%p %y %m %n %s %T@ %i\\n' | sort; getfattr -d a/b/f; sheen=1";
    let before = fs.sh(listing).ok();
    let stripes = fs.lfs("getstripe over").ok();
    fs.stop().ok();
    assert!(!sheen_tests::is_mounted(&fs.mnt));
    fs.start(&[]).ok();
    assert_eq!(fs.sh(listing).ok(), before);
    assert_eq!(fs.lfs("getstripe over").ok(), stripes);
    assert!(fs::read(fs.path("over")).unwrap() == noise(1, 3 << 20));
}

#[test]
fn kill_9_loses_no_synced_data() {
    let fs = disk!();
    fs.lfs("setstripe -c 4 -S 64K .").ok();
    fs::create_dir(fs.path("d")).unwrap();
    let mut synced = Vec::new();
    for round in 0..3u64 {
        for i in 0..20u64 {
            let seed = round * 100 + i;
            let name = format!("d/f{seed}");
            let mut file = File::create(fs.path(&name)).unwrap();
            file.write_all(&noise(seed, 300_000)).unwrap();
            file.sync_all().unwrap();
            synced.push((name, seed));
        }
        // These files are being written when the process is killed.
        let made = Arc::new(AtomicU32::new(0));
        let (count, root) = (made.clone(), File::open(&fs.mnt).unwrap());
        let writer = thread::spawn(move || {
            for i in 0.. {
                // By its path, this would be a file below the mount point once the mount is
                // detached.
                let path = format!("/proc/self/fd/{}/busy{round}.{i}", root.as_raw_fd());
                let Ok(mut file) = File::create(path) else { return };
                if file.write_all(&[7; 50_000]).is_err() {
                    return;
                }
                count.fetch_add(1, SeqCst);
            }
        });
        eventually("the writer is busy", || made.load(SeqCst) >= FILES_WHEN_KILLED);
        fs.kill();
        writer.join().unwrap();
        fs.start(&[]).ok();
        for (name, seed) in &synced {
            assert!(fs::read(fs.path(name)).unwrap() == noise(*seed, 300_000), "{name} after round {round}");
        }
        assert_whole(&fs.mnt);
    }
}

/// Reads and removes every listed file, and asserts that it holds no data of other files.
fn assert_whole(mnt: &Path) {
    for entry in fs::read_dir(mnt).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if name.starts_with("busy") {
            let bytes = fs::read(entry.path()).unwrap();
            assert!(bytes.iter().all(|b| *b == 7 || *b == 0), "{name} holds bytes of another file");
            fs::remove_file(entry.path()).unwrap();
        }
    }
}

#[test]
fn changes_older_than_the_commit_interval_survive_a_kill_without_sync() {
    let fs = disk!();
    let value = |name: &str| get_param(name).trim().rsplit_once('=').unwrap().1.parse::<u64>().unwrap();
    let committed = || value("mdt.sheen-MDT0000.last_committed");
    fs.sh("sync .").ok();
    let before = committed();
    fs.sh(
        "mkdir -p old/dir && for i in $(seq 200); do echo $i > old/f$i; done && mv old/f1 old/dir/moved && rm old/f2",
    )
    .ok();
    let last = value("mdt.sheen-MDT0000.last_transno");
    assert!(last >= before + 2 + 200 + 2, "each of these operations is a transaction: {before} to {last}");
    eventually("the MDT commits by itself", || committed() >= last);
    let dirty = || get_param("osc.sheen-*.cur_dirty_bytes").lines().any(|line| !line.ends_with("=0"));
    eventually("the mount flushes by itself", || !dirty());
    fs.kill();
    fs.start(&[]).ok();
    assert_eq!(fs.sh("ls old | wc -l; cat old/dir/moved; ls old/f2 2>/dev/null; cat old/f200").ok(), "199\n1\n200\n");
}

/// Changes in a directory with the file `f`, and the inode whose sync makes each durable.
const CHANGES: [(&str, &str); 9] = [
    ("touch g", "."),
    ("mv f g", "."),
    ("rm f", "."),
    ("ln f g", "."),
    ("mkdir g", "."),
    ("ln -s f g", "."),
    ("chmod 600 f", "f"),
    ("setfattr -n user.k -v v f", "f"),
    ("touch -d 2001-02-03 f", "f"),
];

/// Starts a cluster with two mounts whose MDT does not commit by itself. Makes the changes of
/// [`CHANGES`] through the first mount, each in a directory of its own with a file `f`, and one
/// further directory `9` without a change.
fn uncommitted() -> (Cluster, Mount, Mount) {
    let cluster = Cluster::start();
    let (mount, other) = (cluster.mount(), cluster.mount_as("other"));
    // A job id is not a part of a change.
    let set = "lctl set_param mdt.many-MDT0000.commit_interval_ms=60000 jobid_var=procname_uid";
    let set = format!("{} {set}", sheen().display());
    // The first object on an OST commits what was before (`CommitFirst`).
    for ost in 0..2 {
        let setstripe = format!("{} lfs setstripe -i {ost} first{ost}", sheen().display());
        eventually(format!("OST {ost} takes objects"), || bash(&mount.mnt, &setstripe).code == 0);
    }
    let make = "for i in $(seq 0 9); do mkdir $i; echo x > $i/f; done; sync .";
    // In this order the sync ends a wait of the former interval.
    bash(&mount.mnt, &format!("{set}; {make}")).ok();
    // The other mount is on the MDT's list of clients before the changes. Joining it commits.
    bash(&other.mnt, "touch other; sync .").ok();
    for (i, (change, _)) in CHANGES.iter().enumerate() {
        bash(&mount.mnt.join(i.to_string()), change).ok();
    }
    (cluster, mount, other)
}

/// The state of all directories: names, kinds, permissions, link counts, all times, attributes.
const STATE: &str = "shopt -s nullglob; for i in $(seq 0 9); do ls -A $i; stat -c '%n %F %a %h %i %x %y %z' $i $i/*; \
     getfattr -d $i/f 2>/dev/null || true; done";

fn recovery_status() -> String {
    run(sheen(), ["lctl", "get_param", "-n", "mdt.many-MDT0000.recovery_status"]).ok()
}

#[test]
fn changes_that_a_killed_mdt_had_answered_are_replayed() {
    if !can_mount() {
        return println!("skipped: /dev/fuse cannot be opened here");
    }
    let (mut cluster, mount, other) = uncommitted();
    // A change of the other mount depends on one of the first, and a file is open and unlinked.
    bash(&other.mnt, "echo theirs > 4/g/theirs").ok();
    let mut open = File::options().read(true).write(true).create_new(true).open(mount.mnt.join("9/open")).unwrap();
    open.write_all(b"before").unwrap();
    fs::remove_file(mount.mnt.join("9/open")).unwrap();
    // The close of a file that was read reports its access time.
    let accessed = || bash(&other.mnt, "stat -c %x 9/f").ok();
    let unread = accessed();
    eventually("the access time moves", || {
        bash(&other.mnt, "dd if=9/f of=/dev/null iflag=direct status=none").ok();
        accessed() != unread
    });
    let before = bash(&other.mnt, STATE).ok();
    cluster.kill("mds");
    cluster.spawn("mds");
    bash(&mount.mnt, "sync . && for i in $(seq 0 8); do sync $i; done").ok();
    bash(&other.mnt, "sync .").ok();
    for mnt in [&mount.mnt, &other.mnt] {
        assert_eq!(bash(mnt, STATE).ok(), before);
        assert_eq!(fs::read(mnt.join("4/g/theirs")).unwrap(), b"theirs\n");
    }
    open.write_all(b" and after").unwrap();
    let mut bytes = [0; 16];
    open.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"before and after");
    let status = recovery_status();
    for line in ["status: COMPLETE", "completed_clients: 2/2"] {
        assert!(status.contains(line), "{status}");
    }
    let replayed = status.lines().find_map(|l| l.strip_prefix("replayed_requests: ")).unwrap();
    assert!(replayed.parse::<usize>().unwrap() >= CHANGES.len(), "{status}");
    // After a clean stop there is nothing to recover.
    cluster.stop("mds");
    cluster.spawn("mds");
    assert_eq!(bash(&other.mnt, STATE).ok(), before);
    assert_eq!(recovery_status(), "status: INACTIVE\n");
}

#[test]
fn fsync_reports_changes_of_a_mount_that_was_not_waited_for() {
    if !can_mount() {
        return println!("skipped: /dev/fuse cannot be opened here");
    }
    let (mut cluster, mount, other) = uncommitted();
    // A permanent parameter, because the MDT must have it when it starts.
    run(sheen(), ["lctl", "--fsname", "many", "set_param", "-P", "mdt.*.recovery_time_hard=1"]).ok();
    mount.freeze();
    cluster.kill("mds");
    cluster.spawn("mds");
    let left = "for i in $(seq 0 9); do ls -A $i; stat -c %a $i/f; done | sort -u";
    assert_eq!(bash(&other.mnt, left).ok(), "644\nf\n", "the state of before");
    assert!(cluster.log().contains("recovery is over: 2 clients, 1 of them lost"), "{}", cluster.log());
    mount.resume();
    let synced = |what: &str| {
        let ran = bash(&mount.mnt, &format!("sync {what}"));
        assert!(ran.code == 0 || ran.err.contains("Input/output error"), "{ran:?}");
        ran.code == 0
    };
    for (i, (change, inode)) in CHANGES.iter().enumerate() {
        let path = format!("{i}/{inode}");
        assert_eq!((synced(&path), synced(&path)), (false, true), "{change}");
    }
    assert!(synced("9") && synced("9/f"), "not changed since the last sync");
    assert_eq!((synced("."), synced(".")), (false, true), "a sync of everything");
    bash(&other.mnt, "sync 0; sync .").ok();
    assert_eq!(bash(&mount.mnt, left).ok(), "644\nf\n", "the state of before");
}

#[test]
fn new_objects_never_show_data_of_lost_files() {
    let fs = disk!();
    fs.lfs("setstripe -c 1 -i 0 .").ok();
    for round in 0..3 {
        for i in 0..30 {
            let _ = fs::write(fs.path(&format!("s{round}.{i}")), vec![0xEE; 100_000]);
        }
        fs.kill();
        fs.start(&[]).ok();
        for i in 0..30 {
            let file = File::create(fs.path(&format!("t{round}.{i}"))).unwrap();
            file.write_all_at(b"end", 90_000).unwrap();
            let bytes = fs::read(fs.path(&format!("t{round}.{i}"))).unwrap();
            assert_eq!(bytes.len(), 90_003);
            assert!(bytes[..90_000].iter().all(|b| *b == 0), "a hole shows old bytes");
        }
    }
}

#[test]
fn restart_serves_all_files_and_a_second_up_is_no_error() {
    let fs = disk!();
    fs.sh("for i in $(seq 2000); do : > f$i; done").ok();
    fs.stop().ok();
    fs.start(&[]).ok();
    assert_eq!(fs.sh("ls | wc -l").ok(), "2000\n");
    let again = fs.start(&[]);
    assert_eq!(again.code, 0, "`up` of a running file system is no error: {}", again.err);
}

#[test]
fn killed_up_does_not_wait_for_its_own_mount_at_the_next_start() {
    let fs = disk!();
    fs.sh("mkdir d && echo x > d/f && sync . && echo y >> d/f && touch d/g").ok();
    fs.kill();
    fs.start(&[]).ok();
    fs.sh("grep x d/f").ok();
    let names = ["mdt.*.recovery_status", "obdfilter.*.recovery_status"];
    let status = names.map(|name| run(sheen(), ["lctl", "get_param", "-n", name]).ok());
    assert_eq!(status, ["status: INACTIVE\n".to_owned(), "status: INACTIVE\n".repeat(4)]);
}

#[test]
fn restarts_of_one_process_activate_all_osts_without_warnings() {
    let fs = disk!();
    let log = || fs::read_to_string(fs.dir().join("sheen.log")).unwrap();
    let active = |log: &str| log.lines().filter(|l| l.contains("-OST") && l.contains("is active")).count();
    assert_eq!(active(&log()), 4, "ready means that the OSTs take new objects");
    let mgs = fs.status()["mgs"].as_str().unwrap().to_owned();
    let nids = sheen_tests::run(sheen_tests::sheen(), ["lctl", "list_nids"]).ok();
    assert!(nids.lines().any(|l| l == mgs), "{nids} has no {mgs}");
    fs.sh("echo x > f").ok();
    fs.stop().ok();
    // Now the MGS knows the OSTs before they register. The port is a different one.
    fs.start(&["--listen", "127.0.0.1:0"]).ok();
    assert_eq!(active(&log()), 8);
    fs.sh("cat f && echo y > g").ok();
    fs.kill();
    fs.start(&[]).ok();
    assert_eq!(active(&log()), 12);
    fs.stop().ok();
    let log = log();
    let bad: Vec<_> =
        log.lines().filter(|l| l.contains(" WARN ") || l.contains("ERROR") || l.contains("refusing")).collect();
    assert!(bad.is_empty(), "{bad:#?} in\n{log}");
}

#[test]
fn orphan_is_destroyed_after_its_client_died() {
    let fs = disk!();
    let second = fs.second_mount();
    let mut file = File::create(second.path("doomed")).unwrap();
    file.write_all(&noise(3, 32 << 20)).unwrap();
    fs::remove_file(second.path("doomed")).unwrap();
    assert!(objects(&fs) > 0, "an open file keeps its objects");
    drop(second);
    drop(file);
    eventually("no objects are left behind", || objects(&fs) == 0);
}

/// Counts the object files of all OSTs.
fn objects(fs: &Fs) -> usize {
    (0..4).map(|i| objects_below(&fs.dir().join(format!("ost{i}")))).sum()
}
