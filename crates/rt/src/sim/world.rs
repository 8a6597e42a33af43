//! The state shared by hosts, network and tasks, virtual time, and the control of the
//! world by a test.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::Range,
    sync::Arc,
    task::Waker,
    time::Duration,
};

use fastrand::Rng;
use parking_lot::Mutex;
use sheen_wire::Time;

use super::{
    config::SimConfig,
    disk::DiskState,
    exec::{Ready, Tasks},
    host::Host,
    net::{self, Net},
    trace::{Note, Trace},
};
use crate::{Instant, Rt, rt};

/// Start of virtual time. It is not zero, so that instants before the start of the run exist.
const START: Instant = Instant::from_nanos(1_000_000_000_000);
/// Time of day at the start: 2001-09-09, 01:46:40 UTC, easy to distinguish from a real one.
const START_WALL_SEC: i64 = 1_000_000_000;

pub(crate) struct Core {
    pub(crate) ready: Arc<Ready>,
    state: Mutex<State>,
}

pub(crate) struct State {
    pub(crate) config: SimConfig,
    pub(crate) seed: u64,
    pub(crate) rng: Rng,
    pub(crate) now: Instant,
    pub(crate) trace: Trace,
    pub(crate) tasks: Tasks,
    pub(crate) hosts: BTreeMap<u32, HostState>,
    pub(crate) net: Net,
    /// Planned events, ordered by time and then by the order in which they were planned.
    events: BTreeMap<EventKey, Event>,
    events_planned: u64,
    /// Wakers to call as soon as the state is unlocked.
    pub(crate) wakes: Vec<Waker>,
}

pub(crate) type EventKey = (Instant, u64);

pub(crate) enum Event {
    Timer(Waker),
    Net(net::Event),
}

pub(crate) struct HostState {
    /// Number of the host's present life; see the invariants of `sim`.
    pub(crate) life: u32,
    pub(crate) disk: DiskState,
    pub(crate) ports_given: u16,
}

impl Core {
    pub(crate) fn new(seed: u64, config: SimConfig) -> Core {
        let state = State {
            seed,
            rng: Rng::with_seed(seed),
            now: START,
            trace: Trace::new(config.log_events_max),
            tasks: Tasks::default(),
            hosts: BTreeMap::new(),
            net: Net::default(),
            events: BTreeMap::new(),
            events_planned: 0,
            wakes: Vec::new(),
            config,
        };
        Core { ready: Arc::default(), state: Mutex::new(state) }
    }

    /// Calls `f` with the state, then wakes the tasks that `f` queued for waking. Calls must not be
    /// nested, and must not enclose a poll.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock();
        let out = f(&mut state);
        let wakes = std::mem::take(&mut state.wakes);
        drop(state);
        wakes.into_iter().for_each(Waker::wake);
        out
    }
}

impl State {
    pub(crate) fn note(&mut self, note: Note<'_>) {
        self.trace.note(self.now, &note);
    }

    pub(crate) fn plan(&mut self, after: Duration, event: Event) -> EventKey {
        self.events_planned += 1;
        let key = (self.now + after, self.events_planned);
        self.events.insert(key, event);
        key
    }

    pub(crate) fn cancel(&mut self, key: EventKey) -> Option<Event> {
        self.events.remove(&key)
    }

    /// Returns the waker of a timer that has not fired yet.
    pub(crate) fn timer(&mut self, key: EventKey) -> Option<&mut Waker> {
        match self.events.get_mut(&key) {
            Some(Event::Timer(waker)) => Some(waker),
            _ => None,
        }
    }

    /// Takes all planned events, at the end of the simulation.
    pub(crate) fn take_events(&mut self) -> impl Sized + use<> {
        std::mem::take(&mut self.events)
    }

    /// Advances time to the next planned event and executes the events of that time. Returns
    /// `false` if no event is planned.
    pub(crate) fn advance(&mut self) -> bool {
        let Some((&(at, _), _)) = self.events.first_key_value() else { return false };
        self.now = self.now.max(at);
        while let Some(entry) = self.events.first_entry()
            && entry.key().0 <= self.now
        {
            match entry.remove() {
                Event::Timer(waker) => {
                    self.note(Note::Timer);
                    self.wakes.push(waker);
                }
                Event::Net(event) => self.net_event(event),
            }
        }
        true
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.now.since(START)
    }

    pub(crate) fn wall(&self) -> Time {
        let d = self.elapsed();
        Time { sec: START_WALL_SEC + d.as_secs() as i64, nsec: d.subsec_nanos() }
    }

    pub(crate) fn sample(&mut self, range: &Range<Duration>) -> Duration {
        let width = range.end.saturating_sub(range.start).as_nanos() as u64;
        range.start + Duration::from_nanos(if width == 0 { 0 } else { self.rng.u64(0..width) })
    }

    pub(crate) fn chance(&mut self, share: f64) -> bool {
        share > 0.0 && self.rng.f64() < share
    }

    pub(crate) fn host(&mut self, id: u32) -> &mut HostState {
        let bytes = self.config.disk_bytes;
        self.hosts.entry(id).or_insert_with(|| HostState { life: 0, disk: DiskState::new(id, bytes), ports_given: 0 })
    }
}

/// Control of a simulated world by a test. Clones refer to the same world: pass them to tasks that
/// inject faults.
#[derive(Clone)]
pub struct World(pub(crate) Arc<Core>);

impl World {
    /// Returns an [`Rt`] of the host's present life. Host numbers are below 2^24. The first use of
    /// a number creates the host with an empty disk. Its address is that of [`World::addr`].
    pub fn rt(&self, host: u32) -> Rt {
        let life = self.0.with(|s| s.host(host).life);
        Rt(rt::Inner::Sim(Host { core: self.0.clone(), id: host, life }))
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
            s.host(host).life += 1;
            let killed = s.tasks.kill_host(host);
            self.0.ready.extend(killed);
            s.net_crash(host);
            s.disk_crash(host);
        });
    }

    /// Records an observation or action of a test in the trace.
    pub fn note(&self, what: &str) {
        self.0.with(|s| s.note(Note::Said { what }));
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

pub(crate) fn host_ip(host: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(0x0A00_0000 | (host & 0x00FF_FFFF)))
}
