//! The pools that a mount has heard of: what it says of them to `lfs` and to programs, and as
//! parameters.
//!
//! A mount needs none of it: the MDT alone chooses OSTs. What is heard comes with the configuration
//! that is watched, moments after the change.

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
    /// None yet, of a mount of this instance.
    pub fn new(params: Params, fsname: &str, instance: &str) -> Pools {
        let dir = format!("lov.{fsname}-clilov-{instance}.pools");
        Pools { params, fsname: fsname.to_owned(), dir, heard: Mutex::default() }
    }

    /// These are all.
    pub fn apply(&self, pools: &[Pool]) {
        let mut heard = self.heard.lock();
        for gone in heard.iter().filter(|old| pools.iter().all(|pool| pool.name != old.name)) {
            self.params.unregister(&format!("{}.{}", self.dir, gone.name));
        }
        for pool in pools.iter().filter(|pool| !heard.contains(pool)) {
            let line = |ost: &u32| format!("{}_UUID\n", target_name(&self.fsname, TargetKind::Ost, *ost));
            let lines: String = pool.osts.iter().map(line).collect();
            self.params.register(&format!("{}.{}", self.dir, pool.name), Param::text(move || lines.clone()));
        }
        *heard = pools.to_vec();
    }

    /// Those heard of last.
    pub fn heard(&self) -> Vec<Pool> {
        self.heard.lock().clone()
    }
}
