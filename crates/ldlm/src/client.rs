//! The client's side: the locks that one client holds on one target.
//!
//! The life of a lock:
//! 1. It begins as a request in progress ([`Locks::begin`]).
//! 2. It becomes granted ([`Locks::granted`]).
//! 3. Users find it with [`Locks::matching`]. Each holds a reference until [`Locks::release`].
//! 4. It is to be cancelled after a blocking callback ([`Locks::blocked`]), or when it is unused
//!    for too long or one of too many ([`Locks::shrink`]). The client also cancels locks before it
//!    sends a conflicting request ([`Locks::cancel_resource`]).
//! 5. [`Action::Flush`] tells its owner to flush and drop the data that it guards.
//! 6. [`Locks::cancelled`] ends it.
//!
//! A restarted server knows no locks. All end ([`Locks::evicted`]), except GROUP locks, which
//! programs hold ([`Locks::restarted`]). The owner requests them again, with the same handles.
//!
//! Invariants:
//!
//! * [`Action::Flush`] comes once for a lock (again only after [`Locks::converted`]), and only
//!   without references;
//! * after a blocking callback, no new user finds the lock; present users continue;
//! * messages may arrive in any order, and twice. A blocking callback that arrives before the grant
//!   is remembered. One for an unknown lock is answered with [`Action::Cancel`], and so is a grant
//!   that no request waits for.
//!
//! Overlapping requests of one client conflict like those of different clients. A caller that needs
//! several locks on a resource should enqueue them one after the other ([`Locks::pending`]): the
//! first lock often covers the others.

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

/// Most cancels that wait to travel with another request. Beyond that, [`Locks::cancelled`] asks to
/// send them at once.
pub const CANCELS_QUEUED_MAX: usize = 1024;

/// Tunables of the client's locks.
#[derive(Clone, Debug)]
pub struct Tunables {
    /// Most unused locks that are retained.
    pub lru_size: usize,
    /// Time in milliseconds for which an unused lock is retained.
    pub lru_max_age_ms: u64,
}

impl Default for Tunables {
    fn default() -> Tunables {
        // Some 200 bytes each, and as much on the server: enough for a tree of 100,000 files and
        // their directories. The age is Lustre's 65 minutes.
        Tunables { lru_size: 128 << 10, lru_max_age_ms: 65 * 60 * 1000 }
    }
}

/// An action that the owner of [`Locks`] has to carry out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Flush and drop the data that only this lock guards, then call [`Locks::cancelled`] (or
    /// [`Locks::converted`]). Other locks may still guard a part of it: see [`Locks::matching`].
    Flush {
        /// The lock.
        cookie: Cookie,
        /// The resource.
        resource: Resource,
        /// Its mode.
        mode: Mode,
        /// Its range or bits.
        policy: Policy,
        /// Those of its bits that no request waits for: the owner may keep the data that they
        /// guard, and call [`Locks::converted`]. 0: none.
        spare: u64,
    },
    /// Tell the server that the lock has been converted to these bits: it asked for others.
    Converted {
        /// The lock.
        id: LockId,
        /// The remaining bits.
        bits: u64,
    },
    /// Tell the server that the lock is cancelled: this client does not know the lock.
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
    /// Its range or bits.
    pub policy: Policy,
}

/// Counters and present numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Locks at present, without requests in progress: Lustre's `lock_count`.
    pub lock_count: u64,
    /// Unused ones among them: Lustre's `lock_unused_count`.
    pub lock_unused_count: u64,
    /// Requests in progress at present.
    pub pending: u64,
    /// Times that a lock held already covered an operation.
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
    /// The request is in progress, or waits at the server.
    Pending,
    /// Held.
    Granted,
    /// Held until [`Locks::cancelled`]; its owner has got [`Action::Flush`].
    Flushing,
}

#[derive(Debug)]
struct Lock {
    held: Held,
    resource: u32,
    state: State,
    /// The server sent a blocking callback, so the lock is to be cancelled.
    asked: bool,
    /// The bits that the blocking callbacks named.
    wanted: u64,
    refs: u32,
    /// Index in [`Res::all`].
    index: usize,
    unused_since: Instant,
    /// Neighbours in the LRU list.
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

/// The locks that one client holds on one target.
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
    /// Creates an empty set of locks.
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

    /// Present tunables.
    pub fn tunables(&self) -> &Tunables {
        &self.tunables
    }

    /// Replaces the tunables; [`Locks::shrink`] applies them.
    pub fn set_tunables(&mut self, tunables: Tunables) {
        self.tunables = tunables;
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Returns a held lock that permits `mode` on `policy`, and takes a reference, to be dropped
    /// with [`Locks::release`]. Locks that are to be cancelled are not found.
    pub fn matching(&mut self, resource: Resource, mode: Mode, policy: &Policy) -> Option<Held> {
        let n = self.ready(resource, mode, policy)?;
        self.unlink(n);
        let lock = &mut self.locks[n];
        lock.refs += 1;
        self.stats.matches += 1;
        Some(lock.held)
    }

    /// Whether [`Locks::matching`] would find a lock; takes no reference.
    pub fn covered(&self, resource: Resource, mode: Mode, policy: &Policy) -> bool {
        self.ready(resource, mode, policy).is_some()
    }

    /// Returns the GROUP lock that this client holds on an object, and takes a reference. It is
    /// found even after a blocking callback: a program determines how long it is held, and until
    /// then it covers all operations of this client.
    pub fn in_group(&mut self, resource: Resource) -> Option<Held> {
        if self.groups == 0 {
            return None;
        }
        let res = &self.resources[*self.by_name.get(&resource)?];
        let is_in_use = |n: &&u32| {
            let lock = &self.locks[**n];
            lock.held.mode == Mode::Group && lock.state == State::Granted && lock.refs > 0
        };
        let n = *res.all.iter().find(is_in_use)?;
        self.locks[n].refs += 1;
        Some(self.locks[n].held)
    }

    /// Registers a request that is about to be sent. The sender has a reference.
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

    /// Handles the grant of a request, in the reply or by a completion callback. Returns whether
    /// this is news. If no request waits for the grant, the lock is cancelled.
    pub fn granted(
        &mut self,
        cookie: Cookie,
        id: LockId,
        mode: Mode,
        policy: Policy,
        actions: &mut Vec<Action>,
    ) -> bool {
        let Some(n) = self.find(cookie).filter(|n| self.locks[*n].state == State::Pending) else {
            self.regranted(cookie, id, actions);
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

    /// Handles the grant of a lock of before a restart ([`Locks::restarted`]). If the lock has
    /// ended meanwhile, it is cancelled.
    pub fn regranted(&mut self, cookie: Cookie, id: LockId, actions: &mut Vec<Action>) {
        let known = self.find(cookie).filter(|n| [LockId::NONE, id].contains(&self.locks[*n].held.id));
        match known {
            Some(n) => self.locks[n].held.id = id,
            None => actions.push(Action::Cancel { id }),
        }
    }

    /// Ends a request that failed, or whose sender does not wait any longer. A grant that arrives
    /// later is answered with a cancel. If a blocking callback came before the reply, the cancel is
    /// sent now, because the server sends that callback only once.
    pub fn failed(&mut self, cookie: Cookie, actions: &mut Vec<Action>) {
        let Some(n) = self.find(cookie).filter(|n| self.locks[*n].state == State::Pending) else { return };
        let Lock { held, asked, .. } = self.locks[n];
        self.remove(n);
        if asked {
            actions.push(Action::Cancel { id: held.id });
        }
    }

    /// Ends a request like [`Locks::failed`] if a blocking callback came before its reply.
    pub fn fail_if_asked(&mut self, cookie: Cookie, actions: &mut Vec<Action>) {
        if self.find(cookie).is_some_and(|n| self.locks[n].asked) {
            self.failed(cookie, actions);
        }
    }

    /// Drops a reference.
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
            // A GROUP lock is held for as long as a program says, not for as long as it may be
            // useful.
            self.start_cancel(n, actions);
        } else {
            self.link(now, n);
        }
    }

    /// Handles a blocking callback for a lock, or for those of its bits that are `wanted`.
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
            // These bits were released by a conversion that the server has not received yet.
            actions.push(Action::Converted { id, bits });
            return;
        }
        lock.wanted |= wanted;
        if lock.state == State::Pending {
            lock.held.id = id;
        }
        if lock.state == State::Granted && !lock.asked {
            self.start_cancel(n, actions);
        }
        self.locks[n].asked = true;
    }

    /// Ends a lock whose guarded data has been flushed and dropped. Returns its handle if the
    /// cancel is to be sent at once. Otherwise [`Locks::take_cancels`] returns the handle later.
    pub fn cancelled(&mut self, cookie: Cookie) -> Option<LockId> {
        let n = self.find(cookie).filter(|n| self.locks[*n].state == State::Flushing)?;
        let Lock { held, asked, .. } = self.locks[n];
        self.remove(n);
        if held.id == LockId::NONE {
            return None; // the restarted server has not granted it again
        }
        if asked || self.cancels.len() >= CANCELS_QUEUED_MAX {
            return Some(held.id);
        }
        self.cancels.push_back(held.id);
        None
    }

    /// Converts a lock to a part of it, after the owner has flushed and dropped the data under the
    /// rest. From now on the lock is that part, and counts as one without a blocking callback. Must
    /// be called before the conversion is sent to the server. Returns the server's handle; `None`
    /// if there is no such lock, or `mode` and `policy` are not a part of it.
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

    /// Ends, without a flush, all unused locks that this lock covers entirely: it guards their data
    /// now. Returns their handles, to be cancelled at the server at some occasion.
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
        // The order must not depend on earlier removals.
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

    /// Returns the bits of an inode for which a lock can be found at present.
    pub fn guarded_bits(&self, resource: Resource) -> u64 {
        let Some(r) = self.by_name.get(&resource) else { return 0 };
        let ready = self.resources[*r].all.iter().filter(|n| self.is_ready(**n));
        ready
            .fold(0, |all, n| if let Policy::Bits { bits, .. } = self.locks[*n].held.policy { all | bits } else { all })
    }

    /// Returns up to `max` handles of cancelled locks, to travel with another request to the
    /// server.
    pub fn take_cancels(&mut self, max: usize) -> Vec<LockId> {
        self.cancels.drain(..max.min(self.cancels.len())).collect()
    }

    /// Number of handles that [`Locks::take_cancels`] can return.
    pub fn cancels_queued(&self) -> usize {
        self.cancels.len()
    }

    /// Cancels the unused locks of a resource (of inodebits locks, those that have one of `bits`).
    /// The client's next request would make the server send blocking callbacks for them.
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
        // The order of storage depends on earlier removals, so sort.
        found.sort_unstable_by_key(|c| slab::count(c.0));
        for cookie in found {
            if let Some(n) = self.find(cookie) {
                self.start_cancel(n, actions);
            }
        }
    }

    /// Drops all locks after the server has evicted this client. Returns the resources on which it
    /// held locks, in order: the owner must drop their cached data, and their dirty data is lost.
    /// Requests in progress are forgotten, too.
    pub fn evicted(&mut self) -> Vec<Resource> {
        self.drop_unless(|_| false)
    }

    /// Drops all locks, as [`Locks::evicted`], except the GROUP locks. They stay as they are, but
    /// have no handle of the server. The owner requests them again ([`Locks::ungranted`]), also
    /// those whose data is being flushed: the other members' locks would block the flush.
    pub fn restarted(&mut self) -> Vec<Resource> {
        let is_group = |lock: &Lock| lock.held.mode == Mode::Group && lock.state != State::Pending;
        let dropped = self.drop_unless(is_group);
        let left: Vec<u32> = self.by_name.values().flat_map(|r| &self.resources[*r].all).copied().collect();
        left.into_iter().for_each(|n| self.locks[n].held.id = LockId::NONE);
        dropped
    }

    /// Returns the locks that the restarted server has not granted again, by resource.
    pub fn ungranted(&self) -> Vec<(Resource, Held)> {
        if self.groups == 0 {
            return Vec::new();
        }
        let mut all = self.all_locks();
        all.retain(|(_, held)| held.id == LockId::NONE);
        all
    }

    /// Drops a lock that the restarted server does not grant again.
    pub fn lost(&mut self, cookie: Cookie) {
        if let Some(n) = self.find(cookie).filter(|n| self.locks[*n].held.id == LockId::NONE) {
            self.drop_lock(n);
        }
    }

    /// Drops the locks that `stays` does not accept. Returns the resources of those that were held.
    fn drop_unless(&mut self, stays: impl Fn(&Lock) -> bool) -> Vec<Resource> {
        let mut held = BTreeSet::new();
        let mut all: Vec<u32> = self.by_name.values().flat_map(|r| &self.resources[*r].all).copied().collect();
        all.sort_unstable();
        for n in all {
            let lock = &self.locks[n];
            if stays(lock) {
                continue;
            }
            if lock.state != State::Pending {
                held.insert(self.resources[lock.resource].name);
            }
            self.drop_lock(n);
        }
        self.cancels.clear();
        held.into_iter().collect()
    }

    /// Returns the locks held on a resource, those to be cancelled included, oldest first.
    pub fn resource_locks(&self, resource: Resource) -> Vec<Held> {
        let Some(r) = self.by_name.get(&resource) else { return Vec::new() };
        let locks = self.resources[*r].all.iter().map(|n| &self.locks[*n]);
        let mut held: Vec<(u64, Held)> =
            locks.filter(|l| l.state != State::Pending).map(|l| (l.held.cookie.0, l.held)).collect();
        held.sort_unstable_by_key(|h| slab::count(h.0));
        held.into_iter().map(|h| h.1).collect()
    }

    /// Returns all locks held, those to be cancelled included, by resource, for dumps and checkers.
    pub fn all_locks(&self) -> Vec<(Resource, Held)> {
        let mut names: Vec<Resource> = self.by_name.keys().copied().collect();
        names.sort_unstable();
        names.into_iter().flat_map(|name| self.resource_locks(name).into_iter().map(move |held| (name, held))).collect()
    }

    /// Number of requests in progress on a resource.
    pub fn pending(&self, resource: Resource) -> usize {
        self.by_name.get(&resource).map_or(0, |r| self.resources[*r].pending)
    }

    /// Returns a lock by its handle, once it is granted.
    pub fn held(&self, cookie: Cookie) -> Option<Held> {
        self.find(cookie).filter(|n| self.locks[*n].state != State::Pending).map(|n| self.locks[n].held)
    }

    /// Whether there is a blocking callback for the lock, or the lock no longer exists. Then its
    /// users delay other clients.
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

    /// Whether [`Locks::matching`] can find the lock.
    fn is_ready(&self, n: u32) -> bool {
        self.locks[n].state == State::Granted && !self.locks[n].asked
    }

    /// Returns a lock that can be found for `mode` on `policy`.
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

    /// Starts the cancel of a granted lock: no new user finds it, and it is flushed if it has no
    /// references.
    fn start_cancel(&mut self, n: u32, actions: &mut Vec<Action>) {
        self.leave(n);
        self.unlink(n);
        if self.locks[n].refs == 0 {
            self.flush(n, actions);
        }
    }

    /// Tells the owner to flush a lock that has no references and cannot be found.
    fn flush(&mut self, n: u32, actions: &mut Vec<Action>) {
        let lock = &mut self.locks[n];
        lock.state = State::Flushing;
        let Held { cookie, mode, policy, .. } = lock.held;
        let spare = match policy {
            // 0: cancelled without a blocking callback.
            Policy::Bits { bits, .. } if lock.wanted != 0 => bits & !lock.wanted,
            _ => 0,
        };
        self.stats.flushes += 1;
        actions.push(Action::Flush { cookie, resource: self.resources[lock.resource].name, mode, policy, spare });
    }

    /// Frees a lock in any state.
    fn drop_lock(&mut self, n: u32) {
        if self.is_ready(n) {
            self.leave(n);
        }
        self.unlink(n);
        self.remove(n);
    }

    /// Frees a lock that cannot be found and is not in the LRU list.
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
