//! An OST in recovery: requests that wait for its end, and a stop before it.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use sheen_lnet::{Net, Nid};
use sheen_oss::Ost;
use sheen_rpc::{Export, Import, ImportConfig, Response, Service};
use sheen_rt::JoinHandle;
use sheen_wire::{
    Errno, Fid, Result,
    ldlm::{Cookie, Enqueue, Enqueued, Flags, Mode, Policy, Resource},
    ost::{Change, Grant, Reply, Request},
};

use crate::common::{OBJECT, Process, World, caller::*, part};

/// Hosts of the clients that the OST waits for.
const AWAITED: [u32; 2] = [2, 3];
/// Host of another client.
const OTHER: u32 = 4;

/// An OST in recovery, on host 1. It waits for two clients that held locks when it stopped.
struct Setup {
    process: Process,
    ost: Arc<Ost>,
    addr: SocketAddr,
    awaited: Vec<Arc<Import<sheen_wire::Ost>>>,
}

impl Setup {
    fn new() -> Setup {
        let (process, ost) = Process::with_ost();
        let World::Sim(sim) = &process.world else { unreachable!("`with_ost` simulates") };
        let addr = sim.addr(1, 988);
        process.run(process.server.listen(addr)).unwrap();
        let holder = |host: &u32| {
            let net = Net::new(sim.rt(*host));
            let caller = Caller::new(&process, &ost, &format!("client-{host}"), &net, Nid::Tcp(addr));
            caller.keep(OBJECT);
            caller.import
        };
        let awaited = AWAITED.iter().map(holder).collect();
        process.run(ost.stop());
        let ost = process.start(None).unwrap();
        let counts = ost.recovery_counts();
        assert_eq!((counts.clients, counts.completed), (AWAITED.len(), 0));
        Setup { process, ost, addr, awaited }
    }

    /// Returns a client that the OST does not wait for.
    fn other(&self) -> Arc<Import<sheen_wire::Ost>> {
        let World::Sim(sim) = &self.process.world else { unreachable!("`with_ost` simulates") };
        let config = ImportConfig::new("other", self.ost.name(), vec![Nid::Tcp(self.addr)]);
        Import::new(Net::new(sim.rt(OTHER)), config)
    }

    fn begin(&self, import: &Arc<Import<sheen_wire::Ost>>, request: Request) -> JoinHandle<Result<Response<Reply>>> {
        let import = import.clone();
        let call = async move { Ok(import.request(request).send().await?) };
        self.process.net.rt().spawn("test", call)
    }

    fn call(&self, import: &Arc<Import<sheen_wire::Ost>>, request: Request) -> Response<Reply> {
        self.process.end(self.begin(import, request)).unwrap()
    }
}

fn read() -> Request {
    Request::Read { parts: vec![part(0, 4096)] }
}

#[test]
fn read_needs_room_only_after_the_recovery() {
    let s = Setup::new();
    let export = Export::new("reader", 99, 0, Nid::Lo);
    assert_eq!(s.ost.reply_bytes(&read()), 4096);
    assert!(s.ost.postponed(&export, &Request::StatFs).is_none());
    let postponed = s.ost.postponed(&export, &read()).unwrap();
    let waits = s.process.net.rt().spawn("test", postponed);
    let answer = s.begin(&s.other(), read());
    s.process.still_waits(&waits);
    s.process.still_waits(&answer);
    s.ost.abort_recovery();
    s.process.end(waits);
    assert!(s.process.end(answer).unwrap().bulk.is_empty());
    assert!(s.ost.postponed(&export, &read()).is_none());
    s.process.run(s.ost.stop());
}

#[test]
fn ost_in_recovery_unseals_objects_and_refuses_to_seal_or_link_them() {
    let s = Setup::new();
    let (mdt, new) = (Caller::local(&s.process, &s.ost, "mdt"), Fid::new(OBJECT.seq, OBJECT.oid + 1));
    let seal = || Request::Seal { objects: vec![(OBJECT, None)], group: None, order: 2 };
    for request in [seal(), Request::Link { objects: vec![(OBJECT, new)], order: 1 }] {
        assert_eq!(mdt.end(mdt.begin(request, Bytes::new())).err(), Some(Errno::EAGAIN));
    }
    mdt.call(Request::Unseal { objects: vec![OBJECT], order: 1 });
    s.ost.abort_recovery();
    assert!(mdt.read(OBJECT).is_empty(), "after the recovery");
    mdt.call(seal());
    assert_eq!(s.ost.store().sealed_count(), 1);
    s.process.run(s.ost.stop());
}

/// If the OST failed again before, a client would replay a change that creates the object.
#[test]
fn removal_of_an_object_is_answered_after_the_recovery() {
    let s = Setup::new();
    let mdt = Caller::local(&s.process, &s.ost, "mdt");
    let removal = mdt.begin(Request::Destroy { objects: vec![OBJECT] }, Bytes::new());
    s.process.still_waits(&removal);
    s.ost.abort_recovery();
    assert!(matches!(mdt.end(removal), Ok(Reply::Ok)));
    s.process.run(s.ost.stop());
}

/// A client waits for the replay of another one, and a third one for the end of the recovery.
#[test]
fn ost_stops_at_once_in_recovery() {
    let s = Setup::new();
    let (returned, other) = (&s.awaited[0], s.other());
    assert!(matches!(s.call(returned, Request::Recover).body, Reply::Recovering { .. }));
    granted(answer(s.call(returned, group(7, 10, false))));
    let changes = vec![(7, Change::Truncate { file: Fid::ZERO, objects: vec![(OBJECT, 8192)] })];
    let replay = s.begin(returned, Request::Replay { changes, first: true, last: true });
    let read = s.begin(&other, read());
    s.process.still_waits(&replay);
    s.process.still_waits(&read);
    let rt = s.process.net.rt();
    let began = rt.now();
    s.process.run(s.ost.stop());
    assert!(rt.now().since(began) < Duration::from_millis(500), "{:?}", rt.now().since(began));
    assert!(!replay.is_finished() && !read.is_finished(), "clients repeat both at the next start");

    let again = s.process.start(None).unwrap();
    assert_eq!(again.recovery_counts().clients, AWAITED.len());
    // A client without a restart hook resends the replay.
    s.process.wait_for(|| (again.recovery_counts().queued == 1).then_some(()));
    again.abort_recovery();
    let replayed = s.process.end(replay).unwrap();
    assert!(matches!(&replayed.body, Reply::Replayed(outcomes) if outcomes[..] == [Ok(())]), "{replayed:?}");
    s.process.still_waits(&read);
    s.call(returned, Request::Recovered { incarnation: replayed.incarnation });
    let read = s.process.end(read).unwrap();
    assert_eq!(read.bulk.len(), 4096, "of the replayed truncate");
    assert_eq!(again.recovery_counts().dropped, 1);
    s.process.run(again.stop());
}

/// The next start does not wait for a client of this process. It would discard its dirty data.
#[test]
fn stop_waits_for_a_slow_flush_of_a_client_in_its_process() {
    let (process, ost) = Process::with_ost();
    let writer = Caller::local(&process, &ost, "writer");
    let lock = granted(writer.enqueue(vec![Enqueue { mode: Mode::Pw, ..pr(OBJECT, ALL) }])[0].0);
    let stopping = ost.clone();
    let stop = process.net.rt().spawn("stop", async move { stopping.stop().await });
    assert_eq!(writer.asked(), lock);
    process.sleep(Duration::from_secs(5));
    assert!(!stop.is_finished());
    let (parts, grant) = (vec![part(0, 1)], Grant::default());
    let flush = Request::Write { file: Fid::ZERO, parts, sync: false, mtime: None, grant, held: true };
    writer.end(writer.begin(flush, Bytes::from_static(b"x"))).unwrap();
    writer.cancel(lock);
    process.end(stop);
    let again = process.start(None).unwrap();
    assert_eq!(again.recovery_counts().clients, 0);
    assert_eq!(&Caller::local(&process, &again, "reader").read(OBJECT)[..], b"x");
    process.run(again.stop());
}

/// Returns a request for a group lock. Without `ask`, it is for a lock of before the restart.
fn group(gid: u64, cookie: u64, ask: bool) -> Request {
    let flags = Flags { nowait: true, ask, ..Flags::default() };
    let lock = Enqueue::new(Resource::extent(OBJECT), Mode::Group, Policy::group(gid), Cookie(cookie));
    Request::Enqueue { locks: vec![Enqueue { flags, ..lock }], want: 0 }
}

fn answer(response: Response<Reply>) -> Enqueued {
    enqueued(response.body)[0].0
}

#[test]
fn group_locks_are_granted_in_recovery_only_to_clients_that_had_them() {
    let s = Setup::new();
    let (first, second, other) = (&s.awaited[0], &s.awaited[1], s.other());
    let early = s.begin(second, group(7, 20, false));
    s.process.still_waits(&early);
    let incarnation = s.call(first, Request::Recover).incarnation;
    let id = granted(answer(s.call(first, group(7, 10, false))));
    assert_eq!(granted(answer(s.call(first, group(7, 10, false)))), id, "the first reply may be lost");
    let new = s.begin(first, group(7, 11, true));
    let stranger = s.begin(&other, group(8, 30, false));
    for waits in [&early, &new, &stranger] {
        s.process.still_waits(waits);
    }
    s.call(second, Request::Recover);
    granted(answer(s.call(second, group(7, 21, false))));
    // Dirty data of one member passes the lock of the other.
    let (parts, grant) = (vec![part(0, 4)], Grant::default());
    let write = Request::Write { file: Fid::ZERO, parts, sync: false, mtime: None, grant, held: true };
    let written = s.process.run(second.request(write).bulk(Bytes::from_static(b"data").into()).send()).unwrap();
    assert!(matches!(written.body, Reply::Done { .. }));
    for client in [first, second] {
        s.call(client, Request::Recovered { incarnation });
    }
    granted(answer(s.process.end(early).unwrap()));
    granted(answer(s.process.end(new).unwrap()));
    let refused = answer(s.process.end(stranger).unwrap());
    assert!(matches!(refused, Enqueued::WouldBlock { by } if by.mode == Mode::Group), "{refused:?}");
    s.process.run(s.ost.stop());
}
