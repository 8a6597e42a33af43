//! The state of commits: what is uncommitted, and how far commits have come. The task is in
//! [`crate::commit`].

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use sheen_wire::{Errno, Result};
use tokio::sync::{Notify, watch};

use crate::config::{BACKPRESSURE, COMMIT_BYTES_MAX};
use crate::state::core::Core;

/// The state of commits.
pub(crate) struct Commits {
    /// Notified when there is something to commit.
    pub dirty: Notify,
    /// Whether `dirty` was notified since the last seal of a batch.
    pub pending: AtomicBool,
    /// Notified when a commit must not wait for the interval.
    pub urgent: Notify,
    /// So much is uncommitted that further changes wait.
    pub full: AtomicBool,
    /// The last attempt failed.
    pub failed: AtomicBool,
    /// The store is damaged.
    pub damaged: AtomicBool,
    pub stopping: AtomicBool,
    pub last_committed: AtomicU64,
    pub progress: watch::Sender<Progress>,
}

/// Progress of commits, which waiting requests watch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// Last durable transno.
    pub committed: u64,
    /// Last finished round. A round seals one batch and commits it.
    pub round: u64,
    /// Number of failed attempts.
    pub failures: u64,
    /// No further commit follows.
    pub ended: bool,
}

/// The event that a request waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// This change is durable.
    Transno(u64),
    /// This round is done.
    Round(u64),
}

impl Commits {
    pub fn new(last_committed: u64) -> Commits {
        let progress = Progress { committed: last_committed, round: 0, failures: 0, ended: false };
        Commits {
            dirty: Notify::new(),
            pending: AtomicBool::new(false),
            urgent: Notify::new(),
            full: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            damaged: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            last_committed: AtomicU64::new(last_committed),
            progress: watch::Sender::new(progress),
        }
    }

    /// Returns the last durable transno.
    pub fn last_committed(&self) -> u64 {
        self.last_committed.load(Relaxed)
    }

    /// Returns whether the store cannot be written, for the moment or for good.
    pub fn failed(&self) -> bool {
        self.failed.load(Relaxed) || self.is_damaged()
    }

    /// Returns whether the store is damaged.
    pub fn is_damaged(&self) -> bool {
        self.damaged.load(Relaxed)
    }

    /// Makes the committer commit the rest and end, because the MDT stops.
    pub fn stop(&self) {
        self.stopping.store(true, Relaxed);
        self.dirty.notify_one();
        self.urgent.notify_one();
    }

    pub fn stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    /// Admits a change; waits while too much is uncommitted.
    ///
    /// # Errors
    /// EROFS: the store cannot be written. ESHUTDOWN: the MDT stops.
    pub async fn admit(&self) -> Result<()> {
        while self.full.load(Relaxed) && !self.failed() {
            let mut progress = self.progress.subscribe();
            // `full` is cleared before the progress changes, so check it again once subscribed.
            if self.full.load(Relaxed) && !self.failed() && progress.changed().await.is_err() {
                return Err(Errno::ESHUTDOWN);
            }
        }
        if self.failed() { Err(Errno::EROFS) } else { Ok(()) }
    }

    /// Wakes the committer if there is something to commit. To be called after every possible
    /// change, with the core lock held.
    pub fn wake_if_dirty(&self, core: &Core, ops_max: u64) {
        let (ops, bytes) = core.ns.dirty();
        if ops == 0 && bytes == 0 {
            return;
        }
        if ops >= ops_max || bytes >= COMMIT_BYTES_MAX {
            self.urgent.notify_one();
            if ops >= ops_max.saturating_mul(BACKPRESSURE) || bytes >= COMMIT_BYTES_MAX * BACKPRESSURE as usize {
                self.full.store(true, Relaxed);
            }
        }
        self.wake();
    }

    fn wake(&self) {
        if !self.pending.swap(true, Relaxed) {
            self.dirty.notify_one();
        }
    }

    /// Waits for a goal, and lets the committer begin at once.
    ///
    /// # Errors
    /// EIO: an attempt to commit failed meanwhile, or the store is damaged. ESHUTDOWN: the MDT
    /// ended first.
    pub async fn reach(&self, goal: Goal) -> Result<()> {
        let mut progress = self.progress.subscribe();
        let failures = progress.borrow().failures;
        self.wake();
        self.urgent.notify_one();
        loop {
            let now = *progress.borrow_and_update();
            let reached = match goal {
                Goal::Transno(transno) => now.committed >= transno,
                Goal::Round(round) => now.round >= round,
            };
            if reached {
                return Ok(());
            }
            if now.failures > failures || self.is_damaged() {
                return Err(Errno::EIO);
            }
            if now.ended || progress.changed().await.is_err() {
                return Err(Errno::ESHUTDOWN);
            }
        }
    }
}
