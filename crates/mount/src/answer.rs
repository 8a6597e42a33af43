//! Results of operations. They are separate from the [`Reply`], so that an abandoned request can be
//! answered while its operation continues.
//!
//! Cacheable data comes with the locks that guard it, in use. The locks are released when the
//! kernel has the reply, so that an invalidation finds the data there.

use std::time::Duration;

use bytes::Bytes;
use sheen_client::{EntryAttr, ReadData};
use sheen_fuse::{DirBuffer, DirPlusBuffer, EntryOut, FileRun, Lock, Reply, StatFs};
use sheen_wire::{Errno, Fid, Result, ldlm::Flock};

use crate::{
    kernel::{Kernel, Moment},
    node,
};

/// A successful result.
pub enum Answer {
    /// Done.
    Ok,
    /// The request has no reply (FORGET).
    None,
    /// A directory entry, and the moment before its lookup.
    Entry(EntryAttr, Moment),
    /// Attributes.
    Attr(EntryAttr),
    /// Attributes that were just changed.
    Changed(EntryAttr),
    /// Attributes for statx(2).
    Statx(EntryAttr),
    /// An open directory.
    OpenDir {
        /// Its handle number.
        fh: u64,
    },
    /// An open file.
    Open {
        /// Its handle number.
        fh: u64,
        /// `FOPEN_*`.
        flags: u32,
    },
    /// A new, open file.
    Create {
        /// The directory entry.
        entry: EntryAttr,
        /// The moment before the request to the MDT.
        since: Moment,
        /// Its handle number.
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
    /// A lock that was taken or released.
    Locked {
        /// The locked file.
        fid: Fid,
        /// The lock.
        flock: Flock,
    },
    /// The conflicting lock.
    Lock(Lock),
    /// Output of an ioctl.
    Ioctl(Bytes),
}

/// Writes the result to the kernel.
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

/// Writes a reply that brings the kernel a file.
fn bring(kernel: &Kernel, entry: &EntryAttr, since: Moment, send: impl FnOnce(&EntryOut) -> bool) {
    let attr_valid = kernel.brings(entry, since);
    let nodeid = kernel.nodeid(entry.attr.fid);
    if !send(&node::entry(entry, attr_valid, nodeid, kernel.inos)) {
        kernel.brought_none(entry.attr.fid);
    }
}

/// Writes data of a file. Data of a server in this process goes to the kernel directly from the
/// server's file. Where that is impossible it is read from there, up to the present end of the
/// server's file.
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
