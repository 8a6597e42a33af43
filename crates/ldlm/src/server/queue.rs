//! The queue of a resource: waiting, granting, blocking callbacks.

use std::ops::ControlFlow;

use sheen_rt::Instant;
use sheen_wire::ldlm::{Kind, Policy};

use super::{Action, Namespace, SERVER, conflict::Want, extent::Grow};
use crate::slab::NIL;

impl Namespace {
    /// Makes the waiting lock `n` watch the lock `watched`.
    pub(super) fn watch(&mut self, n: u32, watched: u32) {
        self.locks[n].watching = watched;
        self.locks[watched].watchers.push(n);
    }

    /// Makes the lock watch no lock.
    pub(super) fn unwatch(&mut self, n: u32) {
        let watched = std::mem::replace(&mut self.locks[n].watching, NIL);
        if watched != NIL {
            self.locks[watched].watchers.retain(|w| *w != n);
        }
    }

    /// Schedules the watchers of a lock that is dropped or weakened for examination.
    pub(super) fn schedule_watchers(&mut self, n: u32) {
        for w in std::mem::take(&mut self.locks[n].watchers) {
            self.locks[w].watching = NIL;
            self.to_examine.insert((self.locks[w].seq, w));
        }
    }

    /// Examines all scheduled waiting locks in the queue's order: grants each of them, or finds
    /// another lock for it to watch. Then continues the glimpses whose marked locks were dropped.
    pub(super) fn settle(&mut self, now: Instant, actions: &mut Vec<Action>) {
        while let Some((seq, n)) = self.to_examine.pop_first() {
            let lock = &self.locks[n];
            let is_over = lock.seq != seq || lock.id.0 == 0 || !lock.waiting;
            if is_over {
                continue;
            }
            match self.blocker(lock.resource, &Want::of(lock), seq) {
                Some(b) => self.watch(n, b),
                None => self.grant(now, n, actions),
            }
        }
        for (resource, client) in std::mem::take(&mut self.unglimpsed) {
            self.glimpse_on(now, resource, client, actions);
        }
    }

    /// Grants a lock that waited.
    fn grant(&mut self, now: Instant, n: u32, actions: &mut Vec<Action>) {
        let lock = &self.locks[n];
        let (r, want, grow) = (lock.resource, Want::of(lock), Grow { expand: !lock.no_expand, align: lock.align });
        // While `n` is still in the queue: that prevents the resource from being freed.
        let carved = match want.policy {
            Policy::Flock(f) => Some(Policy::Flock(self.carve(now, r, want.client, f, Some(want.mode)))),
            _ => None,
        };
        self.leave(n);
        let policy = match carved {
            Some(policy) => policy,
            None => self.widen(now, r, &want, grow),
        };
        let lock = &mut self.locks[n];
        (lock.waiting, lock.policy, lock.granted_at, lock.unconfirmed) = (false, policy, now, true);
        actions.push(Action::Grant { client: lock.client, cookie: lock.cookie, id: lock.id, mode: lock.mode, policy });
        self.enter(n);
        let of_client = u64::from(want.client != SERVER);
        self.stats.grants += of_client;
        self.stats.completion_callbacks += of_client;
        self.send_blocking_if_wanted(now, n, actions);
    }

    /// Returns the range or bits granted to a request that conflicts with no lock.
    pub(super) fn widen(&mut self, now: Instant, r: u32, want: &Want, grow: Grow) -> Policy {
        match want.policy {
            Policy::Extent { .. } => self.grown(now, r, want, grow),
            Policy::Bits { bits, try_bits } => Policy::bits(bits | self.free_bits(r, want.mode, try_bits)),
            Policy::Flock(_) => want.policy,
        }
    }

    /// Sends blocking callbacks for all granted locks that conflict with `want` and have had none
    /// yet.
    pub(super) fn send_blocking_callbacks(&mut self, now: Instant, r: u32, want: &Want, actions: &mut Vec<Action>) {
        let mut found = std::mem::take(&mut self.scratch);
        let _ = self.granted_conflicts(r, want, 1, &mut |n| {
            found.push(n);
            ControlFlow::Continue(())
        });
        for n in &found {
            self.send_blocking(now, *n, want, actions);
        }
        found.clear();
        self.scratch = found;
    }

    /// Sends a blocking callback for a granted lock if a request waits for it.
    pub(super) fn send_blocking_if_wanted(&mut self, now: Instant, n: u32, actions: &mut Vec<Action>) {
        if let Some(want) = self.waiting_request(n) {
            self.send_blocking(now, n, &want, actions);
        }
    }

    /// Returns a request that waits for a granted lock. `None` for flock locks, which get no
    /// blocking callbacks.
    pub(super) fn waiting_request(&self, n: u32) -> Option<Want> {
        let lock = &self.locks[n];
        if self.resources[lock.resource].name.kind == Kind::Flock {
            return None;
        }
        self.waiting_for(n).map(|w| Want::of(&self.locks[w])).or_else(|| self.replacement_for_glimpse(n))
    }

    /// Sends a blocking callback for a granted lock on behalf of `want`, and starts the deadline.
    pub(super) fn send_blocking(&mut self, now: Instant, n: u32, want: &Want, actions: &mut Vec<Action>) {
        self.note_conflict(now, n, want);
        self.set_asked(n, Some(now));
        self.begin_deadline(now, n);
        self.queue_blocking(n, want, actions);
    }

    /// Queues the blocking callback itself.
    pub(super) fn queue_blocking(&mut self, n: u32, want: &Want, actions: &mut Vec<Action>) {
        let lock = &self.locks[n];
        self.stats.blocking_callbacks += u64::from(lock.client != SERVER);
        actions.push(Action::Block {
            client: lock.client,
            cookie: lock.cookie,
            id: lock.id,
            mode: want.mode,
            policy: want.policy,
        });
    }
}
