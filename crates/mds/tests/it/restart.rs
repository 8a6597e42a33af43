//! Stops and restarts of an MDT as its clients see them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{FakeOst, Host, config, simulate, until, with_host};
use bytes::Bytes;
use sheen_lnet::{Fault, Net, Nid};
use sheen_mds::{Mdt, MdtConfig};
use sheen_mgc::{MGS_TARGET, Mgc};
use sheen_mgs::Mgs;
use sheen_params::Params;
use sheen_rpc::{Import, ImportConfig, Recovering, Server};
use sheen_rt::Rt;
use sheen_rt::sim::{Sim, SimConfig, World};
use sheen_wire::ldlm::{Cookie, Enqueue, Enqueued, Flags, Flock, FlockKind, Mode, Policy, Resource};
use sheen_wire::mds::{Call, Change, NewNode, Reopened, Replay, Reply, Request, SetAttr, flags};
use sheen_wire::mgs::TargetKind;
use sheen_wire::{Cred, Errno, Fid, Mds, Ost, Result, fid, frame};

const PORT: u16 = 7988;
const MDS: u32 = 1;
/// Host of MGS and OST.
const OTHERS: u32 = 2;
const CLIENT: u32 = 3;
/// Host of a client that cannot reach the MDT for a while.
const SEPARATED: u32 = 4;

fn create(fid: Fid, name: &str) -> Request {
    let (name, flags) = (Bytes::copy_from_slice(name.as_bytes()), flags::CREAT | flags::EXCL | flags::RDWR);
    Request::OpenCreate { cred: Cred::ROOT, parent: fid::ROOT, name, fid, flags, mode: 0o644, umask: 0 }
}

async fn seq(import: &Import<Mds>) -> u64 {
    match import.request(Request::AllocSeq).send().await.unwrap().body.reply {
        Reply::Seq(seq) => seq,
        other => panic!("{other:?}"),
    }
}

async fn opened(import: &Import<Mds>, request: Request) -> Result<bool> {
    match import.request(request).send().await?.body.reply {
        Reply::Opened { created, .. } => Ok(created),
        other => panic!("{other:?}"),
    }
}

/// Makes creates wait: registers an OST that does not run yet.
async fn announce_ost(host: &Host) {
    host.mgc.register("sheen", TargetKind::Ost, Some(0), "ost0", &["0@lo".to_string()], 0).await.unwrap();
    host.rt.sleep(Duration::from_millis(100)).await;
}

#[test]
fn wait_for_registration_ends_when_the_mdt_stops() {
    let sim = Sim::new(1, SimConfig::default());
    let rt = sim.rt(1);
    sim.run(async {
        // Without an MGS.
        let net = Net::new(rt.clone());
        let server = Server::new(net.clone());
        let mdt = Mdt::start(rt.clone(), net, &server, config(), Params::new()).await.unwrap();
        let registering = mdt.clone();
        let waiting = rt.spawn("wait", async move { registering.registered().await });
        rt.sleep(Duration::from_secs(1)).await;
        assert!(!waiting.is_finished());
        mdt.stop().await.unwrap();
        let outcome = rt.timeout(Duration::from_secs(10), waiting).await.unwrap();
        assert_eq!(outcome, Ok(Err(Errno::ESHUTDOWN)));
    })
    .unwrap();
}

#[test]
fn mdt_stop_replies_to_running_create_and_commits_it() {
    with_host(1, config(), async |_, rt, host| {
        announce_ost(&host).await;
        let (import, request) = (host.import.clone(), create(host.new_fid(), "f"));
        let create = rt.spawn("create", async move { opened(&import, request).await });
        rt.sleep(Duration::from_millis(100)).await;
        let mdt = host.mdt.clone();
        let stop = rt.spawn("stop", async move { mdt.stop().await });
        rt.sleep(Duration::from_millis(100)).await;
        assert!(!create.is_finished() && !stop.is_finished());
        host.add_ost_again(0, &Arc::new(FakeOst::default())).await;
        assert_eq!(create.await.unwrap(), Ok(true));
        stop.await.unwrap().unwrap();
        host.mgs.stop();
        assert!(Host::start(&rt, config()).await.exists("f").await, "it got a reply and is lost");
    });
}

#[test]
fn open_of_disconnected_client_is_not_executed() {
    with_host(2, config(), async |_, rt, host| {
        announce_ost(&host).await;
        let import = Import::new(host.net.clone(), ImportConfig::new("short", host.mdt.name(), vec![Nid::Lo]));
        let waiting = create(Fid::new(seq(&import).await, 1), "f");
        let create = rt.spawn("create", {
            let import = import.clone();
            async move { opened(&import, waiting).await }
        });
        rt.sleep(Duration::from_millis(100)).await;
        import.close().await;
        host.add_ost(0).await;
        assert_eq!(create.await.unwrap(), Err(Errno::ESHUTDOWN));
        assert!(!host.exists("f").await);
    });
}

/// Starts an MGS and an OST that run for the whole test.
async fn others(world: &World, rt: &Rt) -> (Arc<Mgs>, Arc<Server>) {
    let net = Net::new(rt.clone());
    let server = Server::new(net.clone());
    let mgs = Mgs::start(rt.clone(), Path::new("/mgs"), Params::new()).await.unwrap();
    server.add::<sheen_wire::Mgs>(MGS_TARGET, mgs.clone());
    server.add::<Ost>("sheen-OST0000", Arc::new(FakeOst::default()));
    server.listen(world.addr(OTHERS, PORT)).await.unwrap();
    let nids = [Nid::Tcp(world.addr(OTHERS, PORT)).to_string()];
    Mgc::new(net, vec![Nid::Lo], "ost").register("sheen", TargetKind::Ost, Some(0), "ost", &nids, 0).await.unwrap();
    (mgs, server)
}

async fn start_mdt(world: &World) -> (Arc<Mdt>, Arc<Server>) {
    start_mdt_on(world, Net::new(world.rt(MDS))).await
}

async fn start_mdt_on(world: &World, net: Arc<Net>) -> (Arc<Mdt>, Arc<Server>) {
    let rt = world.rt(MDS);
    let server = Server::new(net.clone());
    server.listen(world.addr(MDS, PORT)).await.unwrap();
    let nid = |host| Nid::Tcp(world.addr(host, PORT));
    let config = MdtConfig::new("/mdt", "sheen", 0, vec![nid(OTHERS)], vec![nid(MDS).to_string()]);
    (Mdt::start(rt, net, &server, config, Params::new()).await.unwrap(), server)
}

/// Connects a client on a third host, which has nothing to replay after a restart.
fn client(world: &World, name: &str, mdt: &Mdt) -> Arc<Import<Mds>> {
    client_on(world, CLIENT, name, mdt)
}

/// As [`client`], on this host.
fn client_on(world: &World, host: u32, name: &str, mdt: &Mdt) -> Arc<Import<Mds>> {
    let nid = Nid::Tcp(world.addr(MDS, PORT));
    let import = Import::new(Net::new(world.rt(host)), ImportConfig::new(name, mdt.name(), vec![nid]));
    import.on_restart(|mdt| Box::pin(async move { recover(&mdt, Vec::new()).await.map(drop) }));
    import
}

/// Recovers with these open files. Returns the outcome of each.
async fn recover(mdt: &Recovering<Mds>, files: Vec<(Fid, u32, u64)>) -> Result<Vec<Result<u64>>> {
    // ESTALE: the client has changed nothing before.
    let _ = mdt.call(Request::Replay { replays: Vec::new(), first: true, last: true }).await;
    let files = files.into_iter().map(|(fid, flags, handle)| Reopened::new(fid, flags, handle)).collect();
    let Reply::Handles(handles) = mdt.call(Request::Reopen { files, first: false, last: false }).await?.body.reply
    else {
        panic!()
    };
    mdt.call(Request::Recovered).await?;
    Ok(handles)
}

/// Runs a test with an MDT that a test can crash while MGS and OST run on another host. The test
/// gets the runtime of its client's host, the MDT and its server, and the client.
fn with_separate_mdt(seed: u64, test: impl AsyncFnOnce(&Sim, Rt, (Arc<Mdt>, Arc<Server>), Arc<Import<Mds>>)) {
    simulate(seed, async |sim, _| {
        let _others = others(sim, &sim.rt(OTHERS)).await;
        let life = start_mdt(sim).await;
        let import = client(sim, "client", &life.0);
        test(sim, sim.rt(CLIENT), life, import).await;
    });
}

#[test]
fn crashed_mdt_restarted_at_once_accepts_creates_at_once() {
    with_separate_mdt(3, async |sim, rt, life, import| {
        let seq = seq(&import).await;
        // Long enough for many requests to MGS and OST.
        for i in 0..20 {
            opened(&import, create(Fid::new(seq, 1 + i), &format!("before{i}"))).await.unwrap();
            rt.sleep(Duration::from_secs(1)).await;
        }
        std::mem::forget(life); // the crash ends it, not a destructor
        sim.crash_host(MDS);
        let _life = start_mdt(sim).await;
        let began = rt.now();
        assert_eq!(opened(&import, create(Fid::new(seq, 100), "after")).await, Ok(true));
        let took = rt.now().since(began);
        assert!(took < Duration::from_secs(2), "{took:?}");
    });
}

#[test]
fn resent_create_finds_file_committed_before_crash() {
    with_separate_mdt(4, async |sim, _, life, import| {
        let request = create(Fid::new(seq(&import).await, 1), "f");
        assert_eq!(opened(&import, request.clone()).await, Ok(true));
        import.request(Request::Sync { fid: None }).send().await.unwrap();
        std::mem::forget(life);
        sim.crash_host(MDS);
        let _life = start_mdt(sim).await;
        // As if the reply had been lost with the MDT.
        assert_eq!(opened(&import, request).await, Ok(true));
        let other = create(Fid::new(seq(&import).await, 2), "f");
        assert_eq!(opened(&import, other).await, Err(Errno::EEXIST), "another create finds the file of the first");
    });
}

#[test]
fn unlink_whose_reply_was_lost_with_the_mdt_succeeds() {
    simulate(7, async |sim, _| {
        let _others = others(sim, &sim.rt(OTHERS)).await;
        let (rt, net) = (sim.rt(CLIENT), Net::new(sim.rt(MDS)));
        let life = start_mdt_on(sim, net.clone()).await;
        let import = client(sim, "client", &life.0);
        opened(&import, create(Fid::new(seq(&import).await, 1), "f")).await.unwrap();
        // The MDT commits the change long before the reply leaves.
        net.set_fault(Fault { delay: Duration::from_secs(60), ..Fault::default() });
        let unlink = || Request::Unlink { cred: Cred::ROOT, parent: fid::ROOT, name: "f".into(), dir: false };
        let waiting = {
            let (import, unlink) = (import.clone(), unlink());
            rt.spawn("unlink", async move { import.request(unlink).send().await.map(drop) })
        };
        rt.sleep(Duration::from_secs(20)).await;
        assert!(!waiting.is_finished());
        std::mem::forget((life, net));
        sim.crash_host(MDS);
        let _life = start_mdt(sim).await;
        waiting.await.unwrap().expect("executed once, by the first MDT");
        let missing = import.request(unlink()).send().await.map(drop);
        assert_eq!(missing.map_err(Errno::from), Err(Errno::ENOENT), "another unlink");
    });
}

#[test]
fn resent_create_does_not_create_a_file_again_that_was_removed() {
    simulate(8, async |sim, _| {
        let _others = others(sim, &sim.rt(OTHERS)).await;
        let (rt, net) = (sim.rt(CLIENT), Net::new(sim.rt(MDS)));
        let life = start_mdt_on(sim, net.clone()).await;
        let [one, other] = ["one", "other"].map(|name| client(sim, name, &life.0));
        let seq = seq(&one).await;
        // With a first create, the MDT reserves objects.
        opened(&one, create(Fid::new(seq, 1), "first")).await.unwrap();
        other.connect().await.unwrap();
        // The MDT commits both changes long before the replies leave.
        net.set_fault(Fault { delay: Duration::from_secs(60), ..Fault::default() });
        let creating = {
            let (one, create) = (one.clone(), create(Fid::new(seq, 2), "f"));
            rt.spawn("create", async move { opened(&one, create).await })
        };
        rt.sleep(Duration::from_secs(1)).await;
        let removing = {
            let unlink = Request::Unlink { cred: Cred::ROOT, parent: fid::ROOT, name: "f".into(), dir: false };
            rt.spawn("unlink", async move { other.request(unlink).send().await.map(drop) })
        };
        rt.sleep(Duration::from_secs(10)).await;
        assert!(!creating.is_finished() && !removing.is_finished());
        std::mem::forget((life, net));
        sim.crash_host(MDS);
        let _life = start_mdt(sim).await;
        removing.await.unwrap().expect("executed once, by the first MDT");
        assert_eq!(creating.await.unwrap(), Ok(true), "its own file, which has no name any more");
        let lookup = Request::Lookup { cred: Cred::ROOT, parent: fid::ROOT, name: "f".into() };
        assert_eq!(one.request(lookup).send().await.map(drop).map_err(Errno::from), Err(Errno::ENOENT));
    });
}

#[test]
fn orphan_survives_for_client_that_reconnects_late() {
    with_separate_mdt(5, async |sim, rt, life, import| {
        let seq = seq(&import).await;
        let files = [Fid::new(seq, 1), Fid::new(seq, 2)];
        for (fid, name) in files.into_iter().zip(["late", "never"]) {
            opened(&import, create(fid, name)).await.unwrap();
            let name = Bytes::copy_from_slice(name.as_bytes());
            let unlink = Request::Unlink { cred: Cred::ROOT, parent: fid::ROOT, name, dir: false };
            import.request(unlink).send().await.unwrap();
        }
        import.request(Request::Sync { fid: None }).send().await.unwrap();
        let waits = rt.clone();
        import.on_restart(move |mdt| {
            let (rt, open) = (waits.clone(), vec![(files[0], flags::RDWR, 1)]);
            Box::pin(async move {
                // Longer than TCP keepalive takes.
                rt.sleep(Duration::from_secs(75)).await;
                let handles = recover(&mdt, open).await?;
                assert!(handles[0].is_ok(), "{handles:?}");
                Ok(())
            })
        });
        std::mem::forget(life);
        sim.crash_host(MDS);
        let _life = start_mdt(sim).await;
        let there = async |fid| import.request(Request::GetAttr { fid, layout_known: true }).send().await.is_ok();
        assert!(there(files[0]).await && !there(files[1]).await);
    });
}

#[test]
fn flocks_are_lost_in_mdt_restart_unless_clients_take_them_again() {
    with_separate_mdt(6, async |sim, _, life, import| {
        let a = import;
        let b = client(sim, "b", &life.0);
        let flock = Flock { start: 0, end: 9, owner: 1, pid: 1, kind: FlockKind::Posix };
        let resource = Resource::flock(fid::ROOT);
        let want = Enqueue::new(resource, Mode::Pw, Policy::Flock(flock), Cookie(1));
        let enqueue = async |import: &Import<Mds>| {
            let nowait = Flags { nowait: true, ..Flags::default() };
            let request = Request::Enqueue(Enqueue { flags: nowait, ..want });
            match import.request(request).send().await.unwrap().body.reply {
                Reply::Enqueued(answer) => answer,
                other => panic!("{other:?}"),
            }
        };
        let Enqueued::Granted { id, .. } = enqueue(&a).await else { panic!() };
        assert!(matches!(enqueue(&b).await, Enqueued::WouldBlock { .. }));
        std::mem::forget(life);
        sim.crash_host(MDS);
        let _life = start_mdt(sim).await;
        assert!(matches!(enqueue(&b).await, Enqueued::Granted { .. }));
        // Lock handles of the earlier life are unknown in this one.
        let cancel = Call { cancels: vec![id], ..Request::Cancel.into() };
        a.request(cancel).urgent().send().await.unwrap();
        assert!(matches!(enqueue(&a).await, Enqueued::WouldBlock { .. }));
        // Not in recovery.
        let relock = a.request(Request::Relock { locks: vec![want] }).send().await.map(drop);
        assert_eq!(relock.map_err(Errno::from), Err(Errno::ESTALE));
    });
}

#[test]
fn program_that_runs_during_a_clean_restart_remains_protected() {
    with_separate_mdt(9, async |sim, rt, (mdt, server), import| {
        let f = Fid::new(seq(&import).await, 1);
        opened(&import, create(f, "program")).await.unwrap();
        let set = SetAttr { perm: Some(0o755), ..SetAttr::default() };
        import.request(Request::SetAttr { cred: Cred::ROOT, fid: f, set, handle: None }).send().await.unwrap();
        opened(&import, Request::Open { cred: Cred::ROOT, fid: f, flags: flags::EXEC }).await.unwrap();
        let waits = rt.clone();
        import.on_restart(move |mdt| {
            let rt = waits.clone();
            Box::pin(async move {
                rt.sleep(Duration::from_secs(5)).await;
                let handles = recover(&mdt, vec![(f, flags::EXEC, 1)]).await?;
                assert!(handles[0].is_ok(), "{handles:?}");
                Ok(())
            })
        });
        let other = client(sim, "other", &mdt);
        mdt.stop().await.unwrap();
        server.stop().await;
        drop((mdt, server));
        let _life = start_mdt(sim).await;
        let write = Request::Open { cred: Cred::ROOT, fid: f, flags: flags::WRONLY };
        assert_eq!(opened(&other, write).await, Err(Errno::ETXTBSY));
    });
}

/// Makes a directory in the root. Returns the change as its client replays it.
async fn mkdir(import: &Import<Mds>, fid: Fid, name: &'static str) -> Replay {
    let (cred, parent, node) = (Cred::ROOT, fid::ROOT, NewNode::Dir);
    let request = Request::Create { cred, parent, name: name.into(), fid, node, mode: 0o755, umask: 0 };
    let call = frame::to_body(&Call::from(request.clone())).unwrap().into();
    let response = import.request(request).send().await.unwrap();
    let Change { time, layout, proof } = response.body.change.unwrap();
    Replay { transno: response.transno, call, time, layout, named: Vec::new(), proof }
}

/// Lets a client replay this change after restarts that have lost it.
fn replay_after_restart(import: &Import<Mds>, change: Replay) {
    import.on_restart(move |mdt| {
        let mut replays = vec![change.clone()];
        Box::pin(async move {
            replays.retain(|replay| replay.transno > mdt.welcome().last_committed);
            match mdt.call(Request::Replay { replays, first: true, last: true }).await?.body.reply {
                Reply::Replayed(outcomes) => assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}"),
                other => panic!("{other:?}"),
            }
            mdt.call(Request::Recovered).await?;
            Ok(())
        })
    });
}

/// A client has replayed its changes, and waits for another one that is not back yet.
#[test]
fn mdt_stops_at_once_in_recovery_and_its_next_start_waits_for_the_same_clients() {
    simulate(10, async |sim, _| {
        let _others = others(sim, &sim.rt(OTHERS)).await;
        let life = start_mdt(sim).await;
        let rt = sim.rt(CLIENT);
        let clients = [client(sim, "here", &life.0), client_on(sim, SEPARATED, "separated", &life.0)];
        let seqs = [seq(&clients[0]).await, seq(&clients[1]).await];
        replay_after_restart(&clients[0], mkdir(&clients[0], Fid::new(seqs[0], 1), "a").await);
        replay_after_restart(&clients[1], mkdir(&clients[1], Fid::new(seqs[1], 1), "b").await);
        std::mem::forget(life);
        sim.crash_host(MDS);
        sim.partition(MDS, SEPARATED);
        let (mdt, server) = start_mdt(sim).await;
        until(&rt, || mdt.recovery_counts().queued == 1).await;
        let began = rt.now();
        mdt.stop().await.unwrap();
        let took = rt.now().since(began);
        assert!(took < Duration::from_secs(1), "{took:?}");
        server.stop().await;
        drop((mdt, server));
        sim.heal(MDS, SEPARATED);

        let (mdt, _server) = start_mdt(sim).await;
        assert_eq!(mdt.recovery_counts().clients, clients.len());
        for name in ["a", "b"] {
            let lookup = Request::Lookup { cred: Cred::ROOT, parent: fid::ROOT, name: name.into() };
            clients[0].request(lookup).send().await.unwrap();
        }
        let counts = mdt.recovery_counts();
        assert_eq!((counts.completed, counts.dropped, counts.replayed), (2, 0, 2));
    });
}
