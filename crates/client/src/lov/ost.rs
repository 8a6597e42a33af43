//! One OST with all that a lov needs of it.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use super::{
    evictions::Evictions,
    regroup::regroup,
    replay::{Return, recover},
};
use crate::{
    locks::{LockTable, Owner},
    osc::Osc,
    writeback::{Reception, Writeback},
};

/// An OST: the requests to it, and the write-back cache of data for it.
pub struct Ost {
    /// Requests, and the locks held from the OST.
    pub osc: Arc<Osc>,
    /// Data that is not yet on the OST.
    pub writeback: Arc<Writeback>,
    /// Count of `Evictions::discards` after the OST last made stored pages invalid.
    discarded: Arc<AtomicU64>,
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
    /// first. Then changes are replayed that the OST may have lost, and group locks of programs are
    /// taken again. The dirty data under the locks is flushed before other clients use the objects.
    /// If others may have used them already, the dirty data and the stored pages of mappings are
    /// discarded, and the group locks are lost.
    pub fn new(osc: Arc<Osc>, writeback: Arc<Writeback>, owner: Arc<dyn Owner>, evictions: &Arc<Evictions>) -> Ost {
        osc.locks().set_owner(Arc::downgrade(&owner));
        let evictions = evictions.clone();
        let (locks, dirty) = (Arc::downgrade(osc.locks()), Arc::downgrade(&writeback));
        let (presented, discarded) = (osc.presented().clone(), Arc::new(AtomicU64::new(0)));
        let last_discarded = discarded.clone();
        osc.import().on_restart(move |ost| {
            if ost.evicted() {
                evictions.note();
            }
            let locks = locks.upgrade();
            match &locks {
                Some(locks) if ost.evicted() => {
                    locks.forget();
                    evictions.note_group_loss();
                }
                Some(locks) => locks.forget_all_but_groups(),
                None => {}
            }
            let (dirty, evictions, presented) = (dirty.upgrade(), evictions.clone(), presented.clone());
            presented.forget();
            let discarded = last_discarded.clone();
            Box::pin(async move {
                let returned = if ost.restarted() { recover(&ost, &presented).await? } else { Return::Complete };
                let is_late = matches!(returned, Return::Late);
                if is_late {
                    evictions.note();
                    ost.count_as_evicted();
                }
                let reception = match returned {
                    _ if ost.evicted() || is_late => Reception::Evicted,
                    Return::Unawaited => Reception::Unawaited,
                    _ => Reception::Awaited,
                };
                if let Some(dirty) = &dirty {
                    match returned {
                        Return::Late => dirty.not_retained(),
                        Return::Replayed(survival) => dirty.survived(&survival),
                        Return::Unawaited | Return::Complete => {}
                    }
                }
                if let Some(locks) = locks {
                    if reception == Reception::Evicted {
                        locks.discard_stored();
                        discarded.store(evictions.note_discard(), SeqCst);
                    }
                    let lost = match reception {
                        Reception::Awaited => regroup(&ost, &locks, &presented).await?,
                        _ => lose_groups(&locks),
                    };
                    if lost > 0 {
                        evictions.note_group_loss();
                        tracing::error!(
                            "{}: the restarted OST did not grant {lost} group locks again: reads and writes of \
                             their members fail with EIO until they leave the group",
                            ost.target()
                        );
                    }
                }
                if let Some(dirty) = dirty {
                    dirty.lost(reception, ost.welcome().incarnation).await;
                }
                Ok(())
            })
        });
        Ost { osc, writeback, discarded, _owner: owner }
    }

    /// Whether the OST has made stored pages invalid since `Evictions::discards` returned this
    /// number.
    pub fn has_discarded_since(&self, discards: u64) -> bool {
        self.discarded.load(SeqCst) > discards
    }
}

/// Drops the group locks of before a restart. Returns their number.
fn lose_groups(locks: &LockTable) -> usize {
    let lost = locks.ungranted();
    locks.lose(lost.iter().map(|(_, held)| held.cookie));
    lost.len()
}
