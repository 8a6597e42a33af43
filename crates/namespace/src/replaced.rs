//! Files that a rename has just replaced.
//!
//! `open(2)` on another host is a lookup of the name, followed by an open of the inode that the
//! lookup returned. A rename in between removes that inode, although the name existed all the time.
//! POSIX guarantees that a name which a rename replaces never appears to be missing.
//!
//! A replaced file therefore stays for a while as if it were open
//! ([`crate::Config::keep_replaced_ms`]). Clients that looked it up before can open it. It is
//! deleted when the time is over and no client has it open.
//!
//! Invariant: at most [`REPLACED_MAX`] files are held this way; beyond that the oldest is released
//! early.

use sheen_wire::{self as wire, Fid, FileKind, Time};

use crate::{Namespace, Store, held::INTERNAL_CLIENT, interface::Cx};

/// Maximum number of files held. A program that renames without pause replaces some thousands per
/// second.
const REPLACED_MAX: usize = 4096;

impl<S: Store> Namespace<S> {
    /// Holds a file open whose name a rename is about to take.
    pub(crate) fn keep_replaced(&mut self, cx: &Cx, fid: Fid) -> wire::Result<()> {
        let keep = self.config.keep_replaced_ms;
        let inode = self.live(fid)?;
        if keep == 0 || inode.kind != FileKind::Regular || inode.nlink > 1 {
            return Ok(());
        }
        if self.replaced.0.len() >= REPLACED_MAX {
            self.drop_oldest();
        }
        let handle = self.handles.open(INTERNAL_CLIENT, fid, wire::mds::flags::RDONLY);
        self.replaced.0.push_back((later(cx.now, keep), handle, fid));
        Ok(())
    }

    /// Releases the files whose time has expired. Returns whether others remain.
    pub fn drop_replaced(&mut self, now: Time) -> bool {
        let mut any = false;
        while self.replaced.0.front().is_some_and(|(until, ..)| *until <= now) {
            self.drop_oldest();
            any = true;
        }
        if any {
            self.tables.end();
        }
        self.has_replaced()
    }

    /// Whether files remain for [`Namespace::drop_replaced`] to release.
    pub fn has_replaced(&self) -> bool {
        !self.replaced.0.is_empty()
    }

    fn drop_oldest(&mut self) {
        if let Some((_, handle, fid)) = self.replaced.0.pop_front() {
            // If the store fails here, the orphan's record remains for the next recovery, and
            // `take_fault` returns the error.
            let _ = self.close_handle(handle, fid);
        }
    }
}

fn later(time: Time, ms: u32) -> Time {
    let nsec = u64::from(time.nsec) + u64::from(ms % 1000) * 1_000_000;
    let sec = i64::from(ms / 1000) + (nsec / 1_000_000_000) as i64;
    Time { sec: time.sec.saturating_add(sec), nsec: (nsec % 1_000_000_000) as u32 }
}
