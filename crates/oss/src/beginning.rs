//! Inline DoM data: all bytes of a small file, which the MDT returns with the lookup of the file's
//! name.
//!
//! The MDT asks its data service for the data on behalf of a client, and saves the client its next
//! requests: the lock on the object, its attributes, its bytes. Invariants:
//! * the lock is the client's, as if the client had enqueued it;
//! * attributes and bytes are read under that lock;
//! * the lookup waits for no lock, and sends no blocking callback.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use sheen_rpc::Export;
use sheen_wire::{
    Bulk, Fid, Result,
    ldlm::{Cookie, Enqueue, Enqueued, Flags, Mode, Policy, Resource},
    mds::{BEGINNING_BYTES_MAX, Beginning},
    ost::{ObjectAttr, Part},
};

use crate::{Ost, service::READ_BYTES};

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

    /// Adds an export. `found`: [`Ost::beginning`] must find it by its uuid.
    pub fn insert(&mut self, export: &Arc<Export>, found: bool) {
        self.ids.insert(export.id());
        if found {
            self.clients.insert(export.client().to_owned(), export.clone());
        }
    }

    pub fn remove(&mut self, export: &Export) {
        self.ids.remove(&export.id());
        // An evicted client may have reconnected with another export.
        if self.clients.get(export.client()).is_some_and(|known| known.id() == export.id()) {
            self.clients.remove(export.client());
        }
    }
}

impl Ost {
    /// Takes a PR lock on the whole object for the client with this uuid, under the client's handle
    /// `cookie`. Returns the lock with the object's attributes, and its bytes if they are at most
    /// [`BEGINNING_BYTES_MAX`].
    ///
    /// Returns `None` if a lock conflicts, if the client has not sent a request to this service
    /// yet, or if the object cannot be read.
    pub fn beginning(&self, client: &str, object: Fid, cookie: Cookie) -> Option<(Beginning, Bulk)> {
        let _pass = self.gate.enter()?;
        let start = self.rt.now();
        let export = self.exports.read().clients.get(client)?.clone();
        let whole = Policy::extent(0, u64::MAX);
        let flags = Flags { nowait: true, ..Flags::default() };
        let want = Enqueue { flags, ..Enqueue::new(Resource::extent(object), Mode::Pr, whole, cookie) };
        let Enqueued::Granted { id, .. } = self.locks.lockd().enqueue(&export, &want) else { return None };
        let Ok((attr, bulk)) = self.whole_object(object) else {
            self.locks.lockd().cancel(&export, &[id]);
            return None;
        };
        self.stats.record("beginning", self.rt.now().since(start).as_micros() as u64);
        Some((Beginning { id, object, attr }, bulk))
    }

    fn whole_object(&self, object: Fid) -> Result<(ObjectAttr, Bulk)> {
        let attr = self.store.attr(object)?;
        if attr.size == 0 || attr.size > BEGINNING_BYTES_MAX {
            return Ok((attr, Bulk::new()));
        }
        let (_, bulk) = self.store.read(&[Part { object, offset: 0, len: attr.size as u32 }])?;
        self.stats.record_at(READ_BYTES, bulk.len() as u64);
        Ok((attr, bulk))
    }
}
