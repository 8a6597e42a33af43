//! Network faults: connections that break, and hosts that cannot reach each other for a while.

use std::time::Duration;

use fastrand::Rng;
use sheen_rt::{JoinHandle, sim::World};

use super::{CLIENTS, MDS, OSSES};

/// Host of the task that injects the faults. Nothing else runs on it.
const FAULT_HOST: u32 = 99;

/// Returns all pairs of hosts that talk to each other.
fn pairs() -> Vec<(u32, u32)> {
    let clients = CLIENTS.iter().flat_map(|c| OSSES.iter().chain([&MDS]).map(move |s| (*c, *s)));
    clients.chain(OSSES.iter().map(|o| (MDS, *o))).collect()
}

/// Starts a task that injects network faults until [`calm`] stops it.
pub fn trouble(world: &World, seed: u64) -> JoinHandle<()> {
    let (rt, world, mut rng) = (world.rt(FAULT_HOST), world.clone(), Rng::with_seed(seed ^ 0xdeb));
    let ms = Duration::from_millis;
    rt.clone().spawn("trouble", async move {
        let pairs = pairs();
        loop {
            rt.sleep(ms(rng.u64(0..40))).await;
            // Half of the faults hit connections to the MDT.
            let (a, b) = match rng.bool() {
                true => (CLIENTS[rng.usize(0..CLIENTS.len())], MDS),
                false => pairs[rng.usize(0..pairs.len())],
            };
            if rng.u32(0..5) > 0 {
                world.reset_connections(a, b);
                continue;
            }
            world.partition(a, b);
            let (rt, world, lasts) = (rt.clone(), world.clone(), ms(rng.u64(5..800)));
            drop(rt.clone().spawn("heal", async move {
                rt.sleep(lasts).await;
                world.heal(a, b);
            }));
        }
    })
}

/// Stops the fault injection and heals the network.
pub fn calm(world: &World, trouble: &JoinHandle<()>) {
    trouble.abort();
    pairs().into_iter().for_each(|(a, b)| world.heal(a, b));
    world.configure(|config| config.loss = 0.0);
}
