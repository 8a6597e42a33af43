//! Requests of the kernel: [`Request`], and one [`Op`] for each operation of the protocol.

use bytes::Bytes;
use sheen_wire::Time;

/// A request of the kernel.
#[derive(Clone, Debug)]
pub struct Request {
    /// Caller and node.
    pub header: Header,
    /// Operation.
    pub op: Op,
}

/// Fields common to all requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Identifies the request until the reply; interrupts refer to it. Never reused within a
    /// session.
    pub unique: u64,
    /// The file or directory of the operation: the node id of an earlier [`crate::EntryOut`]. 0
    /// if none applies.
    pub nodeid: u64,
    /// File system user id of the caller.
    pub uid: u32,
    /// File system group id of the caller.
    pub gid: u32,
    /// Thread id of the caller. 0 if the request comes from the kernel itself or the caller is in a
    /// foreign pid namespace.
    pub pid: u32,
    /// For creations under `CREATE_SUPP_GROUP`: the caller's supplementary group that equals the
    /// parent directory's group.
    pub supplementary_group: Option<u32>,
}

/// A node whose lookup count the kernel lowers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forget {
    /// The node.
    pub nodeid: u64,
    /// Amount by which the lookup count drops. Every [`crate::EntryOut`] reply raised it by one.
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

/// Attributes that SETATTR changes. `None` leaves an attribute unchanged.
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
    /// The open file, for ftruncate(2).
    pub fh: Option<u64>,
    /// Owner of mandatory locks.
    pub lock_owner: Option<u64>,
    /// Drop setuid and setgid bits (the size changes and the caller lacks CAP_FSETID).
    pub kill_suidgid: bool,
}

/// A byte-range lock, held, requested or tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive; `i64::MAX` for "to the end".
    pub end: u64,
    /// [`crate::abi::flags::lock_type`].
    pub kind: u32,
    /// Process that holds or requests the lock.
    pub pid: u32,
}

/// GETLK, SETLK and SETLKW.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// Open file.
    pub fh: u64,
    /// Lock owner: the process's file table for fcntl locks, the open file for flock locks.
    pub owner: u64,
    /// The lock.
    pub lock: Lock,
    /// Whether this is a flock lock (whole file, owned by the open file) rather than an fcntl lock.
    pub flock: bool,
}

/// READ, READDIR and READDIRPLUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Open file or directory.
    pub fh: u64,
    /// First byte, or the directory offset to continue from (0: the start).
    pub offset: u64,
    /// Maximum bytes of the reply.
    pub size: u32,
    /// open(2) flags of the file.
    pub flags: u32,
    /// Owner of mandatory locks. `None` in a READ that fills the page cache (readahead, mmap). A
    /// READ that bypasses the page cache always has one.
    pub lock_owner: Option<u64>,
}

impl Read {
    /// Whether the kernel will store the bytes in its page cache.
    pub fn is_page_cached(&self) -> bool {
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
    /// Whether the data comes from the kernel's page cache (mmap). `fh` is then any of the file's
    /// handles, and the caller is not the writer.
    pub cached: bool,
    /// Drop setuid and setgid bits.
    pub kill_suidgid: bool,
    /// Owner of mandatory locks.
    pub lock_owner: Option<u64>,
    /// The bytes. If longer than [`crate::COPY_PAYLOAD_BYTES_MAX`], they are page-aligned in the
    /// memory that the kernel filled: a buffer or a ring entry. The buffer returns to the session's
    /// pool when the last clone is dropped. The reply of a ring entry waits for that. So the file
    /// system drops the bytes at the reply, and copies what it retains.
    pub data: Bytes,
}

/// CREATE and TMPFILE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Create {
    /// Name; empty for TMPFILE.
    pub name: Bytes,
    /// open(2) flags.
    pub flags: u32,
    /// Type and permission bits. The umask is already applied unless DONT_MASK was negotiated.
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
    /// Bytes that the command's argument points to.
    pub input: Bytes,
    /// Maximum bytes of the reply.
    pub out_size: u32,
}

/// COPY_FILE_RANGE and COPY_FILE_RANGE_64. The source is the request's node. Reply with
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
    /// Bytes to copy.
    pub len: u64,
    /// copy_file_range(2) flags.
    pub flags: u64,
}

/// An operation. Names contain no NUL and no `/`. Each variant names the [`crate::Reply`] methods
/// for its reply; `error` is always allowed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Op {
    /// Look up a name in the directory `nodeid`: `entry` or `negative`.
    Lookup {
        /// Name.
        name: Bytes,
    },
    /// The kernel forgets nodes (FORGET, BATCH_FORGET): `none`.
    Forget(Box<[Forget]>),
    /// Attributes: `attr`.
    GetAttr {
        /// Open file, if the call used one.
        fh: Option<u64>,
    },
    /// Change attributes: `attr`.
    SetAttr(Box<SetAttr>),
    /// Target of a symbolic link: `readlink`.
    ReadLink,
    /// Create a symbolic link: `entry`.
    Symlink {
        /// Name.
        name: Bytes,
        /// Target.
        target: Bytes,
    },
    /// Create a file of any type without opening it: `entry`.
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
    /// Create a directory: `entry`.
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
    /// Create a hard link in the directory `nodeid`: `entry`.
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
    /// Space of the file system: `statfs`.
    StatFs,
    /// The last reference to an open file was closed: `ok`.
    Release {
        /// Open file.
        fh: u64,
        /// open(2) flags.
        flags: u32,
        /// Owner of the flock lock to drop, if this open file has one.
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
        /// Drop the setgid bit because an ACL is being set.
        kill_sgid: bool,
    },
    /// Get an extended attribute: `xattr_size` if `size` is 0, otherwise `xattr_data`.
    GetXattr {
        /// Name with its prefix.
        name: Bytes,
        /// Room in bytes. ERANGE if the value is longer.
        size: u32,
    },
    /// List the names of extended attributes, each followed by NUL: as `GetXattr`.
    ListXattr {
        /// Room in bytes.
        size: u32,
    },
    /// Remove an extended attribute: `ok`.
    RemoveXattr {
        /// Name with its prefix.
        name: Bytes,
    },
    /// A descriptor of an open file is closed: `ok`. This is the only notice that fcntl locks are
    /// dropped. Not sent if the file was opened with NOFLUSH. Locks of open file
    /// descriptions (F_OFD_SETLK) end with RELEASE, without a notice of their own.
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
    /// Read directory entries: `dir`.
    ReadDir(Read),
    /// Read directory entries with attributes: `dir_plus`.
    ReadDirPlus(Read),
    /// The last reference to an open directory was closed: `ok`.
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
    /// Test for a conflicting lock: `lock`.
    GetLk(LockRequest),
    /// Take or drop a lock: `ok`, or EAGAIN if a conflicting lock is held and `wait` is not set.
    SetLk {
        /// The lock.
        request: LockRequest,
        /// Whether to wait for the lock (F_SETLKW, flock without LOCK_NB). An interrupt may end the
        /// wait.
        wait: bool,
    },
    /// access(2) and chdir(2): `ok` or EACCES.
    Access {
        /// `R_OK` 4, `W_OK` 2, `X_OK` 1, `F_OK` 0.
        mask: u32,
    },
    /// Create and open: `create`.
    Create(Box<Create>),
    /// Create a file without a name in the directory `nodeid` and open it: `create`.
    TmpFile(Box<Create>),
    /// Map a block of a file to a block of the device: `bmap`.
    Bmap {
        /// Block of the file.
        block: u64,
        /// Bytes in a block.
        blocksize: u32,
    },
    /// ioctl: `ioctl`, or ENOTTY if the command is unknown.
    Ioctl(Box<Ioctl>),
    /// poll: `poll`.
    Poll {
        /// Open file.
        fh: u64,
        /// Handle for a later poll notification.
        kh: u64,
        /// [`crate::abi::flags::poll`].
        flags: u32,
        /// Events that the caller waits for.
        events: u32,
    },
    /// Data requested by [`crate::Notifier::retrieve`], identified by `header.unique`: `none`.
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
    /// SEEK_DATA (3) and SEEK_HOLE (4): `lseek`, or ENXIO past the end.
    Lseek {
        /// Open file.
        fh: u64,
        /// Start of the search.
        offset: u64,
        /// SEEK_DATA (3) or SEEK_HOLE (4).
        whence: u32,
    },
    /// Copy within the file system: `copied`.
    CopyFileRange(Box<CopyFileRange>),
    /// syncfs(2): `ok`.
    SyncFs,
    /// Attributes with birth time: `statx`.
    Statx {
        /// Open file, if the call used one.
        fh: Option<u64>,
        /// `AT_STATX_*`.
        flags: u32,
        /// Requested attributes, as a statx mask.
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
