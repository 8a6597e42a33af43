//! fcntl(2) and flock(2).

use super::*;

fn held(s: &Scene) -> Vec<(ClientId, u64, u64, Mode)> {
    let granted = s.ns.resource_locks(file()).into_iter().filter(|l| l.granted);
    let mut all: Vec<_> =
        granted.map(|l| (l.lock.client, l.lock.policy.range().0, l.lock.policy.range().1, l.lock.mode)).collect();
    all.sort_unstable();
    all
}

#[test]
fn fcntl_ranges_of_an_owner_are_merged_cut_and_split() {
    let mut s = Scene::new();
    for (start, end) in [(0, 9), (20, 29), (10, 19)] {
        range(s.flock(1, Mode::Pw, start, end));
    }
    assert_eq!(held(&s), [(1, 0, 29, Mode::Pw)], "adjacent locks are one lock");
    s.flock(1, Mode::Pr, 10, 14);
    assert_eq!(held(&s), [(1, 0, 9, Mode::Pw), (1, 10, 14, Mode::Pr), (1, 15, 29, Mode::Pw)]);
    s.flock(1, Mode::Nl, 5, 24);
    assert_eq!(held(&s), [(1, 0, 4, Mode::Pw), (1, 25, 29, Mode::Pw)]);
    s.flock(1, Mode::Pw, 0, EOF);
    assert_eq!(held(&s), [(1, 0, EOF, Mode::Pw)]);
    s.flock(1, Mode::Nl, 0, EOF);
    let stats = s.ns.stats();
    assert_eq!((stats.lock_count(), stats.resources), (0, 0));
}

#[test]
fn getlk_returns_the_conflicting_lock() {
    let mut s = Scene::new();
    let holder = id(s.flock(1, Mode::Pw, 100, 199));
    let test = Flags { test: true, ..Flags::default() };
    let ask = |owner| Enqueue { flags: test, ..Enqueue::new(file(), Mode::Pr, fcntl(owner, 150, 300), Cookie::NONE) };
    match s.request(2, ask(1)) {
        Enqueued::WouldBlock { by } => {
            assert_eq!((by.client, by.id, by.mode, by.policy), (1, holder, Mode::Pw, fcntl(1, 100, 199)));
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(s.request(1, ask(1)), Enqueued::Granted { id: LockId::NONE, .. }), "its own lock is no conflict");
    assert!(matches!(s.request(1, ask(2)), Enqueued::WouldBlock { .. }), "another owner of the same client conflicts");
    assert_eq!(s.ns.stats().lock_count(), 1);
}

#[test]
fn fcntl_nowait_is_refused_and_waiting_is_granted_or_interrupted() {
    let mut s = Scene::new();
    s.flock(1, Mode::Pw, 0, 9);
    let nowait = Flags { nowait: true, ..Flags::default() };
    let ask = Enqueue::new(file(), Mode::Pw, fcntl(1, 5, 5), Cookie::NONE);
    assert!(matches!(s.request(2, Enqueue { flags: nowait, ..ask }), Enqueued::WouldBlock { .. }));
    let interrupted = waits(s.flock(2, Mode::Pw, 5, 5));
    waits(s.flock(3, Mode::Pr, 6, 20));
    s.cancel(2, interrupted);
    assert!(s.done().is_empty(), "flock locks get no blocking callbacks");
    s.flock(1, Mode::Nl, 6, 9);
    assert_eq!(s.completed(), [(3, (6, 20))], "what was unlocked is enough");
    assert_eq!(held(&s), [(1, 0, 5, Mode::Pw), (3, 6, 20, Mode::Pr)]);
}

#[test]
fn fcntl_downgrade_grants_waiting_readers() {
    let mut s = Scene::new();
    s.flock(1, Mode::Pw, 0, 99);
    waits(s.flock(2, Mode::Pr, 40, 50));
    s.flock(1, Mode::Pr, 0, 99);
    assert_eq!(s.completed(), [(2, (40, 50))]);
}

#[test]
fn fcntl_deadlock_is_refused() {
    let mut s = Scene::new();
    let other = Resource::flock(Fid::new(8, 8));
    for client in 1..4 {
        range(s.flock(client, Mode::Pw, client * 10, client * 10));
    }
    range(s.ask(3, other, Mode::Pw, fcntl(1, 0, 0)));
    waits(s.flock(1, Mode::Pw, 20, 20));
    waits(s.ask(2, other, Mode::Pr, fcntl(1, 0, EOF)));
    assert_eq!(s.flock(3, Mode::Pw, 10, 10), Enqueued::Deadlock, "1 waits for 2, 2 for 3 in another file");
    waits(s.flock(4, Mode::Pw, 10, 10));
    waits(s.ask(3, file(), Mode::Pw, fcntl(2, 10, 10)));
    s.flock(1, Mode::Nl, 10, 10);
    assert_eq!(s.completed(), [(4, (10, 10))]);
}

#[test]
fn flock_upgrade_drops_the_old_lock_first() {
    let mut s = Scene::new();
    let first = s.ask(1, file(), Mode::Pr, bsd(1));
    assert_eq!(range(first), (0, EOF));
    assert_eq!(id(s.ask(1, file(), Mode::Pr, bsd(1))), id(first), "the same again is the same");
    range(s.ask(2, file(), Mode::Pr, bsd(1)));
    waits(s.ask(3, file(), Mode::Pw, bsd(1)));
    let nowait = Flags { nowait: true, ..Flags::default() };
    let upgrade = Enqueue { flags: nowait, ..Enqueue::new(file(), Mode::Pw, bsd(1), Cookie::NONE) };
    assert!(matches!(s.request(1, upgrade), Enqueued::WouldBlock { .. }));
    assert_eq!(held(&s), [(2, 0, EOF, Mode::Pr)], "and the old lock is lost");
    s.ask(2, file(), Mode::Nl, bsd(1));
    assert_eq!(s.completed(), [(3, (0, EOF))]);
}

#[test]
fn flock_and_fcntl_locks_do_not_conflict() {
    let mut s = Scene::new();
    range(s.ask(1, file(), Mode::Pw, bsd(1)));
    range(s.flock(2, Mode::Pw, 0, EOF));
    range(s.ask(1, object(), Mode::Pw, Policy::extent(0, EOF)));
    s.ask(1, file(), Mode::Nl, bsd(1));
    assert_eq!(held(&s), [(2, 0, EOF, Mode::Pw)]);
}

#[test]
fn flock_locks_are_dropped_with_owner_and_client() {
    let mut s = Scene::new();
    range(s.ask(1, file(), Mode::Pw, fcntl(1, 0, 9)));
    range(s.ask(1, file(), Mode::Pw, fcntl(2, 10, 19)));
    waits(s.ask(1, file(), Mode::Pw, fcntl(1, 10, 10)));
    waits(s.ask(2, file(), Mode::Pw, fcntl(1, 0, 9)));
    waits(s.ask(3, file(), Mode::Pw, fcntl(1, 10, 19)));
    s.ns.release_owner(s.now, 1, 1, &mut s.actions);
    assert_eq!(s.completed(), [(2, (0, 9))]);
    s.ns.evict(s.now, 1, &mut s.actions);
    assert_eq!(s.completed(), [(3, (10, 19))]);
    assert_eq!(s.ns.client_locks(1), 0);
}

#[test]
fn granted_fcntl_upgrade_replaces_the_owners_old_lock() {
    let mut s = Scene::new();
    range(s.flock(1, Mode::Pr, 0, 9));
    let reader = id(s.flock(2, Mode::Pr, 0, 9));
    waits(s.flock(1, Mode::Pw, 0, 9));
    s.cancel(2, reader);
    assert_eq!(s.completed(), [(1, (0, 9))]);
    assert_eq!(held(&s), [(1, 0, 9, Mode::Pw)]);
    assert_eq!(s.ns.stats().lock_count(), 1);
}
