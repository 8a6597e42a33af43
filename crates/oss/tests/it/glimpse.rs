//! Attributes and data that an OST returns for objects with dirty data in caches of clients.

use std::time::Duration;

use crate::common::{OBJECT, Process, caller::*, part};
use bytes::Bytes;
use sheen_lnet::Net;
use sheen_oss::Ost;
use sheen_rt::JoinHandle;
use sheen_wire::{
    Errno, Fid, Result, Time,
    ast::Callback,
    bulk::BULK_BYTES_MAX,
    ldlm::{Enqueue, Enqueued, Flags, LockId, Mode, Policy},
    ost::{Allocate, Grant, OBJECT_SIZE_MAX, ObjectAttr, Reply, Request, Seek},
};

const MIB: u64 = 1 << 20;

fn pw(start: u64, end: u64) -> Enqueue {
    Enqueue { mode: Mode::Pw, ..pr(OBJECT, Policy::extent(start, end)) }
}

fn take(client: &Caller<'_>, want: Enqueue) -> LockId {
    granted(client.enqueue(vec![want])[0].0)
}

/// The lock of the next glimpse callback to the client.
fn glimpsed(client: &Caller<'_>) -> LockId {
    match client.callback() {
        Callback::Glimpse { id, resource, .. } => {
            assert_eq!(resource.fid, OBJECT);
            id
        }
        other => panic!("{other:?}"),
    }
}

fn answer(client: &Caller<'_>, id: LockId, known: Option<ObjectAttr>) {
    let request = Request::Glimpsed { answers: vec![(id, known)] };
    client.process.run(client.import.request(request).urgent().send()).unwrap();
}

fn begin_stat(client: &Caller<'_>) -> JoinHandle<Result<Reply>> {
    client.begin(Request::Attrs { objects: vec![OBJECT] }, Bytes::new())
}

fn attr(reply: Result<Reply>) -> ObjectAttr {
    match reply.unwrap() {
        Reply::Attrs(attrs) => attrs[0],
        other => panic!("{other:?}"),
    }
}

fn stat(client: &Caller<'_>) -> ObjectAttr {
    attr(client.end(begin_stat(client)))
}

/// Three clients: one over a connection and two in the OST's process, so that both paths are
/// tested.
fn callers<'a>(process: &'a Process, ost: &Ost) -> [Caller<'a>; 3] {
    let far = Net::new(process.net.rt().clone());
    [
        Caller::new(process, ost, "a", &far, process.listen()),
        Caller::local(process, ost, "b"),
        Caller::local(process, ost, "c"),
    ]
}

#[test]
fn attrs_include_dirty_data_of_writers() {
    let (process, ost) = Process::with_ost();
    let [a, b, reader] = callers(&process, &ost);
    reader.write(OBJECT, 0, &[1; 8192]);
    let before = stat(&reader);
    let (first, second) = (take(&a, pw(0, MIB - 1)), take(&b, pw(MIB, u64::MAX)));

    let begun = begin_stat(&reader);
    let later = Time { sec: before.mtime.unwrap().sec + 5, nsec: 7 };
    assert_eq!((glimpsed(&a), glimpsed(&b)), (first, second));
    answer(&a, first, Some(ObjectAttr { size: 9000, blocks: 8, mtime: Some(later) }));
    process.still_waits(&begun);
    answer(&b, second, Some(ObjectAttr { size: MIB + 5, blocks: 16, mtime: None }));
    let shown = attr(reader.end(begun));
    assert_eq!(shown, ObjectAttr { size: MIB + 5, blocks: before.blocks + 24, mtime: Some(later) });
    assert_eq!(process.locks(), 2, "they keep their locks");

    // A client without dirty data answers with nothing.
    let begun = begin_stat(&reader);
    answer(&a, glimpsed(&a), None);
    answer(&b, glimpsed(&b), None);
    assert_eq!(attr(reader.end(begun)), before);
    // A client is not asked because of its own request.
    let begun = begin_stat(&a);
    answer(&b, glimpsed(&b), None);
    a.not_asked();
    assert_eq!(attr(a.end(begun)), before);
}

#[test]
fn glimpse_sees_data_flushed_before_the_answer() {
    let (process, ost) = Process::with_ost();
    let [a, b, _] = callers(&process, &ost);
    for cancels in [false, true] {
        let lock = take(&a, pw(0, u64::MAX));
        let begun = begin_stat(&b);
        assert_eq!(glimpsed(&a), lock);
        a.write(OBJECT, 0, &[1; 5000]);
        process.still_waits(&begun);
        if cancels {
            a.cancel(lock)
        } else {
            answer(&a, lock, None)
        }
        assert_eq!(attr(b.end(begun)).size, 5000);
        a.cancel(lock);
        a.call(Request::DestroyRange { seq: OBJECT.seq, first: OBJECT.oid, last: OBJECT.oid });
    }
}

#[test]
fn refused_enqueue_returns_attributes_known_to_the_writer() {
    let (process, ost) = Process::with_ost();
    let [writer, other, _] = callers(&process, &ost);
    let lock = take(&writer, pw(0, u64::MAX));
    let flags = Flags { nowait: true, ..Flags::default() };
    let locks = vec![Enqueue { flags, ..pr(OBJECT, ALL) }];
    let begun = other.begin(Request::Enqueue { locks, want: 0 }, Bytes::new());
    answer(&writer, glimpsed(&writer), Some(ObjectAttr { size: 77, blocks: 8, mtime: None }));
    let answers = enqueued(other.end(begun).unwrap());
    assert!(
        matches!(answers[0], (Enqueued::WouldBlock { by }, attr) if by.id == lock && attr.size == 77),
        "{answers:?}"
    );
}

#[test]
fn refused_lock_for_writes_asks_no_writer_for_attributes() {
    let (process, ost) = Process::with_ost();
    let [writer, other, _] = callers(&process, &ost);
    let lock = take(&writer, pw(0, u64::MAX));
    let flags = Flags { nowait: true, ..Flags::default() };
    let answers = other.enqueue(vec![Enqueue { flags, ..pw(4096, 8191) }]);
    writer.not_asked();
    assert!(matches!(answers[0].0, Enqueued::WouldBlock { by } if by.id == lock), "{answers:?}");
}

#[test]
fn client_that_ignores_a_glimpse_is_evicted() {
    let (process, ost) = Process::with_ost();
    process.params.set("ldlm.namespaces.filter-*.lock_timeout_ms", "300").unwrap();
    let [dead, other, _] = callers(&process, &ost);
    take(&dead, pw(0, u64::MAX));
    assert_eq!(stat(&other).size, 0);
    assert_eq!(process.locks(), 0, "the client is evicted");
}

#[test]
fn glimpse_answers_with_invalid_attributes_are_refused() {
    let (process, ost) = Process::with_ost();
    let client = Caller::local(&process, &ost, "a");
    let refused = |attr| {
        let request = Request::Glimpsed { answers: vec![(LockId(1), Some(attr))] };
        client.end(client.begin(request, Bytes::new())).unwrap_err()
    };
    let none = ObjectAttr::default();
    assert_eq!(refused(ObjectAttr { size: OBJECT_SIZE_MAX + 1, ..none }), Errno::EFBIG);
    assert_eq!(refused(ObjectAttr { blocks: u64::MAX, ..none }), Errno::EINVAL);
    assert_eq!(refused(ObjectAttr { mtime: Some(Time { sec: 0, nsec: u32::MAX }), ..none }), Errno::EINVAL);
    answer(&client, LockId(1), Some(none));
}

/// As O_DIRECT reads: without a lock of its own.
#[test]
fn lockless_read_waits_until_the_writer_has_flushed() {
    let (process, ost) = Process::with_ost();
    let [a, b, c] = callers(&process, &ost);
    for (writer, reader) in [(&a, &b), (&b, &a), (&b, &c)] {
        writer.write(OBJECT, 0, b"....old......");
        let lock = take(writer, pw(4, 8));
        let read = |offset, len| Request::Read { parts: vec![part(offset, len)] };
        assert_eq!(read_bytes(reader, read(9, 4)), b"....", "the writer has no lock there");
        writer.not_asked();
        let import = reader.import.clone();
        let begun = process.net.rt().spawn("test", async move {
            let parts = vec![part(0, 4), part(100, 4), part(4, 9), part(4, 1)];
            import.request(Request::Read { parts }).send().await
        });
        assert_eq!(writer.asked(), lock);
        process.still_waits(&begun);
        assert_eq!(read_bytes(writer, read(0, 13)), b"....old......", "a client's own lock does not conflict");
        writer.write(OBJECT, 4, b"new");
        writer.cancel(lock);
        let reply = process.end(begun).unwrap();
        assert!(matches!(&reply.body, Reply::Read(lens) if *lens == [4, 0, 9, 1]), "{:?}", reply.body);
        assert_eq!(&reply.bulk.into_bytes()[..], b"....new......n");
    }
    assert_eq!(process.locks(), 0);
}

fn read_bytes(client: &Caller<'_>, request: Request) -> Vec<u8> {
    let reply = client.process.run(client.import.request(request).send()).unwrap();
    reply.bulk.into_bytes().to_vec()
}

#[test]
fn read_of_several_objects_waits_for_each_writer_separately() {
    let (process, ost) = Process::with_ost();
    let [a, b, reader] = callers(&process, &ost);
    let second = Fid::new(OBJECT.seq, OBJECT.oid + 1);
    let (first_lock, second_lock) =
        (take(&a, pw(0, u64::MAX)), take(&b, Enqueue { mode: Mode::Pw, ..pr(second, ALL) }));
    let import = reader.import.clone();
    let begun = process.net.rt().spawn("test", async move {
        let of = |object, offset| sheen_wire::ost::Part { object, ..part(offset, 2) };
        let parts = vec![of(OBJECT, 0), of(second, 0), of(OBJECT, 2), of(second, 2)];
        import.request(Request::Read { parts }).send().await
    });
    assert_eq!((a.asked(), b.asked()), (first_lock, second_lock));
    b.write(second, 0, b"ABCD");
    b.cancel(second_lock);
    // The read waits for the first object and holds no lock on this one.
    b.cancel(take(&b, Enqueue { mode: Mode::Pw, ..pr(second, ALL) }));
    process.still_waits(&begun);
    a.write(OBJECT, 0, b"abcd");
    a.cancel(first_lock);
    assert_eq!(&process.end(begun).unwrap().bulk.into_bytes()[..], b"abABcdCD");
}

/// The reader gets a blocking callback for its own lock, and reads once more before it cancels the
/// lock.
#[test]
fn lock_holder_reads_while_a_writer_waits_for_the_lock() {
    let (process, ost) = Process::with_ost();
    let [a, b, c] = callers(&process, &ost);
    c.write(OBJECT, 0, b"abc");
    for (reader, writer) in [(&a, &b), (&b, &a)] {
        let (lock, _) = reader.keep(OBJECT);
        let wants = writer.begin(Request::Enqueue { locks: vec![pw(0, u64::MAX)], want: 0 }, Bytes::new());
        assert_eq!(reader.asked(), lock);
        assert_eq!(&reader.read(OBJECT)[..], b"abc");
        assert_eq!(&c.read(OBJECT)[..], b"abc", "a client without locks does not wait for a lock that waits either");
        process.still_waits(&wants);
        reader.cancel(lock);
        writer.cancel(granted(enqueued(writer.end(wants).unwrap())[0].0));
    }
}

#[test]
fn seek_finds_dirty_data_of_another_client() {
    let (process, ost) = Process::with_ost();
    let [a, b, _] = callers(&process, &ost);
    a.write(OBJECT, MIB, b"data");
    let seek = |offset, what| b.begin(Request::Seek { object: OBJECT, offset, what }, Bytes::new());
    let found = |begun| match b.end::<Result<Reply>>(begun).unwrap() {
        Reply::Offset(offset) => offset,
        other => panic!("{other:?}"),
    };
    let lock = take(&a, pw(0, 4095));
    assert_eq!(found(seek(4096, Seek::Data)), Some(MIB), "behind the writer's lock");
    a.not_asked();
    let begun = seek(0, Seek::Data);
    assert_eq!(a.asked(), lock);
    a.write(OBJECT, 0, &[1; 4096]);
    a.cancel(lock);
    assert_eq!(found(begun), Some(0));
    assert_eq!(found(seek(0, Seek::Hole)), Some(4096));
}

#[test]
fn flushing_client_is_not_evicted_while_writes_arrive() {
    let (process, ost) = Process::with_ost();
    process.params.set("ldlm.namespaces.filter-*.lock_timeout_ms", "1000").unwrap();
    let [a, b, _] = callers(&process, &ost);
    let lock = take(&a, pw(0, u64::MAX));
    let begun = b.begin(Request::Read { parts: vec![part(0, 8)] }, Bytes::new());
    assert_eq!(a.asked(), lock);
    for n in 0..8 {
        process.sleep(Duration::from_millis(250));
        a.write(OBJECT, n, b"x");
        assert!(!begun.is_finished());
    }
    a.cancel(lock);
    assert!(matches!(b.end(begun), Ok(Reply::Read(lens)) if lens == [8]));
    assert_eq!(process.value("ldlm.namespaces.filter-sheen-OST0000_UUID.lock_timeouts"), "0");
}

/// A client that appends holds locks on some objects while it waits for others. A client that only
/// reads must not wait for that.
#[test]
fn read_does_not_wait_for_a_lock_without_dirty_data() {
    let (process, ost) = Process::with_ost();
    let [a, b, _] = callers(&process, &ost);
    a.write(OBJECT, 0, b"abc");
    let lock = take(&a, pw(0, u64::MAX));
    let begun = b.begin(Request::Read { parts: vec![part(0, 8)] }, Bytes::new());
    match a.callback() {
        Callback::Glimpse { id, .. } => a.keeps(id, None),
        other => panic!("{other:?}"),
    }
    assert!(matches!(b.end(begun), Ok(Reply::Read(lens)) if lens == [3]));
    a.not_asked();
    a.cancel(lock);
}

/// Dirty data of an object that is removed need not be flushed: the mode of the blocking callback
/// says so.
#[test]
fn only_destroy_revokes_locks_with_ex() {
    let (process, ost) = Process::with_ost();
    let [a, b, _] = callers(&process, &ost);
    let wanted = |request, bulk: &'static [u8]| {
        let lock = take(&a, pw(0, u64::MAX));
        let begun = b.begin(request, Bytes::from_static(bulk));
        let (_, mode) = a.asked_for();
        a.cancel(lock);
        b.end(begun).unwrap();
        mode
    };
    let write = Request::Write {
        file: Fid::ZERO,
        parts: vec![part(0, 4)],
        sync: false,
        mtime: None,
        grant: Grant::default(),
        held: false,
    };
    let punch = Request::Allocate { file: Fid::ZERO, mode: Allocate::PunchHole, runs: vec![(OBJECT, 0, 4096)] };
    for change in [
        Request::Truncate { file: Fid::ZERO, objects: vec![(OBJECT, 0)] },
        punch,
        Request::Read { parts: vec![part(0, 4)] },
    ] {
        assert_ne!(wanted(change.clone(), b""), Mode::Ex, "{change:?}");
    }
    assert_ne!(wanted(write.clone(), b"abcd"), Mode::Ex);
    assert_eq!(wanted(Request::DestroyRange { seq: OBJECT.seq, first: 0, last: 99 }, b""), Mode::Ex);
    a.write(OBJECT, 0, b"abc");
    assert_eq!(wanted(Request::Destroy { objects: vec![OBJECT] }, b""), Mode::Ex);
}

/// Flushes 4 bytes that a program had written at this time.
fn flush_of(client: &Caller<'_>, mtime: Time) -> Result<(), Errno> {
    let grant = Grant::default();
    let request =
        Request::Write { file: Fid::ZERO, parts: vec![part(0, 4)], sync: true, mtime: Some(mtime), grant, held: false };
    client.end(client.begin(request, Bytes::from_static(b"abcd"))).map(drop)
}

#[test]
fn flushed_writes_get_the_mtime_of_the_original_write() {
    let (process, ost) = Process::with_ost();
    let client = Caller::local(&process, &ost, "a");
    let now = || process.net.rt().wall();
    let flush = |mtime| flush_of(&client, mtime);
    let shown = || stat(&client).mtime.unwrap();
    let ago = |sec| Time { sec: now().sec - sec, nsec: 5 };

    let written = ago(60);
    flush(written).unwrap();
    assert_eq!(shown(), written, "the object did not exist then");
    let later = ago(30);
    flush(later).unwrap();
    assert_eq!(shown(), later);
    flush(ago(40)).unwrap();
    assert_eq!(shown(), later, "it was written later than that");
    process.run(ost.stop());
    let ost = process.start(None).unwrap();
    let client = Caller::local(&process, &ost, "a");
    assert_eq!(stat(&client).mtime, Some(later), "also when the object is opened again");
    let begun = now();
    client.write(OBJECT, 0, b"x");
    let shown = || stat(&client).mtime.unwrap();
    let written = shown();
    assert!(written >= begun);
    let flush = |mtime| flush_of(&client, mtime);
    flush(ago(20)).unwrap();
    assert_eq!(shown(), written, "another write came since");
    flush(Time { sec: begun.sec + 1_000_000, nsec: 0 }).unwrap();
    assert!((written..=now()).contains(&shown()), "nothing is written in the future");
    assert_eq!(flush(Time { sec: 0, nsec: 1_000_000_000 }), Err(Errno::EINVAL));
}

#[test]
fn writes_beyond_the_waiting_bound_get_lock_first() {
    let (process, ost) = Process::with_ost();
    let [writer, holder, other] = callers(&process, &ost);
    let (lock, _) = holder.keep(OBJECT);
    let write = |client: &Caller<'_>, offset, len: usize| {
        let request = Request::Write {
            file: Fid::ZERO,
            parts: vec![part(offset, len)],
            sync: false,
            mtime: None,
            grant: Grant::default(),
            held: false,
        };
        client.begin(request, vec![7; len].into())
    };
    let first = write(&writer, 0, BULK_BYTES_MAX / 2);
    assert_eq!(holder.asked(), lock);
    let second = write(&writer, 0, BULK_BYTES_MAX / 2);
    process.until_locks(3);
    assert!(matches!(writer.end(write(&writer, 0, 1)), Ok(Reply::LockFirst)));
    assert!(holder.read(OBJECT).is_empty(), "nothing is written");
    let of_another = write(&other, 0, 1);
    process.still_waits(&of_another);
    // The client waits for a lock instead, and writes under it.
    let wants = writer.begin(Request::Enqueue { locks: vec![pw(0, u64::MAX)], want: 0 }, Bytes::new());
    holder.cancel(lock);
    for write in [first, second, of_another] {
        assert!(matches!(writer.end(write), Ok(Reply::Done { .. })));
    }
    writer.cancel(granted(enqueued(writer.end(wants).unwrap())[0].0));
    assert!(matches!(writer.end(write(&writer, 0, 1)), Ok(Reply::Done { .. })), "no write waits any more");
}
