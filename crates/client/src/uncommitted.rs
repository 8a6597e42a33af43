//! Changes of metadata that the MDT has answered but not committed: enough information to report at
//! a sync that a killed MDT has lost them.
//!
//! A change is recorded with its transno, the incarnation of the server that answered, and the
//! inodes that it concerns. A restarted MDT has its committed changes and those that this client
//! replayed (module `replay`). The others are lost, and the next sync of one of their inodes fails
//! with EIO. The error is reported once per inode; a sync of everything reports it once as well. If
//! a reply is processed only after the recovery that lost its change, the change counts as lost,
//! too.
//!
//! Bounds: the MDT commits every few seconds, so only recent changes are recorded. Beyond
//! [`CHANGES_MAX`] the oldest ones are dropped. If one of these is lost, only a sync of everything
//! reports it. The same holds for lost changes of more than [`LOST_MAX`] inodes.

use std::{
    collections::BTreeSet,
    num::NonZeroUsize,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use lru::LruCache;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use sheen_wire::{Errno, Fid, Result, mds::Request};

use crate::replay::Outcome;

/// Maximum number of recorded pairs of change and inode.
const CHANGES_MAX: usize = 262_144;
/// Maximum number of inodes whose loss is reported by their own sync.
const LOST_MAX: NonZeroUsize = NonZeroUsize::new(65_536).unwrap();
/// Number of inodes that the log line about lost changes names.
const NAMED_IN_LOG: usize = 8;

/// The changes that may still be lost, and the lost ones.
pub struct Uncommitted {
    state: Mutex<State>,
    /// Whether changes may be recorded, so that most replies without a change need no lock.
    any: AtomicBool,
}

struct State {
    /// Incarnation of the server.
    incarnation: u64,
    /// The changes of earlier incarnations that this one has.
    survived: Outcome,
    /// Transnos, each with an inode that the change concerns.
    changes: BTreeSet<(u64, Fid)>,
    /// Highest transno that was dropped from `changes` because of its bound.
    dropped: u64,
    /// Changes that could not be replayed: the incarnation that had answered them, and transno. The
    /// later lives may have given the transnos to other changes. At most [`LOST_MAX`].
    failed: BTreeSet<(u64, u64)>,
    /// Inodes with lost changes, until a sync reports it.
    lost: LruCache<Fid, (), FxBuildHasher>,
    /// Changes were lost, and no sync of everything has reported it.
    lost_any: bool,
}

/// The transaction of an answered request.
#[derive(Clone, Copy, Debug)]
pub struct Transaction {
    /// Its number; 0 if the request changed nothing.
    pub transno: u64,
    /// Incarnation of the server that answered.
    pub incarnation: u64,
    /// Transactions up to this one are committed.
    pub committed: u64,
}

impl Uncommitted {
    /// Creates an empty record.
    pub fn new() -> Uncommitted {
        let state = State {
            incarnation: 0,
            survived: Outcome::default(),
            changes: BTreeSet::new(),
            dropped: 0,
            failed: BTreeSet::new(),
            lost: LruCache::with_hasher(LOST_MAX, FxBuildHasher),
            lost_any: false,
        };
        Uncommitted { state: Mutex::new(state), any: AtomicBool::new(false) }
    }

    /// Records an answered change of these inodes. A reply without a change, such as that of a
    /// sync, tells as well what is committed.
    pub fn changed(&self, transaction: Transaction, inodes: impl Iterator<Item = Fid>) {
        let Transaction { transno, incarnation, committed } = transaction;
        if transno == 0 && !self.any.load(Relaxed) {
            return;
        }
        let mut state = self.state.lock();
        if transno == 0 {
            if state.incarnation == incarnation {
                state.forget(committed);
                self.any.store(!state.changes.is_empty(), Relaxed);
            }
            return;
        }
        if state.incarnation == 0 {
            state.incarnation = incarnation;
        }
        if state.incarnation != incarnation {
            // The server was restarted before this reply was processed.
            if state.failed.contains(&(incarnation, transno)) {
                state.lose(inodes.collect());
                return;
            }
            if transno <= state.survived.committed {
                return;
            }
            if !state.survived.replayed.contains(&transno) {
                state.lose(inodes.collect());
                return;
            }
        } else {
            state.forget(committed);
        }
        state.changes.extend(inodes.map(|inode| (transno, inode)));
        self.any.store(true, Relaxed);
        while state.changes.len() > CHANGES_MAX {
            state.dropped = state.changes.pop_first().map_or(0, |(transno, _)| transno);
        }
    }

    /// Processes the recovery of a server that has forgotten this client. `survived`: the changes
    /// of its earlier lives that it has.
    pub fn restarted(&self, incarnation: u64, survived: Outcome) {
        let mut state = self.state.lock();
        if state.incarnation == 0 || state.incarnation == incarnation {
            return;
        }
        state.incarnation = incarnation;
        state.forget(survived.committed);
        let has = |transno: &u64| *transno <= survived.committed || survived.replayed.contains(transno);
        let lost: BTreeSet<Fid> =
            state.changes.extract_if(.., |(transno, _)| !has(transno)).map(|(_, inode)| inode).collect();
        state.lost_any |= !has(&state.dropped) && state.dropped > 0;
        state.dropped = 0;
        state.survived = survived;
        if !lost.is_empty() {
            state.lose(lost);
        }
    }

    /// Records that these changes could not be replayed.
    pub fn not_replayed(&self, transnos: &BTreeSet<u64>) {
        let mut state = self.state.lock();
        let incarnation = state.incarnation;
        state.failed.extend(transnos.iter().map(|transno| (incarnation, *transno)));
        while state.failed.len() > LOST_MAX.get() {
            state.failed.pop_first();
        }
        let lost = state.changes.extract_if(.., |(transno, _)| transnos.contains(transno));
        let lost: BTreeSet<Fid> = lost.map(|(_, inode)| inode).collect();
        if !lost.is_empty() {
            state.lose(lost);
        }
    }

    /// Processes a sync of an inode.
    ///
    /// # Errors
    /// EIO: changes of it were lost. Reported once.
    pub fn synced(&self, inode: Fid) -> Result<()> {
        match self.state.lock().lost.pop(&inode) {
            Some(()) => Err(Errno::EIO),
            None => Ok(()),
        }
    }

    /// Processes a sync of everything.
    ///
    /// # Errors
    /// EIO: changes were lost. Reported once here, and once more by a sync of each inode.
    pub fn synced_all(&self) -> Result<()> {
        if std::mem::take(&mut self.state.lock().lost_any) { Err(Errno::EIO) } else { Ok(()) }
    }
}

impl State {
    /// Removes the committed changes.
    fn forget(&mut self, committed: u64) {
        while self.changes.first().is_some_and(|(transno, _)| *transno <= committed) {
            self.changes.pop_first();
        }
        while self.survived.replayed.first().is_some_and(|transno| *transno <= committed) {
            self.survived.replayed.pop_first();
            self.survived.committed = self.survived.committed.max(committed);
        }
    }

    fn lose(&mut self, inodes: BTreeSet<Fid>) {
        let named: Vec<_> = inodes.iter().take(NAMED_IN_LOG).map(Fid::to_string).collect();
        tracing::error!(
            "the MDT was restarted without the last changes of {} inodes ({}{}): they are lost; fsync returns EIO",
            inodes.len(),
            named.join(" "),
            if inodes.len() > NAMED_IN_LOG { " …" } else { "" },
        );
        for inode in inodes {
            self.lost.put(inode, ());
        }
        self.lost_any = true;
    }
}

/// Returns the inodes that a request changes, as far as the request names them. Empty for requests
/// that change nothing which a sync makes durable, or that are answered when their change is
/// durable.
pub fn changed_by(request: &Request) -> [Option<Fid>; 2] {
    use Request::*;
    match *request {
        Create { parent, fid, .. }
        | OpenCreate { parent, fid, .. }
        | TmpFile { parent, fid, .. }
        | Link { parent, fid, .. } => [Some(parent), Some(fid)],
        Unlink { parent, .. } => [Some(parent), None],
        Rename { parent, new_parent, .. } => [Some(parent), Some(new_parent)],
        SetAttr { fid, .. } | SetXattr { fid, .. } | RemoveXattr { fid, .. } | LayoutIntent { fid, .. } => {
            [Some(fid), None]
        }
        _ => [None, None],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: u64 = 7;

    fn fid(oid: u32) -> Fid {
        Fid::new(0x2_0000_0401, oid)
    }

    /// The outcome at a server that committed up to this transno and got no replays.
    fn had(committed: u64) -> Outcome {
        Outcome { committed, replayed: BTreeSet::new() }
    }

    fn change(at: &Uncommitted, incarnation: u64, transno: u64, committed: u64, oid: u32) {
        at.changed(Transaction { transno, incarnation, committed }, [fid(oid), fid(100)].into_iter());
    }

    #[test]
    fn sync_reports_changes_lost_by_a_restart_once() {
        let at = Uncommitted::new();
        change(&at, LIFE, 10, 0, 1);
        change(&at, LIFE, 11, 5, 2);
        change(&at, LIFE, 0, 5, 3);
        at.restarted(LIFE + 1, had(10));
        assert_eq!(at.synced(fid(1)), Ok(()), "committed before the restart");
        assert_eq!(at.synced(fid(3)), Ok(()), "nothing was changed");
        assert_eq!((at.synced(fid(2)), at.synced(fid(2))), (Err(Errno::EIO), Ok(())));
        assert_eq!((at.synced(fid(100)), at.synced(fid(100))), (Err(Errno::EIO), Ok(())));
        assert_eq!((at.synced_all(), at.synced_all()), (Err(Errno::EIO), Ok(())));
        // The new server gives the same transnos to other changes.
        change(&at, LIFE + 1, 11, 10, 4);
        change(&at, LIFE + 1, 12, 11, 5);
        at.restarted(LIFE + 2, had(12));
        assert_eq!((at.synced(fid(4)), at.synced(fid(5)), at.synced_all()), (Ok(()), Ok(()), Ok(())));
    }

    #[test]
    fn synced_change_is_not_lost_although_no_change_follows() {
        let at = Uncommitted::new();
        change(&at, LIFE, 10, 0, 1);
        change(&at, LIFE, 11, 0, 2);
        // A reply of an earlier server counts other transnos.
        change(&at, LIFE - 1, 0, 20, 3);
        change(&at, LIFE, 0, 10, 3);
        at.restarted(LIFE + 1, had(0));
        assert_eq!((at.synced(fid(1)), at.synced(fid(2)), at.synced_all()), (Ok(()), Err(Errno::EIO), Err(Errno::EIO)));
    }

    #[test]
    fn replayed_changes_are_not_lost() {
        let at = Uncommitted::new();
        for transno in 10..14 {
            change(&at, LIFE, transno, 0, transno as u32);
        }
        at.restarted(LIFE + 1, Outcome { committed: 10, replayed: BTreeSet::from([11, 13, 14]) });
        assert_eq!([10, 11, 13].map(|oid| at.synced(fid(oid))), [Ok(()); 3]);
        assert_eq!(at.synced(fid(12)), Err(Errno::EIO));
        let _ = (at.synced(fid(100)), at.synced_all());
        // The reply of the earlier life is processed only now.
        change(&at, LIFE, 14, 9, 14);
        assert_eq!(at.synced(fid(14)), Ok(()));
        // The replayed changes are not committed either.
        at.restarted(LIFE + 2, Outcome { committed: 12, replayed: BTreeSet::from([14]) });
        assert_eq!([11, 14].map(|oid| at.synced(fid(oid))), [Ok(()); 2]);
        assert_eq!(at.synced(fid(13)), Err(Errno::EIO));
    }

    #[test]
    fn change_that_was_not_replayed_is_lost_also_after_a_second_crash() {
        let at = Uncommitted::new();
        change(&at, LIFE, 10, 0, 1);
        at.not_replayed(&BTreeSet::from([12]));
        at.restarted(LIFE + 1, Outcome { committed: 10, replayed: BTreeSet::from([13]) });
        // The next life has committed the change that was replayed after it.
        at.restarted(LIFE + 2, had(20));
        change(&at, LIFE, 12, 0, 2);
        change(&at, LIFE, 13, 0, 3);
        assert_eq!([2, 3].map(|oid| at.synced(fid(oid))), [Err(Errno::EIO), Ok(())]);
    }

    #[test]
    fn eviction_loses_no_changes() {
        let at = Uncommitted::new();
        change(&at, LIFE, 10, 0, 1);
        at.restarted(LIFE, had(0));
        assert_eq!((at.synced(fid(1)), at.synced_all()), (Ok(()), Ok(())));
    }

    #[test]
    fn reply_processed_after_the_restart_counts_as_lost_unless_committed() {
        let at = Uncommitted::new();
        change(&at, LIFE, 1, 0, 9);
        at.restarted(LIFE + 1, had(10));
        change(&at, LIFE, 10, 0, 1);
        assert_eq!((at.synced(fid(1)), at.synced_all()), (Ok(()), Ok(())));
        change(&at, LIFE, 11, 0, 2);
        assert_eq!((at.synced(fid(2)), at.synced_all()), (Err(Errno::EIO), Err(Errno::EIO)));
    }

    #[test]
    fn dropped_changes_are_reported_by_a_sync_of_everything() {
        let at = Uncommitted::new();
        for transno in 1..=CHANGES_MAX as u64 / 2 + 1 {
            change(&at, LIFE, transno, 0, u32::try_from(transno).expect("small"));
        }
        assert_eq!(at.state.lock().changes.len(), CHANGES_MAX);
        at.restarted(LIFE + 1, had(CHANGES_MAX as u64));
        assert_eq!(at.synced_all(), Ok(()));
        for transno in 1..=CHANGES_MAX as u64 / 2 + 1 {
            change(&at, LIFE + 1, transno, 0, 1);
        }
        at.restarted(LIFE + 2, had(0));
        assert_eq!(at.synced_all(), Err(Errno::EIO));
    }
}
