//! Registration of a user of the changelog, while clients may have files open that the MDT does not
//! know.

use std::collections::BTreeSet;
use std::time::Duration;

use sheen_wire::ast::Callback;
use sheen_wire::changelog::{self, Kind, Record};
use sheen_wire::ldlm::bits;
use sheen_wire::mds::{Call, NO_HANDLE, Opener, Reopened, Reply, Request, flags};
use sheen_wire::{Cred, Errno, Fid};

use crate::common::client::{Client, chmod};
use crate::common::{Host, MDS, PORT, config, until, with_host};

const REGISTER: &str = "mdd.*.changelog_register";
const USERS: &str = "mdd.*.changelog_users";
/// Files with OPEN locks: the MDT revokes these locks in several steps.
const FILES: usize = 40;

/// Registers a user that wants the default kinds of records.
fn register(host: &Host) {
    set(host, REGISTER, "7 - -");
}

fn set(host: &Host, name: &str, value: &str) {
    assert_eq!(host.params.set(name, value).unwrap()[0].result, Ok(()), "{name}={value}");
}

/// Returns the records of a kind once one is durable.
async fn records(host: &Host, kind: Kind) -> Vec<Record> {
    loop {
        let read = Request::Changelog { cred: Cred::ROOT, start: 1, bytes_max: 1 << 20, notify: false };
        let Reply::Bytes(bytes) = host.ask(read).await.unwrap().body.reply else { panic!() };
        let mut records = changelog::decode(&bytes).unwrap();
        records.retain(|record| record.kind == kind);
        if !records.is_empty() {
            return records;
        }
        host.rt.sleep(Duration::from_millis(10)).await;
    }
}

/// Returns the files of the CLOSE records once one is durable.
async fn closed(host: &Host) -> Vec<Fid> {
    records(host, Kind::Close).await.iter().map(|record| record.target).collect()
}

/// The user of all opens that a client reports.
const OPENER: Opener = Opener { uid: 5, gid: 6 };

/// Opens files that the client had opened by itself, under OPEN locks. Returns the handles.
async fn report(client: &Client, files: &[(Fid, u32)]) -> Vec<u64> {
    let reopened = |(fid, flags): &(Fid, u32)| Reopened { opener: OPENER, ..Reopened::new(*fid, *flags, NO_HANDLE) };
    let files = files.iter().map(reopened).collect();
    match client.ask(Request::Reopen { files, first: false, last: false }).await.unwrap().reply {
        Reply::Handles(handles) => handles.into_iter().map(Result::unwrap).collect(),
        other => panic!("{other:?}"),
    }
}

/// Runs a test with three clients on the MDT's host, and again with three clients on hosts of their
/// own.
fn with_clients(test: impl AsyncFn(&Host, [Client; 3])) {
    for tcp in [false, true] {
        with_host(1, config(), async |sim, _, host| {
            host.server.listen(sim.addr(MDS, PORT)).await.unwrap();
            test(&host, Client::three(sim, &host, tcp).await).await;
        });
    }
}

#[test]
fn close_of_a_file_opened_before_the_registration_is_recorded_with_its_user() {
    with_clients(async |host, [a, b, _]| {
        // The client has one file open for writing and one for reading, without requests.
        let (written, read) = (a.make("written").await, a.make("read").await);
        let locks = BTreeSet::from([a.look("written").await.1.id, a.look("read").await.1.id]);
        register(host);
        let mut asked = BTreeSet::new();
        until(&host.rt, || {
            asked.extend(a.asked());
            asked == locks
        })
        .await;
        let handles = report(&a, &[(written, flags::WRONLY), (read, flags::RDONLY)]).await;
        a.cancel(&locks.into_iter().collect::<Vec<_>>()).await;
        // From now on all clients open files with requests.
        for client in [&a, &b] {
            let grant = client.look("written").await.1;
            assert_eq!(grant.bits & bits::OPEN, 0);
            client.cancel(&[grant.id]).await;
        }
        a.ask(Request::close(read, handles[1])).await.unwrap();
        a.ask(Request::close(written, handles[0])).await.unwrap();
        let closes = records(host, Kind::Close).await;
        let shown: Vec<_> = closes.iter().map(|close| (close.target, close.uid, close.gid)).collect();
        assert_eq!(shown, [(written, 5, 6)], "only of the file that was open for writing");
    });
}

#[test]
fn close_of_a_file_opened_and_closed_without_requests_is_not_recorded() {
    with_clients(async |host, [a, b, _]| {
        let (f, other) = (a.make("f").await, b.make("other").await);
        let grant = a.look("f").await.1;
        register(host);
        until(&host.rt, || a.asked() == [grant.id]).await;
        // The client has opened and closed the file before the callback, and has nothing to report.
        let call = Call { cancels: vec![grant.id], ..Request::close(f, NO_HANDLE).into() };
        a.call(call).await.unwrap();
        let handle = report(&b, &[(other, flags::WRONLY)]).await[0];
        b.ask(Request::close(other, handle)).await.unwrap();
        assert_eq!(closed(host).await, [other]);
        a.ask(chmod(f, 0o600)).await.unwrap();
        assert_eq!(records(host, Kind::Sattr).await[0].target, f);
    });
}

#[test]
fn open_is_recorded_with_its_client_and_grants_no_open_lock() {
    with_clients(async |host, [a, b, _]| {
        let f = a.make("f").await;
        set(host, REGISTER, "7 - OPEN");
        let grant = b.look("f").await.1;
        assert_eq!(grant.bits & bits::OPEN, 0);
        b.cancel(&[grant.id]).await;
        b.ask(Request::Open { cred: Cred::ROOT, fid: f, flags: flags::RDONLY }).await.unwrap();
        let opens = records(host, Kind::Open).await;
        assert_eq!(opens.iter().map(|open| (open.target, open.flags)).collect::<Vec<_>>(), [(f, 1)]);
        assert!(!opens[0].nid.is_empty());
    });
}

/// Reads records from a number on. Returns how many there are. If there are none, the client gets a
/// callback later.
async fn read_on(client: &Client, start: u64) -> usize {
    let read = Request::Changelog { cred: Cred::ROOT, start, bytes_max: 1 << 20, notify: true };
    let Reply::Bytes(bytes) = client.ask(read).await.unwrap().reply else { panic!() };
    changelog::decode(&bytes).unwrap().len()
}

#[test]
fn reader_at_the_end_gets_a_callback_once_a_record_is_durable() {
    with_clients(async |host, [a, b, c]| {
        register(host);
        until(&host.rt, || host.param(REGISTER) == "7 cl1\n").await;
        assert_eq!((read_on(&a, 1).await, read_on(&a, 1).await, read_on(&b, 5).await), (0, 0, 0));
        host.mkdir("d").await.unwrap();
        let mut called = Vec::new();
        until(&host.rt, || {
            called.extend(a.called());
            !called.is_empty()
        })
        .await;
        assert_eq!(called, [Callback::Changelog], "one for all readers of a client");
        assert_eq!(read_on(&c, 1).await, 1, "it is durable");
        host.mkdir("e").await.unwrap();
        host.ask(Request::Sync { fid: None }).await.unwrap();
        host.rt.sleep(Duration::from_secs(60)).await;
        let [a, b, c] = [&a, &b, &c].map(Client::called);
        assert!(a.is_empty(), "it has not asked again");
        assert!(b.is_empty(), "there is no fifth record");
        assert!(c.is_empty(), "it had got records");
    });
}

#[test]
fn idle_user_is_deregistered_while_gc_is_on() {
    with_host(1, config(), async |_, rt, host| {
        register(&host);
        until(&rt, || host.param(REGISTER) == "7 cl1\n").await;
        for (name, value) in
            [("changelog_gc", "0"), ("changelog_max_idle_time", "10"), ("changelog_min_gc_interval", "1")]
        {
            set(&host, &format!("mdd.*.{name}"), value);
        }
        rt.sleep(Duration::from_secs(20)).await;
        host.mkdir("a").await.unwrap();
        host.ask(Request::Sync { fid: None }).await.unwrap();
        assert!(host.param(USERS).contains("\ncl1 "));
        rt.sleep(Duration::from_secs(20)).await;
        set(&host, "mdd.*.changelog_gc", "1");
        host.mkdir("b").await.unwrap();
        until(&rt, || !host.param(USERS).contains("\ncl1 ")).await;
        assert_eq!(
            host.params.set("mdd.*.changelog_max_idle_time", "0").unwrap()[0].result.as_ref().unwrap_err().errno,
            Errno::ERANGE
        );
    });
}

#[test]
fn registration_takes_effect_while_one_client_does_not_answer() {
    // The silent client cancels its lock in the end, or is evicted.
    for cancels in [true, false] {
        with_host(2, config(), async |sim, _, host| {
            host.server.listen(sim.addr(MDS, PORT)).await.unwrap();
            let [a, silent, c] = Client::three(sim, &host, true).await;
            let mut held = BTreeSet::new();
            for n in 0..FILES {
                let name = format!("f{n}");
                a.make(&name).await;
                held.insert(a.look(&name).await.1.id);
            }
            let lock = silent.look("f0").await.1.id;
            register(&host);
            until(&host.rt, || host.param(REGISTER) == "7 cl1\n").await;
            // The other client answers, until the MDT waits for the silent one.
            let mut is_asked = false;
            while !is_asked {
                let asked = a.asked();
                asked.iter().for_each(|id| assert!(held.remove(id), "one callback for each lock"));
                a.cancel(&asked).await;
                host.rt.sleep(Duration::from_millis(10)).await;
                is_asked = silent.asked() == [lock];
            }
            // Changes of other inodes do not wait. They are recorded, and no client gets OPEN.
            host.mkdir("dir").await.unwrap();
            assert_eq!(records(&host, Kind::Mkdir).await[0].name, "dir");
            c.make("new").await;
            for name in ["new", "f0"] {
                assert_eq!(c.look(name).await.1.bits & bits::OPEN, 0, "{name}");
            }
            if cancels {
                silent.cancel(&[lock]).await;
            }
            while !held.is_empty() {
                let asked = a.asked();
                asked.iter().for_each(|id| assert!(held.remove(id), "one callback for each lock"));
                a.cancel(&asked).await;
                host.rt.sleep(Duration::from_millis(10)).await;
            }
        });
    }
}
