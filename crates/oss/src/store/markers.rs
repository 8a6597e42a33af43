//! Markers of sealed objects, in `DIR/C`.
//!
//! Invariants:
//! * if a sealed object continues under another name ([`super::link`]), its marker holds that name
//!   for as long as the marker exists;
//! * markers stay for [`MARKER_AGE_MIN`], and for as long as the object exists. A client trusts a
//!   layout for a small part of that time (the client's `LAYOUT_TRUST`);
//! * there are at most [`MARKERS_MAX`] markers;
//! * a request that its MDT does not wait for any more may be executed late. It changes no marker
//!   of a later seal ([`Order`]). Requests do not outlive the OST's process, so the order is not
//!   stored.

use std::{
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    time::Duration,
};

use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use sheen_objects::name;
use sheen_rt::{Disk, OpenOptions, Rt};
use sheen_wire::{Errno, Fid, Result, Time};

/// Directory of the markers, in the OST's directory.
const MARKERS: &str = "C";
/// Time for which a marker stays at least.
pub const MARKER_AGE_MIN: Duration = Duration::from_secs(24 * 3600);
/// Most sealed objects: some 64 MiB of memory. When there are as many, no object is sealed until
/// old markers expire.
pub const MARKERS_MAX: usize = 1 << 20;
/// Most names that are followed from an object's first name to its last. Markers stay for a day at
/// least, and an object may change its name often in that time.
const FOLLOW_MAX: usize = 4096;
/// Most old markers that are checked for expiry when an object is sealed.
const EXPIRE_AT_ONCE: usize = 16;
/// Outdated entries of `by_age` that are allowed, beside as many as there are sealed objects.
const SUPERSEDED_MAX: usize = 64;

/// Place of a request among all that seal, unseal or link objects. Those of a later export come
/// later: an MDT that was restarted, or was evicted, has another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Order {
    /// Number of the MDT's export.
    pub export: u64,
    /// Number of the request, as the MDT counts.
    pub number: u64,
}

impl Order {
    /// After all requests.
    pub const LAST: Order = Order { export: u64::MAX, number: u64::MAX };
}

/// The sealed objects of an OST.
pub struct SealedObjects {
    disk: Disk,
    dir: PathBuf,
    /// Number of sealed objects: nearly always 0.
    count: AtomicUsize,
    state: RwLock<State>,
}

/// Marker of a sealed object.
#[derive(Clone, Copy)]
struct Marker {
    /// Time of the last seal, or of the last check for expiry.
    at: Time,
    /// Name under which the object continues, if there is one.
    to: Option<Fid>,
    /// Order of the seal; the first one for a seal from before the OST's start.
    order: Order,
}

#[derive(Default)]
struct State {
    objects: FxHashMap<Fid, Marker>,
    /// Times of the seals, roughly oldest first. Entries of objects that were unsealed, or sealed
    /// again since, are outdated.
    by_age: VecDeque<(Time, Fid)>,
}

impl State {
    fn put(&mut self, object: Fid, marker: Marker) {
        self.objects.insert(object, marker);
        self.by_age.push_back((marker.at, object));
        if self.by_age.len() > 2 * self.objects.len() + SUPERSEDED_MAX {
            let objects = &self.objects;
            self.by_age.retain(|(at, object)| objects.get(object).is_some_and(|marker| marker.at == *at));
        }
    }
}

impl SealedObjects {
    /// Reads the markers in an OST's directory.
    pub fn open(rt: &Rt, ost: &Path) -> io::Result<SealedObjects> {
        let (disk, dir) = (rt.disk(), ost.join(MARKERS));
        let mut found = Vec::new();
        match disk.read_dir(&dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
            Ok(entries) => {
                for object in entries.iter().filter_map(|e| parse(e.name.to_str()?)) {
                    found.push((disk.metadata(dir.join(marker(object)))?.mtime, object));
                }
            }
        }
        found.sort_unstable();
        let mut objects = FxHashMap::default();
        for (at, object) in &found {
            // An unreadable name counts as none: the object is sealed.
            let text = disk.read(dir.join(marker(*object)))?;
            let to = std::str::from_utf8(&text).ok().and_then(parse);
            objects.insert(*object, Marker { at: *at, to, order: Order::default() });
        }
        let count = AtomicUsize::new(objects.len());
        Ok(SealedObjects { disk, dir, count, state: RwLock::new(State { objects, by_age: found.into() }) })
    }

    /// Number of sealed objects, destroyed ones included.
    pub fn count(&self) -> usize {
        self.count.load(SeqCst)
    }

    /// Whether an object is sealed.
    pub fn has(&self, object: Fid) -> bool {
        self.count.load(SeqCst) > 0 && self.state.read().objects.contains_key(&object)
    }

    /// Whether an object is sealed, and a request of this order comes after the seal.
    pub fn has_before(&self, object: Fid, order: Order) -> bool {
        self.state.read().objects.get(&object).is_some_and(|marker| marker.order <= order)
    }

    /// Adds a marker. Durable after [`SealedObjects::sync`].
    ///
    /// # Errors
    /// MOVED: there is one already, which stays as it is: its seal may be later, and it may hold a
    /// new name. EBUSY: there are [`MARKERS_MAX`]. Errors of the local file system.
    pub fn insert(&self, object: Fid, order: Order, now: Time) -> Result<()> {
        let mut state = self.state.write();
        if state.objects.contains_key(&object) {
            return Err(Errno::MOVED);
        }
        if state.objects.len() >= MARKERS_MAX {
            return Err(Errno::EBUSY);
        }
        let path = self.dir.join(marker(object));
        let made = match self.disk.open(&path, OpenOptions::CREATE) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.disk.create_dir_all(&self.dir)?;
                self.disk.open(&path, OpenOptions::CREATE)
            }
            made => made,
        };
        made?.set_mtime(now)?;
        state.put(object, Marker { at: now, to: None, order });
        self.count.store(state.objects.len(), SeqCst);
        Ok(())
    }

    /// Removes a marker, if there is one of this order or before. Durable after
    /// [`SealedObjects::sync`].
    pub fn remove(&self, object: Fid, order: Order) -> Result<()> {
        let mut state = self.state.write();
        if state.objects.get(&object).is_some_and(|marker| marker.order <= order) {
            match self.disk.remove_file(self.dir.join(marker(object))) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e.into()),
                _ => {}
            }
            state.objects.remove(&object);
            self.count.store(state.objects.len(), SeqCst);
        }
        Ok(())
    }

    /// Records the name under which a sealed object continues. Durable on return but for the
    /// directory. EBUSY: it is not sealed, or was sealed after this order.
    pub fn record_new_name(&self, object: Fid, new: Fid, order: Order, now: Time) -> Result<()> {
        let mut state = self.state.write();
        let known = state.objects.get_mut(&object).filter(|marker| marker.order <= order);
        let Some(known) = known else { return Err(Errno::EBUSY) };
        let path = self.dir.join(marker(object));
        self.disk.write_atomic(&path, marker(new).as_bytes())?;
        self.disk.open(&path, OpenOptions::READ_WRITE)?.set_mtime(now)?;
        known.to = Some(new);
        Ok(())
    }

    /// Returns the present name of an object. MOVED: it is sealed and has no other name. EAGAIN:
    /// its last name is sealed, too.
    pub fn follow(&self, object: Fid) -> Result<Fid> {
        let (state, mut at) = (self.state.read(), object);
        for _ in 0..FOLLOW_MAX {
            match state.objects.get(&at).map(|marker| marker.to) {
                None => return Ok(at),
                Some(Some(to)) => at = to,
                Some(None) if at == object => return Err(Errno::MOVED),
                Some(None) => break,
            }
        }
        Err(Errno::EAGAIN)
    }

    /// Removes the oldest entries from `by_age`, and returns those whose markers may expire.
    pub fn old(&self, now: Time) -> Vec<Fid> {
        let mut state = self.state.write();
        let before = now.sec.saturating_sub(MARKER_AGE_MIN.as_secs() as i64);
        let mut old = Vec::new();
        while old.len() < EXPIRE_AT_ONCE
            && let Some((at, object)) = state.by_age.pop_front_if(|(at, _)| at.sec < before)
        {
            if state.objects.get(&object).is_some_and(|marker| marker.at == at) {
                old.push(object);
            }
        }
        old
    }

    /// Schedules another check for expiry, if the object is still sealed.
    pub fn keep(&self, object: Fid, now: Time) {
        let mut state = self.state.write();
        if let Some(marker) = state.objects.get(&object).copied() {
            state.put(object, Marker { at: now, ..marker });
        }
    }

    /// Makes all additions and removals so far durable.
    pub async fn sync(&self) -> Result<()> {
        self.disk.sync_dir(&self.dir).await?;
        if let Some(ost) = self.dir.parent() {
            self.disk.sync_dir(ost).await?;
        }
        Ok(())
    }
}

fn marker(object: Fid) -> String {
    let Fid { seq, oid, ver } = object;
    if ver == 0 { format!("{seq:x}:{oid:x}") } else { format!("{seq:x}:{oid:x}:{ver:x}") }
}

fn parse(name: &str) -> Option<Fid> {
    let mut pieces = name.split(':');
    let seq = u64::from_str_radix(pieces.next()?, 16).ok()?;
    let mut word = |or: &'static str| u32::from_str_radix(pieces.next().unwrap_or(or), 16).ok();
    let object = Fid { seq, oid: word("")?, ver: word("0")? };
    (name::valid(object) && marker(object) == name).then_some(object)
}

#[cfg(test)]
mod tests {
    use sheen_rt::sim::{Sim, SimConfig};

    use super::*;

    #[test]
    fn seal_does_not_change_the_marker_of_a_sealed_object() {
        let rt = Sim::new(1, SimConfig::default()).rt(1);
        let sealed = SealedObjects::open(&rt, Path::new("/ost")).unwrap();
        let (object, new) = (Fid::new(0x2_8000_0401, 9), Fid::new(0x2_8000_0401, 10));
        let order = |number| Order { export: 1, number };
        sealed.insert(object, order(2), rt.wall()).unwrap();
        sealed.record_new_name(object, new, order(3), rt.wall()).unwrap();
        for number in [1, 4] {
            assert_eq!(sealed.insert(object, order(number), rt.wall()), Err(Errno::MOVED));
        }
        sealed.remove(object, order(1)).unwrap();
        assert_eq!(sealed.follow(object), Ok(new), "it is sealed by request 2, and has its new name");
    }
}
