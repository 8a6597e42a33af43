//! Glimpses: asking writers for an object's size.

use sheen_wire::{Time, ost::ObjectAttr};

use super::*;

fn attr(size: u64) -> Option<ObjectAttr> {
    Some(ObjectAttr { size, blocks: 8, mtime: Some(Time { sec: 5, nsec: 0 }) })
}

/// The clients that got glimpse callbacks, and through which lock.
fn asked(s: &mut Scene) -> Vec<(ClientId, LockId)> {
    let actions = s.done().into_iter();
    actions.filter_map(|a| if let Action::Glimpse { client, id, .. } = a { Some((client, id)) } else { None }).collect()
}

/// The tickets that ended, with the sizes answered.
fn ended(s: &mut Scene) -> Vec<(Ticket, Option<u64>)> {
    let one =
        |a| if let Action::Glimpsed { ticket, answer } = a { Some((ticket, answer.map(|a| a.size))) } else { None };
    s.done().into_iter().filter_map(one).collect()
}

fn glimpse(s: &mut Scene, asker: ClientId, size: u64, ticket: Ticket) -> usize {
    s.ns.glimpse(s.now, object(), asker, size, ticket, &mut s.actions)
}

fn answer(s: &mut Scene, client: ClientId, id: LockId, size: u64) -> Vec<(Ticket, Option<u64>)> {
    s.ns.glimpse_answered(s.now, client, id, attr(size), &mut s.actions);
    ended(s)
}

fn write(s: &mut Scene, client: ClientId, block: u64) -> LockId {
    let ask = Enqueue::new(object(), Mode::Pw, Policy::extent(block * MIB, (block + 1) * MIB - 1), Cookie::NONE);
    id(s.request(client, Enqueue { flags: Flags { no_expand: true, ..Flags::default() }, ..ask }))
}

#[test]
fn glimpse_is_sent_once_to_each_writer_beyond_the_known_size() {
    let mut s = Scene::new();
    let (a, b, c, d) = (write(&mut s, 1, 0), write(&mut s, 1, 9), write(&mut s, 2, 5), write(&mut s, 3, 2));
    write(&mut s, 4, 7);
    assert_eq!(glimpse(&mut s, 4, 4 * MIB, 7), 2, "3 ends before the size, 4 asks itself");
    assert_eq!(asked(&mut s), [(1, b), (2, c)]);
    assert_eq!(answer(&mut s, 1, c, 99), [], "not its lock");
    assert_eq!(answer(&mut s, 1, a, 99), [], "not asked through this one");
    assert_eq!(answer(&mut s, 1, b, 99), [(7, Some(99))]);
    assert_eq!(answer(&mut s, 1, b, 99), [], "once");
    s.pass(20_000);
    let actions = s.done();
    let [Action::Evict { client: 2, overdue }, Action::Glimpsed { ticket: 7, answer: None }] = actions[..] else {
        panic!("no answer: {actions:?}")
    };
    assert_eq!((overdue.id, overdue.glimpse, overdue.waited), (c, true, Duration::from_secs(20)));
    assert!(s.ns.lock(a).is_some() && s.ns.lock(d).is_some());
    assert_eq!(s.ns.glimpse(s.now, inode(), 4, 0, 8, &mut s.actions), 0);
    s.pass(1_000_000);
    assert!(s.done().is_empty(), "clients that have answered are not asked again");
}

#[test]
fn glimpse_skips_readers_and_the_server() {
    let mut s = Scene::new();
    write(&mut s, SERVER, 9);
    s.extent(1, Mode::Pr, 0, MIB - 1);
    assert_eq!(glimpse(&mut s, 2, 0, 1), 0);
    assert!(s.done().is_empty());
    for client in 1..4 {
        s.bits(client, Mode::Pw, 1 << client);
    }
    assert_eq!(s.ns.glimpse(s.now, inode(), 9, 0, 2, &mut s.actions), 0, "an inode has no size of its own");
}

#[test]
fn later_glimpse_waits_for_a_new_callback() {
    let mut s = Scene::new();
    let lock = write(&mut s, 1, 0);
    glimpse(&mut s, 2, 0, 1);
    assert_eq!(asked(&mut s), [(1, lock)]);
    // The client may have written between its answer and these.
    for ticket in [2, 3] {
        assert_eq!(glimpse(&mut s, 3, 0, ticket), 1);
    }
    assert!(s.done().is_empty(), "one callback at a time");
    s.ns.glimpse_answered(s.now, 1, lock, attr(10), &mut s.actions);
    assert!(
        matches!(s.done()[..], [Action::Glimpsed { ticket: 1, .. }, Action::Glimpse { client: 1, id, .. }] if id == lock)
    );
    assert_eq!(answer(&mut s, 1, lock, 20), [(2, Some(20)), (3, Some(20))]);
    s.pass(1_000_000);
    assert!(s.done().is_empty());
}

#[test]
fn glimpse_moves_to_another_lock_when_one_is_cancelled() {
    let mut s = Scene::new();
    let (low, high) = (write(&mut s, 1, 0), write(&mut s, 1, 9));
    glimpse(&mut s, 2, 0, 1);
    glimpse(&mut s, 2, 0, 2);
    assert_eq!(asked(&mut s), [(1, high)]);
    s.cancel(1, high);
    assert_eq!(asked(&mut s), [(1, low)], "it may hide a larger size, too");
    assert_eq!(answer(&mut s, 1, high, 99), [], "late");
    s.cancel(1, low);
    assert_eq!(ended(&mut s), [(1, None), (2, None)], "all is flushed");
}

#[test]
fn glimpse_ends_when_the_lock_is_converted_to_read() {
    let mut s = Scene::new();
    let lock = write(&mut s, 1, 0);
    glimpse(&mut s, 2, 0, 1);
    s.done();
    assert_eq!(s.ns.convert(s.now, 1, lock, Convert::Mode(Mode::Pr), &mut s.actions), Ok(()));
    assert_eq!(ended(&mut s), [(1, None)]);
    s.pass(1_000_000);
    assert!(s.done().is_empty(), "no callback is in progress");
}

#[test]
fn glimpse_ends_when_the_client_is_evicted() {
    let mut s = Scene::new();
    write(&mut s, 1, 0);
    write(&mut s, 1, 3);
    let other = write(&mut s, 2, 6);
    glimpse(&mut s, 3, 0, 1);
    s.done();
    s.ns.evict(s.now, 1, &mut s.actions);
    assert_eq!(ended(&mut s), [(1, None)]);
    assert_eq!(answer(&mut s, 2, other, 5), [(1, Some(5))]);
}

#[test]
fn withdrawn_ticket_gets_no_answer_but_the_client_must_still_answer() {
    let mut s = Scene::new();
    let lock = write(&mut s, 1, 0);
    for ticket in 1..4 {
        glimpse(&mut s, 2, 0, ticket);
    }
    s.ns.glimpse_withdrawn(object(), 1);
    s.ns.glimpse_withdrawn(object(), 3);
    s.done();
    assert_eq!(answer(&mut s, 1, lock, 7), []);
    assert_eq!(answer(&mut s, 1, lock, 8), [(2, Some(8))]);
    glimpse(&mut s, 2, 0, 4);
    s.ns.glimpse_withdrawn(object(), 4);
    s.done();
    s.pass(20_000);
    assert!(matches!(s.done()[..], [Action::Evict { client: 1, .. }]));
}

#[test]
fn glimpse_after_reconnect_becomes_a_blocking_callback() {
    for under_way in [true, false] {
        let mut s = Scene::new();
        let (low, high) = (write(&mut s, 1, 0), write(&mut s, 1, 9));
        glimpse(&mut s, 2, 0, 1);
        if !under_way {
            answer(&mut s, 1, high, 5);
        }
        s.done();
        s.ns.resend(s.now, 1, &mut s.actions);
        if !under_way {
            assert!(s.done().is_empty());
            glimpse(&mut s, 2, 0, 1);
        }
        assert!(matches!(s.done()[..], [Action::Block { client: 1, id, mode: Mode::Pr, .. }] if id == high));
        s.ns.resend(s.now, 1, &mut s.actions);
        assert!(matches!(s.done()[..], [Action::Block { client: 1, id, .. }] if id == high), "lost, too");
        assert_eq!(answer(&mut s, 1, high, 5), [], "it is unknown which callback this answers");
        s.cancel(1, high);
        assert_eq!(asked(&mut s), [(1, low)], "no callback was sent through this one before");
        assert_eq!(answer(&mut s, 1, low, 6), [(1, Some(6))]);
    }
}

#[test]
fn reconnected_group_member_is_glimpsed_again_and_not_evicted() {
    let mut s = Scene::new();
    let group = id(s.ask(1, object(), Mode::Group, Policy::group(1)));
    waits(s.extent(2, Mode::Pr, 0, 4095));
    glimpse(&mut s, 2, 0, 1);
    s.done();
    s.ns.resend(s.now, 1, &mut s.actions);
    assert!(matches!(s.done()[..], [Action::Block { client: 1, .. }, Action::Glimpse { client: 1, .. }]));
    assert_eq!(answer(&mut s, 1, group, 3), [(1, Some(3))]);
    s.pass(1_000_000);
    assert!(s.done().is_empty());
}
