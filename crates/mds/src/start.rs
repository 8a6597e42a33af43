//! Start and stop of an MDT.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use sheen_layout::Placer;
use sheen_lnet::Net;
use sheen_params::{JobStats, Params, Stats};
use sheen_recoveryd::Limits;
use sheen_rpc::{ExportStats, Server, Service};
use sheen_rt::target_dir::{DirError, lock_dir};
use sheen_rt::{JoinHandle, LockGuard, Rt};
use sheen_wire::mgs::{TargetKind, target_name};
use sheen_wire::seq::MdtIndex;
use sheen_wire::{Errno, Mds, Result};
use tokio::sync::{Notify, watch};
use tracing::info;

use crate::config::{MdtConfig, Tunables};
use crate::error::MdtError;
use crate::mdt::{Mdt, Tasks};
use crate::state::authors::Authors;
use crate::state::changelog_readers::ChangelogReaders;
use crate::state::commits::Commits;
use crate::state::core::Core;
use crate::state::destroyer::Destroyer;
use crate::state::fences::Fences;
use crate::state::lfsck::Lfsck;
use crate::state::locks::Locks;
use crate::state::nodemaps::{self, Present};
use crate::state::osts::Osts;
use crate::state::quotas::Quotas;
use crate::state::recovery::Recovery;
use crate::state::relayouts::Relayouts;
use crate::{commit, destroy, dir, dom, jobs, lfsck, osts, params, quota, recovery, service};

impl Mdt {
    /// Starts the MDT in a directory and serves it as a target of `server`. Formats an empty
    /// directory. Registers with the MGS and connects to the OSTs in the background: a disconnected
    /// MGS or OST does not delay the start. Without an MGS it uses the OSTs that it knew before.
    ///
    /// # Errors
    /// The directory is in use, belongs to another target, cannot be read or written, or has lost
    /// its store. The index is too large.
    pub async fn start(
        rt: Rt,
        net: Arc<Net>,
        server: &Arc<Server>,
        config: MdtConfig,
        params: Params,
    ) -> std::result::Result<Arc<Mdt>, MdtError> {
        MdtIndex::new(config.index).ok_or(MdtError::Index(config.index))?;
        let disk = rt.disk();
        let lock = lock_dir(&disk, &config.dir)?;
        let (uuid, dir::Opened { ns, store, reserve }) = dir::open(&rt, &config).await?;
        let io = |error| DirError::Io { path: config.dir.clone(), error };
        let device = disk.device(&config.dir).map_err(io)?;
        let open_dir = disk.open_dir(&config.dir).map_err(io)?;
        let nodemaps = Present::open(&disk, &config.dir)
            .map_err(|error| DirError::Io { path: config.dir.join(nodemaps::FILE), error })?;
        let name = target_name(&config.fsname, TargetKind::Mdt, config.index);
        let recovery = Arc::new(Recovery::new(&rt, ns.clients_to_recover(), Limits::default()));
        let mdt = Arc::new_cyclic(|me| Mdt {
            me: me.clone(),
            recovery,
            sequences: Mutex::default(),
            nodemaps,
            committed_before: ns.last_committed(),
            locks: Locks::new(&rt, &name),
            commits: Commits::new(ns.last_committed()),
            core: Mutex::new(Core {
                ns,
                placer: Placer::new(rt.random_u64()),
                authors: Authors::default(),
                round: 0,
                exports: FxHashSet::default(),
                listed: FxHashMap::default(),
                changelog_readers: ChangelogReaders::default(),
            }),
            tunables: Tunables::new(&config),
            share: config.sharing.join(device),
            dir: open_dir,
            reserve,
            incarnation: rt.random_u64(),
            destroyer: Destroyer::new(),
            lfsck: Lfsck::default(),
            osts: Osts::new(),
            quotas: Quotas::new(),
            relayouts: Relayouts::default(),
            fences: Fences::new(),
            stats: Stats::new(service::STATS, rt.wall()),
            jobs: JobStats::new(jobs::COUNTERS),
            export_stats: ExportStats::new(&rt, &params, &params::dir(&name), service::STATS),
            stopped: AtomicBool::new(false),
            is_clean: AtomicBool::new(false),
            data_service: OnceLock::new(),
            replaced: Notify::new(),
            registered: watch::Sender::new(None),
            tasks: Mutex::new(None),
            rt,
            net,
            server: Arc::downgrade(server),
            config,
            name,
            uuid,
            store,
            params,
        });
        params::register(&mdt);
        dom::connect(&mdt);
        // Before the registration, so that clients that learn of the MDT from the MGS find it here.
        server.add::<Mds>(&mdt.name, mdt.clone() as Arc<dyn Service<Mds>>);
        mdt.clone().spawn(lock);
        Ok(mdt)
    }

    fn spawn(self: Arc<Mdt>, lock: LockGuard) {
        let rt = &self.rt;
        let committer = rt.spawn("mdt-commit", commit::run(self.clone()));
        let destroyer = rt.spawn("mdt-destroy", destroy::run(self.clone()));
        let follow = osts::follow(self.clone());
        let follower = rt.spawn("mdt-follow", async move {
            let _ = follow.await;
        });
        let recovery = rt.spawn("mdt-recovery", recovery::run(self.clone()));
        let replaced = rt.spawn("mdt-replaced", drop_replaced(self.clone()));
        let lfsck = rt.spawn("mdt-lfsck", lfsck::run(self.clone()));
        let mut others = vec![destroyer, follower, recovery, replaced, lfsck];
        others.extend(dom::clean(&self));
        others.extend(quota::spawn(&self));
        *self.tasks.lock() = Some(Tasks { committer, others, _lock: lock });
    }

    /// Stops the MDT: admits no new requests (their clients wait for its return), answers the
    /// running ones, commits what was executed, closes the store and releases the directory. In a
    /// recovery it does not answer them, because they wait for other clients. They are repeated at
    /// the next start. A second call does nothing.
    ///
    /// # Errors
    /// EIO: the last commit failed; uncommitted changes are lost.
    pub async fn stop(&self) -> Result<()> {
        let Some(tasks) = self.tasks.lock().take() else { return Ok(()) };
        let (server, in_recovery) = (self.server.upgrade(), !self.recovery.is_ended());
        if in_recovery {
            // Before the waits end, so that no client gets an answer.
            server.iter().for_each(|server| server.remove(&self.name));
            self.locks.stop();
        } else {
            self.revoke_all().await;
            self.locks.stop();
            // Before the last commit, so that the commit has every change that clients got a reply
            // to.
            if let Some(server) = server {
                server.drain(&self.name).await;
            }
        }
        {
            let mut core = self.core.lock();
            self.stopped.store(true, Relaxed);
            let is_relied_on = in_recovery || self.is_relied_on(&core);
            core.ns.stop(is_relied_on);
        }
        self.lfsck.stop();
        tasks.others.iter().for_each(JoinHandle::abort);
        self.registered.send_if_modified(|answer| {
            let waits = answer.is_none();
            answer.get_or_insert(Err(Errno::ESHUTDOWN));
            waits
        });
        self.osts.stop();
        params::unregister(self);
        self.commits.stop();
        let ended = tasks.committer.await.unwrap_or(Err(Errno::EIO));
        let store = self.store.clone();
        if let Err(e) = self.rt.run_blocking(move || store.close()).await {
            self.damaged(&e);
        }
        if ended.is_ok() {
            dom::ended(self);
        }
        info!("{}: stopped", self.name);
        ended
    }
}

/// Task that releases files which renames have replaced, [`MdtConfig::keep_replaced_ms`] after the
/// rename.
async fn drop_replaced(mdt: Arc<Mdt>) {
    let pause = Duration::from_millis(mdt.config.keep_replaced_ms.max(1).into());
    loop {
        mdt.replaced.notified().await;
        loop {
            mdt.rt.sleep(pause).await;
            let mut core = mdt.core.lock();
            let more = core.ns.drop_replaced(mdt.rt.wall());
            mdt.wake_committer(&core);
            if !more {
                break;
            }
        }
    }
}
