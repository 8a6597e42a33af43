//! Servers of several hosts contend for a directory, on storage that is slow at times.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use parking_lot::Mutex;
use sheen_rt::{
    Instant, Rt,
    sim::{Sim, SimConfig},
    target_dir::protection::HEARTBEAT,
};

use crate::*;

const DIR: &str = "/shared/mdt";
/// The host whose disk is the shared storage.
const STORAGE: u32 = 9;
const SEEDS: u64 = 60;
/// Virtual time for which the servers contend.
const RUN: Duration = Duration::from_secs(600);

/// By host: the end of its lease.
type Leases = Arc<Mutex<BTreeMap<u32, Instant>>>;

fn options(rt: &Rt, host: u32, takeover: bool, leases: &Leases) -> Options {
    let (rt, leases) = (rt.clone(), leases.clone());
    let on_beat = Box::new(move |until| {
        let mut leases = leases.lock();
        let now = rt.now();
        let other = leases.iter().find(|(of, end)| **of != host && **end > now);
        assert_eq!(other, None, "host {host} has a lease until {until:?}, at {now:?}");
        leases.insert(host, until);
    });
    Options { server: Server::new(&format!("host{host}"), 1), takeover, times: Times::default(), on_beat }
}

async fn take(sim: &Sim, host: u32, takeover: bool, leases: &Leases) -> Result<Guard, FailoverError> {
    let rt = sim.rt(host);
    let options = options(&rt, host, takeover, leases);
    Guard::take_on(&rt, sim.rt(STORAGE).disk(), &rt.disk(), Path::new(DIR), options).await
}

/// One server after another of a host. Returns how often a server of this host served.
async fn servers(sim: Arc<Sim>, host: u32, leases: Leases) -> u32 {
    let rt = sim.rt(host);
    let some = |max: u64| Duration::from_millis(rt.random_u64() % max);
    rt.disk().create_dir_all(DIR).unwrap();
    let (mut served, began) = (0, rt.now());
    while rt.now().since(began) < RUN {
        rt.sleep(some(5_000)).await;
        let takeover = rt.random_u64().is_multiple_of(4);
        let Ok(guard) = take(&sim, host, takeover, &leases).await else { continue };
        served += 1;
        let time = some(30_000);
        let lost = tokio::select! {
            lost = guard.lost() => Some(lost),
            () = rt.sleep(time) => None,
        };
        match lost {
            // In order.
            None | Some(Lost::Asked(_)) if !rt.random_u64().is_multiple_of(3) => {
                rt.sleep(some(2_000)).await;
                leases.lock().remove(&host);
                guard.release().await;
            }
            // The server is stopped, and believes for a while that it may serve. Its lock stays.
            None | Some(Lost::Asked(_)) => {
                let end = leases.lock().get(&host).copied().unwrap_or(Instant::ZERO);
                let held = guard.stop_beating();
                rt.sleep(end.since(rt.now())).await;
                leases.lock().remove(&host);
                rt.sleep(some(20_000)).await;
                drop(held);
            }
            // It ends at once.
            Some(Lost::Taken(_) | Lost::Expired) => drop(leases.lock().remove(&host)),
        }
    }
    served
}

fn contend(seed: u64, slow: Duration) {
    let config =
        SimConfig { blocking_delay: Duration::from_micros(1)..slow, time_max: RUN * 10, ..SimConfig::default() };
    let sim = Arc::new(Sim::new(seed, config));
    let world = sim.clone();
    sim.run(async move {
        let leases = Leases::default();
        world.rt(STORAGE).disk().create_dir_all(DIR).unwrap();
        let hosts: Vec<_> =
            (1..=3).map(|host| world.rt(host).spawn("servers", servers(world.clone(), host, leases.clone()))).collect();
        let mut served = 0;
        for host in hosts {
            served += host.await.unwrap();
        }
        assert!(served > 5, "seed {seed}: only {served} servers served");
    })
    .unwrap();
}

#[test]
fn at_most_one_server_has_a_lease() {
    (0..SEEDS).for_each(|seed| contend(seed, Duration::from_millis(100)));
}

#[test]
fn at_most_one_server_has_a_lease_on_slow_storage() {
    (0..SEEDS).for_each(|seed| contend(seed, Duration::from_secs(8)));
}

/// Runs a scene with fast storage.
fn scene<F: Future<Output = ()>>(test: impl FnOnce(Arc<Sim>, Leases) -> F) {
    let sim = Arc::new(Sim::new(1, SimConfig::default()));
    let world = sim.clone();
    let run = async move {
        for host in [1, 2, STORAGE] {
            world.rt(host).disk().create_dir_all(DIR).unwrap();
        }
        test(world, Leases::default()).await;
    };
    sim.run(run).unwrap();
}

#[test]
fn server_of_another_host_waits_for_the_death_of_the_owner() {
    scene(async |sim, leases| {
        let first = take(&sim, 1, false, &leases).await.unwrap();
        let refused = take(&sim, 2, false, &leases).await.err().unwrap().to_string();
        assert_eq!(refused, format!("{DIR} is served by process 1 on host1"));
        drop(first);
        let began = sim.now();
        take(&sim, 2, false, &leases).await.unwrap();
        let took = sim.now().since(began);
        assert!(took >= Duration::from_secs(11) && took < Duration::from_secs(13), "{took:?}");
    });
}

#[test]
fn restart_on_the_same_host_does_not_wait() {
    scene(async |sim, leases| {
        let first = take(&sim, 1, false, &leases).await.unwrap();
        assert!(matches!(take(&sim, 1, false, &leases).await, Err(FailoverError::Owned { .. })));
        drop(first);
        let began = sim.now();
        let second = take(&sim, 1, false, &leases).await.unwrap();
        assert!(sim.now().since(began) < Duration::from_secs(1));
        // A record that is older than a lease may have been written late, over another name.
        drop(second);
        sim.rt(1).sleep(Duration::from_secs(60)).await;
        let began = sim.now();
        let second = take(&sim, 1, false, &leases).await.unwrap();
        assert!(sim.now().since(began) >= Duration::from_secs(5));
        // After a reboot the record alone does not tell that the owner is dead.
        drop(second);
        sim.crash_host(1);
        sim.rt(1).disk().create_dir_all(DIR).unwrap();
        take(&sim, 1, false, &leases).await.unwrap();
        assert!(sim.now().since(began) > Duration::from_secs(11));
    });
}

#[test]
fn takeover_waits_until_the_owner_has_stopped_in_order() {
    scene(async |sim, leases| {
        let first = take(&sim, 1, false, &leases).await.unwrap();
        let world = sim.clone();
        let second = sim.rt(2).spawn("second", async move { take(&world, 2, true, &leases).await });
        assert_eq!(first.lost().await, Lost::Asked(Server::new("host2", 1)));
        // It still writes, for longer than a lease.
        sim.rt(1).sleep(Duration::from_secs(20)).await;
        assert!(!second.is_finished());
        first.release().await;
        let second = second.await.unwrap().unwrap();
        sim.rt(2).sleep(Duration::from_secs(20)).await;
        let quiet = sim.rt(2).timeout(Duration::from_secs(20), second.lost()).await;
        assert!(quiet.is_err(), "the request to stop was for the former owner");
    });
}

#[test]
fn owner_that_finds_another_name_ends() {
    scene(async |sim, leases| {
        let first = take(&sim, 1, false, &leases).await.unwrap();
        let disk = sim.rt(STORAGE).disk();
        let mut record = crate::record::Record::read(&disk, Path::new(DIR)).unwrap().unwrap();
        (record.owner, record.server) = (record.owner ^ 1, Server::new("other", 7));
        record.write(&disk, Path::new(DIR)).unwrap();
        assert_eq!(first.lost_for_good().await, Lost::Taken(Server::new("other", 7)));
        // The stop of this server does not look like one of the other.
        first.release().await;
        assert!(!crate::record::Record::read(&disk, Path::new(DIR)).unwrap().unwrap().stopped);
    });
}

#[test]
fn owner_ends_when_its_storage_does_not_answer() {
    scene(async |sim, leases| {
        let first = take(&sim, 1, false, &leases).await.unwrap();
        sim.configure(|config| config.blocking_delay = Duration::from_secs(60)..Duration::from_secs(61));
        let began = sim.now();
        assert_eq!(first.lost().await, Lost::Expired);
        assert!(sim.now().since(began) <= Times::default().lease);
    });
}

#[test]
fn damaged_heartbeat_is_reported() {
    scene(async |sim, leases| {
        sim.rt(STORAGE).disk().write_atomic(Path::new(DIR).join(HEARTBEAT), b"what?").unwrap();
        assert!(matches!(take(&sim, 1, false, &leases).await, Err(FailoverError::Io { .. })));
    });
}

#[test]
fn times_of_tests_are_parsed() {
    let shown = |times: Times| (times.lease.as_secs(), times.claim.as_secs(), times.observe.as_secs());
    assert_eq!(Times::parse("15,8,9").map(shown), Some((15, 8, 9)));
    for bad in ["", "15", "15,8", "15,8,9,10", "0,8,9", "15,8,3601", "15, 8,9", "a,b,c"] {
        assert!(Times::parse(bad).is_none(), "{bad}");
    }
}
