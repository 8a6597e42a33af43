//! Looks at all locks again and again while a race goes on: a bug there may show in what programs
//! see only by chance.
//!
//! * No two locks that a server has granted exclude each other. (Its own aside: they are past those
//!   of the client for which it takes them. And flock locks of one owner are one lock to programs.)
//! * A client holds no lock of which the server does not know, unless it has been given up and did
//!   not hear of it yet.
//! * An OST promises no more space than it has.

use std::{collections::BTreeMap, time::Duration};

use fastrand::Rng;
use sheen_layout::MDT_OST;
use sheen_ldlm::{Info, SERVER, client::Held};
use sheen_oss::Ost;
use sheen_rt::JoinHandle;
use sheen_wire::ldlm::{Policy, Resource, conflict};

use super::{span::Span, stage::Stage};
use crate::sim::cluster::Node;

/// Time between two looks while programs get on, in microseconds.
const PAUSE_US: std::ops::Range<u64> = 100..6000;
/// Longest time between two looks while all wait for something, in microseconds.
const PAUSE_US_MAX: u64 = 1_000_000;

/// Looks until it is aborted.
pub fn watch(stage: &std::sync::Arc<Stage>, seed: u64) -> JoinHandle<()> {
    let (stage, mut rng) = (stage.clone(), Rng::with_seed(seed ^ 0x10c5));
    stage.demon().spawn("watch", async move {
        let (mut pause, mut moment) = (PAUSE_US.start, 0);
        loop {
            let now = stage.clock.now();
            pause = if now == moment { PAUSE_US_MAX.min(2 * pause) } else { rng.u64(PAUSE_US) };
            moment = now;
            stage.demon().sleep(Duration::from_micros(pause)).await;
            if let Err(what) = look(&stage) {
                panic!("{:?}\n{what}", stage.plan);
            }
        }
    })
}

/// One look.
///
/// # Errors
/// What must not be.
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

fn look_at_ost(stage: &Stage, ost: &Ost, index: u32) -> Result<(), String> {
    let (granted, free) = (ost.granted(), ost.store().free().unwrap_or(0));
    if granted > free {
        return Err(format!("{} promises {granted} bytes and has {free}", ost.name()));
    }
    look_at(stage, ost.name(), Some(index), &ost.lockd().all_locks())
}

/// `ost`: which one the clients know the target as; none, the MDT.
fn look_at(stage: &Stage, target: &str, ost: Option<u32>, locks: &[Info]) -> Result<(), String> {
    exclude(locks).map_err(|what| format!("{target}: {what}"))?;
    let known: BTreeMap<u64, &Info> = locks.iter().map(|info| (info.lock.id.0, info)).collect();
    for (client, seat) in stage.seats.iter().enumerate() {
        if !stage.is_unsure(client) {
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
                return Err(format!("two locks are granted that exclude each other: {a:?} and {b:?}"));
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
    if fine { Ok(()) } else { Err(format!("it holds {held:?} on {resource:?}; the server knows of {server:?}")) }
}

impl Stage {
    /// Whether the client may hold what servers do not know: it is dead, or cut off and not back
    /// yet.
    fn is_unsure(&self, client: usize) -> bool {
        self.record().troubles.iter().any(|t| t.client == client && t.until == Span::NEVER)
    }
}
