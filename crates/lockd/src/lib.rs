//! The lock server of a target; Lustre's ldlm_lockd. The engine ([`sheen_ldlm::Namespace`])
//! decides. This crate carries out the decisions: it sends callbacks, wakes waiters in this
//! process, evicts clients that do not respond, and calls the engine when a deadline has passed.
//!
//! * Locks of clients: [`Lockd::enqueue`], [`Lockd::enqueue_wait`], [`Lockd::cancel`],
//!   [`Lockd::convert`], [`Lockd::disconnected`], [`Lockd::reconnected`].
//! * Dirty data of writers: [`Lockd::glimpse`], [`Lockd::glimpse_answered`], and
//!   [`Lockd::prolong`], which renews the deadlines of clients that flush.
//! * Locks of the server itself: [`Lockd::local`] takes locks for as long as the server changes
//!   something ([`Local`]). [`Lockd::settled`] waits until such changes have ended.
//!
//! Invariants:
//! * callbacks are sent, and tasks woken, one at a time, without any mutex held, and in the order
//!   in which the engine requested them. So a client of this process may call the lock server from
//!   its handler. The resulting callbacks are sent after the handler has returned;
//! * locks survive a broken connection: when the client has reconnected, its callbacks are resent.
//!   The locks are dropped when the client is disconnected or evicted;
//! * a disconnected client is granted nothing;
//! * most calls, and dropping a [`Local`], may run handlers of clients and wake tasks. The caller
//!   must hold nothing that those could need. Exceptions are [`Lockd::local`], [`Lockd::prolong`],
//!   and calls that only read;
//! * a timer runs only while the engine waits for a deadline.

mod changing;
mod core;
mod glimpse;
mod local;
mod merge;
mod params;
mod waiters;
mod waits;

use std::{fmt, marker::PhantomData, sync::Arc};

use sheen_ldlm::{Info, Stats, Tunables};
use sheen_params::{Params, Wait};
use sheen_rpc::Export;
use sheen_rt::Rt;
use sheen_wire::{
    Protocol,
    ast::Callback,
    ldlm::{Enqueue, Enqueued, LockId, Mode, Policy, Resource},
    ost::ObjectAttr,
};

use crate::core::Core;

pub use local::Local;
pub use waiters::Glimpse;

/// The lock server of one target, whose clients use the protocol `P`.
pub struct Lockd<P> {
    core: Arc<Core>,
    name: String,
    protocol: PhantomData<fn() -> P>,
}

impl<P: Protocol<Callback = Callback>> Lockd<P> {
    /// Returns the lock server of a target, without locks. `name`: the namespace in parameters, in
    /// Lustre `mdt-<target>_UUID` or `filter-<target>_UUID`.
    pub fn new(rt: &Rt, name: &str) -> Arc<Lockd<P>> {
        let core = Core::new(rt, |export, callback| export.callback::<P>(callback));
        Arc::new(Lockd { core, name: name.to_owned(), protocol: PhantomData })
    }
}

impl<P> Lockd<P> {
    /// Enqueues a lock for a client. Answers at once; if the lock has to wait, a completion
    /// callback follows. ESHUTDOWN: the client was disconnected.
    pub fn enqueue(&self, export: &Arc<Export>, want: &Enqueue) -> Enqueued {
        self.core.enqueue(export, want)
    }

    /// Enqueues a lock for a client, and returns once it is granted or refused: never `Waiting`,
    /// and without a completion callback. A wait ends with ESHUTDOWN if the client is disconnected
    /// or cancels the request. If the future is dropped, the request is cancelled.
    ///
    /// The caller must call [`Lockd::delivered`] or [`Lockd::cancel`] afterwards. Before that, the
    /// lock has no deadline.
    pub async fn enqueue_wait(&self, export: &Arc<Export>, want: &Enqueue) -> Enqueued {
        self.core.enqueue_wait(export, want).await
    }

    /// Marks locks from [`Lockd::enqueue_wait`] as known to the client: the reply with them is sent
    /// now.
    pub fn delivered(&self, export: &Export, ids: &[LockId]) {
        if !ids.is_empty() {
            self.core.delivered(export.id(), ids);
        }
    }

    /// Cancels locks or waiting requests of a client. Unknown handles are ignored.
    pub fn cancel(&self, export: &Export, ids: &[LockId]) {
        if !ids.is_empty() {
            self.core.cancel(export.id(), ids);
        }
    }

    /// Converts inodebits locks of a client to these bits. Unknown handles, and bits that a lock
    /// does not have, are ignored.
    pub fn convert(&self, export: &Export, converts: &[(LockId, u64)]) {
        if !converts.is_empty() {
            self.core.convert(export.id(), converts);
        }
    }

    /// Renews the deadlines of the client's locks after blocking callbacks, when I/O of the client
    /// on the bytes `start..=end` arrives.
    pub fn prolong(&self, export: &Export, resource: Resource, start: u64, end: u64) {
        self.core.prolong(export.id(), resource, start, end);
    }

    /// Asks writers other than `asker` for size and times of objects, which include their dirty
    /// data. `wants`: objects, and the size of each that the caller knows. A client whose locks
    /// permit writes only below that size is not asked. With a size of 0 all writers are asked.
    ///
    /// Returns one item per object. An item is valid at some time between call and return. The
    /// caller must read the objects themselves *afterwards*, because data that was dirty when the
    /// call began may have been flushed since.
    ///
    /// Returns at once if no client has to be asked. A client that does not answer in time is
    /// evicted.
    pub async fn glimpse(&self, asker: &Export, wants: &[(Resource, u64)]) -> Vec<Glimpse> {
        self.core.glimpse(asker, wants).await
    }

    /// Handles a client's answers to glimpse callbacks. Each names the lock, and size and times of
    /// the object with the client's dirty data (`None`: it has none). Locks without a glimpse in
    /// progress are ignored.
    pub fn glimpse_answered(&self, export: &Export, answers: &[(LockId, Option<ObjectAttr>)]) {
        if !answers.is_empty() {
            self.core.glimpse_answered(export, answers);
        }
    }

    /// Takes locks of the server itself. All are enqueued in one step, so that no two such calls
    /// ever deadlock. The locks of the client `except` stay and do not conflict. Overlapping parts
    /// of `wants` become one lock.
    ///
    /// Sends no blocking callbacks. If [`Local::is_granted`] returns false, [`Local::wait`] sends
    /// them.
    pub fn local(&self, wants: &[(Resource, Mode, Policy)], except: Option<&Export>) -> Local {
        self.core.local(wants, except)
    }

    /// Whether the server holds, or waits for, a lock of its own ([`Lockd::local`]) on the resource
    /// that conflicts with a PR lock on `policy`.
    pub fn is_changing(&self, resource: Resource, policy: &Policy) -> bool {
        self.core.is_changing(resource, policy)
    }

    /// Waits until [`Lockd::is_changing`] is false. Another change may begin before the caller
    /// continues, so the caller has to check again.
    pub async fn settled(&self, resource: Resource, policy: &Policy) {
        self.core.settled(resource, policy).await;
    }

    /// Drops all locks of a disconnected client ([`sheen_rpc::Service::disconnected`]).
    pub fn disconnected(&self, export: &Export) {
        self.core.disconnected(export);
    }

    /// Resends the callbacks of a reconnected client ([`sheen_rpc::Service::reconnected`]).
    pub fn reconnected(&self, export: &Arc<Export>) {
        self.core.reconnected(export);
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        self.core.stats()
    }

    /// Present tunables.
    pub fn tunables(&self) -> Tunables {
        self.core.tunables()
    }

    /// Changes the tunables, from now on.
    pub fn tune(&self, change: impl FnOnce(&mut Tunables)) {
        self.core.tune(change);
    }

    /// All locks of a resource, for dumps and checkers.
    pub fn resource_locks(&self, resource: Resource) -> Vec<Info> {
        self.core.resource_locks(resource)
    }

    /// All locks of all resources, for dumps and checkers.
    pub fn all_locks(&self) -> Vec<Info> {
        self.core.all_locks()
    }

    /// Returns the requests that wait for locks of clients, the oldest first, with those clients.
    /// `target`: name of the target.
    pub fn waits(&self, target: &str) -> Vec<Wait> {
        self.core.waits(target)
    }

    /// Registers the parameters `ldlm.namespaces.<name>.*`.
    pub fn register(&self, params: &Params) {
        params::register(&self.core, &self.name, params);
    }

    /// Unregisters the parameters.
    pub fn unregister(&self, params: &Params) {
        params::unregister(&self.name, params);
    }
}

impl<P> fmt::Debug for Lockd<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lockd({}, {:?})", self.name, self.stats())
    }
}
