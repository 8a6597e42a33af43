//! The destroyer: removes the objects of files that are gone for good.
//!
//! It reads the log of durable unlinks, sends the objects to their OSTs, all OSTs at once, and
//! takes an entry off the log when every one of its objects is gone. Entries whose OST is away are
//! passed over and looked at again when an OST comes back. A crash between the two repeats a
//! destroy, which does no harm.
//!
//! Passed over are also the objects of a file that somebody is changing, until that is done: they
//! may have been cut off a file that lives, and whoever does not know yet may still be writing
//! there, which would make the object anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use sheen_namespace::Destroy;
use sheen_wire::ost::{PARTS_MAX, Request};
use sheen_wire::{Errno, Fid, Result};
use tokio::sync::Notify;
use tracing::warn;

use crate::mdt::Mdt;
use crate::osp::Osp;

/// Entries of the log taken at once: a few thousand objects, unless they have many stripes.
const ENTRIES: usize = 1024;
/// How long an OST may take for its share before it counts as away, so that one that died does not
/// hold up the others. It may still do the work; doing it again does no harm.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Wakes the destroyer task.
pub(crate) struct Destroyer {
    work: Notify,
    from_start: AtomicBool,
}

impl Destroyer {
    pub fn new() -> Destroyer {
        Destroyer { work: Notify::new(), from_start: AtomicBool::new(true) }
    }

    /// There may be new entries.
    pub fn wake(&self) {
        self.work.notify_one();
    }

    /// An OST came back: what was passed over may now be done.
    pub fn rescan(&self) {
        self.from_start.store(true, Relaxed);
        self.work.notify_one();
    }
}

/// The destroyer task.
pub(crate) async fn run(mdt: Arc<Mdt>) {
    let mut after = 0;
    // A file under change whose objects were passed over.
    let mut held = None;
    loop {
        tokio::select! {
            biased;
            () = mdt.destroyer.work.notified() => {}
            () = settled(&mdt, held) => mdt.destroyer.from_start.store(true, Relaxed),
        }
        loop {
            if mdt.commits.is_damaged() {
                // A damaged log may name objects of files.
                return;
            }
            if mdt.destroyer.from_start.swap(false, Relaxed) {
                (after, held) = (0, None);
            }
            let entries = mdt.core.lock().ns.destroys(after, ENTRIES);
            match entries {
                Ok(mut entries) => match entries.last() {
                    Some(last) => {
                        after = last.seqno;
                        entries.retain(|entry| {
                            let is_changing = mdt.locks.is_changing(entry.file);
                            held = if is_changing { Some(entry.file) } else { held };
                            !is_changing
                        });
                        destroy(&mdt, &entries).await;
                    }
                    None => break,
                },
                Err(e) => {
                    mdt.store_failed("reading the log of unlinks", &e);
                    break;
                }
            }
        }
    }
}

/// Waits until nobody is changing the file; without one for ever.
async fn settled(mdt: &Mdt, file: Option<Fid>) {
    match file {
        Some(file) => mdt.locks.settled(file).await,
        None => std::future::pending().await,
    }
}

async fn destroy_on(mdt: Arc<Mdt>, osp: Arc<Osp>, objects: Vec<Fid>) -> Result<()> {
    for objects in objects.chunks(PARTS_MAX) {
        let destroy = osp.run(Request::Destroy { objects: objects.to_vec() });
        mdt.rt.timeout(TIMEOUT, destroy).await.unwrap_or(Err(Errno::ETIMEDOUT))?;
    }
    Ok(())
}

/// Destroys the objects of these entries as far as their OSTs can be reached.
async fn destroy(mdt: &Arc<Mdt>, entries: &[Destroy]) {
    let mut per_ost: BTreeMap<u32, Vec<Fid>> = BTreeMap::new();
    for (ost, object) in entries.iter().flat_map(|e| &e.objects) {
        per_ost.entry(*ost).or_default().push(*object);
    }
    let mut away = BTreeSet::new();
    let mut tasks = Vec::new();
    for (ost, objects) in per_ost {
        match mdt.osts.connected(ost) {
            None => drop(away.insert(ost)),
            Some(osp) => tasks.push((osp.clone(), mdt.rt.spawn("destroy", destroy_on(mdt.clone(), osp, objects)))),
        }
    }
    for (osp, task) in tasks {
        match task.await {
            Ok(Ok(())) => {}
            failed => {
                if let Ok(Err(e)) = failed {
                    warn!("{}: objects on {} are not yet removed: {e}", mdt.name, osp.target);
                }
                away.insert(osp.index);
                osp.lost();
            }
        }
    }
    let done: Vec<u64> =
        entries.iter().filter(|e| e.objects.iter().all(|(ost, _)| !away.contains(ost))).map(|e| e.seqno).collect();
    let mut core = mdt.core.lock();
    core.ns.destroyed(&done);
    mdt.touched(&core);
}
