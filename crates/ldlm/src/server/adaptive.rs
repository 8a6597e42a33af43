//! The contention of the namespace's objects: passes requests and conflicts to
//! [`Contention`](super::contention::Contention), and lets empty contended resources linger.

use std::time::Duration;

use sheen_rt::Instant;
use sheen_wire::ldlm::{Kind, Resource};

use super::{Level, Namespace, SERVER, conflict::Want};

/// Most empty resources that linger.
const LINGERING_MAX: usize = 4096;

impl Namespace {
    /// Returns the contention level of an object.
    pub fn level(&self, now: Instant, resource: Resource) -> Level {
        self.by_name.get(&resource).map_or(Level::Normal, |r| self.level_of(now, *r))
    }

    pub(super) fn level_of(&self, now: Instant, r: u32) -> Level {
        self.resources[r].contention.level(now, &self.tunables)
    }

    /// Counts a request for a lock. Returns the object's level.
    pub(super) fn observe(&mut self, now: Instant, r: u32, want: &Want) -> Level {
        let res = &mut self.resources[r];
        if res.name.kind != Kind::Extent {
            return Level::Normal;
        }
        // The server takes its own locks for operations of clients that hold none.
        let client = if want.client == SERVER { want.spare } else { want.client };
        res.contention.request(now, &self.tunables, client, want.mode.writes())
    }

    /// Counts a blocking callback for the granted lock `n` on behalf of `want`.
    pub(super) fn note_conflict(&mut self, now: Instant, n: u32, want: &Want) {
        let lock = &self.locks[n];
        let soon = Duration::from_millis(self.tunables.contention_window_ms);
        let res = &mut self.resources[lock.resource];
        if res.name.kind != Kind::Extent || lock.client == want.client || now.since(lock.granted_at) > soon {
            return;
        }
        if lock.client == SERVER {
            res.contention.server_conflict(now);
            return;
        }
        self.stats.contended += u64::from(res.contention.conflict(now, &self.tunables));
    }

    /// Lets an empty resource linger if its level is not normal and there is room. Returns whether
    /// it lingers.
    pub(super) fn linger(&mut self, r: u32) -> bool {
        let Some(until) = self.resources[r].contention.remembered_until(&self.tunables) else { return false };
        if self.lingering.len() >= LINGERING_MAX {
            return false;
        }
        self.resources[r].lingering = Some(until);
        self.lingering.insert((until, r));
        true
    }

    /// Frees the resources whose lingering time is over.
    pub(super) fn reap(&mut self, now: Instant) {
        while let Some((until, r)) = self.lingering.first().copied()
            && until <= now
        {
            self.lingering.pop_first();
            let res = &mut self.resources[r];
            res.lingering = None;
            res.contention.forget_if_normal(now, &self.tunables);
            self.free_if_empty(r);
        }
    }
}
