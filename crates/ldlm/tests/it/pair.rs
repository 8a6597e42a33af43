//! Server and clients over a network that reorders and duplicates messages. No two clients ever
//! believe that they hold conflicting locks. When the network calms down, everything finishes.
//!
//! A client holds a lock from `granted` until it calls `cancelled`, and all of it until it calls
//! `converted`.

use proptest::prelude::*;
use sheen_ldlm::{
    Action, Namespace, Tunables,
    client::{self, Locks},
};
use sheen_rt::Instant;
use sheen_wire::{
    Fid,
    ldlm::{self, Convert, Cookie, Enqueue, Enqueued, LockId, Mode, Policy, Resource},
};

const CLIENTS: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Message {
    Enqueue { client: usize, ask: Enqueue },
    Cancel { client: usize, id: LockId },
    Granted { client: usize, cookie: Cookie, id: LockId, mode: Mode, policy: Policy },
    Convert { client: usize, id: LockId, bits: u64 },
    Block { client: usize, cookie: Cookie, id: LockId, wanted: Policy },
}

#[derive(Clone, Debug)]
enum Step {
    /// A client wants to use a resource.
    Want { client: usize, bits: bool, mode: usize, start: u64, len: u64 },
    /// A user releases its reference.
    Done { client: usize, n: usize },
    /// A user stops waiting.
    Abandon { client: usize, n: usize },
    /// A flush ends.
    Flushed { client: usize, n: usize },
    /// A client cancels unused locks.
    Shrink { client: usize },
    /// A message arrives; it may arrive again.
    Deliver { n: usize, again: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let client = 0..CLIENTS;
    let n = any::<usize>;
    prop_oneof![
        4 => (client.clone(), any::<bool>(), 1usize..5, 0u64..8, 1u64..5)
            .prop_map(|(client, bits, mode, start, len)| Step::Want { client, bits, mode, start, len }),
        4 => (client.clone(), n()).prop_map(|(client, n)| Step::Done { client, n }),
        1 => (client.clone(), n()).prop_map(|(client, n)| Step::Abandon { client, n }),
        4 => (client.clone(), n()).prop_map(|(client, n)| Step::Flushed { client, n }),
        1 => client.prop_map(|client| Step::Shrink { client }),
        9 => (n(), prop::bool::weighted(0.2)).prop_map(|(n, again)| Step::Deliver { n, again }),
    ]
}

struct Client {
    locks: Locks,
    /// References held by users.
    using: Vec<Cookie>,
    /// Requests whose users still wait.
    pending: Vec<Cookie>,
    /// With the bits that remain.
    flushing: Vec<(Cookie, u64)>,
}

struct World {
    ns: Namespace,
    clients: Vec<Client>,
    network: Vec<Message>,
    now: Instant,
}

fn resources() -> [Resource; 2] {
    [Resource::extent(Fid::new(1, 1)), Resource::bits(Fid::new(1, 1))]
}

/// Takes the n-th of a list, modulo its length.
fn take<T>(list: &mut Vec<T>, n: usize) -> Option<T> {
    (!list.is_empty()).then(|| list.remove(n % list.len()))
}

impl World {
    fn new() -> World {
        let client = |_| Client {
            locks: Locks::new(client::Tunables { lru_size: 2, ..client::Tunables::default() }),
            using: Vec::new(),
            pending: Vec::new(),
            flushing: Vec::new(),
        };
        let ns = Namespace::new(Tunables::default(), 4);
        World { ns, clients: (0..CLIENTS).map(client).collect(), network: Vec::new(), now: Instant::from_nanos(1) }
    }

    fn apply(&mut self, step: Step) {
        self.now += std::time::Duration::from_millis(1);
        let mut actions = Vec::new();
        let acted = match step {
            Step::Want { client, bits, mode, start, len } => {
                self.want(client, bits, Mode::ALL[mode], start, len);
                client
            }
            Step::Done { client, n } => {
                let c = &mut self.clients[client];
                if let Some(cookie) = take(&mut c.using, n) {
                    c.locks.release(self.now, cookie, &mut actions);
                }
                client
            }
            Step::Abandon { client, n } => {
                let c = &mut self.clients[client];
                if let Some(cookie) = take(&mut c.pending, n) {
                    c.locks.failed(cookie, &mut actions);
                }
                client
            }
            Step::Flushed { client, n } => {
                let c = &mut self.clients[client];
                if let Some((cookie, bits)) = take(&mut c.flushing, n) {
                    // Some of the locks that could be converted are cancelled all the same.
                    if bits != 0 && (n % 4 != 0) {
                        let mode = c.locks.held(cookie).expect("flushing").mode;
                        let id = c.locks.converted(self.now, cookie, mode, Policy::bits(bits)).expect("a part");
                        self.network.push(Message::Convert { client, id, bits });
                        let later = c.locks.supersedes(cookie);
                        self.network.extend(later.into_iter().map(|id| Message::Cancel { client, id }));
                        self.check();
                        return;
                    }
                    let now = c.locks.cancelled(cookie);
                    let later = c.locks.take_cancels(1);
                    self.network.extend(now.into_iter().chain(later).map(|id| Message::Cancel { client, id }));
                }
                client
            }
            Step::Shrink { client } => {
                self.clients[client].locks.shrink(self.now, &mut actions);
                client
            }
            Step::Deliver { n, again } => {
                let Some(message) = take(&mut self.network, n) else { return };
                if again {
                    self.network.push(message);
                }
                self.deliver(message, &mut actions)
            }
        };
        self.client_actions(acted, &actions);
        self.check();
    }

    fn want(&mut self, client: usize, bits: bool, mode: Mode, start: u64, len: u64) {
        let c = &mut self.clients[client];
        let (resource, policy) = if bits {
            (resources()[1], Policy::bits(1 + (start * 3 + len) % 7))
        } else {
            (resources()[0], Policy::extent(start * 4096, (start + len) * 4096 - 1))
        };
        if let Some(held) = c.locks.matching(resource, mode, &policy) {
            assert!(held.mode.covers(mode) && held.policy.contains(&policy));
            c.using.push(held.cookie);
        } else {
            let cookie = c.locks.begin(resource, mode, policy);
            c.pending.push(cookie);
            self.network.push(Message::Enqueue { client, ask: Enqueue::new(resource, mode, policy, cookie) });
        }
    }

    /// Returns the client that handled the message, if it was for a client.
    fn deliver(&mut self, message: Message, actions: &mut Vec<client::Action>) -> usize {
        let mut answers = Vec::new();
        match message {
            Message::Enqueue { client, ask } => {
                match self.ns.enqueue(self.now, client as u64 + 1, &ask, &mut answers) {
                    Enqueued::Granted { id, mode, policy } => {
                        self.network.push(Message::Granted { client, cookie: ask.cookie, id, mode, policy });
                    }
                    Enqueued::Waiting { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            Message::Cancel { client, id } => self.ns.cancel(self.now, client as u64 + 1, &[id], &mut answers),
            Message::Convert { client, id, bits } => {
                // Late, or a duplicate.
                let _ = self.ns.convert(self.now, client as u64 + 1, id, Convert::Bits(bits), &mut answers);
            }
            Message::Granted { client, cookie, id, mode, policy } => {
                let c = &mut self.clients[client];
                if c.locks.granted(cookie, id, mode, policy, actions) {
                    c.pending.retain(|p| *p != cookie);
                    c.using.push(cookie);
                    let later = c.locks.supersedes(cookie);
                    self.network.extend(later.into_iter().map(|id| Message::Cancel { client, id }));
                }
                return client;
            }
            Message::Block { client, cookie, id, wanted } => {
                self.clients[client].locks.blocked(cookie, id, &wanted, actions);
                return client;
            }
        }
        for answer in answers {
            self.network.push(match answer {
                Action::Grant { client, cookie, id, mode, policy } => {
                    Message::Granted { client: client as usize - 1, cookie, id, mode, policy }
                }
                Action::Block { client, cookie, id, policy, .. } => {
                    Message::Block { client: client as usize - 1, cookie, id, wanted: policy }
                }
                other => panic!("{other:?}"),
            });
        }
        0
    }

    fn client_actions(&mut self, client: usize, actions: &[client::Action]) {
        let c = &mut self.clients[client];
        for action in actions {
            match *action {
                client::Action::Flush { cookie, spare, .. } => {
                    assert!(c.flushing.iter().all(|(other, _)| *other != cookie), "flushed twice");
                    assert!(!c.using.contains(&cookie), "flushed while in use");
                    c.flushing.push((cookie, spare));
                }
                client::Action::Converted { id, bits } => {
                    self.network.push(Message::Convert { client, id, bits });
                }
                client::Action::Cancel { id } => self.network.push(Message::Cancel { client, id }),
            }
        }
    }

    fn check(&self) {
        for resource in resources() {
            let held: Vec<_> = self
                .clients
                .iter()
                .enumerate()
                .flat_map(|(i, c)| c.locks.resource_locks(resource).into_iter().map(move |h| (i, h)))
                .collect();
            for (i, (a, x)) in held.iter().enumerate() {
                for (b, y) in &held[i + 1..] {
                    let conflict = ldlm::conflict(x.mode, &x.policy, y.mode, &y.policy);
                    assert!(!conflict, "client {a} holds {x:?}, client {b} holds {y:?}");
                }
            }
        }
    }

    /// The network delivers, users finish, and no client starts a new request.
    fn finish(&mut self) {
        for _ in 0..100_000 {
            if !self.network.is_empty() {
                self.apply(Step::Deliver { n: 0, again: false });
            } else if let Some(client) = self.clients.iter().position(|c| !c.using.is_empty()) {
                self.apply(Step::Done { client, n: 0 });
            } else if let Some(client) = self.clients.iter().position(|c| !c.flushing.is_empty()) {
                self.apply(Step::Flushed { client, n: 0 });
            } else if let Some(client) = self.clients.iter().position(|c| c.locks.stats().lock_unused_count > 0) {
                let mut actions = Vec::new();
                self.clients[client].locks.clear(&mut actions);
                self.client_actions(client, &actions);
            } else if let Some(client) = self.clients.iter().position(|c| c.locks.cancels_queued() > 0) {
                let ids = self.clients[client].locks.take_cancels(usize::MAX);
                self.network.extend(ids.into_iter().map(|id| Message::Cancel { client, id }));
            } else {
                break;
            }
        }
        for c in &self.clients {
            assert!(c.pending.is_empty(), "still waits: {:?}", c.pending);
            let stats = c.locks.stats();
            assert_eq!((stats.lock_count, stats.lock_unused_count, stats.pending), (0, 0, 0));
        }
        assert_eq!(self.ns.stats().lock_count(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn clients_never_hold_conflicting_locks_over_a_reordering_network(steps in prop::collection::vec(step(), 1..200)) {
        let mut world = World::new();
        for step in steps {
            world.apply(step);
        }
        world.finish();
    }
}
