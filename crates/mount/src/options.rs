//! How a mount behaves.

use std::{sync::Arc, time::Duration};

use sheen_fuse::{IoUring, MountFlags};

use crate::job_ids::JobIds;

/// Handling of flock(2) and fcntl(2) locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locks {
    /// Valid on all mounts.
    Shared,
    /// Valid among the programs of this mount. The kernel manages them, and the close of a file
    /// takes one request less.
    Local,
    /// Refused (ENOSYS).
    Refused,
}

/// How a mount behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads that take requests from the kernel.
    pub threads: u32,
    /// Transport of the kernel's requests. Over io_uring each processor has one thread.
    pub io_uring: IoUring,
    /// Largest read or write of one request, in bytes; the kernel may allow less.
    pub max_write_bytes: u32,
    /// The servers are in this process: data is sent to the kernel directly from the servers'
    /// files, if a pipe can hold it.
    pub local: bool,
    /// Whether users other than the one who mounts may use the mount.
    pub allow_other: bool,
    /// The kernel's flags of the mount; a remount may change them.
    pub flags: MountFlags,
    /// File locks of programs.
    pub locks: Locks,
    /// Whether extended attributes `user.*` are supported.
    pub user_xattrs: bool,
    /// Inode numbers have 32 bits, for programs that know no others; two files may have the same.
    pub short_inos: bool,
    /// Whether the kernel may request entries with attributes (READDIRPLUS), which makes the client
    /// fetch the attributes ahead.
    pub rdplus: bool,
    /// How long an operation waits for a disconnected server before it fails. `None`: without a
    /// limit.
    pub server_wait: Option<Duration>,
    /// Names the jobs of programs, for the servers' statistics.
    pub jobs: Arc<JobIds>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            threads: 4,
            io_uring: IoUring::Auto,
            max_write_bytes: 1 << 20,
            local: false,
            allow_other: false,
            flags: MountFlags::default(),
            locks: Locks::Shared,
            user_xattrs: true,
            short_inos: false,
            rdplus: true,
            server_wait: None,
            jobs: Arc::default(),
        }
    }
}
