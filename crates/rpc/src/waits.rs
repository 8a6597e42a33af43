//! Operations of a client that wait now, for the parameter `waits` of a mount.
//!
//! A wait is registered when it begins:
//! * Requests over tcp that have no reply yet are not registered: the import knows them anyway.
//! * A request over lo is registered unless the target completes it at once. Most requests that use
//!   the disk are registered, which costs an entry in a map.

use std::{collections::BTreeMap, fmt, future::poll_fn, pin::Pin, task::Poll};

use parking_lot::Mutex;
use sheen_rt::{Instant, Rt, operation, operation::Operation};
use sheen_wire::ldlm::{Enqueue, Mode, Policy, Resource};

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
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: u64,
    waiting: BTreeMap<u64, WaitEntry>,
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
        Waits { rt, state: Mutex::default() }
    }

    /// Registers a wait of the operation that the running code works for.
    pub fn begin(&self, awaited: Awaited) -> Waiting<'_> {
        let operation = Operation { id: operation::current(), job: operation::job() };
        let entry = WaitEntry { since: self.rt.now(), operation, awaited };
        let mut state = self.state.lock();
        state.last += 1;
        let id = state.last;
        state.waiting.insert(id, entry);
        Waiting { waits: self, id }
    }

    /// Runs a future, and registers a wait from its first poll on unless it is ready then.
    pub async fn track<F: Future>(&self, awaited: Awaited, mut future: Pin<&mut F>) -> F::Output {
        let mut waiting = None;
        poll_fn(|context| {
            let polled = future.as_mut().poll(context);
            if matches!(polled, Poll::Pending) && waiting.is_none() {
                waiting = Some(self.begin(awaited));
            }
            polled
        })
        .await
    }

    /// Returns the waits in progress, in the order in which they began.
    pub(crate) fn all(&self) -> Vec<WaitEntry> {
        self.state.lock().waiting.values().copied().collect()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.waits.state.lock().waiting.remove(&self.id);
    }
}

impl fmt::Debug for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waits({})", self.state.lock().waiting.len())
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
        let polled = pin!(waits.track(Awaited::Dirty, done.as_mut())).poll(&mut context);
        assert_eq!((polled, waits.all().len()), (Poll::Ready(5), 0));
        let job = JobId::new(b"dd.1000");
        let never = async { waits.track(Awaited::Slot("read"), pin!(pending::<()>())).await };
        let mut waiting = Box::pin(operation::within(job, never));
        assert!(waits.all().is_empty(), "it was not polled");
        for _ in 0..2 {
            assert!(waiting.as_mut().poll(&mut context).is_pending());
            let all = waits.all();
            assert_eq!((all.len(), all[0].awaited, all[0].operation.job), (1, Awaited::Slot("read"), job));
        }
        drop(waiting);
        assert!(waits.all().is_empty());
    }
}
