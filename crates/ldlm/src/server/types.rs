//! Types of the interface: tunables, actions, counters.

use std::time::Duration;

use sheen_wire::{
    ldlm::{Conflict, Cookie, LockId, Mode, Policy, Resource},
    ost::ObjectAttr,
};

use super::overdue::Overdue;

/// Identifies the holder of a lock: an export's number.
pub type ClientId = u64;

/// The target itself as a holder of locks: never evicted, not counted against the limits.
pub const SERVER: ClientId = 0;

/// Identifies a waiter for glimpse answers: a number that the owner of the
/// [`Namespace`](super::Namespace) uses once.
pub type Ticket = u64;

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
    pub(super) fn lock_timeout(&self) -> Duration {
        Duration::from_millis(self.lock_timeout_ms.max(1))
    }
}

/// An action that the owner of a [`Namespace`](super::Namespace) has to carry out, in the order
/// given.
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
    /// [`Namespace::glimpse_answered`](super::Namespace::glimpse_answered).
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
