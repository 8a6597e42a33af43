//! Files that a mount opened without a request to the MDT. They stay usable like any open file,
//! whatever happens to their name, the MDT or the mount.

use std::{
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader, Read, Write},
    os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt},
    path::Path,
    process::{ChildStdout, Stdio},
    thread,
    time::Duration,
};

use sheen_tests::{
    Guarded, can_mount,
    cluster::{Cluster, bash},
    is_root,
    mounts::{LIMIT, Two, TwoMounts, as_nobody},
    noise, objects_below,
    progress::{Race, at_least},
    run_command, sheen,
    wait::{eventually, let_pass},
};

/// The data of an open file must be there at once, and still after this time.
const A_WHILE: Duration = Duration::from_secs(1);
/// Pause between two changes of names by a program in a race.
const CHANGE_PAUSE: Duration = Duration::from_millis(3);
/// A program in a race has a file open for less than this.
const HELD_MAX_MS: u64 = 7;
/// Length of a file: several stripes.
const LEN: usize = 300_000;
/// Past the page cache (O_DIRECT).
const DIRECT: i32 = 0o40000;

macro_rules! skip_unless_mountable {
    () => {
        if !can_mount() {
            return println!("skipped: /dev/fuse cannot be opened here");
        }
    };
}

fn rw(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// Opens a file that the mount has cached, without any of its data in the page cache.
fn open_known(path: &Path) -> File {
    fs::metadata(path).unwrap();
    OpenOptions::new().read(true).write(true).custom_flags(DIRECT).open(path).unwrap()
}

fn read(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    let n = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(n);
    bytes
}

#[track_caller]
fn none_left(dir: &Path) {
    eventually("no objects are left behind", || objects_below(dir) == 0);
}

fn striped(at: &Path) {
    bash(at, &format!("{} lfs setstripe -c 2 -S 64K .", sheen().display())).ok();
}

#[test]
fn unlinked_file_keeps_its_data_until_its_last_close() {
    skip_unless_mountable!();
    let two = TwoMounts::up(LIMIT);
    let disk = two.fs.dir();
    for at in [two.dir("d"), two.dir("e").swapped()] {
        // Removed by the other mount, by the same mount, and by a rename over it.
        let remove: [&dyn Fn(&Two); 3] =
            [&|at| fs::remove_file(at.a("f")).unwrap(), &|at| fs::remove_file(at.b("f")).unwrap(), &|at| {
                fs::write(at.a("other"), "").unwrap();
                fs::rename(at.a("other"), at.a("f")).unwrap();
                fs::remove_file(at.a("f")).unwrap();
            }];
        for (seed, remove) in (1..).zip(remove) {
            fs::write(at.a("f"), noise(seed, LEN)).unwrap();
            let open = open_known(&at.b("f"));
            remove(&at);
            assert!(read(&open) == noise(seed, LEN), "case {seed}");
            // The data is still there later.
            let_pass(A_WHILE);
            assert!(read(&open) == noise(seed, LEN), "case {seed}");
            assert!(objects_below(&disk) > 0);
            drop(open);
            none_left(&disk);
        }
    }
}

#[test]
fn mds_restart_keeps_open_files() {
    skip_unless_mountable!();
    let mut cluster = Cluster::start();
    let (a, b) = (cluster.mount(), cluster.mount_as("mnt2"));
    striped(&a.mnt);
    for (seed, name) in (1..).zip(["before", "after", "closed"]) {
        fs::write(a.path(name), noise(seed, LEN)).unwrap();
    }
    bash(&a.mnt, "sync .").ok();
    let [before, after, closed] = ["before", "after", "closed"].map(|name| open_known(&b.path(name)));
    // One file is removed before the restart, one after it. One is closed while the MDS is down.
    fs::remove_file(a.path("before")).unwrap();
    bash(&a.mnt, "sync .").ok();
    cluster.kill("mds");
    drop(closed);
    cluster.spawn("mds");
    // A reply to B shows that B has reconnected.
    fs::write(b.path("back"), "").unwrap();
    fs::remove_file(a.path("after")).unwrap();
    fs::remove_file(a.path("closed")).unwrap();
    fs::remove_file(a.path("back")).unwrap();
    let_pass(A_WHILE);
    for (seed, file) in (1..).zip([&before, &after]) {
        assert!(read(file) == noise(seed, LEN));
        file.write_all_at(&noise(seed + 10, 65536), 0).unwrap();
        file.sync_all().unwrap();
        assert!(read(file)[..65536] == noise(seed + 10, 65536));
    }
    drop((before, after));
    none_left(&cluster.base);
}

#[test]
fn orphans_of_a_killed_mount_are_destroyed() {
    skip_unless_mountable!();
    // The mount is killed after the removal, and before.
    for unlink_first in [true, false] {
        let two = TwoMounts::up(LIMIT);
        let at = two.dir("d");
        fs::write(at.a("f"), noise(1, LEN)).unwrap();
        let open = open_known(&at.b("f"));
        if unlink_first {
            fs::remove_file(at.a("f")).unwrap();
            assert!(read(&open) == noise(1, LEN));
        }
        assert!(objects_below(&two.fs.dir()) > 0);
        two.second.kill();
        if !unlink_first {
            // The mount stays dead: that the removal ends proves that it does not wait for ever.
            fs::remove_file(at.a("f")).unwrap();
        }
        none_left(&two.fs.dir());
        drop(open);
    }
}

/// A program of an unprivileged user that has the file `f` of a directory open. It then uses the
/// file through its descriptor, and opens it again.
struct Opener {
    child: Guarded,
    output: BufReader<ChildStdout>,
}

/// Output of an [`Opener`] whose file another user has forbidden meanwhile to change by name.
const ONLY_BY_DESCRIPTOR: &str = "5 5\ndenied\nrefused\n";

impl Opener {
    /// Starts the program, and waits until it has opened the file.
    #[track_caller]
    fn start(dir: &Path) -> Opener {
        let script = "
import os, sys, time
fd = os.open('f', os.O_RDWR)
print('open', flush=True)
sys.stdin.readline()
os.ftruncate(fd, 5)
os.pwrite(fd, b'x', 4)
print(os.fstat(fd).st_size, len(os.pread(fd, 100, 0)))
try: os.open('f', os.O_RDWR)
except PermissionError: print('denied')
try: os.ftruncate(os.open('f', os.O_RDONLY), 1)
except OSError: print('refused')
";
        let mut child = as_nobody(&format!("python3 -c \"{}\"", script.replace('"', "\\\"")));
        child.current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Guarded(child.spawn().unwrap());
        let mut output = BufReader::new(child.0.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "open\n");
        Opener { child, output }
    }

    /// Lets the program go on, and returns its output.
    #[track_caller]
    fn use_file(mut self) -> String {
        self.child.0.stdin.take().unwrap().write_all(b"\n").unwrap();
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert!(self.child.0.wait().unwrap().success());
        rest
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn open_descriptor_keeps_its_access_after_chmod() {
    skip_unless_mountable!();
    if !is_root() {
        return println!("skipped: needs root to become another user");
    }
    let two = TwoMounts::up(LIMIT);
    for at in [two.dir("d"), two.dir("e").swapped()] {
        set_mode(&at.a(""), 0o755);
        fs::write(at.a("f"), noise(1, LEN)).unwrap();
        set_mode(&at.a("f"), 0o666);
        fs::metadata(at.b("f")).unwrap();
        let opener = Opener::start(&at.b(""));
        set_mode(&at.a("f"), 0o644);
        assert_eq!(opener.use_file(), ONLY_BY_DESCRIPTOR);
    }
    // Capabilities are removed when an unprivileged user opens a file for writing, also if the
    // mount has it cached.
    let at = two.dir("d");
    fs::write(at.a("c"), "x").unwrap();
    set_mode(&at.a("c"), 0o666);
    let set = "setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 c";
    bash(&at.a(""), set).ok();
    bash(&at.b(""), "cat c; getfattr -n security.capability c").ok();
    let mut write = as_nobody("echo y >> c");
    write.current_dir(at.b(""));
    run_command(write).ok();
    assert_ne!(bash(&at.b(""), "getfattr -n security.capability c").code, 0, "the open removed the capability");
}

#[test]
fn open_descriptor_keeps_its_access_over_an_mds_restart() {
    skip_unless_mountable!();
    if !is_root() {
        return println!("skipped: needs root to become another user");
    }
    let mut cluster = Cluster::start();
    let mount = cluster.mount();
    let dir = mount.path("d");
    fs::create_dir(&dir).unwrap();
    set_mode(&dir, 0o755);
    fs::write(dir.join("f"), noise(1, LEN)).unwrap();
    set_mode(&dir.join("f"), 0o666);
    let opener = Opener::start(&dir);
    set_mode(&dir.join("f"), 0);
    cluster.kill("mds");
    cluster.spawn("mds");
    assert_eq!(opener.use_file(), ONLY_BY_DESCRIPTOR);
    assert_eq!(fs::metadata(dir.join("f")).unwrap().len(), 5);
}

/// A program that opens a name gets the file that had this name, whole, however long it is open and
/// whatever happens to the name.
#[test]
fn open_gets_a_whole_file_while_names_are_replaced() {
    skip_unless_mountable!();
    let two = TwoMounts::up(LIMIT);
    let at = two.dir("d");
    let files = |seed: u64| noise(seed, LEN);
    let (race, names) = (Race::new([at_least(1)]), ["x", "y", "z"]);
    let seeds = 1..=120_u64;
    let whole = seeds.clone().map(files).collect::<Vec<_>>();
    for name in names {
        fs::write(at.a(name), &whole[0]).unwrap();
    }
    thread::scope(|scope| {
        for reader in 0..4 {
            let (at, race, whole) = (&at, &race, &whole);
            let dir = if reader % 2 == 0 { &at.b } else { &at.a };
            scope.spawn(move || {
                let mut round = reader;
                while race.goes_on() {
                    round += 1;
                    let path = dir.join(names[round % 3]);
                    let file = match round % 2 {
                        0 => File::open(&path),
                        _ => OpenOptions::new().read(true).write(true).custom_flags(DIRECT).open(&path),
                    };
                    match file {
                        Ok(file) => {
                            let_pass(Duration::from_millis(round as u64 % HELD_MAX_MS));
                            let bytes = read(&file);
                            assert!(whole.contains(&bytes), "{} bytes of no file, of {path:?}", bytes.len());
                        }
                        Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::NotFound),
                    }
                }
            });
        }
        scope.spawn(|| {
            let changes = race.party(0);
            for (i, bytes) in whole.iter().enumerate() {
                let (by, name) = (if i % 3 == 0 { &at.b } else { &at.a }, names[i % 3]);
                fs::write(by.join("new"), bytes).unwrap();
                fs::rename(by.join("new"), by.join(name)).unwrap();
                if i % 5 == 0 {
                    fs::remove_file(by.join(names[(i + 1) % 3])).unwrap_or_default();
                }
                let_pass(CHANGE_PAUSE);
            }
            changes.did_one();
        });
    });
    names.iter().for_each(|name| fs::remove_file(at.a(name)).unwrap_or_default());
    drop(rw(&{
        fs::write(at.a("last"), "").unwrap();
        at.a("last")
    }));
    fs::remove_file(at.a("last")).unwrap();
    none_left(&two.fs.dir());
}
