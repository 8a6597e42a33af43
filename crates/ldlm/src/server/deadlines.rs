//! Clients that do not answer.
//!
//! A lock that was asked back must be cancelled within `lock_timeout`, and a glimpse answered. The
//! time begins anew while I/O under the lock flows ([`Namespace::prolong`]), as often as it does;
//! and while the client gives back other locks that it was asked for, for it may have many to
//! flush: then at most [`PATIENCE`] times, lest one stuck lock hides behind others for ever.
//!
//! A client cannot cancel a lock that it is not told of yet, because other locks of the same
//! request are waited for. Such a lock has no deadline ([`Namespace::withhold`]).

use sheen_rt::Instant;
use sheen_wire::ldlm::{LockId, Mode, Policy, Resource};

use super::{Action, ClientId, Namespace, SERVER};

/// Lock timeouts that a client has to give back a lock while it gives back others.
const PATIENCE: u32 = 10;

impl Namespace {
    /// I/O of the client on `start..=end` of the object arrived: locks asked back that it is done
    /// under have their time anew.
    pub fn prolong(&mut self, now: Instant, client: ClientId, resource: Resource, start: u64, end: u64) {
        let Some(c) = self.clients.get(&client) else { return };
        if c.asked.is_empty() {
            return;
        }
        let Some(r) = self.by_name.get(&resource).copied() else { return };
        let io = Policy::extent(start, end);
        let under = |n: &&u32| self.locks[**n].resource == r && self.touches(**n, &io);
        let found: Vec<u32> = c.asked.iter().filter(under).copied().collect();
        for n in found {
            self.locks[n].asked = Some(now);
            self.begin_deadline(now, n);
        }
    }

    /// The client is told of this lock, granted or waiting, when all of its request can be
    /// answered.
    pub fn withhold(&mut self, id: LockId) {
        if let Some(n) = self.find(id) {
            self.locks[n].withheld = true;
        }
    }

    /// The client is told of these locks now: those that somebody wants have their time from here
    /// on. Handles that name nothing, or another client's lock, are ignored.
    pub fn told(&mut self, now: Instant, client: ClientId, ids: &[LockId]) {
        for id in ids {
            let Some(n) = self.find(*id).filter(|n| self.locks[*n].client == client) else { continue };
            let lock = &mut self.locks[n];
            lock.withheld = false;
            if lock.asked.is_some() {
                lock.asked = Some(now);
                self.begin_deadline(now, n);
            }
        }
    }

    /// Evicts the clients that are late. To be called at [`Namespace::next_deadline`], or a little
    /// later.
    pub fn expire(&mut self, now: Instant, actions: &mut Vec<Action>) {
        while let Some((at, n)) = self.deadlines.first().copied()
            && at <= now
        {
            let lock = &self.locks[n];
            let client = lock.client;
            let timeout = self.tunables.lock_timeout();
            let progress = self.clients.get(&client).map_or(Instant::ZERO, |c| c.progress);
            let patience = lock.asked.map_or(Instant::ZERO, |asked| asked + timeout * PATIENCE);
            let extended = (progress + timeout).min(patience);
            if extended > now {
                self.set_deadline(n, extended);
                continue;
            }
            self.stats.evictions += 1;
            actions.push(Action::Evict { client });
            self.evict(now, client, actions);
        }
        self.reap(now);
    }

    /// When [`Namespace::expire`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        let first = self.deadlines.first().map(|d| d.0);
        let second = self.lingering.first().map(|d| d.0);
        first.into_iter().chain(second).min()
    }

    /// The lock was asked back now. The server's own have no deadline, nor have GROUP locks, which
    /// programs hold.
    pub(super) fn begin_deadline(&mut self, now: Instant, n: u32) {
        if self.must_return(n) {
            self.set_deadline(n, now + self.tunables.lock_timeout());
        }
    }

    /// Removes a deadline that nothing needs any more.
    pub(super) fn end_deadline(&mut self, n: u32) {
        if !self.locks[n].glimpse.now && !self.must_return(n) {
            self.set_deadline(n, Instant::FAR);
        }
    }

    fn must_return(&self, n: u32) -> bool {
        let lock = &self.locks[n];
        lock.asked.is_some() && !lock.withheld && lock.client != SERVER && lock.mode != Mode::Group
    }

    /// Whether I/O on `io` is under the lock. Data on an MDT is under inodebits locks, which have
    /// no ranges.
    fn touches(&self, n: u32, io: &Policy) -> bool {
        let policy = &self.locks[n].policy;
        matches!(policy, Policy::Bits { .. }) || policy.overlaps(io)
    }
}
