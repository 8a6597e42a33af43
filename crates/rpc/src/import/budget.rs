//! Memory for the changes that several imports retain.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The memory that imports share. Without a common limit, a client with many targets could retain
/// a multiple of one import's limit.
#[derive(Debug)]
pub struct RetainedBudget {
    used: AtomicUsize,
    max: usize,
}

impl RetainedBudget {
    /// Creates a budget of `max` bytes.
    pub fn new(max: usize) -> RetainedBudget {
        RetainedBudget { used: AtomicUsize::new(0), max }
    }

    pub(super) fn add(&self, bytes: usize) {
        self.used.fetch_add(bytes, Relaxed);
    }

    pub(super) fn sub(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Relaxed);
    }

    /// Whether more than the maximum is used.
    pub(super) fn is_exceeded(&self) -> bool {
        self.used.load(Relaxed) > self.max
    }

    /// Whether more than a half of the maximum is used.
    pub(super) fn is_half_used(&self) -> bool {
        self.used.load(Relaxed) > self.max / 2
    }
}

impl Default for RetainedBudget {
    /// Returns a budget without a limit.
    fn default() -> RetainedBudget {
        RetainedBudget::new(usize::MAX)
    }
}
