//! Placement on OSTs, destroys, orphan objects.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::common::{FakeOst, Host, config, objects, simulate, slow_commits, with_host};
use sheen_lnet::{Net, Nid};
use sheen_rpc::Server;
use sheen_rt::sim::{Sim, SimConfig, World};
use sheen_wire::mgs::{PoolChange, TargetKind, target_name};
use sheen_wire::{Errno, Ost, mds::Request, ost};

/// Port of the OSTs' servers.
const PORT: u16 = 7988;
/// The MDT's host.
const MDS: u32 = 1;
/// Hosts of OSTs.
const OSSES: [u32; 3] = [20, 21, 22];

#[test]
fn objects_are_destroyed_after_the_unlink_is_durable() {
    with_host(1, slow_commits(), async |_, rt, host| {
        let ost = host.add_ost(0).await;
        let file = host.create_closed("f").await.unwrap();
        assert_eq!(file.len(), 1);
        host.sync().await.unwrap();
        host.unlink("f").await.unwrap();
        rt.sleep(Duration::from_secs(5)).await;
        assert!(ost.destroyed().is_empty(), "destroyed before the unlink was durable");
        host.sync().await.unwrap();
        rt.sleep(Duration::from_millis(100)).await;
        assert_eq!(ost.destroyed(), [file[0].1]);
        // And only once.
        rt.sleep(Duration::from_secs(60)).await;
        assert_eq!(ost.destroyed().len(), 1);
    });
}

#[test]
fn open_unlinked_file_retains_objects_until_last_close() {
    with_host(2, config(), async |_, rt, host| {
        let ost = host.add_ost(0).await;
        let (entry, handle) = host.create("f").await.unwrap();
        host.unlink("f").await.unwrap();
        rt.sleep(Duration::from_secs(2)).await;
        assert!(ost.destroyed().is_empty());
        host.ask(Request::close(entry.attr.fid, handle)).await.unwrap();
        rt.sleep(Duration::from_secs(2)).await;
        assert_eq!(ost.destroyed(), [objects(&entry)[0].1]);
    });
}

#[test]
fn destroys_wait_for_an_ost_that_fails_and_not_for_others() {
    with_host(3, config(), async |_, rt, host| {
        let osts = host.add_osts(2).await;
        osts[1].broken.store(true, Relaxed);
        let mut files = Vec::new();
        for i in 0..10 {
            files.extend(host.create_closed(&format!("f{i}")).await.unwrap());
        }
        for i in 0..10 {
            host.unlink(&format!("f{i}")).await.unwrap();
        }
        rt.sleep(Duration::from_secs(10)).await;
        let on = |ost: u32| files.iter().filter(move |f| f.0 == ost).map(|f| f.1).collect::<Vec<_>>();
        assert_eq!((on(0).len(), on(1).len()), (5, 5), "round robin");
        assert_eq!(sorted(&osts[0]), on(0));
        assert!(osts[1].destroyed().is_empty());
        osts[1].broken.store(false, Relaxed);
        rt.sleep(Duration::from_secs(10)).await;
        assert_eq!(sorted(&osts[1]), on(1));
    });
}

fn sorted(ost: &FakeOst) -> Vec<sheen_wire::Fid> {
    let mut all = ost.destroyed();
    all.sort();
    all
}

#[test]
fn destroys_survive_a_crash() {
    with_host(4, config(), async |sim, _, host| {
        let ost = host.add_ost(0).await;
        let file = host.create_closed("f").await.unwrap();
        ost.broken.store(true, Relaxed);
        host.unlink("f").await.unwrap();
        host.sync().await.unwrap();
        let host = host.crash(sim, config()).await;
        let ost = Arc::new(FakeOst::default());
        host.add_ost_again(0, &ost).await;
        host.rt.sleep(Duration::from_secs(20)).await;
        assert!(ost.destroyed().contains(&file[0].1));
    });
}

#[test]
fn objects_of_lost_creates_are_removed_before_new_ones_are_placed() {
    for seed in 0..20 {
        with_host(seed, slow_commits(), async |sim, _, host| {
            host.add_ost(0).await;
            host.create_closed("durable").await.unwrap();
            host.sync().await.unwrap();
            let lost = host.create_closed("lost").await.unwrap();
            let host = host.crash(sim, config()).await;
            assert!(!host.exists("lost").await);
            let ost = Arc::new(FakeOst::default());
            host.add_ost_again(0, &ost).await;
            let new = host.create_closed("new").await.unwrap();
            let (_, object) = lost[0];
            let covers = |r: &ost::Request| {
                matches!(r, ost::Request::DestroyRange { seq, first, last }
                    if *seq == object.seq && (*first..=*last).contains(&object.oid))
            };
            assert!(ost.asked.lock().iter().any(covers), "seed {seed}: {:?}", ost.asked.lock());
            assert!(!ost.asked.lock().iter().any(|r| matches!(r, ost::Request::DestroyRange { seq, first, last }
                if *seq == new[0].1.seq && (*first..=*last).contains(&new[0].1.oid))));
        });
    }
}

#[test]
fn creates_wait_for_the_first_ost_and_fail_without_any() {
    with_host(6, config(), async |sim, rt, host| {
        // The MGS has reported that there are none: waiting is pointless.
        rt.sleep(Duration::from_secs(1)).await;
        assert_eq!(host.create("f").await.unwrap_err(), Errno::ENOSPC);
        host.add_ost(0).await;
        host.create_closed("g").await.unwrap();
        // Registered with the MGS, but not running yet.
        let host = host.crash(sim, config()).await;
        let ost = Arc::new(FakeOst::default());
        let (created, ()) = tokio::join!(host.create_closed("h"), async {
            host.rt.sleep(Duration::from_secs(2)).await;
            host.add_ost_again(0, &ost).await;
        });
        created.unwrap();
    });
}

#[test]
fn creates_after_restart_wait_for_all_osts_within_settle_time() {
    with_host(8, config(), async |sim, _, host| {
        host.add_osts(3).await;
        let host = host.crash(sim, config()).await;
        let ost = Arc::new(FakeOst::default());
        host.add_ost_again(0, &ost).await;
        host.mdt.wait_osts(1).await;
        let stripes = async |name: &str, count: &str| {
            host.params.set("lod.*.stripecount", count).unwrap();
            host.create_closed(name).await.unwrap().len()
        };
        let began = host.rt.now();
        assert_eq!(stripes("narrow", "1").await, 1);
        assert!(host.rt.now().since(began) < Duration::from_millis(100), "one OST is enough for one stripe");
        let (wide, ()) = tokio::join!(stripes("wide", "3"), async {
            host.rt.sleep(Duration::from_secs(3)).await;
            host.add_ost_again(1, &ost).await;
            host.rt.sleep(Duration::from_secs(3)).await;
            host.add_ost_again(2, &ost).await;
        });
        assert_eq!(wide, 3);

        // An OST that does not reconnect delays creates only for a limited time.
        let host = host.crash(sim, config()).await;
        host.add_ost_again(0, &ost).await;
        host.add_ost_again(1, &ost).await;
        host.mdt.wait_osts(2).await;
        host.params.set("lod.*.stripecount", "-1").unwrap();
        let began = host.rt.now();
        assert_eq!(host.create_closed("all").await.unwrap().len(), 2);
        assert!(host.rt.now().since(began) <= Duration::from_secs(10));
        let began = host.rt.now();
        assert_eq!(host.create_closed("more").await.unwrap().len(), 2);
        assert!(host.rt.now().since(began) < Duration::from_millis(100));
    });
}

/// Makes an OST reachable that the MGS, or a former life of it, knows.
fn serve_ost(host: &Host, index: u32) -> Arc<FakeOst> {
    let ost = Arc::new(FakeOst::default());
    host.server.add::<Ost>(&target_name("sheen", TargetKind::Ost, index), ost.clone());
    ost
}

#[test]
fn mdt_without_mgs_places_files_on_the_osts_that_it_knew() {
    with_host(13, config(), async |sim, _, host| {
        host.add_osts(3).await;
        host.mgc.change_pool("sheen", "p", PoolChange::New).await.unwrap();
        host.mgc.change_pool("sheen", "p", PoolChange::Add { ost: 2 }).await.unwrap();
        host.rt.sleep(Duration::from_secs(1)).await;
        sim.crash_host(1);
        drop(host);
        let host = Host::without_mgs(&sim.rt(1), config()).await;
        (0..3).for_each(|index| drop(serve_ost(&host, index)));
        host.params.set("lod.*.stripecount", "-1").unwrap();
        assert_eq!(osts_of_new(&host, "f").await, [0, 1, 2]);
        assert_eq!(host.param("lov.*-mdtlov.pools.p"), "sheen-OST0002_UUID\n");
        // The MGS returns: the OSTs stay connected, and a new one is used.
        host.serve_mgs();
        host.mdt.registered().await.unwrap();
        host.add_ost(3).await;
        host.mdt.wait_osts(4).await;
        assert_eq!(osts_of_new(&host, "g").await, [0, 1, 2, 3]);
    });
}

#[test]
fn mdt_asks_its_mgs_before_it_uses_the_osts_that_it_knew() {
    with_host(14, config(), async |sim, _, host| {
        host.add_osts(2).await;
        let change = async |change| host.mgc.change_pool("sheen", "p", change).await.unwrap();
        change(PoolChange::New).await;
        change(PoolChange::Add { ost: 0 }).await;
        host.rt.sleep(Duration::from_secs(1)).await;
        // A change while the MDT is down.
        host.mdt.stop().await.unwrap();
        change(PoolChange::Add { ost: 1 }).await;
        change(PoolChange::Remove { ost: 0 }).await;
        sim.crash_host(1);
        drop(host);
        // The MGS answers a moment after the start.
        let moment = Duration::from_secs(2);
        let host = Host::without_mgs(&sim.rt(1), config()).await;
        (0..2).for_each(|index| drop(serve_ost(&host, index)));
        let began = host.rt.now();
        let (osts, ()) = tokio::join!(osts_of_new(&host, "f"), async {
            host.rt.sleep(moment).await;
            host.serve_mgs();
        });
        assert_eq!(osts.len(), 1);
        assert!(host.rt.now().since(began) >= moment, "it does not use the old pools");
        assert_eq!(host.param("lov.*-mdtlov.pools.p"), "sheen-OST0001_UUID\n");
    });
}

#[test]
fn create_is_to_be_repeated_while_no_osts_are_known() {
    simulate(15, async |_, rt| {
        let host = Host::without_mgs(&rt, config()).await;
        let began = rt.now();
        assert_eq!(host.create("f").await.unwrap_err(), Errno::OSTS_DISCONNECTED);
        assert!(rt.now().since(began) <= Duration::from_secs(10));
        let began = rt.now();
        assert_eq!(host.create("f").await.unwrap_err(), Errno::OSTS_DISCONNECTED);
        assert!(rt.now().since(began) < Duration::from_millis(100), "the client waits, not the MDT");
        host.serve_mgs();
        let ost = host.add_ost(0).await;
        host.create_closed("g").await.unwrap();
        // A full OST is another matter.
        ost.used_bytes.store(4096 << 20, Relaxed);
        rt.sleep(Duration::from_secs(60)).await;
        let began = rt.now();
        assert_eq!(host.create("h").await.unwrap_err(), Errno::ENOSPC);
        assert!(rt.now().since(began) < Duration::from_millis(100));
    });
}

#[test]
fn idle_mdt_asks_its_osts_before_it_places_a_file() {
    with_host(16, config(), async |_, rt, host| {
        let osts = host.add_osts(2).await;
        for (n, degraded) in [(0, 1), (1, 0), (2, 1)] {
            rt.sleep(Duration::from_secs(3600)).await;
            osts[degraded].degraded.store(true, Relaxed);
            osts[1 - degraded].degraded.store(false, Relaxed);
            for file in 0..4 {
                let placed = osts_of_new(&host, &format!("f{n}.{file}")).await;
                assert_eq!(placed, [1 - degraded as u32], "{n}, {file}");
            }
        }
    });
}

#[test]
fn silent_ost_delays_files_of_an_idle_mdt_for_a_moment_at_most() {
    with_wide_files(17, async |sim, host| {
        let servers = [serve(sim, OSSES[0], &[0]).await, serve(sim, OSSES[1], &[1]).await];
        register(host, 0, &servers[0].nid).await;
        register(host, 1, &servers[1].nid).await;
        host.mdt.wait_osts(2).await;
        host.rt.sleep(Duration::from_secs(60)).await;
        sim.partition(MDS, OSSES[1]);
        for n in 0..5 {
            let began = host.rt.now();
            // The silent OST counts as disconnected after 5 s.
            let expected = if n == 0 { vec![0, 1] } else { vec![0] };
            assert_eq!(osts_of_new(host, &format!("f{n}")).await, expected);
            assert!(host.rt.now().since(began) < Duration::from_millis(200), "{:?}", host.rt.now().since(began));
            host.rt.sleep(Duration::from_secs(10)).await;
        }
    });
}

#[test]
fn restarted_mdt_places_no_file_on_a_degraded_ost_before_it_knows_the_others() {
    with_host(18, config(), async |sim, _, host| {
        host.add_osts(2).await;
        let host = host.crash(sim, config()).await;
        serve_ost(&host, 1).degraded.store(true, Relaxed);
        host.mdt.wait_osts(1).await;
        let (osts, _) = tokio::join!(osts_of_new(&host, "f"), async {
            host.rt.sleep(Duration::from_secs(3)).await;
            serve_ost(&host, 0)
        });
        assert_eq!(osts, [0]);
    });
}

#[test]
fn lod_and_osp_parameters_control_placement() {
    with_host(7, config(), async |_, _, host| {
        host.add_osts(3).await;
        assert_eq!(host.param("lod.*.numobd"), "3");
        host.params.set("lod.*.stripecount", "-1").unwrap();
        assert_eq!(host.create_closed("wide").await.unwrap().len(), 3);
        let off = host.params.set("osp.sheen-OST0001-osc-MDT0000.active", "0").unwrap();
        assert!(off[0].result.is_ok());
        assert_eq!(host.param("lod.*.activeobd"), "2");
        let osts: Vec<u32> = host.create_closed("narrow").await.unwrap().iter().map(|o| o.0).collect();
        assert!(osts.len() == 2 && !osts.contains(&1), "{osts:?}");
        let bad = |name, value| host.params.set(name, value).unwrap()[0].result.as_ref().unwrap_err().errno;
        assert_eq!(bad("lod.*.stripesize", "100000"), Errno::EINVAL);
        assert_eq!(bad("lod.*.stripecount", "2001"), Errno::ERANGE);
        assert_eq!(host.param("lod.*.qos_threshold_rr"), "17%");
        assert!(host.param("mdt.*.md_stats").contains("create                              2 samples [usecs]"));
        assert_eq!(host.param("mdt.*.num_exports"), "1");
        let stats = host.param("mdt.*.exports.0@lo.stats");
        assert!(stats.contains("create                              2 samples [usecs]"), "{stats}");
    });
}

#[test]
fn md_stats_counts_layout_lookups_that_failed() {
    let sim = Sim::new(8, SimConfig::default());
    let rt = sim.rt(1);
    sim.run(async {
        let host = Host::start(&rt, config()).await;
        let fid = host.new_fid();
        let outcome = host.ask(Request::LayoutMoved { fid, generation: 1 }).await.map(drop);
        assert_eq!(outcome, Err(Errno::ENOENT));
        let stats = host.param("mdt.*.md_stats");
        assert!(stats.lines().any(|line| line.starts_with("layout_moved ") && line.contains(" 1 samples ")), "{stats}");
    })
    .unwrap();
}

/// OSTs on a host of their own, which record all their requests in the same place.
struct Oss {
    _server: Arc<Server>,
    nid: String,
    ost: Arc<FakeOst>,
}

async fn serve(world: &World, number: u32, osts: &[u32]) -> Oss {
    let (server, ost) = (Server::new(Net::new(world.rt(number))), Arc::new(FakeOst::default()));
    for index in osts {
        server.add::<Ost>(&target_name("sheen", TargetKind::Ost, *index), ost.clone());
    }
    let at = world.addr(number, PORT);
    server.listen(at).await.unwrap();
    Oss { _server: server, nid: Nid::Tcp(at).to_string(), ost }
}

/// Registers the address of an OST with the MGS.
async fn register(host: &Host, index: u32, nid: &str) {
    let nids = [nid.to_string()];
    host.mgc.register("sheen", TargetKind::Ost, Some(index), &format!("ost{index}"), &nids, 0).await.unwrap();
}

/// Creates a file; returns its OSTs, sorted.
async fn osts_of_new(host: &Host, name: &str) -> Vec<u32> {
    let mut osts: Vec<u32> = host.create_closed(name).await.unwrap().iter().map(|object| object.0).collect();
    osts.sort_unstable();
    osts
}

/// Runs a test in which new files have stripes on all OSTs, some time after the start of the MDT.
fn with_wide_files(seed: u64, test: impl AsyncFn(&Sim, &Host)) {
    with_host(seed, config(), async |sim, rt, host| {
        host.params.set("lod.*.stripecount", "-1").unwrap();
        rt.sleep(Duration::from_secs(20)).await;
        test(sim, &host).await;
    });
}

#[test]
fn create_does_without_an_ost_that_disconnected_just_now_or_long_ago() {
    with_wide_files(9, async |sim, host| {
        let mut servers = vec![serve(sim, OSSES[0], &[0]).await, serve(sim, OSSES[1], &[1]).await];
        register(host, 0, &servers[0].nid).await;
        register(host, 1, &servers[1].nid).await;
        let (moment, long) = (Duration::from_millis(10), Duration::from_secs(39 * 60));
        // How long the MDT is idle before and after the crash, and how long the create may then
        // take.
        let cases = [(long, Duration::from_millis(100)), (moment, Duration::from_secs(6))];
        for (n, (idle, limit)) in cases.into_iter().enumerate() {
            host.mdt.wait_osts(2).await;
            assert_eq!(osts_of_new(host, &format!("both{n}")).await, [0, 1]);
            host.rt.sleep(idle).await;
            sim.crash_host(OSSES[1]);
            host.rt.sleep(idle).await;
            let began = host.rt.now();
            assert_eq!(osts_of_new(host, &format!("one{n}")).await, [0], "idle for {idle:?}");
            assert!(host.rt.now().since(began) <= limit, "{:?}", host.rt.now().since(began));
            servers.push(serve(sim, OSSES[1], &[1]).await);
        }
        host.mdt.wait_osts(2).await;
        assert_eq!(osts_of_new(host, "both again").await, [0, 1]);
    });
}

#[test]
fn create_is_to_be_repeated_while_all_osts_are_disconnected() {
    with_wide_files(9, async |sim, host| {
        let mut servers = vec![serve(sim, OSSES[0], &[0]).await, serve(sim, OSSES[1], &[1]).await];
        register(host, 0, &servers[0].nid).await;
        register(host, 1, &servers[1].nid).await;
        host.mdt.wait_osts(2).await;
        OSSES[..2].iter().for_each(|oss| sim.crash_host(*oss));
        host.rt.sleep(Duration::from_secs(20)).await;
        assert_eq!(host.create("none").await.unwrap_err(), Errno::OSTS_DISCONNECTED);
        // One that takes no objects by its parameters does not count.
        host.params.set("osp.*OST0000*.max_create_count", "0").unwrap();
        assert_eq!(host.create("none").await.unwrap_err(), Errno::OSTS_DISCONNECTED);
        host.params.set("osp.*OST0001*.max_create_count", "0").unwrap();
        assert_eq!(host.create("none").await.unwrap_err(), Errno::ENOSPC);
        host.params.set("osp.*.max_create_count", "20000").unwrap();
        servers.push(serve(sim, OSSES[1], &[1]).await);
        host.mdt.wait_osts(1).await;
        assert_eq!(osts_of_new(host, "one").await, [1]);
    });
}

#[test]
fn create_waits_for_osts_that_reconnect_at_once() {
    with_wide_files(10, async |sim, host| {
        let servers = [serve(sim, OSSES[0], &[0]).await, serve(sim, OSSES[1], &[1]).await];
        register(host, 0, &servers[0].nid).await;
        register(host, 1, &servers[1].nid).await;
        host.mdt.wait_osts(2).await;
        for n in 0..60usize {
            // One of them, or both.
            OSSES[n % 2..2].iter().for_each(|oss| sim.reset_connections(MDS, *oss));
            host.rt.sleep(Duration::from_micros(n as u64 * 50)).await;
            assert_eq!(osts_of_new(host, &format!("f{n}")).await, [0, 1]);
            host.rt.sleep(Duration::from_secs(2)).await;
        }
    });
}

#[test]
fn mdt_stops_at_once_although_its_osts_are_silent() {
    with_wide_files(12, async |sim, host| {
        let servers = [serve(sim, OSSES[0], &[0]).await, serve(sim, OSSES[1], &[1]).await];
        register(host, 0, &servers[0].nid).await;
        register(host, 1, &servers[1].nid).await;
        host.mdt.wait_osts(2).await;
        assert_eq!(osts_of_new(host, "f").await, [0, 1]);
        OSSES[..2].iter().for_each(|oss| sim.partition(MDS, *oss));
        // The MDT waits for the replies to its destroys.
        host.unlink("f").await.unwrap();
        host.rt.sleep(Duration::from_secs(1)).await;
        assert!(servers.iter().all(|server| server.ost.destroyed().is_empty()));
        let began = host.rt.now();
        host.mdt.stop().await.unwrap();
        let took = host.rt.now().since(began);
        assert!(took < Duration::from_secs(1), "{took:?}");
    });
}

#[test]
fn ost_that_moves_takes_objects_at_its_new_address_and_others_stay_connected() {
    with_wide_files(11, async |sim, host| {
        // When OST 0 moves, the MDT numbers the servers of the other two anew.
        let servers = [serve(sim, OSSES[0], &[0, 1]).await, serve(sim, OSSES[1], &[2]).await];
        for (index, server) in [(0, 0), (1, 0), (2, 1)] {
            register(host, index, &servers[server].nid).await;
        }
        host.mdt.wait_osts(3).await;
        let there = serve(sim, OSSES[2], &[0]).await;
        register(host, 0, &there.nid).await;
        for n in 0..60 {
            assert_eq!(osts_of_new(host, &format!("f{n}")).await, [0, 1, 2]);
            host.rt.sleep(Duration::from_micros(100)).await;
        }
        assert!(!there.ost.asked.lock().is_empty(), "its new address gets requests");
    });
}
