//! An OST: its start, its life as a target, its end.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use parking_lot::RwLock;
use sheen_lnet::Net;
use sheen_lockd::Lockd;
use sheen_mgc::Mgc;
use sheen_params::{Params, Stats};
use sheen_rpc::{Gate, Server};
use sheen_rt::Rt;
use sheen_wire::mgs::{TargetKind, data_name, target_name};
use sheen_wire::{STATE_DEGRADED, StatFs};
use tracing::{info, warn};

use crate::{
    DataConfig, OssError, OstConfig, Store, beginning::Exports, locks::Locks, params, service, waiting::Waiting,
};

/// A running OST.
pub struct Ost {
    pub(crate) rt: Rt,
    pub(crate) name: String,
    pub(crate) index: u32,
    /// By which clients know it.
    pub(crate) uuid: String,
    /// It is the data service of an MDT.
    pub(crate) is_of_mdt: bool,
    pub(crate) incarnation: u64,
    pub(crate) store: Store,
    pub(crate) locks: Locks,
    pub(crate) waiting: Waiting,
    pub(crate) gate: Gate,
    pub(crate) stats: Stats,
    /// `obdfilter.*.degraded`: who watches its disks says that they are being repaired.
    pub(crate) degraded: AtomicBool,
    /// Exports that asked for something and are not gone, by id.
    pub(crate) exports: RwLock<Exports>,
    server: Weak<Server>,
    params: Params,
}

impl std::fmt::Debug for Ost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ost({})", self.name)
    }
}

impl Ost {
    /// Starts the OST in `config.dir`, formatting it if it is new: takes the directory's lock,
    /// serves requests as `<fsname>-OSTxxxx` of `server`, and registers with the MGS (waiting until
    /// it answers).
    ///
    /// It serves before it registers, so that who hears of it from the MGS finds it. A new OST
    /// without an index is the exception: it has no name before the MGS gives it one.
    ///
    /// # Errors
    /// The directory cannot be used, or the MGS refuses the target; the message says what to do.
    pub async fn start(
        net: Arc<Net>,
        server: &Arc<Server>,
        config: OstConfig,
        params: Params,
    ) -> Result<Arc<Ost>, OssError> {
        let rt = net.rt().clone();
        let OstConfig { dir, fsname, index, mgs, nids, sharing, open_files_max } = config;
        let mut store = Store::open(&rt, &dir, &fsname, index, open_files_max, &sharing).await?;
        let uuid = store.identity().uuid.clone();
        let mgc = Mgc::new(net, mgs, &uuid);
        let register = async |index| {
            let refused = |errno| OssError::Refused { dir: dir.clone(), errno };
            mgc.register(&fsname, TargetKind::Ost, index, &uuid, &nids).await.map_err(refused)
        };
        let known = store.identity().index;
        let index = match known {
            Some(index) => index,
            None => register(None).await?,
        };
        store.set_index(index)?;
        let name = target_name(&fsname, TargetKind::Ost, index);
        let ost = Ost::begin(rt, server, store, (name, false), index, uuid.clone(), params);
        if known.is_some()
            && let Err(refused) = register(known).await
        {
            ost.stop().await;
            return Err(refused);
        }
        info!("{} serves {}", ost.name, dir.display());
        Ok(ost)
    }

    /// Starts the data service of an MDT in `config.dir`, formatting it if it is new, as
    /// `<fsname>-MDTxxxx-dom` of `server`. The MGS does not hear of it.
    ///
    /// # Errors
    /// The directory cannot be used; the message says what to do.
    pub async fn start_data(
        net: &Arc<Net>,
        server: &Arc<Server>,
        config: DataConfig,
        params: Params,
    ) -> Result<Arc<Ost>, OssError> {
        let rt = net.rt().clone();
        let DataConfig { dir, fsname, index, mdt, uuid, sharing, open_files_max } = config;
        let mut store = Store::open_uncounted(&rt, &dir, &fsname, Some(index), open_files_max, &sharing).await?;
        store.set_index(index)?;
        let ost = Ost::begin(rt, server, store, (data_name(&mdt), true), index, uuid, params);
        info!("{} serves {}", ost.name, dir.display());
        Ok(ost)
    }

    /// Serves an open store as a target of that name; also whether it is the data service of an
    /// MDT.
    fn begin(
        rt: Rt,
        server: &Arc<Server>,
        store: Store,
        (name, is_of_mdt): (String, bool),
        index: u32,
        uuid: String,
        params: Params,
    ) -> Arc<Ost> {
        let ost = Arc::new(Ost {
            incarnation: rt.random_u64(),
            stats: Stats::new(service::COUNTERS, rt.wall()),
            degraded: AtomicBool::new(false),
            locks: Locks::new(&rt, &name),
            waiting: Waiting::default(),
            gate: Gate::default(),
            exports: RwLock::default(),
            server: Arc::downgrade(server),
            params: params.clone(),
            rt,
            name,
            index,
            is_of_mdt,
            uuid,
            store,
        });
        params::register(&ost, &params);
        server.add::<sheen_wire::Ost>(&ost.name, ost.clone());
        ost
    }

    /// `<fsname>-OSTxxxx`, or `<fsname>-MDTxxxx-dom`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Index among the OSTs, or of the MDT.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Space, and what is amiss.
    ///
    /// # Errors
    /// What the disk answers.
    pub(crate) fn statfs(&self) -> sheen_wire::Result<StatFs> {
        let state = if self.degraded.load(Relaxed) { STATE_DEGRADED } else { 0 };
        Ok(StatFs { state, ..self.store.statfs()? })
    }

    /// The objects, for tests and tools of this process.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The lock server, for tests and tools of this process.
    pub fn lockd(&self) -> &Arc<Lockd<sheen_wire::Ost>> {
        self.locks.lockd()
    }

    /// Stops in order: no new requests, those that run are finished and answered, everything is
    /// durable, the directory is free. Fine to call twice.
    pub async fn stop(&self) {
        if let Some(server) = self.server.upgrade() {
            server.drain(&self.name).await;
        }
        // Only now, when no answer goes out any more: a client asks the OST's successor for what it
        // waited for.
        self.locks.stop();
        self.gate.close().await;
        if let Err(errno) = self.store.close().await {
            warn!("{}: what was written last may not be durable: {errno}", self.name);
        }
        params::unregister(self, &self.params);
        info!("{} stopped", self.name);
    }
}
