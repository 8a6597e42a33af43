//! Changes that this client has not synced: enough information to report at a sync that they may be
//! lost.
//!
//! With each change and each sync, an OST returns the epoch of its data. If a change was not synced
//! in its epoch, it may be lost in the next one, because the page cache of the OST's host was lost.
//! So for each file and OST, the epoch of the first change since the last sync is
//! stored. If a sync returns another epoch, not all changes are durable, and the sync fails with
//! EIO. The error is reported once; afterwards the file starts anew.
//!
//! A restarted OST gets the changes back that this client has retained (`lov::replay`). Then they
//! count as changes of the present epoch ([`Unsynced::survived`]).
//!
//! Invariants:
//! * a change is recorded before its caller returns;
//! * a sync removes only changes that were made before its request was sent;
//! * epochs are never reused.
//!
//! Bounds: beyond [`UNSYNCED_MAX`] notes, the files changed longest ago are dropped, and their
//! losses are not reported. A note takes some 100 bytes.

use std::{collections::BTreeMap, num::NonZeroUsize};

use lru::LruCache;
use parking_lot::Mutex;
use rustc_hash::{FxBuildHasher, FxHashSet};
use sheen_wire::{Errno, Fid, Result};

/// Maximum number of notes, each for one file on one OST.
pub const UNSYNCED_MAX: NonZeroUsize = NonZeroUsize::new(65_536).unwrap();

/// Maximum number of earlier epochs of an OST that are known to have survived.
const EPOCHS_MAX: usize = 16;

/// An answered change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Changed {
    /// Epoch of the OST's data in which it was made.
    pub epoch: u64,
    /// Its transno. 0: this client does not retain it.
    pub transno: u64,
}

/// The changes of earlier epochs that a restarted OST has, of those that this client made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Survival {
    /// The present epoch.
    pub epoch: u64,
    /// The earlier ones.
    pub lost: Vec<u64>,
    /// Changes up to this transno are durable.
    pub committed: u64,
    /// Those of the others up to this transno were not retained, or some of them.
    pub dropped: u64,
    /// Transnos of changes whose replay failed.
    pub failed: Vec<u64>,
}

/// The notes on unsynced changes.
pub struct Unsynced(Mutex<State>);

struct State {
    notes: LruCache<(Fid, u32), Note, FxBuildHasher>,
    /// Number of changes recorded so far.
    changes: u64,
    /// The changes that survived the last restart of each OST.
    survived: BTreeMap<u32, Survived>,
}

/// Epochs of an OST whose changes are in the present one, except for some files.
#[derive(Default)]
struct Survived {
    epoch: u64,
    earlier: Vec<u64>,
    except: FxHashSet<Fid>,
}

/// The unsynced changes of one file on one OST.
struct Note {
    /// Epoch of the first change.
    epoch: u64,
    /// Lowest and highest transno of the changes.
    transnos: (u64, u64),
    /// Whether this client retains all of them until they are durable.
    is_retained: bool,
    /// Numbers of the first and the last change.
    first: u64,
    change: u64,
    /// Epoch in which a sync of all files reported the loss of these changes.
    reported_all: Option<u64>,
}

/// The unsynced changes at the start of a sync.
#[derive(Clone, Copy)]
pub struct Before {
    epoch: u64,
    change: u64,
}

impl Unsynced {
    /// Creates an empty record.
    pub fn new() -> Unsynced {
        Unsynced::bounded(UNSYNCED_MAX)
    }

    fn bounded(max: NonZeroUsize) -> Unsynced {
        Unsynced(Mutex::new(State {
            notes: LruCache::with_hasher(max, FxBuildHasher),
            changes: 0,
            survived: BTreeMap::new(),
        }))
    }

    /// Records a change of a file by an OST. Allocates nothing if the file has a note.
    pub fn changed(&self, file: Fid, ost: u32, changed: Changed) {
        let Changed { mut epoch, transno } = changed;
        let mut state = self.0.lock();
        state.changes += 1;
        let change = state.changes;
        // The OST may have been restarted before this reply was processed.
        if transno > 0
            && let Some(survived) = state.survived.get(&ost).filter(|survived| survived.has(file, epoch))
        {
            epoch = survived.epoch;
        }
        let transnos = (transno, transno);
        let new = || Note { epoch, transnos, is_retained: true, first: change, change, reported_all: None };
        let note = state.notes.get_or_insert_mut((file, ost), new);
        note.change = change;
        note.transnos = (note.transnos.0.min(transno), note.transnos.1.max(transno));
        note.is_retained &= transno > 0;
    }

    /// Processes the recovery of an OST: changes of earlier epochs that survived count as changes
    /// of the present one.
    pub fn survived(&self, ost: u32, survival: &Survival) {
        let mut guard = self.0.lock();
        let state = &mut *guard;
        let survived = state.survived.entry(ost).or_default();
        if !survival.lost.contains(&survived.epoch) {
            *survived = Survived::default();
        }
        survived.epoch = survival.epoch;
        survived.earlier.splice(0..0, survival.lost.iter().copied());
        survived.earlier.truncate(EPOCHS_MAX);
        for ((file, of), note) in &mut state.notes {
            if *of != ost || !survival.lost.contains(&note.epoch) {
                continue;
            }
            if survival.has(note) {
                note.epoch = survival.epoch;
            } else {
                survived.except.insert(*file);
            }
        }
    }

    /// Records that this client no longer retains changes by an OST.
    pub fn not_retained(&self, ost: u32) {
        self.0.lock().notes.iter_mut().filter(|((_, of), _)| *of == ost).for_each(|(_, note)| note.is_retained = false);
    }

    /// Returns the unsynced changes. Call it before the sync request is sent.
    pub fn before(&self, file: Fid, ost: u32) -> Option<Before> {
        self.0.lock().notes.peek(&(file, ost)).map(|note| Before { epoch: note.epoch, change: note.change })
    }

    /// Processes the sync of a file by an OST.
    ///
    /// # Errors
    /// EIO: earlier changes may be lost. Reported once.
    pub fn synced(&self, file: Fid, ost: u32, before: Option<Before>, epoch: u64) -> Result<()> {
        let Some(before) = before else { return Ok(()) };
        let mut state = self.0.lock();
        if state.notes.peek(&(file, ost)).is_some_and(|note| note.change == before.change) {
            state.notes.pop(&(file, ost));
        }
        state.judge(file, ost, before, epoch)
    }

    /// Processes a change that an OST made durable at once: reports the loss of earlier changes.
    /// These stay recorded, because the request need not have made all of them durable.
    ///
    /// # Errors
    /// As [`Unsynced::synced`].
    pub fn changed_durably(&self, file: Fid, ost: u32, before: Option<Before>, epoch: u64) -> Result<()> {
        before.map_or(Ok(()), |before| self.0.lock().judge(file, ost, before, epoch))
    }

    /// Returns the number of changes so far. Call it before a sync of all files is requested.
    pub fn before_all(&self) -> u64 {
        self.0.lock().changes
    }

    /// Processes a sync of all files by some OSTs, each given with its epoch, in ascending order of
    /// index.
    ///
    /// # Errors
    /// EIO: earlier changes may be lost. Reported once here, and once more by a sync of the file.
    pub fn synced_all(&self, before: u64, osts: &[(u32, u64)]) -> Result<()> {
        let mut guard = self.0.lock();
        let state = &mut *guard;
        let (mut durable, mut lost) = (Vec::new(), 0_usize);
        // Others were made after the sync began. The OST may have been restarted since its answer.
        let is_covered = |note: &Note| note.first <= before;
        for (&(file, ost), note) in state.notes.iter_mut().filter(|(_, note)| is_covered(note)) {
            let Ok(at) = osts.binary_search_by_key(&ost, |o| o.0) else { continue };
            let epoch = osts[at].1;
            // The OST may have been restarted after its answer, while others had not answered yet.
            let is_old = state.survived.get(&ost).is_some_and(|s| s.epoch == note.epoch && s.has(file, epoch));
            if is_old {
                continue;
            }
            if note.epoch != epoch {
                lost += usize::from(note.reported_all.replace(epoch) != Some(epoch));
            } else if note.change <= before {
                durable.push((file, ost));
            }
        }
        for key in durable {
            state.notes.pop(&key);
        }
        if lost == 0 {
            return Ok(());
        }
        tracing::error!(
            "hosts of OSTs rebooted before {lost} changed files were synced: data written before may be lost"
        );
        Err(Errno::EIO)
    }

    /// Returns the number of notes.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().notes.len()
    }
}

impl Survival {
    fn has(&self, note: &Note) -> bool {
        let (first, last) = note.transnos;
        let is_dropped = self.dropped > self.committed && first <= self.dropped && last > self.committed;
        let has_failed = self.failed.iter().any(|transno| (first..=last).contains(transno));
        note.is_retained && !is_dropped && !has_failed
    }
}

impl Survived {
    /// Whether the file's retained changes of an epoch are in the present one.
    fn has(&self, file: Fid, epoch: u64) -> bool {
        self.earlier.contains(&epoch) && !self.except.contains(&file)
    }
}

impl State {
    fn judge(&mut self, file: Fid, ost: u32, before: Before, epoch: u64) -> Result<()> {
        // The OST may have been restarted since `before`.
        let has_survived = |survived: &Survived| survived.epoch == epoch && survived.has(file, before.epoch);
        if before.epoch == epoch || self.survived.get(&ost).is_some_and(has_survived) {
            return Ok(());
        }
        // Report the loss once: the remaining changes of the note count from the new epoch on.
        if let Some(note) = self.notes.peek_mut(&(file, ost))
            && note.epoch == before.epoch
        {
            note.epoch = epoch;
        }
        tracing::error!("{file}: the host of OST {ost} rebooted before a sync: data written before may be lost");
        Err(Errno::EIO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Fid = Fid { seq: 0x2_0000_0401, oid: 1, ver: 0 };

    fn changed(unsynced: &Unsynced, file: Fid, ost: u32, epoch: u64) {
        unsynced.changed(file, ost, Changed { epoch, transno: 0 });
    }

    fn sync(unsynced: &Unsynced, file: Fid, ost: u32, epoch: u64) -> Result<()> {
        unsynced.synced(file, ost, unsynced.before(file, ost), epoch)
    }

    #[test]
    fn sync_reports_loss_once_and_only_for_that_ost() {
        let unsynced = Unsynced::new();
        assert_eq!(sync(&unsynced, FILE, 0, 1), Ok(()), "nothing was changed");
        changed(&unsynced, FILE, 0, 1);
        changed(&unsynced, FILE, 1, 7);
        changed(&unsynced, FILE, 0, 2);
        assert_eq!(sync(&unsynced, FILE, 1, 7), Ok(()));
        assert_eq!(sync(&unsynced, FILE, 0, 2), Err(Errno::EIO), "the first change was of another life");
        assert_eq!(sync(&unsynced, FILE, 0, 2), Ok(()));
        assert_eq!(unsynced.len(), 0);
    }

    #[test]
    fn sync_forgets_only_changes_made_before_it_began() {
        let unsynced = Unsynced::new();
        changed(&unsynced, FILE, 0, 1);
        let before = unsynced.before(FILE, 0);
        changed(&unsynced, FILE, 0, 1);
        assert_eq!(unsynced.synced(FILE, 0, before, 1), Ok(()));
        assert_eq!(sync(&unsynced, FILE, 0, 2), Err(Errno::EIO), "the second change was lost");
        // A slow sync beside a fast one.
        changed(&unsynced, FILE, 0, 2);
        let slow = unsynced.before(FILE, 0);
        assert_eq!(sync(&unsynced, FILE, 0, 2), Ok(()));
        changed(&unsynced, FILE, 0, 2);
        assert_eq!(unsynced.synced(FILE, 0, slow, 2), Ok(()));
        assert_eq!(sync(&unsynced, FILE, 0, 3), Err(Errno::EIO));
    }

    #[test]
    fn syncfs_does_not_judge_changes_made_after_it_began() {
        let unsynced = Unsynced::new();
        let before = unsynced.before_all();
        // The OST has answered the sync in epoch 1, and was restarted.
        changed(&unsynced, FILE, 0, 2);
        assert_eq!(unsynced.synced_all(before, &[(0, 1)]), Ok(()));
        assert_eq!(sync(&unsynced, FILE, 0, 3), Err(Errno::EIO), "the change is still noted");
    }

    #[test]
    fn failed_sync_forgets_nothing_and_concurrent_syncs_both_report() {
        let unsynced = Unsynced::new();
        changed(&unsynced, FILE, 0, 1);
        let (failed, one, other) = (unsynced.before(FILE, 0), unsynced.before(FILE, 0), unsynced.before(FILE, 0));
        assert!(failed.is_some());
        assert_eq!(unsynced.synced(FILE, 0, one, 2), Err(Errno::EIO));
        assert_eq!(unsynced.synced(FILE, 0, other, 2), Err(Errno::EIO));
    }

    #[test]
    fn syncfs_reports_loss_once_and_leaves_it_for_fsync() {
        let unsynced = Unsynced::new();
        let other = Fid { oid: 2, ..FILE };
        changed(&unsynced, FILE, 0, 1);
        changed(&unsynced, other, 1, 7);
        let before = unsynced.before_all();
        let osts = [(0, 2), (1, 7)];
        assert_eq!(unsynced.synced_all(before, &osts), Err(Errno::EIO));
        assert_eq!(unsynced.synced_all(before, &osts), Ok(()), "reported before");
        assert_eq!(unsynced.synced_all(before, &[(0, 3)]), Err(Errno::EIO), "another loss");
        assert_eq!(sync(&unsynced, FILE, 0, 3), Err(Errno::EIO), "the file's own program asks");
        assert_eq!(unsynced.len(), 0, "the other file is durable");
        changed(&unsynced, FILE, 0, 3);
        assert_eq!(unsynced.synced_all(before, &[(0, 3)]), Ok(()));
        assert_eq!(
            sync(&unsynced, FILE, 0, 4),
            Err(Errno::EIO),
            "what was changed after the beginning is not forgotten"
        );
    }

    #[test]
    fn durable_write_reports_loss_of_earlier_writes() {
        let unsynced = Unsynced::new();
        let write = |epoch| unsynced.changed_durably(FILE, 0, unsynced.before(FILE, 0), epoch);
        assert_eq!(write(1), Ok(()));
        changed(&unsynced, FILE, 0, 1);
        assert_eq!(write(1), Ok(()));
        assert_eq!(write(2), Err(Errno::EIO));
        assert_eq!(write(2), Ok(()));
        assert_eq!(sync(&unsynced, FILE, 0, 2), Ok(()));
    }

    #[test]
    fn unsynced_notes_are_bounded_and_oldest_are_dropped() {
        let unsynced = Unsynced::bounded(NonZeroUsize::new(2).unwrap());
        for oid in [1, 2, 1, 3] {
            changed(&unsynced, Fid { oid, ..FILE }, 0, 1);
        }
        let is_reported = |oid| sync(&unsynced, Fid { oid, ..FILE }, 0, 2).is_err();
        assert_eq!([is_reported(1), is_reported(2), is_reported(3)], [true, false, true]);
    }

    #[test]
    fn replayed_changes_are_not_reported() {
        let unsynced = Unsynced::new();
        let file = |oid| Fid { oid, ..FILE };
        for (oid, transno) in [(1, 8), (1, 9), (2, 7), (3, 0), (4, 3)] {
            unsynced.changed(file(oid), 0, Changed { epoch: 1, transno });
        }
        unsynced.changed(file(5), 1, Changed { epoch: 1, transno: 1 });
        let before: Vec<_> = (1..6).map(|oid| unsynced.before(file(oid), 0)).collect();
        let survival = Survival { epoch: 2, lost: vec![1], committed: 3, failed: vec![7], ..Survival::default() };
        unsynced.survived(0, &survival);
        let answers = [1, 2, 3, 4].map(|oid| unsynced.synced(file(oid), 0, before[oid as usize - 1], 2));
        assert_eq!(answers, [Ok(()), Err(Errno::EIO), Err(Errno::EIO), Ok(())], "2 failed, 3 was not retained");
        assert_eq!(unsynced.synced(file(1), 0, before[0], 2), Ok(()), "a second sync at the same time");
        assert_eq!(sync(&unsynced, file(5), 1, 2), Err(Errno::EIO), "of another OST");
        // A reply of before the restart.
        unsynced.changed(file(6), 0, Changed { epoch: 1, transno: 8 });
        let again = Survival { epoch: 3, lost: vec![2], committed: 3, dropped: 6, ..Survival::default() };
        unsynced.changed(file(7), 0, Changed { epoch: 2, transno: 6 });
        unsynced.changed(file(8), 0, Changed { epoch: 2, transno: 2 });
        unsynced.survived(0, &again);
        let answers = [6, 7, 8].map(|oid| sync(&unsynced, file(oid), 0, 3));
        assert_eq!(answers, [Ok(()), Err(Errno::EIO), Ok(())], "7 was dropped, 8 is durable");
        unsynced.changed(file(9), 0, Changed { epoch: 3, transno: 20 });
        unsynced.not_retained(0);
        unsynced.survived(0, &Survival { epoch: 4, lost: vec![3], ..Survival::default() });
        assert_eq!(sync(&unsynced, file(9), 0, 4), Err(Errno::EIO));
    }
}
