//! The number of connections that a process has accepted and not closed.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Counts accepted connections.
#[derive(Default)]
pub(crate) struct Accepted(Arc<AtomicUsize>);

/// One accepted connection, counted until this is dropped.
pub(crate) struct Counted(Arc<AtomicUsize>);

impl Accepted {
    /// Counts one more connection, if there are fewer than `max`.
    pub(crate) fn count(&self, max: usize) -> Option<Counted> {
        let counted = Counted(self.0.clone());
        // Dropping the guard decrements the counter, also if this connection is one too many.
        (self.0.fetch_add(1, Ordering::AcqRel) < max).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
