//! flock(2) and fcntl(2) locks, which hold among the programs of all mounts.

use std::{
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    sync::{
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use sheen_tests::{
    Guarded,
    cluster::Cluster,
    mounts::{LIMIT, Watch},
    posix::{Conflict, Kind, Owner, conflict, lock},
    run_command, run_within, two_mounts,
    wait::{EVENTUALLY, blocks, eventually, let_pass},
};

/// After this time, a program that waits is still expected to wait.
const A_WHILE: Duration = Duration::from_millis(300);

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

const SHARED: FlockOperation = FlockOperation::NonBlockingLockShared;
const EXCLUSIVE: FlockOperation = FlockOperation::NonBlockingLockExclusive;
const UNLOCK: FlockOperation = FlockOperation::Unlock;
const BUSY: Result<(), Errno> = Err(Errno::WOULDBLOCK);

fn try_lock(file: &File, kind: Kind, start: i64, len: i64) -> Result<(), Errno> {
    // POSIX allows EACCES as well; Linux returns EAGAIN.
    lock(file, Owner::Process, false, kind, start, len)
}

#[test]
fn flock_excludes_across_mounts() {
    let two = two_mounts!(LIMIT);
    for at in [two.dir("d"), two.dir("d").swapped()] {
        let (a, b, b2) = (open(&at.a("f")), open(&at.b("f")), open(&at.b("f")));
        flock(&a, EXCLUSIVE).unwrap();
        assert_eq!(flock(&b, EXCLUSIVE), BUSY);
        assert_eq!(flock(&b, SHARED), BUSY);
        flock(&a, EXCLUSIVE).unwrap();
        flock(&a, UNLOCK).unwrap();
        flock(&b, SHARED).unwrap();
        flock(&a, SHARED).unwrap();
        flock(&b2, SHARED).unwrap();
        assert_eq!(flock(&a, EXCLUSIVE), BUSY, "others share it");
        flock(&a, SHARED).unwrap();
        flock(&b, UNLOCK).unwrap();
        drop(b2);
        // A close may return before its lock is released: another kernel thread may finish the
        // close.
        eventually("free after the others unlocked or closed", || flock(&a, EXCLUSIVE).is_ok());
        assert_eq!(flock(&b, SHARED), BUSY, "upgraded once the others have closed or unlocked");
        flock(&a, SHARED).unwrap();
        flock(&b, SHARED).unwrap();
        drop(a);
        eventually("released by a close", || flock(&b, EXCLUSIVE).is_ok());
        let a = open(&at.a("f"));
        assert_eq!(flock(&a, SHARED), BUSY);
        let twin = b.try_clone().unwrap();
        drop(b);
        assert_eq!(flock(&a, SHARED), BUSY, "the other descriptor of the same open file still holds the lock");
        drop(twin);
        eventually("released by the last close", || flock(&a, EXCLUSIVE).is_ok());
        let other = open(&at.b("g"));
        flock(&other, EXCLUSIVE).unwrap();
    }
}

#[test]
fn fcntl_range_locks_exclude_across_mounts() {
    let two = two_mounts!(LIMIT);
    for at in [two.dir("d"), two.dir("d").swapped()] {
        let (a, b) = (open(&at.a("f")), open(&at.b("f")));
        try_lock(&a, Kind::Write, 100, 100).unwrap();
        assert_eq!(try_lock(&b, Kind::Write, 199, 1), BUSY);
        assert_eq!(try_lock(&b, Kind::Read, 0, 0), BUSY);
        try_lock(&b, Kind::Write, 0, 100).unwrap();
        try_lock(&b, Kind::Write, 200, 0).unwrap();
        assert_eq!(try_lock(&a, Kind::Write, 0, 0), BUSY);
        try_lock(&a, Kind::Unlock, 120, 10).unwrap();
        try_lock(&b, Kind::Write, 120, 10).unwrap();
        assert_eq!(try_lock(&b, Kind::Write, 119, 1), BUSY, "split: the left part is still locked");
        assert_eq!(try_lock(&b, Kind::Write, 130, 1), BUSY, "and the right");
        try_lock(&b, Kind::Unlock, 0, 0).unwrap();
        try_lock(&a, Kind::Read, 0, 1000).unwrap();
        try_lock(&b, Kind::Read, 500, 1000).unwrap();
        assert_eq!(try_lock(&a, Kind::Write, 999, 1), BUSY);
        try_lock(&a, Kind::Write, 0, 500).unwrap();
        assert_eq!(try_lock(&b, Kind::Read, 499, 1), BUSY, "upgraded in part");
        flock(&b, EXCLUSIVE).expect("flock(2) and fcntl(2) do not see each other");
        flock(&b, UNLOCK).unwrap();
        try_lock(&b, Kind::Unlock, 0, 0).unwrap();
        // Any close of the file by the process releases all its locks on the file, through whatever
        // descriptor.
        drop(open(&at.a("f")));
        eventually("released by a close", || try_lock(&b, Kind::Write, 0, 0).is_ok());
        try_lock(&b, Kind::Unlock, 0, 0).unwrap();
    }
}

/// Runs `wait` on a thread, and asserts that it waits until `release` is called and then ends.
#[track_caller]
fn waits_until<T: Send + 'static>(wait: impl FnOnce() -> T + Send + 'static, release: impl FnOnce()) -> T {
    let waiter = blocks("a waiter for a lock", A_WHILE, wait);
    release();
    eventually("the waiter is woken", || waiter.is_finished());
    waiter.join().unwrap()
}

#[test]
fn waiting_lock_is_granted_on_release() {
    let two = two_mounts!(LIMIT);
    for at in [two.dir("d"), two.dir("d").swapped()] {
        let (a, b) = (open(&at.a("f")), open(&at.b("f")));
        for how in [FlockOperation::LockExclusive, FlockOperation::LockShared] {
            flock(&a, EXCLUSIVE).unwrap();
            let waiter = b.try_clone().unwrap();
            waits_until(move || flock(&waiter, how), || flock(&a, UNLOCK).unwrap()).unwrap();
            assert_eq!(flock(&a, EXCLUSIVE), BUSY);
            flock(&b, UNLOCK).unwrap();
        }
        let holder = open(&at.a("f"));
        flock(&holder, EXCLUSIVE).unwrap();
        let waiter = b.try_clone().unwrap();
        waits_until(move || flock(&waiter, FlockOperation::LockExclusive), || drop(holder)).unwrap();
        flock(&b, UNLOCK).unwrap();
        for part in [(0, 0), (50, 10)] {
            try_lock(&a, Kind::Write, 0, 100).unwrap();
            let waiter = b.try_clone().unwrap();
            let wait = move || {
                let got = lock(&waiter, Owner::Process, true, Kind::Write, part.0, part.1);
                got.and_then(|()| lock(&waiter, Owner::Process, false, Kind::Unlock, 0, 0))
            };
            waits_until(wait, || try_lock(&a, Kind::Unlock, 0, 100).unwrap()).unwrap();
        }
    }
}

/// A process that uses a file and prints its progress.
struct Program {
    child: Guarded,
    lines: mpsc::Receiver<String>,
}

impl Program {
    /// Runs a Python script. In it, `f` is the file, open for reading and writing. `say` prints,
    /// and `hear()` waits for a line.
    #[track_caller]
    fn start(path: &Path, script: &str) -> Program {
        let frame = "import fcntl, os, signal, sys, errno\n\
            def say(*words): print(*words, flush=True)\n\
            def hear(): sys.stdin.readline()\n\
            f = open(sys.argv[1], 'r+b', buffering=0)\n";
        let child = Command::new("python3")
            .args(["-c", &format!("{frame}{script}")])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let mut child = Guarded(child);
        let (said, lines) = mpsc::channel();
        let output = BufReader::new(child.0.stdout.take().unwrap());
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| said.send(line)));
        Program { child, lines }
    }

    /// Waits for the next line of the program's output.
    #[track_caller]
    fn says(&self) -> String {
        self.lines.recv_timeout(EVENTUALLY).expect("the program prints a line")
    }

    #[track_caller]
    fn says_nothing(&self) {
        assert_eq!(self.lines.recv_timeout(A_WHILE).ok(), None, "it should wait");
    }

    fn tell(&mut self) {
        self.child.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    /// kill -9
    fn kill(&mut self) {
        self.child.0.kill().unwrap();
        self.child.0.wait().unwrap();
    }
}

const HOLD_FLOCK: &str = "fcntl.flock(f, fcntl.LOCK_EX); say('held'); hear()";
const HOLD_FCNTL: &str = "fcntl.lockf(f, fcntl.LOCK_EX, 10, 5); say('held'); hear()";

#[test]
fn killed_process_releases_its_locks() {
    let two = two_mounts!(LIMIT);
    for at in [two.dir("d"), two.dir("d").swapped()] {
        let b = open(&at.b("f"));
        for hold in [HOLD_FLOCK, HOLD_FCNTL] {
            let mut holder = Program::start(&at.a("f"), hold);
            assert_eq!(holder.says(), "held");
            let waiter = b.try_clone().unwrap();
            let wait = move || match hold {
                HOLD_FLOCK => flock(&waiter, FlockOperation::LockExclusive),
                _ => lock(&waiter, Owner::Process, true, Kind::Write, 0, 0),
            };
            waits_until(wait, || holder.kill()).unwrap();
            flock(&b, UNLOCK).unwrap();
            let _ = try_lock(&b, Kind::Unlock, 0, 0);
        }
    }
}

#[test]
fn killed_mount_releases_its_locks() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    let a = open(&at.a("f"));
    let holders = [HOLD_FLOCK, HOLD_FCNTL].map(|hold| Program::start(&at.b("f"), hold));
    holders.iter().for_each(|h| assert_eq!(h.says(), "held"));
    assert_eq!((flock(&a, SHARED), try_lock(&a, Kind::Read, 12, 1)), (BUSY, BUSY));
    two.second.kill();
    // The mount stays dead: that these locks are granted proves that those of the mount ended.
    flock(&a, FlockOperation::LockExclusive).unwrap();
    lock(&a, Owner::Process, true, Kind::Write, 0, 0).unwrap();
}

#[test]
fn signal_interrupts_a_wait_for_a_lock() {
    let two = two_mounts!(LIMIT);
    for at in [two.dir("d"), two.dir("d").swapped()] {
        let (a, a2) = (open(&at.a("f")), open(&at.a("f")));
        for wait in ["fcntl.flock(f, fcntl.LOCK_EX)", "fcntl.lockf(f, fcntl.LOCK_EX, 10, 5)"] {
            flock(&a, EXCLUSIVE).unwrap();
            try_lock(&a, Kind::Write, 0, 0).unwrap();
            let script = format!(
                "
def alarm(*_): raise InterruptedError
signal.signal(signal.SIGALRM, alarm)
try: signal.setitimer(signal.ITIMER_REAL, 0.5); {wait}
except InterruptedError: say('interrupted')
hear()"
            );
            let program = Program::start(&at.b("f"), &script);
            assert_eq!(program.says(), "interrupted");
            flock(&a, UNLOCK).unwrap();
            try_lock(&a, Kind::Unlock, 0, 0).unwrap();
            flock(&a2, EXCLUSIVE).expect("an interrupted waiter does not get the lock later");
            try_lock(&a2, Kind::Write, 0, 0).expect("nor the range lock");
            flock(&a2, UNLOCK).unwrap();
            try_lock(&a2, Kind::Unlock, 0, 0).unwrap();
        }
    }
}

/// Over io_uring the kernel does not report such a signal.
#[test]
fn signal_before_the_mount_sees_the_request_interrupts_a_wait_for_a_lock() {
    let (two, at) = two_mounts!(LIMIT, "d");
    let a = open(&at.a("f"));
    flock(&a, EXCLUSIVE).unwrap();
    let script = "
def alarm(*_): raise InterruptedError
signal.signal(signal.SIGALRM, alarm)
say('now')
hear()
try: signal.setitimer(signal.ITIMER_REAL, 0.1); fcntl.flock(f, fcntl.LOCK_EX)
except InterruptedError: say('interrupted')
hear()";
    let mut program = Program::start(&at.b("f"), script);
    assert_eq!(program.says(), "now");
    two.second.freeze();
    program.tell();
    eventually("the signal has come", || sheen_rt::proc::has_signal(program.child.0.id()));
    two.second.resume();
    assert_eq!(program.says(), "interrupted");
}

#[test]
fn killed_waiter_never_gets_the_lock() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    let (a, a2) = (open(&at.a("f")), open(&at.a("f")));
    flock(&a, EXCLUSIVE).unwrap();
    try_lock(&a, Kind::Write, 0, 0).unwrap();
    for wait in ["fcntl.flock(f, fcntl.LOCK_EX)", "fcntl.lockf(f, fcntl.LOCK_EX)"] {
        let mut waiter = Program::start(&at.b("f"), &format!("say('now')\n{wait}\nsay('got it')"));
        assert_eq!(waiter.says(), "now");
        waiter.says_nothing();
        // The lock stays held: that the program ends proves that its wait ended.
        waiter.kill();
    }
    flock(&a, UNLOCK).unwrap();
    eventually("free after the waiter died", || flock(&a2, EXCLUSIVE).is_ok());
    try_lock(&a, Kind::Unlock, 0, 0).unwrap();
    let b = open(&at.b("f"));
    eventually("free after the waiter died", || try_lock(&b, Kind::Write, 0, 0).is_ok());
}

#[test]
fn fcntl_deadlock_across_mounts_is_refused() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    fs::write(at.a("f"), "x").unwrap();
    let take = |mine: u32, other: u32| {
        format!(
            "
fcntl.lockf(f, fcntl.LOCK_EX, 1, {mine}); say('holds'); hear()
try: fcntl.lockf(f, fcntl.LOCK_EX, 1, {other}); say('got it')
except OSError as e: say('deadlock' if e.errno == errno.EDEADLK else e)
hear()"
        )
    };
    let mut first = Program::start(&at.a("f"), &take(0, 1));
    let mut second = Program::start(&at.b("f"), &take(1, 0));
    assert_eq!((first.says(), second.says()), ("holds".into(), "holds".into()));
    first.tell();
    first.says_nothing();
    second.tell();
    assert_eq!(second.says(), "deadlock");
    second.kill();
    assert_eq!(first.says(), "got it", "the other program gets the lock");
}

#[test]
fn getlk_returns_the_conflicting_lock_and_its_pid() {
    let two = two_mounts!(LIMIT);
    for at in [two.dir("d"), two.dir("d").swapped()] {
        let b = open(&at.b("f"));
        assert_eq!(conflict(&b, Kind::Write, 0, 0), Ok(None));
        let mut holder = Program::start(&at.a("f"), HOLD_FCNTL);
        assert_eq!(holder.says(), "held");
        let pid = holder.child.0.id() as i32;
        let found = conflict(&b, Kind::Read, 0, 0).unwrap();
        assert_eq!(found, Some(Conflict { kind: Kind::Write, start: 5, len: 10, pid }));
        assert_eq!(conflict(&b, Kind::Write, 15, 0), Ok(None), "beside it");
        holder.kill();
        eventually("free", || conflict(&b, Kind::Write, 0, 0) == Ok(None));
        try_lock(&b, Kind::Read, 0, 0).unwrap();
        assert_eq!(conflict(&b, Kind::Write, 0, 0), Ok(None), "a process's own lock does not conflict");
        try_lock(&b, Kind::Unlock, 0, 0).unwrap();
    }
}

#[test]
fn open_file_description_locks_hold_across_mounts() {
    let two = two_mounts!(LIMIT);
    for at in [two.dir("d"), two.dir("d").swapped()] {
        let ofd = |file: &File, kind, start, len| lock(file, Owner::Description, false, kind, start, len);
        let (a, a2, b) = (open(&at.a("f")), open(&at.a("f")), open(&at.b("f")));
        ofd(&a, Kind::Write, 0, 100).unwrap();
        assert_eq!(ofd(&b, Kind::Write, 50, 1), BUSY);
        assert_eq!(ofd(&a2, Kind::Read, 50, 1), BUSY, "a second open file description is another owner");
        assert_eq!(try_lock(&b, Kind::Write, 99, 1), BUSY, "and ordinary fcntl locks respect it");
        ofd(&b, Kind::Write, 100, 0).unwrap();
        drop(a2);
        let_pass(A_WHILE);
        assert_eq!(ofd(&b, Kind::Write, 50, 1), BUSY, "closing the other description does not release the lock");
        drop(a);
        eventually("released by its own close", || ofd(&b, Kind::Write, 0, 0).is_ok());
        ofd(&b, Kind::Unlock, 0, 0).unwrap();
    }
}

/// The kernel closes a file without waiting for the mount. The next file may have its address.
#[test]
fn locks_of_files_that_are_opened_and_closed_all_the_time_exclude() {
    const ROUNDS: u32 = 500;
    let (_two, at) = two_mounts!(LIMIT, "d");
    for name in ["flock", "ofd"] {
        let take = |file: &File| match name {
            "flock" => flock(file, FlockOperation::LockExclusive),
            _ => lock(file, Owner::Description, true, Kind::Write, 0, 0),
        };
        let taken = AtomicBool::new(false);
        let work = |path: &Path| {
            for round in 0..ROUNDS {
                let file = open(path);
                take(&file).unwrap();
                assert!(!taken.swap(true, SeqCst), "{name}: two owners in round {round}");
                taken.store(false, SeqCst);
            }
        };
        thread::scope(|scope| {
            for path in [at.a(name), at.a(name), at.a(name), at.b(name)] {
                let work = &work;
                scope.spawn(move || work(&path));
            }
        });
    }
}

#[test]
fn counter_under_a_lock_loses_no_increment() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    const ROUNDS: u32 = 150;
    for (name, take, give) in [
        ("flock", "fcntl.flock(f, fcntl.LOCK_EX)", "fcntl.flock(f, fcntl.LOCK_UN)"),
        ("fcntl", "fcntl.lockf(f, fcntl.LOCK_EX, 8, 0)", "fcntl.lockf(f, fcntl.LOCK_UN, 8, 0)"),
    ] {
        fs::write(at.a(name), "0").unwrap();
        let script = format!(
            "
for i in range({ROUNDS}):
    {take}
    n = int(os.pread(f.fileno(), 20, 0)) + 1
    os.pwrite(f.fileno(), str(n).encode(), 0)
    {give}
say('done')"
        );
        let programs: Vec<_> =
            [at.a(name), at.b(name), at.a(name), at.b(name)].map(|p| Program::start(&p, &script)).into();
        for program in &programs {
            assert_eq!(program.lines.recv().expect("it ends"), "done");
        }
        let total = (programs.len() as u32 * ROUNDS).to_string();
        assert_eq!(fs::read_to_string(at.a(name)).unwrap(), total, "{name}, read on A");
        assert_eq!(fs::read_to_string(at.b(name)).unwrap(), total, "{name}, read on B");
    }
}

/// Three programs insert 120 rows into one database, one program in each of the directories.
#[track_caller]
fn rows_are_inserted(journal: &str, dirs: [&Path; 3]) {
    let write = |dir: &Path| {
        let mut command = Command::new("bash");
        let script = "for i in $(seq 40); do echo \"INSERT INTO t(v) VALUES(hex(randomblob(500)));\"; done | sqlite3 -cmd '.timeout 280000' db";
        command.args(["-c", script]).current_dir(dir);
        command
    };
    let make = format!("sqlite3 db 'PRAGMA journal_mode={journal}; CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT);'");
    let mut command = Command::new("bash");
    command.args(["-c", &make]).current_dir(dirs[0]);
    run_command(command).ok();
    let writers: Vec<_> = dirs.map(write).into_iter().map(|c| thread::spawn(|| run_within(c, LIMIT))).collect();
    writers.into_iter().for_each(|w| drop(w.join().unwrap().ok()));
    for dir in dirs {
        let mut command = Command::new("sqlite3");
        command.args(["db", "SELECT count(*) FROM t; PRAGMA integrity_check;"]).current_dir(dir);
        assert_eq!(run_command(command).ok(), "120\nok\n");
    }
}

#[test]
fn sqlite_database_on_two_mounts_keeps_all_rows() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    rows_are_inserted("DELETE", [&at.a, &at.b, &at.b]);
}

/// The index of a write-ahead log is in shared memory, a mapped file. So the programs must use one
/// mount.
#[test]
fn sqlite_wal_database_on_one_mount_keeps_all_rows() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    rows_are_inserted("WAL", [&at.b, &at.b, &at.b]);
}

#[test]
fn programs_keep_their_locks_when_the_mds_restarts() {
    let Some(mut cluster) = Cluster::start_or_skip() else { return };
    let (a, b) = (cluster.mount(), cluster.mount_as("other"));
    let _watch = Watch::over(&[&a.mnt, &b.mnt], LIMIT);
    let (held, ranged) = (open(&a.path("f")), open(&a.path("g")));
    let (theirs, their_ranged) = (open(&b.path("f")), open(&b.path("g")));
    flock(&held, EXCLUSIVE).unwrap();
    try_lock(&ranged, Kind::Write, 100, 100).unwrap();
    try_lock(&their_ranged, Kind::Read, 200, 100).unwrap();
    for crash in [false, true, true] {
        if crash {
            cluster.kill("mds")
        } else {
            cluster.stop("mds")
        }
        cluster.spawn("mds");
        assert_eq!(flock(&theirs, SHARED), BUSY);
        assert_eq!(try_lock(&their_ranged, Kind::Read, 199, 1), BUSY);
        assert_eq!(try_lock(&ranged, Kind::Write, 200, 1), BUSY);
        try_lock(&their_ranged, Kind::Write, 0, 100).expect("nobody locked this range");
    }
    // A program that waits waits at the next MDT.
    waits_until(
        move || flock(&theirs, FlockOperation::LockExclusive).unwrap(),
        || {
            cluster.kill("mds");
            cluster.spawn("mds");
            assert_eq!(try_lock(&their_ranged, Kind::Read, 199, 1), BUSY);
            flock(&held, UNLOCK).unwrap();
        },
    );
    try_lock(&ranged, Kind::Unlock, 0, 0).unwrap();
    try_lock(&their_ranged, Kind::Write, 0, 0).unwrap();
}
