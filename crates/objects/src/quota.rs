//! Space of an OST by owner, and how much of it each id may use without asking the MDT.
//!
//! A write of an id with a limit first reserves the bytes that it may add ([`Quota::admit`]). The
//! OST notes what the write has really added ([`Quota::resized`]), and then ends the reservation
//! ([`Quota::settle`]). If a write does not fit, the OST reports the id to the MDT
//! ([`Quota::report`]), and the write waits for the answer ([`Quota::allow`]).
//!
//! Invariants:
//! * after [`Quota::admit`], no id of the reservation claims more bytes than it is allowed. Only
//!   writes that were admitted otherwise ([`Quota::admit_anyway`]), grants and a lowered limit
//!   exceed it;
//! * a write that waits is refused only by an answer of the MDT to a report that included the
//!   write;
//! * ids that use nothing, have no limit and do not wait take no memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use sheen_wire::{
    ost::{QuotaUse, QuotaWant},
    quota::{Id, Owner},
};

use crate::recount::{Recount, WrongSum};

/// An id with fewer bytes left is near its limit.
pub const TIGHT_BYTES: u64 = 64 << 20;
/// How often an id near its limit is reported while no write waits.
const AHEAD_EVERY: Duration = Duration::from_secs(1);
/// How often a waiting write asks. The MDT may take an OST's bytes back for another OST while this
/// OST asks for more. Then the id is allowed no bytes, and asks again.
const ASKS_MAX: u8 = 10;

/// Bytes that a write may add, by the owners of its objects.
pub type Needs = [(Owner, u64)];

/// The sums and limits of an OST.
#[derive(Debug, Default)]
pub struct Quota {
    accounts: BTreeMap<Id, Account>,
    /// Ids that are to be reported.
    due: BTreeSet<Id>,
    /// Number of ids with a limit.
    limited: usize,
    /// Number of the last question.
    asked: u64,
    /// The second count, while there is one.
    recount: Option<Recount>,
}

/// The sums and the limit of an id.
#[derive(Debug, Default)]
struct Account {
    used: QuotaUse,
    /// Bytes that writes in progress may add.
    pending: u64,
    /// Bytes that it may use; `None`: no limit.
    allow: Option<u64>,
    /// The bytes of waiting writes, by the numbers of their questions.
    waiting: BTreeMap<u64, u64>,
    /// Number of the last question that is reported, and of the last one that is answered.
    reported: u64,
    answered: u64,
    /// When it was last reported ahead.
    ahead: Option<Duration>,
}

impl Account {
    fn claimed(&self) -> u64 {
        self.used.bytes.saturating_add(self.pending)
    }

    fn is_empty(&self) -> bool {
        self.used == QuotaUse::default() && self.pending == 0 && self.allow.is_none() && self.waiting.is_empty()
    }

    fn lacks(&self, bytes: u64) -> bool {
        self.allow.is_some_and(|allow| self.claimed().saturating_add(bytes) > allow)
    }
}

/// Bytes that a write in progress may add, of ids with a limit.
#[derive(Debug, Default, PartialEq, Eq)]
#[must_use = "pass it to `settle`"]
pub struct Reservation(Vec<(Id, u64)>);

/// A write that waits for the MDT.
#[derive(Debug, Default)]
#[must_use = "pass it to `end_wait`"]
pub struct Wait(Vec<Question>);

/// A question for more bytes of one id.
#[derive(Debug)]
struct Question {
    id: Id,
    number: u64,
    asks: u8,
}

/// Fate of a write that does not fit.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It fits now.
    Admitted(Reservation),
    /// The MDT has no more bytes: EDQUOT.
    Refused,
    /// The MDT has not answered yet.
    Waits,
}

/// Returns the bytes of each id. Files of the superuser need none, and a write that adds nothing
/// always fits.
fn by_id(needs: &Needs) -> Vec<(Id, u64)> {
    let mut ids: Vec<(Id, u64)> = Vec::new();
    for (owner, bytes) in needs.iter().filter(|(owner, bytes)| !owner.is_exempt() && *bytes > 0) {
        for id in owner.ids() {
            match ids.iter_mut().find(|(known, _)| *known == id) {
                Some((_, sum)) => *sum = sum.saturating_add(*bytes),
                None => ids.push((id, *bytes)),
            }
        }
    }
    ids
}

impl Quota {
    /// Adds an object.
    pub fn added(&mut self, owner: Owner, bytes: u64) {
        for id in owner.ids() {
            let used = &mut self.accounts.entry(id).or_default().used;
            used.bytes = used.bytes.saturating_add(bytes);
            used.objects = used.objects.saturating_add(1);
        }
    }

    /// Removes an object.
    pub fn removed(&mut self, owner: Owner, bytes: u64) {
        for id in owner.ids() {
            if let Some(account) = self.accounts.get_mut(&id) {
                account.used.bytes = account.used.bytes.saturating_sub(bytes);
                account.used.objects = account.used.objects.saturating_sub(1);
                self.drop_if_empty(id);
            }
        }
    }

    /// Changes the bytes of an object.
    pub fn resized(&mut self, owner: Owner, old: u64, new: u64) {
        for id in owner.ids() {
            let used = &mut self.accounts.entry(id).or_default().used;
            used.bytes = used.bytes.saturating_add(new).saturating_sub(old);
        }
    }

    /// Begins a second count of all objects, and drops an earlier one.
    pub fn begin_recount(&mut self) {
        self.recount = Some(Recount::default());
    }

    /// Returns the second count, if there is one. The caller makes each change in both.
    pub fn recount(&mut self) -> Option<&mut Recount> {
        self.recount.as_mut()
    }

    /// Ends the second count. `is_complete`: it has reached all objects. Then corrects the sums by
    /// it, and returns those that were wrong. Ids with a limit are to be reported then.
    pub fn end_recount(&mut self, is_complete: bool) -> Vec<WrongSum> {
        let Some(Recount { uses, .. }) = self.recount.take().filter(|_| is_complete) else { return Vec::new() };
        let ids: BTreeSet<Id> = self.accounts.keys().chain(uses.keys()).copied().collect();
        let mut wrong = Vec::new();
        for id in ids {
            let account = self.accounts.entry(id).or_default();
            let (counted, found) = (account.used, uses.get(&id).copied().unwrap_or_default());
            if counted != found {
                account.used = found;
                if account.allow.is_some() {
                    self.due.insert(id);
                }
                wrong.push(WrongSum { id, counted, found });
            }
            self.drop_if_empty(id);
        }
        wrong
    }

    /// Whether an id has a limit.
    pub fn is_limited(&self) -> bool {
        self.limited > 0
    }

    /// Reserves bytes for a write. `None`: they do not fit.
    pub fn admit(&mut self, needs: &Needs) -> Option<Reservation> {
        self.lacking(needs).is_empty().then(|| self.admit_anyway(needs))
    }

    /// Reserves bytes for a write that goes on although they may not fit.
    pub fn admit_anyway(&mut self, needs: &Needs) -> Reservation {
        let mut reserved = by_id(needs);
        reserved.retain(|(id, bytes)| {
            let limited = self.accounts.get_mut(id).filter(|account| account.allow.is_some());
            limited.map(|account| account.pending = account.pending.saturating_add(*bytes)).is_some()
        });
        Reservation(reserved)
    }

    /// Ends the reservation of a write that is done or has failed.
    pub fn settle(&mut self, reservation: Reservation) {
        for (id, bytes) in reservation.0 {
            if let Some(account) = self.accounts.get_mut(&id) {
                account.pending = account.pending.saturating_sub(bytes);
                self.drop_if_empty(id);
            }
        }
    }

    /// Returns what becomes of a write that does not fit. Asks for the ids that lack bytes. To be
    /// called again after each [`Quota::allow`].
    pub fn poll_wait(&mut self, needs: &Needs, wait: &mut Wait) -> Verdict {
        let lacking = self.lacking(needs);
        if lacking.is_empty() {
            return Verdict::Admitted(self.admit_anyway(needs));
        }
        for (id, bytes) in lacking {
            let Some(question) = wait.0.iter_mut().find(|question| question.id == id) else {
                wait.0.push(Question { id, number: self.ask(id, bytes), asks: 1 });
                continue;
            };
            let account = self.accounts.entry(id).or_default();
            if account.answered < question.number {
                continue;
            }
            if account.allow != Some(0) || question.asks >= ASKS_MAX {
                return Verdict::Refused;
            }
            account.waiting.remove(&question.number);
            question.number = self.ask(id, bytes);
            question.asks += 1;
        }
        Verdict::Waits
    }

    /// Lets the ids of a waiting write be reported again: the MDT does not answer.
    pub fn repeat(&mut self, wait: &Wait) {
        self.due.extend(wait.0.iter().map(|question| question.id));
    }

    /// Ends the wait of a write.
    pub fn end_wait(&mut self, wait: Wait) {
        for question in wait.0 {
            if let Some(account) = self.accounts.get_mut(&question.id) {
                account.waiting.remove(&question.number);
                self.drop_if_empty(question.id);
            }
        }
    }

    /// Whether ids are to be reported.
    pub fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Returns the ids to be reported to the MDT.
    pub fn report(&mut self) -> Vec<QuotaWant> {
        let mut wants = Vec::with_capacity(self.due.len());
        for id in std::mem::take(&mut self.due) {
            if let Some(account) = self.accounts.get_mut(&id) {
                account.reported = self.asked;
                let wanted = account.waiting.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
                wants.push(QuotaWant { id, used: account.claimed(), wanted });
            }
        }
        wants
    }

    /// Lets all ids with a limit be reported: their sums are complete now.
    pub fn report_limited(&mut self) {
        let limited = self.accounts.iter().filter(|(_, account)| account.allow.is_some());
        self.due.extend(limited.map(|(id, _)| *id));
    }

    /// Lets all ids be reported again for which writes wait: another MDT asks.
    pub fn report_again(&mut self) {
        let waiting = self.accounts.iter().filter(|(_, account)| !account.waiting.is_empty());
        self.due.extend(waiting.map(|(id, _)| *id));
    }

    /// Sets how many bytes ids may use (`None`: any number), and answers what was reported. `all`:
    /// the other ids have no limit. Returns the bytes that the ids claim, in their order.
    pub fn allow(&mut self, ids: &[(Id, Option<u64>)], all: bool) -> Vec<u64> {
        if all {
            let limited = self.accounts.iter().filter(|(_, account)| account.allow.is_some());
            let limited: Vec<Id> = limited.map(|(id, _)| *id).collect();
            limited.into_iter().for_each(|id| _ = self.set_allow(id, None));
        }
        ids.iter().map(|(id, allow)| self.set_allow(*id, *allow)).collect()
    }

    fn set_allow(&mut self, id: Id, allow: Option<u64>) -> u64 {
        let account = self.accounts.entry(id).or_default();
        self.limited -= usize::from(account.allow.is_some());
        self.limited += usize::from(allow.is_some());
        account.allow = allow;
        account.answered = account.reported;
        let claimed = account.claimed();
        self.drop_if_empty(id);
        claimed
    }

    /// Whether an id of the owner is near its limit. Such ids are to be reported now and then.
    /// `now`: a time that never goes back.
    pub fn tight(&mut self, owner: Owner, now: Duration) -> bool {
        let mut is_tight = false;
        for id in owner.ids().into_iter().filter(|_| !owner.is_exempt()) {
            let Some(account) = self.accounts.get_mut(&id) else { continue };
            let Some(allow) = account.allow else { continue };
            if allow.saturating_sub(account.claimed()) >= TIGHT_BYTES {
                continue;
            }
            is_tight = true;
            if account.ahead.is_none_or(|at| now.saturating_sub(at) >= AHEAD_EVERY) {
                account.ahead = Some(now);
                self.due.insert(id);
            }
        }
        is_tight
    }

    /// Returns the use of at most `max` ids from `first` on, and whether there are more.
    pub fn uses(&self, first: Id, max: usize) -> (Vec<(Id, QuotaUse)>, bool) {
        let used = self.accounts.range(first..).map(|(id, account)| (*id, account.used));
        let mut used = used.filter(|(_, used)| *used != QuotaUse::default());
        let ids = used.by_ref().take(max).collect();
        (ids, used.next().is_some())
    }

    /// Returns all ids with their use and the bytes that they may use.
    pub fn ids(&self) -> impl Iterator<Item = (Id, QuotaUse, Option<u64>)> {
        self.accounts.iter().map(|(id, account)| (*id, account.used, account.allow))
    }

    /// Returns the ids for which a write does not fit, with its bytes.
    fn lacking(&self, needs: &Needs) -> Vec<(Id, u64)> {
        let mut ids = by_id(needs);
        ids.retain(|(id, bytes)| self.accounts.get(id).is_some_and(|account| account.lacks(*bytes)));
        ids
    }

    /// Asks for bytes. Returns the number of the question.
    fn ask(&mut self, id: Id, bytes: u64) -> u64 {
        self.asked += 1;
        self.accounts.entry(id).or_default().waiting.insert(self.asked, bytes);
        self.due.insert(id);
        self.asked
    }

    fn drop_if_empty(&mut self, id: Id) {
        if self.accounts.get(&id).is_some_and(Account::is_empty) {
            self.accounts.remove(&id);
            self.due.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sheen_wire::{Fid, quota::Kind};

    use super::*;

    const MIB: u64 = 1 << 20;
    const OWNER: Owner = Owner { uid: 1000, gid: 100, project: 7 };
    const USER: Id = Id { kind: Kind::User, id: 1000 };
    const GROUP: Id = Id { kind: Kind::Group, id: 100 };

    fn limited(allow: u64) -> Quota {
        let mut quota = Quota::default();
        quota.allow(&[(USER, Some(allow))], true);
        quota
    }

    fn want(id: Id, used: u64, wanted: u64) -> QuotaWant {
        QuotaWant { id, used, wanted }
    }

    #[test]
    fn sums_follow_objects_and_take_no_memory_without_them() {
        let mut quota = Quota::default();
        let other = Owner { uid: 1001, ..OWNER };
        quota.added(OWNER, 10);
        quota.added(other, 5);
        quota.resized(OWNER, 10, 30);
        let used = |quota: &Quota, id| quota.ids().find(|(known, ..)| *known == id).map(|(_, used, _)| used);
        assert_eq!(used(&quota, USER), Some(QuotaUse { bytes: 30, objects: 1 }));
        assert_eq!(used(&quota, GROUP), Some(QuotaUse { bytes: 35, objects: 2 }));
        let (ids, more) = quota.uses(Id { kind: Kind::User, id: 1001 }, 2);
        assert_eq!((ids[0].0.id, ids[1].0, ids.len(), more), (1001, GROUP, 2, true));
        assert_eq!(quota.uses(Id { kind: Kind::Project, id: 0 }, 9).0.len(), 1);
        quota.removed(OWNER, 30);
        quota.removed(other, 5);
        assert_eq!(quota.ids().count(), 0);
    }

    #[test]
    fn recount_corrects_wrong_sums_and_no_changes_meanwhile() {
        let (mut quota, other) = (limited(10 * MIB), Owner { uid: 1001, ..OWNER });
        let object = |oid| Fid::new(9, oid);
        quota.added(OWNER, 10); // object 1, which takes 30 bytes
        quota.added(OWNER, 5); // object 2
        quota.added(other, 7); // object 4, which does not exist
        quota.begin_recount();
        quota.recount().unwrap().add(object(1), Some(OWNER), 30);
        // Object 2 grows before the count reaches it, object 1 does after that.
        for (oid, old, new) in [(2, 5, 6), (1, 30, 40)] {
            quota.resized(OWNER, old, new);
            quota.recount().unwrap().resize(object(oid), Some(OWNER), old, new);
        }
        quota.recount().unwrap().add(object(2), Some(OWNER), 6);
        // A new object is counted once, changes its owner, and is destroyed.
        quota.added(OWNER, 3);
        (0..2).for_each(|_| quota.recount().unwrap().add(object(3), Some(OWNER), 3));
        quota.removed(OWNER, 3);
        quota.added(other, 3);
        quota.recount().unwrap().give(object(3), Some(OWNER), other, 3);
        quota.removed(other, 3);
        quota.recount().unwrap().remove(object(3), Some(other), 3);
        let sum = |bytes, objects| QuotaUse { bytes, objects };
        let wrong = quota.end_recount(true);
        let user = WrongSum { id: USER, counted: sum(26, 2), found: sum(46, 2) };
        let lost = WrongSum { id: Id { id: 1001, ..USER }, counted: sum(7, 1), found: sum(0, 0) };
        assert_eq!(wrong[..2], [user, lost]);
        assert_eq!((wrong.len(), wrong[2].found, wrong[3].found), (4, sum(46, 2), sum(46, 2)));
        assert_eq!(quota.report(), [want(USER, 46, 0)], "it has a limit");
        assert!(quota.ids().all(|(id, ..)| id != lost.id), "it takes no memory any more");
        quota.begin_recount();
        assert_eq!(quota.end_recount(false), [], "it has not reached all objects");
        assert!(quota.recount().is_none());
    }

    #[test]
    fn write_beyond_the_limit_waits_for_the_answer_that_includes_it() {
        let mut quota = limited(10 * MIB);
        quota.added(OWNER, 8 * MIB);
        let fits = quota.admit(&[(OWNER, 2 * MIB)]).unwrap();
        let needs = [(OWNER, MIB)];
        assert_eq!(quota.admit(&needs), None);
        assert!(quota.admit(&[(OWNER, 0)]).is_some(), "an overwrite adds nothing");
        assert!(quota.admit(&[(Owner { uid: 0, ..OWNER }, 9 * MIB)]).is_some(), "the superuser's are not refused");
        let (mut first, mut second) = (Wait::default(), Wait::default());
        assert_eq!(quota.poll_wait(&needs, &mut first), Verdict::Waits);
        assert_eq!(quota.report(), [want(USER, 10 * MIB, MIB)]);
        assert!(quota.report().is_empty());
        assert_eq!(quota.poll_wait(&needs, &mut second), Verdict::Waits);
        assert_eq!(quota.allow(&[(USER, Some(10 * MIB))], false), [10 * MIB]);
        assert_eq!(quota.poll_wait(&needs, &mut first), Verdict::Refused);
        assert_eq!(quota.poll_wait(&needs, &mut second), Verdict::Waits, "the answer did not include it");
        quota.end_wait(first);
        assert_eq!(quota.report(), [want(USER, 10 * MIB, MIB)]);
        quota.allow(&[(USER, Some(11 * MIB))], false);
        let Verdict::Admitted(reservation) = quota.poll_wait(&needs, &mut second) else { panic!("it fits") };
        quota.end_wait(second);
        quota.resized(OWNER, 8 * MIB, 11 * MIB);
        quota.settle(fits);
        quota.settle(reservation);
        assert_eq!(quota.allow(&[(USER, None)], false), [11 * MIB]);
        assert!(!quota.is_limited());
    }

    /// Two OSTs ask at the same time: the MDT takes the bytes of one back to answer the other.
    #[test]
    fn bytes_taken_back_do_not_refuse_a_waiting_write() {
        let mut quota = limited(MIB);
        let (needs, mut wait) = ([(OWNER, 2 * MIB)], Wait::default());
        assert_eq!(quota.poll_wait(&needs, &mut wait), Verdict::Waits);
        for _ in 1..ASKS_MAX {
            assert_eq!(quota.report(), [want(USER, 0, 2 * MIB)]);
            quota.allow(&[(USER, Some(0))], false);
            assert_eq!(quota.poll_wait(&needs, &mut wait), Verdict::Waits);
        }
        assert_eq!(quota.report(), [want(USER, 0, 2 * MIB)]);
        quota.allow(&[(USER, Some(0))], false);
        assert_eq!(quota.poll_wait(&needs, &mut wait), Verdict::Refused);
        quota.end_wait(wait);
    }

    #[test]
    fn write_waits_for_each_id_that_lacks_bytes() {
        let mut quota = limited(MIB);
        quota.allow(&[(GROUP, Some(MIB))], false);
        let (needs, mut wait) = ([(OWNER, MIB), (Owner { uid: 5, ..OWNER }, MIB)], Wait::default());
        assert_eq!(quota.poll_wait(&needs, &mut wait), Verdict::Waits);
        assert_eq!(quota.report(), [want(GROUP, 0, 2 * MIB)], "the user's part fits");
        quota.allow(&[(GROUP, Some(9 * MIB)), (USER, Some(1))], false);
        assert_eq!(quota.poll_wait(&needs, &mut wait), Verdict::Waits, "another id");
        assert_eq!(quota.report(), [want(USER, 0, MIB)]);
        quota.repeat(&wait);
        assert_eq!(quota.report().len(), 2);
        quota.report_again();
        assert_eq!(quota.report().len(), 2);
        quota.allow(&[], true);
        assert_eq!(quota.poll_wait(&needs, &mut wait), Verdict::Admitted(Reservation::default()));
        quota.end_wait(wait);
        assert_eq!(quota.ids().count(), 0);
    }

    #[test]
    fn id_near_its_limit_is_tight_and_reported_ahead() {
        let mut quota = limited(2 * TIGHT_BYTES);
        let at = Duration::from_millis;
        assert!(!quota.tight(OWNER, at(0)) && !quota.is_due());
        quota.added(OWNER, TIGHT_BYTES + 1);
        assert!(quota.tight(OWNER, at(10)) && !quota.tight(Owner { uid: 0, ..OWNER }, at(10)));
        assert_eq!(quota.report(), [want(USER, TIGHT_BYTES + 1, 0)]);
        assert!(quota.tight(OWNER, at(1009)) && !quota.is_due());
        assert!(quota.tight(OWNER, at(1010)) && quota.is_due());
        quota.allow(&[(USER, Some(3 * TIGHT_BYTES))], false);
        assert!(!quota.tight(OWNER, at(1020)));
    }

    proptest! {
        /// Admitted writes never exceed the limit, and no reservation stays behind.
        #[test]
        fn admitted_writes_stay_within_the_limit(
            allow in 0u64..40,
            writes in prop::collection::vec((0u64..12, any::<bool>()), 0..40),
        ) {
            let mut quota = limited(allow);
            quota.added(OWNER, 0);
            let (mut bytes, mut open) = (0, Vec::new());
            for (need, ends) in writes {
                match quota.admit(&[(OWNER, need)]) {
                    Some(reservation) => open.push((need, reservation)),
                    None => prop_assert!(bytes + open.iter().map(|(need, _)| need).sum::<u64>() + need > allow),
                }
                if ends && let Some((need, reservation)) = open.pop() {
                    quota.resized(OWNER, bytes, bytes + need);
                    bytes += need;
                    quota.settle(reservation);
                }
                let claimed = quota.accounts[&USER].claimed();
                prop_assert!(claimed <= allow);
                prop_assert_eq!(claimed, bytes + open.iter().map(|(need, _)| need).sum::<u64>());
            }
            open.into_iter().for_each(|(_, reservation)| quota.settle(reservation));
            quota.removed(OWNER, bytes);
            quota.allow(&[], true);
            prop_assert!(quota.accounts.is_empty() && !quota.is_limited());
        }
    }
}
