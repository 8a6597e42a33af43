//! Operations of a client that wait now, for the parameter `waits` of a mount.
//!
//! A wait is registered when it begins:
//! * Requests over tcp that have no reply yet are not registered: the import knows them anyway.
//! * A request over lo is registered unless the target completes it at once. Most requests that use
//!   the disk are registered, which costs an entry in a map. There are several maps, so that
//!   threads rarely wait for the mutex of one.

use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::atomic::{AtomicU64, Ordering},
    task::Poll,
};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sheen_rt::{Instant, Rt, operation, operation::Operation};
use sheen_wire::ldlm::{Enqueue, Mode, Policy, Resource};

/// Number of maps. Successive waits are in different ones.
const SHARDS: usize = 8;

/// The end of a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Awaited {
    /// A slot for a request of this name.
    Slot(&'static str),
    /// A connection to the target.
    Connection,
    /// Room for dirty data.
    Dirty,
    /// The reply to a request of this name.
    Reply(&'static str),
    /// A lock.
    Lock {
        /// The file or object.
        resource: Resource,
        /// Its mode.
        mode: Mode,
        /// Its range or bits.
        policy: Policy,
    },
}

impl Awaited {
    /// Returns the lock of a request.
    pub fn lock(ask: &Enqueue) -> Awaited {
        Awaited::Lock { resource: ask.resource, mode: ask.mode, policy: ask.policy }
    }
}

/// The waits for one target. Their number is bounded by that of the client's operations.
pub struct Waits {
    rt: Rt,
    /// Id of the last wait.
    last: AtomicU64,
    /// The waits by id.
    shards: [Mutex<FxHashMap<u64, WaitEntry>>; SHARDS],
}

/// A wait that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitEntry {
    pub(crate) since: Instant,
    pub(crate) operation: Operation,
    pub(crate) awaited: Awaited,
}

/// A wait in progress; dropping it ends the wait.
#[derive(Debug)]
pub struct Waiting<'a> {
    waits: &'a Waits,
    id: u64,
}

impl Waits {
    pub(crate) fn new(rt: Rt) -> Waits {
        Waits { rt, last: AtomicU64::new(0), shards: Default::default() }
    }

    fn shard(&self, id: u64) -> &Mutex<FxHashMap<u64, WaitEntry>> {
        &self.shards[id as usize % SHARDS]
    }

    /// Registers a wait of the operation that the running code works for.
    pub fn begin(&self, awaited: Awaited) -> Waiting<'_> {
        let operation = Operation { id: operation::current(), job: operation::job() };
        let entry = WaitEntry { since: self.rt.now(), operation, awaited };
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.shard(id).lock().insert(id, entry);
        Waiting { waits: self, id }
    }

    /// Runs a future, and registers a wait from its first poll on unless it is ready then.
    pub async fn track<F: Future>(&self, awaited: &Awaited, mut future: Pin<&mut F>) -> F::Output {
        let mut waiting = None;
        poll_fn(|context| {
            let polled = future.as_mut().poll(context);
            if matches!(polled, Poll::Pending) && waiting.is_none() {
                waiting = Some(self.begin(*awaited));
            }
            polled
        })
        .await
    }

    /// Returns the waits in progress, in the order in which they began.
    pub(crate) fn all(&self) -> Vec<WaitEntry> {
        let mut all: Vec<(u64, WaitEntry)> = Vec::new();
        for shard in &self.shards {
            all.extend(shard.lock().iter().map(|(id, entry)| (*id, *entry)));
        }
        all.sort_unstable_by_key(|(id, _)| *id);
        all.into_iter().map(|(_, entry)| entry).collect()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.waits.shard(self.id).lock().remove(&self.id);
    }
}

impl fmt::Debug for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting: usize = self.shards.iter().map(|shard| shard.lock().len()).sum();
        write!(f, "Waits({waiting})")
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, ready},
        pin::pin,
        task::{Context, Waker},
    };

    use sheen_rt::sim::{Sim, SimConfig};
    use sheen_wire::JobId;

    use super::*;

    #[test]
    fn only_futures_that_are_not_ready_are_registered_until_they_are_dropped() {
        let sim = Sim::new(1, SimConfig::default());
        let waits = Waits::new(sim.rt(1));
        let mut context = Context::from_waker(Waker::noop());
        let mut done = pin!(ready(5));
        let polled = pin!(waits.track(&Awaited::Dirty, done.as_mut())).poll(&mut context);
        assert_eq!((polled, waits.all().len()), (Poll::Ready(5), 0));
        let job = JobId::new(b"dd.1000");
        let never = async { waits.track(&Awaited::Slot("read"), pin!(pending::<()>())).await };
        let mut waiting = Box::pin(operation::within(job, never));
        assert!(waits.all().is_empty(), "it was not polled");
        for _ in 0..2 {
            assert!(waiting.as_mut().poll(&mut context).is_pending());
            let all = waits.all();
            assert_eq!((all.len(), all[0].awaited, all[0].operation.job), (1, Awaited::Slot("read"), job));
        }
        drop(waiting);
        assert!(waits.all().is_empty());
        let begun = ["a", "b", "c"].map(Awaited::Slot);
        let waiting = begun.map(|awaited| waits.begin(awaited));
        assert!(waits.all().iter().map(|entry| entry.awaited).eq(begun), "in the order in which they began");
        drop(waiting);
        assert!(waits.all().is_empty());
    }
}
