//! A mount one of whose OSTs is away: what needs neither its bytes nor the sizes that it tells goes
//! on at once.

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
    Mount, can_mount,
    cluster::{Cluster, bash},
    mounts::{LIMIT, TwoMounts},
    noise, objects_below,
    posix::layout,
    run, sheen, two_mounts,
    wait::{eventually, let_pass, while_down},
};

/// What waits for an OST still waits after this time.
const A_WHILE: Duration = Duration::from_millis(500);
/// Over several stripes.
const LEN: usize = 300_000;

/// The files of which each mount does something to its own.
const NAMES: [&str; 11] = ["unlink", "mv", "ln", "chmod", "over", "under", "dir/a", "dir/b", "read", "layout", "later"];

/// Runs a script in a directory, which ends well although an OST is down, and stays down.
#[track_caller]
fn answered(dir: &Path, script: &str) -> String {
    let lfs = format!("{} lfs ", sheen().display());
    bash(dir, &script.replace("lfs ", &lfs)).ok()
}

/// All that names, layouts and the MDT's attributes allow, to the files of one mount, in a
/// directory on it.
#[track_caller]
fn go_on(dir: &Path, of: &str) {
    let own = |name: &str| dir.join(format!("{of}-{name}"));
    assert!(answered(dir, "ls").contains(&format!("{of}-read\n")));
    assert!(answered(dir, "ls -U --color=never").contains(&format!("{of}-mv\n")));
    answered(dir, "df .");
    answered(dir, &format!("unlink {of}-unlink"));
    answered(dir, &format!("rm -r {of}-dir"));
    answered(dir, &format!("mv {of}-mv {of}-moved"));
    answered(dir, &format!("ln {of}-ln {of}-linked"));
    let (from, to) = (own("under"), own("over"));
    while_down("a rename onto a file", move || fs::rename(from, to)).unwrap();
    let path = own("chmod");
    while_down("chmod", move || fs::set_permissions(path, Permissions::from_mode(0o600))).unwrap();
    let path = own("layout");
    assert!(while_down("getxattr", move || layout(&path)).stripe_count() > 1);
    assert_eq!(
        answered(dir, &format!("lfs getstripe -c {of}-linked")).trim(),
        layout(&own("layout")).stripe_count().to_string()
    );
    assert!(answered(dir, "lfs getstripe .").contains(&format!("{of}-layout")));
    assert_eq!(answered(dir, &format!("lfs find . -name '{of}-m*'")), format!("./{of}-moved\n"));
    assert_eq!(answered(dir, &format!("find . -name '{of}-m*'")), format!("./{of}-moved\n"));
}

/// Maps a file and stores into it; when told to, shows what is mapped, and writes it back. A
/// process of its own: whoever starts programs has them close what it has open, which writes mapped
/// pages back, and waits.
const MAPS: &str = "
import mmap, os, sys
file = os.open('open', os.O_RDWR)
map = mmap.mmap(file, 300000)
os.pwrite(file, b'end', 299997) # by which its size is to be asked for again
os.fsync(file)
map[7:13] = b'stored'
print('mapped', flush=True)
sys.stdin.readline()
print(map[7:13], map[100:101], flush=True)
map.flush()
";

/// What is left after that.
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

/// Makes the files of a mount, in a directory; by whichever mount.
fn make(dir: &Path, of: &str, data: &[u8]) {
    fs::create_dir(dir.join(format!("{of}-dir"))).unwrap();
    NAMES.iter().for_each(|name| fs::write(dir.join(format!("{of}-{name}")), data).unwrap());
}

/// Waits until all objects of what was removed are destroyed, and no others are.
#[track_caller]
fn wait_for_objects(dir: &Path, wanted: usize) {
    eventually(format!("{wanted} objects are left"), || objects_below(dir) == wanted);
}

/// A program that will have to wait.
fn begin(dir: &Path, line: &str) -> Child {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap());
    command.args(words).current_dir(dir).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
}

/// What a program that waited printed in the end.
#[track_caller]
fn end(program: Child) -> Vec<u8> {
    let output = thread::spawn(move || program.wait_with_output().unwrap());
    eventually("a program that waited goes on", || output.is_finished());
    let output = output.join().unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

#[test]
fn names_layouts_and_removals_need_no_ost() {
    if !can_mount() {
        return println!("skipped: /dev/fuse cannot be opened here");
    }
    let mut cluster = Cluster::start();
    let (maker, known, new) = (cluster.mount(), cluster.mount_as("known"), cluster.mount_as("new"));
    let mounts: [(&str, &Mount); 3] = [("maker", &maker), ("known", &known), ("new", &new)];
    answered(&maker.mnt, "lfs setstripe -c 2 -S 64K .");
    let data = noise(1, LEN);
    mounts.iter().for_each(|(of, _)| make(&maker.mnt, of, &data));
    fs::write(maker.path("open"), vec![0; LEN]).unwrap();
    bash(&maker.mnt, "sync .").ok();
    // One mount has the OSTs' connections and knows nothing of the files, the other one has not
    // even these.
    assert!(fs::read(known.path("maker-read")).unwrap() == data);
    let mut maps = Command::new("python3");
    maps.args(["-c", MAPS]).current_dir(&known.mnt).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut maps = maps.spawn().unwrap();
    let mut said = BufReader::new(maps.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "mapped");
    let before = objects_below(&cluster.base.join("oss"));
    assert_eq!(before, 2 * (3 * NAMES.len() + 1));

    cluster.kill("oss");
    for (of, mount) in mounts {
        go_on(&mount.mnt, of);
    }
    // What was told without a size shows none: who asks waits, rm as well. (Changed, so that
    // nothing is known of its objects.)
    let path = known.path("known-later");
    while_down("chmod", move || fs::set_permissions(path, Permissions::from_mode(0o600))).unwrap();
    let mut waiting: Vec<Child> =
        ["stat -c %s known-linked", "stat -c %s known-chmod", "cat known-read", "rm known-later"]
            .map(|line| begin(&known.mnt, line))
            .into();
    // A file that is open keeps its size and its pages, although its name is looked up once more,
    // as all are after one of them went.
    answered(&maker.mnt, "mv maker-read elsewhere; mv elsewhere maker-read");
    answered(&known.mnt, "lfs getstripe -c open");
    drop(maps.stdin.take());
    let seen = while_down("a look at a mapped page", move || said.next().unwrap().unwrap());
    assert_eq!(seen, "b'stored' b'\\x00'");
    let_pass(A_WHILE);
    assert!(waiting.iter_mut().all(|program| program.try_wait().unwrap().is_none()), "they need the OST");

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
    // Of each mount: unlink, both in the directory, what was replaced.
    wait_for_objects(&cluster.base.join("oss"), before - 2 * (3 * 4 + 1));
}

fn activate(two: &TwoMounts, active: u8) {
    let name = format!("osc.{}-OST0001-osc-*.active={active}", two.fsname);
    run(sheen(), ["lctl", "set_param", &name]).ok();
}

#[test]
fn an_ost_out_of_use_keeps_nobody_from_names_layouts_and_removals() {
    let (two, at) = two_mounts!(LIMIT, "d");
    let data = noise(2, LEN);
    let mounts: [(&str, PathBuf); 2] = [("here", at.a.clone()), ("there", at.b.clone())];
    mounts.iter().for_each(|(of, _)| make(&at.a, of, &data));
    bash(&at.a, "sync .").ok();
    let before = objects_below(&two.fs.dir());
    assert_eq!(before, 4 * 2 * NAMES.len());

    activate(&two, 0);
    for (of, dir) in &mounts {
        go_on(dir, of);
        let read = fs::metadata(dir.join(format!("{of}-ln"))).map_err(|e| Errno::from_io_error(&e));
        assert_eq!(read.err(), Some(Some(Errno::IO)), "the size is not known");
        // The usual commands make do without.
        answered(dir, &format!("rm {of}-later"));
    }

    activate(&two, 1);
    for dir in at.both() {
        mounts.iter().for_each(|(of, _)| check(dir, of, &data));
    }
    wait_for_objects(&two.fs.dir(), before - 4 * 2 * 5);
    // Bytes that are there are there again for who had the file open as well.
    let file = OpenOptions::new().read(true).open(at.b("there-read")).unwrap();
    let mut bytes = vec![0; LEN];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == data);
}
