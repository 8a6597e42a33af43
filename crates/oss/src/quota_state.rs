//! The state of an OST's quotas, beside that of its store.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use sheen_rt::Instant;

/// The state.
#[derive(Debug, Default)]
pub(crate) struct QuotaState {
    /// Export ids of the MDTs that have asked.
    pub exports: Mutex<FxHashSet<u64>>,
    /// Number of the last `QuotaWait`. Earlier ones end: their replies may find nobody.
    pub waits: AtomicU64,
    pub is_stopping: AtomicBool,
    /// Until then writes do not wait for the MDT, which has not answered, in nanoseconds.
    silent_until: AtomicU64,
}

impl QuotaState {
    /// Records that the MDT has not answered: until `end` no write waits for it.
    pub fn be_silent(&self, end: Instant) {
        self.silent_until.store(end.as_nanos(), SeqCst);
    }

    /// Records that the MDT has sent an answer.
    pub fn hear(&self) {
        self.silent_until.store(0, SeqCst);
    }

    /// Whether the MDT has left a question without an answer lately.
    pub fn is_silent(&self, now: Instant) -> bool {
        now.as_nanos() < self.silent_until.load(SeqCst)
    }
}
