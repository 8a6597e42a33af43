//! How the sums by owner ([`Accounting`]) follow the changes of objects.
//!
//! A request that opens an object for a change makes its charge known: the owner, and the bytes
//! that are counted for it. After the change, the bytes are counted again. Local file systems
//! reserve space for a file that grows, and release it later, or know the space of new bytes only
//! seconds later. So objects are counted again some time after their last change, and when they
//! leave the cache.
//!
//! Invariants:
//! * a charge becomes known or unknown under the lock of the object's shard. The lock of the charge
//!   comes after it, and before the locks of the sums;
//! * a request may hold an object that has left the cache. Its change is counted for the object
//!   that followed in the cache, or in the list of objects whose files were closed;
//! * objects of measurements are not counted.

use std::{
    io,
    sync::{
        Arc,
        atomic::Ordering::{Relaxed, SeqCst},
    },
};

use sheen_objects::OwnerRecord;
use sheen_rt::Metadata;
use sheen_wire::{Fid, echo, ost::Owned, quota::Owner};
use tracing::debug;

use super::{
    Files, Object, Shard,
    open_charge::{RECOUNTS, State},
};
use crate::store::accounting::{Accounting, Charge, bytes_of};

/// Whether space is charged for the object.
fn is_charged(object: Fid) -> bool {
    object.seq != echo::SEQ
}

impl Files {
    /// The sums by owner.
    pub fn accounting(&self) -> &Accounting {
        &self.accounting
    }

    /// Makes the charge of an object known that is opened for a change on behalf of `file`. The
    /// caller holds the lock of its shard. `found`: attributes of the file, if they were just read.
    pub(super) fn begin_charge(&self, object: &Object, file: Fid, found: Option<Metadata>) {
        let open = &object.charge;
        open.recounts.store(RECOUNTS, Relaxed);
        if open.is_known.load(Relaxed) {
            return;
        }
        let mut state = open.state.lock();
        if is_charged(object.fid) && matches!(*state, State::Unknown) {
            let Some(found) = found.or_else(|| object.file.metadata().ok()) else { return };
            let record = self.accounting.record(object.fid, file);
            let at_rest = || Charge { owner: record.owner, bytes: bytes_of(&found) };
            let charge = self.accounting.reopen(object.fid).unwrap_or_else(at_rest);
            self.accounting.add(object.fid, charge);
            if charge.owner.is_none() {
                self.accounting.note_unowned(object.fid, record.file);
            }
            *state = State::Known(charge);
        }
        open.is_known.store(true, Relaxed);
    }

    /// Counts an object again after a change.
    pub fn recount(&self, object: &Object) {
        object.charge.recounts.store(RECOUNTS, Relaxed);
        if self.recount_open(object).is_none() && object.evicted.load(SeqCst) {
            self.recount_late(object);
        }
    }

    /// Counts an open object again. `None`: its charge is not known.
    fn recount_open(&self, object: &Object) -> Option<()> {
        object.charge.with(|charge| self.recount_file(charge, object))
    }

    fn recount_file(&self, charge: &mut Charge, object: &Object) {
        if let Ok(found) = object.file.metadata() {
            object.charge.set_dense(&found);
            self.accounting.resize(object.fid, charge, bytes_of(&found));
        }
    }

    /// Counts a change by a request that got the object before the object left the cache.
    #[cold]
    fn recount_late(&self, object: &Object) {
        let shard = self.shard(object.fid);
        match shard.peek(&object.fid) {
            Some(open) => {
                self.begin_charge(open, Fid::ZERO, None);
                self.recount_open(open);
            }
            None => {
                self.accounting.with_closed(object.fid, |charge| self.recount_file(charge, object));
            }
        }
    }

    /// Ends the charge of an object that leaves the cache. The caller holds the lock of its shard.
    pub(super) fn close_charge(&self, object: &Object) {
        let Some(mut charge) = object.charge.replace(State::Detached) else { return };
        // At least once more: the local file system may release space at the close.
        let recounts = object.charge.recounts.swap(0, Relaxed).max(1);
        self.recount_file(&mut charge, object);
        self.accounting.close(object.fid, charge, recounts);
    }

    /// Takes an object out of the sums whose file is about to be removed. `open`: the object in the
    /// cache, which the caller has removed from it. The caller holds the lock of the shard.
    pub(super) fn end_charge(&self, object: Fid, open: Option<&Object>) {
        let known = open.and_then(|open| open.charge.replace(State::Detached));
        self.take_charge(object, known);
    }

    /// Takes an object out of the sums. `known`: its charge, if it was open.
    fn take_charge(&self, object: Fid, known: Option<Charge>) {
        let known = self.accounting.reopen(object).or(known);
        if !self.accounting.uncount(object) {
            return;
        }
        let at_rest = || {
            let bytes = self.disk.metadata(self.path(object)).map_or(0, |found| bytes_of(&found));
            Charge { owner: self.accounting.record(object, Fid::ZERO).owner, bytes }
        };
        self.accounting.subtract(object, known.unwrap_or_else(at_rest));
    }

    /// Forgets the owner of an object whose file was removed (`is_removed`), or counts the object
    /// again if it could not be removed. The caller holds the lock of its shard.
    pub(super) fn end_owner(&self, object: Fid, is_removed: bool) {
        if !is_charged(object) {
            return;
        }
        if !is_removed {
            self.count_locked(object, false);
            return;
        }
        self.accounting.not_unowned(object);
        if let Err(e) = self.accounting.index().clear(object) {
            debug!("cannot clear the owner of the destroyed object {object}: {e}");
        }
    }

    /// Forgets the owners of all objects of a range, also of those that do not exist. Durable when
    /// it returns.
    ///
    /// # Errors
    /// Errors of the local file system.
    pub async fn clear_owners(&self, seq: u64, first: u32, last: u32) -> io::Result<()> {
        self.accounting.index().clear_range(seq, first, last)?;
        self.accounting.index().sync(std::iter::once(Fid::new(seq, first))).await
    }

    /// Takes an object out of the sums that is about to get a second name, under which it
    /// continues.
    pub fn begin_move(&self, object: Fid) {
        let shard = self.shard(object);
        let known = shard.peek(&object).and_then(|open| open.charge.replace(State::Unknown));
        self.take_charge(object, known);
    }

    /// Counts an object under its new name, with the owner of the old one. The caller holds the
    /// lock of the new name's shard.
    pub(super) fn end_move(&self, object: Fid, new: Fid) {
        let (old, mut record) = (self.accounting.record(object, Fid::ZERO), self.accounting.record(new, Fid::ZERO));
        if record.owner.is_none() {
            record = old;
            if let Err(e) = self.accounting.index().write(new, &record) {
                debug!("cannot write the owner of object {new}: {e}");
            }
        }
        self.count_locked(new, false);
    }

    /// Counts an object, unless it is counted. `again`: also looks whether the owner of a counted
    /// object is known.
    pub fn count(&self, object: Fid, again: bool) {
        let _shard = self.shard(object);
        self.count_locked(object, again);
    }

    /// As [`Files::count`]. The caller holds the lock of the object's shard.
    pub(super) fn count_locked(&self, object: Fid, again: bool) {
        let is_counted = self.accounting.is_counted(object);
        if !is_charged(object) || (is_counted && !again) {
            return;
        }
        let found = match self.disk.metadata(self.path(object)) {
            Ok(found) => found,
            Err(e) => {
                if e.kind() != io::ErrorKind::NotFound {
                    debug!("cannot count the space of object {object}: {e}");
                }
                return;
            }
        };
        let record = self.accounting.record(object, Fid::ZERO);
        if !is_counted {
            self.accounting.add(object, Charge { owner: record.owner, bytes: bytes_of(&found) });
        }
        if record.owner.is_none() {
            self.accounting.note_unowned(object, record.file);
        }
    }

    /// Counts an object in the second count of all objects
    /// ([`Recount`](sheen_objects::Recount)), and in the sums, unless it is counted there.
    ///
    /// # Errors
    /// Errors of the local file system: the second count lacks the object.
    pub fn count_again(&self, object: Fid) -> io::Result<()> {
        let shard = self.shard(object);
        self.count_locked(object, false);
        if !self.accounting.is_counted(object) {
            return Ok(());
        }
        let count = |charge: &mut Charge| self.accounting.recount(object, charge);
        if shard.peek(&object).and_then(|open| open.charge.with(count)).is_some()
            || self.accounting.with_closed(object, count).is_some()
        {
            return Ok(());
        }
        match self.disk.metadata(self.path(object)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            found => {
                let (bytes, owner) = (bytes_of(&found?), self.accounting.index().read(object)?.owner);
                count(&mut Charge { owner, bytes });
            }
        }
        Ok(())
    }

    /// Sets file and owner of an object, which need not exist. Durable after a sync of the index.
    /// `only_unowned`: unless it has one.
    ///
    /// # Errors
    /// Errors of the local file system.
    pub fn set_owner(&self, owned: &Owned, only_unowned: bool) -> io::Result<()> {
        let Owned { object, file, owner } = *owned;
        let shard = self.shard(object);
        if self.destroyed.lock().contains(&object) {
            return Ok(());
        }
        let before = self.accounting.index().read(object)?;
        if only_unowned && before.owner.is_some() {
            self.accounting.not_unowned(object);
            return Ok(());
        }
        let file = if file.is_zero() { before.file } else { file };
        let record = OwnerRecord { file, owner: Some(owner) };
        if record != before {
            self.accounting.index().write(object, &record)?;
        }
        self.accounting.not_unowned(object);
        self.give(&shard, object, before.owner, owner);
        Ok(())
    }

    /// Charges another owner for an object.
    fn give(&self, shard: &Shard, object: Fid, before: Option<Owner>, owner: Owner) {
        let give = |charge: &mut Charge| self.accounting.give(object, charge, owner);
        if shard.peek(&object).and_then(|open| open.charge.with(give)).is_some()
            || self.accounting.with_closed(object, give).is_some()
            || !self.accounting.is_counted(object)
        {
            return;
        }
        let bytes = self.disk.metadata(self.path(object)).map_or(0, |found| bytes_of(&found));
        give(&mut Charge { owner: before, bytes });
    }

    /// Whether the owner of an object, which need not exist, is unknown and will become known. Then
    /// asks the MDT for it.
    pub fn awaits_owner(&self, object: Fid, file: Fid) -> bool {
        let awaits = is_charged(object) && self.owner(object).is_none();
        if awaits {
            self.accounting.want_owner(object, file);
        }
        awaits
    }

    /// Whether a write up to `end` takes no space for certain: an open object has no hole before.
    /// False if that is not known.
    pub fn is_overwrite(&self, object: Fid, end: u64) -> bool {
        self.shard(object).peek(&object).is_some_and(|open| open.charge.is_dense_to(end))
    }

    /// Returns the owner of an object, which need not exist. `None`: unknown.
    pub fn owner(&self, object: Fid) -> Option<Owner> {
        let shard = self.shard(object);
        let open = shard.peek(&object).and_then(|open| open.charge.with(|charge| charge.owner));
        let known = open.or_else(|| self.accounting.with_closed(object, |charge| charge.owner));
        known.unwrap_or_else(|| self.accounting.index().read(object).ok()?.owner)
    }

    /// Returns the owner in the record of an object, which need not exist. `None`: unknown, or not
    /// readable.
    pub fn recorded_owner(&self, object: Fid) -> Option<Owner> {
        let _shard = self.shard(object);
        self.accounting.record(object, Fid::ZERO).owner
    }

    /// Counts the objects again that have changed lately.
    pub fn recount_changed(&self) {
        for shard in &self.shards {
            let shard = shard.lock();
            let changed: Vec<Arc<Object>> =
                shard.iter().filter(|(_, open)| open.charge.take_recount()).map(|(_, open)| open.clone()).collect();
            drop(shard);
            changed.iter().for_each(|open| _ = self.recount_open(open));
        }
        for object in self.accounting.closed() {
            let _shard = self.shard(object);
            let found = self.disk.metadata(self.path(object)).ok();
            self.accounting.recount_closed(object, found.map(|found| bytes_of(&found)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sheen_rt::sim::{Sim, SimConfig};
    use sheen_wire::{
        Time,
        quota::{Id, Kind},
    };

    use super::*;
    use crate::store::{durable::DurableObjects, epoch::Epoch, versions::Versions};

    #[test]
    fn change_through_an_evicted_object_is_counted() {
        let rt = Sim::new(1, SimConfig::default()).rt(1);
        rt.disk().create_dir_all("/ost/O").unwrap();
        let durable = DurableObjects::open(&rt, Path::new("/ost")).unwrap();
        let versions = Versions::new(&rt, &Epoch::open(&rt, Path::new("/ost")).unwrap());
        let files = Files::new(&rt, Path::new("/ost"), 64, durable, versions, Arc::default());
        let fid = |oid| Fid::new(0x2_8000_0401, oid);
        let fill = || (2..2000).for_each(|oid| drop(files.create(fid(oid), Fid::ZERO).unwrap()));
        let used = || files.accounting().uses(Id { kind: Kind::User, id: 5 }, 1).0.first().map(|used| used.1.bytes);
        let write = |object: &Object, offset| {
            let claim = object.begin_change(offset, 1).unwrap();
            object.file.write_all_at(offset, b"x").unwrap();
            files.changed(object, Time::default(), None);
            object.sums().end(claim, []);
        };
        let owner = Owner { uid: 5, ..Owner::default() };
        files.set_owner(&Owned { object: fid(1), file: Fid::ZERO, owner }, false).unwrap();
        let held = files.create(fid(1), Fid::ZERO).unwrap();
        write(&held, 0);
        fill();
        write(&held, 4096);
        assert_eq!(used(), Some(2 * 4096), "closed");
        let open = files.existing(fid(1)).unwrap().unwrap();
        write(&held, 8192);
        assert_eq!(used(), Some(3 * 4096), "open for reading");
        write(&open, 12_288);
        write(&held, 16_384);
        assert_eq!(used(), Some(5 * 4096), "both");
        fill();
        (0..4).for_each(|_| files.recount_changed());
        drop((held, open));
        assert!(files.accounting().closed().is_empty());
        let open = files.create(fid(1), Fid::ZERO).unwrap();
        write(&open, 20_480);
        assert_eq!(used(), Some(6 * 4096), "at rest meanwhile");
        files.destroy(fid(1)).unwrap();
        write(&open, 24_576);
        assert!(used().is_none_or(|bytes| bytes == 0), "destroyed");
    }
}
