//! Inline DoM data: a small file on the MDT comes with its lookup, and is read without another
//! request.
//!
//! The reply brings what the client would request next. That is a PR lock on the file's object at
//! the MDT's data service, the attributes of the object, and its bytes if they are few. The client
//! merges the attributes at once. The bytes wait for the read that most likely follows
//! ([`crate::cache::meta::Meta::content`]). After that read the kernel has them.
//!
//! Invariants:
//! * The client requests inline data only while it has no dirty data for the MDT's data service.
//!   Data that becomes dirty later ends as a change by this client, and after a change nothing
//!   enters the cache that was requested before.
//! * The inline data is used only with the layout of the same reply, and with its lock in use.

use std::sync::Arc;

use sheen_layout::{Layout, MDT_OST};
use sheen_wire::{Bulk, Fid, ldlm::Cookie, mds::InlineDom, ost::ObjectAttr};

use crate::{Client, locks::IntentLocks, lov::GlimpseReply, osc::Osc};

/// A request for inline DoM data.
pub(crate) struct Expected {
    osc: Arc<Osc>,
    keeping: IntentLocks,
}

impl Expected {
    /// Returns the handle for its lock.
    pub fn cookie(&self) -> Cookie {
        self.keeping.cookie()
    }
}

/// Inline DoM data from a reply.
#[derive(Clone, Debug)]
pub(crate) struct DomInline {
    attr: ObjectAttr,
    lock: Cookie,
    content: Option<Bulk>,
}

impl DomInline {
    /// Converts to the result of [`crate::lov::Lov::glimpse_files`], with the file's bytes if the
    /// reply had them.
    pub fn seen(self) -> (GlimpseReply, Option<Bulk>) {
        (GlimpseReply { objects: vec![self.attr], locks: Some(vec![self.lock]) }, self.content)
    }
}

impl Client {
    /// Prepares a lookup that brings inline DoM data. `None`: there is no data service on the MDT,
    /// or this client has dirty data that the service lacks.
    pub(crate) fn expect_inline_dom(&self) -> Option<Expected> {
        let osc = self.lov.get(MDT_OST).filter(|ost| ost.writeback.dirty_bytes() == 0)?.osc.clone();
        let keeping = osc.locks().keep(1);
        Some(Expected { osc, keeping })
    }

    /// Takes the inline DoM data of a file from a reply.
    pub(crate) fn take_inline_dom(
        &self,
        expected: Option<Expected>,
        came: Option<(InlineDom, Bulk)>,
        fid: Fid,
        layout: Option<&Layout>,
    ) -> Option<DomInline> {
        let (InlineDom { id, object, attr }, bulk) = came?;
        let Expected { osc, keeping } = expected?;
        let lock = keeping.granted_on(object, id)?;
        self.lov.objects().granted(object, fid);
        let is_all =
            |layout: &&Layout| matches!(layout.stripes(), [only] if (only.ost, only.object) == (osc.index(), object));
        layout.filter(is_all)?;
        let content = (bulk.len() as u64 == attr.size).then_some(bulk);
        Some(DomInline { attr, lock: lock.cookie(), content })
    }

    /// Returns a range of a small file whose bytes came inline or were prefetched.
    pub(crate) fn known_content(&self, layout: &Layout, offset: u64, len: u64) -> Option<Bulk> {
        if layout.stripe_count() != 1 {
            return None;
        }
        let _lock = self.lov.matching(layout, 0)?;
        self.cache.meta.lock().content(layout.fid(), layout.generation(), offset, len)
    }
}
