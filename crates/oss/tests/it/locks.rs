//! Locks under which clients cache data of an OST's objects.

use std::{
    collections::BTreeSet,
    sync::{Mutex, mpsc::channel},
    time::Duration,
};

use crate::common::{OBJECT, Process, caller::*, part};
use bytes::Bytes;
use sheen_lnet::{Net, Nid};
use sheen_rpc::{Import, ImportConfig};
use sheen_wire::{
    Errno, Fid, Result,
    ldlm::{Enqueue, Enqueued, Flags, LockId, Mode, Policy, Resource},
    ost::{Allocate, Grant, ObjectAttr, PARTS_MAX, Part, Reply, Request},
};

const MIB: u64 = 1 << 20;

fn object(n: u32) -> Fid {
    Fid::new(OBJECT.seq, 100 + n)
}

/// All requests that change an object of 8 KiB.
fn changes() -> Vec<(Request, &'static [u8])> {
    let write = |offset| Request::Write {
        file: Fid::ZERO,
        parts: vec![part(offset, 4)],
        sync: false,
        mtime: None,
        grant: Grant::default(),
        held: false,
    };
    let allocate = |mode, offset| Request::Allocate { file: Fid::ZERO, mode, runs: vec![(OBJECT, offset, 4096)] };
    vec![
        (write(4000), b"abcd"),
        (write(100_000), b"abcd"),
        (allocate(Allocate::PunchHole, 4096), b""),
        (allocate(Allocate::ZeroRange { keep_size: true }, 0), b""),
        (allocate(Allocate::Reserve { keep_size: false }, MIB), b""),
        (Request::Truncate { file: Fid::ZERO, objects: vec![(OBJECT, 5000)] }, b""),
        (Request::Truncate { file: Fid::ZERO, objects: vec![(OBJECT, 2 * MIB)] }, b""),
        (Request::DestroyRange { seq: OBJECT.seq, first: 0, last: u32::MAX }, b""),
    ]
}

/// Data and blocks of the object as a client sees them.
fn look(client: &Caller<'_>) -> (Bytes, u64) {
    match client.call(Request::Attrs { objects: vec![OBJECT] }) {
        Reply::Attrs(attrs) => (client.read(OBJECT), attrs[0].blocks),
        other => panic!("{other:?}"),
    }
}

fn locks_of_others_are_revoked(holder: &Caller<'_>, writer: &Caller<'_>) {
    for (change, data) in changes() {
        holder.write(OBJECT, 0, &[7; 8192]);
        let (id, attr) = holder.keep(OBJECT);
        assert_eq!(attr.size, 8192);
        let before = look(holder);
        let begun = writer.begin(change.clone(), Bytes::from_static(data));
        assert_eq!(holder.asked(), id, "{change:?}");
        holder.process.still_waits(&begun);
        assert_eq!(look(holder), before, "{change:?} is not made yet");
        holder.cancel(id);
        assert!(holder.end(begun).is_ok(), "{change:?}");
        assert_ne!(look(holder), before, "{change:?} is made");
        holder.call(Request::DestroyRange { seq: OBJECT.seq, first: OBJECT.oid, last: OBJECT.oid });
    }
    assert_eq!(holder.process.locks(), 0);
}

#[test]
fn changes_wait_until_caching_clients_cancel_their_locks() {
    let (process, ost) = Process::with_ost();
    let (a, b) = Caller::pair(&process, &ost);
    locks_of_others_are_revoked(&a, &b);
    let far = Net::new(process.net.rt().clone());
    let c = Caller::new(&process, &ost, "c", &far, process.listen());
    locks_of_others_are_revoked(&a, &c);
    locks_of_others_are_revoked(&c, &a);
}

#[test]
fn changes_do_not_revoke_the_requesters_own_locks() {
    let (process, ost) = Process::with_ost();
    let holder = Caller::local(&process, &ost, "a");
    for (change, data) in changes() {
        holder.write(OBJECT, 0, &[7; 8192]);
        let (id, _) = holder.keep(OBJECT);
        assert!(holder.end(holder.begin(change.clone(), Bytes::from_static(data))).is_ok(), "{change:?}");
        assert_eq!(holder.callbacks.try_recv().ok(), None, "{change:?}");
        assert_eq!(process.locks(), 1, "{change:?}");
        holder.cancel(id);
        assert_eq!(process.locks(), 0);
    }
    holder.write(OBJECT, 0, &[7; 8192]);
    holder.keep(OBJECT);
    holder.call(Request::Destroy { objects: vec![OBJECT] });
    assert!(holder.read(OBJECT).is_empty());
}

#[test]
fn lock_granted_after_a_write_returns_the_new_data() {
    let (process, ost) = Process::with_ost();
    let [a, b, c] = ["a", "b", "c"].map(|name| Caller::local(&process, &ost, name));
    a.write(OBJECT, 0, b"old");
    let (id, _) = a.keep(OBJECT);
    let write = b.begin_write(OBJECT, 2, b"new");
    assert_eq!(a.asked(), id);
    let wants = c.begin(Request::Enqueue { locks: vec![pr(OBJECT, ALL)], want: 0 }, Bytes::new());
    process.still_waits(&wants);
    a.cancel(id);
    b.end(write).unwrap();
    let (answer, attr) = enqueued(c.end(wants).unwrap())[0];
    granted(answer);
    assert_eq!((attr.size, &c.read(OBJECT)[..]), (5, &b"olnew"[..]));
}

#[test]
fn range_lock_is_revoked_only_by_changes_of_that_range() {
    let (process, ost) = Process::with_ost();
    let (holder, writer) = (Caller::local(&process, &ost, "a"), Caller::local(&process, &ost, "b"));
    let keep_tail = || granted(holder.enqueue(vec![pr(OBJECT, Policy::extent(MIB, u64::MAX))])[0].0);
    let revoked_by = |id, begun| {
        assert_eq!(holder.asked(), id);
        holder.cancel(id);
        holder.end::<Result<Reply>>(begun).unwrap();
    };
    let id = keep_tail();
    writer.write(OBJECT, 0, b"the object begins to exist");
    writer.write(OBJECT, 20, b"just past the end");
    let reserve = Request::Allocate {
        file: Fid::ZERO,
        mode: Allocate::Reserve { keep_size: false },
        runs: vec![(OBJECT, 0, 4096)],
    };
    writer.call(reserve);
    holder.not_asked();
    revoked_by(id, writer.begin_write(OBJECT, MIB - 1, b"into it"));
    revoked_by(keep_tail(), writer.begin_write(OBJECT, 3 * MIB, b"far past the end"));
    let cut = |size| writer.begin(Request::Truncate { file: Fid::ZERO, objects: vec![(OBJECT, size)] }, Bytes::new());
    revoked_by(keep_tail(), cut(4000));
    revoked_by(keep_tail(), cut(5 * MIB));
    assert_eq!(process.locks(), 0);
}

/// Each client flushes dirty data past the end before it can cancel its lock. If these writes
/// conflicted with the locks of the other client, neither could continue.
#[test]
fn two_writers_flushing_past_the_end_do_not_deadlock() {
    let (process, ost) = Process::with_ost();
    let [a, b, reader] = ["a", "b", "c"].map(|name| Caller::local(&process, &ost, name));
    let pw = |start, end| Enqueue { mode: Mode::Pw, ..pr(OBJECT, Policy::extent(start, end)) };
    let first = granted(a.enqueue(vec![pw(0, MIB - 1)])[0].0);
    let second = granted(b.enqueue(vec![pw(MIB, u64::MAX)])[0].0);
    let wants = reader.begin(Request::Enqueue { locks: vec![pr(OBJECT, ALL)], want: 0 }, Bytes::new());
    assert_eq!((a.asked(), b.asked()), (first, second));
    b.write(OBJECT, MIB, b"second");
    a.write(OBJECT, 0, b"first");
    a.not_asked();
    a.cancel(first);
    b.cancel(second);
    assert_eq!(enqueued(reader.end(wants).unwrap())[0].1.size, MIB + 6);
}

/// If the OST held the lock on one object while it waits for the other, the three would wait for
/// each other.
#[test]
fn enqueue_is_granted_while_a_write_waits_for_another_object() {
    let (process, ost) = Process::with_ost();
    let (holder, writer) = (Caller::local(&process, &ost, "a"), Caller::local(&process, &ost, "b"));
    for turn in 0..2 {
        let (held, other) = if turn == 0 { (object(1), object(2)) } else { (object(2), object(1)) };
        let (id, _) = holder.keep(held);
        let piece = |object, offset| Part { object, offset, len: 3 };
        let parts = vec![piece(other, 0), piece(held, 0), piece(other, 3), piece(held, 3)];
        let write = writer.begin(
            Request::Write { file: Fid::ZERO, parts, sync: false, mtime: None, grant: Grant::default(), held: false },
            Bytes::from_static(b"abcABCdefDEF"),
        );
        assert_eq!(holder.asked(), id);
        let (second, attr) = holder.keep(other);
        assert_eq!((attr.size, &holder.read(other)[..]), (6, &b"abcdef"[..]));
        process.still_waits(&write);
        holder.cancel(id);
        writer.end(write).unwrap();
        assert_eq!(&holder.read(held)[..], b"ABCDEF");
        holder.cancel(second);
        holder.call(Request::DestroyRange { seq: held.seq, first: 0, last: u32::MAX });
    }
    assert_eq!(process.locks(), 0);
}

#[test]
fn write_waits_for_a_dead_lock_holder_until_its_eviction() {
    let (process, ost) = Process::with_ost();
    process.params.set("ldlm.namespaces.filter-*.lock_timeout_ms", "300").unwrap();
    let (dead, writer) = (Caller::local(&process, &ost, "a"), Caller::local(&process, &ost, "b"));
    let (id, _) = dead.keep(OBJECT);
    let begun = process.net.rt().now();
    writer.write(OBJECT, 0, b"x");
    let took = process.net.rt().now().since(begun).as_millis();
    assert!((300..400).contains(&took), "{took} ms; the lock timeout is 300 ms");
    assert_eq!((dead.asked(), process.locks()), (id, 0));
    process.wait_for(|| (process.value("obdfilter.sheen-OST0000.num_exports") == "1").then_some(()));
}

/// A group may hold its lock for as long as its programs want. The truncate waits for it, and a
/// third client for the truncate.
#[test]
fn truncate_that_takes_longer_than_the_lock_timeout_evicts_nobody() {
    let (process, ost) = Process::with_ost();
    process.params.set("ldlm.namespaces.filter-*.lock_timeout_ms", "300").unwrap();
    let [member, writer, reader] = ["a", "b", "c"].map(|name| Caller::local(&process, &ost, name));
    member.write(OBJECT, 0, &[7; 8192]);
    let group = Enqueue { mode: Mode::Group, policy: Policy::group(7), ..pr(OBJECT, ALL) };
    let id = granted(member.enqueue(vec![group])[0].0);
    let cut = writer.begin(Request::Truncate { file: Fid::ZERO, objects: vec![(OBJECT, 10)] }, Bytes::new());
    process.until_locks(2);
    let wants = reader.begin(Request::Enqueue { locks: vec![pr(OBJECT, ALL)], want: 0 }, Bytes::new());
    process.until_locks(3);
    process.sleep(Duration::from_secs(2));
    assert!(!cut.is_finished() && !wants.is_finished());
    member.cancel(id);
    writer.end(cut).unwrap();
    let (answer, attr) = enqueued(reader.end(wants).unwrap())[0];
    granted(answer);
    assert_eq!(attr.size, 10);
    assert_eq!(process.value("ldlm.namespaces.filter-sheen-OST0000_UUID.lock_timeouts"), "0");
    assert_eq!(process.value("obdfilter.sheen-OST0000.num_exports"), "3");
}

/// The client cannot cancel the one lock before it learns that both are granted.
#[test]
fn client_waiting_for_one_lock_is_not_evicted_for_another_of_its_request() {
    let (process, ost) = Process::with_ost();
    process.params.set("ldlm.namespaces.filter-*.lock_timeout_ms", "300").unwrap();
    let [dead, a, writer] = ["dead", "a", "writer"].map(|name| Caller::local(&process, &ost, name));
    let (id, _) = dead.keep(OBJECT);
    let locks = vec![pr(object(1), ALL), Enqueue { mode: Mode::Pw, ..pr(OBJECT, ALL) }];
    let wants = a.begin(Request::Enqueue { locks, want: 0 }, Bytes::new());
    process.still_waits(&wants);
    assert_eq!(dead.asked(), id);
    let write = writer.begin_write(object(1), 0, b"x");
    let replies = enqueued(a.end(wants).unwrap());
    let [first, second] = [0, 1].map(|n: usize| granted(replies[n].0));
    assert_eq!(a.asked(), first);
    a.cancel(first);
    writer.end(write).unwrap();
    a.cancel(second);
    process.until_locks(0);
}

#[test]
fn disconnect_drops_all_locks_and_ends_all_waits() {
    let (process, ost) = Process::with_ost();
    let [a, b, c] = ["a", "b", "c"].map(|name| Caller::local(&process, &ost, name));
    let (id, _) = a.keep(OBJECT);
    let write = b.begin_write(OBJECT, 0, b"x");
    assert_eq!(a.asked(), id);
    let wants = c.begin(Request::Enqueue { locks: vec![pr(object(1), ALL), pr(OBJECT, ALL)], want: 0 }, Bytes::new());
    process.still_waits(&wants);
    process.run(c.import.close());
    match c.end(wants) {
        Err(errno) => assert_eq!(errno, Errno::ESHUTDOWN),
        Ok(reply) => assert_eq!(enqueued(reply)[1].0, Enqueued::Refused(Errno::ESHUTDOWN)),
    }
    process.run(a.import.close());
    b.end(write).unwrap();
    assert_eq!(process.locks(), 0);
}

#[test]
fn aborted_enqueue_leaves_no_locks() {
    let (process, ost) = Process::with_ost();
    let (a, b) = Caller::pair(&process, &ost);
    let (id, _) = a.keep(OBJECT);
    let write = b.begin_write(OBJECT, 0, b"x");
    assert_eq!(a.asked(), id);
    let wants = a.begin(Request::Enqueue { locks: vec![pr(object(1), ALL), pr(OBJECT, ALL)], want: 0 }, Bytes::new());
    process.still_waits(&wants);
    wants.abort();
    a.cancel(id);
    b.end(write).unwrap();
    process.until_locks(0); // otherwise no client knows of the lock on the other object
}

#[test]
fn two_clients_lock_400_objects_each_while_a_third_writes_without_deadlock() {
    const OBJECTS: u32 = 400;
    let (process, ost) = Process::with_ost();
    let (far, nid) = (Net::new(process.net.rt().clone()), process.listen());
    let [a, b] = ["a", "b"].map(|name| Caller::new(&process, &ost, name, &far, nid));
    let writer = Caller::local(&process, &ost, "w");
    for round in 0..5 {
        // Each client cancels all locks when it has all: not before, and without waiting for the
        // other client.
        let take_and_cancel = |of: &Caller<'_>, reverse: bool| {
            let mut locks: Vec<Enqueue> = (0..OBJECTS).map(|n| pr(object(n), ALL)).collect();
            if reverse {
                locks.reverse();
            }
            let import = of.import.clone();
            process.net.rt().spawn("test", async move {
                let answers = enqueued(import.request(Request::Enqueue { locks, want: 0 }).send().await.unwrap().body);
                let locks: BTreeSet<LockId> = answers.iter().map(|(answer, _)| granted(*answer)).collect();
                assert_eq!(locks.len(), OBJECTS as usize, "each object has a lock of its own");
                let cancel = Request::Cancel { locks: locks.into_iter().collect() };
                import.request(cancel).urgent().send().await.unwrap();
                answers.into_iter().map(|(_, attr)| attr.size).collect::<BTreeSet<u64>>()
            })
        };
        let parts: Vec<Part> = (0..OBJECTS).map(|n| Part { object: object(n), ..part(round, 1) }).collect();
        let both = [take_and_cancel(&a, false), take_and_cancel(&b, true)];
        let write = writer.begin(
            Request::Write { file: Fid::ZERO, parts, sync: false, mtime: None, grant: Grant::default(), held: false },
            vec![b'x'; OBJECTS as usize].into(),
        );
        for sizes in both.map(|begun| process.end(begun)) {
            assert!(sizes.iter().all(|size| *size == round || *size == round + 1), "{sizes:?}");
        }
        writer.end(write).unwrap();
        assert_eq!(process.locks(), 0);
    }
}

/// Client A is granted object 1 and then enqueues for object 2; client B the other way round. One
/// writer comes to object 1 after A's grant, another one to object 2 after B's. If B's enqueues
/// came between A's two, each client would wait behind a writer for the other. Neither can cancel a
/// lock that it has not learned of yet.
#[test]
fn enqueues_of_several_locks_do_not_deadlock() {
    // Real threads, one of which is delayed. No client is evicted, however busy the machine is.
    let process = Process::real();
    let ost = process.start(Some(0)).unwrap();
    process.params.set("ldlm.namespaces.filter-*.lock_timeout", "600").unwrap();
    let [a, b, w] = ["a", "b", "w"].map(|name| Caller::local(&process, &ost, name));
    // This client gets a blocking callback when A is between its two enqueues, on the very thread
    // that makes them.
    let between =
        Import::<sheen_wire::Ost>::new(process.net.clone(), ImportConfig::new("x", ost.name(), vec![Nid::Lo]));
    let ((reached, is_between), (go_on, may_go_on)) = (channel(), channel::<()>());
    let may_go_on = Mutex::new(may_go_on);
    between.on_callback(move |_| {
        reached.send(()).unwrap();
        may_go_on.lock().unwrap().recv_timeout(REAL_PATIENCE).unwrap();
    });
    let writes = Request::Enqueue { locks: vec![Enqueue { mode: Mode::Pw, ..pr(object(3), ALL) }], want: 0 };
    let answer = process.run(between.request(writes).send()).unwrap();
    let third = granted(enqueued(answer.body)[0].0);

    let locks = vec![pr(object(1), ALL), pr(object(3), ALL), pr(object(2), ALL)];
    let wants = a.begin(Request::Enqueue { locks, want: 0 }, Bytes::new());
    is_between.recv_timeout(REAL_PATIENCE).unwrap();
    assert_eq!(process.locks(), 3, "A's first and second, and the one that conflicts");
    let first_write = w.begin_write(object(1), 0, b"x");
    process.until_locks(4);
    let second =
        b.begin(Request::Enqueue { locks: vec![pr(object(2), ALL), pr(object(1), ALL)], want: 0 }, Bytes::new());
    // B must not enqueue its locks now. If the time is too short for B to do so, the test sees
    // nothing.
    process.still_waits(&second);
    let second_write = w.begin_write(object(2), 0, b"x");
    // The write waits for a lock of B, or for no lock.
    process.wait_for(|| (second_write.is_finished() || process.locks() > 4).then_some(()));
    assert!(!first_write.is_finished());
    go_on.send(()).unwrap();
    let cancel = Request::Cancel { locks: vec![third] };
    process.run(between.request(cancel).urgent().send()).unwrap();
    for (answer, _) in enqueued(a.end(wants).unwrap()) {
        a.cancel(granted(answer));
    }
    for (answer, _) in enqueued(b.end(second).unwrap()) {
        b.cancel(granted(answer));
    }
    w.end(first_write).unwrap();
    w.end(second_write).unwrap();
    assert_eq!(process.locks(), 0);
}

#[test]
fn enqueue_answers_each_lock_separately() {
    let (process, ost) = Process::with_ost();
    let (a, b) = Caller::pair(&process, &ost);
    a.write(OBJECT, 0, b"abc");
    let (id, _) = a.keep(OBJECT);
    let flags = Flags { nowait: true, ..Flags::default() };
    let writes = Enqueue { mode: Mode::Pw, flags, ..pr(OBJECT, ALL) };
    let bits = Enqueue { resource: Resource::bits(OBJECT), ..pr(OBJECT, Policy::bits(1)) };
    let answers = b.enqueue(vec![writes, bits, pr(Fid::ZERO, ALL), pr(OBJECT, ALL), pr(object(1), ALL)]);
    assert!(matches!(answers[0].0, Enqueued::WouldBlock { by } if by.id == id), "{answers:?}");
    a.not_asked();
    assert_eq!(answers[1..3], [(Enqueued::Refused(Errno::EINVAL), ObjectAttr::default()); 2]);
    granted(answers[3].0);
    granted(answers[4].0);
    assert_eq!(answers.iter().map(|(_, attr)| attr.size).collect::<Vec<_>>(), [3, 0, 0, 3, 0]);
    let refused = |request| a.end(a.begin(request, Bytes::new())).err();
    assert_eq!(refused(Request::Enqueue { locks: vec![pr(OBJECT, ALL); PARTS_MAX + 1], want: 0 }), Some(Errno::E2BIG));
    assert_eq!(refused(Request::Cancel { locks: vec![id; PARTS_MAX + 1] }), Some(Errno::E2BIG));
    b.cancel(id);
    b.cancel(LockId(12345));
    assert_eq!(process.locks(), 3, "no client cancels the locks of others");
}

#[test]
fn write_of_a_disconnected_client_is_not_executed() {
    let (process, ost) = Process::with_ost();
    let [holder, writer, other] = ["a", "b", "c"].map(|name| Caller::local(&process, &ost, name));
    let (id, _) = holder.keep(OBJECT);
    let write = writer.begin_write(OBJECT, 0, b"one");
    assert_eq!(holder.asked(), id);
    let parts = [OBJECT, object(1)].map(|object| Part { object, ..part(3, 3) });
    let request = Request::Write {
        file: Fid::ZERO,
        parts: parts.to_vec(),
        sync: false,
        mtime: None,
        grant: Grant::default(),
        held: false,
    };
    let several = writer.begin(request, Bytes::from_static(b"twotwo"));
    process.run(process.net.rt().timeout(PATIENCE, writer.import.close())).unwrap();
    assert!(process.end(write).is_err() && process.end(several).is_err());
    holder.cancel(id);
    other.write(OBJECT, 0, b"x");
    assert_eq!(&other.read(OBJECT)[..], b"x");
    assert_eq!(process.locks(), 0);
}

#[test]
fn ost_stops_while_a_write_waits_for_a_lock() {
    let (process, ost) = Process::with_ost();
    let (a, b) = Caller::pair(&process, &ost);
    let (id, _) = a.keep(OBJECT);
    let write = b.begin_write(OBJECT, 0, b"x");
    assert_eq!(a.asked(), id);
    process.run(process.net.rt().timeout(PATIENCE, ost.stop())).unwrap();
    assert!(write.is_finished());
    assert!(process.params.get("ldlm.namespaces.*.lock_count").is_err());
}
