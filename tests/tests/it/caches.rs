//! Cached state costs no request, and a mount that died or hangs does not block other mounts for
//! long.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    os::unix::fs::{FileExt, PermissionsExt},
    path::Path,
    process::Command,
};

use sheen_tests::{
    is_mounted,
    mounts::{Counts, LIMIT, Two, TwoMounts},
    noise, run_command, sheen,
    tree::{DIRS, FILES, LEN, SHORT, name, plant, read_all, stat_all},
    two_mounts,
    wait::eventually,
};

const SMALL_FILES: usize = 300;
const SMALL_LAYOUTS: [&str; 2] = ["-c 1", "-E 64K -L mdt -E -1 -c 1"];
/// Distance in the listing between the file that B reads and the file that is changed.
const AHEAD: usize = 10;

#[test]
fn a_second_stat_asks_no_server() {
    let two = two_mounts!(LIMIT);
    for at in [two.dir("d"), two.dir("e").swapped()] {
        plant(&two, &at);
        assert!(!two.cost(|| stat_all(&at)).is_empty(), "the first stat sends requests: the counters work");
        two.cost_settles("a second stat sends no request", |_| stat_all(&at), Counts::is_empty);
        // Changes of other files by A do not matter.
        fs::write(at.a("elsewhere"), noise(1, LEN)).unwrap();
        fs::create_dir(at.a("dir")).unwrap();
        fs::rename(at.a("elsewhere"), at.a("dir/f")).unwrap();
        two.cost_settles("nor does it after A changed other files", |_| stat_all(&at), Counts::is_empty);
        // The file that A changes is requested once, the other files not at all.
        OpenOptions::new().append(true).open(at.a(&name(1))).unwrap().write_all(b"x").unwrap();
        two.quiet();
        let look = || assert_eq!(fs::metadata(at.b(&name(1))).unwrap().len(), SHORT as u64 + 1);
        assert!(!two.cost(look).is_empty(), "the changed file is requested");
        // If a lock was revoked soon after its grant, the client may stop asking for it for a
        // while, but not for long.
        two.cost_settles("the file is cached again", |_| look(), Counts::is_empty);
        // One of several files must cost nothing: a mount may send a request by itself meanwhile.
        let stat = |i: usize| assert_eq!(fs::metadata(at.b(&name(i))).unwrap().len(), SHORT as u64);
        assert!((2..DIRS).any(|i| two.cost(|| stat(i)).is_empty()), "other files stay cached");
    }
}

/// From FUSE 7.44 (Linux 6.16) on, a mount can make the kernel forget names. There the kernel
/// caches names and attributes.
#[test]
fn second_stat_is_answered_by_the_kernel() {
    let two = two_mounts!(LIMIT);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let version: Vec<u32> = release.split(['.', '-']).filter_map(|w| w.parse().ok()).take(2).collect();
    if version < vec![6, 16] {
        return println!("skipped: this kernel ({release}) has no request to forget names; Linux 6.16 has");
    }
    for at in [two.dir("d"), two.dir("e").swapped()] {
        plant(&two, &at);
        two.operations_settle("the kernel answers a second stat", |_| stat_all(&at), Counts::is_empty);
    }
}

#[test]
fn second_lookup_of_a_missing_name_asks_no_server() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    plant(&two, &at);
    let look = |_| (0..20).for_each(|i| assert!(!at.b(&format!("tree/missing{i}")).exists()));
    two.cost_settles("a second lookup sends no request", look, Counts::is_empty);
    fs::write(at.a("tree/missing7"), "x").unwrap();
    assert!(at.b("tree/missing7").exists());
}

#[test]
fn a_second_readlink_asks_no_server() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    plant(&two, &at);
    let look = |_| (0..FILES).for_each(|i| drop(fs::read_link(at.b(&format!("{}.link", name(i)))).unwrap()));
    two.cost_settles("a second readlink sends no request", look, Counts::is_empty);
}

fn rw(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// Selects the requests to the MDT, and counts them by operation.
fn to_mdt(asked: &Counts) -> Counts {
    let of_mdt = asked.iter().filter(|(what, _)| what.contains("-mdc-"));
    of_mdt.filter_map(|(what, n)| Some((what.rsplit_once(' ')?.1.to_owned(), *n))).collect()
}

fn of<const N: usize>(requests: [(&str, u64); N]) -> Counts {
    requests.into_iter().map(|(what, n)| (what.to_owned(), n)).collect()
}

/// Counts the requests of open alone. The soak test `caches` counts those of reads.
#[test]
fn second_open_of_a_cached_file_asks_no_server() {
    let two = two_mounts!(LIMIT);
    for at in [two.dir("d"), two.dir("e").swapped()] {
        plant(&two, &at);
        let open_all = |open: &dyn Fn(&Path) -> File| (0..FILES).for_each(|i| drop(open(&at.b(&name(i)))));
        let read = |_| open_all(&|path| File::open(path).unwrap());
        two.cost_settles("a second open sends no request", read, Counts::is_empty);
        two.cost_settles("nor does one for writing", |_| open_all(&rw), Counts::is_empty);
        // The same holds while the file is open.
        let file = File::open(at.b(&name(5))).unwrap();
        two.cost_settles("nor does one of an open file", |_| open_all(&rw), Counts::is_empty);
        drop(file);
        // A change by A makes the next open send a request.
        fs::set_permissions(at.a(&name(1)), PermissionsExt::from_mode(0o600)).unwrap();
        two.quiet();
        assert!(!two.cost(|| drop(rw(&at.b(&name(1))))).is_empty(), "the changed file is requested");
        two.cost_settles("the file is cached again", |_| drop(rw(&at.b(&name(1)))), Counts::is_empty);
    }
}

#[test]
fn a_first_open_is_one_request_to_the_mdt() {
    let two = two_mounts!(LIMIT);
    for at in [two.dir("d"), two.dir("e").swapped()] {
        plant(&two, &at);
        for i in 0..DIRS {
            fs::metadata(at.b(&format!("tree/sub{i}"))).unwrap();
        }
        two.quiet();
        let open = |path: &Path| drop(File::open(path).unwrap());
        // Each pass takes a file that is not cached yet. Each kind of open has a directory of its
        // own.
        let next = |sub: usize, pass: usize| at.b(&name(sub + DIRS * (pass % (FILES / DIRS))));
        let one = of([("mds_getattr_lock", 1)]);
        two.cost_settles("an open is one lookup", |pass| open(&next(3, pass)), |asked| to_mdt(asked) == one);
        let write = |pass| drop(rw(&next(4, pass)));
        two.cost_settles("so is one for writing", write, |asked| to_mdt(asked) == one);
        // Revokes A's locks on the directory.
        let create = |name: &str| drop(File::create_new(at.b(name)).unwrap());
        create("tree/sub0/first");
        let mut n = 0;
        eventually("a new file costs what it should, and is cached after its first open", || {
            n += 1;
            let name = format!("tree/sub0/new{n}");
            let cost = |work: &dyn Fn()| {
                fs::metadata(at.b("tree/sub0")).unwrap();
                two.quiet();
                let asked = two.cost(|| {
                    work();
                    two.quiet();
                });
                println!("{name}: {asked:?}");
                to_mdt(&asked)
            };
            // The kernel looks the name up first.
            let made =
                cost(&|| create(&name)) == of([("mds_close", 1), ("mds_getattr_lock", 1), ("mds_reint_open", 1)]);
            // The mount that created the file sends one open, and has the file cached afterwards.
            let first = cost(&|| open(&at.b(&name))) == of([("mds_close", 1), ("mds_reint_open", 1)]);
            made && first && cost(&|| open(&at.b(&name))).is_empty()
        });
    }
}

/// A lookup returns attributes as well, so that the kernel needs no getattr.
#[test]
fn lookup_returns_the_attributes_for_stat() {
    let two = two_mounts!(LIMIT);
    for at in [two.dir("d"), two.dir("e").swapped()] {
        plant(&two, &at);
        for i in 0..DIRS {
            fs::metadata(at.b(&format!("tree/sub{i}"))).unwrap();
        }
        // Each pass looks at another directory, whose names are not cached yet.
        let look = |pass: usize| {
            for i in (pass % DIRS..FILES).step_by(DIRS) {
                // Not statx(2), which also requests the birth time: a lookup does not return that.
                rustix::fs::stat(at.b(&name(i))).unwrap();
            }
        };
        two.operations_settle("a stat is one lookup", look, |asked| {
            let of = |what: &str| asked.iter().filter(|(name, _)| name.ends_with(what)).map(|(_, n)| n).sum::<u64>();
            // The getattr requests are for the directory.
            of(" lookup") == (FILES / DIRS) as u64 && of(" getattr") < 3
        });
    }
}

#[test]
fn creates_in_a_new_directory_cost_one_request_each_and_batched_closes() {
    let two = two_mounts!(LIMIT);
    for at in [two.dir("d"), two.dir("e").swapped()] {
        let mut n = 0;
        // Each pass has a directory of its own. Closes with 20 ms between them are not sent in one
        // request.
        eventually("ten creates are one request each, and closes are sent together", || {
            n += 1;
            let dir = at.a(&format!("new{n}"));
            fs::create_dir(&dir).unwrap();
            two.quiet();
            let asked = two.cost(|| {
                (0..10).for_each(|i| drop(File::create_new(dir.join(i.to_string())).unwrap()));
                two.quiet();
            });
            println!("{asked:?}");
            let of_mdt = to_mdt(&asked);
            let closes = of_mdt.get("mds_close").is_some_and(|closes| *closes < 8);
            // No OST gets a request.
            let is_mdt_alone = asked.keys().all(|what| what.contains("-mdc-"));
            is_mdt_alone && closes && of_mdt.get("mds_reint_open") == Some(&10) && of_mdt.len() == 2
        });
        // The names in the directory are cached until another mount adds one.
        let (a, b) = (at.a(&format!("new{n}")), at.b(&format!("new{n}")));
        two.cost_settles("a missing name is cached", |_| assert!(!a.join("none").exists()), Counts::is_empty);
        fs::write(b.join("none"), "some").unwrap();
        assert_eq!(fs::read(a.join("none")).unwrap(), b"some");
        fs::rename(a.join("3"), a.join("moved")).unwrap();
        fs::hard_link(a.join("4"), a.join("linked")).unwrap();
        assert!(a.join("moved").exists() && a.join("linked").exists() && !a.join("3").exists());
        assert_eq!(fs::read_dir(&a).unwrap().count(), 12);
    }
}

/// The attributes in a create's reply serve the kernel's own permission check alone: it must not
/// cache them.
#[test]
fn write_to_a_new_file_is_seen_by_its_creator_at_once() {
    let two = two_mounts!(LIMIT);
    for at in [two.dir("d"), two.dir("e").swapped()] {
        for i in 0..50 {
            let name = format!("f{i}");
            let made = File::create_new(at.a(&name)).unwrap();
            assert_eq!(rw(&at.b(&name)).write_at(b"other", 0).unwrap(), 5);
            assert_eq!(made.metadata().unwrap().len(), 5);
            assert_eq!(fs::read(at.a(&name)).unwrap(), b"other");
        }
    }
}

/// A mount is killed with everything cached and files open.
#[test]
fn killed_mount_blocks_changes_only_until_its_eviction() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    plant(&two, &at);
    stat_all(&at);
    read_all(&at);
    let open = File::open(at.b(&name(5))).unwrap();
    two.second.kill();
    // The mount stays dead. That each change ends proves that no change waits for this mount for
    // ever.
    change_all(&at);
    change_all(&at);
    let evicted = two.evictions();
    assert!(!evicted.is_empty() && evicted.values().all(|n| *n == 1), "a server evicts the mount once: {evicted:?}");
    drop(open);
}

/// A changes everything that B has cached.
fn change_all(at: &Two) {
    for i in 0..FILES {
        fs::write(at.a(&name(i)), noise(1000 + i as u64, LEN)).unwrap();
        fs::rename(at.a(&name(i)), at.a(&format!("{}.new", name(i)))).unwrap();
        fs::rename(at.a(&format!("{}.new", name(i))), at.a(&name(i))).unwrap();
    }
}

/// The servers evict a mount that is frozen for longer than the lock timeout. When it resumes, it
/// notices the eviction and shows the current data.
#[test]
fn frozen_mount_is_evicted_and_shows_current_data_after_resuming() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    plant(&two, &at);
    stat_all(&at);
    read_all(&at);
    two.second.freeze();
    // The mount stays frozen until this ends, which proves that no change waits for it for ever.
    change_all(&at);
    two.second.resume();
    // The mount may serve cached data until it notices the eviction.
    let fresh = |i: usize| fs::read(at.b(&name(i))).is_ok_and(|b| b == noise(1000 + i as u64, LEN));
    eventually("the mount shows what is there now", || (0..FILES).all(fresh));
    fs::write(at.b("again"), "goes on").unwrap();
    assert_eq!(fs::read_to_string(at.a("again")).unwrap(), "goes on");
    fs::write(at.a(&name(5)), "and its lock is revoked").unwrap();
    assert_eq!(fs::read_to_string(at.b(&name(5))).unwrap(), "and its lock is revoked");
}

/// A regular unmount cancels all locks first.
#[test]
fn unmount_cancels_all_locks_and_causes_no_eviction() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    plant(&two, &at);
    stat_all(&at);
    read_all(&at);
    let mut umount = Command::new(sheen());
    umount.arg("umount").arg(&two.second.mnt);
    run_command(umount).ok();
    assert!(!is_mounted(&two.second.mnt));
    change_all(&at);
    // A server that had to wait would have evicted the mount in the end.
    assert_eq!(two.evictions(), Counts::new());
}

/// Clients cancel the locks of deleted files: the lock tables of both sides shrink again.
#[test]
fn locks_of_deleted_files_are_cancelled() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    let locks = || -> u64 {
        let text = two.param("ldlm.namespaces.*{}*.lock_count");
        text.lines().filter_map(|l| l.rsplit_once('=')).map(|(_, n)| n.trim().parse::<u64>().unwrap()).sum()
    };
    let before = locks();
    plant(&two, &at);
    stat_all(&at);
    read_all(&at);
    let cached = locks();
    assert!(cached > before + FILES as u64, "caching takes locks: {before}, {cached}");
    fs::remove_dir_all(at.a("tree")).unwrap();
    eventually(format!("of {cached} locks about {before} are left, as before"), || locks() <= before + 20);
}

/// Changes a file of a directory, so that it holds these bytes afterwards.
type FileChange = dyn Fn(&Two, &str, &[u8]);

/// Returns the content of small file `i` after `round` changes.
fn small(i: usize, round: u64) -> Vec<u8> {
    noise(round << 32 | i as u64, 1 + i * 37 % 9000)
}

/// Creates small files of a layout through A. B then reads them for the first time, in the order in
/// which it lists them. `change` is done to every third file, [`AHEAD`] files before B reads it.
/// Returns the requests of B's pass.
fn read_in_order(two: &TwoMounts, layout: &str, name: &str, change: Option<&FileChange>) -> Counts {
    let at = two.dir(name);
    let mut setstripe = Command::new(sheen());
    setstripe.args(["lfs", "setstripe"]).args(layout.split(' ')).arg(&at.a);
    run_command(setstripe).ok();
    for i in 0..SMALL_FILES {
        fs::write(at.a(&format!("f{i}")), small(i, 0)).unwrap();
    }
    let number = |name: &str| name[1..].parse::<usize>().unwrap();
    two.cost(|| {
        let listed = fs::read_dir(&at.b).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let names: Vec<String> = listed.collect();
        assert_eq!(names.len(), SMALL_FILES);
        for (i, name) in names.iter().enumerate() {
            let found = fs::read(at.b(name)).unwrap();
            let is_changed = change.is_some() && i >= AHEAD && i % 3 == 0;
            assert!(found == small(number(name), is_changed.into()), "{layout}, {name}: {} bytes", found.len());
            if let (Some(change), Some(later)) = (change, names.get(i + AHEAD))
                && (i + AHEAD).is_multiple_of(3)
            {
                change(&at, later, &small(number(later), 1));
            }
        }
    })
}

#[test]
fn small_files_read_in_order_are_fetched_in_batches() {
    let two = two_mounts!(LIMIT);
    for layout in SMALL_LAYOUTS {
        let mut n = 0;
        // Each pass has a directory of its own.
        eventually("small files are read many at a time", || {
            n += 1;
            let asked = read_in_order(&two, layout, &format!("d{}.{n}", layout.len()), None);
            let of = |what: &str| asked.iter().filter(|(name, _)| name.ends_with(what)).map(|(_, n)| n).sum::<u64>();
            let (reads, lookups) = (of(" ost_read"), of(" mds_getattr_lock"));
            println!("{layout}: {reads} reads and {lookups} lookups: {asked:?}");
            reads + lookups < SMALL_FILES as u64 / 4
        });
    }
}

#[test]
fn prefetched_small_files_are_never_stale() {
    let two = two_mounts!(LIMIT);
    for layout in SMALL_LAYOUTS {
        let dir = |way: &str| format!("{way}{}", layout.len());
        read_in_order(&two, layout, &dir("write"), Some(&|at, name, bytes| fs::write(at.a(name), bytes).unwrap()));
        read_in_order(
            &two,
            layout,
            &dir("replace"),
            Some(&|at, name, bytes| {
                fs::write(at.a("new"), bytes).unwrap();
                fs::rename(at.a("new"), at.a(name)).unwrap();
            }),
        );
        read_in_order(&two, layout, &dir("here"), Some(&|at, name, bytes| fs::write(at.b(name), bytes).unwrap()));
        read_in_order(
            &two,
            layout,
            &dir("migrate"),
            Some(&|at, name, bytes| {
                fs::write(at.a(name), bytes).unwrap();
                let mut migrate = Command::new(sheen());
                migrate.args(["lfs", "migrate", "-c", "2"]).arg(at.a(name));
                run_command(migrate).ok();
            }),
        );
    }
}

/// Statistics show how a file is read. Writing to such a parameter resets it, as a measurement
/// needs.
#[test]
fn writing_to_statistics_resets_them() {
    let (two, at) = two_mounts!(LIMIT, "d");
    const BYTES: usize = 8 << 20;
    fs::write(at.a("f"), noise(1, BYTES)).unwrap();
    // Flushes, so that no write is sent later.
    File::open(at.a("f")).unwrap().sync_all().unwrap();
    two.quiet();
    let set = |what: &str| {
        let mut lctl = Command::new(sheen());
        lctl.args(["lctl", "set_param", "-n", &what.replace("{}", &two.fsname)]);
        run_command(lctl).ok()
    };
    let pages = |of: &str| -> u64 {
        let text = two.param("llite.{}-*.read_ahead_stats");
        let lines = text.lines().filter(|line| line.split_whitespace().next() == Some(of));
        lines.map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum()
    };
    let requests = || two.requests().values().sum::<u64>();
    let large = || two.param("osc.{}-*.rpc_stats").lines().filter(|line| line.starts_with("16:")).count();
    assert!(requests() > 0);
    // A mount may send a request by itself right after the reset.
    eventually("the counters begin at 0", || {
        for stats in ["osc.{}-*.stats", "dom.{}-*.stats", "mdc.{}-*.stats", "osc.{}-*.rpc_stats", "llite.{}-*.stats"] {
            assert_eq!(set(&format!("{stats}=clear")), "");
        }
        for stats in ["read_ahead_stats", "statahead_stats", "cache_stats"] {
            set(&format!("llite.{{}}-*.{stats}=0"));
        }
        (requests(), large(), pages("hits"), pages("misses")) == (0, 0, 0, 0)
    });
    assert!(!two.param("llite.{}-*.cache_stats").lines().any(|line| line.ends_with(|c| ('1'..='9').contains(&c))));

    assert_eq!(fs::read(at.b("f")).unwrap().len(), BYTES);
    let (hits, misses) = (pages("hits"), pages("misses"));
    assert!(hits > 4 * misses && hits + misses >= BYTES as u64 / 4096, "{hits} pages in order, {misses} not");
    assert!(requests() > 0 && large() > 0, "{}", two.param("osc.{}-*.rpc_stats"));
    set("osc.{}-*.max_dirty_mb=32M");
    assert!(two.param("osc.{}-OST0000-*.max_dirty_mb").lines().all(|line| line.ends_with("=32")));
    set("lod.{}-*.dom_stripesize_max_kb=128K");
    assert!(two.param("lod.{}-*.dom_stripesize").ends_with("=131072\n"));

    // Reads at several offsets, in pages that the kernel has dropped: it may drop them some moments
    // after their lock.
    eventually("the first read misses, and each that begins more than 4 MiB from the end of the previous one", || {
        set("ldlm.namespaces.{}-OST*.lru_size=clear");
        let file = File::open(at.b("f")).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
        set("llite.{}-*.read_ahead_stats=0");
        for place in [5, 0, 7, 1, 6] {
            file.read_exact_at(&mut [0; 4096], (place << 20) + 4096).unwrap();
        }
        pages("misses") == 5
    });
}
