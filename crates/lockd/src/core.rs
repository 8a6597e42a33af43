//! The engine in its mutex, and the execution of its actions.
//!
//! Every event is passed to the engine under the mutex, and the engine's actions become errands in
//! the outbox ([`Core::note`]). After that, without the mutex, one thread at a time runs the
//! errands ([`Core::deliver`]). If another thread is already running them, a thread leaves its own
//! errands to that thread. The same holds for a thread that got here from a client's handler: its
//! errands run further up its stack. So the depth of the stack does not depend on the number of
//! locks. A task evicts clients, because a service's `disconnected` may need something that the
//! present thread holds.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sheen_ldlm::{Action, ClientId, Info, Namespace, Overdue, SERVER, Stats, Ticket, Tunables};
use sheen_params::Wait;
use sheen_rpc::Export;
use sheen_rt::{Instant, Rt};
use sheen_wire::{
    Errno,
    ast::Callback,
    ldlm::{Convert, Enqueue, Enqueued, LockId, Policy, Resource},
    ost::ObjectAttr,
};
use tokio::sync::{Notify, oneshot};

use crate::{
    changing::Changing,
    waiters::{Asked, Glimpse, Pending, Waiter},
    waits::Requesters,
};

/// Sends a callback to a client. Returns false if there is no connection at the moment.
type Send = fn(&Export, Callback) -> bool;

pub(crate) struct Core {
    rt: Rt,
    send: Send,
    state: Mutex<State>,
    /// Tells the timer task to read its time again.
    rearm: Arc<Notify>,
}

pub(crate) struct State {
    pub ns: Namespace,
    /// The engine's actions; empty whenever the mutex is free.
    pub actions: Vec<Action>,
    pub changing: Changing,
    /// Connected clients that have, or had, locks.
    clients: FxHashMap<ClientId, Arc<Export>>,
    /// Waiters in this process, by lock.
    waiters: BTreeMap<LockId, Waiter>,
    /// The origins of the waiting requests.
    pub requesters: Requesters,
    /// Objects with glimpses in progress.
    pub glimpses: BTreeMap<Ticket, Asked>,
    /// The next ticket.
    pub tickets: Ticket,
    /// Errands to run without the mutex.
    pub outbox: VecDeque<Errand>,
    /// Whether a thread is running errands.
    delivering: bool,
    /// Time for which the timer is set; `None`: there is no timer task.
    timer: Option<Instant>,
}

/// Work that is done without the mutex.
pub(crate) enum Errand {
    Tell(Arc<Export>, Callback),
    Evict(Arc<Export>, Overdue),
    /// All locks of a [`crate::Local`] are granted.
    Granted(Arc<Pending>),
    Answer(oneshot::Sender<Enqueued>, Enqueued),
    /// All clients asked about an object have answered.
    Known(oneshot::Sender<Glimpse>, Glimpse),
    /// One of the server's own locks on a resource was released.
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
            requesters: Requesters::default(),
            glimpses: BTreeMap::new(),
            tickets: 1,
            outbox: VecDeque::new(),
            delivering: false,
            timer: None,
        };
        Arc::new(Core { rt: rt.clone(), send, state: Mutex::new(state), rearm: Arc::default() })
    }

    /// Passes an event to the engine, and runs the resulting errands.
    pub fn act<R>(self: &Arc<Self>, event: impl FnOnce(&mut State, Instant) -> R) -> R {
        let (result, errands) = self.note(event);
        if errands {
            self.deliver();
        }
        result
    }

    /// Passes an event to the engine. Returns the result, and whether there are errands to run.
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

    /// Runs the errands, unless a thread is already running them.
    pub fn deliver(&self) {
        let mut delivering = Delivering { core: self, begun: false };
        while let Some(errand) = delivering.next() {
            match errand {
                Errand::Tell(export, callback) => {
                    if !(self.send)(&export, callback) {
                        tracing::debug!(?export, ?callback, "client not connected: callback waits until it reconnects");
                    }
                }
                Errand::Evict(export, overdue) => {
                    drop(self.rt.spawn("lockd-evict", async move { export.evict(&overdue.to_string()) }));
                }
                Errand::Granted(pending) => pending.wake(),
                // If the receiver was dropped, its request has been cancelled.
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
        // From here on there is nothing to cancel: the request is answered, or cancelled, or was
        // taken over.
        request.id = None;
        // An error means that the client resent the request under another xid, which gets the lock.
        answer.unwrap_or(Enqueued::Refused(Errno::ESHUTDOWN))
    }

    pub fn delivered(self: &Arc<Self>, client: ClientId, ids: &[LockId]) {
        // Nothing to deliver: the callbacks were sent before.
        self.note(|state, now| state.ns.delivered(now, client, ids));
    }

    pub fn cancel(self: &Arc<Self>, client: ClientId, ids: &[LockId]) {
        self.act(|state, now| {
            state.ns.cancel(now, client, ids, &mut state.actions);
            state.requesters.remove_ended(ids, &state.ns);
            state.drop_waiters(ids, client);
        });
    }

    pub fn convert(self: &Arc<Self>, client: ClientId, converts: &[(LockId, u64)]) {
        self.act(|state, now| {
            for (id, bits) in converts {
                // Late, or a duplicate: the lock has fewer bits already, or no longer exists.
                let _ = state.ns.convert(now, client, *id, Convert::Bits(*bits), &mut state.actions);
            }
        });
    }

    pub fn prolong(self: &Arc<Self>, client: ClientId, resource: Resource, start: u64, end: u64) {
        // Deadlines only move to later times.
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

    pub fn waits(&self, target: &str) -> Vec<Wait> {
        let found = {
            let state = self.state.lock();
            state.requesters.waiting(&state.ns, &state.clients)
        };
        let now = self.rt.now();
        found.iter().map(|waiting| waiting.wait(now, target)).collect()
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
        // The export is marked before `disconnected` is called: no lock is granted after that.
        if export.is_ended() {
            return Enqueued::Refused(Errno::ESHUTDOWN);
        }
        let answer = self.ns.enqueue(now, export.id(), want, &mut self.actions);
        if matches!(answer, Enqueued::Granted { .. } | Enqueued::Waiting { .. }) {
            self.clients.entry(export.id()).or_insert_with(|| export.clone());
        }
        if let Enqueued::Waiting { id } = answer {
            // `clients` has its uuid and address.
            self.requesters.add(id, None, &self.ns);
        }
        answer
    }

    /// Registers `pending` as the waiter for the lock.
    pub fn wait_local(&mut self, id: LockId, pending: &Arc<Pending>) {
        self.waiters.insert(id, Waiter::Local(pending.clone()));
    }

    /// Removes the waiter for a lock of the server itself.
    pub fn forget_local(&mut self, id: LockId) {
        self.waiters.remove(&id);
        self.requesters.remove(id);
    }

    /// Ends a client's waits for locks that no longer exist.
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

    /// Turns the engine's actions into errands.
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

    /// Turns an action into an errand. `None`: there is nothing to do, or the lock no longer
    /// exists.
    fn errand(&mut self, action: Action) -> Option<Errand> {
        match action {
            Action::Grant { client, cookie, id, mode, policy } => {
                self.requesters.remove(id);
                match self.waiters.remove(&id) {
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
                }
            }
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
            Action::Evict { client, overdue } => {
                self.drop_waiters_of(client);
                self.clients.remove(&client).map(|export| Errand::Evict(export, overdue))
            }
        }
    }

    /// Counts an answer, or the end of a client's glimpse without one.
    fn glimpsed(&mut self, ticket: Ticket, answer: Option<ObjectAttr>) -> Option<Errand> {
        if !self.glimpses.get_mut(&ticket)?.one_answered(answer) {
            return None;
        }
        let (answer, known) = self.glimpses.remove(&ticket)?.end();
        Some(Errand::Known(answer, known))
    }

    fn tell(&self, client: ClientId, callback: Callback) -> Option<Errand> {
        Some(Errand::Tell(self.clients.get(&client)?.clone(), callback))
    }

    /// Sets the timer for the engine's next deadline. Returns true if the timer task is to be
    /// started.
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

/// A thread's turn to run errands.
struct Delivering<'a> {
    core: &'a Core,
    begun: bool,
}

impl Delivering<'_> {
    /// Returns the next errand. `None`: there are none, or another thread is running them.
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
        // A client's handler panicked: the next delivery continues.
        if self.begun {
            self.core.state.lock().delivering = false;
        }
    }
}

/// A waiting request, which is cancelled when the waiting future is dropped.
struct Request<'a> {
    core: &'a Arc<Core>,
    client: ClientId,
    /// `None`: the request is answered.
    id: Option<LockId>,
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.core.cancel(self.client, &[id]);
        }
    }
}

/// Calls the engine at each deadline; ends when there is none.
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
