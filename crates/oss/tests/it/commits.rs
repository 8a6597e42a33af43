//! Commits: which requests make the changes of remote clients durable, and their transnos.

use std::net::SocketAddr;

use sheen_lnet::{Net, Nid};
use sheen_oss::Ost;
use sheen_rpc::{Import, ImportConfig, Response};
use sheen_wire::{
    Bulk, Fid,
    ost::{Change, Grant, Part, Reply, Request},
};

use crate::common::{OBJECT, Process, World, caller::*};

const OTHER: Fid = Fid::new(OBJECT.seq, OBJECT.oid + 1);
/// Hosts of the clients.
const HOSTS: [u32; 2] = [2, 3];

/// An OST and a client on each of two other hosts.
struct Setup {
    process: Process,
    ost: std::sync::Arc<Ost>,
    clients: Vec<std::sync::Arc<Import<sheen_wire::Ost>>>,
}

impl Setup {
    fn new() -> Setup {
        let (process, ost) = Process::with_ost();
        let World::Sim(sim) = &process.world else { unreachable!("`with_ost` simulates") };
        let addr: SocketAddr = sim.addr(1, 988);
        process.run(process.server.listen(addr)).unwrap();
        let client = |host: &u32| {
            let net = Net::new(sim.rt(*host));
            Import::new(net, ImportConfig::new(&format!("client-{host}"), ost.name(), vec![Nid::Tcp(addr)]))
        };
        let clients = HOSTS.iter().map(client).collect();
        Setup { process, ost, clients }
    }

    fn call(&self, client: usize, request: Request, bulk: &'static [u8]) -> Response<Reply> {
        let bulk = Bulk::from(bytes::Bytes::from_static(bulk));
        self.process.run(self.clients[client].request(request).bulk(bulk).send()).unwrap()
    }

    /// Writes a byte to each of these objects. Returns the transno.
    fn write(&self, client: usize, objects: &[Fid], sync: bool) -> u64 {
        let parts = objects.iter().map(|object| Part { object: *object, offset: 0, len: 1 }).collect();
        let request =
            Request::Write { file: Fid::ZERO, parts, sync, mtime: None, grant: Grant::default(), held: false };
        self.call(client, request, &b"xxxx"[..objects.len()]).transno
    }

    /// Returns whether this request committed the changes so far.
    fn commits(&self, client: usize, request: Request) -> bool {
        let before = self.ost.store().committed();
        self.call(client, request, b"");
        self.ost.store().committed() > before
    }
}

#[test]
fn sync_commits_if_several_clients_changed_the_object() {
    let s = Setup::new();
    let fsync = || Request::Sync { objects: vec![OBJECT] };
    let first = s.write(0, &[OBJECT], false);
    assert!(first > s.ost.store().committed() && !s.commits(0, fsync()));
    assert_eq!(s.write(1, &[OTHER], false), first + 1);
    assert!(!s.commits(1, fsync()), "it has changed another object");
    assert_eq!(s.write(1, &[OBJECT], false), first + 2);
    assert!(s.commits(1, fsync()));
    assert_eq!(s.ost.store().committed(), first + 2);
    s.write(0, &[OBJECT], false);
    assert!(!s.commits(0, fsync()), "only one since the commit");
    let durable = s.write(1, &[OBJECT], true);
    assert_eq!(s.ost.store().committed(), durable, "a write that is to be durable");
    s.write(0, &[OBJECT], false);
    assert!(s.commits(0, Request::Sync { objects: Vec::new() }), "a sync of everything");
    s.process.run(s.ost.stop());
}

#[test]
fn removal_and_seal_commit_what_was_changed_shortly_before() {
    let s = Setup::new();
    let destroy = |object| Request::Destroy { objects: vec![object] };
    assert!(!s.commits(0, destroy(OBJECT)), "never written");
    s.write(0, &[OTHER], false);
    assert!(!s.commits(0, destroy(OBJECT)) && s.commits(0, destroy(OTHER)));
    let object = |oid| Fid::new(OBJECT.seq, oid);
    s.write(0, &[object(50)], false);
    let range = |first, last| Request::DestroyRange { seq: OBJECT.seq, first, last };
    assert!(!s.commits(0, range(51, 60)) && s.commits(0, range(41, 50)));
    s.write(0, &[object(70)], false);
    assert!(s.commits(1, Request::Seal { objects: vec![(object(70), None)], group: None, order: 1 }));
    s.process.run(s.ost.stop());
}

#[test]
fn ost_commits_every_few_seconds_while_there_are_changes() {
    let s = Setup::new();
    let last = s.write(0, &[OBJECT], false);
    s.process.sleep(std::time::Duration::from_secs(6));
    assert_eq!(s.ost.store().committed(), last);
    // A client of this process does not survive the host.
    let local = Caller::local(&s.process, &s.ost, "local");
    local.write(OBJECT, 0, b"y");
    s.process.sleep(std::time::Duration::from_secs(6));
    assert_eq!(s.ost.store().committed(), last);
    s.process.run(s.ost.stop());
}

#[test]
fn write_that_waits_for_a_lock_has_a_transno_for_each_object() {
    let s = Setup::new();
    let holder = Caller::local(&s.process, &s.ost, "holder");
    let (lock, _) = holder.keep(OTHER);
    let write = {
        let parts = [OBJECT, OTHER].map(|object| Part { object, offset: 0, len: 1 }).to_vec();
        let request =
            Request::Write { file: Fid::ZERO, parts, sync: false, mtime: None, grant: Grant::default(), held: false };
        let client = s.clients[0].clone();
        let bulk = Bulk::from(bytes::Bytes::from_static(b"ab"));
        s.process.net.rt().spawn("write", async move { client.request(request).bulk(bulk).send().await })
    };
    assert_eq!(holder.asked(), lock);
    let between = s.write(1, &[OBJECT], false);
    holder.cancel(lock);
    let response = s.process.end(write).unwrap();
    let Reply::Done { transnos, .. } = response.body else { panic!("{:?}", response.body) };
    assert_eq!(transnos, [(OBJECT, between - 1), (OTHER, between + 1)]);
    assert_eq!(response.transno, between + 1);
    s.process.run(s.ost.stop());
}

#[test]
fn replay_is_refused_without_a_recovery() {
    let s = Setup::new();
    s.write(0, &[OBJECT], false);
    let changes = vec![(7, Change::Truncate { file: Fid::ZERO, objects: vec![(OBJECT, 0)] })];
    let request = Request::Replay { changes, first: true, last: true };
    let refused = s.process.run(s.clients[0].request(request).send()).unwrap_err();
    assert_eq!(refused.errno(), sheen_wire::Errno::ESTALE);
    assert_eq!(&Caller::local(&s.process, &s.ost, "reader").read(OBJECT)[..], b"x");
    s.process.run(s.ost.stop());
}
