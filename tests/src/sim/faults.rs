//! Trouble in the network: connections that break, hosts that do not reach each other for a while.

use std::time::Duration;

use fastrand::Rng;
use sheen_rt::{JoinHandle, sim::World};

use super::{CLIENTS, MDS, OSSES};

/// Where the trouble comes from: a host with nothing else on it.
const DEMON: u32 = 99;

/// All pairs of hosts that talk to each other.
fn pairs() -> Vec<(u32, u32)> {
    let clients = CLIENTS.iter().flat_map(|c| OSSES.iter().chain([&MDS]).map(move |s| (*c, *s)));
    clients.chain(OSSES.iter().map(|o| (MDS, *o))).collect()
}

/// Makes trouble until [`calm`].
pub fn trouble(world: &World, seed: u64) -> JoinHandle<()> {
    let (rt, world, mut rng) = (world.rt(DEMON), world.clone(), Rng::with_seed(seed ^ 0xdeb));
    let ms = Duration::from_millis;
    rt.clone().spawn("trouble", async move {
        let pairs = pairs();
        loop {
            rt.sleep(ms(rng.u64(0..40))).await;
            // Half of it hits the way to the MDT.
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

/// Ends all trouble.
pub fn calm(world: &World, trouble: &JoinHandle<()>) {
    trouble.abort();
    pairs().into_iter().for_each(|(a, b)| world.heal(a, b));
    world.configure(|config| config.loss = 0.0);
}
