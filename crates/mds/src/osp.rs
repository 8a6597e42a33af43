//! One OST as the MDT sees it (Lustre's osp): its connection, its free space, and its orphan
//! objects.
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
//!
//! Space that growing files were given counts as used until they use it, so that the same bytes are
//! not given to several files.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use sheen_rpc::Import;
use sheen_rt::Instant;
use sheen_wire::ost::{Reply, Request};
use sheen_wire::{Bulk, Errno, Fid, Ost, Result, StatFs};
use tokio::sync::Notify;
use tracing::{info, warn};

use crate::mdt::Mdt;

/// Age at which the free space that placement uses is requested again.
pub(crate) const STATFS_AGE: Duration = Duration::from_secs(1);
/// Free space in bytes below which an OST may be full within [`STATFS_AGE`].
const FILLED_SOON_BYTES: u64 = 4 << 30;
/// Time that an OST may take to answer a statfs before no new objects are placed on it.
pub(crate) const STATFS_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for which space that a growing file was given and did not use counts as used. A file that
/// is not written any more must not reserve it forever.
const TAKEN_AGE_MAX: Duration = Duration::from_secs(60);
/// Lustre's maximum and default of `max_create_count`, the number of objects that an OST precreates
/// at once.
pub(crate) const MAX_CREATE_COUNT: u64 = 20_000;
/// Pause between two attempts to reach an OST.
const RETRY: Duration = Duration::from_secs(1);

/// An OST of the file system.
pub(crate) struct Osp {
    pub index: u32,
    /// Such as `sheen-OST0000`.
    pub target: String,
    pub uuid: String,
    /// Number of the server that hosts it: OSTs with the same first NID share a number.
    pub oss: AtomicU32,
    pub import: Arc<Import<Ost>>,
    /// False after `osp.*.active=0`.
    pub switched_on: AtomicBool,
    /// `osp.*.max_create_count`. 0: no new objects are placed on the OST. All other values are
    /// equivalent, because objects are not precreated.
    pub max_create_count: AtomicU64,
    state: Mutex<State>,
    refresh: Notify,
    urgent: Notify,
}

#[derive(Clone, Copy, Default)]
struct State {
    /// The last statfs succeeded, and the orphan objects are removed.
    connected: bool,
    /// The connection broke since that statfs; the one under way decides whether the OST is back.
    reconnecting: bool,
    /// A statfs was tried, with any result.
    tried: bool,
    statfs: Option<StatFs>,
    /// Start of the last successful statfs.
    looked: Instant,
    /// Bytes that growing files were given on this OST and that do not yet show as used.
    taken: u64,
    /// Last time that a growing file was given bytes.
    taken_at: Instant,
}

impl Osp {
    pub fn new(index: u32, target: String, uuid: String, oss: u32, import: Arc<Import<Ost>>) -> Osp {
        Osp {
            index,
            target,
            uuid,
            oss: AtomicU32::new(oss),
            import,
            switched_on: AtomicBool::new(true),
            max_create_count: AtomicU64::new(MAX_CREATE_COUNT),
            state: Mutex::new(State::default()),
            refresh: Notify::new(),
            urgent: Notify::new(),
        }
    }

    pub fn connected(&self) -> bool {
        self.state.lock().connected
    }

    /// Returns whether it lost its connection and may be back in a moment.
    pub fn is_reconnecting(&self) -> bool {
        self.state.lock().reconnecting
    }

    pub fn tried(&self) -> bool {
        self.state.lock().tried
    }

    /// Returns whether it has ever answered.
    pub fn heard(&self) -> bool {
        self.state.lock().statfs.is_some()
    }

    pub fn statfs(&self) -> StatFs {
        self.state.lock().statfs.unwrap_or_default()
    }

    /// Returns the bytes free for new objects and for files that grow.
    pub fn free_bytes(&self) -> u64 {
        let state = self.state.lock();
        state.statfs.map_or(0, |statfs| free_bytes(&statfs)).saturating_sub(state.taken)
    }

    /// Records that a growing file was given `bytes` on this OST.
    pub fn take(&self, now: Instant, bytes: u64) {
        let mut state = self.state.lock();
        state.taken = state.taken.saturating_add(bytes);
        state.taken_at = now;
    }

    /// Returns whether it is connected, and its state is too old at `now` for a decision whether it
    /// takes objects. `grows`: whether a file can grow there, for which little free space makes any
    /// state too old.
    pub fn is_view_old(&self, now: Instant, grows: bool) -> bool {
        let state = self.state.lock();
        let known = state.statfs.map_or(0, |statfs| free_bytes(&statfs));
        let age_max = if grows && known < FILLED_SOON_BYTES { Duration::from_nanos(1) } else { STATFS_AGE };
        state.connected && (state.reconnecting || now.since(state.looked) >= age_max)
    }

    /// Requests a statfs at once.
    pub fn look(&self) {
        self.urgent.notify_one();
    }

    /// Returns whether it is connected and not inactive.
    pub fn active(&self) -> bool {
        self.connected() && self.switched_on.load(Relaxed)
    }

    /// Returns whether its parameters let it take new objects.
    pub fn is_wanted(&self) -> bool {
        self.switched_on.load(Relaxed) && self.max_create_count.load(Relaxed) > 0
    }

    /// Returns whether objects may be placed on it.
    pub fn takes_objects(&self) -> bool {
        let State { connected, reconnecting, .. } = *self.state.lock();
        connected && !reconnecting && self.is_wanted()
    }

    /// Requests a statfs, at most one per [`STATFS_AGE`].
    pub fn refresh(&self) {
        self.refresh.notify_one();
    }

    /// Marks it as disconnected after a failed request, and requests a statfs. When it answers
    /// again, destroys continue.
    pub fn lost(&self) {
        self.state.lock().connected = false;
        self.refresh();
    }

    /// Sends a request whose reply carries no data.
    pub async fn run(&self, request: Request) -> Result<()> {
        self.import.call(request, Bulk::new()).await.map(drop)
    }

    /// Returns the objects that follow `after`; [`Fid::ZERO`]: the first ones.
    pub async fn list(&self, after: Fid) -> Result<Vec<Fid>> {
        match self.import.call(Request::List { after }, Bulk::new()).await?.body {
            Reply::Objects(objects) => Ok(objects),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Records that the connection broke. Returns whether this is new.
    fn disconnected(&self) -> bool {
        let mut state = self.state.lock();
        let is_news = state.connected && !state.reconnecting;
        state.reconnecting |= is_news;
        is_news
    }

    /// Records the result of a statfs that began at `at`.
    fn note(&self, at: Instant, result: Result<StatFs>) {
        let mut state = self.state.lock();
        (state.connected, state.reconnecting, state.tried) = (result.is_ok(), false, true);
        let Ok(statfs) = result else { return };
        let used = state.statfs.map_or(0, |last| free_bytes(&last).saturating_sub(free_bytes(&statfs)));
        let forgotten = at.since(state.taken_at) >= TAKEN_AGE_MAX;
        state.taken = if forgotten { 0 } else { state.taken.saturating_sub(used) };
        (state.statfs, state.looked) = (Some(statfs), at);
    }

    async fn fetch(&self) -> Result<StatFs> {
        match self.import.call(Request::StatFs, Bulk::new()).await?.body {
            Reply::StatFs(statfs) => Ok(statfs),
            _ => Err(Errno::EPROTO),
        }
    }
}

fn free_bytes(statfs: &StatFs) -> u64 {
    statfs.bavail.saturating_mul(u64::from(statfs.bsize))
}

/// The task of one OST. Aborted when the MDT stops, or another OST takes the index.
pub(crate) async fn run(mdt: Arc<Mdt>, osp: Arc<Osp>) {
    loop {
        let began = mdt.rt.now();
        let looked = look(&mdt, &osp).await;
        let was = osp.connected();
        let result = match looked {
            Ok(statfs) if was => Ok(statfs),
            // Objects of creates that a crash lost are removed before new ones are placed.
            Ok(statfs) => remove_orphans(&mdt, &osp).await.map(|()| statfs),
            failed => failed,
        };
        match (result, was) {
            (Ok(_), false) => info!("{}: {} is active", mdt.name, osp.target),
            (Err(e), true) => {
                warn!(
                    "{}: {} does not answer ({e}); no objects there until it does; check its OSS",
                    mdt.name, osp.target
                )
            }
            _ => {}
        }
        osp.note(began, result);
        mdt.osts.rebuild();
        match result {
            Ok(_) => {
                if !was {
                    // Destroys may have waited for it.
                    mdt.destroyer.rescan();
                }
                idle(&mdt, &osp).await;
            }
            Err(_) => mdt.rt.sleep(RETRY).await,
        }
    }
}

/// Requests the free space of an OST. If the connection breaks meanwhile, the OST takes no objects
/// from that moment.
async fn look(mdt: &Mdt, osp: &Osp) -> Result<StatFs> {
    let mut answer = std::pin::pin!(mdt.rt.timeout(STATFS_TIMEOUT, osp.fetch()));
    tokio::select! {
        biased;
        looked = &mut answer => return looked.unwrap_or(Err(Errno::ETIMEDOUT)),
        () = osp.import.disconnected() => {}
    }
    if osp.disconnected() {
        mdt.osts.rebuild();
    }
    answer.await.unwrap_or(Err(Errno::ETIMEDOUT))
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

async fn remove_orphans(mdt: &Mdt, osp: &Osp) -> Result<()> {
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
        mdt.touched(&core);
    }
    Ok(())
}
