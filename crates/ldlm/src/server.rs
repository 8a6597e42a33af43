//! The server's side: all locks of one target.
//!
//! A lock is granted or waits. A request that excludes a granted lock, or an earlier request that
//! waits, waits behind them (flock requests look at granted ones only, as POSIX has no queue); the
//! holders are asked to give their locks back. Invariants:
//!
//! * no two granted locks of a resource exclude each other;
//! * every waiting lock *watches* one lock that it waits for: an earlier waiting or a granted one.
//!   When that one goes or gets weaker, and only then, the waiting one is looked at again. So a
//!   release costs what it frees, not what waits;
//! * a granted extent or bits lock that excludes a waiting one has been asked back;
//! * a lock that was asked back has a deadline, unless it is the server's own or a GROUP lock,
//!   which stays until its holder is done.
//!
//! One file an operation: [`enqueue`], [`cancel`], [`convert`], [`glimpse`], …; what they share is
//! in `queue` (granting and asking back), `conflict` (searching) and `store` (where locks lie).

mod cancel;
mod conflict;
mod contention;
mod convert;
mod deadlines;
mod enqueue;
mod extent;
mod flock;
mod glimpse;
mod inodebits;
mod queue;
mod resend;
mod store;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use rustc_hash::FxHashMap;
use sheen_rt::Instant;
use sheen_wire::{
    ldlm::{Conflict, Cookie, LockId, Mode, Policy, Resource},
    ost::ObjectAttr,
};

pub use contention::Level;
pub use glimpse::Ticket;

use crate::{nodes::Nodes, slab::Slab};
use store::{Client, Lock, Res};

/// Who holds a lock: an export's number.
pub type ClientId = u64;

/// The target itself, as a holder of locks: never evicted, never counted against the limits.
pub const SERVER: ClientId = 0;

/// What can be set while it runs; `lctl set_param ldlm.namespaces.*`.
#[derive(Clone, Debug)]
pub struct Tunables {
    /// Time that a client has to give back a lock that it was asked for.
    pub lock_timeout_ms: u64,
    /// Whether extent locks grow beyond what was asked.
    pub expand: bool,
    /// Whether contended objects are treated differently (contention-adaptive locking).
    pub adaptive: bool,
    /// Locks taken away soon after their grant, within the window, that make an object contended.
    pub contended_locks: u32,
    /// The sliding window in which they are counted; also what "soon" means.
    pub contention_window_ms: u64,
    /// How long an object stays contended after its last conflict.
    pub contention_seconds: u64,
    /// Most locks, granted and waiting, of all clients.
    pub max_locks: usize,
    /// Most locks, granted and waiting, of one client.
    pub max_locks_per_client: usize,
}

impl Default for Tunables {
    fn default() -> Tunables {
        Tunables {
            // Lustre's ldlm_timeout gives an OST's client 20 s.
            lock_timeout_ms: 20_000,
            expand: true,
            adaptive: true,
            // Two programs that hand a file over now and then stay below; writers that take turns
            // pass it in milliseconds.
            contended_locks: 8,
            contention_window_ms: 1_000,
            // Lustre's.
            contention_seconds: 2,
            // About 250 bytes each.
            max_locks: 4 << 20,
            max_locks_per_client: 1 << 20,
        }
    }
}

impl Tunables {
    fn lock_timeout(&self) -> Duration {
        Duration::from_millis(self.lock_timeout_ms.max(1))
    }
}

/// What the owner of a [`Namespace`] is to do, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Completion callback: a lock that waited is granted.
    Grant {
        /// To whom.
        client: ClientId,
        /// The client's handle.
        cookie: Cookie,
        /// The lock.
        id: LockId,
        /// Its mode.
        mode: Mode,
        /// Its part; may be more than was asked.
        policy: Policy,
    },
    /// Blocking callback: give the lock back, or weaken it.
    Block {
        /// Who holds it; [`SERVER`] does not answer callbacks, and need not.
        client: ClientId,
        /// The client's handle.
        cookie: Cookie,
        /// The lock.
        id: LockId,
        /// Mode of the request that waits for it.
        mode: Mode,
        /// Part of the request that waits for it.
        policy: Policy,
    },
    /// Glimpse callback: how large is the object, as far as you know? Answered with
    /// [`Namespace::glimpse_answered`].
    Glimpse {
        /// Who holds it.
        client: ClientId,
        /// The client's handle.
        cookie: Cookie,
        /// The lock.
        id: LockId,
    },
    /// One of the clients that were asked for the ticket's sake has answered, or has nothing to
    /// tell: what it wrote has reached the server.
    Glimpsed {
        /// Who waits.
        ticket: Ticket,
        /// What it knows of the object beyond what it has written.
        answer: Option<ObjectAttr>,
    },
    /// The client did not answer in time. Its locks are gone; refuse it until it connects anew.
    Evict {
        /// Who.
        client: ClientId,
    },
}

/// What happened, and what there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Locks granted at present.
    pub granted: u64,
    /// Requests waiting at present.
    pub waiting: u64,
    /// Resources with locks at present.
    pub resources: u64,
    /// Requests of clients so far.
    pub enqueues: u64,
    /// Grants to clients so far, at once or after waiting.
    pub grants: u64,
    /// Requests of the server itself so far.
    pub own: u64,
    /// Blocking callbacks to clients so far (resent ones included).
    pub blocking_callbacks: u64,
    /// Grants to clients that waited so far, by callback or in the answer (resent ones included).
    pub completion_callbacks: u64,
    /// Glimpse callbacks so far (resent ones included).
    pub glimpse_callbacks: u64,
    /// Locks cancelled by their holders so far.
    pub cancelled: u64,
    /// Times an object became contended, or more so.
    pub contended: u64,
    /// Requests answered with `Contended`.
    pub lockless: u64,
    /// Requests refused because of too many locks.
    pub refused: u64,
    /// Requests refused because of a deadlock.
    pub deadlocks: u64,
    /// Clients evicted because they did not answer.
    pub evictions: u64,
}

impl Stats {
    /// Locks at present: Lustre's `lock_count`.
    pub fn lock_count(&self) -> u64 {
        self.granted + self.waiting
    }
}

/// A lock as it is, for dumps and checkers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Info {
    /// Holder, handle, mode and part.
    pub lock: Conflict,
    /// What it is on.
    pub resource: Resource,
    /// The client's handle.
    pub cookie: Cookie,
    /// Granted, or waiting.
    pub granted: bool,
    /// Asked back.
    pub asked: bool,
}

/// The locks of one target.
#[derive(Debug)]
pub struct Namespace {
    tunables: Tunables,
    stats: Stats,
    locks: Slab<Lock>,
    nodes: Nodes,
    resources: Slab<Res>,
    by_name: FxHashMap<Resource, u32>,
    by_cookie: FxHashMap<(ClientId, Cookie), u32>,
    clients: FxHashMap<ClientId, Client>,
    /// Locks made so far; the queue's order.
    seq: u64,
    /// Makes handles differ from those of earlier lives.
    epoch: u64,
    /// Waiting locks to look at again, in the queue's order.
    disturbed: BTreeSet<(u64, u32)>,
    /// When which lock must have been given back or a glimpse answered.
    deadlines: BTreeSet<(Instant, u32)>,
    /// Glimpses under way. One of the locks of such a client on such an object says so
    /// ([`glimpse::Glimpse::now`]).
    glimpses: BTreeMap<(Resource, ClientId), glimpse::Asked>,
    /// Those of which that lock went; empty between events.
    unglimpsed: Vec<(Resource, ClientId)>,
    /// Empty resources that are kept because they are contended, and until when.
    lingering: BTreeSet<(Instant, u32)>,
    /// Which requests of an fcntl owner wait: the edges of the waits-for graph.
    flock_waits: BTreeMap<(ClientId, u64), Vec<u32>>,
    scratch: Vec<u32>,
}

impl Namespace {
    /// No locks. `incarnation`: another number in each life of the target, so that handles of an
    /// earlier one lead nowhere.
    pub fn new(tunables: Tunables, incarnation: u64) -> Namespace {
        Namespace {
            tunables,
            stats: Stats::default(),
            locks: Slab::new(),
            nodes: Nodes::default(),
            resources: Slab::new(),
            by_name: FxHashMap::default(),
            by_cookie: FxHashMap::default(),
            clients: FxHashMap::default(),
            seq: 0,
            epoch: incarnation.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            disturbed: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            glimpses: BTreeMap::new(),
            unglimpsed: Vec::new(),
            lingering: BTreeSet::new(),
            flock_waits: BTreeMap::new(),
            scratch: Vec::new(),
        }
    }

    /// How it is set.
    pub fn tunables(&self) -> &Tunables {
        &self.tunables
    }

    /// Sets it otherwise, from now on.
    pub fn set_tunables(&mut self, tunables: Tunables) {
        self.tunables = tunables;
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        Stats { resources: self.resources.len() as u64, ..self.stats }
    }

    /// Counts anew, from 0; what there is at present stays.
    pub fn clear_stats(&mut self) {
        let Stats { granted, waiting, .. } = self.stats;
        self.stats = Stats { granted, waiting, ..Stats::default() };
    }

    /// A lock by its handle.
    pub fn lock(&self, id: LockId) -> Option<Info> {
        self.find(id).map(|n| self.info(n))
    }

    /// All locks of a resource, granted ones first.
    pub fn resource_locks(&self, resource: Resource) -> Vec<Info> {
        let Some(r) = self.by_name.get(&resource) else { return Vec::new() };
        let res = &self.resources[*r];
        let mut found: Vec<u32> = Vec::new();
        for root in res.granted.iter().chain(&res.waiting) {
            self.each(res, root, &mut |n| found.push(n));
        }
        found.into_iter().map(|n| self.info(n)).collect()
    }

    /// All locks, by resource, granted ones first.
    pub fn all_locks(&self) -> Vec<Info> {
        let mut names: Vec<Resource> = self.by_name.keys().copied().collect();
        names.sort_unstable();
        names.into_iter().flat_map(|name| self.resource_locks(name)).collect()
    }

    /// Locks of one client, granted and waiting.
    pub fn client_locks(&self, client: ClientId) -> usize {
        self.clients.get(&client).map_or(0, Client::len)
    }

    fn info(&self, n: u32) -> Info {
        let lock = &self.locks[n];
        Info {
            lock: lock.conflict(),
            resource: self.resources[lock.resource].name,
            cookie: lock.cookie,
            granted: !lock.waiting,
            asked: lock.asked.is_some(),
        }
    }
}
