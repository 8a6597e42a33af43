//! The check of a running MDT, Lustre's `lfsck`: reads the records of the last commit, compares
//! them, and asks the OSTs for their objects. On request it repairs orphan objects (module
//! `adopt`). `sheen fsck` repairs everything else, on a stopped MDT.
//!
//! Invariants:
//! * The check reads a snapshot. Changes meanwhile neither disturb it nor wait for it.
//! * An object counts as an orphan if the snapshot knows its id as used, and no file of the
//!   snapshot has it. An object of a later file has a later id, or was adopted before; such files
//!   are durable before the next snapshot.
//! * Orphans are repaired only if no record of the metadata is damaged: they could be objects of
//!   the file whose record cannot be read.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use sheen_namespace::{Check, Problem, StoreError};
use sheen_wire::{Errno, Fid};
use tracing::{info, warn};

use crate::adopt::Orphan;
use crate::mdt::Mdt;
use crate::state::lfsck::Outcomes;
use crate::state::osp::Osp;

/// Time that an OST may take to list a part of its objects.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// The task: runs a check whenever one is requested.
pub(crate) async fn run(mdt: Arc<Mdt>) {
    loop {
        mdt.lfsck.wake.notified().await;
        let Some(repair) = mdt.lfsck.begin(mdt.rt.wall()) else { continue };
        match check(&mdt).await {
            Ok(Checked { check, knows_all, unchecked }) => {
                let repaired = match repair {
                    false => Outcomes::new(),
                    true => repair_orphans(&mdt, &check, knows_all && !mdt.commits.is_damaged()).await,
                };
                let (files, problems) = (check.files_count(), check.problem_count());
                let done = repaired.values().filter(|outcome| outcome.is_ok()).count();
                info!("{}: lfsck: {files} files, {problems} problems, {done} repaired", mdt.name);
                mdt.lfsck.completed(&check, &repaired, unchecked, mdt.rt.wall());
            }
            Err(e) => {
                warn!("{}: lfsck: {e}", mdt.name);
                mdt.lfsck.failed(e.to_string());
            }
        }
    }
}

/// A check with its objects.
struct Checked {
    check: Check,
    /// See [`Check::knows_all_objects`].
    knows_all: bool,
    /// The OSTs that did not answer.
    unchecked: BTreeSet<u32>,
}

/// Repairs the orphan objects that a check has found. Returns the outcomes. EUCLEAN: other problems
/// come first, because the objects may belong to files.
async fn repair_orphans(mdt: &Mdt, check: &Check, is_sound: bool) -> Outcomes {
    let orphans = check.problems().iter().filter_map(|problem| match *problem {
        Problem::OrphanObject { ost, object, bytes } => Some(Orphan { ost, object, bytes }),
        _ => None,
    });
    let orphans: Vec<Orphan> = orphans.collect();
    let keys = orphans.iter().map(|orphan| (orphan.ost, orphan.object));
    let outcomes = if is_sound { mdt.adopt(&orphans).await } else { vec![Err(Errno::EUCLEAN); orphans.len()] };
    keys.zip(outcomes).collect()
}

impl Mdt {
    /// Checks the metadata, and the objects of all OSTs that answer, as the task does. For tests.
    ///
    /// # Errors
    /// The store is damaged, or cannot be read.
    pub async fn check(self: &Arc<Mdt>) -> Result<Check, StoreError> {
        check(self).await.map(|checked| checked.check)
    }
}

/// Checks the metadata, and the objects of all OSTs that answer.
async fn check(mdt: &Arc<Mdt>) -> Result<Checked, StoreError> {
    // A replay takes objects that seem to be orphans.
    mdt.recovery.ended().await;
    let this = mdt.clone();
    let checked = mdt.rt.run_blocking(move || {
        let snapshot = this.store.snapshot(this.lfsck.stop.clone())?;
        Check::of(&snapshot, &mut |done, all| this.lfsck.progress(done, all))
    });
    let mut check = checked.await?;
    let knows_all = check.knows_all_objects();
    let mut unchecked = check.osts();
    unchecked.retain(|ost| !mdt.osts.is_removed(*ost));
    for osp in mdt.osts.all() {
        if osp.connected() && objects(mdt, &osp, &mut check).await? {
            unchecked.remove(&osp.index);
        }
    }
    Ok(Checked { check, knows_all, unchecked })
}

/// Checks the objects of an OST. Returns false if it does not answer.
async fn objects(mdt: &Mdt, osp: &Osp, check: &mut Check) -> Result<bool, StoreError> {
    let mut after = Fid::ZERO;
    loop {
        if mdt.lfsck.stop.load(Relaxed) {
            return Err(StoreError::Failed("stopped".to_owned()));
        }
        let Ok(Ok(objects)) = mdt.rt.timeout(LIST_TIMEOUT, osp.list(after)).await else { return Ok(false) };
        let Some(last) = objects.last() else { return Ok(true) };
        after = *last;
        let orphans = objects.into_iter().filter(|o| check.was_used(osp.index, *o) && check.is_orphan(osp.index, *o));
        let orphans: Vec<Fid> = orphans.collect();
        if orphans.is_empty() {
            continue;
        }
        let Ok(Ok(sizes)) = mdt.rt.timeout(LIST_TIMEOUT, osp.sizes(&orphans)).await else { return Ok(false) };
        orphans.into_iter().zip(sizes).for_each(|(orphan, bytes)| check.object(osp.index, orphan, bytes));
    }
}
