//! Group commit: what executed since the last time becomes durable together.
//!
//! A commit begins an interval after the first change, or at once when much has gathered or someone
//! waits. It runs on a blocking thread while further requests execute; there is one at a time.
//!
//! **When the store fails** (disk full, I/O error) the batch is kept and tried again every
//! [`RETRY`] until it succeeds. Meanwhile [`Commits::admit`] refuses changes with EROFS and waiting
//! syncs end with EIO: what was already answered lives on in memory, and nobody is told that it is
//! durable.
//!
//! **When the store is damaged** nothing is committed any more: the MDT is read-only until it ends
//! ([`Mdt::damaged`]). What was answered and not committed is lost then. Requests are answered from
//! memory and from sound pages; one that needs a damaged page gets EIO.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use sheen_namespace::{Batch, Store, StoreError};
use sheen_wire::{Errno, Fid, Result};
use tokio::sync::{Notify, watch};
use tracing::{error, info};

use crate::config::{BACKPRESSURE, COMMIT_BYTES_MAX};
use crate::mdt::{Core, Mdt, STORE};

/// Wait between two attempts to commit a batch.
const RETRY: Duration = Duration::from_secs(1);

/// The state of commits.
pub(crate) struct Commits {
    /// There is something to commit.
    dirty: Notify,
    /// Whether `dirty` has been told.
    pending: AtomicBool,
    /// Do not wait for the interval.
    urgent: Notify,
    /// So much has gathered that changes wait.
    full: AtomicBool,
    /// The last attempt failed.
    failed: AtomicBool,
    /// The store is damaged.
    damaged: AtomicBool,
    stopping: AtomicBool,
    last_committed: AtomicU64,
    progress: watch::Sender<Progress>,
}

/// What waiters watch.
#[derive(Clone, Copy, Debug)]
struct Progress {
    /// Last transno that is durable.
    committed: u64,
    /// The last round that is done; a round is one seal with its commit.
    round: u64,
    /// Attempts that failed.
    failures: u64,
    /// Nothing will be committed any more.
    ended: bool,
}

/// What someone waits for.
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

    /// Last transno that is durable.
    pub fn last_committed(&self) -> u64 {
        self.last_committed.load(Relaxed)
    }

    /// Whether the store cannot be written at present, or not any more.
    pub fn failed(&self) -> bool {
        self.failed.load(Relaxed) || self.is_damaged()
    }

    /// Whether the store is damaged.
    pub fn is_damaged(&self) -> bool {
        self.damaged.load(Relaxed)
    }

    /// The MDT ends: commit what is left and no more.
    pub fn stop(&self) {
        self.stopping.store(true, Relaxed);
        self.dirty.notify_one();
        self.urgent.notify_one();
    }

    pub fn stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    /// Lets a change in, after waiting while too much is uncommitted.
    ///
    /// # Errors
    /// EROFS: the store cannot be written. ESHUTDOWN: the MDT stops.
    pub async fn admit(&self) -> Result<()> {
        while self.full.load(Relaxed) && !self.failed() {
            let mut progress = self.progress.subscribe();
            // `full` is cleared before progress changes, so look again once subscribed.
            if self.full.load(Relaxed) && !self.failed() && progress.changed().await.is_err() {
                return Err(Errno::ESHUTDOWN);
            }
        }
        if self.failed() { Err(Errno::EROFS) } else { Ok(()) }
    }

    /// To be called, with the lock held, after something may have changed. Wakes the committer.
    pub fn touched(&self, core: &Core, ops_max: u64) {
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

    /// Waits for a goal, hurrying the committer.
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

impl Mdt {
    /// Answers when everything executed so far is durable; with a FID, when that file's metadata
    /// is.
    pub(crate) async fn sync(&self, fid: Option<Fid>) -> Result<()> {
        let goal = self.core.lock().ns.needs_commit(fid);
        match goal {
            Some(transno) => self.commits.reach(Goal::Transno(transno)).await,
            None => Ok(()),
        }
    }

    /// The store is damaged: the MDT is read-only from now on. Only the first call logs it.
    pub(crate) fn damaged(&self, e: &StoreError) {
        self.store.freeze(e);
        if self.commits.damaged.swap(true, Relaxed) {
            return;
        }
        let dir = self.config.dir.display();
        error!(
            "{}: {dir}/{STORE} is damaged ({e}); read-only from now on: changes fail with EROFS, those not yet committed are \
             lost; stop the MDT, and restore the file system from a backup",
            self.name
        );
        // No commit will come for those who wait for one.
        self.commits.progress.send_modify(|p| p.failures += 1);
    }

    /// A request or task met a failure of the store.
    pub(crate) fn store_failed(&self, what: &str, fault: &StoreError) {
        if fault.is_damage() {
            self.damaged(fault);
        } else {
            error!("{}: {what} failed: {fault}", self.name);
        }
    }
}

/// The committer task: runs until the MDT stops and everything is committed, or cannot be.
pub(crate) async fn run(mdt: Arc<Mdt>) -> Result<()> {
    let commits = &mdt.commits;
    let ended = loop {
        commits.dirty.notified().await;
        if !commits.stopping() {
            let interval = Duration::from_millis(mdt.tunables.commit_interval_ms.load(Relaxed));
            tokio::select! {
                biased;
                () = commits.urgent.notified() => {}
                () = mdt.rt.sleep(interval) => {}
            }
        }
        let done = round(&mdt).await;
        if commits.stopping() {
            // The first of these rounds may have begun before the MDT stopped; the second holds
            // what is left.
            break match done {
                Ok(()) => round(&mdt).await,
                failed => failed,
            };
        }
    };
    commits.progress.send_modify(|p| p.ended = true);
    ended
}

/// Seals and commits once. Fails only when the MDT stops.
async fn round(mdt: &Arc<Mdt>) -> Result<()> {
    let commits = &mdt.commits;
    let (batch, round) = loop {
        let (batch, fault, round) = {
            let mut core = mdt.core.lock();
            commits.pending.store(false, Relaxed);
            commits.full.store(false, Relaxed);
            core.round += 1;
            let batch = core.ns.seal();
            let fault = if batch.is_none() { core.ns.take_fault() } else { None };
            (batch, fault, core.round)
        };
        match fault {
            // It cannot even be sealed: a read that it needs failed.
            Some(e) => failed(mdt, &e).await?,
            None => break (batch, round),
        }
    };
    if let Some(batch) = &batch {
        commit(mdt, batch).await?;
        mdt.core.lock().ns.committed(batch.last());
        commits.last_committed.fetch_max(batch.last(), Relaxed);
    }
    commits.progress.send_modify(|p| {
        p.committed = commits.last_committed();
        p.round = round;
    });
    if batch.is_some() {
        mdt.destroyer.wake();
    }
    Ok(())
}

/// Commits a batch, trying until it succeeds or the MDT stops.
async fn commit(mdt: &Arc<Mdt>, batch: &Batch) -> Result<()> {
    let commits = &mdt.commits;
    loop {
        let (store, batch) = (mdt.store.clone(), batch.clone());
        let Err(e) = mdt.rt.run_blocking(move || store.commit(&batch)).await else {
            if commits.failed.swap(false, Relaxed) {
                info!("{}: the store can be written again; changes are accepted", mdt.name);
            }
            return Ok(());
        };
        failed(mdt, &e).await?;
    }
}

/// Notes a failure and waits for the next attempt; of a damaged store there is none.
async fn failed(mdt: &Mdt, e: &StoreError) -> Result<()> {
    let commits = &mdt.commits;
    if e.is_damage() {
        mdt.damaged(e);
        while !commits.stopping() {
            commits.dirty.notified().await;
        }
        error!("{}: stopped; changes that were not committed are lost: {e}", mdt.name);
        return Err(Errno::EIO);
    }
    if !commits.failed.swap(true, Relaxed) {
        error!("{}: cannot commit to {}: {e}; read-only until it can", mdt.name, mdt.config.dir.display());
    }
    commits.progress.send_modify(|p| p.failures += 1);
    if commits.stopping() {
        error!("{}: stopped with changes that could not be committed: {e}", mdt.name);
        return Err(Errno::EIO);
    }
    mdt.rt.sleep(RETRY).await;
    Ok(())
}
