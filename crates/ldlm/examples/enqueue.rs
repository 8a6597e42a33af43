//! How many locks a second the server's side makes and cancels, on one core:
//! `cargo run --release -p sheen-ldlm --example enqueue`.
//!
//! Each figure is for an enqueue and its cancel. "Among n" has n other locks on the same object.
//! Locks are made and cancelled at random places, so that no path through the tree stays in the
//! processor's cache.

#![allow(clippy::disallowed_methods, reason = "it measures time")]

use std::time::{Duration, Instant as Clock};

use sheen_ldlm::{Namespace, Tunables};
use sheen_rt::Instant;
use sheen_wire::{
    Fid,
    ldlm::{Cookie, Enqueue, Enqueued, Flags, Mode, Policy, Resource, bits},
};

const BLOCK: u64 = 1 << 20;
const TIME: Duration = Duration::from_secs(1);

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

    /// Enqueues and cancels the locks that `next` returns, for a while.
    fn run(&mut self, name: &str, mut next: impl FnMut(&mut Bench) -> (Resource, Mode, Policy, bool)) {
        let (begin, mut count) = (Clock::now(), 0u64);
        let mut actions = Vec::new();
        while begin.elapsed() < TIME {
            for _ in 0..1000 {
                let (resource, mode, policy, no_expand) = next(self);
                match self.enqueue(1, resource, mode, policy, no_expand) {
                    Enqueued::Granted { id, .. } => self.ns.cancel(self.now, 1, &[id], &mut actions),
                    other => println!("{name}: {other:?}"),
                }
            }
            count += 1000;
        }
        let rate = count as f64 / begin.elapsed().as_secs_f64();
        println!("{name:<58} {:>12.0}/s", rate);
    }
}

fn main() {
    let object = Resource::extent(Fid::new(1, 1));
    let block = |n: u64| Policy::extent(n * BLOCK, (n + 1) * BLOCK - 1);

    Bench::new().run("extent, the only lock of its object", |_| (object, Mode::Pw, block(5), false));
    Bench::new().run("bits, the only lock of its inode", |b| {
        let inode = Resource::bits(Fid::new(2, b.random(1 << 20) as u32));
        (inode, Mode::Pr, Policy::bits(bits::LOOKUP), false)
    });
    let mut many = Bench::new();
    for n in 0..100_000 {
        many.enqueue(1, object, Mode::Pw, block(2 * n), true);
    }
    many.run("extent among 100,000, as asked", |b| (object, Mode::Pw, block(2 * b.random(100_000) + 1), true));
    many.run("extent among 100,000, grown", |b| (object, Mode::Pw, block(2 * b.random(100_000) + 1), false));
    many.run("extent among 100,000, one after another", |b| {
        (object, Mode::Pw, block(2 * (b.cookie % 100_000) + 1), true)
    });
}
