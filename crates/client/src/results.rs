//! Result types of the client's public operations. Some of them refer to the locks under which
//! their content may be cached.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use sheen_lnet::Live;
use sheen_wire::{Attr, Bulk, Fid, FileKind};

use crate::{cache::ReadRefs, locks::LockRef};

/// `st_blksize` of a regular file, in bytes: the default stripe size, whatever the file's own
/// stripe size is (as in Lustre).
pub const FILE_BLKSIZE: u32 = 4 << 20;
/// `st_blksize` of all other files, in bytes.
pub const OTHER_BLKSIZE: u32 = 1 << 20;

/// The parts of a reply that may be cached until [`crate::Invalidate`] revokes them.
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
