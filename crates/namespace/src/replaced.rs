//! Files that a rename has just replaced.
//!
//! `open(2)` on another host is a look at the name and then an open of the inode that it named. A
//! rename in between takes that inode away, although the name was there all the time. POSIX
//! promises that a name which a rename replaces never seems to be missing, so a replaced file stays
//! for a moment as if it were open: it can be opened by who looked it up before, and goes when the
//! moment is over ([`crate::Config::keep_replaced_ms`]) and nobody has it open.
//!
//! Invariant: at most [`REPLACED_MAX`] files are kept so; beyond that the oldest goes early.

use std::collections::VecDeque;

use sheen_wire::{self as wire, Fid, FileKind, Time};

use crate::{ClientId, Namespace, Store, engine::Cx};

/// Files kept. A program that renames without pause replaces some thousands in a second.
const REPLACED_MAX: usize = 4096;
/// Who holds them open: an export's number is never 0.
pub(crate) const NOBODY: ClientId = ClientId(0);

/// When each may go, oldest first, and the handle that holds it.
#[derive(Debug, Default)]
pub(crate) struct Replaced(VecDeque<(Time, u64, Fid)>);

impl<S: Store> Namespace<S> {
    /// A rename is about to take this file's name.
    pub(crate) fn keep_replaced(&mut self, cx: &Cx, fid: Fid) -> wire::Result<()> {
        let keep = self.config.keep_replaced_ms;
        let inode = self.live(fid)?;
        if keep == 0 || inode.kind != FileKind::Regular || inode.nlink > 1 {
            return Ok(());
        }
        if self.replaced.0.len() >= REPLACED_MAX {
            self.drop_oldest();
        }
        let handle = self.handles.open(NOBODY, fid, wire::mds::flags::RDONLY);
        self.replaced.0.push_back((later(cx.now, keep), handle, fid));
        Ok(())
    }

    /// Lets go of those whose moment is over. Whether there are others.
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

    /// Whether [`Namespace::drop_replaced`] will have something to do.
    pub fn has_replaced(&self) -> bool {
        !self.replaced.0.is_empty()
    }

    fn drop_oldest(&mut self) {
        if let Some((_, handle, fid)) = self.replaced.0.pop_front() {
            // A store that fails here leaves the orphan's record, for the next recovery; the fault
            // is kept.
            let _ = self.close_handle(handle, fid);
        }
    }
}

fn later(time: Time, ms: u32) -> Time {
    let nsec = u64::from(time.nsec) + u64::from(ms % 1000) * 1_000_000;
    let sec = i64::from(ms / 1000) + (nsec / 1_000_000_000) as i64;
    Time { sec: time.sec.saturating_add(sec), nsec: (nsec % 1_000_000_000) as u32 }
}
