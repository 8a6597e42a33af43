//! Following the configuration of the MGS: the OSTs of the file system and their pools.
//!
//! The MDT stores a copy of it. If the MGS does not answer after a start, the MDT uses the copy
//! until it does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use sheen_lnet::Nid;
use sheen_mgc::{Mgc, stored_config};
use sheen_rpc::{Import, ImportConfig};
use sheen_wire::Result;
use sheen_wire::mgs::{Config, Target, TargetKind};
use tracing::{error, info, warn};

use crate::mdt::Mdt;
use crate::state::nodemaps;
use crate::state::osp::Osp;
use crate::{osp, params};

/// Pause before the MGS is asked again after an error.
const RETRY: Duration = Duration::from_secs(5);
/// Time that the MGS has to answer after a start, before the MDT uses its copy of the
/// configuration. An MGS that runs, or is being restarted, needs less. Creates wait meanwhile.
const MGS_WAIT: Duration = Duration::from_secs(3);

/// Applies a configuration, except its nodemaps. Parameters come first, so that an OST that must
/// take no objects is never seen to take some.
fn update(mdt: &Arc<Mdt>, config: &Config) {
    mdt.params.keep(&config.fsname, config.version, &config.params);
    mdt.quotas.set_pools(&config.pools);
    let mut servers = BTreeMap::new();
    let (removed, osts): (Vec<_>, Vec<_>) =
        config.targets.iter().filter(|t| t.kind == TargetKind::Ost).partition(|t| t.removed);
    removed.iter().for_each(|target| remove(mdt, target));
    for target in &osts {
        let next = servers.len() as u32;
        servers.entry(target.nids.first().cloned().unwrap_or_default()).or_insert(next);
    }
    for target in osts {
        let oss = servers.get(target.nids.first().map_or("", String::as_str)).copied().unwrap_or(0);
        put(mdt, target, oss);
    }
    let old = mdt.osts.set_pools(&config.pools, || mdt.rt.random_u64());
    params::register_pools(mdt, &config.pools, old.iter().map(String::as_str));
    mdt.osts.set_known();
}

/// Applies nodemaps, and stores them for the next start.
fn set_nodemaps(mdt: &Mdt, config: &Config) {
    if !mdt.nodemaps.set(&config.nodemaps) {
        return;
    }
    let stored = mdt.rt.block_in_place(|| nodemaps::store(&mdt.rt.disk(), &mdt.config.dir, &config.nodemaps));
    match stored {
        Ok(()) => info!("{}: nodemaps have changed", mdt.name),
        Err(e) => {
            error!("{}: cannot store the nodemaps: {e}; those before apply after a restart without MGS", mdt.name)
        }
    }
}

/// Reads the copy of the configuration. `None`: there is none, or it cannot be read.
fn read_copy(mdt: &Mdt) -> Option<Config> {
    let (dir, fsname) = (&mdt.config.dir, &mdt.config.fsname);
    match mdt.rt.block_in_place(|| stored_config::read(&mdt.rt.disk(), dir, fsname)) {
        Ok(copy) => copy,
        Err(e) => {
            let path = dir.join(stored_config::FILE);
            warn!(
                "{}: cannot read {}: {e}; without the MGS no OSTs are known, and creates wait",
                mdt.name,
                path.display()
            );
            None
        }
    }
}

/// Stores a copy of a configuration for the next start, if it differs from the present copy.
fn store_copy(mdt: &Mdt, copy: &mut Option<Config>, config: &Config) {
    let part = stored_config::part_of_mdt(config);
    if copy.as_ref() == Some(&part) {
        return;
    }
    match mdt.rt.block_in_place(|| stored_config::write(&mdt.rt.disk(), &mdt.config.dir, &part)) {
        Ok(()) => *copy = Some(part),
        Err(e) => error!("{}: cannot store the list of OSTs: {e}; a restart without MGS uses an older one", mdt.name),
    }
}

/// Adds an OST, or renews its addresses. A known OST keeps its import. A second import of this life
/// would count its requests from 1 again, and an OST that was never disconnected would not answer
/// them.
fn put(mdt: &Arc<Mdt>, target: &Target, oss: u32) {
    let name = target.name(&mdt.config.fsname);
    let nids = nids(target, &name);
    let old = mdt.osts.get(target.index);
    if let Some(known) = old.as_ref().filter(|osp| osp.uuid == target.uuid) {
        known.oss.store(oss, Relaxed);
        if known.import.nids() != nids {
            info!("{}: {name} is now at {}", mdt.name, target.nids.join(","));
            known.import.set_nids(nids);
        }
        known.import.set_incarnation(target.incarnation);
        return;
    }
    info!("{}: {name} is at {}", mdt.name, target.nids.join(","));
    let osp = Arc::new(connect(mdt, target, &name, nids, oss));
    if let Some(old) = &old {
        osp.active_param.store(old.active_param.load(Relaxed), Relaxed);
        osp.max_create_count.store(old.max_create_count.load(Relaxed), Relaxed);
        mdt.quotas.divide(|division| division.remove_ost(target.index));
    }
    // Before anything can be placed there. Without a lock of the OSTs' state, because setting a
    // parameter reads that state.
    params::register_osp(mdt, &osp);
    let task = mdt.rt.spawn("osp", osp::run(mdt.clone(), osp.clone()));
    mdt.osts.put(osp, task);
}

/// Removes an OST that was removed from the file system. Its objects count as destroyed.
fn remove(mdt: &Arc<Mdt>, target: &Target) {
    if !mdt.osts.set_removed(target.index) {
        return;
    }
    if let Some(osp) = mdt.osts.remove(target.index) {
        info!("{}: {} was removed from the file system", mdt.name, osp.target);
        params::unregister_osp(mdt, &osp);
        mdt.quotas.divide(|division| division.remove_ost(target.index));
    }
    mdt.quotas.log.notify_one();
    let mut core = mdt.core.lock();
    for range in core.ns.orphan_ranges().iter().filter(|range| range.ost == target.index) {
        core.ns.range_destroyed(range);
    }
    mdt.wake_committer(&core);
    drop(core);
    mdt.destroyer.rescan();
}

/// Returns the NIDs of a target; skips those that cannot be parsed.
fn nids(target: &Target, name: &str) -> Vec<Nid> {
    let parsed = |nid: &String| nid.parse::<Nid>().inspect_err(|e| warn!("{name}: ignored an address: {e}")).ok();
    target.nids.iter().filter_map(parsed).collect()
}

fn connect(mdt: &Arc<Mdt>, target: &Target, name: &str, nids: Vec<Nid>, oss: u32) -> Osp {
    // A new client in each life of this MDT. Its requests count from 1 again, and the OST must not
    // take them for old ones.
    let life = format!("{}-{:016x}", mdt.uuid, mdt.incarnation);
    let import = Import::new(mdt.net.clone(), ImportConfig::new(&life, name, nids).of(&target.uuid));
    Osp::new(target.index, name.to_string(), target.uuid.clone(), oss, import)
}

/// The task that registers the MDT and follows the configuration. Ends only if the MGS refuses the
/// MDT.
pub(crate) async fn follow(mdt: Arc<Mdt>) -> Result<()> {
    let copy = read_copy(&mdt);
    let mut following = Box::pin(follow_mgs(mdt.clone(), copy.clone()));
    if let Some(copy) = copy {
        tokio::select! {
            biased;
            ended = &mut following => return ended,
            () = mdt.rt.sleep(MGS_WAIT) => {}
        }
        if !mdt.osts.known() {
            warn!("{}: the MGS does not answer: using the OSTs and settings that it reported before", mdt.name);
            update(&mdt, &copy);
        }
    }
    following.await
}

/// Registers the MDT and follows the configuration of the MGS. `copy`: the stored one.
async fn follow_mgs(mdt: Arc<Mdt>, mut copy: Option<Config>) -> Result<()> {
    let config = &mdt.config;
    let mgc = Mgc::new(mdt.net.clone(), config.mgs.clone(), &mdt.uuid);
    let (index, nids) = (Some(config.index), &config.nids);
    let registered = mgc.register(&config.fsname, TargetKind::Mdt, index, &mdt.uuid, nids, mdt.incarnation).await;
    if let Err(e) = &registered {
        error!("{}: the MGS refused the registration ({e}); no OSTs are known; see the MGS's log", mdt.name);
    }
    mdt.registered.send_replace(Some(registered.map(drop)));
    registered?;
    let mut version = 0;
    loop {
        match mgc.watch(&config.fsname, version).await {
            Ok(config) => {
                version = config.version;
                set_nodemaps(&mdt, &config);
                update(&mdt, &config);
                store_copy(&mdt, &mut copy, &config);
            }
            Err(e) => {
                error!("{}: cannot read the configuration from the MGS ({e}); retrying in 5 s", mdt.name);
                mdt.rt.sleep(RETRY).await;
            }
        }
    }
}
