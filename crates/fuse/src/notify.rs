//! Notifications: unsolicited messages from the file system to the kernel.
//!
//! **The deadlock rule.** A notification is a write to the device that can wait inside the kernel.
//! An invalidation of pages waits for pages that an in-flight READ or WRITE has locked. An
//! invalidation of a name waits for the directory's lock, which an in-flight LOOKUP, CREATE, UNLINK
//! etc. holds. Those requests end only when the file system replies to them.
//!
//! [`Notifier::inc_epoch`] and [`Notifier::inval_attr`] do not wait and may be called from
//! anywhere. For the other notifications:
//!
//! * Never notify from inside [`crate::Filesystem::request`], nor from a task or thread on which a
//!   reply may depend.
//! * While notifying, hold no lock that a reply could need. A READ that reached the file system
//!   before an extent lock is cancelled must still be served.
//! * Before cancelling the lock that protects cached data, wait until the invalidation has
//!   returned.
//!
//! [`Notifier::defer`] runs the call on dedicated threads, which hold no lock and serve no
//! requests.

use std::{collections::VecDeque, io::IoSlice, sync::Arc};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use sheen_wire::{Errno, Result};
use zerocopy::IntoBytes;

use crate::{
    abi::{
        flags::{init::HAS_EXPIRE_ONLY, inval_entry},
        notify,
        structs::*,
    },
    device::Device,
    init::Negotiated,
};

/// Maximum number of calls that wait for a notification thread.
const DEFERRED_MAX: usize = 16384;
/// Maximum number of pieces that [`Notifier::store`] sends in one call without copying (UIO_MAXIOV
/// minus the headers).
const STORE_PIECES_MAX: usize = 1000;
/// Maximum number of nodes in one PRUNE: the kernel accepts one page of them.
const PRUNE_NODES_MAX: usize = 512;

/// Minor version that introduced FUSE_NOTIFY_INC_EPOCH (Linux 6.16).
const EPOCH_MINOR: u32 = 44;

type Task = Box<dyn FnOnce(&Notifier) + Send>;

/// Sends notifications of changes to the kernel. Cheap to clone. After the end of the session every
/// method returns ENODEV or another error. A file or name that is not cached is no error.
#[derive(Clone)]
pub struct Notifier {
    shared: Arc<Shared>,
}

struct Shared {
    device: Arc<Device>,
    negotiated: Negotiated,
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Task>,
    closed: bool,
}

impl Notifier {
    pub(crate) fn new(device: Arc<Device>, negotiated: Negotiated) -> Notifier {
        let queue = Mutex::new(Queue::default());
        Notifier { shared: Arc::new(Shared { device, negotiated, queue, wake: Condvar::new() }) }
    }

    /// Drops a file's cached attributes and its cached pages in `[offset, offset + len)`. `len` 0
    /// means to the end. Waits for pages that are being read or written.
    pub fn inval_inode(&self, nodeid: u64, offset: u64, len: u64) -> Result<()> {
        let off = i64::try_from(offset).map_err(|_| Errno::EINVAL)?;
        let len = i64::try_from(len).unwrap_or(0);
        self.ignore_enoent(notify::INVAL_INODE, &[NotifyInvalInodeOut { ino: nodeid, off, len }.as_bytes()])
    }

    /// Drops a file's cached attributes and ACLs, but not its pages. Does not wait. Returns false
    /// if the kernel does not know the file.
    ///
    /// Replies in flight: if the kernel already knows the file, attributes in such a reply count as
    /// older than the invalidation and are not cached. A SETATTR reply is the exception: it counts
    /// as newer. A reply that introduces a file unknown to the kernel counts as newer, too.
    pub fn inval_attr(&self, nodeid: u64) -> Result<bool> {
        match self.send(notify::INVAL_INODE, &[NotifyInvalInodeOut { ino: nodeid, off: -1, len: 0 }.as_bytes()]) {
            Ok(()) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Drops a cached name, positive or negative. Waits for operations on the directory.
    pub fn inval_entry(&self, parent: u64, name: &[u8]) -> Result<()> {
        self.entry(parent, name, 0)
    }

    /// Makes the kernel revalidate a cached name at its next use, without dropping the mounts and
    /// working directories below it. ENOSYS if the kernel does not support this (before 6.2).
    pub fn expire_entry(&self, parent: u64, name: &[u8]) -> Result<()> {
        if !self.shared.negotiated.has(HAS_EXPIRE_ONLY) {
            return Err(Errno::ENOSYS);
        }
        self.entry(parent, name, inval_entry::EXPIRE_ONLY)
    }

    /// Reports that a name was removed: the kernel notifies inotify watchers and drops the name.
    /// `child` is the node that the name referred to; if the name refers to another node in the
    /// kernel, nothing happens. ENOTEMPTY or EBUSY if a directory is in use.
    pub fn delete(&self, parent: u64, child: u64, name: &[u8]) -> Result<()> {
        let out = NotifyDeleteOut { parent, child, namelen: name_len(name)?, padding: 0 };
        self.ignore_enoent(notify::DELETE, &[out.as_bytes(), name, b"\0"])
    }

    /// Stores bytes in a file's cached pages. ENOENT if the kernel does not know the file.
    pub fn store(&self, nodeid: u64, offset: u64, pieces: &[Bytes]) -> Result<()> {
        let mut offset = offset;
        for pieces in pieces.chunks(STORE_PIECES_MAX) {
            let bytes: usize = pieces.iter().map(Bytes::len).sum();
            let size = u32::try_from(bytes).map_err(|_| Errno::EINVAL)?;
            let out = NotifyStoreOut { nodeid, offset, size, padding: 0 };
            let mut parts = Vec::with_capacity(pieces.len() + 1);
            parts.push(out.as_bytes());
            parts.extend(pieces.iter().map(|p| &p[..]));
            self.send(notify::STORE, &parts)?;
            offset += bytes as u64;
        }
        Ok(())
    }

    /// Requests cached bytes from the kernel. They arrive as [`crate::Op::Retrieved`] whose
    /// `header.unique` is the `unique` given here. The data ends at the first page that is not
    /// cached. Over io_uring `unique` must be even, below 2^62, and differ from those of all
    /// other requests, including the kernel's, which count from 2.
    pub fn retrieve(&self, unique: u64, nodeid: u64, offset: u64, size: u32) -> Result<()> {
        let out = NotifyRetrieveOut { notify_unique: unique, nodeid, offset, size, padding: 0 };
        self.send(notify::RETRIEVE, &[out.as_bytes()])
    }

    /// Wakes the programs that poll with the handle `kh` of [`crate::Op::Poll`].
    pub fn poll(&self, kh: u64) -> Result<()> {
        self.ignore_enoent(notify::POLL, &[NotifyPollOut { kh }.as_bytes()])
    }

    /// Makes the kernel revalidate every cached name at its next use. Does not wait. ENOSYS before
    /// 7.44.
    ///
    /// Replies in flight to LOOKUP, CREATE and other operations that create names count as older:
    /// their names are revalidated, too. READDIRPLUS is the exception: its names count from the
    /// moment when the kernel processes the reply. The revalidation of a name detaches any mount on
    /// it.
    pub fn inc_epoch(&self) -> Result<()> {
        self.needs(EPOCH_MINOR)?;
        self.send(notify::INC_EPOCH, &[])
    }

    /// Whether [`Notifier::inc_epoch`] works.
    pub fn has_epochs(&self) -> bool {
        self.needs(EPOCH_MINOR).is_ok()
    }

    /// Makes the kernel forget unused nodes now. ENOSYS before 7.45.
    pub fn prune(&self, nodeids: &[u64]) -> Result<()> {
        self.needs(45)?;
        for nodeids in nodeids.chunks(PRUNE_NODES_MAX) {
            let out = NotifyPruneOut { count: nodeids.len() as u32, padding: 0, spare: 0 };
            self.send(notify::PRUNE, &[out.as_bytes(), nodeids.as_bytes()])?;
        }
        Ok(())
    }

    /// Runs `task` on a notification thread, in no guaranteed order.
    ///
    /// # Errors
    /// EAGAIN if too many tasks wait: run it on another thread, or later. ENODEV after the end of
    /// the session.
    pub fn defer(&self, task: impl FnOnce(&Notifier) + Send + 'static) -> Result<()> {
        let mut queue = self.shared.queue.lock();
        if queue.closed {
            return Err(Errno::ENODEV);
        }
        if queue.tasks.len() >= DEFERRED_MAX {
            return Err(Errno::EAGAIN);
        }
        queue.tasks.push_back(Box::new(task));
        self.shared.wake.notify_one();
        Ok(())
    }

    /// Runs deferred tasks until [`Notifier::close`]; the body of a notification thread.
    pub(crate) fn serve(&self) {
        loop {
            let task = {
                let mut queue = self.shared.queue.lock();
                loop {
                    if let Some(task) = queue.tasks.pop_front() {
                        break task;
                    }
                    if queue.closed {
                        return;
                    }
                    self.shared.wake.wait(&mut queue);
                }
            };
            task(self);
        }
    }

    /// Ends the notification threads after all deferred tasks have run.
    pub(crate) fn close(&self) {
        self.shared.queue.lock().closed = true;
        self.shared.wake.notify_all();
    }

    fn entry(&self, parent: u64, name: &[u8], flags: u32) -> Result<()> {
        let out = NotifyInvalEntryOut { parent, namelen: name_len(name)?, flags };
        self.ignore_enoent(notify::INVAL_ENTRY, &[out.as_bytes(), name, b"\0"])
    }

    fn needs(&self, minor: u32) -> Result<()> {
        if self.shared.negotiated.minor < minor { Err(Errno::ENOSYS) } else { Ok(()) }
    }

    /// Sends a notification. ENOENT counts as success: the kernel has nothing cached for the node
    /// or name.
    fn ignore_enoent(&self, code: i32, parts: &[&[u8]]) -> Result<()> {
        match self.send(code, parts) {
            Err(Errno::ENOENT) => Ok(()),
            other => other,
        }
    }

    fn send(&self, code: i32, parts: &[&[u8]]) -> Result<()> {
        let bytes = size_of::<OutHeader>() + parts.iter().map(|p| p.len()).sum::<usize>();
        let len = u32::try_from(bytes).map_err(|_| Errno::EINVAL)?;
        let header = OutHeader { len, error: code, unique: 0 };
        let mut pieces = Vec::with_capacity(parts.len() + 1);
        pieces.push(IoSlice::new(header.as_bytes()));
        pieces.extend(parts.iter().map(|p| IoSlice::new(p)));
        self.shared.device.write(&pieces)
    }
}

impl std::fmt::Debug for Notifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Notifier").field("deferred", &self.shared.queue.lock().tasks.len()).finish()
    }
}

fn name_len(name: &[u8]) -> Result<u32> {
    if name.is_empty() { Err(Errno::EINVAL) } else { u32::try_from(name.len()).map_err(|_| Errno::ENAMETOOLONG) }
}
