//! Files of several components (Lustre's progressive file layouts), on one mount and on two at
//! once. A component gets objects when data is written to it, and no earlier. Mounts that had the
//! old layout cached see the new data.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::Path,
    sync::Barrier,
    thread,
};

use rustix::{fs::FallocateFlags, io::Errno};
use sheen_tests::{
    Fs, can_mount,
    mounts::{LIMIT, Two, TwoMounts},
    noise,
    posix::{Map, layout, rw},
    progress::{Race, at_least},
    wait::eventually,
};

const M: u64 = 1 << 20;
/// Three steps: one stripe, two, four.
const STEPS: &str = "-E 1M -c 1 -S 64K -E 4M -c 2 -S 128K -E -1 -c 4 -S 64K";
/// The same, with the first component on the MDT.
const BEGUN_ON_MDT: &str = "-E 1M -L mdt -E 4M -c 2 -S 128K -E -1 -c 4 -S 64K";
/// Length of a file: it ends in the third component, and is no multiple of a page or stripe.
const LEN: usize = (6 << 20) + 4321;
/// Length of a record: no multiple of a page or stripe.
const RECORD: usize = 47_008;

fn two(name: &str) -> Option<(TwoMounts, Two)> {
    two_with(name, STEPS)
}

fn two_with(name: &str, steps: &str) -> Option<(TwoMounts, Two)> {
    if !can_mount() {
        println!("skipped: /dev/fuse cannot be opened here");
        return None;
    }
    let two = TwoMounts::up(LIMIT);
    let at = two.dir(name);
    two.fs.lfs(&format!("setstripe {steps} {name}")).ok();
    Some((two, at))
}

/// Makes a test of each function of a directory whose files have three components. Two mounts see
/// the directory, in either role. A second test has the first component on the MDT.
macro_rules! on_two_mounts {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            in_either_role(STEPS, says::$name);
        })*

        mod begun_on_mdt {
            $(#[test]
            fn $name() {
                super::in_either_role(super::BEGUN_ON_MDT, super::says::$name);
            })*
        }
    };
}

fn in_either_role(steps: &str, says: fn(&Two)) {
    let Some((two, at)) = two_with("one", steps) else { return };
    says(&at);
    let other = two.dir("other");
    two.fs.lfs(&format!("setstripe {steps} other")).ok();
    says(&other.swapped());
}

on_two_mounts! {
    writes_across_components_are_read_on_both_mounts
    concurrent_writers_lose_nothing_and_readers_see_no_foreign_bytes
    component_without_objects_reads_as_zeros_until_it_is_written
    truncate_across_components_sets_the_size
    appends_of_two_mounts_are_whole_and_in_order
    mapped_stores_are_written_back_to_all_components
    reader_sees_data_in_new_components_at_once
    fallocate_instantiates_components_and_punch_does_not
    file_emptied_by_truncate_is_rewritten_in_full
}

/// Returns for each component whether it has objects.
fn with_objects(path: &Path) -> Vec<bool> {
    layout(path).components().iter().map(|c| c.is_instantiated()).collect()
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> Errno {
    Errno::from_io_error(&result.expect_err("must fail")).unwrap()
}

mod says {
    use super::*;

    pub fn writes_across_components_are_read_on_both_mounts(at: &Two) {
        let data = noise(3, LEN);
        assert!(!at.a("f").exists() && !at.b("f").exists());
        let a = rw(&at.a("f"));
        assert_eq!(with_objects(&at.b("f")), [true, false, false]);
        assert_eq!(fs::read(at.b("f")).unwrap(), b"");
        let pieces: Vec<usize> = (0..LEN).step_by(RECORD).collect();
        for (i, from) in pieces.iter().enumerate() {
            let to = LEN.min(from + RECORD);
            a.write_all_at(&data[*from..to], *from as u64).unwrap();
            if i % 16 == 0 {
                assert_eq!((size(&at.b("f")), size(&at.a("f"))), (to as u64, to as u64));
            }
        }
        assert!(fs::read(at.b("f")).unwrap() == data, "B reads what A wrote");
        assert!(fs::read(at.a("f")).unwrap() == data, "and A");
        for path in [at.a("f"), at.b("f")] {
            assert_eq!(with_objects(&path), [true, true, true]);
            assert_eq!(layout(&path).stripe_count(), 1 + 2 + 4);
        }
        // One large write into all components, and one read over all boundaries.
        let other = noise(4, LEN);
        rw(&at.b("f")).write_all_at(&other, 0).unwrap();
        let mut got = vec![0; LEN];
        a.read_exact_at(&mut got, 0).unwrap();
        assert!(got == other);
        let blocks = fs::metadata(at.a("f")).unwrap().blocks();
        assert!((LEN as u64 / 512..LEN as u64 / 512 + 8 * 128).contains(&blocks), "{blocks}");
    }

    pub fn concurrent_writers_lose_nothing_and_readers_see_no_foreign_bytes(at: &Two) {
        let data = noise(5, LEN);
        let (start, race) = (Barrier::new(3), Race::new([at_least(1), at_least(1)]));
        drop(rw(&at.a("f")));
        thread::scope(|scope| {
            let writer = |path: std::path::PathBuf, turn: usize| {
                let (data, start, writes) = (&data, &start, race.party(turn));
                scope.spawn(move || {
                    let file = rw(&path);
                    start.wait();
                    for from in (0..LEN).step_by(RECORD).skip(turn).step_by(2) {
                        file.write_all_at(&data[from..LEN.min(from + RECORD)], from as u64).unwrap();
                    }
                    writes.did_one();
                })
            };
            let writers = [writer(at.a("f"), 0), writer(at.b("f"), 1)];
            let (data, start, race) = (&data, &start, &race);
            let reader = scope.spawn(move || {
                let file = File::open(at.b("f")).unwrap();
                start.wait();
                let mut known = 0;
                while race.goes_on() {
                    let size = file.metadata().unwrap().len();
                    assert!(size >= known, "a file that is only written does not shrink");
                    known = size;
                    let mut got = vec![0; LEN];
                    let n = file.read_at(&mut got, 0).unwrap();
                    let strange = (0..n).find(|&i| got[i] != 0 && got[i] != data[i]);
                    assert_eq!(strange, None, "neither a hole nor what is written");
                }
            });
            writers.into_iter().for_each(|w| w.join().unwrap());
            reader.join().unwrap();
        });
        for path in [at.a("f"), at.b("f")] {
            assert!(fs::read(&path).unwrap() == data);
            assert_eq!(with_objects(&path), [true, true, true]);
        }
    }

    pub fn component_without_objects_reads_as_zeros_until_it_is_written(at: &Two) {
        use rustix::fs::SeekFrom;
        let a = rw(&at.a("f"));
        a.write_all_at(b"begin", 0).unwrap();
        let b = File::open(at.b("f")).unwrap();
        assert_eq!(fs::read(at.b("f")).unwrap(), b"begin");
        a.write_all_at(b"end", 5 * M).unwrap();
        for path in [at.a("f"), at.b("f")] {
            assert_eq!(with_objects(&path), [true, false, true]);
            assert_eq!(size(&path), 5 * M + 3);
            let all = fs::read(&path).unwrap();
            assert_eq!((&all[..5], &all[5 << 20..]), (&b"begin"[..], &b"end"[..]));
            assert!(all[5..5 << 20].iter().all(|byte| *byte == 0), "a component without objects reads as zeros");
        }
        let seek = |file: &File, from| rustix::fs::seek(file, from);
        for file in [&a, &b] {
            assert_eq!(seek(file, SeekFrom::Data(2 * M)), Ok(5 * M));
            assert_eq!(seek(file, SeekFrom::Hole(2 * M)), Ok(2 * M));
            assert!(seek(file, SeekFrom::Hole(0)).unwrap() <= 65536);
            assert_eq!(seek(file, SeekFrom::Data(5 * M + 3)), Err(Errno::NXIO));
            assert_eq!(seek(file, SeekFrom::Hole(5 * M)), Ok(5 * M + 3));
        }
        // B has zeros of the middle in its page cache, where A's write instantiates the component.
        for (n, place) in [2 * M + 77, 3 * M, M].into_iter().enumerate() {
            let text = format!("in the middle {n}");
            a.write_all_at(text.as_bytes(), place).unwrap();
            let mut got = vec![0; text.len()];
            b.read_exact_at(&mut got, place).unwrap();
            assert_eq!(String::from_utf8_lossy(&got), text, "B reads what A wrote where B had cached a hole");
            assert_eq!(with_objects(&at.b("f")), [true, true, true]);
        }
        // The same on one mount, which wrote and cached the file itself.
        let (a, b) = (rw(&at.b("g")), File::open(at.b("g")).unwrap());
        a.write_all_at(b"end", 5 * M).unwrap();
        let mut got = [1; 3];
        b.read_exact_at(&mut got, 2 * M).unwrap();
        assert_eq!(got, [0; 3]);
        a.write_all_at(b"now", 2 * M).unwrap();
        b.read_exact_at(&mut got, 2 * M).unwrap();
        assert_eq!(&got, b"now");
        b.read_exact_at(&mut got, 3 * M).unwrap();
        rw(&at.a("g")).write_all_at(b"too", 3 * M).unwrap();
        b.read_exact_at(&mut got, 3 * M).unwrap();
        assert_eq!(&got, b"too", "another client's write into an object that this client instantiated");
    }

    pub fn truncate_across_components_sets_the_size(at: &Two) {
        let data = noise(6, LEN);
        let (a, b) = (rw(&at.a("f")), rw(&at.b("f")));
        a.write_all_at(&data[..1000], 0).unwrap();
        b.set_len(3 * M).unwrap();
        assert_eq!(with_objects(&at.a("f")), [true, true, false]);
        for len in [3 * M, 10 * M, 4 * M + 1, 4 * M, 2 * M + 5, M + 1, M, 999, 0, 7 * M] {
            a.set_len(len).unwrap();
            assert_eq!([size(&at.a("f")), size(&at.b("f"))], [len; 2]);
            assert_eq!(b.metadata().unwrap().len(), len);
        }
        assert!(fs::read(at.b("f")).unwrap().iter().all(|byte| *byte == 0), "truncated bytes read as zeros");
        b.write_all_at(&data, 0).unwrap();
        b.set_len(LEN as u64).unwrap();
        assert!(fs::read(at.a("f")).unwrap() == data);
        for cut in [LEN - 1, 5 << 20, (4 << 20) + 7, 4 << 20, 3_000_000, 1 << 20, 4096] {
            a.set_len(cut as u64).unwrap();
            assert!(fs::read(at.b("f")).unwrap() == data[..cut], "cut to {cut}");
        }
        b.set_len(LEN as u64).unwrap();
        let all = fs::read(at.a("f")).unwrap();
        assert!(all.len() == LEN && all[4096..].iter().all(|byte| *byte == 0) && all[..4096] == data[..4096]);
        // Through a descriptor for the truncate alone. Only as many components as needed get
        // objects.
        fs::write(at.a("g"), "x").unwrap();
        rustix_truncate(&at.b("g"), 2 * M);
        assert_eq!((size(&at.a("g")), with_objects(&at.a("g"))), (2 * M, vec![true, true, false]));
        rustix_truncate(&at.a("g"), 1);
        assert_eq!(fs::read(at.b("g")).unwrap(), b"x");
    }

    fn rustix_truncate(path: &Path, len: u64) {
        OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
    }

    pub fn appends_of_two_mounts_are_whole_and_in_order(at: &Two) {
        const RECORDS: usize = 60;
        drop(rw(&at.a("log")));
        let append = |path: &Path, who: u8| {
            let mut file = OpenOptions::new().append(true).open(path).unwrap();
            for n in 0..RECORDS {
                let mut record = vec![who; RECORD];
                record[0] = n as u8;
                file.write_all(&record).unwrap();
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| append(&at.a("log"), 201));
            scope.spawn(|| append(&at.b("log"), 202));
        });
        let all = fs::read(at.b("log")).unwrap();
        assert!(fs::read(at.a("log")).unwrap() == all);
        assert_eq!(all.len(), 2 * RECORDS * RECORD);
        let mut seen = [0; 2];
        for record in all.chunks(RECORD) {
            let who = usize::from(record[1] - 201);
            assert!(record[1..].iter().all(|byte| *byte == record[1]), "a record in one piece");
            assert_eq!(usize::from(record[0]), seen[who], "in order");
            seen[who] += 1;
        }
        assert_eq!(seen, [RECORDS; 2]);
        assert_eq!(with_objects(&at.a("log")), [true, true, true]);
    }

    pub fn mapped_stores_are_written_back_to_all_components(at: &Two) {
        let file = rw(&at.a("f"));
        file.set_len(6 * M).unwrap();
        assert_eq!(with_objects(&at.a("f")), [true, false, true]);
        let map = Map::new(&file, 6 << 20);
        assert_eq!(map.read(2 << 20, 100), [0; 100]);
        let places = [5, (1 << 20) - 3, 2 << 20, (4 << 20) - 2, 5 << 20];
        for place in places {
            map.write(place, b"mapped");
        }
        map.sync().unwrap();
        assert_eq!(with_objects(&at.b("f")), [true, true, true]);
        let all = fs::read(at.b("f")).unwrap();
        for place in places {
            assert_eq!(&all[place..place + 6], b"mapped", "at {place}");
        }
        rw(&at.b("f")).write_all_at(b"again!", 2 * M).unwrap();
        eventually("a mapping shows what others wrote", || map.read(2 << 20, 6) == b"again!");
    }

    pub fn reader_sees_data_in_new_components_at_once(at: &Two) {
        let data = noise(8, LEN);
        let a = rw(&at.a("f"));
        a.write_all_at(&data[..1000], 0).unwrap();
        let b = File::open(at.b("f")).unwrap();
        let map = OpenOptions::new().read(true).write(true).open(at.b("f")).unwrap();
        let map = Map::new(&map, 8 << 20);
        assert_eq!(map.read(0, 1000), data[..1000]);
        let mut end = 1000;
        while end < LEN {
            let more = LEN.min(end + 300_017);
            a.write_all_at(&data[end..more], end as u64).unwrap();
            assert_eq!(b.metadata().unwrap().len(), more as u64);
            let mut got = vec![0; more - end + 10];
            assert_eq!(read_all(&b, &mut got, end as u64), more - end);
            assert!(got[..more - end] == data[end..more], "from {end}");
            assert_eq!(map.read(end, 100)[..], data[end..end + 100], "the mapping at {end}");
            end = more;
        }
        assert!(fs::read(at.b("f")).unwrap() == data);
    }

    fn read_all(file: &File, into: &mut [u8], at: u64) -> usize {
        let mut n = 0;
        loop {
            match file.read_at(&mut into[n..], at + n as u64).unwrap() {
                0 => return n,
                more => n += more,
            }
        }
    }

    pub fn fallocate_instantiates_components_and_punch_does_not(at: &Two) {
        let file = rw(&at.a("f"));
        rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE, 0, 6 * M).unwrap();
        assert_eq!(with_objects(&at.b("f")), [true, false, false], "a hole needs no objects");
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 2 * M).unwrap();
        assert_eq!((size(&at.b("f")), with_objects(&at.b("f"))), (2 * M, vec![true, true, false]));
        let data = noise(9, LEN);
        file.write_all_at(&data, 0).unwrap();
        let hole = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
        rustix::fs::fallocate(rw(&at.b("f")), hole, 512 << 10, 4 * M).unwrap();
        let all = fs::read(at.a("f")).unwrap();
        assert!(all.len() == LEN && all[..512 << 10] == data[..512 << 10] && all[4608 << 10..] == data[4608 << 10..]);
        assert!(all[512 << 10..4608 << 10].iter().all(|byte| *byte == 0));
        let copy = rw(&at.b("g"));
        let (mut from, mut to) = (0, 0);
        while rustix::fs::copy_file_range(&file, Some(&mut from), rw(&at.a("g")), Some(&mut to), LEN).unwrap() > 0 {}
        assert!(fs::read(at.b("g")).unwrap() == all);
        assert_eq!(copy.metadata().unwrap().len(), LEN as u64);
    }

    pub fn file_emptied_by_truncate_is_rewritten_in_full(at: &Two) {
        let data = noise(10, LEN);
        fs::write(at.a("f"), &data).unwrap();
        assert!(fs::read(at.b("f")).unwrap() == data);
        fs::write(at.b("f"), b"short").unwrap();
        assert_eq!(fs::read(at.a("f")).unwrap(), b"short");
        let synced = OpenOptions::new().write(true).custom_flags(libc_sync()).open(at.a("f")).unwrap();
        synced.write_all_at(&data, 0).unwrap();
        assert!(fs::read(at.b("f")).unwrap() == data);
        fs::remove_file(at.b("f")).unwrap();
        assert!(!at.a("f").exists());
    }

    /// O_DSYNC.
    fn libc_sync() -> i32 {
        rustix::fs::OFlags::DSYNC.bits() as i32
    }
}

#[test]
fn components_are_inherited_from_directories_and_shown_by_getstripe() {
    let Some((two, at)) = two("dir") else { return };
    fs::create_dir(at.a("below")).unwrap();
    fs::write(at.b("below/f"), b"abc").unwrap();
    let layout = layout(&at.a("below/f"));
    let extents: Vec<(u64, u64)> = layout.components().iter().map(|c| (c.start, c.end)).collect();
    assert_eq!(extents, [(0, M), (M, 4 * M), (4 * M, u64::MAX)]);
    let before = two.fs.lfs("getstripe dir/below/f").ok();
    let count = |text: &str, what: &str| text.lines().filter(|line| line.trim() == what).count();
    assert_eq!(count(&before, "lcme_flags:          init"), 1, "{before}");
    assert_eq!(count(&before, "lcme_flags:          0"), 2, "{before}");
    rw(&at.b("below/f")).write_all_at(b"x", 2 * M).unwrap();
    let after = two.fs.lfs("getstripe dir/below/f").ok();
    assert_eq!(count(&after, "lcme_flags:          init"), 2, "{after}");
    assert!(after.contains("lcm_layout_gen:    4"), "{after}");
    assert_eq!(two.fs.lfs("getstripe --component-count dir/below/f").ok().trim(), "3");
}

#[test]
fn component_files_survive_a_restart() {
    let Some(fs) = Fs::up_or_skip(4) else { return };
    let second = fs.second_mount();
    fs.lfs(&format!("setstripe {STEPS} f")).ok();
    let data = noise(11, LEN);
    rw(&second.path("f")).write_all_at(&data[..3 << 20], 0).unwrap();
    drop(second);
    fs.stop().ok();
    fs.start(&[]).ok();
    assert_eq!(with_objects(&fs.path("f")), [true, true, false]);
    assert!(fs::read(fs.path("f")).unwrap() == data[..3 << 20]);
    let second = fs.second_mount();
    rw(&second.path("f")).write_all_at(&data[3 << 20..], 3 * M).unwrap();
    assert!(fs::read(fs.path("f")).unwrap() == data);
    fs::remove_file(second.path("f")).unwrap();
    let objects = || fs.dir().to_string_lossy().into_owned();
    let left = || sheen_tests::run("find", [&objects(), "-path", "*/ost*/O/*", "-type", "f"]).ok().lines().count();
    eventually("no objects of components are left behind", || left() == 0);
}

#[test]
fn component_add_extends_a_file_and_component_del_truncates_it() {
    let Some((two, at)) = two("dir") else { return };
    two.fs.lfs("setstripe -E 1M -c 1 -S 64K -E 2M -c 2 -S 64K dir/f").ok();
    let (a, b) = (rw(&at.a("f")), rw(&at.b("f")));
    let data = noise(13, 3 << 20);
    b.write_all_at(&data[..2 << 20], 0).unwrap();
    assert_eq!(errno(b.write_at(b"x", 2 * M)), Errno::NODATA);
    two.fs.lfs("setstripe --component-add -E 4M -c 1 -S 64K dir/f").ok();
    b.write_all_at(&data[2 << 20..], 2 * M).unwrap();
    assert!(fs::read(at.a("f")).unwrap() == data);
    a.write_all_at(&data[..5], 3 * M).unwrap();
    assert_eq!(b.metadata().unwrap().len(), 3 * M + 5);
    // The data in the last component is deleted with it.
    let last = layout(&at.a("f")).components().last().map(|c| c.id).unwrap();
    two.fs.lfs(&format!("setstripe --component-del -I {last} dir/f")).ok();
    for (path, file) in [(at.a("f"), &a), (at.b("f"), &b)] {
        assert_eq!(with_objects(&path), [true, true]);
        assert_eq!(file.metadata().unwrap().len(), 2 * M);
        assert!(fs::read(&path).unwrap() == data[..2 << 20]);
        assert_eq!(errno(file.write_at(b"x", 2 * M)), Errno::NODATA);
    }
}

#[test]
fn write_past_the_last_component_is_refused() {
    let Some((two, at)) = two("dir") else { return };
    two.fs.lfs("setstripe -E 1M -c 1 -S 64K -E 2M -c 2 -S 64K dir/short").ok();
    for path in [at.a("short"), at.b("short")] {
        let file = rw(&path);
        let data = noise(12, 3 << 20);
        let mut written = 0;
        let refused = loop {
            match file.write_at(&data[written..], written as u64) {
                Ok(n) => written += n,
                refused => break refused,
            }
        };
        assert_eq!((written, errno(refused)), (2 << 20, Errno::NODATA));
        assert_eq!(errno(file.set_len(2 * M + 1)), Errno::NODATA);
        assert_eq!(errno(OpenOptions::new().append(true).open(&path).unwrap().write(b"x")), Errno::NODATA);
        assert!(fs::read(&path).unwrap() == data[..2 << 20]);
        file.set_len(0).unwrap();
    }
}
