//! Mounts while one OST is disconnected or inactive. Operations that need neither the OST's data
//! nor its sizes complete at once.

use std::{
    fs::{self, OpenOptions, Permissions},
    io::{BufRead, BufReader},
    os::unix::fs::{FileExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use rustix::io::Errno;
use sheen_tests::{
    Mount,
    cluster::{Cluster, bash},
    mounts::{LIMIT, TwoMounts},
    noise, objects_below,
    posix::layout,
    run, sheen, two_mounts,
    wait::{eventually, let_pass, while_down},
};

/// After this time, a program that waits for an OST is still expected to wait.
const A_WHILE: Duration = Duration::from_millis(500);
/// Length of a file: several stripes.
const LEN: usize = 300_000;

/// Suffixes of the files that each mount has for itself. Most are named after the operation that is
/// done to them.
const NAMES: [&str; 11] = ["unlink", "mv", "ln", "chmod", "over", "under", "dir/a", "dir/b", "read", "layout", "later"];

/// Runs a script in `dir`. It must succeed although an OST is down and stays down.
#[track_caller]
fn run_while_ost_down(dir: &Path, script: &str) -> String {
    let lfs = format!("{} lfs ", sheen().display());
    bash(dir, &script.replace("lfs ", &lfs)).ok()
}

/// Performs all operations that need only names, layouts and the MDT's attributes. They act on the
/// files of the mount `of` in `dir`.
#[track_caller]
fn run_operations_without_osts(dir: &Path, of: &str) {
    let own = |name: &str| dir.join(format!("{of}-{name}"));
    assert!(run_while_ost_down(dir, "ls").contains(&format!("{of}-read\n")));
    assert!(run_while_ost_down(dir, "ls -U --color=never").contains(&format!("{of}-mv\n")));
    run_while_ost_down(dir, "df .");
    run_while_ost_down(dir, &format!("unlink {of}-unlink"));
    run_while_ost_down(dir, &format!("rm -r {of}-dir"));
    run_while_ost_down(dir, &format!("mv {of}-mv {of}-moved"));
    run_while_ost_down(dir, &format!("ln {of}-ln {of}-linked"));
    let (from, to) = (own("under"), own("over"));
    while_down("a rename onto a file", move || fs::rename(from, to)).unwrap();
    let path = own("chmod");
    while_down("chmod", move || fs::set_permissions(path, Permissions::from_mode(0o600))).unwrap();
    let path = own("layout");
    assert!(while_down("getxattr", move || layout(&path)).stripe_count() > 1);
    assert_eq!(
        run_while_ost_down(dir, &format!("lfs getstripe -c {of}-linked")).trim(),
        layout(&own("layout")).stripe_count().to_string()
    );
    assert!(run_while_ost_down(dir, "lfs getstripe .").contains(&format!("{of}-layout")));
    assert_eq!(run_while_ost_down(dir, &format!("lfs find . -name '{of}-m*'")), format!("./{of}-moved\n"));
    assert_eq!(run_while_ost_down(dir, &format!("find . -name '{of}-m*'")), format!("./{of}-moved\n"));
}

/// Maps a file and stores into it. After a line on stdin, it prints bytes of the mapping and
/// flushes the mapping. It is a separate process: a process that starts programs has its
/// descriptors closed in the children, and each such close writes mapped pages back and waits.
const MAPPING_PROGRAM: &str = "
import mmap, os, sys
file = os.open('open', os.O_RDWR)
map = mmap.mmap(file, 300000)
os.pwrite(file, b'end', 299997) # so that the size must be requested again
os.fsync(file)
map[7:13] = b'stored'
print('mapped', flush=True)
sys.stdin.readline()
print(map[7:13], map[100:101], flush=True)
map.flush()
";

/// Checks the files of the mount `of` after [`run_operations_without_osts`].
#[track_caller]
fn check(dir: &Path, of: &str, data: &[u8]) {
    for name in ["moved", "ln", "linked", "over", "chmod", "read", "layout"] {
        assert!(fs::read(dir.join(format!("{of}-{name}"))).unwrap() == data, "{of}-{name}");
    }
    let chmod = fs::metadata(dir.join(format!("{of}-chmod"))).unwrap();
    assert_eq!((chmod.permissions().mode() & 0o777, chmod.len()), (0o600, LEN as u64));
    for name in ["unlink", "mv", "under", "dir"] {
        assert!(!fs::exists(dir.join(format!("{of}-{name}"))).unwrap(), "{of}-{name}");
    }
}

/// Creates the files of the mount `of` in a directory, through any mount.
fn make(dir: &Path, of: &str, data: &[u8]) {
    fs::create_dir(dir.join(format!("{of}-dir"))).unwrap();
    NAMES.iter().for_each(|name| fs::write(dir.join(format!("{of}-{name}")), data).unwrap());
}

/// Waits until the objects of all deleted files are destroyed and `wanted` objects are left.
#[track_caller]
fn wait_for_objects(dir: &Path, wanted: usize) {
    eventually(format!("{wanted} objects are left"), || objects_below(dir) == wanted);
}

/// Starts a program that will have to wait for the OST.
fn begin(dir: &Path, line: &str) -> Child {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap());
    command.args(words).current_dir(dir).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Waits until a program from [`begin`] succeeds, and returns its output.
#[track_caller]
fn end(program: Child) -> Vec<u8> {
    let output = thread::spawn(move || program.wait_with_output().unwrap());
    eventually("a program that waited goes on", || output.is_finished());
    let output = output.join().unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

#[test]
fn names_layouts_and_removals_are_served_while_an_ost_is_down() {
    let Some(mut cluster) = Cluster::start_or_skip() else { return };
    let (maker, known, new) = (cluster.mount(), cluster.mount_as("known"), cluster.mount_as("new"));
    let mounts: [(&str, &Mount); 3] = [("maker", &maker), ("known", &known), ("new", &new)];
    run_while_ost_down(&maker.mnt, "lfs setstripe -c 2 -S 64K . && mkdir made");
    let data = noise(1, LEN);
    mounts.iter().for_each(|(of, _)| make(&maker.mnt, of, &data));
    fs::write(maker.path("open"), vec![0; LEN]).unwrap();
    bash(&maker.mnt, "sync .").ok();
    // `known` has connections to the OSTs, and of all files only `maker-read` and `open` in its
    // cache. `new` has not even connections.
    assert!(fs::read(known.path("maker-read")).unwrap() == data);
    let mut maps = Command::new("python3");
    maps.args(["-c", MAPPING_PROGRAM]).current_dir(&known.mnt).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut maps = maps.spawn().unwrap();
    let mut said = BufReader::new(maps.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "mapped");
    let before = objects_below(&cluster.base.join("oss"));
    assert_eq!(before, 2 * (3 * NAMES.len() + 1));

    cluster.kill("oss");
    for (of, mount) in mounts {
        run_operations_without_osts(&mount.mnt, of);
    }
    // The MDT's reply has no size, so none is shown: `stat` waits for the OST, and so does `rm`.
    // (The chmod drops what the mount has cached of the file's objects.)
    let path = known.path("known-later");
    while_down("chmod", move || fs::set_permissions(path, Permissions::from_mode(0o600))).unwrap();
    let lines =
        ["stat -c %s known-linked", "stat -c %s known-chmod", "cat known-read", "rm known-later", "touch made/created"];
    let mut waiting: Vec<Child> = lines.map(|line| begin(&known.mnt, line)).into();
    // An open file keeps its size and its pages, although its name is looked up once more. The
    // kernel looks up all names again after one of them was invalidated.
    run_while_ost_down(&maker.mnt, "mv maker-read elsewhere; mv elsewhere maker-read");
    run_while_ost_down(&known.mnt, "lfs getstripe -c open");
    drop(maps.stdin.take());
    let seen = while_down("reading a mapped page", move || said.next().unwrap().unwrap());
    assert_eq!(seen, "b'stored' b'\\x00'");
    let_pass(A_WHILE);
    assert!(
        waiting.iter_mut().all(|program| program.try_wait().unwrap().is_none()),
        "stat, cat, rm and touch need an OST"
    );

    cluster.spawn("oss");
    let said: Vec<Vec<u8>> = waiting.into_iter().map(end).collect();
    assert_eq!((&said[0][..], &said[1][..]), (&b"300000\n"[..], &b"300000\n"[..]));
    assert!(said[2] == data && !fs::exists(maker.path("known-later")).unwrap());
    for (_, mount) in mounts {
        mounts.iter().for_each(|(of, _)| check(&mount.mnt, of, &data));
    }
    assert!(maps.wait().unwrap().success());
    let mut stored = vec![0; LEN];
    stored[7..13].copy_from_slice(b"stored");
    stored[LEN - 3..].copy_from_slice(b"end");
    assert!(fs::read(maker.path("open")).unwrap() == stored);
    // Deleted for each mount: `unlink`, the two files in `dir`, and the old `over`, which `under`
    // replaced. `known-later` is deleted as well.
    wait_for_objects(&cluster.base.join("oss"), before - 2 * (3 * 4 + 1));
}

fn activate(two: &TwoMounts, active: u8) {
    let name = format!("osc.{}-OST0001-osc-*.active={active}", two.fsname);
    run(sheen(), ["lctl", "set_param", &name]).ok();
}

#[test]
fn names_layouts_and_removals_are_served_while_an_ost_is_inactive() {
    let (two, at) = two_mounts!(LIMIT, "d");
    let data = noise(2, LEN);
    let mounts: [(&str, PathBuf); 2] = [("here", at.a.clone()), ("there", at.b.clone())];
    mounts.iter().for_each(|(of, _)| make(&at.a, of, &data));
    bash(&at.a, "sync .").ok();
    let before = objects_below(&two.fs.dir());
    assert_eq!(before, 4 * 2 * NAMES.len());

    activate(&two, 0);
    for (of, dir) in &mounts {
        run_operations_without_osts(dir, of);
        let read = fs::metadata(dir.join(format!("{of}-ln"))).map_err(|e| Errno::from_io_error(&e));
        assert_eq!(read.err(), Some(Some(Errno::IO)), "an inactive OST returns no size");
        // `rm` ignores that `stat` failed.
        run_while_ost_down(dir, &format!("rm {of}-later"));
    }

    activate(&two, 1);
    for dir in at.both() {
        mounts.iter().for_each(|(of, _)| check(dir, of, &data));
    }
    wait_for_objects(&two.fs.dir(), before - 4 * 2 * 5);
    // A file that is opened now is read in full.
    let file = OpenOptions::new().read(true).open(at.b("there-read")).unwrap();
    let mut bytes = vec![0; LEN];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == data);
}
