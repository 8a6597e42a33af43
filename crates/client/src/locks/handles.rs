//! Handles of intent locks: the ranges that requests in flight have reserved.

use std::collections::BTreeMap;

use sheen_wire::ldlm::{Cookie, LockId};

/// Top two bits (0, 1) of the handles of intent locks; handles of the engine begin with 1.
pub const INTENT: u64 = 1 << 62;
/// Maximum number of callbacks noted per reply: the number of entries in a directory page. The
/// server repeats a callback that was not noted.
const BLOCKED_MAX: usize = 65_536;

/// Handle range of a request in flight.
pub struct Range {
    count: u64,
    /// Locks of the range that were revoked before the reply arrived.
    pub blocked: Vec<LockId>,
}

impl Range {
    /// Creates a range of `count` handles.
    pub fn new(count: u64) -> Range {
        Range { count, blocked: Vec::new() }
    }

    /// Notes that a lock of the range has been revoked already.
    pub fn blocked(&mut self, id: LockId) {
        if self.blocked.len() < BLOCKED_MAX {
            self.blocked.push(id);
        }
    }
}

/// Whether a handle is that of an intent lock.
pub fn is_intent(cookie: Cookie) -> bool {
    cookie.0 >> 62 == 1
}

/// Returns the handle range of the request in flight that contains the handle.
pub fn range_of(ranges: &mut BTreeMap<u64, Range>, cookie: Cookie) -> Option<&mut Range> {
    let (first, range) = ranges.range_mut(..=cookie.0).next_back()?;
    (cookie.0 - first < range.count).then_some(range)
}
