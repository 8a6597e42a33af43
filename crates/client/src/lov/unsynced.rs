//! What this client changed and has not synced since: as much as it takes to tell, at a sync, that
//! it may be gone.
//!
//! An OST says with every change, and with every sync, in which life of its host it was done (the
//! epoch). A change of one life that was not synced in it may be lost in the next: the host's page
//! cache died. So the epoch of the first change since the last sync is kept for each file and OST,
//! and a sync that is answered with another one has not made all of it durable: EIO. Whoever is
//! told once has been told; the file starts anew.
//!
//! Invariants: a change is noted before its caller hears of it; what a sync forgets was changed
//! before its request was sent; epochs never come back.
//!
//! Bounded: the files that were changed longest ago fall out, and of those a loss is not told. A
//! note takes some 100 bytes.

use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use sheen_wire::{Errno, Fid, Result};

/// Most notes, each of one file on one OST.
pub const UNSYNCED_MAX: NonZeroUsize = NonZeroUsize::new(65_536).unwrap();

/// Notes on what was changed and not synced.
pub struct Unsynced(Mutex<State>);

struct State {
    notes: LruCache<(Fid, u32), Note, FxBuildHasher>,
    /// Changes noted so far.
    changes: u64,
}

/// On one file and OST.
struct Note {
    /// Of the first change.
    epoch: u64,
    /// Which change was the last.
    change: u64,
    /// The epoch in which a sync of everything found that it is lost.
    told_all: Option<u64>,
}

/// What there was to sync when a sync began.
#[derive(Clone, Copy)]
pub struct Before {
    epoch: u64,
    change: u64,
}

impl Unsynced {
    /// Nothing.
    pub fn new() -> Unsynced {
        Unsynced::bounded(UNSYNCED_MAX)
    }

    fn bounded(max: NonZeroUsize) -> Unsynced {
        Unsynced(Mutex::new(State { notes: LruCache::with_hasher(max, FxBuildHasher), changes: 0 }))
    }

    /// A change of a file was done by an OST. Allocates nothing for a file that has a note.
    pub fn changed(&self, file: Fid, ost: u32, epoch: u64) {
        let mut state = self.0.lock();
        state.changes += 1;
        let change = state.changes;
        let note = state.notes.get_or_insert_mut((file, ost), || Note { epoch, change, told_all: None });
        note.change = change;
    }

    /// To be taken before a sync is asked for.
    pub fn before(&self, file: Fid, ost: u32) -> Option<Before> {
        self.0.lock().notes.peek(&(file, ost)).map(|note| Before { epoch: note.epoch, change: note.change })
    }

    /// A file was synced by an OST.
    ///
    /// # Errors
    /// EIO: what was changed before may be lost. Told once.
    pub fn synced(&self, file: Fid, ost: u32, before: Option<Before>, epoch: u64) -> Result<()> {
        let Some(before) = before else { return Ok(()) };
        let mut state = self.0.lock();
        if state.notes.peek(&(file, ost)).is_some_and(|note| note.change == before.change) {
            state.notes.pop(&(file, ost));
        }
        state.judge(file, ost, before, epoch)
    }

    /// A change that was durable at once was done by an OST: says what became of others before it.
    /// They stay noted, since it need not have made all of them durable.
    ///
    /// # Errors
    /// As [`Unsynced::synced`].
    pub fn changed_durably(&self, file: Fid, ost: u32, before: Option<Before>, epoch: u64) -> Result<()> {
        before.map_or(Ok(()), |before| self.0.lock().judge(file, ost, before, epoch))
    }

    /// To be taken before a sync of everything is asked for.
    pub fn before_all(&self) -> u64 {
        self.0.lock().changes
    }

    /// Everything was synced by some OSTs: each with the epoch that it answered, in ascending
    /// order.
    ///
    /// # Errors
    /// EIO: something that was changed before may be lost. Told once, here; a sync of the file
    /// tells it as well.
    pub fn synced_all(&self, before: u64, osts: &[(u32, u64)]) -> Result<()> {
        let mut state = self.0.lock();
        let (mut durable, mut lost) = (Vec::new(), 0_usize);
        for (&(file, ost), note) in &mut state.notes {
            let Ok(at) = osts.binary_search_by_key(&ost, |o| o.0) else { continue };
            let epoch = osts[at].1;
            if note.epoch != epoch {
                lost += usize::from(note.told_all.replace(epoch) != Some(epoch));
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
            "hosts of OSTs lost power before {lost} changed files were synced: what was written last may be gone"
        );
        Err(Errno::EIO)
    }

    /// How many notes there are.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().notes.len()
    }
}

impl State {
    fn judge(&mut self, file: Fid, ost: u32, before: Before, epoch: u64) -> Result<()> {
        if before.epoch == epoch {
            return Ok(());
        }
        // Once is enough: what is left of the note counts from now on.
        if let Some(note) = self.notes.peek_mut(&(file, ost))
            && note.epoch == before.epoch
        {
            note.epoch = epoch;
        }
        tracing::error!("the host of OST {ost} lost power before {file} was synced: what was written last may be gone");
        Err(Errno::EIO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Fid = Fid { seq: 0x2_0000_0401, oid: 1, ver: 0 };

    fn sync(unsynced: &Unsynced, file: Fid, ost: u32, epoch: u64) -> Result<()> {
        unsynced.synced(file, ost, unsynced.before(file, ost), epoch)
    }

    #[test]
    fn a_loss_is_told_once_and_of_that_ost_alone() {
        let unsynced = Unsynced::new();
        assert_eq!(sync(&unsynced, FILE, 0, 1), Ok(()), "nothing was changed");
        unsynced.changed(FILE, 0, 1);
        unsynced.changed(FILE, 1, 7);
        unsynced.changed(FILE, 0, 2);
        assert_eq!(sync(&unsynced, FILE, 1, 7), Ok(()));
        assert_eq!(sync(&unsynced, FILE, 0, 2), Err(Errno::EIO), "the first change was of another life");
        assert_eq!(sync(&unsynced, FILE, 0, 2), Ok(()));
        assert_eq!(unsynced.len(), 0);
    }

    #[test]
    fn a_sync_forgets_only_what_was_changed_before_it_began() {
        let unsynced = Unsynced::new();
        unsynced.changed(FILE, 0, 1);
        let before = unsynced.before(FILE, 0);
        unsynced.changed(FILE, 0, 1);
        assert_eq!(unsynced.synced(FILE, 0, before, 1), Ok(()));
        assert_eq!(sync(&unsynced, FILE, 0, 2), Err(Errno::EIO), "the second change was lost");
        // A sync that takes long, beside one that is quick.
        unsynced.changed(FILE, 0, 2);
        let slow = unsynced.before(FILE, 0);
        assert_eq!(sync(&unsynced, FILE, 0, 2), Ok(()));
        unsynced.changed(FILE, 0, 2);
        assert_eq!(unsynced.synced(FILE, 0, slow, 2), Ok(()));
        assert_eq!(sync(&unsynced, FILE, 0, 3), Err(Errno::EIO));
    }

    #[test]
    fn a_failed_sync_forgets_nothing_and_two_at_once_both_tell() {
        let unsynced = Unsynced::new();
        unsynced.changed(FILE, 0, 1);
        let (failed, one, other) = (unsynced.before(FILE, 0), unsynced.before(FILE, 0), unsynced.before(FILE, 0));
        assert!(failed.is_some());
        assert_eq!(unsynced.synced(FILE, 0, one, 2), Err(Errno::EIO));
        assert_eq!(unsynced.synced(FILE, 0, other, 2), Err(Errno::EIO));
    }

    #[test]
    fn a_sync_of_everything_tells_once_and_leaves_the_telling_to_the_file_too() {
        let unsynced = Unsynced::new();
        let other = Fid { oid: 2, ..FILE };
        unsynced.changed(FILE, 0, 1);
        unsynced.changed(other, 1, 7);
        let before = unsynced.before_all();
        let osts = [(0, 2), (1, 7)];
        assert_eq!(unsynced.synced_all(before, &osts), Err(Errno::EIO));
        assert_eq!(unsynced.synced_all(before, &osts), Ok(()), "told before");
        assert_eq!(unsynced.synced_all(before, &[(0, 3)]), Err(Errno::EIO), "another loss");
        assert_eq!(sync(&unsynced, FILE, 0, 3), Err(Errno::EIO), "the file's own program asks");
        assert_eq!(unsynced.len(), 0, "the other file is durable");
        unsynced.changed(FILE, 0, 3);
        assert_eq!(unsynced.synced_all(before, &[(0, 3)]), Ok(()));
        assert_eq!(
            sync(&unsynced, FILE, 0, 4),
            Err(Errno::EIO),
            "what was changed after the beginning is not forgotten"
        );
    }

    #[test]
    fn a_durable_write_tells_of_others_before_it() {
        let unsynced = Unsynced::new();
        let write = |epoch| unsynced.changed_durably(FILE, 0, unsynced.before(FILE, 0), epoch);
        assert_eq!(write(1), Ok(()));
        unsynced.changed(FILE, 0, 1);
        assert_eq!(write(1), Ok(()));
        assert_eq!(write(2), Err(Errno::EIO));
        assert_eq!(write(2), Ok(()));
        assert_eq!(sync(&unsynced, FILE, 0, 2), Ok(()));
    }

    #[test]
    fn notes_are_bounded_and_the_latest_are_kept() {
        let unsynced = Unsynced::bounded(NonZeroUsize::new(2).unwrap());
        for oid in [1, 2, 1, 3] {
            unsynced.changed(Fid { oid, ..FILE }, 0, 1);
        }
        let told = |oid| sync(&unsynced, Fid { oid, ..FILE }, 0, 2).is_err();
        assert_eq!([told(1), told(2), told(3)], [true, false, true]);
    }
}
