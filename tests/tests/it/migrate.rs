//! `lfs migrate` moves files to other objects while programs use them on this and other mounts. The
//! programs do not notice.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, SystemTime},
};

use sheen_tests::{
    can_mount,
    cluster::bash,
    noise,
    posix::{layout, rw},
    progress::{Party, Race, at_least},
    relayout::{
        BusyWriters, COMMAND_MAX, FilesOfKilledServers, OpenDescriptors, expect_stored_objects, migrate, objects,
    },
    run_within, sheen, two_mounts,
    wait::let_pass,
};

const LIMIT: Duration = Duration::from_secs(580);
const M: usize = 1 << 20;
/// Layouts to which files are migrated in turn.
const LAYOUTS: [&str; 7] = [
    "-c 1 -S 64K",
    "-E 64K -L mdt -E -1 -c 2",
    "-c 4 -S 128K",
    "-E 1M -c 1 -E -1 -c 2",
    "-E 1M -L mdt -E -1 -c 1",
    "-C 8 -S 64K",
    "-c 2 -S 1M",
];

#[test]
fn migrate_keeps_data_and_attributes_and_replaces_objects() {
    let (_two, at) = two_mounts!(LIMIT, "d");
    let began = SystemTime::now();
    let (data, path) = (noise(1, 5 * M + 4321), at.a("f"));
    fs::write(&path, &data).unwrap();
    fs::hard_link(&path, at.a("other")).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
    bash(&at.a, "touch -d '2021-02-03 04:05:06.789' f && setfattr -n user.k -v v f").ok();
    let stat = |path: &Path| {
        let m = fs::metadata(path).unwrap();
        (m.ino(), m.mode(), m.nlink(), m.uid(), m.gid(), m.len(), m.mtime(), m.mtime_nsec())
    };
    let before = [stat(&path), stat(&at.b("f"))];
    assert_eq!(before[0], before[1]);
    let accessed = || fs::metadata(at.b("f")).unwrap().accessed().unwrap();
    let before_all = accessed();
    migrate("-c 3", &path).ok();
    assert_eq!(accessed(), before_all, "a migration does not move the access time");
    let mut seen = vec![objects(&path)];
    for options in LAYOUTS {
        assert_eq!(migrate(options, &path).ok(), "");
        let now = objects(&at.b("f"));
        assert!(seen.iter().flatten().all(|old| !now.contains(old)), "{options}: {now:?} after {seen:?}");
        seen.push(now);
        for look in [at.b("f"), at.a("f"), at.b("other"), at.a("other")] {
            assert_eq!(stat(&look), before[0], "{options}: {}", look.display());
            assert!(fs::read(&look).unwrap() == data, "{options}: {}", look.display());
        }
    }
    assert_eq!(layout(&path).stripe_count(), 2);
    assert_eq!(bash(&at.b, "getfattr --only-values -n user.k f").ok(), "v");
    // Without options: the same layout, other objects.
    migrate("", &path).ok();
    assert_eq!((layout(&path).stripe_count(), layout(&path).stripe_size()), (2, M as u32));
    // `-A` chooses the stripe count by the file's size.
    migrate("-A", &path).ok();
    assert_eq!((layout(&path).stripe_count(), fs::read(at.b("f")).unwrap() == data), (1, true));
    let refused = migrate("-A -c 2", &path);
    assert!(refused.code == 4 && refused.err.contains("-A chooses stripes by size"), "{refused:?}");
    // A write moves the modification time again.
    fs::write(at.b("f"), "new").unwrap();
    assert!(fs::metadata(&path).unwrap().modified().unwrap() > began);
}

#[test]
fn migrate_frees_the_former_objects() {
    let (two, at) = two_mounts!(LIMIT, "d");
    let path = at.a("f");
    fs::write(&path, noise(2, 8 * M)).unwrap();
    expect_stored_objects(&two.fs.dir(), 4);
    for options in LAYOUTS {
        migrate(options, &path).ok();
    }
    expect_stored_objects(&two.fs.dir(), 2);
}

#[test]
fn open_descriptors_elsewhere_survive_migrations() {
    let (_two, at) = two_mounts!(LIMIT, "d");
    let (data, path) = (noise(3, 3 * M), at.a("f"));
    fs::write(&path, &data).unwrap();
    OpenDescriptors::open(&at, data).survive_migrations(LAYOUTS.into_iter());
}

#[test]
fn no_write_is_lost_while_a_file_is_migrated_repeatedly() {
    let (_two, at) = two_mounts!(LIMIT, "d");
    fs::write(at.a("log"), "").unwrap();
    let busy = BusyWriters { at: &at, pauses: [200, 3].map(Duration::from_millis) };
    busy.during_migrations(&LAYOUTS, |ran| ran.code == 0);
}

#[test]
fn random_operations_beside_migrations_match_a_copy_in_memory() {
    /// Minimum number of completed migrations.
    const MIGRATIONS: u64 = 6;
    const STEPS: u64 = 200;
    let (_two, at) = two_mounts!(LIMIT, "d");
    let path = at.b("f");
    fs::write(at.a("f"), "").unwrap();
    let race = Race::new([at_least(MIGRATIONS), at_least(STEPS)]);
    thread::scope(|scope| {
        let migrations = race.party(0);
        scope.spawn(|| one_program(&path, &race.party(1)));
        for (i, options) in LAYOUTS.iter().cycle().take_while(|_| migrations.goes_on()).enumerate() {
            // Every other migration makes writers wait, so that it completes.
            let ran = migrate(&format!("{} {options}", if i % 2 == 0 { "-b" } else { "-n" }), &at.a("f"));
            assert!(matches!(ran.code, 0 | 16), "{ran:?}");
            if ran.code == 0 {
                migrations.did_one();
            }
        }
    });
    println!("{} steps beside {} migrations", race.count(1), race.count(0));
}

/// A small fsx: performs random operations on the file and on a copy in memory.
fn one_program(path: &Path, party: &Party) {
    const MAX: usize = 700_000;
    let (file, mut model, mut steps) = (rw(path), Vec::<u8>::new(), 0u32);
    let mut state = 88_172_645_463_325_252_u64;
    let mut pick = |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % n as u64) as usize
    };
    while party.goes_on() {
        steps += 1;
        let (at, len) = (pick(MAX), 1 + pick(60_000));
        match pick(10) {
            0..4 => {
                let bytes = vec![steps as u8 | 1; len];
                file.write_all_at(&bytes, at as u64).unwrap();
                model.resize(model.len().max(at + len), 0);
                model[at..at + len].copy_from_slice(&bytes);
            }
            4 => {
                file.set_len(at as u64).unwrap();
                model.resize(at, 0);
            }
            5 => {
                let opened = File::open(path).unwrap();
                assert_eq!(opened.metadata().unwrap().len(), model.len() as u64, "step {steps}");
            }
            6 => file.sync_all().unwrap(),
            7 => assert!(fs::read(path).unwrap() == model, "step {steps}"),
            _ => {
                let mut got = vec![0; len];
                let n = file.read_at(&mut got, at as u64).unwrap();
                let want = model.get(at..(at + len).min(model.len())).unwrap_or_default();
                assert!(got[..n] == want[..n] && n == want.len(), "step {steps}: {n} of {} bytes at {at}", want.len());
            }
        }
        party.did_one();
    }
    assert!(fs::read(path).unwrap() == model, "at the end, after {steps} steps");
}

#[test]
fn writes_wait_for_a_blocking_migrate_and_make_a_nonblocking_one_fail() {
    const WRITE_PAUSE: Duration = Duration::from_millis(10);
    let (_two, at) = two_mounts!(LIMIT, "d");
    let path = at.a("f");
    fs::write(&path, noise(5, 4 * M)).unwrap();
    let file = rw(&at.b("f"));
    let start = |options: &str| {
        let mut command = Command::new(sheen());
        command.args(["lfs", "migrate"]).args(options.split(' ')).args(["-c", "1"]).arg(&path);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let before = objects(&path);
    // The copy takes 2 s. It prints its first line after 1 s, when it has its group lock.
    let mut running = start("--block -W 2M --stats-interval 1");
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
    lines.next().expect("it is copying").unwrap();
    file.write_all_at(b"later", 10).unwrap();
    assert_ne!(objects(&path), before, "the write waited for the end of the migration");
    let ended = running.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_eq!(&fs::read(&path).unwrap()[10..15], b"later");
    let before = objects(&path);
    // Each copy takes 1 s, so that writes happen meanwhile.
    let mut running = start("--non-block -W 4M");
    let mut n = 0u8;
    while running.try_wait().unwrap().is_none() {
        n = n.wrapping_add(1);
        file.write_all_at(&[n], 0).unwrap();
        let_pass(WRITE_PAUSE);
    }
    let ended = running.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(16), "{err}");
    assert_eq!(err, format!("error: lfs migrate: {}: cannot swap layout: Device or resource busy\n", path.display()));
    assert_eq!(objects(&path), before, "the file keeps its objects");
    file.write_all_at(b"fine", 0).unwrap();
    assert_eq!(&fs::read(&path).unwrap()[..4], b"fine");
}

#[test]
fn migrate_keeps_holes_and_accepts_file_lists() {
    let (two, at) = two_mounts!(LIMIT, "d");
    let sparse = rw(&at.a("sparse file"));
    sparse.write_all_at(b"x", 40 * M as u64).unwrap();
    sparse.set_len(90 * M as u64).unwrap();
    for n in 0..5 {
        fs::write(at.a(&format!("f\n{n}")), noise(n, 100_000)).unwrap();
    }
    fs::write(at.a("empty"), "").unwrap();
    bash(&at.a, "mknod never p; rm never").ok();
    let lfs = format!("{} lfs", sheen().display());
    bash(&at.a, &format!("{lfs} find . --type f --print0 | {lfs} migrate -0 --checksum -i 2 -c 1")).ok();
    let found = two.fs.sh(&format!("{lfs} find d --type f ! --ost 2 | wc -l")).ok();
    assert_eq!(found, "0\n");
    for n in 0..5 {
        let path = at.b(&format!("f\n{n}"));
        assert_eq!(objects(&path).iter().map(|o| o.0).collect::<Vec<_>>(), [2]);
        assert!(fs::read(path).unwrap() == noise(n, 100_000));
    }
    let sparse = fs::metadata(at.b("sparse file")).unwrap();
    assert_eq!(sparse.len(), 90 * M as u64);
    assert!(sparse.blocks() * 512 < M as u64, "{} blocks", sparse.blocks());
    assert_eq!(fs::metadata(at.b("empty")).unwrap().len(), 0);
    fs::write(at.b("empty"), "not any more").unwrap();
    assert_eq!(fs::read(at.a("empty")).unwrap(), b"not any more");
}

#[test]
fn migrate_drains_an_inactive_ost() {
    let (two, at) = two_mounts!(LIMIT, "d");
    for n in 0..6 {
        fs::write(at.a(&format!("f{n}")), noise(n, 300_000)).unwrap();
    }
    let lctl = |line: String| {
        run_within(
            {
                let mut command = Command::new(sheen());
                command.arg("lctl").args(line.split(' '));
                command
            },
            COMMAND_MAX,
        )
    };
    lctl(format!("set_param osp.{}-OST0001-osc-MDT0000.active=0", two.fsname)).ok();
    let lfs = format!("{} lfs", sheen().display());
    two.fs.sh(&format!("{lfs} find . --type f --ost 1 --print0 | {lfs} migrate -0")).ok();
    assert_eq!(two.fs.sh(&format!("{lfs} find . --type f --ost 1 | wc -l")).ok(), "0\n");
    for n in 0..6 {
        assert!(fs::read(at.b(&format!("f{n}"))).unwrap() == noise(n, 300_000));
        assert_eq!(layout(&at.b(&format!("f{n}"))).stripe_count(), 3);
    }
}

#[test]
fn migrate_refuses_bad_targets() {
    let (_two, at) = two_mounts!(LIMIT, "d");
    fs::write(at.a("f"), "x").unwrap();
    let before = objects(&at.a("f"));
    for (options, name, code, what) in [
        ("-c 1", ".", 21, "cannot open source file: Is a directory"),
        ("-c 1", "none", 2, "cannot open source file: No such file or directory"),
        ("-o 9", "f", 22, "cannot create volatile file: Invalid argument"),
        ("-p nopool", "f", 22, "f: the pool does not exist or has no OSTs: Invalid argument"),
        ("-E 1M -c 1", "f", 0, ""),
    ] {
        let ran = migrate(options, &at.a(name));
        assert!(ran.code == code && ran.err.contains(what), "{options} {name}: {ran:?}");
        if code != 0 {
            assert_eq!(objects(&at.a("f")), before);
        }
    }
    assert_eq!(fs::read(at.b("f")).unwrap(), b"x");
}

#[test]
fn migrations_lose_nothing_when_servers_are_killed() {
    if !can_mount() {
        return println!("skipped: /dev/fuse cannot be opened here");
    }
    let mut files = FilesOfKilledServers::create(4, 3 * M, |path, data| {
        fs::write(path, data).unwrap();
        File::open(path).unwrap().sync_all().unwrap();
    });
    files.migrate(&["mds", "oss", "mds", "oss"], |n| LAYOUTS[n % 4]);
    files.expect_data(|_, _, _| {});
}
