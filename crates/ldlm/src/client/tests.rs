//! Scenarios of the client's side.

use std::time::Duration;

use sheen_wire::{
    Fid,
    ldlm::{bits, *},
};

use super::*;

const EOF: u64 = u64::MAX;
/// The policy of a blocking callback for the whole object.
const ALL: Policy = Policy::extent(0, EOF);

fn object(n: u32) -> Resource {
    Resource::extent(Fid::new(1, n))
}

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

/// Makes locks with one granted on `policy` and without references.
fn with(resource: Resource, mode: Mode, policy: Policy) -> (Locks, Cookie) {
    let mut locks = Locks::new(Tunables::default());
    let cookie = add(&mut locks, resource, mode, policy, at(0));
    (locks, cookie)
}

fn add(locks: &mut Locks, resource: Resource, mode: Mode, policy: Policy, now: Instant) -> Cookie {
    let cookie = locks.begin(resource, mode, policy);
    let mut actions = Vec::new();
    assert!(locks.granted(cookie, LockId(cookie.0 + 1), mode, policy, &mut actions));
    locks.release(now, cookie, &mut actions);
    assert!(actions.is_empty());
    cookie
}

fn flush(locks: &Locks, cookie: Cookie, resource: Resource) -> Action {
    let Held { mode, policy, .. } = locks.held(cookie).expect("held");
    Action::Flush { cookie, resource, mode, policy, spare: 0 }
}

#[test]
fn matching_finds_only_locks_that_cover_the_request() {
    let (mut locks, cookie) = with(object(1), Mode::Pw, Policy::extent(4096, 8191));
    let find = |locks: &mut Locks, r, mode, s, e| locks.matching(r, mode, &Policy::extent(s, e)).map(|h| h.cookie);
    assert_eq!(find(&mut locks, object(1), Mode::Pr, 5000, 6000), Some(cookie));
    assert_eq!(find(&mut locks, object(1), Mode::Pw, 4096, 8191), Some(cookie));
    assert_eq!(find(&mut locks, object(1), Mode::Ex, 5000, 6000), None);
    assert_eq!(find(&mut locks, object(1), Mode::Pr, 4000, 6000), None);
    assert_eq!(find(&mut locks, object(1), Mode::Pr, 5000, 8192), None);
    assert_eq!(find(&mut locks, object(2), Mode::Pr, 5000, 6000), None);
    assert_eq!(locks.stats().matches, 2);
    let inode = Resource::bits(Fid::new(1, 1));
    let c = add(&mut locks, inode, Mode::Pr, Policy::bits(bits::LOOKUP | bits::UPDATE), at(0));
    assert_eq!(locks.matching(inode, Mode::Pr, &Policy::bits(bits::UPDATE)).map(|h| h.cookie), Some(c));
    assert!(locks.matching(inode, Mode::Pr, &Policy::bits(bits::UPDATE | bits::OPEN)).is_none());
    let group = add_group(&mut locks, 7);
    assert!(
        locks.covered(object(3), Mode::Group, &Policy::group(7))
            && !locks.covered(object(3), Mode::Group, &Policy::group(8))
    );
    assert_eq!(locks.resource_locks(object(3))[0].cookie, group);
}

fn add_group(locks: &mut Locks, gid: u64) -> Cookie {
    let cookie = locks.begin(object(3), Mode::Group, Policy::group(gid));
    assert!(locks.granted(cookie, LockId(99), Mode::Group, Policy::group(gid), &mut Vec::new()));
    cookie
}

#[test]
fn blocked_lock_is_flushed_once_after_the_last_release() {
    let (mut locks, cookie) = with(object(1), Mode::Pw, Policy::extent(0, EOF));
    let id = locks.held(cookie).expect("held").id;
    let mut actions = Vec::new();
    let range = Policy::extent(0, 0);
    assert!(locks.matching(object(1), Mode::Pw, &range).is_some());
    assert!(locks.matching(object(1), Mode::Pr, &range).is_some());
    locks.blocked(cookie, id, &ALL, &mut actions);
    locks.blocked(cookie, id, &ALL, &mut actions);
    assert!(locks.matching(object(1), Mode::Pw, &range).is_none(), "no new user finds it");
    locks.release(at(1), cookie, &mut actions);
    assert!(actions.is_empty());
    assert_eq!(locks.cancelled(cookie), None, "not yet");
    locks.release(at(1), cookie, &mut actions);
    assert_eq!(actions, [flush(&locks, cookie, object(1))]);
    actions.clear();
    locks.release(at(1), cookie, &mut actions);
    locks.blocked(cookie, id, &ALL, &mut actions);
    assert!(actions.is_empty(), "once");
    assert_eq!(locks.cancelled(cookie), Some(id), "the server waits for it");
    assert_eq!(locks.cancelled(cookie), None);
    locks.blocked(cookie, id, &ALL, &mut actions);
    assert_eq!(actions, [Action::Cancel { id }], "a late copy of the callback");
    assert_eq!(locks.stats().lock_count, 0);
}

#[test]
fn blocking_callback_before_the_grant_is_remembered() {
    let mut locks = Locks::new(Tunables::default());
    let mut actions = Vec::new();
    let all = Policy::extent(0, EOF);
    let cookie = locks.begin(object(1), Mode::Pw, all);
    assert_eq!(locks.pending(object(1)), 1);
    locks.blocked(cookie, LockId(5), &ALL, &mut actions);
    assert!(actions.is_empty());
    assert!(locks.granted(cookie, LockId(5), Mode::Pw, all, &mut actions));
    assert!(!locks.covered(object(1), Mode::Pw, &all));
    locks.release(at(0), cookie, &mut actions);
    assert_eq!(actions, [flush(&locks, cookie, object(1))], "used once, by its requester");
    assert_eq!(locks.cancelled(cookie), Some(LockId(5)));
}

#[test]
fn unexpected_grant_is_cancelled() {
    let mut locks = Locks::new(Tunables::default());
    let mut actions = Vec::new();
    let all = Policy::extent(0, EOF);
    let cookie = locks.begin(object(1), Mode::Pw, all);
    locks.failed(cookie, &mut actions);
    assert!(actions.is_empty(), "the server does not wait for it");
    assert!(!locks.granted(cookie, LockId(5), Mode::Pw, all, &mut actions));
    assert_eq!(actions, [Action::Cancel { id: LockId(5) }]);
    actions.clear();
    let cookie = locks.begin(object(1), Mode::Pw, all);
    assert!(locks.granted(cookie, LockId(6), Mode::Pw, all, &mut actions));
    assert!(!locks.granted(cookie, LockId(6), Mode::Pw, all, &mut actions), "twice");
    assert!(actions.is_empty());
    assert_eq!(locks.resource_locks(object(1)).len(), 1);
}

#[test]
fn failed_request_with_early_blocking_callback_is_cancelled() {
    let mut locks = Locks::new(Tunables::default());
    let (mut actions, all) = (Vec::new(), Policy::extent(0, EOF));
    let cookie = locks.begin(object(1), Mode::Pr, all);
    locks.blocked(cookie, LockId(5), &all, &mut actions);
    assert!(actions.is_empty(), "its answer is on its way");
    locks.failed(cookie, &mut actions);
    assert_eq!(actions, [Action::Cancel { id: LockId(5) }], "the server asks only once");
}

#[test]
fn pending_lock_is_cancelled_only_after_a_blocking_callback() {
    let mut locks = Locks::new(Tunables::default());
    let (mut actions, all) = (Vec::new(), Policy::extent(0, EOF));
    let cookie = locks.begin(object(1), Mode::Pw, all);
    locks.fail_if_asked(cookie, &mut actions);
    assert!(actions.is_empty() && locks.pending(object(1)) == 1);
    locks.blocked(cookie, LockId(5), &all, &mut actions);
    locks.fail_if_asked(cookie, &mut actions);
    assert_eq!(actions, [Action::Cancel { id: LockId(5) }]);
    assert!(!locks.granted(cookie, LockId(5), Mode::Pw, all, &mut actions), "the reply brings no lock");
}

#[test]
fn shrink_cancels_unused_locks_beyond_lru_size_or_age() {
    let mut locks = Locks::new(Tunables { lru_size: 3, lru_max_age_ms: 1000 });
    let all = Policy::extent(0, EOF);
    let cookies: Vec<Cookie> = (0..5).map(|n| add(&mut locks, object(n), Mode::Pr, all, at(u64::from(n)))).collect();
    // The first lock is used again, and so becomes the youngest.
    locks.matching(object(0), Mode::Pr, &all).expect("held");
    let mut actions = Vec::new();
    locks.release(at(10), cookies[0], &mut actions);
    locks.shrink(at(20), &mut actions);
    let flushed = |a: &Action| if let Action::Flush { cookie, .. } = a { *cookie } else { panic!("{a:?}") };
    assert_eq!(actions.drain(..).map(|a| flushed(&a)).collect::<Vec<_>>(), cookies[1..3]);
    assert_eq!(locks.next_expiry(), Some(at(1003)));
    locks.matching(object(3), Mode::Pr, &all).expect("held");
    locks.shrink(at(1004), &mut actions);
    assert_eq!(actions.drain(..).map(|a| flushed(&a)).collect::<Vec<_>>(), [cookies[4]], "used ones stay");
    for cookie in [cookies[1], cookies[2], cookies[4]] {
        assert_eq!(locks.cancelled(cookie), None, "no hurry");
    }
    assert_eq!((locks.take_cancels(2).len(), locks.take_cancels(9).len(), locks.cancels_queued()), (2, 1, 0));
    locks.clear(&mut actions);
    assert_eq!(actions.len(), 1);
    assert_eq!((locks.stats().lock_count, locks.stats().lock_unused_count), (2, 0));
}

#[test]
fn cancels_beyond_the_queue_limit_are_sent_at_once() {
    let mut locks = Locks::new(Tunables { lru_size: 0, ..Tunables::default() });
    let mut alone = 0;
    for n in 0..CANCELS_QUEUED_MAX as u32 + 5 {
        let cookie = add(&mut locks, object(n), Mode::Pr, Policy::extent(0, EOF), at(0));
        locks.shrink(at(0), &mut Vec::new());
        alone += usize::from(locks.cancelled(cookie).is_some());
    }
    assert_eq!((alone, locks.cancels_queued()), (5, CANCELS_QUEUED_MAX));
}

#[test]
fn cancel_resource_flushes_unused_locks() {
    let inode = Resource::bits(Fid::new(1, 1));
    let (mut locks, lookup) = with(inode, Mode::Pr, Policy::bits(bits::LOOKUP));
    let update = add(&mut locks, inode, Mode::Pr, Policy::bits(bits::UPDATE | bits::PERM), at(0));
    let used = add(&mut locks, inode, Mode::Cr, Policy::bits(bits::UPDATE), at(0));
    assert_eq!(locks.matching(inode, Mode::Cr, &Policy::bits(bits::UPDATE)).map(|h| h.cookie), Some(used));
    let mut actions = Vec::new();
    locks.cancel_resource(inode, bits::UPDATE | bits::XATTR, &mut actions);
    assert_eq!(actions, [flush(&locks, update, inode)]);
    assert_eq!(locks.cancelled(update), None);
    assert_eq!(locks.resource_locks(inode).iter().map(|h| h.cookie).collect::<Vec<_>>(), [lookup, used]);
}

#[test]
fn group_lock_is_cancelled_when_released() {
    let mut locks = Locks::new(Tunables::default());
    let group = add_group(&mut locks, 7);
    let mut actions = Vec::new();
    locks.release(at(0), group, &mut actions);
    assert_eq!(actions, [flush(&locks, group, object(3))]);
    assert!(!locks.covered(object(3), Mode::Group, &Policy::group(7)));
    assert_eq!(locks.cancelled(group), None);
    assert_eq!(locks.take_cancels(1), [LockId(99)]);
}

#[test]
fn group_lock_is_found_until_released_despite_blocking_callback() {
    let mut locks = Locks::new(Tunables::default());
    assert!(locks.in_group(object(3)).is_none());
    let group = add_group(&mut locks, 7);
    let mut actions = Vec::new();
    locks.blocked(group, LockId(99), &ALL, &mut actions);
    assert!(locks.matching(object(3), Mode::Group, &Policy::group(7)).is_none(), "it has a blocking callback");
    assert_eq!(locks.in_group(object(3)).map(|held| held.cookie), Some(group));
    assert!(locks.in_group(object(4)).is_none());
    locks.release(at(0), group, &mut actions);
    assert!(actions.is_empty(), "one of two uses");
    locks.release(at(0), group, &mut actions);
    assert_eq!(actions, [flush(&locks, group, object(3))]);
    assert!(locks.in_group(object(3)).is_none());
    locks.cancelled(group);
    assert!(locks.in_group(object(3)).is_none());
}

#[test]
fn converted_lock_keeps_its_remaining_part() {
    let (mut locks, cookie) = with(object(1), Mode::Pw, Policy::extent(0, EOF));
    let id = locks.held(cookie).expect("held").id;
    let mut actions = Vec::new();
    locks.blocked(cookie, id, &ALL, &mut actions);
    assert_eq!(actions.drain(..).count(), 1);
    let part = Policy::extent(0, 4095);
    assert_eq!(locks.converted(at(0), cookie, Mode::Ex, part), None, "not stronger");
    assert_eq!(locks.converted(at(0), cookie, Mode::Pr, part), Some(id));
    assert!(locks.covered(object(1), Mode::Pr, &part));
    assert!(
        !locks.covered(object(1), Mode::Pw, &part) && !locks.covered(object(1), Mode::Pr, &Policy::extent(0, 4096))
    );
    locks.blocked(cookie, id, &ALL, &mut actions);
    assert_eq!(actions, [flush(&locks, cookie, object(1))], "a blocking callback for the rest, too");
}

#[test]
fn flush_returns_bits_that_no_request_wants_as_spare() {
    let inode = Resource::bits(Fid::new(1, 1));
    let (all, rest) = (Policy::bits(bits::LOOKUP | bits::UPDATE | bits::PERM), Policy::bits(bits::LOOKUP | bits::PERM));
    let (mut locks, cookie) = with(inode, Mode::Pr, all);
    let id = locks.held(cookie).expect("held").id;
    let mut actions = Vec::new();
    let lookup = Policy::bits(bits::LOOKUP);
    assert!(locks.matching(inode, Mode::Pr, &lookup).is_some());
    locks.blocked(cookie, id, &Policy::bits(bits::UPDATE), &mut actions);
    assert!(actions.is_empty() && !locks.covered(inode, Mode::Pr, &lookup), "in use, and no new user finds it");
    locks.release(at(1), cookie, &mut actions);
    let spare = bits::LOOKUP | bits::PERM;
    let flush = |policy, spare| Action::Flush { cookie, resource: inode, mode: Mode::Pr, policy, spare };
    assert_eq!(actions, [flush(all, spare)]);
    actions.clear();
    assert_eq!(locks.converted(at(1), cookie, Mode::Pr, rest), Some(id));
    assert!(locks.covered(inode, Mode::Pr, &lookup) && !locks.covered(inode, Mode::Pr, &Policy::bits(bits::UPDATE)));
    assert_eq!(locks.guarded_bits(inode), spare);

    locks.blocked(cookie, id, &Policy::bits(bits::UPDATE), &mut actions);
    assert_eq!(actions, [Action::Converted { id, bits: spare }], "a late copy of the callback");
    actions.clear();
    // All bits of all callbacks that arrive while it waits are wanted.
    assert!(locks.matching(inode, Mode::Pr, &lookup).is_some());
    locks.blocked(cookie, id, &Policy::bits(bits::PERM), &mut actions);
    locks.blocked(cookie, id, &lookup, &mut actions);
    locks.release(at(2), cookie, &mut actions);
    assert_eq!(actions, [flush(rest, 0)]);
    assert_eq!(locks.cancelled(cookie), Some(id));
    actions.clear();

    let unused = add(&mut locks, inode, Mode::Pr, all, at(3));
    let id = locks.held(unused).expect("held").id;
    locks.blocked(unused, id, &Policy::bits(bits::UPDATE), &mut actions);
    assert!(matches!(actions[..], [Action::Flush { spare: left, .. }] if left == spare), "{actions:?}");
    assert_eq!(locks.converted(at(3), unused, Mode::Pr, rest), Some(id));
    actions.clear();
    locks.clear(&mut actions);
    assert!(matches!(actions[..], [Action::Flush { spare: 0, .. }]), "no blocking callback: {actions:?}");
}

#[test]
fn supersedes_ends_unused_locks_that_a_larger_lock_covers() {
    let inode = Resource::bits(Fid::new(1, 1));
    let (mut locks, one) = with(inode, Mode::Pr, Policy::bits(bits::LOOKUP));
    let two = add(&mut locks, inode, Mode::Pr, Policy::bits(bits::PERM), at(0));
    let other = add(&mut locks, inode, Mode::Pr, Policy::bits(bits::XATTR), at(0));
    let id = locks.held(one).expect("held").id;
    let used = locks.matching(inode, Mode::Pr, &Policy::bits(bits::PERM)).expect("held").cookie;
    assert_eq!(used, two);
    let more = add(&mut locks, inode, Mode::Pr, Policy::bits(bits::LOOKUP | bits::PERM), at(0));
    assert_eq!(locks.supersedes(more), [id], "neither locks in use nor locks on other bits");
    assert!(locks.held(one).is_none() && locks.held(two).is_some() && locks.held(other).is_some());
    assert_eq!(locks.stats().lock_count, 3);
    let mut actions = Vec::new();
    locks.blocked(one, id, &Policy::bits(bits::LOOKUP), &mut actions);
    assert_eq!(actions, [Action::Cancel { id }]);
}

#[test]
fn client_eviction_drops_all_locks_and_requests() {
    let (mut locks, _) = with(object(2), Mode::Pr, Policy::extent(0, EOF));
    let asked = add(&mut locks, object(1), Mode::Pr, Policy::extent(0, EOF), at(0));
    let mut actions = Vec::new();
    locks.blocked(asked, locks.held(asked).expect("held").id, &ALL, &mut actions);
    let pending = locks.begin(object(9), Mode::Pr, Policy::extent(0, EOF));
    assert_eq!(locks.evicted(), [object(1), object(2)]);
    assert_eq!(locks.cancelled(asked), None);
    assert!(!locks.covered(object(2), Mode::Pr, &Policy::extent(0, 0)));
    actions.clear();
    assert!(!locks.granted(pending, LockId(1), Mode::Pr, Policy::extent(0, EOF), &mut actions));
    let Stats { lock_count, lock_unused_count, pending, .. } = locks.stats();
    assert_eq!((lock_count, lock_unused_count, pending), (0, 0, 0));
    let again = add(&mut locks, object(2), Mode::Pr, Policy::extent(0, EOF), at(0));
    assert!(locks.held(again).is_some());
}

#[test]
fn group_locks_outlive_a_restart_of_the_server_and_are_granted_again() {
    let (mut locks, _) = with(object(2), Mode::Pr, Policy::extent(0, EOF));
    let group = add_group(&mut locks, 7);
    let pending = locks.begin(object(3), Mode::Group, Policy::group(7));
    assert_eq!(locks.ungranted(), []);
    assert_eq!(locks.restarted(), [object(2)]);
    let held = Held { cookie: group, id: LockId::NONE, mode: Mode::Group, policy: Policy::group(7) };
    assert_eq!(locks.ungranted(), [(object(3), held)]);
    assert_eq!(locks.in_group(object(3)), Some(held));
    let mut actions = Vec::new();
    assert!(!locks.granted(pending, LockId(5), Mode::Group, Policy::group(7), &mut actions), "it was forgotten");
    assert_eq!(actions.drain(..).as_slice(), [Action::Cancel { id: LockId(5) }]);
    // Twice: the first reply may have been lost.
    locks.regranted(group, LockId(6), &mut actions);
    locks.regranted(group, LockId(6), &mut actions);
    assert_eq!(locks.ungranted(), []);
    locks.release(at(0), group, &mut actions);
    locks.release(at(0), group, &mut actions);
    assert_eq!(actions.drain(..).as_slice(), [flush(&locks, group, object(3))]);

    // Restarted once more during the flush. The flush ends before the lock is granted again.
    assert_eq!(locks.restarted(), []);
    assert_eq!(locks.ungranted().len(), 1);
    assert_eq!((locks.cancelled(group), locks.cancels_queued()), (None, 0));
    locks.regranted(group, LockId(7), &mut actions);
    assert_eq!(actions, [Action::Cancel { id: LockId(7) }]);
    assert_eq!(locks.stats().lock_count, 0);
}

#[test]
fn group_lock_that_a_restarted_server_does_not_grant_is_dropped() {
    let mut locks = Locks::new(Tunables::default());
    let group = add_group(&mut locks, 7);
    locks.lost(group);
    assert!(locks.held(group).is_some(), "the server has granted it");
    locks.restarted();
    locks.lost(group);
    assert!(locks.held(group).is_none() && locks.in_group(object(3)).is_none());
    let mut actions = Vec::new();
    locks.release(at(0), group, &mut actions);
    assert_eq!(actions, []);
    assert_eq!(locks.stats().lock_count, 0);
}
