//! `sheen fsck`: checks the directories of a file system that does not run, and repairs its
//! metadata. The exit codes are those of fsck(8).

mod progress;
mod report;
mod targets;

use std::future::pending;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sheen_failover::{Guard, Lost, Options, Server, Times, is_protected};
use sheen_mds::{Check, MdtError, OfflineMdt};
use sheen_rt::{Rt, proc::hostname};

use crate::{
    args::FsckArgs,
    error::{Context, Failure, Result},
    host,
};
use progress::Progress;
use report::Report;
use targets::{OstDir, Targets};

/// Exit codes of fsck(8).
const OK: i32 = 0;
const REPAIRED: i32 = 1;
const LEFT: i32 = 4;
const FAILED: i32 = 8;

/// Repairs of problems that repairs of others bring up. Each reduces their number, so a few rounds
/// suffice.
const ROUNDS_MAX: u32 = 50;

/// Runs the command. Returns the exit code.
pub fn run(args: FsckArgs) -> i32 {
    match check(args) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("sheen: {failure}");
            FAILED
        }
    }
}

fn check(args: FsckArgs) -> Result<i32> {
    let (runtime, rt) = host::runtime()?;
    let targets = Targets::find(&args.dirs)?;
    let done = runtime.block_on(async {
        let guard = protect(&rt, &targets.mdt).await?;
        let work = {
            let rt = rt.clone();
            move || run_on(&rt, &targets, &args)
        };
        let done = tokio::select! {
            done = rt.run_blocking(work) => done,
            // A repair is one commit after the other, so it can end anywhere.
            failure = lost(guard.as_ref()) => Err(failure),
        };
        if let Some(guard) = guard {
            guard.release().await;
        }
        done
    });
    runtime.shutdown(Duration::ZERO);
    done
}

fn run_on(rt: &Rt, targets: &Targets, args: &FsckArgs) -> Result<i32> {
    let disk = rt.disk();
    let mut mdt = OfflineMdt::open(&disk, &targets.mdt).map_err(failed)?;
    let osts = targets.open_osts(&disk, mdt.identity())?;
    let (mut check, salvaged) = readable(&mut mdt, args.salvage)?;
    objects(&osts, &mut check)?;
    let mut report = Report::new(mdt.identity(), &check, targets::indices(&osts));
    report.salvaged = salvaged;
    report.found(mdt.store(), &check);
    let repairs = args.repair || args.salvage;
    if repairs && !check.next_repairs().is_empty() {
        report.copy = Some(copy(&mut mdt)?);
        for _ in 0..ROUNDS_MAX {
            let first = check.next_repairs().first().copied().cloned();
            if mdt.repair(&check, rt.wall()).map_err(failed)? == 0 {
                break;
            }
            check = metadata(&mdt).map_err(failed)?;
            // A change that a read does not find shows that the pages of the store are in disorder.
            report.is_stuck = first.is_some_and(|first| check.problems().contains(&first));
            if report.is_stuck && args.salvage && report.salvaged.is_none() {
                report.salvaged = Some(mdt.salvage().map_err(failed)?);
                check = metadata(&mdt).map_err(failed)?;
            } else if report.is_stuck {
                break;
            }
            objects(&osts, &mut check)?;
            report.found(mdt.store(), &check);
        }
    }
    report.finish(&check);
    report.print(args.json)?;
    Ok(match (report.problem_count, report.left) {
        (0, _) if salvaged.is_some() => REPAIRED,
        (0, _) => OK,
        (_, 0) => REPAIRED,
        _ => LEFT,
    })
}

/// Checks the metadata. If the store is damaged and `salvages`, makes a new one first, and returns
/// the number of its records as well.
fn readable(mdt: &mut OfflineMdt, salvages: bool) -> Result<(Check, Option<u64>)> {
    match metadata(mdt) {
        Ok(check) => Ok((check, None)),
        Err(MdtError::StoreDamaged { .. }) if salvages => {
            let records = mdt.salvage().map_err(failed)?;
            Ok((metadata(mdt).map_err(failed)?, Some(records)))
        }
        Err(e) => Err(failed(e)),
    }
}

fn metadata(mdt: &OfflineMdt) -> std::result::Result<Check, MdtError> {
    let mut progress = Progress::new();
    let check = mdt.check(&mut |done, all| progress.show("records", done, Some(all)));
    progress.end();
    check
}

fn objects(osts: &[OstDir], check: &mut Check) -> Result {
    let (mut progress, mut objects) = (Progress::new(), 0);
    for ost in osts {
        let each = |object, stored| {
            objects += 1;
            progress.show("objects", objects, None);
            check.object(ost.index, object, &stored);
        };
        ost.dir.for_each_object(each).map_err(|e| Failure::new(e.to_string()))?;
    }
    progress.end();
    Ok(())
}

fn copy(mdt: &mut OfflineMdt) -> Result<PathBuf> {
    mdt.copy_store().map_err(|e| {
        Failure::new(format!("cannot copy the metadata before the repair: {e}")).advise("nothing was repaired")
    })
}

fn failed(error: MdtError) -> Failure {
    Failure::new(error.to_string())
}

/// Takes the MDT's directory, if other hosts may serve it, so that none of them does meanwhile.
async fn protect(rt: &Rt, dir: &Path) -> Result<Option<Guard>> {
    if !is_protected(&rt.disk(), dir) {
        return Ok(None);
    }
    let of_lease = rt.clone();
    let options = Options {
        server: Server::new(&hostname(), std::process::id()),
        takeover: false,
        times: Times::default(),
        on_beat: Box::new(move |end| of_lease.lease_until(end, host::protection::end_after_lease)),
    };
    Guard::take(rt, dir, options).await.map(Some).context(format!("cannot take {}", dir.display()))
}

/// Resolves when the directory does not belong to this process any more.
async fn lost(guard: Option<&Guard>) -> Failure {
    let Some(guard) = guard else { return pending().await };
    let failure = match guard.lost().await {
        Lost::Asked(other) | Lost::Taken(other) => Failure::new(format!("{other} takes the directory over")),
        Lost::Expired => Failure::new("the storage did not answer in time"),
    };
    failure.advise("the check is incomplete; repeat it when no server uses the directory")
}
