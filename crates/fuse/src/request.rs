//! What the kernel asks: [`Request`], and one [`Op`] for each operation of the protocol.

use bytes::Bytes;
use sheen_wire::Time;

/// Who asks for what.
#[derive(Clone, Debug)]
pub struct Request {
    /// Who.
    pub header: Header,
    /// What.
    pub op: Op,
}

/// What every request carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Names the request until it is answered; an interrupt refers to it. Never used twice in a
    /// session.
    pub unique: u64,
    /// The file or directory that the operation is about, as an [`crate::EntryOut`] named it; 0
    /// where none applies.
    pub nodeid: u64,
    /// File system user id of the caller.
    pub uid: u32,
    /// File system group id of the caller.
    pub gid: u32,
    /// Thread of the caller; 0 where the kernel itself asks or the caller is in a foreign pid
    /// namespace.
    pub pid: u32,
    /// For creations under `CREATE_SUPP_GROUP`: the caller's supplementary group that is the parent
    /// directory's.
    pub supplementary_group: Option<u32>,
}

/// A node that the kernel forgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forget {
    /// Which.
    pub nodeid: u64,
    /// By how many its lookup count drops; every [`crate::EntryOut`] answered raised it by one.
    pub nlookup: u64,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The current time.
    Now,
    /// This time.
    At(Time),
}

/// What SETATTR changes: `None` leaves alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of content.
    pub mtime: Option<SetTime>,
    /// Last change of attributes (only with the kernel's write-back cache).
    pub ctime: Option<Time>,
    /// The open file through which it is done (ftruncate).
    pub fh: Option<u64>,
    /// Owner of mandatory locks.
    pub lock_owner: Option<u64>,
    /// Drop setuid and setgid bits (the size changes and the caller lacks CAP_FSETID).
    pub kill_suidgid: bool,
}

/// A lock, or a range asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive; `i64::MAX` for "to the end".
    pub end: u64,
    /// [`crate::abi::flags::lock_type`].
    pub kind: u32,
    /// Process that holds or wants it.
    pub pid: u32,
}

/// GETLK, SETLK and SETLKW.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// Open file.
    pub fh: u64,
    /// Owner: of fcntl locks the process's table of files, of flock locks the open file.
    pub owner: u64,
    /// The lock.
    pub lock: Lock,
    /// A flock lock (whole file, owned by the open file) rather than one of fcntl.
    pub flock: bool,
}

/// READ, READDIR and READDIRPLUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Open file or directory.
    pub fh: u64,
    /// First byte, or the directory offset to go on from (0: the start).
    pub offset: u64,
    /// At most so many bytes are answered.
    pub size: u32,
    /// open(2) flags of the file.
    pub flags: u32,
    /// Owner of mandatory locks. A READ for the page cache (readahead, mmap) has none, whatever
    /// file the kernel names; one that goes past it always has.
    pub lock_owner: Option<u64>,
}

impl Read {
    /// Whether the bytes will stay in the kernel's page cache.
    pub fn is_kept(&self) -> bool {
        self.lock_owner.is_none()
    }
}

/// WRITE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Open file.
    pub fh: u64,
    /// First byte.
    pub offset: u64,
    /// open(2) flags of the file.
    pub flags: u32,
    /// From the kernel's page cache (mmap): `fh` is one of several, the caller is not the writer.
    pub cached: bool,
    /// Drop setuid and setgid bits.
    pub kill_suidgid: bool,
    /// Owner of mandatory locks.
    pub lock_owner: Option<u64>,
    /// The bytes. Above [`crate::COPY_PAYLOAD_BYTES_MAX`] this is the buffer that the kernel wrote
    /// into, page-aligned, which goes back to the session's pool when the last clone is dropped.
    pub data: Bytes,
}

/// CREATE and TMPFILE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Create {
    /// Name; empty for TMPFILE.
    pub name: Bytes,
    /// open(2) flags.
    pub flags: u32,
    /// Type and permission bits. The umask is applied already unless DONT_MASK was agreed on.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
    /// Drop setuid and setgid bits of an existing file (O_TRUNC).
    pub kill_suidgid: bool,
}

/// IOCTL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ioctl {
    /// Open file or directory.
    pub fh: u64,
    /// [`crate::abi::flags::ioctl`].
    pub flags: u32,
    /// Command.
    pub cmd: u32,
    /// Argument as the program passed it.
    pub arg: u64,
    /// What the command's argument points to.
    pub input: Bytes,
    /// At most so many bytes are answered.
    pub out_size: u32,
}

/// COPY_FILE_RANGE and COPY_FILE_RANGE_64; the source is the request's node. Answer with
/// [`crate::Reply::copied`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyFileRange {
    /// Open source.
    pub fh_in: u64,
    /// First byte of the source.
    pub offset_in: u64,
    /// Destination node.
    pub nodeid_out: u64,
    /// Open destination.
    pub fh_out: u64,
    /// First byte of the destination.
    pub offset_out: u64,
    /// Bytes.
    pub len: u64,
    /// copy_file_range(2) flags.
    pub flags: u64,
}

/// An operation. Names have no NUL and no `/`; each variant says which [`crate::Reply`] method
/// answers it. `error` always may.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Op {
    /// A name in the directory `nodeid`: `entry`, or `negative`.
    Lookup {
        /// Name.
        name: Bytes,
    },
    /// The kernel forgets nodes (FORGET, BATCH_FORGET): `none`.
    Forget(Box<[Forget]>),
    /// Attributes: `attr`.
    GetAttr {
        /// Through this open file.
        fh: Option<u64>,
    },
    /// Change of attributes: `attr`.
    SetAttr(Box<SetAttr>),
    /// Target of a symbolic link: `readlink`.
    ReadLink,
    /// New symbolic link: `entry`.
    Symlink {
        /// Name.
        name: Bytes,
        /// Target.
        target: Bytes,
    },
    /// New file of any type without opening it: `entry`.
    Mknod {
        /// Name.
        name: Bytes,
        /// Type and permission bits.
        mode: u32,
        /// Device number, in the kernel's `new_encode_dev` form.
        rdev: u32,
        /// The caller's umask.
        umask: u32,
    },
    /// New directory: `entry`.
    Mkdir {
        /// Name.
        name: Bytes,
        /// Permission bits.
        mode: u32,
        /// The caller's umask.
        umask: u32,
    },
    /// Remove a name: `ok`.
    Unlink {
        /// Name.
        name: Bytes,
    },
    /// Remove a directory: `ok`.
    Rmdir {
        /// Name.
        name: Bytes,
    },
    /// Rename (RENAME, RENAME2): `ok`.
    Rename {
        /// Name in the directory `nodeid`.
        name: Bytes,
        /// New directory.
        new_parent: u64,
        /// New name.
        new_name: Bytes,
        /// `RENAME_NOREPLACE`, `RENAME_EXCHANGE`, `RENAME_WHITEOUT`.
        flags: u32,
    },
    /// New name, in the directory `nodeid`, for a file: `entry`.
    Link {
        /// The file.
        target: u64,
        /// New name.
        name: Bytes,
    },
    /// Open a file: `open`.
    Open {
        /// open(2) flags.
        flags: u32,
        /// Drop setuid and setgid bits (O_TRUNC).
        kill_suidgid: bool,
    },
    /// Read: `data`.
    Read(Read),
    /// Write: `written`.
    Write(Box<Write>),
    /// Space: `statfs`.
    StatFs,
    /// The last reference to an open file is gone: `ok`.
    Release {
        /// Open file.
        fh: u64,
        /// open(2) flags.
        flags: u32,
        /// Drop the flock lock of this open file, held by this owner.
        flock_owner: Option<u64>,
    },
    /// fsync or fdatasync: `ok`.
    Fsync {
        /// Open file.
        fh: u64,
        /// Data only.
        datasync: bool,
    },
    /// Set an extended attribute: `ok`.
    SetXattr {
        /// Name with its prefix.
        name: Bytes,
        /// Value.
        value: Bytes,
        /// `XATTR_CREATE` (1), `XATTR_REPLACE` (2).
        flags: u32,
        /// Drop the setgid bit as an ACL is set.
        kill_sgid: bool,
    },
    /// Get an extended attribute: `xattr_size` where `size` is 0, else `xattr_data`.
    GetXattr {
        /// Name with its prefix.
        name: Bytes,
        /// Room, in bytes; ERANGE where the value is longer.
        size: u32,
    },
    /// Names of extended attributes, each followed by NUL: as `GetXattr`.
    ListXattr {
        /// Room, in bytes.
        size: u32,
    },
    /// Remove an extended attribute: `ok`.
    RemoveXattr {
        /// Name with its prefix.
        name: Bytes,
    },
    /// One descriptor of an open file is closed: `ok`. The only word of it that fcntl locks are
    /// dropped; does not come where the file was opened with NOFLUSH. Locks of open file
    /// descriptions (F_OFD_SETLK) end with RELEASE, unsaid.
    Flush {
        /// Open file.
        fh: u64,
        /// Owner whose fcntl locks are dropped.
        lock_owner: u64,
    },
    /// Open a directory: `open`.
    OpenDir {
        /// open(2) flags.
        flags: u32,
    },
    /// Entries: `dir`.
    ReadDir(Read),
    /// Entries with attributes: `dir_plus`.
    ReadDirPlus(Read),
    /// The last reference to an open directory is gone: `ok`.
    ReleaseDir {
        /// Open directory.
        fh: u64,
        /// open(2) flags.
        flags: u32,
    },
    /// fsync of a directory: `ok`.
    FsyncDir {
        /// Open directory.
        fh: u64,
        /// Data only.
        datasync: bool,
    },
    /// Is there a conflicting lock: `lock`.
    GetLk(LockRequest),
    /// Take or drop a lock: `ok`, EAGAIN where it is held and `wait` is not set.
    SetLk {
        /// Which.
        request: LockRequest,
        /// Wait for it (F_SETLKW, flock without LOCK_NB); can be interrupted.
        wait: bool,
    },
    /// access(2), chdir(2): `ok` or EACCES.
    Access {
        /// `R_OK` 4, `W_OK` 2, `X_OK` 1, `F_OK` 0.
        mask: u32,
    },
    /// Create and open: `create`.
    Create(Box<Create>),
    /// Create without a name and open, in the directory `nodeid`: `create`.
    TmpFile(Box<Create>),
    /// Block on the device: `bmap`.
    Bmap {
        /// Block of the file.
        block: u64,
        /// Bytes in a block.
        blocksize: u32,
    },
    /// ioctl: `ioctl`, ENOTTY where unknown.
    Ioctl(Box<Ioctl>),
    /// poll: `poll`.
    Poll {
        /// Open file.
        fh: u64,
        /// To name in a poll notification.
        kh: u64,
        /// [`crate::abi::flags::poll`].
        flags: u32,
        /// Events asked for.
        events: u32,
    },
    /// What [`crate::Notifier::retrieve`] asked for, `header.unique` naming it: `none`.
    Retrieved {
        /// First byte.
        offset: u64,
        /// The cached bytes.
        data: Bytes,
    },
    /// fallocate: `ok`.
    Fallocate {
        /// Open file.
        fh: u64,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// fallocate(2) mode.
        mode: u32,
    },
    /// SEEK_DATA (3) and SEEK_HOLE (4): `lseek`, ENXIO past the end.
    Lseek {
        /// Open file.
        fh: u64,
        /// From here.
        offset: u64,
        /// What.
        whence: u32,
    },
    /// Copy inside the file system: `copied`.
    CopyFileRange(Box<CopyFileRange>),
    /// syncfs(2): `ok`.
    SyncFs,
    /// Attributes, with birth time: `statx`.
    Statx {
        /// Through this open file.
        fh: Option<u64>,
        /// `AT_STATX_*`.
        flags: u32,
        /// What is asked for.
        mask: u32,
    },
}

impl Op {
    /// Name for statistics and logs.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Lookup { .. } => "lookup",
            Op::Forget(_) => "forget",
            Op::GetAttr { .. } => "getattr",
            Op::SetAttr(_) => "setattr",
            Op::ReadLink => "readlink",
            Op::Symlink { .. } => "symlink",
            Op::Mknod { .. } => "mknod",
            Op::Mkdir { .. } => "mkdir",
            Op::Unlink { .. } => "unlink",
            Op::Rmdir { .. } => "rmdir",
            Op::Rename { .. } => "rename",
            Op::Link { .. } => "link",
            Op::Open { .. } => "open",
            Op::Read(_) => "read",
            Op::Write(_) => "write",
            Op::StatFs => "statfs",
            Op::Release { .. } => "release",
            Op::Fsync { .. } => "fsync",
            Op::SetXattr { .. } => "setxattr",
            Op::GetXattr { .. } => "getxattr",
            Op::ListXattr { .. } => "listxattr",
            Op::RemoveXattr { .. } => "removexattr",
            Op::Flush { .. } => "flush",
            Op::OpenDir { .. } => "opendir",
            Op::ReadDir(_) => "readdir",
            Op::ReadDirPlus(_) => "readdirplus",
            Op::ReleaseDir { .. } => "releasedir",
            Op::FsyncDir { .. } => "fsyncdir",
            Op::GetLk(_) => "getlk",
            Op::SetLk { .. } => "setlk",
            Op::Access { .. } => "access",
            Op::Create(_) => "create",
            Op::TmpFile(_) => "tmpfile",
            Op::Bmap { .. } => "bmap",
            Op::Ioctl(_) => "ioctl",
            Op::Poll { .. } => "poll",
            Op::Retrieved { .. } => "retrieved",
            Op::Fallocate { .. } => "fallocate",
            Op::Lseek { .. } => "lseek",
            Op::CopyFileRange(_) => "copy_file_range",
            Op::SyncFs => "syncfs",
            Op::Statx { .. } => "statx",
        }
    }
}
