//! The state of one OST: its connection, its parameters and its free space. The task is in
//! [`crate::osp`].
//!
//! Space that growing files were given counts as used until they use it, so that the same bytes are
//! not given to several files.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use sheen_rpc::{Cause, Import, RequestError};
use sheen_rt::Instant;
use sheen_wire::ost::{
    Damaged, DamagedBlock, ObjectAttr, Part, QuotaUse, QuotaWant, Recreate, Reply, Request, Seek, StoredObject,
};
use sheen_wire::{Bulk, Fid, Ost, StatFs, quota};
use tokio::sync::Notify;

use crate::state::quotas::OspQuota;
use crate::state::repairs::Repairs;

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
    pub active_param: AtomicBool,
    /// `osp.*.max_create_count`. 0: no new objects are placed on the OST. All other values are
    /// equivalent, because objects are not precreated.
    pub max_create_count: AtomicU64,
    pub quota: Arc<OspQuota>,
    pub repairs: Repairs,
    state: Mutex<State>,
    /// Requests a statfs, at most one per [`STATFS_AGE`].
    pub refresh: Notify,
    /// Requests a statfs at once.
    pub urgent: Notify,
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

/// The needs of an OST.
pub(crate) struct OspNeeds {
    /// Objects whose owners it does not know, with their files.
    pub unowned: Vec<(Fid, Fid)>,
    /// Ids that need space.
    pub wants: Vec<QuotaWant>,
    /// Damaged blocks and lost objects.
    pub damaged: Vec<Damaged>,
}

/// The use of an OST by ids.
pub(crate) struct QuotaUses {
    /// In ascending order.
    pub ids: Vec<(quota::Id, QuotaUse)>,
    /// There are more ids after them.
    pub more: bool,
    /// All objects of the OST are counted.
    pub complete: bool,
}

impl Osp {
    pub fn new(index: u32, target: String, uuid: String, oss: u32, import: Arc<Import<Ost>>) -> Osp {
        let quota = Arc::new(OspQuota::default());
        let restarted = quota.clone();
        import.on_restart(move |_| {
            restarted.restarted();
            Box::pin(async { Ok(()) })
        });
        Osp {
            index,
            target,
            uuid,
            oss: AtomicU32::new(oss),
            import,
            active_param: AtomicBool::new(true),
            max_create_count: AtomicU64::new(MAX_CREATE_COUNT),
            quota,
            repairs: Repairs::default(),
            state: Mutex::new(State::default()),
            refresh: Notify::new(),
            urgent: Notify::new(),
        }
    }

    pub fn connected(&self) -> bool {
        self.state.lock().connected
    }

    /// Waits until it is connected.
    pub async fn when_connected(&self) {
        loop {
            let mut connected = std::pin::pin!(self.quota.connected.notified());
            connected.as_mut().enable();
            if self.connected() {
                return;
            }
            connected.await;
        }
    }

    /// Returns whether it lost its connection and may be back in a moment.
    pub fn is_reconnecting(&self) -> bool {
        self.state.lock().reconnecting
    }

    pub fn tried(&self) -> bool {
        self.state.lock().tried
    }

    /// Returns whether it has ever answered.
    pub fn has_answered(&self) -> bool {
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
        self.connected() && self.active_param.load(Relaxed)
    }

    /// Returns whether its parameters let it take new objects.
    pub fn is_wanted(&self) -> bool {
        self.active_param.load(Relaxed) && self.max_create_count.load(Relaxed) > 0
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
    pub async fn run(&self, request: Request) -> Result<(), RequestError> {
        self.import.request(request).send().await.map(drop)
    }

    /// Returns the objects that follow `after`; [`Fid::ZERO`]: the first ones.
    pub async fn list(&self, after: Fid) -> Result<Vec<Fid>, RequestError> {
        let request = Request::List { after };
        let op = request.op();
        match self.import.request(request).send().await?.body {
            Reply::Objects(objects) => Ok(objects),
            _ => Err(self.wrong_reply(op)),
        }
    }

    /// Returns the sizes of these objects in bytes.
    pub async fn sizes(&self, objects: &[Fid]) -> Result<Vec<u64>, RequestError> {
        Ok(self.attrs(objects).await?.into_iter().map(|attr| attr.size).collect())
    }

    /// Returns what is stored of these objects.
    pub async fn stored(&self, objects: &[Fid]) -> Result<Vec<StoredObject>, RequestError> {
        let request = Request::Stored { objects: objects.to_vec() };
        let op = request.op();
        match self.import.request(request).send().await?.body {
            Reply::Stored(stored) if stored.len() == objects.len() => Ok(stored),
            _ => Err(self.wrong_reply(op)),
        }
    }

    /// Returns the attributes of these objects.
    pub async fn attrs(&self, objects: &[Fid]) -> Result<Vec<ObjectAttr>, RequestError> {
        let request = Request::Attrs { objects: objects.to_vec() };
        let op = request.op();
        match self.import.request(request).send().await?.body {
            Reply::Attrs(attrs) if attrs.len() == objects.len() => Ok(attrs),
            _ => Err(self.wrong_reply(op)),
        }
    }

    /// Returns the data versions of these objects, after all clients have flushed their dirty data.
    pub async fn versions(&self, objects: Vec<Fid>) -> Result<Vec<u64>, RequestError> {
        let (count, request) = (objects.len(), Request::Versions { objects, flush: true });
        let op = request.op();
        match self.import.request(request).send().await?.body {
            Reply::Versions(versions) if versions.len() == count => Ok(versions),
            _ => Err(self.wrong_reply(op)),
        }
    }

    /// Records that the connection broke. Returns whether this is new.
    pub fn disconnected(&self) -> bool {
        let mut state = self.state.lock();
        let is_news = state.connected && !state.reconnecting;
        state.reconnecting |= is_news;
        is_news
    }

    /// Records the result of a statfs that began at `at`; `None`: it failed.
    pub fn note(&self, at: Instant, result: Option<StatFs>) {
        let mut state = self.state.lock();
        (state.connected, state.reconnecting, state.tried) = (result.is_some(), false, true);
        let Some(statfs) = result else { return };
        self.quota.connected.notify_waiters();
        let used = state.statfs.map_or(0, |last| free_bytes(&last).saturating_sub(free_bytes(&statfs)));
        let forgotten = at.since(state.taken_at) >= TAKEN_AGE_MAX;
        state.taken = if forgotten { 0 } else { state.taken.saturating_sub(used) };
        (state.statfs, state.looked) = (Some(statfs), at);
    }

    /// Requests the free space.
    pub async fn fetch(&self) -> Result<StatFs, RequestError> {
        match self.import.request(Request::StatFs).send().await?.body {
            Reply::StatFs(statfs) => Ok(statfs),
            _ => Err(self.wrong_reply(Request::StatFs.op())),
        }
    }

    /// Waits until the OST needs something.
    pub async fn quota_needs(&self) -> Result<OspNeeds, RequestError> {
        match self.import.request(Request::QuotaWait).patient().send().await?.body {
            Reply::QuotaNeeds { unowned, wants, damaged } => Ok(OspNeeds { unowned, wants, damaged }),
            _ => Err(self.wrong_reply(Request::QuotaWait.op())),
        }
    }

    /// Sets the bytes that ids may use. Returns the bytes that they use.
    pub async fn quota_allow(&self, ids: Vec<(quota::Id, Option<u64>)>, all: bool) -> Result<Vec<u64>, RequestError> {
        let (count, request) = (ids.len(), Request::QuotaAllow { ids, all });
        let op = request.op();
        match self.import.request(request).send().await?.body {
            Reply::Used(used) if used.len() == count => Ok(used),
            _ => Err(self.wrong_reply(op)),
        }
    }

    /// Returns the use of ids from `first` on.
    pub async fn quota_use(&self, first: quota::Id) -> Result<QuotaUses, RequestError> {
        let request = Request::QuotaUse { first };
        let op = request.op();
        match self.import.request(request).send().await?.body {
            Reply::QuotaUse { ids, more, complete } => Ok(QuotaUses { ids, more, complete }),
            _ => Err(self.wrong_reply(op)),
        }
    }

    /// Reads parts of objects. Returns the bytes of each part, which are fewer at the end of an
    /// object, one after another.
    pub async fn read(&self, parts: Vec<Part>) -> Result<(Vec<u32>, Bulk), RequestError> {
        let request = Request::Read { parts };
        let op = request.op();
        let response = self.import.request(request).send().await?;
        match response.body {
            Reply::Read(lens) => Ok((lens, response.bulk)),
            _ => Err(self.wrong_reply(op)),
        }
    }

    /// Returns the offset of the next data of an object, at or after `offset`. `None`: there is no
    /// more data.
    pub async fn next_data(&self, object: Fid, offset: u64) -> Result<Option<u64>, RequestError> {
        let request = Request::Seek { object, offset, what: Seek::Data };
        let op = request.op();
        match self.import.request(request).send().await?.body {
            Reply::Offset(found) => Ok(found),
            _ => Err(self.wrong_reply(op)),
        }
    }

    /// Writes bytes to offset `at` of a damaged block of an object.
    pub async fn repair(&self, object: Fid, block: DamagedBlock, at: u64, bytes: Bulk) -> Result<(), RequestError> {
        self.import.request(Request::Repair { object, block, at }).bulk(bytes).send().await.map(drop)
    }

    /// Makes a step in which a lost object is made again.
    pub async fn recreate(&self, object: Fid, step: Recreate, bytes: Bulk) -> Result<(), RequestError> {
        self.import.request(Request::Recreate { object, step }).bulk(bytes).send().await.map(drop)
    }

    /// Makes the error of a request that was not answered within `limit`. `op`: its name.
    pub fn no_reply(&self, op: &'static str, limit: Duration) -> RequestError {
        self.import.failure(op, Cause::NoReply { seconds: limit.as_secs() })
    }

    fn wrong_reply(&self, op: &'static str) -> RequestError {
        self.import.failure(op, Cause::Undecodable("it belongs to another request".to_owned()))
    }
}

fn free_bytes(statfs: &StatFs) -> u64 {
    statfs.bavail.saturating_mul(u64::from(statfs.bsize))
}
