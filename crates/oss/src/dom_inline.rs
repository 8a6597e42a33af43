//! Inline DoM data: all bytes of a small file, which the MDT returns with the lookup of the file's
//! name.
//!
//! The MDT asks its data service for the data on behalf of a client, and saves the client its next
//! requests: the lock on the object, its attributes, its bytes. Invariants:
//! * the lock is the client's, as if the client had enqueued it;
//! * attributes and bytes are read under that lock;
//! * the lookup waits for no lock, and sends no blocking callback.

use std::sync::Arc;

use sheen_lnet::Nid;
use sheen_rpc::Export;
use sheen_wire::{
    Bulk, Fid, Result,
    ldlm::{Cookie, Enqueue, Enqueued, Flags, Mode, Policy, Resource},
    mds::{INLINE_DOM_BYTES_MAX, InlineDom},
    ost::{ObjectAttr, Part},
};

use crate::{
    Ost,
    counters::{Bytes, READ_BYTES},
};

impl Ost {
    /// Takes a PR lock on the whole object for the client with this uuid, under the client's handle
    /// `cookie`. Returns the lock with the object's attributes, and its bytes if they are at most
    /// [`INLINE_DOM_BYTES_MAX`].
    ///
    /// Returns `None` if a lock conflicts, if the client has not enqueued a lock at this service
    /// yet, if the object cannot be read, or in a recovery.
    pub fn inline_dom(&self, client: &str, object: Fid, cookie: Cookie) -> Option<(InlineDom, Bulk)> {
        let _pass = self.gate.enter()?;
        let start = self.rt.now();
        if !self.recovery.is_ended() {
            return None;
        }
        let export = {
            let exports = self.exports.read();
            let is_ready = |export: &&Arc<Export>| export.nid() == Nid::Lo || exports.is_listed(export);
            exports.of_client(client).filter(is_ready)?.clone()
        };
        let whole = Policy::extent(0, u64::MAX);
        let flags = Flags { nowait: true, ..Flags::default() };
        let want = Enqueue { flags, ..Enqueue::new(Resource::extent(object), Mode::Pr, whole, cookie) };
        let Enqueued::Granted { id, .. } = self.locks.lockd().enqueue(&export, &want) else { return None };
        let Ok((attr, bulk, bytes)) = self.whole_object(object) else {
            self.locks.lockd().cancel(&export, &[id]);
            return None;
        };
        self.count(&export, "inline_dom", start, bytes);
        Some((InlineDom { id, object, attr }, bulk))
    }

    /// Returns the object's attributes, and its bytes if they are few enough.
    fn whole_object(&self, object: Fid) -> Result<(ObjectAttr, Bulk, Option<Bytes>)> {
        let attr = self.store.attr(object)?;
        if attr.size == 0 || attr.size > INLINE_DOM_BYTES_MAX {
            return Ok((attr, Bulk::new(), None));
        }
        let (_, bulk) = self.store.read(&[Part { object, offset: 0, len: attr.size as u32 }])?;
        let bytes = (READ_BYTES, bulk.len() as u64);
        Ok((attr, bulk, Some(bytes)))
    }
}
