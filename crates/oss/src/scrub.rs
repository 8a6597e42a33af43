//! The scrub of an OST, Lustre's `lfsck -t scrub`: it stores checksums of objects at rest, and
//! compares all objects with them on request.
//!
//! A task looks every [`INTERVAL`] for objects that have changed, and stores checksums of those
//! that were not changed for a while. A pass over all objects begins on request, and after a start
//! at which the stored checksums do not count: after a power failure, or an upgrade.
//!
//! Objects that changed shortly before a restart get their checksums in the next pass.
//!
//! A pass also looks for objects that were durable, and have no file: it compares the names in each
//! directory with the index of durable objects. The MDT knows which of them are lost. While too
//! many of them wait for the MDT, the pass waits.
//!
//! A pass also counts the space of all objects by owner, and corrects the sums of the quotas if
//! they differ. Changes meanwhile count in both. Before the OST has counted its objects after a
//! start, there is nothing to compare.
//!
//! The OST asks the MDT to repair what is damaged ([`crate::repair`]).

use std::{
    sync::{Arc, Weak, atomic::Ordering::Relaxed},
    time::Duration,
};

use sheen_rt::Rt;
use sheen_wire::{Errno, Fid, Result};
use tokio::sync::Notify;
use tracing::{info, warn};

use crate::{Ost, Store, scrubber::Counts, store::scrub::Scrubbed};

/// Time between two searches for changed objects.
const INTERVAL: Duration = Duration::from_secs(30);
/// Time between two rounds of requests to repair damage: another mirror may be there by then.
const ASK_AGAIN: Duration = Duration::from_secs(300);
/// Objects that are listed at a time. Each list reads the names of a whole directory.
const LIST_MAX: usize = 8192;
/// Objects without a name that are collected at a time. Normally there are none.
const UNLISTED_MAX: usize = 1024;
/// The search for a file, or in a directory, counts for the pace as the read of this many bytes.
const LOOK_BYTES: u64 = 64 << 10;
/// Pause after each directory, also of a scrub without a limit of speed.
const LOOK_PAUSE: Duration = Duration::from_millis(1);
/// Time between two attempts to report an object while too many others wait for the MDT.
const FULL_PAUSE: Duration = Duration::from_secs(1);

/// The task. It ends with the OST.
pub(crate) async fn run(ost: Weak<Ost>, rt: Rt, wake: Arc<Notify>) {
    let mut asked = rt.now();
    while let Some(ost) = ost.upgrade() {
        let scrub = async {
            let begins = ost.scrubber.begin_pass(rt.wall());
            if begins {
                ost.perhaps_blocking(true, || ost.store.ask_for_repairs_again());
                asked = rt.now();
                ost.scrub_all().await;
            } else if rt.now().since(asked) >= ASK_AGAIN {
                ost.perhaps_blocking(true, || ost.store.ask_for_due_repairs());
                asked = rt.now();
            }
            ost.scrub_changed().await;
        };
        if ost.locks.unless_stopping(scrub).await.is_err() {
            return;
        }
        drop(ost);
        let _ = rt.timeout(INTERVAL, wake.notified()).await;
    }
}

impl Ost {
    /// Scrubs all objects.
    async fn scrub_all(&self) {
        let mut counts_space = self.store.accounting().begin_recount();
        let is_listed = self.scrub_listed(&mut counts_space).await.is_some();
        self.end_recount(counts_space && is_listed);
        let complete = is_listed && self.look_for_lost().await.is_some();
        let Counts { objects, stored, damaged, failed, .. } = self.scrubber.end_pass(complete, self.rt.wall());
        let ended = if complete { "has ended" } else { "was stopped" };
        info!(
            "{}: scrub {ended}: {objects} objects, {stored} got checksums, {damaged} blocks damaged, {failed} failed",
            self.name
        );
    }

    /// Scrubs one object after the other. `counts_space`: also counts its space; becomes false if
    /// that fails. `None`: the scrub is to stop.
    async fn scrub_listed(&self, counts_space: &mut bool) -> Option<()> {
        let mut after = Fid::ZERO;
        loop {
            let objects = self.next_objects(&mut after, |store, after| store.objects_after(after, LIST_MAX)).await?;
            if objects.is_empty() {
                return Some(());
            }
            for object in objects {
                if self.scrubber.pace.stop.load(Relaxed) {
                    return None;
                }
                let done = self.scrub(object, true).await?;
                self.scrubber.count(done);
                if *counts_space {
                    let _pass = self.gate.enter()?;
                    if let Err(errno) = self.perhaps_blocking(true, || self.store.count_again(object)) {
                        warn!(
                            "{}: scrub: cannot count the space of object {object}: {errno}; sums by owner are not \
                             compared",
                            self.name
                        );
                        *counts_space = false;
                    }
                }
            }
        }
    }

    /// Ends the second count of the space by owner. `is_complete`: it has reached all objects.
    fn end_recount(&self, is_complete: bool) {
        let wrong = self.store.accounting().end_recount(is_complete);
        if !wrong.is_empty() {
            let ids = wrong.len();
            warn!("{}: scrub: the space of {ids} users, groups and projects was counted wrong; corrected", self.name);
        }
        self.scrubber.counted_space(is_complete.then_some(wrong));
    }

    /// Looks for objects without a file, and asks the MDT about them. `None`: the scrub is to stop.
    async fn look_for_lost(&self) -> Option<()> {
        for dir in self.store.durable_dirs() {
            let mut after = Fid::ZERO;
            loop {
                let list = |store: &Store, after| store.unlisted(dir, after, UNLISTED_MAX);
                let objects = self.next_objects(&mut after, list).await?;
                if objects.is_empty() {
                    break;
                }
                for object in objects {
                    self.suspect(object).await?;
                }
            }
            self.rt.sleep(LOOK_PAUSE).await;
        }
        Some(())
    }

    /// Asks the MDT about an object if it is missing. Waits while too many others wait for the MDT.
    /// `None`: the scrub is to stop.
    async fn suspect(&self, object: Fid) -> Option<()> {
        while !self.look(|store| store.suspect(object)).await? {
            self.rt.sleep(FULL_PAUSE).await;
        }
        Some(())
    }

    /// Returns the next objects of a list, of which `list` returns those after an object. `after`:
    /// the last object before; becomes the last of these. None are left: the list has ended.
    /// `None`: the scrub is to stop.
    async fn next_objects(
        &self,
        after: &mut Fid,
        list: impl FnOnce(&Store, Fid) -> Result<Vec<Fid>>,
    ) -> Option<Vec<Fid>> {
        let last = *after;
        match self.look(|store| list(store, last)).await? {
            Ok(objects) => {
                *after = objects.last().copied().unwrap_or(last);
                Some(objects)
            }
            Err(errno) => {
                warn!("{}: scrub: cannot list objects: {errno}", self.name);
                None
            }
        }
    }

    /// Looks something up on the disk. `None`: the scrub is to stop.
    async fn look<T>(&self, look: impl FnOnce(&Store) -> T) -> Option<T> {
        if self.scrubber.pace.stop.load(Relaxed) {
            return None;
        }
        let pass = self.gate.enter()?;
        let found = self.perhaps_blocking(true, || look(&self.store));
        drop(pass);
        self.scrubber.pace.after(LOOK_BYTES).await;
        Some(found)
    }

    /// Stores checksums of objects that have changed.
    async fn scrub_changed(&self) {
        if self.scrubber.quiet().is_none() {
            return;
        }
        for object in self.store.take_changed() {
            let Some(done) = self.scrub(object, false).await else { return };
            if done.is_ok_and(|done| !done.complete) {
                self.store.put_back_changed(object);
            }
        }
    }

    /// Scrubs an object. `None`: the OST stops.
    async fn scrub(&self, object: Fid, compare: bool) -> Option<Result<Scrubbed>> {
        let _pass = self.gate.enter()?;
        let done = self.store.scrub(object, compare, self.scrubber.quiet(), &self.scrubber.pace).await;
        match done {
            Err(Errno::EOPNOTSUPP) => {
                if self.scrubber.is_newly_unsupported() {
                    warn!("{}: the local file system supports no extended attributes: no checksums at rest", self.name);
                }
            }
            // Without space for the checksums, the object has none. The next pass tries again.
            Err(Errno::ENOSPC | Errno::EDQUOT) | Ok(_) => {}
            Err(errno) => warn!("{}: scrub of object {object}: {errno}", self.name),
        }
        Some(done)
    }
}
