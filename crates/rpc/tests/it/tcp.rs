//! Calls over tcp: in the simulator, and over real sockets where these matter.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc, time::Duration};

use parking_lot::Mutex;
use sheen_lnet::{Connection, Fault, Frame, Net, Nid};
use sheen_rpc::{Cause, ConnectError, Import, ImportConfig, ImportState, Server, ServerConfig};
use sheen_rt::{Instant, JoinHandle, Rt};
use sheen_wire::{
    Bulk, Errno, Mds, Ost,
    frame::{self, Hello, Kind},
    mds,
};
use tokio::sync::Semaphore;

use crate::common::*;

const LOOPBACK: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

#[test]
fn bulk_of_all_sizes_comes_back_whole() {
    real(async |rt| {
        let server = Server::with_config(Net::new(rt.clone()), patient_config());
        server.add::<Ost>(TARGET, Arc::new(Echo { inline: false, ..Echo::new(1) }));
        let addr = server.listen(LOOPBACK.into()).await.unwrap();
        let import = Import::<Ost>::new(Net::new(rt), patient_import_config("c", Some(addr)));
        for checksums in [true, false] {
            import.set_checksums(checksums);
            for len in [0, 1, 4095, 65_537, 1 << 20, (3 << 20) + 7, 16 << 20] {
                // In many pieces, as a client sends it.
                let whole = data(len, 9).into_bytes();
                let sent: Bulk = whole.chunks(len / 40 + 1).map(|c| whole.slice_ref(c)).collect();
                import.request(write()).bulk(sent).send().await.unwrap();
                let got = import.request(read()).send().await.unwrap();
                assert!(got.bulk.segments().iter().all(|s| (s.as_ptr() as usize).is_multiple_of(4096)), "page-aligned");
                assert!(got.bulk.into_bytes() == whole, "{len} bytes");
            }
        }
        assert_eq!(import.current_nid(), Some(Nid::Tcp(addr)));
        let error = import.request(write()).bulk(data((16 << 20) + 1, 0)).send().await.unwrap_err();
        assert_eq!((error.errno(), error.xid(), error.cause()), (Errno::EINVAL, None, &Cause::Limits));
    });
}

/// Another process may get the port of a target, and names of file systems repeat.
#[test]
fn connect_refuses_target_with_another_uuid() {
    run(async |rt| {
        let (own, other) =
            (Arc::new(Echo { uuid: "own", ..Echo::new(1) }), Arc::new(Echo { uuid: "other", ..Echo::new(2) }));
        let (_other_net, _other_server, there) = serve(&rt, &other, config(5000), 0).await;
        let (_net, _server, here) = serve(&rt, &own, config(5000), 0).await;
        let to = |nids| {
            Import::<Mds>::new(Net::new(rt.clone()), ImportConfig { nids, ..import_config("c", None).of("own") })
        };
        let lost = to(vec![Nid::Tcp(there)]);
        assert!(matches!(lost.connect().await, Err(ConnectError::Unreachable { .. })));
        let found = to(vec![Nid::Tcp(there), Nid::Tcp(here)]);
        found.connect().await.unwrap();
        assert_eq!(found.current_nid(), Some(Nid::Tcp(here)));
    });
}

/// Returns the maximum number of requests in flight.
async fn many_calls(rt: Rt) -> usize {
    let echo = Arc::new(Echo::new(1));
    let (_net, _server, addr) = serve(&rt, &echo, patient_config(), 0).await;
    let import = Import::<Mds>::new(Net::new(rt.clone()), patient_import_config("client", Some(addr)));
    let calls: Vec<_> = (0..64)
        .map(|_| {
            let i = import.clone();
            rt.spawn("calls", async move {
                let mut got = vec![];
                for _ in 0..20 {
                    got.push(seq(&i).await.unwrap());
                }
                got
            })
        })
        .collect();
    let mut all = BTreeSet::new();
    for call in calls {
        let got = call.await.unwrap();
        assert!(got.is_sorted());
        all.extend(got);
    }
    assert_eq!(all, (1..=1280).collect());
    let stats = import.stats();
    assert_eq!((stats.connects, stats.resent), (1, 0));
    assert!(stats.round_trip > Duration::ZERO);
    stats.in_flight_max
}

#[test]
fn many_concurrent_calls_each_get_their_own_answer() {
    run(async |rt| assert_eq!(many_calls(rt).await, 8));
    // Slow threads may make no concurrent calls.
    real(async |rt| assert!(many_calls(rt).await <= 8));
}

#[test]
fn lost_reply_is_sent_again_without_second_execution() {
    run(async |rt| {
        let echo = Arc::new(Echo::gated(1));
        let (net, _server, addr) = serve(&rt, &echo, config(5000), 0).await;
        let import = import(Net::new(rt.clone()), addr);
        let call = begin_seq(&rt, &import);
        until(&rt, || echo.executed() == 1).await;
        net.set_fault(Fault { drop_probability: 1.0, ..Fault::default() });
        echo.gate.add_permits(1);
        until(&rt, || import.state() != ImportState::Full).await;
        net.set_fault(Fault::default());
        assert_eq!(call.await.unwrap(), Ok(1));
        assert_eq!(echo.executed(), 1);
        let stats = import.stats();
        assert_eq!(stats.resent, 1);
        assert!(echo.ended.lock().is_empty());
    });
}

#[test]
fn resend_waits_for_the_running_execution() {
    run(async |rt| {
        let echo = Arc::new(Echo::gated(1));
        let (_net, _server, addr) = serve(&rt, &echo, config(5000), 0).await;
        let import = import(Net::new(rt.clone()), addr);
        // A request whose reply is stored, and one that may be executed again.
        let once = begin_seq(&rt, &import);
        until(&rt, || echo.executed() == 1).await;
        let again = mds::Request::Sync { fid: None };
        let again = rt.spawn("again", {
            let i = import.clone();
            async move { i.request(again).send().await }
        });
        until(&rt, || echo.executed() == 2).await;
        // Another connection of the same client replaces the first one, which breaks. (It does not
        // reconnect, as an import's connection would.)
        let Connection { sender, mut receiver } = Net::new(rt.clone()).connect(addr).await.unwrap();
        let (client, protocol, target) = ("client".into(), "mds".into(), TARGET.into());
        let hello = Hello { client, protocol, target, target_uuid: String::new(), features: 0, reconnect: false };
        let body = frame::to_body(&hello).unwrap().into();
        sender.post(Frame { body, ..Frame::new(Kind::Hello, 0) }).unwrap();
        assert_eq!(receiver.recv().await.unwrap().header.kind, Kind::Welcome);
        until(&rt, || import.stats().resent >= 2).await;
        // They are sent. The server must get them before the first executions end.
        rt.sleep(Duration::from_millis(300)).await;
        echo.gate.add_permits(2);
        assert_eq!(once.await.unwrap(), Ok(1));
        again.await.unwrap().unwrap();
        assert_eq!(echo.executed(), 2);
    });
}

/// The server's process is halted during a request, for longer than its lease.
#[test]
fn server_without_a_lease_sends_no_reply_and_accepts_no_request() {
    real(async |rt| {
        let echo = Arc::new(Echo::gated(1));
        let (_net, _server, addr) = serve(&rt, &echo, patient_config(), 0).await;
        let import = Import::<Mds>::new(Net::new(rt.clone()), patient_import_config("client", Some(addr)));
        let call = begin_seq(&rt, &import);
        until(&rt, || echo.executed() == 1).await;
        rt.lease_until(Instant::from_nanos(1), || {});
        echo.gate.add_permits(1);
        // Each connection ends without a reply.
        until(&rt, || import.stats().resent >= 2).await;
        assert!(!call.is_finished());
        rt.lease_until(Instant::FAR, || {});
        assert_eq!(call.await.unwrap(), Ok(1));
        assert_eq!(echo.executed(), 1);
    });
}

#[test]
fn stopped_server_restart_runs_hook_before_resends() {
    run(async |rt| {
        let first = Arc::new(Echo::gated(1));
        let (_net, server, addr) = serve(&rt, &first, config(5000), 0).await;
        let import = import(Net::new(rt.clone()), addr);
        reopen_after_restart(&import);
        let call = begin_seq(&rt, &import);
        until(&rt, || first.executed() == 1).await;
        server.stop().await;
        let second = Arc::new(Echo::new(2));
        let (_net, server, _) = serve(&rt, &second, config(5000), addr.port()).await;
        assert_eq!(call.await.unwrap(), Ok(2));
        assert_eq!(*second.ops.lock(), ["reopen", "alloc_seq"]);
        assert_eq!(server.connections(), 1);
        assert!(first.ended.lock().is_empty());
    });
}

#[test]
fn tcp_target_drain_replies_to_running_requests() {
    run(async |rt| {
        let first = Arc::new(Echo::gated(1));
        let (_net, server, addr) = serve(&rt, &first, config(5000), 0).await;
        let import = import(Net::new(rt.clone()), addr);
        let running = begin_seq(&rt, &import);
        until(&rt, || first.executed() == 1).await;
        let going = rt.spawn("drain", {
            let server = server.clone();
            async move { server.drain(TARGET).await }
        });
        rt.sleep(Duration::from_millis(20)).await;
        let late = begin_seq(&rt, &import);
        rt.sleep(Duration::from_millis(20)).await;
        assert!(!going.is_finished() && !running.is_finished());
        assert_eq!(first.executed(), 1, "no further request starts");
        first.gate.add_permits(1);
        going.await.unwrap();
        assert_eq!(running.await.unwrap(), Ok(1), "the reply was not lost");
        server.stop().await;
        let second = Arc::new(Echo::new(2));
        let _second = serve(&rt, &second, config(5000), addr.port()).await;
        assert_eq!(late.await.unwrap(), Ok(1), "by the successor");
        assert_eq!((first.executed(), second.executed()), (1, 1), "each executed once");
    });
}

#[test]
fn closing_tcp_import_disconnects_and_fails_waiting_calls() {
    run(async |rt| {
        let echo = Arc::new(Echo::gated(1));
        let (_net, server, addr) = serve(&rt, &echo, config(60_000), 0).await;
        let import = import(Net::new(rt.clone()), addr);
        expect_close_ends_calls(&rt, &import, &echo).await;
        until(&rt, || server.connections() == 0).await;
        assert_eq!(*echo.ended.lock(), ["client"]);
        until(&rt, || echo.running.load(std::sync::atomic::Ordering::SeqCst) == 0).await;
    });
}

#[test]
fn dropping_an_import_disconnects_the_client() {
    run(async |rt| {
        let echo = Arc::new(Echo::new(1));
        let (_net, server, addr) = serve(&rt, &echo, config(60_000), 0).await;
        let import = import(Net::new(rt.clone()), addr);
        seq(&import).await.unwrap();
        drop(import);
        until(&rt, || !echo.ended.lock().is_empty() && server.connections() == 0).await;
    });
}

#[test]
fn connect_error_names_address_target_and_cause() {
    run(async |rt| {
        let net = Net::new(rt.clone());
        let free = net.listen(LOOPBACK.into()).await.unwrap().local_addr();
        let nobody = Import::<Mds>::new(Net::new(rt.clone()), import_config("c", Some(free)));
        let error = nobody.connect().await.unwrap_err();
        assert!(matches!(error, ConnectError::Unreachable { .. }));
        let said = error.to_string();
        assert!(said.contains("refused") && said.contains(&format!("{free}@tcp")), "{said}");
        assert_eq!(seq(&nobody).await, Err(Errno::ENOTCONN));

        let echo = Arc::new(Echo::new(1));
        let (_net, _server, addr) = serve(&rt, &echo, config(1000), 0).await;
        let mut config = import_config("c", Some(addr));
        config.target = "sheen-MDT0009".into();
        let said = Import::<Mds>::new(Net::new(rt.clone()), config).connect().await.unwrap_err().to_string();
        assert!(said.contains("no target sheen-MDT0009"), "{said}");
        let other = Import::<Ost>::new(Net::new(rt.clone()), import_config("c", Some(addr)));
        let said = other.connect().await.unwrap_err().to_string();
        assert!(said.contains("Protocol error"), "{said}");
    });
}

#[test]
fn connect_tries_the_second_nid() {
    run(async |rt| {
        let net = Net::new(rt.clone());
        let free = net.listen(LOOPBACK.into()).await.unwrap().local_addr();
        let echo = Arc::new(Echo::new(1));
        let (_net, _server, addr) = serve(&rt, &echo, config(1000), 0).await;
        let mut config = import_config("c", Some(free));
        config.nids.push(Nid::Tcp(addr));
        let import = Import::<Mds>::new(Net::new(rt.clone()), config);
        assert_eq!(seq(&import).await, Ok(1));
        assert_eq!(import.current_nid(), Some(Nid::Tcp(addr)));
    });
}

#[test]
fn call_to_own_address_goes_over_lo() {
    run(async |rt| {
        let echo = Arc::new(Echo::new(1));
        let (net, server, addr) = serve(&rt, &echo, config(1000), 0).await;
        let import = Import::<Mds>::new(net, import_config("c", Some(addr)));
        assert_eq!(seq(&import).await, Ok(1));
        assert_eq!((import.current_nid(), server.connections()), (Some(Nid::Lo), 0));
    });
}

#[test]
fn a_connection_executes_no_more_than_its_limit() {
    run(async |rt| {
        let echo = Arc::new(Echo::gated(1));
        let limit = ServerConfig { requests_in_flight_max: 4, ..config(1000) };
        let (_net, _server, addr) = serve(&rt, &echo, limit, 0).await;
        let import = import(Net::new(rt.clone()), addr);
        import.set_max_rpcs_in_flight(32).unwrap();
        let calls: Vec<_> = (0..32).map(|_| begin_seq(&rt, &import)).collect();
        until(&rt, || echo.executed() == 4).await;
        rt.sleep(Duration::from_millis(50)).await;
        assert_eq!(echo.executed(), 4);
        echo.gate.add_permits(32);
        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert_eq!(echo.running_max.load(std::sync::atomic::Ordering::SeqCst), 4);
    });
}

/// Sends reads of the server's data, all at once.
fn reads(rt: &Rt, import: &Arc<Import<Ost>>, count: usize) -> Vec<JoinHandle<usize>> {
    import.set_max_rpcs_in_flight(count).unwrap();
    let one = || {
        let i = import.clone();
        rt.spawn("read", async move { i.request(read()).send().await.unwrap().bulk.len() })
    };
    (0..count).map(|_| one()).collect()
}

#[test]
fn reads_execute_only_when_there_is_bulk_room() {
    run(async |rt| {
        let echo = Arc::new(Echo { reply_bytes: 16 << 20, ..Echo::gated(1) });
        let server = Server::with_config(
            Net::new(rt.clone()),
            ServerConfig { bulk_in_flight_max_bytes: 32 << 20, bulk_total_max_bytes: 48 << 20, ..config(1000) },
        );
        server.add::<Ost>(TARGET, echo.clone());
        let addr = server.listen(LOOPBACK.into()).await.unwrap();
        let import = |name| Import::<Ost>::new(Net::new(rt.clone()), import_config(name, Some(addr)));
        let (a, b) = (import("a"), import("b"));
        let mut calls = reads(&rt, &a, 8);
        until(&rt, || echo.executed() == 2).await;
        rt.sleep(Duration::from_millis(50)).await;
        assert_eq!(echo.executed(), 2, "the limit of one connection");
        calls.extend(reads(&rt, &b, 8));
        until(&rt, || echo.executed() == 3).await;
        rt.sleep(Duration::from_millis(50)).await;
        assert_eq!(echo.executed(), 3, "the limit of the process");
        echo.gate.add_permits(16);
        for call in calls {
            call.await.unwrap();
        }
        assert_eq!(echo.executed(), 16);
    });
}

#[test]
fn postponed_reads_reserve_bulk_room_when_they_are_executed() {
    run(async |rt| {
        let until_closed = Arc::new(Semaphore::new(0));
        let echo =
            Arc::new(Echo { reply_bytes: 16 << 20, postponed_until: Some(until_closed.clone()), ..Echo::gated(1) });
        let limits =
            ServerConfig { bulk_in_flight_max_bytes: 32 << 20, bulk_total_max_bytes: 48 << 20, ..config(1000) };
        let server = Server::with_config(Net::new(rt.clone()), limits);
        server.add::<Ost>(TARGET, echo.clone());
        let addr = server.listen(LOOPBACK.into()).await.unwrap();
        let import = |name| Import::<Ost>::new(Net::new(rt.clone()), import_config(name, Some(addr)));
        let (a, b) = (import("a"), import("b"));
        let mut calls = reads(&rt, &a, 8);
        calls.extend(reads(&rt, &b, 8));
        rt.sleep(Duration::from_millis(50)).await;
        assert_eq!(echo.executed(), 0);
        // Over the same connection as postponed reads, and with nearly all the room of the process.
        a.set_max_rpcs_in_flight(9).unwrap();
        echo.gate.add_permits(1);
        a.request(write()).bulk(data(16 << 20, 1)).send().await.unwrap();
        assert_eq!(echo.executed(), 1, "the write does not wait for the reads");
        *echo.data.lock() = Bulk::new();

        until_closed.close();
        until(&rt, || echo.executed() == 4).await;
        rt.sleep(Duration::from_millis(50)).await;
        assert_eq!(echo.executed(), 4, "the limit of the process");
        echo.gate.add_permits(16);
        for call in calls {
            call.await.unwrap();
        }
        assert_eq!(echo.executed(), 17);
    });
}

/// A client that requests many reads and does not read the replies until the test does.
async fn deaf(rt: &Rt, addr: SocketAddr, name: &str, reads: u64) -> Connection {
    let mut connection = Net::new(rt.clone()).connect(addr).await.unwrap();
    let (client, protocol, target) = (name.into(), "ost".into(), TARGET.into());
    let hello =
        frame::to_body(&Hello { client, protocol, target, target_uuid: String::new(), features: 0, reconnect: false })
            .unwrap();
    connection.sender.post(Frame { body: hello.into(), ..Frame::new(Kind::Hello, 0) }).unwrap();
    connection.receiver.recv().await.unwrap();
    connection.receiver.handshaken();
    for xid in 1..=reads {
        let body = frame::to_body(&read()).unwrap().into();
        connection.sender.post(Frame { body, ..Frame::new(Kind::Request, xid) }).unwrap();
    }
    connection
}

#[test]
fn bulk_room_is_held_until_the_reply_is_sent() {
    const LEN: usize = 1 << 20;
    run(async |rt| {
        let echo = Arc::new(Echo { reply_bytes: LEN, data: Mutex::new(data(LEN, 1)), ..Echo::new(1) });
        let limit = ServerConfig { bulk_total_max_bytes: 32 << 20, ..config(1000) };
        let server = Server::with_config(Net::new(rt.clone()), limit);
        server.add::<Ost>(TARGET, echo.clone());
        let addr = server.listen(LOOPBACK.into()).await.unwrap();
        let clients = [deaf(&rt, addr, "a", 60).await, deaf(&rt, addr, "b", 60).await, deaf(&rt, addr, "c", 60).await];
        until(&rt, || echo.executed() >= 32).await;
        rt.sleep(Duration::from_millis(300)).await;
        let executed = echo.executed();
        // The sockets' buffers hold some MiB of each. Replies in the queues delay other clients
        // only by their room.
        assert!(executed < 80, "{executed} replies of 1 MiB");
        let read = |mut client: Connection| async move {
            for _ in 0..60 {
                assert_eq!(client.receiver.recv().await.unwrap().bulk.len(), LEN);
            }
        };
        for task in clients.map(|client| rt.spawn("read", read(client))) {
            task.await.unwrap();
        }
        assert_eq!(echo.executed(), 180);
    });
}

#[test]
fn injected_delay_lengthens_the_round_trip() {
    run(async |rt| {
        let echo = Arc::new(Echo::new(1));
        let (_net, _server, addr) = serve(&rt, &echo, config(1000), 0).await;
        let net = Net::new(rt.clone());
        let import = import(net.clone(), addr);
        seq(&import).await.unwrap();
        net.set_fault(Fault { delay: Duration::from_millis(20), ..Fault::default() });
        let before = rt.now();
        for n in 2..5 {
            assert_eq!(seq(&import).await, Ok(n));
        }
        assert!(rt.now().since(before) >= Duration::from_millis(60));
    });
}
