//! Extents and bits: expanding, queueing, revoking, converting.

use super::*;

#[test]
fn lone_writer_is_granted_the_whole_object() {
    let mut s = Scene::new();
    assert_eq!(range(s.extent(1, Mode::Pw, MIB, 2 * MIB - 1)), (0, EOF));
    assert!(s.done().is_empty());
}

#[test]
fn second_writer_waits_for_cancel_and_both_get_a_part() {
    let mut s = Scene::new();
    let first = id(s.extent(1, Mode::Pw, 0, MIB - 1));
    let second = waits(s.extent(2, Mode::Pw, MIB, 2 * MIB - 1));
    let block = s.done();
    let wanted = Policy::extent(MIB, 2 * MIB - 1);
    assert_eq!(
        block,
        [Action::Block { client: 1, cookie: Cookie(1), id: first, mode: Mode::Pw, policy: wanted }],
        "asked once"
    );
    waits(s.extent(1, Mode::Pw, 2 * MIB, 3 * MIB - 1));
    assert!(s.done().is_empty(), "not asked again");
    s.cancel(1, first);
    // The second may grow downwards to 0, but upwards only to the start of the third, which waits.
    assert_eq!(s.completed(), [(2, (0, 2 * MIB - 1)), (1, (2 * MIB, EOF))]);
    assert_eq!(s.ns.stats().granted, 2);
    assert!(s.ns.lock(second).is_some_and(|l| l.granted));
}

#[test]
fn extent_expansion_stops_at_conflicting_locks_and_alignment() {
    let mut s = Scene::new();
    let exact = Flags { no_expand: true, ..Flags::default() };
    for block in [(0, 4095), (10 * MIB - 4096, 10 * MIB - 1)] {
        let ask = Enqueue::new(object(), Mode::Pw, Policy::extent(block.0, block.1), Cookie::NONE);
        assert_eq!(range(s.request(1, Enqueue { flags: exact, ..ask })), block);
    }
    assert_eq!(range(s.extent(2, Mode::Pw, 4 * MIB, 5 * MIB - 1)), (MIB, 9 * MIB - 1));
}

#[test]
fn readers_do_not_limit_each_others_extent_expansion() {
    let mut s = Scene::new();
    for client in 1..9 {
        assert_eq!(range(s.extent(client, Mode::Pr, client * MIB, client * MIB + 4095)), (0, EOF));
    }
    assert!(s.done().is_empty());
}

#[test]
fn more_than_4_waiters_stop_downward_expansion() {
    for (waiters, low) in [(4, 0), (5, 50 * MIB)] {
        let mut s = Scene::new();
        let first = id(s.extent(1, Mode::Pw, 0, 100 * MIB - 1));
        waits(s.extent(2, Mode::Pw, 50 * MIB, 51 * MIB - 1));
        for n in 0..waiters {
            waits(s.extent(3 + n, Mode::Pw, (60 + n) * MIB, (61 + n) * MIB - 1));
        }
        s.cancel(1, first);
        assert_eq!(s.completed()[0], (2, (low, 60 * MIB - 1)), "{waiters} waiters");
    }
}

#[test]
fn more_than_32_conflicts_limit_expansion_to_32_mib() {
    for (others, high) in [(32, EOF), (33, 1033 * MIB - 1)] {
        let mut s = Scene::with(Tunables { adaptive: false, ..Tunables::default() });
        let exact = Flags { no_expand: true, ..Flags::default() };
        for n in 0..others {
            let ask = Enqueue::new(object(), Mode::Pw, Policy::extent(n * MIB, (n + 1) * MIB - 1), Cookie::NONE);
            s.request(1, Enqueue { flags: exact, ..ask });
        }
        assert_eq!(range(s.extent(2, Mode::Pw, 1001 * MIB, 1002 * MIB - 1)).1, high, "{others} others");
    }
}

#[test]
fn expand_tunable_disables_extent_expansion() {
    let mut s = Scene::with(Tunables { expand: false, ..Tunables::default() });
    assert_eq!(range(s.extent(1, Mode::Pw, MIB, 2 * MIB - 1)), (MIB, 2 * MIB - 1));
    assert_eq!(range(s.extent(2, Mode::Pw, 2 * MIB, 3 * MIB - 1)), (2 * MIB, 3 * MIB - 1));
}

#[test]
fn reader_queues_behind_a_waiting_writer() {
    let mut s = Scene::new();
    let reader = id(s.extent(1, Mode::Pr, 0, EOF));
    let writer = waits(s.extent(2, Mode::Pw, 0, EOF));
    let late = waits(s.extent(3, Mode::Pr, 0, EOF));
    assert_eq!(s.blocked(), [1]);
    s.cancel(1, reader);
    // The writer gets a blocking callback at once, because a reader waits behind it.
    assert!(matches!(s.done()[..], [Action::Grant { client: 2, .. }, Action::Block { client: 2, .. }]));
    s.cancel(2, writer);
    assert_eq!(s.completed(), [(3, (0, EOF))]);
    s.cancel(3, late);
    let stats = s.ns.stats();
    assert_eq!((stats.lock_count(), stats.resources), (0, 0), "nothing is left");
}

#[test]
fn cancelling_a_waiting_lock_grants_those_behind_it() {
    let mut s = Scene::new();
    s.extent(1, Mode::Pr, 0, EOF);
    let writer = waits(s.extent(2, Mode::Pw, 0, EOF));
    waits(s.extent(3, Mode::Pr, 0, EOF));
    s.done();
    s.cancel(2, writer);
    assert_eq!(s.completed(), [(3, (0, EOF))]);
}

#[test]
fn resent_enqueue_returns_the_same_lock() {
    let mut s = Scene::new();
    let ask = Enqueue::new(object(), Mode::Pw, Policy::extent(0, 4095), Cookie(77));
    let first = s.ns.enqueue(s.now, 1, &ask, &mut s.actions);
    let waiting = s.ns.enqueue(s.now, 2, &ask, &mut s.actions);
    s.done();
    assert_eq!(s.ns.enqueue(s.now, 1, &ask, &mut s.actions), first);
    assert_eq!(s.ns.enqueue(s.now, 2, &ask, &mut s.actions), waiting);
    assert!(s.done().is_empty());
    assert_eq!(s.ns.stats().lock_count(), 2);
    s.cancel(1, id(first));
    s.done();
    let granted = s.ns.enqueue(s.now, 2, &ask, &mut s.actions);
    assert!(matches!(granted, Enqueued::Granted { id: l, .. } if l == id(waiting)), "{granted:?}");
}

#[test]
fn cancel_ignores_unknown_and_foreign_handles() {
    let mut s = Scene::new();
    let lock = id(s.extent(1, Mode::Pw, 0, EOF));
    s.cancel(2, lock);
    s.cancel(1, LockId::NONE);
    s.cancel(1, LockId(u64::MAX));
    assert_eq!(s.ns.stats().granted, 1, "another's lock stays");
    s.cancel(1, lock);
    let next = id(s.extent(1, Mode::Pw, 0, EOF));
    s.cancel(1, lock);
    assert_eq!(s.ns.stats().granted, 1, "a late copy of the cancel does not hit the successor");
    assert_ne!(lock, next);
}

#[test]
fn lockahead_neither_waits_nor_sends_blocking_callbacks() {
    let mut s = Scene::new();
    let holder = id(s.extent(1, Mode::Pr, 0, EOF));
    let ask = Enqueue::new(object(), Mode::Pw, Policy::extent(0, MIB - 1), Cookie::NONE);
    let lockahead = Enqueue { flags: Flags { no_expand: true, nowait: true, ..Flags::default() }, ..ask };
    let answer = s.request(2, lockahead);
    assert!(matches!(answer, Enqueued::WouldBlock { by } if by.id == holder && by.client == 1));
    assert!(s.done().is_empty());
    s.cancel(1, holder);
    assert_eq!(range(s.request(2, lockahead)), (0, MIB - 1));
}

#[test]
fn group_members_are_granted_ahead_of_waiting_locks() {
    let mut s = Scene::new();
    let first = id(s.ask(1, object(), Mode::Group, Policy::Extent { start: 5, end: 9, gid: 7 }));
    let reader = waits(s.extent(2, Mode::Pr, 0, 4095));
    let second = s.ask(3, object(), Mode::Group, Policy::group(7));
    assert_eq!(range(second), (0, EOF));
    let other = waits(s.ask(4, object(), Mode::Group, Policy::group(8)));
    s.done();
    s.pass(10_000_000);
    assert!(s.done().is_empty(), "a group is not evicted for holding its lock");
    s.cancel(1, first);
    assert!(s.done().is_empty());
    s.cancel(3, id(second));
    assert_eq!(s.completed().len(), 1);
    s.cancel(2, reader);
    assert_eq!(s.completed(), [(4, (0, EOF))]);
    s.cancel(4, other);
    assert_eq!(s.ns.stats().lock_count(), 0);
}

#[test]
fn bits_conflict_only_on_common_bits_and_try_bits_never_wait() {
    let mut s = Scene::new();
    let holder = id(s.bits(1, Mode::Pr, bits::LOOKUP | bits::UPDATE));
    id(s.bits(2, Mode::Pw, bits::LAYOUT));
    let wish = Policy::Bits { bits: bits::OPEN, try_bits: bits::UPDATE | bits::XATTR | bits::LAYOUT };
    let got = s.ask(3, inode(), Mode::Pw, wish);
    assert!(matches!(got, Enqueued::Granted { policy, .. } if policy == Policy::bits(bits::OPEN | bits::XATTR)));
    assert!(s.done().is_empty());
    let only = Policy::Bits { bits: 0, try_bits: bits::UPDATE };
    assert!(matches!(s.ask(3, inode(), Mode::Pw, only), Enqueued::WouldBlock { by } if by.id == holder));
    waits(s.bits(4, Mode::Ex, bits::UPDATE));
    assert_eq!(s.blocked(), [1]);
    // A request waits for UPDATE, so no other client gets that bit as an optional one.
    let wish = Policy::Bits { bits: bits::PERM, try_bits: bits::UPDATE };
    let got = s.ask(5, inode(), Mode::Pr, wish);
    assert!(matches!(got, Enqueued::Granted { policy, .. } if policy == Policy::bits(bits::PERM)), "{got:?}");
}

#[test]
fn convert_cancels_wanted_bits_and_keeps_the_others() {
    let mut s = Scene::new();
    let lock = id(s.bits(1, Mode::Pr, bits::LOOKUP | bits::UPDATE | bits::PERM));
    waits(s.bits(2, Mode::Ex, bits::UPDATE));
    waits(s.bits(3, Mode::Ex, bits::PERM));
    assert_eq!(s.blocked(), [1]);
    let convert = Convert::Bits(bits::LOOKUP | bits::PERM);
    assert_eq!(s.ns.convert(s.now, 1, lock, convert, &mut s.actions), Ok(()));
    let actions = s.done();
    assert!(
        matches!(actions[..], [Action::Grant { client: 2, .. }, Action::Block { client: 1, .. }]),
        "asked again for what the other wants: {actions:?}"
    );
    for wrong in
        [Convert::Bits(0), Convert::Bits(bits::UPDATE), Convert::Mode(Mode::Ex), Convert::Extent { start: 0, end: 1 }]
    {
        assert!(s.ns.convert(s.now, 1, lock, wrong, &mut s.actions).is_err(), "{wrong:?}");
    }
    assert_eq!(s.ns.convert(s.now, 1, lock, Convert::Bits(bits::LOOKUP), &mut s.actions), Ok(()));
    assert!(matches!(s.done()[..], [Action::Grant { client: 3, .. }]));
    s.pass(1_000_000);
    assert!(s.done().is_empty(), "a client that has released the wanted bits is not evicted");
}

#[test]
fn convert_to_weaker_mode_or_extent_grants_waiting_locks() {
    let mut s = Scene::new();
    let lock = id(s.extent(1, Mode::Pw, 0, EOF));
    waits(s.extent(2, Mode::Pw, 8 * MIB, 9 * MIB - 1));
    s.done();
    let convert = Convert::Extent { start: 0, end: 4 * MIB - 1 };
    assert_eq!(s.ns.convert(s.now, 1, lock, convert, &mut s.actions), Ok(()));
    assert_eq!(s.completed(), [(2, (4 * MIB, EOF))]);
    waits(s.extent(3, Mode::Pr, 0, 4095));
    assert_eq!(s.blocked(), [1]);
    assert_eq!(s.ns.convert(s.now, 1, lock, Convert::Mode(Mode::Pr), &mut s.actions), Ok(()));
    assert_eq!(s.completed(), [(3, (0, 4 * MIB - 1))]);
}

#[test]
fn invalid_enqueues_are_refused() {
    let mut s = Scene::new();
    let fid = object().fid;
    let nonsense = [
        (object(), Mode::Pw, Policy::extent(5, 4)),
        (object(), Mode::Pw, Policy::bits(1)),
        (object(), Mode::Group, Policy::extent(0, 4)),
        (inode(), Mode::Pr, Policy::bits(0)),
        (inode(), Mode::Pr, Policy::bits(1 << 40)),
        (inode(), Mode::Group, Policy::bits(1)),
        (Resource::flock(fid), Mode::Ex, fcntl(1, 0, 5)),
        (Resource::flock(fid), Mode::Pr, fcntl(1, 6, 5)),
    ];
    for (resource, mode, policy) in nonsense {
        let answer = s.ask(1, resource, mode, policy);
        assert_eq!(answer, Enqueued::Refused(sheen_wire::Errno::EINVAL), "{resource:?} {mode:?} {policy:?}");
    }
    assert_eq!(s.ns.stats().resources, 0);
}

#[test]
fn locks_are_limited_per_client_and_in_total() {
    let mut s = Scene::with(Tunables { max_locks: 5, max_locks_per_client: 3, ..Tunables::default() });
    let resource = |n: u32| Resource::bits(Fid::new(9, n));
    let mut ask = |client, n| s.ask(client, resource(n), Mode::Pr, Policy::bits(1));
    let first = id(ask(1, 1));
    assert!((2..4).all(|n| matches!(ask(1, n), Enqueued::Granted { .. })));
    assert_eq!(ask(1, 4), Enqueued::Refused(sheen_wire::Errno::ENOLCK));
    assert!((4..6).all(|n| matches!(ask(2, n), Enqueued::Granted { .. })));
    assert_eq!(ask(2, 6), Enqueued::Refused(sheen_wire::Errno::ENOLCK));
    let own = id(ask(SERVER, 6)); // the server itself has no limit
    s.cancel(1, first);
    s.cancel(SERVER, own);
    assert!(matches!(s.ask(2, resource(7), Mode::Pr, Policy::bits(1)), Enqueued::Granted { .. }));
}

#[test]
fn reused_cookie_drops_the_old_lock() {
    let mut s = Scene::new();
    let ask = |oid| Enqueue::new(Resource::bits(Fid::new(1, oid)), Mode::Pr, Policy::bits(1), Cookie(7));
    let first = id(s.ns.enqueue(s.now, 1, &ask(1), &mut s.actions));
    assert_eq!(id(s.ns.enqueue(s.now, 1, &ask(1), &mut s.actions)), first, "its answer was lost");
    let second = id(s.ns.enqueue(s.now, 1, &ask(2), &mut s.actions));
    assert!(s.ns.lock(first).is_none() && s.ns.lock(second).is_some_and(|l| l.resource == ask(2).resource));
}

#[test]
fn nowait_with_ask_sends_blocking_callbacks() {
    let mut s = Scene::new();
    let held = id(s.extent(1, Mode::Pw, 0, EOF));
    let ask = |ask| Enqueue {
        flags: Flags { nowait: true, ask, ..Flags::default() },
        ..Enqueue::new(object(), Mode::Pr, Policy::extent(0, EOF), Cookie::NONE)
    };
    assert!(matches!(s.request(2, ask(false)), Enqueued::WouldBlock { .. }));
    assert!(s.done().is_empty());
    assert!(matches!(s.request(2, ask(true)), Enqueued::WouldBlock { .. }));
    assert!(matches!(s.done()[..], [Action::Block { client: 1, id, .. }] if id == held));
    s.cancel(1, held);
    id(s.request(2, ask(true)));
}
