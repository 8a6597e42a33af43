//! Glimpses over random histories: clients write into caches under locks, cancel locks, lose and
//! renew their connections. A client that asks for the object's size learns of all data written
//! before its request.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sheen_ldlm::{Action, ClientId, Namespace, Ticket, Tunables};
use sheen_rt::Instant;
use sheen_wire::{
    Fid,
    ldlm::{Cookie, Enqueue, Enqueued, Flags, LockId, Mode, Policy, Resource},
    ost::ObjectAttr,
};

const CLIENTS: ClientId = 3;

#[derive(Clone, Debug)]
enum Step {
    /// Takes a lock, if no lock conflicts.
    Lock {
        client: ClientId,
        block: u64,
    },
    /// Makes the object larger than ever before, in the cache under one of its locks.
    Write {
        client: ClientId,
        n: usize,
    },
    /// Flushes the data under a lock, and cancels the lock.
    Cancel {
        client: ClientId,
        n: usize,
    },
    Glimpse {
        asker: ClientId,
    },
    Withdraw {
        n: usize,
    },
    /// A message arrives.
    Deliver {
        n: usize,
    },
    /// The connection breaks and is renewed. Callbacks on their way are lost. Requests on their way
    /// are resent, though they may have arrived.
    Reconnect {
        client: ClientId,
    },
    Evict {
        client: ClientId,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let (client, n) = (|| 1..=CLIENTS, any::<usize>);
    prop_oneof![
        6 => (client(), 0u64..8).prop_map(|(client, block)| Step::Lock { client, block }),
        8 => (client(), n()).prop_map(|(client, n)| Step::Write { client, n }),
        3 => (client(), n()).prop_map(|(client, n)| Step::Cancel { client, n }),
        6 => client().prop_map(|asker| Step::Glimpse { asker }),
        1 => n().prop_map(|n| Step::Withdraw { n }),
        14 => n().prop_map(|n| Step::Deliver { n }),
        2 => client().prop_map(|client| Step::Reconnect { client }),
        1 => client().prop_map(|client| Step::Evict { client }),
    ]
}

#[derive(Clone, Copy, Debug)]
enum Message {
    Glimpse(ClientId, LockId),
    Block(ClientId, LockId),
    Answer(ClientId, LockId, Option<u64>),
    Cancel(ClientId, LockId),
}

/// A waiter for an object's size.
#[derive(Debug)]
struct Asking {
    /// Answers to come.
    left: usize,
    /// Per client, how far it had written when the waiter asked.
    truth: Vec<(ClientId, u64)>,
    heard: u64,
}

struct World {
    ns: Namespace,
    now: Instant,
    cookie: u64,
    /// Per client: its locks, and how far it wrote under each.
    caches: BTreeMap<ClientId, Vec<(LockId, u64)>>,
    network: Vec<Message>,
    /// Requests that arrived, perhaps without a reply to the client.
    arrived: Vec<Message>,
    asking: BTreeMap<Ticket, Asking>,
    /// The object's size as the server knows it, and the largest that it ever had.
    known: u64,
    size: u64,
}

fn object() -> Resource {
    Resource::extent(Fid::new(1, 1))
}

/// Returns the n-th index of a list, modulo its length.
fn pick<T>(list: &[T], n: usize) -> Option<usize> {
    (!list.is_empty()).then(|| n % list.len())
}

impl World {
    fn new() -> World {
        World {
            ns: Namespace::new(Tunables::default(), 9),
            now: Instant::from_nanos(1),
            cookie: 0,
            caches: (1..=CLIENTS).map(|client| (client, Vec::new())).collect(),
            network: Vec::new(),
            arrived: Vec::new(),
            asking: BTreeMap::new(),
            known: 0,
            size: 0,
        }
    }

    fn cache(&mut self, client: ClientId) -> &mut Vec<(LockId, u64)> {
        self.caches.get_mut(&client).expect("there")
    }

    fn apply(&mut self, step: Step) {
        let mut actions = Vec::new();
        match step {
            Step::Lock { client, block } => {
                self.cookie += 1;
                let range = Policy::extent(block * 4096, block * 4096 + 4095);
                let ask = Enqueue::new(object(), Mode::Pw, range, Cookie(self.cookie));
                let flags = Flags { no_expand: true, nowait: true, ..Flags::default() };
                let answer = self.ns.enqueue(self.now, client, &Enqueue { flags, ..ask }, &mut actions);
                if let Enqueued::Granted { id, .. } = answer {
                    self.cache(client).push((id, 0));
                }
            }
            Step::Write { client, n } => {
                if let Some(n) = pick(&self.caches[&client], n) {
                    self.size += 1;
                    let size = self.size;
                    self.cache(client)[n].1 = size;
                }
            }
            Step::Cancel { client, n } => {
                if let Some(n) = pick(&self.caches[&client], n) {
                    let lock = self.caches[&client][n].0;
                    self.cancel(client, lock);
                }
            }
            Step::Glimpse { asker } => self.glimpse(asker, &mut actions),
            Step::Withdraw { n } => {
                let tickets: Vec<Ticket> = self.asking.keys().copied().collect();
                if let Some(n) = pick(&tickets, n) {
                    self.asking.remove(&tickets[n]);
                    self.ns.glimpse_withdrawn(object(), tickets[n]);
                }
            }
            Step::Deliver { n } => {
                if let Some(n) = pick(&self.network, n) {
                    let message = self.network.remove(n);
                    self.deliver(message, &mut actions);
                }
            }
            Step::Reconnect { client } => {
                self.network.retain(|m| !matches!(m, Message::Glimpse(c, _) | Message::Block(c, _) if *c == client));
                let own = |m: &mut Message| matches!(m, Message::Answer(c, ..) | Message::Cancel(c, _) if *c == client);
                self.network.extend(self.arrived.extract_if(.., own));
                self.ns.resend(self.now, client, &mut actions);
            }
            Step::Evict { client } => {
                // Its dirty data is lost.
                self.cache(client).clear();
                self.asking.values_mut().for_each(|asking| asking.truth.retain(|(of, _)| *of != client));
                self.ns.evict(self.now, client, &mut actions);
            }
        }
        self.carry_out(actions);
    }

    fn glimpse(&mut self, asker: ClientId, actions: &mut Vec<Action>) {
        self.cookie += 1;
        let ticket = self.cookie;
        let others = self.caches.iter().filter(|(client, _)| **client != asker);
        let size = |locks: &[(LockId, u64)]| locks.iter().map(|(_, size)| *size).max().unwrap_or(0);
        let mut truth: Vec<(ClientId, u64)> = others.map(|(client, locks)| (*client, size(locks))).collect();
        truth.push((0, self.known));
        let left = self.ns.glimpse(self.now, object(), asker, 0, ticket, actions);
        let asking = Asking { left, truth, heard: 0 };
        if left == 0 {
            self.check(&asking);
        } else {
            self.asking.insert(ticket, asking);
        }
    }

    fn check(&self, asking: &Asking) {
        let got = asking.heard.max(self.known);
        assert!(asking.truth.iter().all(|(_, size)| *size <= got), "{asking:?} got {got}");
        assert!(got <= self.size, "{asking:?} got {got}, which no client wrote");
    }

    /// The client flushes, then sends the cancel.
    fn cancel(&mut self, client: ClientId, lock: LockId) {
        let cache = self.cache(client);
        let Some(n) = cache.iter().position(|(id, _)| *id == lock) else { return };
        let (_, size) = cache.remove(n);
        self.known = self.known.max(size);
        self.network.push(Message::Cancel(client, lock));
    }

    fn deliver(&mut self, message: Message, actions: &mut Vec<Action>) {
        match message {
            Message::Glimpse(client, id) => {
                let size = self.caches[&client].iter().map(|(_, size)| *size).max();
                self.network.push(Message::Answer(client, id, size));
            }
            Message::Block(client, id) => {
                self.cancel(client, id);
            }
            Message::Answer(client, id, size) => {
                self.arrived.push(message);
                let answer = size.map(|size| ObjectAttr { size, ..ObjectAttr::default() });
                self.ns.glimpse_answered(self.now, client, id, answer, actions);
            }
            Message::Cancel(client, id) => {
                self.arrived.push(message);
                self.ns.cancel(self.now, client, &[id], actions);
            }
        }
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Glimpse { client, id, .. } => self.network.push(Message::Glimpse(client, id)),
                Action::Block { client, id, .. } => self.network.push(Message::Block(client, id)),
                Action::Glimpsed { ticket, answer } => {
                    // Withdrawn tickets get no answer.
                    let asking = self.asking.get_mut(&ticket).expect("waits, and has no answer yet");
                    asking.left -= 1;
                    asking.heard = asking.heard.max(answer.map_or(0, |a| a.size));
                    if asking.left == 0 {
                        let asking = self.asking.remove(&ticket).expect("was there");
                        self.check(&asking);
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        let through = |m: &Message| if let Message::Glimpse(_, id) = m { Some(*id) } else { None };
        let mut callbacks: Vec<LockId> = self.network.iter().filter_map(through).collect();
        let all = callbacks.len();
        callbacks.sort_unstable();
        callbacks.dedup();
        assert_eq!(callbacks.len(), all, "one at a time");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]
    #[test]
    fn glimpse_returns_all_sizes_written_before_the_request(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for step in steps {
            world.apply(step);
        }
        // All messages arrive. Then no waiter is left, and no client had to be evicted.
        while !world.network.is_empty() {
            world.apply(Step::Deliver { n: 0 });
        }
        prop_assert!(world.asking.is_empty(), "{:?}", world.asking);
        prop_assert_eq!(world.ns.next_deadline(), None);
    }
}
