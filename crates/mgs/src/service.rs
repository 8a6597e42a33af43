//! The target `MGS`.
//!
//! A change is on disk before the MGS replies or shows it to any client. A waiting watch is a
//! future on a channel, which costs nothing until something changes. After [`WATCH_MAX`] the MGS
//! replies with the configuration that the client already has. So no request is pending forever,
//! and the watch of a dead peer ends.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use sheen_params::{Device, Param, Params};
use sheen_rpc::{BoxFuture, Export, Response, Service};
use sheen_rt::target_dir::{DirError, lock_dir};
use sheen_rt::{LockGuard, Rt};
use sheen_wire::auth::{KeyId, Role};
use sheen_wire::mgs::{Config, PoolChange, Reply, Request, Target, TargetKind, target_name};
use sheen_wire::nodemap::{Nodemaps, Rules};
use sheen_wire::{Bulk, Errno, Result};
use tokio::sync::{OwnedMutexGuard, watch};
use tracing::{error, info, warn};

use crate::nodemaps::{MapChange, NodemapChange, Property, show, text};
use crate::pools;
use crate::registry::{Registration, Registry, RegistryError};
use crate::settings::{self, SettingChange};

/// Maximum time that a `Watch` waits.
pub const WATCH_MAX: Duration = Duration::from_secs(60);
/// Maximum time that setting a parameter waits for the disk. Shorter than the time for which a user
/// of the control socket waits for the reply.
const SET_MAX: Duration = Duration::from_secs(25);
/// File of the registry in the MGS's directory.
pub const FILE: &str = "registry.json";

/// A running MGS. `rpc::Server::add` serves it under the name `MGS`.
pub struct Mgs {
    me: Weak<Mgs>,
    rt: Rt,
    file: PathBuf,
    params: Params,
    incarnation: u64,
    /// Serializes changes: each holds it until the registry's file is written, even if the
    /// requester has disconnected.
    change: Arc<tokio::sync::Mutex<()>>,
    registry: Mutex<Registry>,
    /// Incremented after every change.
    changes: watch::Sender<u64>,
    lock: Mutex<Option<LockGuard>>,
}

/// Why an MGS does not start.
#[derive(Debug, thiserror::Error)]
pub enum MgsError {
    /// Another process serves the directory, or the local file system returned an error.
    #[error(transparent)]
    Dir(#[from] DirError),
    /// The registry on disk cannot be used.
    #[error("cannot use the registry {path}: {error}")]
    Registry {
        /// The registry's file.
        path: PathBuf,
        /// The cause.
        error: RegistryError,
    },
}

impl Mgs {
    /// Opens the MGS in `dir`, which is created if missing.
    ///
    /// # Errors
    /// The directory is in use, cannot be read or written, or has a registry of an unknown format.
    pub async fn start(rt: Rt, dir: &Path, params: Params) -> Result<Arc<Mgs>, MgsError> {
        let disk = rt.disk();
        let lock = lock_dir(&disk, dir)?;
        let file = dir.join(FILE);
        let registry = match disk.read(&file) {
            Ok(bytes) => Registry::decode(&bytes).map_err(|error| MgsError::Registry { path: file.clone(), error })?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Registry::default(),
            Err(error) => return Err(DirError::Io { path: file, error }.into()),
        };
        let mgs = Arc::new_cyclic(|me| Mgs {
            me: me.clone(),
            incarnation: rt.random_u64(),
            change: Arc::default(),
            registry: Mutex::new(registry),
            changes: watch::Sender::new(0),
            lock: Mutex::new(Some(lock)),
            rt,
            file,
            params,
        });
        mgs.register_params();
        Ok(mgs)
    }

    /// Stops the MGS and releases the directory. Later requests fail with ESHUTDOWN. Waiting
    /// watches are answered with the present configuration. The caller then calls
    /// `rpc::Server::drain`, so that clients read these replies.
    pub fn stop(&self) {
        self.lock.lock().take();
        self.params.unregister("mgs.MGS");
        self.params.unregister("nodemap");
        self.params.remove_device("MGS");
        // The waiting watches wake up and find the MGS stopped.
        self.changes.send_modify(|n| *n += 1);
    }

    /// Returns the configuration of a file system, if there is one.
    pub fn config(&self, fsname: &str) -> Option<Config> {
        self.registry.lock().config(fsname).cloned()
    }

    fn register_params(self: &Arc<Mgs>) {
        let weak = Arc::downgrade(self);
        let names = move || {
            let names = weak.upgrade().map(|mgs| mgs.registry.lock().names()).unwrap_or_default();
            names.into_iter().map(|name| name + "\n").collect()
        };
        self.params.register("mgs.MGS.filesystems", Param::text(names));
        self.register_settings("params");
        self.register_nodemaps();
        self.params.add_device("MGS", || Device::new("mgs", "MGS", "MGS"));
        let names = self.registry.lock().names();
        names.iter().for_each(|fsname| self.register_system(fsname));
    }

    fn register_system(&self, fsname: &str) {
        self.register_pools(fsname);
        self.register_targets(fsname);
        self.register_settings(fsname);
        self.register_nodemap_changes(&format!("mgs.MGS.nodemaps.{fsname}"));
    }

    /// Registers `mgs.MGS.pools.FSNAME`, which shows the pools of a file system. `lctl` changes a
    /// pool by setting it to a change as [`pools::write`] writes it. Setting it returns when the
    /// change is durable; ETIMEDOUT if that takes longer than [`SET_MAX`].
    fn register_pools(&self, fsname: &str) {
        let (shown, changed, name) = (self.me.clone(), self.me.clone(), fsname.to_string());
        let show = {
            let fsname = name.clone();
            move || {
                let config = shown.upgrade().and_then(|mgs| mgs.config(&fsname));
                config.map(|c| pools::render(&fsname, &c.pools)).unwrap_or_default()
            }
        };
        let change = move |text: &str| {
            let mgs = changed.upgrade().ok_or(Errno::ENODEV)?;
            let (pool, change) = pools::read(&name, text)?;
            let (rt, fsname, pool) = (mgs.rt.clone(), name.clone(), pool.to_string());
            wait_for(&rt, async move { mgs.change_pool(&fsname, &pool, change).await })
        };
        self.params.register(&format!("mgs.MGS.pools.{fsname}"), Param::order(show, change));
    }

    /// Registers `mgs.MGS.targets.FSNAME`, which shows the targets of a file system. `lctl` removes
    /// an OST by setting it to `del_ost INDEX`. Otherwise as [`Mgs::register_pools`].
    fn register_targets(&self, fsname: &str) {
        let (shown, changed, name) = (self.me.clone(), self.me.clone(), fsname.to_string());
        let show = {
            let fsname = name.clone();
            move || shown.upgrade().and_then(|mgs| mgs.config(&fsname)).map(|c| targets_text(&c)).unwrap_or_default()
        };
        let change = move |text: &str| {
            let mgs = changed.upgrade().ok_or(Errno::ENODEV)?;
            let ost = text.trim().strip_prefix("del_ost ").and_then(|ost| ost.parse().ok()).ok_or(Errno::EINVAL)?;
            let (rt, fsname) = (mgs.rt.clone(), name.clone());
            wait_for(&rt, async move { mgs.remove_ost(&fsname, ost).await })
        };
        self.params.register(&format!("mgs.MGS.targets.{fsname}"), Param::order(show, change));
    }

    /// Registers `mgs.MGS.live.NAME`, which shows the settings. `lctl` changes a setting by setting
    /// it to a change as [`settings::write`] writes it. The name is `params`, and also that of each
    /// file system, by which `lctl` distinguishes several MGS of one machine. Otherwise as
    /// [`Mgs::register_pools`].
    fn register_settings(&self, name: &str) {
        let (shown, changed) = (self.me.clone(), self.me.clone());
        let show = move || {
            let settings = shown.upgrade().map(|mgs| mgs.registry.lock().settings().to_vec()).unwrap_or_default();
            settings.iter().map(|setting| format!("{setting}\n")).collect()
        };
        let change = move |text: &str| {
            let mgs = changed.upgrade().ok_or(Errno::ENODEV)?;
            settings::read(text)?;
            let (rt, text) = (mgs.rt.clone(), text.to_string());
            wait_for(&rt, async move { mgs.change_setting(settings::read(&text)?).await })
        };
        self.params.register(&format!("mgs.MGS.live.{name}"), Param::order(show, change));
    }

    /// Registers `mgs.MGS.nodemaps`, which `lctl` reads and sets, and the parameters that show each
    /// nodemap as in Lustre.
    fn register_nodemaps(&self) {
        self.register_nodemap_changes("mgs.MGS.nodemaps");
        let me = self.me.clone();
        let is_active = move || me.upgrade().is_some_and(|mgs| mgs.registry.lock().nodemaps().active);
        self.params.register("nodemap.active", Param::u64_ro(move || u64::from(is_active())));
        let stored = self.registry.lock().nodemaps().clone();
        show::names(&stored).into_iter().for_each(|name| self.register_nodemap(name));
    }

    /// Registers a parameter that shows the nodemaps as [`show::render`] writes them. `lctl`
    /// changes them by setting it to a change as [`text::write`] writes it. There is one for each
    /// file system, too, as of [`Mgs::register_settings`]. Otherwise as [`Mgs::register_pools`].
    fn register_nodemap_changes(&self, param: &str) {
        let (shown, changed) = (self.me.clone(), self.me.clone());
        let show = move || shown.upgrade().map(|mgs| show::render(mgs.registry.lock().nodemaps())).unwrap_or_default();
        let change = move |order: &str| {
            let mgs = changed.upgrade().ok_or(Errno::ENODEV)?;
            text::read(order)?;
            let (rt, order) = (mgs.rt.clone(), order.to_string());
            wait_for(&rt, async move { mgs.change_nodemap(text::read(&order)?).await })
        };
        self.params.register(param, Param::order(show, change));
    }

    /// Registers the parameters `nodemap.NAME.*` of a nodemap.
    fn register_nodemap(&self, name: &str) {
        let reader = || {
            let (me, name) = (self.me.clone(), name.to_owned());
            move || me.upgrade().and_then(|mgs| show::get(mgs.registry.lock().nodemaps(), &name))
        };
        for property in Property::ALL {
            let read = reader();
            let number = move || read().map_or(0, |map| u64::from(property.get(&map)));
            self.params.register(&format!("nodemap.{name}.{}", property.param()), Param::u64_ro(number));
        }
        for (param, text) in show::TEXTS {
            let read = reader();
            let show = move || read().map(|map| text(&map)).unwrap_or_default();
            self.params.register(&format!("nodemap.{name}.{param}"), Param::text(show));
        }
    }

    /// Whether a client may change pools: not a user, nor a host that a nodemap limits.
    fn may_change_pools(&self, export: &Export) -> bool {
        let Role::Host(nodemap) = export.role() else { return *export.role() == Role::Server };
        match self.registry.lock().nodemaps().of(nodemap.as_deref(), export.nid().ip()) {
            Rules::None => true,
            Rules::Of(nodemap) => nodemap.is_free(),
            Rules::Unknown => false,
        }
    }

    async fn execute(&self, export: &Export, request: Request) -> Result<Reply> {
        self.check_running()?;
        let role = export.role();
        let may = match &request {
            Request::Register { .. } => *role == Role::Server,
            Request::ChangePool { .. } => self.may_change_pools(export),
            Request::GetConfig { .. } | Request::Watch { .. } | Request::List => true,
        };
        if !may {
            warn!("MGS: refused {} by a key of a {role}", request.op());
            return Err(Errno::EPERM);
        }
        match request {
            Request::Register { fsname, kind, index, uuid, nids, incarnation } => {
                let new = Registration { fsname: &fsname, kind, index, uuid: &uuid, nids: &nids, incarnation };
                self.register(new).await.map(|index| Reply::Registered { index })
            }
            Request::GetConfig { fsname } => {
                self.config(&fsname).map(|config| Reply::Config(visible_to(role, config))).ok_or(Errno::ENOENT)
            }
            Request::Watch { fsname, version } => {
                Ok(Reply::Config(visible_to(role, self.watch(fsname, version).await)))
            }
            Request::List => Ok(Reply::Names(self.registry.lock().names())),
            Request::ChangePool { fsname, pool, change } => match self.change_pool(&fsname, &pool, change).await {
                Err(Errno::ESHUTDOWN) => Err(Errno::ESHUTDOWN),
                result => Ok(Reply::PoolChanged(result)),
            },
        }
    }

    fn check_running(&self) -> Result<()> {
        if self.lock.lock().is_some() { Ok(()) } else { Err(Errno::ESHUTDOWN) }
    }

    async fn register(&self, new: Registration<'_>) -> Result<u32> {
        let one = self.change.clone().lock_owned().await;
        let mut next = self.registry.lock().clone();
        let (index, changed) = next.register(new).inspect_err(|errno| refuse(&new, *errno))?;
        if changed {
            let _one = self.save(&next, one).await?;
            info!("{} ({}) is at {}", target_name(new.fsname, new.kind, index), new.uuid, new.nids.join(","));
            self.publish(next);
            self.register_system(new.fsname);
        }
        Ok(index)
    }

    async fn change_pool(&self, fsname: &str, pool: &str, change: PoolChange) -> Result<()> {
        let one = self.change.clone().lock_owned().await;
        self.check_running()?;
        let mut next = self.registry.lock().clone();
        next.change_pool(fsname, pool, change)?;
        let _one = self.save(&next, one).await?;
        info!("{fsname}: {}", pools::write(fsname, pool, change));
        self.publish(next);
        Ok(())
    }

    async fn remove_ost(&self, fsname: &str, ost: u32) -> Result<()> {
        let one = self.change.clone().lock_owned().await;
        self.check_running()?;
        let mut next = self.registry.lock().clone();
        next.remove_ost(fsname, ost)?;
        let _one = self.save(&next, one).await?;
        info!("{} is removed from {fsname}", target_name(fsname, TargetKind::Ost, ost));
        self.publish(next);
        Ok(())
    }

    async fn change_setting(&self, change: SettingChange<'_>) -> Result<()> {
        let one = self.change.clone().lock_owned().await;
        self.check_running()?;
        let mut next = self.registry.lock().clone();
        next.change_setting(change)?;
        let _one = self.save(&next, one).await?;
        info!("parameters: {}", settings::write(change));
        self.publish(next);
        Ok(())
    }

    /// Sets the issued keys that are withdrawn, sorted, so that the other servers learn of them.
    ///
    /// # Errors
    /// ESHUTDOWN: the MGS is stopped. EIO: they cannot be stored.
    pub async fn set_withdrawn(&self, withdrawn: Vec<KeyId>) -> Result<()> {
        let one = self.change.clone().lock_owned().await;
        self.check_running()?;
        let mut next = self.registry.lock().clone();
        if next.set_withdrawn(withdrawn) {
            let _one = self.save(&next, one).await?;
            self.publish(next);
        }
        Ok(())
    }

    /// Changes the nodemaps.
    ///
    /// # Errors
    /// As [`crate::nodemaps::apply`]. ESHUTDOWN: the MGS is stopped. EIO: the change cannot be
    /// stored.
    pub async fn change_nodemap(&self, change: NodemapChange<'_>) -> Result<()> {
        let one = self.change.clone().lock_owned().await;
        self.check_running()?;
        let mut next = self.registry.lock().clone();
        next.change_nodemap(&change)?;
        let _one = self.save(&next, one).await?;
        info!("nodemaps: {}", text::write(&change));
        self.publish(next);
        match change {
            NodemapChange::Map { name, change: MapChange::New } => self.register_nodemap(name),
            NodemapChange::Map { name, change: MapChange::Delete } => {
                self.params.unregister(&format!("nodemap.{name}"));
            }
            _ => {}
        }
        Ok(())
    }

    /// Shows a registry that is on disk to all clients.
    fn publish(&self, next: Registry) {
        *self.registry.lock() = next;
        self.changes.send_modify(|n| *n += 1);
    }

    /// Writes the registry. The write holds `one` until it is done, and then returns it.
    async fn save(&self, registry: &Registry, one: OwnedMutexGuard<()>) -> Result<OwnedMutexGuard<()>> {
        let (disk, file) = (self.rt.disk(), self.file.clone());
        let bytes = registry.encode().map_err(|_| Errno::EIO)?;
        let (saved, one) = self.rt.run_blocking(move || (disk.write_atomic(&file, &bytes), one)).await;
        saved.map(|()| one).map_err(|e| {
            error!(
                "MGS: cannot write {} ({e}): the change is refused; targets retry, repeat others",
                self.file.display()
            );
            Errno::EIO
        })
    }

    /// Returns the configuration once its version is above `version`, or the present one after
    /// [`WATCH_MAX`].
    async fn watch(&self, fsname: String, version: u64) -> Config {
        let mut changes = self.changes.subscribe();
        let newer = async {
            loop {
                changes.borrow_and_update();
                let config = self.config(&fsname).filter(|c| c.version > version);
                if let Some(config) = config {
                    return config;
                }
                // Checked after `borrow_and_update`: a later stop wakes this wait.
                if self.lock.lock().is_none() || changes.changed().await.is_err() {
                    return self.current(&fsname);
                }
            }
        };
        match self.rt.timeout(WATCH_MAX, newer).await {
            Ok(config) => config,
            Err(_) => self.current(&fsname),
        }
    }

    /// Returns the configuration, or an empty one for an unknown file system.
    fn current(&self, fsname: &str) -> Config {
        let nothing = || Config { fsname: fsname.to_string(), ..Config::default() };
        self.config(fsname).unwrap_or_else(nothing)
    }
}

/// Returns the part of a configuration that the holder of such a key may see: only servers get
/// nodemaps.
fn visible_to(role: &Role, mut config: Config) -> Config {
    if *role != Role::Server {
        (config.nodemaps, config.withdrawn) = (Nodemaps::default(), Vec::new());
    }
    config
}

/// Waits on this thread until a change that `lctl` requested is made, for at most [`SET_MAX`].
fn wait_for(rt: &Rt, change: impl Future<Output = Result<()>> + Send + 'static) -> Result<()> {
    // A task of its own: it ends by itself if the caller stops waiting.
    let task = rt.spawn("change", change);
    let done = rt.block_on_thread(rt.timeout(SET_MAX, task)).map_err(|_| Errno::EOPNOTSUPP)?;
    done.map_err(|_| Errno::ETIMEDOUT)?.map_err(|_| Errno::ESHUTDOWN)?
}

/// Returns the targets of a file system as text, each in a line: name, uuid, and its addresses or
/// `removed`.
fn targets_text(config: &Config) -> String {
    let line = |target: &Target| {
        let at = if target.removed { "removed".to_owned() } else { target.nids.join(",") };
        format!("{} {} {at}\n", target.name(&config.fsname), target.uuid)
    };
    config.targets.iter().map(line).collect()
}

fn refuse(new: &Registration<'_>, errno: Errno) {
    let what = new.index.map_or_else(|| "a new target".to_string(), |i| target_name(new.fsname, new.kind, i));
    match errno {
        Errno::EEXIST => warn!(
            "MGS: refused to register {what} of {} with uuid {}: the uuid or the index belongs to another target; a \
             reformatted target needs a free index",
            new.fsname, new.uuid
        ),
        Errno::ESTALE => warn!("MGS: refused to register {what} of {}: it was removed with `lctl del_ost`", new.fsname),
        _ => warn!("MGS: refused to register {what} of {:?}: {errno}", new.fsname),
    }
}

impl Service<sheen_wire::Mgs> for Mgs {
    fn call<'a>(
        &'a self,
        export: &'a Arc<Export>,
        request: Request,
        _: Bulk,
    ) -> BoxFuture<'a, Result<Response<Reply>>> {
        Box::pin(async move { self.execute(export, request).await.map(Response::from) })
    }

    fn incarnation(&self) -> u64 {
        self.incarnation
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use sheen_rt::RealOptions;
    use sheen_wire::auth::User;

    use super::*;

    #[test]
    fn nodemaps_and_withdrawn_keys_are_visible_to_servers_only() {
        let nodemaps = Nodemaps { active: true, ..Nodemaps::default() };
        let config = Config {
            fsname: "sheen".into(),
            version: 7,
            targets: Vec::new(),
            pools: Vec::new(),
            params: Vec::new(),
            nodemaps,
            withdrawn: vec![KeyId(7)],
        };
        assert_eq!(visible_to(&Role::Server, config.clone()), config);
        let user = Role::User(User { uid: 1, gid: 1, groups: Vec::new(), nodemap: None });
        for role in [user, Role::Host(None), Role::Host(Some("a".into()))] {
            let seen = visible_to(&role, config.clone());
            assert_eq!((seen.version, seen.nodemaps, seen.withdrawn), (7, Nodemaps::default(), vec![]), "{role}");
        }
    }

    #[test]
    fn abandoned_registration_completes_before_the_next_change() {
        let dir = tempfile::tempdir().unwrap();
        let (runtime, rt) = Rt::real(RealOptions::default()).unwrap();
        runtime.block_on(async {
            let mgs = Mgs::start(rt, dir.path(), Params::new()).await.unwrap();
            let nids = ["10.0.0.1@tcp".to_string()];
            let known = || String::from_utf8(mgs.rt.disk().read(&mgs.file).unwrap_or_default()).unwrap();
            let mut pending = 0;
            for round in 0..20 {
                let uuid = format!("uuid-{round}");
                let kind = TargetKind::Ost;
                let new = Registration { fsname: "sheen", kind, index: None, uuid: &uuid, nids: &nids, incarnation: 1 };
                let mut dropped = Box::pin(mgs.register(new));
                // If this thread was delayed, the write may already be done.
                pending += u32::from(dropped.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
                drop(dropped);
                let _one = mgs.change.lock().await;
                assert!(known().contains(&uuid), "it is still being written");
            }
            assert!(pending > 0, "no registration was dropped half way");
        });
    }
}
