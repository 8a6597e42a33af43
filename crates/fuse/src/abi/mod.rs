//! The kernel's FUSE ABI, versions 7.31 to 7.45: numbers and structures exactly as `<linux/fuse.h>`
//! defines them.
//!
//! Invariants:
//!
//! * All structures of this crate that the kernel knows are in `structs`. They are `repr(C)`
//!   without implicit padding (zerocopy proves it), and a test there checks the size of each.
//! * Numbers are in native byte order, because both ends run on the same machine.

pub mod flags;
pub(crate) mod structs;

/// Major version of the protocol.
pub const MAJOR: u32 = 7;
/// Newest supported minor version. A newer kernel falls back to it.
pub const MINOR: u32 = 45;
/// Oldest supported minor version (Linux 5.4). Older kernels send shorter structures.
pub const MINOR_MIN: u32 = 31;
/// Node id of the root directory.
pub const ROOT_ID: u64 = 1;
/// Smallest buffer with which the kernel allows a read of the device.
pub const READ_BUFFER_BYTES_MIN: usize = 8192;

/// Operation codes (`enum fuse_opcode`).
#[allow(missing_docs, reason = "named after the kernel's FUSE_<NAME>")]
pub mod opcode {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const GETLK: u32 = 31;
    pub const SETLK: u32 = 32;
    pub const SETLKW: u32 = 33;
    pub const ACCESS: u32 = 34;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const BMAP: u32 = 37;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const POLL: u32 = 40;
    pub const NOTIFY_REPLY: u32 = 41;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const SETUPMAPPING: u32 = 48;
    pub const REMOVEMAPPING: u32 = 49;
    pub const SYNCFS: u32 = 50;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
    pub const COPY_FILE_RANGE_64: u32 = 53;
}

/// Notification codes (`enum fuse_notify_code`).
#[allow(missing_docs, reason = "named after the kernel's FUSE_NOTIFY_<NAME>")]
pub mod notify {
    pub const POLL: i32 = 1;
    pub const INVAL_INODE: i32 = 2;
    pub const INVAL_ENTRY: i32 = 3;
    pub const STORE: i32 = 4;
    pub const RETRIEVE: i32 = 5;
    pub const DELETE: i32 = 6;
    pub const RESEND: i32 = 7;
    pub const INC_EPOCH: i32 = 8;
    pub const PRUNE: i32 = 9;
}

/// Commands of FUSE over io_uring (`enum fuse_uring_cmd`).
pub(crate) mod ring_command {
    pub(crate) const REGISTER: u32 = 1;
    pub(crate) const COMMIT_AND_FETCH: u32 = 2;
}
