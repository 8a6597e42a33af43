//! Runs a comparison.

use std::io;

use crate::{
    ior::{self, step},
    overstripe::{
        locks::Saved,
        outcome::{Outcome, Sample},
        plan::{Access, Curve, Layout, Plan},
        print::name,
        system::{Explained, System},
    },
    session::Session,
    stop,
};

/// Runs a plan. Removes the files, also after an error.
///
/// # Errors
/// Of the tasks, or an interruption by the user. `outcome` then has the results so far.
pub fn run(plan: &Plan, system: &System, outcome: &mut Outcome, session: &mut Session) -> io::Result<()> {
    let result = rounds(plan, system, outcome, session);
    session.part("removal of all files");
    let removed = std::fs::remove_dir_all(&system.dir);
    match (&result, removed) {
        (Ok(()), Err(e)) => session.warn(format!("files are left in {}: {e}", system.dir.display())),
        (Err(_), Err(e)) if !system.is_own() => session.warn(format!("files are left: {e}")),
        _ => {}
    }
    result
}

fn rounds(plan: &Plan, system: &System, outcome: &mut Outcome, session: &mut Session) -> io::Result<()> {
    let locks = match plan.locks.is_empty() {
        true => None,
        false if !system.is_here => {
            let text = "--locks: the OSTs and all mounts must be processes of yours on this host";
            return Err(io::Error::other(text));
        }
        false => Some(Saved::new(&system.program, &system.fsname)?),
    };
    if !system.is_here {
        let text = "an OST or a mount is no process of yours on this host: locks are not counted";
        session.warn(text.into());
    }
    if plan.read && !system.is_own() && plan.curves.iter().any(|curve| curve.nodes == 1) {
        session.warn("one node: reads may come from its cache".into());
    }
    for round in 0..plan.repetitions {
        for &curve in &plan.curves {
            if let (Some(locks), Some(kind)) = (&locks, plan.locks_of(curve)) {
                locks.set(kind)?;
            }
            for &layout in &plan.layouts {
                stop::check()?;
                session.part(&format!("{}, {} on an OST", name(curve), stripes(layout)));
                let sample = measure(plan, system, (curve, layout), round == 0, session)?;
                outcome.add(curve, layout, sample);
            }
        }
    }
    Ok(())
}

fn stripes(layout: Layout) -> String {
    match layout {
        Layout::Shared(stripes) => crate::stats::counted(stripes, "stripe"),
        Layout::Files => "a file for each task".into(),
    }
}

/// Writes new files, which have no contention yet, and removes them.
fn measure(
    plan: &Plan,
    system: &System,
    point: (Curve, Layout),
    check: bool,
    session: &mut Session,
) -> io::Result<Sample> {
    let (curve, layout) = point;
    let place = system.dir.join("work");
    std::fs::create_dir(&place).map_err(|e| crate::output::named("create", &place, &e))?;
    let part = |access| plan.ior(&system.mounts, &place, point, access).map_err(io::Error::other);
    let write = part(Access::Write)?;
    for rank in write.writers() {
        let words = ["-S", &curve.record.to_string(), "-o", &plan.stripe_osts(layout, rank)];
        system.program.setstripe(&write.path(0, rank, 0), &words)?;
    }
    let before = system.counters()?;
    let written = rate(&ior::run_quietly(&write, session)?, step::Access::Write)?;
    let explained = Explained::between(before, system.counters()?);
    if plan.read {
        system.empty_caches()?;
    }
    let read = match plan.read {
        true => Some(rate(&ior::run_quietly(&part(Access::Read)?, session)?, step::Access::Read)?),
        false => None,
    };
    if check {
        rate(&ior::run_quietly(&part(Access::Check)?, session)?, step::Access::Read)?;
    }
    system.remove(&place)?;
    Ok(Sample { write: written, read, explained })
}

/// Returns the bandwidth in MiB/s.
fn rate(outcome: &ior::Outcome, access: step::Access) -> io::Result<f64> {
    if outcome.errors > 0 {
        return Err(io::Error::other("the data is wrong"));
    }
    outcome.of(access).next().map(ior::Phase::bandwidth).ok_or_else(|| io::Error::other("no result of IOR"))
}
