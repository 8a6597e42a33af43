//! Open files of objects, the times of their last change, and which names are durable.
//!
//! Invariants:
//! * an object has at most one [`Object`] in the cache. Every open, creation and removal by name
//!   holds the lock of the object's shard. So an open after [`Files::remove`] returned never yields
//!   the removed [`Object`], and a cached file is never a removed one;
//! * the cache holds at most `open_files_max` files. Outside the cache, at most as many more are in
//!   use as requests run at once;
//! * an object's time of the last change never goes back. The [`Object`] holds the time, and writes
//!   it to the file before it leaves the cache. Until the [`Object`] knows a time, the file's mtime
//!   counts. The kernel sets that mtime when bytes reach the file, which is later than the write if
//!   they come from a client's cache. If the process is killed, the kernel's time remains;
//! * opening waits under the shard's lock. This delays one in [`SHARDS`] objects, and never those
//!   that are open in other shards.

use std::{
    hash::BuildHasher,
    io,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicI64,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxBuildHasher;
use sheen_lnet::Source;
use sheen_objects::{
    DentryDurability, StoredSums, Sums,
    name::{self, Dir},
    sums::{Budget, Claim},
};
use sheen_rt::{Disk, File, Metadata, OpenOptions, Rt};
use sheen_wire::{Errno, Fid, Time};
use tracing::debug;

use super::{
    accounting::Accounting,
    at_rest::AtRest,
    damage::DamageList,
    durable::DurableObjects,
    names,
    versions::{ObjectVersion, Versions},
};

mod charging;
mod lost;
mod not_lost;
mod open_charge;

use open_charge::OpenCharge;

/// Shards of the cache: several times the threads of a server, so that two threads seldom contend.
const SHARDS: usize = 64;
/// Directories whose durability is remembered: 128 sequences. A forgotten directory is synced once
/// more than needed.
const DIRS_MAX: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4096 - 1);
/// Number of destroyed objects that are remembered: some 4 MiB.
const DESTROYED_MAX: NonZeroUsize = NonZeroUsize::MIN.saturating_add(65_536 - 1);
/// Number of changed objects that are remembered for the scrub: some 4 MiB. Others wait for the
/// next pass over all objects.
const UNSCRUBBED_MAX: NonZeroUsize = NonZeroUsize::MIN.saturating_add(65_536 - 1);
/// How often an open is repeated after closing cached files, when the process or the host has no
/// descriptors left.
const SHED_TRIES: u32 = 4;

/// A directory of objects.
pub struct DirState {
    dir: Dir,
    durability: DentryDurability,
}

/// An object's open file.
pub struct Object {
    /// The file, open for reading and writing.
    pub file: File,
    fid: Fid,
    dir: Arc<DirState>,
    /// Number of the object's creation among those in the directory ([`DentryDurability`]).
    created: u64,
    /// Time of the last change by this process, in ns since 1970; [`NEVER`] if there was none.
    changed: AtomicI64,
    /// The value of `changed` that was last written to the file. Locked while the file is being
    /// written, so that an older time does not follow a newer one.
    saved: Mutex<i64>,
    /// Stored checksums of the content. Locked after `sums`.
    pub at_rest: AtRest,
    /// Known checksums of the content. A request that holds this [`Object`] after it left the cache
    /// does not update the sums of its successor: see [`Sums`].
    sums: Mutex<Sums>,
    /// True once the object has left the cache: a later change must write the time by itself.
    evicted: AtomicBool,
    /// Data version, replaced at each change: see [`Files::version`]. Shared with the object that
    /// follows in the cache while this one is in use.
    version: Arc<ObjectVersion>,
    /// Whether it has changed since it was last scrubbed.
    unscrubbed: AtomicBool,
    /// The charge for it.
    charge: OpenCharge,
}

/// The purpose of an open. Changes are made on behalf of a file.
#[derive(Clone, Copy)]
enum Purpose {
    Read,
    Change(Fid),
    /// A change that creates the object if it does not exist.
    Create(Fid),
}

const NEVER: i64 = i64::MIN;
/// The object was opened for a change while its file was empty: its first bytes may be older than
/// the file's mtime.
const UNDATED: i64 = NEVER + 1;

impl Object {
    /// The object's name.
    pub fn fid(&self) -> Fid {
        self.fid
    }

    /// Checksums of its content.
    pub fn sums(&self) -> MutexGuard<'_, Sums> {
        self.sums.lock()
    }

    /// Begins a change of `[offset, offset + len)`: announces it to the checksums in memory, and
    /// removes the stored ones and the recorded data version. [`Files::changed`] ends the change,
    /// also if it fails.
    ///
    /// # Errors
    /// The recorded data version cannot be removed, so the object must not change.
    pub fn begin_change(&self, offset: u64, len: u64) -> io::Result<Claim> {
        self.version.begin_change(self.fid, &self.file)?;
        let mut sums = self.sums();
        let claim = sums.begin(offset, len, true);
        self.at_rest.forget(offset, len);
        Ok(claim)
    }

    /// Stores checksums of bytes that were read since `claim` began. Returns whether it did: not if
    /// another request has changed the object meanwhile.
    ///
    /// # Errors
    /// As [`AtRest::store`].
    pub fn store_sums(&self, claim: &Claim, stored: StoredSums) -> io::Result<bool> {
        let sums = self.sums();
        let undisturbed = sums.is_undisturbed(claim);
        if undisturbed {
            self.at_rest.store(stored)?;
        }
        Ok(undisturbed)
    }

    /// Records the file's present time before bytes of an earlier time are written, because the
    /// kernel is going to change the file's mtime.
    pub fn note_time(&self) -> io::Result<()> {
        if self.changed.load(SeqCst) == NEVER {
            let ns = nanos(self.file.metadata()?.mtime);
            // A concurrent change may have set a time, which is later.
            let _ = self.changed.compare_exchange(NEVER, ns, SeqCst, SeqCst);
        }
        Ok(())
    }

    /// Writes the time of the last change to the file again, after a write that is no change.
    /// Before that write, [`Object::note_time`] has recorded the time.
    pub fn restore_time(&self) {
        *self.saved.lock() = NEVER; // the kernel has just dated the file otherwise
        self.save_time();
    }

    /// Writes the time of the last change to the file, unless the file has it already. Without this
    /// the file shows the kernel's own time, some milliseconds earlier, so an error does not fail
    /// the request.
    pub fn save_time(&self) {
        let mut saved = self.saved.lock();
        let changed = self.changed.load(SeqCst);
        if changed > *saved && changed != UNDATED {
            set_time(&self.file, changed);
            *saved = changed;
        }
    }
}

impl Source for Object {
    fn file(&self) -> &File {
        &self.file
    }

    fn stale(&self) {
        self.sums().clear();
    }
}

fn set_time(file: &File, ns: i64) {
    if let Err(e) = file.set_mtime(time(ns)) {
        debug!("cannot set an object's mtime: {e}; it shows the kernel's time of the last change");
    }
}

fn time(ns: i64) -> Time {
    Time { sec: ns.div_euclid(1_000_000_000), nsec: ns.rem_euclid(1_000_000_000) as u32 }
}

/// Converts to nanoseconds since 1970. Saturates in the years 1677 and 2262.
fn nanos(time: Time) -> i64 {
    time.sec.saturating_mul(1_000_000_000).saturating_add(i64::from(time.nsec))
}

type Shard = LruCache<Fid, Arc<Object>, FxBuildHasher>;

/// The objects of an OST by FID.
pub struct Files {
    disk: Disk,
    root: PathBuf,
    durable: DurableObjects,
    damaged: Arc<DamageList>,
    accounting: Accounting,
    shards: Box<[Mutex<Shard>]>,
    dirs: Mutex<LruCache<Dir, Arc<DirState>, FxBuildHasher>>,
    sums: Budget,
    versions: Versions,
    /// Destroyed objects, whose names are never used again. Accessed under the lock of the object's
    /// shard.
    destroyed: Mutex<LruCache<Fid, (), FxBuildHasher>>,
    /// Changed objects that left the cache before they were scrubbed.
    unscrubbed: Mutex<LruCache<Fid, (), FxBuildHasher>>,
}

impl Files {
    /// Returns the files of the objects below `root`. At most about `open_files_max` files stay
    /// open, and at least one per shard. `damaged`: the list for lost objects.
    pub fn new(
        rt: &Rt,
        root: &Path,
        open_files_max: usize,
        durable: DurableObjects,
        versions: Versions,
        damaged: Arc<DamageList>,
    ) -> Files {
        let each = NonZeroUsize::new(open_files_max / SHARDS).unwrap_or(NonZeroUsize::MIN);
        Files {
            disk: rt.disk(),
            root: root.to_owned(),
            durable,
            damaged,
            accounting: Accounting::new(rt, root),
            shards: (0..SHARDS).map(|_| Mutex::new(LruCache::with_hasher(each, FxBuildHasher))).collect(),
            dirs: Mutex::new(LruCache::with_hasher(DIRS_MAX, FxBuildHasher)),
            sums: Budget::default(),
            versions,
            destroyed: Mutex::new(LruCache::with_hasher(DESTROYED_MAX, FxBuildHasher)),
            unscrubbed: Mutex::new(LruCache::with_hasher(UNSCRUBBED_MAX, FxBuildHasher)),
        }
    }

    /// Returns the index of durable objects.
    pub fn durable(&self) -> &DurableObjects {
        &self.durable
    }

    /// Returns the objects that have changed since the last call.
    pub fn take_changed(&self) -> Vec<Fid> {
        let mut changed: Vec<Fid> = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            changed.extend(shard.iter().filter(|(_, o)| o.unscrubbed.swap(false, Relaxed)).map(|(fid, _)| *fid));
        }
        let mut others = self.unscrubbed.lock();
        changed.extend(others.iter().map(|(fid, ())| *fid));
        others.clear();
        changed
    }

    /// Lets the next [`Files::take_changed`] return an object again.
    pub fn put_back_changed(&self, object: Fid) {
        self.unscrubbed.lock().put(object, ());
    }

    /// Returns the object's data version; 0 if the object does not exist. Each change of bytes or
    /// size replaces the version. It may also be replaced without a change, for example after a
    /// failure of the host. While a change is in progress, each call returns another version.
    pub fn version(&self, object: Fid) -> io::Result<u64> {
        let Some(open) = self.existing(object)? else { return Ok(0) };
        Ok(self.versions.report(object, &open.version, &open.file))
    }

    /// Saves time and reported version of an object that was just removed from the cache. The
    /// caller still holds the lock of its shard.
    fn evict(&self, object: &Arc<Object>) {
        object.evicted.store(true, SeqCst);
        object.save_time();
        self.close_charge(object);
        if object.unscrubbed.load(Relaxed) {
            self.unscrubbed.lock().put(object.fid, ());
        }
        self.versions.closed(object.fid, &object.version, Arc::strong_count(object) > 1);
    }

    /// Number of files open at the moment.
    pub fn open_count(&self) -> usize {
        self.shards.iter().map(|s| s.lock().len()).sum()
    }

    /// Path of an object's file.
    pub fn path(&self, object: Fid) -> PathBuf {
        self.root.join(name::path(object))
    }

    /// Returns the object's metadata without opening its file; `None` if the object does not exist.
    pub fn metadata(&self, object: Fid) -> io::Result<Option<Metadata>> {
        let mut shard = self.shard(object);
        match shard.get(&object).cloned() {
            Some(open) => {
                drop(shard);
                let found = open.file.metadata()?;
                let mtime = match open.changed.load(SeqCst) {
                    NEVER => found.mtime,
                    ns => time(ns),
                };
                Ok(Some(Metadata { mtime, ..found }))
            }
            // With the shard locked: after an open, the first write sets the mtime by the kernel's
            // clock, and that time must not be returned.
            None => match self.disk.metadata(self.path(object)) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => self.check_never_durable(object).map(|()| None),
                found => found.map(Some),
            },
        }
    }

    /// Records a change of the content at the time `now`, after [`Object::begin_change`].
    /// `written`: it wrote bytes up to this offset, and did nothing else.
    ///
    /// The file's own mtime is not enough: the kernel's clock for file times lags up to a tick (10
    /// ms) behind the clock that the MDT and this OST read. So a write would seem older than an
    /// earlier create. [`Object::save_time`] writes the time to the file. If the process is killed
    /// before that, the time is lost, and with it some milliseconds.
    pub fn changed(&self, object: &Object, now: Time, written: Option<u64>) {
        let now = nanos(now);
        self.versions.changed(&object.version);
        object.unscrubbed.store(true, Relaxed);
        object.changed.fetch_max(now, SeqCst);
        // Either this sees that the object was evicted, or the eviction saw the new time.
        if object.evicted.load(SeqCst) {
            self.changed_late(object, now);
        }
        if !written.is_some_and(|end| object.charge.is_dense_to(end)) {
            self.recount(object);
        }
    }

    /// Records a change by bytes that a client wrote at the earlier time `at`, after
    /// [`Object::note_time`].
    pub fn changed_before(&self, object: &Object, at: Time, written: Option<u64>) {
        *object.saved.lock() = NEVER; // the kernel has just dated the file otherwise
        self.changed(object, at, written);
    }

    /// Records a change by a request that got the object before the object left the cache.
    #[cold]
    fn changed_late(&self, object: &Object, now: i64) {
        let shard = self.shard(object.fid);
        object.at_rest.forget_all();
        let open = shard.peek(&object.fid);
        match open {
            Some(open) => {
                open.at_rest.forget_all();
                match open.note_time() {
                    Ok(()) => {
                        open.changed.fetch_max(now, SeqCst);
                    }
                    // The file's mtime may be later than `now`, so it continues to count.
                    Err(e) => {
                        debug!("cannot read an object's mtime: {e}; it shows the kernel's time of the last change")
                    }
                }
            }
            None if object.file.metadata().is_ok_and(|m| m.mtime < time(now)) => set_time(&object.file, now),
            None => {}
        }
    }

    /// Writes the times of all cached objects to their files.
    pub fn save_times(&self) {
        for shard in &self.shards {
            shard.lock().iter().for_each(|(_, object)| object.save_time());
        }
    }

    /// Returns the object, or `None` if it does not exist. EIO: it is lost.
    pub fn existing(&self, object: Fid) -> io::Result<Option<Arc<Object>>> {
        self.get(object, Purpose::Read)
    }

    /// As [`Files::existing`], for a change on behalf of `file`.
    pub fn existing_to_change(&self, object: Fid, file: Fid) -> io::Result<Option<Arc<Object>>> {
        self.get(object, Purpose::Change(file))
    }

    /// Returns the object for a change on behalf of `file`, created if it does not exist. ESTALE:
    /// it was destroyed. EIO: it is lost.
    pub fn create(&self, object: Fid, file: Fid) -> io::Result<Arc<Object>> {
        self.get(object, Purpose::Create(file))?.ok_or_else(|| io::Error::from_raw_os_error(Errno::EIO.0))
    }

    fn get(&self, object: Fid, purpose: Purpose) -> io::Result<Option<Arc<Object>>> {
        let mut tries = 0;
        loop {
            match self.open(object, purpose) {
                Err(e) if out_of_files(&e) && tries < SHED_TRIES => {
                    tries += 1;
                    self.shed();
                }
                result => return result,
            }
        }
    }

    fn open(&self, object: Fid, purpose: Purpose) -> io::Result<Option<Arc<Object>>> {
        let create = matches!(purpose, Purpose::Create(_));
        let mut shard = self.shard(object);
        if let Some(open) = shard.get(&object) {
            if let Purpose::Change(file) | Purpose::Create(file) = purpose {
                self.begin_charge(open, file, None);
            }
            return Ok(Some(open.clone()));
        }
        if create && self.destroyed.lock().contains(&object) {
            return Err(io::Error::from_raw_os_error(Errno::ESTALE.0));
        }
        let Some(file) = self.open_file(object, create)? else { return Ok(None) };
        let dir = self.dir(Dir::of(object));
        // It is not known whether the open created the file. Counting it as created now costs at
        // most one sync of the directory.
        let created = if create { dir.durability.created() } else { dir.durability.latest() };
        if create {
            self.durable.exists(object);
        }
        // An empty file may have been created just now, for bytes of an earlier time.
        let found = if create { Some(file.metadata()?) } else { None };
        let undated = found.is_some_and(|found| found.len == 0);
        let changed = AtomicI64::new(if undated { UNDATED } else { NEVER });
        let (saved, evicted, at_rest) =
            (Mutex::new(NEVER), AtomicBool::new(false), AtRest::opened(object, &file, undated));
        let sums = Mutex::new(Sums::new(&self.sums));
        let version = self.versions.opened(object, undated);
        let (fid, unscrubbed, charge) = (object, AtomicBool::new(false), OpenCharge::default());
        let object =
            Object { file, fid, dir, created, changed, saved, at_rest, sums, evicted, version, unscrubbed, charge };
        let open = Arc::new(object);
        if let Purpose::Change(file) | Purpose::Create(file) = purpose {
            self.begin_charge(&open, file, found);
        }
        let evicted = shard.push(fid, open.clone());
        if let Some((_, evicted)) = &evicted {
            self.evict(evicted);
        }
        drop(shard);
        drop(evicted); // closes outside the lock
        Ok(Some(open))
    }

    fn open_file(&self, object: Fid, create: bool) -> io::Result<Option<File>> {
        let path = self.path(object);
        let creates = create && !self.durable.has(object);
        let options = if creates { OpenOptions::CREATE } else { OpenOptions::READ_WRITE };
        match self.disk.open(&path, options) {
            Ok(file) => Ok(Some(file)),
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            Err(_) if !creates => self.check_never_durable(object).map(|()| None),
            Err(_) => {
                self.make_dir(Dir::of(object))?;
                self.disk.open(&path, options).map(Some)
            }
        }
    }

    /// Makes a directory of objects below `O`, which exists since the format. EIO: `O` was removed,
    /// and the identity with it. If it were made again, a later OST in this directory would take
    /// these objects for its own.
    fn make_dir(&self, dir: Dir) -> io::Result<()> {
        match self.disk.metadata(self.root.join(name::ROOT)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(io::Error::from_raw_os_error(Errno::EIO.0)),
            Err(e) => Err(e),
            Ok(_) => self.disk.create_dir_all(self.root.join(dir.path())),
        }
    }

    /// As [`Files::remove`], and remembers the object as destroyed: its name is not used again. A
    /// client may have dirty data for it through a restart. Such data does not create the object
    /// again.
    pub fn destroy(&self, object: Fid) -> io::Result<()> {
        let shard = self.shard(object);
        self.destroyed.lock().put(object, ());
        self.remove_from(shard, object)
    }

    /// Removes the object's file. Requests in progress use the unlinked file until they end.
    pub fn remove(&self, object: Fid) -> io::Result<()> {
        self.remove_from(self.shard(object), object)
    }

    fn remove_from(&self, mut shard: MutexGuard<'_, Shard>, object: Fid) -> io::Result<()> {
        self.durable.remove(object)?;
        let open = shard.pop(&object);
        self.end_charge(object, open.as_deref());
        let removed = self.disk.remove_file(self.path(object));
        let is_removed = removed.is_ok();
        let is_missing = removed.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
        self.end_owner(object, is_removed || is_missing);
        match &open {
            Some(open) if !is_removed && !is_missing => self.versions.closed(object, &open.version, true),
            _ => self.versions.forget(object),
        }
        drop(shard);
        drop(open);
        match removed {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(e),
            Ok(()) => {
                self.dir(Dir::of(object)).durability.created(); // the removal is a change of the directory, too
                Ok(())
            }
        }
    }

    /// Gives the object's file a second, unused name; does nothing if the file already has it.
    /// ESTALE: the new name was destroyed meanwhile.
    pub fn link(&self, object: Fid, new: Fid) -> io::Result<()> {
        self.begin_move(object);
        let linked = self.link_to(object, new);
        if linked.is_err() {
            self.count(object, false);
        }
        linked
    }

    fn link_to(&self, object: Fid, new: Fid) -> io::Result<()> {
        let _shard = self.shard(new);
        if self.destroyed.lock().contains(&new) {
            return Err(io::Error::from_raw_os_error(Errno::ESTALE.0));
        }
        let (from, to) = (self.path(object), self.path(new));
        let linked = match self.disk.hard_link(&from, &to) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.make_dir(Dir::of(new))?;
                self.disk.hard_link(&from, &to)
            }
            linked => linked,
        };
        match linked {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
            _ => {
                self.durable.exists(new);
                self.dir(Dir::of(new)).durability.created();
                self.end_move(object, new);
                Ok(())
            }
        }
    }

    /// Makes all changes of `dir` so far durable.
    pub async fn settle(&self, dir: Dir) -> io::Result<()> {
        let state = self.dir(dir);
        self.settle_to(&state, state.durability.latest()).await
    }

    /// Makes the object's name durable.
    pub async fn settle_object(&self, object: &Object) -> io::Result<()> {
        self.settle_to(&object.dir, object.created).await
    }

    async fn settle_to(&self, state: &DirState, number: u64) -> io::Result<()> {
        if state.durability.is_durable(number) {
            return Ok(());
        }
        let fresh = state.durability.is_fresh();
        let mark = state.durability.begin_sync();
        match self.disk.sync_dir(self.root.join(state.dir.path())).await {
            // There is no such directory, so nothing in it. It stays fresh: its own entry has to be
            // synced once it is created.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            result => result?,
        }
        if fresh {
            self.disk.sync_dir(self.root.join(state.dir.seq_path())).await?;
            self.disk.sync_dir(self.root.join(name::ROOT)).await?;
        }
        state.durability.synced(mark);
        Ok(())
    }

    /// Returns the objects in `dir`; none if it does not exist.
    pub fn list(&self, dir: Dir) -> io::Result<Vec<Fid>> {
        names::list(&self.disk, &self.root, dir)
    }

    /// Returns the sequences that may have objects.
    pub fn sequences(&self) -> io::Result<Vec<u64>> {
        names::sequences(&self.disk, &self.root)
    }

    fn dir(&self, dir: Dir) -> Arc<DirState> {
        self.dirs.lock().get_or_insert(dir, || Arc::new(DirState { dir, durability: DentryDurability::new() })).clone()
    }

    fn shard(&self, object: Fid) -> MutexGuard<'_, Shard> {
        // The high bits of this hash are well distributed.
        let hash = FxBuildHasher.hash_one(object);
        self.shards[(hash >> (u64::BITS - SHARDS.ilog2())) as usize].lock()
    }

    /// Closes a quarter of the cached files, at least one of each shard.
    fn shed(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let some = shard.len().div_ceil(4);
            let closing: Vec<_> = (0..some).filter_map(|_| shard.pop_lru()).collect();
            closing.iter().for_each(|(_, object)| self.evict(object));
            drop(shard);
            drop(closing);
        }
    }
}

fn out_of_files(e: &io::Error) -> bool {
    let errno = Errno(e.raw_os_error().unwrap_or(0));
    matches!(errno, Errno::EMFILE | Errno::ENFILE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::epoch::Epoch;
    use sheen_rt::sim::{Sim, SimConfig};

    /// A formatted directory without objects.
    fn empty(rt: &Rt) -> Files {
        rt.disk().create_dir_all("/ost/O").unwrap();
        let durable = DurableObjects::open(rt, Path::new("/ost")).unwrap();
        let versions = Versions::new(rt, &Epoch::open(rt, Path::new("/ost")).unwrap());
        Files::new(rt, Path::new("/ost"), SHARDS, durable, versions, Arc::default())
    }

    /// Changes an object at this time.
    fn change(files: &Files, object: &Object, at: Time) {
        let claim = object.begin_change(0, 1).unwrap();
        files.changed(object, at, None);
        object.sums().end(claim, []);
    }

    #[test]
    fn create_fails_after_the_ost_directory_was_removed() {
        let rt = Sim::new(1, SimConfig::default()).rt(1);
        let files = empty(&rt);
        drop(files.create(Fid::new(0x2_8000_0401, 1), Fid::ZERO).unwrap());
        rt.disk().remove_dir_all("/ost").unwrap();
        let refused = files.create(Fid::new(0x2_8000_0401, 2), Fid::ZERO).err().unwrap();
        assert_eq!(Errno::from(refused), Errno::EIO);
        assert!(rt.disk().metadata("/ost").is_err());
    }

    #[test]
    fn change_through_an_evicted_object_updates_its_mtime() {
        let rt = Sim::new(1, SimConfig::default()).rt(1);
        let files = empty(&rt);
        let fid = |oid| Fid::new(0x2_8000_0401, oid);
        let shown = || files.metadata(fid(1)).unwrap().unwrap().mtime;
        let fill = || (2..2000).for_each(|oid| drop(files.create(fid(oid), Fid::ZERO).unwrap()));
        let time = |sec: i64| Time { sec: 1_900_000_000 + sec, nsec: 1 };

        let held = files.create(fid(1), Fid::ZERO).unwrap();
        fill();
        change(&files, &held, time(1));
        assert_eq!(shown(), time(1), "closed");
        let open = files.existing(fid(1)).unwrap().unwrap();
        change(&files, &held, time(2));
        assert_eq!(shown(), time(2), "open again");
        change(&files, &open, time(4));
        change(&files, &held, time(3));
        assert_eq!(shown(), time(4), "an older change does not set the time back");
        fill();
        change(&files, &held, time(3));
        assert_eq!(shown(), time(4));
    }

    #[test]
    fn change_through_an_evicted_object_replaces_no_unreadable_mtime() {
        let sim = Sim::new(1, SimConfig::default());
        let files = empty(&sim.rt(1));
        let fid = |oid| Fid::new(0x2_8000_0401, oid);
        let held = files.create(fid(1), Fid::ZERO).unwrap();
        held.file.write_all_at(0, b"x").unwrap();
        (2..2000).for_each(|oid| drop(files.create(fid(oid), Fid::ZERO).unwrap()));
        let open = files.existing(fid(1)).unwrap().unwrap();
        let version = open.version.number();
        let claim = held.begin_change(0, 1).unwrap();
        sim.crash_host(1);
        assert!(open.file.metadata().is_err());
        files.changed(&held, Time { sec: 1, nsec: 0 }, None);
        held.sums().end(claim, []);
        assert_eq!(open.changed.load(SeqCst), NEVER, "the file's own mtime counts");
        assert_ne!(open.version.number(), version);
    }

    #[test]
    fn object_created_for_older_bytes_shows_no_newer_mtime() {
        let rt = Sim::new(1, SimConfig::default()).rt(1);
        let files = empty(&rt);
        let fid = Fid::new(0x2_8000_0401, 1);
        let (written, shown) = (rt.wall(), || files.metadata(fid).unwrap().unwrap().mtime);
        let object = files.create(fid, Fid::ZERO).unwrap();
        assert!(shown() < written, "before its first bytes");
        object.note_time().unwrap();
        let claim = object.begin_change(0, 1).unwrap();
        object.file.write_all_at(0, b"x").unwrap();
        assert!(shown() < written, "while they are written");
        files.changed_before(&object, written, None);
        object.sums().end(claim, []);
        assert_eq!(shown(), written);
    }

    #[test]
    fn reported_version_survives_closing_but_no_change() {
        let rt = Sim::new(1, SimConfig::default()).rt(1);
        let files = empty(&rt);
        let fid = |oid| Fid::new(0x2_8000_0401, oid);
        let fill = || (2..2000).for_each(|oid| drop(files.create(fid(oid), Fid::ZERO).unwrap()));
        let version = || files.version(fid(1)).unwrap();
        assert_eq!(version(), 0);
        let held = files.create(fid(1), Fid::ZERO).unwrap();
        let first = version();
        fill();
        assert_eq!(version(), first, "closed and opened again");
        change(&files, &held, Time::default());
        assert_ne!(version(), first, "changed through an object that had left the cache");
        let second = version();
        fill();
        change(&files, &held, Time::default());
        assert_ne!(version(), second, "changed while it was closed");
        let third = version();
        let claim = held.begin_change(0, 1).unwrap();
        fill();
        let during = [version(), version()];
        assert!(during[0] != during[1] && !during.contains(&third), "a change is in progress: {during:?}");
        files.changed(&held, Time::default(), None);
        held.sums().end(claim, []);
        assert_eq!(version(), version());
        assert!(version() != third && !during.contains(&version()), "it has ended");
        let third = version();
        drop(held);
        fill();
        assert_eq!(version(), third, "closed while no request used it");
        files.remove(fid(1)).unwrap();
        drop(files.create(fid(1), Fid::ZERO).unwrap());
        assert_ne!(version(), third, "another object of the same name");
    }
}
