//! The owner of the MDT's lock table.

use std::sync::{Arc, Weak};

use sheen_rpc::BoxFuture;
use sheen_wire::{
    ldlm::{Kind, LockId, Resource, bits},
    mds,
};

use super::invalidation::{both, drop_lost_pages};
use crate::{
    cache::{Cache, Layouts, data::FileData, is_settled},
    locks::{Flush, Owner},
    mdc::Mdc,
    open::{Closes, OpenFiles},
};

/// Owner of the MDT's lock table.
pub struct MdtLocks {
    cache: Arc<Cache>,
    mdc: Arc<Mdc>,
    files: Arc<OpenFiles>,
    layouts: Arc<Layouts>,
    closes: Arc<Closes>,
}

impl MdtLocks {
    /// Creates the owner of the locks of `mdc`. The caller keeps it as long as the client exists.
    pub fn new(
        cache: &Arc<Cache>,
        mdc: &Arc<Mdc>,
        files: &Arc<OpenFiles>,
        layouts: &Arc<Layouts>,
        closes: &Arc<Closes>,
    ) -> Arc<MdtLocks> {
        let (cache, files, layouts, closes) = (cache.clone(), files.clone(), layouts.clone(), closes.clone());
        let owner = Arc::new(MdtLocks { cache, mdc: mdc.clone(), files, layouts, closes });
        let weak: Weak<MdtLocks> = Arc::downgrade(&owner);
        mdc.locks().set_owner(weak);
        owner
    }

    /// Before LAYOUT is cancelled: sends the pending closes of the file's handles.
    fn send_closes(&self, flush: &Flush) -> Option<BoxFuture<'static, ()>> {
        if flush.bits() & bits::LAYOUT == 0 {
            return None;
        }
        self.closes.send_closes_of(flush.resource.fid)
    }

    /// Before OPEN is cancelled: registers the file at the MDT if it is open only under this lock.
    /// If that fails, the MDT has dropped this client.
    fn register_opens(&self, flush: &Flush) -> Option<BoxFuture<'static, ()>> {
        if flush.bits() & bits::OPEN == 0 {
            return None;
        }
        let fid = flush.resource.fid;
        let registered = self.files.register(self.mdc.import(), fid)?;
        Some(Box::pin(async move {
            if let Err(errno) = registered.await {
                tracing::debug!("{fid}: cannot register the open file at the MDT: {errno}");
            }
        }))
    }

    /// Before LAYOUT is cancelled: drops what it guards. Afterwards another client may give the
    /// file mirrors, or objects where it has none now. So the kernel's pages under this lock are
    /// dropped (holes without objects, pages of mirrored files). If the file is open and its layout
    /// is settled, all its pages are dropped. Until then, reads use the old layout; the MDT gets
    /// the cancel only afterwards.
    fn drop_layout(&self, flush: &Flush) -> Option<BoxFuture<'static, ()>> {
        if flush.bits() & bits::LAYOUT == 0 || flush.deleted {
            return None;
        }
        let (files, fid) = (&self.files, flush.resource.fid);
        self.layouts.forget(fid);
        let data = self.cache.data.get(fid);
        let settled = files.last_layout(fid).is_some_and(|layout| is_settled(&layout));
        let flush =
            |data: &Arc<FileData>| if settled { self.cache.flush_pages(data) } else { self.cache.flush_holes(data) };
        let Some(dropped) = data.and_then(|data| flush(&data)) else {
            files.outdate(fid);
            return None;
        };
        let files = files.clone();
        Some(Box::pin(async move {
            dropped.await;
            files.outdate(fid);
        }))
    }
}

impl Owner for MdtLocks {
    fn drop_cached(&self, flushes: &[Flush]) -> Vec<Option<BoxFuture<'static, ()>>> {
        {
            let mut meta = self.cache.meta.lock();
            flushes.iter().for_each(|flush| meta.drop_bits(flush.resource.fid, flush.bits()));
        }
        let known = |flush: &&Flush| flush.bits() != 0 && !flush.deleted;
        if let Some(kernel) = self.cache.kernel() {
            let lookup = |flush: &Flush| flush.bits() & bits::LOOKUP != 0;
            if kernel.keeps_names() && flushes.iter().filter(known).any(lookup) {
                kernel.names();
            }
        }
        let waits = |flush: &Flush| {
            let attr = if known(&flush) { self.cache.drop_attr(flush.resource.fid) } else { None };
            both(both(attr, self.send_closes(flush)), both(self.register_opens(flush), self.drop_layout(flush)))
        };
        flushes.iter().map(waits).collect()
    }

    fn forgotten(&self, resources: &[Resource]) {
        self.cache.clear_meta();
        if let Some(kernel) = self.cache.kernel() {
            if kernel.keeps_names() && !resources.is_empty() {
                kernel.names();
            }
            resources.iter().for_each(|resource| self.cache.begin_drop_attr(resource.fid));
        }
        for fid in resources.iter().filter(|resource| resource.kind == Kind::Bits).map(|resource| resource.fid) {
            self.files.outdate(fid);
            self.layouts.forget(fid);
            if let Some(data) = self.cache.data.get(fid).filter(|data| data.has_holes()) {
                // On a task, as in `OstLocks`.
                drop(self.cache.rt().spawn("ldlm_invalidate", drop_lost_pages(self.cache.clone(), data.lose(None))));
            }
        }
    }

    fn cancel(&self, ids: Vec<LockId>, converts: Vec<(LockId, u64)>) -> BoxFuture<'static, ()> {
        let import = self.mdc.import().clone();
        Box::pin(async move {
            let call = mds::Call { cancels: ids, converts, ..mds::Request::Cancel.into() };
            // If the request fails, the MDT has dropped this client and its locks.
            let _ = import.request(call).urgent().send().await;
        })
    }
}
