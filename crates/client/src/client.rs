//! The client object: mounting, following the configuration, and unmounting.
//!
//! Mounting reads the configuration from the MGS and creates an import for the MDT and for each
//! OST; imports connect at first use. It then reads the root directory and a FID sequence from the
//! MDT, so a mount that succeeds also works. Afterwards a task waits at the MGS for configuration
//! changes: new OSTs and new addresses of targets take effect without a restart.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use sheen_ldlm::client::Held;
use sheen_lnet::{Net, Nid};
use sheen_mgc::Mgc;
use sheen_params::Params;
use sheen_rt::{JoinHandle, Rt};
use sheen_wire::{
    Errno, Fid, Result,
    fid::ROOT,
    ldlm::Resource,
    mds::Request,
    mgs::{Config, TargetKind, target_name},
};

use crate::{
    ClientOptions, Invalidate, MountError,
    cache::Cache,
    closed::Closes,
    file::OpenFiles,
    join::{join_all, join_batches},
    layouts::Layouts,
    llite::{moved::LAYOUT_TRUST, scan::ScanPages},
    lov::Lov,
    mdc::Mdc,
    params::Registered,
    pools::Pools,
    read_ahead::ReadAhead,
    statahead::Statahead,
    stats::OpStats,
    targets::Targets,
};

/// Bits set in the random instance number of each mount. Lustre's instance numbers are kernel
/// addresses, which begin with `ff` as well; so device names with an instance sort after those with
/// `MDT0000`.
const INSTANCE_BITS: u64 = 0xff << 56;

/// How long mounting waits for the MGS, and afterwards for the MDT.
const MOUNT_WAIT: Duration = Duration::from_secs(20);
/// How long unmounting waits for the close requests of files that are still open.
const UMOUNT_WAIT: Duration = Duration::from_secs(5);
/// How long unmounting waits until dirty data has been written to the OSTs.
const FLUSH_WAIT: Duration = Duration::from_secs(60);
/// Maximum number of concurrent close requests while unmounting.
const CLOSES_AT_ONCE: usize = 16;
/// Pause after the MGS rejected a watch request, so that a broken MGS is not flooded.
const WATCH_PAUSE: Duration = Duration::from_secs(5);

/// A mounted file system.
pub struct Client {
    pub(crate) rt: Rt,
    pub(crate) fsname: String,
    pub(crate) instance: String,
    pub(crate) uuid: String,
    pub(crate) mountpoint: String,
    pub(crate) mgs_nids: Vec<Nid>,
    pub(crate) mgc: Arc<Mgc>,
    pub(crate) mdc: Arc<Mdc>,
    pub(crate) pools: Arc<Pools>,
    pub(crate) lov: Arc<Lov>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) layouts: Arc<Layouts>,
    pub(crate) files: Arc<OpenFiles>,
    pub(crate) stats: Arc<OpStats>,
    pub(crate) read_ahead: ReadAhead,
    pub(crate) closes: Arc<Closes>,
    pub(crate) statahead: Statahead,
    pub(crate) scans: ScanPages,
    watch: Mutex<Option<JoinHandle<()>>>,
    /// Task that drops layouts which the MDT has not confirmed for a long time.
    distrust: Mutex<Option<JoinHandle<()>>>,
    registered: Mutex<Option<Registered>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({}-{}, {} open)", self.fsname, self.instance, self.files.len())
    }
}

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
        let config = read_config(&rt, &mgc, &mgs, fsname).await?;
        let cache = Cache::new(&rt, options.inodes_max);
        let lov = Arc::new(Lov::new(rt.clone(), cache.clone()));
        let targets = Targets::new(net, fsname, &instance, &uuid, lov.clone(), params.clone());
        let mdc = targets.mdc(&config, options.groups)?;
        let closes = Closes::new(&rt, &mdc, &cache);
        let files = Arc::new(OpenFiles::default());
        let layouts = Arc::new(Layouts::new(options.layouts_max));
        files.stay_open(&mdc, &layouts);
        mdc.set_closes(&closes);
        let client = Arc::new(Client {
            stats: Arc::new(OpStats::new(&rt)),
            read_ahead: ReadAhead::new(&rt),
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
            watch: Mutex::new(None),
            distrust: Mutex::new(None),
            registered: Mutex::new(None),
        });
        client.statahead.set_client(&client);
        let registered = Registered::new(params, &client);
        targets.apply(&config, &client.mdc);
        client.first_contact().await?;
        *client.registered.lock() = Some(registered);
        *client.watch.lock() = Some(rt.spawn("config", watch(rt.clone(), mgc, config, targets, client.mdc.clone())));
        *client.distrust.lock() = Some(rt.spawn("layouts", distrust(rt.clone(), Arc::downgrade(&client))));
        Ok(client)
    }

    /// The root directory.
    pub fn root(&self) -> Fid {
        ROOT
    }

    /// The file system's name.
    pub fn fsname(&self) -> &str {
        &self.fsname
    }

    /// Returns the mount's instance number in names of parameters: 16 hex digits, different for
    /// each mount.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Returns the locks that this client holds from an OST, or from the MDT (`None`), for dumps
    /// and checkers.
    pub fn locks_held(&self, ost: Option<u32>) -> Vec<(Resource, Held)> {
        match ost {
            Some(index) => self.lov.get(index).map(|osc| osc.locks().all_locks()).unwrap_or_default(),
            None => self.mdc.locks().all_locks(),
        }
    }

    /// Sets the kernel, whose caches the client invalidates before it cancels a lock. Call it once,
    /// before the first operation. A kernel that caches names must check permissions itself.
    /// Without a kernel, only the client itself caches.
    pub fn set_kernel(&self, kernel: Arc<dyn Invalidate>) {
        self.cache.set_kernel(kernel);
    }

    /// Flushes dirty data, closes all open files and disconnects from every target. Afterwards
    /// every operation fails with ESHUTDOWN.
    pub async fn umount(&self) {
        for task in [&self.watch, &self.distrust] {
            if let Some(task) = task.lock().take() {
                task.abort();
            }
        }
        let registered = self.registered.lock().take();
        drop(registered);
        if self.rt.timeout(FLUSH_WAIT, self.lov.settle_all()).await.is_err() {
            tracing::error!("{}: unmount: an OST did not answer in time: discarded dirty data", self.fsname);
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
        join_all(osts.iter().map(|osc| osc.import().close())).await;
        self.mdc.import().close().await;
    }

    /// Returns Lustre's name for the MGC device.
    pub(crate) fn mgc_name(&self) -> String {
        format!("MGC{}", self.mgs_nids.first().map(|nid| nid.to_string()).unwrap_or_default())
    }

    /// Contacts the MDT. The mount succeeds only if the MDT answers.
    async fn first_contact(&self) -> Result<(), MountError> {
        let ask = async {
            self.mdc.reserve_fids().await?;
            self.mdc.call(Request::GetAttr { fid: ROOT, layout_known: false }).await
        };
        let failed = |errno| {
            let target = target_name(&self.fsname, TargetKind::Mdt, 0);
            MountError::Root { target, errno }
        };
        self.rt.timeout(MOUNT_WAIT, ask).await.unwrap_or(Err(Errno::ETIMEDOUT)).map_err(failed)?;
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        for task in [&mut self.watch, &mut self.distrust] {
            if let Some(task) = task.get_mut().take() {
                task.abort();
            }
        }
    }
}

async fn read_config(rt: &Rt, mgc: &Mgc, nids: &[Nid], fsname: &str) -> Result<Config, MountError> {
    let nids = || nids.iter().map(|nid| nid.to_string()).collect::<Vec<_>>().join(",");
    match rt.timeout(MOUNT_WAIT, mgc.config(fsname)).await {
        Ok(Ok(config)) => Ok(config),
        Ok(Err(Errno::ENOENT)) => Err(MountError::NoFileSystem { nids: nids(), fsname: fsname.to_owned() }),
        Ok(Err(errno)) => Err(MountError::Mgs { nids: nids(), errno }),
        Err(_) => Err(MountError::Mgs { nids: nids(), errno: Errno::ETIMEDOUT }),
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

/// Returns a random uuid in the usual form (version 4).
fn new_uuid(rt: &Rt) -> String {
    let mut b = [0u8; 16];
    rt.fill_random(&mut b);
    b[6] = b[6] & 0x0f | 0x40;
    b[8] = b[8] & 0x3f | 0x80;
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    format!("{}-{}-{}-{}-{}", hex(&b[..4]), hex(&b[4..6]), hex(&b[6..8]), hex(&b[8..10]), hex(&b[10..]))
}
