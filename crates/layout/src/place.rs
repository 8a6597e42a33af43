//! Choice of an OST for each stripe of a new file: Lustre's object allocator.
//!
//! * A list of OSTs (`-o`) is used unchanged.
//! * A start (`-i`) is a hint: OSTs from there in order of index, skipping full and inactive ones.
//! * A self-extending component ([`Wanted::room`]) is placed on OSTs that have room for its whole
//!   extent, even if it then gets fewer stripes.
//! * Otherwise **round robin** while the OSTs are about evenly full: the free space of the emptiest
//!   and the fullest differs by less than [`Limits::threshold_percent`]. The order continues where
//!   the last file ended, and servers take turns.
//! * Otherwise **weighted**: a random choice by free space. An OST that was chosen, and its server,
//!   get a penalty for a while, so that files spread and do not all go to the emptiest OST.
//!
//! A degraded OST (its disks are being repaired) is skipped, unless the other OSTs are too few for
//! the file's stripes, or the user named it.
//!
//! Overstripes go round the chosen OSTs repeatedly, so the stripe counts of two OSTs differ by at
//! most one.
//!
//! Random numbers come from a generator seeded by the caller: the same seed and the same calls
//! choose the same OSTs.

use std::collections::BTreeMap;

use crate::{Count, LayoutError, STRIPES_MAX, Wanted};

/// Properties of an OST that the allocator uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ost {
    /// Index.
    pub index: u32,
    /// Whether the OST accepts new objects: connected, not inactive, not being emptied.
    pub active: bool,
    /// Whether the OST's disks are being repaired; such an OST is avoided.
    pub degraded: bool,
    /// Bytes free for ordinary users.
    pub free_bytes: u64,
    /// Bytes in total.
    pub total_bytes: u64,
    /// Objects that can still be created.
    pub free_objects: u64,
    /// Server of the OST, in any numbering.
    pub oss: u32,
}

/// Thresholds for choosing the allocation method.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Difference of free space, in percent, below which round robin is used (Lustre's
    /// `qos_threshold_rr`).
    pub threshold_percent: u32,
    /// Priority of free space over spreading over servers and OSTs, in percent (Lustre's
    /// `qos_prio_free`).
    pub prio_free_percent: u32,
    /// Free bytes below which an OST counts as full (Lustre's `reserved_mb_low`). Less than a
    /// thousandth of its space free counts as full, too.
    pub free_bytes_min: u64,
}

impl Default for Limits {
    /// Returns Lustre's default values.
    fn default() -> Limits {
        Limits { threshold_percent: 17, prio_free_percent: 91, free_bytes_min: 1 << 20 }
    }
}

/// State of the allocator: the round robin position and the penalties of recent choices.
#[derive(Clone, Debug)]
pub struct Placer {
    random: u64,
    /// Position in the round robin order at which the next file begins.
    next: usize,
    /// Penalty of each OST, in units of weight.
    ost_penalty: BTreeMap<u32, u64>,
    /// Penalty of each server, in units of weight.
    oss_penalty: BTreeMap<u32, u64>,
}

/// Shift from bytes to weights: a weight is free space in KiB. This is precise enough for the
/// smallest OST, and the sum of weights fits 64 bits below 16 ZiB.
const WEIGHT_SHIFT: u32 = 10;

impl Placer {
    /// Creates an allocator. `seed` determines all its random choices.
    pub fn new(seed: u64) -> Placer {
        Placer { random: seed, next: 0, ost_penalty: BTreeMap::new(), oss_penalty: BTreeMap::new() }
    }

    /// Returns the OST of each stripe. Returns fewer stripes than `wanted.count` if there are not
    /// enough OSTs and overstriping was not requested. `osts` are those of the file system or of
    /// the pool.
    ///
    /// # Errors
    /// EINVAL if a listed or starting OST does not exist, EREMOTEIO if a listed one is
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
        drop_degraded(&mut good, distinct, wanted.start);
        let round = match wanted.start {
            Some(start) => from_start(&good, start, distinct),
            // If every OST gets the same number of stripes, weights do not matter: only the first
            // OST is to be chosen.
            None if stripes.is_multiple_of(good.len()) || is_even(&good, limits) => self.round_robin(&good, distinct),
            None => self.weighted(&good, distinct, limits),
        };
        Ok((0..stripes).map(|i| round[i % round.len()]).collect())
    }

    /// Returns the next `n` OSTs in round robin order.
    fn round_robin(&mut self, good: &[&Ost], n: usize) -> Vec<u32> {
        let order = take_turns(good);
        let start = self.next % order.len();
        self.next = start + n;
        if n == order.len() {
            // Otherwise all files that use every OST would begin on the same one, and most files
            // are small.
            self.next += 1;
        }
        order.iter().cycle().skip(start).take(n).copied().collect()
    }

    /// Returns `n` random OSTs, weighted by free space minus penalties.
    fn weighted(&mut self, good: &[&Ost], n: usize, limits: &Limits) -> Vec<u32> {
        let penalties = Penalties::of(good, limits);
        let mut left: Vec<&Ost> = good.to_vec();
        let mut chosen = Vec::with_capacity(n);
        for _ in 0..n {
            let weights: Vec<u64> = left.iter().map(|o| self.weight(o)).collect();
            let at = self.draw(&weights);
            let ost = left.remove(at);
            chosen.push(ost.index);
            self.penalize(ost, good, &penalties);
        }
        chosen
    }

    fn weight(&self, ost: &Ost) -> u64 {
        let withheld = |map: &BTreeMap<u32, u64>, key| map.get(key).copied().unwrap_or(0);
        let penalty = withheld(&self.ost_penalty, &ost.index).saturating_add(withheld(&self.oss_penalty, &ost.oss));
        (ost.free_bytes >> WEIGHT_SHIFT).saturating_sub(penalty)
    }

    /// Returns a random index with a probability proportional to its weight, or 0 if all weights
    /// are 0.
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

    /// Lustre's `lqos_recalc`: adds a penalty to the chosen OST and its server, then reduces all
    /// penalties by one step. Halving the previous penalty bounds a penalty to twice the steps
    /// added, which is the share of its weight that spreading may cost.
    fn penalize(&mut self, chosen: &Ost, good: &[&Ost], penalties: &Penalties) {
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

/// Penalty steps of each OST and server.
struct Penalties {
    per_ost: BTreeMap<u32, u64>,
    per_oss: BTreeMap<u32, u64>,
}

impl Penalties {
    /// Lustre's `lqos_calc_penalties`. For an OST: half of its free space, times the priority of
    /// spreading, divided by the number of OSTs. For a server: half of its OSTs' mean, divided by
    /// the number of servers. After as many other choices, a penalty has disappeared.
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

/// Returns the free bytes required on each OST for a component of `bytes` bytes in `stripes`
/// stripes. If too few OSTs have that much, the result is for fewer stripes, which need more room
/// each. `None` if not even one OST has room for all bytes.
pub fn room_each<'a>(osts: impl Iterator<Item = &'a Ost>, stripes: usize, bytes: u64, limits: &Limits) -> Option<u64> {
    let mut free: Vec<u64> = osts.filter(|o| o.active && !is_full(o, limits)).map(|o| o.free_bytes).collect();
    free.sort_unstable_by(|a, b| b.cmp(a));
    let least = |n: usize| bytes.div_ceil(n as u64).saturating_add(limits.free_bytes_min);
    (1..=stripes.min(free.len())).rev().find(|n| free[n - 1] > least(*n)).map(least)
}

/// Removes degraded OSTs as long as `n` OSTs remain. If some are needed, keeps those with the most
/// free space. Always keeps `named`.
fn drop_degraded(good: &mut Vec<&Ost>, n: usize, named: Option<u32>) {
    let sound = |o: &Ost| !o.degraded || Some(o.index) == named;
    let missing = n.saturating_sub(good.iter().filter(|o| sound(o)).count());
    let mut degraded: Vec<&Ost> = good.iter().copied().filter(|o| !sound(o)).collect();
    degraded.sort_by_key(|o| (std::cmp::Reverse(o.free_bytes), o.index));
    degraded.truncate(missing);
    good.retain(|o| sound(o) || degraded.iter().any(|d| d.index == o.index));
}

/// Returns exactly the listed OSTs, rotated to begin with the start if one is given.
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

/// Returns `n` OSTs by rising index from `start` on, then from the lowest index.
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

/// Returns an order in which the servers take turns, each as often as it has OSTs. The OSTs of each
/// server are spread evenly over the cycle.
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
