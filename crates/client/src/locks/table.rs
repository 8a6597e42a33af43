//! The lock table of one target: lookup of locks, requests for locks, grants and callbacks.

use std::{
    collections::BTreeMap,
    fmt,
    pin::pin,
    sync::{Arc, OnceLock, Weak},
};

use parking_lot::Mutex;
use sheen_ldlm::client::{Action, Held, Locks, Stats, Tunables};
use sheen_rt::Rt;
use sheen_wire::{
    ast::Callback,
    ldlm::{Cookie, Enqueued, Kind, LockId, Mode, Policy, Resource},
};
use tokio::sync::Notify;

use super::{
    flock::Flocks,
    handles::{self, Range},
    owner::{Flush, Owner},
};

/// The lock table of one target. See [`super`].
pub struct LockTable {
    pub(super) rt: Rt,
    pub(super) travels: bool,
    pub(super) state: Mutex<State>,
    owner: OnceLock<Weak<dyn Owner>>,
    /// Signals that a group lock was granted.
    grouped: Notify,
    /// File locks of programs.
    pub flocks: Flocks,
}

pub(super) struct State {
    pub(super) locks: Locks,
    /// Actions that the engine requested. A scratch buffer, empty between calls.
    pub(super) actions: Vec<Action>,
    /// Locks to cancel or convert, whose cached data is to be dropped first.
    pub(super) flushes: Vec<Flush>,
    /// Cancels to send.
    pub(super) cancels: Vec<LockId>,
    /// Converts to send: locks with the bits that they retain.
    pub(super) converts: Vec<(LockId, u64)>,
    /// Cancels of superfluous locks. They can wait for another request to travel with.
    pub(super) spare: Vec<LockId>,
    /// Whether the flush task is running.
    pub(super) working: bool,
    /// Whether the task that cancels expired locks is running.
    pub(super) aging: bool,
    /// Handle ranges of requests in flight, by first handle.
    pub(super) ranges: BTreeMap<u64, Range>,
    pub(super) last_handle: u64,
}

impl fmt::Debug for LockTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockTable").field("stats", &self.stats()).finish()
    }
}

/// A reference to a lock in use. If the lock has been revoked, dropping the last reference cancels
/// it.
pub struct LockRef {
    pub(super) table: Arc<LockTable>,
    pub(super) cookie: Cookie,
    policy: Policy,
}

impl LockRef {
    /// Refers to a lock that the engine has just put in use.
    pub(super) fn new(table: Arc<LockTable>, held: &Held) -> LockRef {
        LockRef { table, cookie: held.cookie, policy: held.policy }
    }

    /// Returns this client's handle of the lock.
    pub fn cookie(&self) -> Cookie {
        self.cookie
    }

    /// Returns the first and the last byte of an extent lock.
    pub fn range(&self) -> (u64, u64) {
        self.policy.range()
    }

    /// Whether the target has revoked the lock (another client waits for it), or the lock was lost.
    pub fn is_wanted(&self) -> bool {
        self.table.state.lock().locks.is_wanted(self.cookie)
    }

    /// Returns the bits of an inode lock; 0 for other locks.
    pub fn bits(&self) -> u64 {
        if let Policy::Bits { bits, .. } = self.policy { bits } else { 0 }
    }
}

impl fmt::Debug for LockRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockRef({:#x} {:?})", self.cookie.0, self.policy)
    }
}

impl Drop for LockRef {
    fn drop(&mut self) {
        let now = self.table.rt.now();
        self.table.with(|locks, actions| locks.release(now, self.cookie, actions));
    }
}

impl LockTable {
    /// Creates an empty table. `travels`: cancels that are not urgent travel with other requests
    /// ([`LockTable::take_cancels`]).
    pub fn new(rt: &Rt, travels: bool) -> Arc<LockTable> {
        let state = State {
            locks: Locks::new(Tunables::default()),
            actions: Vec::new(),
            flushes: Vec::new(),
            cancels: Vec::new(),
            converts: Vec::new(),
            spare: Vec::new(),
            working: false,
            aging: false,
            ranges: BTreeMap::new(),
            last_handle: 0,
        };
        let (state, owner, flocks) = (Mutex::new(state), OnceLock::new(), Flocks::default());
        Arc::new(LockTable { rt: rt.clone(), travels, state, owner, grouped: Notify::new(), flocks })
    }

    /// Sets the owner of the locks. Call it once, before the first lock.
    pub fn set_owner(&self, owner: Weak<dyn Owner>) {
        // A second call would be a bug in this crate; the first owner stays.
        let _ = self.owner.set(owner);
    }

    /// Returns a held lock (PR, or a mode that permits more) that covers `policy`.
    pub fn matching(self: &Arc<Self>, resource: Resource, policy: &Policy) -> Option<LockRef> {
        self.matching_in(resource, Mode::Pr, policy)
    }

    /// Returns a held lock that permits `mode` on `policy`. A group lock counts as PW, but not as
    /// PR: data read in a group is not cached.
    pub fn matching_in(self: &Arc<Self>, resource: Resource, mode: Mode, policy: &Policy) -> Option<LockRef> {
        let mut state = self.state.lock();
        let held = match state.locks.matching(resource, mode, policy) {
            None if mode == Mode::Pw => state.locks.in_group(resource),
            held => held,
        }?;
        Some(LockRef::new(self.clone(), &held))
    }

    /// Returns the group lock held on an object.
    pub fn in_group(self: &Arc<Self>, resource: Resource) -> Option<LockRef> {
        let held = self.state.lock().locks.in_group(resource)?;
        Some(LockRef::new(self.clone(), &held))
    }

    /// Resolves when this client holds a group lock on one of these objects. Until it leaves the
    /// group, the target grants it no other lock there.
    pub async fn joins_group(self: &Arc<Self>, objects: &[Resource]) {
        loop {
            let mut grouped = pin!(self.grouped.notified());
            grouped.as_mut().enable();
            if objects.iter().any(|object| self.in_group(*object).is_some()) {
                return;
            }
            grouped.await;
        }
    }

    /// Whether [`LockTable::matching`] would find a lock.
    pub fn covered(&self, resource: Resource, policy: &Policy) -> bool {
        self.state.lock().locks.covered(resource, Mode::Pr, policy)
    }

    /// Returns the lock `cookie` if it is still held, covers `policy` and was not revoked. Then the
    /// data that was read under it is still valid.
    pub fn again(self: &Arc<Self>, resource: Resource, policy: &Policy, cookie: Cookie) -> Option<LockRef> {
        self.matching(resource, policy).filter(|lock| lock.cookie == cookie)
    }

    /// Whether lock `cookie` is still held on this part, even if it has been revoked.
    pub fn is_held(&self, cookie: Cookie, policy: &Policy) -> bool {
        let held = self.state.lock().locks.held(cookie);
        held.is_some_and(|held| held.mode == Mode::Group || held.policy.contains(policy))
    }

    /// Registers a lock request that is about to be sent. The returned guard takes the reply.
    pub fn begin(self: &Arc<Self>, resource: Resource, mode: Mode, policy: Policy) -> PendingEnqueue {
        let cookie = self.state.lock().locks.begin(resource, mode, policy);
        PendingEnqueue { table: self.clone(), cookie, resource, done: false }
    }

    /// Returns the handles of cancelled locks, to travel with another request.
    pub fn take_cancels(&self, max: usize) -> Vec<LockId> {
        let mut state = self.state.lock();
        if state.locks.cancels_queued() == 0 && state.spare.is_empty() {
            return Vec::new();
        }
        let mut ids = state.locks.take_cancels(max);
        let spare = state.spare.len().saturating_sub(max - ids.len());
        ids.extend(state.spare.drain(spare..));
        ids
    }

    /// Processes a callback from the target.
    pub fn process_callback(self: &Arc<Self>, callback: Callback) {
        match callback {
            Callback::Blocking { id, cookie, resource, wanted } => {
                if wanted.0 == Mode::Ex
                    && resource.kind == Kind::Extent
                    && let Some(owner) = self.owner()
                {
                    owner.doomed(resource);
                }
                self.blocked(id, cookie, resource, &wanted.1);
            }
            Callback::Completion { id, cookie, resource, .. } if resource.kind == Kind::Flock => {
                if !self.flocks.granted(cookie) {
                    self.with(|_, actions| actions.push(Action::Cancel { id }));
                }
            }
            Callback::Completion { id, cookie, resource, .. } if handles::is_intent(cookie) => {
                // The server repeats the grant because it does not know that the reply arrived.
                let mut state = self.state.lock();
                let coming = handles::range_of(&mut state.ranges, cookie).is_some();
                if !coming && state.locks.resource_locks(resource).iter().all(|held| held.id != id) {
                    self.done(state, |_, actions| actions.push(Action::Cancel { id }));
                }
            }
            Callback::Completion { id, cookie, mode, policy, .. } => {
                self.with(|locks, actions| {
                    locks.granted(cookie, id, mode, policy, actions);
                });
                self.tell_grouped(mode);
            }
            Callback::Glimpse { id, resource, .. } => {
                if let Some(owner) = self.owner() {
                    drop(self.rt.spawn("ldlm_glimpse", owner.glimpsed(id, resource)));
                }
            }
            // It is about no lock.
            Callback::Changelog => {}
        }
    }

    /// Wakes the waiters of [`LockTable::joins_group`] after a group lock was granted.
    fn tell_grouped(&self, mode: Mode) {
        if mode == Mode::Group {
            self.grouped.notify_waiters();
        }
    }

    fn blocked(self: &Arc<Self>, id: LockId, cookie: Cookie, resource: Resource, wanted: &Policy) {
        let mut state = self.state.lock();
        if !handles::is_intent(cookie) {
            return self.done(state, |locks, actions| locks.blocked(cookie, id, wanted, actions));
        }
        if let Some(range) = handles::range_of(&mut state.ranges, cookie) {
            // The reply that brings the lock is still in transit: it must not use the lock. Cancel
            // now, because the reply may be lost. The server would then execute the request again,
            // and that execution would wait for the client that wants the lock.
            range.blocked(id);
            return self.done(state, |_, actions| actions.push(Action::Cancel { id }));
        }
        // The reply has arrived: the lock has a handle of the engine by now.
        let held = state.locks.resource_locks(resource).into_iter().find(|held| held.id == id);
        self.done(state, |locks, actions| match held {
            Some(held) => locks.blocked(held.cookie, id, wanted, actions),
            None => actions.push(Action::Cancel { id }),
        });
    }

    /// Drops all locks, because the target was restarted or evicted this client. The data cached
    /// under them is dropped before this function returns.
    pub fn forget(self: &Arc<Self>) {
        self.forget_with(|state| {
            state.flushes.clear();
            state.locks.evicted()
        });
    }

    /// Drops locks with `drop_locks`, which returns the resources of the dropped ones and adapts
    /// the flushes.
    pub(super) fn forget_with(self: &Arc<Self>, drop_locks: impl FnOnce(&mut State) -> Vec<Resource>) {
        let resources = {
            let mut state = self.state.lock();
            state.ranges.clear();
            state.cancels.clear();
            state.converts.clear();
            state.spare.clear();
            drop_locks(&mut state)
        };
        self.flocks.forget();
        if let Some(owner) = self.owner() {
            owner.forgotten(&resources);
        }
    }

    /// As [`Owner::discard_stored`].
    pub fn discard_stored(&self) {
        if let Some(owner) = self.owner() {
            owner.discard_stored();
        }
    }

    /// Cancels all unused locks (`lru_size=clear`).
    pub fn clear(self: &Arc<Self>) {
        self.with(|locks, actions| locks.clear(actions));
    }

    /// Returns all locks held, for dumps and checkers.
    pub fn all_locks(&self) -> Vec<(Resource, Held)> {
        self.state.lock().locks.all_locks()
    }

    /// Returns the counters.
    pub fn stats(&self) -> Stats {
        self.state.lock().locks.stats()
    }

    /// Returns the tunable parameters.
    pub fn tunables(&self) -> Tunables {
        self.state.lock().locks.tunables().clone()
    }

    /// Sets the tunable parameters.
    pub fn set_tunables(self: &Arc<Self>, tunables: Tunables) {
        let now = self.rt.now();
        self.with(|locks, actions| {
            locks.set_tunables(tunables);
            locks.shrink(now, actions);
        });
    }

    pub(super) fn owner(&self) -> Option<Arc<dyn Owner>> {
        self.owner.get()?.upgrade()
    }

    fn with(self: &Arc<Self>, f: impl FnOnce(&mut Locks, &mut Vec<Action>)) {
        self.done(self.state.lock(), f);
    }
}

/// A lock request in flight. If it is dropped without a reply, the lock is cancelled when its grant
/// arrives.
#[derive(Debug)]
pub struct PendingEnqueue {
    table: Arc<LockTable>,
    cookie: Cookie,
    resource: Resource,
    done: bool,
}

impl PendingEnqueue {
    /// Returns the handle to send.
    pub fn cookie(&self) -> Cookie {
        self.cookie
    }

    /// Cancels the lock if the target has granted and revoked it, although the reply is still to
    /// come: other locks of the same request wait. The reply will bring no lock then.
    pub fn cancel_if_wanted(&self) {
        self.table.with(|locks, actions| locks.fail_if_asked(self.cookie, actions));
    }

    /// Processes the reply. Returns `None` if no lock was granted.
    pub fn answered(mut self, answer: &Enqueued) -> Option<LockRef> {
        let Enqueued::Granted { id, mode, policy } = *answer else { return None };
        self.done = true;
        let table = self.table.clone();
        let mut state = table.state.lock();
        if let Some(held) = state.locks.matching(self.resource, mode, &policy) {
            // An equal lock is already held: cancel the new one.
            let cookie = self.cookie;
            table.done(state, |locks, actions| {
                locks.failed(cookie, actions);
                if actions.is_empty() {
                    actions.push(Action::Cancel { id });
                }
            });
            return Some(LockRef::new(table, &held));
        }
        let mut news = false;
        let cookie = self.cookie;
        table.done(state, |locks, actions| news = locks.granted(cookie, id, mode, policy, actions));
        table.tell_grouped(mode);
        news.then(|| LockRef { table, cookie, policy })
    }
}

impl Drop for PendingEnqueue {
    fn drop(&mut self) {
        if !self.done {
            self.table.with(|locks, actions| locks.failed(self.cookie, actions));
        }
    }
}
