//! The state of all locks of one target, and queries about it.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;
use sheen_rt::Instant;
use sheen_wire::ldlm::{Cookie, LockId, Resource};

use super::{
    state::{Asked, Client, Lock, Res},
    types::{ClientId, Info, Stats, Tunables},
};
use crate::{nodes::Nodes, slab::Slab};

/// The locks of one target.
#[derive(Debug)]
pub struct Namespace {
    pub(super) tunables: Tunables,
    pub(super) stats: Stats,
    pub(super) locks: Slab<Lock>,
    pub(super) nodes: Nodes,
    pub(super) resources: Slab<Res>,
    pub(super) by_name: FxHashMap<Resource, u32>,
    pub(super) by_cookie: FxHashMap<(ClientId, Cookie), u32>,
    pub(super) clients: FxHashMap<ClientId, Client>,
    /// Resources with waiting locks.
    pub(super) waited: BTreeSet<u32>,
    /// Number of locks made so far, which orders the queue.
    pub(super) seq: u64,
    /// Makes handles differ from those before a restart.
    pub(super) epoch: u64,
    /// Waiting locks to examine again, in the queue's order.
    pub(super) to_examine: BTreeSet<(u64, u32)>,
    /// Deadlines: when a lock must be cancelled, or its glimpse answered.
    pub(super) deadlines: BTreeSet<(Instant, u32)>,
    /// Glimpses in progress. One of the client's locks on the object is marked
    /// ([`Glimpse::now`](super::state::Glimpse::now)).
    pub(super) glimpses: BTreeMap<(Resource, ClientId), Asked>,
    /// Glimpses in progress whose marked lock was dropped; empty between events.
    pub(super) unglimpsed: Vec<(Resource, ClientId)>,
    /// Empty resources that stay because they are contended, and until when.
    pub(super) lingering: BTreeSet<(Instant, u32)>,
    /// Waiting requests of each fcntl owner: the edges of the waits-for graph.
    pub(super) flock_waits: BTreeMap<(ClientId, u64), Vec<u32>>,
    pub(super) scratch: Vec<u32>,
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
            waited: BTreeSet::new(),
            seq: 0,
            epoch: incarnation.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            to_examine: BTreeSet::new(),
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
        self.clients.get(&client).map_or(0, |client| client.len)
    }

    pub(super) fn info(&self, n: u32) -> Info {
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
