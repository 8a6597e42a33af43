//! The OSTs of a file system, and requests to them by index.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::RwLock;
use sheen_layout::{Layout, MDT_OST};
use sheen_rt::Rt;
use sheen_wire::{Bulk, Errno, Fid, mgs::TARGETS_MAX, ost};
use tokio::sync::Notify;

use super::{evictions::Evictions, known_ends::KnownEnds, locked_objects::LockedObjects, ost::Ost};
use crate::{
    failure::Result,
    limits::{BYTES_PER_RPC_DEFAULT, CACHED_WRITE_BYTES_MAX},
    osc::Osc,
    writeback::{AllDirty, Changed, TightFiles, Unsynced, Writeback},
};

/// How long an operation waits for an OST that a layout names and the configuration does not. Such
/// an OST was just added, and the new configuration is in transit.
const NEW_OST_WAIT: Duration = Duration::from_secs(10);
/// Default of [`Lov::lockless_bytes`]. Larger writes bypass the write-back cache, so a lock of this
/// client would only block other clients.
const LOCKLESS_BYTES_DEFAULT: u64 = CACHED_WRITE_BYTES_MAX as u64;

/// The OSTs of a file system.
pub struct Lov {
    pub(super) rt: Rt,
    osts: RwLock<Vec<Option<Arc<Ost>>>>,
    /// The MDT's data service.
    data: RwLock<Option<Arc<Ost>>>,
    added: Notify,
    pub(super) unsynced: Arc<Unsynced>,
    pub(super) tight: Arc<TightFiles>,
    pub(super) objects: Arc<LockedObjects>,
    pub(super) ends: KnownEnds,
    evictions: Arc<Evictions>,
    /// The dirty data in the write-back caches of all OSTs: at most half of the memory.
    dirty: Arc<AllDirty>,
    /// Whether the write-back cache is enabled.
    keeping: AtomicBool,
    /// Minimum size in bytes of writes without a lock of this client; 0: none.
    lockless_bytes: AtomicU64,
    /// Number of reads in flight.
    pub(super) reads: AtomicUsize,
    /// Random number that selects one of several mirrors to read.
    pub(super) spread: usize,
}

impl fmt::Debug for Lov {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lov").field("osts", &self.osts.read().len()).finish()
    }
}

impl Lov {
    /// Creates a lov without OSTs; [`Lov::add`] adds them.
    pub fn new(rt: Rt) -> Lov {
        let objects = Arc::new(LockedObjects::new(&rt));
        let tight = Arc::new(TightFiles::new(&rt));
        let (spread, dirty) = (rt.random_u64() as usize, Arc::new(AllDirty::new(rt.memory_bytes() / 2)));
        Lov {
            rt,
            osts: RwLock::default(),
            data: RwLock::default(),
            added: Notify::new(),
            unsynced: Arc::new(Unsynced::new()),
            tight,
            objects,
            ends: KnownEnds::new(),
            evictions: Arc::default(),
            dirty,
            keeping: AtomicBool::new(true),
            lockless_bytes: AtomicU64::new(LOCKLESS_BYTES_DEFAULT),
            reads: AtomicUsize::new(0),
            spread,
        }
    }

    /// Returns the objects on which this client holds locks.
    pub fn objects(&self) -> &Arc<LockedObjects> {
        &self.objects
    }

    /// Returns the files whose writes are not cached, because an owner is near a limit of space.
    pub fn tight(&self) -> &TightFiles {
        &self.tight
    }

    /// Returns the evictions by OSTs.
    pub fn evictions(&self) -> &Arc<Evictions> {
        &self.evictions
    }

    /// Creates the write-back cache of an OST that is about to be added.
    pub fn new_writeback(&self, osc: &Arc<Osc>) -> Arc<Writeback> {
        Writeback::new(&self.rt, osc, &self.unsynced, &self.tight, &self.dirty)
    }

    /// Whether there is any dirty data. A quick test before any lookup.
    pub fn keeps_writes(&self) -> bool {
        self.dirty.is_any()
    }

    /// Whether the write-back cache is enabled (`llite.*.writeback`).
    pub fn keeping(&self) -> bool {
        self.keeping.load(Relaxed)
    }

    /// Enables or disables the write-back cache. Data that is already dirty is flushed as usual.
    pub fn set_keeping(&self, on: bool) {
        self.keeping.store(on, Relaxed);
    }

    /// Whether a write of `len` bytes that bypasses the write-back cache takes locks of this
    /// client.
    pub fn locks_write(&self, len: usize) -> bool {
        match self.lockless_bytes() {
            0 => true,
            from => len >= CACHED_WRITE_BYTES_MAX && (len as u64) < from,
        }
    }

    /// Returns the minimum size in bytes of writes without a lock of this client
    /// (`llite.*.lockless_write_kb`); 0: none.
    pub fn lockless_bytes(&self) -> u64 {
        self.lockless_bytes.load(Relaxed)
    }

    /// Sets [`Lov::lockless_bytes`].
    pub fn set_lockless_bytes(&self, bytes: u64) {
        self.lockless_bytes.store(bytes, Relaxed);
    }

    /// Adds an OST or the MDT's data service, and replaces one of the same index. Ignores indices
    /// beyond Lustre's limit.
    pub fn add(&self, ost: Arc<Ost>) {
        if ost.osc.index() == MDT_OST {
            *self.data.write() = Some(ost);
            self.added.notify_waiters();
            return;
        }
        let index = ost.osc.index() as usize;
        if index >= TARGETS_MAX {
            return;
        }
        let mut osts = self.osts.write();
        if osts.len() <= index {
            osts.resize(index + 1, None);
        }
        osts[index] = Some(ost);
        drop(osts);
        self.added.notify_waiters();
    }

    /// Returns the OST of an index, or the MDT's data service for [`MDT_OST`], if configured.
    pub fn get(&self, index: u32) -> Option<Arc<Ost>> {
        if index == MDT_OST {
            return self.data.read().clone();
        }
        self.osts.read().get(index as usize)?.clone()
    }

    /// Returns the OSTs of the file system, by index, without those that were removed.
    pub fn osts(&self) -> Vec<Arc<Ost>> {
        self.osts.read().iter().flatten().filter(|ost| !ost.osc.is_removed()).cloned().collect()
    }

    /// Returns all targets that hold or held objects: the OSTs by index, also removed ones, and the
    /// MDT's data service.
    pub fn all(&self) -> Vec<Arc<Ost>> {
        self.osts.read().iter().flatten().chain(&*self.data.read()).cloned().collect()
    }

    /// Returns the OST of an index. Waits for up to [`NEW_OST_WAIT`] if it is not configured yet.
    ///
    /// # Errors
    /// EIO: the OST did not appear.
    pub(super) async fn ost(&self, index: u32) -> Result<Arc<Ost>> {
        if let Some(ost) = self.get(index) {
            return Ok(ost);
        }
        let appears = async {
            loop {
                let added = self.added.notified();
                if let Some(ost) = self.get(index) {
                    return ost;
                }
                added.await;
            }
        };
        self.rt.timeout(NEW_OST_WAIT, appears).await.map_err(|_| {
            tracing::error!("OST {index}: a layout names it, but the configuration does not: returning EIO");
            Errno::EIO.into()
        })
    }

    /// Sends a request to the OST of an index.
    pub(crate) async fn call(&self, ost: u32, request: ost::Request, bulk: Bulk) -> Result<(ost::Reply, Bulk)> {
        let response = match self.get(ost) {
            Some(ost) => ost.osc.request(request).bulk(bulk).send().await?,
            None => self.ost(ost).await?.osc.request(request).bulk(bulk).send().await?,
        };
        Ok((response.body, response.bulk))
    }

    /// Sends a request that changes a file to the OST of an index, and records the change as
    /// unsynced.
    pub(super) async fn change(&self, file: Fid, ost: u32, request: ost::Request, bulk: Bulk) -> Result<()> {
        let target = self.ost(ost).await?;
        let response = target.osc.request(request).bulk(bulk).send().await?;
        let ost::Reply::Done { epoch, tight, .. } = response.body else { return Err(Errno::EPROTO.into()) };
        self.tight.note(file, tight);
        target.writeback.changed(file, Changed { epoch, transno: response.transno });
        Ok(())
    }

    /// Returns the maximum bulk size of a request to an OST, in bytes.
    pub(super) fn max_bytes(&self, ost: u32) -> u64 {
        self.get(ost).map_or(BYTES_PER_RPC_DEFAULT, |ost| ost.osc.max_bytes_per_rpc())
    }
}

/// Returns the object of a stripe and its OST.
pub(super) fn stripe(layout: &Layout, stripe: usize) -> Result<&sheen_layout::Stripe> {
    layout.stripes().get(stripe).ok_or(Errno::EIO.into())
}
