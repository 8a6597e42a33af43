//! Operations on real mounts by real system calls. Where /dev/fuse or mounting is not permitted,
//! the tests are skipped with a message.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Read as _, Write as _},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::PathBuf,
    process::{Command, Stdio},
    sync::{Arc, atomic::Ordering::SeqCst, mpsc},
    thread,
    time::Duration,
};

use bytes::Bytes;
use rustix::fs::{FlockOperation, Mode, OFlags, RenameFlags, XattrFlags};
use sheen_fuse::{abi::flags, *};
use sheen_wire::FileKind;

use super::memfs::{MemFs, mount::*};

#[test]
fn large_writes_arrive_whole_aligned_and_uncopied() {
    let Some(m) = Mounted::new(plain) else { return };
    const LEN: usize = 1 << 20;
    let mut space = vec![0u8; LEN + 4096];
    let start = space.as_ptr().align_offset(4096);
    let buffer = &mut space[start..start + LEN];
    buffer.iter_mut().enumerate().for_each(|(i, b)| *b = (i * 7 + i / 4096) as u8);
    let want = buffer.to_vec();

    let direct = OFlags::DIRECT.bits() as i32;
    let file =
        fs::OpenOptions::new().read(true).write(true).create(true).custom_flags(direct).open(m.path("f")).unwrap();
    let copied = m.session.stats().bytes_copied;
    for i in 0..8 {
        file.write_all_at(buffer, i * LEN as u64).unwrap();
    }
    let max = m.session.negotiated().max_write as usize;
    let writes = m.fs.state().writes.clone();
    assert_eq!(writes.len(), 8 * LEN.div_ceil(max), "{writes:?}");
    assert!(writes.iter().all(|(_, len, aligned)| *len == LEN.min(max) && *aligned), "{writes:?}");
    let stats = m.session.stats();
    assert_eq!(stats.bytes_copied - copied, 0);
    // Each worker holds one buffer and one more is in use: buffers are reused.
    assert!(stats.buffers_allocated <= 64, "{stats:?}");

    for i in 0..8 {
        buffer.fill(0);
        file.read_exact_at(buffer, i * LEN as u64).unwrap();
        assert!(buffer == want, "read back differs at {i}");
    }
    assert_eq!(file.read_at(buffer, 8 * LEN as u64).unwrap(), 0, "end of file");
}

#[test]
fn small_buffered_writes_preserve_every_byte() {
    let Some(m) = Mounted::new(plain) else { return };
    let mut file = fs::File::create(m.path("f")).unwrap();
    let mut want = Vec::new();
    for i in 0..300usize {
        let piece = vec![i as u8; i * 37];
        file.write_all(&piece).unwrap();
        want.extend(piece);
    }
    drop(file);
    assert!(fs::read(m.path("f")).unwrap() == want);
    let file = fs::OpenOptions::new().write(true).open(m.path("f")).unwrap();
    file.set_len(10).unwrap();
    assert_eq!(fs::read(m.path("f")).unwrap(), &want[..10]);
}

#[test]
fn spliced_read_returns_all_bytes_even_of_cut_files() {
    let Some(m) = Mounted::new(plain) else { return };
    let want: Vec<u8> = (0..1_500_000usize).map(|i| (i * 7 + i / 4096) as u8).collect();
    for name in ["files", "cut files", "files"] {
        fs::write(m.path(name), &want).unwrap();
        let before = m.session.stats();
        let direct = OFlags::DIRECT.bits() as i32;
        let file = fs::OpenOptions::new().read(true).custom_flags(direct).open(m.path(name)).unwrap();
        for (offset, len) in [(0, 1_500_000), (4096, 400_000), (0, 1), (1_499_999, 1), (12_345, 300_000)] {
            let mut got = vec![0; len];
            file.read_exact_at(&mut got, offset as u64).unwrap();
            assert!(got == want[offset..offset + len], "{name}: {len} at {offset}");
        }
        let after = m.session.stats();
        // Only some replies are spliced: without a free pipe a reply is copied. Into a ring entry
        // the files are read.
        let over_ring = m.session.negotiated().is_over_io_uring();
        assert!(over_ring || name != "files" || after.bytes_spliced > before.bytes_spliced, "{after:?}");
        assert_eq!(after.lost_replies, before.lost_replies);
    }
}

#[test]
fn parallel_create_read_unlink_loses_no_reply() {
    let Some(m) = Mounted::new(plain) else { return };
    thread::scope(|scope| {
        for t in 0..8 {
            let m = &m;
            scope.spawn(move || {
                for i in 0..100 {
                    let path = m.path(&format!("{t}-{i}"));
                    fs::write(&path, format!("{t} {i}")).unwrap();
                    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{t} {i}"));
                    fs::remove_file(&path).unwrap();
                }
            });
        }
    });
    assert_eq!(fs::read_dir(&m.root).unwrap().count(), 0);
    let stats = m.session.stats();
    assert!(stats.requests > 8 * 100 * 4 && stats.lost_replies == 0, "{stats:?}");
}

fn ten_thousand_entries(config: fn(&mut InitConfig), op: &str, other: &str) {
    let Some(m) = Mounted::new(config) else { return };
    let names: BTreeSet<String> = (0..10_000).map(|i| format!("{i:05}-{}", "x".repeat(i % 200))).collect();
    {
        let mut s = m.fs.state();
        for name in &names {
            s.make(1, &Bytes::from(name.clone()), FileKind::Regular, 0o644).unwrap();
        }
    }
    let seen: Vec<String> =
        fs::read_dir(&m.root).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(seen.len(), names.len(), "none twice");
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), names);
    assert!(m.saw(op) && !m.saw(other), "{:?}", m.fs.state().ops);
}

#[test]
fn readdir_lists_ten_thousand_entries_once() {
    ten_thousand_entries(|c| c.disable(flags::init::DO_READDIRPLUS), "readdir", "readdirplus");
}

#[test]
fn readdirplus_lists_ten_thousand_entries_once() {
    ten_thousand_entries(|c| c.disable(flags::init::READDIRPLUS_AUTO), "readdirplus", "readdir");
}

#[test]
fn rename_link_mknod_and_unlink_change_names() {
    let Some(m) = Mounted::new(plain) else { return };
    fs::create_dir(m.path("d")).unwrap();
    fs::write(m.path("d/a"), "a").unwrap();
    fs::write(m.path("b"), "b").unwrap();
    let here = rustix::fs::CWD;
    let (a, b) = (m.path("d/a"), m.path("b"));
    let rename = |flags| rustix::fs::renameat_with(here, &a, here, &b, flags).map_err(io::Error::from);
    assert_eq!(errno(rename(RenameFlags::NOREPLACE)), 17);
    rename(RenameFlags::EXCHANGE).unwrap();
    assert_eq!((fs::read_to_string(&a).unwrap(), fs::read_to_string(&b).unwrap()), ("b".into(), "a".into()));
    fs::rename(&a, &b).unwrap();
    assert_eq!(fs::read_to_string(&b).unwrap(), "b");
    assert_eq!(errno(fs::metadata(&a)), 2);

    fs::hard_link(&b, m.path("d/l")).unwrap();
    assert_eq!(fs::metadata(&b).unwrap().nlink(), 2);
    std::os::unix::fs::symlink("../b", m.path("d/s")).unwrap();
    assert_eq!(fs::read_link(m.path("d/s")).unwrap(), PathBuf::from("../b"));
    assert_eq!(fs::read_to_string(m.path("d/s")).unwrap(), "b");
    rustix::fs::mknodat(here, m.path("fifo"), rustix::fs::FileType::Fifo, Mode::from(0o600), 0).unwrap();
    assert_eq!(fs::symlink_metadata(m.path("fifo")).unwrap().mode(), 0o010600);
    assert_eq!(errno(fs::remove_dir(m.path("d"))), 39);
    assert_eq!(errno(fs::create_dir(m.path("d"))), 17);
    for name in ["d/l", "d/s", "b", "fifo"] {
        fs::remove_file(m.path(name)).unwrap();
    }
    fs::remove_dir(m.path("d")).unwrap();
    assert_eq!(fs::read_dir(&m.root).unwrap().count(), 0);
}

#[test]
fn setattr_preserves_nanoseconds_and_create_passes_the_umask() {
    let Some(m) = Mounted::new(plain) else { return };
    let file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o666).open(m.path("f")).unwrap();
    let umask = rustix::process::umask(Mode::empty());
    rustix::process::umask(umask);
    assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o666 & !umask.bits(), "DONT_MASK: the umask is applied here");
    let meta = file.metadata().unwrap();
    assert_eq!((meta.mtime(), meta.mtime_nsec()), (1_000_000_000, 123_456_789));
    let stamp = |sec, nsec| rustix::fs::Timespec { tv_sec: sec, tv_nsec: nsec };
    let times = rustix::fs::Timestamps { last_access: stamp(-5, 6), last_modification: stamp(7, 8) };
    rustix::fs::futimens(&file, &times).unwrap();
    let meta = file.metadata().unwrap();
    assert_eq!((meta.atime(), meta.atime_nsec(), meta.mtime(), meta.mtime_nsec()), (-5, 6, 7, 8));
    rustix::fs::fchmod(&file, Mode::from(0o4711)).unwrap();
    assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o4711);
    let space = rustix::fs::statvfs(&m.root).unwrap();
    assert_eq!((space.f_blocks, space.f_bavail, space.f_namemax), (1000, 400, 255));
}

#[test]
fn xattrs_are_set_read_listed_and_removed() {
    let Some(m) = Mounted::new(plain) else { return };
    let f = m.path("f");
    fs::write(&f, "").unwrap();
    let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(&f, name, value, flags).map_err(io::Error::from);
    let get = |name: &str, room: usize| {
        let mut value = vec![0; room];
        rustix::fs::getxattr(&f, name, &mut value[..]).map_err(io::Error::from).map(|n| (n, value))
    };
    set("user.a", b"one", XattrFlags::empty()).unwrap();
    assert_eq!(errno(set("user.a", b"two", XattrFlags::CREATE)), 17);
    assert_eq!(errno(set("user.b", b"two", XattrFlags::REPLACE)), 61);
    // The largest value that Linux allows fits into one message.
    let large = vec![0xabu8; 65536];
    set("user.large", &large, XattrFlags::empty()).unwrap();
    assert_eq!(rustix::fs::getxattr_query(&f, "user.a").unwrap(), 3);
    assert_eq!(get("user.a", 3).unwrap().1, b"one");
    assert_eq!(errno(get("user.a", 2)), 34);
    assert!(get("user.large", 65536).unwrap().1 == large);
    assert_eq!(errno(get("user.none", 9)), 61);
    let mut names = [0u8; 100];
    let n = rustix::fs::listxattr(&f, &mut names[..]).unwrap();
    assert_eq!(&names[..n], b"user.a\0user.large\0");
    rustix::fs::removexattr(&f, "user.a").unwrap();
    assert_eq!(errno(get("user.a", 9)), 61);
}

#[test]
fn kill_interrupts_a_pending_direct_read() {
    let mut fs = MemFs::new(plain);
    // With the page cache, the process would wait for a page, and the kernel would send no
    // interrupt.
    fs.open_flags = flags::fopen::DIRECT_IO;
    let Some(m) = Mounted::with(fs, SessionOptions::default()) else { return };
    let hang = m.fs.state().make(1, &Bytes::from("hang"), FileKind::Regular, 0o644).unwrap();
    m.fs.state().set_data(hang, vec![0; 10]);
    let mut child =
        Command::new("cat").arg(m.path("hang")).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the read arrives", || !m.fs.held.lock().unwrap().is_empty());
    assert!(child.try_wait().unwrap().is_none(), "it waits");
    child.kill().unwrap();
    wait_for("the killed process dies", || child.try_wait().unwrap().is_some());
    assert!(m.fs.interrupts.load(SeqCst) >= 1);
    assert!(m.fs.held.lock().unwrap().is_empty());
}

#[test]
fn dropped_reply_and_panic_return_eio_and_the_mount_survives() {
    let Some(m) = Mounted::with(MemFs::new(plain), SessionOptions { threads: 1, ..Default::default() }) else { return };
    for name in ["drop", "panic"] {
        fs::write(m.path(name), "data").unwrap();
        let file =
            fs::OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(m.path(name)).unwrap();
        assert_eq!(errno(file.read_at(&mut [0; 4], 0)), 5, "{name}");
    }
    fs::write(m.path("f"), "fine").unwrap();
    assert_eq!(fs::read_to_string(m.path("f")).unwrap(), "fine");
}

#[test]
fn notifications_drop_cached_data_attributes_and_names() {
    let mut fs = MemFs::new(|c| {
        c.disable(flags::init::AUTO_INVAL_DATA);
        c.enable(flags::init::EXPLICIT_INVAL_DATA);
    });
    fs.valid = Duration::from_secs(3600);
    fs.open_flags = flags::fopen::KEEP_CACHE;
    let Some(m) = Mounted::with(fs, SessionOptions::default()) else { return };
    let f = m.path("f");
    fs::write(&f, "old!").unwrap();
    assert_eq!(fs::read_to_string(&f).unwrap(), "old!");
    let id = m.fs.state().child(1, b"f").unwrap();
    let notifier = m.notifier();

    m.fs.state().set_data(id, b"new!".to_vec());
    assert_eq!(fs::read_to_string(&f).unwrap(), "old!", "cached, or this test shows nothing");
    notifier.inval_inode(id, 0, 0).unwrap();
    assert_eq!(fs::read_to_string(&f).unwrap(), "new!");

    assert_eq!(fs::metadata(&f).unwrap().len(), 4);
    m.fs.state().set_data(id, b"longer now".to_vec());
    assert_eq!(fs::metadata(&f).unwrap().len(), 4, "cached, or this test shows nothing");
    notifier.inval_attr(id).unwrap();
    assert_eq!(fs::metadata(&f).unwrap().len(), 10);

    assert_eq!(errno(fs::metadata(m.path("later"))), 2);
    m.fs.state().make(1, &Bytes::from("later"), FileKind::Regular, 0o644).unwrap();
    assert_eq!(errno(fs::metadata(m.path("later"))), 2, "the absence is cached");
    notifier.inval_entry(1, b"later").unwrap();
    fs::metadata(m.path("later")).unwrap();

    let child = m.fs.state().child(1, b"later").unwrap();
    m.fs.state().node(1).unwrap().entries.remove(&b"later"[..]);
    fs::metadata(m.path("later")).unwrap();
    notifier.delete(1, child, b"later").unwrap();
    assert_eq!(errno(fs::metadata(m.path("later"))), 2);

    m.fs.state().node(1).unwrap().entries.remove(&b"f"[..]);
    fs::metadata(&f).unwrap();
    if m.session.negotiated().has(flags::init::HAS_EXPIRE_ONLY) {
        notifier.expire_entry(1, b"f").unwrap();
        assert_eq!(errno(fs::metadata(&f)), 2);
    }
    // Notifications about unknown nodes and names are no errors.
    notifier.inval_inode(999_999, 0, 0).unwrap();
    notifier.inval_entry(1, b"never heard of").unwrap();
}

#[test]
fn store_fills_the_page_cache_and_retrieve_reads_it() {
    let mut fs = MemFs::new(plain);
    fs.valid = Duration::from_secs(3600);
    fs.open_flags = flags::fopen::KEEP_CACHE;
    let Some(m) = Mounted::with(fs, SessionOptions::default()) else { return };
    fs::write(m.path("f"), vec![b'x'; 8192]).unwrap();
    let id = m.fs.state().child(1, b"f").unwrap();
    let file = fs::File::open(m.path("f")).unwrap();
    let pieces: Vec<Bytes> = (0..2048).map(|i| Bytes::from(vec![i as u8; 4])).collect();
    m.notifier().store(id, 0, &pieces).unwrap();
    let mut got = vec![0; 8192];
    file.read_exact_at(&mut got, 0).unwrap();
    assert!(got == pieces.concat());
    m.notifier().retrieve(1 << 40, id, 0, 4096).unwrap();
    wait_for("the pages arrive", || !m.fs.state().retrieved.is_empty());
    assert!(m.fs.state().retrieved[0] == (0, Bytes::from(got[..4096].to_vec())));
}

#[test]
fn deferred_notifications_run_and_end_with_the_session() {
    let Some(m) = Mounted::new(plain) else { return };
    let (send, sent) = mpsc::channel();
    for i in 0..10 {
        let send = send.clone();
        m.notifier().defer(move |n| send.send((i, n.inval_attr(1))).unwrap()).unwrap();
    }
    let mut done: Vec<_> = (0..10).map(|_| sent.recv_timeout(SOON).unwrap()).collect();
    done.sort_by_key(|d| d.0);
    assert!(done.iter().enumerate().all(|(i, d)| *d == (i, Ok(true))), "{done:?}");
    let notifier = m.notifier().clone();
    drop(m);
    assert_eq!(notifier.defer(|_| ()).err().map(|e| e.0), Some(19));
}

#[test]
fn flock_and_fcntl_locks_arrive_with_kind_and_wait() {
    let Some(m) = Mounted::new(|c| c.enable(flags::init::FLOCK_LOCKS | flags::init::POSIX_LOCKS)) else { return };
    let file = fs::File::create(m.path("f")).unwrap();
    rustix::fs::flock(&file, FlockOperation::LockExclusive).unwrap();
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).unwrap();
    rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    let locks = m.fs.state().locks.clone();
    let seen: Vec<_> = locks.iter().map(|(l, wait)| (l.flock, l.lock.kind, *wait)).collect();
    assert_eq!(seen, [(true, 1, true), (true, 0, false), (false, 1, false)]);
    assert_eq!((locks[2].0.lock.start, locks[2].0.lock.end), (0, i64::MAX as u64));
}

#[test]
fn copy_seek_fallocate_fsync_tmpfile_statx_reach_the_file_system() {
    let Some(m) = Mounted::new(plain) else { return };
    let minor = m.session.negotiated().minor;
    fs::write(m.path("a"), vec![7u8; 10_000]).unwrap();
    let a = fs::OpenOptions::new().read(true).write(true).open(m.path("a")).unwrap();
    let b = fs::File::create(m.path("b")).unwrap();
    assert_eq!(rustix::fs::copy_file_range(&a, Some(&mut 1000), &b, Some(&mut 0), 9000).unwrap(), 9000);
    assert_eq!(fs::metadata(m.path("b")).unwrap().len(), 9000);
    assert_eq!(rustix::fs::seek(&a, rustix::fs::SeekFrom::Hole(5)).unwrap(), 10_000);
    assert_eq!(rustix::fs::seek(&a, rustix::fs::SeekFrom::Data(5)).unwrap(), 5);
    assert_eq!(rustix::fs::seek(&a, rustix::fs::SeekFrom::Data(10_000)), Err(rustix::io::Errno::NXIO));
    rustix::fs::fallocate(&a, rustix::fs::FallocateFlags::empty(), 0, 20_000).unwrap();
    assert_eq!(a.metadata().unwrap().len(), 20_000);
    a.sync_data().unwrap();
    fs::File::open(&m.root).unwrap().sync_all().unwrap();
    for op in ["copy_file_range", "lseek", "fallocate", "fsync", "fsyncdir"] {
        assert!(m.saw(op), "{op} of {:?}", m.fs.state().ops);
    }
    if minor >= 37 {
        let tmp = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlags::TMPFILE.bits() as i32)
            .open(&m.root)
            .unwrap();
        tmp.write_all_at(b"unnamed", 0).unwrap();
        assert_eq!(tmp.metadata().unwrap().nlink(), 0);
        assert_eq!(fs::read_dir(&m.root).unwrap().count(), 2);
    }
    if minor >= 39 {
        let mask = rustix::fs::StatxFlags::BASIC_STATS | rustix::fs::StatxFlags::BTIME;
        let st = rustix::fs::statx(&a, "", rustix::fs::AtFlags::EMPTY_PATH, mask).unwrap();
        assert_eq!((st.stx_btime.tv_sec, st.stx_btime.tv_nsec, st.stx_size), (42, 43, 20_000));
    }
}

#[test]
fn ioctls_carry_data_both_ways() {
    let Some(m) = Mounted::new(plain) else { return };
    let file = fs::File::create(m.path("f")).unwrap();
    let mut data = *b"ab";
    // SAFETY: the command's size is two bytes, like the updater's type.
    let result = unsafe {
        let update = rustix::ioctl::Updater::<0xc002_7301, [u8; 2]>::new(&mut data);
        rustix::ioctl::ioctl(&file, update)
    };
    result.unwrap();
    assert_eq!(&data, b"ba");
    // SAFETY: an unknown command without an argument.
    let unknown = unsafe { rustix::ioctl::ioctl(&file, rustix::ioctl::NoArg::<0x7302>::new()) };
    assert_eq!(unknown, Err(rustix::io::Errno::NOTTY));
}

#[test]
fn abort_fails_pending_requests_that_are_never_answered() {
    let Some(m) = Mounted::new(plain) else { return };
    let hang = m.fs.state().make(1, &Bytes::from("hang"), FileKind::Regular, 0o644).unwrap();
    m.fs.state().set_data(hang, vec![0; 10]);
    let path = m.path("hang");
    let reader = thread::spawn(move || fs::File::open(path).and_then(|mut f| f.read(&mut [0; 4])));
    wait_for("the read arrives", || !m.fs.held.lock().unwrap().is_empty());
    m.session.abort().unwrap();
    assert!(reader.join().unwrap().is_err());
    assert!(m.session.join_timeout(SOON));
    // The kernel no longer waits for this late reply, which is no error.
    m.fs.held.lock().unwrap().clear();
    m.session.unmount().unwrap();
    assert!(!m.session.is_mounted());
}

#[test]
fn unmount_returns_ebusy_while_a_file_is_open() {
    let Some(m) = Mounted::new(plain) else { return };
    let file = fs::File::create(m.path("f")).unwrap();
    assert_eq!(errno(m.session.try_unmount()), 16);
    assert_eq!(errno(unmount(&m.root, false)), 16);
    drop(file);
    wait_for("the file is closed", || unmount(&m.root, false).is_ok());
    assert!(m.session.join_timeout(SOON));
    assert_eq!(fs::read_dir(&m.root).unwrap().count(), 0, "the directory below");
    assert!(unmount(&m.root, false).is_err(), "nothing is mounted any more");
    m.session.unmount().unwrap();
}

/// The kernel reuses the number of a mount's device for the next mount.
#[test]
fn late_unmount_does_not_remove_a_new_mount() {
    let Some(m) = Mounted::new(plain) else { return };
    sheen_fuse::unmount(&m.root, false).unwrap();
    let next = Arc::new(MemFs::new(plain));
    let next = Session::mount(MountOptions::new(&m.root, "memfs"), SessionOptions::default(), next).unwrap();
    assert!(!m.session.is_mounted());
    // The session's drop does the same, and may run late.
    m.session.unmount().unwrap();
    assert!(next.is_mounted());
    fs::write(m.path("f"), "still there").unwrap();
    next.unmount().unwrap();
}

#[test]
fn remount_changes_the_session_flags() {
    let Some(m) = Mounted::new(plain) else { return };
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root may");
    }
    let (watch, usual) = (m.session.flags(), MountFlags::default());
    assert_eq!((watch.now(), MountFlags::of(&m.root).unwrap()), (usual, Some(usual)));
    for flags in [
        MountFlags { noatime: true, nodiratime: true, exec: false, ..usual },
        MountFlags { read_only: true, suid: true, dev: true, symfollow: false, ..usual },
        usual,
    ] {
        sheen_fuse::remount(&m.root, flags, false).unwrap();
        assert_eq!((watch.now(), watch.now(), MountFlags::of(&m.root).unwrap()), (flags, flags, Some(flags)));
    }
    let file = fs::File::create(m.path("f")).unwrap();
    let read_only = MountFlags { read_only: true, ..usual };
    assert_eq!(errno(sheen_fuse::remount(&m.root, read_only, false)), 16, "a file is open for writing");
    drop(file);
    wait_for("the file is closed", || sheen_fuse::remount(&m.root, read_only, false).is_ok());
    assert!(watch.now().read_only);
    assert_eq!(errno(fs::write(m.path("f"), "x")), 30);
}

#[test]
fn negotiated_limits_are_reported_and_obeyed() {
    let Some(m) = Mounted::new(|c| {
        assert!(c.minor() >= 31);
        c.max_write = 128 << 10;
        c.disable(flags::init::ASYNC_READ);
    }) else {
        return;
    };
    let n = m.session.negotiated();
    assert_eq!((n.max_write, n.max_pages), (128 << 10, 33));
    assert!(n.has(flags::init::BIG_WRITES | flags::init::PARALLEL_DIROPS));
    assert!(!n.has(flags::init::ASYNC_READ) && !n.has(flags::init::WRITEBACK_CACHE));
    fs::write(m.path("f"), vec![1; 1 << 20]).unwrap();
    assert!(m.fs.state().writes.iter().all(|(_, len, _)| *len <= 128 << 10));
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|l| l.contains(m.root.to_str().unwrap())).unwrap();
    assert!(line.contains("fuse.sheen memfs"), "{line}");
}

#[test]
fn set_readahead_sets_the_window_of_files_opened_afterwards() {
    const BYTES: usize = 8 << 20;
    let Some(m) = Mounted::with(MemFs::new(plain), SessionOptions::default()) else { return };
    let device = fs::metadata(&m.root).unwrap().dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root may");
    }
    let window = || fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb")).unwrap();
    for name in ["large", "none"] {
        let id = m.fs.state().make(1, &Bytes::from(name), FileKind::Regular, 0o644).unwrap();
        m.fs.state().set_data(id, vec![7; BYTES]);
    }
    m.session.set_readahead(4 << 20).unwrap();
    assert_eq!(window().trim(), "4096");
    assert!(fs::read(m.path("large")).unwrap() == vec![7; BYTES]);
    let largest = m.fs.state().read_sizes.iter().copied().max();
    assert_eq!(largest, Some(m.session.negotiated().max_write), "requests are as large as allowed");

    m.session.set_readahead(0).unwrap();
    let page = rustix::param::page_size();
    assert_eq!(window().trim(), (page >> 10).to_string());
    m.fs.state().read_sizes.clear();
    let mut file = fs::File::open(m.path("none")).unwrap();
    for _ in 0..8 {
        file.read_exact(&mut vec![0; page]).unwrap();
    }
    assert_eq!(m.fs.state().read_sizes, [page as u32; 8], "each page is requested when it is read");
}
