//! Locks: those under which clients keep what they know of objects. What the OST does to them when
//! it changes objects is in [`crate::changes`].
//!
//! Invariants:
//! * a client that is granted a lock is told, or has it no more;
//! * the locks of one request are asked for in one step, before or after all those of another one.
//!   A client cannot give back locks that it has not been told of, and it is told when it has all
//!   that it asked for; so of two requests, with somebody who writes queued between them on one
//!   object and on another, each would else wait for the other;
//! * a wait ends when the client goes (its requests are dropped then) or the OST stops.

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
    /// Whose turn it is to ask for several locks.
    turn: tokio::sync::Mutex<()>,
    /// Closed when the OST stops; it never has a permit.
    stopping: Semaphore,
}

impl Locks {
    /// None yet.
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

    /// Makes the parameters `ldlm.namespaces.filter-<target>_UUID.*` known.
    pub fn register(&self, params: &Params) {
        self.lockd.register(params);
    }

    /// Forgets them.
    pub fn unregister(&self, params: &Params) {
        self.lockd.unregister(params);
    }

    /// Ends all waits, also later ones, with ESHUTDOWN.
    pub fn stop(&self) {
        self.stopping.close();
    }

    /// Locks for a client. None of the answers is `Waiting`: it ends when all are granted or
    /// refused.
    ///
    /// # Errors
    /// ESHUTDOWN.
    pub async fn enqueue<'a>(
        &'a self,
        export: &'a Arc<Export>,
        wants: &[Enqueue],
    ) -> Result<(Vec<Enqueued>, Undelivered<'a>)> {
        let undelivered = Undelivered { locks: self, export, ids: Mutex::default() };
        let ask = |want| undelivered.ask(want);
        let answers = match wants {
            [want] => vec![self.unless_stopping(ask(want)).await?],
            _ => self.unless_stopping(self.in_turn(all(wants.iter().map(ask)))).await?,
        };
        Ok((answers, undelivered))
    }

    /// Whether nobody but the client has a lock under which the extent may be written, so that all
    /// that was written there is here. Those that wait for locks have written nothing.
    pub fn nobody_writes(&self, export: &Arc<Export>, resource: Resource, extent: &Policy) -> bool {
        let flags = Flags { test: true, ..Flags::default() };
        let test = Enqueue { flags, ..Enqueue::new(resource, Mode::Pr, *extent, Cookie::NONE) };
        if matches!(self.lockd.enqueue(export, &test), Enqueued::Granted { .. }) {
            return true;
        }
        // Seldom: it is the client itself, or one who waits, or really a writer.
        !self.lockd.resource_locks(resource).iter().any(|info| {
            let lock = &info.lock;
            info.granted && lock.mode.writes() && lock.client != export.id() && lock.policy.overlaps(extent)
        })
    }

    /// What others know of objects beyond what they have written, in the order asked: the largest
    /// size and time, and all space.
    ///
    /// # Errors
    /// ESHUTDOWN.
    pub async fn glimpse(&self, export: &Export, wants: &[(Resource, u64)]) -> Result<Vec<Glimpse>> {
        self.unless_stopping(self.lockd.glimpse(export, wants)).await
    }

    /// The client writes the parts: locks on them that it was asked for it may keep until that is
    /// done.
    pub fn prolong(&self, export: &Export, parts: &[Part]) {
        for run in runs(parts).filter(|run| run.len > 0) {
            let last = run.offset.saturating_add(run.len as u64 - 1);
            self.lockd.prolong(export, Resource::extent(run.object), run.offset, last);
        }
    }

    /// Polls `asking` for the first time when nobody else does that.
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

    /// What `wait` says, or ESHUTDOWN if the OST stops before, or the client goes: what it wanted
    /// to change is not changed after that.
    pub async fn unless_gone<T>(&self, export: &Export, wait: impl Future<Output = T>) -> Result<T> {
        tokio::select! {
            biased;
            done = self.unless_stopping(wait) => done,
            () = export.gone() => Err(Errno::ESHUTDOWN),
        }
    }

    /// What `wait` says, or ESHUTDOWN if the OST stops before.
    pub async fn unless_stopping<T>(&self, wait: impl Future<Output = T>) -> Result<T> {
        tokio::select! {
            biased;
            done = wait => Ok(done),
            _ = self.stopping.acquire() => Err(Errno::ESHUTDOWN),
        }
    }
}

/// Locks that were granted to a client that has not been told yet. Dropped as such they are taken
/// back: nobody else would give them back, for only an answer tells the client what they are
/// called.
pub struct Undelivered<'a> {
    locks: &'a Locks,
    export: &'a Arc<Export>,
    ids: Mutex<Vec<LockId>>,
}

impl Undelivered<'_> {
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

    /// The client is told now.
    pub fn delivered(self) {
        let ids = std::mem::take(&mut *self.ids.lock());
        self.locks.lockd.told(self.export, &ids);
    }
}

impl Drop for Undelivered<'_> {
    fn drop(&mut self) {
        self.locks.lockd.cancel(self.export, self.ids.get_mut());
    }
}

/// All outputs, in the order of the futures, which go on together. Each wake-up polls all that are
/// unfinished.
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
