//! Waiting requests, and the locks that each of them waits for, for administrators.

use std::{collections::BinaryHeap, ops::ControlFlow};

use sheen_rt::Instant;
use sheen_wire::ldlm::Conflict;

use super::{ClientId, Info, Namespace, conflict::Want};
use crate::slab::NIL;

/// A waiting request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaitingLock {
    /// The requested lock.
    pub info: Info,
    /// Client for whose operation the server requested it; [`SERVER`](super::SERVER): there is
    /// none.
    pub spare: ClientId,
    /// Time of the request.
    pub since: Instant,
    /// The granted locks that conflict. If there are none, an earlier request that waits.
    pub blocking: Vec<BlockingLock>,
}

/// A lock for which a request waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockingLock {
    /// Holder, handle, mode and part.
    pub lock: Conflict,
    /// Whether it is granted. Otherwise it waits as well.
    pub granted: bool,
    /// Time of its grant or, if it waits, of its request.
    pub since: Instant,
    /// Time of the blocking callback, or of the last I/O under the lock after it.
    pub asked: Option<Instant>,
}

impl Namespace {
    /// Returns the `max` oldest waiting requests, oldest first, each with at most `blocking_max`
    /// locks that it waits for. Looks at all waiting requests, but sorts no more than `max`.
    pub fn waits(&self, max: usize, blocking_max: usize) -> Vec<WaitingLock> {
        // The youngest of the oldest is on top.
        let mut oldest: BinaryHeap<(u64, u32)> = BinaryHeap::new();
        for r in &self.waited {
            let res = &self.resources[*r];
            for root in &res.waiting {
                self.each(res, root, &mut |n| {
                    oldest.push((self.locks[n].seq, n));
                    if oldest.len() > max {
                        oldest.pop();
                    }
                });
            }
        }
        oldest.into_sorted_vec().into_iter().map(|(_, n)| self.waiting_lock(n, blocking_max)).collect()
    }

    fn waiting_lock(&self, n: u32, blocking_max: usize) -> WaitingLock {
        let lock = &self.locks[n];
        let mut blocking = Vec::new();
        let _ = self.granted_conflicts(lock.resource, &Want::of(lock), u64::MAX, &mut |b| {
            if blocking.len() >= blocking_max {
                return ControlFlow::Break(());
            }
            blocking.push(self.blocking_lock(b));
            ControlFlow::Continue(())
        });
        if blocking.is_empty() && lock.watching != NIL {
            blocking.push(self.blocking_lock(lock.watching));
        }
        // The time of the grant is that of the request until the lock is granted.
        WaitingLock { info: self.info(n), spare: lock.spare, since: lock.granted_at, blocking }
    }

    fn blocking_lock(&self, n: u32) -> BlockingLock {
        let lock = &self.locks[n];
        BlockingLock { lock: lock.conflict(), granted: !lock.waiting, since: lock.granted_at, asked: lock.asked }
    }
}
