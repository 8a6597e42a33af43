//! The refused opens that the changelog has recorded in the last moments. A program that repeats a
//! refused open gets one record per interval, as in Lustre.
//!
//! Invariant: at most [`REFUSED_MAX`] are known. Beyond that the changelog records repetitions.

use rustc_hash::FxHashMap;
use sheen_wire::{Fid, Time};

/// Maximum number of refused opens that are known.
const REFUSED_MAX: usize = 4096;
/// Lustre's default of the interval.
const INTERVAL_SECS: u64 = 60;

/// A refused open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct RefusedOpen {
    pub fid: Fid,
    pub uid: u32,
    pub gid: u32,
    /// As in the record.
    pub flags: u16,
}

/// The refused opens, with the second of their last record.
#[derive(Debug)]
pub(crate) struct RefusedOpens {
    recorded: FxHashMap<RefusedOpen, i64>,
    /// Seconds in which an open has one record.
    pub(crate) interval_secs: u64,
}

impl Default for RefusedOpens {
    fn default() -> RefusedOpens {
        RefusedOpens { recorded: FxHashMap::default(), interval_secs: INTERVAL_SECS }
    }
}

impl RefusedOpens {
    /// Whether a refused open is to be recorded now. Then its interval begins.
    pub(crate) fn is_new(&mut self, open: RefusedOpen, now: Time) -> bool {
        let interval = i64::try_from(self.interval_secs).unwrap_or(i64::MAX);
        let is_recent = |last: i64| (0..interval).contains(&now.sec.saturating_sub(last));
        if self.recorded.get(&open).is_some_and(|last| is_recent(*last)) {
            return false;
        }
        if self.recorded.len() >= REFUSED_MAX {
            self.recorded.retain(|_, last| is_recent(*last));
        }
        if self.recorded.len() >= REFUSED_MAX {
            self.recorded.clear();
        }
        self.recorded.insert(open, now.sec);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(oid: u32) -> RefusedOpen {
        RefusedOpen { fid: Fid::new(1, oid), uid: 2, gid: 3, flags: 1 }
    }

    fn at(sec: i64) -> Time {
        Time { sec, nsec: 0 }
    }

    #[test]
    fn refused_open_is_new_once_per_interval() {
        let mut opens = RefusedOpens::default();
        assert!(opens.is_new(open(1), at(100)) && !opens.is_new(open(1), at(159)));
        assert!(opens.is_new(RefusedOpen { flags: 2, ..open(1) }, at(101)), "other flags");
        assert!(opens.is_new(open(1), at(160)) && !opens.is_new(open(1), at(219)));
        assert!(opens.is_new(open(1), at(50)), "the clock was set back");
        opens.interval_secs = 0;
        assert!(opens.is_new(open(1), at(50)), "each one");
    }

    #[test]
    fn refused_opens_stay_bounded() {
        let mut opens = RefusedOpens::default();
        for oid in 0..3 * REFUSED_MAX as u32 {
            assert!(opens.is_new(open(oid), at(100)));
            assert!(opens.recorded.len() <= REFUSED_MAX);
        }
        assert!(opens.is_new(open(u32::MAX), at(1000)));
    }
}
