//! Requests that a client resends to the next life of the MDT.

use crate::common::*;
use bytes::Bytes;
use sheen_namespace::{Done, Origin};
use sheen_wire::{
    Cred, Errno, Fid, Result,
    fid::ROOT,
    mds::{Reply, Request, SetAttr},
};

fn name(name: &'static str) -> Bytes {
    Bytes::from_static(name.as_bytes())
}

fn unlink(of: &'static str) -> Request {
    Request::Unlink { cred: Cred::ROOT, parent: ROOT, name: name(of), dir: false }
}

fn rename(from: &'static str, to: &'static str) -> Request {
    let (name, new_name) = (name(from), name(to));
    Request::Rename { cred: Cred::ROOT, parent: ROOT, name, new_parent: ROOT, new_name, flags: 0, whiteout: None }
}

fn chmod(fid: Fid, perm: u32) -> Request {
    let set = SetAttr { perm: Some(perm), ..SetAttr::default() };
    Request::SetAttr { cred: Cred::ROOT, fid, set, handle: None }
}

/// Sends a request as `client`, which has the replies up to `acknowledged`.
fn send(fs: &mut Fs, client: &str, xid: u64, acknowledged: u64, request: &Request) -> Result<Done> {
    let origin = Origin { client, xid, acknowledged };
    fs.ns.execute_from(ME, Some(origin), request, &mut fs.env).map_err(|e| match e {
        sheen_namespace::OpError::Errno(errno) => errno,
        other => panic!("{other:?}"),
    })
}

fn with_files(names: &[&str]) -> (Fs, Vec<Fid>) {
    let mut fs = Fs::new();
    let files = names.iter().map(|name| fs.touch(&Cred::ROOT, ROOT, name, 0o644).unwrap()).collect();
    fs.commit();
    (fs, files)
}

#[test]
fn resent_request_is_answered_as_before_by_the_next_life() {
    let (mut fs, files) = with_files(&["a", "b", "c", "d"]);
    let link = Request::Link { cred: Cred::ROOT, fid: files[2], parent: ROOT, name: name("c2") };
    let set = |flags| {
        let (name, value) = (name("user.x"), name("1"));
        Request::SetXattr { cred: Cred::ROOT, fid: files[3], name, value, flags }
    };
    let unset = Request::RemoveXattr { cred: Cred::ROOT, fid: files[3], name: name("user.x") };
    let requests = [unlink("a"), rename("b", "e"), link, chmod(files[2], 0o600), set(1), unset];
    let first: Vec<Done> = (1..).zip(&requests).map(|(xid, r)| send(&mut fs, "me", xid, 0, r).unwrap()).collect();
    fs.commit();
    let mut fs = fs.crash();
    let names = fs.ls(ROOT);
    for ((xid, request), first) in (1..).zip(&requests).zip(&first) {
        let again = send(&mut fs, "me", xid, 0, request).unwrap();
        assert_eq!(again.transno, first.transno, "{request:?}");
        assert!(again.invalidations.is_empty());
        match (again.reply, &first.reply) {
            (Reply::Entry(again), Reply::Entry(first)) => assert_eq!(again.attr.fid, first.attr.fid),
            (again, first) => assert!(matches!((again, first), (Reply::Ok, Reply::Ok))),
        }
    }
    assert_eq!(fs.ls(ROOT), names);
    assert_eq!(send(&mut fs, "other", 1, 0, &unlink("a")).err(), Some(Errno::ENOENT));
}

#[test]
fn uncommitted_request_is_executed_again() {
    let (mut fs, _) = with_files(&["a"]);
    let first = send(&mut fs, "me", 1, 0, &unlink("a")).unwrap();
    let mut fs = fs.crash();
    assert_eq!(fs.ls(ROOT), ["a"]);
    let again = send(&mut fs, "me", 1, 0, &unlink("a")).unwrap();
    assert!(again.transno >= first.transno && !again.invalidations.is_empty());
    assert!(fs.ls(ROOT).is_empty());
}

#[test]
fn resent_setattr_does_not_undo_a_later_one() {
    let (mut fs, files) = with_files(&["a"]);
    send(&mut fs, "me", 7, 0, &chmod(files[0], 0o600)).unwrap();
    send(&mut fs, "other", 1, 0, &chmod(files[0], 0o640)).unwrap();
    fs.commit();
    let mut fs = fs.crash();
    match send(&mut fs, "me", 7, 0, &chmod(files[0], 0o600)).unwrap().reply {
        Reply::Entry(entry) => assert_eq!(entry.attr.perm, 0o640),
        other => panic!("{other:?}"),
    }
    fs.remove(&Cred::ROOT, ROOT, "a", false).unwrap();
    let removed = send(&mut fs, "me", 7, 0, &chmod(files[0], 0o600)).err();
    assert!(matches!(removed, Some(Errno::ENOENT | Errno::ESTALE)), "{removed:?}");
}

#[test]
fn acknowledged_requests_are_forgotten() {
    let (mut fs, _) = with_files(&["a", "b"]);
    send(&mut fs, "me", 1, 0, &unlink("a")).unwrap();
    send(&mut fs, "me", 2, 1, &unlink("b")).unwrap();
    fs.commit();
    let mut fs = fs.crash();
    assert_eq!(send(&mut fs, "me", 1, 0, &unlink("a")).err(), Some(Errno::ENOENT), "acknowledged");
    assert!(send(&mut fs, "me", 2, 1, &unlink("b")).is_ok());
}

#[test]
fn requests_of_clients_that_left_are_forgotten() {
    let (mut fs, _) = with_files(&["a", "b", "c"]);
    for (client, of) in [("left", "a"), ("absent", "b"), ("back", "c")] {
        assert!(fs.ns.list_client(client));
        send(&mut fs, client, 1, 0, &unlink(of)).unwrap();
    }
    fs.ns.forget_client("left");
    fs.commit();
    let mut fs = fs.crash();
    assert_eq!(send(&mut fs, "left", 1, 0, &unlink("a")).err(), Some(Errno::ENOENT));
    assert!(send(&mut fs, "back", 1, 0, &unlink("c")).is_ok());
    assert!(fs.ns.client_returned("back"));
    fs.ns.finish_recovery().unwrap();
    assert_eq!(send(&mut fs, "absent", 1, 0, &unlink("b")).err(), Some(Errno::ENOENT));
    assert!(send(&mut fs, "back", 1, 0, &unlink("c")).is_ok());
    fs.commit();
    let mut fs = fs.crash();
    assert_eq!(send(&mut fs, "absent", 1, 0, &unlink("b")).err(), Some(Errno::ENOENT));
    assert!(send(&mut fs, "back", 1, 0, &unlink("c")).is_ok());
}

#[test]
fn a_client_that_acknowledges_nothing_is_bounded() {
    const MAX: u64 = 512;
    let (mut fs, files) = with_files(&["a"]);
    for xid in 1..=MAX + 1 {
        send(&mut fs, "me", xid, 0, &chmod(files[0], 0o600 + (xid % 8) as u32)).unwrap();
    }
    fs.commit();
    let mut fs = fs.crash();
    let transno = |fs: &mut Fs, xid| send(fs, "me", xid, 0, &chmod(files[0], 0o777)).unwrap().transno;
    let last = fs.ns.last_transno();
    assert_eq!(transno(&mut fs, MAX + 1), last);
    assert_eq!(transno(&mut fs, 2), last + 1 - MAX, "the 512th from the end");
    assert_eq!(transno(&mut fs, 1), last + 1, "forgotten, and so executed again");
}
