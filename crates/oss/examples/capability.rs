//! Time of an OST's checks of capabilities, on one core. `bench/calls.sh` runs it.
//!
//! The OST checks the proof of each capability that a client presents, and stores its rights. A
//! later request then costs a look-up for each of its objects. Requests come for random objects, so
//! that the look-ups find little in the processor's cache.

#![allow(clippy::unwrap_used, reason = "a measurement ends with its first error")]

use sheen_keys::{Key, Keyring};
use sheen_lnet::Nid;
use sheen_rpc::Export;
use sheen_wire::{
    Fid,
    auth::{ClusterId, Role},
    ost::{CAPABILITY_PURPOSE, Capability, Part, Request, rights},
};

// The code of the OST, which is private to its crate.
#[path = "../src/capabilities.rs"]
#[allow(dead_code, reason = "the OST calls the other methods")]
mod capabilities;

#[path = "../../../bench/calls/rounds.rs"]
mod rounds;

use capabilities::{Capabilities, Held};

/// Goal for each step.
const GOAL: &str = "< 1 µs";
/// Clients with capabilities.
const CLIENTS: u64 = 16;
/// Capabilities of each client. The OST holds at most 65,536 for one.
const OBJECTS: u32 = 1 << 16;
const FSNAME: &str = "sheen";
/// In seconds since 1970.
const EXPIRES: i64 = i64::MAX;

fn main() {
    let signer = Keyring::of(vec![Key::new(ClusterId(1), 1, [7; 32], 0)]).signer(CAPABILITY_PURPOSE);
    let holder = Role::Host(None).holder().unwrap();
    let message = |object| Capability::message(FSNAME, &holder, object, rights::READ, EXPIRES);
    let capability = |oid| {
        let object = Fid::new(1, oid);
        let proof = signer.sign(&message(object)).next().unwrap();
        Capability { object, rights: rights::READ, expires: EXPIRES, proof }
    };
    let presented: Vec<Capability> = (0..OBJECTS).map(capability).collect();
    rounds::print("proof of a capability", GOAL, OBJECTS, || {
        assert!(presented.iter().all(|one| signer.is_valid(&message(one.object), &one.proof)));
    });

    let held = Capabilities::default();
    let clients: Vec<_> = (1..=CLIENTS).map(|id| Export::new("client", id, 0, Nid::Lo)).collect();
    for client in &clients {
        let all = presented.iter().map(|one| (one.object, Held { rights: one.rights, expires: one.expires }));
        held.hold(client, all, 0);
    }
    let read = |n: u32| {
        // An odd factor: each object comes once, and neighbours come far from each other.
        let object = Fid::new(1, n.wrapping_mul(0x9e37_79b1) % OBJECTS);
        Request::Read { parts: vec![Part { object, offset: 0, len: 4096 }] }
    };
    let requests: Vec<Request> = (0..OBJECTS).map(read).collect();
    rounds::print("rights of a request of one object", GOAL, OBJECTS, || {
        for (request, client) in requests.iter().zip(clients.iter().cycle()) {
            held.check(client, request, 0).unwrap();
        }
    });
}
