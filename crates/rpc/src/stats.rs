//! Statistics of an import, for `osc.*.stats`, `mdc.*.stats` and their `rpc_stats`.
//!
//! Recording takes no lock. A reader may see the count of a request a moment before its time.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use sheen_params::{Buckets, Histogram};

/// Kinds of requests that are counted. A protocol has some 30.
const OPS_MAX: usize = 64;

/// Statistics of one kind of request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OpStats {
    /// Requests answered, with success or an error.
    pub count: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Bulk bytes sent.
    pub bytes_sent: u64,
    /// Bulk bytes received.
    pub bytes_received: u64,
    /// Sum of the times from the slot to the reply, in nanoseconds.
    pub time_ns: u64,
    /// Shortest such time, in nanoseconds.
    pub time_ns_min: u64,
    /// Longest such time, in nanoseconds.
    pub time_ns_max: u64,
    /// Histogram of these times, in microseconds.
    pub latency: Buckets,
}

/// Statistics of an import, as of now.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ImportStats {
    /// By kind of request ([`sheen_wire::Protocol::op`]), sorted.
    pub ops: Vec<(&'static str, OpStats)>,
    /// Requests under way now.
    pub in_flight: usize,
    /// Maximum number of requests that were ever under way at a time.
    pub in_flight_max: usize,
    /// Moving average, over about 8 requests, of the time that requests took.
    pub round_trip: Duration,
    /// Connections made.
    pub connects: u64,
    /// Requests resent over a new connection.
    pub resent: u64,
}

/// Counters of an import.
pub(crate) struct Stats {
    /// In the order of the first request of each kind, so a search for a frequent kind is short.
    ops: [OnceLock<Box<OpCounters>>; OPS_MAX],
    round_trip_ns: AtomicU64,
    pub(crate) connects: AtomicU64,
    pub(crate) resent: AtomicU64,
}

/// Counters of one kind of request.
struct OpCounters {
    op: &'static str,
    errors: AtomicU64,
    bytes_sent: AtomicU64,
    bytes_received: AtomicU64,
    time_ns: AtomicU64,
    time_ns_min: AtomicU64,
    time_ns_max: AtomicU64,
    /// In microseconds. The number of requests is the number of its values.
    latency: Histogram,
}

impl Default for Stats {
    fn default() -> Stats {
        let zero = AtomicU64::default;
        let ops = [const { OnceLock::new() }; OPS_MAX];
        Stats { ops, round_trip_ns: zero(), connects: zero(), resent: zero() }
    }
}

impl Stats {
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

    /// Resets the counts of requests. The round trip and the counts of connections stay.
    pub(crate) fn clear(&self) {
        self.ops.iter().filter_map(OnceLock::get).for_each(|counters| counters.clear());
    }

    pub(crate) fn snapshot(&self) -> ImportStats {
        let counters = self.ops.iter().filter_map(OnceLock::get);
        let mut ops: Vec<_> = counters.map(|c| (c.op, c.snapshot())).filter(|(_, stats)| stats.count > 0).collect();
        ops.sort_unstable_by_key(|(name, _)| *name);
        ImportStats {
            ops,
            in_flight: 0,
            in_flight_max: 0,
            round_trip: Duration::from_nanos(self.round_trip_ns.load(Relaxed)),
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
            bytes_sent: zero(),
            bytes_received: zero(),
            time_ns: zero(),
            time_ns_min: AtomicU64::new(u64::MAX),
            time_ns_max: zero(),
            latency: Histogram::default(),
        }
    }

    fn record(&self, sent: usize, received: Option<usize>, ns: u64) {
        self.errors.fetch_add(u64::from(received.is_none()), Relaxed);
        self.bytes_sent.fetch_add(sent as u64, Relaxed);
        self.bytes_received.fetch_add(received.unwrap_or(0) as u64, Relaxed);
        self.time_ns.fetch_add(ns, Relaxed);
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
        let counts = [&self.errors, &self.bytes_sent, &self.bytes_received, &self.time_ns, &self.time_ns_max];
        counts.into_iter().for_each(|count| count.store(0, Relaxed));
        self.time_ns_min.store(u64::MAX, Relaxed);
        self.latency.clear();
    }

    fn snapshot(&self) -> OpStats {
        let latency = self.latency.buckets();
        let time_ns_max = self.time_ns_max.load(Relaxed);
        OpStats {
            count: latency.count(),
            errors: self.errors.load(Relaxed),
            bytes_sent: self.bytes_sent.load(Relaxed),
            bytes_received: self.bytes_received.load(Relaxed),
            time_ns: self.time_ns.load(Relaxed),
            time_ns_min: self.time_ns_min.load(Relaxed).min(time_ns_max),
            time_ns_max,
            latency,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn import_stats_count_requests_by_kind_with_latency() {
        let stats = Stats::default();
        for usecs in [10, 10, 10, 3000] {
            stats.record("write", 4096, Some(0), Duration::from_micros(usecs));
        }
        stats.record("read", 0, None, Duration::from_nanos(700));
        let ops = stats.snapshot().ops;
        assert_eq!(ops.iter().map(|(op, _)| *op).collect::<Vec<_>>(), ["read", "write"]);
        let (read, write) = (&ops[0].1, &ops[1].1);
        assert_eq!((read.count, read.errors, read.time_ns_min), (1, 1, 700));
        assert_eq!((write.count, write.errors, write.bytes_sent), (4, 0, 4 * 4096));
        assert_eq!((write.time_ns, write.time_ns_min, write.time_ns_max), (3_030_000, 10_000, 3_000_000));
        assert!((9..=16).contains(&write.latency.percentile(500).unwrap()));
        assert!((2049..=4096).contains(&write.latency.percentile(990).unwrap()));
        stats.clear();
        assert!(stats.snapshot().ops.is_empty());
        stats.record("read", 0, Some(1), Duration::from_micros(5));
        assert_eq!(stats.snapshot().ops[0].1.time_ns_min, 5000);
    }

    #[test]
    fn import_stats_skip_kinds_beyond_the_limit() {
        let stats = Stats::default();
        for i in 0..OPS_MAX + 3 {
            stats.record(Box::leak(i.to_string().into_boxed_str()), 0, Some(0), Duration::from_micros(1));
        }
        assert_eq!(stats.snapshot().ops.len(), OPS_MAX);
    }
}
