//! The server's side: all locks of one target.
//!
//! A lock is granted or waiting. A request waits if it conflicts with a granted lock, or with an
//! earlier waiting request. The holders of granted locks get blocking callbacks. Flock requests
//! wait for granted locks only, as POSIX has no queue. Invariants:
//!
//! * no two granted locks of a resource conflict;
//! * every waiting lock *watches* one lock that blocks it: an earlier waiting lock or a granted
//!   one. The waiting lock is examined again when the watched one is dropped or weakened, and only
//!   then. So the cost of a release depends on the locks that it unblocks, not on all that wait;
//! * a granted extent or bits lock that conflicts with a waiting one has been sent a blocking
//!   callback;
//! * a lock that has been sent a blocking callback has a deadline. Exceptions are the server's own
//!   locks, GROUP locks, which programs hold, and locks that their clients do not know of yet.
//!
//! There is one file for each operation: [`enqueue`], [`cancel`], [`convert`], [`glimpse`], …. They
//! share `queue` (granting and blocking callbacks), `conflict` (searching) and `store` (where locks
//! are stored).

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
mod overdue;
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
pub use overdue::Overdue;

use crate::{nodes::Nodes, slab::Slab};
use store::{Client, Lock, Res};

/// Identifies the holder of a lock: an export's number.
pub type ClientId = u64;

/// The target itself as a holder of locks: never evicted, not counted against the limits.
pub const SERVER: ClientId = 0;

/// Tunables of a namespace, set with `lctl set_param ldlm.namespaces.*`.
#[derive(Clone, Debug)]
pub struct Tunables {
    /// Time in milliseconds in which a client must cancel a lock after a blocking callback.
    pub lock_timeout_ms: u64,
    /// Whether extent locks are expanded beyond the requested range.
    pub expand: bool,
    /// Whether locking adapts to contended objects (contention-adaptive locking).
    pub adaptive: bool,
    /// Number of locks revoked soon after their grant, within the window, that makes an object
    /// contended.
    pub contended_locks: u32,
    /// Length in milliseconds of the sliding window in which they are counted; also the limit of
    /// "soon".
    pub contention_window_ms: u64,
    /// Seconds for which an object stays contended after its last conflict.
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
            // Two programs that exchange a file now and then stay below this; writers that take
            // turns exceed it within milliseconds.
            contended_locks: 8,
            contention_window_ms: 1_000,
            // Lustre's default.
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

/// An action that the owner of a [`Namespace`] has to carry out, in the order given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Completion callback: a lock that waited is granted.
    Grant {
        /// The client that gets the lock.
        client: ClientId,
        /// The client's handle.
        cookie: Cookie,
        /// The lock.
        id: LockId,
        /// Its mode.
        mode: Mode,
        /// Granted range or bits; may exceed the request.
        policy: Policy,
    },
    /// Blocking callback: the client must cancel the lock, or weaken it.
    Block {
        /// The holder; for [`SERVER`] no callback is sent.
        client: ClientId,
        /// The client's handle.
        cookie: Cookie,
        /// The lock.
        id: LockId,
        /// Mode of the request that waits for the lock.
        mode: Mode,
        /// Range or bits of the request that waits for the lock.
        policy: Policy,
    },
    /// Glimpse callback: asks the client for the object's size as it knows it. Answered with
    /// [`Namespace::glimpse_answered`].
    Glimpse {
        /// The holder.
        client: ClientId,
        /// The client's handle.
        cookie: Cookie,
        /// The lock.
        id: LockId,
    },
    /// One of the clients asked for the ticket has answered, or its data has reached the server so
    /// that no answer is needed.
    Glimpsed {
        /// The glimpse that this belongs to.
        ticket: Ticket,
        /// The attributes as the client knows them, including dirty data; `None`: nothing to add.
        answer: Option<ObjectAttr>,
    },
    /// The client did not respond in time. Its locks are dropped; refuse its requests until it
    /// connects anew.
    Evict {
        /// The client.
        client: ClientId,
        /// The lock for which it did not answer.
        overdue: Overdue,
    },
}

/// Counters and present numbers of a namespace.
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
    /// Times that the contention level of an object rose.
    pub contended: u64,
    /// Requests answered with `Contended`.
    pub lockless: u64,
    /// Requests refused because of too many locks.
    pub refused: u64,
    /// Requests refused because of a deadlock.
    pub deadlocks: u64,
    /// Clients evicted because they did not respond.
    pub evictions: u64,
}

impl Stats {
    /// Locks at present: Lustre's `lock_count`.
    pub fn lock_count(&self) -> u64 {
        self.granted + self.waiting
    }
}

/// A lock's present state, for dumps and checkers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Info {
    /// Holder, handle, mode and policy.
    pub lock: Conflict,
    /// The resource.
    pub resource: Resource,
    /// The client's handle.
    pub cookie: Cookie,
    /// True if granted, false if waiting.
    pub granted: bool,
    /// Whether a blocking callback has been sent.
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
    /// Number of locks made so far, which orders the queue.
    seq: u64,
    /// Makes handles differ from those before a restart.
    epoch: u64,
    /// Waiting locks to examine again, in the queue's order.
    disturbed: BTreeSet<(u64, u32)>,
    /// By when which lock must have been cancelled, or its glimpse answered.
    deadlines: BTreeSet<(Instant, u32)>,
    /// Glimpses in progress. One of the client's locks on the object is marked
    /// ([`glimpse::Glimpse::now`]).
    glimpses: BTreeMap<(Resource, ClientId), glimpse::Asked>,
    /// Glimpses in progress whose marked lock was dropped; empty between events.
    unglimpsed: Vec<(Resource, ClientId)>,
    /// Empty resources that stay because they are contended, and until when.
    lingering: BTreeSet<(Instant, u32)>,
    /// Waiting requests of each fcntl owner: the edges of the waits-for graph.
    flock_waits: BTreeMap<(ClientId, u64), Vec<u32>>,
    scratch: Vec<u32>,
}

impl Namespace {
    /// Creates a namespace without locks. `incarnation`: a different number after each restart of
    /// the target, so that old handles name no lock.
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

    /// Present tunables.
    pub fn tunables(&self) -> &Tunables {
        &self.tunables
    }

    /// Replaces the tunables, from now on.
    pub fn set_tunables(&mut self, tunables: Tunables) {
        self.tunables = tunables;
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        Stats { resources: self.resources.len() as u64, ..self.stats }
    }

    /// Sets the counters to 0; present numbers stay.
    pub fn clear_stats(&mut self) {
        let Stats { granted, waiting, .. } = self.stats;
        self.stats = Stats { granted, waiting, ..Stats::default() };
    }

    /// Returns a lock by its handle.
    pub fn lock(&self, id: LockId) -> Option<Info> {
        self.find(id).map(|n| self.info(n))
    }

    /// Returns all locks of a resource, granted ones first.
    pub fn resource_locks(&self, resource: Resource) -> Vec<Info> {
        let Some(r) = self.by_name.get(&resource) else { return Vec::new() };
        let res = &self.resources[*r];
        let mut found: Vec<u32> = Vec::new();
        for root in res.granted.iter().chain(&res.waiting) {
            self.each(res, root, &mut |n| found.push(n));
        }
        found.into_iter().map(|n| self.info(n)).collect()
    }

    /// Returns all locks, by resource, granted ones first.
    pub fn all_locks(&self) -> Vec<Info> {
        let mut names: Vec<Resource> = self.by_name.keys().copied().collect();
        names.sort_unstable();
        names.into_iter().flat_map(|name| self.resource_locks(name)).collect()
    }

    /// Number of locks of one client, granted and waiting.
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
