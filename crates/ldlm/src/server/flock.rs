//! Flock locks: fcntl(2) and flock(2) locks of programs.
//!
//! They guard no cache, so their holders get no blocking callbacks. Contract, as in POSIX and
//! Linux:
//!
//! * fcntl: locks belong to an owner and map bytes to modes. Locking replaces the owner's locks in
//!   the range: adjacent locks of the same mode are merged, others are cut. Unlocking (mode NL)
//!   cuts. A request that would close a cycle of waiting owners is refused (EDEADLK).
//! * flock: each owner has one lock on the whole file. Changing the mode first drops the old lock.
//!   Then the request may have to wait, or fail and leave the owner without a lock.
//! * A request waits only for granted locks. When one is dropped, its waiters are tried in the
//!   order of their arrival.
//!
//! A lock that absorbs adjacent locks of its owner replaces them: it has its own handle and cookie,
//! and theirs become invalid. Locking a range again that the owner holds is harmless, so a client
//! that missed a reply repeats the request.

use std::ops::ControlFlow;

use rustc_hash::FxHashSet;
use sheen_rt::Instant;
use sheen_wire::{
    Errno,
    ldlm::{Enqueue, Enqueued, Flock, FlockKind, LockId, Mode, Policy},
};

use super::{Action, ClientId, Namespace, conflict::Want, state::Lock};

/// Most edges of the waits-for graph that are followed. A longer cycle is not found: its programs
/// wait until they are interrupted.
const DEADLOCK_STEPS_MAX: usize = 16384;
/// Most locks that one request adds: itself, and one half of a lock that it cuts in two.
const ADDS_MAX: usize = 2;

impl Namespace {
    pub(super) fn enqueue_flock(
        &mut self,
        now: Instant,
        ask: &Enqueue,
        want: &Want,
        actions: &mut Vec<Action>,
    ) -> Enqueued {
        let Policy::Flock(f) = want.policy else { return Enqueued::Refused(Errno::EINVAL) };
        let known = self.by_name.get(&ask.resource).copied();
        let nothing = Enqueued::Granted { id: LockId::NONE, mode: ask.mode, policy: want.policy };
        if ask.flags.test {
            let by = known.and_then(|r| self.granted_conflict(r, want)).map(|n| self.locks[n].conflict());
            return by.map_or(nothing, |by| Enqueued::WouldBlock { by });
        }
        if ask.mode == Mode::Nl {
            return self.unlock(now, known, want, f, actions).unwrap_or(nothing);
        }
        if f.kind == FlockKind::Flock
            && let Some(r) = known
        {
            let own = self.own(r, want.client, &f);
            if let Some(same) = own.iter().find(|n| self.locks[**n].mode == ask.mode) {
                return self.present(*same);
            }
            own.into_iter().for_each(|n| self.drop_lock(n));
            self.settle(now, actions);
        }
        if !self.room(want.client, ADDS_MAX) {
            return Enqueued::Refused(Errno::ENOLCK);
        }
        let r = self.resource(ask.resource);
        let blocker = self.granted_conflict(r, want);
        if let Some(b) = blocker {
            if ask.flags.nowait {
                return Enqueued::WouldBlock { by: self.locks[b].conflict() };
            }
            if f.kind == FlockKind::Posix && self.deadlock(r, want, f.owner) {
                return Enqueued::Deadlock;
            }
        }
        let policy = if blocker.is_some() { f } else { self.carve(now, r, want.client, f, Some(ask.mode)) };
        // Carving may have emptied and freed the resource.
        let r = self.resource(ask.resource);
        let n = self.make(Lock {
            cookie: ask.cookie,
            waiting: blocker.is_some(),
            ..Lock::new(now, want.client, r, ask.mode, Policy::Flock(policy))
        });
        if let Some(b) = blocker {
            self.watch(n, b);
        }
        self.settle(now, actions);
        self.present(n)
    }

    /// Unlocks the range. Returns an error answer if that is refused.
    fn unlock(
        &mut self,
        now: Instant,
        known: Option<u32>,
        want: &Want,
        f: Flock,
        actions: &mut Vec<Action>,
    ) -> Option<Enqueued> {
        let r = known?;
        // Unlocking the whole file needs no room: an owner at the limit must be able to drop locks.
        let whole = f.start == 0 && f.end == u64::MAX;
        if !whole && !self.room(want.client, 1) {
            return Some(Enqueued::Refused(Errno::ENOLCK));
        }
        self.carve(now, r, want.client, f, None);
        self.settle(now, actions);
        None
    }

    /// Returns the owner's granted locks that overlap the range or are adjacent to it.
    fn own(&self, r: u32, client: ClientId, f: &Flock) -> Vec<u32> {
        let mut found = Vec::new();
        let range = (f.start.saturating_sub(1), f.end.saturating_add(1));
        for mode in [Mode::Pr, Mode::Pw] {
            let root = &self.resources[r].granted[mode as usize];
            let _ = self.nodes.overlapping(root, range, u64::MAX, &mut |n| {
                let lock = &self.locks[n];
                if lock.client == client
                    && matches!(lock.policy, Policy::Flock(o) if o.owner == f.owner && o.kind == f.kind)
                {
                    found.push(n);
                }
                ControlFlow::Continue(())
            });
        }
        found
    }

    /// Cuts the range out of the locks of its owner. `mode`: mode of the new lock there, which
    /// absorbs the owner's overlapping and adjacent locks of the same mode. Returns the new lock's
    /// range.
    pub(super) fn carve(&mut self, now: Instant, r: u32, client: ClientId, f: Flock, mode: Option<Mode>) -> Flock {
        let mut grown = f;
        for n in self.own(r, client, &f) {
            let lock = &self.locks[n];
            let Policy::Flock(old) = lock.policy else { continue };
            if mode == Some(lock.mode) {
                (grown.start, grown.end) = (grown.start.min(old.start), grown.end.max(old.end));
                self.drop_lock(n);
            } else if old.start <= f.end && f.start <= old.end {
                self.cut(now, n, old, f);
            }
        }
        grown
    }

    /// Takes the range of `f` out of lock `n`, whose policy is `old` and overlaps it.
    fn cut(&mut self, now: Instant, n: u32, old: Flock, f: Flock) {
        let left = (old.start < f.start).then(|| Flock { end: f.start - 1, ..old });
        let right = (old.end > f.end).then(|| Flock { start: f.end + 1, ..old });
        let Some(rest) = left.or(right) else {
            self.drop_lock(n);
            return;
        };
        self.leave(n);
        self.locks[n].policy = Policy::Flock(rest);
        self.enter(n);
        self.schedule_watchers(n);
        let (Some(_), Some(right)) = (left, right) else { return };
        let lock = &self.locks[n];
        let right = Lock::new(now, lock.client, lock.resource, lock.mode, Policy::Flock(right));
        self.make(right);
    }

    /// Whether waiting would close a cycle: a holder that the request of `owner` would wait for
    /// waits, directly or through others, for that owner.
    fn deadlock(&self, r: u32, want: &Want, owner: u64) -> bool {
        let me = (want.client, owner);
        let mut seen = FxHashSet::default();
        let mut todo = vec![(r, *want)];
        let mut steps = 0;
        while let Some((r, want)) = todo.pop() {
            let mut circle = false;
            let _ = self.granted_conflicts(r, &want, u64::MAX, &mut |n| {
                let lock = &self.locks[n];
                let Policy::Flock(f) = lock.policy else { return ControlFlow::Continue(()) };
                let holder = (lock.client, f.owner);
                steps += 1;
                circle = holder == me;
                if circle || steps > DEADLOCK_STEPS_MAX {
                    return ControlFlow::Break(());
                }
                if seen.insert(holder) {
                    let waits = self.flock_waits.get(&holder).into_iter().flatten();
                    let posix =
                        |w: &&u32| matches!(self.locks[**w].policy, Policy::Flock(f) if f.kind == FlockKind::Posix);
                    todo.extend(waits.filter(posix).map(|w| (self.locks[*w].resource, Want::of(&self.locks[*w]))));
                }
                ControlFlow::Continue(())
            });
            if circle {
                return true;
            }
            if steps > DEADLOCK_STEPS_MAX {
                return false;
            }
        }
        false
    }
}
