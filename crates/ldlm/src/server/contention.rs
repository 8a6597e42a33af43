//! Contention-adaptive locking, for objects whose locks are revoked before they were of use.
//!
//! A conflict is a blocking callback, on behalf of another client, for a lock that was granted less
//! than a contention window ago. If there are `contended_locks` conflicts within the (sliding)
//! window, the object's level rises:
//!
//! * [`Level::Normal`]: locks are expanded. Then writers of different blocks of an object revoke
//!   each other's locks by turns;
//! * [`Level::NoExpand`]: locks are granted as requested. This helps writers whose requests do not
//!   overlap;
//! * [`Level::Contended`]: clients that can write without a lock get `Contended` instead of a lock.
//!
//! An object stays contended for `contention_seconds` after its last conflict. Then locks are tried
//! again, without expansion: writers that do not overlap (any more) keep them. The level returns to
//! normal after the same time without a conflict, and without requests of alternating clients of
//! which one writes. While clients take turns, expansion would cause conflicts again.
//!
//! Correctness does not depend on any of this. An empty resource that is not normal lingers, so
//! that its level is not forgotten between writes without locks.

use std::time::Duration;

use sheen_rt::Instant;
use sheen_wire::ldlm::Kind;

use super::{ClientId, Namespace, SERVER, Tunables, conflict::Want};

/// Most empty resources that linger.
const LINGERING_MAX: usize = 4096;

/// Contention level of an object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Level {
    /// Locks are expanded.
    #[default]
    Normal,
    /// Locks are granted as requested.
    NoExpand,
    /// Writes go without locks, where the client can.
    Contended,
}

/// Contention state of an object.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Contention {
    level: Level,
    /// Start of the present window, the conflicts in it, and those in the window before.
    window: Instant,
    count: u32,
    count_before: u32,
    /// Time of the last conflict.
    last_conflict: Instant,
    /// Time of the last conflict, or change of client.
    last: Instant,
    /// The client of the last request or write, and whether it writes.
    last_client: ClientId,
    last_writes: bool,
}

impl Contention {
    fn level(&self, now: Instant, tunables: &Tunables) -> Level {
        let calm = |since| now.since(since) >= Duration::from_secs(tunables.contention_seconds);
        if !tunables.adaptive || calm(self.last) {
            Level::Normal
        } else if calm(self.last_conflict) {
            self.level.min(Level::NoExpand)
        } else {
            self.level
        }
    }

    /// Counts a conflict. Returns whether the level rose.
    fn conflict(&mut self, now: Instant, tunables: &Tunables) -> bool {
        let window = Duration::from_millis(tunables.contention_window_ms.max(1));
        self.level = self.level(now, tunables);
        let age = now.since(self.window);
        if age >= window {
            self.count_before = if age < 2 * window { self.count } else { 0 };
            (self.window, self.count) = (now, 0);
        }
        self.count += 1;
        (self.last, self.last_conflict) = (now, now);
        // The part of the previous window that is within one window length before now.
        let left = window.saturating_sub(now.since(self.window)).as_secs_f64() / window.as_secs_f64();
        let sliding = f64::from(self.count) + f64::from(self.count_before) * left;
        if sliding < f64::from(tunables.contended_locks.max(1)) || self.level == Level::Contended {
            return false;
        }
        self.level = if self.level == Level::Normal { Level::NoExpand } else { Level::Contended };
        (self.count, self.count_before) = (0, 0);
        true
    }
}

impl Namespace {
    /// Returns the contention level of an object.
    pub fn level(&self, now: Instant, resource: sheen_wire::ldlm::Resource) -> Level {
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
        let c = &mut res.contention;
        let level = c.level(now, &self.tunables);
        // The server takes its own locks for operations of clients that hold none.
        let client = if want.client == SERVER { want.spare } else { want.client };
        if client != SERVER {
            let writes = want.mode.writes();
            if level != Level::Normal && c.last_client != client && (writes || c.last_writes) {
                c.last = now;
            }
            (c.last_client, c.last_writes) = (client, writes);
        }
        level
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
            // Revoking the server's own lock costs nothing, as no client caches under it. But a
            // client's lock would still conflict.
            if res.contention.level == Level::Contended {
                (res.contention.last, res.contention.last_conflict) = (now, now);
            }
            return;
        }
        self.stats.contended += u64::from(res.contention.conflict(now, &self.tunables));
    }

    /// Lets an empty resource linger if its level is not normal and there is room. Returns whether
    /// it lingers.
    pub(super) fn linger(&mut self, r: u32) -> bool {
        let c = &self.resources[r].contention;
        if c.level == Level::Normal || !self.tunables.adaptive || self.lingering.len() >= LINGERING_MAX {
            return false;
        }
        let until = c.last + Duration::from_secs(self.tunables.contention_seconds);
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
            self.resources[r].lingering = None;
            if self.level_of(now, r) == Level::Normal {
                self.resources[r].contention.level = Level::Normal;
            }
            self.free_if_empty(r);
        }
    }
}
