//! Invalidation of the kernel's caches, before the client cancels the locks that guard them.
//!
//! The kernel may process a reply long after it was written to the device. No reply outlives its
//! lock all the same:
//!
//! * *Names* carry the epoch of their request. So when the epoch ends, names in replies that are on
//!   their way are invalid at once. Names of READDIRPLUS are the exception, because they carry the
//!   epoch in which the kernel processes the reply. So the client puts no cacheable names into
//!   these replies ([`crate::ops`]).
//! * *Attributes*: an invalidation makes replies on their way void if the kernel knows the file. It
//!   does not reach a reply that brings the file to the kernel, until the kernel has processed that
//!   reply. So [`LookupCounts`] lists, from before the reply is sent, the files that the kernel
//!   gets. An invalidation that finds no inode of a listed file is repeated. If an invalidation
//!   comes between the lookup and the reply, the attributes in the reply get no validity time
//!   ([`Kernel::moment`]).
//! * *Pages* are locked from before their request until they have the data, and an invalidation
//!   waits for them.

use std::{
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    time::Duration,
};

use sheen_client::{EntryAttr, Invalidate};
use sheen_fuse::{Forget, Notifier};
use sheen_wire::{Errno, Fid, Result};

use crate::{
    lookup_counts::LookupCounts,
    node::{self, Inos},
};

/// The kernel's side of the mount, which the client calls to invalidate caches.
pub struct Kernel {
    notifier: Notifier,
    /// The kind of inode numbers that the kernel gets.
    pub inos: Inos,
    /// The directory that is mounted.
    root: Fid,
    known: LookupCounts,
    /// Number of attribute invalidations so far.
    dropped: AtomicU64,
}

/// A moment in the sequence of attribute invalidations.
#[derive(Clone, Copy, Default, Debug)]
pub struct Moment(u64);

impl Kernel {
    /// Creates the kernel's side of a session.
    pub fn new(notifier: Notifier, inos: Inos, root: Fid) -> Kernel {
        Kernel { notifier, inos, root, known: LookupCounts::default(), dropped: AtomicU64::new(0) }
    }

    /// Returns the node id of a file.
    pub fn nodeid(&self, fid: Fid) -> u64 {
        node::nodeid(fid, self.root)
    }

    /// Returns the present moment, to be taken before the lookup for a reply that brings a file.
    pub fn moment(&self) -> Moment {
        Moment(self.dropped.load(SeqCst))
    }

    /// Records that a reply that brings a file is about to be sent. Returns how long its attributes
    /// are valid.
    pub fn brings(&self, entry: &EntryAttr, since: Moment) -> Duration {
        self.known.add(self.nodeid(entry.attr.fid));
        // In this order: a later invalidation finds that the file is known.
        if self.dropped.load(SeqCst) == since.0 { node::attr_valid(entry) } else { Duration::ZERO }
    }

    /// Undoes [`Kernel::brings`] for a reply that did not arrive.
    pub fn brought_none(&self, fid: Fid) {
        self.known.remove(self.nodeid(fid), 1);
    }

    /// Removes files that the kernel has forgotten (FORGET).
    pub fn forgets(&self, files: &[Forget]) {
        files.iter().for_each(|file| self.known.remove(file.nodeid, file.nlookup));
    }
}

impl Invalidate for Kernel {
    fn names(&self) {
        report("names", self.notifier.inc_epoch());
    }

    fn attr(&self, fid: Fid) -> bool {
        let nodeid = self.nodeid(fid);
        self.dropped.fetch_add(1, SeqCst);
        match self.notifier.inval_attr(nodeid) {
            Ok(found) => found || !self.known.has(nodeid),
            Err(errno) => {
                report("attributes", Err(errno));
                true
            }
        }
    }

    fn data(&self, fid: Fid) {
        report("pages", self.notifier.inval_inode(self.nodeid(fid), 0, 0));
    }

    fn part(&self, fid: Fid, start: u64, end: u64) {
        if start < end {
            // Length 0 means up to the end.
            let len = if end == u64::MAX { 0 } else { end - start };
            report("pages", self.notifier.inval_inode(self.nodeid(fid), start, len));
        }
    }

    fn keeps_names(&self) -> bool {
        self.notifier.has_epochs()
    }

    fn asks_for_sizes(&self) -> bool {
        true
    }
}

/// Logs a failed invalidation. Errors are expected if the mount has ended, or if the kernel caches
/// nothing of the kind.
fn report(what: &str, result: Result<()>) {
    match result {
        Ok(()) | Err(Errno::ENODEV | Errno::ENOTCONN | Errno::EPERM | Errno::ENOSYS) => {}
        Err(e) => tracing::warn!("the kernel did not invalidate {what} ({e}): this mount may show old {what}"),
    }
}
