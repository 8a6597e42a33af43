//! The exports that an OST has seen.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use sheen_rpc::Export;

/// The connected clients that have sent a request.
#[derive(Default)]
pub(crate) struct Exports {
    ids: FxHashSet<u64>,
    /// By client uuid; filled only for the data service of an MDT.
    clients: FxHashMap<String, Arc<Export>>,
}

impl Exports {
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    pub fn has(&self, export: &Export) -> bool {
        self.ids.contains(&export.id())
    }

    /// Adds an export. `found`: [`Exports::of_client`] must find it.
    pub fn insert(&mut self, export: &Arc<Export>, found: bool) {
        self.ids.insert(export.id());
        if found {
            self.clients.insert(export.client().to_owned(), export.clone());
        }
    }

    /// Returns the export of the client with this uuid, if it was inserted to be found.
    pub fn of_client(&self, uuid: &str) -> Option<&Arc<Export>> {
        self.clients.get(uuid)
    }

    pub fn remove(&mut self, export: &Export) {
        self.ids.remove(&export.id());
        // An evicted client may have reconnected with another export.
        if self.clients.get(export.client()).is_some_and(|known| known.id() == export.id()) {
            self.clients.remove(export.client());
        }
    }
}
