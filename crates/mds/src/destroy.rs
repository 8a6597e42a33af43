//! Destroyer: removes the objects of deleted files from the OSTs.
//!
//! The destroyer reads the log of durable unlinks and sends the objects to their OSTs, all OSTs in
//! parallel. It removes an entry from the log when every object of the entry is destroyed; those on
//! an OST that was removed from the file system count as destroyed. It skips
//! entries whose OST is disconnected, and retries them when the OST reconnects. A crash between
//! destroy and removal from the log repeats the destroy, which is harmless.
//!
//! The destroyer also skips the objects of a file under change, until the change ends. They may
//! have been removed from a file that still exists. A client that does not know this yet may still
//! write to an object, which would create the object again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use sheen_namespace::Destroy;
use sheen_rpc::RequestError;
use sheen_wire::Fid;
use sheen_wire::ost::{PARTS_MAX, Request};
use tracing::warn;

use crate::mdt::Mdt;
use crate::state::osp::Osp;

/// Log entries read at once: a few thousand objects, unless the files have many stripes.
const ENTRIES: usize = 1024;
/// Time that an OST may take for its share before it counts as disconnected, so that a dead OST
/// does not delay the others. It may still execute the request; a repeated destroy is harmless.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The destroyer task.
pub(crate) async fn run(mdt: Arc<Mdt>) {
    let mut after = 0;
    // A file under change whose objects were skipped.
    let mut held = None;
    loop {
        tokio::select! {
            biased;
            () = mdt.destroyer.work.notified() => {}
            () = settled(&mdt, held) => mdt.destroyer.from_start.store(true, Relaxed),
        }
        loop {
            if mdt.commits.is_damaged() {
                // A damaged log may name objects of existing files.
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
                    mdt.store_failed("reading the unlink log", &e);
                    break;
                }
            }
        }
    }
}

/// Waits until no request is changing the file; without a file, forever.
async fn settled(mdt: &Mdt, file: Option<Fid>) {
    match file {
        Some(file) => mdt.locks.settled(file).await,
        None => std::future::pending().await,
    }
}

async fn destroy_on(mdt: Arc<Mdt>, osp: Arc<Osp>, objects: Vec<Fid>) -> Result<(), RequestError> {
    for objects in objects.chunks(PARTS_MAX) {
        let request = Request::Destroy { objects: objects.to_vec() };
        let op = request.op();
        mdt.rt.timeout(TIMEOUT, osp.run(request)).await.unwrap_or_else(|_| Err(osp.no_reply(op, TIMEOUT)))?;
    }
    Ok(())
}

/// Destroys the objects of these entries on all connected OSTs.
async fn destroy(mdt: &Arc<Mdt>, entries: &[Destroy]) {
    let mut per_ost: BTreeMap<u32, Vec<Fid>> = BTreeMap::new();
    let objects = entries.iter().flat_map(|e| &e.objects).filter(|(ost, _)| !mdt.osts.is_removed(*ost));
    for (ost, object) in objects {
        per_ost.entry(*ost).or_default().push(*object);
    }
    let mut unreachable = BTreeSet::new();
    let mut tasks = Vec::new();
    for (ost, objects) in per_ost {
        match mdt.osts.connected(ost) {
            None => drop(unreachable.insert(ost)),
            Some(osp) => tasks.push((osp.clone(), mdt.rt.spawn("destroy", destroy_on(mdt.clone(), osp, objects)))),
        }
    }
    for (osp, task) in tasks {
        match task.await {
            Ok(Ok(())) => {}
            failed => {
                if let Ok(Err(e)) = failed {
                    warn!("{}: {e}: objects of deleted files use space until the OST answers", mdt.name);
                }
                unreachable.insert(osp.index);
                osp.lost();
            }
        }
    }
    let done: Vec<u64> = entries
        .iter()
        .filter(|e| e.objects.iter().all(|(ost, _)| !unreachable.contains(ost)))
        .map(|e| e.seqno)
        .collect();
    let mut core = mdt.core.lock();
    core.ns.destroyed(&done);
    mdt.wake_committer(&core);
}
