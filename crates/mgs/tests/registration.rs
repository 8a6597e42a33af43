//! An MGS and its clients over lo and over the simulated network.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by them")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sheen_lnet::{Net, Nid};
use sheen_mgc::Mgc;
use sheen_mgs::{Mgs, MgsError};
use sheen_params::Params;
use sheen_rpc::{Import, ImportConfig, Server};
use sheen_rt::sim::{Sim, SimConfig};
use sheen_rt::target_dir::DirError;
use sheen_rt::{RealOptions, Rt};
use sheen_wire::Errno;
use sheen_wire::mgs::{Pool, PoolChange, Reply, Request, TargetKind};

const PORT: u16 = 7988;

struct Host {
    net: Arc<Net>,
    server: Arc<Server>,
    mgs: Arc<Mgs>,
    params: Params,
}

/// Starts an MGS on a host, listening.
async fn mgs(rt: &Rt, addr: std::net::SocketAddr) -> Host {
    let net = Net::new(rt.clone());
    let server = Server::new(net.clone());
    let params = Params::new();
    let mgs = Mgs::start(rt.clone(), Path::new("/mgs"), params.clone()).await.unwrap();
    server.add::<sheen_wire::Mgs>(sheen_mgc::MGS_TARGET, mgs.clone());
    server.listen(addr).await.unwrap();
    Host { net, server, mgs, params }
}

fn nids(text: &str) -> Vec<String> {
    vec![text.to_string()]
}

#[test]
fn registration_over_lo_wakes_watches() {
    let sim = Sim::new(1, SimConfig::default());
    let (rt, addr) = (sim.rt(1), sim.addr(1, PORT));
    sim.run(async move {
        let host = mgs(&rt, addr).await;
        let mgc = Mgc::new(host.net.clone(), vec![Nid::Lo], "client");
        assert_eq!(mgc.config("sheen").await, Err(Errno::ENOENT));
        let watching = mgc.clone();
        let watch = rt.spawn("watch", async move { watching.watch("sheen", 0).await });
        // Longer than one watch waits: the client sends the next one.
        rt.sleep(Duration::from_secs(300)).await;
        assert!(!watch.is_finished());
        let index = mgc.register("sheen", TargetKind::Ost, None, "u1", &nids("10.0.0.7@tcp"), 0).await.unwrap();
        let config = watch.await.unwrap().unwrap();
        assert_eq!((index, config.version, config.targets[0].name("sheen").as_str()), (0, 1, "sheen-OST0000"));

        let stranger = mgc.register("sheen", TargetKind::Ost, Some(0), "u2", &nids("10.0.0.8@tcp"), 0).await;
        assert_eq!(stranger, Err(Errno::EEXIST));
        mgc.register("sheen", TargetKind::Ost, Some(0), "u1", &nids("10.0.0.9@tcp"), 0).await.unwrap();
        let moved = mgc.watch("sheen", config.version).await.unwrap();
        assert_eq!(moved.targets[0].nids, nids("10.0.0.9@tcp"));
        assert_eq!(mgc.list().await.unwrap(), ["sheen"]);
        assert_eq!(host.params.get("mgs.*.filesystems").unwrap()[0].value, "sheen\n");
        let second = Mgs::start(rt.clone(), Path::new("/mgs"), Params::new()).await;
        assert!(matches!(second, Err(MgsError::Dir(DirError::InUse(_)))));
    })
    .unwrap();
}

#[test]
fn acknowledged_registrations_survive_mgs_crash() {
    let sim = Sim::new(2, SimConfig::default());
    let (server_addr, far) = (sim.addr(1, PORT), sim.rt(2));
    let first = sim.rt(1);
    let world = &sim;
    sim.run(async {
        let host = mgs(&first, server_addr).await;
        let mgc = Mgc::new(Net::new(far.clone()), vec![Nid::Tcp(server_addr)], "target");
        assert_eq!(mgc.register("sheen", TargetKind::Ost, None, "u1", &nids("a@tcp"), 0).await, Ok(0));
        world.crash_host(1);
        drop(host);

        // A target that registers while the MGS is down waits for it.
        let waiting = mgc.clone();
        let pending = far.spawn("register", async move {
            waiting.register("sheen", TargetKind::Ost, None, "u2", &nids("b@tcp"), 0).await
        });
        far.sleep(Duration::from_secs(200)).await;
        assert!(!pending.is_finished());
        let host = mgs(&world.rt(1), server_addr).await;
        assert_eq!(pending.await.unwrap(), Ok(1));
        assert_eq!(mgc.register("sheen", TargetKind::Ost, None, "u1", &nids("a@tcp"), 0).await, Ok(0));
        assert_eq!(mgc.config("sheen").await.unwrap().targets.len(), 2);
        drop((host.server, host.mgs));
    })
    .unwrap();
}

#[test]
fn stopped_mgs_releases_its_directory() {
    let sim = Sim::new(3, SimConfig::default());
    let (rt, addr) = (sim.rt(1), sim.addr(1, PORT));
    sim.run(async move {
        let host = mgs(&rt, addr).await;
        host.server.remove(sheen_mgc::MGS_TARGET);
        host.mgs.stop();
        let again = Mgs::start(rt.clone(), Path::new("/mgs"), Params::new()).await;
        assert!(again.is_ok());
    })
    .unwrap();
}

#[test]
fn mgs_stop_answers_waiting_watches() {
    let sim = Sim::new(4, SimConfig::default());
    let (near, far, addr) = (sim.rt(1), sim.rt(2), sim.addr(1, PORT));
    sim.run(async move {
        let host = mgs(&near, addr).await;
        let config = ImportConfig::new("watcher", sheen_mgc::MGS_TARGET, vec![Nid::Tcp(addr)]);
        let import = Import::<sheen_wire::Mgs>::new(Net::new(far.clone()), config);
        let watching = import.clone();
        let watch = far.spawn("watch", async move {
            watching.request(Request::Watch { fsname: "sheen".into(), version: 0 }).send().await
        });
        far.sleep(Duration::from_secs(5)).await;
        assert!(!watch.is_finished());
        let began = near.now();
        host.mgs.stop();
        host.server.drain(sheen_mgc::MGS_TARGET).await;
        assert!(near.now().since(began) < Duration::from_secs(3), "the watch delayed the stop");
        assert!(matches!(watch.await.unwrap().map(|r| r.body), Ok(Reply::Config(config)) if config.version == 0));
    })
    .unwrap();
}

#[test]
fn pool_changes_wake_watches_and_survive_mgs_crash() {
    let sim = Sim::new(5, SimConfig::default());
    let (server_addr, far) = (sim.addr(1, PORT), sim.rt(2));
    let first = sim.rt(1);
    let world = &sim;
    sim.run(async {
        let host = mgs(&first, server_addr).await;
        let mgc = Mgc::new(Net::new(far.clone()), vec![Nid::Tcp(server_addr)], "lctl");
        for index in 0..2 {
            let uuid = format!("u{index}");
            mgc.register("sheen", TargetKind::Ost, Some(index), &uuid, &nids("a@tcp"), 0).await.unwrap();
        }
        let before = mgc.config("sheen").await.unwrap();
        let watching = Mgc::new(Net::new(far.clone()), vec![Nid::Tcp(server_addr)], "watcher");
        let watch = far.spawn("watch", async move { watching.watch("sheen", before.version).await });
        far.sleep(Duration::from_secs(5)).await;
        assert!(!watch.is_finished());
        mgc.change_pool("sheen", "p1", PoolChange::New).await.unwrap();
        let heard = watch.await.unwrap().unwrap();
        assert_eq!(heard.pools, [Pool { name: "p1".into(), osts: vec![] }]);

        mgc.change_pool("sheen", "p1", PoolChange::Add { ost: 1 }).await.unwrap();
        // A refusal is a reply: the client does not retry.
        let refused = async |pool, change| mgc.change_pool("sheen", pool, change).await.unwrap_err();
        assert_eq!(refused("p1", PoolChange::New).await, Errno::EEXIST);
        assert_eq!(refused("p1", PoolChange::Add { ost: 9 }).await, Errno::ENODEV);
        assert_eq!(refused("p1", PoolChange::Remove { ost: 0 }).await, Errno::ENOENT);
        assert_eq!(mgc.change_pool("nofs", "p1", PoolChange::New).await, Err(Errno::EINVAL));
        let known = mgc.config("sheen").await.unwrap();
        assert_eq!(known.pools, [Pool { name: "p1".into(), osts: vec![1] }]);
        let shown = host.params.get("mgs.MGS.pools.sheen").unwrap();
        assert_eq!(shown[0].value, "p1: sheen-OST0001_UUID\n");

        world.crash_host(1);
        drop(host);
        let host = mgs(&world.rt(1), server_addr).await;
        let again = mgc.config("sheen").await.unwrap();
        assert_eq!((again.version, again.pools), (known.version, known.pools));
        assert_eq!(host.params.get("mgs.MGS.pools.sheen").unwrap()[0].value, "p1: sheen-OST0001_UUID\n");
        mgc.change_pool("sheen", "p1", PoolChange::Destroy).await.unwrap();
        assert!(mgc.config("sheen").await.unwrap().pools.is_empty());
        drop((host.server, host.mgs));
    })
    .unwrap();
}

#[test]
fn setting_the_pools_parameter_changes_a_pool() {
    // In memory: setting a parameter waits for the disk for at most 25 s of real time.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let (runtime, rt) = Rt::real(RealOptions::default()).unwrap();
    let params = Params::new();
    let started = runtime.block_on(async {
        let net = Net::new(rt.clone());
        let server = Server::new(net.clone());
        let mgs = Mgs::start(rt.clone(), dir.path(), params.clone()).await.unwrap();
        server.add::<sheen_wire::Mgs>(sheen_mgc::MGS_TARGET, mgs.clone());
        let mgc = Mgc::new(net, vec![Nid::Lo], "target");
        assert!(params.get("mgs.MGS.pools.*").is_err(), "no file system is known yet");
        mgc.register("sheen", TargetKind::Ost, None, "u1", &nids("10.0.0.7@tcp"), 0).await.unwrap();
        (server, mgs)
    });
    // As the thread of the control socket does it, outside the runtime.
    let set = |value: &str| params.set("mgs.MGS.pools.sheen", value).unwrap()[0].result.clone().map_err(|e| e.errno);
    assert_eq!(set("pool_new p1"), Ok(()));
    assert_eq!(set("pool_add p1 sheen-OST0000_UUID"), Ok(()));
    assert_eq!(set("pool_add p1 sheen-OST0000_UUID"), Err(Errno::EEXIST));
    assert_eq!(set("pool_new p1"), Err(Errno::EEXIST));
    assert_eq!(set("pool_new"), Err(Errno::EINVAL));
    assert_eq!(params.get("mgs.MGS.pools.sheen").unwrap()[0].value, "p1: sheen-OST0000_UUID\n");
    started.1.stop();
    assert!(params.set("mgs.MGS.pools.sheen", "pool_destroy p1").is_err(), "a stopped MGS changes nothing");
}

#[test]
fn setting_the_nodemaps_parameter_changes_nodemaps_and_their_parameters() {
    // As above.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let (runtime, rt) = Rt::real(RealOptions::default()).unwrap();
    let params = Params::new();
    let (_server, started, mgc) = runtime.block_on(async {
        let net = Net::new(rt.clone());
        let server = Server::new(net.clone());
        let mgs = Mgs::start(rt.clone(), dir.path(), params.clone()).await.unwrap();
        server.add::<sheen_wire::Mgs>(sheen_mgc::MGS_TARGET, mgs.clone());
        (server, mgs, Mgc::new(net, vec![Nid::Lo], "target"))
    });
    let set = |value: &str| params.set("mgs.MGS.nodemaps", value).unwrap()[0].result.clone().map_err(|e| e.errno);
    let get = |name: &str| params.get(name).map(|found| found[0].value.clone()).map_err(|e| e.errno);
    assert_eq!(get("nodemap.default.squash_uid"), Ok("65534".into()), "also if it is not stored");
    assert_eq!((set("nodemap_add a"), get("nodemap.a.admin_nodemap")), (Ok(()), Ok("0".into())));
    assert_eq!((set("nodemap_modify a admin 1"), get("nodemap.a.admin_nodemap")), (Ok(()), Ok("1".into())));
    assert_eq!((set("nodemap_add a"), set("nodemap_add")), (Err(Errno::EEXIST), Err(Errno::EINVAL)));
    assert_eq!((set("nodemap_add b"), set("nodemap_del b")), (Ok(()), Ok(())));
    assert_eq!(get("nodemap.b.*"), Err(Errno::ENOENT));

    runtime.block_on(mgc.register("sheen", TargetKind::Mdt, None, "u1", &nids("10.0.0.7@tcp"), 0)).unwrap();
    let before = runtime.block_on(mgc.config("sheen")).unwrap();
    assert_eq!(before.nodemaps.maps.iter().map(|map| &map.name[..]).collect::<Vec<_>>(), ["a"]);
    let watch = rt.spawn("watch", async move { mgc.watch("sheen", before.version).await });
    let of_fs = params.set("mgs.MGS.nodemaps.sheen", "nodemap_activate 1").unwrap();
    assert!(of_fs[0].result.is_ok());
    assert_eq!(get("nodemap.active"), Ok("1".into()));
    assert!(runtime.block_on(watch).unwrap().unwrap().nodemaps.active);
    started.stop();
    assert_eq!(get("nodemap.active"), Err(Errno::ENOENT));

    let params = Params::new();
    let _again = runtime.block_on(Mgs::start(rt.clone(), dir.path(), params.clone())).unwrap();
    assert_eq!(params.get("nodemap.a.admin_nodemap").unwrap()[0].value, "1");
    assert_eq!(params.get("nodemap.active").unwrap()[0].value, "1");
}
