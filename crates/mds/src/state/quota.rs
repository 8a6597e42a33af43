//! Division of limits of space among the OSTs (Lustre's quota master): pure, without requests.
//!
//! Each OST has an allowance for each id with a limit: bytes that the id may use there without a
//! question to the MDT. The share of an OST is its allowance, or its use if that is more (writes
//! under grants and files of the superuser need no allowance).
//!
//! Invariants:
//! * An OST gets no allowance beyond what the others leave of the limit. So the sum of the
//!   allowances exceeds the limit only if the limit was lowered and the OST did not answer since.
//! * A want that fits into the limit is satisfied after the other OSTs returned their allowances.
//! * As long as all wants fit below the soft limit, the sum of the allowances stays below it: the
//!   grace time begins with a write, not with an allowance.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sheen_rt::Instant;
use sheen_wire::Time;
use sheen_wire::ost::QuotaWant;
use sheen_wire::quota::{Id, Limits};

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

/// Allowance and use of an id on one OST.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Part {
    /// Bytes that it may use.
    pub allow: u64,
    /// Bytes in use, as the OST last said.
    pub used: u64,
}

impl Part {
    /// Returns what the OST has of the limit.
    fn share(self) -> u64 {
        self.allow.max(self.used)
    }
}

/// The limit of an id.
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

struct Entry {
    rule: Rule,
    /// By OST. An OST that is missing does not know that the id has a limit.
    parts: BTreeMap<u32, Part>,
    /// When a want was last refused.
    refused: Option<Instant>,
    /// When the use was last requested because the id is near its limit.
    refreshed: Option<Instant>,
}

impl Entry {
    fn used(&self) -> u64 {
        self.parts.values().fold(0_u64, |sum, part| sum.saturating_add(part.used))
    }

    /// Whether OSTs other than one may use more than they do.
    fn others_have_spare(&self, ost: u32) -> bool {
        self.parts.iter().any(|(other, part)| *other != ost && part.allow > part.used)
    }

    /// Returns what all OSTs but one leave of a limit.
    fn left_by_others(&self, ost: u32, limit: u64) -> u64 {
        let others = self.parts.iter().filter(|(other, _)| **other != ost);
        others.fold(limit, |left, (_, part)| left.saturating_sub(part.share()))
    }
}

/// The answer to a want.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Allowed {
    /// The new allowance.
    pub bytes: u64,
    /// The id exceeds its soft limit from now on.
    pub exceeds_soft: bool,
    /// It is too little, and other OSTs have bytes again that they do not use: the OST is to ask
    /// again.
    pub again: bool,
}

/// The line of an id in the parameter `quota`.
pub(crate) struct Line {
    pub id: Id,
    pub limits: Limits,
    pub used: u64,
    pub allowed: u64,
}

/// The limits of space of all ids, and how they are divided.
#[derive(Default)]
pub(crate) struct Division {
    entries: BTreeMap<Id, Entry>,
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

    /// Sets the limit of an id; `None`: it has none.
    pub fn set_rule(&mut self, id: Id, rule: Option<Rule>) {
        let known = self.entries.get(&id).map(|entry| entry.rule.limits);
        let is_news = known != rule.map(|rule| rule.limits);
        match rule {
            None => drop(self.entries.remove(&id)),
            Some(rule) => {
                let new = || Entry { rule, parts: BTreeMap::new(), refused: None, refreshed: None };
                let entry = self.entries.entry(id).or_insert_with(new);
                entry.rule = rule;
                entry.refused = entry.refused.filter(|_| !is_news);
            }
        }
        if is_news {
            self.news.insert(id);
        }
    }

    /// Takes the ids whose limits have changed, to be sent to all OSTs.
    pub fn take_news(&mut self) -> Vec<Id> {
        std::mem::take(&mut self.news).into_iter().collect()
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

    /// Returns the OSTs that must return their allowances before a want can be answered. Also those
    /// without an allowance: they may use less than before. A want that repeats a refused one
    /// within `pause` needs none, unless an OST has bytes to return. Otherwise a program that
    /// repeats a refused write would cost a request to each OST each time.
    pub fn returners(&self, ost: u32, want: &QuotaWant, now: Time, at: Instant, pause: Duration) -> Vec<u32> {
        let Some(entry) = self.entries.get(&want.id) else { return Vec::new() };
        let limit = entry.rule.ceiling().unwrap_or_else(|| entry.rule.bound(now));
        let needed = want.used.saturating_add(want.wanted);
        let was_refused = entry.refused.is_some_and(|refused| at.since(refused) < pause);
        let is_pointless = was_refused && !entry.others_have_spare(ost);
        if want.wanted == 0 || is_pointless || needed <= entry.left_by_others(ost, limit) {
            return Vec::new();
        }
        let others = entry.parts.iter().filter(|(other, part)| **other != ost && part.share() > 0);
        others.map(|(other, _)| *other).collect()
    }

    /// Answers a want: sets and returns the OST's allowance. If the limit leaves too little, it is
    /// no more than the OST uses, so that smaller writes elsewhere find the rest. `osts`: their
    /// number. `None`: the id has no limit.
    pub fn allow(&mut self, ost: u32, want: &QuotaWant, osts: u64, now: Time, at: Instant) -> Option<Allowed> {
        let entry = self.entries.get_mut(&want.id)?;
        let needed = want.used.saturating_add(want.wanted);
        let (bound, ceiling) = (entry.rule.bound(now), entry.rule.ceiling());
        // Nobody waits for a want of 0 bytes, so it does not exceed the soft limit.
        let stays_below = |soft: &u64| want.wanted == 0 || needed <= entry.left_by_others(ost, *soft);
        let limit = ceiling.filter(stays_below).map_or(bound, |soft| soft.min(bound));
        let free = entry.left_by_others(ost, limit);
        let left = free.saturating_sub(needed);
        let chunk = (bound / CHUNKS_PER_OST.saturating_mul(osts.max(1))).clamp(CHUNK_FAR, CHUNK_MAX);
        // Near the limit less and less, so that the OSTs need not take the rest from each other.
        let extra = chunk.min((left / 2).max(CHUNK_MIN)).min(left);
        let known = entry.parts.get(&ost).map_or(0, |part| part.allow);
        let at_least = if want.wanted == 0 { known } else { 0 };
        let is_refused = want.wanted > 0 && needed > free;
        let bytes = if is_refused { want.used } else { needed.saturating_add(extra).max(at_least) }.min(free);
        if want.wanted > 0 {
            entry.refused = is_refused.then_some(at);
        }
        let again = is_refused && entry.others_have_spare(ost);
        entry.parts.insert(ost, Part { allow: bytes, used: want.used });
        let exceeds_soft = ceiling.is_some_and(|soft| needed.min(bytes) > entry.left_by_others(ost, soft));
        Some(Allowed { bytes, exceeds_soft, again })
    }

    /// Returns whether one of the ids has less than `bytes` left, and those of them whose use
    /// should be requested: files may have been deleted since. An id is returned once per `age`.
    pub fn tight(&mut self, ids: [Id; 3], bytes: u64, now: Time, at: Instant, age: Duration) -> (bool, Vec<Id>) {
        let (mut is_tight, mut stale) = (false, Vec::new());
        for id in ids {
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            if entry.rule.bound(now).saturating_sub(entry.used()) >= bytes {
                continue;
            }
            is_tight = true;
            if entry.refreshed.is_none_or(|last| at.since(last) >= age) {
                entry.refreshed = Some(at);
                stale.push(id);
            }
        }
        (is_tight, stale)
    }

    /// Returns the lines of the parameter `quota`.
    pub fn lines(&self) -> impl Iterator<Item = Line> {
        self.entries.iter().map(|(id, entry)| {
            let allowed = entry.parts.values().fold(0_u64, |sum, part| sum.saturating_add(part.allow));
            Line { id: *id, limits: entry.rule.limits, used: entry.used(), allowed }
        })
    }
}

#[cfg(test)]
mod tests {
    use sheen_wire::quota::Kind;

    use super::*;

    const ID: Id = Id { kind: Kind::User, id: 1000 };
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn rule(soft: u64, hard: u64) -> Rule {
        Rule { limits: Limits { soft, hard }, grace: 100, since: None }
    }

    fn time(sec: i64) -> Time {
        Time { sec, nsec: 0 }
    }

    fn want(used: u64, wanted: u64) -> QuotaWant {
        QuotaWant { id: ID, used, wanted }
    }

    fn division(rule: Rule, osts: u32) -> Division {
        let mut division = Division::default();
        division.set_rule(ID, Some(rule));
        assert_eq!(division.take_news(), [ID]);
        (0..osts).for_each(|ost| division.returned(ID, ost, 0));
        division
    }

    fn allow(division: &mut Division, ost: u32, want: QuotaWant, osts: u64) -> Allowed {
        division.allow(ost, &want, osts, time(0), Instant::ZERO).unwrap()
    }

    fn returners(division: &Division, ost: u32, want: QuotaWant) -> Vec<u32> {
        division.returners(ost, &want, time(0), Instant::ZERO, Duration::ZERO)
    }

    #[test]
    fn allowance_is_what_is_needed_and_a_chunk() {
        let mut division = division(rule(0, 64 * GIB), 4);
        let got = allow(&mut division, 1, want(5 * MIB, 3 * MIB), 4);
        assert_eq!(got, Allowed { bytes: 8 * MIB + GIB, exceeds_soft: false, again: false });
        assert_eq!(division.allowance(ID, 1), Some(8 * MIB + GIB));
        assert_eq!((division.allowance(ID, 2), division.allowance(ID, 9)), (Some(0), None));
    }

    #[test]
    fn chunks_shrink_near_the_limit() {
        let mut division = division(rule(0, 64 * MIB), 1);
        let (mut used, mut chunks) = (0, Vec::new());
        while used < 64 * MIB {
            let got = allow(&mut division, 0, want(used, MIB), 1).bytes;
            chunks.push((got - used - MIB) / MIB);
            used = got;
        }
        assert_eq!(chunks.first(), Some(&31));
        assert!(chunks.is_sorted_by(|a, b| a >= b) && used == 64 * MIB, "{chunks:?}");
    }

    #[test]
    fn want_is_refused_only_after_all_others_returned_what_they_do_not_use() {
        let mut division = division(rule(0, 100 * MIB), 3);
        allow(&mut division, 0, want(0, 90 * MIB), 3);
        let wanted = want(0, 60 * MIB);
        assert_eq!(returners(&division, 1, wanted), [0], "2 has nothing");
        division.returned(ID, 0, 50 * MIB);
        assert_eq!(allow(&mut division, 1, wanted, 3).bytes, 0, "the refusal");
        assert_eq!(allow(&mut division, 2, want(0, MIB), 3).bytes, 25 * MIB + MIB / 2, "others find the rest");
        assert!(allow(&mut division, 1, wanted, 3).again, "2 has some now");
        assert_eq!(returners(&division, 1, wanted), [0, 2]);
        division.returned(ID, 2, 0);
        assert_eq!(returners(&division, 1, wanted), [0], "it may have deleted files");
        division.returned(ID, 0, 10 * MIB);
        assert!(allow(&mut division, 1, wanted, 3).bytes >= 60 * MIB);
    }

    #[test]
    fn repeated_wants_after_a_refusal_do_not_ask_the_others_at_once() {
        let mut division = division(rule(0, 10 * MIB), 2);
        division.returned(ID, 0, 10 * MIB);
        let at = Instant::from_nanos(1000);
        division.allow(1, &want(0, MIB), 2, time(0), at).unwrap();
        let pause = Duration::from_nanos(50);
        let returners =
            |division: &Division, at| division.returners(1, &want(0, MIB), time(0), Instant::from_nanos(at), pause);
        assert_eq!((returners(&division, 1049), returners(&division, 1050)), (vec![], vec![0]));
        division.set_rule(ID, Some(rule(0, 10 * MIB + 1)));
        assert_eq!(returners(&division, 1001), [0], "the limit is another one");
    }

    #[test]
    fn soft_limit_acts_as_a_hard_one_after_the_grace_time() {
        let mut division = division(rule(10 * MIB, 100 * MIB), 1);
        let got = allow(&mut division, 0, want(0, 9 * MIB), 1);
        let wanted = Allowed { bytes: 10 * MIB, exceeds_soft: false, again: false };
        assert_eq!(got, wanted, "not beyond the soft limit without need");
        let got = allow(&mut division, 0, want(10 * MIB, MIB), 1);
        assert!(got.exceeds_soft && got.bytes >= 11 * MIB);
        division.set_rule(ID, Some(Rule { since: Some(time(0)), ..rule(10 * MIB, 100 * MIB) }));
        let at = |division: &mut Division, sec| {
            division.allow(0, &want(11 * MIB, MIB), 1, time(sec), Instant::ZERO).unwrap()
        };
        let got = at(&mut division, 99);
        assert!(got.bytes >= 12 * MIB && !got.exceeds_soft, "known already");
        assert_eq!(at(&mut division, 100).bytes, 10 * MIB);
    }

    #[test]
    fn want_of_nothing_extends_an_allowance_and_never_shrinks_it() {
        let mut division = division(rule(50 * MIB, 100 * MIB), 2);
        allow(&mut division, 0, want(0, 30 * MIB), 2);
        let before = division.allowance(ID, 0).unwrap();
        let got = allow(&mut division, 0, want(MIB, 0), 2);
        assert_eq!((got.bytes, got.exceeds_soft), (before, false));
        let got = allow(&mut division, 0, want(before, 0), 2);
        assert!(got.bytes > before && got.bytes <= 50 * MIB && !got.exceeds_soft);
        assert!(returners(&division, 1, want(60 * MIB, 0)).is_empty(), "nobody waits");
    }

    #[test]
    fn id_without_limit_has_no_allowance() {
        let mut division = division(rule(0, GIB), 1);
        let news = |division: &mut Division, rule| {
            division.set_rule(ID, rule);
            division.take_news().len()
        };
        assert_eq!(news(&mut division, Some(Rule { grace: 5, ..rule(0, GIB) })), 0, "the OSTs need not know");
        assert_eq!(news(&mut division, Some(rule(0, 2 * GIB))), 1);
        assert_eq!((news(&mut division, None), news(&mut division, None)), (1, 0));
        assert!(division.is_empty());
        assert_eq!(division.allow(0, &want(0, MIB), 1, time(0), Instant::ZERO), None);
    }

    #[test]
    fn id_near_its_limit_is_tight_and_refreshed_from_time_to_time() {
        let mut division = division(rule(0, 100 * MIB), 2);
        let other = |kind| Id { kind, id: 7 };
        let ids = [ID, other(Kind::Group), other(Kind::Project)];
        let tight = |division: &mut Division, at| {
            let age = Duration::from_nanos(10);
            let (tight, stale) = division.tight(ids, 30 * MIB, time(0), Instant::from_nanos(at), age);
            (tight, stale.len())
        };
        division.set_used(ID, 0, 70 * MIB);
        assert_eq!(tight(&mut division, 0), (false, 0));
        division.set_used(ID, 1, MIB);
        assert_eq!([0, 9, 10].map(|at| tight(&mut division, at)), [(true, 1), (true, 0), (true, 1)]);
    }

    #[test]
    fn ost_that_was_removed_or_knows_less_has_no_share() {
        let mut division = division(rule(0, 10 * MIB), 2);
        allow(&mut division, 0, want(0, 10 * MIB), 2);
        division.retain(0, &BTreeSet::from([ID]));
        assert!(division.knows_limit(ID, 0));
        division.remove_ost(0);
        assert!(!division.knows_limit(ID, 0) && division.knows_limit(ID, 1));
        assert_eq!(allow(&mut division, 1, want(0, 10 * MIB), 1).bytes, 10 * MIB);
    }

    /// Pseudo-random numbers: the same ones for a seed.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % end
        }
    }

    /// OSTs as they are, with the division that the MDT knows.
    struct World {
        division: Division,
        rule: Rule,
        osts: Vec<Part>,
    }

    impl World {
        fn used(&self) -> u64 {
            self.osts.iter().map(|part| part.used).sum()
        }

        fn take_back(&mut self, ost: usize) {
            self.osts[ost].allow = 0;
            self.division.returned(ID, ost as u32, self.osts[ost].used);
        }

        /// Writes on an OST; returns whether the write was allowed.
        fn write(&mut self, ost: usize, bytes: u64) -> bool {
            let used = self.osts[ost].used;
            if used + bytes > self.osts[ost].allow {
                let asked = want(used, bytes);
                for other in returners(&self.division, ost as u32, asked) {
                    self.take_back(other as usize);
                }
                let count = self.osts.len() as u64;
                let got = allow(&mut self.division, ost as u32, asked, count);
                if got.exceeds_soft {
                    self.rule.since = Some(time(0));
                    self.division.set_rule(ID, Some(self.rule));
                }
                self.osts[ost].allow = got.bytes;
            }
            let fits = used + bytes <= self.osts[ost].allow;
            self.osts[ost].used += if fits { bytes } else { 0 };
            fits
        }
    }

    #[test]
    fn allowances_never_exceed_the_limit_and_wants_that_fit_are_satisfied() {
        for seed in 0..300 {
            let mut numbers = Numbers(seed);
            let count = 1 + numbers.below(6) as usize;
            let hard = (1 + numbers.below(64)) * MIB;
            let rule = rule(if numbers.below(2) == 0 { hard / 2 } else { 0 }, hard);
            let mut world = World { division: division(rule, count as u32), rule, osts: vec![Part::default(); count] };
            for step in 0..400 {
                let (ost, bytes) = (numbers.below(count as u64) as usize, 1 + numbers.below(3 * MIB));
                match numbers.below(8) {
                    0 => world.osts[ost].used = numbers.below(world.osts[ost].used + 1),
                    1 => world.take_back(ost),
                    2 => {
                        let asked = want(world.osts[ost].used, 0);
                        world.osts[ost].allow = allow(&mut world.division, ost as u32, asked, count as u64).bytes;
                    }
                    _ => {
                        let fits = world.used() + bytes <= hard;
                        assert_eq!(world.write(ost, bytes), fits, "seed {seed}, step {step}");
                    }
                }
                let allowed: u64 = world.osts.iter().map(|part| part.allow).sum();
                assert!(allowed <= hard && world.used() <= hard, "seed {seed}, step {step}");
                if world.rule.since.is_none() && rule.limits.soft > 0 {
                    assert!(world.used() <= rule.limits.soft, "seed {seed}, step {step}: the grace time did not begin");
                }
            }
        }
    }
}
