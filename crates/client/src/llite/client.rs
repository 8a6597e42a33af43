//! The client object: the parts of a mounted file system. The other files of this directory add the
//! operations of programs; [`crate::mount`] mounts and unmounts.

use std::{
    fmt,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use sheen_ldlm::client::Held;
use sheen_lnet::Nid;
use sheen_mgc::Mgc;
use sheen_rt::{JoinHandle, Rt};
use sheen_wire::{Fid, fid::ROOT, ldlm::Resource};

use crate::{
    access_patterns::AccessPatterns,
    cache::{Cache, Layouts},
    invalidate::Invalidate,
    io_stats::IoStats,
    lock_owners::MdtLocks,
    lov::Lov,
    mdc::Mdc,
    open::{Closes, OpenFiles, ScanPages},
    pools::Pools,
    registered::Registered,
    stats::OpStats,
};

use super::{read_ahead::ReadAhead, statahead::Statahead};

/// A mounted file system.
pub struct Client {
    /// This client, for tasks that operations start.
    pub(crate) me: Weak<Client>,
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
    pub(crate) access_patterns: AccessPatterns,
    pub(crate) io_stats: IoStats,
    pub(crate) closes: Arc<Closes>,
    pub(crate) statahead: Statahead,
    pub(crate) scans: ScanPages,
    /// Owner of the MDT's lock table, which holds only a Weak to it.
    pub(crate) _mdt_locks: Arc<MdtLocks>,
    /// Tasks that run until the client is unmounted or dropped.
    pub(crate) tasks: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) registered: Mutex<Option<Registered>>,
    /// The directory that is mounted, if it is not that of the file system.
    pub(crate) root: OnceLock<Fid>,
    /// Whether the servers let this client change nothing.
    pub(crate) read_only: AtomicBool,
    /// Set when it begins to leave its servers.
    pub(crate) is_leaving: AtomicBool,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({}-{}, {} open)", self.fsname, self.instance, self.files.len())
    }
}

impl Client {
    /// The directory that is mounted.
    pub fn root(&self) -> Fid {
        self.root.get().copied().unwrap_or(ROOT)
    }

    /// Whether the servers let this client change nothing.
    pub fn is_read_only(&self) -> bool {
        self.read_only.load(Relaxed)
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
            Some(index) => self.lov.get(index).map(|ost| ost.osc.locks().all_locks()).unwrap_or_default(),
            None => self.mdc.locks().all_locks(),
        }
    }

    /// Sets the kernel, whose caches the client invalidates before it cancels a lock. Call it once,
    /// before the first operation. A kernel that caches names must check permissions itself.
    /// Without a kernel, only the client itself caches.
    pub fn set_kernel(&self, kernel: Arc<dyn Invalidate>) {
        self.cache.set_kernel(kernel);
    }

    /// Returns this client, for a task. `None`: it is being dropped.
    pub(crate) fn me(&self) -> Option<Arc<Client>> {
        self.me.upgrade()
    }

    /// Returns Lustre's name for the MGC device.
    pub(crate) fn mgc_name(&self) -> String {
        format!("MGC{}", self.mgs_nids.first().map(|nid| nid.to_string()).unwrap_or_default())
    }

    /// Aborts the tasks of the mount.
    pub(crate) fn abort_tasks(&self) {
        self.tasks.lock().drain(..).for_each(|task| task.abort());
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.abort_tasks();
    }
}
