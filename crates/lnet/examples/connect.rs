//! Time of a connection over loopback, with and without authentication. `bench/calls.sh` runs it.

#![allow(clippy::unwrap_used, reason = "a measurement ends with its first error")]

use std::{sync::Arc, time::Duration};

use sheen_keys::{Key, Keyring};
use sheen_lnet::{Connection, Frame, Keys, Net, Trust};
use sheen_rt::{RealOptions, Rt};
use sheen_wire::{auth::ClusterId, frame::Kind};

#[path = "../../../bench/calls/rounds.rs"]
mod rounds;

/// Connections of a round.
const CONNECTIONS: u32 = 1000;

fn main() {
    let (runtime, rt) = Rt::real(RealOptions::default()).unwrap();
    let key = Key::new(ClusterId(1), 1, [7; 32], 0);
    let keyring = Arc::new(Keyring::of(vec![key]));
    let kinds = [
        ("connection over loopback, without authentication", "", Trust::All),
        ("connection over loopback, with authentication", "< 3 ms", Keys::new(keyring).into()),
    ];
    for (name, goal, trust) in kinds {
        rounds::print(name, goal, CONNECTIONS, || runtime.block_on(round(&rt, trust.clone())));
    }
    runtime.shutdown(Duration::from_secs(1));
}

/// Opens connections one after the other. A connection ends with the server's reply to a frame.
async fn round(rt: &Rt, trust: Trust) {
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
    for xid in 0..CONNECTIONS.into() {
        let mut connection = net.connect(addr).await.unwrap();
        connection.sender.post(Frame::new(Kind::Hello, xid)).unwrap();
        connection.receiver.recv().await.unwrap();
    }
    serving.abort();
}
