//! Answers to `lfs quota`: use and limits, as the sum of all targets. An OST that does not answer
//! is missing in the sum, and the answer says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sheen_layout::MDT_OST;
use sheen_wire::mds::Reply;
use sheen_wire::ost::QuotaUse;
use sheen_wire::quota::{ALL_MAX, Answer, Change, Id, Kind, Query, Report, TargetReport, Usage};
use sheen_wire::{Cred, Errno, FileKind, PoolName, Result};

use super::rules::{all, rules};
use crate::mdt::Mdt;
use crate::state::core::Core;
use crate::state::osp::{Osp, QuotaUses};
use crate::state::quota::{Near, Scope, seconds_left};

/// Time that an OST may take to report the use of ids.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes for each OST below which an id counts as near its limit.
const TIGHT_BYTES: u64 = 64 << 20;
/// Age at which the use of an id near its limit is requested again.
const USE_AGE: Duration = Duration::from_secs(5);

/// Whether a user may ask this. EPERM: no. [`Errno::NEED_GROUPS`]: the user's groups decide it.
fn may_ask(cred: &Cred, query: &Query) -> Result<()> {
    let may = match query {
        _ if cred.uid == 0 => true,
        Query::Of { id: Id { kind: Kind::User, id }, .. } => *id == cred.uid,
        Query::Of { id: Id { kind: Kind::Group, id }, .. } if *id == cred.gid => true,
        Query::Of { id: Id { kind: Kind::Group, id }, .. } => {
            cred.groups.as_ref().ok_or(Errno::NEED_GROUPS)?.contains(id)
        }
        Query::Of { id: Id { kind: Kind::Project, .. }, .. } | Query::Default { .. } => true,
        Query::All { .. } => false,
    };
    if may { Ok(()) } else { Err(Errno::EPERM) }
}

/// The use of one target by an id.
struct TargetUse {
    osp: Arc<Osp>,
    /// `None`: it does not answer.
    used: Option<QuotaUse>,
    /// All its objects are counted.
    complete: bool,
}

impl TargetUse {
    /// Returns the use by one id, of that by ids from this one on.
    fn of(id: Id, osp: Arc<Osp>, uses: Option<QuotaUses>) -> TargetUse {
        let complete = uses.as_ref().is_some_and(|uses| uses.complete);
        let used = uses.map(|uses| uses.ids.first().filter(|(first, _)| *first == id).map(|(_, used)| *used));
        TargetUse { osp, used: used.map(Option::unwrap_or_default), complete }
    }
}

/// The space that ids use, as the sum of all targets.
#[derive(Default)]
struct Sums {
    bytes: BTreeMap<u32, u64>,
    /// The last id for which the sum has all targets. `None`: all ids.
    last: Option<u32>,
    inexact: bool,
}

impl Sums {
    fn cut(&mut self, last: u32) {
        self.last = Some(self.last.map_or(last, |known| known.min(last)));
    }

    /// Adds the use of a target, from an id of this kind on.
    fn add(&mut self, kind: Kind, uses: Option<QuotaUses>) {
        let Some(QuotaUses { ids, more, complete }) = uses else {
            self.inexact = true;
            return;
        };
        self.inexact |= !complete;
        if let Some((last, _)) = ids.last().filter(|(last, _)| more && last.kind == kind) {
            self.cut(last.id);
        }
        for (id, used) in ids.into_iter().filter(|(id, _)| id.kind == kind) {
            let sum = self.bytes.entry(id.id).or_default();
            *sum = sum.saturating_add(used.bytes);
        }
    }
}

async fn uses(mdt: &Mdt, osp: &Osp, first: Id) -> Option<QuotaUses> {
    if !osp.connected() {
        return None;
    }
    mdt.rt.timeout(TIMEOUT, osp.quota_use(first)).await.ok()?.ok()
}

impl Mdt {
    /// Answers a query about quotas.
    ///
    /// # Errors
    /// EPERM: the user may not ask this. ENOENT: there is no such pool. ENODATA: it is no query.
    /// [`Errno::NEED_GROUPS`].
    pub(crate) async fn answer_quota(&self, cred: &Cred, name: &[u8]) -> Result<Reply> {
        let query = Query::of_name(name).ok_or(Errno::ENODATA)?;
        may_ask(cred, &query)?;
        let osps = self.targets_in(query.pool())?;
        let answer = match query {
            Query::Of { id, pool, targets } => self.quota_of(id, pool, osps, targets).await,
            Query::All { kind, pool, first } => self.quota_of_all(Id { kind, id: first }, pool, osps).await,
            Query::Default { kind, pool } => {
                let core = self.core.lock();
                Answer::Default { setting: core.ns.quota_default(kind, pool), grace: core.ns.quota_grace(kind, pool) }
            }
        };
        Ok(Reply::Bytes(answer.encode()?.into()))
    }

    /// Returns the OSTs of a pool.
    ///
    /// # Errors
    /// ENOENT: there is no such pool. EAGAIN: the MGS has not reported the pools yet.
    fn pool_members(&self, pool: PoolName) -> Result<BTreeSet<u32>> {
        if self.osts.known() { self.quotas.members(pool) } else { Err(Errno::EAGAIN) }
    }

    /// Returns the targets in a scope.
    ///
    /// # Errors
    /// As [`Mdt::pool_members`].
    fn targets_in(&self, scope: Scope) -> Result<Vec<Arc<Osp>>> {
        let mut osps = self.quota_targets();
        if let Some(pool) = scope {
            let members = self.pool_members(pool)?;
            osps.retain(|osp| members.contains(&osp.index));
        }
        Ok(osps)
    }

    /// Checks whether the pool of a change of quotas exists.
    ///
    /// # Errors
    /// As [`Mdt::pool_members`].
    pub(crate) fn check_quota_pool(&self, cred: &Cred, change: &[u8]) -> Result<()> {
        // The namespace refuses others than the superuser, and a value that is no change.
        let Some(change) = Change::decode(change).ok().filter(|_| cred.uid == 0) else { return Ok(()) };
        match change.pool() {
            Some(pool) if !change.removes() => self.pool_members(pool).map(drop),
            _ => Ok(()),
        }
    }

    async fn quota_of(&self, id: Id, scope: Scope, osps: Vec<Arc<Osp>>, targets: bool) -> Answer {
        let uses = all(osps.iter().map(|osp| uses(self, osp, id)).collect()).await;
        let uses: Vec<_> = osps.into_iter().zip(uses).map(|(osp, uses)| TargetUse::of(id, osp, uses)).collect();
        let inexact = uses.iter().any(|target| !target.complete);
        let used = uses.iter().filter_map(|target| target.used).fold(0_u64, |sum, used| sum.saturating_add(used.bytes));
        self.note_uses(id, &uses);
        let mut core = self.core.lock();
        let report = self.report(&mut core, (id, scope), used, !inexact);
        let targets = if targets { self.target_reports(id, &uses, report.files.used) } else { Vec::new() };
        self.wake_committer(&core);
        Answer::Of { report, targets, inexact }
    }

    /// Records the use of an id in the division.
    fn note_uses(&self, id: Id, uses: &[TargetUse]) {
        self.quotas.divide(|division| {
            // A target that still counts has more than it says.
            for TargetUse { osp, used, .. } in uses.iter().filter(|target| target.complete) {
                used.iter().for_each(|used| division.set_used(id, osp.index, used.bytes));
            }
        });
    }

    /// Returns each target's part. `files`: those of the id on the MDT.
    fn target_reports(&self, id: Id, uses: &[TargetUse], files: u64) -> Vec<TargetReport> {
        let allowed = |ost| self.quotas.divide(|division| division.allowance(id, ost));
        let space = |target: &TargetUse| target.used.filter(|_| target.complete).map(|used| used.bytes);
        let data = uses.iter().find(|target| target.osp.index == MDT_OST);
        let mdt = TargetReport {
            target: self.name.clone(),
            space: data.map_or(Some(0), space),
            files,
            space_allowed: data.and_then(|_| allowed(MDT_OST)),
        };
        let osts = uses.iter().filter(|target| target.osp.index != MDT_OST).map(|target| TargetReport {
            target: target.osp.target.clone(),
            space: space(target),
            files: target.used.map_or(0, |used| used.objects),
            space_allowed: allowed(target.osp.index),
        });
        std::iter::once(mdt).chain(osts).collect()
    }

    async fn quota_of_all(&self, first: Id, scope: Scope, osps: Vec<Arc<Osp>>) -> Answer {
        let uses = all(osps.iter().map(|osp| uses(self, osp, first)).collect()).await;
        let mut sums = Sums::default();
        uses.into_iter().for_each(|uses| sums.add(first.kind, uses));
        let mut core = self.core.lock();
        let known = core.ns.quota_ids(first.kind, scope, first.id, ALL_MAX + 1);
        if let Some(last) = known.last().filter(|_| known.len() > ALL_MAX) {
            sums.cut(*last);
        }
        let ids: BTreeSet<u32> = known.into_iter().chain(sums.bytes.keys().copied()).collect();
        let ids: Vec<u32> = ids.into_iter().filter(|id| sums.last.is_none_or(|last| *id <= last)).collect();
        let more = ids.len() > ALL_MAX || sums.last.is_some();
        let report = |id: u32| {
            let used = sums.bytes.get(&id).copied().unwrap_or_default();
            (id, self.report(&mut core, (Id { kind: first.kind, id }, scope), used, !sums.inexact))
        };
        let ids = ids.into_iter().take(ALL_MAX).map(report).collect();
        self.wake_committer(&core);
        Answer::All { ids, more, inexact: sums.inexact }
    }

    /// Returns use and limits of an id that uses so many bytes. Records whether they exceed the
    /// soft limit. `exact`: no target is missing in the sum.
    fn report(&self, core: &mut Core, (id, scope): (Id, Scope), used: u64, exact: bool) -> Report {
        let now = self.rt.wall();
        let (setting, uses_default) = core.ns.quota_setting(id, scope);
        let grace = core.ns.quota_grace(id.kind, scope);
        let known = core.ns.space_since(id, scope);
        let is_exceeded = setting.space.soft > 0 && used > setting.space.soft;
        let since = if is_exceeded { known.or(Some(now)) } else { known.filter(|_| !exact) };
        if since != known {
            core.ns.set_space_since(id, scope, since);
            self.quotas.set_rules(vec![(id, rules(core, id))]);
        }
        let left = |since, grace| seconds_left(since, grace, now);
        let space_grace = since.filter(|_| is_exceeded).map(|since| left(since, grace.space));
        let files_since = core.ns.files_grace(id).filter(|_| scope.is_none());
        let files_grace = files_since.map(|since| left(since, grace.files));
        let files = core.ns.files_used(id);
        Report {
            space: Usage { used, limits: setting.space, grace: space_grace },
            files: Usage { used: files, limits: setting.files, grace: files_grace },
            uses_default,
        }
    }

    /// Says in the reply to an open whether an owner of the file is near a limit of space.
    pub(crate) fn mark_tight(&self, reply: &mut Reply) {
        if !self.quotas.is_limited() {
            return;
        }
        let Reply::Opened { entry, tight, .. } = reply else { return };
        if entry.attr.kind != FileKind::Regular {
            return;
        }
        let charged = self.core.lock().ns.charged(entry.attr.fid);
        let Ok(Some((owner, objects))) = charged else { return };
        if owner.is_exempt() {
            return;
        }
        let osts = objects.into_iter().map(|(ost, _)| ost).collect();
        let (all, now, at) = (self.quota_targets().len() as u64, self.rt.wall(), self.rt.now());
        let near = Near { each: TIGHT_BYTES, all, age: USE_AGE, now, at };
        let (is_tight, stale) = self.quotas.divide(|division| division.tight(owner.ids(), &osts, &near));
        *tight = is_tight;
        self.quotas.refresh(stale);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cred(uid: u32, groups: Option<Vec<u32>>) -> Cred {
        Cred { uid, gid: 100, groups }
    }

    fn of(kind: Kind, id: u32) -> Query {
        Query::Of { id: Id { kind, id }, pool: None, targets: false }
    }

    #[test]
    fn users_may_ask_for_their_own_ids_and_the_superuser_for_all() {
        let user = cred(1000, Some(vec![7]));
        for (query, may) in [
            (of(Kind::User, 1000), Ok(())),
            (of(Kind::User, 1001), Err(Errno::EPERM)),
            (of(Kind::Group, 100), Ok(())),
            (of(Kind::Group, 7), Ok(())),
            (of(Kind::Group, 8), Err(Errno::EPERM)),
            (of(Kind::Project, 8), Ok(())),
            (Query::Default { kind: Kind::User, pool: None }, Ok(())),
            (Query::All { kind: Kind::Project, pool: None, first: 0 }, Err(Errno::EPERM)),
        ] {
            assert_eq!((may_ask(&user, &query), may_ask(&Cred::ROOT, &query)), (may, Ok(())), "{query:?}");
        }
        assert_eq!(may_ask(&cred(1000, None), &of(Kind::Group, 7)), Err(Errno::NEED_GROUPS));
        assert_eq!(may_ask(&cred(1000, None), &of(Kind::Group, 100)), Ok(()));
    }

    fn uses(ids: &[(Kind, u32, u64)], more: bool) -> Option<QuotaUses> {
        let ids =
            ids.iter().map(|(kind, id, bytes)| (Id { kind: *kind, id: *id }, QuotaUse { bytes: *bytes, objects: 1 }));
        Some(QuotaUses { ids: ids.collect(), more, complete: true })
    }

    #[test]
    fn sums_end_where_the_first_target_was_cut() {
        let mut sums = Sums::default();
        sums.add(Kind::User, uses(&[(Kind::User, 1, 10), (Kind::User, 5, 20)], true));
        sums.add(Kind::User, uses(&[(Kind::User, 1, 1), (Kind::User, 3, 2), (Kind::Group, 1, 3)], true));
        assert_eq!((sums.last, sums.inexact), (Some(5), false), "the second one has all users");
        assert_eq!(sums.bytes, BTreeMap::from([(1, 11), (3, 2), (5, 20)]));
        sums.add(Kind::User, uses(&[(Kind::User, 4, 1)], true));
        sums.add(Kind::User, None);
        assert_eq!((sums.last, sums.inexact), (Some(4), true));
    }
}
