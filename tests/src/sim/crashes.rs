//! Crashes of servers under load, with clients that live. Every answered change must be there once
//! afterwards, and no operation fails.

use std::time::Duration;

use sheen_rt::sim::World;

use super::{
    CLIENTS, MDS, OSSES,
    cluster::{Node, bad_network_config, start},
    faults::{calm, trouble},
    run::Run,
    scenario::{Objects, Trace, boot, settle, simulate},
};

/// Time between two crashes, at most.
const LIFE_MAX: Duration = Duration::from_millis(1500);
/// Time for which a server is down, at most.
const DOWN_MAX: Duration = Duration::from_secs(3);

/// The servers whose power fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crash {
    /// The MDS.
    Mds,
    /// One of the OSSes, each time a random one.
    Oss,
    /// A random server.
    Any,
}

/// Runs operations while the power of servers fails `crashes` times, also during recoveries. In
/// every second seed connections break as well.
pub fn crashes(seed: u64, ops: usize, crashes: usize, which: Crash, log: usize) -> Trace {
    simulate(seed, log, bad_network_config(seed), async |world| {
        let (mut nodes, run) = boot(world, seed).await;
        let trouble = seed.is_multiple_of(2).then(|| trouble(world, seed));
        run.state().may_lack_stripes = which != Crash::Mds;
        let programs = run.begin(ops);
        for _ in 0..crashes {
            let is_mds = which == Crash::Mds || (which == Crash::Any && run.state().rng.bool());
            let host = if is_mds { MDS } else { OSSES[run.state().rng.usize(0..OSSES.len())] };
            crash(world, &run, host, &mut nodes).await;
        }
        if let Some(trouble) = trouble {
            calm(world, &trouble);
        }
        world.configure(|config| config.loss = 0.0);
        run.end(programs).await;
        for client in &run.clients {
            assert_eq!(client.syncfs().await, Ok(()), "nothing was lost");
        }
        settle(world, &run, &Objects::new()).await;
        for node in &nodes {
            assert_eq!(node.lost_clients(), 0, "every client comes back");
        }
    })
}

/// Cuts the power of a server at a random moment, and restarts it after a while.
async fn crash(world: &World, run: &Run, host: u32, nodes: &mut Vec<Node>) {
    let rt = world.rt(CLIENTS[0]);
    let random = |max: Duration| Duration::from_micros(run.state().rng.u64(0..max.as_micros() as u64));
    rt.sleep(random(LIFE_MAX)).await;
    world.note(&format!("the power of host {host} fails"));
    world.crash_host(host);
    rt.sleep(random(DOWN_MAX)).await;
    // It may fail again while it starts.
    nodes.push(start(world, host).await.expect("nothing else crashes it"));
}
