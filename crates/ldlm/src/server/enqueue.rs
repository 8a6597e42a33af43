//! Enqueue: a request for a lock.
//!
//! Contract:
//! * the answer is the lock's state;
//! * a request with a cookie that names an existing lock of the client changes nothing, and is
//!   answered with the present state: the first answer may have been lost. If the request is for
//!   another resource, the lock of the lost answer is dropped;
//! * a request that cannot be granted at once waits, unless it has `nowait`. With `nowait` no
//!   blocking callbacks are sent, unless it also has `ask`.

use sheen_rt::Instant;
use sheen_wire::{
    Errno,
    ldlm::{Cookie, Enqueue, Enqueued, FlockKind, Kind, LockId, Mode, Policy, bits},
};

use super::{Action, ClientId, Level, Namespace, SERVER, conflict::Want, extent::Grow, state::Lock};

impl Namespace {
    /// Enqueues a lock for a client, or for the server itself.
    pub fn enqueue(&mut self, now: Instant, client: ClientId, ask: &Enqueue, actions: &mut Vec<Action>) -> Enqueued {
        self.enqueue_for(now, client, SERVER, ask, actions)
    }

    /// Enqueues a lock of the server for an operation of the client `spare`: that client's own
    /// locks stay, and do not conflict.
    pub fn enqueue_sparing(
        &mut self,
        now: Instant,
        spare: ClientId,
        ask: &Enqueue,
        actions: &mut Vec<Action>,
    ) -> Enqueued {
        self.enqueue_for(now, SERVER, spare, ask, actions)
    }

    fn enqueue_for(
        &mut self,
        now: Instant,
        client: ClientId,
        spare: ClientId,
        ask: &Enqueue,
        actions: &mut Vec<Action>,
    ) -> Enqueued {
        let own = client == SERVER;
        *if own { &mut self.stats.own } else { &mut self.stats.enqueues } += 1;
        let Some(policy) = valid(ask) else { return Enqueued::Refused(Errno::EINVAL) };
        if ask.cookie != Cookie::NONE
            && let Some(n) = self.by_cookie.get(&(client, ask.cookie)).copied()
        {
            if self.resources[self.locks[n].resource].name == ask.resource {
                return self.present(n);
            }
            // The request was executed again because its answer was lost, and this time it resolved
            // to another resource.
            self.drop_lock(n);
            self.settle(now, actions);
        }
        let want = Want { client, mode: ask.mode, policy, spare };
        let answer = match ask.resource.kind {
            Kind::Flock => self.enqueue_flock(now, ask, &want, actions),
            Kind::Extent | Kind::Bits => self.enqueue_cached(now, ask, &want, actions),
        };
        match answer {
            Enqueued::Granted { id, .. } if id != LockId::NONE => self.stats.grants += u64::from(!own),
            Enqueued::Contended => self.stats.lockless += 1,
            Enqueued::Deadlock => self.stats.deadlocks += 1,
            Enqueued::Refused(_) => self.stats.refused += 1,
            _ => {}
        }
        answer
    }

    /// Enqueues a lock that guards a cache: extent or bits.
    fn enqueue_cached(&mut self, now: Instant, ask: &Enqueue, want: &Want, actions: &mut Vec<Action>) -> Enqueued {
        let known = self.by_name.get(&ask.resource).copied();
        let level = known.map_or(Level::Normal, |r| self.observe(now, r, want));
        if level == Level::Contended && ask.flags.lockless && ask.mode.writes() && ask.mode != Mode::Group {
            return Enqueued::Contended;
        }
        let blocker = known.and_then(|r| self.blocker(r, want, u64::MAX).or_else(|| self.nothing_free(r, want)));
        let optional = matches!(want.policy, Policy::Bits { bits: 0, .. });
        match blocker {
            Some(b) if ask.flags.nowait || ask.flags.test || optional => {
                if let Some(r) = known.filter(|_| ask.flags.ask && !ask.flags.test) {
                    self.send_blocking_callbacks(now, r, want, actions);
                }
                return Enqueued::WouldBlock { by: self.locks[b].conflict() };
            }
            None if ask.flags.test => {
                return Enqueued::Granted { id: LockId::NONE, mode: ask.mode, policy: want.policy };
            }
            _ => {}
        }
        if !self.room(want.client, 1) {
            return Enqueued::Refused(Errno::ENOLCK);
        }
        let r = self.resource(ask.resource);
        let grow = Grow { expand: !ask.flags.no_expand, align: ask.align };
        let policy = if blocker.is_some() { want.policy } else { self.widen(now, r, want, grow) };
        let n = self.make(Lock {
            spare: want.spare,
            cookie: ask.cookie,
            waiting: blocker.is_some(),
            no_expand: ask.flags.no_expand,
            align: ask.align,
            ..Lock::new(now, want.client, r, ask.mode, policy)
        });
        match blocker {
            Some(b) => {
                self.watch(n, b);
                self.send_blocking_callbacks(now, r, want, actions);
            }
            // Only a lock that joins its group is granted ahead of waiting ones.
            None => self.send_blocking_if_wanted(now, n, actions),
        }
        self.present(n)
    }

    /// Whether the limits permit `more` locks of the client.
    pub(super) fn room(&self, client: ClientId, more: usize) -> bool {
        let of_client = self.client_locks(client) + more;
        let fits =
            of_client <= self.tunables.max_locks_per_client && self.locks.len() + more <= self.tunables.max_locks;
        self.locks.room(more) && (client == SERVER || fits)
    }

    /// Returns a lock's state as an answer.
    pub(super) fn present(&self, n: u32) -> Enqueued {
        let lock = &self.locks[n];
        if lock.waiting {
            Enqueued::Waiting { id: lock.id }
        } else {
            Enqueued::Granted { id: lock.id, mode: lock.mode, policy: lock.policy }
        }
    }
}

/// Returns the requested policy in normalized form; `None` if the request is invalid.
fn valid(ask: &Enqueue) -> Option<Policy> {
    match (ask.resource.kind, ask.policy) {
        (Kind::Extent, Policy::Extent { gid, .. }) if ask.mode == Mode::Group => (gid != 0).then(|| Policy::group(gid)),
        (Kind::Extent, Policy::Extent { start, end, .. }) => (start <= end).then(|| Policy::extent(start, end)),
        (Kind::Bits, Policy::Bits { bits: must, try_bits }) => {
            let all = must | try_bits;
            let known = all != 0 && all & !bits::ALL == 0;
            (known && ask.mode != Mode::Group).then_some(Policy::Bits { bits: must, try_bits: try_bits & !must })
        }
        (Kind::Flock, Policy::Flock(mut f)) => {
            if f.kind == FlockKind::Flock {
                (f.start, f.end) = (0, u64::MAX);
            }
            let mode = matches!(ask.mode, Mode::Pr | Mode::Pw | Mode::Nl);
            (mode && f.start <= f.end).then_some(Policy::Flock(f))
        }
        _ => None,
    }
}
