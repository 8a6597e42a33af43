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
//! The OST asks the MDT to repair what is damaged ([`crate::repair`]).

use std::{
    sync::{Arc, Weak, atomic::Ordering::Relaxed},
    time::Duration,
};

use sheen_objects::name::Dir;
use sheen_rt::Rt;
use sheen_wire::{Errno, Fid, Result};
use tokio::sync::Notify;
use tracing::{info, warn};

use crate::{Ost, scrubber::Counts, store::scrub::Scrubbed};

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
        let complete = self.scrub_listed().await && self.look_for_lost().await;
        let Counts { objects, stored, damaged, failed, .. } = self.scrubber.end_pass(complete, self.rt.wall());
        let ended = if complete { "has ended" } else { "was stopped" };
        info!(
            "{}: scrub {ended}: {objects} objects, {stored} got checksums, {damaged} blocks damaged, {failed} failed",
            self.name
        );
    }

    /// Scrubs one object after the other. Returns whether the last one was reached.
    async fn scrub_listed(&self) -> bool {
        let mut after = Fid::ZERO;
        loop {
            let listed = self.perhaps_blocking(true, || self.store.objects_after(after, LIST_MAX));
            let objects = match listed {
                Ok(objects) => objects,
                Err(errno) => {
                    warn!("{}: scrub: cannot list objects: {errno}", self.name);
                    return false;
                }
            };
            let Some(last) = objects.last() else { return true };
            after = *last;
            for object in objects {
                if self.scrubber.pace.stop.load(Relaxed) {
                    return false;
                }
                let Some(done) = self.scrub(object, true).await else { return false };
                self.scrubber.count(done);
            }
        }
    }

    /// Looks for objects without a file, and asks the MDT about them. Returns whether the last one
    /// was reached.
    async fn look_for_lost(&self) -> bool {
        for dir in self.store.durable_dirs() {
            if !self.look_for_lost_in(dir).await {
                return false;
            }
            self.rt.sleep(LOOK_PAUSE).await;
        }
        true
    }

    async fn look_for_lost_in(&self, dir: Dir) -> bool {
        let mut after = Fid::ZERO;
        loop {
            if self.scrubber.pace.stop.load(Relaxed) {
                return false;
            }
            let Some(pass) = self.gate.enter() else { return false };
            let unlisted = self.perhaps_blocking(true, || self.store.unlisted(dir, after, UNLISTED_MAX));
            drop(pass);
            self.scrubber.pace.after(LOOK_BYTES).await;
            let objects = match unlisted {
                Ok(objects) => objects,
                Err(errno) => {
                    warn!("{}: scrub: cannot list objects: {errno}", self.name);
                    return false;
                }
            };
            let Some(last) = objects.last() else { return true };
            after = *last;
            for object in objects {
                if !self.suspect(object).await {
                    return false;
                }
            }
        }
    }

    /// Asks the MDT about an object if it is missing. Waits while too many others wait for the MDT.
    /// Returns `false` if the scrub is to stop.
    async fn suspect(&self, object: Fid) -> bool {
        loop {
            if self.scrubber.pace.stop.load(Relaxed) {
                return false;
            }
            let Some(pass) = self.gate.enter() else { return false };
            let is_done = self.perhaps_blocking(true, || self.store.suspect(object));
            drop(pass);
            self.scrubber.pace.after(LOOK_BYTES).await;
            if is_done {
                return true;
            }
            self.rt.sleep(FULL_PAUSE).await;
        }
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
