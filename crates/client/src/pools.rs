//! The OST pools known to a mount, for `lfs`, for programs and as parameters.
//!
//! I/O does not need them: the MDT alone chooses OSTs. They come with the configuration that the
//! client watches, moments after a change.

use parking_lot::Mutex;
use sheen_params::{Param, Params};
use sheen_wire::mgs::{Pool, TargetKind, target_name};

/// The pools of a mount.
pub struct Pools {
    params: Params,
    fsname: String,
    /// `lov.sheen-clilov-ff3298de21e05800.pools`
    dir: String,
    heard: Mutex<Vec<Pool>>,
}

impl Pools {
    /// Creates an empty list for a mount with this instance number.
    pub fn new(params: Params, fsname: &str, instance: &str) -> Pools {
        let dir = format!("lov.{fsname}-clilov-{instance}.pools");
        Pools { params, fsname: fsname.to_owned(), dir, heard: Mutex::default() }
    }

    /// Replaces the list of pools.
    pub fn apply(&self, pools: &[Pool]) {
        let mut heard = self.heard.lock();
        for deleted in heard.iter().filter(|old| pools.iter().all(|pool| pool.name != old.name)) {
            self.params.unregister(&format!("{}.{}", self.dir, deleted.name));
        }
        for pool in pools.iter().filter(|pool| !heard.contains(pool)) {
            let line = |ost: &u32| format!("{}_UUID\n", target_name(&self.fsname, TargetKind::Ost, *ost));
            let lines: String = pool.osts.iter().map(line).collect();
            self.params.register(&format!("{}.{}", self.dir, pool.name), Param::text(move || lines.clone()));
        }
        *heard = pools.to_vec();
    }

    /// Returns the pools of the last configuration.
    pub fn heard(&self) -> Vec<Pool> {
        self.heard.lock().clone()
    }
}
