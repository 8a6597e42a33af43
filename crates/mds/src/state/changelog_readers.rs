//! Clients whose readers wait for new records of the changelog.
//!
//! A reader at the end of the changelog asks for a callback. No request is in flight until then, so
//! a reader that waits delays nobody, and a stop of the MDT need not wait for it.
//!
//! Invariants:
//! * A client has at most one entry, whatever the number of its readers, and none once it has
//!   disconnected. So their number is bounded by that of the clients.
//! * An entry is removed with its callback: each request has at most one.

use std::collections::BTreeMap;
use std::sync::Arc;

use sheen_rpc::Export;

/// See the module.
#[derive(Default)]
pub(crate) struct ChangelogReaders {
    /// By number of the export.
    waiting: BTreeMap<u64, Reader>,
}

struct Reader {
    export: Arc<Export>,
    /// Lowest number of a record for which a reader of the client waits.
    start: u64,
}

impl ChangelogReaders {
    /// Adds a client that waits for record `start`. To be called with the lock held with which
    /// [`ChangelogReaders::remove`] is called.
    pub fn add(&mut self, export: &Arc<Export>, start: u64) {
        if export.is_ended() {
            return;
        }
        let reader = self.waiting.entry(export.id()).or_insert_with(|| Reader { export: export.clone(), start });
        reader.start = reader.start.min(start);
    }

    /// Removes a client that has disconnected.
    pub fn remove(&mut self, export: &Export) {
        self.waiting.remove(&export.id());
    }

    /// Takes the clients that wait for a record up to this one.
    #[must_use]
    pub fn take_up_to(&mut self, last: u64) -> Vec<Arc<Export>> {
        self.waiting.extract_if(.., |_, reader| reader.start <= last).map(|(_, reader)| reader.export).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheen_lnet::Nid;

    #[test]
    fn reader_is_taken_once_its_record_is_durable_or_its_client_disconnects() {
        let exports: Vec<Arc<Export>> = (1..=3).map(|id| Export::new(&format!("c{id}"), id, 0, Nid::Lo)).collect();
        let mut readers = ChangelogReaders::default();
        for (export, start) in [(0, 7), (0, 5), (0, 9), (1, 6), (2, 5)] {
            readers.add(&exports[export], start);
        }
        readers.remove(&exports[2]);
        let mut taken = |last| readers.take_up_to(last).iter().map(|export| export.id()).collect::<Vec<_>>();
        assert!(taken(4).is_empty());
        assert_eq!(taken(5), [1], "the lowest of its numbers");
        assert_eq!(taken(100), [2]);
        assert!(taken(u64::MAX).is_empty());
        exports[0].evict("in a test");
        readers.add(&exports[0], 1);
        assert!(readers.take_up_to(u64::MAX).is_empty(), "it has disconnected");
    }
}
