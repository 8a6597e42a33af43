//! What an operation comes to. Kept apart from the [`Reply`] so that a request that is given up can
//! still be answered.
//!
//! What may be cached comes with the locks that it is kept under, in use. They are let go when the
//! kernel has the answer, so that the answer is there to be revoked.

use std::time::Duration;

use bytes::Bytes;
use sheen_client::{EntryAttr, ReadData};
use sheen_fuse::{DirBuffer, DirPlusBuffer, EntryOut, FileRun, Lock, Reply, StatFs};
use sheen_wire::{Errno, Fid, Result, ldlm::Flock};

use crate::{
    kernel::{Kernel, Moment},
    node,
};

/// A successful answer.
pub enum Answer {
    /// Done.
    Ok,
    /// The request has no answer (FORGET).
    None,
    /// A name, and when it was looked up.
    Entry(EntryAttr, Moment),
    /// Attributes.
    Attr(EntryAttr),
    /// Attributes that were just changed.
    Changed(EntryAttr),
    /// Attributes for statx(2).
    Statx(EntryAttr),
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
        entry: EntryAttr,
        /// When it was looked up.
        since: Moment,
        /// Its number.
        fh: u64,
        /// `FOPEN_*`.
        flags: u32,
    },
    /// Bytes of a file.
    Data(ReadData),
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
    /// A lock that was taken, or given back.
    Locked {
        /// On which file.
        fid: Fid,
        /// Which.
        flock: Flock,
    },
    /// The lock in the way.
    Lock(Lock),
    /// What an ioctl's argument shall point to.
    Ioctl(Bytes),
}

/// Writes the outcome to the kernel.
pub fn send(kernel: &Kernel, outcome: Result<Answer>, reply: Reply) {
    match outcome {
        Err(errno) => reply.error(errno),
        Ok(answer) => match answer {
            Answer::Ok => reply.ok(),
            Answer::None => reply.none(),
            Answer::Entry(e, since) => bring(kernel, &e, since, |entry| reply.entry(entry)),
            Answer::Attr(e) => reply.attr(&node::attr(&e, kernel.inos), node::attr_valid(&e)),
            Answer::Changed(e) => reply.attr(&node::attr(&e, kernel.inos), Duration::ZERO),
            Answer::Statx(e) => reply.statx(&node::statx(&e, kernel.inos), node::attr_valid(&e)),
            Answer::OpenDir { fh } => reply.open(fh, 0),
            Answer::Open { fh, flags } => reply.open(fh, flags),
            Answer::Create { entry, since, fh, flags } => {
                bring(kernel, &entry, since, |entry| reply.create(entry, fh, flags));
            }
            Answer::Data(read) => data(&read, reply),
            Answer::Written(n) => reply.written(n),
            Answer::Copied(n) => reply.copied(n),
            Answer::StatFs(statfs) => reply.statfs(&statfs),
            Answer::XattrSize(n) => reply.xattr_size(n),
            Answer::Xattr(value) => reply.xattr_data(&value),
            Answer::ReadLink(target) => reply.readlink(&target),
            Answer::Dir(entries) => reply.dir(&entries),
            Answer::DirPlus(entries) => reply.dir_plus(&entries),
            Answer::Offset(offset) => reply.lseek(offset),
            Answer::Locked { .. } => reply.ok(),
            Answer::Lock(lock) => reply.lock(&lock),
            Answer::Ioctl(output) => reply.ioctl(0, &output),
        },
    }
}

/// Writes an answer that brings a file.
fn bring(kernel: &Kernel, entry: &EntryAttr, since: Moment, send: impl FnOnce(&EntryOut) -> bool) {
    let attr_valid = kernel.brings(entry, since);
    if !send(&node::entry(entry, attr_valid, kernel.inos)) {
        kernel.brought_none(entry.attr.fid);
    }
}

/// Data of a server in this process goes to the kernel from where it lies; what cannot is read, as
/// far as the file goes by now.
fn data(read: &ReadData, reply: Reply) {
    let Some(live) = &read.live else { return reply.data(read.bulk.segments()) };
    let runs =
        live.stretches.iter().map(|s| Some(FileRun { file: s.source.file().host_fd()?, offset: s.offset, len: s.len }));
    let left = match runs.collect::<Option<Vec<_>>>() {
        Some(runs) => reply.files(&runs).err(),
        None => Some(reply),
    };
    if let Some(reply) = left {
        match live.read() {
            Ok(bulk) => reply.data(bulk.segments()),
            Err(e) => reply.error(Errno::from(e)),
        }
    }
}
