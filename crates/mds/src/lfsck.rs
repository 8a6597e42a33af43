//! The check of a running MDT, Lustre's `lfsck`: reads the records of the last commit, compares
//! them, and asks the OSTs for their objects. On request it repairs what can be repaired under load
//! (module `repairs`). `sheen fsck` repairs the rest, on a stopped MDT.
//!
//! Invariants:
//! * The check reads a snapshot. Changes meanwhile neither disturb it nor wait for it.
//! * An object counts as an orphan if the snapshot knows its id as used, and no file of the
//!   snapshot has it. An object of a later file has a later id, or was adopted before; such files
//!   are durable before the next snapshot.
//! * Owners and sizes of objects are those of a later moment than the snapshot. A difference counts
//!   if it is there at present as well ([`crate::quota::confirm`]).
//! * Orphans are repaired only if no record of the metadata is damaged: they could be objects of
//!   the file whose record cannot be read. The other repairs need that all records can be read.
//! * While a directory has a bad entry, nothing is repaired that counts or adds names. A lookup may
//!   find such an entry, and a program could lose the file by removing another name.
//! * Problems are repaired stage by stage ([`Problem::stage`]), and a check follows each stage: it
//!   may cause or solve problems of later ones.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use sheen_namespace::{Check, Problem, StoreError};
use sheen_wire::ost::StoredObject;
use sheen_wire::{Errno, Fid};
use tracing::{info, warn};

use crate::mdt::Mdt;
use crate::quota;
use crate::state::lfsck::{Ended, Outcomes, Repairs, Report};
use crate::state::osp::Osp;

/// Time that an OST may take to list a part of its objects.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of checks that one request makes, each with the repairs of one stage.
const ROUNDS_MAX: u32 = 20;

/// The task: runs a check whenever one is requested.
pub(crate) async fn run(mdt: Arc<Mdt>) {
    loop {
        mdt.lfsck.wake.notified().await;
        let Some(repairs) = mdt.lfsck.begin(mdt.rt.wall()) else { continue };
        let mut report = Report::default();
        let ended = rounds(&mdt, repairs, &mut report).await;
        mdt.core.lock().ns.end_watch();
        match &ended {
            Ended::Failed(why) => warn!("{}: lfsck: {why}", mdt.name),
            _ => info!("{}: lfsck: {report}", mdt.name),
        }
        mdt.lfsck.ended(report, ended, mdt.rt.wall());
    }
}

/// Checks, and repeats the check after repairs, until nothing more can be repaired.
async fn rounds(mdt: &Arc<Mdt>, repairs: Repairs, report: &mut Report) -> Ended {
    for _ in 0..ROUNDS_MAX {
        let checked = match check(mdt, repairs).await {
            Ok(checked) => checked,
            Err(e) => return Ended::Failed(e.to_string()),
        };
        let outcomes = repair(mdt, &checked, repairs).await;
        report.add(&checked.check, checked.unchecked, &outcomes, repairs);
        if outcomes.values().any(is_end) {
            return Ended::Stopped;
        }
        if repairs != Repairs::All || !outcomes.values().any(Result::is_ok) {
            break;
        }
    }
    Ended::Completed
}

/// A check with its objects.
struct Checked {
    check: Check,
    /// See [`Check::knows_all_objects`].
    knows_all: bool,
    /// See [`Check::permits_online_repairs`].
    permits: bool,
    /// The OSTs that did not answer.
    unchecked: BTreeSet<u32>,
}

/// Repairs problems of the first stage of which any can be repaired. Returns the outcomes. EUCLEAN:
/// other problems come first. EBADMSG: bad entries come first.
async fn repair(mdt: &Mdt, Checked { check, knows_all, permits, .. }: &Checked, repairs: Repairs) -> Outcomes {
    let mut outcomes = Outcomes::new();
    let is_wanted = |n: &usize| match check.problems().get(*n) {
        Some(Problem::OrphanObject { .. }) => repairs >= Repairs::Orphans,
        Some(_) => repairs == Repairs::All,
        None => false,
    };
    let is_sound = !mdt.commits.is_damaged();
    let names = check.knows_all_names();
    // The objects may belong to files.
    let (orphans, others) = (is_sound && *knows_all, is_sound && *permits);
    for stage in check.online_stages().into_values() {
        let problems = stage.into_iter().filter(is_wanted).filter_map(|n| Some((n, check.problems().get(n)?)));
        let is_permitted = |problem: &Problem| match problem {
            Problem::OrphanObject { .. } => orphans,
            _ => others,
        };
        let refusal = |problem: &Problem| match is_permitted(problem) {
            false => Some(Errno::EUCLEAN),
            true if !names && problem.needs_all_names() => Some(Errno::EBADMSG),
            true => None,
        };
        let (permitted, refused): (Vec<_>, Vec<_>) = problems.partition(|(_, problem)| refusal(problem).is_none());
        outcomes.extend(refused.into_iter().filter_map(|(n, problem)| Some((n, Err(refusal(problem)?)))));
        let (numbers, problems): (Vec<usize>, Vec<&Problem>) = permitted.into_iter().unzip();
        let done = mdt.repair(&problems).await;
        for (problem, repair) in
            problems.iter().zip(&done).filter_map(|(p, done)| done.is_ok().then_some((p, p.repair()?)))
        {
            info!("{}: lfsck: {problem}; repaired: {repair}", mdt.name);
        }
        outcomes.extend(numbers.into_iter().zip(done));
        if outcomes.values().any(|outcome| outcome.is_ok() || is_end(outcome)) {
            break;
        }
    }
    outcomes
}

/// Whether no further repair is to be tried.
fn is_end(outcome: &Result<(), Errno>) -> bool {
    matches!(outcome, Err(Errno::ECANCELED | Errno::ESHUTDOWN))
}

impl Mdt {
    /// Checks the metadata, and the objects of all OSTs that answer, as the task does. For tests.
    ///
    /// # Errors
    /// The store is damaged, or cannot be read.
    pub async fn check(self: &Arc<Mdt>) -> Result<Check, StoreError> {
        check(self, Repairs::Nothing).await.map(|checked| checked.check)
    }
}

/// Checks the metadata, and the objects of all OSTs that answer.
async fn check(mdt: &Arc<Mdt>, repairs: Repairs) -> Result<Checked, StoreError> {
    // A replay takes objects that seem to be orphans.
    mdt.recovery.ended().await;
    if repairs == Repairs::All {
        mdt.core.lock().ns.begin_watch();
        let why =
            |errno: Errno| StoreError::Failed(format!("cannot commit what was changed before the check: {errno}"));
        mdt.sync(None).await.map_err(why)?;
    }
    let this = mdt.clone();
    let checked = mdt.rt.run_blocking(move || {
        let snapshot = this.store.snapshot(this.lfsck.stop.clone())?;
        Check::of(&snapshot, &mut |done, all| this.lfsck.progress(done, all))
    });
    let mut check = checked.await?;
    mdt.core.lock().ns.watch_only(check.problems());
    // Before the objects are checked: problems of objects make no finding about metadata doubtful.
    let (knows_all, permits) = (check.knows_all_objects(), check.permits_online_repairs());
    let mut unchecked = check.osts();
    unchecked.retain(|ost| !mdt.osts.is_removed(*ost));
    for osp in mdt.quota_targets() {
        if osp.connected() && objects(mdt, &osp, &mut check).await? {
            unchecked.remove(&osp.index);
        }
    }
    Ok(Checked { check, knows_all, permits, unchecked })
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
        if orphans(mdt, osp, check, &objects).await.is_none() || stored(mdt, osp, check, &objects).await.is_none() {
            return Ok(false);
        }
    }
}

/// Checks whether objects of an OST belong to files. `None`: the OST does not answer.
async fn orphans(mdt: &Mdt, osp: &Osp, check: &mut Check, objects: &[Fid]) -> Option<()> {
    let ost = osp.index;
    let orphans = objects.iter().copied().filter(|o| check.was_used(ost, *o) && check.is_orphan(ost, *o));
    let orphans: Vec<Fid> = orphans.collect();
    if orphans.is_empty() {
        return Some(());
    }
    let sizes = mdt.rt.timeout(LIST_TIMEOUT, osp.sizes(&orphans)).await.ok()?.ok()?;
    let problems = orphans.into_iter().zip(sizes).map(|(object, bytes)| Problem::OrphanObject { ost, object, bytes });
    problems.for_each(|problem| check.report(problem));
    Some(())
}

/// Checks what an OST has stored of objects. `None`: the OST does not answer.
async fn stored(mdt: &Mdt, osp: &Osp, check: &mut Check, objects: &[Fid]) -> Option<()> {
    let stored = mdt.rt.timeout(LIST_TIMEOUT, osp.stored(objects)).await.ok()?.ok()?;
    let file_of = |(object, stored): (&Fid, &StoredObject)| {
        let expected = check.expected(osp.index, *object)?;
        let is_other = expected.problems(osp.index, *object, stored).next().is_some();
        is_other.then_some((*object, expected.file))
    };
    let doubtful: Vec<(Fid, Fid)> = objects.iter().zip(&stored).filter_map(file_of).collect();
    if !doubtful.is_empty() {
        let problems = mdt.rt.timeout(LIST_TIMEOUT, quota::confirm(mdt, osp, &doubtful)).await.ok()?.ok()?;
        problems.into_iter().for_each(|problem| check.report(problem));
    }
    Some(())
}
