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

use super::types::{ClientId, SERVER, Tunables};

/// Contention level of an object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Level {
    /// Locks are expanded.
    #[default]
    Normal,
    /// Locks are granted as requested.
    NoExpand,
    /// Clients write without locks where they can (lockless requests).
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
    /// Returns the level at present.
    pub fn level(&self, now: Instant, tunables: &Tunables) -> Level {
        let calm = |since| now.since(since) >= Duration::from_secs(tunables.contention_seconds);
        if !tunables.adaptive || calm(self.last) {
            Level::Normal
        } else if calm(self.last_conflict) {
            self.level.min(Level::NoExpand)
        } else {
            self.level
        }
    }

    /// Counts a request of a client. Returns the level.
    pub fn request(&mut self, now: Instant, tunables: &Tunables, client: ClientId, writes: bool) -> Level {
        let level = self.level(now, tunables);
        if client != SERVER {
            if level != Level::Normal && self.last_client != client && (writes || self.last_writes) {
                self.last = now;
            }
            (self.last_client, self.last_writes) = (client, writes);
        }
        level
    }

    /// Counts a conflict. Returns whether the level rose.
    pub fn conflict(&mut self, now: Instant, tunables: &Tunables) -> bool {
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

    /// Counts a conflict with a lock of the server. Revoking that lock costs nothing, as no client
    /// caches under it. But a client's lock would still conflict.
    pub fn server_conflict(&mut self, now: Instant) {
        if self.level == Level::Contended {
            (self.last, self.last_conflict) = (now, now);
        }
    }

    /// Returns the time until which the level must be remembered. `None`: it is normal.
    pub fn remembered_until(&self, tunables: &Tunables) -> Option<Instant> {
        let remembered = self.level != Level::Normal && tunables.adaptive;
        remembered.then(|| self.last + Duration::from_secs(tunables.contention_seconds))
    }

    /// Forgets the level if it is normal at present.
    pub fn forget_if_normal(&mut self, now: Instant, tunables: &Tunables) {
        if self.level(now, tunables) == Level::Normal {
            self.level = Level::Normal;
        }
    }
}
