//! An open file.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_layout::Layout;
use sheen_wire::{
    Attr, Errno, Fid, Result,
    mds::{NO_HANDLE, Opener, flags},
};

use super::{group::Group, inode::Inode, migration::Migration, read_end::ReadEnd};
use crate::{access_patterns::OpenAccesses, types::Caller};

/// An open file. Created by [`crate::Client::open`], [`crate::Client::create`] and
/// [`crate::Client::tmpfile`], closed by [`crate::Client::release`]. Dropping it does not close it.
pub struct OpenFile {
    fid: Fid,
    flags: u32,
    /// The user who opened it.
    opener: Opener,
    /// Number in the order of opening.
    pub(crate) id: u64,
    pub(crate) inode: Arc<Inode>,
    /// Handle at the MDT. It changes when the MDT is restarted. [`NO_HANDLE`]: a local open.
    pub(super) handle: AtomicU64,
    read: AtomicBool,
    /// End of the last read.
    pub(crate) read_end: ReadEnd,
    /// How programs read and write through this open file.
    pub(crate) accesses: OpenAccesses,
    wrote: AtomicBool,
    /// 1 + the generation of the layout with which the file's metadata is known to be durable; 0:
    /// none.
    pub(crate) durable: AtomicU64,
    /// Whether the file cannot be used any more. Either a restarted MDT does not know it (it was
    /// never committed, or this client was evicted), or another file has its objects now.
    pub(super) lost: AtomicBool,
    pub(crate) keep_cache: AtomicBool,
    /// The group lock taken through this open file.
    pub(crate) group: Mutex<Group>,
    /// Id of the mirror that this open file is restricted to; 0: the whole file. The upper half has
    /// the layout generation in which the mirror may be written.
    mirror: AtomicU64,
    /// The migration through this open file.
    pub(crate) migration: Mutex<Option<Migration>>,
    /// Whether reads leave the access time unchanged. See [`OpenFile::leave_atime`].
    unread: AtomicBool,
}

/// How a file was opened, and by whom.
#[derive(Clone, Copy)]
pub(crate) struct OpenBy {
    /// Flags of the open ([`flags`]).
    pub flags: u32,
    /// The user.
    pub opener: Opener,
}

impl OpenBy {
    /// An open with these flags for a caller.
    pub fn new(who: &Caller, flags: u32) -> OpenBy {
        OpenBy { flags, opener: Opener::of(&who.cred) }
    }
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenFile({} flags {:#o} handle {})", self.fid, self.flags, self.handle())
    }
}

impl OpenFile {
    /// Returns the FID of the file.
    pub fn fid(&self) -> Fid {
        self.fid
    }

    /// Returns the flags of the open ([`flags`]).
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// Returns the user who opened it.
    pub(crate) fn opener(&self) -> Opener {
        self.opener
    }

    /// Whether it was opened with O_APPEND.
    pub fn appends(&self) -> bool {
        self.flags & flags::APPEND != 0
    }

    /// Whether the kernel may cache what it reads: the file was opened only for reading, without
    /// O_DIRECT. A program that writes is served best directly. Two clients that also cache what
    /// they write could wait for each other in the kernel.
    pub fn cached(&self) -> bool {
        self.flags & (flags::ACCMODE | flags::DIRECT | flags::APPEND | flags::DIRECTORY) == flags::RDONLY
    }

    /// Whether pages that the kernel had at the open are still valid.
    pub fn keep_cache(&self) -> bool {
        self.keep_cache.load(Relaxed)
    }

    /// Whether writes are durable before they return (O_SYNC, O_DSYNC).
    pub fn syncs(&self) -> bool {
        self.flags & flags::DSYNC != 0
    }

    /// Creates an open file that exists only in this client, without a handle at the MDT.
    pub(crate) fn detached(attr: &Attr) -> Arc<OpenFile> {
        let by = OpenBy { flags: flags::DIRECTORY, opener: Opener::UNKNOWN };
        Arc::new(OpenFile::new(attr.fid, by, 0, Arc::default(), NO_HANDLE))
    }

    pub(super) fn new(fid: Fid, by: OpenBy, id: u64, inode: Arc<Inode>, handle: u64) -> OpenFile {
        OpenFile {
            fid,
            flags: by.flags,
            opener: by.opener,
            id,
            inode,
            handle: AtomicU64::new(handle),
            read: AtomicBool::new(false),
            read_end: ReadEnd::default(),
            accesses: OpenAccesses::default(),
            wrote: AtomicBool::new(false),
            durable: AtomicU64::new(0),
            lost: AtomicBool::new(false),
            keep_cache: AtomicBool::new(false),
            group: Mutex::default(),
            mirror: AtomicU64::new(0),
            migration: Mutex::default(),
            unread: AtomicBool::new(false),
        }
    }

    pub(crate) fn handle(&self) -> u64 {
        self.handle.load(Relaxed)
    }

    /// Returns the id of the mirror that this open file is restricted to; 0: the whole file.
    pub(crate) fn mirror(&self) -> u16 {
        self.mirror.load(Relaxed) as u16
    }

    /// Returns the layout generation in which that mirror may be written.
    pub(crate) fn mirror_generation(&self) -> u32 {
        (self.mirror.load(Relaxed) >> 32) as u32
    }

    pub(crate) fn set_mirror(&self, id: u16, generation: u32) {
        self.accesses.exclude();
        self.mirror.store(u64::from(generation) << 32 | u64::from(id), Relaxed);
    }

    /// Fails with ESTALE if the MDT has lost the file. Its objects belong to no file then, so they
    /// must not be written, and a sync must not succeed.
    pub(crate) fn check_not_lost(&self) -> Result<()> {
        if self.lost.load(Relaxed) { Err(Errno::ESTALE) } else { Ok(()) }
    }

    /// Whether the client must ask the restarted MDT to confirm the layout.
    pub(crate) fn is_unsure(&self) -> bool {
        self.inode.is_unsure()
    }

    /// Compares the known layout with that of a restarted MDT. Accepts the new one if the known one
    /// can have become it. Otherwise returns the known one.
    pub(crate) fn confirm(&self, layout: Option<&Bytes>) -> Option<Arc<Layout>> {
        self.inode.confirm(layout)
    }

    /// Marks the layout as to be requested again, because the OSTs report its objects as sealed.
    pub(crate) fn confirm_moved(&self) {
        self.inode.confirm_moved();
    }

    /// Marks the file as lost: its objects belong to no file.
    pub(crate) fn lose(&self) {
        tracing::warn!("{}: the restarted MDT has lost its layout: operations return ESTALE", self.fid);
        self.lost.store(true, Relaxed);
    }

    pub(crate) fn note_read(&self) {
        self.read.store(true, Relaxed);
    }

    /// Makes reads leave the access time unchanged: for a migration, or if the mount or the open
    /// requested it.
    pub fn leave_atime(&self) {
        self.unread.store(true, Relaxed);
    }

    /// Marks the file as unusable, because another file has its objects now.
    pub(crate) fn leave(&self) {
        self.lost.store(true, Relaxed);
    }

    pub(crate) fn note_write(&self) {
        self.wrote.store(true, Relaxed);
    }

    pub(crate) fn was_read(&self) -> bool {
        self.read.load(Relaxed) && !self.unread.load(Relaxed)
    }

    pub(crate) fn was_written(&self) -> bool {
        self.wrote.load(Relaxed)
    }
    /// Leaves the group, if the file is in one, at its close.
    pub(crate) fn leave_group(&self) {
        let left = std::mem::take(&mut *self.group.lock());
        self.left(left);
    }

    /// Ends a membership that was taken from [`OpenFile::group`].
    pub(crate) fn left(&self, left: Group) {
        let was_in = matches!(left, Group::In(_));
        drop(left);
        if was_in {
            self.inode.through.store(false, Relaxed);
        }
    }

    /// Whether the open file is in a group.
    pub fn is_in_group(&self) -> bool {
        matches!(*self.group.lock(), Group::In(_))
    }
}
