//! ETXTBSY: while a program runs from a file, no mount can write the file. A file that is open for
//! writing cannot be run.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use rustix::fs::{Mode, OFlags};
use sheen_tests::{
    Guarded, can_mount,
    cluster::{Cluster, bash},
    mounts::{LIMIT, TwoMounts},
    wait::{eventually, eventually_some},
};

macro_rules! skip_unless_mountable {
    () => {
        if !can_mount() {
            return println!("skipped: /dev/fuse cannot be opened here");
        }
    };
}

/// Copies a program that waits to `path`, and returns its bytes.
fn install(path: &Path) -> Vec<u8> {
    let bytes = fs::read("/bin/sleep").unwrap();
    fs::write(path, &bytes).unwrap();
    fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    bytes
}

/// Longer than a test takes.
const SLEEP_SECONDS: &str = "1000";

fn start(path: &Path) -> io::Result<Guarded> {
    Command::new(path).arg(SLEEP_SECONDS).stdout(Stdio::null()).spawn().map(Guarded)
}

/// Ends a program: kills it and waits for its end.
fn end(program: Guarded) {
    drop(program);
}

#[track_caller]
fn is_busy<T>(what: &str, outcome: io::Result<T>) {
    assert_eq!(outcome.err().map(|e| e.kind()), Some(ErrorKind::ExecutableFileBusy), "{what}");
}

/// Asserts that every call that could change the file's bytes fails with ETXTBSY.
#[track_caller]
fn assert_not_writable(path: &Path) {
    let cut = |access| rustix::fs::open(path, access | OFlags::TRUNC, Mode::empty()).map(drop).map_err(io::Error::from);
    is_busy("write", OpenOptions::new().write(true).open(path));
    is_busy("append", OpenOptions::new().append(true).open(path));
    is_busy("create", File::create(path));
    is_busy("open for reading and cut", cut(OFlags::RDONLY));
    is_busy("open for writing and cut", cut(OFlags::WRONLY));
    is_busy("truncate", truncate(path));
}

/// truncate(2), to one byte.
fn truncate(path: &Path) -> io::Result<()> {
    let script = "import os, sys\ntry: os.truncate(sys.argv[1], 1)\nexcept OSError as e: sys.exit(e.errno)";
    match Command::new("python3").arg("-c").arg(script).arg(path).status()?.code() {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        None => Err(ErrorKind::Other.into()),
    }
}

/// Writes to a file whose program has just ended. The MDT waits for the client's report of the end
/// for 100 ms only, so a busy machine needs several attempts.
#[track_caller]
fn writable_again(path: &Path) {
    eventually("the file can be written again", || {
        fs::write(path, "other").inspect_err(|e| assert_eq!(e.kind(), ErrorKind::ExecutableFileBusy)).is_ok()
    });
}

/// Runs a file that was open for writing until now, as [`writable_again`].
#[track_caller]
fn runs_again(path: &Path) -> Guarded {
    eventually_some("the file can be run again", || {
        start(path).inspect_err(|e| assert_eq!(e.kind(), ErrorKind::ExecutableFileBusy)).ok()
    })
}

#[test]
fn writing_a_running_program_fails_with_etxtbsy_on_every_mount() {
    skip_unless_mountable!();
    let two = TwoMounts::up(LIMIT);
    for (name, at) in [("d", two.dir("d")), ("e", two.dir("e").swapped())] {
        let bytes = install(&at.a("p"));
        // Another name of the file, which the kernel has to look up.
        fs::hard_link(at.a("p"), at.a("q")).unwrap();
        // The other mount has the file cached, and could open it for writing without a request.
        assert!(fs::read(at.b("p")).unwrap() == bytes);
        drop(OpenOptions::new().write(true).open(at.b("p")).unwrap());
        let mut program = start(&at.a("p")).unwrap();
        let again = start(&at.b("p")).unwrap();
        for path in [at.a("p"), at.b("p"), at.a("q"), at.b("q")] {
            assert_not_writable(&path);
        }
        // The file stays busy as long as one program runs.
        end(again);
        assert_not_writable(&at.b("p"));
        assert_not_writable(&at.a("q"));
        assert_eq!(program.0.try_wait().unwrap(), None, "the program still runs");
        assert!(fs::read(at.b("q")).unwrap() == bytes, "{name}: the file is unchanged");
        end(program);
        writable_again(&at.b("p"));
        assert_eq!(fs::read(at.a("q")).unwrap(), b"other");
    }
}

#[test]
fn running_a_file_open_for_writing_fails_with_etxtbsy() {
    skip_unless_mountable!();
    let two = TwoMounts::up(LIMIT);
    for at in [two.dir("d"), two.dir("e").swapped()] {
        for n in 0..20 {
            let (a, b) = (at.a(&format!("p{n}")), at.b(&format!("p{n}")));
            let bytes = install(&a);
            // The other mount runs the file the moment after it was closed.
            end(runs_again(&b));
            // Opened with a request to the MDT, and without one.
            let first = OpenOptions::new().write(true).open(&a).unwrap();
            let second = OpenOptions::new().append(true).open(&a).unwrap();
            is_busy("run", start(&b));
            drop(first);
            is_busy("run", start(&b));
            drop(second);
            end(runs_again(&b));
            assert!(fs::read(&b).unwrap() == bytes);
        }
    }
}

#[test]
fn mds_restart_keeps_running_programs_protected() {
    skip_unless_mountable!();
    let mut cluster = Cluster::start();
    let (a, b) = (cluster.mount(), cluster.mount_as("mnt2"));
    let bytes = install(&a.path("p"));
    bash(&a.mnt, "sync .").ok();
    let program = start(&a.path("p")).unwrap();
    cluster.kill("mds");
    cluster.spawn("mds");
    // Replies to both mounts show that they have reconnected.
    fs::write(a.path("a"), "").unwrap();
    fs::write(b.path("b"), "").unwrap();
    assert_not_writable(&b.path("p"));
    assert!(fs::read(b.path("p")).unwrap() == bytes);
    end(program);
    writable_again(&b.path("p"));
}

#[test]
fn eviction_of_a_killed_mount_allows_writing_its_programs() {
    skip_unless_mountable!();
    let two = TwoMounts::up(LIMIT);
    let at = two.dir("d");
    install(&at.a("p"));
    let program = start(&at.b("p")).unwrap();
    assert_not_writable(&at.a("p"));
    two.second.kill();
    eventually("the servers evict the mount, and others may write the file", || {
        let opened = OpenOptions::new().write(true).open(at.a("p"));
        opened.inspect_err(|e| assert_eq!(e.kind(), ErrorKind::ExecutableFileBusy)).is_ok()
    });
    end(program);
}
