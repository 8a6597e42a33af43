//! The objects that were durable once, in `DIR/durable`: one bit for each object of a sequence. If
//! the file of such an object is missing, it was lost. Otherwise a missing object has never been
//! written, and reads as empty.
//!
//! Invariants:
//! * a bit is set after a sync of everything that was made before. So a power failure loses no
//!   object that has a bit;
//! * it is cleared before the object is removed. A power failure can undo this. Only a replay uses
//!   the object's name then, and does not take the object for lost. If the MDT knows that no layout
//!   has the object, the bit is cleared again;
//! * the bits of a range that was destroyed are cleared durably, because its names are used again;
//! * an object that exists may have no bit: it is new, or older than this index. The scrub adds it.
//!
//! Objects of files on an MDT have no bits.

use std::{
    collections::BTreeMap,
    io, iter,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use sheen_objects::name::{Dir, SUBDIRS};
use sheen_rt::{Disk, File, OpenOptions, Rt};
use sheen_wire::Fid;
use tracing::debug;

/// Directory of the index, in the OST's directory.
const DIR: &str = "durable";
/// Bytes that are written at a time. A page has the bits of 32,768 objects.
const PAGE: usize = 4096;
const BITS: u32 = 8 * PAGE as u32;
const _: () = assert!(BITS.is_multiple_of(SUBDIRS));
/// Most new objects that wait for a sync. Others get their bits from the scrub.
const RECENT_MAX: usize = 1 << 20;

/// The index of an OST.
pub struct DurableObjects {
    disk: Disk,
    dir: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    sequences: FxHashMap<u64, Sequence>,
    /// New objects since the last sync began.
    recent: FxHashSet<Fid>,
    /// Number of syncs in progress, and the objects that were removed meanwhile.
    syncs: usize,
    removed: FxHashSet<Fid>,
    /// Missing objects that were reported in the log.
    reported: FxHashSet<Fid>,
}

/// A sync in progress. Without [`Syncing::done`] it has failed.
pub struct Syncing<'a> {
    index: &'a DurableObjects,
    /// The objects that it makes durable.
    objects: FxHashSet<Fid>,
}

impl Syncing<'_> {
    /// Records that the sync is done.
    pub fn done(mut self) {
        let objects = std::mem::take(&mut self.objects);
        let mut state = self.index.state.lock();
        let failed = self.index.set(&mut state, objects);
        state.recent.extend(failed);
    }
}

impl Drop for Syncing<'_> {
    fn drop(&mut self) {
        let mut state = self.index.state.lock();
        let State { recent, removed, syncs, .. } = &mut *state;
        recent.extend(self.objects.drain().filter(|object| !removed.contains(object)));
        *syncs -= 1;
        if *syncs == 0 {
            removed.clear();
        }
    }
}

/// The bits of a sequence.
#[derive(Default)]
struct Sequence {
    /// Without pages of zeros.
    pages: BTreeMap<u32, Box<[u8; PAGE]>>,
    /// Open once it was written.
    file: Option<File>,
}

/// Returns page, byte and bit of an object.
fn place(object: Fid) -> (u32, usize, u8) {
    let at = object.oid % BITS;
    (object.oid / BITS, at as usize / 8, 1 << (at % 8))
}

/// Returns those objects of a directory, by id, whose bits are set in the page of this number.
fn oids_in(dir: Dir, number: u32, page: &[u8; PAGE]) -> Vec<u32> {
    let slots = (dir.slot..BITS).step_by(SUBDIRS as usize);
    slots.filter(|at| page[*at as usize / 8] & (1 << (*at % 8)) != 0).map(|at| number * BITS + at).collect()
}

/// Returns the ids of the objects whose bits are set in the page of this number.
fn oids_of(number: u32, page: &[u8; PAGE]) -> impl Iterator<Item = u32> {
    let bytes = page.iter().zip(0u32..).filter(|(byte, _)| **byte != 0);
    let bits = |(byte, at): (&u8, u32)| {
        let byte = *byte;
        (0..8u32).filter(move |bit| byte & (1 << *bit) != 0).map(move |bit| 8 * at + bit)
    };
    bytes.flat_map(bits).map(move |bit| number * BITS + bit)
}

impl State {
    fn has(&self, object: Fid) -> bool {
        let (page, byte, bit) = place(object);
        let page = self.sequences.get(&object.seq).and_then(|sequence| sequence.pages.get(&page));
        page.is_some_and(|page| page[byte] & bit != 0)
    }
}

impl DurableObjects {
    /// Reads the index in an OST's directory. An earlier release made none.
    ///
    /// # Errors
    /// Errors of the local file system.
    pub fn open(rt: &Rt, ost: &Path) -> io::Result<DurableObjects> {
        let (disk, dir) = (rt.disk(), ost.join(DIR));
        let mut state = State::default();
        let entries = match disk.read_dir(&dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            entries => entries?,
        };
        for entry in entries {
            let Some(seq) = entry.name.to_str().and_then(|name| u64::from_str_radix(name, 16).ok()) else { continue };
            let bytes = disk.read(dir.join(&entry.name))?;
            let pages = bytes.chunks(PAGE).zip(0u32..).filter(|(bytes, _)| bytes.iter().any(|byte| *byte != 0));
            let pages = pages.map(|(bytes, number)| {
                let mut page = Box::new([0; PAGE]);
                page[..bytes.len()].copy_from_slice(bytes);
                (number, page)
            });
            state.sequences.insert(seq, Sequence { pages: pages.collect(), file: None });
        }
        Ok(DurableObjects { disk, dir, state: Mutex::new(state) })
    }

    /// Whether an object was durable once, and was not removed since.
    pub fn has(&self, object: Fid) -> bool {
        object.ver == 0 && self.state.lock().has(object)
    }

    /// Records that an object exists.
    pub fn exists(&self, object: Fid) {
        let mut state = self.state.lock();
        if object.ver == 0 && !state.has(object) && state.recent.len() < RECENT_MAX {
            state.recent.insert(object);
        }
    }

    /// Records that an object is about to be removed.
    ///
    /// # Errors
    /// Errors of the local file system.
    pub fn remove(&self, object: Fid) -> io::Result<()> {
        let mut state = self.state.lock();
        state.recent.remove(&object);
        state.reported.remove(&object);
        if state.syncs > 0 {
            state.removed.insert(object);
        }
        if object.ver != 0 || !state.has(object) {
            return Ok(());
        }
        let (number, byte, bit) = place(object);
        let Some(Sequence { pages, file }) = state.sequences.get_mut(&object.seq) else { return Ok(()) };
        let Some(page) = pages.get_mut(&number) else { return Ok(()) };
        let without = page[byte] & !bit;
        let at = u64::from(number) * PAGE as u64 + byte as u64;
        self.file(object.seq, file)?.write_all_at(at, &[without])?;
        page[byte] = without;
        Ok(())
    }

    /// Begins a sync of everything.
    pub fn begin_sync(&self) -> Syncing<'_> {
        let mut state = self.state.lock();
        state.syncs += 1;
        Syncing { index: self, objects: std::mem::take(&mut state.recent) }
    }

    /// Sets the bits of these objects, except removed ones. Returns those whose bits could not be
    /// written.
    fn set(&self, state: &mut State, objects: FxHashSet<Fid>) -> FxHashSet<Fid> {
        let mut by_page: BTreeMap<(u64, u32), Vec<Fid>> = BTreeMap::new();
        for object in objects.into_iter().filter(|object| !state.removed.contains(object)) {
            by_page.entry((object.seq, place(object).0)).or_default().push(object);
        }
        let mut failed = FxHashSet::default();
        for ((seq, number), objects) in by_page {
            let Sequence { pages, file } = state.sequences.entry(seq).or_default();
            let page = pages.entry(number).or_insert_with(|| Box::new([0; PAGE]));
            let mut with = page.clone();
            for (_, byte, bit) in objects.iter().map(|object| place(*object)) {
                with[byte] |= bit;
            }
            let at = u64::from(number) * PAGE as u64;
            match self.file(seq, file).and_then(|file| file.write_all_at(at, &with[..])) {
                Ok(()) => *page = with,
                Err(e) => {
                    debug!("cannot write the index of durable objects: {e}");
                    failed.extend(objects);
                }
            }
        }
        failed
    }

    /// Returns whether the loss of an object is news, for the log.
    pub fn is_news(&self, object: Fid) -> bool {
        let mut state = self.state.lock();
        state.reported.len() < RECENT_MAX && state.reported.insert(object)
    }

    /// Records that a lost object exists again. Another loss of it is news.
    pub fn found(&self, object: Fid) {
        self.state.lock().reported.remove(&object);
    }

    /// Returns the sequences that may have bits, in ascending order.
    pub fn sequences(&self) -> Vec<u64> {
        let mut sequences: Vec<u64> = self.state.lock().sequences.keys().copied().collect();
        sequences.sort_unstable();
        sequences
    }

    /// Returns the objects of a directory that have a bit and follow `after` ([`Fid::ZERO`]: from
    /// the first on), in ascending order. Reads a page at a time, when it is needed.
    pub fn in_dir(&self, dir: Dir, after: Fid) -> impl Iterator<Item = Fid> {
        let first = self.page_from(dir.seq, after.oid / BITS);
        let pages = iter::successors(first, move |(number, _)| self.page_from(dir.seq, number + 1));
        let oids = pages.flat_map(move |(number, page)| oids_in(dir, number, &page));
        oids.filter(move |oid| *oid > after.oid).map(move |oid| Fid::new(dir.seq, oid))
    }

    /// Returns a copy of the first page of a sequence from this number on.
    fn page_from(&self, seq: u64, number: u32) -> Option<(u32, Box<[u8; PAGE]>)> {
        let state = self.state.lock();
        let (number, page) = state.sequences.get(&seq)?.pages.range(number..).next()?;
        Some((*number, page.clone()))
    }

    /// Returns at most `max` objects of a sequence that have a bit, with `first <= oid <= last`.
    pub fn in_range(&self, seq: u64, first: u32, last: u32, max: usize) -> Vec<Fid> {
        let state = self.state.lock();
        let Some(sequence) = state.sequences.get(&seq) else { return Vec::new() };
        let pages = sequence.pages.range(first / BITS..=last / BITS);
        let oids = pages.flat_map(|(number, page)| oids_of(*number, page));
        oids.filter(|oid| (first..=last).contains(oid)).map(|oid| Fid::new(seq, oid)).take(max).collect()
    }

    /// Makes the bits of a sequence durable as they are now.
    ///
    /// # Errors
    /// Errors of the local file system.
    pub async fn sync(&self, seq: u64) -> io::Result<()> {
        match self.disk.open(self.path(seq), OpenOptions::READ_WRITE) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            file => file?.sync_data().await,
        }
    }

    fn path(&self, seq: u64) -> PathBuf {
        self.dir.join(format!("{seq:x}"))
    }

    /// Returns the file of a sequence's bits.
    fn file<'a>(&self, seq: u64, known: &'a mut Option<File>) -> io::Result<&'a File> {
        if let Some(file) = known {
            return Ok(file);
        }
        let path = self.path(seq);
        let file = match self.disk.open(&path, OpenOptions::CREATE) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.disk.create_dir_all(&self.dir)?;
                self.disk.open(&path, OpenOptions::CREATE)?
            }
            file => file?,
        };
        Ok(known.insert(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheen_rt::sim::{Sim, SimConfig};

    #[test]
    fn objects_are_durable_after_a_sync_until_they_are_removed() {
        let rt = Sim::new(1, SimConfig::default()).rt(1);
        rt.disk().create_dir_all("/ost").unwrap();
        let open = || DurableObjects::open(&rt, Path::new("/ost")).unwrap();
        let object = |oid| Fid::new(0x2_8000_0401, oid);
        let all = [1, 7, 8, BITS - 1, BITS, 5 * BITS + 3].map(object);
        let index = open();
        all.iter().for_each(|object| index.exists(*object));
        assert!(!index.has(all[0]), "not yet");
        let failed = index.begin_sync();
        index.exists(object(2));
        drop(failed);
        assert!(!index.has(all[0]), "the sync failed");
        let sync = index.begin_sync();
        index.remove(object(2)).unwrap();
        index.exists(object(3));
        sync.done();
        for index in [index, open()] {
            assert!(all.iter().all(|object| index.has(*object)));
            assert!([0, 2, 3, 9, 6 * BITS].map(object).iter().all(|object| !index.has(*object)));
            assert!(!index.has(Fid::new(0x2_8000_0402, 1)));
            assert_eq!(index.sequences(), [0x2_8000_0401]);
            for dir in Dir::all(0x2_8000_0401) {
                let expected: Vec<Fid> = all.into_iter().filter(|object| Dir::of(*object) == dir).collect();
                let found: Vec<Fid> = index.in_dir(dir, Fid::ZERO).collect();
                assert_eq!(found, expected);
                let after = |object: &Fid| index.in_dir(dir, *object).collect::<Vec<Fid>>();
                assert!(found.iter().zip(1usize..).all(|(object, next)| after(object) == expected[next..]));
            }
            assert_eq!(index.in_range(all[0].seq, 7, 5 * BITS, 100), all[1..5]);
            assert_eq!(index.in_range(all[0].seq, 8, u32::MAX, 2), all[2..4]);
            assert!(index.in_range(all[0].seq + 1, 0, u32::MAX, 1).is_empty());
            index.remove(all[1]).unwrap();
            index.remove(all[5]).unwrap();
            assert_eq!(all.map(|object| index.has(object)), [true, false, true, true, true, false]);
            index.exists(all[1]);
            index.exists(all[5]);
            index.begin_sync().done();
        }
    }
}
