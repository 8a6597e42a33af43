//! The client's side: the locks that one client holds of one target.
//!
//! A lock begins as a request under way ([`Locks::begin`]), becomes granted ([`Locks::granted`])
//! and is then used by as many as find it with [`Locks::matching`], each of whom holds a reference
//! until [`Locks::release`]. It goes when the server asks for it ([`Locks::blocked`]), when it is
//! unused for too long or one of too many ([`Locks::shrink`]), or when the client knows better
//! ([`Locks::cancel_resource`]): then [`Action::Flush`] tells its owner to write back and drop what
//! it guards, after which [`Locks::cancelled`] ends it. Invariants:
//!
//! * [`Action::Flush`] comes once for a lock (again only after [`Locks::converted`]), and only when
//!   nobody holds a reference;
//! * from the moment that a lock is asked for, nobody new finds it; those that use it go on;
//! * messages may arrive in any order and twice: a blocking callback before the grant is
//!   remembered; one for an unknown lock, or a grant that nobody waits for, is answered with
//!   [`Action::Cancel`].
//!
//! Requests of one client for overlapping locks conflict like those of strangers. Who wants several
//! locks on a resource does well to ask for one after the other ([`Locks::pending`]): the first
//! often covers the others.

mod lru;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};

use rustc_hash::FxHashMap;
use sheen_rt::Instant;
use sheen_wire::ldlm::{Cookie, Kind, LockId, MODES, Mode, Policy, Resource};

use crate::{
    nodes::{Nodes, Root},
    slab::{self, NIL, Slab},
};

/// Cancels that wait for another request to travel with; with more, [`Locks::cancelled`] says to
/// send at once.
pub const CANCELS_QUEUED_MAX: usize = 1024;

/// What can be set while it runs.
#[derive(Clone, Debug)]
pub struct Tunables {
    /// Most unused locks that are kept.
    pub lru_size: usize,
    /// How long an unused lock is kept.
    pub lru_max_age_ms: u64,
}

impl Default for Tunables {
    fn default() -> Tunables {
        // Some 200 bytes each, and the server's share is as large: enough for a tree of 100,000
        // files and their directories. The age is Lustre's 65 minutes.
        Tunables { lru_size: 128 << 10, lru_max_age_ms: 65 * 60 * 1000 }
    }
}

/// What the owner of [`Locks`] is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Write back and drop what only this lock guards, then call [`Locks::cancelled`] (or
    /// [`Locks::converted`]). Other locks may still guard a part of it: [`Locks::matching`] tells.
    Flush {
        /// The lock.
        cookie: Cookie,
        /// What it is on.
        resource: Resource,
        /// Its mode.
        mode: Mode,
        /// Its part.
        policy: Policy,
        /// Those of its bits that nobody has asked for: the owner may keep what they guard, and
        /// call [`Locks::converted`]. 0: nothing.
        spare: u64,
    },
    /// Tell the server that of the lock these bits are left: it asked for others.
    Converted {
        /// The lock.
        id: LockId,
        /// What is left.
        bits: u64,
    },
    /// Tell the server that the lock is cancelled: this client does not know it.
    Cancel {
        /// The lock.
        id: LockId,
    },
}

/// A lock of this client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// This client's handle.
    pub cookie: Cookie,
    /// The server's handle.
    pub id: LockId,
    /// Its mode.
    pub mode: Mode,
    /// Its part.
    pub policy: Policy,
}

/// What there is, and what happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Locks at present, requests under way aside: Lustre's `lock_count`.
    pub lock_count: u64,
    /// Unused ones among them: Lustre's `lock_unused_count`.
    pub lock_unused_count: u64,
    /// Requests under way at present.
    pub pending: u64,
    /// Times that a lock held already was enough.
    pub matches: u64,
    /// Requests so far.
    pub enqueues: u64,
    /// Blocking callbacks so far.
    pub blocked: u64,
    /// Flushes so far.
    pub flushes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The slot is free.
    Dead,
    /// The request is under way, or waits at the server.
    Pending,
    /// Held.
    Granted,
    /// Held until [`Locks::cancelled`]; its owner was told to flush.
    Flushing,
}

#[derive(Debug)]
struct Lock {
    held: Held,
    resource: u32,
    state: State,
    /// It is to go: the server asked for it.
    asked: bool,
    /// The bits that were asked for.
    wanted: u64,
    refs: u32,
    /// Where it is in [`Res::all`].
    index: usize,
    unused_since: Instant,
    /// Neighbours among the unused locks.
    older: u32,
    newer: u32,
}

#[derive(Debug)]
struct Res {
    name: Resource,
    /// Locks that can be found, by mode.
    ready: [Root; MODES],
    all: Vec<u32>,
    pending: usize,
}

/// The locks that one client holds of one target.
#[derive(Debug)]
pub struct Locks {
    tunables: Tunables,
    locks: Slab<Lock>,
    nodes: Nodes,
    resources: Slab<Res>,
    by_name: FxHashMap<Resource, u32>,
    seq: u64,
    oldest: u32,
    newest: u32,
    cancels: VecDeque<LockId>,
    /// GROUP locks held.
    groups: usize,
    stats: Stats,
}

impl Locks {
    /// No locks.
    pub fn new(tunables: Tunables) -> Locks {
        Locks {
            tunables,
            locks: Slab::new(),
            nodes: Nodes::default(),
            resources: Slab::new(),
            by_name: FxHashMap::default(),
            seq: 0,
            oldest: NIL,
            newest: NIL,
            cancels: VecDeque::new(),
            groups: 0,
            stats: Stats::default(),
        }
    }

    /// How it is set.
    pub fn tunables(&self) -> &Tunables {
        &self.tunables
    }

    /// Sets it otherwise; [`Locks::shrink`] applies it.
    pub fn set_tunables(&mut self, tunables: Tunables) {
        self.tunables = tunables;
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// A lock held already that permits `mode` on `policy`, with a reference that
    /// [`Locks::release`] gives back. Locks that are to go are not found.
    pub fn matching(&mut self, resource: Resource, mode: Mode, policy: &Policy) -> Option<Held> {
        let n = self.ready(resource, mode, policy)?;
        self.unlink(n);
        let lock = &mut self.locks[n];
        lock.refs += 1;
        self.stats.matches += 1;
        Some(lock.held)
    }

    /// Whether [`Locks::matching`] would find one; takes no reference.
    pub fn covered(&self, resource: Resource, mode: Mode, policy: &Policy) -> bool {
        self.ready(resource, mode, policy).is_some()
    }

    /// The lock of a group that this client has on an extent, with a reference. It is found also
    /// after it was asked for: it is kept for as long as a program says, and serves whatever this
    /// client does until then.
    pub fn in_group(&mut self, resource: Resource) -> Option<Held> {
        if self.groups == 0 {
            return None;
        }
        let res = &self.resources[*self.by_name.get(&resource)?];
        let kept = |n: &&u32| {
            let lock = &self.locks[**n];
            lock.held.mode == Mode::Group && lock.state == State::Granted && lock.refs > 0
        };
        let n = *res.all.iter().find(kept)?;
        self.locks[n].refs += 1;
        Some(self.locks[n].held)
    }

    /// A request is about to be sent. Who sends it has a reference.
    pub fn begin(&mut self, resource: Resource, mode: Mode, policy: Policy) -> Cookie {
        let r = self.resource(resource);
        self.seq += 1;
        let cookie = Cookie(slab::handle(self.locks.next(), self.seq));
        let res = &mut self.resources[r];
        let n = self.locks.put(Lock {
            held: Held { cookie, id: LockId::NONE, mode, policy },
            resource: r,
            state: State::Pending,
            asked: false,
            wanted: 0,
            refs: 1,
            index: res.all.len(),
            unused_since: Instant::ZERO,
            older: NIL,
            newer: NIL,
        });
        res.all.push(n);
        res.pending += 1;
        self.stats.pending += 1;
        self.stats.enqueues += 1;
        cookie
    }

    /// The server granted the request, in its answer or later. Returns whether this is news; where
    /// nobody waits for it, the lock is given back.
    pub fn granted(
        &mut self,
        cookie: Cookie,
        id: LockId,
        mode: Mode,
        policy: Policy,
        actions: &mut Vec<Action>,
    ) -> bool {
        let Some(n) = self.find(cookie).filter(|n| self.locks[*n].state == State::Pending) else {
            let known = self.find(cookie).is_some_and(|n| self.locks[n].held.id == id);
            if !known {
                actions.push(Action::Cancel { id });
            }
            return false;
        };
        let lock = &mut self.locks[n];
        lock.state = State::Granted;
        lock.held = Held { cookie, id, mode, policy };
        let asked = lock.asked;
        self.resources[lock.resource].pending -= 1;
        self.stats.pending -= 1;
        self.stats.lock_count += 1;
        self.groups += usize::from(mode == Mode::Group);
        if !asked {
            self.enter(n);
        }
        true
    }

    /// The request failed, or who sent it does not wait for it any longer. A grant that arrives
    /// later is answered with a cancel; so is, now, the callback that came for the lock before its
    /// answer did, for the server asks only once.
    pub fn failed(&mut self, cookie: Cookie, actions: &mut Vec<Action>) {
        let Some(n) = self.find(cookie).filter(|n| self.locks[*n].state == State::Pending) else { return };
        let Lock { held, asked, .. } = self.locks[n];
        self.remove(n);
        if asked {
            actions.push(Action::Cancel { id: held.id });
        }
    }

    /// A reference is given back.
    pub fn release(&mut self, now: Instant, cookie: Cookie, actions: &mut Vec<Action>) {
        let Some(n) = self.find(cookie) else { return };
        let lock = &mut self.locks[n];
        if lock.refs == 0 || lock.state == State::Pending {
            return;
        }
        lock.refs -= 1;
        if lock.refs > 0 || lock.state != State::Granted {
            return;
        }
        let group = lock.held.mode == Mode::Group;
        if lock.asked {
            self.flush(n, actions);
        } else if group {
            // A group's lock is held for as long as a program says, not for as long as it may be of
            // use.
            self.give_up(n, actions);
        } else {
            self.link(now, n);
        }
    }

    /// The server asks for a lock, or for those bits of it that are `wanted`.
    pub fn blocked(&mut self, cookie: Cookie, id: LockId, wanted: &Policy, actions: &mut Vec<Action>) {
        self.stats.blocked += 1;
        let Some(n) = self.find(cookie) else {
            actions.push(Action::Cancel { id });
            return;
        };
        let lock = &mut self.locks[n];
        let wanted = match *wanted {
            Policy::Bits { bits, .. } if bits != 0 => bits,
            _ => u64::MAX,
        };
        if let (State::Granted, false, Policy::Bits { bits, .. }) = (lock.state, lock.asked, lock.held.policy)
            && bits & wanted == 0
        {
            // Given up already; the server does not know it yet.
            actions.push(Action::Converted { id, bits });
            return;
        }
        lock.wanted |= wanted;
        if lock.state == State::Pending {
            lock.held.id = id;
        }
        if lock.state == State::Granted && !lock.asked {
            self.give_up(n, actions);
        }
        self.locks[n].asked = true;
    }

    /// What the lock guarded is written back and dropped: it is no more. Returns its handle if the
    /// server is to be told at once; else it is among those that [`Locks::take_cancels`] gives.
    pub fn cancelled(&mut self, cookie: Cookie) -> Option<LockId> {
        let n = self.find(cookie).filter(|n| self.locks[*n].state == State::Flushing)?;
        let Lock { held, asked, .. } = self.locks[n];
        self.remove(n);
        if asked || self.cancels.len() >= CANCELS_QUEUED_MAX {
            return Some(held.id);
        }
        self.cancels.push_back(held.id);
        None
    }

    /// The lock's owner keeps a part of it instead of all (what it gives up is written back and
    /// dropped): from now on it is that part, and counts as not asked for. To be called before the
    /// server is told. Returns the server's handle; `None` if there is no such lock or it is no
    /// part.
    pub fn converted(&mut self, now: Instant, cookie: Cookie, mode: Mode, policy: Policy) -> Option<LockId> {
        let n = self.find(cookie).filter(|n| self.locks[*n].state != State::Pending)?;
        let lock = &self.locks[n];
        if !lock.held.mode.covers(mode) || !lock.held.policy.contains(&policy) {
            return None;
        }
        if lock.state == State::Granted && !lock.asked {
            self.leave(n);
        }
        self.unlink(n);
        let lock = &mut self.locks[n];
        (lock.held.mode, lock.held.policy) = (mode, policy);
        (lock.state, lock.asked, lock.wanted) = (State::Granted, false, 0);
        let (id, unused) = (lock.held.id, lock.refs == 0);
        self.enter(n);
        if unused {
            self.link(now, n);
        }
        Some(id)
    }

    /// Ends, without a flush, unused locks of which this one covers all: it guards what they did.
    /// Their handles, for the server to be told when there is occasion.
    pub fn supersedes(&mut self, cookie: Cookie) -> Vec<LockId> {
        let Some(n) = self.find(cookie).filter(|n| self.is_ready(*n)) else { return Vec::new() };
        let Lock { held, resource, .. } = self.locks[n];
        let all = &self.resources[resource].all;
        if all.len() == 1 {
            return Vec::new();
        }
        let covered = |m: &u32| {
            let lock = &self.locks[*m];
            let within = held.mode.covers(lock.held.mode) && held.policy.contains(&lock.held.policy);
            *m != n && lock.refs == 0 && within && self.is_ready(*m)
        };
        let mut found: Vec<u32> = all.iter().copied().filter(covered).collect();
        // In an order that does not depend on what was removed before.
        found.sort_unstable_by_key(|m| slab::count(self.locks[*m].held.cookie.0));
        let mut ids = Vec::with_capacity(found.len());
        for m in found {
            ids.push(self.locks[m].held.id);
            self.leave(m);
            self.unlink(m);
            self.remove(m);
        }
        ids
    }

    /// The bits of an inode on which locks can be found at present, one or another.
    pub fn guarded_bits(&self, resource: Resource) -> u64 {
        let Some(r) = self.by_name.get(&resource) else { return 0 };
        let ready = self.resources[*r].all.iter().filter(|n| self.is_ready(**n));
        ready
            .fold(0, |all, n| if let Policy::Bits { bits, .. } = self.locks[*n].held.policy { all | bits } else { all })
    }

    /// Up to `max` handles of cancelled locks, to travel with another request to the server.
    pub fn take_cancels(&mut self, max: usize) -> Vec<LockId> {
        self.cancels.drain(..max.min(self.cancels.len())).collect()
    }

    /// Handles that [`Locks::take_cancels`] would give.
    pub fn cancels_queued(&self) -> usize {
        self.cancels.len()
    }

    /// Gives up the unused locks of a resource (of bits those that have one of `bits`), because
    /// what the client is about to do would make the server ask for them.
    pub fn cancel_resource(&mut self, resource: Resource, bits: u64, actions: &mut Vec<Action>) {
        let Some(r) = self.by_name.get(&resource) else { return };
        let mut found: Vec<Cookie> = Vec::new();
        for n in &self.resources[*r].all {
            let lock = &self.locks[*n];
            let meant = !matches!(lock.held.policy, Policy::Bits { bits: have, .. } if have & bits == 0);
            if meant && lock.state == State::Granted && lock.refs == 0 {
                found.push(lock.held.cookie);
            }
        }
        // Not in the order in which they lie, which depends on what was removed before.
        found.sort_unstable_by_key(|c| slab::count(c.0));
        for cookie in found {
            if let Some(n) = self.find(cookie) {
                self.give_up(n, actions);
            }
        }
    }

    /// The server has evicted this client: it holds nothing any more. Returns the resources on
    /// which it held something, in order: what is cached under them is to be dropped, and what is
    /// dirty there is lost. Requests under way are forgotten, too.
    pub fn evicted(&mut self) -> Vec<Resource> {
        let mut held = BTreeSet::new();
        let mut all: Vec<u32> = self.by_name.values().flat_map(|r| &self.resources[*r].all).copied().collect();
        all.sort_unstable();
        for n in all {
            let lock = &self.locks[n];
            if lock.state != State::Pending {
                held.insert(self.resources[lock.resource].name);
            }
            if lock.state == State::Granted && !lock.asked {
                self.leave(n);
            }
            self.unlink(n);
            self.remove(n);
        }
        self.cancels.clear();
        held.into_iter().collect()
    }

    /// The locks held on a resource, those that are to go included, oldest first.
    pub fn resource_locks(&self, resource: Resource) -> Vec<Held> {
        let Some(r) = self.by_name.get(&resource) else { return Vec::new() };
        let locks = self.resources[*r].all.iter().map(|n| &self.locks[*n]);
        let mut held: Vec<(u64, Held)> =
            locks.filter(|l| l.state != State::Pending).map(|l| (l.held.cookie.0, l.held)).collect();
        held.sort_unstable_by_key(|h| slab::count(h.0));
        held.into_iter().map(|h| h.1).collect()
    }

    /// All locks held, those that are to go included, in the order of their resources, for dumps
    /// and checkers.
    pub fn all_locks(&self) -> Vec<(Resource, Held)> {
        let mut names: Vec<Resource> = self.by_name.keys().copied().collect();
        names.sort_unstable();
        names.into_iter().flat_map(|name| self.resource_locks(name).into_iter().map(move |held| (name, held))).collect()
    }

    /// Requests under way on a resource.
    pub fn pending(&self, resource: Resource) -> usize {
        self.by_name.get(&resource).map_or(0, |r| self.resources[*r].pending)
    }

    /// A lock by its handle, once granted.
    pub fn held(&self, cookie: Cookie) -> Option<Held> {
        self.find(cookie).filter(|n| self.locks[*n].state != State::Pending).map(|n| self.locks[n].held)
    }

    /// Whether the server has asked for a lock, or it is gone: who uses it still holds somebody up.
    pub fn is_wanted(&self, cookie: Cookie) -> bool {
        self.find(cookie).is_none_or(|n| self.locks[n].asked)
    }
}

impl Locks {
    fn find(&self, cookie: Cookie) -> Option<u32> {
        let n = slab::place(cookie.0);
        let lock = self.locks.get(n)?;
        (lock.held.cookie == cookie && lock.state != State::Dead).then_some(n)
    }

    /// Whether a lock can be found.
    fn is_ready(&self, n: u32) -> bool {
        self.locks[n].state == State::Granted && !self.locks[n].asked
    }

    /// A lock that can be found for `mode` on `policy`.
    fn ready(&self, resource: Resource, mode: Mode, policy: &Policy) -> Option<u32> {
        let res = &self.resources[*self.by_name.get(&resource)?];
        let others = Mode::ALL.into_iter().filter(|m| *m != mode && m.covers(mode));
        for mode in std::iter::once(mode).chain(others) {
            let root = &res.ready[mode as usize];
            if root.is_empty() {
                continue;
            }
            let covers = |n: &u32| self.locks[*n].held.policy.contains(policy);
            let found = match resource.kind {
                Kind::Bits | Kind::Flock => self.nodes.ring(root).find(covers),
                Kind::Extent => Some(self.nodes.containing(root, policy.range())).filter(|n| *n != NIL && covers(n)),
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn resource(&mut self, name: Resource) -> u32 {
        if let Some(r) = self.by_name.get(&name) {
            return *r;
        }
        let r = self.resources.put(Res { name, ready: [Root::EMPTY; MODES], all: Vec::new(), pending: 0 });
        self.by_name.insert(name, r);
        r
    }

    /// Makes a lock one that can be found.
    fn enter(&mut self, n: u32) {
        let lock = &self.locks[n];
        let res = &mut self.resources[lock.resource];
        let root = &mut res.ready[lock.held.mode as usize];
        match res.name.kind {
            Kind::Extent => self.nodes.tree_insert(root, n, lock.held.policy.range(), 0),
            Kind::Bits | Kind::Flock => self.nodes.ring_push(root, n),
        }
    }

    /// Undoes [`Locks::enter`].
    fn leave(&mut self, n: u32) {
        let lock = &self.locks[n];
        let res = &mut self.resources[lock.resource];
        let root = &mut res.ready[lock.held.mode as usize];
        match res.name.kind {
            Kind::Extent => self.nodes.tree_remove(root, n),
            Kind::Bits | Kind::Flock => self.nodes.ring_remove(root, n),
        }
    }

    /// A granted lock that can be found is to go: nobody finds it any more, and if nobody uses it,
    /// it is flushed.
    fn give_up(&mut self, n: u32, actions: &mut Vec<Action>) {
        self.leave(n);
        self.unlink(n);
        if self.locks[n].refs == 0 {
            self.flush(n, actions);
        }
    }

    /// Tells the owner to flush a lock that nobody uses or finds.
    fn flush(&mut self, n: u32, actions: &mut Vec<Action>) {
        let lock = &mut self.locks[n];
        lock.state = State::Flushing;
        let Held { cookie, mode, policy, .. } = lock.held;
        let spare = match policy {
            // 0: it goes although nobody asked.
            Policy::Bits { bits, .. } if lock.wanted != 0 => bits & !lock.wanted,
            _ => 0,
        };
        self.stats.flushes += 1;
        actions.push(Action::Flush { cookie, resource: self.resources[lock.resource].name, mode, policy, spare });
    }

    /// Forgets a lock that is in neither the ready ones nor the unused ones.
    fn remove(&mut self, n: u32) {
        let lock = &mut self.locks[n];
        let (r, index, pending) = (lock.resource, lock.index, lock.state == State::Pending);
        let group = lock.held.mode == Mode::Group;
        lock.state = State::Dead;
        self.locks.free(n);
        let res = &mut self.resources[r];
        if pending {
            res.pending -= 1;
            self.stats.pending -= 1;
        } else {
            self.stats.lock_count -= 1;
            self.groups -= usize::from(group);
        }
        res.all.swap_remove(index);
        if let Some(moved) = res.all.get(index) {
            self.locks[*moved].index = index;
        }
        if res.all.is_empty() {
            self.by_name.remove(&res.name);
            self.resources.free(r);
        }
    }
}
