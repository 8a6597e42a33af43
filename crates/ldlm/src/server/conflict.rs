//! Lock conflicts: which granted or waiting locks exclude a request.

use std::ops::ControlFlow;

use sheen_wire::ldlm::{self, Kind, MODES, Mode, Policy};

use super::{ClientId, Namespace, SERVER, state::Lock};
use crate::nodes::Root;

/// The properties of a request that matter for conflicts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    pub client: ClientId,
    pub mode: Mode,
    pub policy: Policy,
    /// Client whose locks do not conflict: the one for which the server takes the lock. [`SERVER`]:
    /// there is none.
    pub spare: ClientId,
}

impl Want {
    pub fn of(lock: &Lock) -> Want {
        Want { client: lock.client, mode: lock.mode, policy: lock.policy, spare: lock.spare }
    }

    /// Whether the request and the lock cannot be granted at once.
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
    /// Calls `f` for each lock in `sets` that conflicts with `want` and has a rank below `limit`,
    /// until `f` breaks. `sets` are the granted or the waiting locks of a resource of kind `kind`.
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

    /// Calls `f` for each granted lock that conflicts with `want` and has a rank below `limit`,
    /// until `f` breaks.
    pub(super) fn granted_conflicts(
        &self,
        r: u32,
        want: &Want,
        limit: u64,
        f: &mut impl FnMut(u32) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let res = &self.resources[r];
        // GROUP is the last of the modes. All granted GROUP locks are of one group.
        let modes = if self.acts_in_group(r, want) { MODES - 1 } else { MODES };
        self.conflicts(res.name.kind, &res.granted[..modes], want, limit, f)
    }

    /// Returns a granted lock that conflicts with `want`.
    pub(super) fn granted_conflict(&self, r: u32, want: &Want) -> Option<u32> {
        let mut found = None;
        let _ = self.granted_conflicts(r, want, u64::MAX, &mut |n| {
            found = Some(n);
            ControlFlow::Break(())
        });
        found
    }

    /// Returns a waiting lock before `seq` in the queue that conflicts with `want`.
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

    /// Returns a lock that a request at `seq` in the queue has to wait for.
    pub(super) fn blocker(&self, r: u32, want: &Want, seq: u64) -> Option<u32> {
        let kind = self.resources[r].name.kind;
        let queues = kind != Kind::Flock && !self.joins_group(r, want) && !self.is_shielded(r, want);
        let before = if queues { self.waiting_conflict(r, want, seq) } else { None };
        before.or_else(|| self.granted_conflict(r, want))
    }

    /// Returns a waiting lock that waits for the granted lock `n`.
    pub(super) fn waiting_for(&self, n: u32) -> Option<u32> {
        let (lock, res) = (&self.locks[n], &self.resources[self.locks[n].resource]);
        if res.waiting_len == 0 {
            return None;
        }
        let mut found = None;
        let _ = self.conflicts(res.name.kind, &res.waiting, &Want::of(lock), u64::MAX, &mut |w| {
            let want = Want::of(&self.locks[w]);
            let fellow = || lock.mode == Mode::Group && self.acts_in_group(lock.resource, &want);
            if !want.excludes(lock) || fellow() {
                return ControlFlow::Continue(());
            }
            found = Some(w);
            ControlFlow::Break(())
        });
        found
    }

    /// Whether the server acts for a client that has the extent to itself. Such a request does not
    /// queue. The waiting locks cannot be granted before that client's locks are cancelled, and the
    /// client may cancel them only after this operation.
    fn is_shielded(&self, r: u32, want: &Want) -> bool {
        let res = &self.resources[r];
        if want.spare == SERVER || res.waiting_len == 0 || res.name.kind != Kind::Extent {
            return false;
        }
        self.acts_in_group(r, want) || self.acts_under_locks(r, want)
    }

    /// Whether the server acts for a client that holds a GROUP lock on the object. Then the locks
    /// of the other members of the group do not conflict, as they do not conflict with each other.
    fn acts_in_group(&self, r: u32, want: &Want) -> bool {
        let group = &self.resources[r].granted[Mode::Group as usize];
        if want.spare == SERVER || group.is_empty() {
            return false;
        }
        let mut theirs = |n: u32| {
            if self.locks[n].client == want.spare { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        self.nodes.overlapping(group, (0, u64::MAX), u64::MAX, &mut theirs).is_break()
    }

    /// Whether the server acts for a client whose granted locks, one or several adjacent ones,
    /// cover the request.
    ///
    /// PR locks count as well, except for a request in EX. A program may have modified mapped pages
    /// that were read under a PR lock, and the client flushes them before it cancels the lock.
    fn acts_under_locks(&self, r: u32, want: &Want) -> bool {
        let (mut from, end) = want.policy.range();
        let mut whole = false;
        loop {
            let before = from;
            let shields = |mode: &Mode| mode.covers(want.mode) || *mode == Mode::Pr && want.mode != Mode::Ex;
            for mode in [Mode::Ex, Mode::Pw, Mode::Pr].into_iter().filter(shields) {
                let root = &self.resources[r].granted[mode as usize];
                let _ = self.nodes.overlapping(root, (from, end), u64::MAX, &mut |n| {
                    let lock = &self.locks[n];
                    let (first, last) = lock.policy.range();
                    // The locks come in the order of their starts.
                    whole |= lock.client == want.spare && first <= from && last >= end;
                    if whole || first > from {
                        return ControlFlow::Break(());
                    }
                    if lock.client == want.spare {
                        from = from.max(last + 1);
                    }
                    ControlFlow::Continue(())
                });
            }
            if whole || from == before {
                return whole;
            }
        }
    }

    /// Whether the request joins a group that holds the object already. Such a request does not
    /// queue: members of the group may wait for it, while waiting locks wait for the members.
    fn joins_group(&self, r: u32, want: &Want) -> bool {
        let group = &self.resources[r].granted[Mode::Group as usize];
        want.mode == Mode::Group && !group.is_empty() && self.locks[group.any()].policy == want.policy
    }
}
