//! `lfs migrate` of mirrored files, and to mirrored layouts. It copies mirrors that are up to date
//! and drops stale ones. Programs that use the file on this or another mount do not notice.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    ops::RangeInclusive,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use rustix::fs::{XattrFlags, setxattr};
use sheen_layout::{Mark, flags};
use sheen_tests::{
    can_mount, noise,
    posix::{layout, rw},
    progress::{Race, at_least},
    relayout::{
        BusyWriters, COMMAND_MAX, FilesOfKilledServers, OpenDescriptors, expect_stored_objects, fresh, lfs, migrate,
        objects,
    },
    run_within, sheen, two_mounts,
};

const LIMIT: Duration = Duration::from_secs(580);
const M: usize = 1 << 20;
/// Layouts to which files are migrated in turn, with mirrors and without.
const LAYOUTS: [&str; 6] = [
    "-N -c 2 -S 64K -N -E 1M -c 1 -E -1 -c 2",
    "-c 3 -S 128K",
    "-N2 -c 1",
    "-E 64K -L mdt -E -1 -c 2",
    "-N -E 64K -L mdt -E -1 -c 1 -N -c 4 -S 64K",
    "-N -c 1 -N -E 64K -L mdt -E -1 -c 2 -N -c 2",
];

/// Asserts that every mirror is up to date and holds the file's bytes.
fn expect_mirrors(path: &Path, data: &[u8]) {
    let ids = layout(path).mirror_ids();
    assert_eq!(fresh(path), ids);
    lfs("mirror verify", path).ok();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("mirror");
    for id in ids {
        lfs(&format!("mirror read -N {id} -o {}", out.display()), path).ok();
        let read = fs::read(&out).unwrap();
        fs::remove_file(&out).unwrap();
        assert!(read == data, "mirror {id} of {}", path.display());
    }
}

#[test]
fn migrate_gives_mirrored_files_the_requested_layout() {
    let (two, at) = two_mounts!(LIMIT, "d");
    let path = at.a("f");
    let stat = |path: &Path| {
        let m = fs::metadata(path).unwrap();
        (m.ino(), m.mode(), m.nlink(), m.len(), m.mtime(), m.mtime_nsec())
    };
    lfs("mirror create -N -c 1 -N -c 2 -S 64K", &path).ok();
    for (n, options) in LAYOUTS.into_iter().chain([""]).cycle().take(14).enumerate() {
        let was = layout(&path).mirrors().len();
        // In turn: all mirrors are up to date; only one is, and the others are stale.
        let mut data = noise(n as u64, M + 4321 * n);
        fs::write(&path, &data).unwrap();
        if was > 0 {
            lfs("mirror resync", &path).ok();
        }
        if n % 2 == 1 {
            data[70_000..80_000].fill(n as u8);
            rw(&at.b("f")).write_all_at(&data[70_000..80_000], 70_000).unwrap();
            assert!(was == 0 || fresh(&path).len() == 1);
        }
        let before = (stat(&path), objects(&path));
        assert!(fs::read(at.b("f")).unwrap() == data);
        assert_eq!(migrate(options, &path).ok(), "");
        for look in [&path, &at.b("f")] {
            assert_eq!(stat(look), before.0, "{n}: {options}");
            assert!(fs::read(look).unwrap() == data, "{n}: {options}: {}", look.display());
            assert!(objects(look).iter().all(|object| !before.1.contains(object)), "{n}: {options}");
        }
        // Without options the number of mirrors stays.
        let mirrors = options.matches("-N").count() + usize::from(options.contains("-N2"));
        assert_eq!(layout(&path).mirrors().len(), if options.is_empty() { was } else { mirrors }, "{n}: {options}");
        if mirrors > 0 {
            expect_mirrors(&at.b("f"), &data);
        }
    }
    fs::remove_file(&path).unwrap();
    expect_stored_objects(&two.fs.dir(), 0);
}

#[test]
fn migrate_to_mirrors_accepts_empty_and_sparse_files() {
    let (_two, at) = two_mounts!(LIMIT, "d");
    let (empty, sparse) = (at.a("empty"), at.a("sparse"));
    for path in [&empty, &sparse] {
        lfs("mirror create -N2 -c 1", path).ok();
    }
    let file = rw(&sparse);
    file.write_all_at(b"x", 40 * M as u64).unwrap();
    file.set_len(90 * M as u64).unwrap();
    for options in ["-N -c 1 -N -c 2", "--block -c 2", "-N -E 64K -L mdt -E -1 -c 1 -N -c 2", "--checksum -N2 -c 1"] {
        let mut command = Command::new(sheen());
        command.args(["lfs", "migrate"]).args(options.split_whitespace()).args([&empty, &sparse]);
        run_within(command, COMMAND_MAX).ok();
        assert_eq!(fs::metadata(at.b("empty")).unwrap().len(), 0, "{options}");
        let sparse = fs::metadata(at.b("sparse")).unwrap();
        assert_eq!(sparse.len(), 90 * M as u64);
        assert!(sparse.blocks() * 512 < 2 * M as u64, "{options}: {} blocks", sparse.blocks());
        let mut byte = [0];
        File::open(at.b("sparse")).unwrap().read_exact_at(&mut byte, 40 * M as u64).unwrap();
        assert_eq!(byte, *b"x", "{options}");
    }
    fs::write(at.b("empty"), "not any more").unwrap();
    assert_eq!(fs::read(at.a("empty")).unwrap(), b"not any more");
}

#[test]
fn open_descriptors_elsewhere_survive_mirrored_migrations() {
    let (_two, at) = two_mounts!(LIMIT, "d");
    let (data, path) = (noise(3, 3 * M), at.a("f"));
    lfs("mirror create -N -c 4 -S 128K -N -c 2 -S 64K", &path).ok();
    fs::write(&path, &data).unwrap();
    lfs("mirror resync", &path).ok();
    OpenDescriptors::open(&at, data).survive_migrations(LAYOUTS.into_iter().cycle().skip(1).take(7));
}

#[test]
fn no_write_is_lost_while_migrations_add_and_remove_mirrors() {
    let (_two, at) = two_mounts!(LIMIT, "d");
    for name in ["f", "log"] {
        lfs("mirror create -N -c 2 -S 64K -N -c 1", &at.a(name)).ok();
    }
    let mut behind = 0;
    let busy = BusyWriters { at: &at, pauses: [300, 20].map(Duration::from_millis) };
    busy.during_migrations(&LAYOUTS, |ran| {
        let is_behind = ran.code == 16 && ran.err.contains("its mirrors are not up to date: Device or resource busy");
        behind += u32::from(is_behind);
        ran.code == 0 || is_behind
    });
    println!("{behind} migrations whose mirrors were not resynced");
    for name in ["f", "log"] {
        migrate(LAYOUTS[0], &at.a(name)).ok();
        expect_mirrors(&at.a(name), &fs::read(at.b(name)).unwrap());
    }
}

/// Another tool resyncs mirrors while the file is migrated.
#[test]
fn resync_during_migrate_leaves_correct_mirrors() {
    /// Minimum number of completed migrations.
    const MIGRATIONS: u64 = 5;
    /// Resyncs, completed or not. The maximum keeps them from making all migrations fail.
    const RESYNCS: RangeInclusive<u64> = 5..=100;
    let (_two, at) = two_mounts!(LIMIT, "d");
    let path = at.a("f");
    lfs("mirror create -N -c 2 -S 64K -N -c 1", &path).ok();
    let mut data = noise(5, 2 * M);
    fs::write(&path, &data).unwrap();
    let (race, mut n) = (Race::new([at_least(MIGRATIONS), RESYNCS]), 0u8);
    thread::scope(|scope| {
        let (resyncs, b) = (race.party(1), at.b("f"));
        scope.spawn(move || {
            let mut synced = 0;
            while resyncs.goes_on() {
                let ran = lfs("mirror resync", &b);
                // Done; busy because another tool changes the mirrors; or the mirrors that it chose
                // were deleted.
                assert!(matches!(ran.code, 0 | 16 | 22), "{ran:?}");
                synced += u32::from(ran.code == 0);
                resyncs.did_one();
            }
            println!("{synced} of {} resyncs done", resyncs.count());
        });
        let migrations = race.party(0);
        for options in [LAYOUTS[0], LAYOUTS[2], LAYOUTS[4]].iter().cycle().take_while(|_| migrations.goes_on()) {
            let ran = migrate(options, &path);
            assert!(matches!(ran.code, 0 | 16 | 22), "{ran:?}");
            n = n.wrapping_add(1);
            data[100..200].fill(n);
            rw(&path).write_all_at(&data[100..200], 100).unwrap();
            assert!(fs::read(at.b("f")).unwrap() == data);
            if ran.code == 0 {
                migrations.did_one();
            }
        }
    });
    println!("{} migrations", race.count(0));
    lfs("mirror resync", &path).ok();
    expect_mirrors(&path, &data);
}

/// No data is written, but another mirror is the only one up to date when the copy is ready.
#[test]
fn migrate_copies_the_mirror_that_is_current_at_its_end() {
    let (_two, at) = two_mounts!(LIMIT, "d");
    let (older, newer) = (noise(1, 3 * M), noise(2, 3 * M));
    // Returns whether the other mirror was chosen during the copy: a slow machine may be too late.
    let chosen_in_between = |name: &str| {
        let path = at.a(name);
        lfs("mirror create -N -c 1 -N -c 1", &path).ok();
        fs::write(&path, &older).unwrap();
        lfs("mirror resync", &path).ok();
        fs::write(&path, &newer).unwrap();
        let mut command = Command::new(sheen());
        // The copy takes 1.5 s. It prints its first line after 1 s.
        command.args(["lfs", "migrate", "-W", "2M", "--stats-interval", "1", "-c", "2"]).arg(&path);
        let mut running = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
        lines.next().expect("it is copying").unwrap();
        // `lfs mirror copy -i 2` begins with this call.
        let mark = |id, negative| Mark { id, flags: flags::STALE, negative };
        let marks = Mark::encode(&[mark(131_074, true), mark(65_537, false)]);
        let marked = setxattr(at.b(name), "lustre.lov.set.flags", &marks, XattrFlags::empty());
        let is_in_between = marked.is_ok();
        assert!(is_in_between || !layout(&path).is_mirrored(), "{marked:?}");
        let holds = if is_in_between { &older } else { &newer };
        assert!(fs::read(at.b(name)).unwrap() == *holds);
        assert!(running.wait().unwrap().success());
        assert!(!layout(&path).is_mirrored());
        for look in [&path, &at.b(name)] {
            assert!(fs::read(look).unwrap() == *holds, "{}", look.display());
        }
        is_in_between
    };
    let mut tries = 1;
    while !chosen_in_between(&format!("f{tries}")) {
        tries += 1;
    }
}

#[test]
fn mirrored_migrations_lose_nothing_when_servers_are_killed() {
    if !can_mount() {
        return println!("skipped: /dev/fuse cannot be opened here");
    }
    let mut files = FilesOfKilledServers::create(3, 2 * M, |path, data| {
        lfs("mirror create -N -c 1 -N -c 2 -S 64K", path).ok();
        fs::write(path, data).unwrap();
        File::open(path).unwrap().sync_all().unwrap();
        lfs("mirror resync", path).ok();
    });
    files.migrate(&["mds", "oss", "mds", "mds"], |n| LAYOUTS[(n % 3 * 2 + n / 3) % LAYOUTS.len()]);
    files.expect_data(|here, there, want| {
        lfs("mirror resync", here);
        if layout(here).is_mirrored() {
            expect_mirrors(there, want);
        }
    });
}
