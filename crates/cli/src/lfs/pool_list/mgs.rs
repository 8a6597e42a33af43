//! Asks the MGS that a mount names for the pools of its file system.

use std::time::Duration;

use sheen_lnet::Net;
use sheen_mgc::Mgc;
use sheen_rt::{RealOptions, Rt};
use sheen_wire::{Errno, Result, control::MountInfo, mgs::Pool};

use crate::{time_limits::scaled, trust};

/// Timeout for the answer of the MGS.
const MGS_WAIT: Duration = Duration::from_secs(5);
/// Timeout for closing the connection.
const END_WAIT: Duration = Duration::from_millis(100);

/// Returns the pools, sorted by name. ETIMEDOUT: the MGS does not answer.
pub fn ask(mount: &MountInfo) -> Result<Vec<Pool>> {
    let nids = mount.mgs_nids.iter().filter_map(|nid| nid.parse().ok()).collect();
    let (runtime, rt) = Rt::real(RealOptions { worker_threads: 1, ..RealOptions::default() })?;
    let config = runtime.block_on(async {
        let mgc = Mgc::new(Net::trusting(rt.clone(), trust::of_tools()), nids, &mount.client_uuid);
        rt.timeout(scaled(MGS_WAIT), mgc.config(&mount.fsname)).await.unwrap_or(Err(Errno::ETIMEDOUT))
    });
    runtime.shutdown(END_WAIT);
    config.map(|config| config.pools)
}
