//! IOR. Tasks on all mounts write one block each of one file, 1 MiB at a time, and fsync. Then they
//! read and check the block of a task on another mount.
//!
//! The paper has 64 tasks on 16 nodes with 64 GiB each. Here there are two tasks per mount, which
//! share the paper's 4 TiB divided by the factor. Stripe widths are the paper's.

use std::io;

use crate::{
    ior::{self, args::IorArgs, step::Access},
    nodes::PlaceArgs,
    size::human,
    workloads::{args::IOR_BYTES, outcome::Quantity, patterns::Experiment, setup::Setup},
};

const TASKS_PER_MOUNT: u64 = 2;
const RECORD: u64 = 1 << 20;
const WRITE: Quantity = Quantity { name: "write with fsync", unit: "MiB/s", variation: "" };
const READ: Quantity = Quantity { name: "read", unit: "MiB/s", variation: "" };

/// Measures experiments with IOR.
///
/// # Errors
/// Of a task, or an interruption by the user.
pub fn measure(setup: &mut Setup<'_>, experiments: &[&'static Experiment]) -> io::Result<()> {
    let (factor, mounts) = (setup.args.ior_factor, setup.system.mounts.len());
    let tasks = mounts as u64 * TASKS_PER_MOUNT;
    let block = (IOR_BYTES / factor / RECORD / tasks).max(1) * RECORD;
    let size = human(block * tasks);
    let title = format!("IOR: {tasks} tasks on {mounts} mounts, one file of {size}, 1/{factor} of the paper's");
    setup.outcome.begin(title, experiments);
    setup.rounds(experiments, |setup, experiment| one(setup, experiment, block))
}

fn one(setup: &mut Setup<'_>, experiment: &'static Experiment, block: u64) -> io::Result<()> {
    let system = setup.system;
    let factors = setup.factors(setup.args.ior_factor, 1);
    let path = system.dirs[0].join(experiment.name);
    let args = |access| IorArgs {
        tasks: Some((system.mounts.len() as u64 * TASKS_PER_MOUNT) as u32),
        places: PlaceArgs { mounts: system.mounts.clone(), no_bind: false, rendezvous: None },
        file: Some(path.clone()),
        transfer: Some(RECORD),
        block: Some(block),
        use_existing: true,
        keep: true,
        fsync: true,
        reorder: true,
        signature: Some(1),
        write: access == Access::Write,
        read: access == Access::Read,
        check_read: access == Access::Read,
        ..IorArgs::default()
    };
    setup.stripe(&path, experiment, factors)?;
    let written = transfer(setup, &args(Access::Write), Access::Write)?;
    setup.check(&path, experiment, factors)?;
    system.empty_caches()?;
    let read = transfer(setup, &args(Access::Read), Access::Read)?;
    system.remove(&path)?;
    setup.outcome.add(experiment, WRITE, written);
    setup.outcome.add(experiment, READ, read);
    Ok(())
}

/// Returns the bandwidth in MiB/s.
fn transfer(setup: &mut Setup<'_>, args: &IorArgs, access: Access) -> io::Result<f64> {
    let plan = ior::plan(args).map_err(io::Error::other)?;
    let outcome = ior::run_quietly(&plan, setup.session)?;
    let phase = outcome.of(access).next().filter(|_| outcome.errors == 0);
    phase.map(ior::Phase::bandwidth).ok_or_else(|| io::Error::other("the data is wrong"))
}
