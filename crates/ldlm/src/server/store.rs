//! Creates and drops locks, and maintains the sets of locks of each resource and client.

use std::{collections::BTreeSet, ops::ControlFlow};

use sheen_rt::Instant;
use sheen_wire::ldlm::{Cookie, Kind, LockId, MODES, Policy, Resource};

use super::{
    ClientId, Namespace,
    contention::Contention,
    state::{Client, Lock, Res},
};
use crate::{
    nodes::Root,
    slab::{self, NIL},
};

impl Namespace {
    pub(super) fn find(&self, id: LockId) -> Option<u32> {
        let n = slab::place(id.0);
        (id != LockId::NONE && self.locks.get(n)?.id == id).then_some(n)
    }

    /// Returns the resource of that name, made if it does not exist.
    pub(super) fn resource(&mut self, name: Resource) -> u32 {
        if let Some(r) = self.by_name.get(&name) {
            return *r;
        }
        let r = self.resources.put(Res {
            name,
            granted: [Root::EMPTY; MODES],
            waiting: [Root::EMPTY; MODES],
            granted_len: 0,
            waiting_len: 0,
            contention: Contention::default(),
            lingering: None,
        });
        self.by_name.insert(name, r);
        r
    }

    /// Gives a lock an id and puts it into its sets. The caller has checked the limits.
    pub(super) fn make(&mut self, lock: Lock) -> u32 {
        self.seq += 1;
        let id = LockId(slab::handle(self.locks.next(), self.epoch.wrapping_add(self.seq)));
        let (client, cookie) = (lock.client, lock.cookie);
        let n = self.locks.put(Lock { id, seq: self.seq, ..lock });
        if cookie != Cookie::NONE {
            self.by_cookie.insert((client, cookie), n);
        }
        self.join(n);
        self.enter(n);
        n
    }

    /// Drops a lock. The next [`Namespace::settle`] examines its watchers.
    pub(super) fn drop_lock(&mut self, n: u32) {
        self.schedule_watchers(n);
        self.glimpse_lost(n);
        self.leave(n);
        self.unwatch(n);
        self.set_deadline(n, Instant::FAR);
        self.part(n);
        let lock = &mut self.locks[n];
        let (client, cookie, r) = (lock.client, lock.cookie, lock.resource);
        lock.id = LockId::NONE;
        lock.watchers = Vec::new();
        if cookie != Cookie::NONE && self.by_cookie.get(&(client, cookie)) == Some(&n) {
            self.by_cookie.remove(&(client, cookie));
        }
        self.locks.free(n);
        self.free_if_empty(r);
    }

    /// Puts a lock into its resource's set of granted or waiting locks.
    pub(super) fn enter(&mut self, n: u32) {
        let lock = &self.locks[n];
        let res = &mut self.resources[lock.resource];
        let sets = if lock.waiting { &mut res.waiting } else { &mut res.granted };
        let root = &mut sets[lock.mode as usize];
        match res.name.kind {
            Kind::Bits => self.nodes.ring_push(root, n),
            Kind::Extent | Kind::Flock => self.nodes.tree_insert(root, n, lock.policy.range(), lock.rank()),
        }
        if lock.waiting {
            res.waiting_len += 1;
            if res.waiting_len == 1 {
                self.waited.insert(lock.resource);
            }
            self.stats.waiting += 1;
        } else {
            res.granted_len += 1;
            self.stats.granted += 1;
        }
        if lock.waiting
            && let Policy::Flock(f) = lock.policy
        {
            self.flock_waits.entry((lock.client, f.owner)).or_default().push(n);
        }
    }

    /// Takes a lock out of its resource's set. Its range, mode and rank must be those with which it
    /// entered the set.
    pub(super) fn leave(&mut self, n: u32) {
        let lock = &self.locks[n];
        let res = &mut self.resources[lock.resource];
        let sets = if lock.waiting { &mut res.waiting } else { &mut res.granted };
        let root = &mut sets[lock.mode as usize];
        match res.name.kind {
            Kind::Bits => self.nodes.ring_remove(root, n),
            Kind::Extent | Kind::Flock => self.nodes.tree_remove(root, n),
        }
        if lock.waiting {
            res.waiting_len -= 1;
            if res.waiting_len == 0 {
                self.waited.remove(&lock.resource);
            }
            self.stats.waiting -= 1;
        } else {
            res.granted_len -= 1;
            self.stats.granted -= 1;
        }
        if lock.waiting
            && let Policy::Flock(f) = lock.policy
            && let Some(waits) = self.flock_waits.get_mut(&(lock.client, f.owner))
        {
            waits.retain(|w| *w != n);
            if waits.is_empty() {
                self.flock_waits.remove(&(lock.client, f.owner));
            }
        }
    }

    /// Records when a blocking callback was sent for a lock. `None`: there is none.
    pub(super) fn set_asked(&mut self, n: u32, asked: Option<Instant>) {
        let lock = &mut self.locks[n];
        let (before, client) = (lock.rank(), lock.client);
        lock.asked = asked;
        if lock.rank() != before {
            let (rank, res) = (lock.rank(), &self.resources[lock.resource]);
            if res.name.kind != Kind::Bits {
                self.nodes.tree_rank(&res.granted[lock.mode as usize], n, rank);
            }
        }
        if let Some(client) = self.clients.get_mut(&client) {
            if asked.is_some() {
                client.asked.insert(n);
            } else {
                client.asked.remove(&n);
            }
        }
    }

    /// Sets the time by which a lock must be cancelled; [`Instant::FAR`]: no such time.
    pub(super) fn set_deadline(&mut self, n: u32, at: Instant) {
        let lock = &mut self.locks[n];
        let before = std::mem::replace(&mut lock.deadline, at);
        if before == at {
            return;
        }
        if before != Instant::FAR {
            self.deadlines.remove(&(before, n));
        }
        if at != Instant::FAR {
            self.deadlines.insert((at, n));
        }
    }

    /// Frees a resource without locks, unless it is contended.
    pub(super) fn free_if_empty(&mut self, r: u32) {
        let res = &self.resources[r];
        if res.granted_len + res.waiting_len > 0 || res.lingering.is_some() || self.linger(r) {
            return;
        }
        self.free_resource(r);
    }

    pub(super) fn free_resource(&mut self, r: u32) {
        self.by_name.remove(&self.resources[r].name);
        self.resources.free(r);
    }

    /// Calls `f` for each lock in a set of the resource.
    pub(super) fn each(&self, res: &Res, root: &Root, f: &mut impl FnMut(u32)) {
        if res.name.kind == Kind::Bits {
            self.nodes.ring(root).for_each(f);
        } else {
            let _ = self.nodes.overlapping(root, (0, u64::MAX), u64::MAX, &mut |n| {
                f(n);
                ControlFlow::Continue(())
            });
        }
    }

    /// Returns all locks of a client, oldest first.
    pub(super) fn of_client(&self, client: ClientId) -> Vec<u32> {
        let Some(client) = self.clients.get(&client) else { return Vec::new() };
        let mut all = Vec::with_capacity(client.len);
        let mut n = client.first;
        while n != NIL {
            all.push(n);
            n = self.locks[n].after;
        }
        all
    }

    /// Appends a lock to its client's list.
    fn join(&mut self, n: u32) {
        let client = self.clients.entry(self.locks[n].client).or_insert_with(|| Client {
            first: NIL,
            last: NIL,
            len: 0,
            asked: BTreeSet::new(),
            progress: Instant::ZERO,
        });
        let last = std::mem::replace(&mut client.last, n);
        client.len += 1;
        if last == NIL {
            client.first = n;
        } else {
            self.locks[last].after = n;
            self.locks[n].before = last;
        }
    }

    /// Takes a lock out of its client's list.
    fn part(&mut self, n: u32) {
        let Lock { client: id, before, after, .. } = self.locks[n];
        if before != NIL {
            self.locks[before].after = after;
        }
        if after != NIL {
            self.locks[after].before = before;
        }
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.asked.remove(&n);
        client.len -= 1;
        if client.first == n {
            client.first = after;
        }
        if client.last == n {
            client.last = before;
        }
        if client.len == 0 {
            self.clients.remove(&id);
        }
    }
}
