//! Who is in whose way.

use std::ops::ControlFlow;

use sheen_wire::ldlm::{self, Kind, Mode, Policy};

use super::{ClientId, Namespace, SERVER, store::Lock};
use crate::nodes::Root;

/// A request, as far as others are concerned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    pub client: ClientId,
    pub mode: Mode,
    pub policy: Policy,
    /// Whose locks are not in the way: those of the client for which the server takes the lock. [`SERVER`]: nobody's.
    pub spare: ClientId,
}

impl Want {
    pub fn of(lock: &Lock) -> Want {
        Want { client: lock.client, mode: lock.mode, policy: lock.policy, spare: lock.spare }
    }

    /// Whether the two cannot be granted at once.
    fn excludes(&self, lock: &Lock) -> bool {
        let same_owner = || match (&self.policy, &lock.policy) {
            (Policy::Flock(a), Policy::Flock(b)) => self.client == lock.client && a.owner == b.owner,
            _ => false,
        };
        if self.spare == lock.client && lock.client != SERVER {
            return false;
        }
        ldlm::conflict(self.mode, &self.policy, lock.mode, &lock.policy) && !same_owner()
    }
}

impl Namespace {
    /// Calls `f` with all locks of `sets`, which are the granted or the waiting ones of a resource of that kind, that are in the way and
    /// have a rank below `limit`, until it breaks.
    fn conflicts(
        &self,
        kind: Kind,
        sets: &[Root],
        want: &Want,
        limit: u64,
        f: &mut impl FnMut(u32) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        for (mode, root) in Mode::ALL.into_iter().zip(sets) {
            let never = Mode::compatible(mode, want.mode) && mode != Mode::Group;
            if root.is_empty() || never {
                continue;
            }
            let mut look = |n| if want.excludes(&self.locks[n]) { f(n) } else { ControlFlow::Continue(()) };
            if kind == Kind::Bits {
                self.nodes.ring(root).filter(|n| self.locks[*n].rank() < limit).try_for_each(look)?;
            } else {
                self.nodes.overlapping(root, want.policy.range(), limit, &mut look)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Calls `f` with all granted locks in the way of which the rank is below `limit`, until it breaks.
    pub(super) fn granted_conflicts(
        &self,
        r: u32,
        want: &Want,
        limit: u64,
        f: &mut impl FnMut(u32) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let res = &self.resources[r];
        self.conflicts(res.name.kind, &res.granted, want, limit, f)
    }

    /// One granted lock in the way.
    pub(super) fn granted_conflict(&self, r: u32, want: &Want) -> Option<u32> {
        let mut found = None;
        let _ = self.granted_conflicts(r, want, u64::MAX, &mut |n| {
            found = Some(n);
            ControlFlow::Break(())
        });
        found
    }

    /// One waiting lock, of those before `seq` in the queue, that is in the way.
    pub(super) fn waiting_conflict(&self, r: u32, want: &Want, seq: u64) -> Option<u32> {
        let res = &self.resources[r];
        if res.waiting_len == 0 {
            return None;
        }
        let mut found = None;
        let _ = self.conflicts(res.name.kind, &res.waiting, want, seq, &mut |n| {
            found = Some(n);
            ControlFlow::Break(())
        });
        found
    }

    /// What a request at `seq` in the queue has to wait for.
    pub(super) fn blocker(&self, r: u32, want: &Want, seq: u64) -> Option<u32> {
        let kind = self.resources[r].name.kind;
        let queues = kind != Kind::Flock && !self.joins_group(r, want) && !self.is_shielded(r, want);
        let before = if queues { self.waiting_conflict(r, want, seq) } else { None };
        before.or_else(|| self.granted_conflict(r, want))
    }

    /// Whether the server acts for a client that has the extent to itself. It does not queue: what waits cannot be granted before that
    /// client's lock goes, and the client may give it back only after what the server does for it.
    fn is_shielded(&self, r: u32, want: &Want) -> bool {
        let res = &self.resources[r];
        if want.spare == SERVER || res.waiting_len == 0 || res.name.kind != Kind::Extent {
            return false;
        }
        let mut modes = [Mode::Ex, Mode::Pw].into_iter().filter(|mode| mode.covers(want.mode));
        let mut theirs = |n: u32| {
            let lock = &self.locks[n];
            let shields = lock.client == want.spare && lock.policy.contains(&want.policy);
            if shields { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let range = want.policy.range();
        modes.any(|m| self.nodes.overlapping(&res.granted[m as usize], range, u64::MAX, &mut theirs).is_break())
    }

    /// Whether the request is for a group that has the object already. It does not queue: its fellows may be waiting for it while others
    /// wait for them.
    fn joins_group(&self, r: u32, want: &Want) -> bool {
        let group = &self.resources[r].granted[Mode::Group as usize];
        want.mode == Mode::Group && !group.is_empty() && self.locks[group.any()].policy == want.policy
    }
}
