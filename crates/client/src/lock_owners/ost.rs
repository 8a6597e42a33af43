//! The owner of an OST's lock table.

use std::sync::Arc;

use rustc_hash::FxHashSet;
use sheen_rpc::BoxFuture;
use sheen_wire::{
    ldlm::{Kind, LockId, Policy, Resource},
    ost,
};

use super::invalidation::{both, drop_lost_pages};
use crate::{
    cache::Cache,
    locks::{Flush, Owner},
    lov::LockedObjects,
    osc::Osc,
    writeback::Writeback,
};

/// Owner of an OST's lock table.
pub struct OstLocks {
    cache: Arc<Cache>,
    objects: Arc<LockedObjects>,
    osc: Arc<Osc>,
    writeback: Arc<Writeback>,
}

impl OstLocks {
    /// Creates the owner of the locks of `osc`. `objects`: the mount's locked objects.
    pub fn new(
        cache: &Arc<Cache>,
        objects: &Arc<LockedObjects>,
        osc: &Arc<Osc>,
        writeback: &Arc<Writeback>,
    ) -> Arc<OstLocks> {
        let (cache, objects) = (cache.clone(), objects.clone());
        Arc::new(OstLocks { cache, objects, osc: osc.clone(), writeback: writeback.clone() })
    }

    /// Drops the size and the pages that a lock on a whole object guards.
    fn drop_object(&self, resource: Resource) -> Option<BoxFuture<'static, ()>> {
        let fid = self.objects.file_of(resource.fid)?;
        let sizes = self.cache.drop_sizes(fid);
        self.objects.revoked(fid);
        let file = self.cache.data.get(fid);
        let waits = file.and_then(|file| self.cache.flush_locked_pages(&file, self.osc.index()));
        let all = Policy::extent(0, u64::MAX);
        if !self.osc.locks().covered(resource, &all) {
            self.objects.remove(resource.fid);
            self.cache.data.tidy(fid);
        }
        both(sizes, waits)
    }
}

impl Owner for OstLocks {
    fn drop_cached(&self, flushes: &[Flush]) -> Vec<Option<BoxFuture<'static, ()>>> {
        let drop_one = |flush: &Flush| {
            // Flush dirty data while the kernel drops its pages.
            let written = self.writeback.flush_later(flush.resource.fid, flush.policy.range());
            // Sizes and pages are cached only under locks on whole objects.
            let whole = flush.policy.contains(&Policy::extent(0, u64::MAX));
            let dropped = if whole { self.drop_object(flush.resource) } else { None };
            both(written, dropped)
        };
        flushes.iter().map(drop_one).collect()
    }

    fn doomed(&self, resource: Resource) {
        self.writeback.discard(resource.fid);
    }

    fn glimpsed(&self, id: LockId, resource: Resource) -> BoxFuture<'static, ()> {
        let (import, answers) = (self.osc.import().clone(), vec![(id, self.writeback.attr(resource.fid))]);
        Box::pin(async move {
            // If the request fails, the OST repeats the glimpse.
            let _ = import.request(ost::Request::Glimpsed { answers }).urgent().send().await;
        })
    }

    fn forgotten(&self, resources: &[Resource]) {
        let mut done = FxHashSet::default();
        for resource in resources.iter().filter(|r| r.kind == Kind::Extent) {
            let Some(fid) = self.objects.file_of(resource.fid) else { continue };
            if done.insert(fid) {
                self.cache.go_on(self.cache.drop_sizes(fid));
                if let Some(file) = self.cache.data.get(fid) {
                    // On a task: the kernel may wait for reads that wait for this OST.
                    let losing = file.lose(Some(self.osc.index()));
                    drop(self.cache.rt().spawn("ldlm_invalidate", drop_lost_pages(self.cache.clone(), losing)));
                }
            }
            self.objects.remove(resource.fid);
            self.cache.data.tidy(fid);
        }
    }

    fn discard_stored(&self) {
        self.cache.data.discard_stored(self.osc.index());
    }

    // Extent locks have no bits, so there are no converts.
    fn cancel(&self, ids: Vec<LockId>, _: Vec<(LockId, u64)>) -> BoxFuture<'static, ()> {
        let import = self.osc.import().clone();
        Box::pin(async move {
            // If the request fails, the OST has dropped this client and its locks.
            let _ = import.request(ost::Request::Cancel { locks: ids }).urgent().send().await;
        })
    }
}
