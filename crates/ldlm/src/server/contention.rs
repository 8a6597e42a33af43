//! Contention-adaptive locking: objects whose locks are taken away before they were of use.
//!
//! A conflict is a lock that another client's request asks back within the contention window after
//! its grant. As many as `contended_locks` of them within the (sliding) window raise the object's
//! level:
//!
//! * [`Level::Normal`]: locks grow. Writers of different blocks of an object then take each other's
//!   locks away by turns;
//! * [`Level::NoExpand`]: locks are what was asked. That cures writers whose requests do not touch
//!   each other;
//! * [`Level::Contended`]: those that can write without a lock are told to.
//!
//! An object is contended for `contention_seconds` after its last conflict; then locks are tried
//! again, as asked: writers that do not touch each other (any more) keep them. The level falls back
//! to normal when for as long there was neither a conflict nor a change of the client that asks or
//! writes (one of both a writer): while clients take turns, letting locks grow would bring the
//! disease back. None of this matters for correctness. An empty resource that is not normal
//! lingers, so that its level is not forgotten between writes without locks.

use std::time::Duration;

use sheen_rt::Instant;
use sheen_wire::ldlm::Kind;

use super::{ClientId, Namespace, SERVER, Tunables, conflict::Want};

/// Empty resources that are kept for their level.
const LINGERING_MAX: usize = 4096;

/// How contended an object is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Level {
    /// Locks grow.
    #[default]
    Normal,
    /// Locks do not grow.
    NoExpand,
    /// Writes go without locks, where the client can.
    Contended,
}

/// What is known of an object.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Contention {
    level: Level,
    /// The present window's begin, the conflicts in it and those in the one before.
    window: Instant,
    count: u32,
    count_before: u32,
    /// Last conflict.
    last_conflict: Instant,
    /// Last conflict, or change of the client.
    last: Instant,
    /// Who asked or wrote last, and whether to write.
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

    /// A conflict. Returns whether the level rose.
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
        // The share of the window before that a window ending now would cover.
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
    /// How contended an object is.
    pub fn level(&self, now: Instant, resource: sheen_wire::ldlm::Resource) -> Level {
        self.by_name.get(&resource).map_or(Level::Normal, |r| self.level_of(now, *r))
    }

    pub(super) fn level_of(&self, now: Instant, r: u32) -> Level {
        self.resources[r].contention.level(now, &self.tunables)
    }

    /// A request arrived. Returns the object's level.
    pub(super) fn observe(&mut self, now: Instant, r: u32, want: &Want) -> Level {
        let res = &mut self.resources[r];
        if res.name.kind != Kind::Extent {
            return Level::Normal;
        }
        let c = &mut res.contention;
        let level = c.level(now, &self.tunables);
        // The server's own locks are for what clients do without.
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

    /// The granted lock `n` is asked back for `want`.
    pub(super) fn note_conflict(&mut self, now: Instant, n: u32, want: &Want) {
        let lock = &self.locks[n];
        let soon = Duration::from_millis(self.tunables.contention_window_ms);
        let res = &mut self.resources[lock.resource];
        if res.name.kind != Kind::Extent || lock.client == want.client || now.since(lock.granted_at) > soon {
            return;
        }
        if lock.client == SERVER {
            // Nobody has anything cached under it: taking it back costs nothing. But a lock would
            // be in somebody's way still.
            if res.contention.level == Level::Contended {
                (res.contention.last, res.contention.last_conflict) = (now, now);
            }
            return;
        }
        self.stats.contended += u64::from(res.contention.conflict(now, &self.tunables));
    }

    /// Keeps an empty resource for its level's sake, if it has one and there is room. Returns
    /// whether it is kept.
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

    /// Frees the resources that have lingered long enough.
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
