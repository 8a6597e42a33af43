//! fcntl locks over random histories, against a map from bytes to modes.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sheen_ldlm::{Action, Namespace, Tunables};
use sheen_rt::Instant;
use sheen_wire::{
    Fid,
    ldlm::{Cookie, Enqueue, Enqueued, Flags, Flock, FlockKind, LockId, Mode, Policy, Resource},
};

const BYTES: u64 = 16;
/// Client and owner.
type Owner = (u64, u64);

#[derive(Clone, Debug)]
enum Step {
    Lock { owner: usize, write: bool, start: u64, len: u64, nowait: bool },
    Unlock { owner: usize, start: u64, len: u64 },
    Interrupt(usize),
    Release(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let range = (0..BYTES, 1..BYTES);
    prop_oneof![
        6 => (0usize..5, any::<bool>(), range.clone(), prop::bool::weighted(0.3))
            .prop_map(|(owner, write, (start, len), nowait)| Step::Lock { owner, write, start, len, nowait }),
        4 => (0usize..5, range).prop_map(|(owner, (start, len))| Step::Unlock { owner, start, len }),
        1 => any::<usize>().prop_map(Step::Interrupt),
        1 => (0usize..5).prop_map(Step::Release),
    ]
}

const OWNERS: [Owner; 5] = [(1, 1), (1, 2), (2, 1), (2, 7), (3, 1)];

#[derive(Clone, Copy, Debug)]
struct Want {
    owner: Owner,
    mode: Mode,
    start: u64,
    end: u64,
}

#[derive(Default)]
struct Model {
    bytes: BTreeMap<u64, BTreeMap<Owner, Mode>>,
    waiting: BTreeMap<LockId, Want>,
}

impl Model {
    /// Owners of conflicting locks.
    fn blockers(&self, want: &Want) -> BTreeSet<Owner> {
        let there = self.bytes.range(want.start..=want.end).flat_map(|(_, owners)| owners);
        let conflicts = there.filter(|(o, m)| **o != want.owner && !Mode::compatible(**m, want.mode));
        conflicts.map(|(o, _)| *o).collect()
    }

    fn deadlock(&self, want: &Want) -> bool {
        let mut seen = self.blockers(want);
        let mut todo: Vec<Owner> = seen.iter().copied().collect();
        while let Some(owner) = todo.pop() {
            for next in self.waiting.values().filter(|w| w.owner == owner).flat_map(|w| self.blockers(w)) {
                if seen.insert(next) {
                    todo.push(next);
                }
            }
        }
        seen.contains(&want.owner)
    }

    fn set(&mut self, want: &Want) {
        for byte in want.start..=want.end {
            let owners = self.bytes.entry(byte).or_default();
            if want.mode == Mode::Nl {
                owners.remove(&want.owner);
            } else {
                owners.insert(want.owner, want.mode);
            }
        }
    }

    fn completions(&mut self, actions: &[Action]) {
        for action in actions {
            let Action::Grant { id, .. } = action else { panic!("{action:?}") };
            let want = self.waiting.remove(id).expect("waited");
            assert_eq!(self.blockers(&want), BTreeSet::new(), "granted over others: {want:?}");
            self.set(&want);
        }
    }

    fn check(&self, ns: &Namespace, file: Resource) {
        for want in self.waiting.values() {
            assert!(!self.blockers(want).is_empty(), "waits for nothing: {want:?}");
        }
        let mut bytes: BTreeMap<(u64, Owner), Mode> = BTreeMap::new();
        let mut runs = BTreeSet::new();
        for lock in ns.resource_locks(file).into_iter().filter(|l| l.granted).map(|l| l.lock) {
            let Policy::Flock(f) = lock.policy else { panic!("{lock:?}") };
            for byte in f.start..=f.end {
                assert!(bytes.insert((byte, (lock.client, f.owner)), lock.mode).is_none(), "twice: {lock:?}");
            }
            runs.insert((lock.client, f.owner, lock.mode, f.start, f.end));
        }
        let model: BTreeMap<(u64, Owner), Mode> =
            self.bytes.iter().flat_map(|(b, owners)| owners.iter().map(|(o, m)| ((*b, *o), *m))).collect();
        assert_eq!(bytes, model);
        for (client, owner, mode, _, end) in &runs {
            let split = runs.iter().any(|r| (r.0, r.1, r.2, r.3) == (*client, *owner, *mode, end + 1));
            assert!(!split, "neighbours are not merged: {runs:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn fcntl_locks_match_a_map_from_bytes_to_modes(steps in prop::collection::vec(step(), 1..80)) {
        let (mut ns, mut model, mut cookie) = (Namespace::new(Tunables::default(), 9), Model::default(), 0);
        let (now, file) = (Instant::ZERO, Resource::flock(Fid::new(1, 1)));
        let mut ask = |ns: &mut Namespace, want: &Want, nowait: bool, actions: &mut Vec<Action>| {
            cookie += 1;
            let (client, owner) = want.owner;
            let policy = Policy::Flock(Flock { start: want.start, end: want.end, owner, pid: 1, kind: FlockKind::Posix });
            let ask = Enqueue::new(file, want.mode, policy, Cookie(cookie));
            ns.enqueue(now, client, &Enqueue { flags: Flags { nowait, ..Flags::default() }, ..ask }, actions)
        };
        for step in steps {
            let mut actions = Vec::new();
            match step {
                Step::Lock { owner, write, start, len, nowait } => {
                    let mode = if write { Mode::Pw } else { Mode::Pr };
                    let want = Want { owner: OWNERS[owner], mode, start, end: (start + len - 1).min(BYTES) };
                    let free = model.blockers(&want).is_empty();
                    match ask(&mut ns, &want, nowait, &mut actions) {
                        Enqueued::Granted { .. } => {
                            prop_assert!(free);
                            model.set(&want);
                        }
                        Enqueued::WouldBlock { by } => {
                            let Policy::Flock(f) = by.policy else { panic!("{by:?}") };
                            prop_assert!(nowait && model.blockers(&want).contains(&(by.client, f.owner)));
                        }
                        Enqueued::Deadlock => prop_assert!(!nowait && model.deadlock(&want)),
                        Enqueued::Waiting { id } => {
                            prop_assert!(!free && !nowait && !model.deadlock(&want));
                            model.waiting.insert(id, want);
                        }
                        other => prop_assert!(false, "{:?}", other),
                    }
                }
                Step::Unlock { owner, start, len } => {
                    let want = Want { owner: OWNERS[owner], mode: Mode::Nl, start, end: (start + len - 1).min(BYTES) };
                    ask(&mut ns, &want, false, &mut actions);
                    model.set(&want);
                }
                Step::Interrupt(n) => {
                    if let Some((id, want)) = model.waiting.iter().nth(n % model.waiting.len().max(1)) {
                        let (id, client) = (*id, want.owner.0);
                        ns.cancel(now, client, &[id], &mut actions);
                        model.waiting.remove(&id);
                    }
                }
                Step::Release(owner) => {
                    let owner = OWNERS[owner];
                    ns.release_owner(now, owner.0, owner.1, &mut actions);
                    model.waiting.retain(|_, w| w.owner != owner);
                    model.set(&Want { owner, mode: Mode::Nl, start: 0, end: BYTES });
                }
            }
            model.completions(&actions);
            model.check(&ns, file);
        }
        for owner in OWNERS {
            let mut actions = Vec::new();
            ns.release_owner(now, owner.0, owner.1, &mut actions);
            model.waiting.retain(|_, w| w.owner != owner);
            model.set(&Want { owner, mode: Mode::Nl, start: 0, end: BYTES });
            model.completions(&actions);
        }
        prop_assert!(model.waiting.is_empty());
        prop_assert_eq!((ns.stats().lock_count(), ns.stats().resources), (0, 0));
    }
}
