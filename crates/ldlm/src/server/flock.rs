//! Locks of programs: fcntl(2) and flock(2).
//!
//! They guard no cache, so nobody is asked to give one back. Contract, as POSIX and Linux have it:
//!
//! * fcntl: locks belong to an owner and are a map from bytes to modes. Locking replaces what the
//!   owner had in the range: neighbours of one mode become one lock, others are cut. Unlocking
//!   (mode NL) cuts. A request that would wait in a circle is refused (EDEADLK).
//! * flock: one lock an owner on the whole file. Changing the mode first gives the old one up, and
//!   may then have to wait, or fail without it.
//! * A request waits only for granted locks; when one goes, those that wait are tried in the order
//!   of their arrival.
//!
//! A lock that absorbs its owner's neighbours replaces them: it has its own handle and cookie,
//! theirs are gone. Locking again what one holds is harmless, so a client that missed an answer
//! simply asks again.

use std::ops::ControlFlow;

use rustc_hash::FxHashSet;
use sheen_rt::Instant;
use sheen_wire::{
    Errno,
    ldlm::{Cookie, Enqueue, Enqueued, Flock, FlockKind, LockId, Mode, Policy},
};

use super::{Action, ClientId, Namespace, SERVER, conflict::Want, store::New};

/// Edges of the waits-for graph that are followed. A circle longer than that is not found: its
/// programs wait until interrupted.
const DEADLOCK_STEPS_MAX: usize = 16384;
/// Locks that one request adds at most: itself, and the half of one that it cuts in two.
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
        // Carving may have emptied the resource, and freed it.
        let r = self.resource(ask.resource);
        let n = self.make(
            now,
            New {
                spare: SERVER,
                client: want.client,
                cookie: ask.cookie,
                resource: r,
                mode: ask.mode,
                policy: Policy::Flock(policy),
                waiting: blocker.is_some(),
                no_expand: true,
                align: 0,
            },
        );
        if let Some(b) = blocker {
            self.watch(n, b);
        }
        self.settle(now, actions);
        self.present(n)
    }

    /// Unlocks the range. Returns what is wrong, if something is.
    fn unlock(
        &mut self,
        now: Instant,
        known: Option<u32>,
        want: &Want,
        f: Flock,
        actions: &mut Vec<Action>,
    ) -> Option<Enqueued> {
        let r = known?;
        // Unlocking all needs no room: whoever has too many locks must be able to get rid of them.
        let whole = f.start == 0 && f.end == u64::MAX;
        if !whole && !self.room(want.client, 1) {
            return Some(Enqueued::Refused(Errno::ENOLCK));
        }
        self.carve(now, r, want.client, f, None);
        self.settle(now, actions);
        None
    }

    /// The granted locks of the owner in or beside the range.
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

    /// Cuts the range out of what its owner holds. `mode`: a lock in this mode comes there; the
    /// owner's own of the same mode that it touches become part of it. Returns the new lock's
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

    /// Takes the range of `f` out of lock `n`, which is `old` and touches it.
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
        self.disturb(n);
        let (Some(_), Some(right)) = (left, right) else { return };
        let lock = &self.locks[n];
        let new = New {
            spare: SERVER,
            client: lock.client,
            cookie: Cookie::NONE,
            resource: lock.resource,
            mode: lock.mode,
            policy: Policy::Flock(right),
            waiting: false,
            no_expand: true,
            align: 0,
        };
        self.make(now, new);
    }

    /// Whether one of those that the request of `owner` would wait for waits, over whatever others,
    /// for the owner itself.
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
