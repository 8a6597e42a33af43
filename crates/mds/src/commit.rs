//! Group commit: all changes since the previous commit become durable together.
//!
//! A commit begins one interval after the first change. It begins at once if much has gathered or a
//! request waits for it. It runs on a blocking thread while further requests execute. Only one
//! commit runs at a time.
//!
//! **When the disk is full** the committer frees a part of the [reserve](crate::state::reserve) and
//! repeats the commit at once.
//!
//! **When the store fails** otherwise (reserve used up, I/O error) the committer retains the batch
//! and retries every [`RETRY`] until it succeeds. Meanwhile
//! [`Commits::admit`](crate::state::commits::Commits::admit) refuses changes with EROFS, and
//! waiting syncs fail with EIO. Changes that clients got a reply to stay in memory, and no client
//! is notified that they are durable.
//!
//! **When the store is damaged** nothing is committed any more: the MDT is read-only until it stops
//! ([`Mdt::damaged`]). Changes that clients got a reply to and that were not committed are then
//! lost. The MDT answers requests from memory and from undamaged pages. A request that needs a
//! damaged page gets EIO.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use sheen_namespace::{Batch, Store, StoreError, UnneededChunks};
use sheen_wire::{Errno, Fid, Result};
use tracing::{error, info};

use crate::changelog;
use crate::dir::STORE;
use crate::mdt::Mdt;
use crate::state::commits::Goal;

/// Pause between two attempts to commit a batch.
const RETRY: Duration = Duration::from_secs(1);

impl Mdt {
    /// Waits until everything executed so far is durable; with a FID, until that file's metadata
    /// is.
    pub(crate) async fn sync(&self, fid: Option<Fid>) -> Result<()> {
        let goal = self.core.lock().ns.needs_commit(fid);
        match goal {
            Some(transno) => self.commits.reach(Goal::Transno(transno)).await,
            None => Ok(()),
        }
    }

    /// Makes the MDT read-only, because the store is damaged. Only the first call logs it.
    pub(crate) fn damaged(&self, e: &StoreError) {
        self.store.freeze(e);
        if self.commits.damaged.swap(true, Relaxed) {
            return;
        }
        let dir = self.config.dir.display();
        error!(
            "{}: {dir}/{STORE} is damaged ({e}): the MDT is read-only, changes fail with EROFS, uncommitted changes are lost; \
             stop the MDT and restore the file system from a backup",
            self.name
        );
        // Wakes the waiting requests: no further commit will come.
        self.commits.progress.send_modify(|p| p.failures += 1);
    }

    /// Handles a failure of the store that a request or a task met.
    pub(crate) fn store_failed(&self, what: &str, fault: &StoreError) {
        if fault.is_damage() {
            self.damaged(fault);
        } else {
            error!("{}: {what} failed: store error: {fault}", self.name);
        }
    }
}

/// The committer task. Runs until the MDT stops and everything is committed or cannot be.
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
            // The first of these rounds may have begun before the MDT stopped. The second one
            // commits the rest.
            break match done {
                Ok(()) => round(&mdt).await,
                failed => failed,
            };
        }
    };
    commits.progress.send_modify(|p| p.ended = true);
    ended
}

/// Seals and commits one batch. Fails only if the MDT stops.
async fn round(mdt: &Arc<Mdt>) -> Result<()> {
    let commits = &mdt.commits;
    let (batch, round) = loop {
        let unneeded = match unneeded_records(mdt).await {
            Ok(unneeded) => unneeded,
            Err(e) => {
                failed(mdt, &e).await?;
                continue;
            }
        };
        let (batch, fault, round) = {
            let mut core = mdt.core.lock();
            commits.pending.store(false, Relaxed);
            commits.full.store(false, Relaxed);
            core.round += 1;
            if let Some(chunks) = unneeded {
                core.ns.delete_unneeded(chunks);
            }
            let batch = core.ns.seal();
            let fault = if batch.is_none() { core.ns.take_fault() } else { None };
            (batch, fault, core.round)
        };
        match fault {
            // The batch cannot even be sealed: a read of the store failed.
            Some(e) => failed(mdt, &e).await?,
            None => break (batch, round),
        }
    };
    let mut readers = Vec::new();
    if let Some(batch) = &batch {
        commit(mdt, batch).await?;
        {
            let mut core = mdt.core.lock();
            core.ns.committed(batch.last());
            core.authors.committed(batch.last());
            readers = mdt.committed_changelog(&mut core);
        }
        commits.last_committed.fetch_max(batch.last(), Relaxed);
    }
    commits.progress.send_modify(|p| {
        p.committed = commits.last_committed();
        p.round = round;
    });
    // After those who wait for the commit.
    changelog::call(&readers);
    if batch.is_some() {
        mdt.destroyer.wake();
        mdt.quotas.log.notify_one();
        mdt.watch_space();
    }
    Ok(())
}

/// Reads which records of the changelog this round deletes. No other batch is being committed.
async fn unneeded_records(mdt: &Arc<Mdt>) -> Result<Option<UnneededChunks>, StoreError> {
    let unneeded = mdt.core.lock().ns.unneeded_records();
    let Some(unneeded) = unneeded else { return Ok(None) };
    let store = mdt.store.clone();
    mdt.rt.run_blocking(move || unneeded.read(&*store)).await.map(Some)
}

/// Commits a batch; retries until it succeeds or the MDT stops.
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
        if !e.is_damage() && mdt.release_reserve() {
            continue;
        }
        failed(mdt, &e).await?;
    }
}

/// Records a failure and waits for the next attempt. A damaged store gets no further attempt.
async fn failed(mdt: &Mdt, e: &StoreError) -> Result<()> {
    let commits = &mdt.commits;
    if e.is_damage() {
        mdt.damaged(e);
        while !commits.stopping() {
            commits.dirty.notified().await;
        }
        error!("{}: stopped with a damaged store ({e}): uncommitted changes are lost; restore from a backup", mdt.name);
        return Err(Errno::EIO);
    }
    if !commits.failed.swap(true, Relaxed) {
        error!(
            "{}: commit to {} failed ({e}): the MDT is read-only until a retry succeeds; check the disk",
            mdt.name,
            mdt.config.dir.display()
        );
    }
    commits.progress.send_modify(|p| p.failures += 1);
    if commits.stopping() {
        error!("{}: stopped after a failed commit ({e}): uncommitted changes are lost", mdt.name);
        return Err(Errno::EIO);
    }
    mdt.rt.sleep(RETRY).await;
    Ok(())
}
