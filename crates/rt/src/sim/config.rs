//! Configuration and errors of a simulation.

use std::{ops::Range, time::Duration};

use crate::Instant;

/// The physics of a simulated world. Ranges are sampled uniformly.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Delay of a packet from host to host. The width of the range is the jitter, which reorders
    /// packets of different connections.
    pub delay: Range<Duration>,
    /// Delay of a packet within one host.
    pub loopback_delay: Range<Duration>,
    /// Share of packets between hosts that are lost (0 to 1). A lost packet arrives later, after a
    /// retransmission.
    pub loss: f64,
    /// Time until the first retransmission. Doubles with each further one.
    pub retransmit_delay: Duration,
    /// Maximum number of successive losses of a packet. One more breaks the connection with
    /// ETIMEDOUT.
    pub retransmits_max: u32,
    /// Duration of a partition after which the connections across it break with ETIMEDOUT.
    pub partition_timeout: Duration,
    /// Time after which an unanswered connect fails with ETIMEDOUT.
    pub connect_timeout: Duration,
    /// Window of a connection in each direction: bytes accepted before the reader has read them.
    pub window_bytes: usize,
    /// Maximum packet size, in bytes.
    pub packet_bytes: usize,
    /// Share of reads and writes on sockets that transfer less than possible (0 to 1), as real ones
    /// may.
    pub short_io: f64,
    /// Duration of an fsync.
    pub fsync_delay: Range<Duration>,
    /// Delay of `run_blocking`.
    pub blocking_delay: Range<Duration>,
    /// Size of each host's disk, in bytes. Writes beyond it return ENOSPC.
    pub disk_bytes: u64,
    /// Size of each host's memory as [`crate::Rt::memory_bytes`] returns it. It limits nothing.
    pub memory_bytes: u64,
    /// Number of last events that [`super::World::log`] stores as text. Text costs time: use 0 for
    /// long runs.
    pub log_events_max: usize,
    /// A run fails when virtual time exceeds this limit.
    pub time_max: Duration,
    /// A run fails after this many polls without progress of virtual time, because a task spins.
    pub polls_per_instant_max: u64,
}

impl Default for SimConfig {
    /// Returns a good local network without faults.
    fn default() -> SimConfig {
        let us = Duration::from_micros;
        SimConfig {
            delay: us(50)..us(500),
            loopback_delay: us(5)..us(20),
            loss: 0.0,
            retransmit_delay: Duration::from_millis(200),
            retransmits_max: 8,
            partition_timeout: Duration::from_secs(20),
            connect_timeout: Duration::from_secs(10),
            window_bytes: 256 << 10,
            packet_bytes: 16 << 10,
            short_io: 0.1,
            fsync_delay: us(100)..us(2000),
            blocking_delay: us(1)..us(100),
            disk_bytes: 1 << 40,
            memory_bytes: 8 << 30,
            log_events_max: 0,
            time_max: Duration::from_secs(24 * 3600),
            polls_per_instant_max: 1_000_000,
        }
    }
}

/// Reason why a simulated run failed. Tasks are written `name@host#number`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SimError {
    /// The run has not ended, but no task is ready and no planned event could wake one.
    #[error("deadlock at {at:?}: these tasks wait for ever: {}", waiting.join(", "))]
    Deadlock {
        /// Virtual time of the deadlock.
        at: Instant,
        /// The waiting tasks.
        waiting: Vec<String>,
    },
    /// Virtual time reached [`SimConfig::time_max`].
    #[error("time limit reached at {at:?} of virtual time; unfinished tasks: {}", waiting.join(", "))]
    TimeLimit {
        /// Virtual time at which the run was stopped.
        at: Instant,
        /// The tasks that had not ended.
        waiting: Vec<String>,
    },
    /// [`SimConfig::polls_per_instant_max`] was reached.
    #[error("livelock at {at:?}: tasks run but virtual time does not advance: {}", busy.join(", "))]
    Livelock {
        /// Virtual time of the livelock.
        at: Instant,
        /// The tasks that were ready to run.
        busy: Vec<String>,
    },
}
