//! Protection of frames after the handshake, in the simulator.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use sheen_keys::{Key, Keyring};
use sheen_lnet::{Acceptor, Connection, Frame, Keys, Net, RecvError, Trust};
use sheen_rt::{
    Rt,
    sim::{Sim, SimConfig},
};
use sheen_wire::{
    Bulk,
    auth::{ClusterId, Flavor},
    frame::{FLAG_BULK_CRC, Kind},
};

use common::{Middle, relay};

const PROTECTING: [Flavor; 2] = [Flavor::Integrity, Flavor::Privacy];
/// Marks the content of frames.
const TEXT: &[u8] = b"content of a frame";

fn run(seed: u64, test: impl AsyncFnOnce(Rt)) {
    let sim = Sim::new(seed, SimConfig::default());
    sim.run(test(sim.rt(1))).unwrap();
}

fn trust(flavor: Flavor) -> Trust {
    let keyring = Keyring::of(vec![Key::new(ClusterId(7), 1, [1; 32], 0)]);
    Keys { relays: true, flavor: Some(flavor), ..Keys::new(keyring) }.into()
}

/// Returns a frame whose bulk has runs of these lengths.
fn frame(xid: u64, body: usize, runs: &[usize]) -> Frame {
    let bytes = |len: usize, first: usize| -> Bytes {
        let text = TEXT.iter().copied().cycle().skip(first % TEXT.len());
        text.take(len).collect::<Vec<u8>>().into()
    };
    let bulk: Bulk = runs.iter().enumerate().map(|(i, len)| bytes(*len, i + xid as usize)).collect();
    let mut frame = Frame { body: bytes(body, 0), bulk, ..Frame::new(Kind::Request, xid) };
    frame.header.flags = FLAG_BULK_CRC;
    frame
}

/// Connects a client with a server at the address `at`, and sends a first frame. Returns the
/// connections of the server and of the client.
async fn meet(server: &Arc<Net>, acceptor: Acceptor, client: &Net, at: SocketAddr) -> (Connection, Connection) {
    let serving = server.clone();
    let admitted = server.rt().spawn("admit", async move {
        let mut connection = acceptor.accept().await;
        let first = serving.admit(&connection.sender, &mut connection.receiver).await.unwrap();
        assert_eq!(first.header.kind, Kind::Hello);
        connection
    });
    let connection = client.connect(at).await.unwrap();
    connection.sender.post(Frame::new(Kind::Hello, 1)).unwrap();
    (admitted.await.unwrap(), connection)
}

/// Connects a client and a server through somebody in the middle of the direction to the server.
async fn connect(rt: &Rt, server: Trust, client: Trust) -> (Connection, Connection, Arc<Middle>, Arc<Net>) {
    let net = Net::trusting(rt.clone(), server);
    let acceptor = net.listen(([127, 0, 0, 1], 0).into()).await.unwrap();
    let middle = Arc::new(Middle::default());
    let relay = relay(rt, acceptor.local_addr(), middle.clone(), Arc::default()).await;
    let client = Net::trusting(rt.clone(), client);
    let (mut there, mut here) = meet(&net, acceptor, &client, relay).await;
    there.receiver.handshaken();
    here.receiver.handshaken();
    (there, here, middle, net)
}

/// Frames of all shapes: without body or bulk, with pieces of more and less than the largest size,
/// and with bulk in many runs.
fn frames() -> Vec<Frame> {
    let mib = 1 << 20;
    let shapes: [(usize, &[usize]); 8] = [
        (0, &[]),
        (1, &[]),
        (0, &[1]),
        (70_000, &[4096; 16]),
        (30, &[mib]),
        (30, &[mib + 1]),
        (30, &[mib / 2, mib, mib, mib / 2 - 1]),
        (30, &[3 * mib]),
    ];
    (2..).zip(shapes).map(|(xid, (body, runs))| frame(xid, body, runs)).collect()
}

#[test]
fn protected_frames_arrive_as_they_were_sent() {
    for flavor in Flavor::ALL {
        run(1, async |rt| {
            let (mut server, mut client, middle, _net) = connect(&rt, trust(flavor), trust(flavor)).await;
            for (from, to) in [(&client.sender, &mut server.receiver), (&server.sender, &mut client.receiver)] {
                for frame in frames() {
                    from.post(frame).unwrap();
                }
                for sent in frames() {
                    let got = to.recv().await.unwrap();
                    assert_eq!((got.header.xid, &got.body), (sent.header.xid, &sent.body));
                    assert!(!got.damaged && got.bulk.into_bytes() == sent.bulk.into_bytes(), "{flavor}");
                }
            }
            let seen = middle.seen.lock().unwrap();
            let readable = seen.windows(TEXT.len()).any(|bytes| bytes == TEXT);
            assert_eq!(readable, flavor != Flavor::Privacy, "{flavor}");
        });
    }
}

#[test]
fn changed_and_repeated_frames_end_a_protected_connection() {
    for flavor in PROTECTING {
        for (seed, repeat) in (1..).zip([false, true, false, true]) {
            run(seed, async |rt| {
                let (mut server, client, middle, _net) = connect(&rt, trust(flavor), trust(flavor)).await;
                client.sender.post(frame(2, 30, &[5000])).unwrap();
                assert_eq!(server.receiver.recv().await.unwrap().header.xid, 2);
                (if repeat { &middle.repeat } else { &middle.flip }).store(true, Ordering::Relaxed);
                // The second one goes into the body or the bulk with each seed.
                client.sender.post(frame(3, 30, &[5000 * seed as usize])).unwrap();
                client.sender.post(frame(4, 30, &[])).unwrap();
                let mut received = Vec::new();
                let end = loop {
                    match rt.timeout(Duration::from_secs(300), server.receiver.recv()).await.unwrap() {
                        Ok(frame) => received.push(frame.header.xid),
                        Err(end) => break end,
                    }
                };
                // A repeated read may end with a whole frame.
                assert!(received.is_empty() || repeat && received == [3], "{flavor}: {received:?}");
                assert!(matches!(end, RecvError::Forged), "{flavor}: {end:?}");
            });
        }
    }
}

#[test]
fn connection_between_hosts_has_integrity_by_default_and_one_on_a_host_does_not() {
    for client_host in [1, 2] {
        let sim = Sim::new(1, SimConfig::default());
        let trust = || Trust::from(Keys::new(Keyring::of(vec![Key::new(ClusterId(7), 1, [1; 32], 0)])));
        let server = Net::trusting(sim.rt(1), trust());
        let client = Net::trusting(sim.rt(client_host), trust());
        let addr = sim.addr(1, 7988);
        let flavor = sim.run(async {
            let acceptor = server.listen(addr).await.unwrap();
            let (there, here) = meet(&server, acceptor, &client, addr).await;
            assert_eq!(there.sender.flavor(), here.sender.flavor());
            here.sender.flavor()
        });
        let wanted = if client_host == 1 { Flavor::Null } else { Flavor::Integrity };
        assert_eq!(flavor.unwrap(), wanted, "client on host {client_host}");
    }
}

/// Connects two hosts whose users chose these flavors, and whose file system demands another one.
/// Returns the flavor of the connection.
fn flavor_between_hosts(server: (Option<Flavor>, Flavor), client: (Option<Flavor>, Flavor)) -> Flavor {
    let sim = Sim::new(1, SimConfig::default());
    let net = |host, (flavor, demanded)| {
        let keyring = Keyring::of(vec![Key::new(ClusterId(7), 1, [1; 32], 0)]);
        let net = Net::trusting(sim.rt(host), Keys { flavor, ..Keys::new(keyring) }.into());
        net.demand("a", Some(demanded));
        net.demand("b", Some(Flavor::Null));
        assert_eq!((net.demanded("a"), net.demanded("c")), (Some(demanded), None));
        net
    };
    let (server, client, addr) = (net(1, server), net(2, client), sim.addr(1, 7988));
    let flavor = sim.run(async {
        let acceptor = server.listen(addr).await.unwrap();
        let (there, here) = meet(&server, acceptor, &client, addr).await;
        assert!(server.protects(&there.sender));
        server.demand("b", Some(Flavor::Privacy));
        assert_eq!(server.protects(&there.sender), there.sender.flavor() == Flavor::Privacy);
        server.demand("b", None);
        assert!(server.protects(&there.sender));
        here.sender.flavor()
    });
    flavor.unwrap()
}

#[test]
fn flavor_of_a_file_system_replaces_the_default_and_raises_what_users_chose() {
    let (null, integrity, privacy) = (Flavor::Null, Flavor::Integrity, Flavor::Privacy);
    assert_eq!(flavor_between_hosts((None, null), (None, null)), null);
    assert_eq!(flavor_between_hosts((None, privacy), (None, null)), privacy);
    assert_eq!(flavor_between_hosts((None, null), (None, integrity)), integrity);
    assert_eq!(flavor_between_hosts((Some(privacy), null), (None, null)), privacy);
    assert_eq!(flavor_between_hosts((Some(null), privacy), (Some(null), null)), privacy);
}

#[test]
fn connection_has_the_larger_protection_that_an_end_demands() {
    for server in Flavor::ALL {
        for client in Flavor::ALL {
            run(1, async |rt| {
                let (mut there, here, middle, _net) = connect(&rt, trust(server), trust(client)).await;
                here.sender.post(frame(2, 30, &[100])).unwrap();
                assert_eq!(there.receiver.recv().await.unwrap().bulk.len(), 100);
                let seen = middle.seen.lock().unwrap();
                let readable = seen.windows(TEXT.len()).any(|bytes| bytes == TEXT);
                assert_eq!(readable, server.max(client) != Flavor::Privacy, "{server} {client}");
            });
        }
    }
}
