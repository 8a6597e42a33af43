//! One OST as the MDT sees it (Lustre's osp): its connection, its free space, what is left to clean
//! up on it.
//!
//! The task of an OST connects, removes orphans, asks for free space, and sleeps until someone
//! places objects or fails to reach the OST. It then asks again, at most once per [`STATFS_AGE`];
//! at once for who has to know whether a file can grow there.
//!
//! A lost connection ends that sleep, however idle the MDT is. The OST is then *reconnecting* until
//! the look that follows ends: it takes no objects, and a create that would fail or get fewer
//! stripes without it waits. After a look that failed it is disconnected: creates do without it.
//!
//! What files that grow were given counts as used until it is, so that they are not given the same
//! bytes.

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

/// Age at which the free space that placement goes by is asked for again.
pub(crate) const STATFS_AGE: Duration = Duration::from_secs(1);
/// An OST with less free may be full within [`STATFS_AGE`].
const FILLED_SOON_BYTES: u64 = 4 << 30;
/// How long an OST may take to say how full it is before no new objects are placed on it.
pub(crate) const STATFS_TIMEOUT: Duration = Duration::from_secs(5);
/// How long what a growing file was given and did not use counts as used: who stopped writing does
/// not keep it for ever.
const TAKEN_AGE_MAX: Duration = Duration::from_secs(60);
/// Lustre's most objects that an OST makes ahead at once, and how many it may make where nobody
/// says.
pub(crate) const MAX_CREATE_COUNT: u64 = 20_000;
/// Wait between two attempts to reach an OST.
const RETRY: Duration = Duration::from_secs(1);

/// An OST of the file system.
pub(crate) struct Osp {
    pub index: u32,
    /// Such as `sheen-OST0000`.
    pub target: String,
    pub uuid: String,
    /// Which server it is on: OSTs with the same first NID share a number.
    pub oss: AtomicU32,
    pub import: Arc<Import<Ost>>,
    /// Not switched off by `osp.*.active=0`.
    pub switched_on: AtomicBool,
    /// `osp.*.max_create_count`: 0, and no new objects are placed on it. Objects are not made
    /// ahead, so any other number is as good as another.
    pub max_create_count: AtomicU64,
    state: Mutex<State>,
    refresh: Notify,
    urgent: Notify,
}

#[derive(Clone, Copy, Default)]
struct State {
    /// Answered the last time, and is clean.
    connected: bool,
    /// Lost its connection since that answer; the look under way says whether it comes back.
    reconnecting: bool,
    /// Was tried, with whatever result.
    tried: bool,
    statfs: Option<StatFs>,
    /// When the last look at it that brought an answer began.
    looked: Instant,
    /// Bytes that growing files were given of it and that are not seen to be used yet.
    taken: u64,
    /// When they were last given some.
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

    /// Whether it lost its connection and may be back in a moment.
    pub fn is_reconnecting(&self) -> bool {
        self.state.lock().reconnecting
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

    /// Bytes free for new objects and for files that grow.
    pub fn free_bytes(&self) -> u64 {
        let state = self.state.lock();
        state.statfs.map_or(0, |statfs| free_bytes(&statfs)).saturating_sub(state.taken)
    }

    /// A file that grows was given so many bytes of it.
    pub fn take(&self, now: Instant, bytes: u64) {
        let mut state = self.state.lock();
        state.taken = state.taken.saturating_add(bytes);
        state.taken_at = now;
    }

    /// Whether it is connected, and what was known of it at `now` is too old to say whether it
    /// takes objects; `grows`: whether a file can grow there.
    pub fn is_view_old(&self, now: Instant, grows: bool) -> bool {
        let state = self.state.lock();
        let known = state.statfs.map_or(0, |statfs| free_bytes(&statfs));
        let age_max = if grows && known < FILLED_SOON_BYTES { Duration::from_nanos(1) } else { STATFS_AGE };
        state.connected && (state.reconnecting || now.since(state.looked) >= age_max)
    }

    /// Asks for a fresh look at the OST, now.
    pub fn look(&self) {
        self.urgent.notify_one();
    }

    /// Whether it is in use.
    pub fn active(&self) -> bool {
        self.connected() && self.switched_on.load(Relaxed)
    }

    /// Whether it is to take new objects when it can be reached.
    pub fn is_wanted(&self) -> bool {
        self.switched_on.load(Relaxed) && self.max_create_count.load(Relaxed) > 0
    }

    /// Whether objects may be placed on it.
    pub fn takes_objects(&self) -> bool {
        let State { connected, reconnecting, .. } = *self.state.lock();
        connected && !reconnecting && self.is_wanted()
    }

    /// Asks for a fresh look at the OST, soon.
    pub fn refresh(&self) {
        self.refresh.notify_one();
    }

    /// Something it was asked failed: look whether it is still there. When it answers again,
    /// destroys go on.
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

    /// Its connection is lost. Whether that is news.
    fn disconnected(&self) -> bool {
        let mut state = self.state.lock();
        let is_news = state.connected && !state.reconnecting;
        state.reconnecting |= is_news;
        is_news
    }

    /// A look that began at `at` came to this.
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

/// The task of one OST; aborted when the MDT stops, or another OST takes its index.
pub(crate) async fn run(mdt: Arc<Mdt>, osp: Arc<Osp>) {
    loop {
        let began = mdt.rt.now();
        let looked = look(&mdt, &osp).await;
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

/// Asks an OST how full it is. It takes no objects from the moment at which its connection is lost.
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

/// Waits until an OST that answered is to be looked at again.
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
    // A damaged store may call objects of files lost. It creates no objects, so these need not be
    // gone first.
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
