//! Data versions: as long as an object has the same version, it has the same bytes. This holds over
//! all lives of the OST, however they end.
//!
//! A version that was reported to a client is recorded in an extended attribute of the object's
//! file, so that it outlives the OST's process. The first change after that removes the record. So
//! writes that follow each other cost nothing: nobody has asked for a version in between.
//!
//! Invariants:
//! * a version is never given twice, not even to different objects. The high bits have the number
//!   of the OST's life, which is durable before the OST serves ([`super::epoch`]). So versions of a
//!   later life are higher;
//! * a change gives the object a new version. While a change is in progress, each report is a new
//!   version that the object does not have afterwards;
//! * while a change is in progress, the file has no record: the process may be killed in the middle
//!   of the change. So a change whose object has a record that cannot be removed fails;
//! * a record counts only in the epoch of the OST's data in which it was made. After a power
//!   failure the file may have the bytes of another version. Then the object gets a new one;
//! * a record counts only for the name under which it was made, because the file may have a second
//!   name ([`super::link`]). An empty file has none;
//! * a local file system may support no extended attributes. So reported versions are also in
//!   memory, for up to [`REPORTED_MAX`] objects whose files are closed;
//! * an open object has one [`ObjectVersion`]. Requests may use an object after it left the cache.
//!   It is shared with the object that follows it in the cache.
//!
//! A version can be replaced although nothing changed. Then a program does its work once more, and
//! misses no change. That happens after a failure of the host, and where there are no records.
//!
//! Format of the record, in little endian: [`MAGIC`], the epoch (8 bytes), the name of the object
//! (8, 4 and 4 bytes), the version (8 bytes).

use std::{
    io,
    num::NonZeroUsize,
    sync::{
        Arc, Weak,
        atomic::{
            AtomicBool, AtomicU8, AtomicU32, AtomicU64,
            Ordering::{Acquire, Relaxed, SeqCst},
            fence,
        },
    },
};

use lru::LruCache;
use parking_lot::Mutex;
use rustc_hash::{FxBuildHasher, FxHashMap};
use sheen_rt::{File, Rt};
use sheen_wire::Fid;
use tracing::{debug, warn};

use super::epoch::{Epoch, LIFE_SHIFT};

/// Name of the extended attribute.
const NAME: &str = "user.sheen.version";
const MAGIC: &[u8; 8] = b"SHVERS01";
const HEADER_BYTES: usize = 32;
/// Number of reported versions that are remembered after the object's file was closed: some 4 MiB.
const REPORTED_MAX: NonZeroUsize = NonZeroUsize::MIN.saturating_add(65_536 - 1);

/// Number of [`Closed::in_use`] below which entries without a request remain.
const SWEEP_MIN: usize = 64;

/// It is not known whether the file has a record: it was opened, and neither changed nor asked for,
/// or the record could not be read or written.
const UNREAD: u8 = 0;
const WITHOUT: u8 = 1;
/// It has one, or is about to get one.
const RECORDED: u8 = 2;

/// The versions of an OST's objects.
pub struct Versions {
    /// The epoch of the OST's data.
    epoch: u64,
    /// The last version given.
    last: AtomicU64,
    /// Accessed under the lock of the object's shard.
    closed: Mutex<Closed>,
}

/// The versions of objects that left the cache.
struct Closed {
    /// Reported versions of objects that no request used then.
    reported: LruCache<Fid, u64, FxBuildHasher>,
    /// The versions of the others. An entry counts as long as requests use the version.
    in_use: FxHashMap<Fid, Weak<ObjectVersion>>,
    /// Number of `in_use` from which entries that do not count are removed: twice as many as
    /// counted at the last time. So each addition costs the same on average.
    sweep_at: usize,
}

impl Closed {
    fn add_in_use(&mut self, object: Fid, version: &Arc<ObjectVersion>) {
        if self.in_use.len() >= self.sweep_at {
            self.in_use.retain(|_, version| version.strong_count() > 0);
            self.sweep_at = (2 * self.in_use.len()).max(SWEEP_MIN);
        }
        self.in_use.insert(object, Arc::downgrade(version));
    }
}

/// The version of an open object.
pub struct ObjectVersion {
    /// Replaced at the end of each change.
    number: AtomicU64,
    /// Number of changes in progress.
    changing: AtomicU32,
    /// Whether a version has been reported to a client.
    reported: AtomicBool,
    /// Whether the file has a record: `UNREAD`, `WITHOUT` or `RECORDED`.
    record: AtomicU8,
    /// Held while the record is read or changed.
    turn: Mutex<()>,
}

impl Versions {
    /// Creates the versions of an OST that starts.
    pub fn new(rt: &Rt, epoch: &Epoch) -> Versions {
        // Random, because a copy of the directory that is restored begins an earlier life again.
        // Half of the numbers of this life remain.
        let random = rt.random_u64() >> (u64::BITS - LIFE_SHIFT + 1);
        Versions {
            epoch: epoch.number(),
            last: AtomicU64::new(epoch.first_transno() | random),
            closed: Mutex::new(Closed {
                reported: LruCache::with_hasher(REPORTED_MAX, FxBuildHasher),
                in_use: FxHashMap::default(),
                sweep_at: SWEEP_MIN,
            }),
        }
    }

    fn next(&self) -> u64 {
        self.last.fetch_add(1, SeqCst) + 1
    }

    /// Returns the version of an object whose file was opened just now. `is_empty`: it has no
    /// bytes.
    pub fn opened(&self, object: Fid, is_empty: bool) -> Arc<ObjectVersion> {
        let mut closed = self.closed.lock();
        if let Some(in_use) = closed.in_use.remove(&object).and_then(|version| version.upgrade()) {
            return in_use;
        }
        let reported = closed.reported.pop(&object);
        Arc::new(ObjectVersion {
            number: AtomicU64::new(reported.unwrap_or_else(|| self.next())),
            changing: AtomicU32::new(0),
            reported: AtomicBool::new(reported.is_some()),
            record: AtomicU8::new(if is_empty { WITHOUT } else { UNREAD }),
            turn: Mutex::new(()),
        })
    }

    /// Remembers the version of an object that leaves the cache. `is_used`: requests use the
    /// object. The caller holds the lock of its shard, so no other request gets the version
    /// meanwhile.
    pub fn closed(&self, object: Fid, version: &Arc<ObjectVersion>, is_used: bool) {
        if is_used || Arc::strong_count(version) > 1 {
            self.closed.lock().add_in_use(object, version);
            return;
        }
        fence(Acquire); // after the changes of the request that used it last
        if version.reported.load(SeqCst) {
            self.closed.lock().reported.put(object, version.number());
        }
    }

    /// Drops the version of an object that is not open: its name is free for another file.
    pub fn forget(&self, object: Fid) {
        let mut closed = self.closed.lock();
        closed.reported.pop(&object);
        closed.in_use.remove(&object);
    }

    /// Returns the version of an open object for a client, and records it. While a change is in
    /// progress, returns a version that nobody else gets.
    pub fn report(&self, object: Fid, version: &ObjectVersion, file: &File) -> u64 {
        let _turn = version.turn.lock();
        if version.record.load(SeqCst) == UNREAD {
            match self.recorded(object, file) {
                Ok(Some(number)) => {
                    version.number.store(number, SeqCst);
                    version.record.store(RECORDED, SeqCst);
                }
                Ok(None) => version.record.store(WITHOUT, SeqCst),
                // The file may have one, which the next change must remove.
                Err(e) => debug!("{object}: cannot read its data version: {e}"),
            }
        }
        if version.record.load(SeqCst) == WITHOUT {
            // Either this sees a change, or the change sees this, and waits for the turn.
            version.record.store(RECORDED, SeqCst);
            if version.changing.load(SeqCst) > 0 {
                version.record.store(WITHOUT, SeqCst);
                return self.next();
            }
            version.record.store(self.record(object, version.number(), file), SeqCst);
        }
        version.reported.store(true, SeqCst);
        version.number()
    }

    /// Ends a change that [`ObjectVersion::begin_change`] announced: gives the object a new
    /// version. Called also if the change failed, because it may have been done in part.
    pub fn changed(&self, version: &ObjectVersion) {
        version.number.store(self.next(), SeqCst);
        version.changing.fetch_sub(1, SeqCst);
    }

    /// Reads the record. `None`: there is none that counts.
    fn recorded(&self, object: Fid, file: &File) -> io::Result<Option<u64>> {
        Ok(file.attr(NAME)?.and_then(|bytes| decode(self.epoch, object, &bytes)))
    }

    /// Records a version. Returns whether the file has a record then.
    fn record(&self, object: Fid, number: u64, file: &File) -> u8 {
        if !file.len().is_ok_and(|len| len > 0) {
            return WITHOUT;
        }
        match file.set_attr(NAME, &encode(self.epoch, object, number)) {
            Ok(()) => RECORDED,
            Err(e) => {
                debug!("{object}: cannot record its data version: {e}");
                UNREAD
            }
        }
    }
}

impl ObjectVersion {
    /// Returns the present version.
    pub fn number(&self) -> u64 {
        self.number.load(SeqCst)
    }

    /// Announces that bytes are going to change, and removes the record, if there is one.
    /// [`Versions::changed`] ends the change.
    ///
    /// # Errors
    /// The record cannot be removed, so the bytes must not change. No change was announced then.
    pub fn begin_change(&self, object: Fid, file: &File) -> io::Result<()> {
        self.changing.fetch_add(1, SeqCst);
        if self.record.load(SeqCst) == WITHOUT {
            return Ok(());
        }
        self.remove_record(object, file).inspect_err(|_| _ = self.changing.fetch_sub(1, SeqCst))
    }

    #[cold]
    fn remove_record(&self, object: Fid, file: &File) -> io::Result<()> {
        let _turn = self.turn.lock();
        let may_have = match self.record.load(Relaxed) {
            UNREAD => !matches!(file.attr(NAME), Ok(None)),
            found => found != WITHOUT,
        };
        if may_have {
            file.remove_attr(NAME).inspect_err(|e| warn!("{object}: cannot remove its recorded data version: {e}"))?;
        }
        self.record.store(WITHOUT, SeqCst);
        Ok(())
    }
}

fn header(epoch: u64, object: Fid) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..16].copy_from_slice(&epoch.to_le_bytes());
    header[16..24].copy_from_slice(&object.seq.to_le_bytes());
    header[24..28].copy_from_slice(&object.oid.to_le_bytes());
    header[28..].copy_from_slice(&object.ver.to_le_bytes());
    header
}

fn encode(epoch: u64, object: Fid, number: u64) -> Vec<u8> {
    [&header(epoch, object)[..], &number.to_le_bytes()].concat()
}

/// Returns the version in a record. `None`: it is of another epoch or name, or damaged.
fn decode(epoch: u64, object: Fid, bytes: &[u8]) -> Option<u64> {
    let (found, number) = bytes.split_last_chunk::<8>()?;
    (found == header(epoch, object)).then(|| u64::from_le_bytes(*number))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sheen_rt::{
        OpenOptions,
        sim::{Sim, SimConfig},
    };

    use super::*;

    const OBJECT: Fid = Fid { seq: 0x2_8000_0401, oid: 9, ver: 1 };

    #[test]
    fn record_has_the_format_of_the_last_release() {
        let record = encode(0x1122_3344_5566_7788, OBJECT, 0x0102_0304_0506_0708);
        let expected = [
            &b"SHVERS01"[..],
            &[0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11],
            &[0x01, 0x04, 0x00, 0x80, 0x02, 0, 0, 0],
            &[9, 0, 0, 0, 1, 0, 0, 0],
            &[8, 7, 6, 5, 4, 3, 2, 1],
        ];
        assert_eq!(record, expected.concat());
        assert_eq!(decode(0x1122_3344_5566_7788, OBJECT, &record), Some(0x0102_0304_0506_0708));
        assert_eq!(decode(1, OBJECT, &record), None, "another epoch");
        assert_eq!(decode(0x1122_3344_5566_7788, Fid { oid: 8, ..OBJECT }, &record), None, "another name");
        assert_eq!(decode(0x1122_3344_5566_7788, OBJECT, &record[1..]), None);
    }

    /// A host with the directory of an OST.
    fn host(sim: &Sim, id: u32) -> Rt {
        let rt = sim.rt(id);
        rt.disk().create_dir_all("/ost").unwrap();
        rt
    }

    /// Starts the OST, whose process was killed before.
    fn start(rt: &Rt) -> Versions {
        Versions::new(rt, &Epoch::open(rt, Path::new("/ost")).unwrap())
    }

    fn create(rt: &Rt) -> File {
        rt.disk().open("/ost/object", OpenOptions::CREATE).unwrap()
    }

    fn has_record(file: &File) -> bool {
        file.attr(NAME).unwrap().is_some()
    }

    fn change(versions: &Versions, version: &ObjectVersion, file: &File) {
        version.begin_change(OBJECT, file).unwrap();
        file.write_all_at(0, b"x").unwrap();
        versions.changed(version);
    }

    #[test]
    fn record_has_the_reported_version_until_a_change_begins() {
        let rt = host(&Sim::new(1, SimConfig::default()), 1);
        let (versions, file) = (start(&rt), create(&rt));
        let open = versions.opened(OBJECT, true);
        versions.report(OBJECT, &open, &file);
        assert!(!has_record(&file), "of an empty file");
        change(&versions, &open, &file);
        assert!(!has_record(&file), "it was not asked for since");
        let first = versions.report(OBJECT, &open, &file);
        assert!(has_record(&file));

        let later = start(&rt);
        let open = later.opened(OBJECT, false);
        assert_eq!(later.report(OBJECT, &open, &file), first, "the process was killed");
        open.begin_change(OBJECT, &file).unwrap();
        assert!(!has_record(&file));
        later.changed(&open);
        assert!(later.report(OBJECT, &open, &file) > first && has_record(&file));

        let unread = start(&rt);
        unread.opened(OBJECT, false).begin_change(OBJECT, &file).unwrap();
        assert!(!has_record(&file), "of an earlier life");
        let other = Fid { oid: 8, ..OBJECT };
        let last = unread.report(OBJECT, &unread.opened(OBJECT, false), &file);
        assert_ne!(unread.report(other, &unread.opened(other, false), &file), last, "under its second name");
    }

    #[test]
    fn version_reported_during_a_change_is_never_reported_again() {
        let rt = host(&Sim::new(1, SimConfig::default()), 1);
        let (versions, file) = (start(&rt), create(&rt));
        let open = versions.opened(OBJECT, true);
        change(&versions, &open, &file);
        let report = || versions.report(OBJECT, &open, &file);
        let mut reported = vec![report()];
        open.begin_change(OBJECT, &file).unwrap();
        open.begin_change(OBJECT, &file).unwrap();
        reported.extend([report(), report()]);
        versions.changed(&open);
        reported.push(report());
        assert!(!has_record(&file), "the process may be killed in the middle of the second change");
        let killed = start(&rt);
        reported.push(killed.report(OBJECT, &killed.opened(OBJECT, false), &file));
        open.begin_change(OBJECT, &file).unwrap();
        versions.changed(&open);
        versions.changed(&open);
        reported.push(report());
        assert_eq!(report(), reported[5], "all changes have ended");
        reported.sort_unstable();
        reported.dedup();
        assert_eq!(reported.len(), 6);
    }

    #[test]
    fn object_that_leaves_the_cache_during_a_change_shares_its_version_with_its_successor() {
        let rt = host(&Sim::new(1, SimConfig::default()), 1);
        let (versions, file) = (start(&rt), create(&rt));
        let held = versions.opened(OBJECT, true);
        change(&versions, &held, &file);
        let first = versions.report(OBJECT, &held, &file);
        held.begin_change(OBJECT, &file).unwrap();
        versions.closed(OBJECT, &held, true);
        let next = versions.opened(OBJECT, false);
        let during = versions.report(OBJECT, &next, &file);
        versions.closed(OBJECT, &next, false);
        drop(next);
        versions.changed(&held);
        let next = versions.opened(OBJECT, false);
        let last = versions.report(OBJECT, &next, &file);
        assert!(first != during && during != last && first != last);
        drop(held);
        versions.closed(OBJECT, &next, false);
        file.remove_attr(NAME).unwrap();
        let again = versions.opened(OBJECT, false);
        assert_eq!(versions.report(OBJECT, &again, &file), last, "without extended attributes");
        versions.closed(OBJECT, &again, true);
        versions.forget(OBJECT);
        assert!(!Arc::ptr_eq(&again, &versions.opened(OBJECT, false)), "another file of the same name");
    }

    #[test]
    fn versions_of_closed_objects_are_remembered_while_requests_use_them() {
        let rt = host(&Sim::new(1, SimConfig::default()), 1);
        let versions = start(&rt);
        let object = |oid| Fid { oid, ..OBJECT };
        let count = || versions.closed.lock().in_use.len();
        let held: Vec<_> = (0..100).map(|oid| versions.opened(object(oid), true)).collect();
        held.iter().zip(0..).for_each(|(open, oid)| versions.closed(object(oid), open, true));
        for oid in 1000..9000 {
            versions.closed(object(oid), &versions.opened(object(oid), true), true);
            assert!(count() <= 2 * held.len(), "{}", count());
        }
        for (open, oid) in held.iter().zip(0..) {
            assert!(Arc::ptr_eq(open, &versions.opened(object(oid), true)), "{oid}");
        }
        let before = count();
        let unused = versions.opened(object(9000), true);
        versions.closed(object(9000), &unused, false);
        assert_eq!((count(), versions.closed.lock().reported.len()), (before, 0), "nobody knows its version");
    }

    #[test]
    fn change_fails_while_the_record_of_the_bytes_cannot_be_removed() {
        let sim = Sim::new(2, SimConfig::default());
        let (rt, other) = (host(&sim, 1), host(&sim, 2));
        let file = create(&rt);
        // Every operation on this file fails.
        let failing = create(&other);
        sim.crash_host(2);
        assert!(failing.attr(NAME).is_err());
        let versions = start(&rt);
        let open = versions.opened(OBJECT, true);
        change(&versions, &open, &file);
        let first = versions.report(OBJECT, &open, &file);

        let later = start(&rt);
        let open = later.opened(OBJECT, false);
        assert_ne!(later.report(OBJECT, &open, &failing), first, "the record cannot be read");
        assert!(open.begin_change(OBJECT, &failing).is_err());
        assert!(has_record(&file));
        assert_eq!(later.report(OBJECT, &open, &file), first, "nothing has changed");
        assert!(open.begin_change(OBJECT, &failing).is_err());
        assert_eq!(later.report(OBJECT, &open, &file), first);
        change(&later, &open, &file);
        assert!(!has_record(&file));
        let last = later.report(OBJECT, &open, &file);
        assert_ne!(last, first);
        let restarted = start(&rt);
        assert_eq!(restarted.report(OBJECT, &restarted.opened(OBJECT, false), &file), last);
    }

    #[test]
    fn version_of_before_a_power_failure_is_never_reported_again() {
        let sim = Sim::new(3, SimConfig::default());
        let mut reported = Vec::new();
        for life in 0..10 {
            let rt = host(&sim, 1);
            let (versions, file) = (start(&rt), create(&rt));
            let open = versions.opened(OBJECT, false);
            for _ in 0..life {
                reported.push(versions.report(OBJECT, &open, &file));
                change(&versions, &open, &file);
            }
            reported.push(versions.report(OBJECT, &open, &file));
            sim.crash_host(1);
        }
        assert!(reported.is_sorted_by(|a, b| a < b), "{reported:x?}");
    }
}
