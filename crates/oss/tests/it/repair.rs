//! Damaged blocks of an OST: the MDT learns of them, and repairs them.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use sheen_objects::name;
use sheen_oss::{Ost, store::scrub::Pace};
use sheen_rt::OpenOptions;
use sheen_wire::{
    Errno, Fid, Result,
    ldlm::{Enqueue, Mode, Policy},
    ost::{Damaged, DamagedBlock, Grant, Owned, Part, Reply, Request},
    quota::Owner,
};

use crate::common::{OBJECT, Process, caller::*};

const FILE: Fid = Fid::new(0x2_0000_0401, 5);
const OTHER_FILE: Fid = Fid::new(0x2_0000_0401, 6);
const BLOCK: u64 = 64 << 10;
/// Three blocks, and a part of a fourth one.
const DATA: &[u8] = &[7; 3 * BLOCK as usize + 100];
const DAMAGED: usize = BLOCK as usize + 5;

fn write(client: &Caller<'_>, offset: u64, data: &'static [u8]) {
    let parts = vec![Part { object: OBJECT, offset, len: data.len() as u32 }];
    let grant = Grant::default();
    let request = Request::Write { file: FILE, parts, sync: false, mtime: None, grant, held: false };
    assert!(matches!(client.end(client.begin(request, Bytes::from_static(data))), Ok(Reply::Done { .. })));
}

/// Scrubs the object. Returns its damaged blocks.
fn scrub(process: &Process, ost: &Ost) -> Vec<DamagedBlock> {
    let pace = Pace::new(process.net.rt(), 0);
    process.run(ost.store().scrub(OBJECT, true, Some(Duration::ZERO), &pace)).unwrap();
    ost.store().damage().into_iter().map(|(_, block)| block).collect()
}

/// Changes a byte of the object's file.
fn damage(process: &Process) {
    put(process, b"x");
}

fn put(process: &Process, byte: &[u8]) {
    let path = process.dir.join("ost").join(name::path(OBJECT));
    let file = process.net.rt().disk().open(path, OpenOptions::READ_WRITE).unwrap();
    file.write_all_at(DAMAGED as u64, byte).unwrap();
}

/// An OST whose object has one damaged block, of which the OST knows.
fn with_damage() -> (Process, Arc<Ost>, DamagedBlock) {
    let (process, ost) = Process::with_ost();
    let client = Caller::local(&process, &ost, "writer");
    write(&client, 0, DATA);
    drop(client);
    assert!(scrub(&process, &ost).is_empty());
    damage(&process);
    let [block] = scrub(&process, &ost)[..] else { panic!("one block is damaged") };
    assert_eq!((block.offset, block.len), (BLOCK, BLOCK));
    (process, ost, block)
}

fn repair(mdt: &Caller<'_>, block: DamagedBlock, at: u64, bytes: &[u8]) -> Result<()> {
    let request = Request::Repair { object: OBJECT, block, at };
    mdt.end(mdt.begin(request, Bytes::copy_from_slice(bytes))).map(drop)
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
fn damaged_block_is_repaired_by_bytes_with_its_checksum_only() {
    let (process, ost, block) = with_damage();
    let mdt = Caller::local(&process, &ost, "mdt");
    assert_eq!(reported(&mdt), [Damaged { object: OBJECT, file: FILE, block }]);
    let status = |name: &str| process.value(&format!("obdfilter.sheen-OST0000.{name}"));
    let line = format!("- {{ object: \"{OBJECT}\", file: \"{FILE}\", offset: 65536, bytes: 65536 }}\n");
    let text = status("lfsck_scrub");
    assert!(text.ends_with(&format!("repaired: 0\ndamaged_now: 1\n{line}")), "{text}");
    let before = (ost.store().attr(OBJECT).unwrap(), ost.store().version(OBJECT).unwrap());

    let (good, mut bad) = (vec![7; BLOCK as usize], vec![7; BLOCK as usize]);
    bad[0] = 8;
    assert_eq!(repair(&mdt, block, BLOCK, &bad), Err(Errno::EUCLEAN));
    let other = DamagedBlock { sum: block.sum ^ 1, ..block };
    assert_eq!(repair(&mdt, other, BLOCK, &good), Err(Errno::ESTALE));
    assert_eq!(scrub(&process, &ost), [block], "nothing was written");
    assert_eq!(repair(&mdt, block, BLOCK, &good), Ok(()));

    assert!(scrub(&process, &ost).is_empty());
    assert_eq!(mdt.read(OBJECT), DATA);
    let after = (ost.store().attr(OBJECT).unwrap(), ost.store().version(OBJECT).unwrap());
    assert_eq!(before, after, "a repair is no change");
    let text = status("lfsck_scrub");
    assert!(text.ends_with(&format!("repaired: 1\n{line}damaged_now: 0\n")), "{text}");
    process.run(ost.stop());
}

#[test]
fn large_block_is_repaired_in_parts() {
    let (process, ost, block) = with_damage();
    let mdt = Caller::local(&process, &ost, "mdt");
    assert_eq!(repair(&mdt, block, BLOCK, &[7; 1000]), Ok(()));
    assert!(scrub(&process, &ost).is_empty(), "the bytes are right now");
    damage(&process);
    assert_eq!(scrub(&process, &ost), [block]);
    assert_eq!(repair(&mdt, block, BLOCK, &[7; 5]), Ok(()));
    assert_eq!(repair(&mdt, block, BLOCK + 6, &[7; BLOCK as usize - 6]), Err(Errno::EUCLEAN), "a byte is missing");
    assert_eq!(scrub(&process, &ost), [block]);
    assert_eq!(repair(&mdt, block, BLOCK, &[7; 6]), Ok(()));
    assert_eq!(repair(&mdt, block, BLOCK + 6, &[7; BLOCK as usize - 6]), Ok(()));
    assert_eq!(ost.store().damage_report().repaired, 1);
    process.run(ost.stop());
}

#[test]
fn repair_writes_nothing_to_a_block_that_is_intact_again() {
    let (process, ost, block) = with_damage();
    let mdt = Caller::local(&process, &ost, "mdt");
    put(&process, &DATA[..1]);
    assert_eq!(ost.store().damage().len(), 1, "it was not compared since");
    assert_eq!(repair(&mdt, block, BLOCK, &[8; 1000]), Err(Errno::ESTALE));
    assert!(ost.store().damage().is_empty() && ost.store().damage_report().repaired == 0);
    assert_eq!(mdt.read(OBJECT), DATA);
    process.run(ost.stop());
}

#[test]
fn mdt_is_not_asked_to_repair_a_block_that_was_written() {
    let (process, ost, _) = with_damage();
    assert_eq!(ost.store().damage_to_repair().len(), 1);
    ost.store().ask_for_due_repairs();
    assert_eq!(ost.store().damage_to_repair().len(), 1);
    let client = Caller::local(&process, &ost, "a");
    write(&client, BLOCK, b"new");
    ost.store().ask_for_repairs_again();
    assert!(ost.store().damage_to_repair().is_empty());
    process.run(ost.stop());
}

#[test]
fn repair_undoes_no_change_of_a_client() {
    let (process, ost, block) = with_damage();
    let (mdt, client) = (Caller::local(&process, &ost, "mdt"), Caller::local(&process, &ost, "a"));
    let lock = Enqueue { mode: Mode::Pw, ..pr(OBJECT, ALL) };
    let id = granted(client.enqueue(vec![lock])[0].0);
    let request = Request::Repair { object: OBJECT, block, at: BLOCK };
    let waits = mdt.begin(request, Bytes::from(vec![7; BLOCK as usize]));
    assert_eq!(client.asked(), id);
    process.still_waits(&waits);
    // The client flushes its dirty data first.
    write(&client, BLOCK + 10, b"new");
    client.cancel(id);
    assert_eq!(mdt.end(waits).err(), Some(Errno::ESTALE));
    assert_eq!(client.read(OBJECT)[BLOCK as usize + 10..][..3], *b"new");
    assert!(ost.store().damage().is_empty());
    process.run(ost.stop());
}

#[test]
fn repair_does_not_wait_long_for_a_group_lock() {
    let (process, ost, block) = with_damage();
    let (mdt, client) = (Caller::local(&process, &ost, "mdt"), Caller::local(&process, &ost, "a"));
    let group = Enqueue { mode: Mode::Group, policy: Policy::group(7), ..pr(OBJECT, ALL) };
    let id = granted(client.enqueue(vec![group])[0].0);
    let bytes = Bytes::from(vec![7; BLOCK as usize]);
    let import = mdt.import.clone();
    let request = Request::Repair { object: OBJECT, block, at: BLOCK };
    let repair =
        async move { import.request(request).bulk(bytes.into()).send().await.map(drop).map_err(|e| e.errno()) };
    assert_eq!(process.run(repair), Err(Errno::EAGAIN));
    client.cancel(id);
    assert_eq!(scrub(&process, &ost), [block]);
    process.run(ost.stop());
}

#[test]
fn mdt_that_connects_learns_of_all_damage_and_names_the_files_of_objects() {
    let (process, ost, block) = with_damage();
    let mdt = Caller::local(&process, &ost, "mdt");
    let owners = vec![Owned { object: OBJECT, file: OTHER_FILE, owner: Owner::default() }];
    mdt.call(Request::SetOwners { owners, only_unowned: false });
    assert_eq!(reported(&mdt), [Damaged { object: OBJECT, file: OTHER_FILE, block }]);
    let waits = mdt.begin(Request::QuotaWait, Bytes::new());
    process.still_waits(&waits);
    let again = Caller::local(&process, &ost, "mdt-again");
    assert_eq!(reported(&again), [Damaged { object: OBJECT, file: OTHER_FILE, block }]);
    // A scrub asks again, as does time.
    let waits_again = again.begin(Request::QuotaWait, Bytes::new());
    process.still_waits(&waits_again);
    ost.store().ask_for_repairs_again();
    let Ok(Reply::QuotaNeeds { damaged, .. }) = again.end(waits_again) else { panic!("it has damage") };
    assert_eq!(damaged.len(), 1);
    drop(waits);
    process.run(ost.stop());
}
