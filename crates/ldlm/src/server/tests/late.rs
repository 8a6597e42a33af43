//! Clients that miss deadlines, or reconnect.

use super::*;

#[test]
fn client_that_misses_the_lock_timeout_is_evicted() {
    let mut s = Scene::new();
    let held = id(s.extent(1, Mode::Pw, 0, EOF));
    s.bits(1, Mode::Pr, bits::LOOKUP);
    s.pass(100_000_000);
    assert!(s.done().is_empty(), "no request waits for it");
    waits(s.extent(2, Mode::Pr, 0, 4095));
    s.done();
    assert_eq!(s.ns.next_deadline(), Some(s.now + Duration::from_secs(20)));
    s.pass(19_999);
    assert!(s.done().is_empty());
    s.pass(1);
    let actions = s.done();
    let [Action::Evict { client: 1, overdue }, Action::Grant { client: 2, .. }] = actions[..] else {
        panic!("{actions:?}")
    };
    let expected = Overdue {
        id: held,
        resource: object(),
        mode: Mode::Pw,
        policy: Policy::extent(0, EOF),
        glimpse: false,
        waited: Duration::from_secs(20),
    };
    assert_eq!(overdue, expected);
    assert_eq!((s.ns.client_locks(1), s.ns.stats().lock_count(), s.ns.stats().evictions), (0, 1, 1));
    assert_eq!(s.ns.next_deadline(), None);
}

#[test]
fn io_under_a_lock_renews_its_deadline() {
    let mut s = Scene::new();
    let lock = id(s.extent(1, Mode::Pw, 0, EOF));
    waits(s.extent(2, Mode::Pw, 0, 4095));
    s.done();
    for _ in 0..50 {
        s.pass(15_000);
        s.ns.prolong(s.now, 1, object(), MIB, 2 * MIB);
        s.ns.prolong(s.now, 1, inode(), 0, EOF);
    }
    assert!(s.done().is_empty());
    s.cancel(1, lock);
    assert_eq!(s.completed().len(), 1);
}

#[test]
fn cancelling_other_locks_extends_the_deadline_up_to_10_timeouts() {
    let mut s = Scene::new();
    let stuck = id(s.bits(1, Mode::Pr, bits::LOOKUP));
    waits(s.bits(2, Mode::Ex, bits::LOOKUP));
    let mut evicted_after = 0;
    for n in 0..100 {
        let other = Resource::bits(Fid::new(5, n));
        let lock = id(s.ask(1, other, Mode::Pr, Policy::bits(1)));
        let wants = waits(s.ask(2, other, Mode::Ex, Policy::bits(1)));
        s.cancel(1, lock);
        s.cancel(2, wants);
        s.done();
        s.pass(15_000);
        if s.done().iter().any(|action| matches!(action, Action::Evict { client: 1, .. })) {
            break;
        }
        evicted_after += 15;
    }
    assert!((150..=200).contains(&evicted_after), "10 timeouts of 20 s: {evicted_after}");
    assert!(s.ns.lock(stuck).is_none());
}

#[test]
fn callbacks_are_resent_to_a_reconnected_client() {
    let mut s = Scene::new();
    let first = id(s.extent(1, Mode::Pw, 0, EOF));
    let second = waits(s.extent(2, Mode::Pw, 0, EOF));
    s.cancel(1, first);
    waits(s.extent(3, Mode::Pw, 0, EOF));
    s.done();
    s.ns.resend(s.now, 2, &mut s.actions);
    let actions = s.done();
    assert!(
        matches!(actions[..], [Action::Grant { client: 2, id: a, .. }, Action::Block { client: 2, id: b, .. }] if a == second && b == second),
        "{actions:?}"
    );
    s.ns.confirm(2, second);
    s.ns.resend(s.now, 2, &mut s.actions);
    assert!(matches!(s.done()[..], [Action::Block { client: 2, .. }]));
    s.ns.resend(s.now, 3, &mut s.actions);
    assert!(s.done().is_empty(), "it has missed nothing");
    s.ns.evict(s.now, 3, &mut s.actions);
    s.ns.resend(s.now, 2, &mut s.actions);
    assert!(s.done().is_empty(), "no request waits for it any more");
    s.pass(1_000_000);
    assert!(s.done().is_empty(), "so it may stay");
}

#[test]
fn lock_unknown_to_its_client_has_no_deadline() {
    let mut s = Scene::new();
    let withheld = id(s.extent(1, Mode::Pw, 0, EOF));
    s.ns.withhold(withheld);
    waits(s.extent(2, Mode::Pr, 0, 4095));
    s.done();
    s.pass(100_000);
    assert!(s.done().is_empty() && s.ns.next_deadline().is_none(), "its client cannot cancel it");
    s.ns.delivered(s.now, 2, &[withheld]);
    assert_eq!(s.ns.next_deadline(), None, "that is another client's");
    s.ns.delivered(s.now, 1, &[withheld]);
    assert_eq!(s.ns.next_deadline(), Some(s.now + Duration::from_secs(20)));
    s.pass(20_000);
    let actions = s.done();
    assert!(matches!(actions[..], [Action::Evict { client: 1, .. }, Action::Grant { client: 2, .. }]), "{actions:?}");
}
