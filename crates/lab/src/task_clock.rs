//! The clock of the tasks of a run. All processes of a host read the same one. A task on another
//! host adds the difference from that of the parent's host.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds that the parent's clock is ahead of this host's.
static AHEAD: AtomicI64 = AtomicI64::new(0);

/// Returns the time in nanoseconds since a moment that all tasks share.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    (time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64).wrapping_add_signed(AHEAD.load(Relaxed))
}

/// Sets how much the parent's clock is ahead of this host's, in nanoseconds.
pub fn set_ahead(ahead: i64) {
    AHEAD.store(ahead, Relaxed);
}
