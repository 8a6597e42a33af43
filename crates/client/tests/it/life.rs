//! Mounting, following the configuration, names, and the requests of tools, over fake servers.

use std::{sync::Arc, time::Duration};

use crate::fake::{DATA_SERVICE, FSNAME, FakeMds, FakeMgs, FakeOst, Mounted, ROOT, bulk, name, root, with, with_tcp};
use parking_lot::Mutex;
use sheen_client::{Caller, Client, ClientOptions, DirItem, MountError, MountWait, OpenDir};
use sheen_lnet::{Net, Nid};
use sheen_params::Params;
use sheen_rpc::Server;
use sheen_rt::{
    JoinHandle,
    sim::{Sim, SimConfig},
};
use sheen_wire::{
    Errno, Fid, FileKind, Mds, Mgs, Ost,
    control::{self, ImportInfo, MountInfo, TargetInfo},
    mds::{SetAttr, flags},
    mgs::TargetKind,
};

const RDWR_CREATE: u32 = flags::RDWR | flags::CREAT;

async fn create(m: &Mounted, file: &str) -> Arc<sheen_client::OpenFile> {
    m.client.create(&ROOT, root(), &name(file), RDWR_CREATE, 0o644, 0).await.expect("create").1
}

#[test]
fn failed_mount_reports_the_reason() {
    let sim = Sim::new(1, SimConfig::default());
    let rt = sim.rt(1);
    let run = async {
        let mount = async |net: &Arc<Net>, mgs: Vec<Nid>, fsname: &str| {
            let options = ClientOptions::default();
            Client::mount(rt.clone(), net.clone(), mgs, fsname, options, Params::new()).await.expect_err("no mount")
        };
        let net = Net::new(rt.clone());
        assert!(matches!(mount(&net, vec![], "sheen").await, MountError::NoMgs));
        let (closed, began) = (Nid::Tcp(sim.addr(9, 988)), rt.now());
        let wrong = mount(&net, vec![closed], "sheen").await;
        assert_eq!(wrong.errno(), Errno::ECONNREFUSED);
        assert!(wrong.to_string().starts_with("cannot reach the MGS at 10.0.0.9:988@tcp: "), "{wrong}");
        assert!(rt.now().since(began) < Duration::from_secs(3), "a wrong port is reported soon");
        sim.partition(1, 8);
        let silent = mount(&net, vec![Nid::Tcp(sim.addr(8, 988))], "sheen").await;
        assert_eq!(silent.errno(), Errno::ETIMEDOUT);
        assert!(silent.to_string().contains("10.0.0.8:988@tcp: no answer; "), "{silent}");

        let m = Mounted::new(sim.rt(2), 1, 65536, &[0]).await;
        let unknown = mount(&m.net, vec![Nid::Lo], "other").await;
        assert_eq!(unknown.errno(), Errno::ENOENT);
        assert!(unknown.to_string().contains("'other'"), "{unknown}");
        let targets = std::mem::take(&mut m.world.state.lock().config.targets);
        assert!(matches!(mount(&m.net, vec![Nid::Lo], "sheen").await, MountError::NoMdt(_)));
        m.world.state.lock().config.targets = targets;
        m.server.remove("sheen-MDT0000");
        let unreachable = mount(&m.net, vec![Nid::Lo], "sheen").await;
        assert!(unreachable.to_string().starts_with("cannot reach sheen-MDT0000 at 0@lo: "), "{unreachable}");
    };
    sim.run(run).expect("the simulation ends");
}

/// The waits that mounts have reported.
type Waits = Arc<Mutex<Vec<MountWait>>>;

/// Mounts the file system in a task.
fn begin_mount(m: &Mounted, mgs: Vec<Nid>, waits: &Waits) -> JoinHandle<Result<Arc<Client>, MountError>> {
    let reported = waits.clone();
    let options = ClientOptions {
        mgs_failover: mgs.len() > 1,
        report_wait: Arc::new(move |wait: &MountWait| reported.lock().push(wait.clone())),
        ..ClientOptions::default()
    };
    let (rt, net) = (m.net.rt().clone(), m.net.clone());
    let mounting = async move { Client::mount(rt, net, mgs, FSNAME, options, Params::new()).await };
    m.net.rt().spawn("mount", mounting)
}

#[test]
fn mount_waits_as_long_as_the_mdt_or_an_ost_is_in_recovery() {
    with_tcp(1, 65536, &[0], async |m| {
        let (rt, waits, mgs) = (m.net.rt(), Waits::default(), vec![Nid::Tcp(([10, 0, 0, 1], 988).into())]);
        let longest = Duration::from_secs(280);
        for (kind, name) in [(TargetKind::Mdt, "sheen-MDT0000"), (TargetKind::Ost, "sheen-OST0000")] {
            m.world.state.lock().habits.recovery = Some((kind, longest));
            let mounting = begin_mount(&m, mgs.clone(), &waits);
            rt.sleep(Duration::from_secs(200)).await;
            assert!(!mounting.is_finished(), "{name}");
            m.world.state.lock().habits.recovery = None;
            let client = mounting.await.unwrap().unwrap();
            client.umount().await;
            let reported = std::mem::take(&mut *waits.lock());
            let [MountWait::Recovery { target, limit }] = &reported[..] else { panic!("{reported:?}") };
            assert!(target == name && *limit <= longest && *limit > longest - Duration::from_secs(5), "{reported:?}");
            assert!(reported[0].to_string().contains(&format!("`lctl --device {name} abort_recovery`")));
        }
        // A short recovery is not worth a message.
        m.world.state.lock().habits.recovery = Some((TargetKind::Mdt, longest));
        let mounting = begin_mount(&m, mgs, &waits);
        rt.sleep(Duration::from_millis(500)).await;
        m.world.state.lock().habits.recovery = None;
        mounting.await.unwrap().unwrap().umount().await;
        assert!(waits.lock().is_empty());
    });
}

#[test]
fn mount_waits_for_the_mdt_and_the_mgs_for_longer_than_a_takeover_takes() {
    let sim = Sim::new(1, SimConfig { partition_timeout: Duration::from_secs(1000), ..SimConfig::default() });
    let (serving, rt) = (sim.rt(1), sim.rt(2));
    let takeover = Duration::from_secs(16);
    let run = async {
        let m = Mounted::over_tcp(serving.clone(), rt.clone(), 1, 65536, &[0]).await;
        let waits = Waits::default();
        // One host of the MGS is dead, and the other one does not serve it yet.
        let (dead, other) = (sim.addr(8, 988), sim.addr(9, 988));
        sim.partition(2, 8);
        let mounting = begin_mount(&m, vec![Nid::Tcp(dead), Nid::Tcp(other)], &waits);
        rt.sleep(takeover).await;
        assert!(!mounting.is_finished());
        let mgs = Server::new(Net::new(sim.rt(9)));
        mgs.add::<Mgs>("MGS", Arc::new(FakeMgs(m.world.clone())));
        mgs.listen(other).await.unwrap();
        mounting.await.unwrap().unwrap().umount().await;
        // The MDT is served again after a while.
        m.server.remove("sheen-MDT0000");
        let mounting = begin_mount(&m, vec![Nid::Tcp(other)], &waits);
        rt.sleep(takeover).await;
        assert!(!mounting.is_finished());
        m.server.add::<Mds>("sheen-MDT0000", Arc::new(FakeMds(m.world.clone())));
        mounting.await.unwrap().unwrap().umount().await;
        let server = |wait: &MountWait| match wait {
            MountWait::Server { server, limit, .. } if *limit > takeover => server.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(waits.lock().iter().map(server).collect::<Vec<_>>(), ["the MGS", "sheen-MDT0000"]);
    };
    sim.run(run).expect("the simulation ends");
}

#[test]
fn mount_that_waits_for_the_mdt_follows_it_to_a_new_address() {
    let sim = Sim::new(1, SimConfig::default());
    let (serving, rt) = (sim.rt(1), sim.rt(2));
    let while_waiting = Duration::from_secs(20);
    let run = async {
        let m = Mounted::over_tcp(serving, rt.clone(), 1, 65536, &[0]).await;
        let (waits, former, new) = (Waits::default(), Nid::Tcp(sim.addr(1, 988)), sim.addr(9, 988));
        m.server.remove("sheen-MDT0000");
        let mounting = begin_mount(&m, vec![former], &waits);
        rt.sleep(while_waiting).await;
        // It registers before it serves.
        m.move_target(0, new);
        rt.sleep(while_waiting).await;
        assert!(!mounting.is_finished(), "the wait begins anew");
        let mds = Server::new(Net::new(sim.rt(9)));
        mds.add::<Mds>("sheen-MDT0000", Arc::new(FakeMds(m.world.clone())));
        mds.listen(new).await.unwrap();
        mounting.await.unwrap().unwrap().umount().await;
        let reported = std::mem::take(&mut *waits.lock());
        let [MountWait::Server { nids, .. }, MountWait::Moved { target, nids: moved, limit }] = &reported[..] else {
            panic!("{reported:?}")
        };
        assert_eq!((nids, moved), (&former.to_string(), &Nid::Tcp(new).to_string()));
        assert!(target == "sheen-MDT0000" && *limit > while_waiting, "{reported:?}");
    };
    sim.run(run).expect("the simulation ends");
}

#[test]
fn mount_waits_for_the_recovery_of_an_ost_that_it_reaches_later_than_the_mdt() {
    let sim = Sim::new(1, SimConfig { partition_timeout: Duration::from_secs(1000), ..SimConfig::default() });
    let (serving, rt) = (sim.rt(1), sim.rt(2));
    let run = async {
        let m = Mounted::over_tcp(serving, rt.clone(), 1, 65536, &[0]).await;
        let (waits, at) = (Waits::default(), sim.addr(8, 988));
        let oss = Server::new(Net::new(sim.rt(8)));
        oss.add::<Ost>("sheen-OST0000", Arc::new(FakeOst(m.world.clone(), 0)));
        oss.listen(at).await.unwrap();
        m.world.state.lock().habits.recovery = Some((TargetKind::Ost, Duration::from_secs(280)));
        // The first SYN to the OST's host is lost.
        sim.partition(2, 8);
        m.move_target(1, at);
        let mounting = begin_mount(&m, vec![Nid::Tcp(sim.addr(1, 988))], &waits);
        rt.sleep(Duration::from_millis(500)).await;
        sim.heal(2, 8);
        rt.sleep(Duration::from_secs(200)).await;
        assert!(!mounting.is_finished());
        m.world.state.lock().habits.recovery = None;
        mounting.await.unwrap().unwrap().umount().await;
        let reported = std::mem::take(&mut *waits.lock());
        assert!(matches!(&reported[..], [MountWait::Recovery { .. }]), "{reported:?}");
        // A host that does not answer delays no mount for long.
        sim.partition(2, 8);
        let began = rt.now();
        let client = begin_mount(&m, vec![Nid::Tcp(sim.addr(1, 988))], &waits).await.unwrap().unwrap();
        assert!(rt.now().since(began) < Duration::from_secs(3));
        client.umount().await;
        assert!(waits.lock().is_empty());
    };
    sim.run(run).expect("the simulation ends");
}

#[test]
fn mount_waits_for_the_recovery_of_an_ost_that_it_reaches_during_that_of_another() {
    with_tcp(2, 65536, &[0], async |m| {
        let (rt, waits, mgs) = (m.net.rt(), Waits::default(), vec![Nid::Tcp(([10, 0, 0, 1], 988).into())]);
        let later = Duration::from_secs(20);
        m.stop_ost(1);
        m.world.state.lock().habits.recovery = Some((TargetKind::Ost, Duration::from_secs(280)));
        let mounting = begin_mount(&m, mgs, &waits);
        rt.sleep(later).await;
        m.start_ost(1);
        rt.sleep(later).await;
        m.world.state.lock().habits.recovered.insert((TargetKind::Ost, 0));
        rt.sleep(later).await;
        assert!(!mounting.is_finished());
        m.world.state.lock().habits.recovery = None;
        mounting.await.unwrap().unwrap().umount().await;
        let target = |wait: &MountWait| match wait {
            MountWait::Recovery { target, .. } => target.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(waits.lock().iter().map(target).collect::<Vec<_>>(), ["sheen-OST0000", "sheen-OST0001"]);
    });
}

#[test]
fn mount_waits_for_the_recovery_of_the_mdts_data_service() {
    with_tcp(1, 65536, &[0], async |m| {
        let (rt, waits, mgs) = (m.net.rt(), Waits::default(), vec![Nid::Tcp(([10, 0, 0, 1], 988).into())]);
        let longest = Duration::from_secs(280);
        m.add_data_service();
        m.world.state.lock().habits.recovery = Some((TargetKind::Ost, longest));
        m.world.state.lock().habits.recovered.insert((TargetKind::Ost, 0));
        let mounting = begin_mount(&m, mgs.clone(), &waits);
        rt.sleep(Duration::from_secs(200)).await;
        assert!(!mounting.is_finished());
        m.world.state.lock().habits.recovery = None;
        mounting.await.unwrap().unwrap().umount().await;
        let reported = std::mem::take(&mut *waits.lock());
        let [MountWait::Recovery { target, limit }] = &reported[..] else { panic!("{reported:?}") };
        assert!(target == DATA_SERVICE && *limit <= longest, "{reported:?}");
        // One that cannot be reached fails no mount, and is used when it is back.
        m.server.remove(DATA_SERVICE);
        let client = begin_mount(&m, mgs, &waits).await.unwrap().unwrap();
        m.add_data_service();
        assert_eq!(client.syncfs().await, Ok(()));
        client.umount().await;
        assert!(waits.lock().is_empty());
    });
}

#[test]
fn read_waits_for_the_recovery_of_an_ost_that_its_new_mount_reaches_later() {
    with_tcp(1, 65536, &[0], async |m| {
        let (rt, waits, mgs) = (m.net.rt(), Waits::default(), vec![Nid::Tcp(([10, 0, 0, 1], 988).into())]);
        let file = create(&m, "f").await;
        m.client.write(&file, 0, bulk(b"data")).await.unwrap();
        let fid = file.fid();
        m.client.umount().await;
        m.stop_ost(0);
        let client = begin_mount(&m, mgs, &waits).await.unwrap().unwrap();
        m.world.state.lock().habits.recovery = Some((TargetKind::Ost, Duration::from_secs(280)));
        m.start_ost(0);
        let reader = client.clone();
        let reading = rt.spawn("read", async move {
            let file = reader.open(&ROOT, fid, flags::RDONLY).await?;
            reader.read(&file, 0, 100).await.map(|data| data.into_bytes())
        });
        rt.sleep(Duration::from_secs(200)).await;
        assert!(!reading.is_finished());
        m.world.state.lock().habits.recovery = None;
        assert_eq!(reading.await.unwrap().unwrap(), "data");
        client.umount().await;
        assert!(waits.lock().is_empty());
    });
}

#[test]
fn added_ost_is_used_without_remount() {
    with(1, 65536, &[0], async |m| {
        let index = m.grow();
        m.world.state.lock().layout = Some((65536, vec![0, index]));
        // At once, before the client can know the new OST.
        let file = create(&m, "f").await;
        assert_eq!(m.client.write(&file, 65536, bulk(b"there")).await, Ok(5));
        assert_eq!(m.client.read(&file, 65536, 100).await.unwrap().into_bytes(), "there");
        assert_eq!(m.params.get("lov.*.numobd").unwrap()[0].value, "2");
    });
}

#[test]
fn write_to_unknown_ost_fails_with_eio() {
    with(1, 65536, &[7], async |m| {
        let file = create(&m, "f").await;
        assert_eq!(m.client.write(&file, 0, bulk(b"x")).await, Err(Errno::EIO));
    });
}

#[test]
fn inactive_ost_refuses_writes_and_is_left_out_of_statfs() {
    with(2, 65536, &[1], async |m| {
        let file = create(&m, "f").await;
        let before = m.client.statfs().await.unwrap();
        m.params.set("osc.*OST0001*.active", "0").unwrap();
        assert_eq!(m.client.write(&file, 0, bulk(b"x")).await, Err(Errno::EIO));
        assert_eq!(m.client.statfs().await.unwrap().blocks * 2, before.blocks);
        assert_eq!(m.params.get("lov.*.activeobd").unwrap()[0].value, "1");
        let check = m.client.getxattr(&ROOT, root(), &name(control::CHECK)).await.unwrap();
        let check: Vec<ImportInfo> = serde_json::from_slice(&check).unwrap();
        assert_eq!(check[1].state, Err(Errno::ESHUTDOWN));
        m.params.set("osc.*OST0001*.active", "1").unwrap();
        assert_eq!(m.client.write(&file, 0, bulk(b"x")).await, Ok(1));
    });
}

#[test]
fn statfs_has_the_last_inodes_while_the_mdt_does_not_answer() {
    with(2, 65536, &[1], async |m| {
        let before = m.client.statfs().await.unwrap();
        assert!(before.files > 0 && before.blocks > 0);
        m.world.state.lock().habits.late = Some("statfs");
        assert_eq!(m.client.statfs().await, Ok(before));
        m.world.state.lock().habits.late = None;
    });
}

#[test]
fn umount_closes_files_and_removes_parameters() {
    with(2, 65536, &[0, 1], async |m| {
        create(&m, "f").await;
        m.client.opendir(&ROOT, root(), 0).await.unwrap();
        assert_eq!(m.world.state.lock().open.len(), 2);
        assert_eq!(m.params.get("*.*.max_rpcs_in_flight").unwrap().len(), 4);
        let kinds = |m: &Mounted| m.params.devices().into_iter().map(|d| d.kind).collect::<Vec<_>>();
        assert_eq!(kinds(&m), ["mgc", "lov", "lmv", "mdc", "osc", "osc"]);
        m.client.umount().await;
        assert!(m.world.state.lock().open.is_empty());
        assert!(m.params.get("*.*.max_rpcs_in_flight").is_err());
        assert!(m.params.devices().is_empty());
        assert_eq!(m.client.getattr(root(), None).await.unwrap_err(), Errno::ESHUTDOWN);
    });
}

#[test]
fn mdt_restart_keeps_open_files_open() {
    with(1, 65536, &[0], async |m| {
        let file = create(&m, "f").await;
        m.client.write(&file, 0, bulk(b"data")).await.unwrap();
        m.server.remove("sheen-MDT0000");
        {
            let mut state = m.world.state.lock();
            state.incarnation = 2;
            state.open.clear();
        }
        let (server, world, rt) = (m.server.clone(), m.world.clone(), m.net.rt().clone());
        let back = m.net.rt().spawn("restart", async move {
            rt.sleep(Duration::from_secs(3)).await;
            server.add::<Mds>("sheen-MDT0000", Arc::new(FakeMds(world)));
        });
        // The stat waits until the MDT is back.
        m.client.getattr(file.fid(), Some(&file)).await.unwrap();
        back.await.unwrap();
        assert_eq!(m.world.state.lock().open.values().collect::<Vec<_>>(), [&file.fid()]);
        assert_eq!(m.client.read(&file, 0, 10).await.unwrap().into_bytes(), "data");
        assert_eq!(m.client.release(file).await, Ok(()), "by its new handle");
        assert!(m.world.state.lock().open.is_empty());
    });
}

#[test]
fn setattr_through_open_file_continues_after_mdt_restart() {
    with_tcp(1, 65536, &[0], async |m| {
        let file = create(&m, "f").await;
        let chmod = SetAttr { perm: Some(0o4755), ..SetAttr::default() };
        m.client.setattr(&ROOT, file.fid(), chmod, None).await.unwrap();
        m.world.state.lock().delay = Duration::from_secs(1);
        let rt = m.net.rt().clone();
        let changing = rt.spawn("changes", {
            let (client, file) = (m.client.clone(), file.clone());
            async move {
                let cut = SetAttr { size: Some(7), ..SetAttr::default() };
                let stranger = Caller::new(1000, 1000, 42);
                let root = ROOT;
                tokio::join!(client.setattr(&root, file.fid(), cut, Some(&file)), client.kill_priv(&stranger, &file))
            }
        });
        // Both requests are in flight, with the handle that the MDT then forgets.
        rt.sleep(Duration::from_millis(500)).await;
        m.server.remove("sheen-MDT0000");
        {
            let mut state = m.world.state.lock();
            state.incarnation = 2;
            state.open.clear();
        }
        m.server.add::<Mds>("sheen-MDT0000", Arc::new(FakeMds(m.world.clone())));
        let (cut, kill) = changing.await.unwrap();
        assert_eq!((cut.unwrap().attr.size, kill), (7, Ok(())));
        assert_eq!(m.client.getattr(file.fid(), None).await.unwrap().attr.perm, 0o755);
        // An invalid handle still fails.
        m.world.state.lock().open.clear();
        let cut = SetAttr { size: Some(8), ..SetAttr::default() };
        assert_eq!(m.client.setattr(&ROOT, file.fid(), cut, Some(&file)).await.unwrap_err(), Errno::EBADF);
    });
}

#[test]
fn mkdir_completes_when_mdt_returns_at_another_address() {
    let sim = Sim::new(1, SimConfig::default());
    let (serving, rt) = (sim.rt(1), sim.rt(2));
    let run = async {
        let m = Mounted::over_tcp(serving.clone(), rt.clone(), 1, 65536, &[0]).await;
        m.server.remove("sheen-MDT0000");
        m.world.state.lock().incarnation = 2;
        let (elsewhere, at) = (Server::new(Net::new(serving)), sim.addr(1, 989));
        elsewhere.add::<Mds>("sheen-MDT0000", Arc::new(FakeMds(m.world.clone())));
        elsewhere.listen(at).await.unwrap();
        let client = m.client.clone();
        let mkdir = async move { client.mkdir(&ROOT, root(), &name("d"), 0o755, 0).await.map(drop) };
        let making = rt.spawn("mkdir", mkdir);
        rt.sleep(Duration::from_secs(5)).await;
        assert!(!making.is_finished(), "the client does not know the new address");
        {
            let mut state = m.world.state.lock();
            state.config.targets[0].nids = vec![Nid::Tcp(at).to_string()];
            state.config.version += 1;
        }
        m.world.config_changed.notify_waiters();
        let made = rt.timeout(Duration::from_secs(10), making).await.expect("the mount has the new address");
        assert_eq!(made.unwrap(), Ok(()));
    };
    sim.run(run).expect("the simulation ends");
}

#[test]
fn lookup_of_dot_and_dotdot_finds_file_by_fid() {
    with(1, 65536, &[0], async |m| {
        let dir = m.client.mkdir(&ROOT, root(), &name("d"), 0o755, 0).await.unwrap().attr.fid;
        let (entry, file) = m.client.create(&ROOT, dir, &name("f"), RDWR_CREATE, 0o644, 0).await.unwrap();
        let fid = entry.attr.fid;
        m.client.write(&file, 0, bulk(b"four")).await.unwrap();
        let lookup = async |fid, which| m.client.lookup(&ROOT, fid, &name(which)).await.map(|e| e.attr);
        let itself = lookup(fid, ".").await.unwrap();
        assert_eq!((itself.fid, itself.size), (fid, 4));
        assert_eq!(lookup(dir, ".").await.unwrap().fid, dir);
        assert_eq!(lookup(fid, "..").await.unwrap().fid, dir);
        assert_eq!(lookup(dir, "..").await.unwrap().fid, root());
        assert_eq!(lookup(fid, "x").await.err(), Some(Errno::ENOTDIR));
        m.client.unlink(&ROOT, dir, &name("f")).await.unwrap();
        assert_eq!(lookup(fid, ".").await.unwrap().fid, fid);
        assert_eq!(lookup(fid, "..").await.err(), Some(Errno::ESTALE));
    });
}

#[test]
fn supplementary_groups_are_read_only_when_mdt_requires_them() {
    with(1, 65536, &[0], async |m| {
        create(&m, "f").await;
        m.world.asked();
        let who = Caller::new(1000, 1000, 42);
        m.client.lookup(&who, root(), &name("f")).await.unwrap();
        assert_eq!(m.world.asked(), ["mds lookup", "ost0 getattr objects=1"]);
        m.world.state.lock().groups_wanted = Some(vec![7, 8]);
        m.client.lookup(&who, root(), &name("f")).await.unwrap();
        assert_eq!(m.world.asked().len(), 3, "asked again with the groups");
        let stranger = Caller::new(1000, 1000, 43);
        assert_eq!(m.client.lookup(&stranger, root(), &name("f")).await.unwrap_err(), Errno::EACCES);
    });
}

async fn list(m: &Mounted, dir: &OpenDir, max_bytes: u32, plus: bool) -> Vec<DirItem> {
    let (mut all, mut cookie) = (Vec::new(), 0);
    loop {
        let page = m.client.readdir(dir, cookie, max_bytes, plus).await.unwrap();
        cookie = page.entries.last().map_or(cookie, |e| e.cookie);
        all.extend(page.entries);
        if page.eof {
            return all;
        }
    }
}

#[test]
fn readdir_returns_each_entry_once_with_attributes_on_request() {
    with(2, 65536, &[0, 1], async |m| {
        let dir = m.client.mkdir(&ROOT, root(), &name("d"), 0o755, 0).await.unwrap().attr.fid;
        for i in 0..30u64 {
            let made = m.client.create(&ROOT, dir, &name(&format!("f{i:02}")), RDWR_CREATE, 0o644, 0).await;
            let file = made.unwrap().1;
            m.client.write(&file, i * 10_000, bulk(b"x")).await.unwrap();
        }
        m.client.symlink(&ROOT, dir, &name("link"), &name("f00")).await.unwrap();
        let open = m.client.opendir(&ROOT, dir, 0).await.unwrap();
        let names = list(&m, &open, 512, false).await;
        let want = [".", ".."].into_iter().map(String::from).chain((0..30).map(|i| format!("f{i:02}")));
        let want: Vec<String> = want.chain(["link".into()]).collect();
        assert_eq!(names.iter().map(|e| String::from_utf8_lossy(&e.name).into_owned()).collect::<Vec<_>>(), want);
        assert_eq!((names[0].fid, names[1].fid), (dir, root()));
        assert_eq!((names[0].cookie, names[1].cookie), (1, 2));
        assert!(names.iter().all(|e| e.attr.is_none()));

        m.world.asked();
        let page = m.client.readdir(&open, 2, 1 << 20, true).await.unwrap();
        let asked = m.world.asked();
        assert_eq!(asked, ["mds readdir", "ost0 getattr objects=30", "ost1 getattr objects=30"]);
        for (i, item) in page.entries.iter().take(30).enumerate() {
            assert_eq!(item.attr.as_ref().unwrap().attr.size, i as u64 * 10_000 + 1);
        }
        assert_eq!(page.entries[30].attr.as_ref().unwrap().attr.kind, FileKind::Symlink);
        m.params.set("osc.*OST0001*.active", "0").unwrap();
        let page = m.client.readdir(&open, 2, 1 << 20, true).await.unwrap();
        assert_eq!((page.entries.len(), page.entries[0].attr.clone()), (31, None), "names are shown even so");
        m.client.releasedir(open).await.unwrap();
    });
}

#[test]
fn kill_priv_removes_set_user_id_and_sends_no_request_otherwise() {
    with(1, 65536, &[0], async |m| {
        let file = create(&m, "f").await;
        let who = Caller::new(1000, 1000, 42);
        m.world.asked();
        m.client.kill_priv(&who, &file).await.unwrap();
        assert!(m.world.asked().is_empty());
        let chmod = SetAttr { perm: Some(0o6755), ..SetAttr::default() };
        m.client.setattr(&ROOT, file.fid(), chmod, None).await.unwrap();
        m.client.kill_priv(&who, &file).await.unwrap();
        assert_eq!(m.client.getattr(file.fid(), None).await.unwrap().attr.perm, 0o755);
        m.world.asked();
        m.client.kill_priv(&who, &file).await.unwrap();
        assert!(m.world.asked().is_empty());
    });
}

#[test]
fn control_attributes_return_mount_and_target_state() {
    with(2, 65536, &[0], async |m| {
        let file = create(&m, "f").await;
        let ask = async |attr: &str| m.client.getxattr(&ROOT, file.fid(), &name(attr)).await;
        let info: MountInfo = serde_json::from_slice(&ask(control::MOUNT).await.unwrap()).unwrap();
        assert_eq!((&info.fsname[..], &info.instance[..]), ("sheen", m.client.instance()));
        assert_eq!((info.default_stripe_count, info.default_stripe_size), (1, 4 << 20));
        assert_eq!((info.instance.len(), info.client_uuid.len()), (16, 36));
        let df: Vec<TargetInfo> = serde_json::from_slice(&ask(control::DF).await.unwrap()).unwrap();
        let uuids: Vec<_> = df.iter().map(|t| &t.uuid[..]).collect();
        assert_eq!(uuids, ["sheen-MDT0000_UUID", "sheen-OST0000_UUID", "sheen-OST0001_UUID"]);
        assert!(df.iter().all(|t| t.statfs.is_ok()));
        let check: Vec<ImportInfo> = serde_json::from_slice(&ask(control::CHECK).await.unwrap()).unwrap();
        assert_eq!(check[0].name, format!("sheen-OST0000-osc-{}", info.instance));
        assert_eq!(check.last().unwrap().name, "MGC0@lo");
        assert!(check.iter().all(|i| i.state.is_ok()));
        assert_eq!(ask(control::FID).await.unwrap(), file.fid().to_string());
        assert_eq!(ask(control::PARENTS).await.unwrap(), format!("{}/b\0", root()));
        assert_eq!(ask(&format!("sheen.paths.{}", file.fid())).await.unwrap(), "a/b\0");
        assert_eq!(ask("sheen.paths.[0x1:0x2:0x0]").await, Err(Errno::ENOENT));
        assert_eq!(ask("sheen.paths.x").await, Err(Errno::EINVAL));
        let stranger = Caller::new(1000, 1000, 42);
        for secret in [control::PARENTS.to_owned(), format!("sheen.paths.{}", file.fid())] {
            let answer = m.client.getxattr(&stranger, file.fid(), &name(&secret)).await;
            assert_eq!(answer, Err(Errno::EPERM), "paths are for the superuser alone");
        }
        assert_eq!(ask("sheen.nonsense").await, Err(Errno::ENODATA));
        let set = m.client.setxattr(&ROOT, file.fid(), &name("sheen.df"), &name("1"), 0).await;
        assert_eq!(set, Err(Errno::EPERM));
        m.client.setxattr(&ROOT, file.fid(), &name("user.a"), &name("1"), 0).await.unwrap();
        assert_eq!(m.client.listxattr(&ROOT, file.fid()).await.unwrap(), ["user.a"]);
        assert_eq!(ask("lustre.lov").await.unwrap().len(), 32 + 24);
    });
}

#[test]
fn set_param_takes_effect_and_get_param_reports_it() {
    with(2, 65536, &[0, 1], async |m| {
        let file = create(&m, "f").await;
        m.client.write(&file, 0, bulk(&[1; 131072])).await.unwrap();
        m.client.read(&file, 0, 131072).await.unwrap();
        m.client.statfs().await.unwrap();
        let get = |p: &str| m.params.get(p).unwrap()[0].value.clone();
        assert_eq!(get("osc.*OST0000*.max_pages_per_rpc"), "1024");
        m.params.set("osc.*OST0000*.max_pages_per_rpc", "4M").unwrap()[0].result.clone().unwrap();
        assert_eq!(get("osc.*OST0000*.max_pages_per_rpc"), "1024");
        let refused = m.params.set("osc.*.max_rpcs_in_flight", "0").unwrap()[0].result.clone().unwrap_err();
        assert_eq!(refused.errno, Errno::ERANGE);
        assert_eq!(get("osc.*OST0000*.kbytestotal"), "4000");
        assert_eq!(get("llite.*.kbytesavail"), "6400");
        assert!(get("llite.*.stats").contains("write_bytes"));
        let requests = get("osc.*OST0001*.stats");
        for name in ["req_waittime ", "req_active ", "write_bytes ", "ost_write "] {
            assert!(requests.lines().any(|line| line.starts_with(name)), "{name}: {requests}");
        }
        assert!(get("osc.*OST0001*.rpc_stats").lines().any(|l| l.starts_with("16:")));
        assert!(get("mdc.*.md_stats").contains("intent_lock"));
        assert!(get("mdc.*.stats").contains("mds_reint_open"));
        let import = get("osc.*OST0000*.import");
        assert!(import.contains("state: FULL") && import.contains("    write_data_averages:\n"), "{import}");
        assert!(get("osc.*OST0000*.state").ends_with(", FULL ]\n"));
        assert!(get("osc.*OST0000*.timeouts").starts_with("last reply : "));
        assert!(get("mdc.*.connect_flags").contains("\noverstriping\n"));
        m.params.set("llite.*.stats", "clear").unwrap();
        assert!(!get("llite.*.stats").contains("write_bytes"));
    });
}

#[test]
fn lookup_by_fid_works_for_superuser_only() {
    with(1, 65536, &[0], async |m| {
        let file = create(&m, "f").await;
        m.client.write(&file, 0, bulk(b"abc")).await.unwrap();
        let by = async |who: &Caller, dir: Fid, entry: &str| m.client.lookup(who, dir, &name(entry)).await;
        let dot = by(&ROOT, root(), ".lustre").await.unwrap().attr.fid;
        let fids = by(&ROOT, dot, "fid").await.unwrap().attr.fid;
        let found = by(&ROOT, fids, &file.fid().to_string()).await.unwrap().attr;
        assert_eq!((found.fid, found.size), (file.fid(), 3));
        assert_eq!(by(&ROOT, fids, "..").await.unwrap().attr.fid, dot);
        assert_eq!(by(&ROOT, dot, "..").await.unwrap().attr.fid, root());
        assert_eq!(by(&ROOT, fids, "nonsense").await.unwrap_err(), Errno::ENOENT);
        assert_eq!(by(&Caller::new(1, 1, 1), fids, &file.fid().to_string()).await.unwrap_err(), Errno::EACCES);
        assert_eq!(m.client.mkdir(&ROOT, fids, &name("x"), 0o755, 0).await.unwrap_err(), Errno::EPERM);
        assert_eq!(m.client.getattr(dot, None).await.unwrap().attr.kind, FileKind::Dir);
        let dir = m.client.opendir(&ROOT, fids, 0).await.unwrap();
        assert_eq!(list(&m, &dir, 4096, true).await.len(), 2);
        m.client.releasedir(dir).await.unwrap();
    });
}

/// The FUSE face polls operations on one thread, and moves those that wait to other threads.
#[test]
fn operation_futures_can_move_between_threads() {
    fn check(_: impl Future<Output = ()> + Send + 'static) {}
    check(async {
        let m: Arc<Client> = std::future::pending().await;
        let who = Caller::ROOT;
        let (n, root) = (name("f"), m.root());
        let _ = m.lookup(&who, root, &n).await;
        let Ok((attr, file)) = m.create(&who, root, &n, RDWR_CREATE, 0o644, 0).await else { return };
        let _ = m.getattr(attr.attr.fid, Some(&file)).await;
        let _ = m.setattr(&who, root, SetAttr::default(), None).await;
        let _ = m.write(&file, 0, bulk(b"x")).await;
        let _ = m.read(&file, 0, 1).await;
        let _ = m.fsync(&file, true).await;
        let _ = m.syncfs().await;
        let _ = m.statfs().await;
        let _ = m.fallocate(&file, 0, 0, 1).await;
        let _ = m.lseek(&file, 0, sheen_client::Seek::Data).await;
        let _ = m.copy_file_range(&file, 0, &file, 1, 1).await;
        let _ = m.kill_priv(&who, &file).await;
        let _ = m.release(file).await;
        let Ok(dir) = m.opendir(&who, root, 0).await else { return };
        let _ = m.readdir(&dir, 0, 4096, true).await;
        let _ = m.getxattr(&who, root, &n).await;
        m.umount().await;
    });
}

#[test]
fn modifying_requests_leave_a_slot_for_queries() {
    with(1, 65536, &[0], async |m| {
        m.world.state.lock().delay = Duration::from_secs(1);
        let rt = m.net.rt().clone();
        let value = |pattern: &str| m.params.get(pattern).unwrap()[0].value.clone();
        let set = |name: &str, value: &str| {
            let set = m.params.set(&format!("mdc.*.{name}"), value).unwrap().remove(0);
            set.result.map_err(|e| e.errno)
        };
        let limits = || (value("mdc.*.max_rpcs_in_flight"), value("mdc.*.max_mod_rpcs_in_flight"));
        let both = |all: &str, changes: &str| (all.to_owned(), changes.to_owned());
        let in_flight = || value("mdc.*.import").split_once("inflight: ").unwrap().1.lines().next().unwrap().to_owned();
        assert_eq!(limits(), both("8", "7"));
        // Of ten mkdirs, this many are in flight, and a statfs still gets through.
        for (changes, dirs) in [("7", 'a'), ("2", 'b')] {
            set("max_mod_rpcs_in_flight", changes).unwrap();
            let made: Vec<_> = (0..10)
                .map(|i| {
                    let client = m.client.clone();
                    rt.spawn("mkdir", async move {
                        client.mkdir(&ROOT, root(), &name(&format!("{dirs}{i}")), 0o755, 0).await.map(drop)
                    })
                })
                .collect();
            rt.sleep(Duration::from_millis(500)).await;
            assert_eq!(in_flight(), changes);
            let client = m.client.clone();
            let asked = rt.spawn("df", async move { client.statfs().await.map(drop) });
            rt.sleep(Duration::from_millis(100)).await;
            assert_eq!(in_flight(), (changes.parse::<u32>().unwrap() + 1).to_string());
            asked.await.unwrap().unwrap();
            for made in made {
                made.await.unwrap().unwrap();
            }
        }
        // The limit for all requests is always larger, whichever of the two is set.
        set("max_mod_rpcs_in_flight", "20").unwrap();
        assert_eq!(limits(), both("21", "20"));
        set("max_rpcs_in_flight", "5").unwrap();
        assert_eq!(limits(), both("5", "4"));
        set("max_rpcs_in_flight", "32").unwrap();
        assert_eq!(limits(), both("32", "4"));
        for (param, value) in
            [("max_rpcs_in_flight", "1"), ("max_mod_rpcs_in_flight", "0"), ("max_mod_rpcs_in_flight", "256")]
        {
            assert_eq!(set(param, value), Err(Errno::ERANGE), "{param}={value}");
        }
        assert_eq!(limits(), both("32", "4"));
        // Users see one device for the MDT and its data service, so this sets the data service's
        // parameter.
        set("max_dirty_mb", "5").unwrap();
        assert_eq!(value("dom.*.max_dirty_mb"), "5");
    });
}
