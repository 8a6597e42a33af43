//! Waiters in this process: for locks, and for the answers to glimpses.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use sheen_ldlm::ClientId;
use sheen_wire::{Time, ldlm::Enqueued, ost::ObjectAttr};
use tokio::sync::{Notify, oneshot};

/// A waiter for a lock.
pub(crate) enum Waiter {
    /// The server itself, which waits for several locks together.
    Local(Arc<Pending>),
    /// A request of a client that is answered when the lock is granted or refused.
    Client(ClientId, oneshot::Sender<Enqueued>),
}

/// Counts the locks of a [`crate::Local`] that are still waiting.
#[derive(Default)]
pub(crate) struct Pending {
    left: AtomicUsize,
    changed: Notify,
}

impl Pending {
    /// Counts a lock that has to wait.
    pub fn one_waits(&self) {
        self.left.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts a grant. Returns whether it was the last one.
    pub fn one_granted(&self) -> bool {
        self.left.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether all locks are granted.
    pub fn is_granted(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    pub fn wake(&self) {
        self.changed.notify_one();
    }

    /// Waits until all locks are granted.
    pub async fn wait(&self) {
        while !self.is_granted() {
            self.changed.notified().await;
        }
    }
}

/// Attributes that writers know beyond the data that they have flushed; zero if no writer has dirty
/// data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Glimpse {
    /// Largest size in bytes.
    pub size: u64,
    /// Space that the dirty data of all writers may take, in units of 512 bytes.
    pub blocks: u64,
    /// Time of the last write.
    pub mtime: Option<Time>,
}

impl Glimpse {
    fn add(&mut self, answer: &ObjectAttr) {
        self.size = self.size.max(answer.size);
        self.blocks = self.blocks.saturating_add(answer.blocks);
        self.mtime = self.mtime.max(answer.mtime);
    }
}

/// An object about which clients have been asked.
pub(crate) struct Asked {
    /// Number of answers still missing.
    left: usize,
    known: Glimpse,
    answer: oneshot::Sender<Glimpse>,
}

impl Asked {
    /// `left`: number of clients asked. `answer` gets the result.
    pub fn new(left: usize, answer: oneshot::Sender<Glimpse>) -> Asked {
        Asked { left, known: Glimpse::default(), answer }
    }

    /// Counts an answer; `None`: the client has nothing to add. Returns whether it was the last
    /// one.
    pub fn one_answered(&mut self, answer: Option<ObjectAttr>) -> bool {
        if let Some(answer) = answer {
            self.known.add(&answer);
        }
        self.left -= 1;
        self.left == 0
    }

    /// Returns the receiver of the result, and the result.
    pub fn end(self) -> (oneshot::Sender<Glimpse>, Glimpse) {
        (self.answer, self.known)
    }
}
