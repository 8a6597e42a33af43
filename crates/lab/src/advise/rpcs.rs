//! RPC parameters for a job: the smallest change with which data in flight does not limit it.
//!
//! Invariants:
//! * No parameter becomes smaller.
//! * Nothing is recommended for a gain below [`WORTH`].

use std::iter::successors;

use serde::Serialize;

use crate::{
    advise::choice::{TOLERANCE, WORTH},
    predict::flight::{Link, Requests, Rpcs},
    table::Table,
};

/// One kind of a job's accesses.
#[derive(Clone, Copy, Debug)]
pub struct Accesses {
    /// Its requests.
    pub requests: Requests,
    /// The connections that they use.
    pub link: Link,
    /// Rate of the job that everything else allows, in MiB/s.
    pub rate: f64,
}

impl Accesses {
    /// Returns the rate of the job in MiB/s.
    fn rate(&self, rpcs: &Rpcs) -> f64 {
        self.rate.min(self.requests.rate(rpcs, &self.link))
    }
}

/// The parameters of a mount, and how far they can be raised.
#[derive(Clone, PartialEq, Debug)]
pub struct Present {
    /// Of each parameter, the lowest value for an OST.
    pub lowest: Rpcs,
    /// Of each parameter, the highest value for an OST.
    pub highest: Rpcs,
    /// The largest values that make sense.
    pub most: Rpcs,
    /// Shell pattern for the OSTs of the mount: `osc.sheen-OST*-osc-INSTANCE`.
    pub osts: String,
}

/// An advice on RPC parameters.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RpcAdvice {
    /// The present values.
    pub present: Rpcs,
    /// The recommended values. `None`: the present ones suffice.
    pub recommended: Option<Rpcs>,
    /// Round trip to the OSTs in milliseconds.
    pub round_trip_ms: f64,
    /// The rate with the recommended values, divided by that with the present ones.
    pub gain: f64,
    /// The reason in a sentence.
    pub reason: String,
    /// Arguments of `lctl set_param`: a parameter and its value each. Empty: no change.
    pub settings: Vec<String>,
}

impl RpcAdvice {
    /// Chooses parameters for the accesses of a job. `round_trip`: in seconds.
    pub fn new(all: &[Accesses], present: &Present, round_trip: f64) -> RpcAdvice {
        let chosen = choose(all, present);
        let gain = seconds(all, &present.lowest) / seconds(all, &chosen);
        let changes = gain >= WORTH;
        let reason = if changes {
            reason(all, &present.lowest, &chosen, round_trip)
        } else {
            sufficient(all, &present.most, round_trip)
        };
        let recommended = changes.then(|| above(chosen, present));
        let settings = recommended.map_or_else(Vec::new, |rpcs| settings(rpcs, present));
        let gain = if changes { gain } else { 1.0 };
        RpcAdvice { present: present.lowest, recommended, round_trip_ms: round_trip * 1e3, gain, reason, settings }
    }

    /// Returns the command that sets the recommended values. `None`: no change.
    pub fn command(&self) -> Option<String> {
        (!self.settings.is_empty()).then(|| format!("lctl set_param {}", self.settings.join(" ")))
    }

    /// Returns a table of the parameters. `None`: no change.
    pub fn table(&self) -> Option<Table> {
        let values = Rpcs::NAMES.iter().zip(self.present.to_array().into_iter().zip(self.recommended?.to_array()));
        let rows = values.map(|(name, (now, then))| vec![(*name).to_owned(), now.to_string(), then.to_string()]);
        Some(Table::new("RPC parameters", ["osc.*", "present", "recommended"]).with(rows))
    }
}

/// Returns the seconds of the job for each MiB of all accesses.
fn seconds(all: &[Accesses], rpcs: &Rpcs) -> f64 {
    all.iter().map(|accesses| 1.0 / accesses.rate(rpcs)).sum()
}

/// Returns the values among which to choose: the present one, and each twice the last.
fn raised(present: u64, most: u64) -> Vec<u64> {
    successors(Some(present.max(1)), |value| (*value < most).then(|| value.saturating_mul(2).min(most))).collect()
}

/// Chooses the values with the fewest changed parameters, and then the fewest doublings, of those
/// with which the job takes hardly longer than with the best.
fn choose(all: &[Accesses], present: &Present) -> Rpcs {
    let (now, most) = (present.lowest, present.most);
    let mut candidates = Vec::new();
    for (i, in_flight) in raised(now.in_flight, most.in_flight).into_iter().enumerate() {
        for (j, pages) in raised(now.pages, most.pages).into_iter().enumerate() {
            for (k, dirty_mb) in raised(now.dirty_mb, most.dirty_mb).into_iter().enumerate() {
                let changed = [i, j, k].iter().filter(|doublings| **doublings > 0).count();
                let rpcs = Rpcs { in_flight, pages, dirty_mb };
                candidates.push(((changed, i + j + k), seconds(all, &rpcs), rpcs));
            }
        }
    }
    let best = candidates.iter().map(|(_, seconds, _)| *seconds).fold(f64::INFINITY, f64::min);
    let good = candidates.iter().filter(|(_, seconds, _)| *seconds <= best * (1.0 + TOLERANCE));
    good.min_by_key(|(change, ..)| *change).map_or(now, |(.., rpcs)| *rpcs)
}

/// Returns the chosen values. One that is changed does not become lower for any OST.
fn above(chosen: Rpcs, present: &Present) -> Rpcs {
    let [chosen, lowest, highest] = [chosen, present.lowest, present.highest].map(Rpcs::to_array);
    let value = |of: usize| if chosen[of] > lowest[of] { chosen[of].max(highest[of]) } else { lowest[of] };
    Rpcs::from_array([value(0), value(1), value(2)])
}

/// Returns the parameters that change, with their values, for `lctl set_param`.
fn settings(recommended: Rpcs, present: &Present) -> Vec<String> {
    let values = recommended.to_array().into_iter().zip(present.lowest.to_array());
    let changed = Rpcs::NAMES.iter().zip(values).filter(|(_, (then, now))| then > now);
    changed.map(|(name, (then, _))| format!("{}.{name}={then}", present.osts)).collect()
}

fn milliseconds(round_trip: f64) -> String {
    format!("{:.2} ms", round_trip * 1e3)
}

/// Returns the reason of a change: that of the accesses which gain most.
fn reason(all: &[Accesses], now: &Rpcs, then: &Rpcs, round_trip: f64) -> String {
    let gained = |accesses: &&Accesses| 1.0 / accesses.rate(now) - 1.0 / accesses.rate(then);
    let most = all.iter().max_by(|a, b| gained(a).total_cmp(&gained(b)));
    let rate = |rpcs| most.map_or(0.0, |accesses| accesses.requests.of_mount(accesses.rate(rpcs)));
    format!(
        "With a round trip of {}, requests in flight carry {:.0} MiB/s between a mount and an OST; {:.0} with these \
         values.",
        milliseconds(round_trip),
        rate(now),
        rate(then)
    )
}

/// Returns why the present values suffice.
fn sufficient(all: &[Accesses], most: &Rpcs, round_trip: f64) -> String {
    let waits = |accesses: &Accesses| accesses.requests.rate(most, &accesses.link) * WORTH < accesses.rate;
    let why = match all.iter().find(|accesses| waits(accesses)) {
        Some(accesses) if accesses.requests.are_bounded() => "programs and readahead request less at a time".to_owned(),
        Some(_) => "larger ones carry hardly more".to_owned(),
        None => format!("the round trip is {}", milliseconds(round_trip)),
    };
    format!("The present RPC parameters suffice: {why}.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::{
        load::{Direction, Workload},
        shape::Shape,
    };

    const MI: u64 = 1 << 20;

    fn present() -> Present {
        Present { lowest: Rpcs::DEFAULT, highest: Rpcs::DEFAULT, most: Rpcs::MAX, osts: "osc.a-OST*".into() }
    }

    /// Accesses of tasks on one node with a file each, to an OST of 1000 MiB/s.
    fn accesses(direction: Direction, tasks: u32, transfer: u64, round_trip: f64) -> Accesses {
        let size = 1024 * MI;
        let workload = Workload { tasks, nodes: 1, transfer, block: size, size, files: true };
        let shape = Shape { stripes: 1, osts: 1, stripe_size: MI, all_osts: None };
        let requests = Requests::of(direction, &workload, &shape, 1, 4 * MI);
        Accesses { requests, link: Link { round_trip, ost: 1000.0 }, rate: 1000.0 }
    }

    fn advice(direction: Direction, tasks: u32, transfer: u64, round_trip: f64) -> RpcAdvice {
        RpcAdvice::new(&[accesses(direction, tasks, transfer, round_trip)], &present(), round_trip)
    }

    #[test]
    fn requests_in_flight_cover_the_round_trip() {
        for direction in Direction::ALL {
            let advice = advice(direction, 16, MI, 0.01);
            assert_eq!(advice.recommended, Some(Rpcs { in_flight: 16, ..Rpcs::DEFAULT }), "{direction:?}");
            assert!((advice.gain - 1.375).abs() < 1e-6, "1000 instead of 8 / 0.011: {}", advice.gain);
            assert_eq!(advice.command().as_deref(), Some("lctl set_param osc.a-OST*.max_rpcs_in_flight=16"));
            assert_eq!(
                advice.reason,
                "With a round trip of 10.00 ms, requests in flight carry 727 MiB/s between a mount and an OST; \
                 1000 with these values."
            );
            let rows = advice.table().unwrap().rows;
            assert_eq!(rows[0].iter().map(ToString::to_string).collect::<Vec<_>>(), ["max_rpcs_in_flight", "8", "16"]);
        }
        let far = advice(Direction::Write, 256, MI, 0.1);
        assert_eq!(far.recommended.map(|rpcs| rpcs.in_flight), Some(128), "101 for 1000 MiB/s");
    }

    #[test]
    fn buffered_writes_need_larger_requests_and_a_larger_buffer() {
        let advice = advice(Direction::Write, 1, 65_536, 0.05);
        assert_eq!(advice.recommended, Some(Rpcs { pages: 2048, dirty_mb: 128, ..Rpcs::DEFAULT }));
        assert_eq!(advice.settings, ["osc.a-OST*.max_pages_per_rpc=2048", "osc.a-OST*.max_dirty_mb=128"]);
        let little = Present { most: Rpcs { dirty_mb: 64, ..Rpcs::MAX }, ..present() };
        let all = [accesses(Direction::Write, 1, 65_536, 0.05)];
        let bounded = RpcAdvice::new(&all, &little, 0.05);
        assert_eq!((bounded.recommended, bounded.command()), (None, None), "no memory for a larger buffer");
        assert!(bounded.reason.ends_with(": larger ones carry hardly more."), "{}", bounded.reason);
    }

    #[test]
    fn present_values_suffice_nearby_and_for_few_requests() {
        let near = advice(Direction::Write, 16, MI, 1e-4);
        assert_eq!((near.recommended, near.gain, near.table()), (None, 1.0, None));
        assert_eq!(near.reason, "The present RPC parameters suffice: the round trip is 0.10 ms.");
        for direction in Direction::ALL {
            let few = advice(direction, 1, MI, 0.01);
            let reason = "The present RPC parameters suffice: programs and readahead request less at a time.";
            assert_eq!((few.recommended, few.reason.as_str()), (None, reason));
        }
        let mut gains = accesses(Direction::Write, 16, MI, 0.01);
        gains.rate = 727.3 * 1.04;
        assert_eq!(RpcAdvice::new(&[gains], &present(), 0.01).recommended, None, "less than 5 %");
        gains.rate = 727.3 * 1.06;
        assert!(RpcAdvice::new(&[gains], &present(), 0.01).recommended.is_some());
    }

    #[test]
    fn no_value_becomes_smaller_for_any_ost() {
        let uneven = Present { highest: Rpcs { in_flight: 100, ..Rpcs::DEFAULT }, ..present() };
        let all = [accesses(Direction::Read, 16, MI, 0.01)];
        assert_eq!(RpcAdvice::new(&all, &uneven, 0.01).settings, ["osc.a-OST*.max_rpcs_in_flight=100"]);
        assert_eq!(raised(100, 256), [100, 200, 256]);
        assert_eq!((raised(300, 256), raised(0, 4)), (vec![300], vec![1, 2, 4]));
    }
}
