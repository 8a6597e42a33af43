//! The exports that an OST has seen.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use sheen_lnet::Nid;
use sheen_rpc::Export;

/// The connected clients that have sent a request.
#[derive(Default)]
pub(crate) struct Exports {
    ids: FxHashSet<u64>,
    /// Ids of the exports whose clients are on the durable list.
    listed: FxHashSet<u64>,
    /// By client uuid.
    clients: FxHashMap<String, Arc<Export>>,
}

impl Exports {
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    pub fn has(&self, export: &Export) -> bool {
        self.ids.contains(&export.id())
    }

    pub fn insert(&mut self, export: &Arc<Export>) {
        self.ids.insert(export.id());
        self.clients.insert(export.client().to_owned(), export.clone());
    }

    /// Records that the client is on the durable list, unless it has disconnected.
    pub fn listed(&mut self, export: &Export) {
        if self.has(export) {
            self.listed.insert(export.id());
        }
    }

    /// Returns whether the client is on the durable list.
    pub fn is_listed(&self, export: &Export) -> bool {
        self.listed.contains(&export.id())
    }

    /// Returns the ids of the exports whose clients are in this process.
    pub fn local(&self) -> FxHashSet<u64> {
        self.clients.values().filter(|export| export.nid() == Nid::Lo).map(|export| export.id()).collect()
    }

    /// Returns the export of the client with this uuid.
    pub fn of_client(&self, uuid: &str) -> Option<&Arc<Export>> {
        self.clients.get(uuid)
    }

    pub fn remove(&mut self, export: &Export) {
        self.ids.remove(&export.id());
        self.listed.remove(&export.id());
        // An evicted client may have reconnected with another export.
        if self.clients.get(export.client()).is_some_and(|known| known.id() == export.id()) {
            self.clients.remove(export.client());
        }
    }
}
