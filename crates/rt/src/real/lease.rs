//! The lease of this process: the time until which it may serve and change files.
//!
//! A process that was halted cannot know how long. So each change of a file, and each sync, first
//! looks at the clock. One system call remains unprotected: the process may be halted between the
//! look and the call.

use std::{
    io,
    sync::{
        OnceLock,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Release},
        },
    },
};

use rustix::time::{ClockId, clock_gettime};

use crate::time::Instant;

/// The lease.
#[derive(Default)]
pub(crate) struct Lease {
    /// Nanoseconds of its end, by [`boot_time`]. 0: there is none, so nothing ends.
    end: AtomicU64,
    /// Called before a change of a file fails because of the end.
    ended: OnceLock<fn()>,
}

impl Lease {
    /// Replaces the end. `ended`: that of the first call stays.
    pub(crate) fn set(&self, end: Instant, ended: fn()) {
        let _ = self.ended.set(ended);
        self.end.store(end.as_nanos(), Release);
    }

    /// Whether the process may still serve.
    pub(crate) fn holds(&self) -> bool {
        match self.end.load(Acquire) {
            0 => true,
            end => boot_time() < Instant::from_nanos(end),
        }
    }

    /// To be called just before a change of a file, or a sync.
    ///
    /// # Errors
    /// `TimedOut`: the lease has ended.
    pub(crate) fn check(&self) -> io::Result<()> {
        if self.holds() {
            return Ok(());
        }
        if let Some(ended) = self.ended.get() {
            ended();
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "the lease of this process has ended"))
    }
}

/// Returns the time since the boot of the host. It includes the time for which the host was
/// suspended.
pub(crate) fn boot_time() -> Instant {
    let t = clock_gettime(ClockId::Boottime);
    Instant::from_nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}
