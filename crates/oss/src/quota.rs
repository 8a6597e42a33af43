//! Quotas of an OST: what it asks the MDT for, and how writes wait for the answer.
//!
//! The MDT holds a `QuotaWait` open. The OST answers it with objects whose owners are unknown, with
//! ids that need more space, and with damage that the MDT is to repair ([`crate::repair`]).
//!
//! Invariants:
//! * bytes from a client's cache are never refused: the program was answered. Nor is a replay, nor
//!   any write before all objects are counted;
//! * a write that adds no blocks is never refused;
//! * a write waits at most [`ANSWER_MAX`] for the MDT, and then goes on, as do all others for a
//!   while. The bytes that they hold in memory are bounded ([`crate::write_admission`]);
//! * a stop of the OST ends all waits before it waits for the running requests.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use sheen_objects::grants;
use sheen_rpc::Export;
use sheen_rt::Instant;
use sheen_wire::{
    Errno, Fid, Result,
    ost::{Allocate, OWNERS_MAX, Part, Reply, USES_MAX},
    quota::{Id, Owner},
};

use crate::{
    Ost,
    store::{Answer, Reserved},
};

/// Time that a write waits for the MDT before it goes on.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Time in which further writes do not wait then, unless the MDT sends something.
const SILENCE: Duration = Duration::from_secs(30);
/// Time after which an unanswered question is repeated.
const REPEAT_AFTER: Duration = Duration::from_secs(2);
/// Time in which new objects without an owner are collected for one answer, unless a write waits
/// for an owner.
const COLLECT: Duration = Duration::from_millis(200);
/// Ids that the parameter `quota` shows.
const SHOWN_MAX: usize = 1000;

/// A run of bytes: object, offset, length.
pub(crate) type Range = (Fid, u64, u64);

/// The admission of a change.
pub(crate) enum SpaceAdmission<'a> {
    /// Go on. The reservation, if there is one, lasts until the change is made.
    Admitted(Option<Reserved<'a>>),
    /// Too many bytes wait already.
    LockFirst,
}

impl Ost {
    /// Processes `QuotaWait`.
    ///
    /// # Errors
    /// ESHUTDOWN: the OST stops, the MDT has disconnected, or a later `QuotaWait` came.
    pub(crate) async fn quota_wait(&self, export: &Export) -> Result<Reply> {
        let number = self.quota.waits.fetch_add(1, SeqCst) + 1;
        self.store.accounting().needs.notify_waiters();
        if self.quota.exports.lock().insert(export.id()) {
            self.store.accounting().report_again();
            self.perhaps_blocking(true, || self.store.ask_for_repairs_again());
        }
        if export.is_ended() {
            self.quota_disconnected(export); // the server will not report that again
        }
        self.locks.unless_disconnected(export, self.quota_needs(number)).await?
    }

    /// Waits until the OST needs something of the MDT, for the `QuotaWait` of this number.
    async fn quota_needs(&self, number: u64) -> Result<Reply> {
        let accounting = self.store.accounting();
        let mut collected: Option<Instant> = None;
        loop {
            let needed = accounting.needs.notified(); // registered before the check
            if self.quota.is_stopping.load(SeqCst) || self.quota.waits.load(SeqCst) != number {
                return Err(Errno::ESHUTDOWN);
            }
            let (wants, unowned) = (accounting.report(), accounting.unowned_waiting());
            let (now, is_waiting) = (self.rt.now(), accounting.take_wanted_owner());
            let is_collected = is_waiting || unowned >= OWNERS_MAX || collected.is_some_and(|at| at <= now);
            let damaged = self.store.damage_to_repair();
            if !wants.is_empty() || !damaged.is_empty() || (unowned > 0 && is_collected) {
                return Ok(Reply::QuotaNeeds { unowned: accounting.report_unowned(), wants, damaged });
            }
            if unowned == 0 {
                collected = None;
                needed.await;
                continue;
            }
            let end = *collected.get_or_insert(now + COLLECT);
            // Elapsed or not: the next round looks.
            let _ = self.rt.timeout(end.since(now), needed).await;
        }
    }

    /// Forgets an MDT that has disconnected.
    pub(crate) fn quota_disconnected(&self, export: &Export) {
        self.quota.exports.lock().remove(&export.id());
    }

    /// Ends all waits for quotas. Later ones end at once.
    pub(crate) fn stop_quota(&self) {
        self.quota.is_stopping.store(true, SeqCst);
        self.store.accounting().needs.notify_waiters();
        self.store.accounting().answered.notify_waiters();
    }

    /// Processes `QuotaUse`.
    pub(crate) fn quota_use(&self, first: Id) -> Reply {
        let (ids, more) = self.store.accounting().uses(first, USES_MAX);
        Reply::QuotaUse { ids, more, complete: self.store.accounting().is_complete() }
    }

    /// Whether limits may refuse changes of clients now. Costs a relaxed load unless an id has a
    /// limit.
    fn enforces_quota(&self) -> bool {
        self.store.accounting().enforces() && self.recovery.is_ended()
    }

    /// Admits a write of parts of a file's objects. `is_cached`: the bytes come from the client's
    /// cache, which may have lost its grant in a restart of the OST.
    ///
    /// # Errors
    /// EDQUOT: an owner has no space left. ESHUTDOWN: the OST stops, or the client has
    /// disconnected.
    pub(crate) async fn admit_write(
        &self,
        export: &Export,
        (file, parts): (Fid, &[Part]),
        bytes: usize,
        is_cached: bool,
    ) -> Result<SpaceAdmission<'_>> {
        if is_cached || !self.enforces_quota() {
            return Ok(SpaceAdmission::Admitted(None));
        }
        let ranges = sheen_objects::runs(parts).map(|run| (run.object, run.offset, run.len as u64)).collect();
        Box::pin(self.admit_ranges(export, file, ranges, bytes)).await
    }

    /// Admits a fallocate.
    ///
    /// # Errors
    /// As [`Ost::admit_write`].
    pub(crate) async fn admit_allocate(
        &self,
        export: &Export,
        file: Fid,
        mode: Allocate,
        ranges: &[Range],
    ) -> Result<SpaceAdmission<'_>> {
        if mode == Allocate::PunchHole || !self.enforces_quota() {
            return Ok(SpaceAdmission::Admitted(None));
        }
        Box::pin(self.admit_ranges(export, file, ranges.to_vec(), 0)).await
    }

    /// Admits a change of ranges. `bytes`: bytes that it holds in memory.
    async fn admit_ranges(
        &self,
        export: &Export,
        file: Fid,
        ranges: Vec<Range>,
        bytes: usize,
    ) -> Result<SpaceAdmission<'_>> {
        if ranges.iter().all(|(object, offset, len)| self.store.is_overwrite(*object, *offset, *len)) {
            return Ok(SpaceAdmission::Admitted(None));
        }
        let (accounting, mut entered) = (self.store.accounting(), None);
        let unowned: Vec<Fid> =
            ranges.iter().map(|range| range.0).filter(|object| self.store.awaits_owner(*object, file)).collect();
        if !unowned.is_empty() {
            entered = self.write_admission.enter(export.id(), bytes);
            if entered.is_none() {
                return Ok(SpaceAdmission::LockFirst);
            }
            self.locks.unless_disconnected(export, self.await_owners(file, &unowned)).await?;
        }
        let is_near = self.is_tight(ranges.iter().map(|range| range.0));
        let mut needs = self.quota_needs_of(&ranges, |(_, offset, len)| Ok(grants::blocks(offset, len)))?;
        // Near a limit, reservations for overwrites would refuse other writes.
        if !is_near && let Some(reserved) = accounting.admit(&needs) {
            return Ok(SpaceAdmission::Admitted(Some(reserved)));
        }
        needs = self.quota_needs_of(&ranges, |(object, offset, len)| self.store.missing_bytes(object, offset, len))?;
        if let Some(reserved) = accounting.admit(&needs) {
            return Ok(SpaceAdmission::Admitted(Some(reserved)));
        }
        let Some(_entered) = entered.or_else(|| self.write_admission.enter(export.id(), bytes)) else {
            return Ok(SpaceAdmission::LockFirst);
        };
        let reserved = self.locks.unless_disconnected(export, self.await_quota(&needs)).await??;
        Ok(SpaceAdmission::Admitted(Some(reserved)))
    }

    /// Waits until the owners of new objects are known, or the MDT does not answer in time.
    async fn await_owners(&self, file: Fid, objects: &[Fid]) {
        let poll = |is_repeated: bool| {
            if is_repeated {
                objects.iter().for_each(|object| _ = self.store.awaits_owner(*object, file));
            }
            objects.iter().all(|object| self.store.owner(*object).is_some()).then_some(())
        };
        self.until_answered(poll).await;
    }

    /// Polls until there is a result. After [`REPEAT_AFTER`] without an answer of the MDT, polls
    /// with `true`: the question is to be repeated. `None`: the MDT does not answer in time, or the
    /// OST stops.
    async fn until_answered<T>(&self, mut poll: impl FnMut(bool) -> Option<T>) -> Option<T> {
        let (answered, end) = (&self.store.accounting().answered, self.rt.now() + ANSWER_MAX);
        let mut is_repeated = false;
        loop {
            let answered = answered.notified(); // registered before the check
            if let Some(result) = poll(is_repeated) {
                return Some(result);
            }
            let now = self.rt.now();
            let left = end.since(now);
            if left.is_zero() {
                self.quota.be_silent(now + SILENCE);
            }
            if self.quota.is_silent(now) || self.quota.is_stopping.load(SeqCst) {
                return None;
            }
            is_repeated = self.rt.timeout(left.min(REPEAT_AFTER), answered).await.is_err();
        }
    }

    /// Returns the bytes that a change may add, by owner. Unknown owners and the superuser are left
    /// out.
    fn quota_needs_of(&self, ranges: &[Range], bytes: impl Fn(Range) -> Result<u64>) -> Result<Vec<(Owner, u64)>> {
        let mut needs: Vec<(Owner, u64)> = Vec::new();
        for range in ranges {
            let Some(owner) = self.store.owner(range.0).filter(|owner| !owner.is_exempt()) else { continue };
            let bytes = bytes(*range)?;
            match needs.iter_mut().find(|(known, _)| *known == owner) {
                Some((_, sum)) => *sum = sum.saturating_add(bytes),
                None => needs.push((owner, bytes)),
            }
        }
        Ok(needs)
    }

    /// Waits until the MDT allows the bytes. Without an answer in time, they are allowed.
    ///
    /// # Errors
    /// EDQUOT.
    async fn await_quota(&self, needs: &[(Owner, u64)]) -> Result<Reserved<'_>> {
        let mut waiting = self.store.accounting().begin_wait();
        let poll = |is_repeated: bool| {
            if is_repeated {
                waiting.repeat();
            }
            match waiting.poll(needs) {
                Answer::Admitted(reserved) => Some(Ok(reserved)),
                Answer::Refused => Some(Err(Errno::EDQUOT)),
                Answer::Waits => None,
            }
        };
        self.until_answered(poll).await.unwrap_or_else(|| Ok(waiting.go_on(needs)))
    }

    /// Whether an owner of the objects is near a limit of space.
    pub(crate) fn is_tight(&self, objects: impl Iterator<Item = Fid>) -> bool {
        let accounting = self.store.accounting();
        if !accounting.enforces() {
            return false;
        }
        let now = Duration::from_nanos(self.rt.now().as_nanos());
        let (mut last, mut is_tight) = (Fid::ZERO, false);
        for object in objects {
            if object != last {
                is_tight |= self.store.owner(object).is_some_and(|owner| accounting.tight(owner, now));
            }
            last = object;
        }
        is_tight
    }

    /// Returns the text of the parameter `quota`.
    pub(crate) fn quota_text(&self) -> String {
        let accounting = self.store.accounting();
        let complete = if accounting.is_complete() { "yes" } else { "no" };
        let mut text = format!("complete: {complete}\nunowned: {}\nids:\n", accounting.unowned());
        for (Id { kind, id }, used, allow) in accounting.ids(SHOWN_MAX) {
            let kind = kind.name();
            let allowed = allow.map_or_else(|| "unlimited".to_owned(), |allow| allow.to_string());
            let (bytes, objects) = (used.bytes, used.objects);
            text.push_str(&format!("- {{ {kind}: {id}, used: {bytes}, objects: {objects}, allowed: {allowed} }}\n"));
        }
        text
    }
}
