//! Locks that the server takes for a client's operation: the client's own locks do not conflict.

use super::*;

#[test]
fn server_lock_for_a_writer_does_not_queue_behind_waiters_for_its_lock() {
    let mut s = Scene::new();
    let ask = |mode| Enqueue::new(object(), mode, Policy::extent(MIB, EOF), Cookie::NONE);
    let writer = id(s.extent(1, Mode::Pw, 0, EOF));
    waits(s.extent(2, Mode::Pr, 0, EOF));
    assert_eq!(s.blocked(), [1]);
    let of = |s: &mut Scene, client, mode| s.ns.enqueue_sparing(s.now, client, &ask(mode), &mut s.actions);
    for mode in [Mode::Cw, Mode::Pw] {
        let done = of(&mut s, 1, mode);
        range(done);
        s.cancel(SERVER, id(done));
        let others = waits(of(&mut s, 3, mode));
        s.cancel(SERVER, others);
    }
    assert!(s.completed().is_empty(), "the reader waits on");
    s.cancel(1, writer);
    assert_eq!(s.completed(), [(2, (0, EOF))]);
    waits(of(&mut s, 1, Mode::Cw));
}

fn of(s: &mut Scene, client: ClientId, mode: Mode, start: u64, end: u64) -> Enqueued {
    let ask = Enqueue::new(object(), mode, Policy::extent(start, end), Cookie::NONE);
    s.ns.enqueue_sparing(s.now, client, &ask, &mut s.actions)
}

#[test]
fn adjacent_locks_of_a_client_shield_a_server_lock_that_spans_them() {
    let mut s = Scene::new();
    let exact = Flags { no_expand: true, ..Flags::default() };
    let lock = |s: &mut Scene, mode, start, end| {
        let ask = Enqueue::new(object(), mode, Policy::extent(start, end), Cookie::NONE);
        id(s.request(1, Enqueue { flags: exact, ..ask }))
    };
    lock(&mut s, Mode::Pw, 0, MIB - 1);
    lock(&mut s, Mode::Ex, MIB, 2 * MIB - 1);
    let third = lock(&mut s, Mode::Pw, 2 * MIB, EOF);
    waits(s.extent(2, Mode::Pr, 0, EOF));
    for (mode, start, end, at_once) in [
        (Mode::Pw, 4096, 2 * MIB + 4095, true),
        (Mode::Pr, 0, EOF, true),
        (Mode::Cw, MIB, EOF, true),
        (Mode::Ex, MIB, 2 * MIB - 1, true),
        (Mode::Ex, 0, MIB, false),
    ] {
        let done = of(&mut s, 1, mode, start, end);
        assert_eq!(matches!(done, Enqueued::Granted { .. }), at_once, "{mode:?} {start} {end}");
        s.cancel(SERVER, id(done));
    }
    s.cancel(1, third);
    waits(of(&mut s, 1, Mode::Pw, 4096, 2 * MIB + 4095));
    range(of(&mut s, 1, Mode::Pw, 4096, 2 * MIB - 1));
}

#[test]
fn server_lock_for_a_group_member_does_not_conflict_with_the_group() {
    let mut s = Scene::new();
    let mine = id(s.ask(1, object(), Mode::Group, Policy::group(7)));
    let fellow = id(s.ask(2, object(), Mode::Group, Policy::group(7)));
    let stranger = waits(s.extent(3, Mode::Pw, 0, EOF));
    assert_eq!(s.blocked().len(), 2);
    let (first, second) = (of(&mut s, 1, Mode::Pw, 0, 4095), of(&mut s, 2, Mode::Pw, 4096, 8191));
    assert_eq!((range(first), range(second)), ((0, 4095), (4096, 8191)));
    let same = waits(of(&mut s, 2, Mode::Pr, 0, 4095));
    let outsider = waits(of(&mut s, 4, Mode::Pr, 0, 4095));
    // A client that joins the group waits for the writes in progress only.
    let late = waits(s.ask(5, object(), Mode::Group, Policy::group(7)));
    assert!(s.blocked().iter().all(|client| *client == SERVER), "the group is not asked again");
    s.cancel(SERVER, id(first));
    assert!(s.ns.lock(same).is_some_and(|l| l.granted));
    s.cancel(SERVER, id(second));
    s.cancel(SERVER, same);
    assert!(s.ns.lock(late).is_some_and(|l| l.granted));
    for lock in [(1, mine), (2, fellow)] {
        s.cancel(lock.0, lock.1);
    }
    waits(of(&mut s, 1, Mode::Pw, 0, 4095));
    assert!(s.ns.lock(stranger).is_some_and(|l| !l.granted), "the last of the group has it");
    s.cancel(5, late);
    assert!(s.ns.lock(stranger).is_some_and(|l| l.granted));
    s.cancel(3, stranger);
    assert!(s.ns.lock(outsider).is_some_and(|l| l.granted));
}

#[test]
fn granted_lock_gets_no_blocking_callback_for_its_own_clients_operation() {
    let mut s = Scene::new();
    let first = id(s.extent(1, Mode::Pw, 0, EOF));
    let second = waits(s.extent(2, Mode::Pw, 0, EOF));
    waits(of(&mut s, 2, Mode::Pw, 0, 4095));
    s.done();
    s.cancel(1, first);
    let actions = s.done();
    assert!(
        matches!(actions[..], [Action::Grant { client: 2, id, .. }, Action::Grant { client: SERVER, .. }] if id == second),
        "{actions:?}"
    );
}

#[test]
fn flush_under_a_pr_lock_does_not_queue_behind_waiters_for_it() {
    let mut s = Scene::new();
    let reader = id(s.extent(1, Mode::Pr, 0, EOF));
    let other = id(s.extent(3, Mode::Pr, 0, EOF));
    let cutter = waits(s.extent(2, Mode::Pw, 0, EOF));
    assert_eq!(s.blocked(), [1, 3]);
    // Another client with cached pages drops them first. The operation waits for no other lock.
    let page = waits(of(&mut s, 1, Mode::Cw, 0, 4095));
    s.cancel(3, other);
    assert!(s.ns.lock(page).is_some_and(|l| l.granted));
    s.cancel(SERVER, page);
    let cut = of(&mut s, 1, Mode::Pw, 4096, EOF);
    assert_eq!(range(cut), (4096, EOF));
    s.cancel(SERVER, id(cut));
    let others = waits(of(&mut s, 3, Mode::Cw, 0, 4095));
    assert!(s.ns.lock(cutter).is_some_and(|l| !l.granted), "it still waits for the reader");
    s.cancel(1, reader);
    assert!(s.ns.lock(cutter).is_some_and(|l| l.granted));
    waits(of(&mut s, 1, Mode::Cw, 0, 4095));
    s.cancel(SERVER, others);
}
