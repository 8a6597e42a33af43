//! Guarded requests for which a client first does something else, such as another request.

use sheen_wire::Protocol;

use super::Import;

/// A guarded request that is being prepared or sent. It counts as under way
/// ([`Import::guarded_requests_end`]) until this is dropped.
pub struct Preparation<'a, P: Protocol> {
    import: &'a Import<P>,
    id: u64,
    evictions: u64,
}

impl<P: Protocol> Import<P> {
    /// Begins to prepare a guarded request.
    pub fn prepare(&self) -> Preparation<'_, P> {
        let mut link = self.inner.link.lock();
        Preparation { import: self, id: link.begin_preparation(), evictions: link.evictions() }
    }
}

impl<P: Protocol> Preparation<'_, P> {
    /// Returns whether the target has not evicted the client since. Otherwise the lock is lost,
    /// without which the request is not valid.
    pub fn is_valid(&self) -> bool {
        self.import.inner.link.lock().evictions() == self.evictions
    }
}

impl<P: Protocol> Drop for Preparation<'_, P> {
    fn drop(&mut self) {
        self.import.inner.link.lock().end_preparation(self.id);
    }
}
