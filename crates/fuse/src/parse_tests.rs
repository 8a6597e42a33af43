//! Tests of the parser with handmade messages and with random bytes.

use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::*;

fn message(opcode: u32, parts: &[&[u8]]) -> Vec<u8> {
    message_with(opcode, parts, &[])
}

fn message_with(opcode: u32, parts: &[&[u8]], extensions: &[u8]) -> Vec<u8> {
    let body = parts.concat();
    let head = InHeader {
        len: (40 + body.len() + extensions.len()) as u32,
        opcode,
        unique: 77,
        nodeid: 5,
        uid: 1000,
        gid: 100,
        pid: 4242,
        total_extlen: (extensions.len() / 8) as u16,
        padding: 0,
    };
    [head.as_bytes(), &body, extensions].concat()
}

fn request(message: &[u8]) -> Request {
    match parse(message, true) {
        Ok(Incoming::Request { request, .. }) => request,
        other => panic!("{other:?}"),
    }
}

fn op(opcode: u32, parts: &[&[u8]]) -> Op {
    let message = message(opcode, parts);
    // A message cut at any length must be refused or, if only an optional end is missing,
    // understood.
    for cut in 0..message.len() {
        let mut short = message[..cut].to_vec();
        if cut >= 4 {
            short[..4].copy_from_slice(&(cut as u32).to_ne_bytes());
        }
        let _ = parse(&short, true);
    }
    let request = request(&message);
    assert_eq!(
        request.header,
        Header { unique: 77, nodeid: 5, uid: 1000, gid: 100, pid: 4242, supplementary_group: None }
    );
    request.op
}

macro_rules! assert_op {
    ($opcode:ident, [$($part:expr),*], $pattern:pat $(if $guard:expr)?) => {
        let op = op(opcode::$opcode, &[$($part),*]);
        assert!(matches!(&op, $pattern $(if $guard)?), "{op:?}");
    };
}

#[test]
fn names() {
    assert_op!(LOOKUP, [b"abc\0"], Op::Lookup { name } if name == "abc");
    assert_op!(UNLINK, [b"abc\0"], Op::Unlink { name } if name == "abc");
    assert_op!(RMDIR, [b"abc\0"], Op::Rmdir { name } if name == "abc");
    assert_op!(SYMLINK, [b"n\0", b"../t/x\0"], Op::Symlink { name, target } if name == "n" && target == "../t/x");
    let mknod = MknodIn { mode: 0o020644, rdev: 259, umask: 0o22, padding: 0 };
    assert_op!(MKNOD, [mknod.as_bytes(), b"d\0"],
        Op::Mknod { name, mode: 0o020644, rdev: 259, umask: 0o22 } if name == "d");
    let mkdir = MkdirIn { mode: 0o755, umask: 0o77 };
    assert_op!(MKDIR, [mkdir.as_bytes(), b"d\0"], Op::Mkdir { name, mode: 0o755, umask: 0o77 } if name == "d");
    assert_op!(RENAME, [RenameIn { newdir: 9 }.as_bytes(), b"a\0", b"b\0"],
        Op::Rename { name, new_parent: 9, new_name, flags: 0 } if name == "a" && new_name == "b");
    assert_op!(RENAME2, [Rename2In { newdir: 9, flags: 2, padding: 0 }.as_bytes(), b"a\0", b"b\0"],
        Op::Rename { name, new_parent: 9, new_name, flags: 2 } if name == "a" && new_name == "b");
    assert_op!(LINK, [LinkIn { oldnodeid: 11 }.as_bytes(), b"l\0"], Op::Link { target: 11, name } if name == "l");
    let create = CreateIn { flags: 0o102, mode: 0o100644, umask: 0o22, open_flags: 1 };
    assert_op!(CREATE, [create.as_bytes(), b"f\0"], Op::Create(c)
        if **c == Create { name: "f".into(), flags: 0o102, mode: 0o100644, umask: 0o22, kill_suidgid: true });
    assert_op!(TMPFILE, [create.as_bytes(), b"/\0"], Op::TmpFile(c) if c.name.is_empty() && c.mode == 0o100644);
}

#[test]
fn parse_refuses_bad_names() {
    for bad in [&b"abc"[..], b"\0", b"a/b\0", b""] {
        let refused = parse(&message(opcode::LOOKUP, &[bad]), true);
        assert_eq!(refused.err(), Some(Malformed { unique: Some(77), opcode: opcode::LOOKUP }), "{bad:?}");
    }
    assert!(parse(&message(opcode::RENAME, &[RenameIn { newdir: 9 }.as_bytes(), b"a\0b"]), true).is_err());
}

#[test]
fn nodes() {
    assert_op!(GETATTR, [GetAttrIn { getattr_flags: 0, dummy: 0, fh: 3 }.as_bytes()], Op::GetAttr { fh: None });
    assert_op!(GETATTR, [GetAttrIn { getattr_flags: 1, dummy: 0, fh: 3 }.as_bytes()], Op::GetAttr { fh: Some(3) });
    assert_op!(
        STATX,
        [StatxIn { getattr_flags: 1, reserved: 0, fh: 3, sx_flags: 8, sx_mask: 0xfff }.as_bytes()],
        Op::Statx { fh: Some(3), flags: 8, mask: 0xfff }
    );
    assert_op!(ACCESS, [AccessIn { mask: 6, padding: 0 }.as_bytes()], Op::Access { mask: 6 });
    assert_op!(READLINK, [], Op::ReadLink);
    assert_op!(STATFS, [], Op::StatFs);
    assert_op!(SYNCFS, [SyncFsIn { padding: 0 }.as_bytes()], Op::SyncFs);
    assert_op!(
        BMAP,
        [BmapIn { block: 3, blocksize: 512, padding: 0 }.as_bytes()],
        Op::Bmap { block: 3, blocksize: 512 }
    );
}

#[test]
fn parse_setattr_takes_only_valid_fields() {
    let all = SetAttrIn {
        valid: 0,
        fh: 1,
        size: 2,
        lock_owner: 3,
        atime: u64::MAX,
        mtime: 5,
        ctime: 6,
        atimensec: 7,
        mtimensec: 8,
        ctimensec: 9,
        mode: 10,
        uid: 11,
        gid: 12,
        ..Default::default()
    };
    let set = |valid| match op(opcode::SETATTR, &[SetAttrIn { valid, ..all }.as_bytes()]) {
        Op::SetAttr(set) => *set,
        other => panic!("{other:?}"),
    };
    assert_eq!(set(0), SetAttr::default());
    assert_eq!(
        set(0xfff & !fattr::ATIME_NOW),
        SetAttr {
            mode: Some(10),
            uid: Some(11),
            gid: Some(12),
            size: Some(2),
            atime: Some(SetTime::At(Time { sec: -1, nsec: 7 })),
            mtime: Some(SetTime::Now),
            ctime: Some(Time { sec: 6, nsec: 9 }),
            fh: Some(1),
            lock_owner: Some(3),
            kill_suidgid: true,
        }
    );
    assert_eq!(set(fattr::MTIME_NOW), SetAttr::default(), "NOW without its time sets nothing");
}

#[test]
fn files() {
    assert_op!(
        OPEN,
        [OpenIn { flags: 0o1001, open_flags: 1 }.as_bytes()],
        Op::Open { flags: 0o1001, kill_suidgid: true }
    );
    assert_op!(OPENDIR, [OpenIn { flags: 0o200000, open_flags: 0 }.as_bytes()], Op::OpenDir { flags: 0o200000 });
    let read = ReadIn { fh: 1, offset: 2, size: 3, read_flags: 2, lock_owner: 4, flags: 5, padding: 0 };
    let want = Read { fh: 1, offset: 2, size: 3, flags: 5, lock_owner: Some(4) };
    assert_op!(READ, [read.as_bytes()], Op::Read(r) if *r == want);
    assert_op!(READDIR, [read.as_bytes()], Op::ReadDir(r) if *r == want);
    assert_op!(READDIRPLUS, [ReadIn { read_flags: 0, ..read }.as_bytes()],
        Op::ReadDirPlus(r) if *r == Read { lock_owner: None, ..want });
    let release = ReleaseIn { fh: 1, flags: 2, release_flags: 0, lock_owner: 3 };
    assert_op!(RELEASE, [release.as_bytes()], Op::Release { fh: 1, flags: 2, flock_owner: None });
    assert_op!(
        RELEASE,
        [ReleaseIn { release_flags: 2, ..release }.as_bytes()],
        Op::Release { fh: 1, flags: 2, flock_owner: Some(3) }
    );
    assert_op!(RELEASEDIR, [release.as_bytes()], Op::ReleaseDir { fh: 1, flags: 2 });
    assert_op!(FSYNC, [FsyncIn { fh: 1, fsync_flags: 1, padding: 0 }.as_bytes()], Op::Fsync { fh: 1, datasync: true });
    assert_op!(
        FSYNCDIR,
        [FsyncIn { fh: 1, fsync_flags: 0, padding: 0 }.as_bytes()],
        Op::FsyncDir { fh: 1, datasync: false }
    );
    assert_op!(
        FLUSH,
        [FlushIn { fh: 1, lock_owner: 2, ..Default::default() }.as_bytes()],
        Op::Flush { fh: 1, lock_owner: 2 }
    );
    assert_op!(
        FALLOCATE,
        [FallocateIn { fh: 1, offset: 2, length: 3, mode: 4, padding: 0 }.as_bytes()],
        Op::Fallocate { fh: 1, offset: 2, length: 3, mode: 4 }
    );
    assert_op!(
        LSEEK,
        [LseekIn { fh: 1, offset: 2, whence: 3, padding: 0 }.as_bytes()],
        Op::Lseek { fh: 1, offset: 2, whence: 3 }
    );
    assert_op!(IOCTL, [IoctlIn { fh: 1, flags: 2, cmd: 3, arg: 4, in_size: 2, out_size: 5 }.as_bytes(), b"xy"], Op::Ioctl(i)
        if **i == Ioctl { fh: 1, flags: 2, cmd: 3, arg: 4, input: "xy".into(), out_size: 5 });
    assert_op!(
        POLL,
        [PollIn { fh: 1, kh: 2, flags: 1, events: 4 }.as_bytes()],
        Op::Poll { fh: 1, kh: 2, flags: 1, events: 4 }
    );
}

#[test]
fn parse_copy_file_range_reports_the_width() {
    let copy = CopyFileRangeIn { fh_in: 1, off_in: 2, nodeid_out: 3, fh_out: 4, off_out: 5, len: 6, flags: 7 };
    let want = CopyFileRange { fh_in: 1, offset_in: 2, nodeid_out: 3, fh_out: 4, offset_out: 5, len: 6, flags: 7 };
    for (code, wide) in [(opcode::COPY_FILE_RANGE, false), (opcode::COPY_FILE_RANGE_64, true)] {
        let Ok(Incoming::Request { request, wide_copy, .. }) = parse(&message(code, &[copy.as_bytes()]), true) else {
            panic!()
        };
        assert!(matches!(request.op, Op::CopyFileRange(c) if *c == want));
        assert_eq!(wide_copy, wide);
    }
}

#[test]
fn parse_locks_distinguishes_flock_from_fcntl() {
    let lk = LkIn { fh: 1, owner: 2, lk: FileLock { start: 3, end: 4, kind: 1, pid: 5 }, lk_flags: 0, padding: 0 };
    let want = LockRequest { fh: 1, owner: 2, lock: Lock { start: 3, end: 4, kind: 1, pid: 5 }, flock: false };
    assert_op!(GETLK, [lk.as_bytes()], Op::GetLk(l) if *l == want);
    assert_op!(SETLK, [lk.as_bytes()], Op::SetLk { request, wait: false } if *request == want);
    assert_op!(SETLKW, [LkIn { lk_flags: 1, ..lk }.as_bytes()],
        Op::SetLk { request, wait: true } if *request == LockRequest { flock: true, ..want });
}

#[test]
fn parse_xattr_operations_accepts_both_setxattr_forms() {
    let long = SetXattrIn { size: 3, flags: 1, setxattr_flags: 1, padding: 0 };
    assert_op!(SETXATTR, [long.as_bytes(), b"user.a\0", b"v\0w"], Op::SetXattr { name, value, flags: 1, kill_sgid: true }
        if name == "user.a" && value == &b"v\0w"[..]);
    let short = message(opcode::SETXATTR, &[SetXattrCompatIn { size: 1, flags: 2 }.as_bytes(), b"user.a\0", b"v"]);
    let Ok(Incoming::Request { request, .. }) = parse(&short, false) else { panic!() };
    assert!(
        matches!(request.op, Op::SetXattr { name, value, flags: 2, kill_sgid: false } if name == "user.a" && value == "v")
    );
    // The message has fewer bytes than the value's size says.
    let lie = SetXattrIn { size: u32::MAX, ..long };
    assert!(parse(&message(opcode::SETXATTR, &[lie.as_bytes(), b"user.a\0", b"v"]), true).is_err());
    assert_op!(GETXATTR, [GetXattrIn { size: 9, padding: 0 }.as_bytes(), b"user.a\0"], Op::GetXattr { name, size: 9 } if name == "user.a");
    assert_op!(LISTXATTR, [GetXattrIn { size: 9, padding: 0 }.as_bytes()], Op::ListXattr { size: 9 });
    assert_op!(REMOVEXATTR, [b"user.a\0"], Op::RemoveXattr { name } if name == "user.a");
}

#[test]
fn parse_forget_expects_no_reply() {
    let one = message(opcode::FORGET, &[ForgetIn { nlookup: 3 }.as_bytes()]);
    let two = [ForgetOne { nodeid: 8, nlookup: 1 }, ForgetOne { nodeid: 9, nlookup: 2 }];
    let many = message(opcode::BATCH_FORGET, &[BatchForgetIn { count: 2, dummy: 0 }.as_bytes(), two.as_bytes()]);
    let nodes = |m: &[u8]| match parse(m, true) {
        Ok(Incoming::Request { request: Request { op: Op::Forget(f), .. }, answered: false, .. }) => f.to_vec(),
        other => panic!("{other:?}"),
    };
    assert_eq!(nodes(&one), [Forget { nodeid: 5, nlookup: 3 }]);
    assert_eq!(nodes(&many), [Forget { nodeid: 8, nlookup: 1 }, Forget { nodeid: 9, nlookup: 2 }]);
    let lie = message(opcode::BATCH_FORGET, &[BatchForgetIn { count: u32::MAX, dummy: 0 }.as_bytes(), two.as_bytes()]);
    assert_eq!(parse(&lie, true).err(), Some(Malformed { unique: None, opcode: opcode::BATCH_FORGET }));
}

#[test]
fn parse_write_locates_the_payload_without_a_copy() {
    let write = WriteIn { fh: 1, offset: 2, size: 5, write_flags: 0b111, lock_owner: 3, flags: 4, padding: 0 };
    let m = message(opcode::WRITE, &[write.as_bytes(), b"hello"]);
    let Ok(Incoming::Request { mut request, payload: Some(range), answered: true, .. }) = parse(&m, true) else {
        panic!()
    };
    assert_eq!(&m[range.clone()], b"hello");
    assert_eq!(range.start, WRITE_HEAD_BYTES);
    attach(&mut request, Bytes::from_static(b"hello"));
    let Op::Write(w) = request.op else { panic!() };
    let want = Write {
        fh: 1,
        offset: 2,
        flags: 4,
        cached: true,
        kill_suidgid: true,
        lock_owner: Some(3),
        data: "hello".into(),
    };
    assert_eq!(*w, want);
    for size in [4, 6, u32::MAX] {
        assert!(
            parse(&message(opcode::WRITE, &[WriteIn { size, ..write }.as_bytes(), b"hello"]), true).is_err(),
            "{size}"
        );
    }
    let retrieved = NotifyRetrieveIn { offset: 6, size: 2, ..Default::default() };
    let m = message(opcode::NOTIFY_REPLY, &[retrieved.as_bytes(), b"hi"]);
    let Ok(Incoming::Request { request, payload: Some(range), answered: false, .. }) = parse(&m, true) else {
        panic!()
    };
    assert_eq!(&m[range], b"hi");
    assert!(matches!(request.op, Op::Retrieved { offset: 6, .. }));
}

#[test]
fn parse_returns_interrupt_destroy_and_unsupported() {
    let m = message(opcode::INTERRUPT, &[InterruptIn { unique: 12 }.as_bytes()]);
    assert!(matches!(parse(&m, true), Ok(Incoming::Interrupt { target: 12 })));
    assert!(matches!(parse(&message(opcode::DESTROY, &[]), true), Ok(Incoming::Destroy { unique: 77 })));
    for code in [opcode::INIT, opcode::SETUPMAPPING, opcode::REMOVEMAPPING, 0, 7, 4096, u32::MAX] {
        let answer = parse(&message(code, &[b"whatever"]), true);
        assert!(matches!(answer, Ok(Incoming::Unsupported { unique: 77, .. })), "{code} {answer:?}");
    }
}

#[test]
fn parse_finds_the_supplementary_group_behind_other_extensions() {
    let other = [ExtHeader { size: 16, kind: 40 }.as_bytes(), &[0xff; 8]].concat();
    let groups =
        [ExtHeader { size: 16, kind: ext::GROUPS }.as_bytes(), &1u32.to_ne_bytes(), &1234u32.to_ne_bytes()].concat();
    let mkdir = MkdirIn { mode: 0o755, umask: 0 };
    let group = |ext: &[u8]| {
        request(&message_with(opcode::MKDIR, &[mkdir.as_bytes(), b"d\0\0\0\0\0\0\0"], ext)).header.supplementary_group
    };
    assert_eq!(group(&[other.clone(), groups].concat()), Some(1234));
    assert_eq!(group(&other), None);
    let none = [ExtHeader { size: 12, kind: ext::GROUPS }.as_bytes(), &[0; 8]].concat();
    assert_eq!(group(&none), None);
    for size in [0, 7, 17, u32::MAX] {
        let broken = [ExtHeader { size, kind: ext::GROUPS }.as_bytes(), &[1; 8]].concat();
        assert_eq!(group(&broken), None, "{size}");
    }
}

#[test]
fn parse_refuses_headers_with_wrong_lengths() {
    let mut m = message(opcode::LOOKUP, &[b"abc\0"]);
    m.push(0);
    assert!(parse(&m, true).is_err());
    let mut m = message(opcode::LOOKUP, &[b"abc\0"]);
    m[36] = 0xff; // total_extlen
    assert_eq!(parse(&m, true).err(), Some(Malformed { unique: Some(77), opcode: opcode::LOOKUP }));
    assert_eq!(parse(&m[..39], true).err(), Some(Malformed { unique: None, opcode: 0 }));
}

proptest! {
    #[test]
    fn parse_never_panics_on_random_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300), ext in any::<bool>()) {
        let _ = parse(&bytes, ext);
    }

    /// With a valid header, the parser goes deeper than with random bytes.
    #[test]
    fn parse_never_panics_on_random_bodies(code in 0u32..60, extlen in 0u16..8, body in proptest::collection::vec(any::<u8>(), 0..200), ext in any::<bool>()) {
        let mut m = message(code, &[&body]);
        m[36..38].copy_from_slice(&extlen.to_ne_bytes());
        if let Ok(Incoming::Request { payload: Some(range), .. }) = parse(&m, ext) {
            prop_assert!(range.end <= m.len());
        }
    }

    /// Bodies of small numbers and zeros pass more length checks.
    #[test]
    fn parse_never_panics_on_sparse_bodies(code in 0u32..60, body in proptest::collection::vec(prop_oneof![4 => Just(0u8), 1 => 0u8..9, 1 => any::<u8>()], 0..200)) {
        let _ = parse(&message(code, &[&body]), true);
    }
}
