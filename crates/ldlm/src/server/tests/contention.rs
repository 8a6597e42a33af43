//! Contended objects, whose locks clients take from each other.

use super::*;

/// Two clients write adjacent blocks by turns. Each cancels its lock right after the blocking
/// callback. Returns the answers to the requests.
fn take_turns(s: &mut Scene, turns: u64, lockless: bool, apart: bool) -> Vec<Enqueued> {
    let mut answers = Vec::new();
    for n in 0..turns {
        let block = if apart { n } else { 0 };
        let policy = Policy::extent(block * MIB, (block + 1) * MIB - 1);
        let ask = Enqueue::new(object(), Mode::Pw, policy, Cookie::NONE);
        answers.push(s.request(1 + n % 2, Enqueue { flags: Flags { lockless, ..Flags::default() }, ..ask }));
        for action in s.done() {
            if let Action::Block { client, id, .. } = action {
                s.cancel(client, id);
            }
        }
        s.pass(1);
    }
    answers
}

#[test]
fn alternating_writers_stop_expansion_until_contention_ends() {
    let mut s = Scene::new();
    take_turns(&mut s, 100, true, true);
    assert_eq!(s.ns.level(s.now, object()), Level::NoExpand, "that is enough for blocks that do not touch");
    assert_eq!(s.ns.stats().blocking_callbacks, 8);
    s.pass(3_000);
    assert_eq!(s.ns.level(s.now, object()), Level::Normal);
}

#[test]
fn writers_of_the_same_block_are_answered_contended() {
    let mut s = Scene::new();
    let answers = take_turns(&mut s, 40, true, false);
    assert!(answers[30..].iter().all(|a| *a == Enqueued::Contended), "{answers:?}");
    assert_eq!(s.ns.level(s.now, object()), Level::Contended);
    // The remaining locks are dropped. The object stays contended until clients no longer take
    // turns. Then its resource is freed.
    s.ns.evict(s.now, 1, &mut s.actions);
    s.ns.evict(s.now, 2, &mut s.actions);
    assert_eq!(s.ns.stats().lock_count(), 0);
    assert_eq!(s.ns.level(s.now, object()), Level::Contended);
    s.pass(3_000);
    assert_eq!((s.ns.level(s.now, object()), s.ns.stats().resources), (Level::Normal, 0));
}

#[test]
fn enqueues_without_lockless_are_granted_on_contended_objects() {
    let mut s = Scene::new();
    let answers = take_turns(&mut s, 60, false, false);
    assert!(answers[1..].iter().all(|a| matches!(a, Enqueued::Waiting { .. })), "{answers:?}");
    let mut off = Scene::with(Tunables { adaptive: false, ..Tunables::default() });
    take_turns(&mut off, 60, true, true);
    assert_eq!(off.ns.level(off.now, object()), Level::Normal);
    assert_eq!(off.ns.stats().blocking_callbacks, 59, "switched off, they take turns for ever");
}

/// Clients write records of 47,008 bytes by turns, each under a lock on the pages of its record.
/// After a blocking callback a client cancels at once. After the answer `Contended` it writes
/// without a lock. Returns the number of conflicts until the object was contended.
fn interleave(s: &mut Scene, clients: u64, records: u64) -> Option<u64> {
    let mut contended_after = None;
    for n in 0..records {
        let client = 1 + n % clients;
        let pages = Policy::extent((n * 47_008) & !4095, ((n + 1) * 47_008 - 1) | 4095);
        let ask = Enqueue::new(object(), Mode::Pw, pages, Cookie::NONE);
        let answer = s.request(client, Enqueue { flags: Flags { lockless: true, ..Flags::default() }, ..ask });
        if answer == Enqueued::Contended {
            contended_after.get_or_insert(s.ns.stats().blocking_callbacks);
            let own = s.ns.enqueue_sparing(s.now, client, &Enqueue { cookie: Cookie::NONE, ..ask }, &mut s.actions);
            cancel_all(s);
            s.cancel(SERVER, id(own));
        }
        cancel_all(s);
        s.pass(1);
    }
    contended_after
}

/// Cancels all locks for which there are blocking callbacks.
fn cancel_all(s: &mut Scene) {
    for action in s.done() {
        if let Action::Block { client, id, .. } = action {
            s.cancel(client, id);
        }
    }
}

#[test]
fn interleaved_writers_become_lockless_after_two_rounds_of_conflicts() {
    for clients in [2, 4, 8] {
        let mut s = Scene::new();
        let after = interleave(&mut s, clients, 400).unwrap();
        assert!((16..=16 + clients).contains(&after), "{clients} clients: {after}");
        assert_eq!((s.ns.level(s.now, object()), s.ns.stats().contended), (Level::Contended, 2));
        assert!(s.ns.stats().blocking_callbacks <= 16 + clients, "locks from before are cancelled at the next write");
    }
}

#[test]
fn single_remaining_writer_gets_expanded_locks_again() {
    let mut s = Scene::new();
    interleave(&mut s, 4, 100);
    let alone = |s: &mut Scene| {
        let ask = Enqueue::new(object(), Mode::Pw, Policy::extent(0, 4095), Cookie::NONE);
        let answer = s.request(1, Enqueue { flags: Flags { lockless: true, ..Flags::default() }, ..ask });
        cancel_all(s);
        answer
    };
    assert_eq!(alone(&mut s), Enqueued::Contended);
    for _ in 0..19 {
        s.pass(100);
        assert_eq!(alone(&mut s), Enqueued::Contended);
    }
    s.pass(200);
    assert_eq!(range(alone(&mut s)), (0, EOF));
}

#[test]
fn alternating_writers_retry_locks_periodically_without_expansion() {
    let mut s = Scene::new();
    interleave(&mut s, 4, 10_000);
    let stats = s.ns.stats();
    // 10 s, of which each 2 s begin with a round of conflicts.
    assert!(stats.blocking_callbacks < 5 * 16 + 8, "{stats:?}");
    assert!(stats.lockless > 9_000, "{stats:?}");
    assert!(s.ns.level(s.now, object()) >= Level::NoExpand);
    // The same clients, each in its own part.
    for n in 0..3_000u64 {
        let client = 1 + n % 4;
        let start = client * 1000 * MIB + n * MIB;
        let ask = Enqueue::new(object(), Mode::Pw, Policy::extent(start, start + MIB - 1), Cookie::NONE);
        s.request(client, Enqueue { flags: Flags { lockless: true, ..Flags::default() }, ..ask });
        cancel_all(&mut s);
        s.pass(1);
    }
    assert_eq!(s.ns.level(s.now, object()), Level::NoExpand, "locks are of use again");
    assert!(s.ns.stats().granted > 500);
}

#[test]
fn client_answered_contended_keeps_its_granted_locks() {
    let mut s = Scene::new();
    let far = Policy::extent(1 << 40, (1 << 40) + 4095);
    let held = |s: &Scene, lock| s.ns.lock(lock).is_some_and(|l| l.granted && !l.asked);
    take_turns(&mut s, 10, true, false);
    let exact = Flags { no_expand: true, ..Flags::default() };
    let lock = id(s.request(1, Enqueue { flags: exact, ..Enqueue::new(object(), Mode::Pw, far, Cookie::NONE) }));
    let answers = take_turns(&mut s, 40, true, false);
    assert_eq!(answers[39], Enqueued::Contended);
    assert!(held(&s, lock));
    // The client's own writes without a lock leave the lock alone; those of another client do not.
    let ask = Enqueue::new(object(), Mode::Pw, far, Cookie::NONE);
    let own = s.ns.enqueue_sparing(s.now, 1, &ask, &mut s.actions);
    range(own);
    s.cancel(SERVER, id(own));
    assert!(held(&s, lock) && s.blocked().is_empty());
    waits(s.ns.enqueue_sparing(s.now, 2, &ask, &mut s.actions));
    assert_eq!(s.blocked(), [1]);
}
