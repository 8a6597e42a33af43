//! Limits of space at an OST: writes that wait for the MDT, and what the OST tells the MDT.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use sheen_objects::name;
use sheen_oss::Ost;
use sheen_rt::{JoinHandle, OpenOptions};
use sheen_wire::{
    Errno, Fid, Result, Time,
    ldlm::{Enqueue, Mode},
    ost::{Allocate, Grant, Owned, Part, QuotaUse, QuotaWant, Reply, Request, StoredObject},
    quota::{Id, Kind, Owner},
};

use crate::common::{OBJECT, Process, caller::*};

const FILE: Fid = Fid::new(0x2_0000_0401, 5);
const OTHER: Fid = Fid::new(OBJECT.seq, OBJECT.oid + 1);
const ALICE: Owner = Owner { uid: 1000, gid: 100, project: 7 };
const USER: Id = Id { kind: Kind::User, id: 1000 };
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Half of the limit of most tests.
const DATA: &[u8] = &[7; 32 << 10];

/// An OST that has counted its objects, and that knows Alice as the owner of the object.
fn with_ost() -> (Process, Arc<Ost>) {
    let (process, ost) = Process::with_ost();
    process.wait_for(|| ost.store().accounting().is_complete().then_some(()));
    (process, ost)
}

/// The MDT.
struct Mdt<'a>(Caller<'a>);

impl<'a> Mdt<'a> {
    fn new(process: &'a Process, ost: &Ost) -> Mdt<'a> {
        let mdt = Mdt(Caller::local(process, ost, "mdt"));
        mdt.own(OBJECT, ALICE);
        mdt
    }

    fn own(&self, object: Fid, owner: Owner) {
        let owners = vec![Owned { object, file: FILE, owner }];
        assert!(matches!(self.0.call(Request::SetOwners { owners, only_unowned: false }), Reply::Ok));
    }

    /// Lets Alice use some bytes. Returns those that she uses.
    fn allow(&self, allow: Option<u64>) -> u64 {
        match self.0.call(Request::QuotaAllow { ids: vec![(USER, allow)], all: false }) {
            Reply::Used(used) => used[0],
            other => panic!("{other:?}"),
        }
    }

    fn needs(&self) -> (Vec<(Fid, Fid)>, Vec<QuotaWant>) {
        match self.0.call(Request::QuotaWait) {
            Reply::QuotaNeeds { unowned, wants, damaged } if damaged.is_empty() => (unowned, wants),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the next id for which a write waits.
    fn wanted(&self) -> QuotaWant {
        loop {
            let (_, wants) = self.needs();
            if let Some(want) = wants.into_iter().find(|want| want.wanted > 0) {
                return want;
            }
        }
    }

    fn uses(&self) -> (Vec<(Id, QuotaUse)>, bool) {
        match self.0.call(Request::QuotaUse { first: Id { kind: Kind::User, id: 0 } }) {
            Reply::QuotaUse { ids, more: false, complete } => (ids, complete),
            other => panic!("{other:?}"),
        }
    }
}

/// Begins a write. `used`: granted bytes that it uses, for one from a client's cache.
fn begin_write(client: &Caller<'_>, object: Fid, offset: u64, used: u64) -> JoinHandle<Result<Reply>> {
    let parts = vec![Part { object, offset, len: DATA.len() as u32 }];
    let grant = Grant { used, want: 0 };
    let mtime = (used > 0).then(Time::default);
    let request = Request::Write { file: FILE, parts, sync: false, mtime, grant, held: false };
    client.begin(request, Bytes::from_static(DATA))
}

/// Writes. Returns whether the object is near a limit.
fn write(client: &Caller<'_>, object: Fid, offset: u64, used: u64) -> Result<bool> {
    match client.end(begin_write(client, object, offset, used))? {
        Reply::Done { tight, .. } => Ok(tight),
        other => panic!("{other:?}"),
    }
}

#[test]
fn write_beyond_the_limit_waits_for_the_mdt() {
    let (process, ost) = with_ost();
    let (mdt, client) = (Mdt::new(&process, &ost), Caller::local(&process, &ost, "a"));
    assert_eq!(mdt.allow(Some(64 * KIB)), 0);
    write(&client, OBJECT, 0, 0).unwrap();
    write(&client, OBJECT, 32 * KIB, 0).unwrap();
    write(&client, OBJECT, 16 * KIB, 0).expect("an overwrite takes no space");
    let waits = begin_write(&client, OBJECT, 48 * KIB, 0);
    process.still_waits(&waits);
    assert_eq!(mdt.wanted(), QuotaWant { id: USER, used: 64 * KIB, wanted: 16 * KIB });
    assert_eq!(mdt.allow(Some(80 * KIB)), 64 * KIB);
    assert!(matches!(client.end(waits), Ok(Reply::Done { .. })));
    let refused = begin_write(&client, OBJECT, 80 * KIB, 0);
    assert_eq!(mdt.wanted(), QuotaWant { id: USER, used: 80 * KIB, wanted: 32 * KIB });
    assert_eq!(mdt.allow(Some(80 * KIB)), 80 * KIB);
    assert_eq!(client.end(refused).err(), Some(Errno::EDQUOT));
    let mode = Allocate::Reserve { keep_size: false };
    let reserve = Request::Allocate { file: FILE, mode, runs: vec![(OBJECT, 0, MIB)] };
    let reserve = client.begin(reserve, Bytes::new());
    assert_eq!(mdt.wanted().used, 80 * KIB);
    mdt.allow(Some(81 * KIB));
    assert_eq!(client.end(reserve).err(), Some(Errno::EDQUOT));
    mdt.allow(None);
    write(&client, OBJECT, 80 * KIB, 0).unwrap();
    assert_eq!(mdt.uses().0[0], (USER, QuotaUse { bytes: 112 * KIB, objects: 1 }));
    process.run(ost.stop());
}

#[test]
fn write_goes_on_if_the_mdt_does_not_answer() {
    let (process, ost) = with_ost();
    let (mdt, client) = (Mdt::new(&process, &ost), Caller::local(&process, &ost, "a"));
    mdt.allow(Some(0));
    let begin = process.net.rt().now();
    write(&client, OBJECT, 0, 0).unwrap();
    assert_eq!(process.net.rt().now().since(begin).as_secs(), 5);
    assert_eq!(mdt.allow(Some(0)), DATA.len() as u64, "no reservation stays behind");
    process.run(ost.stop());
}

#[test]
fn write_to_a_new_object_waits_for_its_owner_while_an_id_has_a_limit() {
    let (process, ost) = with_ost();
    let (mdt, client) = (Mdt::new(&process, &ost), Caller::local(&process, &ost, "a"));
    mdt.allow(Some(16 * KIB));
    let waits = begin_write(&client, OTHER, 0, 0);
    let begin = process.net.rt().now();
    assert_eq!(mdt.needs(), (vec![(OTHER, FILE)], vec![]));
    assert!(process.net.rt().now().since(begin) < Duration::from_millis(100), "at once");
    process.still_waits(&waits);
    mdt.own(OTHER, ALICE);
    assert_eq!(mdt.wanted().wanted, 32 * KIB);
    mdt.allow(Some(16 * KIB));
    assert_eq!(client.end(waits).err(), Some(Errno::EDQUOT));
    // A late answer to the question does not change an owner.
    let owners = vec![Owned { object: OTHER, file: Fid::ZERO, owner: Owner::default() }];
    mdt.0.call(Request::SetOwners { owners, only_unowned: true });
    assert_eq!(ost.store().owner(OTHER), Some(ALICE));
    process.run(ost.stop());
}

#[test]
fn granted_bytes_and_files_of_the_superuser_are_never_refused() {
    let (process, ost) = with_ost();
    let (mdt, client) = (Mdt::new(&process, &ost), Caller::local(&process, &ost, "a"));
    mdt.own(OTHER, Owner { uid: 0, ..ALICE });
    let group = Id { kind: Kind::Group, id: ALICE.gid };
    let ids = vec![(USER, Some(0)), (group, Some(0))];
    mdt.0.call(Request::QuotaAllow { ids, all: true });
    let begin = process.net.rt().now();
    assert_eq!(write(&client, OBJECT, 0, DATA.len() as u64), Ok(true));
    assert_eq!(write(&client, OTHER, 0, 0), Ok(false));
    assert!(process.net.rt().now().since(begin) < Duration::from_secs(1));
    assert_eq!(mdt.allow(Some(0)), DATA.len() as u64);
    process.run(ost.stop());
}

#[test]
fn replies_say_that_a_limit_is_near() {
    let (process, ost) = with_ost();
    let (mdt, client) = (Mdt::new(&process, &ost), Caller::local(&process, &ost, "a"));
    let lock = |object| Enqueue { mode: Mode::Cw, ..pr(object, ALL) };
    let tight = |object| match client.call(Request::Enqueue { locks: vec![lock(object)], want: 0 }) {
        Reply::Enqueued { tight, .. } => tight,
        other => panic!("{other:?}"),
    };
    assert_eq!(write(&client, OBJECT, 0, 0), Ok(false));
    mdt.allow(Some(65 * MIB));
    assert_eq!((write(&client, OBJECT, 0, 0), tight(OBJECT)), (Ok(false), false));
    mdt.allow(Some(64 * MIB));
    assert_eq!((write(&client, OBJECT, 0, 0), tight(OBJECT), tight(OTHER)), (Ok(true), true, false));
    let used = DATA.len() as u64;
    assert_eq!(mdt.needs().1, [QuotaWant { id: USER, used, wanted: 0 }], "before a write waits");
    process.run(ost.stop());
}

#[test]
fn new_objects_are_reported_with_their_files_until_they_have_owners() {
    let (process, ost) = with_ost();
    let (mdt, client) = (Mdt::new(&process, &ost), Caller::local(&process, &ost, "a"));
    let waits = mdt.0.begin(Request::QuotaWait, Bytes::new());
    write(&client, OBJECT, 0, 0).unwrap();
    process.still_waits(&waits);
    let others: Vec<Fid> = (1..=5).map(|n| Fid::new(OBJECT.seq, OBJECT.oid + n)).collect();
    others.iter().for_each(|object| _ = write(&client, *object, 0, 0).unwrap());
    let Ok(Reply::QuotaNeeds { unowned, .. }) = mdt.0.end(waits) else { panic!("it needs owners") };
    assert_eq!(unowned, others.iter().map(|object| (*object, FILE)).collect::<Vec<_>>(), "in one answer");
    assert_eq!(mdt.uses().0[0].1.objects, 1);
    mdt.own(others[0], ALICE);
    assert!(mdt.uses().1);
    assert_eq!(mdt.uses().0[0], (USER, QuotaUse { bytes: 64 * KIB, objects: 2 }));
    let again = Mdt(Caller::local(&process, &ost, "mdt-again"));
    assert_eq!(again.needs().0.len(), 4, "an MDT that connects learns of all");
    let text = process.value("obdfilter.sheen-OST0000.quota");
    assert!(text.starts_with("complete: yes\nunowned: 4\nids:\n"), "{text}");
    assert!(text.contains("- { user: 1000, used: 65536, objects: 2, allowed: unlimited }\n"), "{text}");
    process.run(ost.stop());
}

#[test]
fn restarted_ost_enforces_limits_after_it_has_counted_its_objects() {
    let (process, ost) = with_ost();
    let client = Caller::local(&process, &ost, "a");
    Mdt::new(&process, &ost);
    write(&client, OBJECT, 0, 0).unwrap();
    drop(client);
    process.run(ost.stop());
    let ost = process.start(None).unwrap();
    let (mdt, client) = (Mdt::new(&process, &ost), Caller::local(&process, &ost, "a"));
    process.wait_for(|| ost.store().accounting().is_complete().then_some(()));
    assert_eq!(mdt.uses().0[0], (USER, QuotaUse { bytes: 32 * KIB, objects: 1 }));
    assert_eq!(mdt.allow(Some(32 * KIB)), 32 * KIB);
    let waits = begin_write(&client, OBJECT, 32 * KIB, 0);
    process.still_waits(&waits);
    // A stop ends the waits, that of the MDT included.
    assert_eq!(mdt.wanted().wanted, 32 * KIB);
    let asks = mdt.0.begin(Request::QuotaWait, Bytes::new());
    let begin = process.net.rt().now();
    process.run(ost.stop());
    assert!(process.net.rt().now().since(begin) < Duration::from_secs(3));
    drop((waits, asks));
}

#[test]
fn mdt_gets_the_stored_size_and_owner_of_objects() {
    let (process, ost) = with_ost();
    let (mdt, client) = (Mdt::new(&process, &ost), Caller::local(&process, &ost, "a"));
    write(&client, OBJECT, 0, 0).unwrap();
    let Reply::Stored(stored) = mdt.0.call(Request::Stored { objects: vec![OBJECT, OTHER] }) else { panic!() };
    assert_eq!(stored, [StoredObject { size: 32 * KIB, owner: Some(ALICE) }, StoredObject::default()]);
}

#[test]
fn scrub_corrects_sums_that_differ_from_the_objects() {
    let (process, ost) = with_ost();
    let (mdt, client) = (Mdt::new(&process, &ost), Caller::local(&process, &ost, "a"));
    write(&client, OBJECT, 0, 0).unwrap();
    drop((mdt, client));
    process.run(ost.stop());
    drop(ost);
    let ost = process.start(Some(0)).unwrap();
    process.wait_for(|| ost.store().accounting().is_complete().then_some(()));
    let path = process.dir.join("ost").join(name::path(OBJECT));
    process.net.rt().disk().open(path, OpenOptions::READ_WRITE).unwrap().write_all_at(32 * KIB, DATA).unwrap();
    assert!(process.params.set("obdfilter.*.lfsck_scrub_run", "1").unwrap().remove(0).result.is_ok());
    let status = || process.value("obdfilter.sheen-OST0000.lfsck_scrub");
    process.wait_for(|| status().contains("status: completed\n").then_some(()));
    let line = "- { user: 1000, counted: { used: 32768, objects: 1 }, found: { used: 65536, objects: 1 } }\n";
    assert!(status().contains(&format!("corrected_sums: 3\n{line}")), "{}", status());
    let (mdt, user) = (Mdt(Caller::local(&process, &ost, "mdt")), |(id, _): &(Id, QuotaUse)| *id == USER);
    let uses = mdt.uses().0;
    assert_eq!(uses.into_iter().find(user), Some((USER, QuotaUse { bytes: 64 * KIB, objects: 1 })));
    process.run(ost.stop());
}
