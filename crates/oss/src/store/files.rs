//! Open files of objects, when they were changed, and which names are durable.
//!
//! Invariants:
//! * an object has at most one [`Object`] in the cache, and whatever is opened, created or removed
//!   by name is so under the lock of the object's shard. Hence who gets an object after
//!   [`Files::remove`] returned gets another one than before, and a cached file is never one that
//!   was removed;
//! * the cache holds at most `open_files_max` files; in use beside them are at most as many as
//!   requests run at once;
//! * an object's time of the last change never goes back: it is kept in the [`Object`], and written
//!   to the file before the `Object` leaves the cache. As long as an `Object` knows none it is the
//!   file's. The kernel dates the file by when bytes reach it, which for those from a client's
//!   cache is not when they were written; a process that is killed leaves it at that;
//! * a data version ([`Files::version`]) is never given twice, to whichever object;
//! * opening waits under the shard's lock, which holds up one in [`SHARDS`] objects, and never
//!   those that are open in other shards.

use std::{
    hash::BuildHasher,
    io,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst},
    },
};

use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxBuildHasher;
use sheen_lnet::Source;
use sheen_objects::{
    Births, Sums,
    name::{self, Dir},
    sums::Budget,
};
use sheen_rt::{Disk, File, Metadata, OpenOptions, Rt};
use sheen_wire::{Errno, Fid, Time};
use tracing::debug;

/// Shards of the cache: several times the threads of a server, so that two seldom meet.
const SHARDS: usize = 64;
/// Directories whose durability is remembered: 128 sequences. One that is forgotten is synced once
/// more than needed.
const DIRS_MAX: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4096 - 1);
/// Versions that are remembered of objects that were closed since somebody asked for them: some 4
/// MiB. Of others it is as if they had been changed.
const TOLD_MAX: NonZeroUsize = NonZeroUsize::MIN.saturating_add(65_536 - 1);
/// Objects that are remembered after they were destroyed: some 4 MiB.
const DESTROYED_MAX: NonZeroUsize = NonZeroUsize::MIN.saturating_add(65_536 - 1);
/// How often an open is tried again after files were closed because the process or the host has no
/// descriptors left.
const SHED_TRIES: u32 = 4;

/// A directory of objects.
pub struct DirState {
    dir: Dir,
    births: Births,
}

/// An object's open file.
pub struct Object {
    /// The file, open for reading and writing.
    pub file: File,
    fid: Fid,
    dir: Arc<DirState>,
    /// Its number among the directory's births.
    born: u64,
    /// When it was last changed by this process, in ns since 1970; [`NEVER`] if it was not.
    changed: AtomicI64,
    /// What of that was written to the file. Held while it is being written, so that an older time
    /// does not follow a newer one.
    saved: Mutex<i64>,
    /// What is known of its content. Not of what others do who held it when it left the cache and
    /// came back: see [`Sums`].
    sums: Mutex<Sums>,
    /// No longer in the cache: who changes it now has to write the time itself.
    evicted: AtomicBool,
    /// Another one after each change: see [`Files::version`].
    version: AtomicU64,
    /// Somebody was told the version.
    told: AtomicBool,
}

const NEVER: i64 = i64::MIN;
/// It was opened to be changed while it was empty: its first bytes may be older than they look.
const UNDATED: i64 = NEVER + 1;

impl Object {
    /// Checksums of its content.
    pub fn sums(&self) -> MutexGuard<'_, Sums> {
        self.sums.lock()
    }

    /// Before bytes are written of which the time is not now: remembers the present time, for the
    /// kernel is going to change that of the file.
    pub fn note_time(&self) -> io::Result<()> {
        if self.changed.load(SeqCst) == NEVER {
            let ns = nanos(self.file.metadata()?.mtime);
            // Somebody may have changed it meanwhile, and that is later.
            let _ = self.changed.compare_exchange(NEVER, ns, SeqCst, SeqCst);
        }
        Ok(())
    }

    /// Writes the time of the last change to the file, if it is not there yet. Without it the file
    /// would show the kernel's own time, some milliseconds earlier; so a failure is no reason to
    /// fail a request.
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
        debug!("an object keeps the kernel's time of its last change: {e}");
    }
}

fn time(ns: i64) -> Time {
    Time { sec: ns.div_euclid(1_000_000_000), nsec: ns.rem_euclid(1_000_000_000) as u32 }
}

/// Saturates in the years 1677 and 2262.
fn nanos(time: Time) -> i64 {
    time.sec.saturating_mul(1_000_000_000).saturating_add(i64::from(time.nsec))
}

type Shard = LruCache<Fid, Arc<Object>, FxBuildHasher>;

/// The objects of an OST by FID.
pub struct Files {
    disk: Disk,
    root: PathBuf,
    shards: Box<[Mutex<Shard>]>,
    dirs: Mutex<LruCache<Dir, Arc<DirState>, FxBuildHasher>>,
    sums: Budget,
    /// The last data version given.
    versions: AtomicU64,
    /// Versions that somebody was told, of objects that are not open. Taken under the object's
    /// shard.
    told: Mutex<LruCache<Fid, u64, FxBuildHasher>>,
    /// Objects that are gone for good. Taken under the object's shard.
    destroyed: Mutex<LruCache<Fid, (), FxBuildHasher>>,
}

impl Files {
    /// Objects below `root`; at most about `open_files_max` files stay open (at least one a shard).
    pub fn new(rt: &Rt, root: &Path, open_files_max: usize) -> Files {
        let each = NonZeroUsize::new(open_files_max / SHARDS).unwrap_or(NonZeroUsize::MIN);
        Files {
            disk: rt.disk(),
            root: root.to_owned(),
            shards: (0..SHARDS).map(|_| Mutex::new(LruCache::with_hasher(each, FxBuildHasher))).collect(),
            dirs: Mutex::new(LruCache::with_hasher(DIRS_MAX, FxBuildHasher)),
            sums: Budget::default(),
            // Above those of other lives, or at least elsewhere; never 0.
            versions: AtomicU64::new(rt.random_u64() >> 1 | 1),
            told: Mutex::new(LruCache::with_hasher(TOLD_MAX, FxBuildHasher)),
            destroyed: Mutex::new(LruCache::with_hasher(DESTROYED_MAX, FxBuildHasher)),
        }
    }

    /// A data version that no object of this life has had.
    fn next_version(&self) -> u64 {
        self.versions.fetch_add(1, SeqCst).wrapping_add(1).max(1)
    }

    /// The object's data version: it is another one after each change of bytes or size, and may be
    /// so without any (after a restart, or when very many were asked for since). 0: there is no
    /// object. To be compared while nobody is changing the object: a change counts when it is made.
    pub fn version(&self, object: Fid) -> io::Result<u64> {
        let Some(open) = self.existing(object)? else { return Ok(0) };
        open.told.store(true, SeqCst);
        Ok(open.version.load(SeqCst))
    }

    /// For an object that was just taken out of the cache, with its shard still locked.
    fn evict(&self, object: &Object) {
        object.evicted.store(true, SeqCst);
        object.save_time();
        if object.told.load(SeqCst) {
            self.told.lock().put(object.fid, object.version.load(SeqCst));
        }
    }

    /// Files open at the moment.
    pub fn open_count(&self) -> usize {
        self.shards.iter().map(|s| s.lock().len()).sum()
    }

    /// Where an object lies.
    pub fn path(&self, object: Fid) -> PathBuf {
        self.root.join(name::path(object))
    }

    /// The object's metadata, without opening it; `None` if it does not exist.
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
            // With the shard locked: after an open the first write dates the file by the kernel's
            // clock, and that time must not show.
            None => match self.disk.metadata(self.path(object)) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
                found => found.map(Some),
            },
        }
    }

    /// Notes a change of the content. Without it the file's own time would do, but for the kernel's
    /// clock for file times: it lags up to a tick (10 ms) behind the one that the MDT and this OST
    /// read, so a write would seem older than an earlier create. [`Object::save_time`] writes it to
    /// the file; a process that is killed before loses it, and some milliseconds with it.
    pub fn changed(&self, object: &Object, now: Time) {
        let now = nanos(now);
        object.version.store(self.next_version(), SeqCst);
        object.changed.fetch_max(now, SeqCst);
        // Either this sees that the object was evicted, or the eviction saw the new time.
        if object.evicted.load(SeqCst) {
            self.changed_late(object, now);
        }
    }

    /// The same for bytes that were written before they came here, after [`Object::note_time`].
    pub fn changed_before(&self, object: &Object, at: Time) {
        *object.saved.lock() = NEVER; // the kernel has just dated the file otherwise
        self.changed(object, at);
    }

    /// A change by one who got the object before it left the cache.
    #[cold]
    fn changed_late(&self, object: &Object, now: i64) {
        let shard = self.shard(object.fid);
        self.told.lock().pop(&object.fid);
        match shard.peek(&object.fid) {
            Some(open) => {
                if let Err(e) = open.note_time() {
                    debug!("the time of an object's last change is not known: {e}");
                }
                open.changed.fetch_max(now, SeqCst);
                open.version.store(self.next_version(), SeqCst);
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

    /// The object, or `None` if it does not exist.
    pub fn existing(&self, object: Fid) -> io::Result<Option<Arc<Object>>> {
        self.get(object, false)
    }

    /// The object, created if it does not exist. ESTALE: it was destroyed.
    pub fn create(&self, object: Fid) -> io::Result<Arc<Object>> {
        self.get(object, true)?.ok_or_else(|| io::Error::from_raw_os_error(Errno::EIO.0))
    }

    fn get(&self, object: Fid, create: bool) -> io::Result<Option<Arc<Object>>> {
        let mut tries = 0;
        loop {
            match self.open(object, create) {
                Err(e) if out_of_files(&e) && tries < SHED_TRIES => {
                    tries += 1;
                    self.shed();
                }
                result => return result,
            }
        }
    }

    fn open(&self, object: Fid, create: bool) -> io::Result<Option<Arc<Object>>> {
        let mut shard = self.shard(object);
        if let Some(open) = shard.get(&object) {
            return Ok(Some(open.clone()));
        }
        if create && self.destroyed.lock().contains(&object) {
            return Err(io::Error::from_raw_os_error(Errno::ESTALE.0));
        }
        let Some(file) = self.open_file(object, create)? else { return Ok(None) };
        let dir = self.dir(Dir::of(object));
        // Whether the open created it is not known; counting it as born now costs at most one sync
        // of the directory.
        let born = if create { dir.births.born() } else { dir.births.latest() };
        // An empty file may have been created just now, for bytes that are older.
        let undated = create && file.metadata()?.len == 0;
        let changed = AtomicI64::new(if undated { UNDATED } else { NEVER });
        let (saved, evicted) = (Mutex::new(NEVER), AtomicBool::new(false));
        let sums = Mutex::new(Sums::new(&self.sums));
        let told = self.told.lock().pop(&object);
        let version = AtomicU64::new(told.unwrap_or_else(|| self.next_version()));
        let told = AtomicBool::new(told.is_some());
        let open = Arc::new(Object { file, fid: object, dir, born, changed, saved, sums, evicted, version, told });
        let evicted = shard.push(object, open.clone());
        if let Some((_, evicted)) = &evicted {
            self.evict(evicted);
        }
        drop(shard);
        drop(evicted); // closes outside the lock
        Ok(Some(open))
    }

    fn open_file(&self, object: Fid, create: bool) -> io::Result<Option<File>> {
        let path = self.path(object);
        let options = if create { OpenOptions::CREATE } else { OpenOptions::READ_WRITE };
        match self.disk.open(&path, options) {
            Ok(file) => Ok(Some(file)),
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            Err(_) if !create => Ok(None),
            Err(_) => {
                self.make_dir(Dir::of(object))?;
                self.disk.open(&path, options).map(Some)
            }
        }
    }

    /// Makes a directory of objects below `O`, which exists since the format. EIO: `O` was removed,
    /// and with it the identity. A later OST in this directory would take new objects for its own.
    fn make_dir(&self, dir: Dir) -> io::Result<()> {
        match self.disk.metadata(self.root.join(name::ROOT)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(io::Error::from_raw_os_error(Errno::EIO.0)),
            Err(e) => Err(e),
            Ok(_) => self.disk.create_dir_all(self.root.join(dir.path())),
        }
    }

    /// As [`Files::remove`], for good: its name is not used again. Bytes that a client kept over a
    /// restart, and brings when the file is gone, do not make it anew.
    pub fn destroy(&self, object: Fid) -> io::Result<()> {
        let shard = self.shard(object);
        self.destroyed.lock().put(object, ());
        self.remove_from(shard, object)
    }

    /// Removes the object's file. What is in use of it lives on without a name until it is done.
    pub fn remove(&self, object: Fid) -> io::Result<()> {
        self.remove_from(self.shard(object), object)
    }

    fn remove_from(&self, mut shard: MutexGuard<'_, Shard>, object: Fid) -> io::Result<()> {
        let open = shard.pop(&object);
        self.told.lock().pop(&object);
        let removed = self.disk.remove_file(self.path(object));
        drop(shard);
        drop(open);
        match removed {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(e),
            Ok(()) => {
                self.dir(Dir::of(object)).births.born(); // a change of the directory that is not durable yet
                Ok(())
            }
        }
    }

    /// Gives the object's file a second name, which nobody has used; fine if it has it. ESTALE: the
    /// new name was given up meanwhile.
    pub fn link(&self, object: Fid, new: Fid) -> io::Result<()> {
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
                self.dir(Dir::of(new)).births.born();
                Ok(())
            }
        }
    }

    /// Makes every change of `dir` so far durable.
    pub async fn settle(&self, dir: Dir) -> io::Result<()> {
        let state = self.dir(dir);
        self.settle_to(&state, state.births.latest()).await
    }

    /// Makes the object's name durable.
    pub async fn settle_object(&self, object: &Object) -> io::Result<()> {
        self.settle_to(&object.dir, object.born).await
    }

    async fn settle_to(&self, state: &DirState, number: u64) -> io::Result<()> {
        if state.births.is_durable(number) {
            return Ok(());
        }
        let fresh = state.births.is_fresh();
        let mark = state.births.begin_sync();
        match self.disk.sync_dir(self.root.join(state.dir.path())).await {
            // No such directory, so nothing in it; it stays fresh, since its own entry will have to
            // be synced once there is one.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            result => result?,
        }
        if fresh {
            self.disk.sync_dir(self.root.join(state.dir.seq_path())).await?;
            self.disk.sync_dir(self.root.join(name::ROOT)).await?;
        }
        state.births.synced(mark);
        Ok(())
    }

    /// The objects in `dir`; none where it does not exist.
    pub fn list(&self, dir: Dir) -> io::Result<Vec<Fid>> {
        match self.disk.read_dir(self.root.join(dir.path())) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(e),
            Ok(entries) => Ok(entries.iter().filter_map(|e| name::parse_name(dir, e.name.to_str()?)).collect()),
        }
    }

    /// Sequences of which there may be objects.
    pub fn sequences(&self) -> io::Result<Vec<u64>> {
        let entries = self.disk.read_dir(self.root.join(name::ROOT))?;
        Ok(entries.iter().filter_map(|e| name::parse_seq(e.name.to_str()?)).collect())
    }

    fn dir(&self, dir: Dir) -> Arc<DirState> {
        self.dirs.lock().get_or_insert(dir, || Arc::new(DirState { dir, births: Births::new() })).clone()
    }

    fn shard(&self, object: Fid) -> MutexGuard<'_, Shard> {
        // The high bits of this hash are the good ones.
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
    use sheen_rt::sim::{Sim, SimConfig};

    /// A formatted directory without objects.
    fn empty(rt: &Rt) -> Files {
        rt.disk().create_dir_all("/ost/O").unwrap();
        Files::new(rt, Path::new("/ost"), SHARDS)
    }

    #[test]
    fn a_removed_directory_is_not_made_again() {
        let rt = Sim::new(1, SimConfig::default()).rt(1);
        let files = empty(&rt);
        drop(files.create(Fid::new(0x2_8000_0401, 1)).unwrap());
        rt.disk().remove_dir_all("/ost").unwrap();
        let refused = files.create(Fid::new(0x2_8000_0401, 2)).err().unwrap();
        assert_eq!(Errno::from(refused), Errno::EIO);
        assert!(rt.disk().metadata("/ost").is_err());
    }

    #[test]
    fn a_change_by_one_who_held_the_object_longer_than_the_cache_shows() {
        let rt = Sim::new(1, SimConfig::default()).rt(1);
        let files = empty(&rt);
        let fid = |oid| Fid::new(0x2_8000_0401, oid);
        let shown = || files.metadata(fid(1)).unwrap().unwrap().mtime;
        let fill = || (2..2000).for_each(|oid| drop(files.create(fid(oid)).unwrap()));
        let time = |sec: i64| Time { sec: 1_900_000_000 + sec, nsec: 1 };

        let held = files.create(fid(1)).unwrap();
        fill();
        files.changed(&held, time(1));
        assert_eq!(shown(), time(1), "closed");
        let open = files.existing(fid(1)).unwrap().unwrap();
        files.changed(&held, time(2));
        assert_eq!(shown(), time(2), "open again");
        files.changed(&open, time(4));
        files.changed(&held, time(3));
        assert_eq!(shown(), time(4), "an older change is no news");
        fill();
        files.changed(&held, time(3));
        assert_eq!(shown(), time(4));
    }

    #[test]
    fn an_object_that_was_just_created_for_older_bytes_does_not_look_newer() {
        let rt = Sim::new(1, SimConfig::default()).rt(1);
        let files = empty(&rt);
        let fid = Fid::new(0x2_8000_0401, 1);
        let (written, shown) = (rt.wall(), || files.metadata(fid).unwrap().unwrap().mtime);
        let object = files.create(fid).unwrap();
        assert!(shown() < written, "before its first bytes");
        object.note_time().unwrap();
        object.file.write_all_at(0, b"x").unwrap();
        assert!(shown() < written, "while they are written");
        files.changed_before(&object, written);
        assert_eq!(shown(), written);
    }

    #[test]
    fn a_version_that_was_told_outlives_the_open_file_and_no_change() {
        let rt = Sim::new(1, SimConfig::default()).rt(1);
        let files = empty(&rt);
        let fid = |oid| Fid::new(0x2_8000_0401, oid);
        let fill = || (2..2000).for_each(|oid| drop(files.create(fid(oid)).unwrap()));
        let version = || files.version(fid(1)).unwrap();
        assert_eq!(version(), 0);
        let held = files.create(fid(1)).unwrap();
        let first = version();
        fill();
        assert_eq!(version(), first, "closed and opened again");
        files.changed(&held, Time::default());
        assert_ne!(version(), first, "changed by one who held it longer than the cache");
        let second = version();
        fill();
        files.changed(&held, Time::default());
        assert_ne!(version(), second, "changed while it was closed");
        let third = version();
        fill();
        files.remove(fid(1)).unwrap();
        drop(files.create(fid(1)).unwrap());
        assert_ne!(version(), third, "another object of the same name");
    }
}
