//! The OSTs and pools that the MDT knows, and the allocator's view of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use sheen_layout::{Component, MDT_OST, Ost, Placer};
use sheen_rt::{Instant, JoinHandle, Rt};
use sheen_wire::STATE_DEGRADED;
use sheen_wire::mgs::Pool;
use tokio::sync::Notify;

use crate::state::osp::{Osp, STATFS_AGE, STATFS_TIMEOUT};

/// How long after the start of the MDT creates wait until OSTs answer. Later creates do not wait:
/// they get fewer stripes than requested, or clients repeat them.
pub(crate) const SETTLE: Duration = Duration::from_secs(10);
/// Time without a placement after which the next one waits for news of all OSTs. Longer than a
/// busy MDT takes to renew its view ([`STATFS_AGE`]).
const IDLE: Duration = Duration::from_secs(2);
/// Maximum of that wait. An OST that does not answer in time takes objects by the last view of it,
/// until it counts as disconnected.
const IDLE_WAIT_MAX: Duration = Duration::from_millis(100);

/// OSTs by index, each with its task.
type Map = BTreeMap<u32, (Arc<Osp>, JoinHandle<()>)>;

/// All OSTs, and the MDT's own data service.
pub(crate) struct Osts {
    map: Mutex<Map>,
    /// Indices of OSTs that were removed from the file system.
    removed: Mutex<BTreeSet<u32>>,
    /// The allocator's view, by index.
    view: RwLock<Arc<Vec<Ost>>>,
    /// By name. Written before `known` is set.
    pools: RwLock<BTreeMap<String, Arc<PoolOsts>>>,
    /// Whether the MGS has reported the OSTs and pools.
    known: AtomicBool,
    asked: Mutex<Asked>,
    changed: Notify,
}

/// The last request for the free space of all OSTs because of a placement.
#[derive(Default)]
struct Asked {
    at: Instant,
    /// When the MDT asked after it had been idle, as long as placements wait for the replies.
    awaited: Option<Instant>,
}

/// The OSTs of a pool.
pub(crate) struct PoolOsts {
    /// Indices in ascending order.
    members: Vec<u32>,
    /// Round robin of this pool alone. If pools shared one, creates in other pools could make all
    /// files of this pool begin on the same OST.
    pub placer: Mutex<Placer>,
}

impl PoolOsts {
    /// Returns the OSTs of `all` that are in the pool.
    pub fn of(&self, all: &[Ost]) -> Vec<Ost> {
        all.iter().filter(|ost| self.has(ost.index)).copied().collect()
    }

    /// Returns whether an OST is in the pool.
    pub fn has(&self, index: u32) -> bool {
        self.members.binary_search(&index).is_ok()
    }
}

impl Osts {
    pub fn new() -> Osts {
        Osts {
            map: Mutex::new(BTreeMap::new()),
            removed: Mutex::default(),
            view: RwLock::new(Arc::new(Vec::new())),
            pools: RwLock::new(BTreeMap::new()),
            known: AtomicBool::new(false),
            asked: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Returns the allocator's view.
    pub fn view(&self) -> Arc<Vec<Ost>> {
        self.view.read().clone()
    }

    /// Returns all OSTs, by index.
    pub fn all(&self) -> Vec<Arc<Osp>> {
        self.map.lock().range(..MDT_OST).map(|(_, (osp, _))| osp.clone()).collect()
    }

    /// Returns the MDT's own data service, if it has one.
    pub fn data(&self) -> Option<Arc<Osp>> {
        self.get(MDT_OST)
    }

    /// Returns the OST of this index.
    pub fn get(&self, index: u32) -> Option<Arc<Osp>> {
        self.map.lock().get(&index).map(|(osp, _)| osp.clone())
    }

    /// Adds an OST with its task, or replaces the OST of the same index. [`MDT_OST`]: the MDT's own
    /// data service. Nothing is placed on that one, but it is connected and cleaned up like an OST.
    pub fn put(&self, osp: Arc<Osp>, task: JoinHandle<()>) {
        if let Some((_, old_task)) = self.map.lock().insert(osp.index, (osp, task)) {
            old_task.abort();
        }
    }

    /// Takes an OST out of the list, and ends its task.
    pub fn remove(&self, index: u32) -> Option<Arc<Osp>> {
        let (osp, task) = self.map.lock().remove(&index)?;
        task.abort();
        Some(osp)
    }

    /// Records that an OST was removed from the file system. Returns whether that is news.
    pub fn set_removed(&self, index: u32) -> bool {
        self.removed.lock().insert(index)
    }

    /// Returns whether an OST was removed from the file system.
    pub fn is_removed(&self, index: u32) -> bool {
        self.removed.lock().contains(&index)
    }

    /// Replaces the pools. An unchanged pool stays, with its position in the round robin. Returns
    /// the names of the former pools. `random` returns the seeds of round robins.
    pub fn set_pools(&self, new: &[Pool], random: impl Fn() -> u64) -> Vec<String> {
        let mut pools = self.pools.write();
        let old = std::mem::take(&mut *pools);
        for pool in new {
            let mut members = pool.osts.clone();
            members.sort_unstable();
            let same = old.get(&pool.name).filter(|known| known.members == members).cloned();
            let fresh = || Arc::new(PoolOsts { members, placer: Mutex::new(Placer::new(random())) });
            pools.insert(pool.name.clone(), same.unwrap_or_else(fresh));
        }
        old.into_keys().collect()
    }

    /// Records that the MGS has reported the OSTs and pools.
    pub fn set_known(&self) {
        self.known.store(true, Release);
        self.rebuild();
    }

    /// Returns the OST of this index if it is connected.
    pub fn connected(&self, index: u32) -> Option<Arc<Osp>> {
        self.get(index).filter(|osp| osp.connected())
    }

    /// Returns the pool of this name if it exists and has OSTs.
    pub fn pool(&self, name: &str) -> Option<Arc<PoolOsts>> {
        self.pools.read().get(name).filter(|pool| !pool.members.is_empty()).cloned()
    }

    /// Returns whether the MGS has reported the OSTs and pools.
    pub fn known(&self) -> bool {
        self.known.load(Acquire)
    }

    /// Returns whether all OSTs are known, and a statfs of each was tried.
    pub fn settled(&self) -> bool {
        self.known() && self.map.lock().values().all(|(osp, _)| osp.tried())
    }

    /// Returns whether every OST whose parameters let it take objects has answered since the start.
    pub fn all_have_answered(&self) -> bool {
        self.map.lock().values().all(|(osp, _)| osp.has_answered() || !osp.is_wanted())
    }

    /// Returns whether an OST that may take objects, by its parameters, lost its connection and is
    /// reconnecting.
    pub fn reconnecting(&self) -> bool {
        self.all().iter().any(|osp| osp.is_reconnecting() && osp.is_wanted())
    }

    /// Returns whether all of these OSTs that may take objects, by their parameters, are
    /// disconnected. False if none may.
    pub fn all_are_disconnected(&self, candidates: &[Ost]) -> bool {
        let wanted: Vec<_> =
            candidates.iter().filter_map(|ost| self.get(ost.index)).filter(|osp| osp.is_wanted()).collect();
        !wanted.is_empty() && wanted.iter().all(|osp| !osp.connected())
    }

    /// Returns the number of OSTs that take new objects or are configured to take none.
    pub fn ready(&self) -> usize {
        let unwanted = self.all().iter().filter(|osp| !osp.is_wanted()).count();
        self.view().iter().filter(|ost| ost.active).count() + unwanted
    }

    /// Ready when something changed after the call.
    pub fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    /// Requests the free space of all OSTs if it is old, because objects are to be placed.
    pub fn used(&self, now: Instant) {
        let mut asked = self.asked.lock();
        let idle = now.since(asked.at);
        if idle >= STATFS_AGE {
            asked.at = now;
            let was_idle = idle >= IDLE;
            if was_idle {
                asked.awaited = Some(now);
            }
            for (osp, _) in self.map.lock().values() {
                if was_idle && osp.is_view_old(now, false) { osp.look() } else { osp.refresh() }
            }
        }
    }

    /// Calls [`Osts::used`]. Returns false if the placement should wait for the replies: the MDT
    /// was idle, and some OSTs may be degraded or full meanwhile. A wait ends when the OSTs have
    /// answered or count as disconnected, and at the latest after [`IDLE_WAIT_MAX`]. An OST that
    /// has not answered since the start, or since it reconnected, takes no objects anyway.
    pub fn are_seen(&self, now: Instant) -> bool {
        self.used(now);
        let mut asked = self.asked.lock();
        let Some(since) = asked.awaited else { return true };
        let is_old = |osp: &Arc<Osp>| osp.takes_objects() && osp.is_view_old(since, false);
        if now.since(since) < IDLE_WAIT_MAX && self.all().iter().any(is_old) {
            return false;
        }
        asked.awaited = None;
        true
    }

    /// Returns for how long placements still wait after the MDT was idle ([`Osts::are_seen`]);
    /// `None`: they do not.
    pub fn idle_wait(&self, now: Instant) -> Option<Duration> {
        let since = self.asked.lock().awaited?;
        Some(IDLE_WAIT_MAX.saturating_sub(now.since(since))).filter(|wait| !wait.is_zero())
    }

    /// Waits until the view of each connected OST is at most [`STATFS_AGE`] old, or the OST is
    /// found to be disconnected. `grows`: for a file that grows as far as there is space. The view
    /// of an OST that could be full soon must then be newer than this call. Waits for at most twice
    /// [`STATFS_TIMEOUT`].
    pub async fn look(&self, rt: &Rt, grows: bool) {
        let now = rt.now();
        let old = || self.all().into_iter().filter(|osp| osp.is_view_old(now, grows)).collect::<Vec<_>>();
        old().iter().for_each(|osp| osp.look());
        let looked = async {
            loop {
                let mut changed = std::pin::pin!(self.changed());
                changed.as_mut().enable();
                if old().is_empty() {
                    return;
                }
                changed.await;
            }
        };
        let _ = rt.timeout(2 * STATFS_TIMEOUT, looked).await;
    }

    /// Records that a growing component was given `bytes`, spread evenly over its OSTs.
    pub fn take(&self, component: &Component, bytes: u64, now: Instant) {
        let each = bytes.div_ceil(component.stripes.len().max(1) as u64);
        let map = self.map.lock();
        let osts = component.stripes.iter().filter_map(|stripe| map.get(&stripe.ost));
        osts.for_each(|(osp, _)| osp.take(now, each));
        drop(map);
        self.rebuild();
    }

    /// Renews the allocator's view.
    pub fn rebuild(&self) {
        // Read with the view's lock held: of two concurrent calls, the later one must not be
        // overwritten by the state that the earlier one read.
        let mut view = self.view.write();
        *view = Arc::new(self.map.lock().range(..MDT_OST).map(|(_, (osp, _))| seen(osp)).collect());
        drop(view);
        self.changed.notify_waiters();
    }

    /// Aborts all tasks.
    pub fn stop(&self) {
        for (_, task) in std::mem::take(&mut *self.map.lock()).into_values() {
            task.abort();
        }
        self.rebuild();
    }
}

fn seen(osp: &Osp) -> Ost {
    let statfs = osp.statfs();
    let bytes = |blocks: u64| blocks.saturating_mul(u64::from(statfs.bsize));
    Ost {
        index: osp.index,
        active: osp.takes_objects(),
        degraded: statfs.state & STATE_DEGRADED != 0,
        free_bytes: osp.free_bytes(),
        total_bytes: bytes(statfs.blocks),
        free_objects: statfs.ffree,
        oss: osp.oss.load(Relaxed),
    }
}
