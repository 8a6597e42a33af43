//! The count of an OST's objects after a start, for quotas, while clients use them.
//!
//! A task counts all objects, in small steps. Until it has ended, no limit applies. Then it counts
//! objects again that have changed, every [`INTERVAL`], and looks for objects without an owner if
//! there were too many. Each round also ends an idle copy of a lost object.

use std::{sync::Weak, time::Duration};

use sheen_objects::name::Dir;
use sheen_rt::Rt;
use sheen_wire::Result;
use tracing::{info, warn};

use crate::Ost;

/// Time between two rounds.
const INTERVAL: Duration = Duration::from_secs(30);
/// Objects of a step. Each takes some microseconds, or a read of the disk.
const STEP: usize = 256;
/// Bounds of the pause after a step. It is as long as the step took.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));
/// Rounds after which objects are reported again whose owners the MDT has not sent: 10 minutes.
const REPORT_ROUNDS: u32 = 20;

/// The task. It ends with the OST.
pub(crate) async fn run(ost: Weak<Ost>, rt: Rt) {
    let mut round = 0;
    while let Some(ost) = ost.upgrade().filter(|ost| !ost.locks.is_stopping()) {
        if ost.locks.unless_stopping(ost.quota_round(round)).await.is_err() {
            return;
        }
        round += 1;
        drop(ost);
        rt.sleep(INTERVAL).await;
    }
}

impl Ost {
    async fn quota_round(&self, round: u32) {
        // Before, an object's file may be known only to the client that replays its creation.
        self.recovery.ended().await;
        let accounting = self.store.accounting();
        if !accounting.is_complete() {
            match self.count_all(false).await {
                Ok(Some(objects)) => {
                    accounting.complete();
                    info!("{}: counted the space of {objects} objects; quotas are enforced from now on", self.name);
                }
                Ok(None) => return,
                Err(errno) => {
                    warn!(
                        "{}: cannot count the space of objects: {errno}; no quotas are enforced; retrying",
                        self.name
                    );
                }
            }
        } else if accounting.take_missed()
            && let Err(errno) = self.count_all(true).await
        {
            warn!("{}: cannot look for objects without an owner: {errno}; nobody is charged for them", self.name);
        }
        let Some(_pass) = self.gate.enter() else { return };
        self.perhaps_blocking(true, || {
            self.store.recount_changed();
            self.store.abort_idle_copy();
        });
        if round % REPORT_ROUNDS == REPORT_ROUNDS - 1 {
            accounting.report_again();
        }
    }

    /// Counts all objects that are not counted. `again`: also looks for counted ones without an
    /// owner. Returns their number; `None`: the OST stops.
    ///
    /// # Errors
    /// An object's directory cannot be read.
    async fn count_all(&self, again: bool) -> Result<Option<u64>> {
        let (mut total, mut since_pause, mut began) = (0, 0, self.rt.now());
        let Some(pass) = self.gate.enter() else { return Ok(None) };
        let seqs = self.perhaps_blocking(true, || self.store.sequences())?;
        drop(pass);
        for dir in seqs.into_iter().flat_map(Dir::all) {
            let Some(pass) = self.gate.enter() else { return Ok(None) };
            let objects = self.perhaps_blocking(true, || self.store.list(dir, 0, u32::MAX))?;
            drop(pass);
            total += objects.len() as u64;
            for step in objects.chunks(STEP) {
                let Some(pass) = self.gate.enter() else { return Ok(None) };
                self.perhaps_blocking(true, || self.store.count_objects(step, again));
                drop(pass);
                since_pause += step.len();
                if since_pause >= STEP {
                    let took = self.rt.now().since(began);
                    self.rt.sleep(took.clamp(PAUSE.0, PAUSE.1)).await;
                    (since_pause, began) = (0, self.rt.now());
                }
            }
        }
        Ok(Some(total))
    }
}
