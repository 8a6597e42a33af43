//! Commits: all changes so far are made durable, 5 s after the first of them
//! (`commit_interval_ms`). Clients then drop what they have retained of them ([`crate::commits`]).
//!
//! A replay must not undo what became durable otherwise. So these requests are answered only after
//! a commit, if their objects have changed since the last one:
//! * the removal of objects: a replayed write would create them again;
//! * a seal: the file continues under another name, where other clients change it;
//! * a sync of an object that several clients have changed. The last of them may have disconnected
//!   when its change is needed to hide an earlier one of another client.
//!
//! Invariant: nothing is committed before the clients have replayed the changes that were lost.

use std::sync::{Arc, Weak};

use sheen_rt::Rt;
use sheen_wire::{Fid, Result};
use tracing::warn;

use crate::{Ost, commits::Wakes};

impl Ost {
    /// Makes all changes so far durable, once the changes that were lost are replayed.
    ///
    /// # Errors
    /// Errors of the local file system.
    pub(crate) async fn commit(&self) -> Result<()> {
        self.recovery.replayed().await;
        // Including the replayed changes, which clients retain until they are committed.
        let wanted = self.commits.last();
        let _turn = self.commits.turn.lock().await;
        if self.store.committed() >= wanted {
            return Ok(());
        }
        let last = self.commits.last();
        self.store.commit(last).await?;
        self.disk.wait(self.disk.sync()).await;
        self.commits.committed(last);
        Ok(())
    }

    /// Makes the objects' changes durable before they are removed or sealed, or after they were, so
    /// that no client replays them.
    ///
    /// # Errors
    /// As [`Ost::commit`].
    pub(crate) async fn settle(&self, objects: &[Fid]) -> Result<()> {
        if self.commits.has_recent(objects) || self.replays() { self.commit().await } else { Ok(()) }
    }

    /// Whether clients may still replay changes, now or after another failure of the host.
    fn replays(&self) -> bool {
        !self.recovery.is_ended() && !self.store.lost_epochs().is_empty()
    }

    /// As [`Ost::settle`], for all objects that `which` picks.
    ///
    /// # Errors
    /// As [`Ost::commit`].
    pub(crate) async fn settle_where(&self, which: impl FnMut(Fid) -> bool) -> Result<()> {
        if self.commits.is_recent(which) || self.replays() { self.commit().await } else { Ok(()) }
    }

    /// Commits after a sync of objects that several clients have changed.
    ///
    /// # Errors
    /// As [`Ost::commit`].
    pub(crate) async fn settle_shared(&self, objects: &[Fid]) -> Result<()> {
        if self.commits.is_shared(objects) { self.commit().await } else { Ok(()) }
    }
}

/// The task that commits. It ends with the OST ([`Ost::stop`] wakes it).
pub(crate) async fn run(ost: Weak<Ost>, rt: Rt, wakes: Arc<Wakes>) {
    let mut is_failing = false;
    loop {
        wakes.changed.notified().await;
        let Some(interval) = ost.upgrade().map(|ost| ost.commits.interval()) else { return };
        let _ = rt.timeout(interval, wakes.full.notified()).await;
        let Some(ost) = ost.upgrade().filter(|ost| !ost.locks.is_stopping()) else { return };
        let Err(errno) = ost.commit().await else {
            is_failing = false;
            continue;
        };
        if !std::mem::replace(&mut is_failing, true) {
            warn!(
                "{}: cannot make changes durable: {errno}; mounts retain the last ones; check the device, and restart \
                 the OST",
                ost.name
            );
        }
        drop(ost);
        rt.sleep(interval).await;
        wakes.changed.notify_one();
    }
}
