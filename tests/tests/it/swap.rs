//! `lfs swap_layouts`: two files exchange their data in one step, while programs use them on this
//! and other mounts.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::Write,
    ops::RangeInclusive,
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, SystemTime},
};

use sheen_tests::{
    cluster::{Cluster, bash},
    is_root,
    mounts::as_nobody,
    noise,
    posix::{Map, layout, rw},
    progress::{Race, at_least},
    relayout::{COMMAND_MAX, expect_stored_objects, setstripe, stored_objects, swap, while_killed},
    run_within, sheen, two_mounts,
    wait::{eventually, let_pass},
};

const LIMIT: Duration = Duration::from_secs(580);
const M: usize = 1 << 20;

fn osts(path: &Path) -> Vec<u32> {
    layout(path).stripes().iter().map(|s| s.ost).collect()
}

#[test]
fn swap_exchanges_data_and_keeps_attributes() {
    let (two, at) = two_mounts!(LIMIT, "d");
    let began = SystemTime::now();
    let (one, other) = (at.a("one"), at.a("other"));
    setstripe("-c 1 -i 3", &one);
    setstripe("-c 3 -S 128K -i 0", &other);
    let data = [noise(1, M + 4321), noise(2, 3 * M)];
    fs::write(&one, &data[0]).unwrap();
    fs::write(&other, &data[1]).unwrap();
    bash(&at.a, "chmod 640 one; touch -d '2021-02-03 04:05:06.789' one; touch -d '2022-03-04' other; ln one link").ok();
    bash(&at.a, "setfattr -n user.k -v v one").ok();
    let stat = |path: &Path| {
        let m = fs::metadata(path).unwrap();
        (m.ino(), m.mode(), m.nlink(), m.mtime(), m.mtime_nsec(), m.atime())
    };
    let before = [stat(&at.b("one")), stat(&at.b("other"))];
    for look in [at.b("one"), at.b("other")] {
        fs::read(look).unwrap(); // so that the other mount caches it
    }
    for round in 0..4 {
        assert_eq!(swap(&one, &other).ok(), "");
        let [here, there] = if round % 2 == 0 { [&data[1], &data[0]] } else { [&data[0], &data[1]] };
        for dir in at.both() {
            assert!(fs::read(dir.join("one")).unwrap() == *here, "{round} {}", dir.display());
            assert!(fs::read(dir.join("link")).unwrap() == *here, "{round} {}", dir.display());
            assert!(fs::read(dir.join("other")).unwrap() == *there, "{round} {}", dir.display());
            assert_eq!(fs::metadata(dir.join("one")).unwrap().len(), here.len() as u64);
            assert_eq!(fs::metadata(dir.join("other")).unwrap().len(), there.len() as u64);
            let times = |path: &Path| (stat(path).0, stat(path).1, stat(path).2, stat(path).3, stat(path).4);
            let swapped = |n: usize| (before[n].0, before[n].1, before[n].2, before[n].3, before[n].4);
            assert_eq!([times(&dir.join("one")), times(&dir.join("other"))], [swapped(0), swapped(1)], "{round}");
        }
        let [a, b] = if round % 2 == 0 { [vec![0, 1, 2], vec![3]] } else { [vec![3], vec![0, 1, 2]] };
        assert_eq!([osts(&at.b("one")), osts(&at.b("other"))], [a, b], "{round}");
    }
    assert_eq!(bash(&at.b, "getfattr --only-values -n user.k one").ok(), "v");
    // A write moves the modification time again.
    fs::write(at.b("one"), "new").unwrap();
    assert!(fs::metadata(&one).unwrap().modified().unwrap() > began);
    fs::remove_file(at.b("other")).unwrap();
    expect_stored_objects(&two.fs.dir(), 1);
}

#[test]
fn components_are_instantiated_after_a_swap() {
    let (two, at) = two_mounts!(LIMIT, "d");
    let (one, other) = (at.a("one"), at.a("other"));
    setstripe("-E 1M -c 1 -E -1 -c 2", &one);
    setstripe("-E 256K -c 1 -S 64K -E 2M -c 2 -E -1 -c -1", &other);
    let mut data = [noise(1, 300_000), noise(2, M + M / 2)];
    let open = [rw(&at.b("one")), rw(&at.b("other"))];
    for (file, data) in open.iter().zip(&data) {
        file.write_all_at(data, 0).unwrap();
    }
    for round in 0..3 {
        swap(&one, &other).ok();
        data.swap(0, 1);
        for (n, file) in open.iter().enumerate() {
            // Each time a little more, sometimes past the end of a component.
            let more = noise(round * 2 + n as u64, 700_000);
            file.write_all_at(&more, data[n].len() as u64).unwrap();
            data[n].extend(more);
        }
        for dir in at.both() {
            assert!(fs::read(dir.join("one")).unwrap() == data[0], "{round} {}", dir.display());
            assert!(fs::read(dir.join("other")).unwrap() == data[1], "{round} {}", dir.display());
        }
    }
    let counts = [layout(&one), layout(&other)].map(|l| l.components().len());
    assert_eq!(counts, [3, 2]);
    fs::remove_file(&one).unwrap();
    fs::remove_file(&other).unwrap();
    drop(open);
    expect_stored_objects(&two.fs.dir(), 0);
}

#[test]
fn open_descriptors_elsewhere_use_the_swapped_data() {
    let (_two, at) = two_mounts!(LIMIT, "d");
    let mut data = [noise(3, 2 * M), noise(4, 2 * M)];
    let paths = [at.a("one"), at.a("other")];
    setstripe("-c 2 -S 64K", &paths[0]);
    setstripe("-c 4 -S 128K", &paths[1]);
    fs::write(&paths[0], &data[0]).unwrap();
    fs::write(&paths[1], &data[1]).unwrap();
    let open = [rw(&at.b("one")), rw(&at.b("other"))];
    let maps = [Map::new(&open[0], 2 * M), Map::new(&open[1], 2 * M)];
    let mut appender = OpenOptions::new().append(true).open(at.b("one")).unwrap();
    for (n, file) in open.iter().enumerate() {
        let mut read = vec![0; 2 * M];
        file.read_exact_at(&mut read, 0).unwrap();
        assert!(read == data[n] && maps[n].read(0, 4096) == data[n][..4096]);
    }
    for round in 0..5 {
        swap(&paths[0], &paths[1]).ok();
        data.swap(0, 1);
        // Each kind of use is the first of its open file after the swap.
        match round {
            0 => {
                let mut read = vec![0; 2 * M];
                open[1].read_exact_at(&mut read, 0).unwrap();
                assert!(read == data[1]);
            }
            1 => {
                open[0].write_all_at(b"written", 100_000).unwrap();
                data[0][100_000..100_007].copy_from_slice(b"written");
            }
            2 => {
                appender.write_all(b"appended").unwrap();
                data[0].extend_from_slice(b"appended");
            }
            3 => {
                maps[1].write(200_000, b"mapped");
                maps[1].sync().unwrap();
                data[1][200_000..200_006].copy_from_slice(b"mapped");
            }
            _ => {
                open[0].set_len(M as u64).unwrap();
                open[0].set_len(2 * M as u64 + 8).unwrap();
                data[0].truncate(M);
                data[0].resize(2 * M + 8, 0);
            }
        }
        for (n, path) in paths.iter().enumerate() {
            let there = at.b(["one", "other"][n]);
            assert_eq!(fs::metadata(&there).unwrap().len(), data[n].len() as u64, "{round} {n}");
            for look in [path, &there] {
                assert!(fs::read(look).unwrap() == data[n], "{round}: {}", look.display());
            }
            assert!(maps[n].read(0, M) == data[n][..M], "{round}: map {n}");
        }
    }
}

#[test]
fn each_write_during_swaps_is_in_exactly_one_file() {
    const PAGE: usize = 4096;
    /// Minimum for either pair of files.
    const SWAPS: u64 = 10;
    /// Range for each of the writers. Each write has a page of its own.
    const WRITES: RangeInclusive<u64> = 100..=3000;
    const APPENDS: RangeInclusive<u64> = 100..=3000;
    const WRITE_PAUSE: Duration = Duration::from_millis(2);
    const APPEND_PAUSE: Duration = Duration::from_millis(3);
    let (two, at) = two_mounts!(LIMIT, "d");
    let names = ["one", "other"];
    for (name, options) in names.into_iter().zip(["-E 64K -L mdt -E -1 -c 2 -S 64K", "-c 4 -S 128K"]) {
        setstripe(options, &at.a(name));
    }
    for name in ["log", "log2"] {
        fs::write(at.a(name), "").unwrap();
    }
    let race = Race::new([at_least(SWAPS), WRITES, WRITES, APPENDS]);
    thread::scope(|scope| {
        // Each record has an offset of its own, in one file or the other. Every 16th is followed by
        // an fsync.
        for (who, dir) in at.both().into_iter().enumerate() {
            let (files, writes) = (names.map(|name| rw(&dir.join(name))), race.party(1 + who));
            scope.spawn(move || {
                while writes.goes_on() {
                    let n = writes.count() as u32;
                    let record = [n * 2 + who as u32 + 1; 3].map(u32::to_le_bytes).concat();
                    let file = &files[(n / 3) as usize % 2];
                    file.write_all_at(&record, ((n as usize * 2 + who) * PAGE) as u64).unwrap();
                    if n.is_multiple_of(16) {
                        file.sync_all().unwrap();
                    }
                    writes.did_one();
                    let_pass(WRITE_PAUSE);
                }
            });
        }
        let (log, appends) = (at.b("log"), race.party(3));
        scope.spawn(move || {
            while appends.goes_on() {
                let mut file = OpenOptions::new().append(true).open(&log).unwrap();
                file.write_all(&(appends.count() as u32).to_le_bytes()).unwrap();
                appends.did_one();
                let_pass(APPEND_PAUSE);
            }
        });
        let swaps = race.party(0);
        while swaps.goes_on() {
            for [one, other] in [names, ["log2", "log"]] {
                swap(&at.a(one), &at.a(other)).ok();
            }
            swaps.did_one();
        }
    });
    let (written, appended) = ([1, 2].map(|part| race.count(part) as u32), race.count(3) as u32);
    println!("{} swaps of each pair beside {written:?} writes and {appended} appends", race.count(0));
    for dir in at.both() {
        let both = names.map(|name| fs::read(dir.join(name)).unwrap());
        for (who, count) in written.iter().enumerate() {
            for n in 0..*count {
                let (record, place) = (n * 2 + who as u32 + 1, (n as usize * 2 + who) * PAGE);
                let found = |data: &Vec<u8>| {
                    let bytes = data.get(place..place + 12)?;
                    Some([0, 4, 8].map(|i| u32::from_le_bytes(bytes[i..i + 4].try_into().unwrap())))
                        .filter(|w| *w != [0; 3])
                };
                let found: Vec<_> = both.iter().filter_map(found).collect();
                assert_eq!(found, [[record; 3]], "write {n} of {who}, seen in {}", dir.display());
            }
        }
        let mut logged: Vec<u32> = Vec::new();
        for name in ["log", "log2"] {
            let data = fs::read(dir.join(name)).unwrap();
            let numbers: Vec<u32> = data.chunks(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect();
            assert!(numbers.is_sorted(), "{name} is in order");
            logged.extend(numbers);
        }
        logged.sort_unstable();
        assert!(logged.into_iter().eq(0..appended), "every append is in one of the two, once");
    }
    for name in names.into_iter().chain(["log", "log2"]) {
        fs::remove_file(at.a(name)).unwrap();
    }
    expect_stored_objects(&two.fs.dir(), 0);
}

/// Swaps two files again and again while `work` runs. The swaps are part 0 of the race.
fn swapping(race: &Race, one: &Path, other: &Path, work: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let swaps = race.party(0);
        scope.spawn(work);
        while swaps.goes_on() {
            swap(one, other).ok();
            swaps.did_one();
        }
    });
}

#[test]
fn striped_write_during_swaps_is_whole_in_one_file() {
    const SWAPS: u64 = 8;
    /// Range for each of the writers. Each write has an offset and a byte of its own, other than 0.
    const WRITES: RangeInclusive<u64> = 10..=80;
    const WRITE_PAUSE: Duration = Duration::from_millis(10);
    let (_two, at) = two_mounts!(LIMIT, "d");
    let (one, other) = (at.a("one"), at.a("other"));
    setstripe("-c 4 -S 64K", &one);
    setstripe("-E 64K -L mdt -E -1 -C 7 -S 64K", &other);
    // Large writes, which go to the OSTs at once, and small ones, which stay dirty for a while.
    for (len, name) in [(700_000, "large"), (150_000, "small")] {
        fs::write(&one, "").unwrap();
        fs::write(&other, "").unwrap();
        let files = [rw(&at.a("one")), rw(&at.b("one"))];
        let race = Race::new([at_least(SWAPS), WRITES, WRITES]);
        let write = |who: usize| {
            let writes = race.party(1 + who);
            while writes.goes_on() {
                let n = writes.count() as usize;
                let record = vec![(n * 2 + who) as u8 + 1; len];
                files[who].write_all_at(&record, ((n * 2 + who) * len) as u64).unwrap();
                writes.did_one();
                let_pass(WRITE_PAUSE);
            }
        };
        swapping(&race, &one, &other, || {
            thread::scope(|scope| {
                scope.spawn(|| write(0));
                scope.spawn(|| write(1));
            });
        });
        let written = [1, 2].map(|part| race.count(part) as usize);
        println!("{name}: {} swaps beside {written:?} writes", race.count(0));
        for dir in at.both() {
            let data = ["one", "other"].map(|file| fs::read(dir.join(file)).unwrap());
            for (who, n) in [0, 1].into_iter().flat_map(|who| (0..written[who]).map(move |n| (who, n))) {
                let (byte, start) = ((n * 2 + who) as u8 + 1, (n * 2 + who) * len);
                let found = data.each_ref().map(|data| {
                    let part = &data[start.min(data.len())..(start + len).min(data.len())];
                    (
                        part.iter().filter(|b| **b == byte).count(),
                        part.iter().filter(|b| **b != 0 && **b != byte).count(),
                    )
                });
                let whole = [[(len, 0), (0, 0)], [(0, 0), (len, 0)]];
                assert!(whole.contains(&found), "{name} write {n} of {who}, seen in {}: {found:?}", dir.display());
            }
        }
    }
}

#[test]
fn punch_or_truncate_during_swaps_applies_to_one_whole_file() {
    const PIECE: usize = 250_000;
    const PIECES: u64 = 60;
    const SWAPS_BESIDE_HOLES: u64 = 5;
    /// A swap that meets a reader may take 2 s (docs/roadmap.md), and the files are read after each
    /// truncate.
    const SWAPS_BESIDE_CUTS: u64 = 3;
    const HOLE_PAUSE: Duration = Duration::from_millis(60);
    let (_two, at) = two_mounts!(LIMIT, "d");
    let (one, other) = (at.a("one"), at.a("other"));
    setstripe("-c 4 -S 64K", &one);
    setstripe("-E 64K -L mdt -E -1 -C 7 -S 64K", &other);
    let full = vec![7u8; PIECE * PIECES as usize];
    let fill = || {
        fs::write(&one, &full).unwrap();
        fs::write(&other, &full).unwrap();
    };
    let see = |what: &str, check: &dyn Fn([&[u8]; 2])| {
        for dir in at.both() {
            println!("{what} as seen in {}", dir.display());
            let data = ["one", "other"].map(|file| fs::read(dir.join(file)).unwrap());
            check(data.each_ref().map(|d| &d[..]));
        }
    };
    fill();
    let file = rw(&at.b("one"));
    let race = Race::new([at_least(SWAPS_BESIDE_HOLES), 6..=PIECES]);
    swapping(&race, &one, &other, || {
        let holes = race.party(1);
        while holes.goes_on() {
            let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&file, flags, holes.count() * PIECE as u64, PIECE as u64).unwrap();
            holes.did_one();
            let_pass(HOLE_PAUSE);
        }
    });
    let holes = race.count(1) as usize;
    println!("{} swaps beside {holes} holes", race.count(0));
    see("holes", &|data| {
        for n in 0..holes {
            let full = data.map(|d| d[n * PIECE..(n + 1) * PIECE].iter().filter(|b| **b == 7).count());
            assert!([[0, PIECE], [PIECE, 0]].contains(&full), "hole {n}: {full:?}");
        }
    });
    fill();
    let mut sizes = Vec::new();
    let race = Race::new([at_least(SWAPS_BESIDE_CUTS), 3..=PIECES - 1]);
    swapping(&race, &one, &other, || {
        let cuts = race.party(1);
        while cuts.goes_on() {
            let n = cuts.count() as usize + 1;
            sizes.push(full.len() - n * PIECE);
            file.set_len(sizes[n - 1] as u64).unwrap();
            // Each size is smaller than both files were, so that there is never a hole.
            for name in ["one", "other"] {
                // A read while a swap makes the file longer may see an older page. The truncate
                // stays.
                eventually(format!("cut {n}: {name} is whole"), || {
                    fs::read(at.a(name)).is_ok_and(|data| data == full[..data.len()])
                });
            }
            cuts.did_one();
        }
    });
    println!("{} swaps beside {} cuts", race.count(0), race.count(1));
    see("cuts", &|data| {
        assert!(data.iter().any(|d| d.len() == sizes[sizes.len() - 1]), "the last cut is made");
        assert!(data.iter().all(|d| d.len() == full.len() || sizes.contains(&d.len())), "no other size exists");
    });
}

#[test]
fn swap_exchanges_dom_data() {
    const DOM: &str = "-E 64K -L mdt -E -1 -c 2 -S 64K";
    let (_two, at) = two_mounts!(LIMIT, "d");
    for (n, (layouts, sizes)) in [
        ([DOM, DOM], [3000, 10_000]),
        ([DOM, DOM], [3000, 400_000]),
        ([DOM, "-c 2"], [3000, 300_000]),
        ([DOM, "-c 1"], [500_000, 100]),
        ([DOM, DOM], [0, 5000]),
    ]
    .into_iter()
    .enumerate()
    {
        let names = [format!("one{n}"), format!("other{n}")];
        let mut data: Vec<Vec<u8>> = sizes.iter().map(|len| noise(n as u64 + *len as u64, *len)).collect();
        for i in 0..2 {
            setstripe(layouts[i], &at.a(&names[i]));
            fs::write(at.a(&names[i]), &data[i]).unwrap();
            assert!(fs::read(at.b(&names[i])).unwrap() == data[i]);
        }
        let open: Vec<File> = names.iter().map(|name| rw(&at.b(name))).collect();
        for round in 0..3 {
            swap(&at.a(&names[0]), &at.a(&names[1])).ok();
            data.swap(0, 1);
            for i in 0..2 {
                let what = format!("{n}, {round}, {i}");
                assert_eq!(fs::metadata(at.b(&names[i])).unwrap().len(), data[i].len() as u64, "{what}");
                assert!(fs::read(at.b(&names[i])).unwrap() == data[i], "{what}");
                assert!(fs::read(at.a(&names[i])).unwrap() == data[i], "{what}, on the mount that swapped");
                // Through a descriptor that was open before the swap.
                open[i].write_all_at(&[round + 1; 70_000], 20).unwrap();
                let len = data[i].len().max(70_020);
                data[i].resize(len, 0);
                data[i][20..70_020].fill(round + 1);
                assert!(fs::read(at.a(&names[i])).unwrap() == data[i], "{what}, written");
            }
        }
    }
}

#[test]
fn refused_swaps_change_nothing() {
    let (two, at) = two_mounts!(LIMIT, "d");
    for (name, options) in [("one", "-c 1"), ("other", "-c 2"), ("theirs", "-c 1")] {
        setstripe(options, &at.a(name));
        fs::write(at.a(name), name).unwrap();
    }
    let both = |one: &Path, other: &Path, code: i32, what: &str| {
        for (one, other) in [(one, other), (other, one)] {
            let ran = swap(one, other);
            assert!(ran.code == code && ran.err.contains(what), "{} {}: {ran:?}", one.display(), other.display());
        }
    };
    let cannot = "cannot swap layout between";
    both(&at.a("one"), &at.a, 21, "for write: Is a directory");
    both(&at.a("one"), &at.a("none"), 2, "for write: No such file or directory");
    both(&at.a("one"), &at.b("other"), 18, cannot);
    let outside = two.fs.dir().parent().unwrap().join("outside");
    fs::write(&outside, "x").unwrap();
    both(&at.a("one"), &outside, 25, cannot);
    assert_eq!(swap(&at.a("one"), &at.a("one")).ok(), "", "nothing to be done, as in Lustre");
    if is_root() {
        std::os::unix::fs::chown(at.a("theirs"), Some(65_534), Some(65_534)).unwrap();
        both(&at.a("one"), &at.a("theirs"), 1, cannot);
        let (lfs, theirs) = (sheen(), at.a("theirs"));
        let script = format!("{} lfs swap_layouts {} {}", lfs.display(), theirs.display(), at.a("one").display());
        let ran = run_within(as_nobody(&script), COMMAND_MAX);
        assert!(ran.code == 13 && ran.err.contains("for write: Permission denied"), "{ran:?}");
    }
    for name in ["one", "other", "theirs"] {
        assert_eq!(fs::read(at.b(name)).unwrap(), name.as_bytes());
    }
    assert_eq!([osts(&at.a("one")).len(), osts(&at.a("other")).len()], [1, 2]);
    // Set-user-id and set-group-id bits do not prevent a swap.
    fs::set_permissions(at.a("one"), PermissionsExt::from_mode(0o6755)).unwrap();
    swap(&at.a("one"), &at.a("other")).ok();
    assert_eq!(fs::read(at.b("one")).unwrap(), b"other");
}

#[test]
fn swaps_lose_nothing_when_servers_are_killed() {
    let Some(mut cluster) = Cluster::start_or_skip() else { return };
    let (mount, other) = (cluster.mount(), cluster.mount_as("other"));
    let data: Vec<Vec<u8>> = (0..4).map(|n| noise(n, M + n as usize)).collect();
    let name = |n: usize| format!("f{n}");
    for (n, data) in data.iter().enumerate() {
        setstripe(
            ["-E 64K -L mdt -E -1 -c 1", "-c 2 -S 64K", "-E 512K -c 1 -E -1 -c 2", "-c 2"][n],
            &mount.path(&name(n)),
        );
        let file = rw(&mount.path(&name(n)));
        file.write_all_at(data, 0).unwrap();
        file.sync_all().unwrap();
    }
    let (written, _) = stored_objects(&cluster.base);
    assert!(written > 4);
    // This mount has cached the layouts since before all swaps.
    let mut open: Vec<File> = (0..4).map(|n| rw(&other.path(&name(n)))).collect();
    let whole = |file: &File| {
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    open.iter().enumerate().for_each(|(n, file)| assert!(whole(file) == data[n]));
    let paths: Vec<PathBuf> = (0..4).map(|n| mount.path(&name(n))).collect();
    let (mut odd, mut counts) = ([false; 2], BTreeMap::new());
    while_killed(&mut cluster, &["mds", "oss", "mds", "oss", "mds", "mds"], |n| {
        let pair = n % 2;
        let code = swap(&paths[pair * 2], &paths[pair * 2 + 1]).code;
        odd[pair] ^= code == 0;
        *counts.entry(code).or_insert(0) += 1;
        code == 0
    });
    println!("results: {counts:?}");
    let mut want = data;
    for (pair, odd) in odd.into_iter().enumerate() {
        if odd {
            want.swap(pair * 2, pair * 2 + 1);
        }
    }
    for n in 0..4 {
        assert!(whole(&open[n]) == want[n], "file {n} through a descriptor that was open all the time");
        open[n].write_all_at(b"new", 5).unwrap();
        open[n].flush().unwrap();
        want[n][5..8].copy_from_slice(b"new");
        assert!(fs::read(mount.path(&name(n))).unwrap() == want[n], "file {n} here");
        assert!(fs::read(other.path(&name(n))).unwrap() == want[n], "file {n} there");
    }
    // Neither former names of objects are left, nor those of swaps that failed.
    expect_stored_objects(&cluster.base, written);
}

#[test]
fn dirty_data_of_a_swapped_file_survives_an_ost_restart() {
    let Some(mut cluster) = Cluster::start_or_skip() else { return };
    let (mount, other) = (cluster.mount(), cluster.mount_as("other"));
    let paths = ["one", "other"].map(|name| mount.path(name));
    setstripe("-c 1 -i 0", &paths[0]);
    setstripe("-c 1 -i 0", &paths[1]);
    fs::write(&paths[0], vec![0; M]).unwrap();
    fs::write(&paths[1], vec![0; M]).unwrap();
    for round in 1..9u8 {
        let file = rw(&other.path("one"));
        for at in 0..100 {
            file.write_all_at(&[round; 100], at * 4096).unwrap();
        }
        cluster.kill("oss");
        cluster.spawn("oss");
        // The flush may come before the swap or after it.
        swap(&paths[0], &paths[1]).ok();
        file.sync_all().unwrap();
        for at in 0..100 {
            let mut found = [[0; 100]; 2];
            for (n, path) in paths.iter().enumerate() {
                File::open(path).unwrap().read_exact_at(&mut found[n], at * 4096).unwrap();
            }
            assert!(found.contains(&[round; 100]), "round {round}, {at}: {:?}", found.map(|f| f[0]));
        }
    }
}
