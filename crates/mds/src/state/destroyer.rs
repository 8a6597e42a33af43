//! The signals to the destroyer task ([`crate::destroy`]).

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::sync::Notify;

/// Wakes the destroyer task.
pub(crate) struct Destroyer {
    pub work: Notify,
    /// Whether the next pass begins at the start of the log.
    pub from_start: AtomicBool,
}

impl Destroyer {
    pub fn new() -> Destroyer {
        Destroyer { work: Notify::new(), from_start: AtomicBool::new(true) }
    }

    /// Wakes the destroyer, because there may be new entries.
    pub fn wake(&self) {
        self.work.notify_one();
    }

    /// Makes the destroyer start over, because entries that it skipped may now succeed.
    pub fn rescan(&self) {
        self.from_start.store(true, Relaxed);
        self.work.notify_one();
    }
}
