//! One OST as the MDT sees it (Lustre's osp): its connection, its free space, what is left to clean up on it.
//!
//! The task of an OST connects, removes orphans, asks for free space, and sleeps until someone places objects or fails to reach
//! the OST. It then asks again, at most once per [`STATFS_AGE`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use sheen_rpc::Import;
use sheen_wire::ost::{Reply, Request};
use sheen_wire::{Bulk, Errno, Fid, Ost, Result, StatFs};
use tokio::sync::Notify;
use tracing::{info, warn};

use crate::mdt::Mdt;

/// Age at which the free space that placement goes by is asked for again.
pub(crate) const STATFS_AGE: Duration = Duration::from_secs(1);
/// How long an OST may take to say how full it is before no new objects are placed on it.
const STATFS_TIMEOUT: Duration = Duration::from_secs(5);
/// Wait between two attempts to reach an OST.
const RETRY: Duration = Duration::from_secs(1);

/// An OST of the file system.
pub(crate) struct Osp {
    pub index: u32,
    /// Such as `sheen-OST0000`.
    pub target: String,
    pub uuid: String,
    pub nids: Vec<String>,
    /// Which server it is on: OSTs with the same first NID share a number.
    pub oss: u32,
    pub import: Arc<Import<Ost>>,
    /// Not switched off by `osp.*.active=0`.
    pub switched_on: AtomicBool,
    state: Mutex<State>,
    refresh: Notify,
}

#[derive(Clone, Copy, Default)]
struct State {
    /// Answered the last time, and is clean.
    connected: bool,
    /// Was tried, with whatever result.
    tried: bool,
    statfs: Option<StatFs>,
}

impl Osp {
    pub fn new(index: u32, target: String, uuid: String, nids: Vec<String>, oss: u32, import: Arc<Import<Ost>>) -> Osp {
        Osp {
            index,
            target,
            uuid,
            nids,
            oss,
            import,
            switched_on: AtomicBool::new(true),
            state: Mutex::new(State::default()),
            refresh: Notify::new(),
        }
    }

    pub fn connected(&self) -> bool {
        self.state.lock().connected
    }

    pub fn tried(&self) -> bool {
        self.state.lock().tried
    }

    /// Whether it has ever answered.
    pub fn heard(&self) -> bool {
        self.state.lock().statfs.is_some()
    }

    pub fn statfs(&self) -> StatFs {
        self.state.lock().statfs.unwrap_or_default()
    }

    /// Whether objects may be placed on it.
    pub fn active(&self) -> bool {
        self.connected() && self.switched_on.load(Relaxed)
    }

    /// Asks for a fresh look at the OST, soon.
    pub fn refresh(&self) {
        self.refresh.notify_one();
    }

    /// Something it was asked failed: look whether it is still there. When it answers again, destroys go on.
    pub fn lost(&self) {
        self.state.lock().connected = false;
        self.refresh();
    }

    /// Asks it for something that only has to be done.
    pub async fn run(&self, request: Request) -> Result<()> {
        self.import.call(request, Bulk::new()).await.map(drop)
    }

    /// Objects that follow this one; [`Fid::ZERO`]: the first ones.
    pub async fn list(&self, after: Fid) -> Result<Vec<Fid>> {
        match self.import.call(Request::List { after }, Bulk::new()).await?.body {
            Reply::Objects(objects) => Ok(objects),
            _ => Err(Errno::EPROTO),
        }
    }

    fn note(&self, result: Result<StatFs>) {
        let mut state = self.state.lock();
        *state = State { connected: result.is_ok(), tried: true, statfs: result.ok().or(state.statfs) };
    }

    async fn fetch(&self) -> Result<StatFs> {
        match self.import.call(Request::StatFs, Bulk::new()).await?.body {
            Reply::StatFs(statfs) => Ok(statfs),
            _ => Err(Errno::EPROTO),
        }
    }
}

/// The task of one OST; aborted when the OST goes or moves.
pub(crate) async fn run(mdt: Arc<Mdt>, osp: Arc<Osp>) {
    loop {
        let looked = mdt.rt.timeout(STATFS_TIMEOUT, osp.fetch()).await.unwrap_or(Err(Errno::ETIMEDOUT));
        let was = osp.connected();
        let result = match looked {
            Ok(statfs) if was => Ok(statfs),
            // The objects of creates that a crash lost go before new ones come.
            Ok(statfs) => remove_orphans(&mdt, &osp).await.map(|()| statfs),
            failed => failed,
        };
        match (result, was) {
            (Ok(_), false) => info!("{}: {} is active", mdt.name, osp.target),
            (Err(e), true) => {
                warn!("{}: {} does not answer ({e}); no new objects there until it does", mdt.name, osp.target)
            }
            _ => {}
        }
        osp.note(result);
        mdt.osts.rebuild();
        match result {
            Ok(_) => {
                if !was {
                    // Destroys may have waited for it.
                    mdt.destroyer.rescan();
                }
                let at = mdt.rt.now();
                osp.refresh.notified().await;
                mdt.rt.sleep(STATFS_AGE.saturating_sub(mdt.rt.now().since(at))).await;
            }
            Err(_) => mdt.rt.sleep(RETRY).await,
        }
    }
}

async fn remove_orphans(mdt: &Mdt, osp: &Osp) -> Result<()> {
    let ranges = mdt.core.lock().ns.orphan_ranges();
    for range in ranges.iter().filter(|r| r.ost == osp.index) {
        osp.run(Request::DestroyRange { seq: range.seq, first: range.first, last: range.last }).await?;
        let mut core = mdt.core.lock();
        core.ns.range_destroyed(range);
        mdt.touched(&core);
    }
    Ok(())
}
