//! Parameter types of the client's public operations, and the errors of a mount.

use std::{fmt, sync::Arc, time::Duration};

use sheen_wire::{Cred, Errno};

use crate::limits::{INODES_MAX, LAYOUTS_MAX};

/// The credentials of a request, and the process whose supplementary groups they include.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    /// User and groups. Leave `groups` at `None` if they are unknown. The client reads them from
    /// its [`GroupSource`] only when the MDT replies that the result depends on them.
    pub cred: Cred,
    /// The process, for the [`GroupSource`].
    pub pid: u32,
}

impl Caller {
    /// The superuser, for the client's internal requests.
    pub const ROOT: Caller = Caller { cred: Cred::ROOT, pid: 0 };

    /// Creates a caller from the ids in a kernel request; the groups are not looked up yet.
    pub const fn new(uid: u32, gid: u32, pid: u32) -> Caller {
        Caller { cred: Cred { uid, gid, groups: None }, pid }
    }
}

impl From<Cred> for Caller {
    fn from(cred: Cred) -> Caller {
        Caller { cred, pid: 0 }
    }
}

/// Source of the supplementary groups of a process. It is called while a request waits, so it
/// should not block for long.
pub trait GroupSource: Send + Sync + 'static {
    /// Returns the groups of `pid`, or `None` if there is no such process; the caller is then
    /// treated as having no groups.
    fn groups(&self, pid: u32) -> Option<Vec<u32>>;
}

/// A [`GroupSource`] without any groups, for tests and for programs that fill in `Cred::groups`
/// themselves.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoGroups;

impl GroupSource for NoGroups {
    fn groups(&self, _: u32) -> Option<Vec<u32>> {
        None
    }
}

/// Options of a mount.
#[derive(Clone)]
pub struct ClientOptions {
    /// Where supplementary groups come from.
    pub groups: Arc<dyn GroupSource>,
    /// Maximum number of cached layouts.
    pub layouts_max: usize,
    /// Maximum number of files whose attributes and names are cached.
    pub inodes_max: usize,
    /// Mount point, for `sheen.mount` and messages; empty if there is none.
    pub mountpoint: String,
    /// Path of the directory to mount, from the root of the file system; empty for that.
    pub subdir: String,
    /// How long an operation waits for a disconnected server before it fails. `None`: without a
    /// limit.
    pub server_wait: Option<Duration>,
    /// Whether the MGS has several hosts, of which another one may be about to take it over.
    /// Otherwise a mount fails at once if the MGS's host says that there is no MGS.
    pub mgs_failover: bool,
    /// Called once for each wait for a server, before the mount succeeds or fails. Must not block.
    pub report_wait: ReportWait,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            groups: Arc::new(NoGroups),
            layouts_max: LAYOUTS_MAX,
            inodes_max: INODES_MAX,
            mountpoint: String::new(),
            subdir: String::new(),
            server_wait: None,
            mgs_failover: false,
            report_wait: Arc::new(|_: &MountWait| {}),
        }
    }
}

/// Gets the waits of a mount for servers.
pub type ReportWait = Arc<dyn Fn(&MountWait) + Send + Sync>;

/// A wait of a mount for a server. Its text is a message for the user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MountWait {
    /// A server does not answer.
    Server {
        /// The server: `the MGS`, or a target.
        server: String,
        /// The addresses tried.
        nids: String,
        /// The last attempt and its outcome.
        reason: String,
        /// The longest time to wait from now on.
        limit: Duration,
    },
    /// A target that did not answer has registered other addresses, and does not answer there yet.
    Moved {
        /// The target.
        target: String,
        /// The new addresses.
        nids: String,
        /// The longest time to wait from now on.
        limit: Duration,
    },
    /// A target waits for the clients that it had before its restart.
    Recovery {
        /// The target.
        target: String,
        /// The longest time to wait from now on.
        limit: Duration,
    },
}

impl fmt::Display for MountWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secs = |limit: &Duration| limit.as_millis().div_ceil(1000);
        match self {
            MountWait::Server { server, nids, reason, limit } => {
                let limit = secs(limit);
                write!(f, "waiting up to {limit} s for {server} at {nids} ({reason}); Ctrl-C ends the wait")
            }
            MountWait::Moved { target, nids, limit } => {
                let limit = secs(limit);
                write!(f, "{target} has a new address: waiting up to {limit} s for it at {nids}; Ctrl-C ends the wait")
            }
            MountWait::Recovery { target, limit } => write!(
                f,
                "{target} is in recovery: waiting up to {} s for its clients of before the restart. Ctrl-C ends this \
                 mount. `lctl --device {target} abort_recovery` on the server ends the recovery without them",
                secs(limit)
            ),
        }
    }
}

/// The target of an `lseek`: data or a hole.
pub use sheen_wire::ost::Seek;

/// `fallocate`'s mode bits, as in `<linux/falloc.h>`.
pub mod falloc {
    /// Do not change the file size.
    pub const KEEP_SIZE: u32 = 1;
    /// Punch a hole; requires `KEEP_SIZE`.
    pub const PUNCH_HOLE: u32 = 2;
    /// Zero the range and reserve its space.
    pub const ZERO_RANGE: u32 = 0x10;
}

/// Result of [`crate::Client::lock_ahead`]. With several objects, the result is the variant that
/// comes last here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LockedAhead {
    /// The client already held exactly these locks.
    Same,
    /// The client already held locks on larger ranges.
    Different,
    /// The client sent requests to the OSTs.
    Sent,
}

/// Reasons why a mount failed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// No address was given.
    #[error("no MGS address given; mount as HOST@tcp:/FSNAME")]
    NoMgs,
    /// The MGS, or a target, was not reached.
    #[error(
        "cannot reach {server} at {nids}: {reason}; check the address, and that the server runs there: `sheen status` \
         on that host shows it"
    )]
    Unreachable {
        /// The server: `the MGS`, or a target.
        server: String,
        /// The addresses tried.
        nids: String,
        /// The last attempt and its outcome.
        reason: String,
        /// The error.
        errno: Errno,
    },
    /// The MGS answered with an error.
    #[error("the MGS at {nids} answered: {errno}; see its log")]
    Mgs {
        /// The addresses asked.
        nids: String,
        /// The error.
        errno: Errno,
    },
    /// The MGS has no file system of this name.
    #[error("the MGS at {nids} knows no file system '{fsname}'; check the name, and that its MDT has registered")]
    NoFileSystem {
        /// The addresses asked.
        nids: String,
        /// The name asked for.
        fsname: String,
    },
    /// The file system has no MDT yet.
    #[error("file system '{0}' has no MDT yet; start one with 'sheen mds'")]
    NoMdt(String),
    /// The configuration has an invalid address for a target.
    #[error("invalid address '{nid}' for {target} in the MGS's configuration; restart {target} with a valid one")]
    BadNid {
        /// The target.
        target: String,
        /// The invalid address.
        nid: String,
    },
    /// The directory to be mounted cannot be looked up.
    #[error("cannot find the directory /{path} in file system '{fsname}': {errno}")]
    Subdirectory {
        /// The file system.
        fsname: String,
        /// The path of the directory.
        path: String,
        /// The error. ENOTDIR: it is something else, such as a symbolic link.
        errno: Errno,
    },
    /// The MDT refuses the client because of its nodemap.
    #[error(
        "{0} refuses this mount: the nodemap in its key does not exist, or the fileset of its nodemap is no directory; \
         ask an administrator"
    )]
    Nodemap(String),
    /// The MDT did not answer for the root directory.
    #[error("cannot read the root directory from {target}: {errno}")]
    Root {
        /// The target.
        target: String,
        /// The error.
        errno: Errno,
    },
}

impl MountError {
    /// Returns the errno that `mount(2)` would return.
    pub fn errno(&self) -> Errno {
        match self {
            MountError::NoMgs | MountError::BadNid { .. } => Errno::EINVAL,
            MountError::Unreachable { errno, .. }
            | MountError::Mgs { errno, .. }
            | MountError::Root { errno, .. }
            | MountError::Subdirectory { errno, .. } => *errno,
            MountError::NoFileSystem { .. } => Errno::ENOENT,
            MountError::NoMdt(_) => Errno::ENODEV,
            MountError::Nodemap(_) => Errno::EACCES,
        }
    }
}
