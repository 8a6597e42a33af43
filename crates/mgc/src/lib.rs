//! Management client (Lustre's mgc): registers targets with the MGS and follows a file system's
//! configuration.
//!
//! The MGS is found by its NIDs alone. It may be down or not started yet: every call retries until
//! the MGS answers. So a target or a mount can be started before the MGS. A caller that does not
//! want to wait forever puts a timeout around the call.
//!
//! [`stored_config`]: a target's copy of the configuration, for a start without the MGS.

pub mod stored_config;

use std::sync::Arc;
use std::time::Duration;

use sheen_lnet::{Net, Nid};
use sheen_rpc::{Import, ImportConfig, Miss};
use sheen_rt::Rt;
use sheen_wire::mgs::{Config, PoolChange, Reply, Request, TargetKind};
use sheen_wire::{Errno, Mgs, Result};
use tracing::{info, warn};

/// The MGS's target name in `rpc`.
pub const MGS_TARGET: &str = "MGS";
/// Pause between two attempts to reach an MGS that does not answer.
const RETRY: Duration = Duration::from_millis(500);

/// A connection to the MGS.
pub struct Mgc {
    rt: Rt,
    import: Arc<Import<Mgs>>,
}

impl Mgc {
    /// Creates a client of the MGS at `nids`, on behalf of `uuid`. It connects at the first call.
    pub fn new(net: Arc<Net>, nids: Vec<Nid>, uuid: &str) -> Arc<Mgc> {
        let rt = net.rt().clone();
        // A restarted process has the same target's uuid, and numbers its requests from 1 again.
        // The MGS may still store replies to requests of the former process. With the random part
        // in the name, it does not take the new requests for resends of those.
        let config = ImportConfig::new(&format!("{uuid}-{:016x}", rt.random_u64()), MGS_TARGET, nids);
        Arc::new(Mgc { rt, import: Import::new(net, config) })
    }

    /// Registers a target, or reports its present NIDs and the incarnation of its server, and
    /// returns its index. `index`: `None` for the next free one.
    ///
    /// # Errors
    /// EEXIST: the index belongs to a target of another uuid, or the uuid has another index.
    /// EINVAL: an invalid name, NID or index. ENOSPC: no index is free. EIO: the MGS cannot write
    /// its registry.
    pub async fn register(
        &self,
        fsname: &str,
        kind: TargetKind,
        index: Option<u32>,
        uuid: &str,
        nids: &[String],
        incarnation: u64,
    ) -> Result<u32> {
        let (fsname, uuid, nids) = (fsname.into(), uuid.into(), nids.to_vec());
        let request = Request::Register { fsname, kind, index, uuid, nids, incarnation };
        match self.call(request).await? {
            Reply::Registered { index } => Ok(index),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Returns the present configuration.
    ///
    /// # Errors
    /// ENOENT: no file system of that name.
    pub async fn config(&self, fsname: &str) -> Result<Config> {
        match self.call(Request::GetConfig { fsname: fsname.into() }).await? {
            Reply::Config(config) => Ok(config),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Returns the configuration once its version is above `version`. Waits until then, also for a
    /// file system that the MGS does not know yet.
    ///
    /// # Errors
    /// EINVAL: an invalid name.
    pub async fn watch(&self, fsname: &str, version: u64) -> Result<Config> {
        loop {
            let request = Request::Watch { fsname: fsname.into(), version };
            match self.call(request).await? {
                // The MGS may answer early, so that no request stays unanswered forever.
                Reply::Config(config) if config.version > version => return Ok(config),
                Reply::Config(_) => {}
                _ => return Err(Errno::EPROTO),
            }
        }
    }

    /// Returns the names of all file systems that the MGS knows.
    ///
    /// # Errors
    /// None of its own.
    pub async fn list(&self) -> Result<Vec<String>> {
        match self.call(Request::List).await? {
            Reply::Names(names) => Ok(names),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Changes a pool of OSTs; returns when the change is durable. Watchers get the new
    /// configuration.
    ///
    /// # Errors
    /// EINVAL: no such file system, or an invalid name. EIO: the MGS cannot write its registry.
    /// Other errors are those of the MGS's module `pools`.
    pub async fn change_pool(&self, fsname: &str, pool: &str, change: PoolChange) -> Result<()> {
        let request = Request::ChangePool { fsname: fsname.into(), pool: pool.into(), change };
        match self.call(request).await? {
            Reply::PoolChanged(result) => result,
            _ => Err(Errno::EPROTO),
        }
    }

    /// Returns how the last round over all addresses of the MGS has failed. `None`: none has failed
    /// since the last connection.
    pub fn miss(&self) -> Option<Miss> {
        self.import.miss()
    }

    /// Waits until a round over all addresses of the MGS has failed since the last connection.
    /// Never resolves while there is a connection, or no call under way.
    pub async fn missed(&self) {
        self.import.missed().await;
    }

    /// Repeats the request until the MGS answers.
    async fn call(&self, request: Request) -> Result<Reply> {
        let mut silent = false;
        loop {
            match self.import.request(request.clone()).send().await {
                Ok(response) => {
                    if silent {
                        info!("MGS: answers again");
                    }
                    return Ok(response.body);
                }
                Err(error) if transient(error.errno()) => {
                    if !silent {
                        warn!("{error}; retrying until the MGS answers");
                        silent = true;
                    }
                    self.rt.sleep(RETRY).await;
                }
                Err(error) => return Err(error.into_errno()),
            }
        }
    }
}

/// Returns whether the error means that the peer was not reached, rather than that it refused.
fn transient(errno: Errno) -> bool {
    matches!(errno, Errno::ETIMEDOUT | Errno::ENOTCONN | Errno::ESHUTDOWN | Errno::EHOSTUNREACH | Errno::ENODEV)
}
