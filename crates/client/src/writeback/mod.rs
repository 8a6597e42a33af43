//! The write-back cache: dirty data that is not yet on the OSTs.
//!
//! A small write is copied into the dirty extents of its objects ([`extents`]), and is complete.
//! Its data is sent later, together with neighbouring data. A flush starts when a request is full,
//! when the lock on the data is revoked, at fsync and close, after [`AGE`], and when there is too
//! much dirty data. Each OST has one [`Writeback`] next to its lock table.
//!
//! Invariants:
//! * data is stored while a PW lock on it is in use, and is flushed before that lock is cancelled;
//!   so no other client reads stale bytes;
//! * data is stored only if the OST has granted space for it; so a flush never fails because the
//!   OST is full;
//! * data of a file whose owner is near a limit of space is not stored ([`TightFiles`]);
//! * of two writes to the same bytes, the later one is sent after the reply to the earlier one;
//! * if data cannot be written, it is discarded, the error is stored with its file, and the next
//!   fsync returns it. Data for an inactive OST (`osc.*.active=0`) cannot be written;
//! * dirty data is bounded by `max_dirty_mb`; a write that would exceed it waits;
//! * the dirty data of all OSTs is bounded as well ([`AllDirty`]).
//!
//! After a restart of the OST, the dirty data is sent again, before the OST serves other clients.
//! After an eviction, another client may have changed the file. So the dirty data is discarded, and
//! fsync returns EIO. The same holds if the OST has not waited for this client.
//!
//! An OST that has answered a write may not have made it durable. The import retains such writes
//! for a failure of the OST's host. Before there are too many, the OST is asked to make them
//! durable.

mod all_dirty;
mod appends;
pub mod extents;
mod follow;
mod grant;
pub mod pattern;
mod tight;
mod unsynced;

use std::{
    collections::BTreeMap,
    fmt,
    num::NonZeroUsize,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use lru::LruCache;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use sheen_rpc::{Awaited, BoxFuture, Slots, URGENT_BEYOND};
use sheen_rt::{Instant, Rt, operation};
use sheen_wire::{
    Bulk, Errno, Fid, JobId, Time,
    ost::{Grant, ObjectAttr, PARTS_MAX, Part, Reply, Request},
};
use tokio::sync::Notify;

use crate::{failure::Result, osc::Osc};
pub use all_dirty::AllDirty;
pub use appends::Appending;
use appends::Appends;
use extents::{Extents, Run};
use pattern::{Pattern, Stride};
pub use tight::TightFiles;
pub use unsynced::{Changed, Survival, Unsynced};

/// Dirty data older than this is being sent. A client that is killed loses at most this much
/// unsynced data.
pub const AGE: Duration = Duration::from_secs(1);
/// Default of Lustre's `max_dirty_mb`: MiB of dirty data per OST, including data in flight.
pub const MAX_DIRTY_MB_DEFAULT: u64 = 64;
/// Maximum of `max_dirty_mb`.
pub const MAX_DIRTY_MB_LIMIT: u64 = 2048;
/// Maximum number of concurrent writes of appends to one OST, whatever the limit of other requests.
/// Beside them and writes with dirty data, one slot of urgent requests is left for cancels of
/// locks.
const APPENDS_MAX: usize = URGENT_BEYOND - 1;
/// Maximum number of runs of one object in one request.
const RUNS_MAX: usize = PARTS_MAX / 2;
/// Maximum number of files with a stored error.
const FAILED_MAX: NonZeroUsize = NonZeroUsize::new(65_536).unwrap();
/// Maximum number of objects noted as contended.
const CONTENDED_MAX: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// Maximum number of objects with a write pattern.
const PATTERNS_MAX: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// How long a contended object is written without lock requests.
const CONTENDED_FOR: Duration = Duration::from_secs(1);
/// Pause before a flush is repeated that met too many waiting writes at the OST.
const BUSY_PAUSE: Duration = Duration::from_millis(20);
/// The byte range of a whole object.
const WHOLE: (u64, u64) = (0, u64::MAX);

/// The write-back cache of one OST.
pub struct Writeback {
    rt: Rt,
    osc: Arc<Osc>,
    unsynced: Arc<Unsynced>,
    tight: Arc<TightFiles>,
    all: Arc<AllDirty>,
    max_dirty: AtomicU64,
    /// Whether a write has failed since the last [`Writeback::has_failed`].
    failed: AtomicBool,
    /// Whether a sync is under way that lets the client drop retained changes.
    syncing: AtomicBool,
    state: Mutex<State>,
    /// Signals that data was written or discarded.
    changed: Notify,
    /// Write requests with dirty data: `max_rpcs_in_flight`.
    sends: Slots,
    /// Held while `max_rpcs_in_flight` is set, so that `sends` and the import agree.
    limits: Mutex<()>,
    appends: Arc<Appends>,
}

struct State {
    objects: BTreeMap<Fid, Object>,
    dirty: u64,
    flying: u64,
    /// Granted space that is not used yet, in bytes.
    grant: u64,
    /// Number of requests in flight, and number of evictions by the OST.
    sending: u32,
    evictions: u64,
    /// Number of times that the OST dropped all grants: restarts and evictions.
    grant_losses: u64,
    aging: bool,
    failed: LruCache<Fid, Errno, FxBuildHasher>,
    contended: LruCache<Fid, Instant, FxBuildHasher>,
    /// Last write and stride of recently written files, by an object of each.
    patterns: LruCache<Fid, Pattern, FxBuildHasher>,
}

struct Object {
    file: Fid,
    /// The job that wrote last.
    job: JobId,
    extents: Extents,
    /// Time since which there is dirty data that is not in flight.
    since: Instant,
    /// [`State::grant_losses`] when the oldest of this dirty data was written. If it is not the
    /// present number, the OST does not know the grant of all the dirty data.
    grant_losses: u64,
}

/// How an OST that has lost all locks treats this client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reception {
    /// It was restarted, and serves other clients only after the report of this client.
    Awaited,
    /// It was restarted in this process, and did not wait for this client. It accepts the dirty
    /// data. Other clients may have got locks meanwhile.
    Unawaited,
    /// It has evicted this client, or the restarted OST did not wait for it. Other clients may have
    /// written since.
    Evicted,
}

/// Result of [`Writeback::put`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Put {
    /// The data was stored.
    Done,
    /// The OST has not granted enough space.
    NoGrant,
    /// All OSTs together have too much dirty data.
    NoMemory,
    /// There is too much dirty data: wait for [`Writeback::room`].
    Full,
}

/// Grant for the dirty data of a write request, in bytes.
#[derive(Clone, Copy)]
struct Cost {
    covered: u64,
    /// The grant that the write uses: `covered`, or 0 if the OST has dropped the grant.
    used: u64,
}

/// The content of one write request.
struct Batch {
    file: Fid,
    job: JobId,
    object: Fid,
    /// Start offsets of the runs, which identify them while they are in flight.
    runs: Vec<u64>,
    parts: Vec<Part>,
    bulk: Bulk,
    cost: Cost,
    mtime: Time,
    /// Number of evictions by the OST when the batch was taken.
    evictions: u64,
}

impl fmt::Debug for Writeback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        write!(f, "Writeback({} objects, {} dirty, {} flying)", state.objects.len(), state.dirty, state.flying)
    }
}

impl Writeback {
    /// Creates an empty write-back cache. `unsynced`, `tight` and `all`: shared by the OSTs of a
    /// mount.
    pub fn new(
        rt: &Rt,
        osc: &Arc<Osc>,
        unsynced: &Arc<Unsynced>,
        tight: &Arc<TightFiles>,
        all: &Arc<AllDirty>,
    ) -> Arc<Writeback> {
        Arc::new(Writeback {
            rt: rt.clone(),
            osc: osc.clone(),
            unsynced: unsynced.clone(),
            tight: tight.clone(),
            all: all.clone(),
            max_dirty: AtomicU64::new(MAX_DIRTY_MB_DEFAULT << 20),
            failed: AtomicBool::new(false),
            syncing: AtomicBool::new(false),
            state: Mutex::new(State {
                objects: BTreeMap::new(),
                dirty: 0,
                flying: 0,
                grant: 0,
                sending: 0,
                evictions: 0,
                grant_losses: 0,
                aging: false,
                failed: LruCache::with_hasher(FAILED_MAX, FxBuildHasher),
                contended: LruCache::with_hasher(CONTENDED_MAX, FxBuildHasher),
                patterns: LruCache::with_hasher(PATTERNS_MAX, FxBuildHasher),
            }),
            changed: Notify::new(),
            sends: Slots::new(osc.import().max_rpcs_in_flight()),
            limits: Mutex::new(()),
            appends: Appends::new(APPENDS_MAX),
        })
    }

    /// Registers an append. The caller then checks that it still holds the locks under which it
    /// found the end.
    pub fn begin_append(&self) -> Appending {
        self.appends.begin()
    }

    /// Stores data of an object. The caller has a PW lock on it in use.
    pub fn put(self: &Arc<Self>, file: Fid, object: Fid, offset: u64, data: &Bulk) -> Put {
        let (now, wall, max) = (self.rt.now(), self.rt.wall(), self.max_dirty.load(Relaxed));
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let known = state.objects.get(&object);
        let cost = |extents: &Extents| extents.cost(offset, data.len() as u64);
        let cost = known.map_or_else(|| cost(&Extents::default()), |o| cost(&o.extents));
        if cost > state.grant {
            return Put::NoGrant;
        }
        if state.dirty + state.flying + cost > max {
            return Put::Full;
        }
        if !self.all.add(cost) {
            return Put::NoMemory;
        }
        let grant_losses = state.grant_losses;
        let job = operation::job();
        let new = || Object { file, job, extents: Extents::default(), since: now, grant_losses };
        let entry = state.objects.entry(object).or_insert_with(new);
        if !job.is_none() {
            entry.job = job;
        }
        if entry.extents.dirty_bytes() == 0 {
            (entry.since, entry.grant_losses) = (now, grant_losses);
        }
        // The same as `cost`.
        let covered = entry.extents.write(offset, data, wall);
        let full = entry.extents.next_full(self.max_bytes());
        state.grant = state.grant.saturating_sub(covered);
        state.dirty += covered;
        let pressed = state.dirty > max / 2;
        let batch = if full || pressed { self.take(state, object, WHOLE, pressed) } else { None };
        let ages = !std::mem::replace(&mut state.aging, true);
        drop(guard);
        if let Some(batch) = batch {
            self.begin_send(batch);
        }
        if ages {
            self.begin_aging();
        }
        Put::Done
    }

    /// Resolves when there is room for more dirty data.
    pub async fn room(self: &Arc<Self>) {
        let mut waiting = None;
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let full = {
                let state = self.state.lock();
                state.dirty + state.flying > self.max_dirty.load(Relaxed) / 2
            };
            if !full {
                return;
            }
            if waiting.is_none() {
                waiting = Some(self.osc.import().waits().begin(Awaited::Dirty));
            }
            self.begin_flush_all();
            changed.await;
        }
    }

    /// Whether the OST has granted this much space. If not, starts to flush all dirty data: the OST
    /// may grant the space anew with its replies.
    pub fn has_grant(self: &Arc<Self>, bytes: u64) -> bool {
        let (enough, dirty) = {
            let state = self.state.lock();
            (state.grant >= bytes, state.dirty > 0)
        };
        if !enough && dirty {
            self.begin_flush_all();
        }
        enough
    }

    /// Returns how much more grant to request with a lock, or with a write that is not buffered, in
    /// bytes; 0 if there is enough.
    pub fn want(&self) -> u64 {
        grant::wanted(self.state.lock().grant, self.max_dirty.load(Relaxed))
    }

    /// Returns how much more grant to request with a flush that uses `covered` bytes of grant.
    fn want_with_flush(&self, covered: u64) -> u64 {
        let state = self.state.lock();
        let (dirty, is_alone) = (state.dirty + state.flying, state.sending <= 1);
        grant::wanted_by_flush(covered, is_alone, state.grant, dirty, self.max_dirty.load(Relaxed))
    }

    /// Adds space that the OST granted.
    pub fn granted(&self, bytes: u64) {
        if bytes > 0 {
            self.state.lock().grant += bytes;
        }
    }

    /// Whether bytes of the range are dirty or in flight.
    pub fn holds(&self, object: Fid, range: (u64, u64)) -> bool {
        self.state.lock().objects.get(&object).is_some_and(|o| o.extents.overlaps(range) != (false, false))
    }

    /// Flushes the range. Resolves when the data that was dirty or in flight before has been
    /// acknowledged.
    pub async fn flush(self: &Arc<Self>, object: Fid, range: (u64, u64)) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let batch = self.take(&mut self.state.lock(), object, range, true);
            match batch {
                Some(batch) => self.begin_send(batch),
                None if self.holds(object, range) => changed.await,
                None => return,
            }
        }
    }

    /// Starts to flush an object, and returns a future that waits for the range. `None`: the range
    /// has no dirty data.
    pub fn flush_later(self: &Arc<Self>, object: Fid, range: (u64, u64)) -> Option<BoxFuture<'static, ()>> {
        if !self.holds(object, range) {
            return None;
        }
        // A client that wants one part mostly wants the remainder as well, so send the whole
        // object.
        self.begin_flush(object);
        let this = self.clone();
        Some(Box::pin(async move { this.flush(object, range).await }))
    }

    /// Starts to flush an object.
    pub fn begin_flush(self: &Arc<Self>, object: Fid) {
        loop {
            let batch = self.take(&mut self.state.lock(), object, WHOLE, true);
            match batch {
                Some(batch) => self.begin_send(batch),
                None => return,
            }
        }
    }

    fn begin_flush_all(self: &Arc<Self>) {
        let objects: Vec<Fid> = self.state.lock().objects.keys().copied().collect();
        objects.into_iter().for_each(|object| self.begin_flush(object));
    }

    /// Flushes all objects. Resolves when the data has been acknowledged.
    pub async fn flush_all(self: &Arc<Self>) {
        let objects: Vec<Fid> = self.state.lock().objects.keys().copied().collect();
        objects.iter().for_each(|object| self.begin_flush(*object));
        for object in objects {
            self.flush(object, WHOLE).await;
        }
    }

    /// Returns the size, space and mtime of an object's dirty data, which the OST does not know,
    /// for glimpses.
    pub fn attr(&self, object: Fid) -> Option<ObjectAttr> {
        let state = self.state.lock();
        let extents = &state.objects.get(&object)?.extents;
        let mtime = extents.mtime()?;
        Some(ObjectAttr { size: extents.end(), blocks: extents.dirty_bytes() / 512, mtime: Some(mtime) })
    }

    /// Discards the dirty data of an object that is about to be deleted. Its grant is unused again,
    /// unless the OST has dropped it since.
    pub fn discard(&self, object: Fid) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let Some(known) = state.objects.get_mut(&object) else { return };
        let freed = known.extents.discard(WHOLE);
        if known.grant_losses == state.grant_losses {
            state.grant += freed;
        }
        state.dirty -= freed;
        state.tidy(object);
        drop(guard);
        self.all.remove(freed);
        self.changed.notify_waiters();
    }

    /// Returns and clears the stored write error of a file.
    pub fn take_error(&self, file: Fid) -> Option<Errno> {
        self.state.lock().failed.pop(&file)
    }

    /// Whether any write has failed since the last call.
    pub fn has_failed(&self) -> bool {
        self.failed.swap(false, Relaxed)
    }

    /// Notes that the OST reported an object as contended.
    pub fn note_contended(&self, object: Fid) {
        let until = self.rt.now() + CONTENDED_FOR;
        self.state.lock().contended.put(object, until);
    }

    /// Notes a small write that will be cached, at an offset of the file that has this object.
    /// Returns the stride that it continues.
    pub fn note_write(&self, object: Fid, offset: u64, len: u64) -> Option<Stride> {
        let mut state = self.state.lock();
        state.patterns.get_or_insert_mut(object, Pattern::default).note(offset, len)
    }

    /// Whether the OST reported the object as contended a moment ago.
    pub fn is_contended(&self, object: Fid) -> bool {
        let mut state = self.state.lock();
        !state.contended.is_empty() && state.contended.get(&object).is_some_and(|until| self.rt.now() < *until)
    }

    /// Handles the loss of all locks and grants. After a restart of the OST, sends the dirty data
    /// again at once, and then reports to the OST of this `incarnation` that it has all. An OST
    /// that waits for this client serves other clients only after the report. If other clients may
    /// have written since, discards the dirty data instead, and aborts the requests in flight.
    /// Appends are aborted as soon as other clients may have got locks. Aborted requests have ended
    /// when this function returns.
    pub async fn lost(self: &Arc<Self>, reception: Reception, incarnation: u64) {
        {
            let mut state = self.state.lock();
            state.grant = 0;
            state.grant_losses += 1;
        }
        if reception == Reception::Evicted {
            self.discard_all();
            self.sends_end().await;
        }
        if reception != Reception::Awaited {
            self.appends.abort().await;
        }
        self.begin_report(incarnation);
    }

    /// Waits until no request with dirty data is in flight.
    async fn sends_end(&self) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.state.lock().sending == 0 {
                return;
            }
            changed.await;
        }
    }

    /// Records an answered change of a file as unsynced. If much is retained, starts a sync.
    pub fn changed(self: &Arc<Self>, file: Fid, changed: Changed) {
        self.unsynced.changed(file, self.osc.index(), changed);
        if changed.transno == 0 || !self.osc.import().retains_much() || self.syncing.swap(true, Relaxed) {
            return;
        }
        let this = self.clone();
        drop(self.rt.spawn("osc_sync", async move {
            // Without an answer, the changes stay retained within the bounds.
            let _ = this.osc.request(Request::Sync { objects: Vec::new() }).send().await;
            this.syncing.store(false, Relaxed);
        }));
    }

    /// Processes what a restarted OST has of the changes of before.
    pub fn survived(&self, survival: &Survival) {
        self.unsynced.survived(self.osc.index(), survival);
    }

    /// Records that the changes of before are not retained any more.
    pub fn not_retained(&self) {
        self.unsynced.not_retained(self.osc.index());
    }

    /// Flushes all dirty data, and then reports to the restarted OST that it has all.
    fn begin_report(self: &Arc<Self>, incarnation: u64) {
        let this = self.clone();
        drop(self.rt.spawn("osc_flush", async move {
            this.flush_all().await;
            // At an end of file that was found under locks of before.
            this.appends.end().await;
            this.osc.import().guarded_requests_end().await;
            let recovered = Request::Recovered { incarnation };
            // An OST that does not get it has evicted this client, or was restarted again.
            let _ = this.osc.import().request(recovered).urgent().send().await;
        }));
    }

    fn discard_all(&self) {
        let mut state = self.state.lock();
        state.evictions += 1;
        let objects = std::mem::take(&mut state.objects);
        let (mut lost, freed) = (0_usize, state.dirty + state.flying);
        for object in objects.into_values() {
            lost += 1;
            self.failed.store(true, Relaxed);
            state.failed.put(object.file, Errno::EIO);
        }
        (state.dirty, state.flying) = (0, 0);
        drop(state);
        self.all.remove(freed);
        if lost > 0 {
            let ost = self.osc.index();
            tracing::error!("evicted by OST {ost}: discarded dirty data of {lost} objects; fsync returns EIO");
        }
        self.changed.notify_waiters();
    }

    /// Returns the dirty bytes, including data in flight: `cur_dirty_bytes`.
    pub fn dirty_bytes(&self) -> u64 {
        let state = self.state.lock();
        state.dirty + state.flying
    }

    /// Returns the unused grant in bytes: `cur_grant_bytes`.
    pub fn grant_bytes(&self) -> u64 {
        self.state.lock().grant
    }

    /// Sets the maximum number of requests in flight to this OST: `max_rpcs_in_flight`.
    ///
    /// # Errors
    /// ERANGE unless it is 1 to `RPCS_IN_FLIGHT_LIMIT`.
    pub fn set_max_rpcs_in_flight(&self, n: usize) -> sheen_wire::Result<()> {
        let _one = self.limits.lock();
        self.osc.import().set_max_rpcs_in_flight(n)?;
        self.sends.set_limit(n);
        Ok(())
    }

    /// Returns `max_dirty_mb`, in MiB.
    pub fn max_dirty_mb(&self) -> u64 {
        self.max_dirty.load(Relaxed) >> 20
    }

    /// Sets `max_dirty_mb`, in MiB.
    pub fn set_max_dirty_mb(&self, mb: u64) {
        self.max_dirty.store(mb.min(MAX_DIRTY_MB_LIMIT) << 20, Relaxed);
        self.changed.notify_waiters();
    }

    fn max_bytes(&self) -> u64 {
        self.osc.max_bytes_per_rpc()
    }

    /// Takes the content of the next request for an object. `whole`: even if the request is not
    /// full.
    fn take(&self, state: &mut State, object: Fid, range: (u64, u64), whole: bool) -> Option<Batch> {
        let max = self.max_bytes();
        let Object { file, job, extents, grant_losses, .. } = state.objects.get_mut(&object)?;
        let mut batch = Batch {
            file: *file,
            job: *job,
            object,
            runs: Vec::new(),
            parts: Vec::new(),
            bulk: Bulk::new(),
            cost: Cost { covered: 0, used: 0 },
            mtime: Time { sec: 0, nsec: 0 },
            evictions: state.evictions,
        };
        while (batch.bulk.len() as u64) < max && batch.runs.len() < RUNS_MAX {
            let room = max - batch.bulk.len() as u64;
            let Some(Run { offset, data, mtime, covered }) = extents.take(range, room, whole) else { break };
            batch.runs.push(offset);
            batch.parts.push(Part { object, offset, len: data.len() as u32 });
            batch.bulk.append(data);
            batch.cost.covered += covered;
            batch.mtime = batch.mtime.max(mtime);
            if !whole {
                break;
            }
        }
        if batch.runs.is_empty() {
            return None;
        }
        // The OST would take the bytes from grants that it gave for other data since.
        let covered = batch.cost.covered;
        batch.cost.used = if *grant_losses == state.grant_losses { covered } else { 0 };
        state.dirty -= covered;
        state.flying += covered;
        state.sending += 1;
        Some(batch)
    }

    fn begin_send(self: &Arc<Self>, batch: Batch) {
        let this = self.clone();
        drop(self.rt.spawn("osc_flush", operation::within(batch.job, this.send(batch))));
    }

    async fn send(self: Arc<Self>, batch: Batch) {
        let Batch { file, job: _, object, runs, parts, bulk, cost, mtime, evictions } = batch;
        let answer = tokio::select! {
            biased;
            () = self.evicted(evictions) => Err(Errno::EIO.into()),
            answer = self.write_there(file, object, parts, bulk, cost, mtime) => answer,
        };
        if let Ok(changed) = answer {
            self.changed(file, changed);
        }
        let mut state = self.state.lock();
        state.sending -= 1;
        if state.evictions == evictions {
            state.flying -= cost.covered;
            if let Some(known) = state.objects.get_mut(&object) {
                runs.iter().for_each(|offset| known.extents.done(*offset));
            }
            // ESTALE is no error: another client deleted the object after a restarted OST had lost
            // the lock. A failed write uses up its grant: the OST counts it as written.
            if let Err(failure) = answer
                && failure.errno() != Some(Errno::ESTALE)
            {
                // The object was sealed after a restarted OST had lost the lock, and the data
                // cannot follow to its new place.
                let errno = failure.errno().unwrap_or(Errno::EIO);
                self.failed.store(true, Relaxed);
                state.failed.put(file, errno);
                let ost = self.osc.index();
                tracing::error!("{file}: OST {ost}: {failure}: discarded dirty data; fsync returns an error");
            }
            state.tidy(object);
            drop(state);
            self.all.remove(cost.covered);
        }
        self.changed.notify_waiters();
    }

    async fn write(&self, file: Fid, parts: &[Part], bulk: &Bulk, cost: Cost, mtime: Time) -> Result<Changed> {
        loop {
            // The slots are never closed. A refused write takes another one after its pause: the
            // client that holds its lock may wait for a flush that waits for a slot.
            let _slot = self.sends.acquire().await?;
            let grant = Grant { used: cost.used, want: self.want_with_flush(cost.covered) };
            let (parts, mtime) = (parts.to_vec(), Some(mtime));
            let request = Request::Write { file, parts, sync: false, mtime, grant, held: true };
            let response = self.osc.request(request).bulk(bulk.clone()).urgent().send().await?;
            match response.body {
                Reply::Done { epoch, granted, tight, .. } => {
                    self.granted(granted);
                    self.tight.note(file, tight);
                    return Ok(Changed { epoch, transno: response.transno });
                }
                // The lock was lost in a restart, and another client holds a conflicting one.
                Reply::LockFirst => self.rt.sleep(BUSY_PAUSE).await,
                _ => return Err(Errno::EPROTO.into()),
            }
        }
    }

    /// Resolves at the next eviction by the OST after `before` evictions.
    async fn evicted(&self, before: u64) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.state.lock().evictions != before {
                return;
            }
            changed.await;
        }
    }

    /// Starts the task that flushes dirty data older than AGE / 2. The task ends when nothing is
    /// dirty.
    fn begin_aging(self: &Arc<Self>) {
        let (weak, rt) = (Arc::downgrade(self), self.rt.clone());
        drop(self.rt.spawn("osc_age", async move {
            loop {
                rt.sleep(AGE / 2).await;
                let Some(this) = weak.upgrade() else { return };
                let now = rt.now();
                let old: Vec<Fid> = {
                    let mut state = this.state.lock();
                    if state.objects.is_empty() {
                        state.aging = false;
                        return;
                    }
                    let old = |o: &Object| o.extents.dirty_bytes() > 0 && now.since(o.since) >= AGE / 2;
                    state.objects.iter().filter(|(_, o)| old(o)).map(|(object, _)| *object).collect()
                };
                old.into_iter().for_each(|object| this.begin_flush(object));
            }
        }));
    }
}

impl State {
    fn tidy(&mut self, object: Fid) {
        if self.objects.get(&object).is_some_and(|o| o.extents.is_empty()) {
            self.objects.remove(&object);
        }
    }
}
