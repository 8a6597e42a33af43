//! Division of limits of space among the OSTs (Lustre's quota master): pure, without requests.
//!
//! Each OST has an allowance for each id with a limit: bytes that the id may use there without a
//! question to the MDT. The share of an OST is its allowance, or its use if that is more (writes
//! under grants and files of the superuser need no allowance).
//!
//! A limit has a scope: all targets, or the OSTs of a pool. The limits whose scopes contain an OST
//! apply there; the smallest remainder determines the allowance.
//!
//! Invariants:
//! * An OST gets no allowance beyond what the others in the scope leave of each limit. So the sum
//!   of the allowances exceeds a limit only if the limit was lowered, or the pool got an OST, and
//!   an OST did not answer since.
//! * A want that fits into the limits is satisfied after the other OSTs returned their allowances.
//! * As long as all wants fit below the soft limit, the sum of the allowances stays below it: the
//!   grace time begins with a write, not with an allowance.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sheen_rt::Instant;
use sheen_wire::ost::QuotaWant;
use sheen_wire::quota::{Id, Limits};
use sheen_wire::{PoolName, Time};

/// The limit of an id that has none.
const NO_LIMIT: u64 = u64::MAX / 4;
/// Bytes that an OST gets at least beyond what it needs, if they are left.
const CHUNK_MIN: u64 = 1 << 20;
/// The same, while much is left. Twice the bytes below which an OST does not let clients cache
/// writes.
const CHUNK_FAR: u64 = 128 << 20;
/// Bytes that an OST gets at most beyond what it needs.
const CHUNK_MAX: u64 = 1 << 30;
/// Part of a limit that one chunk is, for each OST.
const CHUNKS_PER_OST: u64 = 8;

/// The targets within which a limit applies: the OSTs of a pool, or all. `None`: all.
pub(crate) type Scope = Option<PoolName>;
/// The limits of an id.
pub(crate) type Rules = BTreeMap<Scope, Rule>;

/// Allowance and use of an id on one OST.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Part {
    /// Bytes that it may use.
    pub allow: u64,
    /// Bytes in use, as the OST last said.
    pub used: u64,
}

impl Part {
    /// Returns what the OST has of a limit.
    fn share(self) -> u64 {
        self.allow.max(self.used)
    }

    /// Whether the OST may use more than it does.
    fn has_spare(self) -> bool {
        self.allow > self.used
    }
}

/// A limit of an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rule {
    pub limits: Limits,
    /// Seconds for which the soft limit may be exceeded.
    pub grace: u64,
    /// Since when it is exceeded.
    pub since: Option<Time>,
}

impl Rule {
    /// Returns the bytes that cannot be exceeded at `now`.
    pub fn bound(&self, now: Time) -> u64 {
        let Limits { soft, hard } = self.limits;
        let hard = if hard == 0 { NO_LIMIT } else { hard };
        let is_expired = self.since.is_some_and(|since| seconds_left(since, self.grace, now) <= 0);
        if soft > 0 && is_expired { hard.min(soft) } else { hard }
    }

    /// Returns the soft limit, if it is not exceeded so far.
    fn ceiling(&self) -> Option<u64> {
        (self.limits.soft > 0 && self.since.is_none()).then_some(self.limits.soft)
    }
}

/// Returns the seconds until a soft limit acts as a hard one.
pub(crate) fn seconds_left(since: Time, grace: u64, now: Time) -> i64 {
    since.sec.saturating_add(i64::try_from(grace).unwrap_or(i64::MAX)).saturating_sub(now.sec)
}

/// The OSTs of the pools.
#[derive(Default)]
struct Pools(BTreeMap<PoolName, BTreeSet<u32>>);

impl Pools {
    /// Whether a scope contains an OST. A pool that does not exist contains none, and no pool
    /// contains the MDT's own data service.
    fn contain(&self, scope: Scope, ost: u32) -> bool {
        scope.is_none_or(|pool| self.0.get(&pool).is_some_and(|osts| osts.contains(&ost)))
    }

    /// Returns the number of targets in a scope. `all`: the number of all.
    fn count(&self, scope: Scope, all: u64) -> u64 {
        scope.map_or(all, |pool| self.0.get(&pool).map_or(0, |osts| osts.len() as u64)).max(1)
    }
}

/// A limit, and when a want was last refused because of it.
#[derive(Clone, Copy)]
struct Limit {
    rule: Rule,
    refused: Option<Instant>,
}

struct Entry {
    /// At least one.
    limits: BTreeMap<Scope, Limit>,
    /// By OST. An OST that is missing does not know that the id has a limit.
    parts: BTreeMap<u32, Part>,
    /// When the use was last requested because the id is near a limit.
    refreshed: Option<Instant>,
}

/// A limit that applies on an OST, as this OST sees it.
struct Budget {
    scope: Scope,
    rule: Rule,
    /// Shares of the other OSTs in the scope.
    others: u64,
    /// Whether one of these may use more than it does.
    others_have_spare: bool,
    refused: Option<Instant>,
}

impl Budget {
    /// Returns what the other OSTs leave of a limit.
    fn left(&self, limit: u64) -> u64 {
        limit.saturating_sub(self.others)
    }

    /// Returns the bytes up to which an OST may use space that needs so many. `waits`: a write
    /// waits. If none does, the soft limit is not exceeded.
    fn free(&self, needed: u64, waits: bool, now: Time) -> u64 {
        let bound = self.rule.bound(now);
        let stays_below = |soft: &u64| !waits || needed <= self.left(*soft);
        self.left(self.rule.ceiling().filter(stays_below).map_or(bound, |soft| soft.min(bound)))
    }

    /// Whether the use would exceed the soft limit for the first time, or the limit.
    fn is_short(&self, needed: u64, now: Time) -> bool {
        needed > self.left(self.rule.ceiling().unwrap_or_else(|| self.rule.bound(now)))
    }

    /// Whether questions to the other OSTs would have the same answers as a moment ago.
    fn is_known(&self, at: Instant, pause: Duration) -> bool {
        self.refused.is_some_and(|refused| at.since(refused) < pause) && !self.others_have_spare
    }
}

impl Entry {
    /// Returns the bytes in use in a scope.
    fn used(&self, scope: Scope, pools: &Pools) -> u64 {
        self.sum(scope, pools, |part| part.used)
    }

    fn sum(&self, scope: Scope, pools: &Pools, number: impl Fn(&Part) -> u64) -> u64 {
        let parts = self.parts.iter().filter(|(ost, _)| pools.contain(scope, **ost));
        parts.fold(0_u64, |sum, (_, part)| sum.saturating_add(number(part)))
    }

    /// Ends the grace times of those limits that the shares of all OSTs no longer exceed. Returns
    /// their scopes. `used`: the bytes in use on the OST of these budgets.
    fn end_grace_times(&mut self, budgets: &mut [Budget], used: u64) -> Vec<Scope> {
        let is_over = |budget: &&mut Budget| {
            let soft = budget.rule.limits.soft;
            budget.rule.since.is_some() && soft > 0 && budget.others.saturating_add(used) <= soft
        };
        let mut ended = Vec::new();
        for budget in budgets.iter_mut().filter(is_over) {
            budget.rule.since = None;
            if let Some(limit) = self.limits.get_mut(&budget.scope) {
                limit.rule.since = None;
            }
            ended.push(budget.scope);
        }
        ended
    }

    /// Returns the limits that apply on an OST.
    fn budgets(&self, ost: u32, pools: &Pools) -> Vec<Budget> {
        let applying = self.limits.iter().filter(|(scope, _)| pools.contain(**scope, ost));
        let budget = |(scope, limit): (&Scope, &Limit)| {
            let mut budget =
                Budget { scope: *scope, rule: limit.rule, others: 0, others_have_spare: false, refused: limit.refused };
            for (other, part) in &self.parts {
                if *other != ost && pools.contain(*scope, *other) {
                    budget.others = budget.others.saturating_add(part.share());
                    budget.others_have_spare |= part.has_spare();
                }
            }
            budget
        };
        applying.map(budget).collect()
    }
}

/// The answer to a want.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Allowed {
    /// The new allowance.
    pub bytes: u64,
    /// The id no longer exceeds the soft limits of these scopes: their grace times end.
    pub complies: Vec<Scope>,
    /// The id exceeds the soft limits of these scopes from now on.
    pub exceeds_soft: Vec<Scope>,
    /// It is too little, and other OSTs have bytes again that they do not use: the OST is to ask
    /// again.
    pub again: bool,
}

/// A limit of an id, as the parameters show it.
pub(crate) struct Line {
    pub id: Id,
    pub scope: Scope,
    pub rule: Rule,
    pub used: u64,
    pub allowed: u64,
}

/// The limits of space of all ids, and how they are divided.
#[derive(Default)]
pub(crate) struct Division {
    entries: BTreeMap<Id, Entry>,
    pools: Pools,
    /// Ids whose limits have changed, and are not yet sent to all OSTs.
    news: BTreeSet<Id>,
}

impl Division {
    /// Whether no id has a limit.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the ids that have a limit.
    pub fn ids(&self) -> Vec<Id> {
        self.entries.keys().copied().collect()
    }

    /// Returns the OSTs of a pool. `None`: there is no such pool.
    pub fn members(&self, pool: PoolName) -> Option<&BTreeSet<u32>> {
        self.pools.0.get(&pool)
    }

    /// Sets the pools and their OSTs. The limits of ids in pools that have changed are news then.
    /// Returns whether there are any.
    pub fn set_pools(&mut self, pools: BTreeMap<PoolName, BTreeSet<u32>>) -> bool {
        let old = std::mem::replace(&mut self.pools, Pools(pools));
        let has_changed = |scope: Scope| scope.is_some_and(|pool| old.0.get(&pool) != self.pools.0.get(&pool));
        for (id, entry) in &mut self.entries {
            for (_, limit) in entry.limits.iter_mut().filter(|(scope, _)| has_changed(**scope)) {
                limit.refused = None;
                self.news.insert(*id);
            }
        }
        !self.news.is_empty()
    }

    /// Sets the limits of an id. Without any it is unlimited.
    pub fn set_rules(&mut self, id: Id, rules: Rules) {
        let new = || Entry { limits: BTreeMap::new(), parts: BTreeMap::new(), refreshed: None };
        let entry = self.entries.entry(id).or_insert_with(new);
        let mut is_news = entry.limits.keys().any(|scope| !rules.contains_key(scope));
        entry.limits.retain(|scope, _| rules.contains_key(scope));
        for (scope, rule) in rules {
            let limit = entry.limits.entry(scope).or_insert_with(|| {
                is_news = true;
                Limit { rule, refused: None }
            });
            if limit.rule.limits != rule.limits {
                is_news = true;
                limit.refused = None;
            }
            limit.rule = rule;
        }
        if entry.limits.is_empty() {
            self.entries.remove(&id);
        }
        if is_news {
            self.news.insert(id);
        }
    }

    /// Takes the ids whose limits have changed, to be sent to all OSTs.
    pub fn take_news(&mut self) -> Vec<Id> {
        std::mem::take(&mut self.news).into_iter().collect()
    }

    /// Whether one of these limits applies on an OST.
    pub fn apply(&self, rules: &Rules, ost: u32) -> bool {
        rules.keys().any(|scope| self.pools.contain(*scope, ost))
    }

    /// Whether a limit of an id applies on an OST.
    pub fn is_limited(&self, id: Id, ost: u32) -> bool {
        self.entries.get(&id).is_some_and(|entry| entry.limits.keys().any(|scope| self.pools.contain(*scope, ost)))
    }

    /// Whether an OST knows that the id has a limit.
    pub fn knows_limit(&self, id: Id, ost: u32) -> bool {
        self.entries.get(&id).is_some_and(|entry| entry.parts.contains_key(&ost))
    }

    /// Returns the allowance of an id on an OST. `None`: no limit.
    pub fn allowance(&self, id: Id, ost: u32) -> Option<u64> {
        self.entries.get(&id)?.parts.get(&ost).map(|part| part.allow)
    }

    /// Records that an OST returned its allowance, with the bytes in use there.
    pub fn returned(&mut self, id: Id, ost: u32, used: u64) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.parts.insert(ost, Part { allow: 0, used });
        }
    }

    /// As [`Division::returned`], by an OST that has perhaps not counted all its objects since its
    /// start: it uses no less than before.
    pub fn reported(&mut self, id: Id, ost: u32, used: u64) {
        let known = self.entries.get(&id).and_then(|entry| entry.parts.get(&ost)).map_or(0, |part| part.used);
        self.returned(id, ost, used.max(known));
    }

    /// Records that an id has no limit on an OST, as the OST knows.
    pub fn released(&mut self, id: Id, ost: u32) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.parts.remove(&ost);
        }
    }

    /// Records the bytes in use on an OST.
    pub fn set_used(&mut self, id: Id, ost: u32, used: u64) {
        if let Some(part) = self.entries.get_mut(&id).and_then(|entry| entry.parts.get_mut(&ost)) {
            part.used = used;
        }
    }

    /// Records that an OST knows only the limits of these ids.
    pub fn retain(&mut self, ost: u32, ids: &BTreeSet<Id>) {
        for (id, entry) in &mut self.entries {
            if !ids.contains(id) {
                entry.parts.remove(&ost);
            }
        }
    }

    /// Forgets an OST, which was removed from the file system.
    pub fn remove_ost(&mut self, ost: u32) {
        self.retain(ost, &BTreeSet::new());
    }

    /// Returns the OSTs that must return their allowances before a want can be answered: those in
    /// the scopes of limits that leave too little. Also those without an allowance: they may use
    /// less than before. A want that repeats a refused one within `pause` needs none, unless an OST
    /// has bytes to return. Otherwise a program that repeats a refused write would cost a request
    /// to each OST each time.
    pub fn returners(&self, ost: u32, want: &QuotaWant, now: Time, at: Instant, pause: Duration) -> Vec<u32> {
        let Some(entry) = self.entries.get(&want.id) else { return Vec::new() };
        let needed = want.used.saturating_add(want.wanted);
        let mut short = entry.budgets(ost, &self.pools);
        short.retain(|budget| want.wanted > 0 && budget.is_short(needed, now) && !budget.is_known(at, pause));
        let is_asked = |other: u32| short.iter().any(|budget| self.pools.contain(budget.scope, other));
        let others = entry.parts.iter().filter(|(other, part)| **other != ost && part.share() > 0);
        others.map(|(other, _)| *other).filter(|other| is_asked(*other)).collect()
    }

    /// Answers a want: sets and returns the OST's allowance. If the limits leave too little, it is
    /// no more than the OST uses, so that smaller writes elsewhere find the rest. `osts`: the
    /// number of all targets. `None`: the id has no limit on this OST.
    pub fn allow(&mut self, ost: u32, want: &QuotaWant, osts: u64, now: Time, at: Instant) -> Option<Allowed> {
        let entry = self.entries.get_mut(&want.id)?;
        let mut budgets = entry.budgets(ost, &self.pools);
        let complies = entry.end_grace_times(&mut budgets, want.used);
        let waits = want.wanted > 0;
        let needed = want.used.saturating_add(want.wanted);
        let free_of = |budget: &Budget| budget.free(needed, waits, now);
        let Some(free) = budgets.iter().map(free_of).min() else {
            entry.parts.remove(&ost);
            return None;
        };
        let chunks = budgets.iter().map(|budget| {
            let parts = CHUNKS_PER_OST.saturating_mul(self.pools.count(budget.scope, osts));
            (budget.rule.bound(now) / parts).clamp(CHUNK_FAR, CHUNK_MAX)
        });
        let (chunk, left) = (chunks.min().unwrap_or(CHUNK_FAR), free.saturating_sub(needed));
        // Near the limit less and less, so that the OSTs need not take the rest from each other.
        let extra = chunk.min((left / 2).max(CHUNK_MIN)).min(left);
        let known = entry.parts.get(&ost).map_or(0, |part| part.allow);
        let at_least = if waits { 0 } else { known };
        let is_refused = waits && needed > free;
        let bytes = if is_refused { want.used } else { needed.saturating_add(extra).max(at_least) }.min(free);
        let refusing = |budget: &Budget| waits && needed > free_of(budget);
        // Only if all limits that refuse it may leave more.
        let again = is_refused && budgets.iter().all(|budget| !refusing(budget) || budget.others_have_spare);
        if waits {
            for budget in &budgets {
                if let Some(limit) = entry.limits.get_mut(&budget.scope) {
                    limit.refused = refusing(budget).then_some(at);
                }
            }
        }
        entry.parts.insert(ost, Part { allow: bytes, used: want.used });
        let exceeds =
            |budget: &&Budget| budget.rule.ceiling().is_some_and(|soft| needed.min(bytes) > budget.left(soft));
        let exceeds_soft = budgets.iter().filter(exceeds).map(|budget| budget.scope).collect();
        Some(Allowed { bytes, complies, exceeds_soft, again })
    }

    /// Returns whether one of the ids is near a limit, and those of them whose use should be
    /// requested: files may have been deleted since. `osts`: those with the file's objects, whose
    /// limits count. Without any, all limits do.
    pub fn tight(&mut self, ids: [Id; 3], osts: &BTreeSet<u32>, near: &Near) -> (bool, Vec<Id>) {
        let (mut is_tight, mut stale) = (false, Vec::new());
        for id in ids {
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            let pools = &self.pools;
            let exists =
                |scope: Scope| scope.is_none_or(|pool| pools.0.get(&pool).is_some_and(|osts| !osts.is_empty()));
            let counts = |scope: Scope| {
                if osts.is_empty() { exists(scope) } else { osts.iter().any(|ost| pools.contain(scope, *ost)) }
            };
            let is_near = |(scope, limit): (&Scope, &Limit)| {
                let bytes = near.each.saturating_mul(pools.count(*scope, near.all));
                let left = limit.rule.bound(near.now).saturating_sub(entry.used(*scope, pools));
                counts(*scope) && left < bytes
            };
            if !entry.limits.iter().any(is_near) {
                continue;
            }
            is_tight = true;
            if entry.refreshed.is_none_or(|last| near.at.since(last) >= near.age) {
                entry.refreshed = Some(near.at);
                stale.push(id);
            }
        }
        (is_tight, stale)
    }

    /// Returns all limits, as the parameter `quota` shows them.
    pub fn lines(&self) -> impl Iterator<Item = Line> {
        self.entries.iter().flat_map(move |(id, entry)| {
            entry.limits.iter().map(move |(scope, limit)| self.line(*id, *scope, entry, limit))
        })
    }

    /// Returns up to `max` limits within a scope, of ids from `first` on of the same kind.
    pub fn lines_of(&self, first: Id, scope: Scope, max: usize) -> Vec<Line> {
        let of_kind = self.entries.range(first..).take_while(|(id, _)| id.kind == first.kind);
        let limits = of_kind.filter_map(|(id, entry)| Some((*id, entry, entry.limits.get(&scope)?)));
        limits.take(max).map(|(id, entry, limit)| self.line(id, scope, entry, limit)).collect()
    }

    fn line(&self, id: Id, scope: Scope, entry: &Entry, limit: &Limit) -> Line {
        Line {
            id,
            scope,
            rule: limit.rule,
            used: entry.used(scope, &self.pools),
            allowed: entry.sum(scope, &self.pools, |part| part.allow),
        }
    }
}

/// When an id counts as near a limit, and when its use is requested again.
pub(crate) struct Near {
    /// Bytes for each target of a scope.
    pub each: u64,
    /// The number of all targets.
    pub all: u64,
    /// The use of an id is requested once in this time.
    pub age: Duration,
    pub now: Time,
    pub at: Instant,
}

#[cfg(test)]
mod tests;
