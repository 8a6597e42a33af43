//! The lock server of a target; Lustre's ldlm_lockd. The engine ([`sheen_ldlm::Namespace`])
//! decides; this carries it out: calls clients back, wakes whoever waits in this process, gives up
//! clients that do not answer, and wakes the engine when time has passed.
//!
//! * Clients' locks: [`Lockd::enqueue`], [`Lockd::enqueue_wait`], [`Lockd::cancel`],
//!   [`Lockd::convert`], [`Lockd::disconnected`], [`Lockd::reconnected`].
//! * What writers keep: [`Lockd::glimpse`], [`Lockd::glimpse_answered`]; and the time that they
//!   have for writing it back: [`Lockd::prolong`].
//! * The server's own: [`Lockd::local`] takes locks for as long as the server changes something
//!   ([`Local`]); [`Lockd::settled`] waits for such changes of others.
//!
//! Invariants:
//! * callbacks are made, and tasks woken, without any lock held, one after the other, in the order
//!   in which the engine wanted them; so a client of this process may call in from its handler.
//!   What that leads to is done after the handler has returned;
//! * locks survive a broken connection: when the client is back, its callbacks are made again. They
//!   go with the client;
//! * a client that has gone is granted nothing;
//! * all calls but [`Lockd::local`], [`Lockd::prolong`] and those that only look may run clients'
//!   handlers and wake tasks, as may dropping a [`Local`]: the caller holds nothing that those
//!   could want;
//! * a timer runs only while the engine waits for something.

mod changing;
mod core;
mod glimpse;
mod local;
mod merge;
mod params;

use std::{fmt, marker::PhantomData, sync::Arc};

use sheen_ldlm::{Info, Stats, Tunables};
use sheen_params::Params;
use sheen_rpc::Export;
use sheen_rt::Rt;
use sheen_wire::{
    Protocol,
    ast::Callback,
    ldlm::{Enqueue, Enqueued, LockId, Mode, Policy, Resource},
    ost::ObjectAttr,
};

use crate::core::Core;

pub use glimpse::Glimpse;
pub use local::Local;

/// The lock server of one target, of which the clients speak `P`.
pub struct Lockd<P> {
    core: Arc<Core>,
    name: String,
    protocol: PhantomData<fn() -> P>,
}

impl<P: Protocol<Callback = Callback>> Lockd<P> {
    /// A target without locks. `name`: as parameters call it, in Lustre `mdt-<target>_UUID` or
    /// `filter-<target>_UUID`.
    pub fn new(rt: &Rt, name: &str) -> Arc<Lockd<P>> {
        let core = Core::new(rt, |export, callback| export.callback::<P>(callback));
        Arc::new(Lockd { core, name: name.to_owned(), protocol: PhantomData })
    }
}

impl<P> Lockd<P> {
    /// A client wants a lock. Answers at once; if it has to wait, a completion callback follows.
    /// ESHUTDOWN: the client has gone.
    pub fn enqueue(&self, export: &Arc<Export>, want: &Enqueue) -> Enqueued {
        self.core.enqueue(export, want)
    }

    /// A client wants a lock, and the answer is to be given when it has it: never `Waiting`, and no
    /// completion callback. A wait ends with ESHUTDOWN if the client goes or cancels the request.
    /// If the future is dropped, the request is withdrawn.
    ///
    /// The client need not cancel the lock before [`Lockd::told`], which has to follow, or
    /// [`Lockd::cancel`].
    pub async fn enqueue_wait(&self, export: &Arc<Export>, want: &Enqueue) -> Enqueued {
        self.core.enqueue_wait(export, want).await
    }

    /// An answer tells a client of locks that it waited for ([`Lockd::enqueue_wait`]).
    pub fn told(&self, export: &Export, ids: &[LockId]) {
        if !ids.is_empty() {
            self.core.told(export.id(), ids);
        }
    }

    /// A client gives up locks, or waits no longer for them. Unknown handles are ignored.
    pub fn cancel(&self, export: &Export, ids: &[LockId]) {
        if !ids.is_empty() {
            self.core.cancel(export.id(), ids);
        }
    }

    /// A client keeps of locks on inodes these bits, and gives up the others. What names no lock,
    /// or bits that it does not have, is ignored.
    pub fn convert(&self, export: &Export, converts: &[(LockId, u64)]) {
        if !converts.is_empty() {
            self.core.convert(export.id(), converts);
        }
    }

    /// I/O of the client on the bytes `start..=end` arrived: of locks on them that it was asked
    /// for, the time to give them back begins anew.
    pub fn prolong(&self, export: &Export, resource: Resource, start: u64, end: u64) {
        self.core.prolong(export.id(), resource, start, end);
    }

    /// What clients other than `asker` know of objects beyond what they have written. `wants`:
    /// objects, and the sizes known without them: who can write only below that is not asked (0:
    /// all writers are). The answer has one item a want, and holds at some time between call and
    /// answer; who wants the truth looks at the objects themselves *afterwards*, for what was kept
    /// when the call began may be written by then. Waits for nothing where nobody is asked. A
    /// client that does not answer in time is given up.
    pub async fn glimpse(&self, asker: &Export, wants: &[(Resource, u64)]) -> Vec<Glimpse> {
        self.core.glimpse(asker, wants).await
    }

    /// A client answers glimpse callbacks, each by its lock: what it knows of the object, under
    /// that lock and all others, or nothing. What names no lock that it was asked through is
    /// ignored.
    pub fn glimpse_answered(&self, export: &Export, answers: &[(LockId, Option<ObjectAttr>)]) {
        if !answers.is_empty() {
            self.core.glimpse_answered(export, answers);
        }
    }

    /// Locks of the server itself, all enqueued in one step, so that no two such calls ever wait
    /// for each other in a circle. The locks of the client `except` stay and are not in the way.
    /// Parts of `wants` that overlap become one lock. Calls nobody back: [`Local::wait`] does, if
    /// [`Local::is_granted`] says that somebody is in the way.
    pub fn local(&self, wants: &[(Resource, Mode, Policy)], except: Option<&Export>) -> Local {
        self.core.local(wants, except)
    }

    /// Whether the server has, or waits for, a lock of its own ([`Lockd::local`]) on the resource
    /// that excludes a PR lock on `policy`.
    pub fn is_changing(&self, resource: Resource, policy: &Policy) -> bool {
        self.core.is_changing(resource, policy)
    }

    /// Waits until that is not so. Another change may begin before the caller looks: it looks again
    /// then.
    pub async fn settled(&self, resource: Resource, policy: &Policy) {
        self.core.settled(resource, policy).await;
    }

    /// A client has gone ([`sheen_rpc::Service::disconnected`]): so have its locks.
    pub fn disconnected(&self, export: &Export) {
        self.core.disconnected(export);
    }

    /// A client is back ([`sheen_rpc::Service::reconnected`]): it is called back again.
    pub fn reconnected(&self, export: &Arc<Export>) {
        self.core.reconnected(export);
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        self.core.stats()
    }

    /// How it is set.
    pub fn tunables(&self) -> Tunables {
        self.core.tunables()
    }

    /// Sets it otherwise, from now on.
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

    /// Makes the parameters `ldlm.namespaces.<name>.*` known.
    pub fn register(&self, params: &Params) {
        params::register(&self.core, &self.name, params);
    }

    /// Forgets them.
    pub fn unregister(&self, params: &Params) {
        params::unregister(&self.name, params);
    }
}

impl<P> fmt::Debug for Lockd<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lockd({}, {:?})", self.name, self.stats())
    }
}
