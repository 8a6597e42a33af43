//! Crashes of the MDS under load, with clients that live. Every answered change must be there once
//! afterwards, and no operation fails.

use std::time::Duration;

use sheen_rt::sim::World;

use super::{
    CLIENTS, MDS,
    cluster::{Node, bad_network_config, start},
    faults::{calm, trouble},
    run::Run,
    scenario::{Objects, Trace, boot, settle, simulate},
};

/// Time for which the MDS runs between two crashes, at most.
const LIFE_MAX: Duration = Duration::from_millis(1500);
/// Time for which it is down, at most.
const DOWN_MAX: Duration = Duration::from_secs(3);

/// Runs operations while the power of the MDS fails `crashes` times, also during recoveries. In
/// every second seed connections break as well.
pub fn mdt_crashes(seed: u64, ops: usize, crashes: usize, log: usize) -> Trace {
    simulate(seed, log, bad_network_config(seed), async |world| {
        let (mut nodes, run) = boot(world, seed).await;
        let trouble = seed.is_multiple_of(2).then(|| trouble(world, seed));
        let programs = run.begin(ops);
        for _ in 0..crashes {
            crash(world, &run, &mut nodes).await;
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
            if let Node::Mds(_, _, mdt, _) = node {
                assert_eq!(mdt.recovery_counts().dropped, 0, "every client comes back");
            }
        }
    })
}

/// Cuts the power of the MDS at a random moment, and restarts it after a while.
async fn crash(world: &World, run: &Run, nodes: &mut Vec<Node>) {
    let rt = world.rt(CLIENTS[0]);
    let random = |max: Duration| Duration::from_micros(run.state().rng.u64(0..max.as_micros() as u64));
    rt.sleep(random(LIFE_MAX)).await;
    world.note("the power of the MDS fails");
    world.crash_host(MDS);
    rt.sleep(random(DOWN_MAX)).await;
    // It may fail again while it starts.
    nodes.push(start(world, MDS).await.expect("nothing else crashes it"));
}
