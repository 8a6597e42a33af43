//! RPC parameters and readahead for a job: the smallest change with which data in flight does not
//! limit it.
//!
//! Invariants:
//! * No parameter becomes smaller, for no OST of no mount.
//! * Nothing is recommended for a gain below [`WORTH`].
//! * Gain and reason are those of the recommended values and of the present ones in the table.

use std::{array::from_fn, iter::successors};

use serde::Serialize;

use crate::{
    advise::choice::{TOLERANCE, WORTH},
    predict::flight::{Link, RPCS, Requests, Rpcs},
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
        self.requests.rate_of_job(self.rate, rpcs, &self.link)
    }

    /// Returns the number of round trips at the start and the end of a file, if they take most of
    /// the time.
    fn long_ends(&self, rpcs: &Rpcs) -> Option<f64> {
        let without = self.rate.min(self.requests.rate(rpcs, &self.link));
        self.requests.round_trips().filter(|_| self.rate(rpcs) < without / 2.0)
    }
}

/// The readahead parameters of a mount, in MiB. The smaller one is the window of each file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// `max_read_ahead_mb`.
    pub max_mb: u64,
    /// `max_read_ahead_per_file_mb`.
    pub per_file_mb: u64,
}

/// The parameters of a mount.
#[derive(Clone, PartialEq, Debug)]
pub struct Mounted {
    /// Of each parameter, the lowest value for an OST.
    pub lowest: Rpcs,
    /// Of each parameter, the highest value for an OST.
    pub highest: Rpcs,
    /// The readahead window; `None`: the mount cannot set it.
    pub window: Option<Window>,
    /// Shell pattern for its OSTs: `osc.sheen-OST*-osc-INSTANCE`.
    pub osts: String,
    /// Name of the mount: `llite.sheen-INSTANCE`.
    pub llite: String,
    /// Seconds of a request without data to the farthest OST.
    pub round_trip: f64,
}

impl Mounted {
    /// Returns the settings of `lctl set_param` that give it values. A value that it has already
    /// needs none.
    fn settings(&self, values: Rpcs) -> Vec<String> {
        let of_osts = Rpcs::NAMES.iter().zip(values.to_array().into_iter().zip(self.lowest.to_array()));
        let of_osts = of_osts.filter(|(_, (then, now))| then > now);
        let of_osts = of_osts
            .filter_map(|(name, (then, _))| Some(format!("{}.{}={then}", self.osts, name.strip_prefix("osc.*.")?)));
        // Both bound the window.
        let windows = self
            .window
            .map(|window| [("max_read_ahead_mb", window.max_mb), ("max_read_ahead_per_file_mb", window.per_file_mb)]);
        let windows = windows.into_iter().flatten().filter(|(_, now)| *now < values.read_ahead_mb);
        let windows = windows.map(|(name, _)| format!("{}.{name}={}", self.llite, values.read_ahead_mb));
        of_osts.chain(windows).collect()
    }
}

/// The parameters of all mounts of a job, and how far they can be raised.
#[derive(Clone, PartialEq, Debug)]
pub struct Present {
    mounts: Vec<Mounted>,
    /// Of each parameter, the lowest value of a mount for an OST. The slowest mount limits the job.
    lowest: Rpcs,
    /// Of each parameter, the highest value of a mount for an OST.
    highest: Rpcs,
    /// The largest values that make sense.
    most: Rpcs,
    /// Seconds of a request without data from the farthest mount to the farthest OST.
    round_trip: f64,
}

impl Present {
    /// Combines mounts. `most`: the largest values that make sense. `None`: there are no mounts.
    pub fn of(mounts: Vec<Mounted>, most: Rpcs) -> Option<Present> {
        let combined = |of: fn(&Mounted) -> Rpcs, choose: fn(u64, u64) -> u64| {
            let values = mounts.iter().map(|mount| of(mount).to_array());
            values.reduce(|a, b| from_fn(|n| choose(a[n], b[n]))).map(Rpcs::from_array)
        };
        let (lowest, highest) = (combined(|mount| mount.lowest, u64::min)?, combined(|mount| mount.highest, u64::max)?);
        let round_trip = mounts.iter().map(|mount| mount.round_trip).fold(0.0, f64::max);
        let is_settable = mounts.iter().all(|mount| mount.window.is_some());
        let read_ahead_mb = if is_settable { most.read_ahead_mb } else { lowest.read_ahead_mb };
        Some(Present { mounts, lowest, highest, most: Rpcs { read_ahead_mb, ..most }, round_trip })
    }

    /// Returns the seconds of a request without data to the farthest OST.
    pub fn round_trip(&self) -> f64 {
        self.round_trip
    }

    /// Returns values for all OSTs of all mounts. One that is raised does not become lower for any
    /// of them.
    fn above(&self, values: Rpcs) -> Rpcs {
        let [values, lowest, highest] = [values, self.lowest, self.highest].map(Rpcs::to_array);
        let raised = |n: usize| if values[n] > lowest[n] { values[n].max(highest[n]) } else { lowest[n] };
        Rpcs::from_array(from_fn(raised))
    }

    /// Whether the readahead window can be raised.
    fn has_window(&self) -> bool {
        self.most.read_ahead_mb > self.lowest.read_ahead_mb
    }
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
    /// Number of parameters that concern the job, the first ones of [`Rpcs::NAMES`].
    #[serde(skip)]
    parameters: usize,
}

impl RpcAdvice {
    /// Chooses parameters for the accesses of a job.
    pub fn new(all: &[Accesses], present: &Present) -> RpcAdvice {
        let (now, chosen) = (present.lowest, choose(all, present));
        let gain = seconds(all, &now) / seconds(all, &chosen);
        let recommended = (gain >= WORTH).then_some(chosen);
        let of_mounts =
            |chosen: Rpcs| -> Vec<String> { present.mounts.iter().flat_map(|mount| mount.settings(chosen)).collect() };
        let has_window = present.has_window() && all.iter().any(|accesses| accesses.requests.are_reads());
        RpcAdvice {
            present: now,
            recommended,
            round_trip_ms: present.round_trip * 1e3,
            gain: if recommended.is_some() { gain } else { 1.0 },
            reason: match recommended {
                Some(chosen) => reason(all, &now, &chosen, present.round_trip),
                None => sufficient(all, &present.most, present.round_trip),
            },
            settings: recommended.map_or_else(Vec::new, of_mounts),
            parameters: if has_window { RPCS } else { RPCS - 1 },
        }
    }

    /// Returns the command that sets the recommended values. `None`: no change.
    pub fn command(&self) -> Option<String> {
        (!self.settings.is_empty()).then(|| format!("lctl set_param {}", self.settings.join(" ")))
    }

    /// Returns each parameter that concerns the job, with its present and its recommended value.
    /// Empty: no change.
    pub fn rows(&self) -> Vec<(&'static str, u64, u64)> {
        let Some(recommended) = self.recommended else { return Vec::new() };
        let values = self.present.to_array().into_iter().zip(recommended.to_array());
        let rows = Rpcs::NAMES.into_iter().zip(values).map(|(name, (now, then))| (name, now, then));
        rows.take(self.parameters).collect()
    }

    /// Returns a table of the parameters. `None`: no change.
    pub fn table(&self) -> Option<Table> {
        let rows =
            self.rows().into_iter().map(|(name, now, then)| vec![name.to_owned(), now.to_string(), then.to_string()]);
        let table = Table::new("RPC parameters", ["parameter", "present", "recommended"]).with(rows);
        self.recommended.map(|_| table)
    }
}

/// Returns the seconds of the job for each MiB of all accesses.
fn seconds(all: &[Accesses], rpcs: &Rpcs) -> f64 {
    all.iter().map(|accesses| 1.0 / accesses.rate(rpcs)).sum()
}

/// Returns the values among which to choose: the present one, and each twice the last.
fn raised(present: u64, most: u64) -> Vec<u64> {
    successors(Some(present), |value| (*value < most).then(|| value.saturating_mul(2).clamp(1, most))).collect()
}

/// Chooses the values with the fewest changed parameters, and then the fewest doublings, of those
/// with which the job takes hardly longer than with the best.
fn choose(all: &[Accesses], present: &Present) -> Rpcs {
    let [now, most] = [present.lowest, present.most].map(Rpcs::to_array);
    let values: [Vec<u64>; RPCS] = from_fn(|n| raised(now[n], most[n]));
    // Doublings of each parameter.
    let mut candidates = vec![[0; RPCS]];
    for (n, values) in values.iter().enumerate() {
        let with = |doublings: [usize; RPCS]| {
            (0..values.len()).map(move |count| from_fn(|of| if of == n { count } else { doublings[of] }))
        };
        candidates = candidates.into_iter().flat_map(with).collect();
    }
    let rated = candidates.into_iter().map(|doublings: [usize; RPCS]| {
        let changed = doublings.iter().filter(|count| **count > 0).count();
        // As all mounts would have them.
        let rpcs = present.above(Rpcs::from_array(from_fn(|n| values[n][doublings[n]])));
        ((changed, doublings.iter().sum::<usize>()), seconds(all, &rpcs), rpcs)
    });
    let rated: Vec<_> = rated.collect();
    let best = rated.iter().map(|(_, seconds, _)| *seconds).fold(f64::INFINITY, f64::min);
    let good = rated.iter().filter(|(_, seconds, _)| *seconds <= best * (1.0 + TOLERANCE));
    good.min_by_key(|(change, ..)| *change).map_or(present.lowest, |(.., rpcs)| *rpcs)
}

fn milliseconds(round_trip: f64) -> String {
    format!("{:.2} ms", round_trip * 1e3)
}

/// Returns the reason of a change: that of the accesses which gain most.
fn reason(all: &[Accesses], now: &Rpcs, then: &Rpcs, round_trip: f64) -> String {
    let gained = |accesses: &&Accesses| 1.0 / accesses.rate(now) - 1.0 / accesses.rate(then);
    let most = all.iter().max_by(|a, b| gained(a).total_cmp(&gained(b)));
    let rate = |rpcs| most.map_or(0.0, |accesses| accesses.requests.of_mount(accesses.rate(rpcs)));
    let ends = most.and_then(|accesses| accesses.requests.round_trips());
    let ends = ends.map_or_else(String::new, |trips| {
        format!(" Both include {trips:.0} round trips at the start and the end of a file.")
    });
    format!(
        "With a round trip of {}, requests in flight carry {:.0} MiB/s between a mount and an OST; {:.0} with these \
         values.{ends}",
        milliseconds(round_trip),
        rate(now),
        rate(then)
    )
}

/// Returns why the present values suffice.
fn sufficient(all: &[Accesses], most: &Rpcs, round_trip: f64) -> String {
    let waits = |accesses: &Accesses| accesses.requests.rate(most, &accesses.link) * WORTH < accesses.rate;
    let long_ends = all.iter().find_map(|accesses| accesses.long_ends(most));
    let why = match (long_ends, all.iter().find(|accesses| waits(accesses))) {
        (Some(trips), _) => {
            let each = milliseconds(round_trip);
            format!("{trips:.0} round trips of {each} at the start and the end of a file take most of the time")
        }
        (None, Some(accesses)) if accesses.requests.are_bounded() => {
            "programs and readahead request less at a time".to_owned()
        }
        (None, Some(_)) => "larger ones carry hardly more".to_owned(),
        (None, None) => format!("the round trip is {}", milliseconds(round_trip)),
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

    fn mounted(name: &str) -> Mounted {
        Mounted {
            lowest: Rpcs::DEFAULT,
            highest: Rpcs::DEFAULT,
            window: Some(Window { max_mb: 256, per_file_mb: 4 }),
            osts: format!("osc.{name}-OST*"),
            llite: format!("llite.{name}"),
            round_trip: 0.01,
        }
    }

    fn present(mount: Mounted) -> Present {
        Present::of(vec![mount], Rpcs::MAX).unwrap()
    }

    /// Accesses of tasks on one node with a file each, to an OST of 1000 MiB/s.
    fn accesses(direction: Direction, tasks: u32, transfer: u64, round_trip: f64) -> Accesses {
        let size = 1024 * MI;
        let workload = Workload { tasks, nodes: 1, transfer, block: size, size, files: true };
        let shape = Shape { stripes: 1, osts: 1, stripe_size: MI, all_osts: None };
        let requests = Requests::of(direction, &workload, &shape, 1, 1.0);
        Accesses { requests, link: Link { round_trip, ost: 1000.0 }, rate: 1000.0 }
    }

    fn advice(direction: Direction, tasks: u32, transfer: u64, round_trip: f64) -> RpcAdvice {
        let present = present(Mounted { round_trip, ..mounted("a") });
        RpcAdvice::new(&[accesses(direction, tasks, transfer, round_trip)], &present)
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
            assert_eq!(
                rows[0].iter().map(ToString::to_string).collect::<Vec<_>>(),
                ["osc.*.max_rpcs_in_flight", "8", "16"]
            );
            assert_eq!(rows.len(), if direction == Direction::Read { 4 } else { 3 }, "the window concerns reads");
        }
        let far = advice(Direction::Write, 256, MI, 0.1);
        assert_eq!(far.recommended.map(|rpcs| rpcs.in_flight), Some(128), "101 for 1000 MiB/s");
    }

    #[test]
    fn buffered_writes_need_more_requests_and_a_larger_buffer() {
        let advice = advice(Direction::Write, 1, 65_536, 0.05);
        assert_eq!(advice.recommended, Some(Rpcs { in_flight: 16, dirty_mb: 128, ..Rpcs::DEFAULT }));
        assert_eq!(advice.settings, ["osc.a-OST*.max_rpcs_in_flight=16", "osc.a-OST*.max_dirty_mb=128"]);
        let reason = &advice.reason;
        assert!(reason.ends_with(" Both include 4 round trips at the start and the end of a file."), "{reason}");
        let little = Present::of(vec![mounted("a")], Rpcs { dirty_mb: 64, ..Rpcs::MAX }).unwrap();
        let all = [accesses(Direction::Write, 1, 65_536, 0.05)];
        let bounded = RpcAdvice::new(&all, &little);
        assert_eq!((bounded.recommended, bounded.command()), (None, None), "no memory for a larger buffer");
        assert!(bounded.reason.ends_with(": larger ones carry hardly more."), "{}", bounded.reason);
    }

    #[test]
    fn small_buffered_files_wait_for_their_start_and_end() {
        let size = 4 * MI;
        let workload = Workload { tasks: 1, nodes: 1, transfer: 65_536, block: size, size, files: true };
        let shape = Shape { stripes: 1, osts: 1, stripe_size: MI, all_osts: None };
        let requests = Requests::of(Direction::Write, &workload, &shape, 1, 1.0);
        let small = Accesses { requests, link: Link { round_trip: 0.05, ost: 1000.0 }, rate: 1000.0 };
        let advice = RpcAdvice::new(&[small], &present(Mounted { round_trip: 0.05, ..mounted("a") }));
        let reason = "The present RPC parameters suffice: 4 round trips of 50.00 ms at the start and the end of a \
                      file take most of the time.";
        assert_eq!((advice.recommended, advice.reason.as_str()), (None, reason));
    }

    #[test]
    fn present_values_suffice_nearby_and_for_few_requests() {
        let near = advice(Direction::Write, 16, MI, 1e-4);
        assert_eq!((near.recommended, near.gain, near.table()), (None, 1.0, None));
        assert_eq!(near.reason, "The present RPC parameters suffice: the round trip is 0.10 ms.");
        let few = advice(Direction::Write, 1, MI, 0.01);
        let reason = "The present RPC parameters suffice: programs and readahead request less at a time.";
        assert_eq!((few.recommended, few.reason.as_str()), (None, reason));
        let mut gains = accesses(Direction::Write, 16, MI, 0.01);
        gains.rate = 727.3 * 1.04;
        let present = present(mounted("a"));
        assert_eq!(RpcAdvice::new(&[gains], &present).recommended, None, "less than 5 %");
        gains.rate = 727.3 * 1.06;
        assert!(RpcAdvice::new(&[gains], &present).recommended.is_some());
    }

    #[test]
    fn readahead_covers_the_round_trip() {
        let one = advice(Direction::Read, 1, MI, 0.01);
        assert_eq!(one.recommended, Some(Rpcs { in_flight: 16, read_ahead_mb: 16, ..Rpcs::DEFAULT }));
        assert!((one.gain - 2.75).abs() < 1e-6, "1000 instead of 4 / 0.011: {}", one.gain);
        let settings = ["osc.a-OST*.max_rpcs_in_flight=16", "llite.a.max_read_ahead_per_file_mb=16"];
        assert_eq!(one.settings, settings);
        assert_eq!(one.rows()[3], ("llite.*.max_read_ahead_per_file_mb", 4, 16));
        // 4 MiB in 11 ms.
        let mut hardly = accesses(Direction::Read, 1, MI, 0.01);
        hardly.rate = 363.6 * 1.04;
        assert_eq!(RpcAdvice::new(&[hardly], &present(mounted("a"))).recommended, None, "less than 5 %");
    }

    #[test]
    fn readahead_is_raised_by_both_of_its_parameters_where_the_mount_can() {
        let few = [accesses(Direction::Read, 2, MI, 0.01)];
        let of = |window: Option<Window>, read_ahead_mb| {
            let values = Rpcs { read_ahead_mb, in_flight: 64, ..Rpcs::DEFAULT };
            let mount = Mounted { window, lowest: values, highest: values, ..mounted("a") };
            RpcAdvice::new(&few, &present(mount))
        };
        let both = of(Some(Window { max_mb: 4, per_file_mb: 2 }), 2);
        let settings = ["llite.a.max_read_ahead_mb=8", "llite.a.max_read_ahead_per_file_mb=8"];
        assert_eq!((both.recommended.unwrap().read_ahead_mb, both.settings), (8, settings.map(str::to_owned).to_vec()));
        let off = of(Some(Window { max_mb: 0, per_file_mb: 64 }), 0);
        assert_eq!(off.settings, ["llite.a.max_read_ahead_mb=8"], "the window is the smaller one");
        let users = of(None, 0);
        assert_eq!((users.recommended, users.settings.is_empty()), (None, true));
    }

    #[test]
    fn no_value_becomes_smaller_for_any_ost() {
        let uneven = present(Mounted { highest: Rpcs { in_flight: 100, ..Rpcs::DEFAULT }, ..mounted("a") });
        let all = [accesses(Direction::Read, 16, MI, 0.01)];
        assert_eq!(RpcAdvice::new(&all, &uneven).settings, ["osc.a-OST*.max_rpcs_in_flight=100"]);
        assert_eq!(raised(100, 256), [100, 200, 256]);
        assert_eq!((raised(300, 256), raised(0, 4)), (vec![300], vec![0, 1, 2, 4]));
    }

    #[test]
    fn gain_and_reason_are_those_of_the_values_in_the_table() {
        let uneven = present(Mounted { highest: Rpcs { in_flight: 200, ..Rpcs::DEFAULT }, ..mounted("a") });
        let mut many = accesses(Direction::Write, 300, MI, 0.01);
        // 128 requests, the next doubling, carry 11,636 MiB/s; 200 carry more than the rate.
        many.rate = 11_700.0;
        let advice = RpcAdvice::new(&[many], &uneven);
        assert_eq!(advice.rows()[0], ("osc.*.max_rpcs_in_flight", 8, 200));
        assert!((advice.gain - 11_700.0 / (8.0 / 0.011)).abs() < 1e-6, "{}", advice.gain);
        assert!(advice.reason.ends_with("; 11700 with these values."), "{}", advice.reason);
    }

    #[test]
    fn values_of_all_mounts_count() {
        let with = |name, in_flight, round_trip| {
            let values = Rpcs { in_flight, ..Rpcs::DEFAULT };
            Mounted { lowest: values, highest: values, round_trip, ..mounted(name) }
        };
        let present = Present::of(vec![with("a", 12, 0.002), with("b", 8, 0.01)], Rpcs::MAX).unwrap();
        assert_eq!((present.lowest.in_flight, present.highest.in_flight, present.round_trip()), (8, 12, 0.01));
        let all = [accesses(Direction::Write, 16, MI, present.round_trip())];
        let advice = RpcAdvice::new(&all, &present);
        assert_eq!(advice.rows()[0], ("osc.*.max_rpcs_in_flight", 8, 16));
        assert_eq!(advice.settings, ["osc.a-OST*.max_rpcs_in_flight=16", "osc.b-OST*.max_rpcs_in_flight=16"]);
        let enough = Present::of(vec![with("a", 16, 0.01), with("b", 8, 0.01)], Rpcs::MAX).unwrap();
        assert_eq!(RpcAdvice::new(&all, &enough).settings, ["osc.b-OST*.max_rpcs_in_flight=16"]);
        let users = Mounted { window: None, ..with("b", 8, 0.01) };
        let mixed = Present::of(vec![with("a", 8, 0.01), users], Rpcs::MAX).unwrap();
        assert!(!mixed.has_window(), "the slowest mount limits the job");
        assert_eq!(Present::of(Vec::new(), Rpcs::MAX), None);
    }
}
