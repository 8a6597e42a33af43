//! Operations of programs and what they answer: the words that the model, the client and the
//! generator share.

use std::collections::BTreeMap;

use bytes::Bytes;
use sheen_client::EntryAttr;
use sheen_wire::{Errno, Fid, FileKind, mds::flags};

use super::striping::Striping;
use crate::noise;

/// One operation of a program. Directories and files are named as a kernel would: by what a lookup
/// gave before.
#[derive(Clone, PartialEq, Debug)]
pub enum Op {
    /// stat of a name.
    Lookup { dir: Fid, name: String },
    /// A path from the root, name by name.
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
    /// pwrite of [`noise`]; at the end where the file is open for appending.
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
    /// A directory from start to end, in pages of so many bytes.
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
    /// `lfs migrate`; in a group of this number, so that others wait meanwhile.
    Migrate { fid: Fid, striping: Striping, group: Option<u64> },
    /// fsync.
    Fsync { handle: u64 },
    /// sync.
    SyncFs,
}

/// What stat shows, as far as it does not depend on clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View {
    /// Which file.
    pub fid: Fid,
    /// Its type.
    pub kind: FileKind,
    /// Permission bits.
    pub perm: u32,
    /// Names.
    pub nlink: u32,
    /// Bytes; of a directory 0, whatever the file system says.
    pub size: u64,
}

impl From<EntryAttr> for View {
    fn from(EntryAttr { attr, .. }: EntryAttr) -> View {
        let size = if attr.kind == FileKind::Dir { 0 } else { attr.size };
        View { fid: attr.fid, kind: attr.kind, perm: attr.perm, nlink: attr.nlink, size }
    }
}

/// What an operation answers when it succeeds.
#[derive(Clone, PartialEq)]
pub enum Outcome {
    /// Nothing.
    Done,
    /// Attributes.
    Seen(View),
    /// Bytes read or written.
    Count(usize),
    /// Content, value or target.
    Bytes(Bytes),
    /// Entries of a directory, with `.` and `..`.
    Entries(BTreeMap<String, (Fid, FileKind, Option<View>)>),
    /// A layout.
    Striped(Striping),
}

/// What an operation answers.
pub type Answer = Result<Outcome, Errno>;

impl std::fmt::Debug for Outcome {
    /// Content in short: it is noise anyhow.
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
    /// Without the attributes in a listing that `listed` came without: those of a file that
    /// somebody was changing meanwhile under another name.
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

    /// Without what a lost write changes: sizes and bytes.
    pub fn without_data(self) -> Outcome {
        let empty = |view: View| View { size: 0, ..view };
        match self {
            Outcome::Seen(view) => Outcome::Seen(empty(view)),
            Outcome::Bytes(_) => Outcome::Done,
            Outcome::Entries(entries) => Outcome::Entries(
                entries.into_iter().map(|(name, (fid, kind, view))| (name, (fid, kind, view.map(empty)))).collect(),
            ),
            // While it was down, what got its objects got none there.
            Outcome::Striped(striping) => Outcome::Striped(striping.without_counts()),
            other => other,
        }
    }
}

impl Op {
    /// The open file that it goes through.
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

    /// Whether it opens a file.
    pub fn opens(&self) -> bool {
        matches!(self, Op::Create { .. } | Op::Open { .. } | Op::TmpFile { .. })
    }

    /// With which flags it opens one.
    pub fn flags(&self) -> u32 {
        match self {
            Op::Create { flags, .. } | Op::Open { flags, .. } => *flags,
            _ => flags::RDWR,
        }
    }

    /// The names that it may make, take away or lead elsewhere.
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

    /// What a write writes.
    pub fn data(&self) -> Bytes {
        match self {
            Op::Write { seed, len, .. } => noise(*seed, *len).into(),
            _ => Bytes::new(),
        }
    }
}
