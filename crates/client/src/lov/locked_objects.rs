//! The objects on which this client holds extent locks.
//!
//! A blocking callback names an object, and the caches are ordered by file. So the file of each
//! locked object is stored here, together with what the locks make known of it:
//! * the minimum size of an object, as seen under a lock. While that lock is held, only this client
//!   can make the object smaller;
//! * whether locks on the file are contended.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use lru::LruCache;
use parking_lot::Mutex;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use sheen_rt::{Instant, Rt};
use sheen_wire::{Fid, ldlm::Cookie};

/// Maximum number of files noted as contended.
const CONTENDED_MAX: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// Time limit for contention. A file whose lock was revoked this soon after the grant is contended;
/// the client requests no further locks on it for the same time.
const CONTENDED_FOR: Duration = Duration::from_secs(1);

/// The locked objects of a mount. See the module's documentation.
pub struct LockedObjects {
    rt: Rt,
    state: Mutex<State>,
    /// Contended files: time of the last grant, and end of the time without lock requests.
    contended: Mutex<LruCache<Fid, (Instant, Instant), FxBuildHasher>>,
}

#[derive(Default)]
struct State {
    /// The file of each locked object.
    file_of: FxHashMap<Fid, Fid>,
    /// Files with locked objects, or with a truncate in progress.
    files: FxHashMap<Fid, File>,
    /// Number of truncates begun so far, of all files.
    truncates: u64,
}

struct File {
    objects: FxHashSet<Fid>,
    /// Minimum sizes of objects, each with the lock that must still be held for it to be valid.
    sizes: FxHashMap<Fid, (Cookie, u64)>,
    /// Number of truncates by this client in progress.
    truncating: u32,
    /// [`State::truncates`] at the last truncate of the file.
    truncates: u64,
}

impl State {
    fn file(&mut self, fid: Fid) -> &mut File {
        let truncates = self.truncates;
        self.files.entry(fid).or_insert_with(|| File {
            objects: FxHashSet::default(),
            sizes: FxHashMap::default(),
            truncating: 0,
            truncates,
        })
    }

    fn tidy(&mut self, fid: Fid) {
        if self.files.get(&fid).is_some_and(|file| file.objects.is_empty() && file.truncating == 0) {
            self.files.remove(&fid);
        }
    }

    fn insert(&mut self, object: Fid, fid: Fid) {
        match self.file_of.insert(object, fid) {
            Some(before) if before == fid => return,
            Some(before) => self.leave(object, before),
            None => {}
        }
        self.file(fid).objects.insert(object);
    }

    fn leave(&mut self, object: Fid, fid: Fid) {
        if let Some(file) = self.files.get_mut(&fid) {
            file.objects.remove(&object);
            file.sizes.remove(&object);
        }
        self.tidy(fid);
    }
}

/// A truncate by this client, in progress until it is dropped. Sizes seen meanwhile are not
/// remembered.
pub struct Truncating {
    objects: Arc<LockedObjects>,
    fid: Fid,
}

impl Drop for Truncating {
    fn drop(&mut self) {
        let mut state = self.objects.state.lock();
        if let Some(file) = state.files.get_mut(&self.fid) {
            file.truncating -= 1;
        }
        state.tidy(self.fid);
    }
}

impl LockedObjects {
    /// Creates an empty table.
    pub fn new(rt: &Rt) -> LockedObjects {
        let contended = Mutex::new(LruCache::with_hasher(CONTENDED_MAX, FxBuildHasher));
        LockedObjects { rt: rt.clone(), state: Mutex::default(), contended }
    }

    /// Notes that a lock on an object of a file was granted.
    pub fn granted(&self, object: Fid, fid: Fid) {
        self.state.lock().insert(object, fid);
        let now = self.rt.now();
        self.contended.lock().get_or_insert_mut(fid, || (now, now)).0 = now;
    }

    /// Notes that a lock of a file was revoked.
    pub fn revoked(&self, fid: Fid) {
        let now = self.rt.now();
        if let Some((granted, until)) = self.contended.lock().get_mut(&fid)
            && now.since(*granted) < CONTENDED_FOR
        {
            *until = now + CONTENDED_FOR;
        }
    }

    /// Whether the file is contended, so that locks on it are not worth a request now.
    pub fn is_contended(&self, fid: Fid) -> bool {
        let now = self.rt.now();
        self.contended.lock().peek(&fid).is_some_and(|(_, until)| now < *until)
    }

    /// Returns the file of a locked object.
    pub fn file_of(&self, object: Fid) -> Option<Fid> {
        self.state.lock().file_of.get(&object).copied()
    }

    /// Whether objects of the file are locked.
    pub fn has_any(&self, fid: Fid) -> bool {
        self.state.lock().files.get(&fid).is_some_and(|file| !file.objects.is_empty())
    }

    /// Assigns those of the objects that are locked to another file.
    pub fn hand_over(&self, objects: impl Iterator<Item = Fid>, fid: Fid) {
        let mut state = self.state.lock();
        for object in objects {
            if state.file_of.contains_key(&object) {
                state.insert(object, fid);
            }
        }
    }

    /// Removes an object that is no longer locked.
    pub fn remove(&self, object: Fid) {
        let mut state = self.state.lock();
        if let Some(fid) = state.file_of.remove(&object) {
            state.leave(object, fid);
        }
    }

    /// Returns the minimum size of an object, and the lock that must still be held for it to be
    /// valid.
    pub fn size(&self, object: Fid) -> Option<(Cookie, u64)> {
        let state = self.state.lock();
        state.files.get(state.file_of.get(&object)?)?.sizes.get(&object).copied()
    }

    /// Returns a number that changes with each truncate of the file, to pass to
    /// [`LockedObjects::note_size`]. Call it before the object's size is requested. `None`: no
    /// object is locked, or this client is truncating the file.
    pub fn truncates(&self, fid: Fid) -> Option<u64> {
        let state = self.state.lock();
        state.files.get(&fid).filter(|file| file.truncating == 0).map(|file| file.truncates)
    }

    /// Remembers that an object had `size` bytes under `lock`, which was held before the size was
    /// requested. `truncates`: the earlier result of [`LockedObjects::truncates`].
    pub fn note_size(&self, fid: Fid, object: Fid, lock: Cookie, size: u64, truncates: u64) {
        let mut state = self.state.lock();
        let Some(file) = state.files.get_mut(&fid) else { return };
        // Only for locked objects, because the entry is removed together with the lock.
        if file.truncating == 0 && file.truncates == truncates && file.objects.contains(&object) {
            file.sizes.insert(object, (lock, size));
        }
    }

    /// Registers a truncate by this client.
    pub fn truncating(self: &Arc<Self>, fid: Fid) -> Truncating {
        let mut state = self.state.lock();
        state.truncates += 1;
        let truncates = state.truncates;
        let file = state.file(fid);
        file.truncating += 1;
        file.truncates = truncates;
        file.sizes.clear();
        drop(state);
        Truncating { objects: self.clone(), fid }
    }
}
