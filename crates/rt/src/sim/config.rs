//! What a simulation is like, and how it can fail.

use std::{ops::Range, time::Duration};

use crate::Instant;

/// The physics of a simulated world. Ranges are sampled evenly.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// How long a packet takes from host to host; its width is the jitter, which reorders packets
    /// of different connections.
    pub delay: Range<Duration>,
    /// The same within one host.
    pub loopback_delay: Range<Duration>,
    /// Share of packets between hosts that are lost (0 to 1). A lost packet comes later, after a
    /// retransmission.
    pub loss: f64,
    /// How long until the first retransmission; doubles with each further one.
    pub retransmit_delay: Duration,
    /// A connection whose packet was lost this often in a row breaks with ETIMEDOUT.
    pub retransmits_max: u32,
    /// A partition that lasts so long breaks the connections across it with ETIMEDOUT.
    pub partition_timeout: Duration,
    /// A connect that is not answered so long fails with ETIMEDOUT.
    pub connect_timeout: Duration,
    /// Bytes that a connection takes in one direction before the reader has read them.
    pub window_bytes: usize,
    /// Largest packet, in bytes.
    pub packet_bytes: usize,
    /// Share of reads and writes on sockets that do less than they could (0 to 1), as real ones
    /// may.
    pub short_io: f64,
    /// How long an fsync takes.
    pub fsync_delay: Range<Duration>,
    /// How long `run_blocking` takes.
    pub blocking_delay: Range<Duration>,
    /// Size of each host's disk, in bytes; beyond it, ENOSPC.
    pub disk_bytes: u64,
    /// How many of the last events [`super::World::log`] keeps as text. They cost time; 0 for long
    /// runs.
    pub log_events_max: usize,
    /// A run past this virtual time fails.
    pub time_max: Duration,
    /// A run in which time stands still for so many polls fails: somebody spins.
    pub polls_per_instant_max: u64,
}

impl Default for SimConfig {
    /// A good local network, no faults.
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
            log_events_max: 0,
            time_max: Duration::from_secs(24 * 3600),
            polls_per_instant_max: 1_000_000,
        }
    }
}

/// Why a simulated run has no outcome. Tasks are written `name@host#number`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SimError {
    /// The run is not done, but no task can go on and nothing is under way that could wake one.
    #[error("deadlock at {at:?}; waiting for ever: {}", waiting.join(", "))]
    Deadlock {
        /// When.
        at: Instant,
        /// The tasks.
        waiting: Vec<String>,
    },
    /// Virtual time reached [`SimConfig::time_max`].
    #[error("not done after {at:?} of virtual time; still there: {}", waiting.join(", "))]
    TimeLimit {
        /// When.
        at: Instant,
        /// The tasks that had not ended.
        waiting: Vec<String>,
    },
    /// [`SimConfig::polls_per_instant_max`] was reached.
    #[error("time stands still at {at:?} although tasks run: {}", busy.join(", "))]
    Livelock {
        /// When.
        at: Instant,
        /// The tasks that were ready to run.
        busy: Vec<String>,
    },
}
