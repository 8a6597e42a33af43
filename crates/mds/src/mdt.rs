//! An MDT: starting and stopping it.

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

/// Which MDT the directory holds.
pub const IDENTITY: &str = "identity";
/// Held while the directory is served.
const LOCK: &str = "lock";
/// The store.
pub(crate) const STORE: &str = "store.redb";

/// What to do when the store of an MDT is lost. All targets, because an MDT that is older than its
/// OSTs would give ids out again that objects have.
const RESTORE: &str = "restore the directories of all targets from one backup, or, if the files are not needed any more, \
    start a new file system in empty directories";

/// Directory in it that its data service is given.
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
    /// Its directory itself, whatever is mounted over the path since.
    pub(crate) dir: OpenDir,
    /// Its part of the device that its directory lies on.
    pub(crate) share: Share,
    /// Everything that executing a request changes. Never held across a wait.
    pub(crate) core: Mutex<Core>,
    pub(crate) locks: Locks,
    pub(crate) commits: Commits,
    pub(crate) destroyer: Destroyer,
    pub(crate) osts: Osts,
    pub(crate) moving: Moving,
    pub(crate) stats: Stats,
    pub(crate) params: Params,
    pub(crate) stopped: AtomicBool,
    /// Its data service has no objects of files that a crash lost.
    pub(crate) is_clean: AtomicBool,
    /// Who serves what lies on the MDT, once it does.
    pub(crate) data_service: OnceLock<Arc<dyn DataService>>,
    /// A rename has replaced a file.
    pub(crate) replaced: Notify,
    /// What the MGS said to this MDT, once it did.
    pub(crate) registered: watch::Sender<Option<WireResult<()>>>,
    tasks: Mutex<Option<Tasks>>,
}

/// What executing a request changes.
pub(crate) struct Core {
    pub ns: Namespace<RedbStore>,
    pub placer: Placer,
    /// Seals made so far.
    pub round: u64,
    /// Exports that asked for something.
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
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The directory holds something else.
    #[error("cannot serve {path}: {error}")]
    Identity {
        /// Which.
        path: PathBuf,
        /// Why.
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
    /// The store cannot be trusted.
    #[error("{path} is damaged ({error}); the MDT is not started: {RESTORE}")]
    StoreDamaged {
        /// Which.
        path: PathBuf,
        /// What was found.
        error: StoreError,
    },
    /// The store cannot be used.
    #[error("cannot open {path}: {error}")]
    Store {
        /// Which.
        path: PathBuf,
        /// Why.
        error: StoreError,
    },
}

impl Mdt {
    /// Opens the MDT in a directory (formatting an empty one), serves it as a target of `server`,
    /// registers it with the MGS and connects to the OSTs, the last two in the background: an MGS
    /// or OST that is away keeps nobody waiting here.
    ///
    /// # Errors
    /// The directory is in use, belongs to something else, cannot be read or written, or has lost
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
        // First, so that who hears of it from the MGS finds it here.
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

    /// Such as `sheen-MDT0000`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which MDT it is, to others that speak for it.
    pub fn uuid(&self) -> &str {
        &self.uuid
    }

    /// Its lock server, for checkers.
    pub fn lockd(&self) -> &Arc<Lockd<Mds>> {
        &self.locks.server
    }

    /// Answers once the MGS has accepted this MDT.
    ///
    /// # Errors
    /// EEXIST: the index belongs to another MDT. Others as [`sheen_mgc::Mgc::register`]. ESHUTDOWN:
    /// stopped before.
    pub async fn registered(&self) -> WireResult<()> {
        let mut answer = self.registered.subscribe();
        let answer = answer.wait_for(Option::is_some).await.map_err(|_| Errno::ESHUTDOWN)?;
        (*answer).unwrap_or(Err(Errno::ESHUTDOWN))
    }

    /// Answers once so many OSTs take new objects, or are there and are not to take any.
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

    /// Stops in order: lets no new requests in (their clients wait for its return), answers those
    /// that run, commits what executed, closes the store, gives the directory back. A second call
    /// does nothing.
    ///
    /// # Errors
    /// EIO: the last commit failed; what was not committed is lost.
    pub async fn stop(&self) -> WireResult<()> {
        let Some(tasks) = self.tasks.lock().take() else { return Ok(()) };
        self.locks.stop();
        // Before the last commit, so that it holds all that clients were told.
        if let Some(server) = self.server.upgrade() {
            server.drain(&self.name).await;
        }
        {
            let mut core = self.core.lock();
            self.stopped.store(true, std::sync::atomic::Ordering::Relaxed);
            core.ns.stop();
        }
        tasks.others.iter().for_each(JoinHandle::abort);
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

    /// Wakes the committer if there is something to commit; with the lock held, after every change.
    pub(crate) fn touched(&self, core: &Core) {
        self.commits.touched(core, self.tunables.commit_ops_max.load(std::sync::atomic::Ordering::Relaxed));
    }
}

/// Lets go of files that renames have replaced, when their moment is over.
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

/// After a restart: gives clients time to say what they have open, then lets go of what nobody has.
async fn recovery(mdt: Arc<Mdt>) {
    mdt.rt.sleep(Duration::from_millis(mdt.config.recovery_window_ms)).await;
    let mut core = mdt.core.lock();
    match core.ns.finish_recovery() {
        Err(e) if e.is_damage() => mdt.damaged(&e),
        Err(e) => {
            error!("{}: cannot remove files that were open and unlinked: {e}; the next start tries again", mdt.name);
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

/// What a directory held, and its store.
type Opened = (Option<Identity>, Namespace<RedbStore>, Arc<RedbStore>);

/// Checks whose directory it is and opens the store, formatting a new one.
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
            // Last, and after the store's name is durable, so that a directory with an identity
            // always has a store.
            sync_names(&disk, &config.dir).await?;
            format_identity(&disk, config, &uuid)?
        }
    };
    Ok((uuid, ns, store))
}

/// Blocks: repairing a store takes a while.
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

/// Refuses a directory whose store is lost: a new one in its place would show no files, and give
/// ids out again that objects of files have. What an interrupted format left is emptied.
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

/// Makes the names in a new directory durable, and its own.
async fn sync_names(disk: &Disk, dir: &Path) -> Result<(), MdtError> {
    let io = |path: &Path, error| MdtError::Io { path: path.into(), error };
    disk.sync_dir(dir).await.map_err(|e| io(dir, e))?;
    let Some(parent) = dir.parent().filter(|p| !p.as_os_str().is_empty()) else { return Ok(()) };
    match disk.sync_dir(parent).await {
        // It may be entered but not read: then whoever made the directory in it has to see to it.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced.map_err(|e| io(parent, e)),
    }
}

/// What the directory holds: `None` where it is empty, or was left half formatted.
fn identify(disk: &Disk, config: &MdtConfig) -> Result<Option<Identity>, MdtError> {
    let path = config.dir.join(IDENTITY);
    let bytes = match disk.read(&path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let entries =
                disk.read_dir(&config.dir).map_err(|error| MdtError::Io { path: config.dir.clone(), error })?;
            // Not what it holds of files: a new MDT names its own ones like those of the old one.
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

/// Raises the format of a directory that an earlier release wrote. The store has been raised
/// before, so that a directory of the present format has a store of it.
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
