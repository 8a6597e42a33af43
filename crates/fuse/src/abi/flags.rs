//! Flag bits of requests and replies, one module for each field that carries them.

/// Flags that kernel and file system negotiate at INIT (`FUSE_*` init flags). Bits from 32 up are
/// transferred in `flags2`.
pub mod init {
    /// Several reads of one file may be in flight.
    pub const ASYNC_READ: u64 = 1 << 0;
    /// fcntl locks are sent to the file system.
    pub const POSIX_LOCKS: u64 = 1 << 1;
    /// O_TRUNC reaches OPEN and CREATE instead of a separate SETATTR.
    pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
    /// Lookups of `.` and `..` by node id, for NFS export.
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    /// Writes above one page.
    pub const BIG_WRITES: u64 = 1 << 5;
    /// The file system applies the umask itself.
    pub const DONT_MASK: u64 = 1 << 6;
    /// splice(2) to the device.
    pub const SPLICE_WRITE: u64 = 1 << 7;
    /// splice(2) may move pages.
    pub const SPLICE_MOVE: u64 = 1 << 8;
    /// splice(2) from the device.
    pub const SPLICE_READ: u64 = 1 << 9;
    /// flock locks are sent to the file system.
    pub const FLOCK_LOCKS: u64 = 1 << 10;
    /// ioctl on directories.
    pub const HAS_IOCTL_DIR: u64 = 1 << 11;
    /// The kernel drops cached pages when it sees that size or mtime changed.
    pub const AUTO_INVAL_DATA: u64 = 1 << 12;
    /// READDIRPLUS is understood.
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    /// The kernel chooses between READDIR and READDIRPLUS by how the results are used.
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    /// Direct I/O in parallel pieces.
    pub const ASYNC_DIO: u64 = 1 << 15;
    /// The kernel delays buffered writes. Off by default, because the kernel would make pages dirty
    /// without an extent lock.
    pub const WRITEBACK_CACHE: u64 = 1 << 16;
    /// ENOSYS as the reply to OPEN means that later opens send no message.
    pub const NO_OPEN_SUPPORT: u64 = 1 << 17;
    /// Lookups and readdirs of one directory run in parallel.
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    /// The file system drops setuid and setgid bits on write, chown and truncate.
    pub const HANDLE_KILLPRIV: u64 = 1 << 19;
    /// The kernel evaluates POSIX ACLs.
    pub const POSIX_ACL: u64 = 1 << 20;
    /// Reading the device after an abort gives ECONNABORTED.
    pub const ABORT_ERROR: u64 = 1 << 21;
    /// `max_pages` in the reply is valid.
    pub const MAX_PAGES: u64 = 1 << 22;
    /// Targets of symbolic links may be cached.
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    /// ENOSYS as the reply to OPENDIR means that later opens of directories send no message.
    pub const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    /// Cached pages are dropped only on a notification.
    pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    /// `map_alignment` in the reply is valid (DAX).
    pub const MAP_ALIGNMENT: u64 = 1 << 26;
    /// Submounts of directories.
    pub const SUBMOUNTS: u64 = 1 << 27;
    /// As `HANDLE_KILLPRIV`, by Linux's own rules: a flag in each request says when to drop the
    /// bits.
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    /// SETXATTR carries flags (16-byte form).
    pub const SETXATTR_EXT: u64 = 1 << 29;
    /// INIT carries `flags2`.
    pub const INIT_EXT: u64 = 1 << 30;
    /// The security context of a new file is sent with the request.
    pub const SECURITY_CTX: u64 = 1 << 32;
    /// DAX chosen for each inode.
    pub const HAS_INODE_DAX: u64 = 1 << 33;
    /// Creations carry the caller's supplementary group that equals the parent directory's group.
    pub const CREATE_SUPP_GROUP: u64 = 1 << 34;
    /// Entries can be expired rather than dropped.
    pub const HAS_EXPIRE_ONLY: u64 = 1 << 35;
    /// Shared mmap of files opened with [`super::fopen::DIRECT_IO`].
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    /// Reads and writes may go to a backing file without a message.
    pub const PASSTHROUGH: u64 = 1 << 37;
    /// No file handles (NFS, open_by_handle_at).
    pub const NO_EXPORT_SUPPORT: u64 = 1 << 38;
    /// Pending requests can be sent again.
    pub const HAS_RESEND: u64 = 1 << 39;
    /// Id-mapped mounts.
    pub const ALLOW_IDMAP: u64 = 1 << 40;
    /// Requests over io_uring.
    pub const OVER_IO_URING: u64 = 1 << 41;
    /// The kernel ends requests that take too long.
    pub const REQUEST_TIMEOUT: u64 = 1 << 42;
}

/// Flags in the reply to OPEN, CREATE, OPENDIR and TMPFILE (`FOPEN_*`).
pub mod fopen {
    /// Bypass the kernel's page cache.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// Do not drop cached pages at this open.
    pub const KEEP_CACHE: u32 = 1 << 1;
    /// The file is not seekable.
    pub const NONSEEKABLE: u32 = 1 << 2;
    /// The kernel may cache the directory.
    pub const CACHE_DIR: u32 = 1 << 3;
    /// The file is a stream without positions.
    pub const STREAM: u32 = 1 << 4;
    /// close(2) sends no FLUSH.
    pub const NOFLUSH: u32 = 1 << 5;
    /// Direct writes to one inode may run in parallel.
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// Attributes that SETATTR sets (`FATTR_*`).
#[allow(missing_docs, reason = "named after the kernel's FATTR_<NAME>")]
pub mod fattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const LOCKOWNER: u32 = 1 << 9;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// Flags of WRITE.
pub mod write {
    /// The write comes from the kernel's page cache: its file handle is a guess and its caller is
    /// unknown.
    pub const CACHE: u32 = 1 << 0;
    /// `lock_owner` is valid.
    pub const LOCKOWNER: u32 = 1 << 1;
    /// Drop setuid and setgid bits.
    pub const KILL_SUIDGID: u32 = 1 << 2;
}

/// Flags of READ.
pub mod read {
    /// `lock_owner` is valid.
    pub const LOCKOWNER: u32 = 1 << 1;
}

/// Flags of RELEASE.
pub mod release {
    /// Flush as well (unused by Linux).
    pub const FLUSH: u32 = 1 << 0;
    /// Drop the flock lock of this open file.
    pub const FLOCK_UNLOCK: u32 = 1 << 1;
}

/// Flags of GETATTR and STATX.
pub mod getattr {
    /// `fh` is valid.
    pub const FH: u32 = 1 << 0;
}

/// Flags of GETLK, SETLK and SETLKW.
pub mod lk {
    /// The lock is a flock lock; without this flag it is an fcntl lock.
    pub const FLOCK: u32 = 1 << 0;
}

/// Lock types, with fcntl's numbers.
pub mod lock_type {
    /// F_RDLCK.
    pub const READ: u32 = 0;
    /// F_WRLCK.
    pub const WRITE: u32 = 1;
    /// F_UNLCK.
    pub const UNLOCK: u32 = 2;
}

/// Flags of OPEN and CREATE in addition to the open(2) flags.
pub mod open {
    /// Drop setuid and setgid bits if the file is executable.
    pub const KILL_SUIDGID: u32 = 1 << 0;
}

/// Flags of SETXATTR in addition to those of setxattr(2).
pub mod setxattr {
    /// Drop the setgid bit because `system.posix_acl_access` is being set.
    pub const ACL_KILL_SGID: u32 = 1 << 0;
}

/// Flags of FSYNC and FSYNCDIR.
pub mod fsync {
    /// Data only.
    pub const FDATASYNC: u32 = 1 << 0;
}

/// Flags of IOCTL.
#[allow(missing_docs, reason = "named after the kernel's FUSE_IOCTL_<NAME>")]
pub mod ioctl {
    pub const COMPAT: u32 = 1 << 0;
    pub const UNRESTRICTED: u32 = 1 << 1;
    pub const RETRY: u32 = 1 << 2;
    pub const IS_32BIT: u32 = 1 << 3;
    pub const DIR: u32 = 1 << 4;
    pub const COMPAT_X32: u32 = 1 << 5;
}

/// Flags of POLL.
pub mod poll {
    /// Wake the caller with a poll notification.
    pub const SCHEDULE_NOTIFY: u32 = 1 << 0;
}

/// Bits of a statx mask.
pub mod statx {
    /// All attributes that stat(2) shows.
    pub const BASIC_STATS: u32 = 0x7ff;
    /// Birth time.
    pub const BTIME: u32 = 0x800;
}

/// Flags of an entry invalidation.
pub(crate) mod inval_entry {
    /// Revalidate the entry at its next use instead of dropping it.
    pub(crate) const EXPIRE_ONLY: u32 = 1 << 0;
}

/// Types of request extensions.
pub(crate) mod ext {
    /// Supplementary groups.
    pub(crate) const GROUPS: u32 = 32;
}
