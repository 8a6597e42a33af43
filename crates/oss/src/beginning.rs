//! What the data service of an MDT says to the MDT itself, in a client's name: all of a small file,
//! to go with the file's name.
//!
//! It is what the client would ask for next: a lock on the object, what the object is, its bytes.
//! Invariants: the lock is the client's, as if it had asked for it; attributes and bytes are looked
//! at under it; nobody is waited for, or called back.

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

/// Clients that have asked for something and are not gone.
#[derive(Default)]
pub(crate) struct Exports {
    ids: FxHashSet<u64>,
    /// By uuid; of a data service alone.
    clients: FxHashMap<String, Arc<Export>>,
}

impl Exports {
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    pub fn has(&self, export: &Export) -> bool {
        self.ids.contains(&export.id())
    }

    /// `found`: it is to be found by its uuid.
    pub fn insert(&mut self, export: &Arc<Export>, found: bool) {
        self.ids.insert(export.id());
        if found {
            self.clients.insert(export.client().to_owned(), export.clone());
        }
    }

    pub fn remove(&mut self, export: &Export) {
        self.ids.remove(&export.id());
        // One that was given up may be back as another.
        if self.clients.get(export.client()).is_some_and(|known| known.id() == export.id()) {
            self.clients.remove(export.client());
        }
    }
}

impl Ost {
    /// A lock (PR) on all of an object for the client of that uuid, under the client's handle
    /// `cookie`, with what the object is; and its bytes, if they are not more than
    /// [`BEGINNING_BYTES_MAX`]. `None`: somebody is in the way, the client has not asked for
    /// anything here yet, or the object cannot be read.
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
