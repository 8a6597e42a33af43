//! Statistics of an import, for `osc.*.stats`, `mdc.*.stats` and their `rpc_stats`.
//!
//! Recording takes no lock. A reader may see the count of a request a moment before its time.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use sheen_params::{Buckets, Histogram, Sample, Spread};
use sheen_rt::Instant;
use sheen_wire::Time;

/// Accuracy of the instant of the last reply, in nanoseconds: a millisecond.
const REPLIED_STEP_NS: u64 = 1_000_000;
/// Kinds of requests that are counted. A protocol has some 30.
const OPS_MAX: usize = 64;

/// Statistics of one kind of request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OpStats {
    /// Requests answered, with success or an error.
    pub count: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Bulk bytes of the requests that sent some.
    pub sent: Sample,
    /// Bulk bytes of the replies that had some.
    pub received: Sample,
    /// Sum of the times from the slot to the reply, in nanoseconds.
    pub time_ns: u64,
    /// Shortest such time, in nanoseconds.
    pub time_ns_min: u64,
    /// Longest such time, in nanoseconds.
    pub time_ns_max: u64,
    /// Sum of the squares of these times in microseconds; wraps around.
    pub usecs_squared: u64,
    /// Histogram of these times, in microseconds.
    pub latency: Buckets,
}

/// Statistics of an import, as of now.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ImportStats {
    /// By kind of request ([`sheen_wire::Protocol::op`]), sorted.
    pub ops: Vec<(&'static str, OpStats)>,
    /// Requests that were under way when each request was sent, itself included.
    pub active: Sample,
    /// Time since which requests are counted.
    pub since: Time,
    /// Requests under way now.
    pub in_flight: usize,
    /// Maximum number of requests that were ever under way at a time.
    pub in_flight_max: usize,
    /// Moving average, over about 8 requests, of the time that requests took.
    pub round_trip: Duration,
    /// Time since the last reply. `None`: there was none.
    pub idle: Option<Duration>,
    /// Attempts to connect, successful ones included.
    pub attempts: u64,
    /// Connections made.
    pub connects: u64,
    /// Requests resent over a new connection.
    pub resent: u64,
}

/// Counters of an import.
pub(crate) struct Stats {
    /// In the order of the first request of each kind, so a search for a frequent kind is short.
    ops: [OnceLock<Box<OpCounters>>; OPS_MAX],
    active: Sizes,
    since: Mutex<Time>,
    round_trip_ns: AtomicU64,
    /// Instant of the last reply, in nanoseconds; 0: there was none.
    replied_ns: AtomicU64,
    pub(crate) attempts: AtomicU64,
    pub(crate) connects: AtomicU64,
    pub(crate) resent: AtomicU64,
}

/// Counters of one kind of request.
struct OpCounters {
    op: &'static str,
    errors: AtomicU64,
    sent: Sizes,
    received: Sizes,
    time_ns: AtomicU64,
    time_ns_min: AtomicU64,
    time_ns_max: AtomicU64,
    usecs_squared: AtomicU64,
    /// In microseconds. The number of requests is the number of its values.
    latency: Histogram,
}

/// Numbers of bytes or requests.
#[derive(Default)]
struct Sizes {
    count: AtomicU64,
    spread: Spread,
}

impl Sizes {
    /// Adds a number, unless it is 0.
    fn record(&self, number: usize) {
        if number > 0 {
            self.count.fetch_add(1, Relaxed);
            self.spread.record(number as u64);
        }
    }

    fn clear(&self) {
        self.count.store(0, Relaxed);
        self.spread.clear();
    }

    fn sample(&self, unit: &str) -> Sample {
        self.spread.sample("", unit, self.count.load(Relaxed))
    }
}

impl Stats {
    /// Creates counters. `now`: the time of day.
    pub(crate) fn new(now: Time) -> Stats {
        let zero = AtomicU64::default;
        Stats {
            ops: [const { OnceLock::new() }; OPS_MAX],
            active: Sizes::default(),
            since: Mutex::new(now),
            round_trip_ns: zero(),
            replied_ns: zero(),
            attempts: zero(),
            connects: zero(),
            resent: zero(),
        }
    }

    /// Records that the server replied at this instant.
    pub(crate) fn replied(&self, now: Instant) {
        // It is shown in seconds, and a load is cheaper than a store.
        let now = now.as_nanos().max(1);
        let last = self.replied_ns.load(Relaxed);
        if last == 0 || now.saturating_sub(last) > REPLIED_STEP_NS {
            self.replied_ns.store(now, Relaxed);
        }
    }

    /// Records that a request is sent. `active`: the requests under way, itself included.
    pub(crate) fn sending(&self, active: usize) {
        self.active.record(active);
    }

    /// Records a request that has ended. `received`: `None` if it failed.
    pub(crate) fn record(&self, op: &'static str, sent: usize, received: Option<usize>, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let before = self.round_trip_ns.load(Relaxed);
        let after = if before == 0 { ns } else { before - before / 8 + ns / 8 };
        self.round_trip_ns.store(after, Relaxed);
        let mut ops = self.ops.iter().map(|slot| slot.get_or_init(|| Box::new(OpCounters::new(op))));
        if let Some(counters) = ops.find(|counters| std::ptr::eq(counters.op, op) || counters.op == op) {
            counters.record(sent, received, ns);
        }
    }

    /// Resets the counts of requests, which begin again at `now`, the time of day. The round trip
    /// and the counts of connections stay.
    pub(crate) fn clear(&self, now: Time) {
        *self.since.lock() = now;
        self.active.clear();
        self.ops.iter().filter_map(OnceLock::get).for_each(|counters| counters.clear());
    }

    /// Returns the values of now, without the requests under way.
    pub(crate) fn snapshot(&self, now: Instant) -> ImportStats {
        let counters = self.ops.iter().filter_map(OnceLock::get);
        let mut ops: Vec<_> = counters.map(|c| (c.op, c.snapshot())).filter(|(_, stats)| stats.count > 0).collect();
        ops.sort_unstable_by_key(|(name, _)| *name);
        let replied = Some(self.replied_ns.load(Relaxed)).filter(|ns| *ns > 0).map(Instant::from_nanos);
        ImportStats {
            ops,
            active: self.active.sample("reqs"),
            since: *self.since.lock(),
            in_flight: 0,
            in_flight_max: 0,
            round_trip: Duration::from_nanos(self.round_trip_ns.load(Relaxed)),
            idle: replied.map(|replied| now.since(replied)),
            attempts: self.attempts.load(Relaxed),
            connects: self.connects.load(Relaxed),
            resent: self.resent.load(Relaxed),
        }
    }
}

impl OpCounters {
    fn new(op: &'static str) -> OpCounters {
        let zero = AtomicU64::default;
        OpCounters {
            op,
            errors: zero(),
            sent: Sizes::default(),
            received: Sizes::default(),
            time_ns: zero(),
            time_ns_min: AtomicU64::new(u64::MAX),
            time_ns_max: zero(),
            usecs_squared: zero(),
            latency: Histogram::default(),
        }
    }

    fn record(&self, sent: usize, received: Option<usize>, ns: u64) {
        self.errors.fetch_add(u64::from(received.is_none()), Relaxed);
        self.sent.record(sent);
        self.received.record(received.unwrap_or(0));
        self.time_ns.fetch_add(ns, Relaxed);
        let usecs = ns / 1000;
        self.usecs_squared.fetch_add(usecs.wrapping_mul(usecs), Relaxed);
        // A new extreme is rare, and a load is cheaper than the atomic operation.
        if ns < self.time_ns_min.load(Relaxed) {
            self.time_ns_min.fetch_min(ns, Relaxed);
        }
        if ns > self.time_ns_max.load(Relaxed) {
            self.time_ns_max.fetch_max(ns, Relaxed);
        }
        self.latency.record(ns.div_ceil(1000));
    }

    fn clear(&self) {
        let counts = [&self.errors, &self.time_ns, &self.time_ns_max, &self.usecs_squared];
        counts.into_iter().for_each(|count| count.store(0, Relaxed));
        self.sent.clear();
        self.received.clear();
        self.time_ns_min.store(u64::MAX, Relaxed);
        self.latency.clear();
    }

    fn snapshot(&self) -> OpStats {
        let latency = self.latency.buckets();
        let time_ns_max = self.time_ns_max.load(Relaxed);
        OpStats {
            count: latency.count(),
            errors: self.errors.load(Relaxed),
            sent: self.sent.sample("bytes"),
            received: self.received.sample("bytes"),
            time_ns: self.time_ns.load(Relaxed),
            time_ns_min: self.time_ns_min.load(Relaxed).min(time_ns_max),
            time_ns_max,
            usecs_squared: self.usecs_squared.load(Relaxed),
            latency,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn import_stats_count_requests_by_kind_with_latency() {
        let at = |sec| Time { sec, nsec: 0 };
        let stats = Stats::new(at(7));
        let snapshot = || stats.snapshot(Instant::ZERO);
        for usecs in [10, 10, 10, 3000] {
            stats.sending(1);
            stats.record("write", 4096, Some(0), Duration::from_micros(usecs));
        }
        stats.sending(3);
        stats.record("read", 0, None, Duration::from_nanos(700));
        let ImportStats { ops, active, since, .. } = snapshot();
        assert_eq!(ops.iter().map(|(op, _)| *op).collect::<Vec<_>>(), ["read", "write"]);
        let (read, write) = (&ops[0].1, &ops[1].1);
        assert_eq!((read.count, read.errors, read.time_ns_min, read.received.count), (1, 1, 700, 0));
        assert_eq!((write.count, write.errors), (4, 0));
        assert_eq!(write.sent.line(0), " 4 samples [bytes] 4096 4096 16384 67108864\n");
        assert_eq!((write.time_ns, write.time_ns_min, write.time_ns_max), (3_030_000, 10_000, 3_000_000));
        assert_eq!(write.usecs_squared, 3 * 100 + 9_000_000);
        assert!((9..=16).contains(&write.latency.percentile(500).unwrap()));
        assert!((2049..=4096).contains(&write.latency.percentile(990).unwrap()));
        assert_eq!((active.count, active.min, active.max, active.sum, since), (5, Some(1), Some(3), Some(7), at(7)));
        stats.clear(at(9));
        assert_eq!((snapshot().ops.len(), snapshot().active.count, snapshot().since), (0, 0, at(9)));
        stats.record("read", 0, Some(1), Duration::from_micros(5));
        assert_eq!(snapshot().ops[0].1.time_ns_min, 5000);
    }

    #[test]
    fn import_stats_know_the_time_since_the_last_reply() {
        let (stats, second) = (Stats::new(Time::default()), Duration::from_secs(1));
        assert_eq!(stats.snapshot(Instant::ZERO).idle, None);
        stats.replied(Instant::ZERO + second);
        assert_eq!(stats.snapshot(Instant::ZERO + second * 4).idle, Some(second * 3));
    }

    #[test]
    fn import_stats_skip_kinds_beyond_the_limit() {
        let stats = Stats::new(Time::default());
        for i in 0..OPS_MAX + 3 {
            stats.record(Box::leak(i.to_string().into_boxed_str()), 0, Some(0), Duration::from_micros(1));
        }
        assert_eq!(stats.snapshot(Instant::ZERO).ops.len(), OPS_MAX);
    }
}
