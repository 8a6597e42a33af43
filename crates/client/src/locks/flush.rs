//! Letting go of locks.
//!
//! What the engine asks for is noted under the table's lock and done on a task: first all that
//! needs no waiting, for all locks that are to go; then each that had to wait (for the kernel to
//! drop pages) by itself, so that none holds up the others. Cancels travel together, past the
//! requests that wait for a slot, because others wait for them.
//!
//! Of a lock on an inode only those bits go that were asked for, as long as it keeps LOOKUP: who
//! creates files in a directory wants its UPDATE, and the names in it stay good. What another lock
//! guards as well is not dropped.

use std::sync::Arc;

use parking_lot::MutexGuard;
use sheen_ldlm::client::{Action, Locks};
use sheen_wire::{
    Fid,
    ldlm::{Cookie, Kind, LockId, Mode, Policy, Resource, bits},
};

use super::{LRU_INTERVAL, LockTable, State};

/// Most cancels in one request: some 40 kB.
const CANCELS_PER_RPC: usize = 4096;
/// From so many cancels on that wait for a request to travel with, they are sent by themselves.
const CANCELS_WAIT_MAX: usize = 64;

/// A lock that is to go, or of which a part is.
#[derive(Clone, Copy, Debug)]
pub struct Flush {
    /// Its handle.
    pub cookie: Cookie,
    /// What it is on.
    pub resource: Resource,
    /// The part of which nothing is guarded any more when it has gone.
    pub policy: Policy,
    /// What it is on is no more, so nobody knows a name of it.
    pub gone: bool,
    /// Bits that stay.
    keep: u64,
}

impl Flush {
    fn new(cookie: Cookie, resource: Resource, policy: Policy, spare: u64) -> Flush {
        let keep = if spare & bits::LOOKUP != 0 { spare } else { 0 };
        Flush { cookie, resource, policy, gone: false, keep }
    }

    /// The bits of an inode of which nothing is guarded any more.
    pub fn bits(&self) -> u64 {
        if let Policy::Bits { bits, .. } = self.policy { bits } else { 0 }
    }
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

    /// Gives up the locks on inodes that this client itself made go. Those in use at the moment
    /// stay until they are old.
    pub fn gone(self: &Arc<Self>, inodes: &[Fid]) {
        if inodes.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        let mut actions = Vec::new();
        inodes.iter().for_each(|fid| state.locks.cancel_resource(Resource::bits(*fid), bits::ALL, &mut actions));
        for action in actions {
            if let Action::Flush { cookie, resource, policy, .. } = action {
                state.flushes.push(Flush { gone: true, ..Flush::new(cookie, resource, policy, 0) });
            }
        }
        if !state.flushes.is_empty() {
            self.begin_work(state);
        }
    }

    /// Gives up bits of an inode under which nothing is kept, and that the server would ask for
    /// next. What is left of the locks, to travel with the request.
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

    /// Done by one task at a time, until there is nothing left to do.
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
            let mut gone = Vec::with_capacity(flushes.len());
            for (flush, waits) in flushes.iter().zip(owner.drop_cached(&flushes)) {
                let Some(waits) = waits else {
                    gone.push(*flush);
                    continue;
                };
                let (table, flush) = (self.clone(), *flush);
                drop(self.rt.spawn("ldlm_invalidate", async move {
                    waits.await;
                    table.cancelled(&[flush], Vec::new(), Vec::new());
                }));
            }
            self.cancelled(&gone, cancels, converts);
        }
    }

    /// What these locks guarded is dropped. The requests are on their way in the order of the
    /// calls; nobody waits for the answers.
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
