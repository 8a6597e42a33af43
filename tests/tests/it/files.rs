//! Files and directories on one mount, as a program sees them.

use std::{
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Read, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink},
    path::Path,
};

use rustix::{
    fs::{AtFlags, FallocateFlags, Mode, OFlags, RenameFlags, XattrFlags},
    io::Errno,
};
use sheen_tests::{
    Fs, can_mount, is_root, noise,
    progress::{Race, at_least},
    sh,
    wait::eventually,
};

#[test]
fn open_flags_have_their_posix_meaning() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    let p = fs.path("a");
    let mut new = OpenOptions::new();
    new.write(true).create_new(true);
    new.open(&p).unwrap().write_all(b"hello").unwrap();
    assert_eq!(new.open(&p).unwrap_err().kind(), ErrorKind::AlreadyExists);
    OpenOptions::new().append(true).open(&p).unwrap().write_all(b" world").unwrap();
    assert_eq!(fs::read(&p).unwrap(), b"hello world");
    File::create(&p).unwrap();
    assert_eq!(fs::metadata(&p).unwrap().len(), 0, "O_TRUNC cuts");
    let open = |path: &Path, flags| rustix::fs::open(path, flags, Mode::empty()).map(drop);
    assert_eq!(open(&p, OFlags::RDONLY | OFlags::DIRECTORY), Err(Errno::NOTDIR));
    assert_eq!(open(&fs.mnt, OFlags::WRONLY), Err(Errno::ISDIR));
    symlink("a", fs.path("s")).unwrap();
    assert_eq!(open(&fs.path("s"), OFlags::RDONLY | OFlags::NOFOLLOW), Err(Errno::LOOP));
    let path_only = rustix::fs::open(&p, OFlags::PATH, Mode::empty()).unwrap();
    assert_eq!(rustix::io::read(&path_only, &mut [0; 1][..]), Err(Errno::BADF));
    assert_eq!(rustix::fs::fstat(&path_only).unwrap().st_ino, fs::metadata(&p).unwrap().ino());
    assert_eq!(open(&fs.path("missing"), OFlags::RDONLY), Err(Errno::NOENT));
    for flags in [OFlags::SYNC, OFlags::DSYNC] {
        let fd = rustix::fs::open(&p, OFlags::WRONLY | flags, Mode::empty()).unwrap();
        assert_eq!(rustix::io::write(&fd, b"x").unwrap(), 1);
    }
}

#[test]
fn tmpfile_gets_a_name_by_linkat() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    let fd = rustix::fs::open(&fs.mnt, OFlags::TMPFILE | OFlags::RDWR, Mode::from_raw_mode(0o600)).unwrap();
    rustix::io::write(&fd, b"content").unwrap();
    assert_eq!(rustix::fs::fstat(&fd).unwrap().st_nlink, 0);
    assert_eq!(fs::read_dir(&fs.mnt).unwrap().count(), 0, "it has no name yet");
    let from = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
    rustix::fs::linkat(rustix::fs::CWD, from, rustix::fs::CWD, fs.path("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
    assert_eq!(fs::read(fs.path("named")).unwrap(), b"content");
    assert_eq!(fs::metadata(fs.path("named")).unwrap().nlink(), 1);
}

#[test]
fn direct_io_reads_what_it_wrote() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    let len = 3 << 20;
    let data = noise(1, len);
    let mut buffer = vec![0u8; len + 4096];
    let skip = buffer.as_ptr().align_offset(4096);
    buffer[skip..skip + len].copy_from_slice(&data);
    const O_DIRECT: i32 = 0o40000;
    let file =
        OpenOptions::new().read(true).write(true).create(true).custom_flags(O_DIRECT).open(fs.path("d")).unwrap();
    file.write_all_at(&buffer[skip..skip + len], 0).unwrap();
    buffer.fill(0);
    file.read_exact_at(&mut buffer[skip..skip + len], 0).unwrap();
    assert!(buffer[skip..skip + len] == data[..]);
}

/// Reads past the page cache from `offset`, until `page` is full or the file ends. Returns the
/// number of bytes.
fn read_direct(file: &File, page: &mut [u8], offset: u64) -> usize {
    let mut got = 0;
    while got < page.len() {
        match file.read_at(&mut page[got..], offset + got as u64).unwrap() {
            0 => break,
            n => got += n,
        }
    }
    got
}

fn direct(path: &Path) -> File {
    OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path).unwrap()
}

#[test]
fn large_reads_show_holes_as_zeros_and_end_where_the_file_does() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    for (name, stripes) in [("one", "-c 1"), ("four", "-c 4 -S 64K")] {
        let path = fs.path(name);
        fs.lfs(&format!("setstripe {stripes} {}", path.display())).ok();
        let mut want = vec![0; (5 << 20) + 12_345];
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        for (at, len) in [(0, 700_000), (1 << 20, 4096), (2_500_001, 333_333), (want.len() - 100_000, 100_000)] {
            want[at..at + len].copy_from_slice(&noise(at as u64, len));
            file.write_all_at(&want[at..at + len], at as u64).unwrap();
        }
        drop(file);
        assert!(fs::read(&path).unwrap() == want, "{name}");
        let mut space = vec![1_u8; (6 << 20) + 4096];
        let skip = space.as_ptr().align_offset(4096);
        let page = &mut space[skip..skip + (6 << 20)];
        let n = read_direct(&direct(&path), page, 0);
        assert!(page[..n] == want[..], "{name}, direct: {n} bytes");
        let n = read_direct(&direct(&path), page, 4096 * 100);
        assert!(page[..n] == want[4096 * 100..], "{name}, direct: {n} bytes");
    }
}

#[test]
fn reads_during_truncate_return_no_foreign_bytes() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    // `several` has several objects, of which the truncate changes one.
    fs.lfs("setstripe -E 64K -L mdt -E -1 -c 1 several").ok();
    for name in ["one", "several"] {
        cut_while_read(&fs, name);
    }
}

fn cut_while_read(fs: &Fs, name: &str) {
    const LEN: usize = 2 << 20;
    const CUT: usize = 300_001;
    let want: Vec<u8> = noise(3, LEN).iter().map(|b| b | 1).collect();
    let path = fs.path(name);
    fs::write(&path, &want).unwrap();
    let other = fs.second_mount();
    let writer = OpenOptions::new().write(true).open(other.path(name)).unwrap();
    let race = Race::new([at_least(1)]);
    std::thread::scope(|scope| {
        let cuts = race.party(0);
        for _ in 0..2 {
            scope.spawn(|| {
                let file = direct(&path);
                let mut space = vec![1_u8; LEN + 4096];
                let skip = space.as_ptr().align_offset(4096);
                let page = &mut space[skip..skip + LEN];
                while race.goes_on() {
                    let n = file.read_at(page, 0).unwrap();
                    assert!(n >= CUT, "{n} bytes");
                    let wrong = page[..n].iter().zip(&want).position(|(got, want)| got != want);
                    assert_eq!(wrong, None, "of {n} bytes");
                }
            });
        }
        for _ in 0..150 {
            writer.set_len(CUT as u64).unwrap();
            writer.write_all_at(&want[CUT..], CUT as u64).unwrap();
        }
        cuts.did_one();
    });
    assert!(fs::read(&path).unwrap() == want);
}

#[test]
fn open_file_survives_unlink_and_a_rename_over_it() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    let p = fs.path("unlinked");
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&p).unwrap();
    file.write_all(&noise(2, 5 << 20)).unwrap();
    fs::remove_file(&p).unwrap();
    assert!(!p.exists());
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    file.write_all(b"still here").unwrap();
    let mut back = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut back).unwrap();
    assert_eq!(back.len(), (5 << 20) + 10);
    assert_eq!(&back[5 << 20..], b"still here");
    let over = fs.path("over");
    fs::write(&over, b"old").unwrap();
    let old = File::open(&over).unwrap();
    fs::write(fs.path("new"), b"new").unwrap();
    fs::rename(fs.path("new"), &over).unwrap();
    let mut text = String::new();
    (&old).read_to_string(&mut text).unwrap();
    assert_eq!(text, "old", "the replaced file lives until its last close");
}

#[test]
fn rename_obeys_its_flags_and_returns_posix_errors() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    let at = |n: &str| fs.path(n);
    let rename = |a: &str, b: &str, f| rustix::fs::renameat_with(rustix::fs::CWD, at(a), rustix::fs::CWD, at(b), f);
    fs::write(at("a"), "a").unwrap();
    fs::write(at("b"), "b").unwrap();
    assert_eq!(rename("a", "b", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename("a", "b", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read_to_string(at("a")).unwrap(), "b");
    rename("a", "c", RenameFlags::NOREPLACE).unwrap();
    fs::create_dir_all(at("d/e")).unwrap();
    assert_eq!(rename("d", "d/e/f", RenameFlags::empty()), Err(Errno::INVAL), "into itself");
    assert_eq!(rename("c", "d", RenameFlags::empty()), Err(Errno::ISDIR));
    assert_eq!(rename("d", "c", RenameFlags::empty()), Err(Errno::NOTDIR));
    fs::create_dir(at("empty")).unwrap();
    fs::create_dir(at("x")).unwrap();
    assert_eq!(rename("x", "d", RenameFlags::empty()), Err(Errno::NOTEMPTY));
    assert_eq!(fs::metadata(at("d")).unwrap().nlink(), 3);
    rename("d/e", "empty", RenameFlags::empty()).unwrap();
    assert_eq!(fs::metadata(at("d")).unwrap().nlink(), 2, "a subdirectory left");
    assert_eq!(rename("nothing", "y", RenameFlags::empty()), Err(Errno::NOENT));
}

#[test]
fn a_rename_leaves_a_whiteout() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    let other = fs.second_mount();
    let (a, b) = (fs.path("a"), fs.path("b"));
    let rename = |flags| rustix::fs::renameat_with(rustix::fs::CWD, &a, rustix::fs::CWD, &b, flags);
    fs::write(&a, "text").unwrap();
    fs::write(&b, "replaced").unwrap();
    assert_eq!(fs::read_to_string(other.path("a")).unwrap(), "text");
    assert_eq!(rename(RenameFlags::WHITEOUT | RenameFlags::NOREPLACE), Err(Errno::EXIST));
    assert_eq!(rename(RenameFlags::WHITEOUT | RenameFlags::EXCHANGE), Err(Errno::INVAL));
    rename(RenameFlags::WHITEOUT).unwrap();
    for mnt in [&fs.mnt, &other.mnt] {
        let left = fs::symlink_metadata(mnt.join("a")).unwrap();
        assert!(left.file_type().is_char_device() && (left.rdev(), left.mode() & 0o7777) == (0, 0), "{left:?}");
        assert_eq!(fs::read_to_string(mnt.join("b")).unwrap(), "text");
        assert_eq!(fs::read_dir(mnt).unwrap().count(), 2);
    }
    fs::create_dir(fs.path("d")).unwrap();
    rustix::fs::renameat_with(rustix::fs::CWD, fs.path("d"), rustix::fs::CWD, fs.path("e"), RenameFlags::WHITEOUT)
        .unwrap();
    assert!(fs::metadata(other.path("e")).unwrap().is_dir());
    fs.stop().ok();
    fs.start(&[]).ok();
    fs.sh("[ -c a ] && [ -c d ] && [ -d e ] && rm a d && [ \"$(cat b)\" = text ]").ok();
}

#[test]
fn overlayfs_takes_a_mount_as_its_upper_layer() {
    let Some(fs) = Fs::up_as_root_or_skip(2) else { return };
    let beside = |name: &str| fs.dir().parent().unwrap().join(name).display().to_string();
    let (low, merged) = (beside("low"), beside("merged"));
    sh(&format!("mkdir -p {low}/d {merged} && cd {low} && echo low | tee f old moved d/f")).ok();
    let mount = |upper: &str| {
        let layers = format!("lowerdir={low},upperdir={upper}/u,workdir={upper}/w");
        sh(&format!("mkdir -p {upper}/u {upper}/w && mount -t overlay overlay -o {layers} {merged}"))
    };
    if mount(&beside("upper")).code != 0 {
        return println!("skipped: no overlayfs here");
    }
    sh(&format!("umount {merged}")).ok();
    let outcome = std::panic::catch_unwind(|| {
        mount(&fs.mnt.display().to_string()).ok();
        let script = "rm old && echo new >> f && mv moved there && mv d/f d/g && rm -r d && mkdir d && echo x > d/x && cat f there && ls . d";
        let said = sh(&format!("cd {merged} && {script}")).ok();
        assert_eq!(said, "low\nnew\nlow\n.:\nd\nf\nthere\n\nd:\nx\n");
    });
    sh(&format!("umount {merged}")).ok();
    outcome.unwrap();
    fs.sh("cd u && [ -c old ] && [ -c moved ] && [ \"$(stat -c %t:%T old moved)\" = $'0:0\\n0:0' ] && [ -f there ]")
        .ok();
}

#[test]
fn hard_links_are_counted_and_special_files_keep_their_kind() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    let a = fs.path("a");
    fs::write(&a, "x").unwrap();
    let before = fs::metadata(&a).unwrap();
    fs::hard_link(&a, fs.path("b")).unwrap();
    let after = fs::metadata(fs.path("b")).unwrap();
    assert_eq!((after.nlink(), after.ino()), (2, before.ino()));
    assert!((after.ctime(), after.ctime_nsec()) > (before.ctime(), before.ctime_nsec()));
    symlink("b", fs.path("s")).unwrap();
    assert_eq!(fs::read_link(fs.path("s")).unwrap(), Path::new("b"));
    assert_eq!(fs::symlink_metadata(fs.path("s")).unwrap().len(), 1);
    assert_eq!(fs::read_to_string(fs.path("s")).unwrap(), "x");
    let made = fs.sh("mkfifo f && [ -p f ] && python3 -c 'import socket; s=socket.socket(socket.AF_UNIX); s.bind(\"k\")' && [ -S k ]");
    made.ok();
    if is_root() {
        fs.sh("mknod chr c 1 3 && [ -c chr ] && [ \"$(stat -c %t,%T chr)\" = 1,3 ] && mknod blk b 7 300 && [ \"$(stat -c %t,%T blk)\" = 7,12c ]").ok();
    }
    fs.sh("(echo through > f &) ; [ \"$(cat f)\" = through ]").ok();
}

#[test]
fn readdir_is_stable_while_entries_come_and_go() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    let dir = fs.path("big");
    fs::create_dir(&dir).unwrap();
    let n = 20_000;
    for i in 0..n {
        File::create(dir.join(format!("stay{i}"))).unwrap();
        if i % 10 == 0 {
            File::create(dir.join(format!("go{i}"))).unwrap();
        }
    }
    let mut seen = std::collections::BTreeMap::new();
    for (k, entry) in fs::read_dir(&dir).unwrap().enumerate() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        *seen.entry(name).or_insert(0) += 1;
        if k % 11 == 0 {
            let _ = fs::remove_file(dir.join(format!("go{}", k / 11 * 10)));
            File::create(dir.join(format!("come{k}"))).unwrap();
        }
    }
    for i in 0..n {
        assert_eq!(seen.get(&format!("stay{i}")), Some(&1), "stay{i} must be listed once");
    }
    assert!(seen.values().all(|c| *c == 1), "nothing is listed twice");
    fs::remove_dir_all(&dir).unwrap();
    assert!(!dir.exists());
}

#[test]
fn operations_update_the_posix_times_with_nanoseconds() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    fs.sh("touch -d '2001-02-03 04:05:06.123456789' f && [ \"$(stat -c %y f | cut -c1-29)\" = '2001-02-03 04:05:06.123456789' ]").ok();
    let times = |p: &Path| {
        let m = fs::metadata(p).unwrap();
        ((m.mtime(), m.mtime_nsec()), (m.ctime(), m.ctime_nsec()))
    };
    let p = fs.path("f");
    let (m0, c0) = times(&p);
    fs::set_permissions(&p, fs::Permissions::from_mode(0o600)).unwrap();
    let (m1, c1) = times(&p);
    assert!(m1 == m0 && c1 > c0, "chmod moves ctime alone");
    fs::write(&p, "x").unwrap();
    let (m2, c2) = times(&p);
    assert!(m2 > m1 && c2 > c1, "writing moves both");
    let d0 = times(&fs.mnt);
    File::create(fs.path("g")).unwrap();
    let d1 = times(&fs.mnt);
    assert!(d1.0 > d0.0 && d1.1 > d0.1, "a new entry moves its directory's times");
    fs.sh("ln f f2 && mv f2 f3 && chmod 644 f && chown :$(id -g) f").ok();
    let (m3, c3) = times(&p);
    assert!(m3 == m2 && c3 > c2, "nor do a name, an owner or a mode given after a write move its mtime");
    assert_eq!(times(&fs.path("f3")), (m3, c3));
    let mut open = OpenOptions::new().append(true).open(&p).unwrap();
    open.write_all(b"y").unwrap();
    let during = open.metadata().unwrap();
    let during = ((during.mtime(), during.mtime_nsec()), (during.ctime(), during.ctime_nsec()));
    assert!(during.0 > m3);
    drop(open);
    assert_eq!(times(&p), during, "closing moves nothing");
    fs.stop().ok();
    fs.start(&[]).ok();
    assert_eq!(times(&p), during, "nor does a restart");
    fs.sh("touch -d '2001-02-03' f; sleep 0.01; printf y >> f; touch -r g f; [ \"$(stat -c %Y f)\" = \"$(stat -c %Y g)\" ]").ok();
}

#[test]
fn xattrs_and_acls_are_stored_and_enforced() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    let p = fs.path("f");
    File::create(&p).unwrap();
    let get = |name: &str| {
        let mut buffer = vec![0; 65536];
        rustix::fs::getxattr(&p, name, &mut buffer).map(|n| buffer[..n].to_vec())
    };
    rustix::fs::setxattr(&p, "user.a", b"1", XattrFlags::CREATE).unwrap();
    assert_eq!(rustix::fs::setxattr(&p, "user.a", b"2", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(rustix::fs::setxattr(&p, "user.b", b"2", XattrFlags::REPLACE), Err(Errno::NODATA));
    rustix::fs::setxattr(&p, "user.a", b"3", XattrFlags::REPLACE).unwrap();
    assert_eq!(get("user.a").unwrap(), b"3");
    let big = noise(3, 60000);
    rustix::fs::setxattr(&p, "user.big", &big, XattrFlags::empty()).unwrap();
    assert!(get("user.big").unwrap() == big);
    rustix::fs::removexattr(&p, "user.a").unwrap();
    assert_eq!(get("user.a"), Err(Errno::NODATA));
    assert_eq!(rustix::fs::removexattr(&p, "user.a"), Err(Errno::NODATA));
    if is_root() {
        rustix::fs::setxattr(&p, "trusted.t", b"t", XattrFlags::empty()).unwrap();
        rustix::fs::setxattr(&p, "security.t", b"s", XattrFlags::empty()).unwrap();
        assert_eq!(get("trusted.t").unwrap(), b"t");
        fs.sh("setfacl -m u:nobody:r f && getfacl -cp f | grep -q user:nobody:r-- && mkdir d && setfacl -d -m g:daemon:rwx d && touch d/f && getfacl -cp d/f | grep -q group:daemon:rwx").ok();
        fs.sh("chmod 600 f; setfacl -m u:nobody:r f; echo hi > f; su nobody -s /bin/sh -c 'cat f' && ! su nobody -s /bin/sh -c 'echo x > f' 2>/dev/null").ok();
    }
}

#[test]
fn truncate_seek_and_fallocate_handle_sparse_files() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    fs.lfs("setstripe -c 4 -S 64K f").ok();
    let file = OpenOptions::new().read(true).write(true).open(fs.path("f")).unwrap();
    file.write_all_at(b"x", 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), (1 << 20) + 1);
    assert!(file.metadata().unwrap().blocks() < 100, "sparse");
    let seek = |what| rustix::fs::seek(&file, what).unwrap();
    let data = seek(rustix::fs::SeekFrom::Data(0));
    assert!(data > 0 && data <= 1 << 20, "the first data lies at {data}");
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(0)), 0);
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(1 << 20)), (1 << 20) + 1, "the end counts as a hole");
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data((1 << 20) + 1)), Err(Errno::NXIO));
    for size in [100u64, 300_000, 65536, 0, 1 << 22, 70_000] {
        file.set_len(size).unwrap();
        assert_eq!(file.metadata().unwrap().len(), size);
        let mut all = Vec::new();
        File::open(fs.path("f")).unwrap().read_to_end(&mut all).unwrap();
        assert!(all.len() as u64 == size && all.iter().all(|b| *b == 0), "size {size} reads as zeros");
    }
    file.write_all_at(&noise(4, 1 << 20), 0).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 100_000, 500_000).unwrap();
    let mut want = noise(4, 1 << 20);
    want[100_000..600_000].fill(0);
    assert!(fs::read(fs.path("f")).unwrap() == want);
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 1 << 20, 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 2 << 20);
    assert!(file.metadata().unwrap().blocks() * 512 >= 1 << 20, "space is reserved");
    rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 2 << 20, 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 2 << 20);
    assert_eq!(rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096), Err(Errno::OPNOTSUPP));
}

#[test]
fn copy_file_range_and_mmap_transfer_the_data() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    let data = noise(5, (3 << 20) + 123);
    fs::write(fs.path("a"), &data).unwrap();
    let (from, to) = (File::open(fs.path("a")).unwrap(), File::create(fs.path("b")).unwrap());
    let mut done = 0;
    while done < data.len() {
        let n = rustix::fs::copy_file_range(&from, None, &to, None, data.len() - done).unwrap();
        assert!(n > 0, "copied {done}");
        done += n;
    }
    assert!(fs::read(fs.path("b")).unwrap() == data);
    let script = "
import mmap, os
fd = os.open('m', os.O_RDWR | os.O_CREAT); os.ftruncate(fd, 100000)
m = mmap.mmap(fd, 100000); m[50000:50005] = b'hello'; m.flush(); m.close()
assert os.pread(fd, 5, 50000) == b'hello'
os.pwrite(fd, b'world', 50000)
m = mmap.mmap(fd, 100000); assert m[50000:50005] == b'world', m[50000:50005]
print('ok')";
    fs::write(fs.path("mm.py"), script).unwrap();
    assert_eq!(fs.sh("python3 mm.py").ok(), "ok\n");
    fs.sh("cp /bin/ls ./ls && ./ls >/dev/null").ok();
}

#[test]
fn exceeding_name_and_size_limits_returns_the_right_errno() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    File::create(fs.path(&"n".repeat(255))).unwrap();
    let create = |p: &Path| rustix::fs::open(p, OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).map(drop);
    assert_eq!(create(&fs.path(&"n".repeat(256))), Err(Errno::NAMETOOLONG));
    assert_eq!(create(&fs.path(&"a/".repeat(2100))), Err(Errno::NAMETOOLONG));
    assert_eq!(rustix::fs::symlink("x".repeat(4096), fs.path("s")), Err(Errno::NAMETOOLONG));
    rustix::fs::symlink("x".repeat(4095), fs.path("s")).unwrap();
    fs.lfs("setstripe -c 1 one").ok();
    let one = OpenOptions::new().write(true).open(fs.path("one")).unwrap();
    let most = (16u64 << 40) - 4096;
    one.set_len(most).unwrap();
    assert_eq!(rustix::fs::ftruncate(&one, most + 1), Err(Errno::FBIG));
    assert_eq!(rustix::io::pwrite(&one, b"x", most), Err(Errno::FBIG));
    fs.lfs("setstripe -C 8 eight").ok();
    let eight = OpenOptions::new().write(true).open(fs.path("eight")).unwrap();
    eight.set_len(100 << 40).unwrap();
    assert_eq!(eight.metadata().unwrap().len(), 100 << 40);
}

#[test]
fn mkdir_honours_umask_and_setgid_and_rmdir_refuses_nonempty() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    fs::DirBuilder::new().mode(0o2775).create(fs.path("d")).unwrap();
    if is_root() {
        fs.sh("chgrp daemon d && chmod g+s d && mkdir d/e && touch d/f && [ \"$(stat -c %G d/f)\" = daemon ] && [ \"$(stat -c %a d/e | cut -c1)\" = 2 ]").ok();
    }
    fs.sh("mkdir -p p/q && ! rmdir p 2>/dev/null && rmdir p/q && rmdir p && ! rmdir nope 2>/dev/null").ok();
    fs.sh("mkdir u && (umask 027; touch u/f; mkdir u/d) && [ \"$(stat -c %a u/f)\" = 640 ] && [ \"$(stat -c %a u/d)\" = 750 ]").ok();
    fs.sh("cd u && rmdir d && touch d && [ -f d ] && rm d f && cd .. && rmdir u").ok();
}

#[test]
fn unprivileged_users_are_refused_what_permissions_deny() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    if !is_root() {
        return println!("skipped: needs root to become another user");
    }
    fs.sh("chmod 755 . && mkdir private && chmod 700 private && echo secret > private/f && chmod 644 private/f && mkdir shared && chmod 1777 shared && echo mine > shared/root").ok();
    let nobody = |script: &str| fs.sh(&format!("su nobody -s /bin/sh -c '{script}'")).code;
    assert_ne!(nobody("cat private/f"), 0);
    assert_ne!(nobody("ls private"), 0);
    assert_ne!(nobody("touch here"), 0);
    assert_eq!(nobody("echo x > shared/mine && cat shared/mine && chmod 600 shared/mine"), 0);
    assert_ne!(nobody("rm -f shared/root"), 0, "sticky");
    assert_ne!(nobody("chown daemon shared/mine"), 0);
    fs.sh("cat shared/mine && chown nobody shared/root").ok();
    assert_eq!(nobody("rm -f shared/root"), 0);
    fs.sh("echo g > group && chgrp daemon group && chmod 040 group").ok();
    let with_group =
        sh(&format!("cd {} && setpriv --reuid nobody --regid nogroup --groups daemon cat group", fs.mnt.display()));
    assert_eq!(with_group.ok(), "g\n", "a supplementary group counts");
    fs.sh("cp /bin/true suid && chmod 6777 suid").ok();
    assert_eq!(nobody("echo x >> suid"), 0);
    fs.sh("[ \"$(stat -c %a suid)\" = 777 ]").ok();
}

/// Does `work` on a thread that accesses files as an unprivileged user.
fn as_other_user<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    const NOBODY: libc::c_long = 65534;
    let become_other = || {
        // SAFETY: these calls take numbers, and change what this thread alone may do to files.
        unsafe {
            libc::syscall(libc::SYS_setfsgid, NOBODY);
            libc::syscall(libc::SYS_setfsuid, NOBODY);
        }
        work()
    };
    std::thread::scope(|scope| scope.spawn(become_other).join().unwrap())
}

/// Changes a file of 64 KiB by a call other than write(2).
fn change(how: &str, file: &File) {
    let allocate = |mode, len| rustix::fs::fallocate(file, mode, 0, len).unwrap();
    match how {
        "reserve" => allocate(FallocateFlags::empty(), 1 << 20),
        "reserve behind the end" => allocate(FallocateFlags::KEEP_SIZE, 1 << 20),
        "punch" => allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 4096),
        _ => {
            let copied = rustix::fs::copy_file_range(file, Some(&mut 8192), file, Some(&mut 0), 4096);
            assert_eq!(copied, Ok(4096));
        }
    }
}

#[test]
fn fallocate_and_copy_clear_the_set_user_id_bits() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    if !is_root() {
        return println!("skipped: needs root to become another user");
    }
    fs.sh("chmod 755 .").ok();
    let path = fs.path("f");
    let rw = || OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
    for how in ["reserve", "reserve behind the end", "punch", "copy"] {
        for (before, after) in [(0o6777, 0o777), (0o6666, 0o666), (0o4666, 0o666), (0o2676, 0o676)] {
            fs::write(&path, noise(7, 65536)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(before)).unwrap();
            change(how, &rw());
            assert_eq!(mode(), before, "{how} by root");
            as_other_user(|| change(how, &rw()));
            assert_eq!(mode(), after, "{how} by another user");
        }
    }
    let other = fs.second_mount();
    assert_eq!(fs::metadata(other.path("f")).unwrap().mode() & 0o7777, 0o676);
}

#[test]
fn appends_of_two_descriptors_land_at_the_end() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    let open = || OpenOptions::new().append(true).create(true).open(fs.path("log")).unwrap();
    let (mut a, mut b) = (open(), open());
    for _ in 0..50 {
        a.write_all(b"aaaaaaaaaa").unwrap();
        b.write_all(b"bbbbbbbbbb").unwrap();
    }
    let text = fs::read(fs.path("log")).unwrap();
    assert_eq!(text.len(), 1000);
    assert!(text.chunks(20).all(|c| c == b"aaaaaaaaaabbbbbbbbbb"));
    let mut file = File::open(fs.path("log")).unwrap();
    assert_eq!(file.seek(SeekFrom::End(-10)).unwrap(), 990);
}

#[test]
fn statfs_shows_freed_space_after_a_delete() {
    if !(can_mount() && is_root()) {
        return println!("skipped: needs root to mount a tmpfs of its own");
    }
    let place = sheen_tests::new_dir(std::path::Path::new("/dev/shm"));
    sh(&format!("mount -t tmpfs -o size=512m tmpfs {}", place.display())).ok();
    let outcome = std::panic::catch_unwind(|| check_freed_space(&Fs::up_in(&place, 4, &[])));
    sh(&format!("umount {p} && rmdir {p}", p = place.display())).ok();
    outcome.unwrap();
}

fn check_freed_space(fs: &Fs) {
    let free = || rustix::fs::statvfs(&fs.mnt).unwrap().f_bfree;
    let before = free();
    fs::write(fs.path("f"), noise(6, 64 << 20)).unwrap();
    let full = free();
    assert!(full + (60 << 20) / 4096 < before, "64 MiB are used");
    fs::remove_file(fs.path("f")).unwrap();
    eventually(format!("space is back: {before} {full}"), || free() > full + (60 << 20) / 4096);
}

#[test]
fn a_read_only_mount_refuses_changes() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    fs.sh("echo x > f && mkdir d").ok();
    let at = fs.dir().parent().unwrap().join("ro");
    fs::create_dir_all(&at).unwrap();
    let source = fs.status()["source"].as_str().unwrap().to_owned();
    sheen_tests::run(sheen_tests::sheen(), ["mount", "-o", "ro", &source, &at.to_string_lossy()]).ok();
    let mount = sheen_tests::Mount { mnt: at };
    assert_eq!(fs::read_to_string(mount.path("f")).unwrap(), "x\n");
    let refused = |e: std::io::Error| e.raw_os_error() == Some(Errno::ROFS.raw_os_error());
    assert!(refused(fs::write(mount.path("f"), "y").unwrap_err()));
    assert!(refused(fs::create_dir(mount.path("e")).unwrap_err()));
    assert!(refused(fs::remove_dir(mount.path("d")).unwrap_err()));
    assert!(refused(fs::rename(mount.path("f"), mount.path("g")).unwrap_err()));
    assert!(refused(fs::set_permissions(mount.path("f"), fs::Permissions::from_mode(0o600)).unwrap_err()));
    fs::write(fs.path("f"), "new").unwrap();
    assert_eq!(fs::read_to_string(mount.path("f")).unwrap(), "new", "other mounts may change the file");
}
