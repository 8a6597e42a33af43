//! Start and stop of an MDT.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use sheen_layout::Placer;
use sheen_lnet::Net;
use sheen_lockd::Lockd;
use sheen_namespace::{Namespace, StoreError};
use sheen_objects::sharing::Share;
use sheen_params::{Params, Stats};
use sheen_rpc::{Server, Service};
use sheen_rt::{Disk, Instant, JoinHandle, LockGuard, OpenDir, Rt};
use sheen_wire::mgs::{TargetKind, target_name};
use sheen_wire::seq::MdtIndex;
use sheen_wire::{Errno, Mds, Result as WireResult, Time};
use tokio::sync::{Notify, watch};
use tracing::{error, info};

use crate::commit::Commits;
use crate::config::{MdtConfig, Tunables};
use crate::destroy::{self, Destroyer};
use crate::dom::DataService;
use crate::identity::{FORMAT, Identity, IdentityError};
use crate::locks::Locks;
use crate::migrate::Moving;
use crate::osts::{self, Osts};
use crate::store::{self, RedbStore};
use crate::{commit, dom, params, service};

/// File that says which MDT the directory holds.
pub const IDENTITY: &str = "identity";
/// Lock file, held while a process serves the directory.
const LOCK: &str = "lock";
/// File of the store.
pub(crate) const STORE: &str = "store.redb";

/// Advice for an operator when the store of an MDT is lost. It names all targets: an MDT that is
/// older than its OSTs would allocate ids that existing objects have.
const RESTORE: &str = "restore the directories of all targets from one backup, or, if the files are not needed any more, \
    start a new file system in empty directories";

/// Subdirectory that the MDT's data service (DoM) uses.
pub const DATA_DIR: &str = "dom";

/// A running MDT.
pub struct Mdt {
    pub(crate) me: Weak<Mdt>,
    pub(crate) rt: Rt,
    pub(crate) net: Arc<Net>,
    server: Weak<Server>,
    pub(crate) config: MdtConfig,
    pub(crate) tunables: Tunables,
    /// Such as `sheen-MDT0000`.
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) incarnation: u64,
    pub(crate) started: Instant,
    pub(crate) store: Arc<RedbStore>,
    /// The open directory of the MDT: it stays the same if its path is mounted over.
    pub(crate) dir: OpenDir,
    /// The MDT's share of the device that holds its directory.
    pub(crate) share: Share,
    /// State that requests change. The lock is never held across a wait.
    pub(crate) core: Mutex<Core>,
    pub(crate) locks: Locks,
    pub(crate) commits: Commits,
    pub(crate) destroyer: Destroyer,
    pub(crate) osts: Osts,
    pub(crate) moving: Moving,
    pub(crate) stats: Stats,
    pub(crate) params: Params,
    pub(crate) stopped: AtomicBool,
    /// Whether the data service holds no objects of files that a crash lost.
    pub(crate) is_clean: AtomicBool,
    /// The data service that stores the MDT's DoM data, once it has started.
    pub(crate) data_service: OnceLock<Arc<dyn DataService>>,
    /// Notified when a rename has replaced a file.
    pub(crate) replaced: Notify,
    /// The MGS's reply to the registration; `None` before it. ESHUTDOWN if the MDT stopped before.
    pub(crate) registered: watch::Sender<Option<WireResult<()>>>,
    tasks: Mutex<Option<Tasks>>,
}

/// State that requests change.
pub(crate) struct Core {
    pub ns: Namespace<RedbStore>,
    pub placer: Placer,
    /// Number of commit rounds begun so far.
    pub round: u64,
    /// Connected exports that have sent a request.
    pub exports: FxHashSet<u64>,
}

struct Tasks {
    committer: JoinHandle<WireResult<()>>,
    others: Vec<JoinHandle<()>>,
    _lock: LockGuard,
}

/// Why an MDT does not start.
#[derive(Debug, thiserror::Error)]
pub enum MdtError {
    /// There are no sequences for an MDT of this index.
    #[error("MDT index {0} is too large; use one from 0 to {max}", max = MdtIndex::MAX)]
    Index(u32),
    /// Another process serves the directory.
    #[error("{0} is in use by another process; stop that one first")]
    InUse(PathBuf),
    /// The directory cannot be used.
    #[error("cannot use {path}: {error}")]
    Io {
        /// The directory or file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The directory holds another target, or its identity file is damaged.
    #[error("cannot serve {path}: {error}")]
    Identity {
        /// The directory.
        path: PathBuf,
        /// The cause.
        error: IdentityError,
    },
    /// The directory is not empty and holds no MDT.
    #[error("{0} is not empty and holds no MDT; name an empty directory, or the one of the MDT")]
    Foreign(PathBuf),
    /// The directory holds an MDT without its store.
    #[error("{0} is missing, and with it all names and layouts of the file system; nothing was changed: {RESTORE}")]
    StoreMissing(PathBuf),
    /// The store of an MDT that was formatted has no bytes.
    #[error("{0} has 0 bytes: all names and layouts of the file system are lost; nothing was changed: {RESTORE}")]
    StoreEmpty(PathBuf),
    /// The store is damaged.
    #[error("{path} is damaged ({error}); the MDT is not started: {RESTORE}")]
    StoreDamaged {
        /// The store's file.
        path: PathBuf,
        /// The damage.
        error: StoreError,
    },
    /// The store cannot be used.
    #[error("cannot open {path}: {error}")]
    Store {
        /// The store's file.
        path: PathBuf,
        /// The cause.
        error: StoreError,
    },
}

impl Mdt {
    /// Starts the MDT in a directory and serves it as a target of `server`. Formats an empty
    /// directory. Registers with the MGS and connects to the OSTs in the background: a disconnected
    /// MGS or OST does not delay the start.
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
    ) -> Result<Arc<Mdt>, MdtError> {
        MdtIndex::new(config.index).ok_or(MdtError::Index(config.index))?;
        let disk = rt.disk();
        let lock = lock(&disk, &config.dir)?;
        let (uuid, ns, store) = open(&rt, &config).await?;
        let io = |error| MdtError::Io { path: config.dir.clone(), error };
        let device = disk.device(&config.dir).map_err(io)?;
        let dir = disk.open_dir(&config.dir).map_err(io)?;
        let name = target_name(&config.fsname, TargetKind::Mdt, config.index);
        let mdt = Arc::new_cyclic(|me| Mdt {
            me: me.clone(),
            locks: Locks::new(&rt, &name),
            commits: Commits::new(ns.last_committed()),
            core: Mutex::new(Core {
                ns,
                placer: Placer::new(rt.random_u64()),
                round: 0,
                exports: FxHashSet::default(),
            }),
            tunables: Tunables::new(&config),
            share: config.sharing.join(device),
            dir,
            incarnation: rt.random_u64(),
            started: rt.now(),
            destroyer: Destroyer::new(),
            osts: Osts::new(),
            moving: Moving::default(),
            stats: Stats::new(service::STATS, rt.wall()),
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
        let recovery = rt.spawn("mdt-recovery", recovery(self.clone()));
        let replaced = rt.spawn("mdt-replaced", drop_replaced(self.clone()));
        let mut others = vec![destroyer, follower, recovery, replaced];
        others.extend(dom::clean(&self));
        *self.tasks.lock() = Some(Tasks { committer, others, _lock: lock });
    }

    /// Returns the target's name, such as `sheen-MDT0000`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the MDT's uuid, under which its data service runs as well.
    pub fn uuid(&self) -> &str {
        &self.uuid
    }

    /// Returns the lock server, for checkers.
    pub fn lockd(&self) -> &Arc<Lockd<Mds>> {
        &self.locks.server
    }

    /// Waits until the MGS has accepted this MDT.
    ///
    /// # Errors
    /// EEXIST: the index belongs to another MDT. ESHUTDOWN: the MDT stopped before. Others as
    /// [`sheen_mgc::Mgc::register`].
    pub async fn registered(&self) -> WireResult<()> {
        let mut answer = self.registered.subscribe();
        let answer = answer.wait_for(Option::is_some).await.map_err(|_| Errno::ESHUTDOWN)?;
        (*answer).unwrap_or(Err(Errno::ESHUTDOWN))
    }

    /// Waits until `count` OSTs take new objects or are configured to take none.
    pub async fn wait_osts(&self, count: usize) {
        loop {
            let mut changed = std::pin::pin!(self.osts.changed());
            changed.as_mut().enable();
            if self.osts.ready() >= count {
                return;
            }
            changed.await;
        }
    }

    /// Stops the MDT: admits no new requests (their clients wait for its return), answers the
    /// running ones, commits what was executed, closes the store and releases the directory. A
    /// second call does nothing.
    ///
    /// # Errors
    /// EIO: the last commit failed; uncommitted changes are lost.
    pub async fn stop(&self) -> WireResult<()> {
        let Some(tasks) = self.tasks.lock().take() else { return Ok(()) };
        self.locks.stop();
        // Before the last commit, so that the commit has every change that clients got a reply to.
        if let Some(server) = self.server.upgrade() {
            server.drain(&self.name).await;
        }
        {
            let mut core = self.core.lock();
            self.stopped.store(true, std::sync::atomic::Ordering::Relaxed);
            core.ns.stop();
        }
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

    /// Wakes the committer if there is something to commit. To be called after every change, with
    /// the core lock held.
    pub(crate) fn touched(&self, core: &Core) {
        self.commits.touched(core, self.tunables.commit_ops_max.load(std::sync::atomic::Ordering::Relaxed));
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
            mdt.touched(&core);
            if !more {
                break;
            }
        }
    }
}

/// After a restart: waits until clients have reported their open files, then destroys the unlinked
/// files that no client has open.
async fn recovery(mdt: Arc<Mdt>) {
    mdt.rt.sleep(Duration::from_millis(mdt.config.recovery_window_ms)).await;
    let mut core = mdt.core.lock();
    match core.ns.finish_recovery() {
        Err(e) if e.is_damage() => mdt.damaged(&e),
        Err(e) => {
            error!("{}: cannot destroy orphans: {e}; they use space until the next start tries again", mdt.name);
        }
        Ok(()) => {}
    }
    mdt.touched(&core);
}

fn lock(disk: &Disk, dir: &Path) -> Result<LockGuard, MdtError> {
    let io = |error| MdtError::Io { path: dir.into(), error };
    disk.create_dir_all(dir).map_err(io)?;
    disk.try_lock(dir.join(LOCK)).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => MdtError::InUse(dir.into()),
        _ => io(error),
    })
}

/// The identity that a directory held, its namespace and its store.
type Opened = (Option<Identity>, Namespace<RedbStore>, Arc<RedbStore>);

/// Checks the identity of the directory and opens the store. Formats a new directory.
async fn open(rt: &Rt, config: &MdtConfig) -> Result<(String, Namespace<RedbStore>, Arc<RedbStore>), MdtError> {
    let (disk, now, random) = (rt.disk(), rt.wall(), rt.random_u64());
    let mut secret = [0; 24];
    rt.fill_random(&mut secret);
    let [uuid @ .., _, _, _, _, _, _, _, _] = secret;
    let [_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, seed @ ..] = secret;
    let opened = {
        let (disk, config) = (disk.clone(), config.clone());
        rt.run_blocking(move || open_store(&disk, &config, u64::from_le_bytes(seed), now, random))
    };
    let (known, ns, store) = opened.await?;
    let uuid = match known {
        Some(identity) => renew_identity(&disk, config, identity)?,
        None => {
            // The identity comes last, after the store's name is durable: a directory with an
            // identity always has a store.
            sync_names(&disk, &config.dir).await?;
            format_identity(&disk, config, &uuid)?
        }
    };
    Ok((uuid, ns, store))
}

/// Opens the store and the namespace in it. Blocks: repairing a store takes a while.
fn open_store(disk: &Disk, config: &MdtConfig, hash_seed: u64, now: Time, random: u64) -> Result<Opened, MdtError> {
    let known = identify(disk, config)?;
    let path = config.dir.join(STORE);
    check_store(disk, &path, known.is_some())?;
    let failed = |error: StoreError| {
        let path = path.clone();
        if error.is_damage() { MdtError::StoreDamaged { path, error } } else { MdtError::Store { path, error } }
    };
    let store = Arc::new(RedbStore::open(disk, &path, config.store_cache_bytes).map_err(failed)?);
    let settings = sheen_namespace::Config {
        mdt_index: config.index,
        was_formatted: known.is_some(),
        hash_seed,
        cache_bytes_max: config.cache_bytes,
        root_uid: config.root_uid,
        root_gid: config.root_gid,
        root_layout: config.root_layout.clone(),
        keep_replaced_ms: config.keep_replaced_ms,
        ..sheen_namespace::Config::default()
    };
    let ns = Namespace::open(store.clone(), settings, now, random).map_err(failed)?;
    Ok((known, ns, store))
}

/// Refuses a formatted directory whose store is lost. A new store would show no files, and would
/// allocate ids that objects of files already have. Empties a store file that an interrupted format
/// left.
fn check_store(disk: &Disk, path: &Path, was_formatted: bool) -> Result<(), MdtError> {
    let io = |error| MdtError::Io { path: path.into(), error };
    match disk.metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound && was_formatted => Err(MdtError::StoreMissing(path.into())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(io(e)),
        Ok(_) if !was_formatted => store::discard_unfinished(disk, path).map_err(io),
        Ok(found) if found.len == 0 => Err(MdtError::StoreEmpty(path.into())),
        Ok(_) => Ok(()),
    }
}

/// Makes the names in a new directory durable, and the directory's own name in its parent.
async fn sync_names(disk: &Disk, dir: &Path) -> Result<(), MdtError> {
    let io = |path: &Path, error| MdtError::Io { path: path.into(), error };
    disk.sync_dir(dir).await.map_err(|e| io(dir, e))?;
    let Some(parent) = dir.parent().filter(|p| !p.as_os_str().is_empty()) else { return Ok(()) };
    match disk.sync_dir(parent).await {
        // The parent may be searchable but not readable. Then its owner has to make the name
        // durable.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced.map_err(|e| io(parent, e)),
    }
}

/// Returns the identity of the directory; `None` if it is empty or was left half formatted.
fn identify(disk: &Disk, config: &MdtConfig) -> Result<Option<Identity>, MdtError> {
    let path = config.dir.join(IDENTITY);
    let bytes = match disk.read(&path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let entries =
                disk.read_dir(&config.dir).map_err(|error| MdtError::Io { path: config.dir.clone(), error })?;
            // `dom` counts as foreign: a new MDT gives its objects the same names as the old MDT
            // did.
            let own = |name: &str| matches!(name, LOCK | STORE) || name.starts_with('.');
            let foreign = entries.iter().any(|e| !own(&e.name.to_string_lossy()));
            return if foreign { Err(MdtError::Foreign(config.dir.clone())) } else { Ok(None) };
        }
        Err(error) => return Err(MdtError::Io { path, error }),
    };
    let refuse = |error| MdtError::Identity { path: config.dir.clone(), error };
    let found = Identity::parse(&bytes).map_err(refuse)?;
    if (&found.fsname, found.index) != (&config.fsname, config.index) {
        let found = target_name(&found.fsname, TargetKind::Mdt, found.index);
        let wanted = target_name(&config.fsname, TargetKind::Mdt, config.index);
        return Err(refuse(IdentityError::Other { found, wanted }));
    }
    Ok(Some(found))
}

fn format_identity(disk: &Disk, config: &MdtConfig, random: &[u8; 16]) -> Result<String, MdtError> {
    let hex = |range: std::ops::Range<usize>| random[range].iter().map(|b| format!("{b:02x}")).collect::<String>();
    let uuid = [hex(0..4), hex(4..6), hex(6..8), hex(8..10), hex(10..16)].join("-");
    let identity = Identity { format: FORMAT, fsname: config.fsname.clone(), index: config.index, uuid };
    write_identity(disk, config, &identity)?;
    info!("formatted {} as {}", config.dir.display(), target_name(&config.fsname, TargetKind::Mdt, config.index));
    Ok(identity.uuid)
}

/// Raises the format of a directory that an earlier release wrote. The store's format was raised
/// before, so a directory of the present format always has a store of that format.
fn renew_identity(disk: &Disk, config: &MdtConfig, found: Identity) -> Result<String, MdtError> {
    if found.format < FORMAT {
        write_identity(disk, config, &Identity { format: FORMAT, ..found.clone() })?;
        let (dir, was) = (config.dir.display(), found.format);
        info!("raised the format of {dir} from {was} to {FORMAT}; earlier releases refuse it from now on");
    }
    Ok(found.uuid)
}

fn write_identity(disk: &Disk, config: &MdtConfig, identity: &Identity) -> Result<(), MdtError> {
    let path = config.dir.join(IDENTITY);
    disk.write_atomic(&path, identity.to_string().as_bytes()).map_err(|error| MdtError::Io { path, error })
}
