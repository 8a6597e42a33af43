//! One OST with all that a lov needs of it.

use std::{fmt, sync::Arc};

use sheen_rpc::Recovering;
use sheen_wire::{Errno, Result, ost::Request};

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
    /// Combines the parts. If the OST is restarted or evicts this client, the locks are dropped
    /// first. Then the dirty data under them is flushed before other clients use the
    /// objects, or discarded if they may have used them already.
    pub fn new(osc: Arc<Osc>, writeback: Arc<Writeback>, owner: Arc<dyn Owner>) -> Ost {
        osc.locks().set_owner(Arc::downgrade(&owner));
        let (locks, dirty) = (Arc::downgrade(osc.locks()), Arc::downgrade(&writeback));
        osc.import().on_restart(move |ost| {
            if let Some(locks) = locks.upgrade() {
                locks.forget();
            }
            let dirty = dirty.upgrade();
            Box::pin(async move {
                let is_late = ost.restarted() && is_late(&ost).await?;
                if is_late {
                    ost.count_as_evicted();
                }
                let evicted = ost.evicted() || is_late;
                if let Some(dirty) = dirty {
                    dirty.lost(evicted, ost.welcome().incarnation).await;
                }
                Ok(())
            })
        });
        Ost { osc, writeback, _owner: owner }
    }
}

/// Reports to a restarted OST. Returns whether the OST did not wait for this client. One in this
/// process waits only for others.
async fn is_late(ost: &Recovering<sheen_wire::Ost>) -> Result<bool> {
    match ost.call(Request::Recover).await {
        Ok(_) => Ok(false),
        Err(e) if e.errno() == Errno::ESTALE => Ok(!ost.is_local()),
        Err(e) => Err(e.errno()),
    }
}
