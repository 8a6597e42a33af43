//! Options of mounts, mount(8)'s helper, and remounts.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io::Read,
    os::unix::fs::{DirEntryExt, MetadataExt, OpenOptionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use rustix::{
    fs::{FlockOperation, OFlags, XattrFlags},
    io::Errno,
};
use sheen_tests::{
    Fs, Mount, Ran, is_mounted,
    mounts::fuse_stats,
    posix::{Kind, Owner, lock},
    processes, run, run_command, sh, sheen,
    wait::eventually,
};

/// A path beside the file system's directory.
fn beside(fs: &Fs, name: &str) -> PathBuf {
    fs.dir().parent().unwrap().join(name)
}

/// Runs mount(8)'s helper with source, mount point and these words.
#[track_caller]
fn helper(fs: &Fs, source: &str, at: &Path, words: &str) -> Ran {
    let program = beside(fs, "mount.sheen");
    if !program.exists() {
        symlink(sheen(), &program).unwrap();
    }
    let mut command = Command::new(program);
    command.arg(source).arg(at).args(words.split_whitespace());
    run_command(command)
}

/// Makes another mount with these options.
#[track_caller]
fn mounted(fs: &Fs, name: &str, options: &str) -> Mount {
    let mount = Mount { mnt: beside(fs, name) };
    run(sheen(), ["mount", "-o", options, &fs.source(), &mount.mnt.to_string_lossy()]).ok();
    mount
}

fn remount(fs: &Fs, at: &Mount, options: &str) -> Ran {
    let options = format!("remount,{options}");
    run(sheen(), ["mount", "-o", &options, &fs.source(), &at.mnt.to_string_lossy()])
}

/// Returns the options that the kernel shows for a mount.
fn shown(at: &Path) -> BTreeSet<String> {
    let table = fs::read_to_string("/proc/mounts").unwrap();
    let line = table.lines().rev().find(|line| line.split(' ').nth(1) == at.to_str());
    let options = line.and_then(|line| line.split(' ').nth(3)).unwrap_or_else(|| panic!("{at:?} is not mounted"));
    options.split(',').map(str::to_owned).collect()
}

#[track_caller]
fn shows(at: &Path, with: &[&str], without: &[&str]) {
    let shown = shown(at);
    let has = |option: &&str| shown.contains(*option);
    assert!(with.iter().all(has) && !without.iter().any(has), "{shown:?}: with {with:?}, without {without:?}");
}

fn errno(error: &std::io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw_os_error)
}

#[test]
fn a_fake_mount_checks_and_mounts_nothing() {
    let Some(fs) = Fs::up_or_skip(1) else { return };
    let (source, at, file) = (fs.source(), beside(&fs, "m"), beside(&fs, "file"));
    fs::write(&file, "").unwrap();
    for words in ["-f", "-fnv -o rw,noauto,nofail,_netdev", "-f -s -o ro,bogus,sync", "-f -t fuse.sheen"] {
        helper(&fs, &source, &at, words).ok();
        assert!(!at.exists() && !is_mounted(&at), "{words}");
    }
    run(sheen(), ["mount", "--fake", &source, &at.to_string_lossy()]).ok();
    for (source, at, words, code, what) in [
        (&*source, &at, "-f -o ro,bogus", 32, "unknown mount option 'bogus'"),
        (&*source, &at, "-f -o sync", 32, "mount option 'sync' is not supported"),
        (&*source, &file, "-f", 32, "cannot mount"),
        (&*source, &fs.mnt, "-f", 32, "mounted at"),
        ("nowhere", &at, "-f", 32, "nowhere"),
        (&*source, &at, "-f -x", 1, "unknown option '-x'"),
    ] {
        let ran = helper(&fs, source, at, words);
        assert!(ran.code == code && ran.err.contains(what), "{source} {at:?} {words}: {ran:?}");
    }
    // A fake mount sends no request to a server.
    fs.stop().ok();
    helper(&fs, &source, &at, "-f").ok();
    assert!(!at.exists() && processes(&[OsStr::new("mount"), at.as_os_str()]).is_empty());
}

#[test]
fn usual_mount_options_are_accepted_and_others_refused_by_name() {
    let Some(fs) = Fs::up_as_root_or_skip(1) else { return };
    let (source, mount) = (fs.source(), Mount { mnt: beside(&fs, "m") });
    let usual = "rw,noexec,nosuid,nodev,noatime,nodiratime,nosymfollow,_netdev,nofail,noauto,comment=why,x-systemd.automount,\
                 user_xattr,flock,lazystatfs,always_ping,verbose,async,lazytime,default_permissions,retry=1";
    helper(&fs, &source, &mount.mnt, &format!("-o {usual}")).ok();
    shows(&mount.mnt, &["rw", "noexec", "nosuid", "nodev", "noatime", "nodiratime", "nosymfollow"], &[]);
    drop(mount);
    // mount(8) does not pass `suid,dev` on to its helper, so Sheen has options of its own for them.
    let mount = Mount { mnt: beside(&fs, "m2") };
    helper(&fs, &source, &mount.mnt, "-o allow_suid,allow_dev -r").ok();
    shows(&mount.mnt, &["ro", "relatime"], &["nosuid", "nodev", "noexec", "noatime"]);
    drop(mount);
    let mount = mounted(&fs, "m3", "user,noauto");
    shows(&mount.mnt, &["nosuid", "nodev", "noexec"], &[]);
    for options in ["bogus", "ro,strictatime", "sync", "ro=yes", "fuse_threads=0"] {
        let at = beside(&fs, "m4");
        for words in [vec!["mount", &source, at.to_str().unwrap()], vec!["up", "--dir", at.to_str().unwrap()]] {
            let ran = run(sheen(), words.iter().copied().chain(["-o", options]));
            let last = options.rsplit(',').next().unwrap();
            let named = ran.err.contains(&format!("'{last}'")) || ran.err.contains("'fuse_threads'");
            assert!(ran.code == 1 && named && !at.exists(), "{words:?} {options}: {ran:?}");
        }
    }
}

#[test]
fn a_source_with_several_nids_is_mounted_and_shown_in_full() {
    let Some(fs) = Fs::up_or_skip(1) else { return };
    let (nid, fsname) = fs.source().split_once(":/").map(|(nid, name)| (nid.to_owned(), name.to_owned())).unwrap();
    for (name, separator) in [("comma", ','), ("colon", ':')] {
        // Nothing listens at the first NID.
        let source = format!("127.0.0.1:1@tcp{separator}{nid}:/{fsname}");
        let mount = Mount { mnt: beside(&fs, name) };
        run(sheen(), ["mount", &source, &mount.mnt.to_string_lossy()]).ok();
        fs::write(mount.path(name), "x").unwrap();
        assert_eq!(fs::read_to_string(fs.path(name)).unwrap(), "x");
        let table = fs::read_to_string("/proc/mounts").unwrap();
        assert!(table.lines().any(|line| line.starts_with(&format!("{source} "))), "{table}");
    }
}

#[test]
fn mount_retries_as_often_as_the_retry_option_says() {
    let Some(fs) = Fs::up_or_skip(1) else { return };
    let source = fs.source().replace(":/sheen", ":/other");
    let words = ["mount", "--foreground", "-o", "retry=2", &source];
    let ran = run(sheen(), words.into_iter().chain([&*beside(&fs, "m").to_string_lossy()]));
    let tried = |left| ran.err.matches(&format!("{left} attempts left")).count();
    assert!(ran.code == 1 && (tried(2), tried(1), tried(0)) == (1, 1, 0), "{ran:?}");
}

#[test]
fn remount_changes_only_the_named_options() {
    let Some(fs) = Fs::up_as_root_or_skip(1) else { return };
    let mount = mounted(&fs, "m", "noexec,localflock");
    fs::write(mount.path("f"), "x").unwrap();
    remount(&fs, &mount, "ro").ok();
    shows(&mount.mnt, &["ro", "noexec", "nosuid", "nodev", "relatime"], &[]);
    assert_eq!(errno(&fs::write(mount.path("f"), "y").unwrap_err()), Some(Errno::ROFS));
    assert_eq!(errno(&fs::create_dir(mount.path("d")).unwrap_err()), Some(Errno::ROFS));
    assert_eq!(fs::read_to_string(mount.path("f")).unwrap(), "x");
    remount(&fs, &mount, "rw,exec,nodiratime,noatime").ok();
    shows(&mount.mnt, &["rw", "nodiratime", "noatime", "nosuid"], &["ro", "noexec"]);
    remount(&fs, &mount, "relatime,diratime").ok();
    shows(&mount.mnt, &["rw", "relatime"], &["noatime", "nodiratime"]);
    let file = File::create(mount.path("f")).unwrap();
    let busy = remount(&fs, &mount, "ro");
    assert!(busy.code == 1 && busy.err.contains("open for writing"), "{busy:?}");
    drop(file);
    eventually("the file is closed", || remount(&fs, &mount, "ro").code == 0);
    // By mount(8), which passes on all options that the kernel shows. Then by mount(2) alone.
    let all = "-o rw,noexec,relatime,remount,user_id=0,group_id=0,default_permissions,allow_other,max_read=524288";
    helper(&fs, &fs.source(), &mount.mnt, all).ok();
    shows(&mount.mnt, &["rw", "noexec"], &["nosuid", "nodev", "ro"]);
    sh(&format!("mount -i -o remount,ro {}", mount.mnt.display())).ok();
    assert_eq!(errno(&fs::write(mount.path("f"), "y").unwrap_err()), Some(Errno::ROFS));
    // Only this mount is read-only.
    fs::write(fs.path("f"), "other").unwrap();
    let refused = remount(&fs, &mount, "bogus");
    assert!(refused.code == 1 && refused.err.contains("'bogus'"), "{refused:?}");
    let nowhere = Mount { mnt: beside(&fs, "nowhere") };
    let refused = remount(&fs, &nowhere, "ro");
    assert!(refused.code == 1 && refused.err.contains("no Sheen file system is mounted"), "{refused:?}");
}

#[test]
fn setstripe_through_a_read_only_mount_is_refused() {
    let Some(fs) = Fs::up_as_root_or_skip(1) else { return };
    fs.sh("touch f && mkdir d").ok();
    let mount = mounted(&fs, "m", "ro");
    // LL_IOC_LOV_SETSTRIPE, one stripe. The ioctl is accepted on a file that is open for reading
    // alone.
    let script = "
import errno, fcntl, os, struct, sys
number = int(sys.argv[1])
asked = struct.pack('<IIQQIHH', 0x0BD10BD0, 1, 0, 0, 65536, 1, 0xffff).ljust(number >> 16 & 0x3fff, b'\\0')
try:
    fcntl.ioctl(os.open('f', os.O_RDONLY), number, asked)
    print('set')
except OSError as e:
    print(errno.errorcode[e.errno])
";
    let set = |at: &Path| {
        let mut command = Command::new("python3");
        command.args(["-c", script, &sheen_wire::ioctl::LOV_SETSTRIPE.to_string()]).current_dir(at);
        run_command(command).ok()
    };
    // The other mount sends the request to the MDT, which finds that the file has a layout.
    assert_eq!((set(&mount.mnt), set(&fs.mnt)), ("EROFS\n".to_owned(), "EEXIST\n".to_owned()));
    let ran = run(sheen(), ["lfs", "setstripe", "-c", "1", &mount.path("d").to_string_lossy()]);
    assert!(ran.code != 0 && ran.err.contains("Read-only file system"), "{ran:?}");
}

/// An access time, in seconds, so old that relatime lets a read update it.
const LONG_AGO: i64 = 1_000_000_000;

/// Sets a file's access time to [`LONG_AGO`], without opening the file.
#[track_caller]
fn age(path: &Path) {
    sh(&format!("touch -c -a -d @{LONG_AGO} {}", path.display())).ok();
}

fn is_old(path: &Path) -> bool {
    fs::metadata(path).unwrap().atime() == LONG_AGO
}

/// Reads a file past the page cache, so that the mount sees the read.
#[track_caller]
fn read_direct(path: &Path, flags: OFlags) -> Vec<u8> {
    let (mut how, mut text) = (OpenOptions::new(), Vec::new());
    let mut file = how.read(true).custom_flags((flags | OFlags::DIRECT).bits() as i32).open(path).unwrap();
    file.read_to_end(&mut text).unwrap();
    text
}

/// Uses a file again and again, and asserts that its access time does not move.
#[track_caller]
fn assert_access_time_stays(path: &Path, mut using: impl FnMut()) {
    for _ in 0..20 {
        using();
        assert!(is_old(path), "the access time of {path:?} moved");
    }
}

/// Uses a file until its access time moves.
#[track_caller]
fn moves(path: &Path, mut using: impl FnMut()) {
    eventually(format!("the access time of {path:?} moves"), || {
        using();
        !is_old(path)
    });
}

#[test]
fn noatime_keeps_access_times_of_files_that_are_read_or_run() {
    let Some(fs) = Fs::up_as_root_or_skip(1) else { return };
    let mount = mounted(&fs, "m", "noatime");
    sh(&format!("cd {} && echo text > f && cp /bin/true program", mount.mnt.display())).ok();
    let (file, program) = (mount.path("f"), mount.path("program"));
    let read = || assert_eq!(read_direct(&file, OFlags::empty()), b"text\n");
    let start = || drop(run(&program, [""; 0]).ok());
    age(&file);
    age(&program);
    assert_access_time_stays(&file, read);
    assert_access_time_stays(&program, start);
    remount(&fs, &mount, "relatime").ok();
    moves(&file, read);
}

#[test]
fn remount_with_noatime_or_ro_keeps_access_times() {
    let Some(fs) = Fs::up_as_root_or_skip(1) else { return };
    let mount = mounted(&fs, "m", "rw");
    let file = mount.path("f");
    fs::write(&file, "text").unwrap();
    age(&file);
    let read = || assert_eq!(read_direct(&file, OFlags::empty()), b"text");
    remount(&fs, &mount, "noatime").ok();
    assert_access_time_stays(&file, read);
    remount(&fs, &mount, "atime,ro").ok();
    assert_access_time_stays(&file, read);
    remount(&fs, &mount, "rw").ok();
    moves(&file, read);
}

#[test]
fn a_file_opened_with_o_noatime_keeps_its_access_time() {
    let Some(fs) = Fs::up_or_skip(1) else { return };
    let file = fs.path("f");
    fs::write(&file, "text").unwrap();
    age(&file);
    assert_access_time_stays(&file, || assert_eq!(read_direct(&file, OFlags::NOATIME), b"text"));
    moves(&file, || assert_eq!(read_direct(&file, OFlags::empty()), b"text"));
}

#[test]
fn noflock_refuses_file_locks_and_localflock_keeps_them_in_the_kernel() {
    let Some(fs) = Fs::up_or_skip(1) else { return };
    fs::write(fs.path("f"), "x").unwrap();
    let refused = mounted(&fs, "refused", "noflock");
    let open = |at: &Path| OpenOptions::new().read(true).write(true).open(at.join("f")).unwrap();
    let flock = |file: &File| rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive);
    let fcntl = |file: &File| lock(file, Owner::Process, false, Kind::Write, 0, 0);
    let file = open(&refused.mnt);
    assert_eq!((flock(&file), fcntl(&file)), (Err(Errno::NOSYS), Err(Errno::NOSYS)));
    // The kernel holds these locks, and shows them.
    let local = mounted(&fs, "local", "localflock");
    let (ours, others) = (open(&local.mnt), open(&fs.mnt));
    assert_eq!((flock(&ours), flock(&others)), (Ok(()), Ok(())));
    assert_eq!(flock(&open(&local.mnt)), Err(Errno::AGAIN));
    let (locks, ino) = (fs::read_to_string("/proc/locks").unwrap(), ours.metadata().unwrap().ino());
    assert!(locks.lines().any(|line| line.contains("FLOCK") && line.contains(&format!(":{ino} "))), "{ino}: {locks}");
}

#[test]
fn nouser_xattr_refuses_user_attributes() {
    let Some(fs) = Fs::up_or_skip(1) else { return };
    fs::write(fs.path("f"), "x").unwrap();
    rustix::fs::setxattr(fs.path("f"), "user.a", b"1", XattrFlags::empty()).unwrap();
    let mount = mounted(&fs, "m", "nouser_xattr");
    let (file, mut value) = (mount.path("f"), [0; 1024]);
    let refused = Err(Errno::OPNOTSUPP);
    assert_eq!(rustix::fs::getxattr(&file, "user.a", &mut value).map(drop), refused);
    assert_eq!(rustix::fs::setxattr(&file, "user.b", b"2", XattrFlags::empty()), refused);
    assert_eq!(rustix::fs::removexattr(&file, "user.a"), refused);
    let names = rustix::fs::listxattr(&file, &mut value).unwrap();
    assert!(!value[..names].windows(5).any(|name| name == b"user."), "{}", String::from_utf8_lossy(&value[..names]));
    run(sheen(), ["lfs", "getstripe", &file.to_string_lossy()]).ok();
    assert_eq!(rustix::fs::getxattr(fs.path("f"), "user.a", &mut value), Ok(1));
}

#[test]
fn option_32bitapi_gives_stable_32_bit_inode_numbers() {
    let Some(fs) = Fs::up_or_skip(1) else { return };
    fs.sh("mkdir d && cd d && touch $(seq 100) && ln 1 link").ok();
    let mount = mounted(&fs, "m", "32bitapi");
    let dir = mount.path("d");
    let listed = |dir: &Path| -> BTreeSet<_> {
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()).map(|entry| (entry.file_name(), entry.ino())).collect()
    };
    let asked = |name: &OsStr| (name.to_owned(), fs::symlink_metadata(dir.join(name)).unwrap().ino());
    let found = listed(&dir);
    let looked_at: BTreeSet<_> = found.iter().map(|(name, _)| asked(name)).collect();
    assert_eq!(found, looked_at);
    let numbers: BTreeSet<u64> = found.iter().map(|(_, ino)| *ino).collect();
    assert!(numbers.len() == 100 && numbers.iter().all(|ino| (1..=u64::from(u32::MAX)).contains(ino)), "{numbers:?}");
    assert!(listed(&fs.path("d")).iter().any(|(_, ino)| *ino > u64::from(u32::MAX)), "without the option: 64 bits");
    fs::rename(dir.join("2"), dir.join("two")).unwrap();
    fs::write(dir.join("two"), "text").unwrap();
    assert_eq!(fs::read_to_string(fs.path("d/two")).unwrap(), "text");
    assert!(found.contains(&("2".into(), asked(OsStr::new("two")).1)), "a rename does not change the number");
}

#[test]
fn io_uring_option_selects_the_transport_and_answers_every_request() {
    let Some(fs) = Fs::up_or_skip(1) else { return };
    let is_on = fs::read_to_string("/sys/module/fuse/parameters/enable_uring").is_ok_and(|on| on.trim() == "Y");
    // If it is off, another program may switch it on meanwhile.
    let ring: &[_] = if is_on { &[("auto", "io_uring"), ("on", "io_uring")] } else { &[] };
    for (option, transport) in [("off", "/dev/fuse")].iter().chain(ring) {
        let mount = mounted(&fs, option, &format!("io_uring={option}"));
        fs::write(mount.path("f"), option).unwrap();
        assert_eq!(fs::read_to_string(mount.path("f")).unwrap(), *option);
        let stats = fuse_stats(&mount.mnt);
        assert_eq!((stats["transport"].as_str(), stats["lost_replies"].as_str()), (*transport, "0"), "{option}");
        if *transport == "io_uring" {
            eventually("all requests are answered", || fuse_stats(&mount.mnt)["ring_entries_in_use"] == "0");
        }
    }
}
