//! An OST's directory on a real disk: clients read back what they write, and destroyed objects are
//! deleted.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write,
    os::unix::fs::MetadataExt,
    path::Path,
};

use crate::common::{SEQ, fid};
use bytes::Bytes;
use sheen_objects::name;
use sheen_oss::{OssError, Sharing, Store};
use sheen_rt::{RealOptions, Rt, Runtime};
use sheen_wire::{
    Bulk, Errno, Fid, Time,
    bulk::BULK_BYTES_MAX,
    ost::{Allocate, Change, OBJECT_SIZE_MAX, Part, Seek},
    seq::{MdtIndex, ost_seq},
};

const MIB: u64 = 1 << 20;

fn part(oid: u32, offset: u64, len: usize) -> Part {
    Part { object: fid(oid), offset, len: len as u32 }
}

/// A store with the runtime that it runs on.
struct Fixture {
    store: Store,
    runtime: Runtime,
    _rt: Rt,
    dir: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture::with(4096, tempfile::tempdir().unwrap())
    }

    fn with(open_files_max: usize, dir: tempfile::TempDir) -> Fixture {
        let (runtime, rt) = Rt::real(RealOptions { worker_threads: 2, name: "test".into() }).unwrap();
        let store = runtime.block_on(open(&rt, dir.path(), "sheen", None, open_files_max)).unwrap();
        Fixture { store, runtime, _rt: rt, dir }
    }

    fn write(&self, oid: u32, offset: u64, data: &[u8]) {
        self.try_write(&[part(oid, offset, data.len())], data).unwrap();
    }

    fn try_write(&self, parts: &[Part], data: &[u8]) -> Result<(), Errno> {
        self.store.write(Fid::ZERO, parts, &Bulk::from(Bytes::copy_from_slice(data)), false, None)
    }

    fn read(&self, oid: u32, offset: u64, len: usize) -> Vec<u8> {
        let (lens, bulk) = self.store.read(&[part(oid, offset, len)]).unwrap();
        assert_eq!(lens, [bulk.len() as u32]);
        bulk.into_bytes().to_vec()
    }

    fn size(&self, oid: u32) -> u64 {
        self.store.attrs(&[fid(oid)]).unwrap()[0].size
    }

    fn destroy(&self, oids: impl IntoIterator<Item = u32>) {
        let objects: Vec<_> = oids.into_iter().map(fid).collect();
        self.runtime.block_on(self.store.destroy(&objects)).unwrap();
    }

    fn on_disk(&self, oid: u32) -> std::path::PathBuf {
        self.dir.path().join(name::path(fid(oid)))
    }
}

async fn open(rt: &Rt, dir: &Path, fsname: &str, index: Option<u32>, files: usize) -> Result<Store, OssError> {
    Store::open(rt, dir, fsname, index, files, |device| Sharing::new().join(device)).await
}

/// Bytes that differ by position and by `seed`.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let step = |_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    (0..len).map(step).collect()
}

#[test]
fn read_of_an_unwritten_object_is_empty() {
    let f = Fixture::new();
    assert!(f.read(1, 0, 4096).is_empty());
    assert!(f.read(1, u64::MAX - 10, 4096).is_empty());
    assert_eq!(f.store.attrs(&[fid(1)]).unwrap()[0], Default::default());
    f.store.truncate(Fid::ZERO, &[(fid(1), 0)]).unwrap();
    f.store.allocate(Fid::ZERO, Allocate::PunchHole, &[(fid(1), 0, 4096)]).unwrap();
    f.try_write(&[part(1, 5, 0)], b"").unwrap();
    f.runtime.block_on(f.store.sync(&[fid(1)])).unwrap();
    f.destroy([1]);
    assert_eq!(f.store.open_files(), 0);
    assert!(!f.on_disk(1).exists(), "none of these creates an object");
    assert_eq!(f.store.attrs(&[fid(1)]).unwrap()[0].mtime, None);
}

#[test]
fn writes_read_back_through_holes_and_overwrites() {
    let f = Fixture::new();
    let (a, b) = (pattern(1, 3 << 20), pattern(2, 70_001));
    f.write(7, 1000, &a);
    f.write(7, 1_500_000, &b);
    let mut want = vec![0; 1000];
    want.extend(&a);
    want[1_500_000..1_500_000 + b.len()].copy_from_slice(&b);
    assert_eq!(f.read(7, 0, 8 << 20), want, "cut at the end");
    assert_eq!(f.read(7, 999, 3), want[999..1002]);
    assert_eq!(f.size(7), want.len() as u64);
    assert_eq!(fs::read(f.on_disk(7)).unwrap(), want, "a plain file where Lustre would have it");
    assert!(f.read(7, want.len() as u64, 1).is_empty());
}

#[test]
fn sparse_write_allocates_only_written_blocks() {
    let f = Fixture::new();
    f.write(1, 4096 * MIB, b"end");
    let attr = f.store.attrs(&[fid(1)]).unwrap()[0];
    assert_eq!(attr.size, 4096 * MIB + 3);
    assert!(attr.blocks * 512 <= MIB, "{} blocks", attr.blocks);
    assert_eq!(f.read(1, 4096 * MIB - 2, 10), b"\0\0end");
}

#[test]
fn one_write_fills_many_parts_of_many_objects_in_order() {
    let f = Fixture::new();
    let parts = [
        part(1, 0, 10),
        part(1, 10, 5),
        part(2, 100, 3),
        part(1, 12, 4),
        part(3, 0, 0),
        part(4, 1, 1),
        part(2, 103, 2),
    ];
    let data = pattern(3, 25);
    let bulk: Bulk = data.chunks(7).map(Bytes::copy_from_slice).collect();
    f.store.write(Fid::ZERO, &parts, &bulk, false, None).unwrap();
    assert_eq!(f.read(1, 0, 99), [&data[..12], &data[18..22]].concat(), "the later part wins");
    assert_eq!(f.read(2, 100, 99), [&data[15..18], &data[23..25]].concat());
    assert_eq!(f.read(4, 0, 99), [&[0], &data[22..23]].concat());
    assert!(!f.on_disk(3).exists());

    let (lens, bulk) =
        f.store.read(&[part(1, 10, 4), part(1, 14, 8), part(9, 0, 8), part(2, 0, 200), part(4, 1, 1)]).unwrap();
    assert_eq!(lens, [4, 2, 0, 105, 1]);
    assert_eq!(bulk.len(), 112);
    let bytes = bulk.into_bytes();
    assert_eq!(bytes[..6], f.read(1, 10, 9));
    assert_eq!(bytes[111], data[22]);
}

#[test]
fn one_request_writes_and_reads_2000_objects() {
    let f = Fixture::new();
    let stripe = |i: usize| 100 + i % 7;
    let parts: Vec<_> = (0..2000).map(|i| part(i as u32 + 1, 50, stripe(i))).collect();
    let data = pattern(4, parts.iter().map(|p| p.len as usize).sum());
    f.try_write(&parts, &data).unwrap();
    let (lens, bulk) = f.store.read(&parts).unwrap();
    assert_eq!(lens, parts.iter().map(|p| p.len).collect::<Vec<_>>());
    assert_eq!(bulk.into_bytes(), data);
    let all: Vec<_> = (1..=2001).map(fid).collect();
    let attrs = f.store.attrs(&all).unwrap();
    assert!(attrs[..2000].iter().enumerate().all(|(i, a)| a.size == 50 + stripe(i) as u64));
    assert_eq!(attrs[2000].size, 0);
    f.runtime.block_on(f.store.sync(&all)).unwrap();
    f.store.truncate(Fid::ZERO, &all.iter().map(|&o| (o, 20)).collect::<Vec<_>>()).unwrap();
    assert!(f.store.attrs(&all).unwrap().iter().all(|a| a.size == 20));
    f.destroy(1..=2001);
    assert!(f.store.attrs(&all).unwrap().iter().all(|a| a.size == 0 && a.mtime.is_none()));
}

#[test]
fn read_of_the_largest_size_returns_all_bytes() {
    let f = Fixture::new();
    let data = pattern(5, BULK_BYTES_MAX);
    f.write(1, 12345, &data);
    assert_eq!(f.read(1, 12345, BULK_BYTES_MAX), data);
    // In parts that straddle the buffers, the pieces still come in order.
    let parts: Vec<_> = (0..16).map(|i| part(1, 12345 + (15 - i) * MIB, 1 << 20)).collect();
    let (lens, bulk) = f.store.read(&[&parts[..15], &[part(2, 0, 3)], &parts[15..]].concat()).unwrap();
    assert_eq!(lens.iter().map(|&l| l as usize).sum::<usize>(), BULK_BYTES_MAX);
    let want: Vec<u8> = data.chunks(1 << 20).rev().flatten().copied().collect();
    assert_eq!(bulk.into_bytes(), want);
}

#[test]
fn truncate_and_punch_create_holes_that_seek_finds() {
    let f = Fixture::new();
    f.store.truncate(Fid::ZERO, &[(fid(1), 10 * MIB)]).unwrap();
    assert_eq!(f.size(1), 10 * MIB);
    assert_eq!(f.store.seek(fid(1), 0, Seek::Data), Ok(None));
    assert_eq!(f.store.seek(fid(1), 0, Seek::Hole), Ok(Some(0)));
    f.write(1, 2 * MIB, &pattern(6, 2 << 20));
    assert_eq!(f.store.seek(fid(1), 0, Seek::Data), Ok(Some(2 * MIB)));
    assert_eq!(f.store.seek(fid(1), 2 * MIB, Seek::Hole), Ok(Some(4 * MIB)));
    f.store.allocate(Fid::ZERO, Allocate::PunchHole, &[(fid(1), 2 * MIB, MIB)]).unwrap();
    assert_eq!(f.store.seek(fid(1), 0, Seek::Data), Ok(Some(3 * MIB)));
    assert_eq!(f.read(1, 2 * MIB, 1 << 20), vec![0; 1 << 20]);
    assert_eq!(f.size(1), 10 * MIB);
    f.store.truncate(Fid::ZERO, &[(fid(1), 3 * MIB + 5)]).unwrap();
    f.store.truncate(Fid::ZERO, &[(fid(1), 4 * MIB)]).unwrap();
    assert_eq!(f.read(1, 3 * MIB, 10), [&pattern(6, 2 << 20)[1 << 20..][..5], &[0; 5]].concat(), "cut bytes stay cut");
    // Past the end there are only holes, and a missing object has nothing else.
    for (oid, offset) in [(1, 4 * MIB), (1, 9 * MIB), (2, 0), (2, 77), (1, OBJECT_SIZE_MAX), (1, u64::MAX)] {
        assert_eq!(f.store.seek(fid(oid), offset, Seek::Data), Ok(None));
        assert_eq!(f.store.seek(fid(oid), offset, Seek::Hole), Ok(Some(offset)));
    }
}

#[test]
fn fallocate_reserves_and_zeroes_ranges() {
    let f = Fixture::new();
    f.store.allocate(Fid::ZERO, Allocate::Reserve { keep_size: true }, &[(fid(1), 0, MIB)]).unwrap();
    let attr = f.store.attrs(&[fid(1)]).unwrap()[0];
    assert_eq!((attr.size, attr.blocks >= MIB / 512), (0, true));
    f.store
        .allocate(Fid::ZERO, Allocate::Reserve { keep_size: false }, &[(fid(1), 0, MIB), (fid(2), MIB, MIB)])
        .unwrap();
    assert_eq!((f.size(1), f.size(2)), (MIB, 2 * MIB));
    f.write(1, 0, &pattern(7, 1 << 20));
    f.store.allocate(Fid::ZERO, Allocate::ZeroRange { keep_size: true }, &[(fid(1), MIB / 2, MIB)]).unwrap();
    assert_eq!(f.size(1), MIB);
    assert_eq!(f.read(1, 0, 1 << 19), pattern(7, 1 << 19));
    assert_eq!(f.read(1, MIB / 2, 1 << 20), vec![0; 1 << 19]);
}

#[test]
fn destroy_removes_objects_and_frees_their_space() {
    let f = Fixture::new();
    f.write(1, 0, &pattern(8, 1 << 20));
    f.write(2, 0, b"stays");
    assert_eq!(f.store.open_files(), 2);
    f.destroy([1, 3]);
    assert_eq!(f.store.open_files(), 1, "an open file would use the space");
    assert!(!f.on_disk(1).exists());
    assert!(f.read(1, 0, 10).is_empty());
    assert_eq!(f.read(2, 0, 10), b"stays");
    f.destroy([1]);
    assert_eq!(f.try_write(&[part(1, 0, 1)], b"x"), Err(Errno::ESTALE), "it stays deleted");
    assert_eq!(f.store.truncate(Fid::ZERO, &[(fid(3), 5)]), Err(Errno::ESTALE));
    assert!(!f.on_disk(1).exists() && !f.on_disk(3).exists());
}

#[test]
fn destroy_range_removes_only_the_range() {
    let f = Fixture::new();
    for oid in 1..=200 {
        f.write(oid, 0, b"x");
    }
    let other = Part { object: Fid::new(SEQ + 1, 60), offset: 0, len: 1 };
    f.try_write(&[other], b"y").unwrap();
    let stray = f.on_disk(60).with_file_name("notes.txt");
    fs::write(&stray, "of the administrator").unwrap();
    f.runtime.block_on(f.store.destroy_range(SEQ, 50, 150)).unwrap();
    for oid in 1..=200 {
        assert_eq!(f.size(oid) == 0, (50..=150).contains(&oid), "{oid}");
    }
    assert_eq!(f.store.read(&[other]).unwrap().0, [1]);
    assert!(stray.exists());
    f.runtime.block_on(f.store.destroy_range(SEQ, 0, u32::MAX)).unwrap();
    assert_eq!(f.size(1), 0);
    f.runtime.block_on(f.store.destroy_range(SEQ + 7, 1, 9)).unwrap();
}

#[test]
fn objects_with_the_same_id_of_two_sequences_are_distinct() {
    let f = Fixture::new();
    let [one, two] = [0, 1].map(|mdt| ost_seq(MdtIndex::new(mdt).unwrap(), 3));
    let part = |seq, oid| Part { object: Fid::new(seq, oid), offset: 0, len: 3 };
    for oid in 1..=40 {
        f.try_write(&[part(one, oid), part(two, oid)], b"onetwo").unwrap();
    }
    // As the first MDT does after a crash.
    f.runtime.block_on(f.store.destroy_range(one, 1, 30)).unwrap();
    let read = |seq, oid| f.store.read(&[part(seq, oid)]).unwrap().1.into_bytes().to_vec();
    for oid in 1..=40 {
        let left: &[u8] = if oid <= 30 { b"" } else { b"one" };
        assert_eq!((&read(one, oid)[..], &read(two, oid)[..]), (left, &b"two"[..]), "{oid}");
    }
    let listed = f.store.objects_after(Fid::ZERO, 100).unwrap();
    let count = |seq| listed.iter().filter(|object| object.seq == seq).count();
    assert_eq!((count(one), count(two)), (10, 40));
}

#[test]
fn open_files_are_bounded_and_nothing_is_lost_by_closing_them() {
    let f = Fixture::with(128, tempfile::tempdir().unwrap());
    for oid in 1..=10_000u32 {
        f.write(oid, 0, &oid.to_le_bytes());
    }
    assert!((64..=128).contains(&f.store.open_files()), "{}", f.store.open_files());
    let fds = fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok);
    let ours = fds.filter(|fd| fs::read_link(fd.path()).is_ok_and(|to| to.starts_with(f.dir.path()))).count();
    // The lock of the directory, and the directory itself.
    assert!(ours <= 128 + 2, "{ours} descriptors");
    for oid in (1..=10_000u32).rev() {
        assert_eq!(f.read(oid, 0, 8), oid.to_le_bytes());
    }
    f.runtime.block_on(f.store.sync(&(1..=10_000).map(fid).collect::<Vec<_>>())).unwrap();
    f.runtime.block_on(f.store.sync(&[])).unwrap();
}

#[test]
fn mtime_does_not_go_back_when_a_file_is_closed() {
    let f = Fixture::with(64, tempfile::tempdir().unwrap());
    let mut times = BTreeMap::new();
    let before = f._rt.wall();
    for oid in 1..=2000 {
        f.write(oid, 0, b"x");
        times.insert(oid, f.store.attrs(&[fid(oid)]).unwrap()[0].mtime.unwrap());
    }
    assert!(times.values().all(|&t| t >= before), "never before the clock that the MDT reads");
    assert!(times.values().is_sorted());
    for (oid, time) in times {
        assert_eq!(f.store.attrs(&[fid(oid)]).unwrap()[0].mtime, Some(time));
        f.read(oid, 0, 1); // opens it again
        assert_eq!(f.store.attrs(&[fid(oid)]).unwrap()[0].mtime, Some(time));
    }
}

#[test]
fn sync_and_stop_write_mtimes_to_the_files() {
    let f = Fixture::new();
    let shown = |f: &Fixture| f.store.attrs(&(1..=50).map(fid).collect::<Vec<_>>()).unwrap();
    let stored = |oid| {
        let m = fs::metadata(f.on_disk(oid)).unwrap();
        Some(Time { sec: m.mtime(), nsec: m.mtime_nsec() as u32 })
    };
    for oid in 1..=50 {
        f.write(oid, 0, b"x");
    }
    f.runtime.block_on(f.store.sync(&[fid(1), fid(2)])).unwrap();
    f.runtime.block_on(f.store.sync(&[fid(3)])).unwrap();
    let before = shown(&f);
    assert_eq!([stored(1), stored(2), stored(3)], [before[0].mtime, before[1].mtime, before[2].mtime]);
    f.runtime.block_on(f.store.close()).unwrap();
    let again = Fixture::with(4096, f.dir);
    assert_eq!(shown(&again), before);
    again.write(7, 0, b"y");
    assert!(shown(&again)[6].mtime > before[6].mtime);
    again.runtime.block_on(again.store.sync(&[])).unwrap();
    let after = shown(&again);
    again.runtime.block_on(again.store.close()).unwrap();
    let later = Fixture::with(4096, again.dir);
    assert_eq!(shown(&later), after);
}

#[test]
fn threads_write_own_and_shared_objects_without_loss() {
    let f = Fixture::with(64, tempfile::tempdir().unwrap());
    std::thread::scope(|s| {
        for t in 0..4u32 {
            let f = &f;
            s.spawn(move || {
                for round in 0..300u32 {
                    let own = 1000 * (t + 1) + round;
                    f.write(own, 0, &[t as u8; 100]);
                    assert_eq!(f.read(own, 0, 100), [t as u8; 100]);
                    // An object of all threads: each writes to its own place in it.
                    f.write(1, u64::from(t) * 4096, &round.to_le_bytes());
                    assert_eq!(f.read(1, u64::from(t) * 4096, 4), round.to_le_bytes());
                    if round % 10 == 9 {
                        f.runtime.block_on(f.store.destroy(&[fid(own)])).unwrap();
                        assert_eq!(f.size(own), 0);
                    }
                }
            });
        }
    });
    assert_eq!(f.size(1), 3 * 4096 + 4);
}

/// Writers and a destroyer of one object: whatever the order, the object is deleted.
#[test]
fn object_stays_deleted_when_destroy_races_with_writes() {
    let f = Fixture::new();
    for object in 5..205 {
        std::thread::scope(|s| {
            s.spawn(|| _ = f.try_write(&[part(object, 0, 6)], b"racing"));
            s.spawn(|| f.destroy([object]));
        });
        assert!(!f.on_disk(object).exists());
        assert_eq!((f.size(object), f.read(object, 0, 6).len()), (0, 0));
    }
}

#[test]
fn reopened_store_has_identity_and_data() {
    let mut f = Fixture::new();
    f.write(1, 5, b"data");
    f.store.set_index(3).unwrap();
    let (uuid, dir) = (f.store.identity().uuid.clone(), f.dir);
    assert_eq!(uuid.len(), 36);
    drop(f.store);
    let f = Fixture::with(64, dir);
    assert_eq!((f.store.identity().index, &f.store.identity().uuid), (Some(3), &uuid));
    assert_eq!(f.read(1, 0, 99), b"\0\0\0\0\0data");
}

#[test]
fn open_refuses_a_directory_of_another_target() {
    let mut f = Fixture::new();
    f.store.set_index(3).unwrap();
    let try_open = |dir: &Path, fsname, index| {
        f.runtime.block_on(open(&f._rt, dir, fsname, index, 64)).err().map(|e| e.to_string())
    };
    let says =
        |error: Option<String>, what: &str| assert!(error.as_deref().is_some_and(|e| e.contains(what)), "{error:?}");
    says(try_open(f.dir.path(), "sheen", None), "in use by another process");
    let dir = f.dir.path().to_owned();
    drop(f.store);
    says(try_open(&dir, "other", None), "belongs to the file system 'sheen'");
    says(try_open(&dir, "sheen", Some(4)), "holds OST 3, not OST 4");
    assert_eq!(try_open(&dir, "sheen", Some(3)), None);
    fs::write(dir.join("target"), "format = 99\nkind = OST\n").unwrap();
    says(try_open(&dir, "sheen", None), "format 99");

    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("thesis.tex"), "x").unwrap();
    says(try_open(home.path(), "sheen", None), "not empty");
    assert!(!home.path().join("O").exists() && !home.path().join("target").exists());
}

#[test]
fn open_refuses_a_formatted_directory_without_objects() {
    let f = Fixture::new();
    f.write(1, 0, b"bytes");
    let Fixture { store, runtime, _rt: rt, dir } = f;
    drop(store);
    let objects = dir.path().join(name::ROOT);
    fs::rename(&objects, dir.path().join("elsewhere")).unwrap();
    let refused = runtime.block_on(open(&rt, dir.path(), "sheen", None, 64)).err().map(|e| e.to_string()).unwrap();
    assert!(refused.contains("is missing, and with it all objects of the OST"), "{refused}");
    assert!(!objects.exists(), "it was made anew");
    fs::rename(dir.path().join("elsewhere"), &objects).unwrap();
    assert!(runtime.block_on(open(&rt, dir.path(), "sheen", None, 64)).is_ok());
}

#[test]
fn statfs_divides_a_device_among_its_targets() {
    let dir = tempfile::tempdir().unwrap();
    let (runtime, rt) = Rt::real(RealOptions::default()).unwrap();
    let sharing = Sharing::new();
    let target = |n: u32| {
        runtime
            .block_on(Store::open(&rt, &dir.path().join(format!("ost{n}")), "sheen", Some(n), 64, |device| {
                sharing.join(device)
            }))
            .unwrap()
    };
    let first = target(0);
    let alone = first.statfs().unwrap();
    let others: Vec<_> = (1..4).map(target).collect();
    let sum: u64 = others.iter().chain([&first]).map(|s| s.statfs().unwrap().blocks).sum();
    assert!(sum.abs_diff(alone.blocks) < 4, "{sum} of {}", alone.blocks);
    assert!(first.statfs().unwrap().bfree > 0);
}

/// A tmpfs of `size` for the life of the value.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None` where this process may not mount.
    fn new(size: &str) -> Option<SmallDisk> {
        let dir = tempfile::tempdir().unwrap();
        let options = std::ffi::CString::new(format!("size={size}")).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        match rustix::mount::mount("sheen-test", dir.path(), "tmpfs", flags, options.as_c_str()) {
            Ok(()) => Some(SmallDisk(dir)),
            Err(e) => {
                let _ = writeln!(std::io::stderr(), "not run: cannot mount a tmpfs ({e}); needs root");
                None
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn write_on_a_full_disk_returns_enospc_and_recovers() {
    let Some(disk) = SmallDisk::new("1m") else { return };
    let dir = tempfile::tempdir_in(disk.0.path()).unwrap();
    let f = Fixture::with(64, dir);
    f.write(1, 0, &pattern(9, 256 << 10));
    let big = pattern(10, 1 << 20);
    let parts = [part(2, 0, 4096), part(3, 0, big.len() - 4096)];
    assert_eq!(f.try_write(&parts, &big), Err(Errno::ENOSPC));
    assert_eq!(f.read(1, 0, 1 << 20), pattern(9, 256 << 10), "what was there is whole");
    assert!(f.store.statfs().unwrap().bavail < 8);
    f.destroy([2, 3]);
    assert!(f.store.statfs().unwrap().bavail * 4096 >= 512 << 10);
    f.write(4, 0, &big[..512 << 10]);
    assert_eq!(
        f.store.allocate(Fid::ZERO, Allocate::Reserve { keep_size: false }, &[(fid(5), 0, MIB)]),
        Err(Errno::ENOSPC)
    );
}

#[test]
fn pages_sent_without_reading_have_the_current_checksum() {
    let f = Fixture::new();
    let data = pattern(9, 4 << 20);
    let bulk = Bulk::from(Bytes::from(data.clone()));
    let live = |parts: &[Part]| f.store.live(parts).unwrap().map(|(lens, live)| (lens, live.crc));
    let crc = |parts: &[Part]| f.store.read(parts).unwrap().1.crc();
    f.store.write(Fid::ZERO, &[part(1, 0, 4 << 20)], &bulk, true, None).unwrap();
    f.store.write(Fid::ZERO, &[part(2, MIB, 4 << 20)], &bulk, true, None).unwrap();
    let two = [part(1, MIB, 1 << 20), part(1, 2 * MIB, 1 << 19), part(2, MIB, 1 << 20)];
    assert_eq!(live(&two), Some((vec![1 << 20, 1 << 19, 1 << 20], Some(crc(&two)))));
    assert_eq!(live(&[part(1, 5, 1 << 20)]), None, "no whole chunks");
    assert_eq!(live(&[part(1, 0, 1 << 16)]), None, "too little to be worth it");
    assert_eq!(live(&[part(1, 4 * MIB, 1 << 20)]), None, "past the end");
    assert_eq!(live(&[part(3, 0, 1 << 20)]), None, "no object");

    let whole = [part(1, 0, 4 << 20)];
    let changes: [(&str, &dyn Fn()); 3] = [
        ("write", &|| f.write(1, 70_000, b"x")),
        ("punch", &|| f.store.allocate(Fid::ZERO, Allocate::PunchHole, &[(fid(1), 100_000, 5)]).unwrap()),
        ("cut", &|| f.store.truncate(Fid::ZERO, &[(fid(1), 3 * MIB + 1)]).unwrap()),
    ];
    for (what, change) in changes {
        assert!(live(&whole).is_some(), "before {what}");
        change();
        assert_eq!(live(&whole), None, "{what}");
        let (_, read) = f.store.read_and_sum(&whole).unwrap();
        if what != "cut" {
            assert_eq!(live(&whole), Some((vec![4 << 20], Some(read.crc()))), "known again after it was read");
        } else {
            assert_eq!(live(&whole), None, "the file ends before");
            f.store.truncate(Fid::ZERO, &[(fid(1), 4 * MIB)]).unwrap();
            assert_eq!(live(&[part(1, 3 * MIB, 1 << 20)]), None, "what is new was never seen");
            f.store.read_and_sum(&whole).unwrap();
        }
    }
}

#[test]
fn object_whose_file_is_lost_is_not_taken_for_an_empty_one() {
    let f = Fixture::new();
    (1..=3).for_each(|oid| f.write(oid, 0, b"data"));
    f.runtime.block_on(f.store.sync(&[])).unwrap();
    f.write(4, 0, b"not durable");
    f.destroy([3]);
    f.runtime.block_on(f.store.close()).unwrap();
    let dir = f.dir;
    drop((f.store, f.runtime));
    let f = Fixture::with(4096, dir);
    for oid in [1, 2] {
        fs::remove_file(f.on_disk(oid)).unwrap();
    }
    let read = |oid| f.store.read(&[part(oid, 0, 4)]).map(|(_, bulk)| bulk.into_bytes().to_vec());
    assert_eq!((read(1), read(2)), (Err(Errno::EIO), Err(Errno::EIO)));
    assert_eq!(f.store.attrs(&[fid(1)]).err(), Some(Errno::EIO));
    assert_eq!(f.try_write(&[part(1, 0, 1)], b"x"), Err(Errno::EIO));
    assert_eq!(f.store.truncate(Fid::ZERO, &[(fid(1), 0)]), Err(Errno::EIO));
    let write = Change::Write { file: Fid::ZERO, parts: vec![part(1, 0, 1)], mtime: Time::default() };
    let replayed = f.store.replay(&write, &Bulk::from(Bytes::from_static(b"x")), |_| false);
    assert_eq!(replayed, Ok(BTreeSet::from([fid(1)])), "it may have been destroyed");
    assert_eq!((read(1), f.runtime.block_on(f.store.sync(&[fid(1)]))), (Err(Errno::EIO), Err(Errno::EIO)));
    assert_eq!((read(3), read(5)), (Ok(vec![]), Ok(vec![])), "destroyed, and never written");
    assert_eq!(read(4), Ok(b"not ".to_vec()));
    f.destroy([2]);
    assert_eq!(read(2), Ok(vec![]), "nobody uses it any more");
}
