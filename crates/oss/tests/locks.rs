//! What an OST does with the locks under which clients cache.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "a test")]

mod common;

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, channel},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use common::{OBJECT, Process, part};
use sheen_lnet::{Net, Nid};
use sheen_oss::Ost;
use sheen_rpc::{Import, ImportConfig};
use sheen_rt::JoinHandle;
use sheen_wire::{
    Bulk, Errno, Fid, Result,
    ast::Callback,
    ldlm::{Cookie, Enqueue, Enqueued, Flags, LockId, Mode, Policy, Resource},
    ost::{Allocate, Grant, ObjectAttr, PARTS_MAX, Part, Reply, Request},
};

/// Longer than anything here takes that does not wait for a lock.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time for something to happen that must not.
const MOMENT: Duration = Duration::from_millis(30);
const ALL: Policy = Policy::extent(0, u64::MAX);
const MIB: u64 = 1 << 20;

fn object(n: u32) -> Fid {
    Fid::new(OBJECT.seq, 100 + n)
}

/// A client that answers callbacks when the test says so.
struct Caller<'a> {
    process: &'a Process,
    import: Arc<Import<sheen_wire::Ost>>,
    callbacks: Receiver<Callback>,
}

impl<'a> Caller<'a> {
    fn new(process: &'a Process, ost: &Ost, name: &str, net: &Arc<Net>, nid: Nid) -> Caller<'a> {
        let import = Import::new(net.clone(), ImportConfig::new(name, ost.name(), vec![nid]));
        let (sender, callbacks) = channel();
        import.on_callback(move |callback| _ = sender.send(callback));
        Caller { process, import, callbacks }
    }

    fn local(process: &'a Process, ost: &Ost, name: &str) -> Caller<'a> {
        Caller::new(process, ost, name, &process.net, Nid::Lo)
    }

    fn begin(&self, request: Request, bulk: Bytes) -> JoinHandle<Result<Reply>> {
        let import = self.import.clone();
        let call = async move { Ok(import.call(request, bulk.into()).await?.body) };
        self.process.net.rt().spawn("test", call)
    }

    fn begin_write(&self, object: Fid, offset: u64, data: &'static [u8]) -> JoinHandle<Result<Reply>> {
        let parts = vec![Part { object, offset, len: data.len() as u32 }];
        self.begin(
            Request::Write { parts, sync: false, mtime: None, grant: Grant::default() },
            Bytes::from_static(data),
        )
    }

    fn end<T>(&self, begun: JoinHandle<T>) -> T {
        self.process.end(begun)
    }

    fn call(&self, request: Request) -> Reply {
        self.end(self.begin(request, Bytes::new())).unwrap()
    }

    fn write(&self, object: Fid, offset: u64, data: &'static [u8]) {
        self.end(self.begin_write(object, offset, data)).unwrap();
    }

    fn enqueue(&self, locks: Vec<Enqueue>) -> Vec<(Enqueued, ObjectAttr)> {
        enqueued(self.call(Request::Enqueue { locks, want: 0 }))
    }

    /// Keeps size and data of an object.
    fn keep(&self, object: Fid) -> (LockId, ObjectAttr) {
        let [(answer, attr)] = self.enqueue(vec![pr(object, ALL)])[..] else { panic!("one answer") };
        (granted(answer), attr)
    }

    fn cancel(&self, id: LockId) {
        let request = Request::Cancel { locks: vec![id] };
        self.process.runtime.block_on(self.import.call_urgent(request, Bulk::new())).unwrap();
    }

    fn read(&self, object: Fid) -> Bytes {
        let request = Request::Read { parts: vec![Part { object, ..part(0, 1 << 20) }] };
        let reply = self.process.runtime.block_on(self.import.call(request, Bulk::new()));
        reply.unwrap().bulk.into_bytes()
    }

    /// The lock that is asked back.
    fn asked(&self) -> LockId {
        match self.callbacks.recv_timeout(PATIENCE).unwrap() {
            Callback::Blocking { id, .. } => id,
            other => panic!("{other:?}"),
        }
    }

    fn not_asked(&self) {
        assert_eq!(self.callbacks.recv_timeout(MOMENT).ok(), None);
    }
}

impl Process {
    fn end<T>(&self, begun: JoinHandle<T>) -> T {
        self.runtime.block_on(self.net.rt().timeout(PATIENCE, begun)).unwrap().unwrap()
    }

    fn locks(&self) -> u64 {
        self.value("ldlm.namespaces.filter-sheen-OST0000_UUID.lock_count").parse().unwrap()
    }
}

fn still_waits<T>(begun: &JoinHandle<T>) {
    std::thread::sleep(MOMENT);
    assert!(!begun.is_finished());
}

fn pr(object: Fid, policy: Policy) -> Enqueue {
    static COOKIES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    let cookie = Cookie(COOKIES.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    let flags = Flags { no_expand: true, ..Flags::default() };
    Enqueue { flags, ..Enqueue::new(Resource::extent(object), Mode::Pr, policy, cookie) }
}

fn enqueued(reply: Reply) -> Vec<(Enqueued, ObjectAttr)> {
    match reply {
        Reply::Enqueued { locks: answers, .. } => answers,
        other => panic!("{other:?}"),
    }
}

fn granted(answer: Enqueued) -> LockId {
    match answer {
        Enqueued::Granted { id, .. } => id,
        other => panic!("{other:?}"),
    }
}

/// Everything that changes an object of 8 KiB.
fn changes() -> Vec<(Request, &'static [u8])> {
    let write =
        |offset| Request::Write { parts: vec![part(offset, 4)], sync: false, mtime: None, grant: Grant::default() };
    let allocate = |mode, offset| Request::Allocate { mode, runs: vec![(OBJECT, offset, 4096)] };
    vec![
        (write(4000), b"abcd"),
        (write(100_000), b"abcd"),
        (allocate(Allocate::PunchHole, 4096), b""),
        (allocate(Allocate::ZeroRange { keep_size: true }, 0), b""),
        (allocate(Allocate::Reserve { keep_size: false }, MIB), b""),
        (Request::Truncate { objects: vec![(OBJECT, 5000)] }, b""),
        (Request::Truncate { objects: vec![(OBJECT, 2 * MIB)] }, b""),
        (Request::Destroy { objects: vec![OBJECT] }, b""),
        (Request::DestroyRange { seq: OBJECT.seq, first: 0, last: u32::MAX }, b""),
    ]
}

/// What a client can see of it.
fn look(client: &Caller<'_>) -> (Bytes, u64) {
    match client.call(Request::Attrs { objects: vec![OBJECT] }) {
        Reply::Attrs(attrs) => (client.read(OBJECT), attrs[0].blocks),
        other => panic!("{other:?}"),
    }
}

fn others_are_called_back(holder: &Caller<'_>, writer: &Caller<'_>) {
    for (change, data) in changes() {
        holder.write(OBJECT, 0, &[7; 8192]);
        let (id, attr) = holder.keep(OBJECT);
        assert_eq!(attr.size, 8192);
        let before = look(holder);
        let begun = writer.begin(change.clone(), Bytes::from_static(data));
        assert_eq!(holder.asked(), id, "{change:?}");
        still_waits(&begun);
        assert_eq!(look(holder), before, "{change:?} is not made yet");
        holder.cancel(id);
        assert!(holder.end(begun).is_ok(), "{change:?}");
        assert_ne!(look(holder), before, "{change:?} is made");
        holder.call(Request::Destroy { objects: vec![OBJECT] });
    }
    assert_eq!(holder.process.locks(), 0);
}

#[test]
fn who_has_it_cached_gives_it_up_before_others_change_it() {
    let process = Process::new();
    let ost = process.start(Some(0)).unwrap();
    let (a, b) = (Caller::local(&process, &ost, "a"), Caller::local(&process, &ost, "b"));
    others_are_called_back(&a, &b);
    let address = process.runtime.block_on(process.server.listen("127.0.0.1:0".parse().unwrap())).unwrap();
    let far = Net::new(process.net.rt().clone());
    let c = Caller::new(&process, &ost, "c", &far, Nid::Tcp(address));
    others_are_called_back(&a, &c);
    others_are_called_back(&c, &a);
}

#[test]
fn own_locks_are_not_in_the_way_and_stay() {
    let process = Process::new();
    let ost = process.start(Some(0)).unwrap();
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
}

#[test]
fn what_is_granted_after_a_change_shows_it() {
    let process = Process::new();
    let ost = process.start(Some(0)).unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| Caller::local(&process, &ost, name));
    a.write(OBJECT, 0, b"old");
    let (id, _) = a.keep(OBJECT);
    let write = b.begin_write(OBJECT, 2, b"new");
    assert_eq!(a.asked(), id);
    let wants = c.begin(Request::Enqueue { locks: vec![pr(OBJECT, ALL)], want: 0 }, Bytes::new());
    still_waits(&wants);
    a.cancel(id);
    b.end(write).unwrap();
    let (answer, attr) = enqueued(c.end(wants).unwrap())[0];
    granted(answer);
    assert_eq!((attr.size, &c.read(OBJECT)[..]), (5, &b"olnew"[..]));
}

#[test]
fn a_lock_on_the_tail_is_a_lock_on_the_size() {
    let process = Process::new();
    let ost = process.start(Some(0)).unwrap();
    let (holder, writer) = (Caller::local(&process, &ost, "a"), Caller::local(&process, &ost, "b"));
    let keep_tail = || granted(holder.enqueue(vec![pr(OBJECT, Policy::extent(MIB, u64::MAX))])[0].0);
    let revoked_by = |id, begun| {
        assert_eq!(holder.asked(), id);
        holder.cancel(id);
        holder.end::<Result<Reply>>(begun).unwrap();
    };
    revoked_by(keep_tail(), writer.begin_write(OBJECT, 0, b"the object begins to exist"));
    let id = keep_tail();
    writer.write(OBJECT, 4, b"inside");
    holder.not_asked();
    revoked_by(id, writer.begin_write(OBJECT, 20, b"just past the end"));
    let reserve = Request::Allocate { mode: Allocate::Reserve { keep_size: false }, runs: vec![(OBJECT, 0, 4096)] };
    revoked_by(keep_tail(), writer.begin(reserve, Bytes::new()));
    let id = keep_tail();
    writer.write(OBJECT, 4000, b"inside of what was reserved");
    holder.not_asked();
    revoked_by(id, writer.begin(Request::Truncate { objects: vec![(OBJECT, 4000)] }, Bytes::new()));
    revoked_by(keep_tail(), writer.begin_write(OBJECT, 3999, b"past what was left"));
}

/// A write that was inside of the object when it came, but waited behind a truncate, moves the end.
#[test]
fn a_write_that_waited_for_a_truncate_revokes_the_size_that_others_learned_meanwhile() {
    let process = Process::new();
    let ost = process.start(Some(0)).unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| Caller::local(&process, &ost, name));
    a.write(OBJECT, 0, &[1; 8192]);
    let (id, _) = a.keep(OBJECT);
    let truncate = b.begin(Request::Truncate { objects: vec![(OBJECT, 0)] }, Bytes::new());
    assert_eq!(a.asked(), id);
    let write = b.begin_write(OBJECT, 0, b"short");
    still_waits(&write);
    let tail =
        c.begin(Request::Enqueue { locks: vec![pr(OBJECT, Policy::extent(4096, u64::MAX))], want: 0 }, Bytes::new());
    still_waits(&tail);
    a.cancel(id);
    b.end(truncate).unwrap();
    let (answer, attr) = enqueued(c.end(tail).unwrap())[0];
    if attr.size == 0 {
        assert_eq!(c.asked(), granted(answer));
        c.cancel(granted(answer));
    }
    b.end(write).unwrap();
    assert_eq!(&a.read(OBJECT)[..], b"short");
}

/// If the OST held the one object's lock while it waits for the other's, the three would wait for each other.
#[test]
fn who_holds_one_object_gets_the_other_that_is_being_written() {
    let process = Process::new();
    let ost = process.start(Some(0)).unwrap();
    let (holder, writer) = (Caller::local(&process, &ost, "a"), Caller::local(&process, &ost, "b"));
    for turn in 0..2 {
        let (held, other) = if turn == 0 { (object(1), object(2)) } else { (object(2), object(1)) };
        let (id, _) = holder.keep(held);
        let piece = |object, offset| Part { object, offset, len: 3 };
        let parts = vec![piece(other, 0), piece(held, 0), piece(other, 3), piece(held, 3)];
        let write = writer.begin(
            Request::Write { parts, sync: false, mtime: None, grant: Grant::default() },
            Bytes::from_static(b"abcABCdefDEF"),
        );
        assert_eq!(holder.asked(), id);
        let (second, attr) = holder.keep(other);
        assert_eq!((attr.size, &holder.read(other)[..]), (6, &b"abcdef"[..]));
        still_waits(&write);
        holder.cancel(id);
        writer.end(write).unwrap();
        assert_eq!(&holder.read(held)[..], b"ABCDEF");
        holder.cancel(second);
        holder.call(Request::Destroy { objects: vec![held, other] });
    }
    assert_eq!(process.locks(), 0);
}

#[test]
fn a_dead_holder_is_waited_for_until_it_is_evicted() {
    let process = Process::new();
    let ost = process.start(Some(0)).unwrap();
    process.params.set("ldlm.namespaces.filter-*.lock_timeout_ms", "300").unwrap();
    let (dead, writer) = (Caller::local(&process, &ost, "a"), Caller::local(&process, &ost, "b"));
    let (id, _) = dead.keep(OBJECT);
    let begun = Instant::now();
    writer.write(OBJECT, 0, b"x");
    assert!(begun.elapsed() >= Duration::from_millis(250), "it had its time");
    assert_eq!((dead.asked(), process.locks()), (id, 0));
    assert_eq!(process.value("obdfilter.sheen-OST0000.num_exports"), "1");
}

#[test]
fn a_client_that_says_goodbye_gives_up_everything_and_waits_for_nothing() {
    let process = Process::new();
    let ost = process.start(Some(0)).unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| Caller::local(&process, &ost, name));
    let (id, _) = a.keep(OBJECT);
    let write = b.begin_write(OBJECT, 0, b"x");
    assert_eq!(a.asked(), id);
    let wants = c.begin(Request::Enqueue { locks: vec![pr(object(1), ALL), pr(OBJECT, ALL)], want: 0 }, Bytes::new());
    still_waits(&wants);
    process.runtime.block_on(c.import.close());
    match c.end(wants) {
        Err(errno) => assert_eq!(errno, Errno::ESHUTDOWN),
        Ok(reply) => assert_eq!(enqueued(reply)[1].0, Enqueued::Refused(Errno::ESHUTDOWN)),
    }
    process.runtime.block_on(a.import.close());
    b.end(write).unwrap();
    assert_eq!(process.locks(), 0);
}

#[test]
fn a_request_that_is_given_up_leaves_no_locks() {
    let process = Process::new();
    let ost = process.start(Some(0)).unwrap();
    let (a, b) = (Caller::local(&process, &ost, "a"), Caller::local(&process, &ost, "b"));
    let (id, _) = a.keep(OBJECT);
    let write = b.begin_write(OBJECT, 0, b"x");
    assert_eq!(a.asked(), id);
    let wants = a.begin(Request::Enqueue { locks: vec![pr(object(1), ALL), pr(OBJECT, ALL)], want: 0 }, Bytes::new());
    still_waits(&wants);
    wants.abort();
    a.cancel(id);
    b.end(write).unwrap();
    let end = Instant::now() + PATIENCE;
    while process.locks() > 0 {
        assert!(Instant::now() < end, "nobody knows of the lock on the other object");
        std::thread::sleep(MOMENT);
    }
}

#[test]
fn two_clients_take_many_objects_while_a_third_writes_them() {
    const OBJECTS: u32 = 400;
    let process = Process::new();
    let ost = process.start(Some(0)).unwrap();
    let address = process.runtime.block_on(process.server.listen("127.0.0.1:0".parse().unwrap())).unwrap();
    let far = Net::new(process.net.rt().clone());
    let [a, b] =
        [("a", &far), ("b", &far)].map(|(name, net)| Caller::new(&process, &ost, name, net, Nid::Tcp(address)));
    let writer = Caller::local(&process, &ost, "w");
    for round in 0..5 {
        // Each client gives all back when it has all: not before, and without waiting for the other.
        let take_and_give_back = |of: &Caller<'_>, reverse: bool| {
            let mut locks: Vec<Enqueue> = (0..OBJECTS).map(|n| pr(object(n), ALL)).collect();
            if reverse {
                locks.reverse();
            }
            let import = of.import.clone();
            process.net.rt().spawn("test", async move {
                let answers =
                    enqueued(import.call(Request::Enqueue { locks, want: 0 }, Bulk::new()).await.unwrap().body);
                let locks: BTreeSet<LockId> = answers.iter().map(|(answer, _)| granted(*answer)).collect();
                assert_eq!(locks.len(), OBJECTS as usize, "each object has a lock of its own");
                let cancel = Request::Cancel { locks: locks.into_iter().collect() };
                import.call_urgent(cancel, Bulk::new()).await.unwrap();
                answers.into_iter().map(|(_, attr)| attr.size).collect::<BTreeSet<u64>>()
            })
        };
        let parts: Vec<Part> = (0..OBJECTS).map(|n| Part { object: object(n), ..part(round, 1) }).collect();
        let both = [take_and_give_back(&a, false), take_and_give_back(&b, true)];
        let write = writer.begin(
            Request::Write { parts, sync: false, mtime: None, grant: Grant::default() },
            vec![b'x'; OBJECTS as usize].into(),
        );
        for sizes in both.map(|begun| process.end(begun)) {
            assert!(sizes.iter().all(|size| *size == round || *size == round + 1), "{sizes:?}");
        }
        writer.end(write).unwrap();
        assert_eq!(process.locks(), 0);
    }
}

/// A is granted 1 and then asks for 2; B the other way round. A writer comes to 1 after A's grant, another one to 2 after B's: were B's
/// requests made between A's two, each would wait behind a writer for the other, who cannot give back what it has not been told of.
#[test]
fn requests_for_several_locks_do_not_wait_for_each_other() {
    let process = Process::new();
    let ost = process.start(Some(0)).unwrap();
    let [a, b, w] = ["a", "b", "w"].map(|name| Caller::local(&process, &ost, name));
    // Somebody whose lock is asked back when A is between its two: on the very thread that asks for them.
    let between =
        Import::<sheen_wire::Ost>::new(process.net.clone(), ImportConfig::new("x", ost.name(), vec![Nid::Lo]));
    let ((reached, is_between), (go_on, may_go_on)) = (channel(), channel::<()>());
    let may_go_on = Mutex::new(may_go_on);
    between.on_callback(move |_| {
        reached.send(()).unwrap();
        may_go_on.lock().unwrap().recv_timeout(PATIENCE).unwrap();
    });
    let writes = Request::Enqueue { locks: vec![Enqueue { mode: Mode::Pw, ..pr(object(3), ALL) }], want: 0 };
    let answer = process.runtime.block_on(between.call(writes, Bulk::new())).unwrap();
    let third = granted(enqueued(answer.body)[0].0);

    let locks = vec![pr(object(1), ALL), pr(object(3), ALL), pr(object(2), ALL)];
    let wants = a.begin(Request::Enqueue { locks, want: 0 }, Bytes::new());
    is_between.recv_timeout(PATIENCE).unwrap();
    let first_write = w.begin_write(object(1), 0, b"x");
    still_waits(&first_write);
    let second =
        b.begin(Request::Enqueue { locks: vec![pr(object(2), ALL), pr(object(1), ALL)], want: 0 }, Bytes::new());
    still_waits(&second);
    let second_write = w.begin_write(object(2), 0, b"x");
    std::thread::sleep(MOMENT);
    go_on.send(()).unwrap();
    let cancel = Request::Cancel { locks: vec![third] };
    process.runtime.block_on(between.call_urgent(cancel, Bulk::new())).unwrap();
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
fn each_lock_has_its_own_answer() {
    let process = Process::new();
    let ost = process.start(Some(0)).unwrap();
    let (a, b) = (Caller::local(&process, &ost, "a"), Caller::local(&process, &ost, "b"));
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
    assert_eq!(process.locks(), 3, "nobody cancels what is not theirs");
}

#[test]
fn an_ost_stops_though_somebody_waits_for_a_lock() {
    let process = Process::new();
    let ost = process.start(Some(0)).unwrap();
    let (a, b) = (Caller::local(&process, &ost, "a"), Caller::local(&process, &ost, "b"));
    let (id, _) = a.keep(OBJECT);
    let write = b.begin_write(OBJECT, 0, b"x");
    assert_eq!(a.asked(), id);
    process.runtime.block_on(process.net.rt().timeout(PATIENCE, ost.stop())).unwrap();
    assert!(write.is_finished());
    assert!(process.params.get("ldlm.namespaces.*.lock_count").is_err());
}

/// Printed, not asserted: what a write pays for the locks, with nobody holding any, and with the writer holding one.
#[test]
fn what_a_write_costs() {
    const WRITES: u32 = 5000;
    let process = Process::new();
    let ost = process.start(Some(0)).unwrap();
    let client = Caller::local(&process, &ost, "a");
    let data = Bulk::from(Bytes::from_static(&[1; 64]));
    let each = |begun: Instant| begun.elapsed() / WRITES;
    let bare = || {
        let begun = Instant::now();
        (0..WRITES).for_each(|_| ost.store().write(&[part(0, 64)], &data, false).unwrap());
        each(begun)
    };
    let request = |parts: Vec<Part>, data: Bulk| {
        process.runtime.block_on(async {
            let begun = Instant::now();
            for _ in 0..WRITES {
                let request =
                    Request::Write { parts: parts.clone(), sync: false, mtime: None, grant: Grant::default() };
                client.import.call(request, data.clone()).await.unwrap();
            }
            each(begun)
        })
    };
    let nothing = || request(vec![], Bulk::new());
    let locked = || request(vec![part(0, 64)], data.clone());
    let _warm = (bare(), nothing(), locked());
    let (store, nothing, free) = (bare(), nothing(), locked());
    client.keep(OBJECT);
    println!(
        "64 bytes: the store {store:?}, an empty request {nothing:?}, both and locks {free:?}, own lock held {:?}",
        locked()
    );
}
