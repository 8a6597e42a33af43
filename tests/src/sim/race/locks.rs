//! Lock invariants, checked periodically during a race. A lock bug shows in the results of programs
//! only by chance.
//!
//! * No two locks that a server has granted conflict. The check ignores the server's own locks,
//!   because they bypass those of the client for which the server takes them. As for programs,
//!   flock locks of one owner count as one lock.
//! * A client holds no lock that the server does not know, unless the server evicted the client and
//!   the client does not know it yet.
//! * The grants of an OST do not exceed its free space.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use fastrand::Rng;
use sheen_layout::MDT_OST;
use sheen_ldlm::{Info, SERVER, client::Held};
use sheen_oss::Ost;
use sheen_rt::JoinHandle;
use sheen_wire::ldlm::{Policy, Resource, conflict};

use super::{span::Span, stage::Stage};
use crate::sim::cluster::Node;

/// Pause between two checks while programs make progress, in microseconds.
const PAUSE_US: std::ops::Range<u64> = 100..6000;
/// Maximum pause between two checks while all programs wait, in microseconds.
const PAUSE_US_MAX: u64 = 1_000_000;

/// Starts a task that checks until it is aborted.
pub fn watch(stage: &std::sync::Arc<Stage>, seed: u64) -> JoinHandle<()> {
    let (stage, mut rng) = (stage.clone(), Rng::with_seed(seed ^ 0x10c5));
    stage.control_rt().spawn("watch", async move {
        let (mut pause, mut moment) = (PAUSE_US.start, 0);
        loop {
            let now = stage.clock.now();
            pause = if now == moment { PAUSE_US_MAX.min(2 * pause) } else { rng.u64(PAUSE_US) };
            moment = now;
            stage.control_rt().sleep(Duration::from_micros(pause)).await;
            if let Err(what) = look(&stage) {
                panic!("{:?}\n{what}", stage.plan);
            }
        }
    })
}

/// Checks all locks and grants once.
///
/// # Errors
/// A description of the violation.
pub fn look(stage: &Stage) -> Result<(), String> {
    for node in &stage.nodes {
        match node {
            Node::Mds(_, _, mdt, data) => {
                look_at(stage, mdt.name(), None, &mdt.lockd().all_locks())?;
                data.iter().try_for_each(|data| look_at_ost(stage, data, MDT_OST))?;
            }
            Node::Oss(_, ost) => look_at_ost(stage, ost, ost.index())?,
        }
    }
    Ok(())
}

/// Describes all requests that wait for a lock, with all locks on the same resource, a line each.
pub fn waiting(stage: &Stage) -> String {
    let mut lines = String::new();
    let mut add = |target: &str, locks: Vec<Info>| {
        let waited: BTreeSet<Resource> = locks.iter().filter(|lock| !lock.granted).map(|lock| lock.resource).collect();
        for lock in locks.iter().filter(|lock| waited.contains(&lock.resource)) {
            lines.push_str(&format!("{target}: {lock:?}\n"));
        }
    };
    for node in &stage.nodes {
        match node {
            Node::Mds(_, _, mdt, data) => {
                add(mdt.name(), mdt.lockd().all_locks());
                data.iter().for_each(|data| add(data.name(), data.lockd().all_locks()));
            }
            Node::Oss(_, ost) => add(ost.name(), ost.lockd().all_locks()),
        }
    }
    lines
}

fn look_at_ost(stage: &Stage, ost: &Ost, index: u32) -> Result<(), String> {
    let (granted, free) = (ost.granted(), ost.store().free().unwrap_or(0));
    if granted > free {
        return Err(format!("{} has granted {granted} bytes, but only {free} are free", ost.name()));
    }
    look_at(stage, ost.name(), Some(index), &ost.lockd().all_locks())
}

/// Checks the locks of a target. `ost`: the index by which clients know the target. `None`: the
/// MDT.
fn look_at(stage: &Stage, target: &str, ost: Option<u32>, locks: &[Info]) -> Result<(), String> {
    exclude(locks).map_err(|what| format!("{target}: {what}"))?;
    let known: BTreeMap<u64, &Info> = locks.iter().map(|info| (info.lock.id.0, info)).collect();
    for (client, seat) in stage.client_hosts.iter().enumerate() {
        if !stage.may_hold_unknown_locks(client) {
            let held = seat.client.locks_held(ost);
            held.iter().try_for_each(|held| {
                is_known(held, &known).map_err(|what| format!("{target}, client {client}: {what}"))
            })?;
        }
    }
    Ok(())
}

fn exclude(locks: &[Info]) -> Result<(), String> {
    let granted: Vec<&Info> = locks.iter().filter(|info| info.granted && info.lock.client != SERVER).collect();
    for (i, a) in granted.iter().enumerate() {
        for b in granted[i + 1..].iter().take_while(|b| b.resource == a.resource) {
            let one = match (&a.lock.policy, &b.lock.policy) {
                (Policy::Flock(x), Policy::Flock(y)) => a.lock.client == b.lock.client && x.owner == y.owner,
                _ => false,
            };
            if !one && conflict(a.lock.mode, &a.lock.policy, b.lock.mode, &b.lock.policy) {
                return Err(format!("two granted locks conflict: {a:?} and {b:?}"));
            }
        }
    }
    Ok(())
}

fn is_known(held: &(Resource, Held), known: &BTreeMap<u64, &Info>) -> Result<(), String> {
    let (resource, held) = held;
    let fine = known.get(&held.id.0).is_some_and(|info| {
        let covers = info.lock.mode.covers(held.mode) && info.lock.policy.contains(&held.policy);
        info.granted && info.resource == *resource && covers
    });
    let server = known.get(&held.id.0);
    if fine { Ok(()) } else { Err(format!("the client holds {held:?} on {resource:?}; the server has {server:?}")) }
}

impl Stage {
    /// Returns whether the client may hold locks that servers do not know: it is dead, or it was
    /// disconnected and has not reached all servers again.
    fn may_hold_unknown_locks(&self, client: usize) -> bool {
        self.record().troubles.iter().any(|t| t.client == client && t.until == Span::NEVER)
    }
}
