//! Order and durability of changes. Each change of a client over a network gets a transno, in the
//! order in which changes of the same bytes are made. A *commit* makes all changes so far durable,
//! and records the last transno. Clients retain their changes until then, and replay them if the
//! OST's host fails ([`crate::recovery`]).
//!
//! This module counts the changes; [`crate::commit`] commits them.
//!
//! Invariants:
//! * a change gets its transno after it is made and before its locks are released;
//! * changes of clients of this process get no transno, because such a client does not survive the
//!   host's failure.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sheen_lnet::Nid;
use sheen_rpc::Export;
use sheen_wire::Fid;
use tokio::sync::Notify;

/// Default time from a change to the next commit, in milliseconds.
const INTERVAL_MS: u64 = 5_000;
/// Number of changed objects from which the next commit begins at once.
const RECENT_MAX: usize = 65_536;

/// The changes since the last commit.
pub(crate) struct Commits {
    state: Mutex<State>,
    /// Whether any client over a network has been on the durable list.
    has_clients: AtomicBool,
    /// Held during a commit.
    pub turn: tokio::sync::Mutex<()>,
    wakes: Arc<Wakes>,
    /// Time from a change to the next commit, in milliseconds (`commit_interval_ms`).
    pub interval_ms: AtomicU64,
}

/// Events for which the task that commits waits.
#[derive(Default)]
pub(crate) struct Wakes {
    /// There are changes.
    pub changed: Notify,
    /// There are so many that the commit begins at once.
    pub full: Notify,
}

struct State {
    /// The last transno.
    last: u64,
    /// The objects that have changed since the last commit.
    recent: FxHashMap<Fid, Recent>,
}

struct Recent {
    /// The last transno at the last change.
    transno: u64,
    /// Export id of the only client that has changed the object. `None`: there are several.
    client: Option<u64>,
}

impl Commits {
    /// `first`: the transno before the first one.
    pub fn new(first: u64) -> Commits {
        Commits {
            state: Mutex::new(State { last: first, recent: FxHashMap::default() }),
            has_clients: AtomicBool::new(false),
            turn: tokio::sync::Mutex::default(),
            wakes: Arc::default(),
            interval_ms: AtomicU64::new(INTERVAL_MS),
        }
    }

    /// Returns the events for which the task waits.
    pub fn wakes(&self) -> Arc<Wakes> {
        self.wakes.clone()
    }

    /// Returns the time from a change to the next commit.
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms.load(Relaxed))
    }

    /// Wakes the task at once.
    pub fn wake(&self) {
        self.wakes.changed.notify_one();
        self.wakes.full.notify_one();
    }

    /// Records that a client over a network may change objects.
    pub fn listed(&self) {
        self.has_clients.store(true, Relaxed);
    }

    /// Returns the last transno.
    pub fn last(&self) -> u64 {
        self.state.lock().last
    }

    /// Records a change that the client has made to these objects. Returns its transno; 0 for a
    /// client of this process.
    pub fn changed(&self, export: &Export, objects: impl Iterator<Item = Fid>) -> u64 {
        let is_local = export.nid() == Nid::Lo;
        if is_local && !self.has_clients.load(Relaxed) {
            return 0;
        }
        let mut state = self.state.lock();
        if !is_local {
            state.last += 1;
        }
        let transno = state.last;
        let is_first = state.recent.is_empty();
        state.note(export.id(), objects);
        let is_full = state.recent.len() > RECENT_MAX;
        drop(state);
        if is_first {
            self.wakes.changed.notify_one();
        }
        if is_full {
            self.wakes.full.notify_one();
        }
        if is_local { 0 } else { transno }
    }

    /// Records a change that the client with this export replayed to these objects.
    pub fn replayed(&self, export: u64, objects: impl IntoIterator<Item = Fid>) {
        let mut state = self.state.lock();
        // Only a later transno commits the change.
        state.last += 1;
        state.note(export, objects.into_iter());
        drop(state);
        self.wakes.changed.notify_one();
    }

    /// Returns whether one of these objects has changed since the last commit.
    pub fn has_recent(&self, objects: &[Fid]) -> bool {
        let state = self.state.lock();
        !state.recent.is_empty() && objects.iter().any(|object| state.recent.contains_key(object))
    }

    /// Returns whether an object that `which` picks has changed since the last commit.
    pub fn is_recent(&self, mut which: impl FnMut(Fid) -> bool) -> bool {
        self.state.lock().recent.keys().any(|object| which(*object))
    }

    /// Returns whether several clients have changed one of the objects since the last commit.
    pub fn is_shared(&self, objects: &[Fid]) -> bool {
        let state = self.state.lock();
        !state.recent.is_empty()
            && objects.iter().any(|object| state.recent.get(object).is_some_and(|recent| recent.client.is_none()))
    }

    /// Drops what is known of changes up to this transno.
    pub fn committed(&self, transno: u64) {
        let mut state = self.state.lock();
        state.recent.retain(|_, recent| recent.transno > transno);
        if !state.recent.is_empty() {
            self.wakes.changed.notify_one();
        }
    }
}

impl State {
    fn note(&mut self, export: u64, objects: impl Iterator<Item = Fid>) {
        let transno = self.last;
        for object in objects {
            let recent = self.recent.entry(object).or_insert(Recent { transno, client: Some(export) });
            recent.transno = transno;
            if recent.client != Some(export) {
                recent.client = None;
            }
        }
    }
}
