//! Authentication of connections, in the simulator.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::{io::IoSlice, net::SocketAddr, sync::Arc, time::Duration};

use sheen_keys::{Key, Keyring};
use sheen_lnet::{AuthError, Connection, Frame, Keys, Limits, Net, Nid, RecvError, Stranger, Trust};
use sheen_rt::{
    JoinHandle, Rt,
    sim::{Sim, SimConfig},
};
use sheen_wire::{
    Errno,
    auth::{Auth, ClusterId, Flavor, KeyId, Route},
    frame::{HEADER_LEN, Header, Kind, to_body},
    protocol::PROTOCOL_VERSION,
};

use common::relay;

/// Number of simulations of each test.
const SEEDS: u64 = 4;
/// The cluster of the server.
const CLUSTER: ClusterId = ClusterId(7);
/// The protocol version of another release.
const OTHER_VERSION: u16 = PROTOCOL_VERSION + 1;

/// Runs a test in several simulations, on one host.
fn run(test: impl AsyncFn(Rt)) {
    for seed in 0..SEEDS {
        let sim = Sim::new(seed, SimConfig::default());
        sim.run(test(sim.rt(1))).unwrap();
    }
}

fn key(cluster: ClusterId, id: u64, secret: u8) -> Key {
    Key::new(cluster, id, [secret; 32], 0)
}

fn of(keys: &[Key]) -> Trust {
    Keys::new(Keyring::of(keys.to_vec())).into()
}

/// Admits one connection. Returns the kind of its first frame.
async fn serve(rt: &Rt, trust: Trust) -> (SocketAddr, JoinHandle<Result<Kind, RecvError>>) {
    let net = Net::trusting(rt.clone(), trust);
    let acceptor = net.listen(([127, 0, 0, 1], 0).into()).await.unwrap();
    let addr = acceptor.local_addr();
    let admitted = rt.spawn("admit", async move {
        let Connection { sender, mut receiver } = acceptor.accept().await;
        let first = net.admit(&sender, &mut receiver).await;
        if first.is_err() {
            sender.finish();
            let _ = receiver.recv().await;
        }
        first.map(|frame| frame.header.kind)
    });
    (addr, admitted)
}

/// Connects as a client of this trust and sends a frame. Returns the client's error, and the first
/// frame or error of the server.
async fn meet(rt: &Rt, server: Trust, client: Trust) -> (Option<AuthError>, Result<Kind, Stranger>) {
    let (addr, admitted) = serve(rt, server).await;
    let connected = Net::trusting(rt.clone(), client).connect(addr).await;
    let error = match connected {
        Ok(connection) => {
            connection.sender.post(Frame::new(Kind::Hello, 1)).unwrap();
            connection.sender.finish();
            None
        }
        Err(e) => Some(e.into_inner().and_then(|e| e.downcast::<AuthError>().ok()).map(|e| *e).expect("an AuthError")),
    };
    let admitted = admitted.await.unwrap().map_err(|e| match e {
        RecvError::Stranger(stranger) => stranger,
        other => unreachable!("{other}"),
    });
    (error, admitted)
}

#[test]
fn ends_with_the_same_key_connect() {
    run(async |rt| {
        let keys = [key(CLUSTER, 1, 1), key(CLUSTER, 2, 2)];
        let (error, admitted) = meet(&rt, of(&keys), of(&keys[..1])).await;
        assert!(error.is_none(), "{error:?}");
        assert_eq!(admitted, Ok(Kind::Hello));
    });
}

#[test]
fn client_uses_the_newest_key_that_the_server_accepts() {
    run(async |rt| {
        let keys = [1, 2, 3].map(|id| Key::new(CLUSTER, id, [id as u8; 32], id as i64));
        for (server, used) in [(&keys[..], 2), (&keys[..1], 1), (&keys[1..], 2)] {
            let net = Net::trusting(rt.clone(), of(server));
            let acceptor = net.listen(([127, 0, 0, 1], 0).into()).await.unwrap();
            let addr = acceptor.local_addr();
            let admitted = rt.spawn("admit", async move {
                let mut accepted = acceptor.accept().await;
                net.admit(&accepted.sender, &mut accepted.receiver).await.unwrap();
                accepted.sender.claim().map(|claim| claim.key)
            });
            let connection = Net::trusting(rt.clone(), of(&keys[..2])).connect(addr).await.unwrap();
            connection.sender.post(Frame::new(Kind::Hello, 1)).unwrap();
            assert_eq!(admitted.await.unwrap(), Some(KeyId(used)));
        }
        let (error, admitted) = meet(&rt, of(&keys[2..]), of(&keys[..2])).await;
        assert!(matches!(error, Some(AuthError::NoKey(CLUSTER))), "{error:?}");
        assert_eq!(admitted, Err(Stranger::NoKey));
    });
}

#[test]
fn client_without_a_key_of_the_cluster_is_refused() {
    run(async |rt| {
        let (error, admitted) = meet(&rt, of(&[key(CLUSTER, 1, 1)]), of(&[])).await;
        assert!(matches!(error, Some(AuthError::NoKey(CLUSTER))), "{error:?}");
        assert_eq!(admitted, Err(Stranger::NoKey));
    });
}

#[test]
fn client_of_one_cluster_refuses_servers_of_others() {
    run(async |rt| {
        let keyring = Arc::new(Keyring::default());
        keyring.confirmed(&key(CLUSTER, 1, 1), &[KeyId(1)]).unwrap();
        let trust = Trust::from(Keys::new(keyring));
        assert_eq!(meet(&rt, of(&[key(CLUSTER, 1, 1)]), trust.clone()).await.1, Ok(Kind::Hello));
        let (error, admitted) = meet(&rt, of(&[key(ClusterId(8), 1, 1)]), trust).await;
        assert!(error.is_some_and(|e| e.to_string().contains("belongs to cluster 0000000000000008")));
        assert_eq!(admitted, Err(Stranger::NoKey));
    });
}

#[test]
fn client_with_another_secret_or_key_is_refused() {
    run(async |rt| {
        let (error, admitted) = meet(&rt, of(&[key(CLUSTER, 1, 1)]), of(&[key(CLUSTER, 1, 2)])).await;
        assert!(matches!(error, Some(AuthError::Refused { key: KeyId(1), .. })), "{error:?}");
        assert_eq!(admitted, Err(Stranger::NoSecret(KeyId(1))));
        let (error, admitted) = meet(&rt, of(&[key(CLUSTER, 1, 1)]), of(&[key(CLUSTER, 2, 1)])).await;
        assert!(matches!(error, Some(AuthError::NoKey(CLUSTER))), "{error:?}");
        assert_eq!(admitted, Err(Stranger::NoKey));
    });
}

#[test]
fn client_that_skips_the_handshake_is_refused() {
    run(async |rt| {
        let (_, admitted) = meet(&rt, of(&[key(CLUSTER, 1, 1)]), Trust::All).await;
        assert_eq!(admitted, Err(Stranger::Silent));
    });
}

/// Returns the bytes of an empty message of the handshake, as another release sends it.
fn message_of_other_version() -> [u8; HEADER_LEN] {
    let mut bytes = Header::new(Kind::Auth, 0).encode(b"");
    bytes[4..6].copy_from_slice(&OTHER_VERSION.to_le_bytes());
    bytes
}

#[test]
fn client_of_another_protocol_version_is_refused_and_learns_that_of_the_server() {
    run(async |rt| {
        let (addr, admitted) = serve(&rt, of(&[key(CLUSTER, 1, 1)])).await;
        let (mut read, mut write) = rt.connect(addr).await.unwrap().split();
        write.write_all_vectored(&[IoSlice::new(&message_of_other_version())]).await.unwrap();
        let mut refusal = [0; HEADER_LEN];
        read.read_exact(&mut refusal).await.unwrap();
        let (header, _) = Header::decode(&refusal).expect("of the server's version");
        assert_eq!((header.kind, header.status), (Kind::Auth, Errno::EPROTO.0));
        drop((read, write));
        let error = admitted.await.unwrap().unwrap_err();
        assert!(matches!(error, RecvError::Stranger(Stranger::Version(OTHER_VERSION))), "{error}");
        let versions = format!("protocol version {OTHER_VERSION}, this server speaks {PROTOCOL_VERSION}");
        assert!(error.to_string().contains(&versions), "{error}");
    });
}

#[test]
fn client_refuses_a_server_of_another_protocol_version_and_reports_both() {
    run(async |rt| {
        let listener = rt.listen(([127, 0, 0, 1], 0).into()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let answering = rt.spawn("answer", async move {
            for _ in 0..2 {
                let (mut read, mut write) = listener.accept().await.unwrap().0.split();
                let mut bytes = [0; 4096];
                assert!(read.read_some(&mut bytes).await.unwrap() > 0);
                write.write_all_vectored(&[IoSlice::new(&message_of_other_version())]).await.unwrap();
                // Until the client closes the connection. It may do so before it has read all.
                while let Ok(1..) = read.read_some(&mut bytes).await {}
            }
        });
        let net = Net::trusting(rt.clone(), of(&[key(CLUSTER, 1, 1)]));
        let error = net.connect(addr).await.err().unwrap();
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "connecting again does not help");
        let versions = format!("protocol version {OTHER_VERSION}, this process speaks {PROTOCOL_VERSION}");
        assert!(error.to_string().contains(&versions), "{error}");
        // A command reports it at once.
        let reason = rt.timeout(Duration::from_secs(60), net.refused(&[Nid::Tcp(addr)])).await.unwrap();
        assert!(matches!(reason, AuthError::Version(_)), "{reason}");
        answering.await.unwrap();
    });
}

#[test]
fn server_without_its_key_yet_refuses_everybody() {
    run(async |rt| {
        let (error, admitted) = meet(&rt, of(&[]), of(&[key(CLUSTER, 1, 1)])).await;
        assert!(matches!(error, Some(AuthError::Busy)), "{error:?}");
        assert_eq!(admitted, Err(Stranger::Starting));
    });
}

#[test]
fn server_without_authentication_serves_only_those_who_trust_it() {
    run(async |rt| {
        assert_eq!(meet(&rt, Trust::All, Trust::All).await.1, Ok(Kind::Hello));
        let keyring = Arc::new(Keyring::of(vec![key(CLUSTER, 1, 1)]));
        let tool = Trust::Keys(Keys { open_servers: true, ..Keys::new(keyring) });
        assert_eq!(meet(&rt, Trust::All, tool).await.1, Ok(Kind::Hello));
        let (addr, _admitted) = serve(&rt, Trust::All).await;
        let error = Net::trusting(rt.clone(), of(&[key(CLUSTER, 1, 1)])).connect(addr).await.err().unwrap();
        assert!(error.to_string().contains("auth=none"), "{error}");
    });
}

#[test]
fn refused_process_learns_the_reason() {
    run(async |rt| {
        let closed = Nid::Tcp(([127, 0, 0, 1], 9).into());
        for (server, client, refused) in [
            (of(&[key(CLUSTER, 1, 1)]), of(&[key(CLUSTER, 1, 1)]), None),
            (of(&[key(CLUSTER, 1, 1)]), of(&[]), Some("no key of the file system")),
            (of(&[key(CLUSTER, 1, 1)]), Trust::All, Some("demands a key")),
            (Trust::All, Trust::All, None),
            (Trust::All, of(&[key(CLUSTER, 1, 1)]), Some("auth=none")),
        ] {
            let (addr, admitted) = serve(&rt, server).await;
            let net = Net::trusting(rt.clone(), client);
            let minute = Duration::from_secs(60);
            let reason = rt.timeout(minute, net.refused(&[closed, Nid::Tcp(addr)])).await.ok().map(|e| e.to_string());
            assert_eq!(reason.is_some(), refused.is_some(), "{reason:?} instead of {refused:?}");
            assert!(reason.unwrap_or_default().contains(refused.unwrap_or_default()), "{refused:?}");
            assert!(rt.timeout(minute, net.refused(&[closed])).await.is_err(), "it waits for a server");
            drop(admitted);
        }
    });
}

#[test]
fn connection_that_another_process_passes_on_is_refused() {
    run(async |rt| {
        let keyring = || Arc::new(Keyring::of(vec![key(CLUSTER, 1, 1)]));
        for relays in [false, true] {
            let trust = Trust::Keys(Keys { relays, ..Keys::new(keyring()) });
            let (addr, admitted) = serve(&rt, trust).await;
            let relay = relay(&rt, addr, Arc::default(), Arc::default()).await;
            let client = Net::trusting(rt.clone(), of(&[key(CLUSTER, 1, 1)]));
            match client.connect(relay).await {
                Ok(connection) => {
                    assert!(relays);
                    assert_eq!(connection.sender.flavor(), Flavor::Integrity, "it may pass a network");
                    connection.sender.post(Frame::new(Kind::Hello, 1)).unwrap();
                    assert_eq!(admitted.await.unwrap().unwrap(), Kind::Hello);
                }
                Err(error) => {
                    assert!(!relays && error.to_string().contains("--allow-relays"), "{error}");
                    let refused = admitted.await.unwrap();
                    assert!(matches!(refused, Err(RecvError::Stranger(Stranger::Relayed(_)))), "{refused:?}");
                }
            }
        }
    });
}

#[test]
fn connections_that_authenticate_at_the_same_time_are_limited() {
    run(async |rt| {
        let limits = Limits { strangers_max: 2, ..Limits::default() };
        let net = Net::with_limits(rt.clone(), of(&[key(CLUSTER, 1, 1)]), limits);
        let acceptor = net.listen(([127, 0, 0, 1], 0).into()).await.unwrap();
        let addr = acceptor.local_addr();
        let stranger = Net::new(rt.clone());
        let mut waiting = Vec::new();
        for _ in 0..2 {
            let connection = stranger.connect(addr).await.unwrap();
            let mut accepted = acceptor.accept().await;
            let route = Route { client: accepted.sender.peer(), server: addr };
            let body = to_body(&Auth::Begin { flavors: Flavor::Null.bit(), route }).unwrap();
            connection.sender.post(Frame { body: body.into(), ..Frame::new(Kind::Auth, 0) }).unwrap();
            let net = net.clone();
            let admit = rt.spawn("admit", async move {
                let limit = Duration::from_secs(5);
                let rt = net.rt().clone();
                rt.timeout(limit, net.admit(&accepted.sender, &mut accepted.receiver)).await.map(drop)
            });
            waiting.push((connection, admit));
        }
        rt.sleep(Duration::from_secs(1)).await;
        let member = Net::trusting(rt.clone(), of(&[key(CLUSTER, 1, 1)]));
        let third = rt.spawn("connect", async move { (member.connect(addr).await.map(drop), member) });
        let mut accepted = acceptor.accept().await;
        let admitted = net.admit(&accepted.sender, &mut accepted.receiver).await;
        assert!(matches!(admitted, Err(RecvError::Stranger(Stranger::Crowd))));
        let (refused, member) = third.await.unwrap();
        assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "the client is to try again");
        for (_connection, admit) in waiting {
            assert!(admit.await.unwrap().is_err(), "its time is limited");
        }
        let fourth = rt.spawn("connect", async move { member.connect(addr).await.map(|c| (c, member)) });
        let mut accepted = acceptor.accept().await;
        let admitting = rt.spawn("admit", async move { net.admit(&accepted.sender, &mut accepted.receiver).await });
        let (connection, _member) = fourth.await.unwrap().unwrap();
        connection.sender.post(Frame::new(Kind::Hello, 1)).unwrap();
        assert_eq!(admitting.await.unwrap().unwrap().header.kind, Kind::Hello);
    });
}
