//! Deadlines of blocking callbacks and glimpses, and the eviction of clients that miss them.
//!
//! A lock must be cancelled, and a glimpse answered, within `lock_timeout`. The deadline starts
//! anew
//! * with each I/O under the lock ([`Namespace::prolong`]), without limit;
//! * while the client cancels other locks after blocking callbacks, for it may have many to flush.
//!   This is limited to [`PATIENCE`] timeouts, so that a stuck lock does not hide behind others for
//!   ever.
//!
//! A client cannot cancel a lock that it does not know of yet, because other locks of the same
//! request still wait. Such a lock has no deadline ([`Namespace::withhold`]).

use sheen_rt::Instant;
use sheen_wire::ldlm::{LockId, Mode, Policy, Resource};

use super::{Action, ClientId, Namespace, Overdue, SERVER};

/// Number of lock timeouts within which a client must cancel a lock while it cancels others.
const PATIENCE: u32 = 10;

impl Namespace {
    /// Renews the deadlines of a client's locks after blocking callbacks, when I/O of the client on
    /// `start..=end` of the object arrives under them.
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

    /// Marks a lock, granted or waiting, as unknown to its client, which learns of it when all
    /// locks of its request can be answered.
    pub fn withhold(&mut self, id: LockId) {
        if let Some(n) = self.find(id) {
            self.locks[n].withheld = true;
        }
    }

    /// Marks locks as known to the client. The deadlines of those with a blocking callback start
    /// now. Handles that name no lock, or a lock of another client, are ignored.
    pub fn delivered(&mut self, now: Instant, client: ClientId, ids: &[LockId]) {
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

    /// Evicts the clients that missed a deadline, and frees lingering resources. To be called at
    /// [`Namespace::next_deadline`], or a little later.
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
            actions.push(Action::Evict { client, overdue: self.overdue(now, n) });
            self.evict(now, client, actions);
        }
        self.reap(now);
    }

    /// Returns the time at which [`Namespace::expire`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        let first = self.deadlines.first().map(|d| d.0);
        let second = self.lingering.first().map(|d| d.0);
        first.into_iter().chain(second).min()
    }

    /// Starts the deadline of a lock whose blocking callback was sent now. The server's own locks
    /// have none, nor have GROUP locks, which programs hold.
    pub(super) fn begin_deadline(&mut self, now: Instant, n: u32) {
        if self.has_deadline(n) {
            self.set_deadline(n, now + self.tunables.lock_timeout());
        }
    }

    /// Removes a deadline that is no longer needed.
    pub(super) fn end_deadline(&mut self, n: u32) {
        if !self.locks[n].glimpse.now && !self.has_deadline(n) {
            self.set_deadline(n, Instant::FAR);
        }
    }

    fn overdue(&self, now: Instant, n: u32) -> Overdue {
        let lock = &self.locks[n];
        let since = lock.asked.filter(|_| self.has_deadline(n));
        Overdue {
            id: lock.id,
            resource: self.resources[lock.resource].name,
            mode: lock.mode,
            policy: lock.policy,
            glimpse: since.is_none(),
            // The time of a glimpse is not stored.
            waited: since.map_or(self.tunables.lock_timeout(), |since| now.since(since)),
        }
    }

    fn has_deadline(&self, n: u32) -> bool {
        let lock = &self.locks[n];
        lock.asked.is_some() && !lock.withheld && lock.client != SERVER && lock.mode != Mode::Group
    }

    /// Whether the lock covers I/O on `io`. Data on an MDT is guarded by inodebits locks, which
    /// have no ranges.
    fn touches(&self, n: u32, io: &Policy) -> bool {
        let policy = &self.locks[n].policy;
        matches!(policy, Policy::Bits { .. }) || policy.overlaps(io)
    }
}
