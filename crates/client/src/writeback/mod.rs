//! Write-back: what programs wrote and an OST does not have yet.
//!
//! A small write is copied into the dirty extents of its objects ([`extents`]) and answered. It
//! travels later, with its neighbours: when a request is full, when somebody else wants the lock
//! that it lies under, at fsync, at close, after [`AGE`], and when there is too much of it. One
//! [`Writeback`] stands beside each OST's lock table.
//!
//! Invariants:
//! * bytes are put in while a PW lock on them is in use, and are written before the lock is given
//!   up: so nobody else reads around them;
//! * bytes are put in only if the OST has promised the space (a grant), so they never meet a full
//!   OST;
//! * of two writes to the same bytes, the later one is sent when the earlier one is answered;
//! * bytes that could not be written are remembered as an error of their file, told by the next
//!   fsync;
//! * bounded by `max_dirty_mb`: who would exceed it waits.
//!
//! When the OST is restarted, what is here is sent to its next life. When the OST has given this
//! client up, somebody else may have changed the file since: what is here is thrown away, and fsync
//! tells.

pub mod extents;
mod follow;
pub mod pattern;

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
use sheen_rpc::{BoxFuture, Import};
use sheen_rt::{Instant, Rt};
use sheen_wire::{
    Bulk, Errno, Fid, Ost, Result, Time,
    ost::{Grant, ObjectAttr, PARTS_MAX, Part, Reply, Request},
};
use tokio::sync::{Notify, Semaphore};

use crate::{lov::Unsynced, rpc_stats::PagesPerRpc};
use extents::{Extents, Run};
use pattern::{Pattern, Stride};

/// Dirty bytes older than this are on their way: what a killed client loses at most, beside what it
/// had synced.
pub const AGE: Duration = Duration::from_secs(1);
/// Lustre's `max_dirty_mb`: dirty bytes, and those on their way, of one OST.
pub const MAX_DIRTY_MB_DEFAULT: u64 = 64;
/// Largest `max_dirty_mb`.
pub const MAX_DIRTY_MB_LIMIT: u64 = 2048;
/// Space is asked for in such portions.
const GRANT_BYTES: u64 = 8 << 20;
/// Requests with dirty bytes on their way to one OST at a time.
const SENDS_MAX: usize = 8;
/// Runs of one object in one request.
const RUNS_MAX: usize = PARTS_MAX / 2;
/// Files of which an error is remembered.
const FAILED_MAX: NonZeroUsize = NonZeroUsize::new(65_536).unwrap();
/// Objects noted as contended.
const CONTENDED_MAX: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// Objects of which it is known where they were written last.
const PATTERNS_MAX: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// How long a contended object is written without asking for locks.
const CONTENDED_FOR: Duration = Duration::from_secs(1);
/// Pause before a flush is tried again that met too many waiting writes.
const BUSY_PAUSE: Duration = Duration::from_millis(20);
/// All of an object.
const WHOLE: (u64, u64) = (0, u64::MAX);

/// The dirty bytes of the objects on one OST.
pub struct Writeback {
    rt: Rt,
    index: u32,
    import: Arc<Import<Ost>>,
    unsynced: Arc<Unsynced>,
    pages: Arc<PagesPerRpc>,
    /// Dirty bytes of all OSTs of the mount, also those on their way: to be asked first.
    total: Arc<AtomicU64>,
    max_dirty: AtomicU64,
    /// Something could not be written.
    failed: AtomicBool,
    state: Mutex<State>,
    /// Something was written, or thrown away.
    changed: Notify,
    sends: Semaphore,
}

struct State {
    objects: BTreeMap<Fid, Object>,
    dirty: u64,
    flying: u64,
    /// What the OST has promised and is not used.
    grant: u64,
    /// Requests under way, and how often the OST has given this client up.
    sending: u32,
    evictions: u64,
    aging: bool,
    failed: LruCache<Fid, Errno, FxBuildHasher>,
    contended: LruCache<Fid, Instant, FxBuildHasher>,
    /// Where objects were written last.
    patterns: LruCache<Fid, Pattern, FxBuildHasher>,
}

struct Object {
    file: Fid,
    extents: Extents,
    /// Since when there are dirty bytes that are not on their way.
    since: Instant,
}

/// What became of bytes that were to be put in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Put {
    /// They are.
    Done,
    /// The OST has not promised enough space.
    NoGrant,
    /// There are too many: [`Writeback::room`].
    Full,
}

/// What one request carries.
struct Batch {
    file: Fid,
    object: Fid,
    /// Where the runs begin: their names while they are on their way.
    runs: Vec<u64>,
    parts: Vec<Part>,
    bulk: Bulk,
    covered: u64,
    mtime: Time,
    /// How often the OST had given this client up when it was taken.
    evictions: u64,
}

impl fmt::Debug for Writeback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        write!(f, "Writeback({} objects, {} dirty, {} flying)", state.objects.len(), state.dirty, state.flying)
    }
}

impl Writeback {
    /// Nothing is dirty. `total`: shared by the OSTs of a mount.
    pub fn new(
        rt: &Rt,
        index: u32,
        import: &Arc<Import<Ost>>,
        unsynced: &Arc<Unsynced>,
        pages: &Arc<PagesPerRpc>,
        total: &Arc<AtomicU64>,
    ) -> Arc<Writeback> {
        Arc::new(Writeback {
            rt: rt.clone(),
            index,
            import: import.clone(),
            unsynced: unsynced.clone(),
            pages: pages.clone(),
            total: total.clone(),
            max_dirty: AtomicU64::new(MAX_DIRTY_MB_DEFAULT << 20),
            failed: AtomicBool::new(false),
            state: Mutex::new(State {
                objects: BTreeMap::new(),
                dirty: 0,
                flying: 0,
                grant: 0,
                sending: 0,
                evictions: 0,
                aging: false,
                failed: LruCache::with_hasher(FAILED_MAX, FxBuildHasher),
                contended: LruCache::with_hasher(CONTENDED_MAX, FxBuildHasher),
                patterns: LruCache::with_hasher(PATTERNS_MAX, FxBuildHasher),
            }),
            changed: Notify::new(),
            sends: Semaphore::new(SENDS_MAX),
        })
    }

    /// Puts bytes of an object in. A PW lock on them is in use.
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
        let new = || Object { file, extents: Extents::default(), since: now };
        let entry = state.objects.entry(object).or_insert_with(new);
        if entry.extents.dirty_bytes() == 0 {
            entry.since = now;
        }
        let covered = entry.extents.write(offset, data, wall);
        let full = entry.extents.next_full(self.max_bytes());
        state.grant = state.grant.saturating_sub(covered);
        state.dirty += covered;
        self.total.fetch_add(covered, Relaxed);
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

    /// Resolves when there is room for more.
    pub async fn room(self: &Arc<Self>) {
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
            self.begin_flush_all();
            changed.await;
        }
    }

    /// Whether so much space is promised. If not, what is kept is sent on its way: the OST may
    /// promise anew what it takes.
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

    /// How much more space is to be promised; 0: there is enough.
    pub fn want(&self) -> u64 {
        let enough = self.max_dirty.load(Relaxed).min(GRANT_BYTES) / 2;
        if self.state.lock().grant >= enough { 0 } else { GRANT_BYTES.min(self.max_dirty.load(Relaxed)) }
    }

    /// The OST promised space.
    pub fn granted(&self, bytes: u64) {
        if bytes > 0 {
            self.state.lock().grant += bytes;
        }
    }

    /// Whether bytes of the range are here, or on their way.
    pub fn holds(&self, object: Fid, range: (u64, u64)) -> bool {
        self.state.lock().objects.get(&object).is_some_and(|o| o.extents.overlaps(range) != (false, false))
    }

    /// Writes what is dirty of the range now; resolves when it, and what was on its way before, is
    /// answered.
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

    /// As [`Writeback::flush`], for who does not wait in place; `None`: there is nothing to do.
    pub fn flush_later(self: &Arc<Self>, object: Fid, range: (u64, u64)) -> Option<BoxFuture<'static, ()>> {
        if !self.holds(object, range) {
            return None;
        }
        // Who wants a part mostly wants the rest as well: it travels together.
        self.begin_flush(object);
        let this = self.clone();
        Some(Box::pin(async move { this.flush(object, range).await }))
    }

    /// Sends all that is dirty of an object on its way.
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

    /// Writes all that is dirty now; resolves when it is answered.
    pub async fn flush_all(self: &Arc<Self>) {
        let objects: Vec<Fid> = self.state.lock().objects.keys().copied().collect();
        objects.iter().for_each(|object| self.begin_flush(*object));
        for object in objects {
            self.flush(object, WHOLE).await;
        }
    }

    /// What is known here of an object beyond what the OST knows; for glimpses.
    pub fn attr(&self, object: Fid) -> Option<ObjectAttr> {
        let state = self.state.lock();
        let extents = &state.objects.get(&object)?.extents;
        let mtime = extents.mtime()?;
        Some(ObjectAttr { size: extents.end(), blocks: extents.dirty_bytes() / 512, mtime: Some(mtime) })
    }

    /// The object is going to be removed: nothing of it needs to be written.
    pub fn discard(&self, object: Fid) {
        let mut state = self.state.lock();
        let freed = state.objects.get_mut(&object).map_or(0, |o| o.extents.discard(WHOLE));
        state.dirty -= freed;
        state.grant += freed;
        state.tidy(object);
        drop(state);
        self.total.fetch_sub(freed, Relaxed);
        self.changed.notify_waiters();
    }

    /// What could not be written of a file, since it was told last.
    pub fn take_error(&self, file: Fid) -> Option<Errno> {
        self.state.lock().failed.pop(&file)
    }

    /// Whether something could not be written since this was asked last, of any file.
    pub fn has_failed(&self) -> bool {
        self.failed.swap(false, Relaxed)
    }

    /// The OST said that an object is contended.
    pub fn note_contended(&self, object: Fid) {
        let until = self.rt.now() + CONTENDED_FOR;
        self.state.lock().contended.put(object, until);
    }

    /// A small write to an object is going to be kept: the pattern that it goes on with.
    pub fn note_write(&self, object: Fid, offset: u64, len: u64) -> Option<Stride> {
        let mut state = self.state.lock();
        state.patterns.get_or_insert_mut(object, Pattern::default).note(offset, len)
    }

    /// Whether it did so a moment ago.
    pub fn is_contended(&self, object: Fid) -> bool {
        let mut state = self.state.lock();
        !state.contended.is_empty() && state.contended.get(&object).is_some_and(|until| self.rt.now() < *until)
    }

    /// The OST has forgotten this client, and its promises. After a restart what is here is sent
    /// anew (before others' writes, if they are slower). Had the OST `evicted` the client, others
    /// may have written since: it is thrown away, and so are requests under way, which are over
    /// when this returns.
    pub async fn lost(self: &Arc<Self>, evicted: bool) {
        self.state.lock().grant = 0;
        if !evicted {
            let this = self.clone();
            drop(self.rt.spawn("osc_flush", async move { this.flush_all().await }));
            return;
        }
        self.throw_away();
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.state.lock().sending == 0 {
                return;
            }
            changed.await;
        }
    }

    fn throw_away(&self) {
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
        self.total.fetch_sub(freed, Relaxed);
        if lost > 0 {
            let ost = self.index;
            tracing::error!("OST {ost} gave this client up: what was written last to {lost} objects is lost");
        }
        self.changed.notify_waiters();
    }

    /// Dirty bytes, those on their way included: `cur_dirty_bytes`.
    pub fn dirty_bytes(&self) -> u64 {
        let state = self.state.lock();
        state.dirty + state.flying
    }

    /// Space promised and not used: `cur_grant_bytes`.
    pub fn grant_bytes(&self) -> u64 {
        self.state.lock().grant
    }

    /// `max_dirty_mb`.
    pub fn max_dirty_mb(&self) -> u64 {
        self.max_dirty.load(Relaxed) >> 20
    }

    /// Sets it.
    pub fn set_max_dirty_mb(&self, mb: u64) {
        self.max_dirty.store(mb.min(MAX_DIRTY_MB_LIMIT) << 20, Relaxed);
        self.changed.notify_waiters();
    }

    fn max_bytes(&self) -> u64 {
        self.import.max_bulk_bytes() as u64
    }

    /// What the next request for an object carries; `whole`: also if it is not full.
    fn take(&self, state: &mut State, object: Fid, range: (u64, u64), whole: bool) -> Option<Batch> {
        let max = self.max_bytes();
        let Object { file, extents, .. } = state.objects.get_mut(&object)?;
        let mut batch = Batch {
            file: *file,
            object,
            runs: Vec::new(),
            parts: Vec::new(),
            bulk: Bulk::new(),
            covered: 0,
            mtime: Time { sec: 0, nsec: 0 },
            evictions: state.evictions,
        };
        while (batch.bulk.len() as u64) < max && batch.runs.len() < RUNS_MAX {
            let room = max - batch.bulk.len() as u64;
            let Some(Run { offset, data, mtime, covered }) = extents.take(range, room, whole) else { break };
            batch.runs.push(offset);
            batch.parts.push(Part { object, offset, len: data.len() as u32 });
            batch.bulk.append(data);
            batch.covered += covered;
            batch.mtime = batch.mtime.max(mtime);
            if !whole {
                break;
            }
        }
        if batch.runs.is_empty() {
            return None;
        }
        state.dirty -= batch.covered;
        state.flying += batch.covered;
        state.sending += 1;
        Some(batch)
    }

    fn begin_send(self: &Arc<Self>, batch: Batch) {
        let this = self.clone();
        drop(self.rt.spawn("osc_flush", async move { this.send(batch).await }));
    }

    async fn send(self: Arc<Self>, batch: Batch) {
        let Batch { file, object, runs, parts, bulk, covered, mtime, evictions } = batch;
        let answer = tokio::select! {
            biased;
            () = self.evicted(evictions) => Err(Errno::EIO),
            answer = self.write_there(object, parts, bulk, covered, mtime) => answer,
        };
        if let Ok(epoch) = answer {
            self.unsynced.changed(file, self.index, epoch);
        }
        let mut state = self.state.lock();
        state.sending -= 1;
        if state.evictions == evictions {
            state.flying -= covered;
            if let Some(known) = state.objects.get_mut(&object) {
                runs.iter().for_each(|offset| known.extents.done(*offset));
            }
            if answer == Err(Errno::ESTALE) {
                // The file is gone: removed elsewhere after the OST had forgotten the lock.
                state.grant += covered;
            } else if let Err(errno) = answer {
                // Closed after an OST had forgotten the lock: where its bytes went they cannot
                // follow.
                let closed = matches!(errno, Errno::MOVED | Errno::MOVED_PARTLY);
                let errno = if closed { Errno::EIO } else { errno };
                state.grant += covered;
                self.failed.store(true, Relaxed);
                state.failed.put(file, errno);
                tracing::error!("{file}: what was written last is lost: OST {}: {errno}", self.index);
            }
            state.tidy(object);
            drop(state);
            self.total.fetch_sub(covered, Relaxed);
        }
        self.changed.notify_waiters();
    }

    async fn write(&self, parts: &[Part], bulk: &Bulk, used: u64, mtime: Time) -> Result<u64> {
        // Nobody closes it.
        let _permit = self.sends.acquire().await.map_err(|_| Errno::ESHUTDOWN)?;
        loop {
            self.pages.write(bulk.len() as u64);
            let grant = Grant { used, want: self.want() };
            let request = Request::Write { parts: parts.to_vec(), sync: false, mtime: Some(mtime), grant };
            match self.import.call_urgent(request, bulk.clone()).await?.body {
                Reply::Done { epoch, granted } => {
                    self.granted(granted);
                    return Ok(epoch);
                }
                // The lock was lost, in a restart, and somebody else has one.
                Reply::LockFirst => self.rt.sleep(BUSY_PAUSE).await,
                _ => return Err(Errno::EPROTO),
            }
        }
    }

    /// Resolves when the OST gives this client up once more.
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

    /// Sees to it that dirty bytes do not get old, as long as there are any.
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
