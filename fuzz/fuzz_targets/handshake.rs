//! The handshake of a connection, with a peer that knows no key and proves nothing. A server must
//! not admit it, and a client must not accept it. Both must come to an end.
#![no_main]

use std::{io, net::SocketAddr, sync::Arc};

use sheen_keys::{Key, Keyring, Witness};
use sheen_lnet::{Applying, Frame, Issuing, Keys, Net, Sender};
use sheen_rt::{
    Rt,
    sim::{Sim, SimConfig},
};
use sheen_wire::{
    auth::{Auth, ClusterId, Flavor, Route, User},
    frame::{Kind, to_body},
};

const CLUSTER: ClusterId = ClusterId(7);

/// Believes nobody.
#[derive(Debug)]
struct Doubt;

impl Witness for Doubt {
    fn attest(&self, _text: &str) -> io::Result<String> {
        Ok("MUNGE:".to_owned())
    }

    fn check(&self, _credential: &str, _text: &str) -> io::Result<u32> {
        Err(io::ErrorKind::InvalidData.into())
    }

    fn user(&self, _uid: u32) -> io::Result<Option<User>> {
        Ok(None)
    }
}

fn net(rt: &Rt, keys: Vec<Key>) -> Arc<Net> {
    let applying = Some(Applying { witness: Arc::new(Doubt), servers: vec![0] });
    let issuing = Some(Issuing { witness: Arc::new(Doubt), hosts: true });
    Net::trusting(rt.clone(), Keys { applying, issuing, ..Keys::new(Keyring::of(keys)) }.into())
}

/// Sends the pieces of the input as messages. A piece that begins with 0 is a `valid` first
/// message.
fn send(sender: &Sender, data: &[u8], valid: impl Fn(&[u8]) -> Auth) {
    for piece in data.split(|byte| *byte == 0xff) {
        let Some((first, rest)) = piece.split_first() else { continue };
        let body = if *first == 0 { to_body(&valid(rest)).expect("encodes") } else { rest.to_vec() };
        let kind = if *first == 1 { Kind::Hello } else { Kind::Auth };
        let mut frame = Frame { body: body.into(), ..Frame::new(kind, 0) };
        frame.header.status = if *first == 2 { i32::from(*rest.first().unwrap_or(&1)) } else { 0 };
        if sender.post(frame).is_err() {
            break;
        }
    }
    sender.finish();
}

/// A client without a key against a server.
async fn attack_server(rt: Rt, data: &[u8]) {
    let server = net(&rt, vec![Key::new(CLUSTER, 1, [1; 32], 0)]);
    let acceptor = server.listen(([127, 0, 0, 1], 0).into()).await.expect("a port");
    let connection = Net::new(rt.clone()).connect(acceptor.local_addr()).await.expect("a connection");
    let mut accepted = acceptor.accept().await;
    let route = Route { client: accepted.sender.peer(), server: acceptor.local_addr() };
    send(&connection.sender, data, |_| Auth::Begin { flavors: Flavor::Null.and_more(), route });
    assert!(server.admit(&accepted.sender, &mut accepted.receiver).await.is_err(), "admitted without a key");
}

/// A server without a key against a client, which has the key or none.
async fn attack_client(rt: Rt, data: &[u8], has_key: bool) {
    let acceptor = Net::new(rt.clone()).listen(([127, 0, 0, 1], 0).into()).await.expect("a port");
    let addr: SocketAddr = acceptor.local_addr();
    let key = has_key.then(|| Key::new(CLUSTER, 1, [1; 32], 0));
    let client = net(&rt, key.into_iter().collect());
    let connecting = rt.spawn("client", async move { client.connect(addr).await.is_ok() });
    let accepted = acceptor.accept().await;
    send(&accepted.sender, data, |noise| Auth::Challenge {
        cluster: CLUSTER,
        keys: vec![sheen_wire::auth::KeyId(1)],
        flavor: Flavor::Null.bit(),
        noise: noise.to_vec(),
        issues: !has_key,
    });
    assert!(!connecting.await.expect("it ends"), "accepted a server without a key");
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((which, data)) = data.split_first() else { return };
    let sim = Sim::new(u64::from(*which), SimConfig::default());
    let rt = sim.rt(1);
    let ran = match which % 3 {
        0 => sim.run(attack_server(rt, data)),
        1 => sim.run(attack_client(rt, data, true)),
        _ => sim.run(attack_client(rt, data, false)),
    };
    ran.expect("both ends come to an end");
});
