//! The modelled machines.

use std::time::Duration;

use sheen_oss::DiskSpec;
use sheen_rt::sim::SimConfig;

/// Bytes of a packet: small compared with a request of data, so that links are shared fairly.
const PACKET_BYTES: usize = 64 << 10;
/// Window of a connection: more than any link of these rates has in flight.
const WINDOW_BYTES: usize = 64 << 20;
/// Limit of virtual time. A run that takes longer is stuck.
const TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// The machines of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hardware {
    /// Number of OSTs, each on a host of its own.
    pub osts: u32,
    /// The disk of each OST.
    pub disk: DiskSpec,
    /// Rate of the link of each client in MiB/s, for each direction. 0: no limit.
    pub client_link: u64,
    /// Rate of the link of each server, likewise.
    pub server_link: u64,
    /// Time of a message from one host to another, in microseconds, without its bytes. It stands
    /// for the network and for the software at both ends.
    pub delay_us: u64,
}

impl Hardware {
    /// Returns the configuration of the simulated world.
    pub(crate) fn config(&self) -> SimConfig {
        let delay = Duration::from_micros(self.delay_us);
        let none = Duration::ZERO..Duration::ZERO;
        SimConfig {
            delay: delay..delay,
            packet_bytes: PACKET_BYTES,
            window_bytes: WINDOW_BYTES,
            short_io: 0.0,
            // The modelled disk adds the time of a sync.
            fsync_delay: none.clone(),
            blocking_delay: none,
            time_max: TIME_MAX,
            ..SimConfig::default()
        }
    }
}
