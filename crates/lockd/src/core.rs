//! The engine in its mutex, and what becomes of its actions.
//!
//! Every event is told to the engine under the mutex, and the engine's actions become errands in
//! the outbox ([`Core::note`]). After that, without the mutex, one thread at a time runs the
//! errands ([`Core::deliver`]). A thread that finds another running them leaves its own to it (or
//! to itself, further up its stack, if it got here from a client's handler), so the depth of the
//! stack does not depend on the locks. Clients are given up by a task: a service's `disconnected`
//! may want what the thread here holds.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sheen_ldlm::{Action, ClientId, Info, Namespace, SERVER, Stats, Ticket, Tunables};
use sheen_rpc::Export;
use sheen_rt::{Instant, Rt};
use sheen_wire::{
    Errno,
    ast::Callback,
    ldlm::{Convert, Enqueue, Enqueued, LockId, Policy, Resource},
};
use tokio::sync::{Notify, oneshot};

use crate::{
    changing::Changing,
    glimpse::{self, Glimpse},
    local::Pending,
};

/// Calls a client back; false if there is no connection to it at the moment.
type Send = fn(&Export, Callback) -> bool;

pub(crate) struct Core {
    rt: Rt,
    send: Send,
    state: Mutex<State>,
    /// The timer is to look at its time again.
    rearm: Arc<Notify>,
}

pub(crate) struct State {
    pub ns: Namespace,
    /// What the engine wants; empty whenever the mutex is free.
    pub actions: Vec<Action>,
    pub changing: Changing,
    /// Clients that have (had) locks.
    clients: FxHashMap<ClientId, Arc<Export>>,
    /// Who waits in this process for which lock.
    waiters: BTreeMap<LockId, Waiter>,
    /// Objects about which clients were asked.
    pub glimpses: BTreeMap<Ticket, glimpse::Asked>,
    /// The next ticket.
    pub tickets: Ticket,
    /// What is to be done without the mutex.
    pub outbox: VecDeque<Errand>,
    /// Somebody is at it.
    delivering: bool,
    /// When the timer is going to look; `None`: there is no timer.
    timer: Option<Instant>,
}

/// Who waits in this process for a lock.
enum Waiter {
    Local(Arc<Pending>),
    Client(ClientId, oneshot::Sender<Enqueued>),
}

/// What is done without the mutex.
pub(crate) enum Errand {
    Tell(Arc<Export>, Callback),
    Evict(Arc<Export>),
    /// A local's locks are all granted.
    Granted(Arc<Pending>),
    Answer(oneshot::Sender<Enqueued>, Enqueued),
    /// All who were asked about an object have answered.
    Known(oneshot::Sender<Glimpse>, Glimpse),
    /// A resource's own locks are fewer.
    Settled(Arc<Notify>),
}

impl Core {
    pub fn new(rt: &Rt, send: Send) -> Arc<Core> {
        let state = State {
            ns: Namespace::new(Tunables::default(), rt.random_u64()),
            actions: Vec::new(),
            changing: Changing::default(),
            clients: FxHashMap::default(),
            waiters: BTreeMap::new(),
            glimpses: BTreeMap::new(),
            tickets: 1,
            outbox: VecDeque::new(),
            delivering: false,
            timer: None,
        };
        Arc::new(Core { rt: rt.clone(), send, state: Mutex::new(state), rearm: Arc::default() })
    }

    /// An event: tells the engine, then does what it wants.
    pub fn act<R>(self: &Arc<Self>, event: impl FnOnce(&mut State, Instant) -> R) -> R {
        let (result, errands) = self.note(event);
        if errands {
            self.deliver();
        }
        result
    }

    /// An event: tells the engine. Returns whether there is something to deliver.
    pub fn note<R>(self: &Arc<Self>, event: impl FnOnce(&mut State, Instant) -> R) -> (R, bool) {
        let now = self.rt.now();
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let result = event(state, now);
        state.plan();
        let timer = state.arm(&self.rearm);
        let errands = !state.outbox.is_empty();
        drop(guard);
        if timer {
            drop(self.rt.spawn("lockd-timer", timer_task(self.rt.clone(), Arc::downgrade(self), self.rearm.clone())));
        }
        (result, errands)
    }

    /// Runs the errands, unless somebody is at it.
    pub fn deliver(&self) {
        let mut delivering = Delivering { core: self, begun: false };
        while let Some(errand) = delivering.next() {
            match errand {
                Errand::Tell(export, callback) => {
                    if !(self.send)(&export, callback) {
                        tracing::debug!(?export, ?callback, "a callback waits for the client to come back");
                    }
                }
                Errand::Evict(export) => drop(self.rt.spawn("lockd-evict", async move { export.evict() })),
                Errand::Granted(pending) => pending.wake(),
                // Who waits no longer has withdrawn the request.
                Errand::Answer(sender, answer) => drop(sender.send(answer)),
                Errand::Known(sender, known) => drop(sender.send(known)),
                Errand::Settled(notify) => notify.notify_waiters(),
            }
        }
    }

    pub fn enqueue(self: &Arc<Self>, export: &Arc<Export>, want: &Enqueue) -> Enqueued {
        self.act(|state, now| state.enqueue(now, export, want))
    }

    pub async fn enqueue_wait(self: &Arc<Self>, export: &Arc<Export>, want: &Enqueue) -> Enqueued {
        let mut waits = None;
        let answer = self.act(|state, now| {
            let answer = state.enqueue(now, export, want);
            if let Enqueued::Waiting { id } | Enqueued::Granted { id, .. } = answer {
                state.ns.withhold(id);
            }
            if let Enqueued::Waiting { id } = answer {
                let (sender, receiver) = oneshot::channel();
                state.waiters.insert(id, Waiter::Client(export.id(), sender));
                waits = Some((id, receiver));
            }
            answer
        });
        let Some((id, receiver)) = waits else { return answer };
        let mut request = Request { core: self, client: export.id(), id: Some(id) };
        let answer = receiver.await;
        // From here on there is nothing to withdraw: it is answered, or cancelled, or another's.
        request.id = None;
        // The client sent the request a second time, under another xid: the lock is for that one.
        answer.unwrap_or(Enqueued::Refused(Errno::ESHUTDOWN))
    }

    pub fn told(self: &Arc<Self>, client: ClientId, ids: &[LockId]) {
        // Nothing is sent: the callbacks went out before.
        self.note(|state, now| state.ns.told(now, client, ids));
    }

    pub fn cancel(self: &Arc<Self>, client: ClientId, ids: &[LockId]) {
        self.act(|state, now| {
            state.ns.cancel(now, client, ids, &mut state.actions);
            state.drop_waiters(ids, client);
        });
    }

    pub fn convert(self: &Arc<Self>, client: ClientId, converts: &[(LockId, u64)]) {
        self.act(|state, now| {
            for (id, bits) in converts {
                // Late, or once more: the lock is less already, or gone.
                let _ = state.ns.convert(now, client, *id, Convert::Bits(*bits), &mut state.actions);
            }
        });
    }

    pub fn prolong(self: &Arc<Self>, client: ClientId, resource: Resource, start: u64, end: u64) {
        // Deadlines only move away.
        self.note(|state, now| state.ns.prolong(now, client, resource, start, end));
    }

    pub fn disconnected(self: &Arc<Self>, export: &Export) {
        self.act(|state, now| {
            state.clients.remove(&export.id());
            state.ns.evict(now, export.id(), &mut state.actions);
            state.drop_waiters_of(export.id());
        });
    }

    pub fn reconnected(self: &Arc<Self>, export: &Arc<Export>) {
        self.act(|state, now| state.ns.resend(now, export.id(), &mut state.actions));
    }

    pub fn is_changing(&self, resource: Resource, policy: &Policy) -> bool {
        self.state.lock().changing.conflicts(resource, policy)
    }

    pub async fn settled(&self, resource: Resource, policy: &Policy) {
        loop {
            let changed = self.state.lock().changing.watch(resource, policy);
            match changed {
                None => return,
                Some(changed) => changed.await,
            }
        }
    }

    pub fn stats(&self) -> Stats {
        self.state.lock().ns.stats()
    }

    pub fn clear_stats(&self) {
        self.state.lock().ns.clear_stats();
    }

    pub fn tunables(&self) -> Tunables {
        self.state.lock().ns.tunables().clone()
    }

    pub fn tune(&self, change: impl FnOnce(&mut Tunables)) {
        let mut state = self.state.lock();
        let mut tunables = state.ns.tunables().clone();
        change(&mut tunables);
        state.ns.set_tunables(tunables);
    }

    pub fn resource_locks(&self, resource: Resource) -> Vec<Info> {
        self.state.lock().ns.resource_locks(resource)
    }

    pub fn all_locks(&self) -> Vec<Info> {
        self.state.lock().ns.all_locks()
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // The timer ends.
        self.rearm.notify_one();
    }
}

impl State {
    fn enqueue(&mut self, now: Instant, export: &Arc<Export>, want: &Enqueue) -> Enqueued {
        // It is marked so before `disconnected` is called: no lock is granted after that.
        if export.is_gone() {
            return Enqueued::Refused(Errno::ESHUTDOWN);
        }
        let answer = self.ns.enqueue(now, export.id(), want, &mut self.actions);
        if matches!(answer, Enqueued::Granted { .. } | Enqueued::Waiting { .. }) {
            self.clients.entry(export.id()).or_insert_with(|| export.clone());
        }
        answer
    }

    /// `pending` waits for the lock.
    pub fn wait_local(&mut self, id: LockId, pending: &Arc<Pending>) {
        self.waiters.insert(id, Waiter::Local(pending.clone()));
    }

    /// A lock of the server itself is not waited for any longer.
    pub fn forget_local(&mut self, id: LockId) {
        self.waiters.remove(&id);
    }

    /// Ends the waits of a client for locks that are no more.
    fn drop_waiters(&mut self, ids: &[LockId], client: ClientId) {
        if self.waiters.is_empty() {
            return;
        }
        for id in ids {
            if matches!(self.waiters.get(id), Some(Waiter::Client(of, _)) if *of == client)
                && let Some(waiter) = self.waiters.remove(id)
            {
                self.refuse(waiter);
            }
        }
    }

    fn drop_waiters_of(&mut self, client: ClientId) {
        let theirs = |_: &LockId, w: &mut Waiter| matches!(w, Waiter::Client(of, _) if *of == client);
        let dropped: Vec<Waiter> = self.waiters.extract_if(.., theirs).map(|(_, waiter)| waiter).collect();
        dropped.into_iter().for_each(|waiter| self.refuse(waiter));
    }

    fn refuse(&mut self, waiter: Waiter) {
        if let Waiter::Client(_, answer) = waiter {
            self.outbox.push_back(Errand::Answer(answer, Enqueued::Refused(Errno::ESHUTDOWN)));
        }
    }

    /// Makes errands of the engine's actions.
    fn plan(&mut self) {
        if self.actions.is_empty() {
            return;
        }
        let mut actions = std::mem::take(&mut self.actions);
        for action in actions.drain(..) {
            let errand = self.errand(action);
            self.outbox.extend(errand);
        }
        self.actions = actions;
    }

    /// `None`: there is nothing to do, or the lock is gone again.
    fn errand(&mut self, action: Action) -> Option<Errand> {
        match action {
            Action::Grant { client, cookie, id, mode, policy } => match self.waiters.remove(&id) {
                Some(Waiter::Local(pending)) => pending.one_granted().then_some(Errand::Granted(pending)),
                Some(Waiter::Client(_, answer)) => {
                    // The answer is sent again by rpc, if need be.
                    self.ns.confirm(client, id);
                    Some(Errand::Answer(answer, Enqueued::Granted { id, mode, policy }))
                }
                None => {
                    let resource = self.ns.lock(id)?.resource;
                    self.tell(client, Callback::Completion { id, cookie, resource, mode, policy })
                }
            },
            Action::Block { client: SERVER, .. } => None,
            Action::Block { client, cookie, id, mode, policy } => {
                let resource = self.ns.lock(id)?.resource;
                self.tell(client, Callback::Blocking { id, cookie, resource, wanted: (mode, policy) })
            }
            Action::Glimpse { client, cookie, id } => {
                let resource = self.ns.lock(id)?.resource;
                self.tell(client, Callback::Glimpse { id, cookie, resource })
            }
            Action::Glimpsed { ticket, answer } => self.glimpsed(ticket, answer),
            Action::Evict { client } => {
                self.drop_waiters_of(client);
                self.clients.remove(&client).map(Errand::Evict)
            }
        }
    }

    fn tell(&self, client: ClientId, callback: Callback) -> Option<Errand> {
        Some(Errand::Tell(self.clients.get(&client)?.clone(), callback))
    }

    /// Sees to it that the timer looks when the engine has something to do. True: there is none
    /// yet.
    fn arm(&mut self, rearm: &Notify) -> bool {
        let Some(at) = self.ns.next_deadline() else { return false };
        match self.timer {
            None => {
                self.timer = Some(at);
                true
            }
            Some(set) => {
                if at < set {
                    self.timer = Some(at);
                    rearm.notify_one();
                }
                false
            }
        }
    }
}

/// The thread that runs errands.
struct Delivering<'a> {
    core: &'a Core,
    begun: bool,
}

impl Delivering<'_> {
    /// `None`: there are none, or another thread is at it.
    fn next(&mut self) -> Option<Errand> {
        let mut state = self.core.state.lock();
        if state.delivering && !self.begun {
            return None;
        }
        let errand = state.outbox.pop_front();
        state.delivering = errand.is_some();
        self.begun = errand.is_some();
        errand
    }
}

impl Drop for Delivering<'_> {
    fn drop(&mut self) {
        // A client's handler panicked: the next one goes on.
        if self.begun {
            self.core.state.lock().delivering = false;
        }
    }
}

/// A request that is withdrawn if nobody waits for its answer any longer.
struct Request<'a> {
    core: &'a Arc<Core>,
    client: ClientId,
    /// `None`: it is answered.
    id: Option<LockId>,
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.core.cancel(self.client, &[id]);
        }
    }
}

/// Wakes the engine when it has something to do; ends when it waits for nothing.
async fn timer_task(rt: Rt, core: Weak<Core>, rearm: Arc<Notify>) {
    loop {
        let Some(at) = core.upgrade().and_then(|core| core.state.lock().timer) else { return };
        let sleep = rt.sleep(at.since(rt.now()));
        tokio::select! {
            biased;
            () = rearm.notified() => {}
            () = sleep => {
                let Some(core) = core.upgrade() else { return };
                core.act(|state, now| {
                    state.ns.expire(now, &mut state.actions);
                    state.timer = state.ns.next_deadline();
                });
            }
        }
    }
}
