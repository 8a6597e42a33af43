//! One OST with all that a lov needs of it.

use std::{fmt, sync::Arc};

use crate::{locks::Owner, osc::Osc, writeback::Writeback};

/// An OST: the requests to it, and the write-back cache of data for it.
pub struct Ost {
    /// Requests, and the locks held from the OST.
    pub osc: Arc<Osc>,
    /// Data that is not yet on the OST.
    pub writeback: Arc<Writeback>,
    /// Owner of the lock table, which holds only a Weak to it.
    _owner: Arc<dyn Owner>,
}

impl fmt::Debug for Ost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.osc.fmt(f)
    }
}

impl Ost {
    /// Combines the parts. If the OST is restarted or evicts this client, drops the locks held from
    /// it first, and then handles the dirty data under them.
    pub fn new(osc: Arc<Osc>, writeback: Arc<Writeback>, owner: Arc<dyn Owner>) -> Ost {
        osc.locks().set_owner(Arc::downgrade(&owner));
        let (locks, dirty) = (Arc::downgrade(osc.locks()), Arc::downgrade(&writeback));
        osc.import().on_restart(move |ost| {
            if let Some(locks) = locks.upgrade() {
                locks.forget();
            }
            let dirty = dirty.upgrade();
            Box::pin(async move {
                if let Some(dirty) = dirty {
                    dirty.lost(ost.evicted()).await;
                }
                Ok(())
            })
        });
        Ost { osc, writeback, _owner: owner }
    }
}
