//! Requests that a client resends to the next life of the MDT.

use crate::common::*;
use bytes::Bytes;
use sheen_layout::{Asked, Layout, MDT_OST, Spec, Template, TemplateComponent};
use sheen_namespace::{Config, Done, Namespace, OpError, Origin, Store};
use sheen_wire::{
    Attr, Cred, Errno, Fid, FileKind, Result, Time,
    fid::ROOT,
    mds::{NewNode, Reply, Request, SetAttr, flags},
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

fn create(fs: &mut Fs, of: &'static str, node: NewNode) -> Request {
    let (fid, name) = (fs.fid(), name(of));
    Request::Create { cred: user(1), parent: ROOT, name, fid, node, mode: 0o777, umask: 0o022 }
}

fn open_create(fs: &mut Fs, of: &'static str) -> Request {
    let (fid, name, flags) = (fs.fid(), name(of), flags::CREAT | flags::EXCL);
    Request::OpenCreate { cred: user(1), parent: ROOT, name, fid, flags, mode: 0o444, umask: 0o022 }
}

fn chmod(fid: Fid, perm: u32) -> Request {
    let set = SetAttr { perm: Some(perm), ..SetAttr::default() };
    Request::SetAttr { cred: Cred::ROOT, fid, set, handle: None }
}

/// Sends a request as `client`, which has the replies up to `acknowledged`.
fn send(fs: &mut Fs, client: &str, xid: u64, acknowledged: u64, request: &Request) -> Result<Done> {
    let origin = Origin { client, xid, acknowledged };
    loop {
        match fs.ns.execute_from(ME, Some(origin), request, &mut fs.env) {
            Err(OpError::CommitFirst) => fs.commit(),
            Err(OpError::Errno(errno)) => return Err(errno),
            Ok(done) => return Ok(done),
        }
    }
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

/// A namespace in whose root anybody may create files.
fn with_open_root() -> Fs {
    let mut fs = Fs::new();
    fs.chmod(&Cred::ROOT, ROOT, 0o777).unwrap();
    fs
}

#[test]
fn resent_create_makes_no_file_again_that_another_client_removed() {
    let mut fs = with_open_root();
    let nodes = [NewNode::Dir, NewNode::Symlink(name("target")), NewNode::Node { kind: FileKind::Fifo, rdev: 0 }];
    let names = ["dir", "link", "fifo"];
    let requests: Vec<Request> = names.iter().zip(nodes).map(|(of, node)| create(&mut fs, of, node)).collect();
    let first: Vec<Done> = (1..).zip(&requests).map(|(xid, r)| send(&mut fs, "me", xid, 0, r).unwrap()).collect();
    fs.commit();
    let mut fs = fs.crash();
    for of in names {
        fs.remove(&Cred::ROOT, ROOT, of, of == "dir").unwrap();
    }
    for ((xid, request), first) in (1..).zip(&requests).zip(&first) {
        let again = send(&mut fs, "me", xid, 0, request).unwrap();
        assert!(again.repeated && again.transno == first.transno);
        let (Reply::Entry(again), Reply::Entry(first)) = (again.reply, &first.reply) else { panic!("other replies") };
        let of = |a: &Attr| (a.fid, a.kind, a.perm, a.uid);
        assert_eq!((of(&again.attr), again.attr.nlink), (of(&first.attr), 0));
    }
    assert!(fs.ls(ROOT).is_empty());
    fs.check();
}

#[test]
fn resent_open_for_creation_opens_removed_file_without_a_name() {
    let mut fs = with_open_root();
    let request = open_create(&mut fs, "f");
    send(&mut fs, "me", 1, 0, &request).unwrap();
    fs.commit();
    let mut fs = fs.crash();
    fs.remove(&Cred::ROOT, ROOT, "f", false).unwrap();
    let opened = send(&mut fs, "me", 1, 0, &request).unwrap();
    assert!(opened.repeated && opened.transno > fs.ns.last_committed(), "the reply waits for the commit");
    let Reply::Opened { handle, entry, created: true, .. } = opened.reply else { panic!("{:?}", opened.reply) };
    assert_eq!((entry.attr.nlink, entry.attr.perm), (0, 0o444));
    assert!(fs.ls(ROOT).is_empty());
    fs.commit();
    fs.close((entry.attr.fid, handle)).unwrap();
    fs.commit();
    assert_eq!(fs.ns.files(), 1, "the last close deletes it");
}

#[test]
fn resent_tmpfile_has_another_object_on_the_mdt_than_its_deleted_file() {
    let mut fs = with_open_root();
    let on_mdt = TemplateComponent::on_mdt(64 << 10);
    let rest = TemplateComponent::striped(64 << 10, u64::MAX, Spec::default());
    let default = Asked::Composite(Template { components: vec![on_mdt, rest], mirrors: 1 });
    fs.set(&Cred::ROOT, ROOT, "lustre.lov", &default.encode(), 0).unwrap();
    let (fid, flags) = (fs.fid(), flags::RDWR);
    let request = Request::TmpFile { cred: user(1), parent: ROOT, fid, flags, mode: 0o600, umask: 0 };
    let object = |done: Done| {
        let Reply::Opened { entry, .. } = done.reply else { panic!("{:?}", done.reply) };
        Layout::decode(&entry.layout.unwrap()).unwrap().all_objects().next().unwrap()
    };
    let first = object(send(&mut fs, "me", 1, 0, &request).unwrap());
    assert_eq!(first.ost, MDT_OST);
    fs.commit();
    let mut fs = fs.crash();
    fs.ns.finish_recovery().unwrap();
    assert_ne!(object(send(&mut fs, "me", 1, 0, &request).unwrap()), first, "the first object is to be destroyed");
}

#[test]
fn resent_open_for_creation_finds_its_renamed_file() {
    let mut fs = with_open_root();
    let request = open_create(&mut fs, "f");
    let first = send(&mut fs, "me", 1, 0, &request).unwrap();
    fs.commit();
    let mut fs = fs.crash();
    fs.rename(&Cred::ROOT, (ROOT, "f"), (ROOT, "g"), 0).unwrap();
    fs.touch(&Cred::ROOT, ROOT, "f", 0o600).unwrap();
    let again = send(&mut fs, "me", 1, 0, &request).unwrap();
    let (Reply::Opened { entry: again, .. }, Reply::Opened { entry: first, .. }) = (again.reply, first.reply) else {
        panic!("other replies")
    };
    assert_eq!(again.attr.fid, first.attr.fid);
    assert_eq!(fs.ls(ROOT), ["f", "g"]);
}

#[test]
fn number_of_a_create_opens_no_file_of_another_user() {
    let mut fs = with_open_root();
    let theirs = fs.touch(&Cred::ROOT, ROOT, "theirs", 0o600).unwrap();
    let mut request = open_create(&mut fs, "f");
    send(&mut fs, "me", 1, 0, &request).unwrap();
    if let Request::OpenCreate { fid, .. } = &mut request {
        *fid = theirs;
    }
    assert_eq!(send(&mut fs, "me", 1, 0, &request).err(), Some(Errno::EACCES));
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

#[test]
fn open_of_a_store_with_a_damaged_record_of_requests_names_its_key() {
    let (mut fs, _) = with_files(&["a"]);
    send(&mut fs, "me", 1, 0, &unlink("a")).unwrap();
    fs.commit();
    let open = || Namespace::open(fs.store.clone(), Config::default(), Time::default(), 2 << 32).map(drop);
    let key = b"yme".to_vec();
    let record = fs.store.get(&key).unwrap().expect("the record of this client");
    let (cut, other_format) = (record[..record.len() - 1].to_vec(), vec![200, 0]);
    for damaged in [Vec::new(), cut, other_format] {
        fs.store.put(key.clone(), damaged.clone());
        let refused = open().unwrap_err();
        assert!(refused.is_damage(), "{refused}");
        assert!(refused.to_string().starts_with("metadata record 796d65: "), "{damaged:?}: {refused}");
    }
    fs.store.put(key, record.clone());
    assert_eq!(open(), Ok(()));
    fs.store.put(b"y\xff".to_vec(), record);
    let refused = open().unwrap_err();
    assert!(refused.is_damage() && refused.to_string().contains("79, ff"), "{refused}");
}
