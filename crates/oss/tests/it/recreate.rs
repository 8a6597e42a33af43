//! Lost objects of an OST: the MDT learns of them, and makes them again.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::Bytes;
use sheen_objects::name::{self, Dir};
use sheen_oss::Ost;
use sheen_wire::{
    Bulk, Errno, Fid, Result, Time,
    ost::{Damaged, DamagedBlock, Grant, Part, Recreate, Reply, Request},
};

use crate::common::{OBJECT, Process, caller::*, fid};

const FILE: Fid = Fid::new(0x2_0000_0401, 5);
const DATA: &[u8] = &[7; 3000];
const MTIME: Time = Time { sec: 1_000_000_000, nsec: 5 };
const LOST: Damaged = Damaged { object: OBJECT, file: FILE, block: DamagedBlock::WHOLE };

/// An OST that has lost an object, and has not noticed it.
fn with_lost_object() -> (Process, Arc<Ost>) {
    let (process, ost) = Process::with_ost();
    let client = Caller::local(&process, &ost, "writer");
    let parts = vec![Part { object: OBJECT, offset: 0, len: DATA.len() as u32 }];
    let grant = Grant::default();
    let request = Request::Write { file: FILE, parts, sync: false, mtime: None, grant, held: false };
    client.end(client.begin(request, Bytes::from_static(DATA))).unwrap();
    client.call(Request::Sync { objects: vec![] });
    drop(client);
    process.run(ost.stop());
    drop(ost);
    process.net.rt().disk().remove_file(process.dir.join("ost").join(name::path(OBJECT))).unwrap();
    let ost = process.start(Some(0)).unwrap();
    (process, ost)
}

fn read(client: &Caller<'_>) -> Result<Reply> {
    let parts = vec![Part { object: OBJECT, offset: 0, len: 10 }];
    client.end(client.begin(Request::Read { parts }, Bytes::new()))
}

fn step(mdt: &Caller<'_>, step: Recreate, bytes: &'static [u8]) -> Result<()> {
    mdt.end(mdt.begin(Request::Recreate { object: OBJECT, step }, Bytes::from_static(bytes))).map(drop)
}

fn begin(mdt: &Caller<'_>, copy: u64) -> Result<()> {
    step(mdt, Recreate::Begin { copy, size: DATA.len() as u64 }, b"")
}

fn end(mdt: &Caller<'_>, copy: u64) -> Result<()> {
    step(mdt, Recreate::End { copy, mtime: MTIME }, b"")
}

/// Returns the damage that the OST reports to the MDT next.
fn reported(mdt: &Caller<'_>) -> Vec<Damaged> {
    loop {
        match mdt.call(Request::QuotaWait) {
            Reply::QuotaNeeds { damaged, .. } if damaged.is_empty() => {}
            Reply::QuotaNeeds { damaged, .. } => return damaged,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn lost_object_is_unreadable_until_its_copy_is_complete() {
    let (process, ost) = with_lost_object();
    let (mdt, client) = (Caller::local(&process, &ost, "mdt"), Caller::local(&process, &ost, "a"));
    assert_eq!(read(&client).err(), Some(Errno::EIO));
    assert_eq!(reported(&mdt), [LOST]);
    let status = || process.value("obdfilter.sheen-OST0000.lfsck_scrub");
    let line = format!("- {{ object: \"{OBJECT}\", file: \"{FILE}\", lost: true }}\n");
    assert!(status().ends_with(&format!("repaired: 0\ndamaged_now: 1\n{line}")), "{}", status());

    assert_eq!(begin(&mdt, 1), Ok(()));
    assert_eq!(step(&mdt, Recreate::Write { copy: 1, at: 0 }, &DATA[..1000]), Ok(()));
    assert_eq!(begin(&mdt, 1), Ok(()), "the request was repeated");
    assert_eq!(step(&mdt, Recreate::Write { copy: 1, at: 1000 }, &DATA[1000..]), Ok(()));
    assert_eq!(step(&mdt, Recreate::Write { copy: 1, at: 1 }, DATA), Err(Errno::EINVAL));
    assert_eq!(step(&mdt, Recreate::Write { copy: 2, at: 0 }, DATA), Err(Errno::ESTALE));
    let truncate = Request::Truncate { file: FILE, objects: vec![(OBJECT, 0)] };
    assert_eq!(client.end(client.begin(truncate, Bytes::new())).err(), Some(Errno::EIO));
    assert_eq!(client.end(client.begin_write(OBJECT, 0, b"new")).err(), Some(Errno::EIO));
    assert_eq!((read(&client).err(), end(&mdt, 2)), (Some(Errno::EIO), Err(Errno::ESTALE)));
    assert_eq!(end(&mdt, 1), Ok(()));

    assert_eq!(client.read(OBJECT), DATA);
    assert_eq!(ost.store().attr(OBJECT).unwrap().mtime, Some(MTIME));
    assert!(status().ends_with(&format!("repaired: 1\n{line}damaged_now: 0\n")), "{}", status());
    assert_eq!((end(&mdt, 1), begin(&mdt, 3)), (Err(Errno::ESTALE), Err(Errno::ESTALE)));
    client.write(OBJECT, 0, b"new");
    assert_eq!(client.read(OBJECT)[..4], *b"new\x07");
    process.run(ost.stop());
}

#[test]
fn missing_object_is_listed_as_lost_when_the_mdt_confirms_it() {
    let (process, ost) = with_lost_object();
    let (mdt, store) = (Caller::local(&process, &ost, "mdt"), ost.store());
    let unlisted = |after| store.unlisted(Dir::of(OBJECT), after, 100).unwrap();
    assert!(store.durable_dirs().any(|dir| dir == Dir::of(OBJECT)));
    assert_eq!((unlisted(Fid::ZERO), unlisted(OBJECT)), (vec![OBJECT], vec![]));
    assert!(store.suspect(OBJECT));
    assert!(store.damage().is_empty(), "its removal may have been undone in part");
    assert_eq!(reported(&mdt), [LOST]);
    let waits = mdt.begin(Request::QuotaWait, Bytes::new());
    process.still_waits(&waits);
    assert_eq!(step(&mdt, Recreate::Confirm, b""), Ok(()));
    assert_eq!(store.damage(), [(OBJECT, DamagedBlock::WHOLE)]);
    process.still_waits(&waits);
    mdt.call(Request::Destroy { objects: vec![OBJECT] });
    assert!(store.damage().is_empty() && unlisted(Fid::ZERO).is_empty());
    assert_eq!(step(&mdt, Recreate::Confirm, b""), Err(Errno::ESTALE));
    process.run(ost.stop());
}

#[test]
fn scrub_asks_about_all_missing_objects_although_few_can_wait() {
    const COUNT: u32 = 5000;
    let (process, ost) = Process::with_ost();
    let parts: Vec<Part> = (1..=COUNT).map(|oid| Part { object: fid(oid), offset: 0, len: 1 }).collect();
    let bytes = Bulk::from(Bytes::from(vec![1u8; COUNT as usize]));
    ost.store().write(FILE, &parts, &bytes, false, None).unwrap();
    process.run(ost.store().sync(&[])).unwrap();
    process.run(ost.stop());
    drop(ost);
    let lost = process.dir.join("ost").join(Dir::of(OBJECT).seq_path());
    process.net.rt().disk().remove_dir_all(lost).unwrap();
    let ost = process.start(Some(0)).unwrap();

    let run =
        |on: &str| assert!(process.params.set("obdfilter.*.lfsck_scrub_run", on).unwrap().remove(0).result.is_ok());
    let has = |status: &str| process.value("obdfilter.sheen-OST0000.lfsck_scrub").contains(status);
    run("1");
    process.sleep(Duration::from_secs(100));
    assert!(has("status: scanning\n"), "it waits for the MDT");
    run("0");
    process.wait_for(|| has("status: stopped\n").then_some(()));
    run("1");
    let mdt = Caller::local(&process, &ost, "mdt");
    let mut asked = BTreeSet::new();
    while asked.len() < COUNT as usize {
        asked.extend(reported(&mdt).into_iter().map(|damaged| damaged.object));
    }
    assert!(asked.into_iter().eq((1..=COUNT).map(fid)));
    process.wait_for(|| has("status: completed\n").then_some(()));
}

#[test]
fn missing_object_that_no_layout_has_is_not_lost() {
    let (process, ost) = with_lost_object();
    let (mdt, store) = (Caller::local(&process, &ost, "mdt"), ost.store());
    assert_eq!(read(&mdt).err(), Some(Errno::EIO));
    let unknown = |file| step(&mdt, Recreate::Unknown { file }, b"");
    assert_eq!(unknown(Fid::new(FILE.seq, 6)), Err(Errno::ESTALE), "the OST knows another file of it");
    assert_eq!((store.damage().len(), read(&mdt).err()), (1, Some(Errno::EIO)));
    assert_eq!(unknown(FILE), Ok(()));
    assert!(store.damage().is_empty() && store.unlisted(Dir::of(OBJECT), Fid::ZERO, 100).unwrap().is_empty());
    mdt.write(OBJECT, 0, b"new");
    mdt.call(Request::Sync { objects: vec![] });
    assert_eq!(unknown(FILE), Err(Errno::ESTALE), "it exists");
    assert_eq!(&mdt.read(OBJECT)[..], b"new");
    process.run(ost.stop());
}

#[test]
fn name_of_a_lost_object_in_a_destroyed_range_is_free() {
    let (process, ost) = with_lost_object();
    let (mdt, store) = (Caller::local(&process, &ost, "mdt"), ost.store());
    let range = |first, last| mdt.call(Request::DestroyRange { seq: OBJECT.seq, first, last });
    range(OBJECT.oid + 1, u32::MAX);
    assert_eq!(read(&mdt).err(), Some(Errno::EIO));
    range(0, OBJECT.oid);
    assert!(store.damage().is_empty() && store.unlisted(Dir::of(OBJECT), Fid::ZERO, 100).unwrap().is_empty());
    mdt.write(OBJECT, 0, b"new");
    assert_eq!(&mdt.read(OBJECT)[..], b"new");
    process.run(ost.stop());
}

#[test]
fn copy_ends_when_the_mdt_that_began_it_disconnects() {
    let (process, ost) = with_lost_object();
    let (mdt, other) = (Caller::local(&process, &ost, "mdt"), Caller::local(&process, &ost, "other"));
    assert_eq!(begin(&mdt, 1), Ok(()));
    let copies = || process.net.rt().disk().read_dir(process.dir.join("ost/copies")).unwrap().len();
    other.call(Request::StatFs);
    drop(other);
    process.sleep(MOMENT);
    assert_eq!(copies(), 1);
    drop(mdt);
    process.wait_for(|| (copies() == 0).then_some(()));
    process.run(ost.stop());
}

#[test]
fn copy_of_a_destroyed_object_is_refused() {
    let (process, ost) = with_lost_object();
    let mdt = Caller::local(&process, &ost, "mdt");
    assert_eq!(begin(&mdt, 1), Ok(()));
    assert_eq!(step(&mdt, Recreate::Write { copy: 1, at: 0 }, DATA), Ok(()));
    mdt.call(Request::Destroy { objects: vec![OBJECT] });
    assert_eq!(end(&mdt, 1), Err(Errno::ESTALE));
    assert!(mdt.read(OBJECT).is_empty());
    process.run(ost.stop());
}

#[test]
fn aborted_copy_leaves_the_object_lost() {
    let (process, ost) = with_lost_object();
    let mdt = Caller::local(&process, &ost, "mdt");
    assert_eq!((begin(&mdt, 1), begin(&mdt, 2)), (Ok(()), Ok(())));
    assert_eq!(step(&mdt, Recreate::Write { copy: 1, at: 0 }, DATA), Err(Errno::ESTALE), "another one began");
    assert_eq!(step(&mdt, Recreate::Abort { copy: 1 }, b""), Ok(()));
    assert_eq!(step(&mdt, Recreate::Write { copy: 2, at: 0 }, DATA), Ok(()));
    assert_eq!(step(&mdt, Recreate::Abort { copy: 2 }, b""), Ok(()));
    assert_eq!((end(&mdt, 2), read(&mdt).err()), (Err(Errno::ESTALE), Some(Errno::EIO)));
    process.run(ost.stop());
}
