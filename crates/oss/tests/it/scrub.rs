//! Checksums of objects at rest, on a real disk: damage is reported, and nothing else is taken for
//! it.

use std::{
    fs::OpenOptions,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use crate::common::{fid, open_store};
use bytes::Bytes;
use sheen_objects::name;
use sheen_oss::{
    Store,
    store::scrub::{Pace, Scrubbed},
};
use sheen_rt::{RealOptions, Rt, Runtime};
use sheen_wire::{Bulk, Errno, Fid, ost::Part};

const BLOCK: u64 = 64 << 10;

fn part(oid: u32, offset: u64, len: u64) -> Part {
    Part { object: fid(oid), offset, len: len as u32 }
}

struct Fixture {
    store: Store,
    runtime: Runtime,
    rt: Rt,
    pace: Pace,
    dir: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture::on(tempfile::tempdir().unwrap())
    }

    fn on(dir: tempfile::TempDir) -> Fixture {
        let (runtime, rt) = Rt::real(RealOptions { worker_threads: 2, name: "test".into() }).unwrap();
        let store = runtime.block_on(open_store(&rt, dir.path(), 64));
        Fixture { store, runtime, pace: Pace::new(&rt, 0), rt, dir }
    }

    /// As after an orderly restart: nothing is open, and nothing is known to be intact.
    fn reopened(self) -> Fixture {
        self.runtime.block_on(self.store.close()).unwrap();
        let dir = self.dir;
        drop(self.store);
        Fixture::on(dir)
    }

    fn write(&self, oid: u32, offset: u64, byte: u8, len: u64) {
        let data = Bytes::from(vec![byte; len as usize]);
        self.store.write(Fid::ZERO, &[part(oid, offset, len)], &Bulk::from(data), false, None).unwrap();
    }

    fn read(&self, oid: u32, offset: u64, len: u64) -> Result<Vec<u8>, Errno> {
        self.store.read(&[part(oid, offset, len)]).map(|(_, bulk)| bulk.into_bytes().to_vec())
    }

    fn scrub(&self, oid: u32, compare: bool) -> Result<Scrubbed, Errno> {
        self.runtime.block_on(self.store.scrub(fid(oid), compare, Some(Duration::ZERO), &self.pace))
    }

    /// Scrubs an object. `false`: the file system of the test supports no attributes.
    fn stores(&self, oid: u32) -> bool {
        match self.scrub(oid, false) {
            Err(Errno::EOPNOTSUPP) => {
                println!("skipped: no extended attributes here");
                false
            }
            done => {
                assert!(done.unwrap().complete);
                true
            }
        }
    }

    fn path(&self, oid: u32) -> PathBuf {
        self.dir.path().join(name::path(fid(oid)))
    }
}

fn flip(path: &Path, offset: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[!byte[0]], offset).unwrap();
}

#[test]
fn read_of_damaged_bytes_fails_until_they_are_written() {
    let f = Fixture::new();
    f.write(1, 0, 7, 5 * BLOCK + 100);
    if !f.stores(1) {
        return;
    }
    let f = f.reopened();
    for at in [BLOCK + 5, 5 * BLOCK + 99] {
        flip(&f.path(1), at);
    }
    assert_eq!(f.read(1, 0, BLOCK).unwrap(), vec![7; BLOCK as usize]);
    assert_eq!(f.read(1, 0, 6 * BLOCK), Err(Errno::EIO));
    assert_eq!(f.read(1, BLOCK + 4096, 4096), Err(Errno::EIO), "a part of a damaged block");
    assert_eq!((f.read(1, BLOCK, BLOCK), f.read(1, 5 * BLOCK, BLOCK)), (Err(Errno::EIO), Err(Errno::EIO)));
    assert!(f.store.live(&[part(1, 0, 5 * BLOCK)]).unwrap().is_none(), "not sent unread");
    assert!(f.store.in_place(&part(1, 0, 2 * BLOCK)).unwrap().is_none(), "not passed on unread");
    assert_eq!(
        f.store.damage().iter().map(|(_, d)| (d.offset, d.len)).collect::<Vec<_>>(),
        [(BLOCK, BLOCK), (5 * BLOCK, 100)]
    );
    f.write(1, BLOCK, 8, BLOCK);
    assert_eq!(f.read(1, BLOCK, BLOCK).unwrap(), vec![8; BLOCK as usize]);
    let scrubbed = f.scrub(1, true).unwrap();
    assert_eq!((scrubbed.damaged, scrubbed.stored), (1, true), "the new block has a checksum, the other is damaged");
    assert_eq!((f.read(1, 5 * BLOCK, BLOCK), f.store.damage().len()), (Err(Errno::EIO), 1));
    f.write(1, 5 * BLOCK, 9, 200);
    assert_eq!((f.scrub(1, true).unwrap().damaged, f.store.damage().len()), (0, 0));
}

#[test]
fn read_of_a_part_checks_the_block() {
    let f = Fixture::new();
    f.write(1, 0, 7, 3 * BLOCK);
    if !f.stores(1) {
        return;
    }
    let f = f.reopened();
    flip(&f.path(1), BLOCK + 5);
    assert_eq!(f.read(1, 2 * BLOCK - 10, 10), Err(Errno::EIO));
    assert_eq!(f.read(1, 2 * BLOCK, 10).unwrap(), [7; 10]);
    let f = f.reopened();
    OpenOptions::new().write(true).open(f.path(1)).unwrap().set_len(BLOCK).unwrap();
    assert_eq!(f.read(1, 2 * BLOCK, 10), Err(Errno::EIO), "truncated by another program");
}

#[test]
fn scrub_finds_damage_that_nobody_reads() {
    let f = Fixture::new();
    f.write(1, 0, 1, 20 * BLOCK);
    f.write(2, 0, 2, 3 * BLOCK);
    if !f.stores(1) || !f.stores(2) {
        return;
    }
    assert_eq!(f.scrub(1, true).unwrap(), Scrubbed { bytes: 20 * BLOCK, complete: true, ..Scrubbed::default() });
    flip(&f.path(1), 19 * BLOCK);
    OpenOptions::new().write(true).open(f.path(2)).unwrap().set_len(BLOCK + 1).unwrap();
    assert_eq!((f.scrub(1, true).unwrap().damaged, f.scrub(2, true).unwrap().damaged), (1, 2));
    assert_eq!(f.store.damage().len(), 3);
    f.runtime.block_on(f.store.destroy(&[fid(1), fid(2)])).unwrap();
    assert!(f.store.damage().is_empty() && f.scrub(1, true).unwrap() == Scrubbed::default());
}

#[test]
fn changes_are_not_taken_for_damage() {
    let f = Fixture::new();
    f.write(1, 0, 1, 3 * BLOCK);
    if !f.stores(1) {
        return;
    }
    let f = f.reopened();
    f.write(1, 3 * BLOCK, 2, BLOCK); // an append
    f.write(1, 10, 3, 1);
    assert!(f.read(1, 0, 4 * BLOCK).is_ok() && f.scrub(1, true).unwrap().stored);
    let f = f.reopened();
    f.store.truncate(Fid::ZERO, &[(fid(1), BLOCK + 7)]).unwrap();
    assert!(f.read(1, 0, 4 * BLOCK).is_ok() && f.scrub(1, true).unwrap().complete);
    let f = f.reopened();
    f.store.truncate(Fid::ZERO, &[(fid(1), 3 * BLOCK)]).unwrap();
    assert_eq!(f.read(1, 2 * BLOCK, BLOCK).unwrap(), vec![0; BLOCK as usize]);
    assert!(f.scrub(1, true).unwrap().complete);
    let f = f.reopened();
    f.store.allocate(Fid::ZERO, sheen_wire::ost::Allocate::PunchHole, &[(fid(1), BLOCK, BLOCK)]).unwrap();
    assert!(f.read(1, 0, 3 * BLOCK).is_ok() && f.scrub(1, true).unwrap().damaged == 0);
    assert!(f.store.damage().is_empty());
}

#[test]
fn large_sparse_object_gets_no_checksums() {
    let f = Fixture::new();
    f.store.truncate(Fid::ZERO, &[(fid(1), 1 << 40)]).unwrap();
    f.write(1, 1 << 30, 7, BLOCK);
    assert_eq!(f.scrub(1, true).unwrap(), Scrubbed { complete: true, ..Scrubbed::default() });
}

#[test]
fn object_that_changes_gets_no_checksums() {
    let f = Fixture::new();
    f.write(1, 0, 1, BLOCK);
    let scrub = f.store.scrub(fid(1), true, Some(Duration::from_secs(3600)), &f.pace);
    assert_eq!(f.runtime.block_on(scrub).unwrap(), Scrubbed::default(), "changed a moment ago");
    assert_eq!(f.store.take_changed(), [fid(1)]);
    assert!(f.store.take_changed().is_empty());
    f.store.put_back_changed(fid(1));
    assert_eq!(f.store.take_changed(), [fid(1)]);
}

#[test]
fn concurrent_reads_writes_and_scrubs_find_no_damage() {
    const OBJECTS: u32 = 3;
    let f = Fixture::new();
    (1..=OBJECTS).for_each(|oid| f.write(oid, 0, 1, 8 * BLOCK));
    if !f.stores(1) {
        return;
    }
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..300 {
                    let pick = |n: u64| f.rt.random_u64() % n;
                    let oid = 1 + pick(OBJECTS.into()) as u32;
                    let (offset, len) = (pick(7 * BLOCK), 1 + pick(BLOCK));
                    match pick(8) {
                        0 => f.store.truncate(Fid::ZERO, &[(fid(oid), offset)]).unwrap(),
                        1..4 => f.write(oid, offset, pick(255) as u8, len),
                        4..6 => drop(f.read(oid, 0, 8 * BLOCK).unwrap()),
                        6 => drop(f.store.read_and_sum(&[part(oid, offset / BLOCK * BLOCK, 2 * BLOCK)]).unwrap()),
                        _ => assert_eq!(f.scrub(oid, true).unwrap().damaged, 0),
                    }
                }
            });
        }
    });
    assert!(f.store.damage().is_empty());
}
