//! `lfs` commands on mounts that report on files, or that refuse before they change anything. They
//! are data versions, the MDT's sizes, the progress of copies, and layouts that no file can have.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::fs::{FileExt, PermissionsExt},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use sheen_tests::{
    Guarded,
    mounts::{Counts, LIMIT, TwoMounts, between},
    noise,
    posix::{Map, layout, rw},
    progress::{Race, at_least},
    relayout::{lfs, migrate, objects, setstripe, swap},
    run_command, sheen, two_mounts,
    wait::eventually,
};

const M: usize = 1 << 20;

/// Runs `lfs data_version` and returns the version.
#[track_caller]
fn version(options: &str, path: &Path) -> u64 {
    lfs(&format!("data_version {options}"), path).ok().trim().parse().expect("a number")
}

#[test]
fn data_version_changes_with_the_data_and_not_by_reading() {
    let (_two, at) = two_mounts!(LIMIT, "d");
    for (name, options) in [
        ("plain", "-c 1"),
        ("striped", "-c 4 -S 64K"),
        ("dom", "-E 64K -L mdt -E -1 -c 2"),
        ("mirrored", "-N -c 1 -N -c 2"),
    ] {
        let (a, b) = (at.a(name), at.b(name));
        setstripe(options, &a);
        let mut seen = vec![version("", &b)];
        let mut changed = |what: &str, change: &mut dyn FnMut()| {
            change();
            let now = version("", &a);
            assert!(!seen.contains(&now), "{name}: {what}: {now} again, {seen:?}");
            for look in ["", "-n", "-r", "-w", "--nosync", "--read-lock", "--write-lock"] {
                assert_eq!((version(look, &a), version(look, &b)), (now, now), "{name}: {what}, {look}");
            }
            seen.push(now);
        };
        // A write stays dirty in the writer's cache for a while.
        let (one, other) = (rw(&a), rw(&b));
        changed("the first bytes", &mut || one.write_all_at(&noise(1, 200_000), 0).unwrap());
        changed("an overwrite", &mut || other.write_all_at(&noise(2, 200_000), 0).unwrap());
        changed("one more byte", &mut || other.write_all_at(b"x", 200_000).unwrap());
        changed("one byte less", &mut || one.set_len(200_000).unwrap());
        changed("a byte in the middle", &mut || one.write_all_at(b"y", 130_000).unwrap());
        let now = *seen.last().unwrap();
        let mut read = vec![0; 200_000];
        for file in [&one, &other] {
            file.read_exact_at(&mut read, 0).unwrap();
            file.sync_all().unwrap();
        }
        fs::rename(&a, at.a("renamed")).unwrap();
        fs::rename(at.a("renamed"), &a).unwrap();
        fs::set_permissions(&b, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(version("", &a), now, "{name}: no data was written");
    }
}

#[test]
fn data_version_flushes_writers_unless_n_is_given() {
    let (two, at) = two_mounts!(LIMIT, "d");
    setstripe("-c 1", &at.a("f"));
    let file = rw(&at.a("f"));
    file.write_all_at(b"written", 0).unwrap();
    // Returns whether the version is that of the synced data, and how many write requests were
    // sent.
    let asked = |options: &str| {
        let synced = version("", &at.b("f"));
        file.write_all_at(b"more", 0).unwrap();
        let before = two.requests();
        let is_same = version(options, &at.b("f")) == synced;
        let asked = between(&before, &two.requests());
        (is_same, asked.iter().filter(|(name, _)| name.ends_with(" ost_write")).map(|(_, n)| n).sum::<u64>())
    };
    // A mount flushes dirty data by itself after a second. So try again if that happened in
    // between.
    eventually("without a flush no mount writes", || asked("-n") == (true, 0));
    for options in ["-r", "-w"] {
        eventually(format!("with {options} the writer flushes"), || {
            let (is_same, writes) = asked(options);
            assert!(!is_same, "{options}: the version ignores the dirty data");
            writes == 1
        });
    }
}

#[test]
fn a_store_into_a_mapping_changes_the_data_version() {
    let (_two, at) = two_mounts!(LIMIT, "d");
    let path = at.a("f");
    fs::write(&path, [0; 8192]).unwrap();
    let file = rw(&path);
    let map = Map::new(&file, 8192);
    for n in 1..4 {
        let before = version("", &path);
        map.write(n * 1000, &[n as u8]);
        assert_ne!(version("", &path), before, "store {n}");
    }
}

#[test]
fn data_version_of_an_empty_file_is_0_and_of_other_inodes_is_refused() {
    let (_two, at) = two_mounts!(LIMIT, "d");
    setstripe("-c 2", &at.a("new"));
    assert_eq!((version("", &at.a("new")), version("-n", &at.b("new"))), (0, 0));
    for (path, code) in [(at.a("none"), 2), (at.a.clone(), 21), ("/dev/shm".into(), 25), ("/proc/version".into(), 25)] {
        let ran = lfs("data_version", &path);
        assert!(ran.code == code && ran.err.starts_with("lfs data_version: cannot get version for '"), "{ran:?}");
    }
}

#[test]
fn swap_layouts_changes_the_data_versions_of_both_files() {
    let (_two, at) = two_mounts!(LIMIT, "d");
    let (one, other) = (at.a("one"), at.a("other"));
    fs::write(&one, noise(1, 300_000)).unwrap();
    fs::write(&other, noise(2, 300_000)).unwrap();
    let before = [version("", &one), version("", &other)];
    swap(&one, &other).ok();
    assert!(version("", &at.b("one")) != before[0] && version("", &at.b("other")) != before[1]);
}

#[test]
fn getsom_prints_the_size_only_while_the_file_lies_on_the_mdt() {
    let (_two, at) = two_mounts!(LIMIT, "d");
    let (a, b) = (at.a("dom"), at.b("dom"));
    setstripe("-E 64K -L mdt -E -1 -c 1", &a);
    let som = |options: &str| lfs(&format!("getsom {options}"), &b).ok();
    let sizes = || (som("-s"), som("-f"));
    assert_eq!(sizes(), ("0\n".into(), "1\n".into()));
    let file = rw(&a);
    for len in [1u64, 5000, 65_536] {
        file.write_all_at(b"x", len - 1).unwrap();
        assert_eq!(sizes(), (format!("{len}\n"), "1\n".into()), "as soon as it is written elsewhere");
    }
    file.set_len(10).unwrap();
    assert_eq!(sizes().0, "10\n");
    let blocks: u64 = som("-b").trim().parse().unwrap();
    assert_eq!(som(""), format!("file: {} size: 10 blocks: {blocks} flags: 1\n", b.display()));
    // As soon as a byte may be on an OST, the MDT does not know the size any more.
    file.write_all_at(b"x", 65_536).unwrap();
    let refused = lfs("getsom", &b);
    assert!(
        refused.code == 61 && refused.out.is_empty() && refused.err.contains("failed to get som xattr: No data"),
        "{refused:?}"
    );
    fs::write(at.a("plain"), "x").unwrap();
    assert_eq!(lfs("getsom -s", &at.b("plain")).code, 61);
}

/// Returns the requests of the mounts, and the operations that the MDT has counted.
fn all_requests(two: &TwoMounts) -> Counts {
    two.requests().into_iter().chain(two.served()).collect()
}

/// Returns the requests since `before` that create or write something.
fn changes(two: &TwoMounts, before: &Counts) -> Vec<String> {
    let changing = [" create", " ost_write", " ost_punch", " setxattr"];
    let makes = |name: &String| changing.iter().any(|op| name.ends_with(op));
    between(before, &all_requests(two)).into_keys().filter(makes).collect()
}

#[test]
fn migrate_to_a_layout_shorter_than_the_file_fails_and_copies_nothing() {
    let (two, at) = two_mounts!(LIMIT, "d");
    let path = at.a("f");
    fs::write(&path, noise(1, 3 * M + 1)).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    setstripe("-E 2M -c 1", &at.a("ends"));
    let (held, before) = (objects(&path), all_requests(&two));
    let copy = format!("--copy={}", at.a("ends").display());
    for (options, end) in
        [("-E 1M -c 1", M), ("-E 1M -c 1 -E 3M -c 2", 3 * M), (&copy, 2 * M), ("-E 64K -L mdt -E 2M", 2 * M)]
    {
        let ran = migrate(options, &path);
        let said = format!("the layout ends at {end}, the file at {}: end the layout with '-E -1'", 3 * M + 1);
        assert!(ran.code == 61 && ran.err.contains(&said), "{options}: {ran:?}");
    }
    assert_eq!(changes(&two, &before), [""; 0]);
    assert_eq!(objects(&path), held);
    // A layout that ends at or behind the end of the file is accepted. Of a list, the files that
    // fit are migrated.
    migrate("-E 4M -c 1", &path).ok();
    let list = two.fs.mnt.with_extension("list");
    fs::write(&list, format!("{}\n{}\n", path.display(), at.a("small").display())).unwrap();
    fs::write(at.a("small"), "small").unwrap();
    let ran = two.fs.lfs(&format!("migrate -E 1M -c 2 --files-from {}", list.display()));
    fs::remove_file(&list).unwrap();
    assert_eq!((ran.code, layout(&at.b("small")).end()), (61, M as u64), "{}", ran.err);
    assert_eq!(fs::read(at.b("f")).unwrap(), noise(1, 3 * M + 1));
}

/// Without a path `lfs df` asks all mounts of the host.
#[test]
fn df_leaves_out_a_stopped_mount_and_shows_the_others() {
    let two = two_mounts!(LIMIT);
    two.second.freeze();
    let mut command = Command::new(sheen());
    // A limit of 10 s for the other mount.
    command.args(["lfs", "df"]).env("SHEEN_TIMEOUT_FACTOR", "5");
    let ran = run_command(command);
    two.second.resume();
    let silent = format!("'{}' does not answer within 10 s and is left out", two.second.mnt.display());
    assert!(ran.code == 110 && ran.err.contains(&silent), "{ran:?}");
    assert!(ran.out.contains(&format!("{}[MDT:0]", two.fs.mnt.display())), "{ran:?}");
}

#[test]
fn seventeenth_mirror_is_refused() {
    let (two, at) = two_mounts!(LIMIT, "d");
    fs::write(at.a("f"), noise(1, 100_000)).unwrap();
    fs::write(at.a("other"), noise(1, 100_000)).unwrap();
    setstripe("-N2 -c 1", &at.a("two"));
    setstripe("-N16 -c 1", &at.a("full"));
    [at.a("f"), at.a("other")].iter().for_each(|path| File::open(path).unwrap().sync_all().unwrap());
    let before = all_requests(&two);
    for (line, name, code, what) in [
        ("setstripe -N17 -c 1", "new", 1, "at most 16 mirrors; ask for fewer with -N"),
        ("mirror create -N17", "new", 1, "at most 16 mirrors; ask for fewer with -N"),
        ("mirror create -N9 -c 1 -N8 -c 2", "new", 1, "at most 16 mirrors; ask for fewer with -N"),
        ("mirror extend -N16", "f", 22, "at most 16 mirrors, and this one has 1; ask for fewer with -N"),
        ("mirror extend -N15 -c 1", "two", 22, "at most 16 mirrors, and this one has 2; ask for fewer with -N"),
        (
            "mirror extend -N",
            "full",
            22,
            "and this one has 16; ask for fewer with -N, or remove some with 'lfs mirror delete'",
        ),
        ("migrate -N17 -c 1", "f", 22, "at most 16 mirrors; ask for fewer with -N"),
    ] {
        let ran = lfs(line, &at.a(name));
        assert!(ran.code == code && ran.err.contains(what), "{line} {name}: {ran:?}");
    }
    let victim = format!("mirror extend -N -f {}", at.a("other").display());
    let ran = lfs(&victim, &at.a("full"));
    assert!(ran.code == 22 && ran.err.contains("this one has 16"), "{ran:?}");
    assert!(!at.b("new").exists());
    assert_eq!(changes(&two, &before), [""; 0]);
    assert_eq!(layout(&at.b("f")).mirror_ids().len(), 1);
    // 16 mirrors are allowed.
    lfs("mirror extend -N14 -c 1", &at.a("two")).ok();
    assert_eq!(layout(&at.b("two")).mirror_ids().len(), 16);
}

/// Runs `lfs`. Returns the lines of its output, each with the time at which it came, and whether
/// `lfs` succeeded.
fn watched(line: &str, path: &Path) -> (Vec<(Duration, String)>, bool) {
    let mut command = Command::new(sheen());
    command.arg("lfs").args(line.split_whitespace()).arg(path).stdout(Stdio::piped());
    let began = Instant::now();
    let mut child = Guarded(command.spawn().expect("lfs starts"));
    let out = BufReader::new(child.0.stdout.take().expect("a pipe"));
    let lines = out.lines().map(|line| (began.elapsed(), line.expect("a line"))).collect();
    (lines, child.0.wait().expect("lfs ends").success())
}

#[test]
fn copies_print_their_progress_at_the_stats_interval() {
    let (_two, at) = two_mounts!(LIMIT, "d");
    let path = at.a("f");
    let data = noise(1, 12 * M);
    fs::write(&path, &data).unwrap();
    let stale = || fs::write(at.b("f"), &data).unwrap();
    let mut makes_stale: [(&str, &dyn Fn()); 3] = [
        ("migrate -c 2 -W 4 --stats-interval 1", &|| {}),
        ("mirror extend -N -c 1 -W 4 --stats-interval=1", &|| {}),
        ("mirror resync --bandwidth 4 --stats-interval 1", &stale),
    ];
    for (line, before) in &mut makes_stale {
        before();
        let (lines, done) = watched(line, &path);
        assert!(done, "{line}: {lines:?}");
        let [(_, name), rows @ ..] = &lines[..] else { panic!("{line} prints nothing") };
        assert_eq!(*name, format!("{}:", path.display()));
        // The copy takes at least three seconds.
        assert!(rows.len() >= 2, "{line}: {rows:?}");
        let copied = |said: &str| -> u64 {
            let rest = said.split_once("copied: ").unwrap_or_else(|| panic!("{line}: {said}")).1;
            rest.split_once(',').unwrap().0.parse().unwrap()
        };
        assert!(rows.iter().all(|(_, said)| said.starts_with("- { seconds: ") && said.contains(", total: 12, pct: ")));
        assert!(rows.windows(2).all(|two| copied(&two[0].1) <= copied(&two[1].1)), "{line}: {rows:?}");
        assert!(copied(&rows[0].1) < 12 && rows.last().unwrap().1.ends_with("copied: 12, total: 12, pct: 100% }"));
    }
    assert!(fs::read(at.b("f")).unwrap() == data);
    // The default interval is five seconds: for a shorter copy, only its end is printed.
    let (lines, done) = watched("migrate --stats -c 1", &path);
    let [_, meanwhile @ .., (end, _)] = &lines[..] else { panic!("{lines:?}") };
    assert!(done && meanwhile.len() as u64 <= end.as_secs() / 5, "{lines:?}");
}

#[test]
fn getstripe_of_a_new_file_succeeds_while_attributes_change() {
    let (_two, at) = two_mounts!(LIMIT, "d");
    fs::write(at.a("x"), "").unwrap();
    let race = Race::new([at_least(20)]);
    thread::scope(|scope| {
        // Renames make the other mount look the files up again, while their attributes change.
        let others = || {
            let mode = |mode| fs::Permissions::from_mode(mode);
            for n in (0..20).cycle().take_while(|_| race.goes_on()) {
                fs::rename(at.a("x"), at.a("y")).unwrap();
                // The file may not exist yet.
                let _ = fs::set_permissions(at.a(&format!("f{n}")), mode(0o600 | (n % 8)));
                fs::rename(at.a("y"), at.a("x")).unwrap();
            }
        };
        scope.spawn(others);
        let party = race.party(0);
        for n in 0..20 {
            let path = at.b(&format!("f{n}"));
            let refused = lfs("setstripe -i 99", &path);
            let said = format!("lfs setstripe: setstripe error for '{}': Invalid argument\n", path.display());
            assert_eq!((refused.code, refused.err), (22, said));
            assert_eq!(lfs("getstripe", &path).ok(), format!("{} has no stripe info\n", path.display()));
            party.did_one();
        }
    });
}

#[test]
fn migrate_of_a_directory_to_a_missing_mdt_is_refused() {
    let (_two, at) = two_mounts!(LIMIT, "d");
    fs::create_dir(at.a("mgd")).unwrap();
    let path = at.a("mgd");
    let ran = lfs("migrate -m 9", &path);
    let said = format!("lfs migrate: {} migrate failed: No such device (19)\n", path.display());
    assert_eq!((ran.code, ran.err), (19, said));
    assert_eq!(lfs("migrate -v -m 0", &path).ok(), format!("{}\n", path.display()));
    assert_eq!(lfs("migrate -m 0 -c 2", &path).code, 95);
    // Each name has its inode, so rmdir and rm remove it. `lfs rm_entry` is refused.
    for command in ["rm_entry", "rmentry"] {
        let ran = lfs(command, &path);
        assert!(ran.code == 95 && ran.err.contains("use rmdir(1) or rm(1)"), "{ran:?}");
    }
    assert!(at.b("mgd").is_dir());
}
