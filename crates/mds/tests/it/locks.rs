//! Locks of an MDT's clients: what they cover, and when a change takes them.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::client::{Client, chmod, link, list, lookup, mknod, open_create, reply, unlink};
use crate::common::{Host, config, until, with_host};
use crate::common::{MDS, PORT};
use sheen_lnet::Net;
use sheen_mds::Mdt;
use sheen_params::Params;
use sheen_rpc::Server;
use sheen_rt::sim::Sim;
use sheen_wire::ast::Callback;
use sheen_wire::ldlm::{Mode, Policy, Resource, bits};
use sheen_wire::mds::{Answer, Call, NO_HANDLE, Reopened, Reply, Request, flags};
use sheen_wire::{Cred, Errno, Fid, fid};

/// Lock bits that a lookup grants.
const LOOKUP_BITS: u64 = bits::LOOKUP | bits::UPDATE | bits::PERM | bits::XATTR | bits::LAYOUT;
/// Lock bits that it grants on a file with a name.
const NAMED_FILE_BITS: u64 = LOOKUP_BITS | bits::OPEN;
const LOCK_COUNT: &str = "ldlm.namespaces.mdt-sheen-MDT0000_UUID.lock_count";

/// Runs a test with three clients on the MDT's host, and again with three clients on hosts of their
/// own.
fn with_clients(test: impl AsyncFn(&Sim, &Host, [Client; 3])) {
    for tcp in [false, true] {
        with_host(1, config(), async |sim, _, host| {
            host.server.listen(sim.addr(MDS, PORT)).await.unwrap();
            test(sim, &host, Client::three(sim, &host, tcp).await).await;
        });
    }
}

#[test]
fn change_waits_until_other_client_cancels_its_lock() {
    with_clients(async |_, _, [a, b, _]| {
        a.make("f").await;
        let (f, grant) = a.look("f").await;
        assert_eq!(grant.bits, NAMED_FILE_BITS);
        let change = b.spawn(chmod(f, 0o600));
        b.a_while().await;
        assert!(!change.is_finished(), "replied while another client caches the old state");
        let called = a.called();
        let [Callback::Blocking { id, cookie, resource, wanted }] = called[..] else { panic!("{called:?}") };
        assert_eq!((id, cookie, resource), (grant.id, grant.cookie, Resource::bits(f)));
        assert_eq!(wanted, (Mode::Ex, Policy::bits(bits::UPDATE | bits::PERM)));
        a.cancel(&[id]).await;
        assert!(matches!(change.await.unwrap().unwrap().reply, Reply::Entry(e) if e.attr.perm == 0o600));
        assert_eq!(b.called(), [], "it had no locks");
    });
}

#[test]
fn requests_on_an_inode_under_change_wait_for_its_end() {
    with_clients(async |_, _, [a, b, c]| {
        let (f, other) = (a.make("f").await, a.make("other").await);
        let grant = a.look("f").await.1;
        let change = b.spawn(chmod(f, 0o600));
        b.a_while().await;
        let readers = [
            c.spawn(Request::GetAttr { fid: f, layout_known: true }),
            c.spawn(lookup("f")),
            c.spawn(open_create("f", c.new_fid())),
            c.spawn(Request::Access { cred: Cred::ROOT, fid: f, mask: 4 }),
        ];
        let second = c.spawn(chmod(f, 0o601));
        c.a_while().await;
        assert!(readers.iter().all(|r| !r.is_finished()) && !second.is_finished());
        assert_eq!(c.perm(other).await, Ok(0o644), "other inodes are not concerned");
        let Answer { reply: Reply::Entries { entries, .. }, .. } = c.keep(list()).await.unwrap() else { panic!() };
        let with_attrs = |fid| entries.iter().find(|e| e.fid == fid).unwrap().entry.is_some();
        assert!(with_attrs(other) && !with_attrs(f), "a listing leaves out an inode under change");
        a.cancel(&[grant.id]).await;
        change.await.unwrap().unwrap();
        for reader in readers {
            match reply(reader.await.unwrap()) {
                Ok(Reply::Entry(e) | Reply::Opened { entry: e, .. }) => assert_ne!(e.attr.perm, 0o644),
                Ok(Reply::Ok) => {}
                other => panic!("{other:?}"),
            }
        }
        second.await.unwrap().unwrap();
    });
}

#[test]
fn own_change_does_not_revoke_own_locks() {
    with_clients(async |_, _, [a, b, _]| {
        a.make("f").await;
        let (f, grant) = a.look("f").await;
        a.ask(chmod(f, 0o600)).await.unwrap();
        assert_eq!(a.called(), []);
        let change = b.spawn(chmod(f, 0o640));
        b.a_while().await;
        assert_eq!(a.asked(), [grant.id], "the lock was still there");
        // Cancelled together with a request for the same inode.
        let call = Call { cancels: vec![grant.id], ..Request::GetAttr { fid: f, layout_known: true }.into() };
        assert!(matches!(a.call(call).await.unwrap().reply, Reply::Entry(e) if e.attr.perm == 0o640));
        change.await.unwrap().unwrap();
    });
}

#[test]
fn converted_lock_retains_bits_that_do_not_conflict() {
    with_clients(async |_, _, [a, b, c]| {
        a.make("f").await;
        let (f, grant) = a.look("f").await;
        let change = b.spawn(chmod(f, 0o600));
        b.a_while().await;
        assert_eq!(a.asked(), [grant.id]);
        let keep = |bits| Call { converts: vec![(grant.id, bits)], ..Request::Cancel.into() };
        a.call(keep(LOOKUP_BITS & !(bits::UPDATE | bits::PERM))).await.unwrap();
        change.await.unwrap().unwrap();
        b.ask(chmod(f, 0o640)).await.unwrap();
        // A client cannot retain lock bits that it does not hold.
        a.call(keep(LOOKUP_BITS)).await.unwrap();
        b.ask(chmod(f, 0o600)).await.unwrap();
        assert_eq!(a.asked(), [], "it has no lock on what was changed");
        let removal = c.spawn(unlink("f"));
        c.a_while().await;
        assert_eq!(a.asked(), [grant.id], "but on the name");
        a.cancel(&[grant.id]).await;
        assert_eq!(removal.await.unwrap().unwrap().deleted, [f]);
    });
}

#[test]
fn create_revokes_directory_lock_that_covers_negative_lookup() {
    with_clients(async |_, host, [a, b, c]| {
        let answer = a.keep(Request::GetAttr { fid: fid::ROOT, layout_known: false }).await.unwrap();
        let [grant] = answer.grants[..] else { panic!("{:?}", answer.grants) };
        assert_eq!((grant.fid, grant.bits), (fid::ROOT, LOOKUP_BITS));
        assert_eq!(reply(a.keep(lookup("f")).await).err(), Some(Errno::ENOENT));
        let creation = b.spawn(mknod("f", b.new_fid()));
        b.a_while().await;
        assert_eq!(a.asked(), [grant.id]);
        let looking = c.spawn(lookup("f"));
        // An EEXIST must not reveal either that the name exists now.
        let refused = c.spawn(mknod("f", c.new_fid()));
        c.a_while().await;
        assert!(!looking.is_finished() && !refused.is_finished() && !creation.is_finished());
        a.cancel(&[grant.id]).await;
        creation.await.unwrap().unwrap();
        assert!(matches!(looking.await.unwrap().unwrap().reply, Reply::Entry(_)));
        assert_eq!(reply(refused.await.unwrap()).err(), Some(Errno::EEXIST));
        assert_eq!(host.param(LOCK_COUNT), "0");
    });
}

#[test]
fn unlink_waits_until_all_clients_cancel_the_name() {
    with_clients(async |_, _, [a, b, c]| {
        a.make("f").await;
        let (by_a, by_c) = (a.look("f").await.1, c.look("f").await.1);
        let removal = b.spawn(unlink("f"));
        b.a_while().await;
        assert_eq!((a.asked(), c.asked()), (vec![by_a.id], vec![by_c.id]));
        a.cancel(&[by_a.id]).await;
        b.a_while().await;
        assert!(!removal.is_finished(), "one of two clients still caches the name");
        c.cancel(&[by_c.id]).await;
        removal.await.unwrap().unwrap();
    });
}

/// Opens a file that the client has opened by itself, under OPEN: it does so before it cancels
/// OPEN.
async fn open_after_the_fact(client: &Client, fid: Fid) -> u64 {
    let files = vec![Reopened::new(fid, flags::RDONLY, NO_HANDLE)];
    match client.ask(Request::Reopen { files, first: false, last: false }).await.unwrap().reply {
        Reply::Handles(handles) => handles[0].unwrap(),
        other => panic!("{other:?}"),
    }
}

fn close(fid: Fid, handle: u64) -> Request {
    Request::close(fid, handle)
}

#[test]
fn client_reports_open_file_before_last_unlink_completes() {
    with_clients(async |_, _, [a, b, c]| {
        for opens in [true, false] {
            a.make("f").await;
            let (f, grant) = a.look("f").await;
            let removal = b.spawn(unlink("f"));
            b.a_while().await;
            assert!(!removal.is_finished());
            assert_eq!(a.asked(), [grant.id]);
            let handle = if opens { Some(open_after_the_fact(&a, f).await) } else { None };
            assert!(!removal.is_finished());
            a.cancel(&[grant.id]).await;
            assert_eq!(removal.await.unwrap().unwrap().deleted.contains(&f), !opens);
            assert_eq!(c.perm(f).await.is_ok(), opens);
            let Some(handle) = handle else { continue };
            let grants = a.keep(Request::GetAttr { fid: f, layout_known: true }).await.unwrap().grants;
            assert!(grants.iter().all(|g| g.bits & bits::OPEN == 0), "no OPEN without a name");
            a.ask(close(f, handle)).await.unwrap();
            assert_eq!(c.perm(f).await, Err(Errno::ENOENT));
        }
    });
}

#[test]
fn unlink_takes_open_lock_from_the_requester_too() {
    with_clients(async |_, host, [a, _, c]| {
        for opens in [true, false] {
            a.make("f").await;
            let (f, grant) = a.look("f").await;
            let removal = a.spawn(unlink("f"));
            a.a_while().await;
            let called = a.called();
            let [Callback::Blocking { id, wanted, .. }] = called[..] else { panic!("{called:?}") };
            assert_eq!((id, wanted), (grant.id, (Mode::Ex, Policy::bits(bits::OPEN))), "only OPEN of its own lock");
            let handle = if opens { Some(open_after_the_fact(&a, f).await) } else { None };
            a.call(Call { converts: vec![(grant.id, LOOKUP_BITS)], ..Request::Cancel.into() }).await.unwrap();
            assert_eq!(removal.await.unwrap().unwrap().deleted.contains(&f), !opens);
            assert_eq!(c.perm(f).await.is_ok(), opens);
            a.cancel(&[grant.id]).await;
            if let Some(handle) = handle {
                a.ask(close(f, handle)).await.unwrap();
            }
            // If OPEN is cancelled with the request, there is no callback.
            a.make("g").await;
            let (g, grant) = a.look("g").await;
            let call = Call { converts: vec![(grant.id, LOOKUP_BITS)], ..unlink("g").into() };
            assert_eq!(a.call(call).await.unwrap().deleted, [g]);
            a.cancel(&[grant.id]).await;
            assert_eq!((a.asked(), host.param(LOCK_COUNT).as_str()), (vec![], "0"));
        }
    });
}

#[test]
fn unlinked_file_is_deleted_when_last_open_lock_holder_disconnects() {
    with_clients(async |_, _, [a, b, c]| {
        a.make("f").await;
        let (f, _) = a.look("f").await;
        let removal = b.spawn(unlink("f"));
        b.a_while().await;
        // The requester disconnects first.
        removal.abort();
        b.import.close().await;
        let look = c.spawn(Request::GetAttr { fid: f, layout_known: true });
        c.a_while().await;
        assert!(!look.is_finished());
        a.import.close().await;
        assert_eq!(reply(look.await.unwrap()).err(), Some(Errno::ENOENT));
    });
}

#[test]
fn rename_over_file_takes_open_lock_from_other_client() {
    with_clients(async |_, _, [a, b, c]| {
        a.make("f").await;
        a.make("g").await;
        let (f, grant) = a.look("f").await;
        let (cred, name) = (Cred::ROOT, |s: &'static str| bytes::Bytes::from_static(s.as_bytes()));
        let (parent, new_parent) = (fid::ROOT, fid::ROOT);
        let (new_name, flags, whiteout) = (name("f"), 0, None);
        let over = Request::Rename { cred, parent, name: name("g"), new_parent, new_name, flags, whiteout };
        let rename = b.spawn(over);
        // Longer than a replaced file stays for clients that looked it up before.
        b.rt.sleep(Duration::from_secs(2)).await;
        assert!(!rename.is_finished());
        let handle = open_after_the_fact(&a, f).await;
        a.cancel(&[grant.id]).await;
        rename.await.unwrap().unwrap();
        b.rt.sleep(Duration::from_secs(2)).await;
        assert!(c.perm(f).await.is_ok(), "it is open");
        a.ask(close(f, handle)).await.unwrap();
        assert_eq!(c.perm(f).await, Err(Errno::ENOENT));
    });
}

#[test]
fn orphan_left_by_stop_is_deleted_after_restart_unless_reopened() {
    with_host(5, config(), async |_, rt, host| {
        let (a, b) = (Client::lo(&host, "a").await, Client::lo(&host, "b").await);
        let files = [a.make("f").await, a.make("g").await];
        for name in ["f", "g"] {
            a.look(name).await;
            drop(b.spawn(unlink(name)));
        }
        b.a_while().await;
        host.mdt.stop().await.unwrap();
        host.mgs.stop();
        let again = Host::start(&rt, config()).await;
        let a = Client::lo(&again, "a").await;
        let handle = open_after_the_fact(&a, files[0]).await;
        rt.sleep(Duration::from_secs(120)).await;
        assert!(a.perm(files[0]).await.is_ok(), "it was open all the time");
        assert_eq!(a.perm(files[1]).await, Err(Errno::ENOENT));
        a.ask(close(files[0], handle)).await.unwrap();
        assert_eq!(a.perm(files[0]).await, Err(Errno::ENOENT));
    });
}

#[test]
fn replies_grant_locks_on_all_inodes_in_them() {
    with_clients(async |_, _, [a, b, _]| {
        // A client caches what it has created, while another client caches the directory.
        let root = b.keep(Request::GetAttr { fid: fid::ROOT, layout_known: true }).await.unwrap().grants[0];
        assert_eq!((root.fid, root.bits), (fid::ROOT, LOOKUP_BITS & !bits::LAYOUT), "the reply has no layout");
        let f = a.new_fid();
        let made = a.rt.spawn("make", {
            let (import, call) = (a.import.clone(), Call { keep: Some(a.new_cookie()), ..mknod("f", f).into() });
            async move { import.request(call).send().await.unwrap().body }
        });
        a.a_while().await;
        b.cancel(&b.asked()).await;
        let grants = made.await.unwrap().grants;
        assert_eq!(grants.iter().map(|g| (g.fid, g.bits)).collect::<Vec<_>>(), [(f, NAMED_FILE_BITS)]);
        a.cancel(&[grants[0].id]).await;

        let g = a.make("g").await;
        a.ask(link(g, "h")).await.unwrap();
        let answer = a.keep(list()).await.unwrap();
        let mut fids: Vec<_> = answer.grants.iter().map(|g| (g.fid, g.bits)).collect();
        fids.sort();
        assert_eq!(fids, [(f, NAMED_FILE_BITS), (g, NAMED_FILE_BITS)], "one lock for an inode with two names");
        let first = answer.grants.iter().map(|g| g.cookie).min().unwrap();
        assert!(answer.grants.iter().all(|g| g.cookie.0 - first.0 < 3));
        a.cancel(&answer.grants.iter().map(|g| g.id).collect::<Vec<_>>()).await;

        assert!(a.ask(list()).await.unwrap().grants.is_empty(), "the request takes no locks");
    });
}

#[test]
fn change_proceeds_after_dead_client_is_evicted() {
    with_host(2, config(), async |sim, rt, host| {
        host.server.listen(sim.addr(MDS, PORT)).await.unwrap();
        let (a, b) = (Client::tcp(sim, &host, 2).await, Client::tcp(sim, &host, 3).await);
        a.make("f").await;
        let (f, _) = a.look("f").await;
        std::mem::forget(a); // the crash ends it, not a destructor
        sim.crash_host(2);
        let began = rt.now();
        b.ask(chmod(f, 0o600)).await.unwrap();
        let took = rt.now().since(began);
        assert!(took > Duration::from_secs(1) && took < Duration::from_secs(25), "{took:?}");
        assert_eq!(host.param(LOCK_COUNT), "0");
    });
}

#[test]
fn change_of_disconnected_requester_still_revokes_other_locks() {
    with_clients(async |_, host, [a, b, c]| {
        a.make("f").await;
        let (f, grant) = a.look("f").await;
        let change = b.spawn(chmod(f, 0o600));
        b.a_while().await;
        change.abort();
        b.import.close().await;
        let reader = c.spawn(Request::GetAttr { fid: f, layout_known: true });
        c.a_while().await;
        assert!(!reader.is_finished(), "the first client may still see the old state");
        a.cancel(&[grant.id]).await;
        assert!(matches!(reader.await.unwrap().unwrap().reply, Reply::Entry(e) if e.attr.perm == 0o600));
        assert_eq!(host.param(LOCK_COUNT), "0", "no lock is left");
        let quick = c.rt.timeout(Duration::from_secs(1), c.ask(chmod(f, 0o640))).await;
        assert!(quick.is_ok_and(|answer| answer.is_ok()));
    });
}

#[test]
fn blocking_callback_is_repeated_after_mdt_reconnect() {
    with_host(3, config(), async |sim, rt, host| {
        host.server.listen(sim.addr(MDS, PORT)).await.unwrap();
        let (a, b) = (Client::tcp(sim, &host, 2).await, Client::lo(&host, "b").await);
        a.make("f").await;
        let (f, grant) = a.look("f").await;
        sim.reset_connections(MDS, 2);
        sim.partition(MDS, 2);
        let change = b.spawn(chmod(f, 0o600));
        b.a_while().await;
        assert_eq!(a.asked(), []);
        sim.heal(MDS, 2);
        rt.sleep(Duration::from_secs(10)).await;
        assert_eq!(a.asked(), [grant.id], "the lock survived, and got a second callback");
        a.cancel(&[grant.id]).await;
        change.await.unwrap().unwrap();
    });
}

#[test]
fn mdt_stop_does_not_wait_for_lock_holders() {
    with_host(4, config(), async |_, rt, host| {
        let (a, b) = (Client::lo(&host, "a").await, Client::lo(&host, "b").await);
        a.make("f").await;
        let (f, _) = a.look("f").await;
        let change = b.spawn(chmod(f, 0o600));
        b.a_while().await;
        let began = rt.now();
        host.mdt.stop().await.unwrap();
        assert!(change.await.unwrap().is_ok(), "it is executed");
        assert!(rt.now().since(began) < Duration::from_secs(2));
        host.mgs.stop();
        let again = Host::start(&rt, config()).await;
        assert_eq!(Client::lo(&again, "c").await.perm(f).await, Ok(0o600), "and durable");
    });
}

#[test]
fn stopping_mdt_revokes_all_locks_and_grants_no_more() {
    with_clients(async |_, host, [a, b, _]| {
        for name in ["f", "g"] {
            a.make(name).await;
        }
        let held = [a.look("f").await, a.look("g").await, b.look("f").await].map(|(_, grant)| grant.id);
        let (mdt, began) = (host.mdt.clone(), a.rt.now());
        let stop = a.rt.spawn("stop", async move { mdt.stop().await });
        a.a_while().await;
        let (mut of_a, of_b) = (a.asked(), b.asked());
        of_a.sort();
        assert_eq!((of_a, of_b), (vec![held[0], held[1]], vec![held[2]]));
        let answer = a.keep(lookup("f")).await.unwrap();
        assert!(answer.grants.is_empty(), "{:?}", answer.grants);
        a.cancel(&held[..2]).await;
        b.cancel(&held[2..]).await;
        stop.await.unwrap().unwrap();
        assert!(a.rt.now().since(began) < Duration::from_millis(600));
    });
}

#[test]
fn stop_ends_although_a_client_is_silent_and_the_next_start_waits_for_clients() {
    // More than the MDT revokes at once.
    const FILES: usize = 300;
    for is_silent in [false, true] {
        with_host(6, config(), async |sim, rt, host| {
            host.server.listen(sim.addr(MDS, PORT)).await.unwrap();
            let (a, b) = (Client::tcp(sim, &host, 2).await, Client::tcp(sim, &host, 3).await);
            let mut held = BTreeSet::new();
            for n in 0..FILES {
                let name = format!("f{n}");
                a.make(&name).await;
                held.insert(a.look(&name).await.1.id);
            }
            let lock = b.look("f0").await.1.id;
            let mdt = host.mdt.clone();
            let stop = rt.spawn("stop", async move { mdt.stop().await });
            // The silent client delays no callback for another one.
            let mut asked = BTreeSet::new();
            until(&rt, || {
                asked.extend(a.asked());
                asked == held
            })
            .await;
            a.cancel(&held.into_iter().collect::<Vec<_>>()).await;
            if !is_silent {
                b.cancel(&[lock]).await;
            }
            stop.await.unwrap().unwrap();
            host.mgs.stop();
            host.server.stop().await;

            let net = Net::new(rt.clone());
            let server = Server::new(net.clone());
            let next = Mdt::start(rt.clone(), net, &server, config(), Params::new()).await.unwrap();
            let clients = if is_silent { 2 } else { 0 };
            assert_eq!(next.recovery_counts().clients, clients, "whose locks may still be in use");
        });
    }
}

#[test]
fn concurrent_caching_and_renames_do_not_deadlock() {
    with_clients(async |_, host, clients| {
        let names = ["x", "y", "z"];
        for name in names {
            clients[0].make(name).await;
        }
        let tasks = clients.iter().enumerate().map(|(n, client)| {
            let (import, rt) = (client.import.clone(), client.rt.clone());
            let cookies: Vec<_> = (0..60).map(|_| client.new_cookie()).collect();
            client.rt.spawn("busy", async move {
                let mut held = Vec::new();
                for (i, keep) in cookies.into_iter().enumerate() {
                    let (from, to) = (names[(n + i) % 3], names[(i * 2 + n * n) % 3]);
                    let name = |s: &'static str| bytes::Bytes::from_static(s.as_bytes());
                    let request = match i % 3 {
                        0 => Request::Rename {
                            cred: Cred::ROOT,
                            parent: fid::ROOT,
                            name: name(from),
                            new_parent: fid::ROOT,
                            new_name: name(to),
                            flags: sheen_wire::mds::rename::EXCHANGE,
                            whiteout: None,
                        },
                        1 => lookup(from),
                        _ => list(),
                    };
                    // Locks are cancelled with the next request, not at the callback.
                    let call = Call { keep: Some(keep), cancels: std::mem::take(&mut held), ..request.into() };
                    let answer = import.request(call).send().await.unwrap().body;
                    held.extend(answer.grants.iter().map(|g| g.id));
                    rt.sleep(Duration::from_millis(i as u64 % 5)).await;
                }
                let call = Call { cancels: held, ..Request::Cancel.into() };
                import.request(call).send().await.unwrap();
            })
        });
        let all = async {
            for task in tasks.collect::<Vec<_>>() {
                task.await.unwrap();
            }
        };
        assert!(host.rt.timeout(Duration::from_secs(10), all).await.is_ok(), "deadlock");
        assert_eq!(host.param(LOCK_COUNT), "0");
    });
}
