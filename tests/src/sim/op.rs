//! Operations of programs and their results, shared by the model, the client and the generator.

use std::collections::BTreeMap;

use bytes::Bytes;
use sheen_client::EntryAttr;
use sheen_wire::{Errno, Fid, FileKind, mds::flags};

use super::striping::Striping;
use crate::noise;

/// An operation of a program. Directories and files are given as the kernel gives them: by the FID
/// of an earlier lookup.
#[derive(Clone, PartialEq, Debug)]
pub enum Op {
    /// lookup and stat of a name.
    Lookup { dir: Fid, name: String },
    /// Lookup of a path from the root, name by name.
    Walk { path: Vec<String> },
    /// fstat.
    GetAttr { fid: Fid },
    /// open(O_CREAT).
    Create { dir: Fid, name: String, flags: u32, perm: u32 },
    /// mknod of a regular file, which has no layout yet.
    Mknod { dir: Fid, name: String, perm: u32 },
    /// mkdir.
    Mkdir { dir: Fid, name: String, perm: u32 },
    /// symlink.
    Symlink { dir: Fid, name: String, target: String },
    /// open(O_TMPFILE).
    TmpFile { dir: Fid },
    /// open.
    Open { fid: Fid, flags: u32 },
    /// close.
    Close { handle: u64 },
    /// pread.
    Read { handle: u64, offset: u64, len: usize },
    /// pwrite of [`noise`]. With O_APPEND, at the end of the file.
    Write { handle: u64, offset: u64, len: usize, seed: u64 },
    /// fallocate(PUNCH_HOLE).
    Punch { handle: u64, offset: u64, len: u64 },
    /// truncate, or ftruncate through an open file.
    Truncate { fid: Fid, size: u64, handle: Option<u64> },
    /// chmod.
    Chmod { fid: Fid, perm: u32 },
    /// link.
    Link { fid: Fid, dir: Fid, name: String },
    /// unlink.
    Unlink { dir: Fid, name: String },
    /// rmdir.
    Rmdir { dir: Fid, name: String },
    /// renameat2.
    Rename { dir: Fid, name: String, new_dir: Fid, new_name: String, flags: u32 },
    /// readdir of a whole directory, in pages of `page` bytes.
    ReadDir { dir: Fid, page: u32, plus: bool },
    /// readlink.
    ReadLink { fid: Fid },
    /// setxattr.
    SetXattr { fid: Fid, name: String, value: Bytes, flags: u32 },
    /// getxattr.
    GetXattr { fid: Fid, name: String },
    /// removexattr.
    RemoveXattr { fid: Fid, name: String },
    /// `lfs setstripe` of a directory or of a file without a layout.
    SetStripe { fid: Fid, striping: Striping },
    /// `lfs getstripe`.
    GetStripe { fid: Fid },
    /// `lfs migrate`. With `group`, under a group lock of this number, so that other clients wait.
    Migrate { fid: Fid, striping: Striping, group: Option<u64> },
    /// fsync.
    Fsync { handle: u64 },
    /// sync.
    SyncFs,
}

/// Attributes that stat shows, without those that depend on clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View {
    /// The inode.
    pub fid: Fid,
    /// Its type.
    pub kind: FileKind,
    /// Permission bits.
    pub perm: u32,
    /// Link count.
    pub nlink: u32,
    /// Size in bytes. Always 0 for a directory.
    pub size: u64,
}

impl From<EntryAttr> for View {
    fn from(EntryAttr { attr, .. }: EntryAttr) -> View {
        let size = if attr.kind == FileKind::Dir { 0 } else { attr.size };
        View { fid: attr.fid, kind: attr.kind, perm: attr.perm, nlink: attr.nlink, size }
    }
}

/// Result of a successful operation.
#[derive(Clone, PartialEq)]
pub enum Outcome {
    /// Nothing.
    Done,
    /// Attributes.
    Seen(View),
    /// Bytes read or written.
    Count(usize),
    /// Data, attribute value or link target.
    Bytes(Bytes),
    /// Entries of a directory, including `.` and `..`.
    Entries(BTreeMap<String, (Fid, FileKind, Option<View>)>),
    /// A layout.
    Striped(Striping),
}

/// Result of an operation.
pub type Answer = Result<Outcome, Errno>;

impl std::fmt::Debug for Outcome {
    /// Shows long data as length and digest, because it is random anyway.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Outcome::Done => f.write_str("Done"),
            Outcome::Seen(view) => view.fmt(f),
            Outcome::Count(n) => write!(f, "{n} bytes"),
            Outcome::Bytes(b) if b.len() <= 32 => write!(f, "Bytes({b:?})"),
            Outcome::Bytes(b) => write!(f, "Bytes({} with digest {:08x})", b.len(), digest(b)),
            Outcome::Entries(entries) => f.debug_map().entries(entries).finish(),
            Outcome::Striped(striping) => striping.fmt(f),
        }
    }
}

fn digest(bytes: &Bytes) -> u32 {
    sheen_wire::Bulk::from(bytes.clone()).crc()
}

impl Outcome {
    /// Removes the attributes of those entries for which `listed` has none. A listing omits them if
    /// another client was changing the file under another name.
    pub fn as_listed(mut self, listed: &Outcome) -> Outcome {
        if let (Outcome::Entries(all), Outcome::Entries(listed)) = (&mut self, listed) {
            for (name, entry) in all.iter_mut() {
                if listed.get(name).is_some_and(|(.., view)| view.is_none()) {
                    entry.2 = None;
                }
            }
        }
        self
    }
}

impl Op {
    /// Returns the handle that the operation uses.
    pub fn handle(&self) -> Option<u64> {
        match self {
            Op::Close { handle }
            | Op::Read { handle, .. }
            | Op::Write { handle, .. }
            | Op::Punch { handle, .. }
            | Op::Fsync { handle } => Some(*handle),
            Op::Truncate { handle, .. } => *handle,
            _ => None,
        }
    }

    /// Returns whether the operation opens a file.
    pub fn opens(&self) -> bool {
        matches!(self, Op::Create { .. } | Op::Open { .. } | Op::TmpFile { .. })
    }

    /// Returns the open flags of the operation.
    pub fn flags(&self) -> u32 {
        match self {
            Op::Create { flags, .. } | Op::Open { flags, .. } => *flags,
            _ => flags::RDWR,
        }
    }

    /// Returns the names that the operation may create, remove or redirect.
    pub fn names_changed(&self) -> Vec<(Fid, &str)> {
        match self {
            Op::Create { dir, name, .. }
            | Op::Mknod { dir, name, .. }
            | Op::Mkdir { dir, name, .. }
            | Op::Symlink { dir, name, .. }
            | Op::Link { dir, name, .. }
            | Op::Unlink { dir, name }
            | Op::Rmdir { dir, name } => vec![(*dir, name)],
            Op::Rename { dir, name, new_dir, new_name, .. } => vec![(*dir, name), (*new_dir, new_name)],
            _ => vec![],
        }
    }

    /// Returns the data of a write.
    pub fn data(&self) -> Bytes {
        match self {
            Op::Write { seed, len, .. } => noise(*seed, *len).into(),
            _ => Bytes::new(),
        }
    }
}
