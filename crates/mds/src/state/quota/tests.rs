//! Tests of the division of limits, by hand and with random writes.

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

fn everywhere(rule: Rule) -> Rules {
    Rules::from([(None, rule)])
}

fn division(rule: Rule, osts: u32) -> Division {
    let mut division = Division::default();
    division.set_rules(ID, everywhere(rule));
    assert_eq!(division.take_news(), [ID]);
    (0..osts).for_each(|ost| division.returned(ID, ost, 0));
    division
}

fn allow(division: &mut Division, ost: u32, want: QuotaWant, osts: u64) -> Allowed {
    division.allow(ost, &want, osts, time(0), Instant::ZERO).unwrap()
}

fn near(each: u64, at: u64) -> Near {
    Near { each, all: 2, age: Duration::from_nanos(10), now: time(0), at: Instant::from_nanos(at) }
}

fn returners(division: &Division, ost: u32, want: QuotaWant) -> Vec<u32> {
    division.returners(ost, &want, time(0), Instant::ZERO, Duration::ZERO)
}

#[test]
fn allowance_is_what_is_needed_and_a_chunk() {
    let mut division = division(rule(0, 64 * GIB), 4);
    let got = allow(&mut division, 1, want(5 * MIB, 3 * MIB), 4);
    assert_eq!(got, Allowed { bytes: 8 * MIB + GIB, complies: vec![], exceeds_soft: vec![], again: false });
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
    division.set_rules(ID, everywhere(rule(0, 10 * MIB + 1)));
    assert_eq!(returners(&division, 1001), [0], "the limit is another one");
}

#[test]
fn soft_limit_acts_as_a_hard_one_after_the_grace_time() {
    let mut division = division(rule(10 * MIB, 100 * MIB), 1);
    let got = allow(&mut division, 0, want(0, 9 * MIB), 1);
    let wanted = Allowed { bytes: 10 * MIB, complies: vec![], exceeds_soft: vec![], again: false };
    assert_eq!(got, wanted, "not beyond the soft limit without need");
    let got = allow(&mut division, 0, want(10 * MIB, MIB), 1);
    assert!(got.exceeds_soft == [None] && got.bytes >= 11 * MIB);
    division.set_rules(ID, everywhere(Rule { since: Some(time(0)), ..rule(10 * MIB, 100 * MIB) }));
    let at =
        |division: &mut Division, sec| division.allow(0, &want(11 * MIB, MIB), 1, time(sec), Instant::ZERO).unwrap();
    let got = at(&mut division, 99);
    assert!(got.bytes >= 12 * MIB && got.exceeds_soft.is_empty(), "known already");
    assert_eq!(at(&mut division, 100).bytes, 10 * MIB);
}

#[test]
fn grace_time_ends_when_the_use_complies_with_the_soft_limit() {
    let exceeded = Rule { since: Some(time(0)), ..rule(10 * MIB, 100 * MIB) };
    let mut division = division(exceeded, 2);
    let late =
        |division: &mut Division, used| division.allow(0, &want(used, MIB), 2, time(500), Instant::ZERO).unwrap();
    assert_eq!(late(&mut division, 11 * MIB).bytes, 10 * MIB, "the grace time is over");
    let got = late(&mut division, MIB);
    assert_eq!((got.complies, got.exceeds_soft), (vec![None], vec![]), "files were deleted");
    let got = late(&mut division, 10 * MIB);
    assert!(got.bytes >= 11 * MIB && got.exceeds_soft == [None], "a new grace time begins");
}

#[test]
fn want_of_nothing_extends_an_allowance_and_never_shrinks_it() {
    let mut division = division(rule(50 * MIB, 100 * MIB), 2);
    allow(&mut division, 0, want(0, 30 * MIB), 2);
    let before = division.allowance(ID, 0).unwrap();
    let got = allow(&mut division, 0, want(MIB, 0), 2);
    assert_eq!((got.bytes, got.exceeds_soft), (before, vec![]));
    let got = allow(&mut division, 0, want(before, 0), 2);
    assert!(got.bytes > before && got.bytes <= 50 * MIB && got.exceeds_soft.is_empty());
    assert!(returners(&division, 1, want(60 * MIB, 0)).is_empty(), "nobody waits");
}

#[test]
fn id_without_limit_has_no_allowance() {
    let mut division = division(rule(0, GIB), 1);
    let news = |division: &mut Division, rule: Option<Rule>| {
        division.set_rules(ID, rule.map(everywhere).unwrap_or_default());
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
        let (tight, stale) = division.tight(ids, &BTreeSet::new(), &near(15 * MIB, at));
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

fn pool(name: &str) -> PoolName {
    PoolName::new(name).unwrap()
}

fn pools<const N: usize>(pools: [(&str, &[u32]); N]) -> BTreeMap<PoolName, BTreeSet<u32>> {
    pools.into_iter().map(|(name, osts)| (pool(name), osts.iter().copied().collect())).collect()
}

/// Three OSTs. The first two are in a pool with a limit.
fn with_pool(all: Option<Rule>, within: Rule) -> Division {
    let mut division = Division::default();
    division.set_pools(pools([("a", &[0, 1])]));
    let rules = all.map(everywhere).unwrap_or_default().into_iter().chain([(Some(pool("a")), within)]);
    division.set_rules(ID, rules.collect());
    for ost in 0..3 {
        if division.is_limited(ID, ost) {
            division.returned(ID, ost, 0);
        }
    }
    division
}

#[test]
fn allowance_obeys_the_smallest_remainder_of_all_scopes() {
    let mut division = with_pool(Some(rule(0, 100 * MIB)), rule(0, 30 * MIB));
    assert_eq!(allow(&mut division, 0, want(0, 20 * MIB), 3).bytes, 25 * MIB, "half of what the pool leaves");
    assert_eq!(allow(&mut division, 2, want(0, 74 * MIB), 3).bytes, 75 * MIB, "all but the share of 0");
    division.returned(ID, 0, 20 * MIB);
    assert_eq!(allow(&mut division, 1, want(0, 6 * MIB), 3).bytes, 0, "5 MiB are left by all");
    division.returned(ID, 2, 0);
    assert_eq!(allow(&mut division, 1, want(0, 11 * MIB), 3).bytes, 0, "10 MiB are left in the pool");
    assert_eq!(allow(&mut division, 1, want(0, 10 * MIB), 3).bytes, 10 * MIB);
}

#[test]
fn only_osts_in_the_scope_of_a_short_limit_return_allowances() {
    let mut division = with_pool(Some(rule(0, 100 * MIB)), rule(0, 30 * MIB));
    for ost in 0..3 {
        division.returned(ID, ost, 5 * MIB);
    }
    assert_eq!(returners(&division, 0, want(5 * MIB, 21 * MIB)), [1], "the pool is short");
    assert_eq!(returners(&division, 2, want(5 * MIB, 86 * MIB)), [0, 1], "the other limit is");
    assert!(returners(&division, 2, want(5 * MIB, 85 * MIB)).is_empty());
    // The refusal in the pool says nothing of the OST outside.
    assert_eq!(allow(&mut division, 0, want(5 * MIB, 21 * MIB), 3).bytes, 5 * MIB);
    let again =
        |ost, wanted| division.returners(ost, &want(5 * MIB, wanted), time(0), Instant::ZERO, Duration::from_secs(1));
    assert_eq!((again(0, 21 * MIB), again(2, 86 * MIB)), (vec![], vec![0, 1]));
}

#[test]
fn ost_outside_of_the_pools_with_limits_is_unlimited() {
    let mut division = with_pool(None, rule(0, 30 * MIB));
    assert_eq!([0, 1, 2].map(|ost| division.is_limited(ID, ost)), [true, true, false]);
    assert!(!division.knows_limit(ID, 2));
    assert_eq!(division.allow(2, &want(0, MIB), 3, time(0), Instant::ZERO), None);
    let osts = |osts: &[u32]| osts.iter().copied().collect::<BTreeSet<u32>>();
    division.set_used(ID, 0, 20 * MIB);
    let tight = |division: &mut Division, on: &[u32]| division.tight([ID; 3], &osts(on), &near(6 * MIB, 0)).0;
    assert_eq!([&[0, 2][..], &[2], &[]].map(|on| tight(&mut division, on)), [true, false, true]);
}

#[test]
fn changed_members_of_a_pool_are_news_of_its_limits() {
    let mut division = with_pool(None, rule(0, 30 * MIB));
    division.take_news();
    division.set_pools(pools([("a", &[0, 1]), ("b", &[2])]));
    assert_eq!(division.take_news(), [], "no limit within b");
    division.set_pools(pools([("a", &[1, 2])]));
    assert_eq!(division.take_news(), [ID]);
    assert_eq!([0, 1, 2].map(|ost| division.is_limited(ID, ost)), [false, true, true]);
    division.set_used(ID, 0, 30 * MIB);
    assert_eq!(allow(&mut division, 1, want(0, 29 * MIB), 3).bytes, 30 * MIB, "0 does not count any more");
    division.released(ID, 0);
    assert!(!division.knows_limit(ID, 0));
    division.set_pools(BTreeMap::new());
    assert_eq!((division.take_news(), division.is_limited(ID, 1)), (vec![ID], false));
    assert_eq!(division.lines().map(|line| line.used).collect::<Vec<_>>(), [0]);
}

/// OSTs as they are, with the division that the MDT knows.
struct World {
    division: Division,
    rules: Rules,
    pools: BTreeMap<PoolName, BTreeSet<u32>>,
    osts: Vec<Part>,
}

impl World {
    fn new(numbers: &mut Numbers) -> World {
        let count = 1 + numbers.below(6) as u32;
        let mut pools = BTreeMap::new();
        for n in 0..numbers.below(3) {
            let osts = (0..count).filter(|_| numbers.below(2) == 0).collect();
            pools.insert(pool(&format!("p{n}")), osts);
        }
        let mut scopes: Vec<Scope> = pools.keys().copied().map(Some).collect();
        if scopes.is_empty() || numbers.below(2) == 0 {
            scopes.push(None);
        }
        let mut limit = || {
            let hard = (1 + numbers.below(64)) * MIB;
            rule(if numbers.below(2) == 0 { hard / 2 } else { 0 }, hard)
        };
        let rules: Rules = scopes.into_iter().map(|scope| (scope, limit())).collect();
        let mut division = Division::default();
        division.set_pools(pools.clone());
        division.set_rules(ID, rules.clone());
        (0..count).for_each(|ost| division.returned(ID, ost, 0));
        World { division, rules, pools, osts: vec![Part::default(); count as usize] }
    }

    fn has(&self, scope: Scope, ost: usize) -> bool {
        scope.is_none_or(|pool| self.pools[&pool].contains(&(ost as u32)))
    }

    fn sum(&self, scope: Scope, number: impl Fn(&Part) -> u64) -> u64 {
        let parts = self.osts.iter().enumerate().filter(|(ost, _)| self.has(scope, *ost));
        parts.map(|(_, part)| number(part)).sum()
    }

    /// Whether all limits leave so many bytes for an OST.
    fn fits(&self, ost: usize, bytes: u64) -> bool {
        let fits = |(scope, rule): (&Scope, &Rule)| {
            !self.has(*scope, ost) || self.sum(*scope, |part| part.used) + bytes <= rule.limits.hard
        };
        self.rules.iter().all(fits)
    }

    fn take_back(&mut self, ost: usize) {
        self.osts[ost].allow = 0;
        self.division.returned(ID, ost as u32, self.osts[ost].used);
    }

    /// Writes on an OST; returns whether the write was allowed.
    fn write(&mut self, ost: usize, bytes: u64) -> bool {
        let (used, is_limited) = (self.osts[ost].used, self.division.is_limited(ID, ost as u32));
        if is_limited && used + bytes > self.osts[ost].allow {
            let asked = want(used, bytes);
            for other in returners(&self.division, ost as u32, asked) {
                self.take_back(other as usize);
            }
            let count = self.osts.len() as u64;
            let got = allow(&mut self.division, ost as u32, asked, count);
            for scope in got.exceeds_soft {
                self.rules.get_mut(&scope).unwrap().since = Some(time(0));
                self.division.set_rules(ID, self.rules.clone());
            }
            self.osts[ost].allow = got.bytes;
        }
        let fits = !is_limited || used + bytes <= self.osts[ost].allow;
        self.osts[ost].used += if fits { bytes } else { 0 };
        fits
    }

    /// Asks for more before a write needs it.
    fn ask_ahead(&mut self, ost: usize) {
        if self.division.is_limited(ID, ost as u32) {
            let (asked, count) = (want(self.osts[ost].used, 0), self.osts.len() as u64);
            self.osts[ost].allow = allow(&mut self.division, ost as u32, asked, count).bytes;
        }
    }

    fn check(&self, place: &str) {
        for (scope, rule) in &self.rules {
            let (used, allowed) = (self.sum(*scope, |part| part.used), self.sum(*scope, |part| part.allow));
            let Limits { soft, hard } = rule.limits;
            assert!(allowed <= hard && used <= hard, "{place}: {scope:?}");
            let is_soft = soft > 0 && rule.since.is_none();
            assert!(!is_soft || used <= soft, "{place}: {scope:?}: the grace time did not begin");
        }
    }
}

#[test]
fn allowances_never_exceed_a_limit_and_wants_that_fit_are_satisfied() {
    for seed in 0..300 {
        let mut numbers = Numbers(seed);
        let mut world = World::new(&mut numbers);
        let count = world.osts.len() as u64;
        for step in 0..400 {
            let (ost, bytes) = (numbers.below(count) as usize, 1 + numbers.below(3 * MIB));
            match numbers.below(8) {
                0 => world.osts[ost].used = numbers.below(world.osts[ost].used + 1),
                1 => world.take_back(ost),
                2 => world.ask_ahead(ost),
                _ => {
                    let fits = world.fits(ost, bytes);
                    assert_eq!(world.write(ost, bytes), fits, "seed {seed}, step {step}");
                }
            }
            world.check(&format!("seed {seed}, step {step}"));
        }
    }
}
