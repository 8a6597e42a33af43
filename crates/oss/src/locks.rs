//! Extent locks of clients, under which they cache data. The module [`crate::changes`] describes
//! the locks that the OST itself takes for changes.
//!
//! Invariants:
//! * a client learns of each lock that it is granted, or the lock is cancelled;
//! * the locks of one request enter the queues in one step, before or after all locks of another
//!   request. Otherwise two requests could deadlock. A client can cancel a lock only once it knows
//!   of the lock, and it gets its answer only when all locks of the request are granted. With a
//!   writer queued between the two requests on each of two objects, each request would wait for the
//!   other;
//! * a wait ends when the client disconnects (its requests are dropped then) or the OST stops.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
};

use parking_lot::Mutex;
use sheen_lockd::{Glimpse, Lockd};
use sheen_objects::{check, runs};
use sheen_params::Params;
use sheen_rpc::Export;
use sheen_rt::Rt;
use sheen_wire::{
    Errno, Ost, Result,
    ldlm::{Cookie, Enqueue, Enqueued, Flags, LockId, Mode, Policy, Resource},
    ost::Part,
};
use tokio::sync::Semaphore;

/// The locks of an OST.
pub struct Locks {
    lockd: Arc<Lockd<Ost>>,
    /// Serializes requests for several locks while they enter the queues.
    turn: tokio::sync::Mutex<()>,
    /// Closed when the OST stops; it never has a permit.
    stopping: Semaphore,
}

impl Locks {
    /// Returns an OST without locks.
    pub fn new(rt: &Rt, target: &str) -> Locks {
        Locks {
            lockd: Lockd::new(rt, &format!("filter-{target}_UUID")),
            turn: tokio::sync::Mutex::default(),
            stopping: Semaphore::new(0),
        }
    }

    /// The lock server.
    pub fn lockd(&self) -> &Arc<Lockd<Ost>> {
        &self.lockd
    }

    /// Registers the parameters `ldlm.namespaces.filter-<target>_UUID.*`.
    pub fn register(&self, params: &Params) {
        self.lockd.register(params);
    }

    /// Unregisters the parameters.
    pub fn unregister(&self, params: &Params) {
        self.lockd.unregister(params);
    }

    /// Ends all present and later waits with ESHUTDOWN.
    pub fn stop(&self) {
        self.stopping.close();
    }

    /// Whether [`Locks::stop`] was called.
    pub fn is_stopping(&self) -> bool {
        self.stopping.is_closed()
    }

    /// Enqueues locks for a client. Waits until all are granted or refused, so none of the answers
    /// is `Waiting`.
    ///
    /// # Errors
    /// ESHUTDOWN: the OST stops.
    pub async fn enqueue<'a>(
        &'a self,
        export: &'a Arc<Export>,
        wants: &[Enqueue],
    ) -> Result<(Vec<Enqueued>, UndeliveredLocks<'a>)> {
        let undelivered = UndeliveredLocks { locks: self, export, ids: Mutex::default() };
        let ask = |want| undelivered.ask(want);
        let answers = match wants {
            [want] => vec![self.unless_stopping(ask(want)).await?],
            _ => self.unless_stopping(self.in_turn(all(wants.iter().map(ask)))).await?,
        };
        Ok((answers, undelivered))
    }

    /// Whether no other client holds a lock under which the extent may be written, so that all
    /// bytes written there are on the OST. Waiting locks do not count: their clients have written
    /// nothing under them.
    pub fn no_other_writer(&self, export: &Arc<Export>, resource: Resource, extent: &Policy) -> bool {
        let flags = Flags { test: true, ..Flags::default() };
        let test = Enqueue { flags, ..Enqueue::new(resource, Mode::Pr, *extent, Cookie::NONE) };
        if matches!(self.lockd.enqueue(export, &test), Enqueued::Granted { .. }) {
            return true;
        }
        // Seldom: the conflict is a lock of the client itself, a waiting lock, or a real writer.
        !self.lockd.resource_locks(resource).iter().any(|info| {
            let lock = &info.lock;
            info.granted && lock.mode.writes() && lock.client != export.id() && lock.policy.overlaps(extent)
        })
    }

    /// Asks writers what they know of objects beyond the data that they have flushed. Returns one
    /// item per object in the order of `wants`: the largest size and time of all writers, and the
    /// sum of their space.
    ///
    /// # Errors
    /// ESHUTDOWN: the OST stops.
    pub async fn glimpse(&self, export: &Export, wants: &[(Resource, u64)]) -> Result<Vec<Glimpse>> {
        self.unless_stopping(self.lockd.glimpse(export, wants)).await
    }

    /// Notes that the client writes the parts: locks on them that it has to cancel get a new
    /// deadline.
    pub fn prolong(&self, export: &Export, parts: &[Part]) {
        for run in runs(parts).filter(|run| run.len > 0) {
            let last = run.offset.saturating_add(run.len as u64 - 1);
            self.lockd.prolong(export, Resource::extent(run.object), run.offset, last);
        }
    }

    /// Polls `asking` for the first time while no other such future is polled for its first time.
    async fn in_turn<F: Future>(&self, asking: F) -> F::Output {
        let mut asking = pin!(asking);
        let turn = self.turn.lock().await;
        let first = poll_fn(|cx| Poll::Ready(asking.as_mut().poll(cx))).await;
        drop(turn);
        match first {
            Poll::Ready(answers) => answers,
            Poll::Pending => asking.await,
        }
    }

    /// Returns the output of `wait`, or ESHUTDOWN if the OST stops or the client disconnects first.
    /// A change that the client requested is not made after that.
    pub async fn unless_disconnected<T>(&self, export: &Export, wait: impl Future<Output = T>) -> Result<T> {
        tokio::select! {
            biased;
            done = self.unless_stopping(wait) => done,
            () = export.ended() => Err(Errno::ESHUTDOWN),
        }
    }

    /// Returns the output of `wait`, or ESHUTDOWN if the OST stops first.
    pub async fn unless_stopping<T>(&self, wait: impl Future<Output = T>) -> Result<T> {
        tokio::select! {
            biased;
            done = wait => Ok(done),
            _ = self.stopping.acquire() => Err(Errno::ESHUTDOWN),
        }
    }
}

/// Locks granted to a client that does not know of them yet. Dropping this before
/// [`UndeliveredLocks::delivered`] cancels the locks: the client cannot, because it learns their
/// handles only from the answer.
pub struct UndeliveredLocks<'a> {
    locks: &'a Locks,
    export: &'a Arc<Export>,
    ids: Mutex<Vec<LockId>>,
}

impl UndeliveredLocks<'_> {
    async fn ask(&self, want: &Enqueue) -> Enqueued {
        if let Err(errno) = check::lock(want) {
            return Enqueued::Refused(errno);
        }
        let answer = self.locks.lockd.enqueue_wait(self.export, want).await;
        if let Enqueued::Granted { id, .. } = answer
            && id != LockId::NONE
        {
            self.ids.lock().push(id);
        }
        answer
    }

    /// Marks the locks as known to the client: the answer with their handles is sent now.
    pub fn delivered(self) {
        let ids = std::mem::take(&mut *self.ids.lock());
        self.locks.lockd.delivered(self.export, &ids);
    }
}

impl Drop for UndeliveredLocks<'_> {
    fn drop(&mut self) {
        self.locks.lockd.cancel(self.export, self.ids.get_mut());
    }
}

/// Runs the futures together and returns all outputs in the order of the futures. Each wake-up
/// polls all that are unfinished.
pub async fn all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut futures: Vec<Pin<Box<F>>> = futures.map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    poll_fn(|cx| {
        let mut pending = false;
        for (future, output) in futures.iter_mut().zip(&mut outputs).filter(|(_, output)| output.is_none()) {
            match future.as_mut().poll(cx) {
                Poll::Ready(done) => *output = Some(done),
                Poll::Pending => pending = true,
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    outputs.into_iter().flatten().collect()
}
