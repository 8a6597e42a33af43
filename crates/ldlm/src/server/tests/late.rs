//! Clients that are late, or come back; glimpses.

use super::*;

#[test]
fn who_does_not_give_back_in_time_is_evicted() {
    let mut s = Scene::new();
    s.extent(1, Mode::Pw, 0, EOF);
    s.bits(1, Mode::Pr, bits::LOOKUP);
    s.pass(100_000_000);
    assert!(s.done().is_empty(), "nobody wants it");
    waits(s.extent(2, Mode::Pr, 0, 4095));
    s.done();
    assert_eq!(s.ns.next_deadline(), Some(s.now + Duration::from_secs(20)));
    s.pass(19_999);
    assert!(s.done().is_empty());
    s.pass(1);
    let actions = s.done();
    assert!(matches!(actions[..], [Action::Evict { client: 1 }, Action::Grant { client: 2, .. }]), "{actions:?}");
    assert_eq!((s.ns.client_locks(1), s.ns.stats().lock_count(), s.ns.stats().evictions), (0, 1, 1));
    assert_eq!(s.ns.next_deadline(), None);
}

#[test]
fn io_under_the_lock_prolongs() {
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
fn giving_back_others_prolongs_but_not_for_ever() {
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
        if s.done().contains(&Action::Evict { client: 1 }) {
            break;
        }
        evicted_after += 15;
    }
    assert!((150..=200).contains(&evicted_after), "10 timeouts of 20 s: {evicted_after}");
    assert!(s.ns.lock(stuck).is_none());
}

#[test]
fn a_client_that_comes_back_hears_again_what_it_may_have_missed() {
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
    assert!(s.done().is_empty(), "nobody wants it any more");
    s.pass(1_000_000);
    assert!(s.done().is_empty(), "so it may stay");
}

#[test]
fn glimpses_go_once_to_each_writer_that_may_have_extended_the_object() {
    let mut s = Scene::new();
    let exact = Flags { no_expand: true, ..Flags::default() };
    let mut write = |client: ClientId, block: u64| {
        let ask = Enqueue::new(object(), Mode::Pw, Policy::extent(block * MIB, (block + 1) * MIB - 1), Cookie::NONE);
        id(s.request(client, Enqueue { flags: exact, ..ask }))
    };
    let (a, b, c, d) = (write(1, 0), write(1, 9), write(2, 5), write(3, 2));
    write(4, 7);
    assert_eq!(s.ns.glimpse(s.now, object(), 4, 4 * MIB, &mut s.actions), 2, "3 ends before the size, 4 asks itself");
    let asked: Vec<_> = s
        .done()
        .into_iter()
        .map(|a| if let Action::Glimpse { client, id, .. } = a { (client, id) } else { panic!() })
        .collect();
    assert_eq!(asked, [(1, b), (2, c)]);
    assert!(s.ns.glimpse_answered(1, b));
    assert!(!s.ns.glimpse_answered(1, c), "not its lock");
    s.pass(20_000);
    assert_eq!(s.done(), [Action::Evict { client: 2 }], "no answer");
    assert!(s.ns.lock(a).is_some() && s.ns.lock(d).is_some());
    assert_eq!(s.ns.glimpse(s.now, inode(), 4, 0, &mut s.actions), 0);
}

#[test]
fn a_group_that_was_asked_back_is_not_evicted_after_it_answered_a_glimpse() {
    let mut s = Scene::new();
    let group = id(s.ask(1, object(), Mode::Group, Policy::group(1)));
    waits(s.extent(2, Mode::Pr, 0, 4095));
    s.ns.glimpse(s.now, object(), 2, 0, &mut s.actions);
    assert!(s.ns.glimpse_answered(1, group));
    s.done();
    s.pass(1_000_000);
    assert!(s.done().is_empty());
}
