//! The caches of a mount together, and the invalidation of the kernel's.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use parking_lot::Mutex;
use sheen_rpc::BoxFuture;
use sheen_rt::{Instant, Rt};
use sheen_wire::Fid;

use super::{
    data::{DataCache, FileData, Flushed, Losing},
    hits::Hits,
    meta::{Meta, Token},
};
use crate::{invalidate::Invalidate, lov::LockedObjects};

/// How long nothing is cached after a change with unknown outcome, whose request may still be in
/// transit. Somewhat longer than a request may live (the import's recovery timeout).
const UNSURE_FOR: Duration = Duration::from_secs(120);
/// Poll interval, and maximum wait, for a reply that is in transit to the kernel. The kernel thread
/// processes its reply as soon as it runs.
const ATTR_PAUSE: Duration = Duration::from_millis(1);
const ATTR_WAIT_MAX: Duration = Duration::from_secs(2);

/// Pause before an invalidation that ended early because of reads is repeated.
const FLUSH_AGAIN_PAUSE: Duration = Duration::from_millis(10);

/// The caches of a mount.
pub struct Cache {
    rt: Rt,
    /// The cache outside the client that is invalidated together with these.
    kernel: OnceLock<Arc<dyn Invalidate>>,
    pub(crate) meta: Mutex<Meta>,
    pub(crate) data: DataCache,
    /// Time until which nothing is cached.
    unsure_until: Mutex<Option<Instant>>,
    pub(crate) hits: Hits,
}

impl Cache {
    /// Creates empty caches for at most `inodes_max` inodes, and for data under locks on `objects`.
    pub fn new(rt: &Rt, inodes_max: usize, objects: &Arc<LockedObjects>) -> Arc<Cache> {
        Arc::new(Cache {
            rt: rt.clone(),
            kernel: OnceLock::new(),
            meta: Mutex::new(Meta::new(inodes_max)),
            data: DataCache::new(objects),
            unsure_until: Mutex::new(None),
            hits: Hits::default(),
        })
    }

    /// Sets the kernel, whose caches are to be invalidated; call it once.
    pub fn set_kernel(&self, kernel: Arc<dyn Invalidate>) {
        if self.kernel.set(kernel).is_err() {
            tracing::error!("a mount can have only one kernel: ignored a second one, which is not invalidated");
        }
    }

    /// Returns the kernel whose caches are invalidated.
    pub fn kernel(&self) -> Option<&Arc<dyn Invalidate>> {
        self.kernel.get()
    }

    /// Returns the runtime.
    pub fn rt(&self) -> &Rt {
        &self.rt
    }

    /// Returns a token to cache the reply of a request. Take it before the request is sent. `None`:
    /// nothing may be cached at present.
    pub fn token(&self) -> Option<Token> {
        let mut until = self.unsure_until.lock();
        if let Some(at) = *until {
            if self.rt.now() < at {
                return None;
            }
            *until = None;
        }
        drop(until);
        Some(self.meta.lock().token())
    }

    /// Handles a change with unknown outcome: drops all metadata, and caches nothing for a while.
    pub(super) fn unsure(&self) {
        *self.unsure_until.lock() = Some(self.rt.now() + UNSURE_FOR);
        self.meta.lock().clear();
    }

    /// Drops all cached metadata.
    pub fn clear_meta(&self) {
        self.meta.lock().clear();
    }

    /// Drops the kernel's pages of a file, unless it has none. Returns the invalidation to await.
    /// If it ends early, another one follows in the background.
    pub fn flush_pages(self: &Arc<Cache>, file: &Arc<FileData>) -> Option<BoxFuture<'static, ()>> {
        self.flush_for(file, None)
    }

    /// As [`Cache::flush_pages`], before locks of this OST are cancelled. If the OST evicts this
    /// client meanwhile, the pages that programs stored into are discarded.
    pub fn flush_locked_pages(self: &Arc<Cache>, file: &Arc<FileData>, ost: u32) -> Option<BoxFuture<'static, ()>> {
        self.flush_for(file, Some(ost))
    }

    fn flush_for(self: &Arc<Cache>, file: &Arc<FileData>, ost: Option<u32>) -> Option<BoxFuture<'static, ()>> {
        if !file.begin_flush() {
            return None;
        }
        let losing = file.lose(ost);
        let (cache, file) = (self.clone(), file.clone());
        Some(Box::pin(async move {
            match file.flush(&cache.rt, cache.kernel()).await {
                Flushed::Complete => cache.end_loss(losing).await,
                early => drop(cache.rt.spawn("ldlm_invalidate", cache.clone().flush_again(losing, early))),
            }
        }))
    }

    /// Drops the kernel's pages of a file whose locks were lost, however long the kernel takes.
    pub async fn flush_lost_pages(self: Arc<Cache>, losing: Losing) {
        let is_begun = losing.file.begin_flush();
        let flushed = if is_begun { losing.file.flush(&self.rt, self.kernel()).await } else { Flushed::Complete };
        self.flush_again(losing, flushed).await;
    }

    /// Ends an invalidation. The kernel keeps a page whose write failed, so discarded pages are
    /// dropped once more.
    async fn end_loss(&self, losing: Losing) {
        let fid = losing.file.fid();
        if losing.discards()
            && let Some(kernel) = self.kernel().cloned()
        {
            self.rt.run_blocking(move || kernel.data(fid)).await;
        }
        drop(losing);
        self.data.tidy(fid);
    }

    /// Drops the pages that an invalidation left when it ended early. No lock guards these pages.
    /// New reads are locked meanwhile, so the unlocked ones come to an end.
    async fn flush_again(self: Arc<Cache>, losing: Losing, mut flushed: Flushed) {
        let file = losing.file.clone();
        loop {
            match flushed {
                Flushed::Complete => break,
                Flushed::Unlocked => self.rt.sleep(FLUSH_AGAIN_PAUSE).await,
                Flushed::Blocked(dropped) => dropped.await,
            }
            file.unlocked_reads_end().await;
            if !file.begin_flush() {
                break;
            }
            flushed = file.flush(&self.rt, self.kernel()).await;
        }
        self.end_loss(losing).await;
    }

    /// Drops the kernel's pages of a file like [`Cache::flush_pages`], if some are cached under the
    /// LAYOUT lock.
    pub fn flush_holes(self: &Arc<Cache>, file: &Arc<FileData>) -> Option<BoxFuture<'static, ()>> {
        if file.has_holes() { self.flush_pages(file) } else { None }
    }

    /// Drops the merged attributes of a file, which include those of its objects, and invalidates
    /// the kernel's as [`Cache::drop_attr`] does.
    pub fn drop_sizes(&self, fid: Fid) -> Option<BoxFuture<'static, ()>> {
        self.meta.lock().unmerge(fid);
        self.drop_attr(fid)
    }

    /// Invalidates a file's attributes in the kernel. Returns a future if a reply with these
    /// attributes may still be in transit to the kernel; it repeats the invalidation until it
    /// succeeds.
    pub fn drop_attr(&self, fid: Fid) -> Option<BoxFuture<'static, ()>> {
        let kernel = self.kernel().filter(|kernel| !kernel.attr(fid))?.clone();
        let rt = self.rt.clone();
        Some(Box::pin(async move {
            let until = rt.now() + ATTR_WAIT_MAX;
            while !kernel.attr(fid) {
                if rt.now() >= until {
                    tracing::warn!("{fid}: the kernel did not process a reply in time: its attributes may be outdated");
                    break;
                }
                rt.sleep(ATTR_PAUSE).await;
            }
        }))
    }

    /// Makes the kernel request a file's attributes until a truncate by this client has ended.
    /// Otherwise a program that has seen the new size might see the cached one afterwards. The
    /// kernel stores no attributes during a truncate, so a reply in transit does no harm.
    pub fn begin_truncate(&self, fid: Fid) {
        if let Some(kernel) = self.kernel() {
            kernel.attr(fid);
        }
    }

    /// Invalidates a file's attributes like [`Cache::drop_attr`], in the background.
    pub fn begin_drop_attr(&self, fid: Fid) {
        self.go_on(self.drop_attr(fid));
    }

    /// Waits for an invalidation in the background.
    pub fn go_on(&self, dropped: Option<BoxFuture<'static, ()>>) {
        if let Some(dropped) = dropped {
            drop(self.rt.spawn("ldlm_invalidate", dropped));
        }
    }
}
