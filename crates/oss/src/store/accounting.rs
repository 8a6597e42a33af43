//! The sums of an OST by owner, and the objects whose owners are unknown.
//!
//! The bytes of an object are those that its file takes on the local file system (`st_blocks`).
//! [`super::files`] has the other part: how the sums follow the changes of objects.
//!
//! Invariants:
//! * an object in [`CountedObjects`] is part of the sums, unless its owner is unknown: then nobody
//!   is charged for it;
//! * the bytes that an owner is charged for an object are those of its [`Charge`]. An open object
//!   holds it, or the list of closed ones. For other objects they are what the file takes, because
//!   it is at rest;
//! * the index failing never fails a request: the owner counts as unknown.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::atomic::{
        AtomicBool,
        Ordering::{Relaxed, SeqCst},
    },
    time::Duration,
};

use parking_lot::Mutex;
use sheen_objects::{
    CountedObjects, OwnerRecord, Quota, Unowned, WrongSum,
    quota::{Needs, Reservation, Verdict, Wait},
};
use sheen_rt::{Metadata, Rt};
use sheen_wire::{
    Fid,
    ost::{OWNERS_MAX, QuotaUse, QuotaWant},
    quota::{Id, Owner},
};
use tokio::sync::Notify;
use tracing::debug;

use super::owner_index::OwnerIndex;

/// Bytes of a block in [`Metadata::blocks512`].
const BLOCK_BYTES: u64 = 512;
/// Maximum objects that are counted again after their files were closed. Of others, bytes may be
/// counted that the local file system releases after the close.
const CLOSED_MAX: usize = 65_536;

/// The charge for an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charge {
    /// `None`: unknown, nobody is charged.
    pub owner: Option<Owner>,
    /// Bytes.
    pub bytes: u64,
}

/// An object that was closed after a change.
#[derive(Debug)]
struct Closed {
    charge: Charge,
    /// How often it is counted again.
    recounts: u8,
}

/// The sums of an OST.
pub struct Accounting {
    index: OwnerIndex,
    quota: Mutex<Quota>,
    unowned: Mutex<Unowned>,
    counted: Mutex<CountedObjects>,
    closed: Mutex<BTreeMap<Fid, Closed>>,
    is_complete: AtomicBool,
    /// Whether all objects are counted and an id has a limit.
    enforces: AtomicBool,
    /// Whether a write waits for the owner of an object.
    wants_owner: AtomicBool,
    /// Notified when the MDT is to be asked for something.
    pub needs: Notify,
    /// Notified when the MDT has answered.
    pub answered: Notify,
}

/// Returns the bytes that a file takes.
pub(super) fn bytes_of(found: &Metadata) -> u64 {
    found.blocks512.saturating_mul(BLOCK_BYTES)
}

impl Accounting {
    /// Returns the sums of the OST in the directory `root`, without any object.
    pub(super) fn new(rt: &Rt, root: &Path) -> Accounting {
        Accounting {
            index: OwnerIndex::new(rt.disk(), root),
            quota: Mutex::default(),
            unowned: Mutex::default(),
            counted: Mutex::default(),
            closed: Mutex::default(),
            is_complete: AtomicBool::new(false),
            enforces: AtomicBool::new(false),
            wants_owner: AtomicBool::new(false),
            needs: Notify::new(),
            answered: Notify::new(),
        }
    }

    /// The owner index.
    pub(super) fn index(&self) -> &OwnerIndex {
        &self.index
    }

    /// Whether the object is part of the sums.
    pub(super) fn is_counted(&self, object: Fid) -> bool {
        self.counted.lock().has(object)
    }

    /// Adds an object to the sums, unless it is there.
    pub(super) fn add(&self, object: Fid, charge: Charge) {
        if self.counted.lock().insert(object) {
            let mut quota = self.quota.lock();
            if let Some(owner) = charge.owner {
                quota.added(owner, charge.bytes);
            }
            if let Some(recount) = quota.recount() {
                recount.add(object, charge.owner, charge.bytes);
            }
        }
    }

    /// Begins a second count of all objects ([`Recount`](sheen_objects::Recount)). Returns false if
    /// the first one has not ended.
    pub fn begin_recount(&self) -> bool {
        let is_complete = self.is_complete();
        if is_complete {
            self.quota.lock().begin_recount();
        }
        is_complete
    }

    /// Counts an object of the sums in the second count.
    pub(super) fn recount(&self, object: Fid, charge: &Charge) {
        if let Some(recount) = self.quota.lock().recount() {
            recount.add(object, charge.owner, charge.bytes);
        }
    }

    /// Ends the second count, as [`Quota::end_recount`].
    pub fn end_recount(&self, is_complete: bool) -> Vec<WrongSum> {
        let (mut counted, mut quota) = (self.counted.lock(), self.quota.lock());
        if is_complete && let Some(recount) = quota.recount() {
            counted.retain_common(recount.counted()); // others have no file, and no part in the sums
        }
        let wrong = quota.end_recount(is_complete);
        drop((counted, quota));
        if !wrong.is_empty() {
            self.needs.notify_waiters();
        }
        wrong
    }

    /// Removes an object from the list of counted ones. Returns whether it was there.
    pub(super) fn uncount(&self, object: Fid) -> bool {
        self.counted.lock().remove(object)
    }

    /// Removes the bytes of an object from the sums.
    pub(super) fn subtract(&self, object: Fid, charge: Charge) {
        let mut quota = self.quota.lock();
        if let Some(owner) = charge.owner {
            quota.removed(owner, charge.bytes);
        }
        if let Some(recount) = quota.recount() {
            recount.remove(object, charge.owner, charge.bytes);
        }
    }

    /// Charges the present bytes of an object.
    pub(super) fn resize(&self, object: Fid, charge: &mut Charge, bytes: u64) {
        if bytes == charge.bytes {
            return;
        }
        if let Some(owner) = charge.owner {
            let mut quota = self.quota.lock();
            quota.resized(owner, charge.bytes, bytes);
            if let Some(recount) = quota.recount() {
                recount.resize(object, charge.owner, charge.bytes, bytes);
            }
        }
        charge.bytes = bytes;
    }

    /// Charges another owner for an object.
    pub(super) fn give(&self, object: Fid, charge: &mut Charge, owner: Owner) {
        if charge.owner == Some(owner) {
            return;
        }
        let before = charge.owner.replace(owner);
        let mut quota = self.quota.lock();
        if let Some(before) = before {
            quota.removed(before, charge.bytes);
        }
        quota.added(owner, charge.bytes);
        if let Some(recount) = quota.recount() {
            recount.give(object, before, owner, charge.bytes);
        }
    }

    /// Puts an object that was changed on the list of closed ones.
    pub(super) fn close(&self, object: Fid, charge: Charge, recounts: u8) {
        let mut closed = self.closed.lock();
        if closed.len() < CLOSED_MAX {
            closed.insert(object, Closed { charge, recounts });
        }
    }

    /// Takes an object off the list of closed ones.
    pub(super) fn reopen(&self, object: Fid) -> Option<Charge> {
        self.closed.lock().remove(&object).map(|closed| closed.charge)
    }

    /// Calls `f` with the charge of an object on the list of closed ones.
    pub(super) fn with_closed<T>(&self, object: Fid, f: impl FnOnce(&mut Charge) -> T) -> Option<T> {
        self.closed.lock().get_mut(&object).map(|closed| f(&mut closed.charge))
    }

    /// Returns the objects on the list of closed ones.
    pub(super) fn closed(&self) -> Vec<Fid> {
        self.closed.lock().keys().copied().collect()
    }

    /// Charges the present bytes of an object on the list of closed ones (`None`: unknown), and
    /// removes it after the last time.
    pub(super) fn recount_closed(&self, object: Fid, bytes: Option<u64>) {
        let mut all = self.closed.lock();
        let Some(closed) = all.get_mut(&object) else { return };
        if let Some(bytes) = bytes {
            self.resize(object, &mut closed.charge, bytes);
        }
        closed.recounts = closed.recounts.saturating_sub(1);
        if closed.recounts == 0 {
            all.remove(&object);
        }
    }

    /// Returns the record of an object, with the file if that is news.
    pub(super) fn record(&self, object: Fid, file: Fid) -> OwnerRecord {
        let mut record = self.index.read(object).unwrap_or_else(|e| {
            debug!("cannot read the owner of object {object}: {e}");
            OwnerRecord::default()
        });
        if record.file.is_zero() && !file.is_zero() {
            record.file = file;
            if let Err(e) = self.index.write(object, &record) {
                debug!("cannot write the file of object {object}: {e}");
            }
        }
        record
    }

    /// Asks the MDT for the owner of an object.
    pub(super) fn note_unowned(&self, object: Fid, file: Fid) {
        let mut unowned = self.unowned.lock();
        unowned.insert(object, file);
        let waiting = unowned.waiting();
        drop(unowned);
        if waiting == 1 || waiting == OWNERS_MAX {
            self.needs.notify_waiters();
        }
    }

    /// As [`Accounting::note_unowned`], for a write that waits for the owner.
    pub(super) fn want_owner(&self, object: Fid, file: Fid) {
        self.unowned.lock().ask(object, file);
        self.wants_owner.store(true, SeqCst);
        self.needs.notify_waiters();
    }

    /// Whether a write waits for the owner of an object that the MDT was not asked for so far. The
    /// next call returns false.
    pub fn take_wanted_owner(&self) -> bool {
        self.wants_owner.swap(false, SeqCst)
    }

    /// The owner of an object is known, or it is destroyed.
    pub(super) fn not_unowned(&self, object: Fid) {
        self.unowned.lock().remove(object);
    }

    /// Whether limits are enforced: all objects are counted, and an id has a limit.
    pub fn enforces(&self) -> bool {
        self.enforces.load(Relaxed)
    }

    /// Whether all objects are counted.
    pub fn is_complete(&self) -> bool {
        self.is_complete.load(SeqCst)
    }

    /// Records that all objects are counted.
    pub fn complete(&self) {
        let mut quota = self.quota.lock();
        self.is_complete.store(true, SeqCst);
        self.enforces.store(quota.is_limited(), Relaxed);
        quota.report_limited();
        drop(quota);
        self.needs.notify_waiters();
    }

    /// As [`Quota::allow`].
    pub fn allow(&self, ids: &[(Id, Option<u64>)], all: bool) -> Vec<u64> {
        let mut quota = self.quota.lock();
        let used = quota.allow(ids, all);
        self.enforces.store(quota.is_limited() && self.is_complete(), Relaxed);
        drop(quota);
        self.answered.notify_waiters();
        used
    }

    /// Reserves bytes for a write ([`Quota::admit`]). `None`: they do not fit.
    pub fn admit(&self, needs: &Needs) -> Option<Reserved<'_>> {
        let reservation = self.quota.lock().admit(needs)?;
        Some(Reserved { of: self, reservation: Some(reservation) })
    }

    /// Begins the wait of a write that does not fit.
    pub fn begin_wait(&self) -> Waiting<'_> {
        Waiting { of: self, wait: Some(Wait::default()) }
    }

    /// Whether an id of the owner is near its limit ([`Quota::tight`]).
    pub fn tight(&self, owner: Owner, now: Duration) -> bool {
        let mut quota = self.quota.lock();
        let is_tight = quota.tight(owner, now);
        let is_due = quota.is_due();
        drop(quota);
        if is_tight && is_due {
            self.needs.notify_waiters();
        }
        is_tight
    }

    /// Returns the ids to be reported to the MDT.
    pub fn report(&self) -> Vec<QuotaWant> {
        self.quota.lock().report()
    }

    /// Number of objects to be reported to the MDT.
    pub fn unowned_waiting(&self) -> usize {
        self.unowned.lock().waiting()
    }

    /// Number of objects whose owners are unknown, as far as they are in memory.
    pub fn unowned(&self) -> usize {
        self.unowned.lock().len()
    }

    /// Returns objects to be reported to the MDT.
    pub fn report_unowned(&self) -> Vec<(Fid, Fid)> {
        self.unowned.lock().report(OWNERS_MAX)
    }

    /// Lets everything be reported again that the MDT has not answered.
    pub fn report_again(&self) {
        self.unowned.lock().report_again();
        self.quota.lock().report_again();
        self.needs.notify_waiters();
    }

    /// Whether objects without an owner are to be looked for ([`Unowned::take_missed`]).
    pub fn take_missed(&self) -> bool {
        self.unowned.lock().take_missed()
    }

    /// Returns the use of ids ([`Quota::uses`]).
    pub fn uses(&self, first: Id, max: usize) -> (Vec<(Id, QuotaUse)>, bool) {
        self.quota.lock().uses(first, max)
    }

    /// Returns at most `max` ids with their use and the bytes that they may use.
    pub fn ids(&self, max: usize) -> Vec<(Id, QuotaUse, Option<u64>)> {
        self.quota.lock().ids().take(max).collect()
    }
}

/// Bytes reserved for a write; dropping it ends the reservation.
pub struct Reserved<'a> {
    of: &'a Accounting,
    reservation: Option<Reservation>,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if let Some(reservation) = self.reservation.take() {
            self.of.quota.lock().settle(reservation);
        }
    }
}

/// A write that waits for the MDT; dropping it ends the wait.
pub struct Waiting<'a> {
    of: &'a Accounting,
    wait: Option<Wait>,
}

/// Fate of a waiting write.
pub enum Answer<'a> {
    /// It fits now.
    Admitted(Reserved<'a>),
    /// EDQUOT.
    Refused,
    /// It waits.
    Waits,
}

impl<'a> Waiting<'a> {
    /// As [`Quota::poll_wait`].
    pub fn poll(&mut self, needs: &Needs) -> Answer<'a> {
        let Some(wait) = &mut self.wait else { return Answer::Refused };
        let mut quota = self.of.quota.lock();
        let verdict = quota.poll_wait(needs, wait);
        let is_due = quota.is_due();
        drop(quota);
        if is_due {
            self.of.needs.notify_waiters();
        }
        match verdict {
            Verdict::Admitted(reservation) => {
                Answer::Admitted(Reserved { of: self.of, reservation: Some(reservation) })
            }
            Verdict::Refused => Answer::Refused,
            Verdict::Waits => Answer::Waits,
        }
    }

    /// Lets the ids be reported again: the MDT does not answer.
    pub fn repeat(&self) {
        if let Some(wait) = &self.wait {
            self.of.quota.lock().repeat(wait);
            self.of.needs.notify_waiters();
        }
    }

    /// Reserves the bytes all the same.
    pub fn go_on(&self, needs: &Needs) -> Reserved<'a> {
        let reservation = self.of.quota.lock().admit_anyway(needs);
        Reserved { of: self.of, reservation: Some(reservation) }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(wait) = self.wait.take() {
            self.of.quota.lock().end_wait(wait);
        }
    }
}
