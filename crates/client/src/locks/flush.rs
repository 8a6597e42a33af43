//! Cancelling and converting locks.
//!
//! The engine's actions are queued under the table's mutex, and a task carries them out. For all
//! queued locks together it first drops what can be dropped without waiting. A lock that has to
//! wait until the kernel has dropped pages gets a task of its own, so that no lock delays the
//! others. Cancels are batched and bypass the request slots, because other clients wait for them.
//!
//! An inode lock is converted, not cancelled, if its LOOKUP bit was not revoked. Creating files in
//! a directory revokes its UPDATE bit, for example, while its cached name stays valid. Data that
//! another lock guards as well is not dropped.

use std::{sync::Arc, time::Duration};

use parking_lot::MutexGuard;
use sheen_ldlm::client::{Action, Locks};
use sheen_wire::{
    Fid,
    ldlm::{Kind, LockId, Mode, Policy, Resource, bits},
};

use super::{
    owner::Flush,
    table::{LockTable, State},
};

/// How often the unused locks are searched for expired ones, as long as there are unused locks.
const LRU_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of cancels in one request: some 40 kB.
const CANCELS_PER_RPC: usize = 4096;
/// Number of queued cancels from which they are sent in a request of their own.
const CANCELS_WAIT_MAX: usize = 64;

impl LockTable {
    /// Runs `f` on the engine, queues the actions that it requests, and starts the flush task.
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
                Action::Flush { cookie, resource, policy, spare, .. } => {
                    state.flushes.push(Flush::new(cookie, resource, policy, spare));
                }
                Action::Converted { id, bits } => state.converts.push((id, bits)),
                Action::Cancel { id } => state.cancels.push(id),
            }
        }
        state.actions = actions;
        self.begin_work(state);
    }

    /// Cancels the locks on inodes that this client deleted. Locks in use stay until they expire.
    pub fn cancel_deleted(self: &Arc<Self>, inodes: &[Fid]) {
        if inodes.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        let mut actions = Vec::new();
        inodes.iter().for_each(|fid| state.locks.cancel_resource(Resource::bits(*fid), bits::ALL, &mut actions));
        for action in actions {
            if let Action::Flush { cookie, resource, policy, .. } = action {
                state.flushes.push(Flush { deleted: true, ..Flush::new(cookie, resource, policy, 0) });
            }
        }
        if !state.flushes.is_empty() {
            self.begin_work(state);
        }
    }

    /// Converts the locks on an inode so that they lose `bits`. Meant for bits under which nothing
    /// is cached and which the server would revoke next. Returns the locks with their remaining
    /// bits, to send with the request.
    pub fn without(self: &Arc<Self>, inode: Fid, bits: u64) -> Vec<(LockId, u64)> {
        let (resource, part) = (Resource::bits(inode), Policy::bits(bits));
        let (now, mut left) = (self.rt.now(), Vec::new());
        self.done(self.state.lock(), |locks, actions| {
            while let Some(held) = locks.matching(resource, Mode::Pr, &part) {
                let rest = if let Policy::Bits { bits: have, .. } = held.policy { have & !bits } else { 0 };
                let id =
                    if rest != 0 { locks.converted(now, held.cookie, held.mode, Policy::bits(rest)) } else { None };
                locks.release(now, held.cookie, actions);
                let Some(id) = id else { break };
                left.push((id, rest));
            }
        });
        left
    }

    fn begin_work(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        if !std::mem::replace(&mut state.working, true) {
            drop(state);
            let table = self.clone();
            drop(self.rt.spawn("ldlm_flush", async move { table.work().await }));
        }
    }

    /// Carries out the queued actions until the queues are empty. Only one task runs at a time.
    async fn work(self: &Arc<Self>) {
        loop {
            let (flushes, cancels, converts) = {
                let mut state = self.state.lock();
                if state.flushes.is_empty() && state.cancels.is_empty() && state.converts.is_empty() {
                    state.working = false;
                    return;
                }
                let mut flushes = std::mem::take(&mut state.flushes);
                for flush in flushes.iter_mut().filter(|flush| flush.resource.kind == Kind::Bits) {
                    let guarded = flush.keep | state.locks.guarded_bits(flush.resource);
                    flush.policy = Policy::bits(flush.bits() & !guarded);
                }
                (flushes, std::mem::take(&mut state.cancels), std::mem::take(&mut state.converts))
            };
            let Some(owner) = self.owner() else {
                self.state.lock().working = false;
                return;
            };
            let mut ready = Vec::with_capacity(flushes.len());
            for (flush, waits) in flushes.iter().zip(owner.drop_cached(&flushes)) {
                let Some(waits) = waits else {
                    ready.push(*flush);
                    continue;
                };
                let (table, flush) = (self.clone(), *flush);
                drop(self.rt.spawn("ldlm_invalidate", async move {
                    waits.await;
                    table.cancelled(&[flush], Vec::new(), Vec::new());
                }));
            }
            self.cancelled(&ready, cancels, converts);
        }
    }

    /// Cancels or converts locks whose cached data has been dropped. The requests are sent in the
    /// order of the calls; their replies are not awaited.
    fn cancelled(self: &Arc<Self>, flushes: &[Flush], mut ids: Vec<LockId>, mut converts: Vec<(LockId, u64)>) {
        {
            let mut state = self.state.lock();
            let now = self.rt.now();
            for Flush { cookie, resource, keep, .. } in flushes {
                let rest = Policy::bits(*keep);
                if *keep != 0 && !state.locks.covered(*resource, Mode::Pr, &rest) {
                    let id = state.locks.converted(now, *cookie, Mode::Pr, rest);
                    converts.extend(id.map(|id| (id, *keep)));
                } else {
                    ids.extend(state.locks.cancelled(*cookie));
                }
            }
            if !self.travels || !ids.is_empty() || state.locks.cancels_queued() >= CANCELS_WAIT_MAX {
                ids.extend(state.locks.take_cancels(CANCELS_PER_RPC));
            }
        }
        let Some(owner) = self.owner() else { return };
        let (mut ids, mut converts) = (ids.chunks(CANCELS_PER_RPC), converts.chunks(CANCELS_PER_RPC));
        loop {
            let (ids, converts) = (ids.next().unwrap_or_default(), converts.next().unwrap_or_default());
            if ids.is_empty() && converts.is_empty() {
                return;
            }
            drop(self.rt.spawn("ldlm_cancel", owner.cancel(ids.to_vec(), converts.to_vec())));
        }
    }

    /// Starts the task that cancels expired unused locks, and cancels unused locks beyond
    /// `lru_size`.
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
