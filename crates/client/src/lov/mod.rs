//! Striping (Lustre's lov): turns what happens to a file into requests to the OSTs that hold its
//! objects.
//!
//! Small writes are kept for a while (`cached`). One request carries all that goes to one OST;
//! requests to several OSTs are on their way together; where there is only one, it is awaited
//! without anything around it. Kept in mind is which files were changed and not synced
//! (`unsynced`); locks on objects, and what is kept under them, are `enqueue`'s and
//! [`crate::cache`]'s.
//!
//! An action that needs two rounds (a read that meets a hole, a truncate) is not atomic against
//! other clients yet; an append is (`append`).

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

/// How long an action waits for an OST that its layout names and the configuration does not: it was
/// just added, and the configuration is on its way.
const NEW_OST_WAIT: Duration = Duration::from_secs(10);
/// Larger writes are not kept, so a lock of the client's own would only be in others' way.
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
    /// Dirty bytes that are kept, for all OSTs.
    kept: Arc<AtomicU64>,
    /// Whether small writes are kept.
    keeping: AtomicBool,
    /// From so many bytes on a write goes without a lock of this client; 0: none does.
    lockless_bytes: AtomicU64,
    /// What became of the locks for the rests of large writes, by file.
    rests: Mutex<LruCache<Fid, Rests, FxBuildHasher>>,
    /// Reads under way.
    reads: AtomicUsize,
    /// Which of several mirrors this client reads.
    spread: usize,
}

impl fmt::Debug for Lov {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lov").field("osts", &self.oscs.read().len()).finish()
    }
}

impl Lov {
    /// Without OSTs; [`Lov::add`] brings them.
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

    /// What is kept under locks.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// What was changed and not synced.
    pub fn unsynced(&self) -> &Arc<Unsynced> {
        &self.unsynced
    }

    /// How many dirty bytes are kept: counted by those who keep them.
    pub fn kept(&self) -> &Arc<AtomicU64> {
        &self.kept
    }

    /// Whether small writes are kept for a while (`llite.*.writeback`).
    pub fn keeping(&self) -> bool {
        self.keeping.load(Relaxed)
    }

    /// Sets it. What is kept stays until it is written.
    pub fn set_keeping(&self, on: bool) {
        self.keeping.store(on, Relaxed);
    }

    /// Whether a write of so many bytes that is not kept takes locks of the client's own.
    pub fn locks_write(&self, len: usize) -> bool {
        match self.lockless_bytes() {
            0 => true,
            from => len >= write::KEEP_BYTES_MAX && (len as u64) < from,
        }
    }

    /// From how many bytes on writes do so (`llite.*.lockless_write_kb`); 0: never.
    pub fn lockless_bytes(&self) -> u64 {
        self.lockless_bytes.load(Relaxed)
    }

    /// Sets it.
    pub fn set_lockless_bytes(&self, bytes: u64) {
        self.lockless_bytes.store(bytes, Relaxed);
    }

    /// Adds an OST, or the MDT's data service; one of the same index is replaced. Indices beyond
    /// Lustre's are ignored.
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

    /// The OST of an index, or with [`MDT_OST`] the MDT's data service, if it is known.
    pub fn get(&self, index: u32) -> Option<Arc<Osc>> {
        if index == MDT_OST {
            return self.data.read().clone();
        }
        self.oscs.read().get(index as usize)?.clone()
    }

    /// All known OSTs by index.
    pub fn osts(&self) -> Vec<Arc<Osc>> {
        self.oscs.read().iter().flatten().cloned().collect()
    }

    /// All that hold objects, by index: the OSTs and the MDT's data service.
    pub fn all(&self) -> Vec<Arc<Osc>> {
        self.oscs.read().iter().flatten().chain(&*self.data.read()).cloned().collect()
    }

    /// The OST of an index; waits a while for one that is not known.
    ///
    /// # Errors
    /// EIO: it did not appear.
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
            tracing::error!("OST {index} holds a file's data but is not part of the file system's configuration");
            Errno::EIO
        })
    }

    /// Calls the OST of an index.
    pub(crate) async fn call(&self, ost: u32, request: ost::Request, bulk: Bulk) -> Result<(ost::Reply, Bulk)> {
        match self.get(ost) {
            Some(osc) => osc.call(request, bulk).await,
            None => self.osc(ost).await?.call(request, bulk).await,
        }
    }

    /// Calls the OST of an index for a change of a file, which is noted as not synced.
    async fn change(&self, file: Fid, ost: u32, request: ost::Request, bulk: Bulk) -> Result<()> {
        let epoch = done(self.call(ost, request, bulk).await?.0)?;
        self.unsynced.changed(file, ost, epoch);
        Ok(())
    }

    /// Largest bulk of a request to an OST, in bytes.
    fn max_bytes(&self, ost: u32) -> u64 {
        self.get(ost).map_or(crate::osc::BYTES_PER_RPC_DEFAULT, |osc| osc.max_bytes_per_rpc())
    }
}

/// In which life of its host an OST did what it was asked for.
fn done(reply: ost::Reply) -> Result<u64> {
    match reply {
        ost::Reply::Done { epoch, .. } => Ok(epoch),
        _ => Err(Errno::EPROTO),
    }
}

/// The object of a stripe and the OST that holds it.
fn stripe(layout: &Layout, stripe: usize) -> Result<&sheen_layout::Stripe> {
    layout.stripes().get(stripe).ok_or(Errno::EIO)
}
