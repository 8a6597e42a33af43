//! What the client has the kernel forget, before it gives up the locks under which the kernel was
//! told.
//!
//! Why no answer outlives its lock, given that the kernel may still have to take an answer apart
//! when it was written to the device long ago:
//!
//! * *names* carry the epoch in which they were asked for, so those that are still under way when
//!   the epoch ends are out of date at once. Those of READDIRPLUS alone carry that in which the
//!   answer is taken apart: it gets none ([`crate::ops`]);
//! * *attributes*: an invalidation makes answers under way void where the kernel knows the file.
//!   One that brings the file to the kernel is not reached by an invalidation before the kernel has
//!   taken it apart. So it is known here, from before it is sent, which files the kernel is told of
//!   ([`Known`]): an invalidation that finds none of them is done once more. An answer that was
//!   looked up before an invalidation and is sent after it gives its attributes no time
//!   ([`Kernel::moment`]);
//! * *pages* are locked from before they are asked for until they hold the answer, and an
//!   invalidation waits for them.

use std::{
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    time::Duration,
};

use sheen_client::{EntryAttr, Invalidate};
use sheen_fuse::{Forget, Notifier};
use sheen_wire::{Errno, Fid, Result};

use crate::{
    known::Known,
    node::{self, Inos},
};

/// The kernel, as the client may call it.
pub struct Kernel {
    notifier: Notifier,
    /// The inode numbers that it is told.
    pub inos: Inos,
    known: Known,
    /// Invalidations of attributes so far.
    dropped: AtomicU64,
}

/// When an answer was looked up.
#[derive(Clone, Copy, Default, Debug)]
pub struct Moment(u64);

impl Kernel {
    /// The kernel at the other end of a session.
    pub fn new(notifier: Notifier, inos: Inos) -> Kernel {
        Kernel { notifier, inos, known: Known::default(), dropped: AtomicU64::new(0) }
    }

    /// To be taken before an answer that brings a file is looked up.
    pub fn moment(&self) -> Moment {
        Moment(self.dropped.load(SeqCst))
    }

    /// An answer that brings a file is about to be sent. How long its attributes may be believed.
    pub fn brings(&self, entry: &EntryAttr, since: Moment) -> Duration {
        self.known.add(node::nodeid(entry.attr.fid));
        // In this order: an invalidation from now on finds it.
        if self.dropped.load(SeqCst) == since.0 { node::attr_valid(entry) } else { Duration::ZERO }
    }

    /// That answer did not arrive.
    pub fn brought_none(&self, fid: Fid) {
        self.known.remove(node::nodeid(fid), 1);
    }

    /// The kernel forgets files.
    pub fn forgets(&self, files: &[Forget]) {
        files.iter().for_each(|file| self.known.remove(file.nodeid, file.nlookup));
    }
}

impl Invalidate for Kernel {
    fn names(&self) {
        report("names", self.notifier.inc_epoch());
    }

    fn attr(&self, fid: Fid) -> bool {
        let nodeid = node::nodeid(fid);
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
        report("pages", self.notifier.inval_inode(node::nodeid(fid), 0, 0));
    }

    fn part(&self, fid: Fid, start: u64, end: u64) {
        if start < end {
            // No length: all behind.
            let len = if end == u64::MAX { 0 } else { end - start };
            report("pages", self.notifier.inval_inode(node::nodeid(fid), start, len));
        }
    }

    fn keeps_names(&self) -> bool {
        self.notifier.has_epochs()
    }

    fn asks_for_sizes(&self) -> bool {
        true
    }
}

/// A kernel that does not take an invalidation has no mount any more, or keeps nothing of the kind.
fn report(what: &str, result: Result<()>) {
    match result {
        Ok(()) | Err(Errno::ENODEV | Errno::ENOTCONN | Errno::EPERM | Errno::ENOSYS) => {}
        Err(e) => tracing::warn!("the kernel did not forget {what}: {e}"),
    }
}
