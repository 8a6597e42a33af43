//! Small files that lie on the MDT: all of one comes with its name, and is read without another
//! request.
//!
//! What comes is what would be asked for next: a lock (PR) on the file's object at the MDT's data
//! service, what the object is, and its bytes if they are few. The attributes are merged with it at
//! once, the bytes wait for the read that most likely follows
//! ([`crate::cache::meta::Meta::content`]); then the kernel has them.
//!
//! Invariants:
//! * it is asked for only while nothing is kept here that the service does not have: what is kept
//!   later ends as a change of this client does, after which nothing is put in that was asked for
//!   before;
//! * it is taken in only for the layout that came with it, and under its lock in use.

use std::sync::Arc;

use sheen_layout::{Layout, MDT_OST};
use sheen_wire::{Bulk, Fid, ldlm::Cookie, mds::Beginning, ost::ObjectAttr};

use crate::{Client, locks::Keeping, lov::Seen, osc::Osc};

/// A beginning that was asked for.
pub(crate) struct Expected {
    osc: Arc<Osc>,
    keeping: Keeping,
}

impl Expected {
    /// The handle of its lock.
    pub fn cookie(&self) -> Cookie {
        self.keeping.cookie()
    }
}

/// A beginning that came.
#[derive(Clone, Debug)]
pub(crate) struct Came {
    attr: ObjectAttr,
    lock: Cookie,
    content: Option<Bulk>,
}

impl Came {
    /// The same as an answer to [`crate::lov::Lov::look`], and the file's bytes if they came as
    /// well.
    pub fn seen(self) -> (Seen, Option<Bulk>) {
        (Seen { objects: vec![self.attr], locks: Some(vec![self.lock]) }, self.content)
    }
}

impl Client {
    /// What the MDT's data service has of a file is wanted with the file's name. `None`: there is
    /// no such service, or it does not have all.
    pub(crate) fn expect_beginning(&self) -> Option<Expected> {
        let osc = self.lov.get(MDT_OST).filter(|osc| osc.writeback().dirty_bytes() == 0)?;
        let keeping = osc.locks().keep(1);
        Some(Expected { osc, keeping })
    }

    /// Takes in what came of a file.
    pub(crate) fn take_beginning(
        &self,
        expected: Option<Expected>,
        came: Option<(Beginning, Bulk)>,
        fid: Fid,
        layout: Option<&Layout>,
    ) -> Option<Came> {
        let (Beginning { id, object, attr }, bulk) = came?;
        let Expected { osc, keeping } = expected?;
        let lock = keeping.granted_on(object, id)?;
        self.cache.data.own(object, fid);
        self.cache.locked(fid);
        let is_all =
            |layout: &&Layout| matches!(layout.stripes(), [only] if (only.ost, only.object) == (osc.index(), object));
        layout.filter(is_all)?;
        let content = (bulk.len() as u64 == attr.size).then_some(bulk);
        Some(Came { attr, lock: lock.cookie(), content })
    }

    /// A range of a small file whose bytes came with its name, or ahead.
    pub(crate) fn known_content(&self, layout: &Layout, offset: u64, len: u64) -> Option<Bulk> {
        if layout.stripe_count() != 1 {
            return None;
        }
        let _lock = self.lov.matching(layout, 0)?;
        self.cache.meta.lock().content(layout.fid(), layout.generation(), offset, len)
    }
}
