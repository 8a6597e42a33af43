//! The LRU list of unused locks: they stay for later use, and the longest unused one is cancelled
//! first.

use std::time::Duration;

use sheen_rt::Instant;

use super::{Action, Locks};
use crate::slab::NIL;

impl Locks {
    /// Cancels unused locks that are too old or too many. To be called from time to time;
    /// [`Locks::next_expiry`] returns when.
    pub fn shrink(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let age_max = Duration::from_millis(self.tunables.lru_max_age_ms);
        while self.oldest != NIL {
            let many = self.stats.lock_unused_count > self.tunables.lru_size as u64;
            let old = now.since(self.locks[self.oldest].unused_since) >= age_max;
            if !many && !old {
                break;
            }
            self.start_cancel(self.oldest, actions);
        }
    }

    /// Cancels all unused locks: for `lctl set_param ldlm.namespaces.*.lru_size=clear`, or an
    /// unmount.
    pub fn clear(&mut self, actions: &mut Vec<Action>) {
        while self.oldest != NIL {
            self.start_cancel(self.oldest, actions);
        }
    }

    /// Returns the time when the longest unused lock gets too old.
    pub fn next_expiry(&self) -> Option<Instant> {
        let age_max = Duration::from_millis(self.tunables.lru_max_age_ms);
        (self.oldest != NIL).then(|| self.locks[self.oldest].unused_since + age_max)
    }

    /// Appends a lock to the LRU list.
    pub(super) fn link(&mut self, now: Instant, n: u32) {
        let last = std::mem::replace(&mut self.newest, n);
        if last == NIL {
            self.oldest = n;
        } else {
            self.locks[last].newer = n;
        }
        let lock = &mut self.locks[n];
        (lock.older, lock.newer, lock.unused_since) = (last, NIL, now);
        self.stats.lock_unused_count += 1;
    }

    /// Takes a lock out of the LRU list, if it is there.
    pub(super) fn unlink(&mut self, n: u32) {
        let lock = &mut self.locks[n];
        if lock.older == NIL && self.oldest != n {
            return;
        }
        let (older, newer) = (lock.older, lock.newer);
        (lock.older, lock.newer) = (NIL, NIL);
        if older == NIL {
            self.oldest = newer
        } else {
            self.locks[older].newer = newer
        }
        if newer == NIL {
            self.newest = older
        } else {
            self.locks[newer].older = older
        }
        self.stats.lock_unused_count -= 1;
    }
}
