//! Counters of one channel to the kernel.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of one channel.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) requests: AtomicU64,
    pub(crate) replies: AtomicU64,
    pub(crate) lost_replies: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    pub(crate) bytes_copied: AtomicU64,
    pub(crate) bytes_spliced: AtomicU64,
}

impl Counters {
    /// Counts a message of the kernel.
    pub(crate) fn message(&self, bytes: usize) {
        self.requests.fetch_add(1, Relaxed);
        self.bytes_in.fetch_add(bytes as u64, Relaxed);
    }
}
