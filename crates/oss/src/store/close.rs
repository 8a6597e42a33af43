//! Close: a file has left its objects, and nobody may use them any more ([`Errno::MOVED`]).
//!
//! Clients keep a layout without a lock, and an object that is not there reads as empty. So whoever
//! comes with an old layout, however late, must be told that the file's bytes are elsewhere: a
//! closed object leaves an empty marker in `DIR/C`, which outlives the object.
//!
//! Invariants:
//! * a marker is durable before `Close` is answered;
//! * what is done to an object under the OST's own lock looks for a marker before, what is done
//!   without looks after: then it was done before the object was closed;
//! * the marker of an object that goes on under another name ([`super::link`]) says so, as long as
//!   it is there;
//! * markers stay for [`CLOSED_KEPT`], and as long as the object is there. A client trusts a layout
//!   for a small part of that time (the client's `LAYOUT_TRUST`);
//! * there are at most [`CLOSED_MAX`].

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

use super::Store;

/// Where markers lie in the OST's directory.
const MARKERS: &str = "C";
/// How long an object that was closed and destroyed is remembered.
pub const CLOSED_KEPT: Duration = Duration::from_secs(24 * 3600);
/// Most closed objects: some 64 MiB of memory. Beyond that nothing is closed before others are
/// forgotten.
pub const CLOSED_MAX: usize = 1 << 20;
/// Names that an object may have had within a day, for who comes with the first one.
const FOLLOW_MAX: usize = 4096;
/// Old markers that are looked at when an object is closed.
const EXPIRE_AT_ONCE: usize = 16;
/// Ages that do not count any more, beside as many as there are closed objects.
const SUPERSEDED_MAX: usize = 64;

/// The closed objects of an OST.
pub struct Closed {
    disk: Disk,
    dir: PathBuf,
    /// How many there are: nearly always none.
    count: AtomicUsize,
    state: RwLock<State>,
}

/// What is known of a closed object.
#[derive(Clone, Copy)]
struct Marker {
    /// When it was closed last, or looked at since.
    at: Time,
    /// The name under which it goes on, if it does.
    to: Option<Fid>,
}

#[derive(Default)]
struct State {
    objects: FxHashMap<Fid, Marker>,
    /// When they were closed, about oldest first; also of some that were opened again, or closed
    /// anew since.
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

impl Closed {
    /// Those of an OST's directory.
    pub fn open(rt: &Rt, ost: &Path) -> io::Result<Closed> {
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
            // What cannot be read says nothing: whoever asks hears that it is closed.
            let text = disk.read(dir.join(marker(*object)))?;
            let to = std::str::from_utf8(&text).ok().and_then(parse);
            objects.insert(*object, Marker { at: *at, to });
        }
        let count = AtomicUsize::new(objects.len());
        Ok(Closed { disk, dir, count, state: RwLock::new(State { objects, by_age: found.into() }) })
    }

    fn has(&self, object: Fid) -> bool {
        self.count.load(SeqCst) > 0 && self.state.read().objects.contains_key(&object)
    }

    fn insert(&self, object: Fid, now: Time) -> Result<()> {
        let mut state = self.state.write();
        if state.objects.len() >= CLOSED_MAX {
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
        state.put(object, Marker { at: now, to: None });
        self.count.store(state.objects.len(), SeqCst);
        Ok(())
    }

    fn remove(&self, object: Fid) -> Result<()> {
        let mut state = self.state.write();
        if state.objects.contains_key(&object) {
            match self.disk.remove_file(self.dir.join(marker(object))) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e.into()),
                _ => {}
            }
            state.objects.remove(&object);
            self.count.store(state.objects.len(), SeqCst);
        }
        Ok(())
    }

    /// A closed object goes on under another name. Durable on return but for the directory.
    fn goes_on(&self, object: Fid, new: Fid, now: Time) -> Result<()> {
        let mut state = self.state.write();
        let Some(known) = state.objects.get_mut(&object) else { return Err(Errno::EBUSY) };
        let path = self.dir.join(marker(object));
        self.disk.write_atomic(&path, marker(new).as_bytes())?;
        self.disk.open(&path, OpenOptions::READ_WRITE)?.set_mtime(now)?;
        known.to = Some(new);
        Ok(())
    }

    /// Where an object is now. MOVED: it is closed. EAGAIN: so is what it goes on as.
    fn follow(&self, object: Fid) -> Result<Fid> {
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

    /// The oldest ones, if they are old enough to be forgotten.
    fn old(&self, now: Time) -> Vec<Fid> {
        let mut state = self.state.write();
        let before = now.sec.saturating_sub(CLOSED_KEPT.as_secs() as i64);
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

    /// To be looked at again later, if it is closed still.
    fn keep(&self, object: Fid, now: Time) {
        let mut state = self.state.write();
        if let Some(marker) = state.objects.get(&object).copied() {
            state.put(object, Marker { at: now, ..marker });
        }
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

impl Store {
    /// Whether these objects may be used.
    ///
    /// # Errors
    /// MOVED: one is closed.
    pub(crate) fn check_open(&self, objects: impl IntoIterator<Item = Fid>) -> Result<()> {
        if self.closed.count.load(SeqCst) > 0 && objects.into_iter().any(|object| self.closed.has(object)) {
            return Err(Errno::MOVED);
        }
        Ok(())
    }

    /// The data version of an object; 0 where there is none.
    ///
    /// # Errors
    /// MOVED. What the local file system says.
    pub fn version(&self, object: Fid) -> Result<u64> {
        let version = self.files.version(object)?;
        self.check_open([object])?;
        Ok(version)
    }

    /// Closes an object that nobody uses at the moment, if its version is still this one (`None`:
    /// whichever). Durable after [`Store::settle_closed`].
    ///
    /// # Errors
    /// EBUSY: it is another one, or too many objects are closed. MOVED: it is closed already. What
    /// the local file system says.
    pub fn close_object(&self, object: Fid, version: Option<u64>) -> Result<()> {
        match version {
            None => self.check_open([object])?,
            Some(version) if self.version(object)? != version => return Err(Errno::EBUSY),
            Some(_) => {}
        }
        self.forget_old()?;
        self.closed.insert(object, self.rt.wall())
    }

    /// Makes what was closed so far durable.
    ///
    /// # Errors
    /// What the local file system says.
    pub async fn settle_closed(&self) -> Result<()> {
        self.closed.disk.sync_dir(&self.closed.dir).await?;
        if let Some(ost) = self.closed.dir.parent() {
            self.closed.disk.sync_dir(ost).await?;
        }
        Ok(())
    }

    /// Lets objects be used again.
    ///
    /// # Errors
    /// What the local file system says; some may be open then.
    pub fn reopen(&self, objects: &[Fid]) -> Result<()> {
        objects.iter().try_for_each(|&object| self.closed.remove(object))
    }

    /// Where objects are that may have gone on under other names.
    ///
    /// # Errors
    /// MOVED: one is closed and has not. EAGAIN: one has, and is closed under the other name.
    pub fn follow(&self, objects: &[Fid]) -> Result<Vec<Fid>> {
        objects.iter().map(|object| self.closed.follow(*object)).collect()
    }

    /// Notes under which name a closed object goes on. Durable after [`Store::settle_closed`].
    pub(super) fn goes_on(&self, object: Fid, new: Fid) -> Result<()> {
        self.closed.goes_on(object, new, self.rt.wall())
    }

    /// Whether an object is closed.
    pub(super) fn is_closed(&self, object: Fid) -> bool {
        self.closed.has(object)
    }

    /// Objects that are closed at the moment, those that are destroyed included.
    pub fn closed_count(&self) -> usize {
        self.closed.count.load(SeqCst)
    }

    /// Forgets objects that were closed and destroyed long ago.
    fn forget_old(&self) -> Result<()> {
        let now = self.rt.wall();
        for object in self.closed.old(now) {
            match self.files.metadata(object) {
                Ok(None) => self.closed.remove(object)?,
                Ok(Some(_)) | Err(_) => self.closed.keep(object, now),
            }
        }
        Ok(())
    }
}
