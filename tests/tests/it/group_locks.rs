//! Group locks and lockahead: Lustre's remedies for extent locks that bounce between writers of one
//! object.

use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use rustix::{
    io::Errno,
    ioctl::{Setter, Updater, ioctl},
};
use sheen_tests::{
    Guarded,
    cluster::Cluster,
    mounts::{LIMIT, TwoMounts, Watch},
    objects_below, run, sheen, two_mounts,
    wait::{EVENTUALLY, eventually, let_pass},
};
use sheen_wire::ioctl::{self as number, Ladvise};

/// After this time, an operation that waits is still expected to wait.
const A_WHILE: Duration = Duration::from_millis(300);
/// Length of a record. Neither its length nor its offset is aligned to pages.
const RECORD: usize = 47_008;
/// Records of each of two writers, which alternate in the file.
const RECORDS: u64 = 40;

const NONBLOCK: i32 = 0o4000;

fn open(path: &Path, flags: i32) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).custom_flags(flags).open(path).unwrap()
}

fn group_lock(file: &File, gid: u64) -> Result<(), Errno> {
    unsafe { ioctl(file, Setter::<{ number::GROUP_LOCK }, u64>::new(gid)) }
}

fn group_unlock(file: &File, gid: u64) -> Result<(), Errno> {
    unsafe { ioctl(file, Setter::<{ number::GROUP_UNLOCK }, u64>::new(gid)) }
}

/// Requests a lockahead for `len` bytes from `start`, and returns the result that the ioctl
/// reports.
fn lock_ahead(file: &File, mode: u16, flags: u32, start: u64, len: u64) -> Result<u32, Errno> {
    let last = start + (len - 1);
    let mut advice = Ladvise { advice: number::LOCKAHEAD, mode, flags, start, last, result: 77, spare: 0 };
    unsafe { ioctl(file, Updater::<{ number::LADVISE }, Ladvise>::new(&mut advice)) }?;
    Ok(advice.result)
}

/// Creates an empty file with one stripe.
fn one_stripe(two: &TwoMounts, path: &Path) {
    run(sheen(), ["lfs", "setstripe", "-c", "1", &path.display().to_string()]).ok();
    assert!(two.fs.mnt.exists());
}

/// Returns how many blocking callbacks the OSTs have sent so far.
fn callbacks(two: &TwoMounts) -> u64 {
    let stats = two.param("ldlm.namespaces.filter-{}-OST*.stats");
    assert!(stats.contains("ldlm_enqueue"), "{stats}");
    let lines = stats.lines().filter(|line| line.starts_with("ldlm_bl_callback"));
    lines.map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum()
}

fn record(n: u64) -> Vec<u8> {
    (0..RECORD).map(|i| (n as usize * 31 + i / 7 + i) as u8).collect()
}

/// Writes the records through both files at the same time. The two writers alternate in the file.
fn write_records(a: &File, b: &File) {
    thread::scope(|s| {
        for (file, turn) in [(a, 0), (b, 1)] {
            s.spawn(move || {
                for i in 0..RECORDS {
                    let n = 2 * i + turn;
                    file.write_all_at(&record(n), n * RECORD as u64).unwrap();
                }
            });
        }
    });
}

#[track_caller]
fn check_records(path: &Path) {
    let bytes = fs::read(path).unwrap();
    assert_eq!(bytes.len(), 2 * RECORDS as usize * RECORD);
    for (n, found) in bytes.chunks(RECORD).enumerate() {
        assert!(found == record(n as u64), "record {n} as {} shows it", path.display());
    }
}

/// Runs `f` in a thread of its own, and returns a channel for its result.
fn begin<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> mpsc::Receiver<T> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || send.send(f()));
    receive
}

#[track_caller]
fn waits<T>(receive: &mpsc::Receiver<T>) {
    assert!(receive.recv_timeout(A_WHILE).is_err(), "it did not wait");
}

#[track_caller]
fn soon<T>(receive: mpsc::Receiver<T>) -> T {
    receive.recv_timeout(EVENTUALLY).expect("the wait ends")
}

#[test]
fn group_members_write_without_blocking_callbacks() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    for name in ["striped", "one"] {
        if name == "one" {
            one_stripe(&two, &at.a(name));
        }
        let (a, b) = (open(&at.a(name), 0), open(&at.b(name), 0));
        // Both mounts have locks from before, which they cancel when they join the group.
        a.write_all_at(b"from before", 0).unwrap();
        a.write_all_at(b"from before", 100).unwrap();
        assert_eq!(fs::read(at.b(name)).unwrap().len(), 111);
        group_lock(&a, 5).unwrap();
        group_lock(&b, 5).unwrap();
        let before = callbacks(&two);
        write_records(&a, &b);
        for (file, n) in [(&a, 0), (&b, 1)] {
            let mut mine = vec![0; RECORD];
            file.read_exact_at(&mut mine, n * RECORD as u64).unwrap();
            assert!(mine == record(n), "a member reads its own record");
        }
        a.sync_all().unwrap();
        b.sync_all().unwrap();
        assert_eq!(callbacks(&two), before, "no blocking callback was sent");
        group_unlock(&a, 5).unwrap();
        drop(b);
        for path in [at.a(name), at.b(name)] {
            check_records(&path);
        }
    }
}

#[test]
fn writers_wait_until_the_last_group_member_leaves() {
    let two = two_mounts!(LIMIT);
    for (at, n) in [two.dir("d"), two.dir("d").swapped()].into_iter().zip(0..) {
        let name = format!("f{n}");
        let (a, a2) = (open(&at.a(&name), 0), open(&at.a(&name), 0));
        group_lock(&a, 7).unwrap();
        group_lock(&a2, 7).unwrap();
        a.write_all_at(b"of the group", 0).unwrap();
        a.write_all_at(b"of the group", 5000).unwrap();
        let path = at.b(&name);
        let writer = begin(move || open(&path, 0).write_all_at(b"stranger", 4));
        let path = at.b(&name);
        let other_group = begin(move || {
            let file = open(&path, 0);
            group_lock(&file, 8).map(|()| file)
        });
        waits(&writer);
        waits(&other_group);
        // The members continue to write and read.
        a2.write_all_at(b"more of the group", 10_000).unwrap();
        let mut read = [0; 12];
        a.read_exact_at(&mut read, 5000).unwrap();
        assert_eq!(&read, b"of the group");
        group_unlock(&a, 7).unwrap();
        waits(&writer);
        drop(a2);
        drop(soon(other_group).unwrap());
        soon(writer).unwrap();
        let bytes = fs::read(at.b(&name)).unwrap();
        assert_eq!(&bytes[..12], b"of tstranger");
        assert_eq!(&bytes[10_000..], b"more of the group");
    }
}

/// The mount that joins the group may itself wait for its reader and appender. The kernel has
/// locked the pages that are read, and the inode that is appended to.
#[test]
fn reads_and_appends_complete_while_their_mount_joins_a_group() {
    let two = two_mounts!(LIMIT);
    for (at, n) in [two.dir("d"), two.dir("d").swapped()].into_iter().zip(0..) {
        let name = format!("f{n}");
        fs::write(at.a(&name), vec![1; 100_000]).unwrap();
        let other = open(&at.b(&name), 0);
        group_lock(&other, 1).unwrap();
        let path = at.a(&name);
        let member = begin(move || {
            let file = open(&path, 0);
            group_lock(&file, 2).map(|()| file)
        });
        waits(&member);
        // Reader and appender wait at the OST behind the waiting group lock.
        let path = at.a(&name);
        let reader = begin(move || fs::read(path).unwrap());
        let path = at.a(&name);
        let appender = begin(move || OpenOptions::new().append(true).open(path).unwrap().write_all(b"at the end"));
        waits(&reader);
        waits(&appender);
        group_unlock(&other, 1).unwrap();
        let member = soon(member).unwrap();
        let read = soon(reader);
        assert!(read.len() >= 100_000 && read[..100_000].iter().all(|b| *b == 1), "{} bytes", read.len());
        soon(appender).unwrap();
        drop(member);
        assert!(fs::read(at.b(&name)).unwrap().ends_with(b"at the end"));
    }
}

#[test]
fn readers_wait_for_the_group_and_see_all_its_writes() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    fs::write(at.a("f"), vec![1; 200_000]).unwrap();
    // Both kernels cache the data.
    for path in [at.a("f"), at.b("f")] {
        assert!(fs::read(path).unwrap().iter().all(|b| *b == 1));
    }
    let a = open(&at.a("f"), 0);
    group_lock(&a, 9).unwrap();
    a.write_all_at(&[2; 100_000], 0).unwrap();
    for offset in (100_000..200_000).step_by(1000) {
        a.write_all_at(&[2; 1000], offset).unwrap();
    }
    let path = at.b("f");
    let reader = begin(move || fs::read(path).unwrap());
    waits(&reader);
    assert!(fs::read(at.a("f")).unwrap().iter().all(|b| *b == 2), "this mount is in the group");
    drop(a);
    assert!(soon(reader).iter().all(|b| *b == 2));
    // Afterwards data is cached again until another mount changes it.
    fs::write(at.b("f"), vec![3; 200_000]).unwrap();
    assert!(fs::read(at.a("f")).unwrap().iter().all(|b| *b == 3));
}

/// The kernel sends no read of a file that it takes for empty.
#[test]
fn readers_of_an_empty_file_wait_for_the_group() {
    let two = two_mounts!(LIMIT);
    for (at, n) in [two.dir("d"), two.dir("d").swapped()].into_iter().zip(0..) {
        for options in ["-c 1", "-c 2", "-E 1M -c 1 -E -1 -c 2"] {
            let name = format!("f{n} {options}");
            let words = ["lfs", "setstripe"].into_iter().chain(options.split(' ')).map(str::to_owned);
            run(sheen(), words.chain([at.a(&name).display().to_string()])).ok();
            let a = open(&at.a(&name), 0);
            group_lock(&a, 7).unwrap();
            assert_eq!(fs::metadata(at.b(&name)).unwrap().len(), 0, "stat does not wait");
            let path = at.b(&name);
            let reader = begin(move || fs::read(path).unwrap());
            waits(&reader);
            a.write_all_at(b"of the group", 0).unwrap();
            waits(&reader);
            assert_eq!(fs::read(at.a(&name)).unwrap(), b"of the group", "this mount is in the group");
            drop(a);
            assert_eq!(soon(reader), b"of the group");
        }
        // Without a group a reader does not wait, and the empty file stays empty.
        let name = format!("empty{n}");
        let a = open(&at.a(&name), 0);
        assert_eq!(fs::read(at.b(&name)).unwrap(), b"");
        drop(a);
    }
}

#[test]
fn group_lock_refuses_bad_group_ids_and_nonblocking_conflicts() {
    let two = two_mounts!(LIMIT);
    for (at, n) in [two.dir("d"), two.dir("d").swapped()].into_iter().zip(0..) {
        let name = format!("f{n}");
        let a = open(&at.a(&name), 0);
        assert_eq!(group_lock(&a, 0), Err(Errno::INVAL), "0 is no group");
        assert_eq!(group_unlock(&a, 3), Err(Errno::INVAL), "not locked");
        group_lock(&a, 3).unwrap();
        assert_eq!(group_lock(&a, 3), Err(Errno::INVAL), "locked already");
        assert_eq!(group_unlock(&a, 4), Err(Errno::INVAL), "another group");
        for path in [at.a(&name), at.b(&name)] {
            let other = open(&path, NONBLOCK);
            assert_eq!(group_lock(&other, 4), Err(Errno::AGAIN), "{}", path.display());
            group_lock(&other, 3).unwrap();
        }
        group_unlock(&a, 3).unwrap();
        // A lock that only covers dirty or cached data is cancelled.
        a.write_all_at(b"more", 0).unwrap();
        a.write_all_at(b"more", 10).unwrap();
        let other = open(&at.b(&name), NONBLOCK);
        group_lock(&other, 4).unwrap();
    }
    let dir = File::open(two.dir("d").a("")).unwrap();
    assert_eq!(group_lock(&dir, 1), Err(Errno::NOTTY));
    let elsewhere = tempfile::tempfile().unwrap();
    assert_eq!(group_lock(&elsewhere, 1), Err(Errno::NOTTY));
}

#[test]
fn group_locks_survive_the_kill_of_their_ost() {
    let Some(mut cluster) = Cluster::start_or_skip() else { return };
    let [first, second, other] = ["mnt", "mnt2", "mnt3"].map(|name| cluster.mount_as(name));
    let _watch = Watch::over(&[&first.mnt, &second.mnt, &other.mnt], LIMIT);
    run(sheen(), ["lfs", "setstripe", "-c", "2", "-S", "64K", &first.mnt.display().to_string()]).ok();
    let (a, b) = (open(&first.path("f"), 0), open(&second.path("f"), 0));
    group_lock(&a, 7).unwrap();
    group_lock(&b, 7).unwrap();
    a.write_all_at(b"first", 0).unwrap();
    b.write_all_at(b"first", 100_000).unwrap();
    let mut writer = None;
    for text in ["again", "third"] {
        // Both members have dirty data.
        a.write_all_at(text.as_bytes(), 0).unwrap();
        b.write_all_at(text.as_bytes(), 100_000).unwrap();
        cluster.kill("oss");
        cluster.spawn("oss");
        let path = other.path("f");
        let writer = writer.get_or_insert_with(|| begin(move || open(&path, 0).write_all_at(b"stranger", 4)));
        // Both OSTs accept the first write to a file only after their recovery.
        let after = open(&other.path(text), 0);
        after.write_all_at(&[1; 128 << 10], 0).unwrap();
        after.sync_all().unwrap();
        waits(writer);
        let another = open(&other.path("f"), NONBLOCK);
        assert_eq!(group_lock(&another, 8), Err(Errno::AGAIN));
        a.sync_all().unwrap();
        b.sync_all().unwrap();
    }
    group_unlock(&a, 7).unwrap();
    let writer = writer.unwrap();
    waits(&writer);
    drop(b);
    soon(writer).unwrap();
    let bytes = fs::read(first.path("f")).unwrap();
    assert_eq!((&bytes[..12], &bytes[100_000..]), (&b"thirstranger"[..], &b"third"[..]));
}

#[test]
fn removed_file_is_destroyed_although_a_frozen_mount_holds_its_group_lock() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    let file = open(&at.b("f"), 0);
    group_lock(&file, 7).unwrap();
    file.write_all_at(b"of the group", 0).unwrap();
    file.sync_all().unwrap();
    assert!(objects_below(&two.fs.dir()) > 0);
    // The mount stays frozen, so its eviction ends the lock. No child process is started meanwhile:
    // it would close `file`, and wait for the mount.
    two.second.freeze();
    fs::remove_file(at.a("f")).unwrap();
    eventually("the objects are destroyed", || objects_below(&two.fs.dir()) == 0);
    two.second.resume();
    drop(file);
}

#[test]
fn killed_program_stops_waiting_for_the_group_lock() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    let a = open(&at.a("f"), 0);
    group_lock(&a, 3).unwrap();
    let waiter = |path: &Path| {
        let path = path.display().to_string();
        let mut command = Command::new(sheen());
        command.args(["lfs", "group_lock", "-g", "4", &path, "true"]);
        Guarded(command.stdout(Stdio::null()).spawn().unwrap())
    };
    let mut waiters: Vec<Guarded> = [at.a("f"), at.b("f")].iter().map(|path| waiter(path)).collect();
    let_pass(A_WHILE);
    for waiter in &mut waiters {
        assert_eq!(waiter.0.try_wait().unwrap(), None, "it did not wait");
        waiter.0.kill().unwrap();
        waiter.0.wait().unwrap();
    }
    group_unlock(&a, 3).unwrap();
    let path = at.b("f");
    soon(begin(move || group_lock(&open(&path, 0), 5))).unwrap();
}

#[test]
fn lfs_group_lock_holds_the_lock_while_its_command_runs() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    let (path, seen) = (at.a("f").display().to_string(), at.b("f").display().to_string());
    fs::write(&path, "old\n").unwrap();
    let first = Command::new(sheen())
        .args(["lfs", "group_lock", "-g", "11", &path, "sh", "-c", "echo in; read go; echo new >$0", &path])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = Guarded(first);
    let mut said = [0; 3];
    first.0.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    assert_eq!(&said, b"in\n");
    let refused = run(sheen(), ["lfs", "group_lock", "-n", "-g", "12", &seen, "true"]);
    assert_eq!(refused.code, Errno::AGAIN.raw_os_error(), "{}", refused.err);
    assert_eq!(run(sheen(), ["lfs", "group_lock", "-n", "-g", "11", &seen, "sh", "-c", "exit 3"]).code, 3);
    let reader = begin(move || fs::read_to_string(seen).unwrap());
    waits(&reader);
    first.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    assert!(first.0.wait().unwrap().success());
    assert_eq!(soon(reader), "new\n");
}

#[test]
fn lockahead_spares_interleaved_writers_blocking_callbacks() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    let mut asked = Vec::new();
    for ahead in [false, true] {
        let name = if ahead { "ahead" } else { "plain" };
        one_stripe(&two, &at.a(name));
        let (a, b) = (open(&at.a(name), 0), open(&at.b(name), 0));
        if ahead {
            for n in 0..2 * RECORDS {
                let (file, start, len) = (if n % 2 == 0 { &a } else { &b }, n * RECORD as u64, RECORD as u64);
                let flags = if n % 3 == 0 { 0 } else { number::ASYNC };
                assert_eq!(lock_ahead(file, number::MODE_WRITE, flags, start, len), Ok(number::SENT), "record {n}");
            }
        }
        let before = callbacks(&two);
        // The first write through an open file takes no lock.
        a.write_all_at(&record(0), 0).unwrap();
        b.write_all_at(&record(1), RECORD as u64).unwrap();
        write_records(&a, &b);
        a.sync_all().unwrap();
        b.sync_all().unwrap();
        asked.push(callbacks(&two) - before);
        for path in [at.a(name), at.b(name)] {
            check_records(&path);
        }
    }
    assert!(asked[0] > 0 && asked[1] == 0, "blocking callbacks without and with lockahead: {asked:?}");
}

#[test]
fn lockahead_reports_sent_same_or_different() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    one_stripe(&two, &at.a("f"));
    let (a, b) = (open(&at.a("f"), 0), open(&at.b("f"), 0));
    let write = |file: &File, start, len| lock_ahead(file, number::MODE_WRITE, number::ASYNC, start, len);
    // The other mount has looked at the file and caches its size under a lock. An asynchronous
    // lockahead does not revoke that lock. One that may wait does.
    assert_eq!(write(&a, 1 << 20, 1 << 20), Ok(number::SENT));
    assert_eq!(lock_ahead(&a, number::MODE_WRITE, 0, 0, 4096), Ok(number::SENT));
    assert_eq!(write(&a, 1 << 20, 1 << 20), Ok(number::SENT));
    assert_eq!(write(&a, 1 << 20, 1 << 20), Ok(number::SAME));
    assert_eq!(write(&a, 1 << 20, 4096), Ok(number::DIFFERENT));
    assert_eq!(lock_ahead(&a, number::MODE_READ, 0, 1 << 20, 1 << 20), Ok(number::SAME), "a write lock permits reads");
    let before = callbacks(&two);
    assert_eq!(write(&b, 1 << 20, 4096), Ok(number::SENT));
    assert_eq!(callbacks(&two), before, "an asynchronous lockahead sends no blocking callback");
    assert_eq!(write(&b, 1 << 20, 4096), Ok(number::SENT), "b did not get the lock");
    assert_eq!(lock_ahead(&b, number::MODE_WRITE, 0, 1 << 20, 4096), Ok(number::SENT));
    assert!(callbacks(&two) > before, "a lockahead that may wait sends a blocking callback");
    assert_eq!(write(&b, 1 << 20, 4096), Ok(number::SAME));
    // A range to the end of the largest file, over several stripes.
    let wide = open(&at.a("wide"), 0);
    let rest = |file: &File| lock_ahead(file, number::MODE_WRITE, 0, 100_000, u64::MAX - 99_999);
    assert_eq!((rest(&wide), rest(&wide)), (Ok(number::SENT), Ok(number::SAME)));
    assert_eq!(write(&wide, 1 << 30, 1 << 20), Ok(number::DIFFERENT));
    let readable = File::open(at.a("f")).unwrap();
    assert_eq!(write(&readable, 0, 1), Err(Errno::BADF));
    assert_eq!(lock_ahead(&readable, 9, 0, 0, 1), Err(Errno::INVAL));
    let path = at.b("f").display().to_string();
    for advice in ["willread", "dontneed"] {
        assert_eq!(run(sheen(), ["lfs", "ladvise", "-a", advice, "-s", "0", "-e", "4M", &path]).ok(), "");
    }
    run(sheen(), ["lfs", "ladvise", "-a", "lockahead", "-m", "WRITE", "-s", "8M", "-l", "1M", &path]).ok();
    assert_eq!(write(&b, 8 << 20, 1 << 20), Ok(number::SAME), "lfs has requested this lock");
}
