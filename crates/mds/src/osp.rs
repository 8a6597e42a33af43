//! The task of one OST (Lustre's osp): its connection, its free space, its orphan objects, its
//! quotas (module `quota`), its damaged blocks (module `mirror_repair`), and its lost objects
//! (module `lost_objects`).
//!
//! The task of an OST connects, removes orphan objects, requests the free space (statfs), and then
//! sleeps. It wakes when objects are placed or a request to the OST fails, and requests the free
//! space again, at most once per [`STATFS_AGE`]. It does so at once for a request that must know
//! whether a file can grow there.
//!
//! A broken connection ends that sleep, even if the MDT is idle. The OST is then *reconnecting*
//! until the statfs that follows ends. Meanwhile it takes no objects, and a create that would fail
//! or get fewer stripes without the OST waits. If that statfs fails, the OST is disconnected, and
//! creates do without it.

use std::sync::Arc;
use std::time::Duration;

use sheen_rpc::RequestError;
use sheen_wire::StatFs;
use sheen_wire::ost::Request;
use tracing::{info, warn};

use crate::mdt::Mdt;
use crate::state::osp::{Osp, STATFS_AGE, STATFS_TIMEOUT};
use crate::{lost_objects, mirror_repair, quota};

/// Pause between two attempts to reach an OST.
const RETRY: Duration = Duration::from_secs(1);

/// The task of one OST. Aborted when the MDT stops, or another OST takes the index.
pub(crate) async fn run(mdt: Arc<Mdt>, osp: Arc<Osp>) {
    tokio::select! {
        biased;
        () = follow(&mdt, &osp) => {}
        () = quota::run(&mdt, &osp) => {}
        () = mirror_repair::run(&mdt, &osp) => {}
        () = lost_objects::run(&mdt, &osp) => {}
    }
}

/// Follows the state of the OST.
async fn follow(mdt: &Arc<Mdt>, osp: &Arc<Osp>) {
    loop {
        let began = mdt.rt.now();
        let looked = look(mdt, osp).await;
        let was = osp.connected();
        let result = match looked {
            Ok(statfs) if was => Ok(statfs),
            // Objects of creates that a crash lost are removed before new ones are placed.
            Ok(statfs) => {
                mdt.fence_on(osp).await;
                remove_orphans(mdt, osp).await.map(|()| statfs)
            }
            failed => failed,
        };
        match (&result, was) {
            (Ok(_), false) => info!("{}: {} is active", mdt.name, osp.target),
            (Err(e), true) => {
                warn!("{}: {e}; no new objects on {} until it answers; check its OSS", mdt.name, osp.target)
            }
            _ => {}
        }
        osp.note(began, result.as_ref().ok().copied());
        mdt.osts.rebuild();
        match result {
            Ok(_) => {
                if !was {
                    // Destroys and new owners may have waited for it.
                    mdt.destroyer.rescan();
                    mdt.quotas.log.notify_one();
                }
                idle(mdt, osp).await;
            }
            Err(_) => mdt.rt.sleep(RETRY).await,
        }
    }
}

/// Requests the free space of an OST. If the connection breaks meanwhile, the OST takes no objects
/// from that moment.
async fn look(mdt: &Mdt, osp: &Osp) -> Result<StatFs, RequestError> {
    let late = || Err(osp.no_reply(Request::StatFs.op(), STATFS_TIMEOUT));
    let mut answer = std::pin::pin!(mdt.rt.timeout(STATFS_TIMEOUT, osp.fetch()));
    tokio::select! {
        biased;
        looked = &mut answer => return looked.unwrap_or_else(|_| late()),
        () = osp.import.disconnected() => {}
    }
    if osp.disconnected() {
        mdt.osts.rebuild();
    }
    answer.await.unwrap_or_else(|_| late())
}

/// Waits until an OST that answered needs another statfs.
async fn idle(mdt: &Mdt, osp: &Osp) {
    let at = mdt.rt.now();
    let used = async {
        osp.refresh.notified().await;
        mdt.rt.sleep(STATFS_AGE.saturating_sub(mdt.rt.now().since(at))).await;
    };
    tokio::select! {
        biased;
        () = osp.import.disconnected() => {}
        () = osp.urgent.notified() => {}
        () = used => {}
    }
}

async fn remove_orphans(mdt: &Mdt, osp: &Osp) -> Result<(), RequestError> {
    // A replay may claim some of them.
    mdt.recovery.ended().await;
    // By a damaged store, objects of existing files may seem to be orphans. Such an MDT creates no
    // objects, so the removal need not come first.
    if mdt.commits.is_damaged() {
        return Ok(());
    }
    let ranges = mdt.core.lock().ns.orphan_ranges();
    for range in ranges.iter().filter(|r| r.ost == osp.index) {
        osp.run(Request::DestroyRange { seq: range.seq, first: range.first, last: range.last }).await?;
        let mut core = mdt.core.lock();
        core.ns.range_destroyed(range);
        mdt.wake_committer(&core);
    }
    Ok(())
}
