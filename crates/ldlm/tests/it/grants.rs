//! Extent and bits locks over random histories, against rules that are checked by brute force after
//! every step.

use proptest::prelude::*;
use sheen_ldlm::{Action, Info, Namespace, SERVER, Tunables};
use sheen_rt::Instant;
use sheen_wire::{
    Fid,
    ldlm::{self, Convert, Cookie, Enqueue, Enqueued, Flags, LockId, Mode, Policy, Resource},
};

const PAGE: u64 = 4096;

#[derive(Clone, Debug)]
enum Step {
    Extent {
        client: u64,
        mode: usize,
        page: u64,
        pages: u64,
        flags: Flags,
    },
    Group {
        client: u64,
        gid: u64,
    },
    /// The server takes a lock for a client's operation.
    Server {
        spare: u64,
        mode: usize,
        page: u64,
        pages: u64,
    },
    Bits {
        client: u64,
        mode: usize,
        bits: u64,
        try_bits: u64,
    },
    Cancel(usize),
    Downgrade(usize, usize),
    Halve(usize),
    DropBits(usize, u64),
    Evict(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let flags = (prop::bool::weighted(0.2), prop::bool::weighted(0.2)).prop_map(|(no_expand, nowait)| Flags {
        no_expand,
        nowait,
        ..Flags::default()
    });
    prop_oneof![
        8 => (1u64..5, 0usize..6, 0u64..16, 1u64..5, flags)
            .prop_map(|(client, mode, page, pages, flags)| Step::Extent { client, mode, page, pages, flags }),
        1 => (1u64..5, 1u64..3).prop_map(|(client, gid)| Step::Group { client, gid }),
        2 => (1u64..5, 0usize..3, 0u64..16, 1u64..5)
            .prop_map(|(spare, mode, page, pages)| Step::Server { spare, mode, page, pages }),
        5 => (1u64..5, 0usize..6, 0u64..16, 0u64..16)
            .prop_map(|(client, mode, bits, try_bits)| Step::Bits { client, mode, bits, try_bits }),
        8 => any::<usize>().prop_map(Step::Cancel),
        1 => (any::<usize>(), 0usize..6).prop_map(|(n, m)| Step::Downgrade(n, m)),
        1 => any::<usize>().prop_map(Step::Halve),
        1 => (any::<usize>(), 0u64..16).prop_map(|(n, b)| Step::DropBits(n, b)),
        1 => (1u64..5).prop_map(Step::Evict),
    ]
}

fn object() -> Resource {
    Resource::extent(Fid::new(1, 1))
}

fn inode() -> Resource {
    Resource::bits(Fid::new(1, 1))
}

/// A request as the history recorded it.
#[derive(Debug)]
struct Request {
    client: u64,
    /// The client for which the server takes the lock.
    spare: u64,
    id: LockId,
    policy: Policy,
}

struct History {
    ns: Namespace,
    now: Instant,
    cookie: u64,
    /// In the order of arrival, dropped ones included.
    requests: Vec<Request>,
}

impl History {
    fn enqueue(&mut self, client: u64, ask: Enqueue, actions: &mut Vec<Action>) -> Enqueued {
        self.cookie += 1;
        let before = self.ns.resource_locks(ask.resource);
        let ask = Enqueue { cookie: Cookie(self.cookie), ..ask };
        let answer = self.ns.enqueue(self.now, client, &ask, actions);
        match answer {
            Enqueued::Granted { id, mode, policy } => {
                assert_eq!(mode, ask.mode);
                self.check_growth(&before, &ask, &policy);
                self.requests.push(Request { client, spare: SERVER, id, policy: ask.policy });
            }
            Enqueued::Waiting { id } => {
                self.requests.push(Request { client, spare: SERVER, id, policy: ask.policy });
            }
            Enqueued::WouldBlock { by } => {
                assert!(before.iter().any(|l| l.lock == by), "{by:?} is not there");
                assert!(actions.is_empty());
            }
            other => panic!("{other:?}"),
        }
        answer
    }

    /// Checks that a lock granted at once is as large as the rules permit.
    fn check_growth(&self, before: &[Info], ask: &Enqueue, got: &Policy) {
        let (Policy::Extent { start, end, .. }, Policy::Extent { start: s, end: e, .. }) = (ask.policy, *got) else {
            return;
        };
        assert!(s <= start && end <= e);
        if ask.flags.no_expand {
            assert_eq!(*got, ask.policy);
            return;
        }
        let rivals: Vec<_> = before.iter().filter(|l| !Mode::compatible(l.lock.mode, ask.mode)).collect();
        if rivals.len() > 32 || ask.mode == Mode::Group {
            return;
        }
        let align = 1u64 << (start | (end + 1)).trailing_zeros();
        let near = |l: &&&Info| (e + 1..=e + align).contains(&l.lock.policy.range().0);
        assert!(e == u64::MAX || rivals.iter().any(|l| near(&l)), "{ask:?} got {got:?} beside {rivals:?}");
        if rivals.iter().all(|l| l.lock.policy.range().0 > end) && rivals.iter().filter(|l| !l.granted).count() <= 4 {
            assert_eq!(s, 0, "{ask:?} got {got:?} beside {rivals:?}");
        }
    }

    fn pick(&self, n: usize) -> Option<(u64, LockId)> {
        let r = self.requests.get(n % self.requests.len().max(1))?;
        Some((r.client, r.id))
    }

    fn check(&self) {
        for resource in [object(), inode()] {
            let locks = self.ns.resource_locks(resource);
            let age = |id: LockId| self.requests.iter().position(|r| r.id == id).expect("was asked for");
            let conflict =
                |a: &Info, b: &Info| ldlm::conflict(a.lock.mode, &a.lock.policy, b.lock.mode, &b.lock.policy);
            // A lock that the server takes for a client does not conflict with that client's locks,
            // nor with those of its group.
            let spares = |a: &Info, b: &Info| {
                let spare = self.requests[age(a.lock.id)].spare;
                spare != SERVER && (spare == b.lock.client || b.lock.mode == Mode::Group)
            };
            for (i, a) in locks.iter().enumerate() {
                let mut reason = false;
                for (j, b) in locks.iter().enumerate().filter(|(j, b)| *j != i && conflict(a, b)) {
                    assert!(
                        !a.granted || !b.granted || spares(a, b) || spares(b, a),
                        "both granted: {a:?} {b:?} ({i} {j})"
                    );
                    let asked = a.asked || a.lock.client == SERVER || spares(b, a);
                    assert!(!a.granted || b.granted || asked, "{a:?} got no blocking callback for {b:?}");
                    reason |= b.granted || age(b.lock.id) < age(a.lock.id);
                }
                assert!(a.granted || reason, "{a:?} waits without a conflict");
            }
        }
    }

    fn apply(&mut self, step: Step, actions: &mut Vec<Action>) {
        match step {
            Step::Extent { client, mode, page, pages, flags } => {
                let policy = Policy::extent(page * PAGE, (page + pages) * PAGE - 1);
                let ask = Enqueue::new(object(), Mode::ALL[mode], policy, Cookie::NONE);
                self.enqueue(client, Enqueue { flags, ..ask }, actions);
            }
            Step::Group { client, gid } => {
                let ask = Enqueue::new(object(), Mode::Group, Policy::group(gid), Cookie::NONE);
                self.enqueue(client, ask, actions);
            }
            Step::Server { spare, mode, page, pages } => {
                let policy = Policy::extent(page * PAGE, (page + pages) * PAGE - 1);
                let ask = Enqueue::new(object(), Mode::ALL[mode], policy, Cookie::NONE);
                let ask = Enqueue { flags: Flags { no_expand: true, ..Flags::default() }, ..ask };
                match self.ns.enqueue_sparing(self.now, spare, &ask, actions) {
                    Enqueued::Granted { id, .. } | Enqueued::Waiting { id } => {
                        self.requests.push(Request { client: SERVER, spare, id, policy });
                    }
                    other => panic!("{other:?}"),
                }
            }
            Step::Bits { client, mode, bits, try_bits } if bits | try_bits != 0 => {
                let ask = Enqueue::new(inode(), Mode::ALL[mode], Policy::Bits { bits, try_bits }, Cookie::NONE);
                self.enqueue(client, ask, actions);
            }
            Step::Bits { .. } => {}
            Step::Cancel(n) => {
                if let Some((client, id)) = self.pick(n) {
                    self.ns.cancel(self.now, client, &[id, id], actions);
                    assert!(self.ns.lock(id).is_none());
                }
            }
            Step::Downgrade(n, mode) => self.convert(n, |_| Convert::Mode(Mode::ALL[mode]), actions),
            Step::Halve(n) => {
                let half = |p: Policy| {
                    let (start, end) = p.range();
                    Convert::Extent { start, end: start + (end - start) / 2 }
                };
                self.convert(n, half, actions);
            }
            Step::DropBits(n, keep) => {
                let keep = |p| {
                    if let Policy::Bits { bits, .. } = p { Convert::Bits(bits & keep) } else { Convert::Bits(keep) }
                };
                self.convert(n, keep, actions);
            }
            Step::Evict(client) => {
                self.ns.evict(self.now, client, actions);
                assert_eq!(self.ns.client_locks(client), 0);
            }
        }
    }

    fn convert(&mut self, n: usize, to: impl Fn(Policy) -> Convert, actions: &mut Vec<Action>) {
        let Some((client, id)) = self.pick(n) else { return };
        let Some(info) = self.ns.lock(id) else { return };
        let before = (info.lock.mode, info.lock.policy);
        let result = self.ns.convert(self.now, client, id, to(info.lock.policy), actions);
        let after = self.ns.lock(id).expect("still there").lock;
        assert!(result.is_ok() || (after.mode, after.policy) == before);
    }

    /// Holders cancel all their locks, until no request waits.
    fn finish(&mut self) {
        let mut actions = Vec::new();
        for _ in 0..=self.requests.len() {
            let granted: Vec<(u64, LockId)> = self
                .requests
                .iter()
                .filter(|r| self.ns.lock(r.id).is_some_and(|l| l.granted))
                .map(|r| (r.client, r.id))
                .collect();
            for (client, id) in granted {
                self.ns.cancel(self.now, client, &[id], &mut actions);
                self.check();
            }
        }
        self.now += std::time::Duration::from_secs(1000);
        self.ns.expire(self.now, &mut actions);
        assert_eq!((self.ns.stats().lock_count(), self.ns.stats().resources), (0, 0));
        assert_eq!(self.ns.next_deadline(), None);
        assert!(!actions.iter().any(|a| matches!(a, Action::Evict { .. })));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn conflicting_locks_are_never_granted_together_and_all_waits_end(
        steps in prop::collection::vec(step(), 1..80),
    ) {
        // Adaptive locking changes growth, which is checked here.
        let ns = Namespace::new(Tunables { adaptive: false, ..Tunables::default() }, 1);
        let mut history = History { ns, now: Instant::from_nanos(5_000_000_000), cookie: 0, requests: Vec::new() };
        for step in steps {
            let mut actions = Vec::new();
            history.apply(step, &mut actions);
            for action in &actions {
                if let Action::Grant { id, policy, .. } = action {
                    let asked = history.requests.iter().find(|r| r.id == *id).expect("was asked for");
                    prop_assert!(policy.contains(&asked.policy), "{:?} is not {:?}", policy, asked);
                }
                if let Action::Block { id, .. } = action {
                    let times = actions.iter().filter(|a| matches!(a, Action::Block { id: other, .. } if other == id)).count();
                    prop_assert_eq!(times, 1, "asked twice at once: {:?}", id);
                }
            }
            history.check();
        }
        history.finish();
    }
}
