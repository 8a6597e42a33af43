//! The locks that this client holds of one target: [`sheen_ldlm::client::Locks`] with what it needs
//! of the outside world.
//!
//! * [`LockTable`]: finds locks, takes in grants and callbacks, and lets go of locks on a task: the
//!   caches are dropped and the kernel is told ([`Owner::drop_cached`]), then the target
//!   ([`Owner::cancel`]);
//! * [`LockRef`]: a lock in use; while there is one, the lock is not given up;
//! * [`Keeping`]: locks that come with an answer, under handles that were named before it was known
//!   what they are on;
//! * [`flock`]: locks of programs.
//!
//! Invariants:
//! * what is cached under a lock is put there while a [`LockRef`] on the lock is held, and is
//!   dropped before the target hears of the cancel; so a cached thing is guarded for as long as it
//!   is there;
//! * a callback only notes and spawns: over `lo` it runs on the thread of the service;
//! * when the target has forgotten this client ([`LockTable::forget`]) no lock from before counts
//!   any more, whatever answer arrives.

pub mod flock;
mod flush;
mod keeping;

use std::{
    collections::BTreeMap,
    fmt,
    pin::pin,
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use sheen_ldlm::client::{Action, Held, Locks, Stats, Tunables};
use sheen_rpc::BoxFuture;
use sheen_rt::Rt;
use sheen_wire::{
    ast::Callback,
    ldlm::{Cookie, Enqueued, Kind, LockId, Mode, Policy, Resource},
};
use tokio::sync::Notify;

use flock::Flocks;
pub use flush::Flush;
pub use keeping::Keeping;
use keeping::Range;

/// How often unused locks are looked through for old ones, while there are any.
const LRU_INTERVAL: Duration = Duration::from_secs(60);

/// What stands around the locks of a target.
pub trait Owner: Send + Sync + 'static {
    /// Drops what is cached under these locks and tells the kernel. What that has to wait for is
    /// returned, one for each lock.
    fn drop_cached(&self, flushes: &[Flush]) -> Vec<Option<BoxFuture<'static, ()>>>;

    /// An object is going to be removed: what was written to it need not be.
    fn doomed(&self, _: Resource) {}

    /// The target asks what this client knows of an object that the target does not.
    fn glimpsed(&self, _: LockId, _: Resource) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Drops all that is cached under locks of this target: they are lost.
    fn forgotten(&self, resources: &[Resource]);

    /// Tells the target that locks are given up, and of which these bits alone are kept.
    fn cancel(&self, ids: Vec<LockId>, converts: Vec<(LockId, u64)>) -> BoxFuture<'static, ()>;
}

/// See the module.
pub struct LockTable {
    rt: Rt,
    travels: bool,
    state: Mutex<State>,
    owner: OnceLock<Weak<dyn Owner>>,
    /// A group's lock was granted.
    grouped: Notify,
    /// Locks of programs.
    pub flocks: Flocks,
}

struct State {
    locks: Locks,
    /// What the engine wants done; a scratch space, empty between calls.
    actions: Vec<Action>,
    /// Locks that are to go.
    flushes: Vec<Flush>,
    /// Cancels to be sent.
    cancels: Vec<LockId>,
    /// What is left of locks, to be said again.
    converts: Vec<(LockId, u64)>,
    /// Cancels of locks that were superfluous: they can wait for a request to travel with.
    spare: Vec<LockId>,
    /// The task that lets go of locks is there.
    working: bool,
    /// The task that looks for old locks is there.
    aging: bool,
    /// Handles given to requests under way, by the first of each.
    ranges: BTreeMap<u64, Range>,
    last_handle: u64,
}

impl fmt::Debug for LockTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockTable").field("stats", &self.stats()).finish()
    }
}

/// A lock in use. Dropping it lets the lock go, if it has been asked for.
pub struct LockRef {
    table: Arc<LockTable>,
    cookie: Cookie,
    policy: Policy,
}

impl LockRef {
    /// This client's handle of the lock.
    pub fn cookie(&self) -> Cookie {
        self.cookie
    }

    /// The bytes of a lock on an object.
    pub fn range(&self) -> (u64, u64) {
        self.policy.range()
    }

    /// Whether the target has asked for it: somebody waits.
    pub fn is_wanted(&self) -> bool {
        self.table.state.lock().locks.is_wanted(self.cookie)
    }

    /// The bits of a lock on an inode; 0 of another one.
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
    /// Without locks. `travels`: cancels that are not urgent go with other requests
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

    /// Says whose locks they are; once, before the first.
    pub fn set_owner(&self, owner: Weak<dyn Owner>) {
        // A second one would be a mistake of this crate; the first stays.
        let _ = self.owner.set(owner);
    }

    /// A lock (PR, or one that permits more) held already that covers `policy`.
    pub fn matching(self: &Arc<Self>, resource: Resource, policy: &Policy) -> Option<LockRef> {
        self.matching_in(resource, Mode::Pr, policy)
    }

    /// A lock held already that permits `mode` on `policy`. A group's lock permits to write, and
    /// guards nothing that is kept.
    pub fn matching_in(self: &Arc<Self>, resource: Resource, mode: Mode, policy: &Policy) -> Option<LockRef> {
        let mut state = self.state.lock();
        let held = match state.locks.matching(resource, mode, policy) {
            None if mode == Mode::Pw => state.locks.in_group(resource),
            held => held,
        }?;
        Some(LockRef { table: self.clone(), cookie: held.cookie, policy: held.policy })
    }

    /// The lock of a group that is held on an object.
    pub fn in_group(self: &Arc<Self>, resource: Resource) -> Option<LockRef> {
        let held = self.state.lock().locks.in_group(resource)?;
        Some(LockRef { table: self.clone(), cookie: held.cookie, policy: held.policy })
    }

    /// Resolves when this client holds a group's lock on one of these objects. Until the group is
    /// left the target grants no other there.
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

    /// Whether [`LockTable::matching`] would find one.
    pub fn covered(&self, resource: Resource, policy: &Policy) -> bool {
        self.state.lock().locks.covered(resource, Mode::Pr, policy)
    }

    /// A lock of before, if it is still there and was not asked for: what was learned under it then
    /// is still true.
    pub fn again(self: &Arc<Self>, resource: Resource, policy: &Policy, cookie: Cookie) -> Option<LockRef> {
        self.matching(resource, policy).filter(|lock| lock.cookie == cookie)
    }

    /// Whether a lock is held still on this part, be it asked for or not.
    pub fn is_held(&self, cookie: Cookie, policy: &Policy) -> bool {
        let held = self.state.lock().locks.held(cookie);
        held.is_some_and(|held| held.mode == Mode::Group || held.policy.contains(policy))
    }

    /// A request for a lock is about to be sent. The guard takes the answer.
    pub fn begin(self: &Arc<Self>, resource: Resource, mode: Mode, policy: Policy) -> Asking {
        let cookie = self.state.lock().locks.begin(resource, mode, policy);
        Asking { table: self.clone(), cookie, resource, done: false }
    }

    /// Handles of locks given up, to travel with a request.
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

    /// The target calls.
    pub fn called_back(self: &Arc<Self>, callback: Callback) {
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
            Callback::Completion { id, cookie, resource, .. } if keeping::is_kept(cookie) => {
                // Told again, because the server does not know that the answer arrived.
                let mut state = self.state.lock();
                let coming = keeping::range_of(&mut state.ranges, cookie).is_some();
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
        }
    }

    /// A lock was granted.
    fn tell_grouped(&self, mode: Mode) {
        if mode == Mode::Group {
            self.grouped.notify_waiters();
        }
    }

    fn blocked(self: &Arc<Self>, id: LockId, cookie: Cookie, resource: Resource, wanted: &Policy) {
        let mut state = self.state.lock();
        if !keeping::is_kept(cookie) {
            return self.done(state, |locks, actions| locks.blocked(cookie, id, wanted, actions));
        }
        if let Some(range) = keeping::range_of(&mut state.ranges, cookie) {
            // The answer that brings the lock is on its way: it will not be used. It is given back
            // at once, for the answer may be lost and the request executed again, which then waits
            // for who wants the lock.
            range.blocked(id);
            return self.done(state, |_, actions| actions.push(Action::Cancel { id }));
        }
        // It has got another handle since.
        let held = state.locks.resource_locks(resource).into_iter().find(|held| held.id == id);
        self.done(state, |locks, actions| match held {
            Some(held) => locks.blocked(held.cookie, id, wanted, actions),
            None => actions.push(Action::Cancel { id }),
        });
    }

    /// The target has forgotten this client: all locks are lost, and what is cached under them is
    /// dropped before this returns.
    pub fn forget(self: &Arc<Self>) {
        let resources = {
            let mut state = self.state.lock();
            state.ranges.clear();
            state.flushes.clear();
            state.cancels.clear();
            state.converts.clear();
            state.spare.clear();
            state.locks.evicted()
        };
        self.flocks.forget();
        if let Some(owner) = self.owner() {
            owner.forgotten(&resources);
        }
    }

    /// Gives up all locks that nobody uses at the moment (`lru_size=clear`).
    pub fn clear(self: &Arc<Self>) {
        self.with(|locks, actions| locks.clear(actions));
    }

    /// All locks held, for dumps and checkers.
    pub fn all_locks(&self) -> Vec<(Resource, Held)> {
        self.state.lock().locks.all_locks()
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        self.state.lock().locks.stats()
    }

    /// How it is set.
    pub fn tunables(&self) -> Tunables {
        self.state.lock().locks.tunables().clone()
    }

    /// Sets it otherwise.
    pub fn set_tunables(self: &Arc<Self>, tunables: Tunables) {
        let now = self.rt.now();
        self.with(|locks, actions| {
            locks.set_tunables(tunables);
            locks.shrink(now, actions);
        });
    }

    fn owner(&self) -> Option<Arc<dyn Owner>> {
        self.owner.get()?.upgrade()
    }

    fn with(self: &Arc<Self>, f: impl FnOnce(&mut Locks, &mut Vec<Action>)) {
        self.done(self.state.lock(), f);
    }
}

/// A request for a lock under way. Dropped without an answer, the lock is given back when it
/// arrives.
#[derive(Debug)]
pub struct Asking {
    table: Arc<LockTable>,
    cookie: Cookie,
    resource: Resource,
    done: bool,
}

impl Asking {
    /// The handle to send.
    pub fn cookie(&self) -> Cookie {
        self.cookie
    }

    /// Takes the answer. `None`: there is no lock.
    pub fn answered(mut self, answer: &Enqueued) -> Option<LockRef> {
        let Enqueued::Granted { id, mode, policy } = *answer else { return None };
        self.done = true;
        let table = self.table.clone();
        let mut state = table.state.lock();
        if let Some(held) = state.locks.matching(self.resource, mode, &policy) {
            // There is one already; one is enough.
            let cookie = self.cookie;
            table.done(state, |locks, actions| {
                locks.failed(cookie, actions);
                if actions.is_empty() {
                    actions.push(Action::Cancel { id });
                }
            });
            return Some(LockRef { table, cookie: held.cookie, policy: held.policy });
        }
        let mut news = false;
        let cookie = self.cookie;
        table.done(state, |locks, actions| news = locks.granted(cookie, id, mode, policy, actions));
        table.tell_grouped(mode);
        news.then(|| LockRef { table, cookie, policy })
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if !self.done {
            self.table.with(|locks, actions| locks.failed(self.cookie, actions));
        }
    }
}
