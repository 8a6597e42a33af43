//! Sealing of objects that a file leaves behind, through the OST's requests.

use std::time::Duration;

use crate::common::{OBJECT, Process, caller::*, part};
use sheen_wire::{
    Errno, Fid,
    ldlm::{Cookie, Enqueue, Enqueued, Mode, Resource},
    ost::{Allocate, Grant, ObjectAttr, Part, Reply, Request, Seek},
};

const OTHER: Fid = Fid::new(OBJECT.seq, OBJECT.oid + 1);

fn versions(client: &Caller<'_>) -> Vec<(Fid, Option<u64>)> {
    match client.call(Request::Versions { objects: vec![OBJECT, OTHER], flush: true }) {
        Reply::Versions(versions) => [OBJECT, OTHER].into_iter().zip(versions.into_iter().map(Some)).collect(),
        other => panic!("{other:?}"),
    }
}

fn pw(object: Fid) -> Enqueue {
    Enqueue::new(Resource::extent(object), Mode::Pw, ALL, Cookie(7_000_001))
}

fn close(client: &Caller<'_>, objects: &[(Fid, Option<u64>)]) -> Result<(), Errno> {
    let request = Request::Seal { objects: objects.to_vec(), group: None, order: 1 };
    client.end(client.begin(request, bytes::Bytes::new())).map(drop)
}

fn fails(client: &Caller<'_>, request: Request, data: &'static [u8]) -> Option<Errno> {
    client.end(client.begin(request, bytes::Bytes::from_static(data))).err()
}

#[test]
fn data_version_changes_with_every_change_and_only_then() {
    let (process, ost) = Process::with_ost();
    let client = Caller::local(&process, &ost, "c");
    assert_eq!(versions(&client)[0].1, Some(0), "never written");
    client.write(OBJECT, 0, b"some bytes");
    let mut last = versions(&client)[0].1;
    assert_ne!(last, Some(0));
    client.read(OBJECT);
    client.call(Request::Attrs { objects: vec![OBJECT] });
    client.call(Request::Truncate { file: Fid::ZERO, objects: vec![(OTHER, 7)] });
    assert_eq!(versions(&client)[0].1, last, "reads, and changes of other objects, do not change the version");
    for change in [
        Request::Truncate { file: Fid::ZERO, objects: vec![(OBJECT, 3)] },
        Request::Truncate { file: Fid::ZERO, objects: vec![(OBJECT, 30)] },
        Request::Allocate {
            file: Fid::ZERO,
            mode: Allocate::Reserve { keep_size: false },
            runs: vec![(OBJECT, 0, 8192)],
        },
    ] {
        client.call(change.clone());
        let now = versions(&client)[0].1;
        assert_ne!(now, last, "{change:?}");
        last = now;
    }
    client.write(OBJECT, 1, b"m");
    assert_ne!(versions(&client)[0].1, last);
}

#[test]
fn data_version_survives_a_restart_of_the_ost() {
    let (process, ost) = Process::with_ost();
    let client = Caller::local(&process, &ost, "c");
    client.write(OBJECT, 0, b"bytes");
    let known = versions(&client);
    process.run(ost.stop());
    let ost = process.start(Some(0)).unwrap();
    let client = Caller::local(&process, &ost, "d");
    assert_eq!(versions(&client), known);
    client.write(OBJECT, 0, b"B");
    assert_eq!(close(&client, &known), Err(Errno::EBUSY), "it was changed since");
    let known = versions(&client);
    process.run(ost.stop());
    let ost = process.start(Some(0)).unwrap();
    let client = Caller::local(&process, &ost, "e");
    assert_eq!(close(&client, &known), Ok(()));
}

#[test]
fn sealed_object_refuses_all_requests_until_unsealed() {
    let (process, ost) = Process::with_ost();
    let client = Caller::local(&process, &ost, "c");
    client.write(OBJECT, 0, b"bytes");
    let known = versions(&client);
    assert_eq!(close(&client, &known), Ok(()));
    let whole = vec![Part { object: OBJECT, ..part(0, 100) }];
    let write = Request::Write {
        file: Fid::ZERO,
        parts: vec![part(0, 1)],
        sync: false,
        mtime: None,
        grant: Grant::default(),
        held: false,
    };
    for (request, data) in [
        (Request::Read { parts: whole }, &b""[..]),
        (write, b"x"),
        (Request::Attrs { objects: vec![OBJECT] }, b""),
        (Request::Truncate { file: Fid::ZERO, objects: vec![(OBJECT, 0)] }, b""),
        (Request::Allocate { file: Fid::ZERO, mode: Allocate::PunchHole, runs: vec![(OBJECT, 0, 4096)] }, b""),
        (Request::Seek { object: OBJECT, offset: 0, what: Seek::Data }, b""),
        (Request::Sync { objects: vec![OBJECT] }, b""),
        (Request::Versions { objects: vec![OBJECT], flush: true }, b""),
        (Request::Enqueue { locks: vec![pr(OBJECT, ALL)], want: 0 }, b""),
        // Never written, and sealed all the same.
        (Request::Read { parts: vec![Part { object: OTHER, ..part(0, 100) }] }, b""),
    ] {
        assert_eq!(fails(&client, request.clone(), data), Some(Errno::MOVED), "{request:?}");
    }
    assert_eq!(ost.store().sealed_count(), 2);
    client.call(Request::Unseal { objects: vec![OBJECT, OTHER], order: 1 });
    assert_eq!(&client.read(OBJECT)[..], b"bytes");
    assert_eq!(versions(&client), known, "sealing did not change it");
    client.write(OBJECT, 0, b"B");
    assert_eq!(ost.store().sealed_count(), 0);
}

#[test]
fn seal_fails_for_all_objects_if_one_version_changed() {
    let (process, ost) = Process::with_ost();
    let client = Caller::local(&process, &ost, "c");
    client.write(OBJECT, 0, b"bytes");
    for changed in [OBJECT, OTHER] {
        let known = versions(&client);
        client.write(changed, 0, b"again");
        assert_eq!(close(&client, &known), Err(Errno::EBUSY));
        assert_eq!(ost.store().sealed_count(), 0);
        client.write(OBJECT, 0, b"fine");
        client.write(OTHER, 0, b"fine");
    }
}

#[test]
fn sealed_object_stays_sealed_after_destroy_and_restart() {
    let (process, ost) = Process::with_ost();
    let client = Caller::local(&process, &ost, "c");
    client.write(OBJECT, 0, b"bytes");
    assert_eq!(close(&client, &versions(&client)), Ok(()));
    client.call(Request::Destroy { objects: vec![OBJECT] });
    let read = || Request::Read { parts: vec![part(0, 100)] };
    assert_eq!(fails(&client, read(), b""), Some(Errno::MOVED), "sealed, and not empty");
    process.run(ost.stop());
    let ost = process.start(Some(0)).unwrap();
    let client = Caller::local(&process, &ost, "d");
    assert_eq!(fails(&client, read(), b""), Some(Errno::MOVED), "sealed, and not empty");
    assert_eq!(ost.store().sealed_count(), 2);
}

#[test]
fn seal_waits_for_dirty_data_and_detects_it() {
    let (process, ost) = Process::with_ost();
    let (holder, mover) = (Caller::local(&process, &ost, "h"), Caller::local(&process, &ost, "m"));
    holder.write(OBJECT, 0, b"bytes");
    let [(answer, _)] = holder.enqueue(vec![pw(OBJECT)])[..] else { panic!("one answer") };
    let Enqueued::Granted { id, .. } = answer else { panic!("{answer:?}") };
    // The request for versions waits for dirty data, the seal for the lock. The blocking callback
    // for the seal is not the one for an object that is going to be removed.
    let asking = mover.begin(Request::Versions { objects: vec![OBJECT, OTHER], flush: true }, bytes::Bytes::new());
    assert_eq!(holder.asked(), id);
    holder.write(OBJECT, 0, b"dirty");
    holder.cancel(id);
    let Reply::Versions(known) = mover.end(asking).unwrap() else { panic!("versions") };
    let known: Vec<_> = [OBJECT, OTHER].into_iter().zip(known.into_iter().map(Some)).collect();
    assert_eq!(&mover.read(OBJECT)[..], b"dirty");
    let [(answer, _)] = holder.enqueue(vec![pw(OBJECT)])[..] else { panic!("one answer") };
    let Enqueued::Granted { id, .. } = answer else { panic!("{answer:?}") };
    let closing = mover.begin(Request::Seal { objects: known.clone(), group: None, order: 1 }, bytes::Bytes::new());
    let (asked, mode) = holder.asked_for();
    assert_eq!((asked, mode), (id, Mode::Pw));
    holder.write(OBJECT, 0, b"later");
    holder.cancel(id);
    assert_eq!(mover.end(closing).err(), Some(Errno::EBUSY), "the holder flushed dirty data first");
    let (id, attr) = holder.keep(OBJECT);
    assert_eq!(attr, ObjectAttr { size: 5, ..attr });
    let closing = mover.begin(Request::Seal { objects: versions(&mover), group: None, order: 1 }, bytes::Bytes::new());
    assert_eq!(holder.asked(), id);
    // An enqueue that arrives while the seal waits fails with MOVED.
    let late = mover.begin(Request::Enqueue { locks: vec![pr(OBJECT, ALL)], want: 0 }, bytes::Bytes::new());
    holder.cancel(id);
    assert_eq!(mover.end(closing).err(), None);
    assert_eq!(mover.end(late).err(), Some(Errno::MOVED));
}

const NEW: [Fid; 2] = [Fid::new(OBJECT.seq, 77), Fid::new(OBJECT.seq, 78)];

fn link(client: &Caller<'_>) -> Result<(), Errno> {
    let objects = vec![(OBJECT, NEW[0]), (OTHER, NEW[1])];
    client.end(client.begin(Request::Link { objects, order: 1 }, bytes::Bytes::new())).map(drop)
}

#[test]
fn link_gives_only_sealed_objects_a_new_name() {
    let (process, ost) = Process::with_ost();
    let client = Caller::local(&process, &ost, "c");
    client.write(OBJECT, 0, b"bytes");
    assert_eq!(link(&client), Err(Errno::EBUSY), "it is in use");
    assert_eq!(close(&client, &[(OBJECT, None)]), Ok(()), "with any version");
    assert_eq!(link(&client), Err(Errno::EBUSY), "the other is in use");
    assert_eq!(close(&client, &[(OTHER, None)]), Ok(()));
    let Reply::Attrs(none) = client.call(Request::Attrs { objects: NEW.to_vec() }) else { panic!("attributes") };
    assert_eq!(none[1], ObjectAttr::default());
    // Twice, as by an MDT that lost the answer.
    assert_eq!((link(&client), link(&client)), (Ok(()), Ok(())));
    assert_eq!(&client.read(NEW[0])[..], b"bytes");
    assert_eq!(client.read(NEW[1]).len(), 0, "never written under the old name");
    let read = || Request::Read { parts: vec![part(0, 100)] };
    assert_eq!(fails(&client, read(), b""), Some(Errno::MOVED));
    client.write(NEW[0], 5, b" and more");
    client.write(NEW[1], 0, b"first");
    client.keep(NEW[0]);
    // Destroying the old names removes nothing else, also not after a restart.
    client.call(Request::Destroy { objects: vec![OBJECT, OTHER] });
    assert_eq!(&client.read(NEW[0])[..], b"bytes and more");
    process.run(ost.stop());
    let ost = process.start(Some(0)).unwrap();
    let client = Caller::local(&process, &ost, "d");
    assert_eq!(&client.read(NEW[0])[..], b"bytes and more");
    assert_eq!(&client.read(NEW[1])[..], b"first");
    assert_eq!(fails(&client, read(), b""), Some(Errno::MOVED));
}

#[test]
fn destroying_a_linked_name_keeps_the_original_object() {
    let (process, ost) = Process::with_ost();
    let client = Caller::local(&process, &ost, "c");
    client.write(OBJECT, 0, b"bytes");
    let Reply::Attrs(before) = client.call(Request::Attrs { objects: vec![OBJECT] }) else { panic!("attributes") };
    assert_eq!(close(&client, &[(OBJECT, None), (OTHER, None)]), Ok(()));
    assert_eq!(link(&client), Ok(()));
    let Reply::Attrs(linked) = client.call(Request::Attrs { objects: vec![NEW[0]] }) else { panic!("attributes") };
    assert_eq!(linked, before, "size, space and time of the last change");
    client.call(Request::Unseal { objects: vec![OBJECT, OTHER], order: 1 });
    client.call(Request::Destroy { objects: NEW.to_vec() });
    client.write(OBJECT, 5, b" and more");
    assert_eq!(link(&client), Err(Errno::EBUSY), "a late request finds the objects unsealed");
    assert_eq!(&client.read(OBJECT)[..], b"bytes and more");
    assert_eq!(client.read(NEW[0]).len(), 0);
    assert_eq!(close(&client, &[(OBJECT, None), (OTHER, None)]), Ok(()));
    assert_eq!(link(&client), Err(Errno::ESTALE), "or sealed again: a destroyed name is not used again");
}

#[test]
fn partial_write_returns_moved_partly_and_follow_finds_the_new_names() {
    let (process, ost) = Process::with_ost();
    let client = |name| Caller::local(&process, &ost, name);
    let (holder, mover, writer) = (client("h"), client("m"), client("w"));
    writer.write(OTHER, 0, b"other");
    let follow = |caller: &Caller<'_>| {
        let answer = caller.end(caller.begin(Request::Follow { objects: vec![OBJECT, OTHER] }, bytes::Bytes::new()));
        answer.map(|reply| if let Reply::Objects(objects) = reply { objects } else { panic!("{reply:?}") })
    };
    assert_eq!(follow(&writer), Ok(vec![OBJECT, OTHER]));
    let (id, _) = holder.keep(OTHER);
    let closing =
        mover.begin(Request::Seal { objects: vec![(OTHER, None)], group: None, order: 1 }, bytes::Bytes::new());
    assert_eq!(holder.asked(), id);
    // The first object is written at once, the second waits for the client that seals it.
    let parts = vec![part(0, 3), Part { object: OTHER, ..part(0, 3) }];
    let both = || Request::Write {
        file: Fid::ZERO,
        parts: parts.clone(),
        sync: false,
        mtime: None,
        grant: Grant::default(),
        held: false,
    };
    let writing = writer.begin(both(), bytes::Bytes::from_static(b"abcxyz"));
    let end = process.net.rt().now() + PATIENCE;
    while &mover.read(OBJECT)[..] != b"abc" {
        assert!(process.net.rt().now() < end, "it is not written");
        process.sleep(Duration::from_millis(1));
    }
    holder.cancel(id);
    assert_eq!(mover.end(closing).err(), None);
    assert_eq!(writer.end(writing).err(), Some(Errno::MOVED_PARTLY));
    assert_eq!(fails(&writer, both(), b"abcxyz"), Some(Errno::MOVED), "a later write has changed nothing");
    assert_eq!(follow(&writer), Err(Errno::MOVED));
    assert_eq!(close(&mover, &[(OBJECT, None)]), Ok(()));
    assert_eq!(link(&mover), Ok(()));
    assert_eq!(follow(&writer), Ok(NEW.to_vec()));
    writer.write(NEW[1], 0, b"xyz");
    assert_eq!((&writer.read(NEW[0])[..], &writer.read(NEW[1])[..]), (&b"abc"[..], &b"xyzer"[..]));
    // The object is sealed again, and its next name is not known yet.
    assert_eq!(close(&mover, &[(NEW[1], None)]), Ok(()));
    assert_eq!(follow(&writer), Err(Errno::EAGAIN));
    let last = Fid::new(OBJECT.seq, 99);
    mover.call(Request::Link { objects: vec![(NEW[1], last)], order: 1 });
    mover.call(Request::Destroy { objects: vec![OBJECT, OTHER, NEW[1]] });
    process.run(ost.stop());
    let ost = process.start(Some(0)).unwrap();
    let writer = Caller::local(&process, &ost, "again");
    assert_eq!(follow(&writer), Ok(vec![NEW[0], last]), "also after a restart");
    assert_eq!(&writer.read(last)[..], b"xyzer");
    // An unsealed object has no other name.
    writer.call(Request::Unseal { objects: vec![OBJECT], order: 1 });
    assert_eq!(follow(&writer), Ok(vec![OBJECT, last]));
}

/// The MDT does not wait for these requests any more: an OST that stood still executes them after
/// later ones.
#[test]
fn late_seal_unseal_and_link_do_not_change_an_object_sealed_later() {
    let (process, ost) = Process::with_ost();
    let client = |name| Caller::local(&process, &ost, name);
    let (mdt, successor) = (client("mdt-1"), client("mdt-2"));
    mdt.write(OBJECT, 0, b"bytes");
    let seal = |mdt: &Caller<'_>, order| {
        mdt.call(Request::Seal { objects: vec![(OBJECT, None)], group: None, order });
        assert_eq!(ost.store().sealed_count(), 1);
    };
    let unseal = |mdt: &Caller<'_>, order| {
        mdt.call(Request::Unseal { objects: vec![OBJECT], order });
        ost.store().sealed_count()
    };
    let link = |order| fails(&mdt, Request::Link { objects: vec![(OBJECT, NEW[0])], order }, b"");
    seal(&mdt, 5);
    let late = Request::Seal { objects: vec![(OTHER, None), (OBJECT, None)], group: None, order: 4 };
    assert_eq!((fails(&mdt, late, b""), ost.store().sealed_count()), (Some(Errno::MOVED), 1));
    assert_eq!((unseal(&mdt, 4), link(4)), (1, Some(Errno::EBUSY)));
    assert_eq!(unseal(&mdt, 6), 0);
    assert_eq!(link(7), Some(Errno::EBUSY), "it is not sealed");
    // A restarted MDT counts from the beginning.
    seal(&mdt, 8);
    assert_eq!(unseal(&successor, 1), 0);
    seal(&successor, 2);
    assert_eq!((unseal(&mdt, 9), link(9)), (1, Some(Errno::EBUSY)));
    let follow = Request::Follow { objects: vec![OBJECT] };
    assert_eq!(fails(&successor, follow, b""), Some(Errno::MOVED), "it has got no new name");
    process.run(ost.stop());
    let ost = process.start(Some(0)).unwrap();
    let mdt = Caller::local(&process, &ost, "mdt-3");
    assert_eq!(ost.store().sealed_count(), 1);
    mdt.call(Request::Unseal { objects: vec![OBJECT], order: 1 });
    assert_eq!(ost.store().sealed_count(), 0);
}
