//! What an operation comes to. Kept apart from the [`Reply`] so that a request that is given up can still be answered.

use bytes::Bytes;
use sheen_fuse::{DirBuffer, DirPlusBuffer, EntryOut, FileAttr, Reply, StatFs, Statx};
use sheen_wire::{Bulk, Result};

use crate::node::VALID;

/// A successful answer.
pub enum Answer {
    /// Done.
    Ok,
    /// The request has no answer (FORGET).
    None,
    /// A name.
    Entry(EntryOut),
    /// Attributes.
    Attr(FileAttr),
    /// Attributes for statx(2).
    Statx(Statx),
    /// An open directory.
    OpenDir {
        /// Its number.
        fh: u64,
    },
    /// An open file.
    Open {
        /// Its number.
        fh: u64,
        /// `FOPEN_*`.
        flags: u32,
    },
    /// A new, open file.
    Create {
        /// The name.
        entry: EntryOut,
        /// Its number.
        fh: u64,
        /// `FOPEN_*`.
        flags: u32,
    },
    /// Bytes of a file.
    Data(Bulk),
    /// Bytes written.
    Written(u32),
    /// Bytes copied.
    Copied(u64),
    /// Space.
    StatFs(StatFs),
    /// Length of an extended attribute, or of the list of names.
    XattrSize(u32),
    /// An extended attribute, or the list of names.
    Xattr(Bytes),
    /// Target of a symbolic link.
    ReadLink(Bytes),
    /// Entries.
    Dir(DirBuffer),
    /// Entries with attributes.
    DirPlus(DirPlusBuffer),
    /// An offset.
    Offset(u64),
}

/// Writes the outcome to the kernel.
pub fn send(outcome: Result<Answer>, reply: Reply) {
    match outcome {
        Err(errno) => reply.error(errno),
        Ok(answer) => match answer {
            Answer::Ok => reply.ok(),
            Answer::None => reply.none(),
            Answer::Entry(entry) => reply.entry(&entry),
            Answer::Attr(attr) => reply.attr(&attr, VALID),
            Answer::Statx(statx) => reply.statx(&statx, VALID),
            Answer::OpenDir { fh } => reply.open(fh, 0),
            Answer::Open { fh, flags } => reply.open(fh, flags),
            Answer::Create { entry, fh, flags } => reply.create(&entry, fh, flags),
            Answer::Data(bulk) => reply.data(bulk.segments()),
            Answer::Written(n) => reply.written(n),
            Answer::Copied(n) => reply.copied(n),
            Answer::StatFs(statfs) => reply.statfs(&statfs),
            Answer::XattrSize(n) => reply.xattr_size(n),
            Answer::Xattr(value) => reply.xattr_data(&value),
            Answer::ReadLink(target) => reply.readlink(&target),
            Answer::Dir(entries) => reply.dir(&entries),
            Answer::DirPlus(entries) => reply.dir_plus(&entries),
            Answer::Offset(offset) => reply.lseek(offset),
        },
    }
}
