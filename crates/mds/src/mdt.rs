//! The state of a running MDT.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use sheen_lnet::Net;
use sheen_lockd::Lockd;
use sheen_objects::sharing::Share;
use sheen_params::{JobStats, Params, Stats};
use sheen_recovery::Counts;
use sheen_rpc::{ExportStats, Server};
use sheen_rt::operation;
use sheen_rt::{JoinHandle, LockGuard, OpenDir, Rt};
use sheen_wire::{Errno, Mds, Result};
use tokio::sync::{Notify, watch};

use crate::config::{MdtConfig, Tunables};
use crate::state::commits::Commits;
use crate::state::core::Core;
use crate::state::data_service::DataService;
use crate::state::destroyer::Destroyer;
use crate::state::fences::Fences;
use crate::state::lfsck::Lfsck;
use crate::state::locks::Locks;
use crate::state::nodemaps::Present;
use crate::state::osts::Osts;
use crate::state::quotas::Quotas;
use crate::state::recovery::Recovery;
use crate::state::relayouts::Relayouts;
use crate::state::reserve::{self, Reserve};
use crate::state::sequences::Sequences;
use crate::store::RedbStore;

/// A running MDT.
pub struct Mdt {
    pub(crate) me: Weak<Mdt>,
    pub(crate) rt: Rt,
    pub(crate) net: Arc<Net>,
    pub(crate) server: Weak<Server>,
    pub(crate) config: MdtConfig,
    pub(crate) tunables: Tunables,
    /// Such as `sheen-MDT0000`.
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) incarnation: u64,
    pub(crate) store: Arc<RedbStore>,
    /// The open directory of the MDT: it stays the same if its path is mounted over.
    pub(crate) dir: OpenDir,
    pub(crate) reserve: Reserve,
    /// The MDT's share of the device that holds its directory.
    pub(crate) share: Share,
    /// State that requests change. The lock is never held across a wait.
    pub(crate) core: Mutex<Core>,
    pub(crate) locks: Locks,
    pub(crate) commits: Commits,
    pub(crate) destroyer: Destroyer,
    pub(crate) osts: Osts,
    pub(crate) quotas: Quotas,
    pub(crate) relayouts: Relayouts,
    pub(crate) fences: Fences,
    pub(crate) recovery: Arc<Recovery>,
    pub(crate) sequences: Mutex<Sequences>,
    pub(crate) nodemaps: Present,
    pub(crate) lfsck: Lfsck,
    /// Last transno that was durable before the recovery.
    pub(crate) committed_before: u64,
    pub(crate) stats: Stats,
    pub(crate) jobs: JobStats,
    pub(crate) export_stats: Arc<ExportStats>,
    pub(crate) params: Params,
    pub(crate) stopped: AtomicBool,
    /// Whether the data service holds no objects of files that a crash lost.
    pub(crate) is_clean: AtomicBool,
    /// The data service that stores the MDT's DoM data, once it has started.
    pub(crate) data_service: OnceLock<Arc<dyn DataService>>,
    /// Notified when a rename has replaced a file.
    pub(crate) replaced: Notify,
    /// The MGS's reply to the registration; `None` before it. ESHUTDOWN if the MDT stopped before.
    pub(crate) registered: watch::Sender<Option<Result<()>>>,
    pub(crate) tasks: Mutex<Option<Tasks>>,
}

/// The tasks of a running MDT, and the lock on its directory.
pub(crate) struct Tasks {
    pub committer: JoinHandle<Result<()>>,
    pub others: Vec<JoinHandle<()>>,
    pub _lock: LockGuard,
}

impl Mdt {
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
    pub async fn registered(&self) -> Result<()> {
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

    /// Returns the numbers of the recovery after the last start.
    pub fn recovery_counts(&self) -> Counts {
        self.recovery.window.lock().counts()
    }

    /// Ends the wait for clients that have not recovered. Their uncommitted changes are lost. Does
    /// nothing if the MDT is not in recovery.
    pub fn abort_recovery(&self) {
        self.recovery.abort();
    }

    /// Sets whether a change that depends on another client's change is answered only when that one
    /// is durable (`mdt.*.commit_on_sharing`).
    pub fn set_commit_on_sharing(&self, on: bool) {
        self.tunables.commit_on_sharing.store(on, Relaxed);
    }

    /// Runs `work` in a task of its own, so that it continues if the requester disconnects.
    ///
    /// # Errors
    /// ESHUTDOWN: the MDT stops. Others as `work`.
    pub(crate) async fn run_to_end<T, F>(&self, name: &'static str, work: impl FnOnce(Arc<Mdt>) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
        T: Send + 'static,
    {
        let mdt = self.me.upgrade().ok_or(Errno::ESHUTDOWN)?;
        self.rt.spawn(name, operation::inherit(work(mdt))).await.unwrap_or(Err(Errno::ESHUTDOWN))
    }

    /// Wakes the committer if there is something to commit. To be called after every change, with
    /// the core lock held.
    pub(crate) fn wake_committer(&self, core: &Core) {
        self.quotas.notice(core.ns.quota_generation());
        let ops_max = self.tunables.commit_ops_max.load(Relaxed);
        let is_short = self.reserve.is_short();
        self.commits.wake_if_dirty(core, if is_short { ops_max.min(reserve::COMMIT_OPS_MAX) } else { ops_max });
    }
}
