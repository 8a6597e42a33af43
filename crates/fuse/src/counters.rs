//! Counters of one channel to the kernel, and what a refused reply means.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::io::Errno as Os;
use sheen_wire::Errno;

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

    /// Counts a sent reply and returns whether the kernel accepted it. A refusal is normal if the
    /// request was aborted or the mount has ended.
    pub(crate) fn settle(&self, unique: u64, result: Result<(), Errno>) -> bool {
        match result {
            Ok(()) => self.replies.fetch_add(1, Relaxed),
            Err(e) => {
                if e != Errno::ENOENT && !is_unmounted(e) {
                    // The request has ended with EIO.
                    tracing::warn!(unique, errno = e.0, "the kernel refused a reply: {e}; the request ended with EIO");
                }
                self.lost_replies.fetch_add(1, Relaxed)
            }
        };
        result.is_ok()
    }
}

/// Whether the error of a reply means that the mount has ended.
pub(crate) fn is_unmounted(e: Errno) -> bool {
    // EPERM: the channel was never mounted or is already torn down.
    matches!(e, Errno::ENODEV | Errno::ENOTCONN | Errno::EPERM) || e.0 == Os::CONNABORTED.raw_os_error()
}
