//! Which OST each stripe of a new file gets: Lustre's object allocator.
//!
//! * A list (`-o`) is taken as it is.
//! * A start (`-i`) is a hint: from there in order of index, passing over what is full or inactive.
//! * What grows by itself ([`Wanted::room`]) goes to OSTs that have room for what it takes, even if
//!   it gets fewer stripes by that.
//! * Otherwise **round robin** while the OSTs are about evenly full (the emptiest and the fullest
//!   are less than [`Limits::threshold_percent`] apart), going on where the last file ended,
//!   servers taking turns;
//! * else **weighted**: a random choice by free space, in which an OST (and its server) that was
//!   just chosen is held back for a while by a penalty, so that files spread and do not all fall
//!   onto the emptiest.
//!
//! A degraded OST (its disks are being repaired) is passed over where there are enough others for
//! as many OSTs as the file is spread over without it, or where it was named.
//!
//! Overstripes go round the chosen OSTs again and again, so no OST has more than one stripe more
//! than another.
//!
//! Random numbers come from a generator seeded by the caller: the same seed and the same calls
//! choose the same OSTs.

use std::collections::BTreeMap;

use crate::{Count, LayoutError, STRIPES_MAX, Wanted};

/// An OST as the allocator sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ost {
    /// Index.
    pub index: u32,
    /// Takes new objects: connected, not switched off, not being emptied.
    pub active: bool,
    /// Its disks are being repaired: better not.
    pub degraded: bool,
    /// Bytes free for ordinary users.
    pub free_bytes: u64,
    /// Bytes in total.
    pub total_bytes: u64,
    /// Objects that can still be created.
    pub free_objects: u64,
    /// Which server it is on; any numbering.
    pub oss: u32,
}

/// When which way of choosing is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Round robin while free space differs by less than this (Lustre's `qos_threshold_rr`).
    pub threshold_percent: u32,
    /// How much free space counts against spreading over servers and OSTs, in percent (Lustre's
    /// `qos_prio_free`).
    pub prio_free_percent: u32,
    /// An OST with less than a thousandth of its space free counts as full, and so does one with
    /// fewer bytes free than this (Lustre's `reserved_mb_low`).
    pub free_bytes_min: u64,
}

impl Default for Limits {
    /// Lustre's values.
    fn default() -> Limits {
        Limits { threshold_percent: 17, prio_free_percent: 91, free_bytes_min: 1 << 20 }
    }
}

/// The allocator's memory: where round robin stands, who was chosen lately.
#[derive(Clone, Debug)]
pub struct Placer {
    random: u64,
    /// Position in the round robin order at which the next file begins.
    next: usize,
    /// Weight withheld from OSTs, in the unit of weights.
    ost_penalty: BTreeMap<u32, u64>,
    /// The same for servers.
    oss_penalty: BTreeMap<u32, u64>,
}

/// Weights are free space in KiB: fine enough for the smallest OST, and their sum fits 64 bits
/// below 16 ZiB.
const WEIGHT_SHIFT: u32 = 10;

impl Placer {
    /// A fresh allocator. `seed` decides all that is random in it.
    pub fn new(seed: u64) -> Placer {
        Placer { random: seed, next: 0, ost_penalty: BTreeMap::new(), oss_penalty: BTreeMap::new() }
    }

    /// The OST of each stripe. Fewer than `wanted.count` where there are not so many OSTs and
    /// overstriping was not asked for. `osts` are those of the file system, or of the pool.
    ///
    /// EINVAL for a listed or starting OST that does not exist, EREMOTEIO for a listed one that is
    /// inactive, ENOSPC if no OST can take a stripe.
    pub fn place(&mut self, wanted: &Wanted, osts: &[Ost], limits: &Limits) -> Result<Vec<u32>, LayoutError> {
        if !wanted.osts.is_empty() {
            return place_listed(wanted, osts);
        }
        if let Some(start) = wanted.start
            && !osts.iter().any(|o| o.index == start)
        {
            return Err(LayoutError::UnknownOst(start));
        }
        let mut good: Vec<&Ost> = osts.iter().filter(|o| o.active && !is_full(o, limits)).collect();
        if good.is_empty() {
            return Err(LayoutError::NoSpace);
        }
        let stripes = stripe_count(wanted, good.len())?;
        if wanted.room > 0
            && let Some(least) = room_each(good.iter().copied(), stripes, wanted.room, limits)
        {
            good.retain(|o| o.free_bytes > least);
        }
        let stripes = stripe_count(wanted, good.len())?;
        let distinct = stripes.min(good.len());
        spare_degraded(&mut good, distinct, wanted.start);
        let round = match wanted.start {
            Some(start) => from_start(&good, start, distinct),
            // Where every OST gets the same share there is nothing to weigh, only whose turn is
            // first.
            None if stripes.is_multiple_of(good.len()) || is_even(&good, limits) => self.round_robin(&good, distinct),
            None => self.weighted(&good, distinct, limits),
        };
        Ok((0..stripes).map(|i| round[i % round.len()]).collect())
    }

    /// The next `n` in turn.
    fn round_robin(&mut self, good: &[&Ost], n: usize) -> Vec<u32> {
        let order = take_turns(good);
        let start = self.next % order.len();
        self.next = start + n;
        if n == order.len() {
            // Files over all OSTs would for ever begin on the same one, and most files are small.
            self.next += 1;
        }
        order.iter().cycle().skip(start).take(n).copied().collect()
    }

    /// `n` at random, by free space less penalties.
    fn weighted(&mut self, good: &[&Ost], n: usize, limits: &Limits) -> Vec<u32> {
        let penalties = Penalties::of(good, limits);
        let mut left: Vec<&Ost> = good.to_vec();
        let mut chosen = Vec::with_capacity(n);
        for _ in 0..n {
            let weights: Vec<u64> = left.iter().map(|o| self.weight(o)).collect();
            let at = self.draw(&weights);
            let ost = left.remove(at);
            chosen.push(ost.index);
            self.charge(ost, good, &penalties);
        }
        chosen
    }

    fn weight(&self, ost: &Ost) -> u64 {
        let withheld = |map: &BTreeMap<u32, u64>, key| map.get(key).copied().unwrap_or(0);
        let penalty = withheld(&self.ost_penalty, &ost.index).saturating_add(withheld(&self.oss_penalty, &ost.oss));
        (ost.free_bytes >> WEIGHT_SHIFT).saturating_sub(penalty)
    }

    /// An index with a probability proportional to its weight; the first if all weights are 0.
    fn draw(&mut self, weights: &[u64]) -> usize {
        let total = weights.iter().fold(0, |sum: u64, w| sum.saturating_add(*w));
        if total == 0 {
            return 0;
        }
        let mut point = ((u128::from(self.next_random()) * u128::from(total)) >> 64) as u64;
        for (i, w) in weights.iter().enumerate() {
            match point.checked_sub(*w) {
                Some(rest) => point = rest,
                None => return i,
            }
        }
        weights.len() - 1
    }

    /// Lustre's `lqos_recalc`: the chosen one and its server are held back, then everyone recovers
    /// by one step. Halving what was left from before bounds a penalty to twice the steps added:
    /// the share of its weight that spreading may cost.
    fn charge(&mut self, chosen: &Ost, good: &[&Ost], penalties: &Penalties) {
        let sides = [
            (&mut self.ost_penalty, &penalties.per_ost, chosen.index, good.len()),
            (&mut self.oss_penalty, &penalties.per_oss, chosen.oss, penalties.per_oss.len()),
        ];
        for (held, steps, key, times) in sides {
            let step = |key: &u32| steps.get(key).copied();
            let mine = held.entry(key).or_insert(0);
            *mine = (*mine / 2).saturating_add(step(&key).unwrap_or(0).saturating_mul(times as u64));
            for (key, penalty) in held.iter_mut() {
                *penalty = penalty.saturating_sub(step(key).unwrap_or(u64::MAX));
            }
            held.retain(|_, penalty| *penalty > 0);
        }
    }

    /// splitmix64.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// How much one choice takes from the weight of an OST or server.
struct Penalties {
    per_ost: BTreeMap<u32, u64>,
    per_oss: BTreeMap<u32, u64>,
}

impl Penalties {
    /// Lustre's `lqos_calc_penalties`: for an OST half of its free space, times the priority of
    /// spreading, over the number of OSTs; for a server half of its OSTs' mean, over the number of
    /// servers. Recovering takes as many other choices.
    fn of(good: &[&Ost], limits: &Limits) -> Penalties {
        let spread_percent = u64::from(100 - limits.prio_free_percent.min(100));
        let scaled = |kib: u64, over: usize| {
            (u128::from(kib) * u128::from(spread_percent) / 100 / over.max(1) as u128 / 2) as u64
        };
        let per_ost = good.iter().map(|o| (o.index, scaled(o.free_bytes >> WEIGHT_SHIFT, good.len()))).collect();
        let mut servers: BTreeMap<u32, (u128, u64)> = BTreeMap::new();
        for o in good {
            let (kib, osts) = servers.entry(o.oss).or_default();
            *kib += u128::from(o.free_bytes >> WEIGHT_SHIFT);
            *osts += 1;
        }
        let active = servers.len();
        let per_oss = servers
            .into_iter()
            .map(|(oss, (kib, osts))| (oss, scaled((kib / u128::from(osts)) as u64, active)))
            .collect();
        Penalties { per_ost, per_oss }
    }
}

/// What must be free on each of the OSTs that a component of `bytes` bytes is spread over, so that
/// its `stripes` stripes have room there; fewer stripes, which need more room each, where there are
/// not so many such OSTs. `None`: not even one OST has room for all of it.
pub fn room_each<'a>(osts: impl Iterator<Item = &'a Ost>, stripes: usize, bytes: u64, limits: &Limits) -> Option<u64> {
    let mut free: Vec<u64> = osts.filter(|o| o.active && !is_full(o, limits)).map(|o| o.free_bytes).collect();
    free.sort_unstable_by(|a, b| b.cmp(a));
    let least = |n: usize| bytes.div_ceil(n as u64).saturating_add(limits.free_bytes_min);
    (1..=stripes.min(free.len())).rev().find(|n| free[n - 1] > least(*n)).map(least)
}

/// Leaves degraded OSTs out, as far as `n` are left without them; of those that are needed the
/// emptiest, and the one that was named.
fn spare_degraded(good: &mut Vec<&Ost>, n: usize, named: Option<u32>) {
    let sound = |o: &Ost| !o.degraded || Some(o.index) == named;
    let missing = n.saturating_sub(good.iter().filter(|o| sound(o)).count());
    let mut degraded: Vec<&Ost> = good.iter().copied().filter(|o| !sound(o)).collect();
    degraded.sort_by_key(|o| (std::cmp::Reverse(o.free_bytes), o.index));
    degraded.truncate(missing);
    good.retain(|o| sound(o) || degraded.iter().any(|d| d.index == o.index));
}

/// Exactly what was listed, beginning with the start where one is named too.
fn place_listed(wanted: &Wanted, osts: &[Ost]) -> Result<Vec<u32>, LayoutError> {
    for index in &wanted.osts {
        match osts.iter().find(|o| o.index == *index) {
            None => return Err(LayoutError::UnknownOst(*index)),
            Some(o) if !o.active => return Err(LayoutError::InactiveOst(*index)),
            Some(_) => {}
        }
    }
    let mut list = wanted.osts.clone();
    if let Some(start) = wanted.start {
        let at = list.iter().position(|i| *i == start).ok_or(LayoutError::UnknownOst(start))?;
        list.rotate_left(at);
    }
    Ok(list)
}

/// Upward from `start`, then from the lowest index.
fn from_start(good: &[&Ost], start: u32, n: usize) -> Vec<u32> {
    let mut order: Vec<u32> = good.iter().map(|o| o.index).collect();
    order.sort_unstable();
    let at = order.partition_point(|i| *i < start);
    if at < order.len() {
        order.rotate_left(at);
    }
    order.truncate(n);
    order
}

/// An order in which the servers take turns, each as often as it has OSTs: indices are spread
/// evenly over the circle.
fn take_turns(good: &[&Ost]) -> Vec<u32> {
    let mut by_oss: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for o in good {
        by_oss.entry(o.oss).or_default().push(o.index);
    }
    let scale = good.len() as u64 * 2;
    let mut order = Vec::with_capacity(good.len());
    for osts in by_oss.values_mut() {
        osts.sort_unstable();
        let of = osts.len() as u64;
        order.extend(osts.iter().enumerate().map(|(i, index)| (scale * (2 * i as u64 + 1) / of, *index)));
    }
    order.sort_unstable();
    order.into_iter().map(|(_, index)| index).collect()
}

fn stripe_count(wanted: &Wanted, good: usize) -> Result<usize, LayoutError> {
    let count = match wanted.count {
        Count::All => good,
        Count::PerOst(n) => good * usize::from(n),
        Count::Stripes(n) if wanted.overstripe => usize::from(n),
        Count::Stripes(n) => usize::from(n).min(good),
    };
    if count == 0 {
        return Err(LayoutError::StripeCount(0));
    }
    Ok(count.min(STRIPES_MAX))
}

fn is_full(ost: &Ost, limits: &Limits) -> bool {
    ost.free_objects == 0 || ost.free_bytes < (ost.total_bytes / 1000).max(limits.free_bytes_min)
}

fn is_even(good: &[&Ost], limits: &Limits) -> bool {
    let free = good.iter().map(|o| o.free_bytes);
    let (least, most) = (free.clone().min().unwrap_or(0), free.max().unwrap_or(0));
    let floor = u128::from(most) * u128::from(100 - limits.threshold_percent.min(100));
    floor <= u128::from(least) * 100
}

#[cfg(test)]
mod tests;
