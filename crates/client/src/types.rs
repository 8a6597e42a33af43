//! Parameter and result types of the client's public operations.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use sheen_lnet::Live;
use sheen_wire::{Attr, Bulk, Cred, Errno, Fid, FileKind};

pub use crate::cache::ReadRefs;
use crate::locks::LockRef;

/// `st_blksize` of a regular file, in bytes: the default stripe size, whatever the file's own
/// stripe size is (as in Lustre).
pub const FILE_BLKSIZE: u32 = 4 << 20;
/// `st_blksize` of all other files, in bytes.
pub const OTHER_BLKSIZE: u32 = 1 << 20;

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
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            groups: Arc::new(NoGroups),
            layouts_max: crate::LAYOUTS_MAX,
            inodes_max: crate::INODES_MAX,
            mountpoint: String::new(),
        }
    }
}

/// A cache outside the client that stores the client's replies: the kernel of a mount.
///
/// A reply that came with a [`Keep`] may be cached until one of these methods invalidates it. The
/// client cancels the lock after the method has returned.
pub trait Invalidate: Send + Sync + 'static {
    /// Invalidates all names. Must not block.
    fn names(&self);

    /// Invalidates the attributes of a file. Must not block. Returns `false` if a reply with these
    /// attributes is still in transit to the kernel; the client then calls again until it has
    /// arrived.
    fn attr(&self, fid: Fid) -> bool;

    /// Invalidates all cached data of a file. May block. Runs on a thread for blocking work, and
    /// may be called again before it has returned.
    fn data(&self, fid: Fid);

    /// Invalidates the bytes in `[start, end)`, like [`Invalidate::data`]. An `end` of [`u64::MAX`]
    /// means the end of the file.
    fn part(&self, fid: Fid, start: u64, end: u64);

    /// Whether names may be cached at all: true only if [`Invalidate::names`] works.
    fn keeps_names(&self) -> bool;

    /// Whether the cache requests attributes before it uses a size that came with a name and that
    /// is marked as not cacheable. Such a cache also ignores the attributes in a lookup reply if
    /// [`Invalidate::attr`] was called after the lookup began. If true, lookups succeed although
    /// the OST that knows the size is disconnected.
    fn asks_for_sizes(&self) -> bool {
        false
    }
}

/// The parts of a reply that may be cached until [`Invalidate`] revokes them.
///
/// The locks behind the reply are not cancelled while this value lives. Drop it soon: once the
/// reply is stored where an invalidation reaches it.
#[derive(Clone, Default)]
pub struct Keep {
    /// Whether the name may be cached.
    pub name: bool,
    /// Whether the attributes may be cached.
    pub attr: bool,
    /// References to the locks.
    pub(crate) refs: Option<Arc<Vec<LockRef>>>,
}

impl fmt::Debug for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keep(name {}, attr {}, {} locks)", self.name, self.attr, self.refs.as_ref().map_or(0, |r| r.len()))
    }
}

/// The result of a read.
#[derive(Debug)]
pub struct ReadData {
    /// The bytes, unless they are in `live`.
    pub bulk: Bulk,
    /// The bytes as ranges of files that this process has open, in which case `bulk` is empty. Only
    /// for callers that request it.
    pub live: Option<Live>,
    /// References to the locks under which the bytes may be cached. Drop them soon: once the bytes
    /// are stored where an invalidation reaches them.
    pub refs: ReadRefs,
}

impl ReadData {
    /// Number of bytes read.
    pub fn len(&self) -> usize {
        self.bulk.len() + self.live.as_ref().map_or(0, Live::len)
    }

    /// Whether the read returned no bytes: it began at or after the end of the file.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of `bulk` in one piece.
    pub fn into_bytes(self) -> Bytes {
        self.bulk.into_bytes()
    }
}

/// Attributes of a file as `stat` shows them. Size, space and times of a striped file come from its
/// objects.
#[derive(Clone, Debug)]
pub struct EntryAttr {
    /// The attributes.
    pub attr: Attr,
    /// `st_blksize`, in bytes.
    pub blksize: u32,
    /// The parts that may be cached.
    pub keep: Keep,
}

impl PartialEq for EntryAttr {
    /// Compares the attributes. Whether they may be cached does not matter.
    fn eq(&self, other: &EntryAttr) -> bool {
        self.attr == other.attr && self.blksize == other.blksize
    }
}

impl Eq for EntryAttr {}

impl From<Attr> for EntryAttr {
    fn from(attr: Attr) -> EntryAttr {
        let blksize = if attr.kind == FileKind::Regular { FILE_BLKSIZE } else { OTHER_BLKSIZE };
        EntryAttr { attr, blksize, keep: Keep::default() }
    }
}

/// A directory entry as returned to the program, including `.` and `..`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirItem {
    /// Name.
    pub name: Bytes,
    /// FID of the file; [`Fid::ino`] is its inode number.
    pub fid: Fid,
    /// File type.
    pub kind: FileKind,
    /// Position after this entry, where the next `readdir` resumes: 1 for `.`, 2 for `..`, then
    /// above 2 and below 2^63.
    pub cookie: u64,
    /// Attributes, if requested. `None` for `.` and `..`, and if they could not be read.
    pub attr: Option<EntryAttr>,
}

/// A part of a directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DirPage {
    /// The entries, in cookie order.
    pub entries: Vec<DirItem>,
    /// Whether this is the last part.
    pub eof: bool,
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
    /// The MGS did not answer.
    #[error("cannot reach the MGS at {nids}: {errno}; check the address and that the MGS runs")]
    Mgs {
        /// The addresses tried.
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
            MountError::Mgs { errno, .. } | MountError::Root { errno, .. } => *errno,
            MountError::NoFileSystem { .. } => Errno::ENOENT,
            MountError::NoMdt(_) => Errno::ENODEV,
        }
    }
}
