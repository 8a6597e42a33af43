//! Clients and servers in the simulator, where connections break at every moment.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::Bytes;
use sheen_lnet::{Connection, Net, Nid};
use sheen_rpc::{Cause, Import, ImportConfig, ImportState, Server};
use sheen_rt::{
    JoinHandle,
    sim::{Sim, SimConfig, SimError, World},
};
use sheen_wire::{Bulk, Errno, Mds, Ost};

use crate::common::*;

const PORT: u16 = 7988;

/// A server on host 1.
pub async fn server(world: &World, echo: &Arc<Echo>) -> Arc<Server> {
    server_on(world, 1, echo).await
}

async fn server_on(world: &World, host: u32, echo: &Arc<Echo>) -> Arc<Server> {
    let server = Server::new(Net::new(world.rt(host)));
    server.add::<Mds>(TARGET, echo.clone());
    server.listen(world.addr(host, PORT)).await.unwrap();
    server
}

pub fn client(world: &World, host: u32) -> Arc<Import<Mds>> {
    let config = ImportConfig::new(&format!("client-{host}"), TARGET, vec![Nid::Tcp(world.addr(1, PORT))]);
    Import::new(Net::new(world.rt(host)), config)
}

/// Starts a task that breaks the connections between host 1 and each of the next `hosts`, again and
/// again.
pub fn break_connections(world: &World, hosts: u64) -> JoinHandle<()> {
    let (rt, world) = (world.rt(9), world.clone());
    rt.clone().spawn("faults", async move {
        loop {
            rt.sleep(Duration::from_micros(rt.random_u64() % 20_000)).await;
            world.reset_connections(1, 2 + (rt.random_u64() % hosts) as u32);
        }
    })
}

/// Three clients call while their connections break. Returns the trace's hash.
fn breaking(seed: u64) -> u64 {
    let sim = Sim::new(seed, SimConfig { loss: 0.01, short_io: 0.2, ..SimConfig::default() });
    let echo = Arc::new(Echo::new(1));
    let got = sim.run(async {
        let _server = server(&sim, &echo).await;
        let imports: Vec<_> = (2..=4).map(|host| (host, client(&sim, host))).collect();
        let calls: Vec<_> = imports
            .iter()
            .flat_map(|import| std::iter::repeat_n(import.clone(), 4))
            .map(|(host, import)| {
                sim.rt(host).spawn("calls", async move {
                    let mut got = vec![];
                    for _ in 0..20 {
                        got.push(seq(&import).await.unwrap());
                    }
                    got
                })
            })
            .collect();
        let faults = break_connections(&sim, 3);
        let mut all = vec![];
        for call in calls {
            all.extend(call.await.unwrap());
        }
        faults.abort();
        (all, imports.iter().map(|(_, i)| i.stats().resent).sum::<u64>())
    });
    let (got, resent) = got.unwrap();
    assert!(resent > 0, "{resent} requests were resent");
    assert_eq!(got.len(), 240);
    assert_eq!(got.into_iter().collect::<BTreeSet<_>>(), (1..=240).collect(), "each executed once, seed {seed}");
    sim.trace_hash()
}

#[test]
fn every_request_is_executed_once_however_often_connections_break() {
    for seed in 0..20 {
        breaking(seed);
    }
}

#[test]
fn same_seed_replays_the_same_rpc_trace() {
    assert_eq!(breaking(7), breaking(7));
    assert_ne!(breaking(7), breaking(8));
}

#[test]
fn drain_ends_after_5_s_if_a_request_is_stuck() {
    let sim = Sim::new(8, SimConfig::default());
    let echo = Arc::new(Echo::gated(1));
    sim.run(async {
        let server = server(&sim, &echo).await;
        let (import, rt) = (client(&sim, 2), sim.rt(2));
        let call = rt.spawn("call", async move { seq(&import).await });
        until(&rt, || echo.executed() == 1).await;
        let began = rt.now();
        server.drain(TARGET).await;
        assert!((5..7).contains(&rt.now().since(began).as_secs()));
        echo.gate.add_permits(1);
        rt.sleep(Duration::from_secs(1)).await;
        assert!(!call.is_finished(), "a request that ended too late is resent to the successor");

        let began = rt.now();
        server.drain(TARGET).await;
        assert!(rt.now().since(began).is_zero(), "a second drain has nothing to wait for");
    })
    .unwrap();
}

#[test]
fn idle_connection_leaves_no_timer() {
    let sim = Sim::new(1, SimConfig::default());
    let echo = Arc::new(Echo::new(1));
    let (server, import) = sim
        .run(async {
            let server = server(&sim, &echo).await;
            let import = client(&sim, 2);
            seq(&import).await.unwrap();
            (server, import)
        })
        .unwrap();
    // If any timer were left, time would pass forever.
    let idle = sim.run(std::future::pending::<()>());
    assert!(matches!(idle, Err(SimError::Deadlock { .. })), "{idle:?}");
    assert_eq!((import.state(), server.connections()), (ImportState::Full, 1));
}

#[test]
fn call_survives_short_partition_and_times_out_in_long_one() {
    let sim = Sim::new(2, SimConfig::default());
    let echo = Arc::new(Echo::new(1));
    sim.run(async {
        let _server = server(&sim, &echo).await;
        let (import, rt) = (client(&sim, 2), sim.rt(2));
        assert_eq!(seq(&import).await, Ok(1));
        let call = || begin_seq(&rt, &import);

        sim.partition(1, 2);
        let waits = call();
        rt.sleep(Duration::from_secs(60)).await;
        assert!(!waits.is_finished());
        sim.heal(1, 2);
        assert_eq!(waits.await.unwrap(), Ok(2));

        sim.partition(1, 2);
        let began = rt.now();
        assert_eq!(call().await.unwrap(), Err(Errno::ETIMEDOUT));
        let took = rt.now().since(began).as_secs();
        assert!((100..200).contains(&took), "{took} s");
        assert_eq!(seq(&import).await, Err(Errno::ETIMEDOUT));
        sim.heal(1, 2);
        let n = seq(&import).await.unwrap();
        assert!(n == 3 || n == 4, "{n}: the request that timed out was executed or not");
    })
    .unwrap();
}

#[test]
fn hard_import_waits_for_its_server_without_a_limit() {
    const DOWN: Duration = Duration::from_secs(3600);
    let sim = Sim::new(3, SimConfig { partition_timeout: Duration::from_secs(10), ..SimConfig::default() });
    let echo = Arc::new(Echo::new(1));
    sim.run(async {
        let rt = sim.rt(2);
        let mut config = import_config("hard", Some(sim.addr(1, PORT)));
        config.params.hard = true;
        let import: Arc<Import<Mds>> = Import::new(Net::new(rt.clone()), config);
        let waits = begin_seq(&rt, &import);
        assert!(import.connect().await.is_err(), "a mount learns that there is no server");
        rt.sleep(DOWN).await;
        assert!(!waits.is_finished() && import.is_disconnected());
        let _server = server(&sim, &echo).await;
        assert_eq!(waits.await.unwrap(), Ok(1));
        assert!(import.connect().await.is_ok());

        sim.partition(1, 2);
        let waits = begin_seq(&rt, &import);
        rt.sleep(DOWN).await;
        assert!(!waits.is_finished());
        sim.heal(1, 2);
        assert_eq!(waits.await.unwrap(), Ok(2));

        sim.partition(1, 2);
        let waits = begin_seq(&rt, &import);
        rt.sleep(DOWN).await;
        import.close().await;
        assert_eq!(waits.await.unwrap(), Err(Errno::ESHUTDOWN));
    })
    .unwrap();
}

/// The pauses grow to half a second, with a random part of at most a quarter.
#[test]
fn client_reconnects_in_short_intervals_however_often_it_fails() {
    let sim = Sim::new(4, SimConfig::default());
    sim.run(async {
        let (rt, address) = (sim.rt(2), sim.addr(1, PORT));
        let mut config = import_config("hard", Some(address));
        config.params.hard = true;
        let import: Arc<Import<Mds>> = Import::new(Net::new(rt.clone()), config);
        let listener = sim.rt(1).listen(address).await.unwrap();
        let waits = begin_seq(&rt, &import);
        let mut attempts = Vec::new();
        // Each connection is closed without an answer.
        for _ in 0..100 {
            drop(listener.accept().await.unwrap());
            attempts.push(rt.now());
        }
        let pauses: Vec<u128> = attempts.windows(2).map(|pair| pair[1].since(pair[0]).as_millis()).collect();
        let expected = [50, 100, 200, 400].into_iter().chain(std::iter::repeat(500));
        for (pause, least) in pauses.iter().zip(expected) {
            // Packets take up to half a millisecond.
            assert!((least - 1..least * 5 / 4 + 5).contains(pause), "{pauses:?}");
        }
        drop(listener);
        let _server = server(&sim, &Arc::new(Echo::new(1))).await;
        assert_eq!(waits.await.unwrap(), Ok(1));
    })
    .unwrap();
}

#[test]
fn evicted_client_recovers_and_its_request_is_executed_once() {
    let sim = Sim::new(5, SimConfig { partition_timeout: Duration::from_secs(10), ..SimConfig::default() });
    let echo = Arc::new(Echo::gated(1));
    sim.run(async {
        let _server = server(&sim, &echo).await;
        let (import, rt) = (client(&sim, 2), sim.rt(2));
        let recovered = Arc::new(std::sync::Mutex::new(vec![]));
        import.on_restart({
            let recovered = recovered.clone();
            move |recovering| {
                let welcome = recovering.welcome();
                recovered.lock().unwrap().push((welcome.known, welcome.incarnation));
                Box::pin(async { Ok(()) })
            }
        });
        let call = begin_seq(&rt, &import);
        until(&rt, || echo.executed() == 1).await;
        sim.partition(1, 2);
        echo.gate.add_permits(1);
        until(&rt, || *echo.ended.lock() == ["client-2"]).await;
        assert!(recovered.lock().unwrap().is_empty());
        sim.heal(1, 2);
        assert_eq!(call.await.unwrap(), Ok(1));
        assert_eq!(echo.executed(), 1);
        assert_eq!(*recovered.lock().unwrap(), [(false, 1)]);
    })
    .unwrap();
}

/// The kernel closes the connections of a process that ends. A client behind a broken network may
/// still run, and has more time.
#[test]
fn killed_client_is_evicted_sooner_than_a_separated_one() {
    let sim = Sim::new(5, SimConfig { partition_timeout: Duration::from_secs(1), ..SimConfig::default() });
    let echo = Arc::new(Echo::new(1));
    sim.run(async {
        let _server = server(&sim, &echo).await;
        let (rt, net) = (sim.rt(1), Net::new(sim.rt(2)));
        let Connection { sender, mut receiver } = net.connect(sim.addr(1, PORT)).await.unwrap();
        sender.post(hello("killed", "mds")).unwrap();
        receiver.recv().await.unwrap();
        let separated = client(&sim, 3);
        assert_eq!(seq(&separated).await, Ok(1));
        let began = rt.now();
        sim.partition(1, 3);
        drop((sender, receiver));
        until(&rt, || *echo.ended.lock() == ["killed"]).await;
        assert!((8..15).contains(&rt.now().since(began).as_secs()), "{:?}", rt.now().since(began));
        until(&rt, || *echo.ended.lock() == ["killed", "client-3"]).await;
        assert!(rt.now().since(began).as_secs() >= 30, "{:?}", rt.now().since(began));
    })
    .unwrap();
}

/// The host of a server stops without a word. Its clients would notice this by keepalive.
#[test]
fn client_reconnects_when_the_mgs_reports_a_new_server() {
    let sim = Sim::new(5, SimConfig { partition_timeout: Duration::from_secs(1000), ..SimConfig::default() });
    sim.run(async {
        let first = Arc::new(Echo::new(1));
        let _first = server(&sim, &first).await;
        let second = Server::new(Net::new(sim.rt(4)));
        second.add::<Mds>(TARGET, Arc::new(Echo::new(2)));
        second.listen(sim.addr(4, PORT)).await.unwrap();
        let rt = sim.rt(2);
        let nids = [1, 4].map(|host| Nid::Tcp(sim.addr(host, PORT))).to_vec();
        let import: Arc<Import<Mds>> = Import::new(Net::new(rt.clone()), ImportConfig::new("c", TARGET, nids));
        assert_eq!(seq(&import).await, Ok(1));
        sim.partition(1, 2);
        rt.sleep(Duration::from_secs(1)).await;
        import.set_incarnation(1);
        assert_eq!(import.state(), ImportState::Full, "it is connected to this one");
        let began = rt.now();
        import.set_incarnation(2);
        assert_eq!(seq(&import).await, Ok(1), "the second server");
        assert!(rt.now().since(began) < Duration::from_secs(10), "{:?}", rt.now().since(began));
        assert_eq!(first.executed(), 1);
        import.set_incarnation(2);
        assert_eq!((seq(&import).await, import.stats().connects), (Ok(2), 2));
    })
    .unwrap();
}

/// Returns a client on host 2 whose server on host 1 has crashed. It recovers at a server of
/// incarnation 2 on host 4. Then that host stops without a word.
async fn recovering_at_silent_server(world: &World) -> Arc<Import<Mds>> {
    let (rt, second) = (world.rt(2), Arc::new(Echo::gated(2)));
    std::mem::forget(server(world, &Arc::new(Echo::new(1))).await); // the crash ends it
    std::mem::forget(server_on(world, 4, &second).await);
    let nids = [1, 4].map(|host| Nid::Tcp(world.addr(host, PORT))).to_vec();
    let import = Import::new(Net::new(rt.clone()), ImportConfig::new("c", TARGET, nids));
    reopen_after_restart(&import);
    assert_eq!(seq(&import).await, Ok(1));
    world.crash_host(1);
    until(&rt, || second.executed() == 1).await;
    assert_eq!(import.state(), ImportState::Recover);
    world.partition(2, 4);
    import
}

/// Asserts that a client recovers soon at a third server, to which `report` directs it.
async fn expect_recovery_at(world: &World, host: u32, import: &Import<Mds>, report: impl FnOnce(&Import<Mds>)) {
    let (rt, third) = (world.rt(2), Arc::new(Echo::new(3)));
    let _third = server_on(world, host, &third).await;
    let began = rt.now();
    report(import);
    assert_eq!(seq(import).await, Ok(2));
    assert!(rt.now().since(began) < Duration::from_secs(2), "{:?}", rt.now().since(began));
    assert_eq!(*third.ops.lock(), ["reopen", "alloc_seq"]);
}

/// Its pings would notice this after 40 s.
#[test]
fn recovery_starts_over_when_the_mgs_reports_a_later_server() {
    let sim = Sim::new(11, SimConfig { partition_timeout: Duration::from_secs(1000), ..SimConfig::default() });
    sim.run(async {
        let import = recovering_at_silent_server(&sim).await;
        expect_recovery_at(&sim, 1, &import, |import| import.set_incarnation(3)).await;
    })
    .unwrap();
}

#[test]
fn recovery_starts_over_when_the_mgs_reports_another_address() {
    let sim = Sim::new(12, SimConfig { partition_timeout: Duration::from_secs(1000), ..SimConfig::default() });
    sim.run(async {
        let import = recovering_at_silent_server(&sim).await;
        let nids = vec![Nid::Tcp(sim.addr(5, PORT))];
        expect_recovery_at(&sim, 5, &import, |import| import.set_nids(nids)).await;
    })
    .unwrap();
}

#[test]
fn late_report_of_an_earlier_server_does_not_end_a_recovery() {
    let sim = Sim::new(13, SimConfig::default());
    let echoes = [Echo::new(1), Echo::new(2), Echo::gated(3)].map(Arc::new);
    sim.run(async {
        let rt = sim.rt(2);
        std::mem::forget(server(&sim, &echoes[0]).await); // a crash ends it
        let import = client(&sim, 2);
        reopen_after_restart(&import);
        assert_eq!(seq(&import).await, Ok(1));
        sim.crash_host(1);
        std::mem::forget(server(&sim, &echoes[1]).await);
        assert_eq!(seq(&import).await, Ok(2));
        sim.crash_host(1);
        let _third = server(&sim, &echoes[2]).await;
        until(&rt, || echoes[2].executed() == 1).await;

        for reported in [1, 2, 3] {
            import.set_incarnation(reported);
            rt.sleep(Duration::from_secs(1)).await;
            assert_eq!((import.state(), echoes[2].executed()), (ImportState::Recover, 1), "{reported}");
        }
        echoes[2].gate.add_permits(2);
        assert_eq!(seq(&import).await, Ok(2));
        assert_eq!((&echoes[2].ops.lock()[..], import.stats().connects), (&["reopen", "alloc_seq"][..], 3));
    })
    .unwrap();
}

/// The server knows the client again from the welcome on, but the client has not yet recovered its
/// lost state.
#[test]
fn restart_hook_cut_short_by_broken_connection_runs_again() {
    let sim = Sim::new(7, SimConfig { partition_timeout: Duration::from_secs(10), ..SimConfig::default() });
    let echo = Arc::new(Echo::new(1));
    sim.run(async {
        let _server = server(&sim, &echo).await;
        let (import, rt) = (client(&sim, 2), sim.rt(2));
        assert_eq!(seq(&import).await, Ok(1));
        let calls = Arc::new(std::sync::Mutex::new(vec![]));
        import.on_restart({
            let (calls, rt) = (calls.clone(), rt.clone());
            move |recovering| {
                let mut calls = calls.lock().unwrap();
                calls.push(recovering.evicted());
                let (first, rt) = (calls.len() == 1, rt.clone());
                Box::pin(async move {
                    rt.sleep(Duration::from_secs(if first { 1000 } else { 0 })).await;
                    Ok(())
                })
            }
        });
        sim.partition(1, 2);
        until(&rt, || *echo.ended.lock() == ["client-2"]).await;
        sim.heal(1, 2);
        until(&rt, || calls.lock().unwrap().len() == 1).await;
        sim.reset_connections(1, 2);
        assert_eq!(seq(&import).await, Ok(2));
        assert_eq!(*calls.lock().unwrap(), [true, true]);
    })
    .unwrap();
}

#[test]
fn guarded_write_fails_after_eviction_and_is_not_resent() {
    let sim = Sim::new(5, SimConfig { partition_timeout: Duration::from_secs(10), ..SimConfig::default() });
    let echo = Arc::new(Echo::new(1));
    sim.run(async {
        let server = Server::new(Net::new(sim.rt(1)));
        server.add::<Ost>(TARGET, echo.clone());
        server.listen(sim.addr(1, PORT)).await.unwrap();
        let (rt, config) = (sim.rt(2), ImportConfig::new("c", TARGET, vec![Nid::Tcp(sim.addr(1, PORT))]));
        let import = Import::<Ost>::new(Net::new(rt.clone()), config);
        import.request(write()).send().await.unwrap();

        sim.partition(1, 2);
        let (bytes, i) = (|byte: u8| Bulk::from(Bytes::from(vec![byte])), import.clone());
        let survivor =
            rt.spawn("call", async move { i.request(write()).bulk(bytes(1)).guarded().send().await.map(|_| ()) });
        let i = import.clone();
        let waited_for = rt.spawn("call", async move { i.request(write()).bulk(bytes(2)).send().await.map(|_| ()) });
        until(&rt, || *echo.ended.lock() == ["c"]).await;
        sim.heal(1, 2);
        let error = survivor.await.unwrap().unwrap_err();
        assert_eq!((error.errno(), error.op(), error.cause()), (Errno::EIO, "write", &Cause::Evicted));
        assert!(error.xid().is_some());
        assert_eq!(waited_for.await.unwrap(), Ok(()), "its program waits for it");
        assert_eq!((echo.executed(), echo.data.lock().clone().into_bytes()), (2, Bytes::from(vec![2])));
    })
    .unwrap();
}

#[test]
fn failed_restart_hook_runs_again() {
    let sim = Sim::new(6, SimConfig::default());
    let echo = Arc::new(Echo::new(1));
    sim.run(async {
        let first = server(&sim, &echo).await;
        let (import, rt) = (client(&sim, 2), sim.rt(2));
        assert_eq!(seq(&import).await, Ok(1));
        let tries = Arc::new(std::sync::atomic::AtomicU64::new(0));
        import.on_restart({
            let tries = tries.clone();
            move |_| {
                let n = tries.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                Box::pin(async move { if n < 3 { Err(Errno::EIO) } else { Ok(()) } })
            }
        });
        first.stop().await;
        drop(first);
        rt.sleep(Duration::from_secs(1)).await;
        let second = Arc::new(Echo::new(2));
        let _server = server(&sim, &second).await;
        assert_eq!(seq(&import).await, Ok(1));
        assert_eq!(tries.load(std::sync::atomic::Ordering::SeqCst), 4);
    })
    .unwrap();
}

#[test]
fn silent_server_is_disconnected_and_slow_server_is_not() {
    let sim = Sim::new(3, SimConfig { partition_timeout: Duration::from_secs(100_000), ..SimConfig::default() });
    let echo = Arc::new(Echo::gated(1));
    sim.run(async {
        let _server = server(&sim, &echo).await;
        let (import, rt) = (client(&sim, 2), sim.rt(2));
        let call = begin_seq(&rt, &import);
        until(&rt, || echo.executed() == 1).await;
        // A slow server is not silent: it answers pings.
        rt.sleep(Duration::from_secs(300)).await;
        assert_eq!((import.state(), import.stats().connects), (ImportState::Full, 1));
        sim.partition(1, 2);
        rt.sleep(Duration::from_secs(45)).await;
        assert_eq!(import.state(), ImportState::Disconn);
        sim.heal(1, 2);
        echo.gate.add_permits(1);
        assert_eq!(call.await.unwrap(), Ok(1));
        assert_eq!(echo.executed(), 1);
    })
    .unwrap();
}

#[test]
fn miss_distinguishes_an_absent_target_from_a_silent_host() {
    let sim = Sim::new(5, SimConfig { partition_timeout: Duration::from_secs(100_000), ..SimConfig::default() });
    let echo = Arc::new(Echo::new(1));
    sim.run(async {
        let rt = sim.rt(2);
        let missed = async |import: &Arc<Import<Mds>>| {
            import.begin_connect();
            import.missed().await;
            import.miss().unwrap().is_absent
        };
        let import = client(&sim, 2);
        assert_eq!(import.miss(), None);
        assert!(missed(&import).await, "the port is closed");
        let server = server(&sim, &echo).await;
        server.remove(TARGET);
        let other = client(&sim, 3);
        assert!(missed(&other).await, "the server has no such target");
        server.add::<Mds>(TARGET, echo.clone());
        import.connect().await.unwrap();
        assert_eq!(import.miss(), None, "of before the connection");
        assert!(rt.timeout(Duration::from_secs(100), import.missed()).await.is_err());
        sim.partition(1, 4);
        assert!(!missed(&client(&sim, 4)).await, "no answer");
    })
    .unwrap();
}

#[test]
fn attempt_to_connect_ends_with_a_connection_or_a_failed_round() {
    let sim = Sim::new(7, SimConfig { partition_timeout: Duration::from_secs(100_000), ..SimConfig::default() });
    let echo = Arc::new(Echo::new(1));
    sim.run(async {
        let rt = sim.rt(2);
        let absent = client(&sim, 2);
        absent.attempt_ended().await;
        assert_eq!((absent.state(), absent.miss()), (ImportState::New, None), "no attempt");
        absent.begin_connect();
        absent.attempt_ended().await;
        assert!(absent.miss().is_some());
        let _server = server(&sim, &echo).await;
        let import = client(&sim, 3);
        import.begin_connect();
        import.attempt_ended().await;
        assert_eq!(import.state(), ImportState::Full);
        sim.partition(1, 4);
        let silent = client(&sim, 4);
        silent.begin_connect();
        assert!(rt.timeout(Duration::from_secs(2), silent.attempt_ended()).await.is_err());
        sim.heal(1, 4);
        silent.attempt_ended().await;
        assert_eq!((silent.state(), silent.miss()), (ImportState::Full, None));
    })
    .unwrap();
}

#[test]
fn client_learns_at_its_connection_how_long_a_recovery_may_take() {
    let sim = Sim::new(6, SimConfig::default());
    let echo = Arc::new(Echo::new(1));
    sim.run(async {
        let _server = server(&sim, &echo).await;
        let (before, rt) = (client(&sim, 2), sim.rt(2));
        before.connect().await.unwrap();
        assert_eq!(before.recovery_left(), None);
        *echo.recovery_left.lock() = Some(Duration::from_millis(89_001));
        let import = client(&sim, 3);
        assert_eq!(import.recovery_left(), None, "it is not connected");
        import.connect().await.unwrap();
        let left = import.recovery_left().unwrap();
        assert!(left > Duration::from_secs(89) && left <= Duration::from_secs(90), "{left:?}");
        rt.sleep(Duration::from_secs(90)).await;
        assert_eq!(import.recovery_left(), None);
    })
    .unwrap();
}

#[test]
fn crashed_server_restart_runs_hook_before_resends() {
    let sim = Sim::new(4, SimConfig::default());
    let first = Arc::new(Echo::gated(1));
    let second = Arc::new(Echo::new(2));
    sim.run(async {
        std::mem::forget(server(&sim, &first).await); // the crash ends it, not a destructor
        let (import, rt) = (client(&sim, 2), sim.rt(2));
        reopen_after_restart(&import);
        let call = begin_seq(&rt, &import);
        until(&rt, || first.executed() == 1).await;
        sim.crash_host(1);
        rt.sleep(Duration::from_secs(5)).await;
        let _server = server(&sim, &second).await;
        assert_eq!(call.await.unwrap(), Ok(2));
        assert_eq!(*second.ops.lock(), ["reopen", "alloc_seq"]);
    })
    .unwrap();
}

#[test]
fn call_goes_to_the_new_address_of_a_target_that_left_a_silent_host() {
    let sim = Sim::new(9, SimConfig { partition_timeout: Duration::from_secs(100_000), ..SimConfig::default() });
    let echo = Arc::new(Echo::new(1));
    sim.run(async {
        let _server = server(&sim, &echo).await;
        let (import, rt) = (client(&sim, 2), sim.rt(2));
        assert_eq!(seq(&import).await, Ok(1));
        sim.partition(1, 2);
        let call = begin_seq(&rt, &import);
        rt.sleep(Duration::from_secs(1)).await;
        let elsewhere = Server::new(Net::new(sim.rt(3)));
        elsewhere.add::<Mds>(TARGET, echo.clone());
        elsewhere.listen(sim.addr(3, PORT)).await.unwrap();
        let began = rt.now();
        import.set_nids(vec![Nid::Tcp(sim.addr(3, PORT))]);
        assert_eq!(call.await.unwrap(), Ok(2));
        assert!(rt.now().since(began) < Duration::from_secs(1));
    })
    .unwrap();
}

#[test]
fn disconnected_resolves_when_a_connection_ends_and_not_before() {
    let sim = Sim::new(10, SimConfig::default());
    let echo = Arc::new(Echo::new(1));
    sim.run(async {
        let _server = server(&sim, &echo).await;
        let (import, rt) = (client(&sim, 2), sim.rt(2));
        let at_once = Duration::from_millis(1);
        assert!(rt.timeout(at_once, import.disconnected()).await.is_ok(), "it was never connected");
        import.connect().await.unwrap();
        assert!(rt.timeout(Duration::from_secs(3600), import.disconnected()).await.is_err());
        let ended = rt.spawn("ended", {
            let i = import.clone();
            async move { i.disconnected().await }
        });
        rt.sleep(at_once).await;
        sim.crash_host(1);
        assert!(rt.timeout(Duration::from_millis(100), ended).await.is_ok());
    })
    .unwrap();
}
