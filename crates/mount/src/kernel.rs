//! What the client has the kernel forget, before it gives up the locks under which the kernel was told.
//!
//! Why no answer outlives its lock, given that the kernel may still have to take an answer apart when it was written to the device
//! long ago:
//!
//! * *names* carry the epoch in which they were asked for, so those that are still under way when the epoch ends are out of date at
//!   once. Those of READDIRPLUS alone carry that in which the answer is taken apart: it gets none ([`crate::ops`]);
//! * *attributes* are given a time only in answers to GETATTR and STATX: the kernel knows the file then, so an invalidation finds it and
//!   makes answers under way void. An answer that brings a file to the kernel would not be reached by an invalidation, which is
//!   for a file that is not known yet: its attributes are good for no time;
//! * *pages* are locked from before they are asked for until they hold the answer, and an invalidation waits for them.

use sheen_client::Invalidate;
use sheen_fuse::Notifier;
use sheen_wire::{Errno, Fid, Result};

use crate::node;

/// The kernel, as the client may call it.
#[derive(Debug)]
pub struct Kernel(Notifier);

impl Kernel {
    /// The kernel at the other end of a session.
    pub fn new(notifier: Notifier) -> Kernel {
        Kernel(notifier)
    }
}

impl Invalidate for Kernel {
    fn names(&self) {
        report("names", self.0.inc_epoch());
    }

    fn attr(&self, fid: Fid) {
        report("attributes", self.0.inval_attr(node::nodeid(fid)));
    }

    fn data(&self, fid: Fid) {
        report("pages", self.0.inval_inode(node::nodeid(fid), 0, 0));
    }

    fn part(&self, fid: Fid, start: u64, end: u64) {
        if start < end {
            // No length: all behind.
            let len = if end == u64::MAX { 0 } else { end - start };
            report("pages", self.0.inval_inode(node::nodeid(fid), start, len));
        }
    }

    fn keeps_names(&self) -> bool {
        self.0.has_epochs()
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
