//! Letting go of locks.
//!
//! What the engine asks for is noted under the table's lock and done on a task: first all that needs no waiting, for all locks that are
//! to go; then each that had to wait (for the kernel to drop pages) by itself, so that none holds up the others. Cancels travel
//! together, past the requests that wait for a slot, because others wait for them.

use std::sync::Arc;

use parking_lot::MutexGuard;
use sheen_ldlm::client::{Action, Locks};
use sheen_wire::ldlm::{Cookie, LockId, Policy, Resource};

use super::{LRU_INTERVAL, LockTable, State};

/// Most cancels in one request: some 40 kB.
const CANCELS_PER_RPC: usize = 4096;
/// From so many cancels on that wait for a request to travel with, they are sent by themselves.
const CANCELS_WAIT_MAX: usize = 64;

/// A lock that is to go.
#[derive(Clone, Copy, Debug)]
pub struct Flush {
    /// Its handle.
    pub cookie: Cookie,
    /// What it is on.
    pub resource: Resource,
    /// Its part.
    pub policy: Policy,
}

impl LockTable {
    /// Lets `f` act on the locks, notes what it wants done, and sees to it that it will be.
    pub(super) fn done(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        f: impl FnOnce(&mut Locks, &mut Vec<Action>),
    ) {
        let State { locks, actions, .. } = &mut *state;
        f(locks, actions);
        self.age(&mut state);
        if state.actions.is_empty() {
            return;
        }
        let mut actions = std::mem::take(&mut state.actions);
        for action in actions.drain(..) {
            match action {
                Action::Flush { cookie, resource, policy, .. } => {
                    state.flushes.push(Flush { cookie, resource, policy });
                }
                Action::Cancel { id } => state.cancels.push(id),
            }
        }
        state.actions = actions;
        if !std::mem::replace(&mut state.working, true) {
            drop(state);
            let table = self.clone();
            drop(self.rt.spawn("ldlm_flush", async move { table.work().await }));
        }
    }

    /// Done by one task at a time, until there is nothing left to do.
    async fn work(self: &Arc<Self>) {
        loop {
            let (flushes, cancels) = {
                let mut state = self.state.lock();
                if state.flushes.is_empty() && state.cancels.is_empty() {
                    state.working = false;
                    return;
                }
                (std::mem::take(&mut state.flushes), std::mem::take(&mut state.cancels))
            };
            let Some(owner) = self.owner() else {
                self.state.lock().working = false;
                return;
            };
            let mut gone = Vec::with_capacity(flushes.len());
            for (flush, waits) in flushes.iter().zip(owner.drop_cached(&flushes)) {
                let Some(waits) = waits else {
                    gone.push(flush.cookie);
                    continue;
                };
                let (table, cookie) = (self.clone(), flush.cookie);
                drop(self.rt.spawn("ldlm_invalidate", async move {
                    waits.await;
                    table.cancelled(&[cookie], Vec::new());
                }));
            }
            self.cancelled(&gone, cancels);
        }
    }

    /// What these locks guarded is dropped. The requests are on their way in the order of the calls; nobody waits for the answers.
    fn cancelled(self: &Arc<Self>, cookies: &[Cookie], mut ids: Vec<LockId>) {
        {
            let mut state = self.state.lock();
            ids.extend(cookies.iter().filter_map(|cookie| state.locks.cancelled(*cookie)));
            if !self.travels || !ids.is_empty() || state.locks.cancels_queued() >= CANCELS_WAIT_MAX {
                ids.extend(state.locks.take_cancels(CANCELS_PER_RPC));
            }
        }
        let Some(owner) = self.owner().filter(|_| !ids.is_empty()) else { return };
        for ids in ids.chunks(CANCELS_PER_RPC) {
            drop(self.rt.spawn("ldlm_cancel", owner.cancel(ids.to_vec())));
        }
    }

    /// Sees to it that unused locks do not get too old or too many, as long as there are any.
    fn age(self: &Arc<Self>, state: &mut State) {
        let unused = state.locks.stats().lock_unused_count;
        if unused > state.locks.tunables().lru_size as u64 {
            let State { locks, actions, .. } = state;
            locks.shrink(self.rt.now(), actions);
        }
        if unused == 0 || std::mem::replace(&mut state.aging, true) {
            return;
        }
        let (weak, rt) = (Arc::downgrade(self), self.rt.clone());
        drop(self.rt.spawn("ldlm_age", async move {
            let mut pause = LRU_INTERVAL;
            loop {
                rt.sleep(pause).await;
                let Some(table) = weak.upgrade() else { return };
                let mut state = table.state.lock();
                if state.locks.stats().lock_unused_count == 0 {
                    state.aging = false;
                    return;
                }
                let now = rt.now();
                pause = state.locks.next_expiry().map_or(LRU_INTERVAL, |at| at.since(now).max(LRU_INTERVAL));
                table.done(state, |locks, actions| locks.shrink(now, actions));
            }
        }));
    }
}
