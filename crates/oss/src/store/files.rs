//! Open files of objects, and which names are durable.
//!
//! Invariants:
//! * an object has at most one [`Object`] in the cache, and whatever is opened, created or removed by name is so under the
//!   lock of the object's shard. Hence who gets an object after [`Files::remove`] returned gets another one than before, and a
//!   cached file is never one that was removed;
//! * the cache holds at most `open_files_max` files; in use beside them are at most as many as requests run at once;
//! * opening waits under the shard's lock, which holds up one in [`SHARDS`] objects, and never those that are open in other
//!   shards.

use std::{
    hash::BuildHasher,
    io,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering::SeqCst},
    },
};

use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxBuildHasher;
use sheen_objects::{
    Births,
    name::{self, Dir},
};
use sheen_rt::{Disk, File, Metadata, OpenOptions, Rt};
use sheen_wire::{Errno, Fid, Time};

/// Shards of the cache: several times the threads of a server, so that two seldom meet.
const SHARDS: usize = 64;
/// Directories whose durability is remembered: 128 sequences. One that is forgotten is synced once more than needed.
const DIRS_MAX: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4096 - 1);
/// Precise times remembered in a shard after the file was closed: 65,536 in all, some 3 MiB.
const TIMES_MAX: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1024 - 1);
/// How often an open is tried again after files were closed because the process or the host has no descriptors left.
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
    /// No longer in the cache: what changes now has to be noted beside it.
    evicted: AtomicBool,
}

const NEVER: i64 = i64::MIN;

/// The later of a file's own time and a remembered one in ns since 1970.
fn later(file: Time, ns: i64) -> Time {
    match ns {
        NEVER => file,
        _ => file.max(Time { sec: ns.div_euclid(1_000_000_000), nsec: ns.rem_euclid(1_000_000_000) as u32 }),
    }
}

/// Saturates in the years 1677 and 2262.
fn nanos(time: Time) -> i64 {
    time.sec.saturating_mul(1_000_000_000).saturating_add(i64::from(time.nsec))
}

struct Shard {
    open: LruCache<Fid, Arc<Object>, FxBuildHasher>,
    /// Times of changed objects that were closed since.
    times: LruCache<Fid, i64, FxBuildHasher>,
}

impl Shard {
    fn remember(&mut self, object: Fid, ns: i64) {
        if ns != NEVER {
            let time = self.times.get_or_insert_mut(object, || ns);
            *time = ns.max(*time);
        }
    }

    fn evict(&mut self, object: &Object) {
        object.evicted.store(true, SeqCst);
        self.remember(object.fid, object.changed.load(SeqCst));
    }
}

/// The objects of an OST by FID.
pub struct Files {
    disk: Disk,
    root: PathBuf,
    shards: Box<[Mutex<Shard>]>,
    dirs: Mutex<LruCache<Dir, Arc<DirState>, FxBuildHasher>>,
}

impl Files {
    /// Objects below `root`; at most about `open_files_max` files stay open (at least one a shard).
    pub fn new(rt: &Rt, root: &Path, open_files_max: usize) -> Files {
        let each = NonZeroUsize::new(open_files_max / SHARDS).unwrap_or(NonZeroUsize::MIN);
        Files {
            disk: rt.disk(),
            root: root.to_owned(),
            shards: (0..SHARDS)
                .map(|_| Shard {
                    open: LruCache::with_hasher(each, FxBuildHasher),
                    times: LruCache::with_hasher(TIMES_MAX, FxBuildHasher),
                })
                .map(Mutex::new)
                .collect(),
            dirs: Mutex::new(LruCache::with_hasher(DIRS_MAX, FxBuildHasher)),
        }
    }

    /// Files open at the moment.
    pub fn open_count(&self) -> usize {
        self.shards.iter().map(|s| s.lock().open.len()).sum()
    }

    /// Where an object lies.
    pub fn path(&self, object: Fid) -> PathBuf {
        self.root.join(name::path(object))
    }

    /// The object's metadata, without opening it; `None` if it does not exist.
    pub fn metadata(&self, object: Fid) -> io::Result<Option<Metadata>> {
        let mut shard = self.shard(object);
        let open = shard.open.get(&object).cloned();
        let time = shard.times.peek(&object).copied().unwrap_or(NEVER);
        drop(shard);
        let (found, time) = match open {
            Some(open) => (open.file.metadata()?, open.changed.load(SeqCst)),
            None => match self.disk.metadata(self.path(object)) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
                found => (found?, time),
            },
        };
        Ok(Some(Metadata { mtime: later(found.mtime, time), ..found }))
    }

    /// Notes a change of the content. Without it the file's own time would do, but for the kernel's clock for file times: it lags
    /// up to a tick (10 ms) behind the one that the MDT and this OST read, so a write would seem older than an earlier create.
    /// The note is lost with the process, and when many others came since ([`TIMES_MAX`]).
    pub fn changed(&self, object: &Object, now: Time) {
        let now = nanos(now);
        object.changed.fetch_max(now, SeqCst);
        // Either this sees that the object was evicted, or the eviction saw the new time.
        if object.evicted.load(SeqCst) {
            self.shard(object.fid).remember(object.fid, now);
        }
    }

    /// The object, or `None` if it does not exist.
    pub fn existing(&self, object: Fid) -> io::Result<Option<Arc<Object>>> {
        self.get(object, false)
    }

    /// The object, created if it does not exist.
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
        if let Some(open) = shard.open.get(&object) {
            return Ok(Some(open.clone()));
        }
        let Some(file) = self.open_file(object, create)? else { return Ok(None) };
        let dir = self.dir(Dir::of(object));
        // Whether the open created it is not known; counting it as born now costs at most one sync of the directory.
        let born = if create { dir.births.born() } else { dir.births.latest() };
        let changed = AtomicI64::new(shard.times.pop(&object).unwrap_or(NEVER));
        let open = Arc::new(Object { file, fid: object, dir, born, changed, evicted: AtomicBool::new(false) });
        let evicted = shard.open.push(object, open.clone());
        if let Some((_, evicted)) = &evicted {
            shard.evict(evicted);
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
                self.disk.create_dir_all(self.root.join(Dir::of(object).path()))?;
                self.disk.open(&path, options).map(Some)
            }
        }
    }

    /// Removes the object's file. What is in use of it lives on without a name until it is done.
    pub fn remove(&self, object: Fid) -> io::Result<()> {
        let mut shard = self.shard(object);
        let open = shard.open.pop(&object);
        shard.times.pop(&object);
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
            // No such directory, so nothing in it; it stays fresh, since its own entry will have to be synced once there is one.
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

    /// The names of objects in `dir`; empty where it does not exist.
    pub fn list(&self, dir: Dir) -> io::Result<Vec<u32>> {
        match self.disk.read_dir(self.root.join(dir.path())) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(e),
            Ok(entries) => Ok(entries.iter().filter_map(|e| name::parse_oid(dir, e.name.to_str()?)).collect()),
        }
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
            let some = shard.open.len().div_ceil(4);
            let closing: Vec<_> = (0..some).filter_map(|_| shard.open.pop_lru()).collect();
            closing.iter().for_each(|(_, object)| shard.evict(object));
            drop(shard);
            drop(closing);
        }
    }
}

fn out_of_files(e: &io::Error) -> bool {
    let errno = Errno(e.raw_os_error().unwrap_or(0));
    matches!(errno, Errno::EMFILE | Errno::ENFILE)
}
