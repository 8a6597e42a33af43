//! `lfs swap_layouts` of mirrored files: all mirrors are exchanged in one step, while no other
//! program has either file open.

use std::{
    fs::{self, File},
    ops::RangeInclusive,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    thread,
    time::Duration,
};

use sheen_tests::{
    Ran,
    cluster::Cluster,
    noise,
    posix::{Map, layout, rw},
    progress::{Race, at_least},
    relayout::{expect_stored_objects, fresh, lfs, swap, while_killed},
    two_mounts,
    wait::let_pass,
};

const LIMIT: Duration = Duration::from_secs(580);
const M: usize = 1 << 20;
const MIRRORS: [&str; 3] =
    ["-N -c 2 -S 64K -N -c 1", "-N -E 64K -L mdt -E -1 -c 1 -N -c 4 -S 64K", "-N -c 1 -N -E 64K -L mdt -E -1 -c 2"];

/// Resyncs all mirrors, and asserts that they hold the file's bytes.
fn expect_mirrors(path: &Path, data: &[u8]) {
    lfs("mirror resync", path);
    assert_eq!(fresh(path), if layout(path).is_mirrored() { layout(path).mirror_ids() } else { Vec::new() });
    lfs("mirror verify", path).ok();
    assert!(fs::read(path).unwrap() == data, "{}", path.display());
}

#[test]
fn swap_exchanges_mirrors_with_their_states() {
    let (two, at) = two_mounts!(LIMIT, "d");
    let names = ["one", "other", "plain"];
    let mut data = [noise(1, 2 * M + 77), noise(2, 3901), noise(3, M)];
    for (name, options) in names.into_iter().zip(["mirror create -N -c 2 -S 64K -N -c 1", "", "setstripe -c 3"]) {
        let options = if options.is_empty() { format!("mirror create {}", MIRRORS[1]) } else { options.to_owned() };
        lfs(&options, &at.a(name)).ok();
    }
    for (name, data) in names.into_iter().zip(&data) {
        fs::write(at.b(name), data).unwrap();
    }
    // One file has all mirrors up to date, one has a stale mirror.
    lfs("mirror resync", &at.a("one")).ok();
    let state = |name: &str| (layout(&at.b(name)).mirrors().len(), fresh(&at.b(name)).len());
    assert_eq!(names.map(state), [(2, 2), (2, 1), (0, 0)]);
    let mut states = names.map(state);
    let when = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    let times = names.map(|name| when(&at.b(name)));
    for (n, m) in [(0, 1), (1, 2), (2, 0), (0, 1), (0, 2), (1, 0)] {
        for name in names {
            fs::read(at.b(name)).unwrap(); // so that the other mount caches it
        }
        assert_eq!(swap(&at.a(names[n]), &at.a(names[m])).ok(), "");
        data.swap(n, m);
        states.swap(n, m);
        assert_eq!(names.map(state), states);
        for (i, name) in names.into_iter().enumerate() {
            for path in [at.a(name), at.b(name)] {
                assert!(fs::read(&path).unwrap() == data[i], "{n} {m}: {}", path.display());
                assert_eq!((fs::metadata(&path).unwrap().len(), when(&path)), (data[i].len() as u64, times[i]));
            }
        }
    }
    // Writes and resyncs of the mirrors work as before.
    for (i, name) in names.into_iter().enumerate() {
        rw(&at.b(name)).write_all_at(b"changed", 100).unwrap();
        data[i][100..107].copy_from_slice(b"changed");
        assert!(fs::read(at.a(name)).unwrap() == data[i]);
        expect_mirrors(&at.a(name), &data[i]);
        fs::remove_file(at.b(name)).unwrap();
    }
    expect_stored_objects(&two.fs.dir(), 0);
}

#[test]
fn swap_of_mirrored_files_is_refused_while_one_is_open() {
    let (_two, at) = two_mounts!(LIMIT, "d");
    lfs(&format!("mirror create {}", MIRRORS[0]), &at.a("one")).ok();
    lfs("setstripe -c 2", &at.a("other")).ok();
    fs::write(at.a("one"), "one").unwrap();
    fs::write(at.b("other"), "other").unwrap();
    let refused = |what: &str| {
        let Ran { code, err, .. } = swap(&at.a("one"), &at.a("other"));
        assert!(code == 16 && err.contains("one' is mirrored, and one file is open elsewhere"), "{what}: {err}");
        for dir in at.both() {
            assert_eq!(fs::read(dir.join("one")).unwrap(), b"one", "{what}");
            assert_eq!(fs::read(dir.join("other")).unwrap(), b"other", "{what}");
        }
    };
    for (what, path) in [
        ("the mirrored one, there", at.b("one")),
        ("the other, there", at.b("other")),
        ("the mirrored one, here", at.a("one")),
        ("the other, here", at.a("other")),
    ] {
        let open = rw(&path);
        refused(what);
        // A mapping stays when the file is closed.
        let map = Map::new(&open, 4096);
        drop(open);
        refused(what);
        drop(map);
    }
    swap(&at.a("one"), &at.a("other")).ok();
    for dir in at.both() {
        assert_eq!(fs::read(dir.join("one")).unwrap(), b"other");
        assert_eq!(fs::read(dir.join("other")).unwrap(), b"one");
    }
    assert!(layout(&at.b("other")).is_mirrored() && !layout(&at.b("one")).is_mirrored());
}

/// Programs on both mounts open, write and close. Each record is in exactly one of the two files.
#[test]
fn each_write_between_mirrored_swaps_is_in_exactly_one_file() {
    // Length of a record: over several objects of one mirror. Each record has an offset of its own.
    const LEN: usize = 130_000;
    const STEP: usize = 128 << 10;
    /// Minimum of completed swaps. Writers that are ahead wait with no file open, so that swaps
    /// complete.
    const SWAPS: u64 = 6;
    /// Range for each of the writers. Each write has an offset of its own.
    const WRITES: RangeInclusive<u64> = 24..=240;
    const WRITE_PAUSE: Duration = Duration::from_millis(10);
    let (two, at) = two_mounts!(LIMIT, "d");
    let names = ["one", "other"];
    for (name, options) in names.into_iter().zip(MIRRORS) {
        lfs(&format!("mirror create {options}"), &at.a(name)).ok();
    }
    let (race, mut refused) = (Race::new([at_least(SWAPS), WRITES, WRITES]), 0);
    thread::scope(|scope| {
        for (who, dir) in at.both().into_iter().enumerate() {
            let writes = race.party(1 + who);
            scope.spawn(move || {
                while writes.goes_on() {
                    let n = writes.count() as usize;
                    let record = vec![(n * 2 + who) as u8 | 1; LEN];
                    let file = rw(&dir.join(names[(n / 3) % 2]));
                    file.write_all_at(&record, ((n * 2 + who) * STEP) as u64).unwrap();
                    drop(file);
                    writes.did_one();
                    let_pass(WRITE_PAUSE);
                }
            });
        }
        let swaps = race.party(0);
        while swaps.goes_on() {
            let ran = swap(&at.a("one"), &at.a("other"));
            assert!(matches!(ran.code, 0 | 16), "{ran:?}");
            if ran.code == 0 {
                swaps.did_one();
            } else {
                refused += 1;
            }
            if swaps.count() % 4 == 3 {
                lfs("mirror resync", &at.b("one"));
            }
        }
    });
    let written = [1, 2].map(|part| race.count(part) as usize);
    println!("{} swaps, {refused} refused, beside {written:?} writes", race.count(0));
    for dir in at.both() {
        let both = names.map(|name| fs::read(dir.join(name)).unwrap());
        for (who, count) in written.iter().enumerate() {
            for n in 0..*count {
                let (byte, place) = ((n * 2 + who) as u8 | 1, (n * 2 + who) * STEP);
                let found = |data: &Vec<u8>| {
                    let end = data.len().min(place + LEN);
                    let bytes = data.get(place..end).unwrap_or_default();
                    (bytes.iter().filter(|b| **b == byte).count(), bytes.iter().filter(|b| **b != 0).count())
                };
                let mut found: Vec<_> = both.iter().map(found).collect();
                found.sort_unstable();
                assert_eq!(found, [(0, 0), (LEN, LEN)], "write {n} of {who}, seen in {}", dir.display());
            }
        }
    }
    for name in names {
        expect_mirrors(&at.a(name), &fs::read(at.b(name)).unwrap());
        fs::remove_file(at.a(name)).unwrap();
    }
    expect_stored_objects(&two.fs.dir(), 0);
}

#[test]
fn mirrored_swaps_lose_nothing_when_servers_are_killed() {
    let Some(mut cluster) = Cluster::start_or_skip() else { return };
    let (mount, other) = (cluster.mount(), cluster.mount_as("other"));
    let data = [noise(1, 2 * M), noise(2, 300_000)];
    let paths = ["one", "two"].map(|name| mount.path(name));
    for ((path, data), options) in paths.iter().zip(&data).zip(["-N -c 1 -N -c 2 -S 64K", MIRRORS[2]]) {
        lfs(&format!("mirror create {options}"), path).ok();
        fs::write(path, data).unwrap();
        File::open(path).unwrap().sync_all().unwrap();
        lfs("mirror resync", path).ok();
    }
    let step = |_| swap(&paths[0], &paths[1]).code == 0;
    let (done, failed) = while_killed(&mut cluster, &["mds", "oss", "mds", "mds"], step);
    println!("{done} swaps, {failed} failed");
    // The files are swapped or not, and the same on both mounts.
    let is_first = fs::metadata(&paths[0]).unwrap().size() == data[0].len() as u64;
    let now = if is_first { [&data[0], &data[1]] } else { [&data[1], &data[0]] };
    for (path, now) in paths.iter().zip(now) {
        let there = other.path(path.file_name().unwrap().to_str().unwrap());
        assert!(fs::read(&there).unwrap() == *now && fs::read(path).unwrap() == *now);
        assert_eq!(fresh(path), [1, 2], "both are up to date");
        expect_mirrors(path, now);
    }
}
