//! Cost of a connection over loopback, with and without authentication, as the median of five
//! rounds. Run with `cargo run --release -p sheen-lnet --example connect`.

#![allow(clippy::unwrap_used, reason = "a measurement ends with its first error")]

use std::{sync::Arc, time::Duration};

use sheen_keys::{Key, Keyring};
use sheen_lnet::{Connection, Frame, Keys, Net, Trust};
use sheen_rt::{RealOptions, Rt};
use sheen_wire::{auth::ClusterId, frame::Kind};

const ROUNDS: usize = 5;
const CONNECTIONS: u32 = 1000;

fn main() {
    let (runtime, rt) = Rt::real(RealOptions::default()).unwrap();
    let key = Key::new(ClusterId(1), 1, [7; 32], 0);
    let keyring = Arc::new(Keyring::of(vec![key]));
    let trusts = [("all", Trust::All), ("keys", Keys::new(keyring).into())];
    let mut medians = Vec::new();
    for (name, trust) in trusts {
        let mut rounds: Vec<Duration> =
            (0..ROUNDS).map(|_| runtime.block_on(round(&rt, trust.clone())) / CONNECTIONS).collect();
        rounds.sort();
        let median = rounds[ROUNDS / 2];
        println!("{name:4}  {:7.1} µs for each connection", median.as_secs_f64() * 1e6);
        medians.push(median);
    }
    println!("added {:7.1} µs", (medians[1].as_secs_f64() - medians[0].as_secs_f64()) * 1e6);
    runtime.shutdown(Duration::from_secs(1));
}

/// Opens connections one after the other. A connection ends with the server's reply to a frame.
async fn round(rt: &Rt, trust: Trust) -> Duration {
    let net = Net::trusting(rt.clone(), trust);
    let acceptor = net.listen(([127, 0, 0, 1], 0).into()).await.unwrap();
    let addr = acceptor.local_addr();
    let (server, tasks) = (net.clone(), rt.clone());
    let serving = rt.spawn("serve", async move {
        loop {
            let Connection { sender, mut receiver } = acceptor.accept().await;
            let server = server.clone();
            drop(tasks.spawn("admit", async move {
                let first = server.admit(&sender, &mut receiver).await.unwrap();
                sender.post(Frame::new(Kind::Welcome, first.header.xid)).unwrap();
                let _ = receiver.recv().await;
            }));
        }
    });
    let began = rt.now();
    for xid in 0..CONNECTIONS.into() {
        let mut connection = net.connect(addr).await.unwrap();
        connection.sender.post(Frame::new(Kind::Hello, xid)).unwrap();
        connection.receiver.recv().await.unwrap();
    }
    let took = rt.now().since(began);
    serving.abort();
    took
}
