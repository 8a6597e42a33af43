//! Evictions of this client by OSTs. The MDT lets them evict a client that it has evicted itself.
//! So after one, the locks of the MDT are in doubt, until the MDT has answered a request. Programs
//! may have lost group locks.

use std::{
    fmt,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

/// Called at each eviction, with their number. Makes all layouts invalid. Then asks the MDT for an
/// answer, and calls [`Evictions::confirm`].
pub type Ask = Box<dyn Fn(u64) + Send + Sync>;

/// The evictions of a mount by its OSTs.
#[derive(Default)]
pub struct Evictions {
    count: AtomicU64,
    /// Number of evictions after which the MDT has answered.
    confirmed: AtomicU64,
    group_losses: AtomicU64,
    discards: AtomicU64,
    ask: OnceLock<Ask>,
}

impl fmt::Debug for Evictions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Evictions({})", self.count())
    }
}

impl Evictions {
    /// Sets the function that is called at each eviction. Only the first call has an effect.
    pub fn ask_with(&self, ask: Ask) {
        let _ = self.ask.set(ask);
    }

    /// Records that an OST has evicted this client.
    pub fn note(&self) {
        let count = self.count.fetch_add(1, SeqCst) + 1;
        if let Some(ask) = self.ask.get() {
            ask(count);
        }
    }

    /// Returns the number of evictions.
    pub fn count(&self) -> u64 {
        self.count.load(SeqCst)
    }

    /// Records that group locks of programs may have been lost. Call it after the loss.
    pub fn note_group_loss(&self) {
        self.group_losses.fetch_add(1, SeqCst);
    }

    /// Returns how often group locks of programs may have been lost. A lock that was granted later
    /// was not among them.
    pub fn group_losses(&self) -> u64 {
        self.group_losses.load(SeqCst)
    }

    /// Records that an OST has made the stored pages of mappings invalid. Call it after they are
    /// marked. Returns the number of such records.
    pub fn note_discard(&self) -> u64 {
        self.discards.fetch_add(1, SeqCst) + 1
    }

    /// Returns how often OSTs have made stored pages of mappings invalid.
    pub fn discards(&self) -> u64 {
        self.discards.load(SeqCst)
    }

    /// Returns whether the locks of the MDT are in doubt.
    pub fn is_unsure(&self) -> bool {
        self.confirmed.load(SeqCst) != self.count()
    }

    /// Records that the MDT has answered a request that was sent after this number of evictions.
    pub fn confirm(&self, count: u64) {
        self.confirmed.fetch_max(count, SeqCst);
    }
}
