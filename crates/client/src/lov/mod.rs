//! Striping (Lustre's lov): splits operations on a file into requests to the OSTs that hold its
//! objects.
//!
//! Small writes go to the write-back cache (`cached`). One request carries everything for one OST,
//! and requests to several OSTs are in flight together. A request to a single OST is awaited
//! directly, without a wrapper. `unsynced` remembers which files were changed and not synced.
//! `enqueue` requests locks on objects, and [`crate::cache`] stores the data under them.
//!
//! An operation that needs two rounds of requests (a read that meets a hole, a truncate) is not yet
//! atomic against other clients. An append is (`append`).

mod ahead;
mod allocate;
mod append;
mod away;
mod cached;
mod enqueue;
mod follow;
mod glimpse;
mod group;
mod in_use;
mod inside;
mod mirrors;
mod read;
mod rests;
mod seek;
mod split;
mod sync;
mod truncate;
mod unsynced;
mod write;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use lru::LruCache;
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxBuildHasher;
use sheen_layout::{Layout, MDT_OST};
use sheen_rt::Rt;
use sheen_wire::{Bulk, Errno, Fid, Result, mgs::TARGETS_MAX, ost};
use tokio::sync::Notify;

use crate::{cache::Cache, osc::Osc};
use rests::Rests;

pub use away::is_absence;
pub use glimpse::{Look, Seen, merge};
pub use in_use::InUse;
pub use split::Split;
pub use unsynced::Unsynced;
pub use write::{How, KEEP_BYTES_MAX};

/// How long an operation waits for an OST that a layout names and the configuration does not. Such
/// an OST was just added, and the new configuration is in transit.
const NEW_OST_WAIT: Duration = Duration::from_secs(10);
/// Default of [`Lov::lockless_bytes`]. Larger writes bypass the write-back cache, so a lock of this
/// client would only block other clients.
const LOCKLESS_BYTES_DEFAULT: u64 = write::KEEP_BYTES_MAX as u64;

/// The OSTs of a file system.
pub struct Lov {
    rt: Rt,
    oscs: RwLock<Vec<Option<Arc<Osc>>>>,
    /// The MDT's data service.
    data: RwLock<Option<Arc<Osc>>>,
    added: Notify,
    unsynced: Arc<Unsynced>,
    cache: Arc<Cache>,
    /// Dirty bytes in the write-back caches of all OSTs.
    kept: Arc<AtomicU64>,
    /// Whether the write-back cache is enabled.
    keeping: AtomicBool,
    /// Minimum size in bytes of writes without a lock of this client; 0: none.
    lockless_bytes: AtomicU64,
    /// Back-off state of the locks for split-write tails, by file.
    rests: Mutex<LruCache<Fid, Rests, FxBuildHasher>>,
    /// Number of reads in flight.
    reads: AtomicUsize,
    /// Random number that selects one of several mirrors to read.
    spread: usize,
}

impl fmt::Debug for Lov {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lov").field("osts", &self.oscs.read().len()).finish()
    }
}

impl Lov {
    /// Creates a lov without OSTs; [`Lov::add`] adds them.
    pub fn new(rt: Rt, cache: Arc<Cache>) -> Lov {
        let (oscs, added, reads) = (RwLock::new(Vec::new()), Notify::new(), AtomicUsize::new(0));
        let (unsynced, kept) = (Arc::new(Unsynced::new()), Arc::default());
        let spread = rt.random_u64() as usize;
        Lov {
            rt,
            oscs,
            data: RwLock::default(),
            added,
            unsynced,
            cache,
            kept,
            keeping: AtomicBool::new(true),
            lockless_bytes: AtomicU64::new(LOCKLESS_BYTES_DEFAULT),
            rests: Mutex::new(LruCache::with_hasher(rests::FILES_MAX, FxBuildHasher)),
            reads,
            spread,
        }
    }

    /// Returns the client's caches.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Returns the record of unsynced changes.
    pub fn unsynced(&self) -> &Arc<Unsynced> {
        &self.unsynced
    }

    /// Returns the counter of dirty bytes, which the write-back caches of the OSTs update.
    pub fn kept(&self) -> &Arc<AtomicU64> {
        &self.kept
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
            from => len >= write::KEEP_BYTES_MAX && (len as u64) < from,
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
    pub fn add(&self, osc: Arc<Osc>) {
        if osc.index() == MDT_OST {
            *self.data.write() = Some(osc);
            self.added.notify_waiters();
            return;
        }
        let index = osc.index() as usize;
        if index >= TARGETS_MAX {
            return;
        }
        let mut oscs = self.oscs.write();
        if oscs.len() <= index {
            oscs.resize(index + 1, None);
        }
        oscs[index] = Some(osc);
        drop(oscs);
        self.added.notify_waiters();
    }

    /// Returns the OST of an index, or the MDT's data service for [`MDT_OST`], if configured.
    pub fn get(&self, index: u32) -> Option<Arc<Osc>> {
        if index == MDT_OST {
            return self.data.read().clone();
        }
        self.oscs.read().get(index as usize)?.clone()
    }

    /// Returns all configured OSTs, by index.
    pub fn osts(&self) -> Vec<Arc<Osc>> {
        self.oscs.read().iter().flatten().cloned().collect()
    }

    /// Returns all targets that hold objects: the OSTs by index, and the MDT's data service.
    pub fn all(&self) -> Vec<Arc<Osc>> {
        self.oscs.read().iter().flatten().chain(&*self.data.read()).cloned().collect()
    }

    /// Returns the OST of an index. Waits for up to [`NEW_OST_WAIT`] if it is not configured yet.
    ///
    /// # Errors
    /// EIO: the OST did not appear.
    async fn osc(&self, index: u32) -> Result<Arc<Osc>> {
        if let Some(osc) = self.get(index) {
            return Ok(osc);
        }
        let appears = async {
            loop {
                let added = self.added.notified();
                if let Some(osc) = self.get(index) {
                    return osc;
                }
                added.await;
            }
        };
        self.rt.timeout(NEW_OST_WAIT, appears).await.map_err(|_| {
            tracing::error!("OST {index}: a layout names it, but the configuration does not: returning EIO");
            Errno::EIO
        })
    }

    /// Sends a request to the OST of an index.
    pub(crate) async fn call(&self, ost: u32, request: ost::Request, bulk: Bulk) -> Result<(ost::Reply, Bulk)> {
        match self.get(ost) {
            Some(osc) => osc.call(request, bulk).await,
            None => self.osc(ost).await?.call(request, bulk).await,
        }
    }

    /// Sends a request that changes a file to the OST of an index, and records the change as
    /// unsynced.
    async fn change(&self, file: Fid, ost: u32, request: ost::Request, bulk: Bulk) -> Result<()> {
        let epoch = done(self.call(ost, request, bulk).await?.0)?;
        self.unsynced.changed(file, ost, epoch);
        Ok(())
    }

    /// Returns the maximum bulk size of a request to an OST, in bytes.
    fn max_bytes(&self, ost: u32) -> u64 {
        self.get(ost).map_or(crate::osc::BYTES_PER_RPC_DEFAULT, |osc| osc.max_bytes_per_rpc())
    }
}

/// Returns the epoch of a `Done` reply, that is, the boot of the OST's host.
fn done(reply: ost::Reply) -> Result<u64> {
    match reply {
        ost::Reply::Done { epoch, .. } => Ok(epoch),
        _ => Err(Errno::EPROTO),
    }
}

/// Returns the object of a stripe and its OST.
fn stripe(layout: &Layout, stripe: usize) -> Result<&sheen_layout::Stripe> {
    layout.stripes().get(stripe).ok_or(Errno::EIO)
}
