//! Crashes of servers under load, with clients that live. Every answered change must be there once
//! afterwards, and no operation fails.

use std::time::Duration;

use fastrand::Rng;
use sheen_rt::sim::World;

use super::{
    CLIENTS, MDS, OSSES,
    cluster::{Node, bad_network_config, start_as},
    faults::{calm, trouble},
    run::Run,
    scenario::{Objects, Trace, boot_as, settle, simulate},
};

/// Time between two crashes, at most.
const LIFE_MAX: Duration = Duration::from_millis(1500);
/// Time for which a server is down, at most.
const DOWN_MAX: Duration = Duration::from_secs(3);

/// The servers that fail. The power of all but those of `Disk` fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crash {
    /// The MDS.
    Mds,
    /// One of the OSSes, each time a random one.
    Oss,
    /// One of the OSSes, each time a random one: its local file system shuts down after an error,
    /// and is mounted again.
    Disk,
    /// A random server.
    Any,
    /// Several random servers at once, often all.
    Several,
}

impl Crash {
    /// Returns the servers that fail at once.
    fn hosts(self, rng: &mut Rng) -> Vec<u32> {
        let oss = |rng: &mut Rng| vec![OSSES[rng.usize(0..OSSES.len())]];
        match self {
            Crash::Mds => vec![MDS],
            Crash::Oss | Crash::Disk => oss(rng),
            Crash::Any => {
                if rng.bool() {
                    vec![MDS]
                } else {
                    oss(rng)
                }
            }
            Crash::Several => {
                let mut hosts: Vec<u32> = [MDS].into_iter().chain(OSSES).collect();
                rng.shuffle(&mut hosts);
                hosts.truncate(rng.usize(2..2 * OSSES.len()));
                hosts
            }
        }
    }
}

/// Runs operations while servers fail `crashes` times, also during recoveries. In every second seed
/// connections break as well.
pub fn crashes(seed: u64, ops: usize, crashes: usize, which: Crash, log: usize) -> Trace {
    crashes_of(seed, ops, crashes, which, false, log)
}

/// As [`crashes`], with an MDT that has a data service: files may begin on the MDT, as they do by
/// default.
pub fn crashes_with_data(seed: u64, ops: usize, crashes: usize, which: Crash, log: usize) -> Trace {
    crashes_of(seed, ops, crashes, which, true, log)
}

fn crashes_of(seed: u64, ops: usize, crashes: usize, which: Crash, on_mdt: bool, log: usize) -> Trace {
    simulate(seed, log, bad_network_config(seed), async |world| {
        let (mut nodes, run) = boot_as(world, seed, on_mdt).await;
        let trouble = seed.is_multiple_of(2).then(|| trouble(world, seed));
        run.state().may_lack_stripes = which != Crash::Mds;
        let programs = run.begin(ops);
        for _ in 0..crashes {
            let hosts = which.hosts(&mut run.state().rng);
            crash(world, &run, which, &hosts, on_mdt, &mut nodes).await;
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

/// Lets servers fail at a random moment, and restarts each after a while.
async fn crash(world: &World, run: &Run, which: Crash, hosts: &[u32], on_mdt: bool, nodes: &mut Vec<Node>) {
    let rt = world.rt(CLIENTS[0]);
    let random = |max: Duration| Duration::from_micros(run.state().rng.u64(0..max.as_micros() as u64));
    rt.sleep(random(LIFE_MAX)).await;
    if which == Crash::Disk {
        world.note(&format!("the local file systems of hosts {hosts:?} are mounted anew"));
        hosts.iter().for_each(|host| world.remount_disk(*host));
    } else {
        world.note(&format!("the power of hosts {hosts:?} fails"));
        hosts.iter().for_each(|host| world.crash_host(*host));
    }
    let restarts: Vec<_> = hosts
        .iter()
        .map(|host| {
            let (world, rt, host, down) = (world.clone(), rt.clone(), *host, random(DOWN_MAX));
            world.clone().rt(CLIENTS[0]).spawn("restart", async move {
                rt.sleep(down).await;
                // An OST starts when it reaches the MGS.
                start_as(&world, host, on_mdt).await.expect("nothing else crashes it")
            })
        })
        .collect();
    for restart in restarts {
        nodes.push(restart.await.expect("clients do not crash"));
    }
}
