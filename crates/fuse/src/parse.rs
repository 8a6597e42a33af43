//! Decoding of the kernel's messages into [`Request`]s.
//!
//! Invariants:
//!
//! * Any bytes yield a message or [`Malformed`], never a panic.
//! * No allocation is larger than the message.
//! * The payload of a WRITE is not copied. The parser returns its position, and the session hands
//!   over the buffer.

use std::ops::Range;

use bytes::Bytes;
use sheen_wire::Time;
use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::{
    abi::{
        flags::{ext, fattr, fsync, getattr, lk, open, read, release, setxattr, write},
        opcode,
        structs::*,
    },
    request::*,
};

/// Size of the headers before a WRITE's payload, in bytes.
pub(crate) const WRITE_HEAD_BYTES: usize = size_of::<InHeader>() + size_of::<WriteIn>();

/// A decoded message.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A request for the file system. `payload`: position in the message of the data of `Op::Write`
    /// or `Op::Retrieved`, which the caller inserts with [`attach`]. `answered`: whether the kernel
    /// expects a reply. `wide_copy`: see [`crate::Reply::copied`].
    Request { request: Request, payload: Option<Range<usize>>, answered: bool, wide_copy: bool },
    /// The program waiting for the request `target` got a signal.
    Interrupt { target: u64 },
    /// The file system is being unmounted.
    Destroy { unique: u64 },
    /// An unknown operation, or one that is not valid here (INIT).
    Unsupported { unique: u64, opcode: u32 },
}

/// A message that violates the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    /// The request to answer with EIO, if the kernel expects a reply.
    pub(crate) unique: Option<u64>,
    pub(crate) opcode: u32,
}

/// Inserts the payload into a request.
pub(crate) fn attach(request: &mut Request, bytes: Bytes) {
    match &mut request.op {
        Op::Write(w) => w.data = bytes,
        Op::Retrieved { data, .. } => *data = bytes,
        _ => {}
    }
}

/// Decodes the header without checking the rest of the message.
pub(crate) fn header(message: &[u8]) -> Option<InHeader> {
    InHeader::read_from_prefix(message).ok().map(|(h, _)| h)
}

/// Parses one message. `setxattr_ext`: whether SETXATTR_EXT was negotiated.
pub(crate) fn parse(message: &[u8], setxattr_ext: bool) -> Result<Incoming, Malformed> {
    let Some(head) = header(message) else { return Err(Malformed { unique: None, opcode: 0 }) };
    let answered =
        !matches!(head.opcode, opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT | opcode::NOTIFY_REPLY);
    let malformed = Malformed { unique: answered.then_some(head.unique), opcode: head.opcode };
    let ext_bytes = usize::from(head.total_extlen) * 8;
    if head.len as usize != message.len() || size_of::<InHeader>() + ext_bytes > message.len() {
        return Err(malformed);
    }
    let (args, extensions) =
        message[size_of::<InHeader>()..].split_at(message.len() - size_of::<InHeader>() - ext_bytes);
    let mut args = Args(args);
    match head.opcode {
        opcode::INTERRUPT => {
            return args.take::<InterruptIn>().map(|i| Incoming::Interrupt { target: i.unique }).ok_or(malformed);
        }
        opcode::DESTROY => return Ok(Incoming::Destroy { unique: head.unique }),
        _ => {}
    }
    let header = Header {
        unique: head.unique,
        nodeid: head.nodeid,
        uid: head.uid,
        gid: head.gid,
        pid: head.pid,
        supplementary_group: supplementary_group(extensions),
    };
    let (op, payload) = match head.opcode {
        opcode::WRITE => {
            let (write, range) = args.write().ok_or(malformed)?;
            (Op::Write(Box::new(write)), Some(range))
        }
        opcode::NOTIFY_REPLY => {
            let reply = args.take::<NotifyRetrieveIn>().ok_or(malformed)?;
            let range = args.payload(reply.size as usize).ok_or(malformed)?;
            (Op::Retrieved { offset: reply.offset, data: Bytes::new() }, Some(range))
        }
        opcode::FORGET => {
            let nlookup = args.take::<ForgetIn>().ok_or(malformed)?.nlookup;
            (Op::Forget(Box::new([Forget { nodeid: head.nodeid, nlookup }])), None)
        }
        opcode => match known(opcode, &mut args, setxattr_ext) {
            Parsed::Op(op) => (op, None),
            Parsed::Unknown => return Ok(Incoming::Unsupported { unique: head.unique, opcode }),
            Parsed::Malformed => return Err(malformed),
        },
    };
    let wide_copy = head.opcode == opcode::COPY_FILE_RANGE_64;
    Ok(Incoming::Request { request: Request { header, op }, payload, answered, wide_copy })
}

enum Parsed {
    Op(Op),
    Unknown,
    Malformed,
}

impl From<Option<Op>> for Parsed {
    fn from(op: Option<Op>) -> Parsed {
        op.map_or(Parsed::Malformed, Parsed::Op)
    }
}

/// Parses the operations other than WRITE, NOTIFY_REPLY and FORGET.
fn known(code: u32, args: &mut Args<'_>, setxattr_ext: bool) -> Parsed {
    match code {
        opcode::LOOKUP
        | opcode::SYMLINK
        | opcode::MKNOD
        | opcode::MKDIR
        | opcode::UNLINK
        | opcode::RMDIR
        | opcode::RENAME
        | opcode::RENAME2
        | opcode::LINK
        | opcode::CREATE
        | opcode::TMPFILE => names(code, args).into(),
        opcode::SETXATTR | opcode::GETXATTR | opcode::LISTXATTR | opcode::REMOVEXATTR => {
            xattrs(code, args, setxattr_ext).into()
        }
        opcode::BATCH_FORGET => args.forgets().map(Op::Forget).into(),
        opcode::OPEN
        | opcode::OPENDIR
        | opcode::READ
        | opcode::READDIR
        | opcode::READDIRPLUS
        | opcode::RELEASE
        | opcode::RELEASEDIR
        | opcode::FSYNC
        | opcode::FSYNCDIR
        | opcode::FLUSH
        | opcode::FALLOCATE
        | opcode::LSEEK
        | opcode::COPY_FILE_RANGE
        | opcode::COPY_FILE_RANGE_64
        | opcode::IOCTL
        | opcode::POLL
        | opcode::GETLK
        | opcode::SETLK
        | opcode::SETLKW => files(code, args).into(),
        opcode::GETATTR | opcode::SETATTR | opcode::STATX | opcode::ACCESS | opcode::BMAP => nodes(code, args).into(),
        opcode::READLINK => Parsed::Op(Op::ReadLink),
        opcode::STATFS => Parsed::Op(Op::StatFs),
        opcode::SYNCFS => args.take::<SyncFsIn>().map(|_| Op::SyncFs).into(),
        _ => Parsed::Unknown,
    }
}

/// Parses operations on names.
fn names(code: u32, args: &mut Args<'_>) -> Option<Op> {
    Some(match code {
        opcode::LOOKUP => Op::Lookup { name: args.name()? },
        opcode::SYMLINK => Op::Symlink { name: args.name()?, target: args.string()? },
        opcode::MKNOD => {
            let a = args.take::<MknodIn>()?;
            Op::Mknod { name: args.name()?, mode: a.mode, rdev: a.rdev, umask: a.umask }
        }
        opcode::MKDIR => {
            let a = args.take::<MkdirIn>()?;
            Op::Mkdir { name: args.name()?, mode: a.mode, umask: a.umask }
        }
        opcode::UNLINK => Op::Unlink { name: args.name()? },
        opcode::RMDIR => Op::Rmdir { name: args.name()? },
        opcode::RENAME => {
            let a = args.take::<RenameIn>()?;
            Op::Rename { new_parent: a.newdir, flags: 0, name: args.name()?, new_name: args.name()? }
        }
        opcode::RENAME2 => {
            let a = args.take::<Rename2In>()?;
            Op::Rename { new_parent: a.newdir, flags: a.flags, name: args.name()?, new_name: args.name()? }
        }
        opcode::LINK => Op::Link { target: args.take::<LinkIn>()?.oldnodeid, name: args.name()? },
        opcode::CREATE => Op::Create(Box::new(args.create(false)?)),
        opcode::TMPFILE => Op::TmpFile(Box::new(args.create(true)?)),
        _ => return None,
    })
}

/// Parses operations on extended attributes.
fn xattrs(code: u32, args: &mut Args<'_>, setxattr_ext: bool) -> Option<Op> {
    Some(match code {
        opcode::SETXATTR => {
            let (size, flags, extra) = if setxattr_ext {
                let a = args.take::<SetXattrIn>()?;
                (a.size, a.flags, a.setxattr_flags)
            } else {
                let a = args.take::<SetXattrCompatIn>()?;
                (a.size, a.flags, 0)
            };
            let name = args.string()?;
            let value = Bytes::copy_from_slice(args.bytes(size as usize)?);
            Op::SetXattr { name, value, flags, kill_sgid: extra & setxattr::ACL_KILL_SGID != 0 }
        }
        opcode::GETXATTR => Op::GetXattr { size: args.take::<GetXattrIn>()?.size, name: args.string()? },
        opcode::LISTXATTR => Op::ListXattr { size: args.take::<GetXattrIn>()?.size },
        opcode::REMOVEXATTR => Op::RemoveXattr { name: args.string()? },
        _ => return None,
    })
}

/// Parses operations on a node.
fn nodes(code: u32, args: &mut Args<'_>) -> Option<Op> {
    Some(match code {
        opcode::GETATTR => {
            let a = args.take::<GetAttrIn>()?;
            Op::GetAttr { fh: (a.getattr_flags & getattr::FH != 0).then_some(a.fh) }
        }
        opcode::SETATTR => Op::SetAttr(Box::new(set_attr(&args.take::<SetAttrIn>()?))),
        opcode::STATX => {
            let a = args.take::<StatxIn>()?;
            Op::Statx { fh: (a.getattr_flags & getattr::FH != 0).then_some(a.fh), flags: a.sx_flags, mask: a.sx_mask }
        }
        opcode::ACCESS => Op::Access { mask: args.take::<AccessIn>()?.mask },
        opcode::BMAP => {
            let a = args.take::<BmapIn>()?;
            Op::Bmap { block: a.block, blocksize: a.blocksize }
        }
        _ => return None,
    })
}

/// Parses open, opendir, and operations on open files and directories.
fn files(code: u32, args: &mut Args<'_>) -> Option<Op> {
    Some(match code {
        opcode::OPEN => {
            let a = args.take::<OpenIn>()?;
            Op::Open { flags: a.flags, kill_suidgid: a.open_flags & open::KILL_SUIDGID != 0 }
        }
        opcode::OPENDIR => Op::OpenDir { flags: args.take::<OpenIn>()?.flags },
        opcode::READ => Op::Read(args.read()?),
        opcode::READDIR => Op::ReadDir(args.read()?),
        opcode::READDIRPLUS => Op::ReadDirPlus(args.read()?),
        opcode::RELEASE => {
            let a = args.take::<ReleaseIn>()?;
            let flock_owner = (a.release_flags & release::FLOCK_UNLOCK != 0).then_some(a.lock_owner);
            Op::Release { fh: a.fh, flags: a.flags, flock_owner }
        }
        opcode::RELEASEDIR => {
            let a = args.take::<ReleaseIn>()?;
            Op::ReleaseDir { fh: a.fh, flags: a.flags }
        }
        opcode::FSYNC => {
            let a = args.take::<FsyncIn>()?;
            Op::Fsync { fh: a.fh, datasync: a.fsync_flags & fsync::FDATASYNC != 0 }
        }
        opcode::FSYNCDIR => {
            let a = args.take::<FsyncIn>()?;
            Op::FsyncDir { fh: a.fh, datasync: a.fsync_flags & fsync::FDATASYNC != 0 }
        }
        opcode::FLUSH => {
            let a = args.take::<FlushIn>()?;
            Op::Flush { fh: a.fh, lock_owner: a.lock_owner }
        }
        opcode::FALLOCATE => {
            let a = args.take::<FallocateIn>()?;
            Op::Fallocate { fh: a.fh, offset: a.offset, length: a.length, mode: a.mode }
        }
        opcode::LSEEK => {
            let a = args.take::<LseekIn>()?;
            Op::Lseek { fh: a.fh, offset: a.offset, whence: a.whence }
        }
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => {
            let a = args.take::<CopyFileRangeIn>()?;
            Op::CopyFileRange(Box::new(CopyFileRange {
                fh_in: a.fh_in,
                offset_in: a.off_in,
                nodeid_out: a.nodeid_out,
                fh_out: a.fh_out,
                offset_out: a.off_out,
                len: a.len,
                flags: a.flags,
            }))
        }
        opcode::IOCTL => {
            let a = args.take::<IoctlIn>()?;
            let input = Bytes::copy_from_slice(args.bytes(a.in_size as usize)?);
            Op::Ioctl(Box::new(Ioctl { fh: a.fh, flags: a.flags, cmd: a.cmd, arg: a.arg, input, out_size: a.out_size }))
        }
        opcode::POLL => {
            let a = args.take::<PollIn>()?;
            Op::Poll { fh: a.fh, kh: a.kh, flags: a.flags, events: a.events }
        }
        opcode::GETLK => Op::GetLk(args.lock()?),
        opcode::SETLK => Op::SetLk { request: args.lock()?, wait: false },
        opcode::SETLKW => Op::SetLk { request: args.lock()?, wait: true },
        _ => return None,
    })
}

fn set_attr(a: &SetAttrIn) -> SetAttr {
    let has = |bit| a.valid & bit != 0;
    let time = |set, now, sec: u64, nsec| match (has(set), has(now)) {
        (true, true) => Some(SetTime::Now),
        (true, false) => Some(SetTime::At(Time { sec: sec as i64, nsec })),
        (false, _) => None,
    };
    SetAttr {
        mode: has(fattr::MODE).then_some(a.mode),
        uid: has(fattr::UID).then_some(a.uid),
        gid: has(fattr::GID).then_some(a.gid),
        size: has(fattr::SIZE).then_some(a.size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, a.atime, a.atimensec),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, a.mtime, a.mtimensec),
        ctime: has(fattr::CTIME).then_some(Time { sec: a.ctime as i64, nsec: a.ctimensec }),
        fh: has(fattr::FH).then_some(a.fh),
        lock_owner: has(fattr::LOCKOWNER).then_some(a.lock_owner),
        kill_suidgid: has(fattr::KILL_SUIDGID),
    }
}

/// Returns the first supplementary group among a request's extensions. Skips unknown extensions and
/// ignores broken ones.
fn supplementary_group(mut extensions: &[u8]) -> Option<u32> {
    while let Ok((head, _)) = ExtHeader::read_from_prefix(extensions) {
        let size = (head.size as usize).next_multiple_of(8);
        if (head.size as usize) < size_of::<ExtHeader>() || size > extensions.len() {
            return None;
        }
        if head.kind == ext::GROUPS {
            let body = &extensions[size_of::<ExtHeader>()..head.size as usize];
            let (count, groups) = u32::read_from_prefix(body).ok()?;
            return if count == 0 { None } else { u32::read_from_prefix(groups).ok().map(|(g, _)| g) };
        }
        extensions = &extensions[size..];
    }
    None
}

/// The arguments not yet parsed.
struct Args<'a>(&'a [u8]);

impl<'a> Args<'a> {
    fn take<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Option<T> {
        let (value, rest) = T::read_from_prefix(self.0).ok()?;
        self.0 = rest;
        Some(value)
    }

    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    /// Reads a NUL-terminated string, without the NUL.
    fn string(&mut self) -> Option<Bytes> {
        let end = self.0.iter().position(|&b| b == 0)?;
        let text = Bytes::copy_from_slice(&self.0[..end]);
        self.0 = &self.0[end + 1..];
        Some(text)
    }

    /// Reads the name of a directory entry. Refuses empty names and names with a slash.
    fn name(&mut self) -> Option<Bytes> {
        self.string().filter(|n| !n.is_empty() && !n.contains(&b'/'))
    }

    /// Returns the position in the message of the payload, if exactly `len` bytes remain. Only for
    /// messages without extensions.
    fn payload(&mut self, len: usize) -> Option<Range<usize>> {
        (self.0.len() == len).then_some(WRITE_HEAD_BYTES..WRITE_HEAD_BYTES + len)
    }

    fn write(&mut self) -> Option<(Write, Range<usize>)> {
        let a = self.take::<WriteIn>()?;
        let range = self.payload(a.size as usize)?;
        let has = |bit| a.write_flags & bit != 0;
        let write = Write {
            fh: a.fh,
            offset: a.offset,
            flags: a.flags,
            cached: has(write::CACHE),
            kill_suidgid: has(write::KILL_SUIDGID),
            lock_owner: has(write::LOCKOWNER).then_some(a.lock_owner),
            data: Bytes::new(),
        };
        Some((write, range))
    }

    fn read(&mut self) -> Option<Read> {
        let a = self.take::<ReadIn>()?;
        let lock_owner = (a.read_flags & read::LOCKOWNER != 0).then_some(a.lock_owner);
        Some(Read { fh: a.fh, offset: a.offset, size: a.size, flags: a.flags, lock_owner })
    }

    fn create(&mut self, unnamed: bool) -> Option<Create> {
        let a = self.take::<CreateIn>()?;
        // For a file without a name the kernel sends "/".
        let name = if unnamed { Bytes::new() } else { self.name()? };
        Some(Create {
            name,
            flags: a.flags,
            mode: a.mode,
            umask: a.umask,
            kill_suidgid: a.open_flags & open::KILL_SUIDGID != 0,
        })
    }

    fn lock(&mut self) -> Option<LockRequest> {
        let a = self.take::<LkIn>()?;
        let lock = Lock { start: a.lk.start, end: a.lk.end, kind: a.lk.kind, pid: a.lk.pid };
        Some(LockRequest { fh: a.fh, owner: a.owner, lock, flock: a.lk_flags & lk::FLOCK != 0 })
    }

    fn forgets(&mut self) -> Option<Box<[Forget]>> {
        let count = self.take::<BatchForgetIn>()?.count as usize;
        let bytes = self.bytes(count.checked_mul(size_of::<ForgetOne>())?)?;
        let ones = bytes.chunks_exact(size_of::<ForgetOne>()).filter_map(|c| ForgetOne::read_from_bytes(c).ok());
        Some(ones.map(|f| Forget { nodeid: f.nodeid, nlookup: f.nlookup }).collect())
    }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
