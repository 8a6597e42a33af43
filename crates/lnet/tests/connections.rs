//! Connections between two networks of this process.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use sheen_lnet::{Acceptor, Connection, Fault, Frame, Limits, Net, RecvError, Trust};
use sheen_rt::{
    RealOptions, Rt,
    sim::{Sim, SimConfig},
};
use sheen_wire::{
    Bulk,
    frame::{FLAG_BULK_CRC, Kind},
};

/// Number of simulations of each test.
const SEEDS: u64 = 4;
/// Timeout for real sockets: longer than any busy machine takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a test in several simulations, on one host.
fn run(test: impl AsyncFn(Rt)) {
    for seed in 0..SEEDS {
        let sim = Sim::new(seed, SimConfig::default());
        sim.run(test(sim.rt(1))).unwrap();
    }
}

/// Runs a test on real threads and sockets.
fn real<F: Future<Output = ()>>(test: impl FnOnce(Rt) -> F) {
    let (runtime, rt) = Rt::real(RealOptions { worker_threads: 2, ..RealOptions::default() }).unwrap();
    let guard = rt.clone();
    let run = test(rt);
    runtime.block_on(async move { guard.timeout(PATIENCE, run).await.expect("the test hangs") });
    runtime.shutdown(Duration::from_millis(100));
}

async fn listen(net: &Arc<Net>) -> (Acceptor, SocketAddr) {
    let acceptor = net.listen(([127, 0, 0, 1], 0).into()).await.unwrap();
    let addr = acceptor.local_addr();
    (acceptor, addr)
}

/// Connects two networks. Returns both ends, after the handshake.
async fn pair(from: &Arc<Net>, to: &Arc<Net>) -> (Connection, Connection) {
    let (acceptor, addr) = listen(to).await;
    let mut a = from.connect(addr).await.unwrap();
    let mut b = acceptor.accept().await;
    a.receiver.handshaken();
    b.receiver.handshaken();
    (a, b)
}

fn frame(xid: u64, body: usize, bulk: usize) -> Frame {
    let mut frame = Frame::new(Kind::Request, xid);
    frame.header.flags = FLAG_BULK_CRC;
    frame.body = vec![xid as u8; body].into();
    frame.bulk =
        (0..bulk.div_ceil(70_000)).map(|i| Bytes::from(vec![i as u8; 70_000.min(bulk - i * 70_000)])).collect();
    frame
}

#[test]
fn frames_arrive_whole_and_in_order_also_when_the_socket_is_full() {
    real(async |rt| {
        let net = Net::new(rt.clone());
        let (a, mut b) = pair(&net, &net).await;
        let sizes = [(0, 0), (10, 100), (5000, 0), (4 << 20, 16 << 20), (3, 4096), (4000, 70_000), (64, 1 << 20)];
        let sent: Vec<Frame> = (0..42).map(|n| frame(n, sizes[n as usize % 7].0, sizes[n as usize % 7].1)).collect();
        let sender = a.sender.clone();
        let posted = sent.clone();
        let posting = rt.spawn("post", async move {
            for frame in posted {
                sender.send(frame).await.unwrap();
            }
        });
        for want in sent {
            let got = b.receiver.recv().await.unwrap();
            assert_eq!((got.header.xid, &got.body), (want.header.xid, &want.body));
            assert!(got.bulk.into_bytes() == want.bulk.into_bytes());
        }
        posting.await.unwrap();
        // Frames that were posted before the end arrive before it.
        for n in 0..100 {
            a.sender.post(frame(n, 10, 1 << 20)).unwrap();
        }
        a.sender.finish();
        assert!(a.sender.post(frame(100, 0, 0)).is_err());
        for n in 0..100 {
            assert_eq!(b.receiver.recv().await.unwrap().header.xid, n);
        }
        assert!(matches!(b.receiver.recv().await, Err(RecvError::Eof)));
    });
}

#[test]
fn frames_posted_by_several_threads_do_not_mix() {
    real(async |rt| {
        let net = Net::new(rt.clone());
        let (a, mut b) = pair(&net, &net).await;
        for poster in 0..4u64 {
            let sender = a.sender.clone();
            drop(rt.spawn("post", async move {
                for n in 0..100 {
                    sender.send(frame(poster << 32 | n, 100, 30_000)).await.unwrap();
                }
            }));
        }
        let mut next = [0; 4];
        for _ in 0..400 {
            let xid = b.receiver.recv().await.unwrap().header.xid;
            let poster = (xid >> 32) as usize;
            assert_eq!(xid & 0xffff_ffff, next[poster], "in the poster's order");
            next[poster] += 1;
        }
    });
}

#[test]
fn oversized_frame_is_refused_and_connection_stays_open() {
    run(async |rt| {
        let net = Net::new(rt.clone());
        let (a, mut b) = pair(&net, &net).await;
        assert!(a.sender.post(frame(1, (4 << 20) + 1, 0)).is_err());
        assert!(a.sender.post(frame(2, 0, (16 << 20) + 1)).is_err());
        a.sender.post(frame(3, 1, 1)).unwrap();
        assert_eq!(b.receiver.recv().await.unwrap().header.xid, 3);
    });
}

#[test]
fn closing_ends_both_directions_at_both_ends() {
    run(async |rt| {
        let net = Net::new(rt.clone());
        let (mut a, mut b) = pair(&net, &net).await;
        let sender = a.sender.clone();
        let receiving = rt.spawn("recv", async move { a.receiver.recv().await.err() });
        sender.close();
        assert!(matches!(receiving.await.unwrap(), Some(RecvError::Closed)));
        assert!(b.receiver.recv().await.is_err());
        assert!(sender.is_closed() && sender.post(frame(1, 0, 0)).is_err());
        drop(b.receiver);
        assert!(b.sender.is_closed(), "a connection that nobody reads is closed");
    });
}

#[test]
fn connection_is_closed_if_peer_does_not_read_or_stalls() {
    run(async |rt| {
        let limits = Limits { write_timeout_ms: 100, stall_timeout_ms: 100, ..Limits::default() };
        let net = Net::with_limits(rt.clone(), Trust::All, limits);
        let (a, b) = pair(&net, &net).await;
        let flood = async {
            let mut n = 0;
            while a
                .sender
                .send(Frame { bulk: Bulk::from(Bytes::from(vec![0; 1 << 20])), ..frame(n, 0, 0) })
                .await
                .is_ok()
            {
                n += 1;
            }
            n
        };
        let sent = flood.await;
        assert!((1..100).contains(&sent), "{sent} MiB were taken before the connection was closed");
        drop(b);

        let (acceptor, addr) = listen(&net).await;
        let (_read, mut write) = rt.connect(addr).await.unwrap().split();
        let mut stalled = acceptor.accept().await;
        write.write_all_vectored(&[std::io::IoSlice::new(b"SHN\x1b")]).await.unwrap();
        assert!(matches!(stalled.receiver.recv().await, Err(RecvError::Stalled)));
    });
}

#[test]
fn connections_over_the_limit_are_closed() {
    run(async |rt| {
        let net = Net::with_limits(rt.clone(), Trust::All, Limits { connections_max: 2, ..Limits::default() });
        let client = Net::new(rt.clone());
        let (acceptor, addr) = listen(&net).await;
        let _a = (client.connect(addr).await.unwrap(), acceptor.accept().await);
        let b = (client.connect(addr).await.unwrap(), acceptor.accept().await);
        let mut over = client.connect(addr).await.unwrap();
        let fourth = rt.spawn("accept", async move { acceptor.accept().await });
        assert!(over.receiver.recv().await.is_err(), "closed at once");
        drop(b);
        let c = client.connect(addr).await.unwrap();
        let mut accepted = fourth.await.unwrap();
        c.sender.post(frame(1, 0, 0)).unwrap();
        assert_eq!(accepted.receiver.recv().await.unwrap().header.xid, 1);
    });
}

#[test]
fn delayed_frames_keep_their_order_and_lost_ones_break_the_connection() {
    run(async |rt| {
        let net = Net::new(rt.clone());
        let other = Net::new(rt.clone());
        let (a, mut b) = pair(&net, &other).await;
        net.set_fault(Fault { delay: Duration::from_millis(30), ..Fault::default() });
        let began = rt.now();
        a.sender.post(frame(1, 10, 0)).unwrap();
        net.set_fault(Fault::default());
        a.sender.post(frame(2, 10, 0)).unwrap();
        assert_eq!(b.receiver.recv().await.unwrap().header.xid, 1);
        assert!(rt.now().since(began) >= Duration::from_millis(30));
        assert_eq!(b.receiver.recv().await.unwrap().header.xid, 2);
        net.set_fault(Fault { drop_probability: 1.0, ..Fault::default() });
        assert!(a.sender.post(frame(3, 0, 0)).is_err());
        assert!(b.receiver.recv().await.is_err());
    });
}
