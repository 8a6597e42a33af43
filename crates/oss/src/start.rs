//! Start and stop of an OST, and its registration with the MGS.

use std::sync::{Arc, atomic::AtomicBool};

use parking_lot::{Mutex, RwLock};
use sheen_lnet::Net;
use sheen_mgc::Mgc;
use sheen_params::{JobStats, Params, Stats};
use sheen_recoveryd::Limits;
use sheen_rpc::{ExportStats, Gate, Server};
use sheen_wire::mgs::{TargetKind, data_name, target_name};
use tracing::{info, warn};

use crate::{
    DataConfig, OssError, Ost, OstConfig, Store,
    brw_stats::BrwStats,
    capabilities::Capabilities,
    commit,
    commits::Commits,
    counters::{COUNTERS, JOB_COUNTERS},
    disk::Disk,
    loads::Survey,
    locks::Locks,
    ost::Recovery,
    params, quota_count,
    quota_state::QuotaState,
    recovery, scrub,
    scrubber::Scrubber,
    survey,
    write_admission::WriteAdmission,
};

impl Ost {
    /// Starts the OST in `config.dir`, formatting the directory if it is new. Takes the directory's
    /// lock, serves requests as `<fsname>-OSTxxxx` of `server`, and registers with the MGS. Returns
    /// once the MGS has answered.
    ///
    /// The OST serves before it registers, so that clients that learn of it from the MGS can
    /// connect. A new OST without an index is the exception: it has no name before the MGS assigns
    /// its index.
    ///
    /// # Errors
    /// The directory cannot be used, or the MGS refuses the target; the message says what to do.
    pub async fn start(
        net: Arc<Net>,
        server: &Arc<Server>,
        config: OstConfig,
        params: Params,
    ) -> Result<Arc<Ost>, OssError> {
        let rt = net.rt();
        let OstConfig { dir, fsname, index, mgs, nids, sharing, open_files_max, disk } = config;
        let mut store = Store::open(rt, &dir, &fsname, index, open_files_max, |device| sharing.join(device)).await?;
        survey::remove_leftovers(&store).await;
        let (uuid, incarnation) = (store.identity().uuid.clone(), rt.random_u64());
        let mgc = Mgc::new(net.clone(), mgs, &uuid);
        let register = async |index| {
            let refused = |errno| OssError::Refused { dir: dir.clone(), errno };
            mgc.register(&fsname, TargetKind::Ost, index, &uuid, &nids, incarnation).await.map_err(refused)
        };
        let known = store.identity().index;
        let index = match known {
            Some(index) => index,
            None => register(None).await?,
        };
        store.set_index(index)?;
        let name = target_name(&fsname, TargetKind::Ost, index);
        let ost = Ost::begin(&net, server, store, (name, false), index, (uuid.clone(), incarnation), params);
        if disk.is_some() {
            ost.disk.set(disk);
        }
        if known.is_some()
            && let Err(refused) = register(known).await
        {
            ost.stop().await;
            return Err(refused);
        }
        info!("{}: serving {}", ost.name, dir.display());
        Ok(ost)
    }

    /// Starts the data service of an MDT in `config.dir`, formatting the directory if it is new, as
    /// `<fsname>-MDTxxxx-dom` of `server`. The service does not register with the MGS.
    ///
    /// # Errors
    /// The directory cannot be used; the message says what to do.
    pub async fn start_data(
        net: &Arc<Net>,
        server: &Arc<Server>,
        config: DataConfig,
        params: Params,
    ) -> Result<Arc<Ost>, OssError> {
        let rt = net.rt();
        let DataConfig { dir, fsname, index, mdt, uuid, incarnation, sharing, open_files_max } = config;
        // The data service takes no part of the device's capacity from the OSTs on the device.
        let share = |device| sharing.join_uncounted(device);
        let mut store = Store::open(rt, &dir, &fsname, Some(index), open_files_max, share).await?;
        store.set_index(index)?;
        let ost = Ost::begin(net, server, store, (data_name(&mdt), true), index, (uuid, incarnation), params);
        info!("{}: serving {}", ost.name, dir.display());
        Ok(ost)
    }

    /// Starts to serve an open store as the target `name`. `is_of_mdt`: as the data service of an
    /// MDT.
    fn begin(
        net: &Arc<Net>,
        server: &Arc<Server>,
        store: Store,
        (name, is_of_mdt): (String, bool),
        index: u32,
        (uuid, incarnation): (String, u64),
        params: Params,
    ) -> Arc<Ost> {
        let rt = net.rt().clone();
        let recovery = Arc::new(Recovery::new(&rt, store.clients().names(), Limits::default()));
        let ost = Arc::new_cyclic(|me| Ost {
            me: me.clone(),
            net: net.clone(),
            capabilities: Capabilities::default(),
            recovery,
            destroyed: Mutex::default(),
            commits: Commits::new(store.first_transno()),
            incarnation,
            stats: Stats::new(COUNTERS, rt.wall()),
            jobs: JobStats::new(JOB_COUNTERS),
            export_stats: ExportStats::new(&rt, &params, &params::dir(&name, is_of_mdt), COUNTERS),
            brw_stats: BrwStats::new(rt.wall()),
            degraded: AtomicBool::new(false),
            locks: Locks::new(&rt, &name),
            write_admission: WriteAdmission::default(),
            quota: QuotaState::default(),
            scrubber: Scrubber::new(&rt, store.is_new_epoch()),
            survey: Survey::default(),
            disk: Disk::new(&rt, None),
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
        if ost.recovery.is_ended() {
            ost.all_replayed();
        } else {
            ost.commits.listed();
            let this = ost.clone();
            drop(ost.rt.spawn("ost-recovery", async move {
                // A stop waits until the present replay is executed, and nothing is written later.
                let Some(_pass) = this.gate.enter() else { return };
                let _ = this.locks.unless_stopping(recovery::run(this.clone())).await;
            }));
        }
        let scrub = scrub::run(ost.me.clone(), ost.rt.clone(), ost.scrubber.wake.clone());
        drop(ost.rt.spawn("ost-scrub", scrub));
        drop(ost.rt.spawn("ost-quota", quota_count::run(ost.me.clone(), ost.rt.clone())));
        let commit = commit::run(ost.me.clone(), ost.rt.clone(), ost.commits.wakes());
        drop(ost.rt.spawn("ost-commit", commit));
        ost
    }

    /// Stops in order: revokes locks, refuses new requests, answers the running ones, makes
    /// everything durable, releases the directory. May be called twice.
    ///
    /// In recovery, it does not wait for the running requests: most of them wait for clients that
    /// are not back. The next start waits for the same clients, which then repeat their replays and
    /// flushes, as after a crash. The only locks are group locks, which programs hold.
    pub async fn stop(&self) {
        if self.recovery.is_ended() {
            self.revoke_all().await;
        }
        // The requests that wait for these are answered, and must not delay the stop.
        self.disk.set(None);
        self.stop_quota();
        if let Some(server) = self.server.upgrade() {
            if self.recovery.is_ended() {
                server.drain(&self.name).await;
            } else {
                server.remove(&self.name);
            }
        }
        // Only after the last answer has been sent, or the connections are closed: a client repeats
        // unanswered requests at the restarted OST.
        self.locks.stop();
        self.commits.wake();
        self.gate.shut();
        self.survey.stop();
        self.gate.close().await;
        self.list_holders();
        if self.recovery.is_ended() {
            // The close reports what fails.
            let _ = self.commit().await;
        }
        if let Err(errno) = self.store.close().await {
            warn!("{}: sync at stop failed: {errno}; recent writes may be lost; check the device", self.name);
        }
        params::unregister(self, &self.params);
        info!("{}: stopped", self.name);
    }
}
