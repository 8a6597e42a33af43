//! The target `MGS`.
//!
//! A change is on disk before it is answered or seen by anyone. A watch that waits is a future on a
//! channel and costs nothing until something changes; after [`WATCH_MAX`] it is answered with what
//! the caller already has, so that no request is pending without end and a dead peer's watch goes
//! away.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use sheen_params::{Device, Param, Params};
use sheen_rpc::{BoxFuture, Export, Response, Service};
use sheen_rt::{LockGuard, Rt};
use sheen_wire::mgs::{Config, PoolChange, Reply, Request, target_name};
use sheen_wire::{Bulk, Errno, Result};
use tokio::sync::{OwnedMutexGuard, watch};
use tracing::{error, info, warn};

use crate::pools;
use crate::registry::{Registration, Registry, RegistryError};
use crate::settings::{self, SettingChange};

/// Longest time that a `Watch` waits.
pub const WATCH_MAX: Duration = Duration::from_secs(60);
/// Longest time that setting a parameter waits for the disk: less than who asks through the control
/// socket waits for its answer.
const SET_MAX: Duration = Duration::from_secs(4);
/// The registry's file in the MGS's directory.
pub const FILE: &str = "registry.json";
/// Held while the directory is served.
const LOCK: &str = "lock";

/// A running MGS. Give it to `rpc::Server::add` under the name `MGS`.
pub struct Mgs {
    me: Weak<Mgs>,
    rt: Rt,
    file: PathBuf,
    params: Params,
    incarnation: u64,
    /// Taken by the one change that is being made, for as long as its file is being written: also
    /// where the one who asked for it has gone meanwhile.
    change: Arc<tokio::sync::Mutex<()>>,
    registry: Mutex<Registry>,
    /// Raised after every change.
    changes: watch::Sender<u64>,
    lock: Mutex<Option<LockGuard>>,
}

/// Why an MGS does not start.
#[derive(Debug, thiserror::Error)]
pub enum MgsError {
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
    /// What is on disk cannot be used.
    #[error("cannot use the registry {path}: {error}")]
    Registry {
        /// Which.
        path: PathBuf,
        /// Why.
        error: RegistryError,
    },
}

impl Mgs {
    /// Opens the MGS in `dir`, which is created if missing.
    ///
    /// # Errors
    /// The directory is in use, cannot be read or written, or holds what this release does not
    /// understand.
    pub async fn start(rt: Rt, dir: &Path, params: Params) -> Result<Arc<Mgs>, MgsError> {
        let disk = rt.disk();
        let io = |error| MgsError::Io { path: dir.into(), error };
        disk.create_dir_all(dir).map_err(io)?;
        let lock = disk.try_lock(dir.join(LOCK)).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => MgsError::InUse(dir.into()),
            _ => io(error),
        })?;
        let file = dir.join(FILE);
        let registry = match disk.read(&file) {
            Ok(bytes) => Registry::decode(&bytes).map_err(|error| MgsError::Registry { path: file.clone(), error })?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Registry::default(),
            Err(error) => return Err(MgsError::Io { path: file, error }),
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

    /// Gives the directory back. Requests are refused from now on with ESHUTDOWN; watches that wait
    /// are answered with what there is. Follow it by `rpc::Server::drain`, so that their callers
    /// read the answer.
    pub fn stop(&self) {
        self.lock.lock().take();
        self.params.unregister("mgs.MGS");
        self.params.remove_device("MGS");
        // Watchers wake up and find the service closed.
        self.changes.send_modify(|n| *n += 1);
    }

    /// The configuration of a file system, as far as there is one.
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
        self.params.add_device("MGS", || Device::new("mgs", "MGS", "MGS"));
        let names = self.registry.lock().names();
        names.iter().for_each(|fsname| self.register_system(fsname));
    }

    fn register_system(&self, fsname: &str) {
        self.register_pools(fsname);
        self.register_settings(fsname);
    }

    /// `mgs.MGS.pools.FSNAME` shows the pools of a file system; it is set to a change of one, as
    /// [`pools::write`] writes it, which is how `lctl` asks for changes. Setting it returns when
    /// the change is durable; ETIMEDOUT if that takes longer than [`SET_MAX`].
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

    /// `mgs.MGS.live.params` shows the settings; it is set to a change of one, as
    /// [`settings::write`] writes it. The same under the name of each file system, by which `lctl`
    /// can tell one MGS of a machine from another. Otherwise as [`Mgs::register_pools`].
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

    async fn execute(&self, request: Request) -> Result<Reply> {
        self.check_running()?;
        match request {
            Request::Register { fsname, kind, index, uuid, nids } => {
                let new = Registration { fsname: &fsname, kind, index, uuid: &uuid, nids: &nids };
                self.register(new).await.map(|index| Reply::Registered { index })
            }
            Request::GetConfig { fsname } => self.config(&fsname).map(Reply::Config).ok_or(Errno::ENOENT),
            Request::Watch { fsname, version } => Ok(Reply::Config(self.watch(fsname, version).await)),
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

    /// What is on disk is shown to everybody.
    fn publish(&self, next: Registry) {
        *self.registry.lock() = next;
        self.changes.send_modify(|n| *n += 1);
    }

    /// Writes the registry. `one` goes with the writing, and comes back with it.
    async fn save(&self, registry: &Registry, one: OwnedMutexGuard<()>) -> Result<OwnedMutexGuard<()>> {
        let (disk, file) = (self.rt.disk(), self.file.clone());
        let bytes = registry.encode().map_err(|_| Errno::EIO)?;
        let (saved, one) = self.rt.run_blocking(move || (disk.write_atomic(&file, &bytes), one)).await;
        saved.map(|()| one).map_err(|e| {
            error!("cannot write {}: {e}; the change is refused, a target will try again", self.file.display());
            Errno::EIO
        })
    }

    /// The configuration once its version is above `version`, or as it is after [`WATCH_MAX`].
    async fn watch(&self, fsname: String, version: u64) -> Config {
        let mut changes = self.changes.subscribe();
        let newer = async {
            loop {
                changes.borrow_and_update();
                let config = self.config(&fsname).filter(|c| c.version > version);
                if let Some(config) = config {
                    return config;
                }
                // After the look at `changes`: a stop from now on wakes it.
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

    /// The configuration, empty where nothing is known.
    fn current(&self, fsname: &str) -> Config {
        let nothing = || Config {
            fsname: fsname.to_string(),
            version: 0,
            targets: Vec::new(),
            pools: Vec::new(),
            params: Vec::new(),
        };
        self.config(fsname).unwrap_or_else(nothing)
    }
}

/// Waits on this thread until a change that `lctl` asked for is made, for [`SET_MAX`].
fn wait_for(rt: &Rt, change: impl Future<Output = Result<()>> + Send + 'static) -> Result<()> {
    // A task of its own: it ends by itself where nobody waits for it any more.
    let task = rt.spawn("change", change);
    let done = rt.block_on_thread(rt.timeout(SET_MAX, task)).map_err(|_| Errno::EOPNOTSUPP)?;
    done.map_err(|_| Errno::ETIMEDOUT)?.map_err(|_| Errno::ESHUTDOWN)?
}

fn refuse(new: &Registration<'_>, errno: Errno) {
    let what = new.index.map_or_else(|| "a new target".to_string(), |i| target_name(new.fsname, new.kind, i));
    match errno {
        Errno::EEXIST => warn!(
            "refused {what} of {} with uuid {}: the file system knows it by another uuid or index. A target that was formatted \
             anew needs a free index",
            new.fsname, new.uuid
        ),
        _ => warn!("refused {what} of {:?}: {errno}", new.fsname),
    }
}

impl Service<sheen_wire::Mgs> for Mgs {
    fn call<'a>(&'a self, _: &'a Arc<Export>, request: Request, _: Bulk) -> BoxFuture<'a, Result<Response<Reply>>> {
        Box::pin(async move { self.execute(request).await.map(Response::from) })
    }

    fn incarnation(&self) -> u64 {
        self.incarnation
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use sheen_rt::RealOptions;
    use sheen_wire::mgs::TargetKind;

    use super::*;

    #[test]
    fn a_registration_that_nobody_waits_for_is_out_of_the_way_before_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let (runtime, rt) = Rt::real(RealOptions::default()).unwrap();
        runtime.block_on(async {
            let mgs = Mgs::start(rt, dir.path(), Params::new()).await.unwrap();
            let nids = ["10.0.0.1@tcp".to_string()];
            let known = || String::from_utf8(mgs.rt.disk().read(&mgs.file).unwrap_or_default()).unwrap();
            let mut given_up = 0;
            for round in 0..20 {
                let uuid = format!("uuid-{round}");
                let new =
                    Registration { fsname: "sheen", kind: TargetKind::Ost, index: None, uuid: &uuid, nids: &nids };
                let mut dropped = Box::pin(mgs.register(new));
                // Where this thread is held up, the write may be done already.
                given_up += u32::from(dropped.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
                drop(dropped);
                let _one = mgs.change.lock().await;
                assert!(known().contains(&uuid), "it is still being written");
            }
            assert!(given_up > 0, "nothing was tested");
        });
    }
}
