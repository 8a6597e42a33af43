//! The jobs of a published system in simulated file systems ([`crate::machines`]): the code of
//! Sheen on the system's disks and links, with locks that grow as Lustre's.

use std::io;

use sheen_simulation::{Job as Simulated, Locks, Striping, measure};

use crate::{
    machines::{Machines, machines},
    predict::load::Direction,
    reproduce::points::{Job, simulated},
    session::Session,
    stop,
};

/// Bytes that a node writes, unless its records are larger than a quarter of it.
const NODE_BYTES: u64 = 16 << 20;
/// Fewest records of a node.
const RECORDS_MIN: u64 = 2;
const SEED: u64 = 1;

/// Returns the simulated values of a system: place, description, value. None if its machines are
/// not modelled.
///
/// # Errors
/// Of a simulation, or an interruption by the user.
pub fn values(system: &str, session: &mut Session) -> io::Result<Vec<(&'static str, &'static str, f64)>> {
    let Some(machines) = machines(system) else { return Ok(Vec::new()) };
    simulated(system, |job| rate(&machines, job, session))
}

/// Returns the rate of a job in MiB/s.
fn rate(machines: &Machines, job: &Job, session: &mut Session) -> io::Result<f64> {
    stop::check()?;
    let Job { direction, nodes, record, in_turn, stripes, osts } = *job;
    session.part(&format!("{}: {nodes} nodes, {stripes} stripes", machines.name));
    let simulated = Simulated {
        nodes,
        ppn: 1,
        record: record as u32,
        records: (NODE_BYTES / record).max(RECORDS_MIN) as u32,
        striping: Striping::Shared((stripes / osts).max(1) as u16),
        contiguous: !in_turn,
        locks: Locks::Growing,
        read: direction == Direction::Read,
    };
    let measured = measure(&machines.hardware(osts), &simulated, SEED).map_err(io::Error::other)?;
    Ok(measured.read.unwrap_or(measured.write))
}
