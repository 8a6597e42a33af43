//! The OSTs of the file system and their pools: kept in step with the MGS, and what the allocator
//! sees of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use sheen_layout::{Component, MDT_OST, Ost, Placer};
use sheen_lnet::Nid;
use sheen_mgc::Mgc;
use sheen_rpc::{Import, ImportConfig};
use sheen_rt::{Instant, JoinHandle};
use sheen_wire::mgs::{Config, Target, TargetKind};
use sheen_wire::{Result, STATE_DEGRADED};
use tokio::sync::Notify;
use tracing::{error, info, warn};

use crate::mdt::Mdt;
use crate::osp::{self, Osp, STATFS_AGE, STATFS_TIMEOUT};

/// How long after its start the MDT lets creates wait for OSTs to answer, rather than refuse them
/// for want of space or give files fewer stripes than were asked for.
pub(crate) const SETTLE: Duration = Duration::from_secs(10);

/// By index, each with its task.
type Map = BTreeMap<u32, (Arc<Osp>, JoinHandle<()>)>;

/// Wait before the MGS is asked again after it refused.
const RETRY: Duration = Duration::from_secs(5);

/// All OSTs, and the MDT's own data service.
pub(crate) struct Osts {
    map: Mutex<Map>,
    /// As placement sees them, by index.
    view: RwLock<Arc<Vec<Ost>>>,
    /// By name. Written before `known` is set.
    pools: RwLock<BTreeMap<String, Arc<PoolOsts>>>,
    /// Whether the MGS has said which there are.
    known: AtomicBool,
    /// When free space was last asked for.
    asked: Mutex<Instant>,
    changed: Notify,
}

/// The OSTs of a pool.
pub(crate) struct PoolOsts {
    /// Indices, rising.
    members: Vec<u32>,
    /// Round robin goes on within the pool: files of other pools in between would make all of its
    /// files begin on the same OST.
    pub placer: Mutex<Placer>,
}

impl PoolOsts {
    /// Those of `all` that are in the pool.
    pub fn of(&self, all: &[Ost]) -> Vec<Ost> {
        all.iter().filter(|ost| self.has(ost.index)).copied().collect()
    }

    /// Whether an OST is in the pool.
    pub fn has(&self, index: u32) -> bool {
        self.members.binary_search(&index).is_ok()
    }
}

impl Osts {
    pub fn new() -> Osts {
        Osts {
            map: Mutex::new(BTreeMap::new()),
            view: RwLock::new(Arc::new(Vec::new())),
            pools: RwLock::new(BTreeMap::new()),
            known: AtomicBool::new(false),
            asked: Mutex::new(Instant::ZERO),
            changed: Notify::new(),
        }
    }

    /// As placement sees them.
    pub fn view(&self) -> Arc<Vec<Ost>> {
        self.view.read().clone()
    }

    /// All of them, by index.
    pub fn all(&self) -> Vec<Arc<Osp>> {
        self.map.lock().range(..MDT_OST).map(|(_, (osp, _))| osp.clone()).collect()
    }

    /// The MDT's own data service, if it has one.
    pub fn data(&self) -> Option<Arc<Osp>> {
        self.map.lock().get(&MDT_OST).map(|(osp, _)| osp.clone())
    }

    /// Takes the MDT's own data service in: nothing is placed on it, but it is reached and cleaned
    /// up like an OST.
    pub fn set_data(&self, mdt: &Arc<Mdt>, osp: Arc<Osp>) {
        let task = mdt.rt.spawn("osp", osp::run(mdt.clone(), osp.clone()));
        self.map.lock().insert(MDT_OST, (osp, task));
    }

    /// The OST of this index if it can be reached.
    pub fn connected(&self, index: u32) -> Option<Arc<Osp>> {
        self.map.lock().get(&index).map(|(osp, _)| osp.clone()).filter(|osp| osp.connected())
    }

    /// The pool of that name, if there is one with OSTs in it.
    pub fn pool(&self, name: &str) -> Option<Arc<PoolOsts>> {
        self.pools.read().get(name).filter(|pool| !pool.members.is_empty()).cloned()
    }

    /// Whether the MGS has said which OSTs and pools there are.
    pub fn known(&self) -> bool {
        self.known.load(Acquire)
    }

    /// Whether it is known which OSTs there are and of each whether it answers.
    pub fn settled(&self) -> bool {
        self.known() && self.map.lock().values().all(|(osp, _)| osp.tried())
    }

    /// Whether every OST that is to take new objects has answered since the start.
    pub fn heard_of_all(&self) -> bool {
        self.map.lock().values().all(|(osp, _)| osp.heard() || !osp.is_wanted())
    }

    /// Whether an OST that is to take new objects lost its connection and may be back in a moment.
    pub fn reconnecting(&self) -> bool {
        self.all().iter().any(|osp| osp.is_reconnecting() && osp.is_wanted())
    }

    /// How many OSTs take new objects, or are not to take any.
    pub fn ready(&self) -> usize {
        let kept_from_it = self.all().iter().filter(|osp| !osp.is_wanted()).count();
        self.view().iter().filter(|ost| ost.active).count() + kept_from_it
    }

    /// Ready when something changed after the call.
    pub fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    /// Something was placed: renew what is known of free space if it is old.
    pub fn used(&self, now: Instant) {
        let mut asked = self.asked.lock();
        if now.since(*asked) >= STATFS_AGE {
            *asked = now;
            self.map.lock().values().for_each(|(osp, _)| osp.refresh());
        }
    }

    /// Waits until what placement sees of connected OSTs is no older than [`STATFS_AGE`], or the
    /// OST is found not to answer. `grows`: it is for a file that grows by what there is; of OSTs
    /// that could be filled meanwhile it is not to be older than this call.
    pub async fn look(&self, mdt: &Mdt, grows: bool) {
        let now = mdt.rt.now();
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
        let _ = mdt.rt.timeout(2 * STATFS_TIMEOUT, looked).await;
    }

    /// A component that grows was given so many bytes, over all of its OSTs alike.
    pub fn take(&self, component: &Component, bytes: u64, now: Instant) {
        let each = bytes.div_ceil(component.stripes.len().max(1) as u64);
        let map = self.map.lock();
        let osts = component.stripes.iter().filter_map(|stripe| map.get(&stripe.ost));
        osts.for_each(|(osp, _)| osp.take(now, each));
        drop(map);
        self.rebuild();
    }

    /// Renews what placement sees.
    pub fn rebuild(&self) {
        // Looked at under the lock: of two at once, the later one must not be overwritten by what
        // the earlier one saw.
        let mut view = self.view.write();
        *view = Arc::new(self.map.lock().range(..MDT_OST).map(|(_, (osp, _))| seen(osp)).collect());
        drop(view);
        self.changed.notify_waiters();
    }

    /// Ends all tasks.
    pub fn stop(&self) {
        for (_, task) in std::mem::take(&mut *self.map.lock()).into_values() {
            task.abort();
        }
        self.rebuild();
    }

    /// Takes over what the MGS says: settings that last first, so that an OST that is to take no
    /// objects is not seen to take some.
    fn update(&self, mdt: &Arc<Mdt>, config: &Config) {
        mdt.params.keep(&config.fsname, config.version, &config.params);
        let mut servers = BTreeMap::new();
        let osts: Vec<_> = config.targets.iter().filter(|t| t.kind == TargetKind::Ost).collect();
        for target in &osts {
            let next = servers.len() as u32;
            servers.entry(target.nids.first().cloned().unwrap_or_default()).or_insert(next);
        }
        for target in osts {
            let oss = servers.get(target.nids.first().map_or("", String::as_str)).copied().unwrap_or(0);
            self.put(mdt, target, oss);
        }
        self.set_pools(mdt, config);
        self.known.store(true, Release);
        self.rebuild();
    }

    /// A pool that is as it was stays, with its place in the round robin.
    fn set_pools(&self, mdt: &Arc<Mdt>, config: &Config) {
        let mut pools = self.pools.write();
        let old = std::mem::take(&mut *pools);
        for pool in &config.pools {
            let mut members = pool.osts.clone();
            members.sort_unstable();
            let same = old.get(&pool.name).filter(|known| known.members == members).cloned();
            let fresh = || Arc::new(PoolOsts { members, placer: Mutex::new(Placer::new(mdt.rt.random_u64())) });
            pools.insert(pool.name.clone(), same.unwrap_or_else(fresh));
        }
        drop(pools);
        crate::params::register_pools(mdt, &config.pools, old.keys().map(String::as_str));
    }

    /// Adds an OST, or renews where it is. A known OST keeps its import: a second one of this life
    /// would count its requests from 1 again, and an OST that never went away would not answer
    /// them.
    fn put(&self, mdt: &Arc<Mdt>, target: &Target, oss: u32) {
        let name = target.name(&mdt.config.fsname);
        let nids = nids(target, &name);
        let old = self.map.lock().get(&target.index).map(|(osp, _)| osp.clone());
        if let Some(known) = old.as_ref().filter(|osp| osp.uuid == target.uuid) {
            known.oss.store(oss, Relaxed);
            if known.import.nids() != nids {
                info!("{}: {name} is now at {}", mdt.name, target.nids.join(","));
                known.import.set_nids(nids);
            }
            return;
        }
        info!("{}: {name} is at {}", mdt.name, target.nids.join(","));
        let osp = Arc::new(connect(mdt, target, &name, nids, oss));
        if let Some(old) = &old {
            osp.switched_on.store(old.switched_on.load(Relaxed), Relaxed);
            osp.max_create_count.store(old.max_create_count.load(Relaxed), Relaxed);
        }
        // Before anything can be placed there, and without the map's lock, for parameters that
        // settings set look at the map.
        crate::params::register_osp(mdt, &osp);
        let task = mdt.rt.spawn("osp", osp::run(mdt.clone(), osp.clone()));
        if let Some((_, old_task)) = self.map.lock().insert(target.index, (osp, task)) {
            old_task.abort();
        }
    }
}

/// Where a target is, as far as it can be read.
fn nids(target: &Target, name: &str) -> Vec<Nid> {
    let parsed = |nid: &String| nid.parse::<Nid>().inspect_err(|e| warn!("{name}: {e}")).ok();
    target.nids.iter().filter_map(parsed).collect()
}

fn connect(mdt: &Arc<Mdt>, target: &Target, name: &str, nids: Vec<Nid>, oss: u32) -> Osp {
    // Another client in each life of this MDT: its requests count from 1 again, which the OST must
    // not take for old ones.
    let life = format!("{}-{:016x}", mdt.uuid, mdt.incarnation);
    let import = Import::new(mdt.net.clone(), ImportConfig::new(&life, name, nids).of(&target.uuid));
    Osp::new(target.index, name.to_string(), target.uuid.clone(), oss, import)
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

/// The task that registers the MDT and follows the configuration. Ends only if the MGS refuses the
/// MDT.
pub(crate) async fn follow(mdt: Arc<Mdt>) -> Result<()> {
    let config = &mdt.config;
    let mgc = Mgc::new(mdt.net.clone(), config.mgs.clone(), &mdt.uuid);
    let registered = mgc.register(&config.fsname, TargetKind::Mdt, Some(config.index), &mdt.uuid, &config.nids).await;
    if let Err(e) = &registered {
        error!("{}: the MGS refuses this MDT ({e}); its log says why", mdt.name);
    }
    mdt.registered.send_replace(Some(registered.map(drop)));
    registered?;
    let mut version = 0;
    loop {
        match mgc.watch(&config.fsname, version).await {
            Ok(config) => {
                version = config.version;
                mdt.osts.update(&mdt, &config);
            }
            Err(e) => {
                error!("{}: the MGS does not say which OSTs there are ({e}); trying again", mdt.name);
                mdt.rt.sleep(RETRY).await;
            }
        }
    }
}
