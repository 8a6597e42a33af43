//! Mounting, following the configuration, and unmounting.
//!
//! Mounting reads the configuration from the MGS and creates an import for the MDT and for each
//! OST, which begins to connect. From then on a task waits at the MGS for configuration changes. So
//! new OSTs and new addresses of targets take effect without a restart, also while the mount waits
//! for a target. The mount then reads the root directory and a FID sequence from the MDT, so a
//! mount that succeeds also works. Meanwhile it connects to the MDT's data service. It waits for
//! servers that are in recovery or taken over ([`MountWaits`]).

use std::{
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use sheen_layout::MDT_OST;
use sheen_lnet::{Net, Nid};
use sheen_mgc::Mgc;
use sheen_params::Params;
use sheen_rpc::ConnectError;
use sheen_rt::Rt;
use sheen_rt::join::{join_all, join_batches};
use sheen_wire::{
    Errno, Result,
    fid::ROOT,
    mds::{FEATURE_DATA, Reply, Request},
    mgs::{Config, TargetKind, target_name},
};

use crate::{
    access_patterns::AccessPatterns,
    cache::{Cache, Layouts},
    io_stats::IoStats,
    llite::{Client, LAYOUT_TRUST, ReadAhead, Statahead},
    lock_owners::MdtLocks,
    lov::Lov,
    mdc::Mdc,
    mount_waits::MountWaits,
    open::{Closes, OpenFiles, ScanPages},
    params,
    stats::OpStats,
    targets::Targets,
    types::{ClientOptions, MountError},
};

/// Bits set in the random instance number of each mount. Lustre's instance numbers are kernel
/// addresses, which begin with `ff` as well; so device names with an instance sort after those with
/// `MDT0000`.
const INSTANCE_BITS: u64 = 0xff << 56;

/// How long unmounting waits for the close requests of files that are still open.
const UMOUNT_WAIT: Duration = Duration::from_secs(5);
/// How long unmounting waits until dirty data has been written to the OSTs.
const FLUSH_WAIT: Duration = Duration::from_secs(60);
/// Maximum number of concurrent close requests while unmounting.
const CLOSES_AT_ONCE: usize = 16;
/// Pause after the MGS rejected a watch request, so that a broken MGS is not flooded.
const WATCH_PAUSE: Duration = Duration::from_secs(5);

impl Client {
    /// Mounts the file system `fsname` of the MGS at `mgs`.
    ///
    /// # Errors
    /// See [`MountError`].
    pub async fn mount(
        rt: Rt,
        net: Arc<Net>,
        mgs: Vec<Nid>,
        fsname: &str,
        options: ClientOptions,
        params: Params,
    ) -> Result<Arc<Client>, MountError> {
        if mgs.is_empty() {
            return Err(MountError::NoMgs);
        }
        let (uuid, instance) = (new_uuid(&rt), format!("{:016x}", rt.random_u64() | INSTANCE_BITS));
        let mgc = Mgc::new(net.clone(), mgs.clone(), &uuid);
        let waits = MountWaits::new(&rt, &options);
        let config = read_config(&waits, &mgc, &mgs, fsname).await?;
        let lov = Arc::new(Lov::new(rt.clone()));
        let cache = Cache::new(&rt, options.inodes_max, lov.objects());
        let targets = Targets::new(net, fsname, &instance, &uuid, lov.clone(), cache.clone(), params.clone())
            .with_server_wait(options.server_wait);
        let mdc = targets.mdc(&config, options.groups)?;
        let closes = Closes::new(&rt, &mdc, &cache);
        let files = Arc::new(OpenFiles::default());
        let layouts = Arc::new(Layouts::new(options.layouts_max));
        let mdt_locks = MdtLocks::new(&cache, &mdc, &files, &layouts, &closes);
        files.stay_open(&mdc, &layouts);
        let client = Arc::new_cyclic(|me| Client {
            me: me.clone(),
            stats: Arc::new(OpStats::new(&rt)),
            read_ahead: ReadAhead::new(&rt),
            access_patterns: AccessPatterns::new(&rt),
            io_stats: IoStats::new(&rt),
            rt: rt.clone(),
            fsname: fsname.to_owned(),
            instance,
            uuid,
            mountpoint: options.mountpoint,
            mgs_nids: mgs,
            mgc: mgc.clone(),
            mdc,
            pools: targets.pools(),
            lov,
            cache,
            layouts,
            files,
            closes,
            statahead: Statahead::new(),
            scans: ScanPages::default(),
            _mdt_locks: mdt_locks,
            tasks: Mutex::default(),
            registered: Mutex::new(None),
            root: OnceLock::new(),
            read_only: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
        });
        let registered = params::register_client(params, &client);
        targets.apply(&config, &client.mdc);
        // Before the first wait, so that the mount follows a target which moves meanwhile. A mount
        // that fails drops the client, and so aborts the task.
        let watch = rt.spawn("config", watch(rt.clone(), mgc, config, targets, client.mdc.clone()));
        client.tasks.lock().push(watch);
        client.first_contact(&options.subdir, options.server_wait.is_none(), &waits).await?;
        let osts = || {
            let active = client.lov.all().into_iter().filter(|ost| ost.osc.active());
            active.map(|ost| ost.osc.import().clone()).collect::<Vec<_>>()
        };
        waits.osts(osts).await;
        client.mdc.capabilities().of_mount(client.mdc.import());
        *client.registered.lock() = Some(registered);
        let distrust = rt.spawn("layouts", distrust(rt.clone(), Arc::downgrade(&client)));
        client.tasks.lock().push(distrust);
        confirm_evictions(rt, &client);
        Ok(client)
    }

    /// Flushes dirty data, closes all open files and disconnects from every target. Afterwards
    /// every operation fails with ESHUTDOWN. Data that this client retains for a failure of an
    /// OST's host is made durable first.
    pub async fn umount(&self) {
        self.is_leaving.store(true, Relaxed);
        self.abort_tasks();
        if self.rt.timeout(FLUSH_WAIT, self.lov.settle_all()).await.is_err() {
            tracing::error!("{}: unmount: an OST did not answer in time: discarded dirty data", self.fsname);
        } else if self.rt.timeout(FLUSH_WAIT, self.lov.sync_retained()).await.is_err() {
            tracing::warn!("{}: unmount: an OST did not make all data durable in time", self.fsname);
        }
        let closes = self.files.all().into_iter().map(|file| self.release(file));
        let closed = async {
            join_batches(closes.collect(), CLOSES_AT_ONCE).await;
            let _ = self.closes.tell_all().await;
        };
        if self.rt.timeout(UMOUNT_WAIT, closed).await.is_err() {
            tracing::warn!(
                "{}: unmount: the MDT did not answer all closes in time: open files stay until it evicts this client",
                self.fsname
            );
        }
        let osts = self.lov.all();
        join_all(osts.iter().map(|ost| ost.osc.import().close())).await;
        self.mdc.import().close().await;
        // Last: `sheen umount` waits until the parameters are removed.
        let registered = self.registered.lock().take();
        drop(registered);
    }

    /// Returns the mount point; empty while the client leaves its servers.
    pub(crate) fn mount_point(&self) -> String {
        if self.is_leaving.load(Relaxed) { String::new() } else { self.mountpoint.clone() }
    }

    /// Begins to connect to the MDT's data service, if the MDT has one.
    fn begin_data_service(&self) {
        if self.mdc.import().features() & FEATURE_DATA != 0
            && let Some(service) = self.lov.get(MDT_OST)
        {
            service.osc.import().begin_connect();
        }
    }

    /// Contacts the MDT, and finds the directory to be mounted, a path from its root. The mount
    /// succeeds only if the MDT answers. `hard`: repeats attempts to connect that take too long.
    async fn first_contact(&self, path: &str, hard: bool, waits: &MountWaits) -> Result<(), MountError> {
        let ask = async {
            loop {
                match self.mdc.import().connect().await {
                    Err(ConnectError::Unreachable { .. }) if hard => {}
                    connected => break connected?,
                }
            }
            self.begin_data_service();
            let root = self.mdc.request(Request::Root { path: path.to_owned() }).reply().await?;
            self.mdc.reserve_fids().await?;
            if let Reply::Root { fid, read_only } = root { Ok((fid, read_only)) } else { Err(Errno::EPROTO) }
        };
        let failed = |errno| match errno {
            Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES | Errno::ENAMETOOLONG if !path.is_empty() => {
                MountError::Subdirectory { fsname: self.fsname.clone(), path: path.to_owned(), errno }
            }
            Errno::EPERM => MountError::Nodemap(target_name(&self.fsname, TargetKind::Mdt, 0)),
            errno => MountError::Root { target: target_name(&self.fsname, TargetKind::Mdt, 0), errno },
        };
        let (root, read_only) = waits.target(self.mdc.import(), ask).await?.map_err(failed)?;
        self.read_only.store(read_only, Relaxed);
        if root != ROOT {
            let _ = self.root.set(root);
        }
        Ok(())
    }
}

async fn read_config(waits: &MountWaits, mgc: &Mgc, nids: &[Nid], fsname: &str) -> Result<Config, MountError> {
    let all = || nids.iter().map(Nid::to_string).collect::<Vec<_>>().join(",");
    match waits.mgs(mgc, nids, mgc.config(fsname)).await? {
        Ok(config) => Ok(config),
        Err(Errno::ENOENT) => Err(MountError::NoFileSystem { nids: all(), fsname: fsname.to_owned() }),
        Err(errno) => Err(MountError::Mgs { nids: all(), errno }),
    }
}

/// Applies configuration changes until aborted.
async fn watch(rt: Rt, mgc: Arc<Mgc>, config: Config, targets: Targets, mdc: Arc<Mdc>) {
    let (fsname, mut version) = (config.fsname, config.version);
    loop {
        match mgc.watch(&fsname, version).await {
            Ok(config) => {
                version = config.version;
                targets.apply(&config, &mdc);
            }
            Err(errno) => {
                tracing::warn!("{fsname}: cannot watch the configuration at the MGS: {errno}; trying again");
                rt.sleep(WATCH_PAUSE).await;
            }
        }
    }
}

/// Makes the client confirm layouts again with the MDT every [`LAYOUT_TRUST`].
async fn distrust(rt: Rt, client: Weak<Client>) {
    loop {
        rt.sleep(LAYOUT_TRUST).await;
        match client.upgrade() {
            Some(client) => client.distrust_layouts(),
            None => return,
        }
    }
}

/// After each eviction by an OST the client has no valid layouts, and asks the MDT for an answer.
fn confirm_evictions(rt: Rt, client: &Client) {
    let (evictions, mdc) = (Arc::downgrade(client.lov.evictions()), Arc::downgrade(&client.mdc));
    let (files, layouts) = (Arc::downgrade(&client.files), Arc::downgrade(&client.layouts));
    let ask = move |count| {
        files.upgrade().inspect(|files| files.outdate_all());
        layouts.upgrade().inspect(|layouts| layouts.clear());
        let (pauses, evictions, mdc) = (rt.clone(), evictions.clone(), mdc.clone());
        drop(rt.spawn("evictions", async move {
            while let Some(mdc) = mdc.upgrade() {
                let answer = mdc.request(Request::StatFs).reply().await;
                match answer {
                    Ok(_) => return drop(evictions.upgrade().inspect(|evictions| evictions.confirm(count))),
                    Err(Errno::ESHUTDOWN) => return,
                    Err(_) => pauses.sleep(WATCH_PAUSE).await,
                }
            }
        }));
    };
    client.lov.evictions().ask_with(Box::new(ask));
}

/// Returns a random uuid in the usual form (version 4).
fn new_uuid(rt: &Rt) -> String {
    let mut b = [0u8; 16];
    rt.fill_random(&mut b);
    b[6] = b[6] & 0x0f | 0x40;
    b[8] = b[8] & 0x3f | 0x80;
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    format!("{}-{}-{}-{}-{}", hex(&b[..4]), hex(&b[4..6]), hex(&b[6..8]), hex(&b[8..10]), hex(&b[10..]))
}
