//! The control of the world by a test.

use std::{net::SocketAddr, sync::Arc};

use super::{
    config::SimConfig,
    conn::host_ip,
    host::Host,
    link::Link,
    state::{Core, State},
    trace::Note,
};
use crate::time::Instant;

/// Control of a simulated world by a test. Clones refer to the same world: pass them to tasks that
/// inject faults.
#[derive(Clone)]
pub struct World(pub(crate) Arc<Core>);

impl World {
    /// Returns the present life of a host.
    pub(crate) fn host(&self, id: u32) -> Host {
        let (life, boot) = self.0.with(|s| (s.host(id).life, s.host(id).boot));
        Host { core: self.0.clone(), id, life, boot }
    }

    /// Returns an address of a host: 10.0.0.HOST for numbers up to 255.
    pub fn addr(&self, host: u32, port: u16) -> SocketAddr {
        SocketAddr::new(host_ip(host), port)
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Instant {
        self.0.with(|s| s.now)
    }

    /// Changes the configuration from now on, for example ends the packet losses. A change of
    /// `log_events_max` has no effect.
    pub fn configure(&self, change: impl FnOnce(&mut SimConfig)) {
        self.0.with(|s| change(&mut s.config));
    }

    /// Sets the rate of a host's link in bytes per second, for each direction. 0: no limit, the
    /// default. Traffic within the host does not count.
    pub fn set_link(&self, host: u32, rate: u64) {
        self.0.with(|s| s.host(host).links = [Link::new(rate); 2]);
    }

    /// Stops the traffic between two hosts. Connections between them break after
    /// [`SimConfig::partition_timeout`].
    pub fn partition(&self, a: u32, b: u32) {
        self.0.with(|s| s.partition(a, b));
    }

    /// Ends a partition. Waiting packets are sent on.
    pub fn heal(&self, a: u32, b: u32) {
        self.0.with(|s| s.heal(a, b));
    }

    /// Breaks all connections between two hosts, at once and at both ends, with ECONNRESET.
    pub fn reset_connections(&self, a: u32, b: u32) {
        self.0.with(|s| s.reset_connections(a, b));
    }

    /// Simulates a power failure of a host. Its tasks end without another poll. Its peers see their
    /// connections reset after the delay of a packet. Its disk loses unsynced data, as the seed
    /// decides. The host is up again at once: take a new [`World::rt`] and spawn its tasks again.
    pub fn crash_host(&self, host: u32) {
        self.0.with(|s| {
            s.host(host).boot += 1;
            self.end_life(s, host);
        });
    }

    /// Simulates a local file system that shuts down after an error, and is mounted again in the
    /// same boot. The effect is that of [`World::crash_host`], but the host's boot id remains, and
    /// the mount of its disk has another id.
    pub fn remount_disk(&self, host: u32) {
        self.0.with(|s| {
            self.end_life(s, host);
            s.host(host).disk.remounted();
        });
    }

    /// Ends all tasks and connections of a host. Its disk loses unsynced data.
    fn end_life(&self, state: &mut State, host: u32) {
        state.host(host).life += 1;
        let killed = state.tasks.kill_host(host);
        self.0.ready.extend(killed);
        state.net_crash(host);
        state.disk_crash(host);
    }

    /// Records an observation or action of a test in the trace.
    pub fn note(&self, what: &str) {
        self.0.with(|s| s.note(Note::Message { what }));
    }

    /// Returns a hash of all events so far: tasks, packets with their content, timers, disks. Equal
    /// for equal seeds.
    pub fn trace_hash(&self) -> u64 {
        self.0.with(|s| s.trace.hash())
    }

    /// Returns the last events as text, at most [`SimConfig::log_events_max`].
    pub fn log(&self) -> Vec<String> {
        self.0.with(|s| s.trace.lines())
    }
}
