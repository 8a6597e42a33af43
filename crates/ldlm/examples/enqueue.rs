//! Time to grant and cancel a lock on the server's side, on one core. `bench/calls.sh` runs it.
//!
//! "Among n" has n other locks on the same object. Locks are granted and cancelled at random places
//! there, so that no path through the tree stays in the processor's cache.

#![allow(clippy::panic, reason = "a measurement ends with its first error")]

use sheen_ldlm::{Namespace, Tunables};
use sheen_rt::Instant;
use sheen_wire::{
    Fid,
    ldlm::{Cookie, Enqueue, Enqueued, Flags, Mode, Policy, Resource, bits},
};

#[path = "../../../bench/calls/rounds.rs"]
mod rounds;

const BLOCK: u64 = 1 << 20;
/// Locks of a round.
const CALLS: u32 = 500_000;
const GOAL: &str = "≤ 1 µs";

struct Bench {
    ns: Namespace,
    now: Instant,
    cookie: u64,
    random: u64,
}

impl Bench {
    fn new() -> Bench {
        Bench { ns: Namespace::new(Tunables::default(), 1), now: Instant::ZERO, cookie: 0, random: 1 }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (self.random >> 33) % below
    }

    fn enqueue(&mut self, client: u64, resource: Resource, mode: Mode, policy: Policy, no_expand: bool) -> Enqueued {
        self.cookie += 1;
        let ask = Enqueue::new(resource, mode, policy, Cookie(self.cookie));
        let ask = Enqueue { flags: Flags { no_expand, ..Flags::default() }, ..ask };
        self.ns.enqueue(self.now, client, &ask, &mut Vec::new())
    }

    /// Enqueues and cancels the locks that `next` returns.
    fn run(&mut self, name: &str, mut next: impl FnMut(&mut Bench) -> (Resource, Mode, Policy, bool)) {
        let mut actions = Vec::new();
        rounds::print(&format!("lock and cancel: {name}"), GOAL, CALLS, || {
            for _ in 0..CALLS {
                let (resource, mode, policy, no_expand) = next(self);
                match self.enqueue(1, resource, mode, policy, no_expand) {
                    Enqueued::Granted { id, .. } => self.ns.cancel(self.now, 1, &[id], &mut actions),
                    other => panic!("{name}: {other:?}"),
                }
            }
        });
    }
}

fn main() {
    let object = Resource::extent(Fid::new(1, 1));
    let block = |n: u64| Policy::extent(n * BLOCK, (n + 1) * BLOCK - 1);

    Bench::new().run("the only one of an object", |_| (object, Mode::Pw, block(5), false));
    Bench::new().run("the only one of an inode", |b| {
        let inode = Resource::bits(Fid::new(2, b.random(1 << 20) as u32));
        (inode, Mode::Pr, Policy::bits(bits::LOOKUP), false)
    });
    let mut many = Bench::new();
    for n in 0..100_000 {
        many.enqueue(1, object, Mode::Pw, block(2 * n), true);
    }
    many.run("among 100,000 of an object, ascending", |b| {
        (object, Mode::Pw, block(2 * (b.cookie % 100_000) + 1), true)
    });
    many.run("among 100,000 of an object, random", |b| (object, Mode::Pw, block(2 * b.random(100_000) + 1), true));
    many.run("the same, and the lock grows", |b| (object, Mode::Pw, block(2 * b.random(100_000) + 1), false));
}
