//! What callers hand to the client and get back.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use sheen_lnet::Live;
use sheen_wire::{Attr, Bulk, Cred, Errno, Fid, FileKind};

pub use crate::cache::ReadRefs;
use crate::locks::LockRef;

/// `st_blksize` of a file: the default stripe size, whatever stripe size the file has (as in
/// Lustre).
pub const FILE_BLKSIZE: u32 = 4 << 20;
/// `st_blksize` of everything else.
pub const OTHER_BLKSIZE: u32 = 1 << 20;

/// Who asks: credentials, and the process in whose name they are looked up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    /// User and groups. Leave `groups` at `None` where they are not at hand: the client looks them
    /// up with its [`GroupSource`] when, and only when, the MDT says that its answer depends on
    /// them.
    pub cred: Cred,
    /// The process, for the [`GroupSource`].
    pub pid: u32,
}

impl Caller {
    /// The superuser, for the system's own work.
    pub const ROOT: Caller = Caller { cred: Cred::ROOT, pid: 0 };

    /// What the kernel says of a request's origin; groups not looked up yet.
    pub const fn new(uid: u32, gid: u32, pid: u32) -> Caller {
        Caller { cred: Cred { uid, gid, groups: None }, pid }
    }
}

impl From<Cred> for Caller {
    fn from(cred: Cred) -> Caller {
        Caller { cred, pid: 0 }
    }
}

/// Finds the supplementary groups of a process. Called on the request's path, so it should not
/// block for long.
pub trait GroupSource: Send + Sync + 'static {
    /// The groups of `pid`, or `None` where there is no such process (it is then treated as having
    /// none).
    fn groups(&self, pid: u32) -> Option<Vec<u32>>;
}

/// A [`GroupSource`] that knows nobody: for tests and for programs that fill in `Cred::groups`
/// themselves.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoGroups;

impl GroupSource for NoGroups {
    fn groups(&self, _: u32) -> Option<Vec<u32>> {
        None
    }
}

/// How a mount behaves.
#[derive(Clone)]
pub struct ClientOptions {
    /// Where supplementary groups come from.
    pub groups: Arc<dyn GroupSource>,
    /// Most layouts kept in memory.
    pub layouts_max: usize,
    /// Most files whose attributes and names are kept in memory.
    pub inodes_max: usize,
    /// Where the mount lies, for `sheen.mount` and messages; empty where there is no mount point.
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

/// What keeps things from other clients as well: whatever caches what this client says (the kernel
/// of a mount).
///
/// What came with a [`Keep`] may be cached until one of these calls says otherwise; the lock is
/// given up after the call has returned.
pub trait Invalidate: Send + Sync + 'static {
    /// All names are to be looked up again. Must not block.
    fn names(&self);

    /// The attributes of a file are to be asked for again. Must not block. `false`: an answer that
    /// has them is on its way; to be called again until it has arrived.
    fn attr(&self, fid: Fid) -> bool;

    /// All data of a file is to be read again. May block; called on a thread for such work, and may
    /// be called again before it returned.
    fn data(&self, fid: Fid);

    /// As [`Invalidate::data`], of the bytes from `start` up to `end` alone; [`u64::MAX`]: all
    /// behind.
    fn part(&self, fid: Fid, start: u64, end: u64);

    /// Whether names may be cached at all: only where [`Invalidate::names`] works.
    fn keeps_names(&self) -> bool;

    /// Whether it goes by no size that came with a name and that may not be kept, but asks for it
    /// first; and takes no attributes from an answer to a lookup if [`Invalidate::attr`] was called
    /// since it asked. Then names are told although an OST is away that knows the size.
    fn asks_for_sizes(&self) -> bool {
        false
    }
}

/// What of an answer may be cached, until [`Invalidate`] says otherwise.
///
/// As long as this lives nothing is called back: drop it once the answer is where it will be
/// invalidated, and soon.
#[derive(Clone, Default)]
pub struct Keep {
    /// That the name leads to this file.
    pub name: bool,
    /// The attributes.
    pub attr: bool,
    /// The locks, in use.
    pub(crate) refs: Option<Arc<Vec<LockRef>>>,
}

impl fmt::Debug for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keep(name {}, attr {}, {} locks)", self.name, self.attr, self.refs.as_ref().map_or(0, |r| r.len()))
    }
}

/// What was read.
#[derive(Debug)]
pub struct ReadData {
    /// The bytes.
    pub bulk: Bulk,
    /// The bytes, if they lie in files of this process still and `bulk` is empty; only for those
    /// who ask for it.
    pub live: Option<Live>,
    /// The locks under which they may be cached, in use. Drop them once the bytes are where they
    /// will be invalidated, and soon.
    pub refs: ReadRefs,
}

impl ReadData {
    /// How many bytes were read.
    pub fn len(&self) -> usize {
        self.bulk.len() + self.live.as_ref().map_or(0, Live::len)
    }

    /// Whether the end of the file was reached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes in one piece.
    pub fn into_bytes(self) -> Bytes {
        self.bulk.into_bytes()
    }
}

/// Attributes of a file as `stat` shows them: size, space and times of a striped file are those of
/// its objects.
#[derive(Clone, Debug)]
pub struct EntryAttr {
    /// The attributes.
    pub attr: Attr,
    /// `st_blksize`, in bytes.
    pub blksize: u32,
    /// What may be cached.
    pub keep: Keep,
}

impl PartialEq for EntryAttr {
    /// What may be cached is no part of what a file is.
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

/// An entry of a directory as it goes to the program, `.` and `..` included.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirItem {
    /// Name.
    pub name: Bytes,
    /// Which file; [`Fid::ino`] is its inode number.
    pub fid: Fid,
    /// Its type.
    pub kind: FileKind,
    /// Where a further `readdir` goes on after this entry: 1 for `.`, 2 for `..`, then above 2 and
    /// below 2^63.
    pub cookie: u64,
    /// Attributes where they were asked for; never for `.` and `..`. `None` also where they could
    /// not be had.
    pub attr: Option<EntryAttr>,
}

/// Some entries of a directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DirPage {
    /// In cookie order.
    pub entries: Vec<DirItem>,
    /// Whether nothing follows.
    pub eof: bool,
}

/// Where `lseek` looks.
pub use sheen_wire::ost::Seek;

/// `fallocate`'s mode bits, as in `<linux/falloc.h>`.
pub mod falloc {
    /// Do not move the end of the file.
    pub const KEEP_SIZE: u32 = 1;
    /// Make a hole; needs `KEEP_SIZE`.
    pub const PUNCH_HOLE: u32 = 2;
    /// Zeros, space reserved.
    pub const ZERO_RANGE: u32 = 0x10;
}

/// What [`crate::Client::lock_ahead`] found; the later of several counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LockedAhead {
    /// These very locks were there.
    Same,
    /// Locks of larger ranges were there.
    Different,
    /// The OSTs were asked.
    Sent,
}

/// Why a file system could not be mounted.
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
        /// What happened.
        errno: Errno,
    },
    /// The MGS does not know the file system.
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
    /// A target's address cannot be read.
    #[error("the MGS gives an address of {target} that cannot be used: '{nid}'")]
    BadNid {
        /// Which target.
        target: String,
        /// Its address.
        nid: String,
    },
    /// The MDT did not answer for the root directory.
    #[error("cannot read the root directory from {target}: {errno}")]
    Root {
        /// Which target.
        target: String,
        /// What happened.
        errno: Errno,
    },
}

impl MountError {
    /// The errno that `mount(2)` would give.
    pub fn errno(&self) -> Errno {
        match self {
            MountError::NoMgs | MountError::BadNid { .. } => Errno::EINVAL,
            MountError::Mgs { errno, .. } | MountError::Root { errno, .. } => *errno,
            MountError::NoFileSystem { .. } => Errno::ENOENT,
            MountError::NoMdt(_) => Errno::ENODEV,
        }
    }
}
