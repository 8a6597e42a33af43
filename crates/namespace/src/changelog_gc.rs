//! The limits after which the changelog deregisters a user by itself: Lustre's garbage collection
//! of changelogs. The limit of records is a part of the changelog's state.
//!
//! They are stored, because users would otherwise be judged by the defaults after a restart, until
//! the MGS has sent the permanent settings.

use serde::{Deserialize, Serialize};
use sheen_wire::Time;

use crate::record::Stored;

/// Lustre's defaults, in seconds: 30 days, and an hour.
const IDLE_SECS: u64 = 30 * 24 * 3600;
const INTERVAL_SECS: u64 = 3600;

/// Limits for users of the changelog.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChangelogGc {
    /// Whether users are deregistered if they exceed a limit.
    pub is_on: bool,
    /// Seconds for which a user may hold records without clearing any.
    pub idle_secs: u64,
    /// Seconds between two checks of that time.
    pub interval_secs: u64,
}

impl Default for ChangelogGc {
    fn default() -> ChangelogGc {
        ChangelogGc { is_on: true, idle_secs: IDLE_SECS, interval_secs: INTERVAL_SECS }
    }
}

impl Stored for ChangelogGc {}

impl ChangelogGc {
    /// Whether the time is to be checked again, after the check at `last`.
    pub(crate) fn is_due(&self, last: Option<Time>, now: Time) -> bool {
        self.is_on && last.is_none_or(|last| now.sec.abs_diff(last.sec) >= self.interval_secs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{decode, encode};

    /// The stored form must not change.
    #[test]
    fn changelog_gc_is_pinned() {
        let gc = ChangelogGc { is_on: true, idle_secs: 300, interval_secs: 2 };
        let bytes = encode(&gc, Vec::new()).unwrap();
        assert_eq!(bytes, [1, 1, 0xac, 2, 2]);
        assert_eq!(decode::<ChangelogGc>(b"j", &bytes).unwrap(), gc);
    }

    #[test]
    fn check_is_due_after_the_interval_in_either_direction() {
        let at = |sec| Time { sec, nsec: 0 };
        let gc = ChangelogGc { interval_secs: 10, ..ChangelogGc::default() };
        assert!(gc.is_due(None, at(5)) && gc.is_due(Some(at(100)), at(110)) && gc.is_due(Some(at(100)), at(90)));
        assert!(!gc.is_due(Some(at(100)), at(109)) && !gc.is_due(Some(at(100)), at(91)));
        assert!(!ChangelogGc { is_on: false, ..gc }.is_due(None, at(5)));
    }
}
