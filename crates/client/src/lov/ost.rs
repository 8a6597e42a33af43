//! One OST with all that a lov needs of it.

use std::{fmt, sync::Arc};

use super::{
    evictions::Evictions,
    replay::{Return, recover},
};
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
    /// first. Then changes are replayed that the OST may have lost, and the dirty data under the
    /// locks is flushed before other clients use the objects. If others may have used them already,
    /// the dirty data is discarded.
    pub fn new(osc: Arc<Osc>, writeback: Arc<Writeback>, owner: Arc<dyn Owner>, evictions: &Arc<Evictions>) -> Ost {
        osc.locks().set_owner(Arc::downgrade(&owner));
        let evictions = evictions.clone();
        let (locks, dirty) = (Arc::downgrade(osc.locks()), Arc::downgrade(&writeback));
        let presented = osc.presented().clone();
        osc.import().on_restart(move |ost| {
            if ost.evicted() {
                evictions.note();
            }
            if let Some(locks) = locks.upgrade() {
                locks.forget();
            }
            let (dirty, evictions, presented) = (dirty.upgrade(), evictions.clone(), presented.clone());
            presented.forget();
            Box::pin(async move {
                let returned = if ost.restarted() { recover(&ost, &presented).await? } else { Return::Complete };
                let is_late = matches!(returned, Return::Late);
                if is_late {
                    evictions.note();
                    ost.count_as_evicted();
                }
                let evicted = ost.evicted() || is_late;
                if let Some(dirty) = dirty {
                    match returned {
                        Return::Late => dirty.not_retained(),
                        Return::Replayed(survival) => dirty.survived(&survival),
                        Return::Complete => {}
                    }
                    dirty.lost(evicted, ost.welcome().incarnation).await;
                }
                Ok(())
            })
        });
        Ost { osc, writeback, _owner: owner }
    }
}
