//! Data versions: as long as an object has the same version, it has the same bytes.
//!
//! A version that was reported to a client is recorded in an extended attribute of the object's
//! file, so that it outlives the OST's process. The first change after that removes the record. So
//! writes that follow each other cost nothing: nobody has asked for a version in between.
//!
//! Invariants:
//! * a version is never given twice, not even to different objects. Those of a later life of the
//!   OST are higher;
//! * while no change of the object is in progress, its record has its version. So a change whose
//!   object has a record that cannot be removed fails;
//! * a record counts only in the epoch of the OST's data in which it was made. After a power
//!   failure the file may have the bytes of another version. Then the object gets a new one;
//! * a record counts only for the name under which it was made, because the file may have a second
//!   name ([`super::link`]). An empty file has none;
//! * a local file system may support no extended attributes. So reported versions are also in
//!   memory, for up to [`REPORTED_MAX`] objects whose files are closed.
//!
//! Format of the record, in little endian: [`MAGIC`], the epoch (8 bytes), the name of the object
//! (8, 4 and 4 bytes), the version (8 bytes).

use std::{
    io,
    num::NonZeroUsize,
    sync::atomic::{
        AtomicBool, AtomicU8, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
};

use lru::LruCache;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
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

/// It is not known whether the file has a record: it was opened, and neither changed nor asked for,
/// or the record could not be read.
const UNREAD: u8 = 0;
const WITHOUT: u8 = 1;
const RECORDED: u8 = 2;
/// The file may have a record of an earlier version: removing it after a change failed.
const OUTDATED: u8 = 3;

/// The versions of an OST's objects.
pub struct Versions {
    /// The epoch of the OST's data.
    epoch: u64,
    /// The last version given.
    last: AtomicU64,
    /// Reported versions of objects that are not open. Accessed under the lock of the object's
    /// shard.
    reported: Mutex<LruCache<Fid, u64, FxBuildHasher>>,
}

/// The version of an open object.
pub struct ObjectVersion {
    /// Replaced at each change.
    number: AtomicU64,
    /// Whether a version has been reported to a client.
    reported: AtomicBool,
    /// Whether the file has a record.
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
            reported: Mutex::new(LruCache::with_hasher(REPORTED_MAX, FxBuildHasher)),
        }
    }

    fn next(&self) -> u64 {
        self.last.fetch_add(1, SeqCst) + 1
    }

    /// Returns the version of an object whose file was opened just now. `is_empty`: it has no
    /// bytes.
    pub fn opened(&self, object: Fid, is_empty: bool) -> ObjectVersion {
        let reported = self.reported.lock().pop(&object);
        ObjectVersion {
            number: AtomicU64::new(reported.unwrap_or_else(|| self.next())),
            reported: AtomicBool::new(reported.is_some()),
            record: AtomicU8::new(if is_empty { WITHOUT } else { UNREAD }),
            turn: Mutex::new(()),
        }
    }

    /// Remembers the version of an object that leaves the cache.
    pub fn closed(&self, object: Fid, version: &ObjectVersion) {
        if version.reported.load(SeqCst) {
            self.reported.lock().put(object, version.number());
        }
    }

    /// Drops the version of an object that is not open.
    pub fn forget(&self, object: Fid) {
        self.reported.lock().pop(&object);
    }

    /// Returns the version of an open object for a client, and records it.
    pub fn report(&self, object: Fid, version: &ObjectVersion, file: &File) -> u64 {
        version.reported.store(true, SeqCst);
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
        let number = version.number();
        if matches!(version.record.load(SeqCst), WITHOUT | OUTDATED) && self.record(object, number, file) {
            version.record.store(RECORDED, SeqCst);
            // A change that ended meanwhile has not seen the record.
            if version.number() != number {
                version.record.store(remove_outdated(object, file), SeqCst);
            }
        }
        number
    }

    /// Gives an open object a new version, after a change that [`ObjectVersion::begin_change`]
    /// announced.
    pub fn changed(&self, object: Fid, version: &ObjectVersion, file: &File) {
        version.number.store(self.next(), SeqCst);
        // It may have been recorded during the change.
        if version.begin_change(object, file).is_err() {
            version.record.store(OUTDATED, SeqCst);
        }
    }

    /// Gives an object a new version, after a change by a request that got the object before it
    /// left the cache. `open`: the version of its successor in the cache.
    pub fn changed_late(&self, object: Fid, open: Option<&ObjectVersion>, file: &File) {
        self.forget(object);
        match open {
            Some(open) => {
                let _turn = open.turn.lock();
                open.number.store(self.next(), SeqCst);
                open.record.store(remove_outdated(object, file), SeqCst);
            }
            None => {
                remove_outdated(object, file);
            }
        }
    }

    /// Reads the record. `None`: there is none that counts.
    fn recorded(&self, object: Fid, file: &File) -> io::Result<Option<u64>> {
        Ok(file.attr(NAME)?.and_then(|bytes| decode(self.epoch, object, &bytes)))
    }

    /// Records a version. Returns whether it did.
    fn record(&self, object: Fid, number: u64, file: &File) -> bool {
        if !file.len().is_ok_and(|len| len > 0) {
            return false;
        }
        let recorded = file.set_attr(NAME, &encode(self.epoch, object, number));
        recorded.inspect_err(|e| debug!("{object}: cannot record its data version: {e}")).is_ok()
    }
}

impl ObjectVersion {
    /// Returns the present version.
    pub fn number(&self) -> u64 {
        self.number.load(SeqCst)
    }

    /// Removes the record, if there is one, because bytes are going to change.
    ///
    /// # Errors
    /// The record cannot be removed, so the bytes must not change.
    pub fn begin_change(&self, object: Fid, file: &File) -> io::Result<()> {
        if self.record.load(SeqCst) == WITHOUT { Ok(()) } else { self.remove_record(object, file) }
    }

    #[cold]
    fn remove_record(&self, object: Fid, file: &File) -> io::Result<()> {
        let _turn = self.turn.lock();
        let may_have = match self.record.load(Relaxed) {
            UNREAD => !matches!(file.attr(NAME), Ok(None)),
            found => found != WITHOUT,
        };
        if may_have {
            remove_record(object, file)?;
        }
        self.record.store(WITHOUT, SeqCst);
        Ok(())
    }
}

fn remove_record(object: Fid, file: &File) -> io::Result<()> {
    file.remove_attr(NAME).inspect_err(|e| warn!("{object}: cannot remove its recorded data version: {e}"))
}

/// Removes the record of an earlier version. Returns what is known of the record then.
fn remove_outdated(object: Fid, file: &File) -> u8 {
    if remove_record(object, file).is_ok() { WITHOUT } else { OUTDATED }
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

    #[test]
    fn record_has_the_reported_version_until_a_change_begins() {
        let rt = Sim::new(1, SimConfig::default()).rt(1);
        rt.disk().create_dir_all("/ost").unwrap();
        let start = || Versions::new(&rt, &Epoch::open(&rt, Path::new("/ost")).unwrap());
        let file = rt.disk().open("/ost/object", OpenOptions::CREATE).unwrap();
        let has_record = || file.attr(NAME).unwrap().is_some();
        let versions = start();
        let open = versions.opened(OBJECT, true);
        versions.report(OBJECT, &open, &file);
        assert!(!has_record(), "of an empty file");
        file.write_all_at(0, b"x").unwrap();
        versions.changed(OBJECT, &open, &file);
        assert!(!has_record(), "it was not asked for since");
        let first = versions.report(OBJECT, &open, &file);
        assert!(has_record());

        let later = start();
        let open = later.opened(OBJECT, false);
        assert_eq!(later.report(OBJECT, &open, &file), first, "the process was killed");
        open.begin_change(OBJECT, &file).unwrap();
        assert!(!has_record());
        later.report(OBJECT, &open, &file);
        later.changed(OBJECT, &open, &file);
        assert!(!has_record(), "it was asked for during the change");
        assert!(later.report(OBJECT, &open, &file) > first);

        let unread = start();
        unread.opened(OBJECT, false).begin_change(OBJECT, &file).unwrap();
        assert!(!has_record(), "of an earlier life");
        let other = Fid { oid: 8, ..OBJECT };
        let last = unread.report(OBJECT, &unread.opened(OBJECT, false), &file);
        assert_ne!(unread.report(other, &unread.opened(other, false), &file), last, "under its second name");
    }

    #[test]
    fn change_fails_while_the_record_of_the_bytes_cannot_be_removed() {
        let sim = Sim::new(2, SimConfig::default());
        let (rt, other) = (sim.rt(1), sim.rt(2));
        for disk in [rt.disk(), other.disk()] {
            disk.create_dir_all("/ost").unwrap();
        }
        let start = || Versions::new(&rt, &Epoch::open(&rt, Path::new("/ost")).unwrap());
        let file = rt.disk().open("/ost/object", OpenOptions::CREATE).unwrap();
        file.write_all_at(0, b"x").unwrap();
        let has_record = || file.attr(NAME).unwrap().is_some();
        // Every operation on this file fails.
        let failing = other.disk().open("/ost/object", OpenOptions::CREATE).unwrap();
        sim.crash_host(2);
        assert!(failing.attr(NAME).is_err());
        let versions = start();
        let first = versions.report(OBJECT, &versions.opened(OBJECT, false), &file);

        let later = start();
        let open = later.opened(OBJECT, false);
        assert_ne!(later.report(OBJECT, &open, &failing), first, "the record cannot be read");
        assert!(open.begin_change(OBJECT, &failing).is_err());
        assert!(has_record());
        open.begin_change(OBJECT, &file).unwrap();
        assert!(!has_record());

        let during = later.report(OBJECT, &open, &file);
        later.changed(OBJECT, &open, &failing);
        assert!(open.begin_change(OBJECT, &failing).is_err());
        let last = later.report(OBJECT, &open, &file);
        assert_ne!(last, during);
        let restarted = start();
        assert_eq!(restarted.report(OBJECT, &restarted.opened(OBJECT, false), &file), last);
        later.changed(OBJECT, &open, &failing);
        open.begin_change(OBJECT, &file).unwrap();
        assert!(!has_record(), "the next change removes it");
    }
}
