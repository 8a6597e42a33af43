//! Bytes from unknown or broken peers.

use std::{io::IoSlice, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use sheen_lnet::{Connection, Frame, Net};
use sheen_rpc::ServerConfig;
use sheen_rt::Rt;
use sheen_wire::{
    Bulk, Ost,
    frame::{self, FLAG_BULK_CRC, Header, Kind},
    ost,
    protocol::PROTOCOL_VERSION,
};

use crate::common::*;

fn bytes_of(frame: &Frame) -> Vec<u8> {
    let header = Header { body_len: frame.body.len() as u32, bulk_len: frame.bulk.len() as u32, ..frame.header };
    let mut bytes = header.encode(&frame.body).to_vec();
    bytes.extend_from_slice(&frame.body);
    frame.bulk.segments().iter().for_each(|s| bytes.extend_from_slice(s));
    bytes
}

/// Sends bytes; returns how many bytes came before the server closed the connection.
async fn answer_to(rt: &Rt, addr: SocketAddr, bytes: &[u8]) -> usize {
    let (mut read, mut write) = rt.connect(addr).await.unwrap().split();
    let _ = write.write_all_vectored(&[IoSlice::new(bytes)]).await;
    let (mut buf, mut n) = ([0; 4096], 0);
    // An error also means that the server closed the connection.
    while let Ok(more @ 1..) = read.read_some(&mut buf).await {
        n += more;
    }
    n
}

#[test]
fn invalid_frame_closes_only_its_own_connection() {
    run(async |rt| {
        let echo = Arc::new(Echo::new(1));
        let (_net, server, addr) = serve(&rt, &echo, config(1000), 0).await;
        let import = import(Net::new(rt.clone()), addr);
        assert_eq!(seq(&import).await, Ok(1));

        let good = bytes_of(&hello("stranger", "mds"));
        let mut cases: Vec<(&str, Vec<u8>)> = vec![
            (
                "http",
                b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: b\r\nAccept: text/html,everything/else\r\n\r\n".to_vec(),
            ),
            ("zeros", vec![0; 1000]),
            ("nothing", vec![]),
            ("half a header", good[..40].to_vec()),
            ("no hello first", bytes_of(&Frame::new(Kind::Request, 1))),
            ("a huge hello", bytes_of(&Frame { body: vec![0; 5000].into(), ..Frame::new(Kind::Hello, 0) })),
            ("a hello with bulk", bytes_of(&Frame { bulk: data(10, 1), ..hello("x", "mds") })),
            ("a hello of noise", bytes_of(&Frame { body: vec![255; 50].into(), ..Frame::new(Kind::Hello, 0) })),
        ];
        let mut damaged = |name, at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[at] = value;
            cases.push((name, bytes));
        };
        damaged("unknown version", 4, 99);
        damaged("unknown kind", 6, 99);
        damaged("oversized body", 39, 0x7f);
        damaged("oversized bulk", 43, 0x7f);
        damaged("damaged body", 70, 0xee);
        for (name, bytes) in cases {
            let came = rt.timeout(Duration::from_secs(2), answer_to(&rt, addr, &bytes)).await;
            assert_eq!(came, Ok(0), "{name}");
        }
        // After a proper hello: garbage; a frame that no client sends; a body that is not a
        // request; a damaged bulk.
        let after = |mut frame: Frame, damage: bool| {
            let mut bytes = good.clone();
            if damage {
                frame.header.flags = FLAG_BULK_CRC;
                frame.header.bulk_crc = 1;
            }
            bytes.extend(bytes_of(&frame));
            bytes
        };
        let mut garbage = good.clone();
        garbage.extend([7; 64]);
        for bytes in [
            garbage,
            after(Frame::new(Kind::Welcome, 1), false),
            after(Frame { body: vec![200; 9].into(), ..Frame::new(Kind::Request, 1) }, false),
            after(Frame { bulk: data(10, 1), ..Frame::new(Kind::Ping, 1) }, true),
        ] {
            let came = rt.timeout(Duration::from_secs(2), answer_to(&rt, addr, &bytes)).await.unwrap();
            assert!(came > 64, "a welcome, then the end of the connection");
        }
        assert_eq!(seq(&import).await, Ok(2), "the server still runs");
        assert_eq!(import.stats().connects, 1, "its connections are still open");
        until(&rt, || server.connections() == 1).await;
    });
}

/// Returns the bytes of a frame as another release sends it.
fn bytes_of_other_version(frame: &Frame) -> Vec<u8> {
    let mut bytes = bytes_of(frame);
    bytes[4..6].copy_from_slice(&(PROTOCOL_VERSION + 1).to_le_bytes());
    bytes
}

#[test]
fn client_of_another_protocol_version_is_refused_and_the_log_says_both() {
    let lines = logged(|| {
        run(async |rt| {
            let echo = Arc::new(Echo::new(1));
            let (_net, server, addr) = serve(&rt, &echo, config(1000), 0).await;
            assert_eq!(answer_to(&rt, addr, &bytes_of_other_version(&hello("client", "mds"))).await, 0);
            until(&rt, || server.connections() == 0).await;
        });
    });
    let other = PROTOCOL_VERSION + 1;
    let versions = format!("the peer speaks protocol version {other}, this process speaks {PROTOCOL_VERSION}");
    let says = |line: &str| line.contains("closing a connection") && line.contains(&versions);
    assert!(lines.iter().any(|(line, _)| says(line)), "{lines:?}");
}

#[test]
fn connect_to_a_server_of_another_protocol_version_reports_both() {
    run(async |rt| {
        let listener = rt.listen(([127, 0, 0, 1], 0).into()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let answering = rt.spawn("answer", async move {
            let (welcome, mut bytes) = (bytes_of_other_version(&Frame::new(Kind::Welcome, 0)), [0; 4096]);
            loop {
                let (mut read, mut write) = listener.accept().await.unwrap().0.split();
                // Until the client closes the connection.
                while let Ok(1..) = read.read_some(&mut bytes).await {
                    let _ = write.write_all_vectored(&[IoSlice::new(&welcome)]).await;
                }
            }
        });
        let error = import(Net::new(rt.clone()), addr).connect().await.unwrap_err().to_string();
        let versions = format!("version {}, this process speaks {PROTOCOL_VERSION}", PROTOCOL_VERSION + 1);
        assert!(error.contains(TARGET) && error.contains(&versions), "{error}");
        answering.abort();
    });
}

#[test]
fn client_that_does_not_reconnect_in_time_is_evicted() {
    run(async |rt| {
        let echo = Arc::new(Echo::new(1));
        let (_net, _server, addr) = serve(&rt, &echo, config(100), 0).await;
        let net = Net::new(rt.clone());
        let attach = async |known: bool| {
            let Connection { sender, mut receiver } = net.connect(addr).await.unwrap();
            sender.post(hello("lost", "mds")).unwrap();
            let welcome: frame::Welcome = frame::from_body(&receiver.recv().await.unwrap().body).unwrap();
            assert_eq!(welcome.known, known);
            (sender, receiver)
        };
        drop(attach(false).await);
        let back = attach(true).await;
        rt.sleep(Duration::from_millis(150)).await;
        assert!(echo.ended.lock().is_empty(), "it reconnected in time");
        drop(back);
        until(&rt, || *echo.ended.lock() == ["lost"]).await;
        attach(false).await;
    });
}

#[test]
fn server_stops_executing_for_client_that_does_not_read() {
    run(async |rt| {
        let echo = Arc::new(Echo { inline: false, ..Echo::new(1) });
        let net = Net::new(rt.clone());
        let limit = ServerConfig { requests_in_flight_max: 4, ..config(1000) };
        let server = sheen_rpc::Server::with_config(net, limit);
        server.add::<Ost>(TARGET, echo.clone());
        let addr = server.listen(([127, 0, 0, 1], 0).into()).await.unwrap();
        let client = Net::new(rt.clone());
        let Connection { sender, mut receiver } = client.connect(addr).await.unwrap();
        receiver.handshaken();
        sender.post(hello("deaf", "ost")).unwrap();
        let request = |xid, request: &ost::Request, bulk| {
            let body: Bytes = frame::to_body(request).unwrap().into();
            Frame { body, bulk, ..Frame::new(Kind::Request, xid) }
        };
        sender.post(request(1, &write(), data(1 << 20, 3))).unwrap();
        until(&rt, || echo.executed() == 1).await;
        for xid in 2..=200 {
            sender.post(request(xid, &read(), Bulk::new())).unwrap();
        }
        // As much as the queue and the socket's buffers hold, and no more.
        let mut before = 0;
        while before != echo.executed() {
            before = echo.executed();
            rt.sleep(Duration::from_millis(100)).await;
        }
        assert!((30..100).contains(&before), "{before} of 200 executed");
        receiver.recv().await.unwrap();
        for _ in 1..=200 {
            let reply = receiver.recv().await.unwrap();
            assert_eq!(reply.header.status, 0);
        }
        assert_eq!(echo.executed(), 200);
    });
}
