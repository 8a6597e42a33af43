//! The self-test of the network: requests that a server answers without doing anything else, and
//! loads of such requests (Lustre's LNET selftest).
//!
//! Invariant: a load is bounded in size, number and time ([`Load::is_within_limits`]), and its
//! requests cause no further ones.

use serde::{Deserialize, Serialize};

use crate::bulk::BULK_BYTES_MAX;

/// Name of the service. Each process that listens has one.
pub const TARGET: &str = "selftest";
/// Longest time of a load that a server sends, in milliseconds.
pub const LOAD_TIME_MS_MAX: u32 = 60_000;
/// Longest delay that a load adds, in microseconds: shorter than the 30 s after which pings without
/// answer end a connection. With 5 s or more, a broken connection is not restored during the load.
pub const LOAD_DELAY_US_MAX: u32 = 10_000_000;
/// Maximum number of requests of a load under way.
pub const LOAD_IN_FLIGHT_MAX: u32 = 256;

/// A request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Drops the bulk of the request. Answers with a bulk of this many bytes, at most
    /// [`BULK_BYTES_MAX`].
    Echo {
        /// Bytes of the reply's bulk.
        reply_bytes: u32,
    },
    /// Sends the requests of a load to the self-test of another server, and answers when it ends.
    /// It also ends with the client's connection. A server sends the loads of one client at a time.
    ///
    /// EPERM: the client has no key of the cluster itself, or the server authenticates nobody.
    /// EBUSY: another client has its turn. EINVAL: the load is beyond a limit, or an address is
    /// invalid.
    Load {
        /// Addresses of the other server (`10.0.0.1@tcp`), in the order to try.
        to: Vec<String>,
        /// The load.
        load: Load,
    },
}

/// A load: requests of one kind that are sent for a time. Each is followed by the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Load {
    /// Bytes of data that each request carries.
    pub sent_bytes: u32,
    /// Bytes of data of each reply.
    pub reply_bytes: u32,
    /// Requests under way.
    pub in_flight: u32,
    /// Time in milliseconds after which no further request is sent.
    pub time_ms: u32,
    /// Delay that the sender adds to each frame, in microseconds.
    pub delay_us: u32,
}

impl Load {
    /// Returns whether a server sends the load.
    pub fn is_within_limits(&self) -> bool {
        self.sent_bytes.max(self.reply_bytes) as usize <= BULK_BYTES_MAX
            && (1..=LOAD_IN_FLIGHT_MAX).contains(&self.in_flight)
            && self.time_ms <= LOAD_TIME_MS_MAX
            && self.delay_us <= LOAD_DELAY_US_MAX
    }
}

/// The result of a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Done {
    /// Requests that were answered.
    pub requests: u64,
    /// Nanoseconds until the last answer.
    pub nanos: u64,
}

impl Done {
    /// Returns the seconds until the last answer.
    pub fn seconds(&self) -> f64 {
        self.nanos as f64 / 1e9
    }
}

impl Request {
    /// Returns the name for statistics and logs.
    pub fn op(&self) -> &'static str {
        match self {
            Request::Echo { .. } => "echo",
            Request::Load { .. } => "load",
        }
    }
}

/// A successful reply.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// To `Echo`; the bulk has the bytes.
    Echoed,
    /// To `Load`.
    Loaded(Done),
    /// To `Load`: the other server was not reached, or a request to it failed.
    Failed {
        /// The reason, for a user.
        why: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::to_body;

    const LOAD: Load = Load { sent_bytes: 1, reply_bytes: 2, in_flight: 3, time_ms: 4, delay_us: 5 };

    #[test]
    fn selftest_messages_are_pinned() {
        assert_eq!(to_body(&Request::Echo { reply_bytes: 7 }).unwrap(), [0, 7]);
        let load = Request::Load { to: vec!["a".into(), "b".into()], load: LOAD };
        assert_eq!(to_body(&load).unwrap(), [1, 2, 1, 97, 1, 98, 1, 2, 3, 4, 5]);
        assert_eq!(to_body(&Reply::Echoed).unwrap(), [0]);
        assert_eq!(to_body(&Reply::Loaded(Done { requests: 8, nanos: 9 })).unwrap(), [1, 8, 9]);
        assert_eq!(to_body(&Reply::Failed { why: "c".into() }).unwrap(), [2, 1, 99]);
    }

    #[test]
    fn loads_beyond_a_limit_are_recognised() {
        let bytes = BULK_BYTES_MAX as u32;
        let largest = Load {
            sent_bytes: bytes,
            reply_bytes: bytes,
            in_flight: LOAD_IN_FLIGHT_MAX,
            time_ms: LOAD_TIME_MS_MAX,
            delay_us: LOAD_DELAY_US_MAX,
        };
        assert!(LOAD.is_within_limits() && largest.is_within_limits());
        for load in [
            Load { sent_bytes: bytes + 1, ..largest },
            Load { reply_bytes: bytes + 1, ..largest },
            Load { in_flight: LOAD_IN_FLIGHT_MAX + 1, ..largest },
            Load { in_flight: 0, ..largest },
            Load { time_ms: LOAD_TIME_MS_MAX + 1, ..largest },
            Load { delay_us: LOAD_DELAY_US_MAX + 1, ..largest },
        ] {
            assert!(!load.is_within_limits(), "{load:?}");
        }
    }
}
