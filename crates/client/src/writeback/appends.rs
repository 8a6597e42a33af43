//! Appends under way, over a restart of their OST.
//!
//! An append writes at an end of file that it found under locks. A restart of an OST loses these
//! locks. In its recovery, the OST accepts the write before it grants locks to other clients, and
//! it waits for the report of this client. So the report waits for the appends that found an end
//! under the lost locks, also for those that have not sent their write yet. Otherwise another
//! client could append at the same offset.
//!
//! Invariants:
//! * an append is registered ([`Appending`]) before it checks for the last time that it holds its
//!   locks. So either a restart finds it registered, or the append finds its locks lost, and looks
//!   up the end again;
//! * as long as an append is registered, it waits for nothing that may come after the end of the
//!   recovery. So its write takes no slot of other requests. After a failure it is not registered
//!   until it is repeated;
//! * after an eviction, other clients may have appended. The same holds if the restarted OST did
//!   not wait for this client. Then a registered append sends nothing more, and fails with EIO.

use std::{collections::BTreeSet, pin::pin, sync::Arc};

use parking_lot::Mutex;
use sheen_rpc::Response;
use sheen_wire::{Errno, ost::Reply};
use tokio::sync::{Notify, Semaphore};

use crate::{failure::Result, osc::OstRequest};

/// The appends to one OST.
pub struct Appends {
    state: Mutex<State>,
    /// Signals that an append or a write has ended.
    ended: Notify,
    /// Signals a loss.
    lost: Notify,
    sends: Semaphore,
}

#[derive(Default)]
struct State {
    /// Number of the last append.
    last: u64,
    /// Numbers of those under way.
    under_way: BTreeSet<u64>,
    /// Number of writes in flight, or waiting for the semaphore.
    sending: u32,
    /// Number of times that other clients may have appended after this client had found the end.
    losses: u64,
}

/// An append under way, until this is dropped.
pub struct Appending {
    of: Arc<Appends>,
    number: u64,
    losses: u64,
}

/// A write in flight, until this is dropped.
struct Sending<'a>(&'a Appends);

impl Appends {
    /// Creates the record of an OST. `sends_max`: maximum number of concurrent writes.
    pub fn new(sends_max: usize) -> Arc<Appends> {
        Arc::new(Appends {
            state: Mutex::default(),
            ended: Notify::new(),
            lost: Notify::new(),
            sends: Semaphore::new(sends_max),
        })
    }

    /// Registers an append. The caller then checks that it still holds the locks under which it
    /// found the end.
    pub fn begin(self: &Arc<Self>) -> Appending {
        let mut state = self.state.lock();
        state.last += 1;
        let number = state.last;
        state.under_way.insert(number);
        Appending { of: self.clone(), number, losses: state.losses }
    }

    /// Waits until the appends that are registered now have ended.
    pub async fn end(&self) {
        let last = self.state.lock().last;
        self.until(&self.ended, |state| state.under_way.first().is_none_or(|first| *first > last)).await;
    }

    /// Aborts the writes of registered appends. When this returns, none is in flight.
    pub async fn abort(&self) {
        self.state.lock().losses += 1;
        self.lost.notify_waiters();
        self.until(&self.ended, |state| state.sending == 0).await;
    }

    /// Counts a write, unless there have been more losses.
    fn begin_send(&self, losses: u64) -> Result<Sending<'_>> {
        let mut state = self.state.lock();
        if state.losses != losses {
            return Err(Errno::EIO.into());
        }
        state.sending += 1;
        Ok(Sending(self))
    }

    /// Waits for a state that `changed` signals.
    async fn until(&self, changed: &Notify, is: impl Fn(&State) -> bool) {
        loop {
            let mut changed = pin!(changed.notified());
            changed.as_mut().enable();
            if is(&self.state.lock()) {
                return;
            }
            changed.await;
        }
    }
}

impl Appending {
    /// Sends a write of the append.
    ///
    /// # Errors
    /// EIO: the end is not valid any more. The write may have been executed before. Otherwise as
    /// [`OstRequest::send`].
    pub async fn send(&self, request: OstRequest<'_>) -> Result<Response<Reply>> {
        let (of, losses) = (&*self.of, self.losses);
        let _sending = of.begin_send(losses)?;
        let sent = async {
            let _permit = of.sends.acquire().await;
            request.urgent().send().await
        };
        tokio::select! {
            biased;
            () = of.until(&of.lost, |state| state.losses != losses) => Err(Errno::EIO.into()),
            answer = sent => answer,
        }
    }
}

impl Drop for Appending {
    fn drop(&mut self) {
        self.of.state.lock().under_way.remove(&self.number);
        self.of.ended.notify_waiters();
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.0.state.lock().sending -= 1;
        self.0.ended.notify_waiters();
    }
}
