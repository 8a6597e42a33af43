//! The state of a running OST. Its operations have files of their own: `start`, `service`, and
//! those that `service` calls.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use parking_lot::{Mutex, RwLock};
use sheen_lnet::Net;
use sheen_lockd::Lockd;
use sheen_params::{JobStats, Params, Stats};
use sheen_recovery::Counts;
use sheen_rpc::{ExportStats, Gate, Server};
use sheen_rt::Rt;
use sheen_wire::{Errno, STATE_DEGRADED, StatFs};

use crate::{
    Store,
    brw_stats::BrwStats,
    capabilities::Capabilities,
    commits::Commits,
    disk::Disk,
    exports::Exports,
    loads::Survey,
    locks::Locks,
    quota_state::QuotaState,
    replayed::{Destroyed, Replayed},
    scrubber::Scrubber,
    write_admission::WriteAdmission,
};

/// Number of objects from which a request is announced as blocking: each takes some microseconds.
pub(crate) const BLOCKING_OBJECTS: usize = 256;

/// State of the recovery after a restart.
pub(crate) type Recovery = sheen_recoveryd::Recovery<Replayed, Errno>;

/// A running OST.
pub struct Ost {
    pub(crate) me: Weak<Ost>,
    pub(crate) rt: Rt,
    pub(crate) net: Arc<Net>,
    pub(crate) name: String,
    pub(crate) index: u32,
    /// Uuid by which clients know the OST.
    pub(crate) uuid: String,
    /// True for the data service of an MDT.
    pub(crate) is_of_mdt: bool,
    pub(crate) incarnation: u64,
    pub(crate) store: Store,
    pub(crate) locks: Locks,
    pub(crate) recovery: Arc<Recovery>,
    /// Ranges that were destroyed during the recovery.
    pub(crate) destroyed: Mutex<Destroyed>,
    pub(crate) commits: Commits,
    pub(crate) write_admission: WriteAdmission,
    pub(crate) quota: QuotaState,
    pub(crate) scrubber: Scrubber,
    pub(crate) survey: Survey,
    pub(crate) disk: Disk,
    pub(crate) gate: Gate,
    pub(crate) stats: Stats,
    pub(crate) jobs: JobStats,
    pub(crate) export_stats: Arc<ExportStats>,
    pub(crate) brw_stats: BrwStats,
    /// `obdfilter.*.degraded`: set by a monitor of the disks below while they are being repaired.
    pub(crate) degraded: AtomicBool,
    /// Exports that have sent a request and are still connected, by id.
    pub(crate) exports: RwLock<Exports>,
    pub(crate) capabilities: Capabilities,
    pub(crate) server: Weak<Server>,
    pub(crate) params: Params,
}

impl std::fmt::Debug for Ost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ost({})", self.name)
    }
}

impl Ost {
    /// `<fsname>-OSTxxxx`, or `<fsname>-MDTxxxx-dom`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Index of the OST; for a data service that of its MDT.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns space, inodes and state flags.
    ///
    /// # Errors
    /// Errors of the local file system.
    pub(crate) fn statfs(&self) -> sheen_wire::Result<StatFs> {
        let state = if self.degraded.load(Relaxed) { STATE_DEGRADED } else { 0 };
        Ok(StatFs { state, ..self.store.statfs()? })
    }

    /// Returns the numbers of the recovery after the last start.
    pub fn recovery_counts(&self) -> Counts {
        self.recovery.window.lock().counts()
    }

    /// Ends the wait for clients that have not recovered. Their dirty data is lost. Does nothing if
    /// the OST is not in recovery.
    pub fn abort_recovery(&self) {
        self.recovery.abort();
    }

    /// The objects, for tests and tools of this process.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The lock server, for tests and tools of this process.
    pub fn lockd(&self) -> &Arc<Lockd<sheen_wire::Ost>> {
        self.locks.lockd()
    }

    /// Runs `f`. `blocking`: announces to the runtime that the thread may block for long.
    pub(crate) fn perhaps_blocking<T>(&self, blocking: bool, f: impl FnOnce() -> T) -> T {
        if blocking { self.rt.block_in_place(f) } else { f() }
    }
}
