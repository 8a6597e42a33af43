//! Statistics of an import, for `osc.*.stats`, `mdc.*.stats` and their `rpc_stats`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// Statistics of one kind of request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
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
    /// Longest such time, in nanoseconds.
    pub time_ns_max: u64,
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
#[derive(Default)]
pub(crate) struct Stats {
    /// Searched linearly: a protocol has some 30 kinds, and the frequent ones soon come first.
    ops: Mutex<Vec<(&'static str, OpStats)>>,
    round_trip_ns: AtomicU64,
    pub(crate) connects: AtomicU64,
    pub(crate) resent: AtomicU64,
}

impl Stats {
    pub(crate) fn record(&self, op: &'static str, sent: usize, received: Option<usize>, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let before = self.round_trip_ns.load(Ordering::Relaxed);
        let after = if before == 0 { ns } else { before - before / 8 + ns / 8 };
        self.round_trip_ns.store(after, Ordering::Relaxed);
        let mut ops = self.ops.lock();
        let at = match ops.iter().position(|(name, _)| std::ptr::eq(*name, op) || *name == op) {
            Some(at) => at,
            None => {
                ops.push((op, OpStats::default()));
                ops.len() - 1
            }
        };
        let s = &mut ops[at].1;
        s.count += 1;
        s.errors += u64::from(received.is_none());
        s.bytes_sent += sent as u64;
        s.bytes_received += received.unwrap_or(0) as u64;
        s.time_ns = s.time_ns.saturating_add(ns);
        s.time_ns_max = s.time_ns_max.max(ns);
    }

    /// Resets the counts of requests. The round trip and the counts of connections stay.
    pub(crate) fn clear(&self) {
        self.ops.lock().clear();
    }

    pub(crate) fn snapshot(&self) -> ImportStats {
        let mut ops = self.ops.lock().clone();
        ops.sort_unstable_by_key(|(name, _)| *name);
        ImportStats {
            ops,
            in_flight: 0,
            in_flight_max: 0,
            round_trip: Duration::from_nanos(self.round_trip_ns.load(Ordering::Relaxed)),
            connects: self.connects.load(Ordering::Relaxed),
            resent: self.resent.load(Ordering::Relaxed),
        }
    }
}
