//! The state shared by hosts, network and tasks, and virtual time.

use std::{collections::BTreeMap, ops::Range, sync::Arc, task::Waker, time::Duration};

use fastrand::Rng;
use parking_lot::Mutex;
use sheen_wire::Time;

use super::{
    config::SimConfig,
    conn::{self, Net},
    link::Link,
    tasks::{Ready, Tasks},
    trace::{Note, Trace},
    tree::DiskState,
};
use crate::time::Instant;

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
    Net(conn::Event),
}

pub(crate) struct HostState {
    /// Number of the host's present life; see the invariants of `sim`.
    pub(crate) life: u32,
    /// Number of power failures so far.
    pub(crate) boot: u32,
    pub(crate) disk: DiskState,
    pub(crate) ports_given: u16,
    /// The link of the host: packets that leave, and packets that arrive.
    pub(crate) links: [Link; 2],
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

    /// Advances time to the next planned event. Returns `false` if no event is planned.
    pub(crate) fn advance_clock(&mut self) -> bool {
        let Some((&(at, _), _)) = self.events.first_key_value() else { return false };
        self.now = self.now.max(at);
        true
    }

    /// Takes the first planned event, if its time has come.
    pub(crate) fn take_due(&mut self) -> Option<Event> {
        let first = self.events.first_entry()?;
        (first.key().0 <= self.now).then(|| first.remove())
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
        self.hosts.entry(id).or_insert_with(|| HostState {
            life: 0,
            boot: 0,
            disk: DiskState::new(id, bytes),
            ports_given: 0,
            links: [Link::default(); 2],
        })
    }
}
