//! The state of locks, resources, clients, and glimpses in progress.

use std::collections::BTreeSet;

use sheen_rt::Instant;
use sheen_wire::ldlm::{Conflict, Cookie, LockId, MODES, Mode, Policy, Resource};

use super::{
    contention::Contention,
    types::{ClientId, SERVER, Ticket},
};
use crate::{nodes::Root, slab::NIL};

/// A lock, granted or waiting; free if `id` is none.
#[derive(Debug)]
pub(super) struct Lock {
    pub id: LockId,
    /// Position in the queue; never used twice.
    pub seq: u64,
    pub client: ClientId,
    /// Client whose locks do not conflict with this one: see `Want`.
    pub spare: ClientId,
    pub cookie: Cookie,
    pub resource: u32,
    pub mode: Mode,
    /// Granted policy, or the requested one while the lock waits.
    pub policy: Policy,
    pub waiting: bool,
    pub no_expand: bool,
    pub align: u64,
    pub granted_at: Instant,
    /// The completion callback was sent and has not been confirmed.
    pub unconfirmed: bool,
    /// The client does not know of the lock yet.
    pub withheld: bool,
    /// Time of the blocking callback, if one has been sent.
    pub asked: Option<Instant>,
    pub glimpse: Glimpse,
    /// [`Instant::FAR`]: none.
    pub deadline: Instant,
    /// Of a waiting lock: the lock that it watches.
    pub watching: u32,
    /// Waiting locks that watch this one.
    pub watchers: Vec<u32>,
    /// Previous and next lock in the client's list.
    pub before: u32,
    pub after: u32,
}

impl Lock {
    /// Creates a granted lock without an id, which conflicts with all others and stays as it is
    /// requested.
    pub fn new(now: Instant, client: ClientId, resource: u32, mode: Mode, policy: Policy) -> Lock {
        Lock {
            id: LockId::NONE,
            seq: 0,
            client,
            spare: SERVER,
            cookie: Cookie::NONE,
            resource,
            mode,
            policy,
            waiting: false,
            no_expand: true,
            align: 0,
            granted_at: now,
            unconfirmed: false,
            withheld: false,
            asked: None,
            glimpse: Glimpse::default(),
            deadline: Instant::FAR,
            watching: NIL,
            watchers: Vec::new(),
            before: NIL,
            after: NIL,
        }
    }

    pub fn conflict(&self) -> Conflict {
        Conflict { client: self.client, id: self.id, mode: self.mode, policy: self.policy }
    }

    /// Returns the rank for searches: of a waiting lock its position in the queue, of a granted
    /// lock whether a blocking callback has been sent.
    pub fn rank(&self) -> u64 {
        if self.waiting { self.seq } else { u64::from(self.asked.is_some()) }
    }
}

/// A resource with locks, or a contended one without locks.
#[derive(Debug)]
pub(super) struct Res {
    pub name: Resource,
    pub granted: [Root; MODES],
    pub waiting: [Root; MODES],
    pub granted_len: usize,
    pub waiting_len: usize,
    pub contention: Contention,
    /// Time of its entry among the lingering resources, if it has one.
    pub lingering: Option<Instant>,
}

/// A client with locks.
#[derive(Debug)]
pub(super) struct Client {
    /// Ends of the list of its locks.
    pub first: u32,
    pub last: u32,
    pub len: usize,
    /// Locks for which a blocking callback has been sent.
    pub asked: BTreeSet<u32>,
    /// When the client last cancelled or weakened a lock after a blocking callback.
    pub progress: Instant,
}

/// A glimpse callback in progress, to one client about one object.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// Tickets that wait for its answer.
    pub now: Vec<Ticket>,
    /// Tickets that were issued after it was sent.
    pub next: Vec<Ticket>,
}

/// Glimpse state of a lock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Glimpse {
    /// A callback through this lock is in progress.
    pub now: bool,
    /// At least one callback has been sent through this lock.
    pub before: bool,
    /// Blocking callbacks replace glimpses through this lock.
    pub replaced_by_blocking: bool,
}
