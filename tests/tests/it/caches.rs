//! What is cached costs no request, and a mount that is gone does not keep others from changing
//! what it cached.

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
/// Files between one that is read and one that is changed.
const AHEAD: usize = 10;

#[test]
fn a_second_stat_asks_no_server() {
    let two = two_mounts!(LIMIT);
    for at in [two.dir("d"), two.dir("e").swapped()] {
        plant(&two, &at);
        assert!(!two.cost(|| stat_all(&at)).is_empty(), "the first look asks: the counters count");
        two.cost_settles("a second stat asks nobody", |_| stat_all(&at), Counts::is_empty);
        // Others' work on other things changes nothing about it.
        fs::write(at.a("elsewhere"), noise(1, LEN)).unwrap();
        fs::create_dir(at.a("dir")).unwrap();
        fs::rename(at.a("elsewhere"), at.a("dir/f")).unwrap();
        two.cost_settles("nor does it after A did something else", |_| stat_all(&at), Counts::is_empty);
        // What A changes is asked for once, the rest not at all.
        OpenOptions::new().append(true).open(at.a(&name(1))).unwrap().write_all(b"x").unwrap();
        two.quiet();
        let look = || assert_eq!(fs::metadata(at.b(&name(1))).unwrap().len(), SHORT as u64 + 1);
        assert!(!two.cost(look).is_empty(), "changed, so asked for");
        // A lock that is taken away as soon as it was granted may be let be for a while, but not
        // for long.
        two.cost_settles("it is kept again", |_| look(), Counts::is_empty);
        // One of several, in case that a mount sends something by itself meanwhile.
        let stat = |i: usize| assert_eq!(fs::metadata(at.b(&name(i))).unwrap().len(), SHORT as u64);
        assert!((2..DIRS).any(|i| two.cost(|| stat(i)).is_empty()), "its neighbours were kept");
    }
}

/// Where the kernel can be told to forget names (FUSE 7.44, Linux 6.16), it keeps them, and
/// attributes.
#[test]
fn a_second_stat_does_not_even_reach_the_mount() {
    let two = two_mounts!(LIMIT);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let version: Vec<u32> = release.split(['.', '-']).filter_map(|w| w.parse().ok()).take(2).collect();
    if version < vec![6, 16] {
        return println!("skipped: this kernel ({release}) cannot be told to forget names");
    }
    for at in [two.dir("d"), two.dir("e").swapped()] {
        plant(&two, &at);
        two.operations_settle("a second stat stays in the kernel", |_| stat_all(&at), Counts::is_empty);
    }
}

#[test]
fn a_second_look_at_a_missing_name_asks_no_server() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    plant(&two, &at);
    let look = |_| (0..20).for_each(|i| assert!(!at.b(&format!("tree/missing{i}")).exists()));
    two.cost_settles("a second look asks nobody", look, Counts::is_empty);
    fs::write(at.a("tree/missing7"), "x").unwrap();
    assert!(at.b("tree/missing7").exists());
}

#[test]
fn a_second_readlink_asks_no_server() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    plant(&two, &at);
    let look = |_| (0..FILES).for_each(|i| drop(fs::read_link(at.b(&format!("{}.link", name(i)))).unwrap()));
    two.cost_settles("a second readlink asks nobody", look, Counts::is_empty);
}

fn rw(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// Of requests, those to the MDT, by operation.
fn to_mdt(asked: &Counts) -> Counts {
    let of_mdt = asked.iter().filter(|(what, _)| what.contains("-mdc-"));
    of_mdt.filter_map(|(what, n)| Some((what.rsplit_once(' ')?.1.to_owned(), *n))).collect()
}

fn of<const N: usize>(requests: [(&str, u64); N]) -> Counts {
    requests.into_iter().map(|(what, n)| (what.to_owned(), n)).collect()
}

/// What is read meanwhile is a matter of `soak_caches`.
#[test]
fn a_second_open_of_a_known_file_asks_no_server() {
    let two = two_mounts!(LIMIT);
    for at in [two.dir("d"), two.dir("e").swapped()] {
        plant(&two, &at);
        let open_all = |open: &dyn Fn(&Path) -> File| (0..FILES).for_each(|i| drop(open(&at.b(&name(i)))));
        let read = |_| open_all(&|path| File::open(path).unwrap());
        two.cost_settles("a second open asks nobody", read, Counts::is_empty);
        two.cost_settles("nor does one for writing", |_| open_all(&rw), Counts::is_empty);
        // As long as it is open, too.
        let file = File::open(at.b(&name(5))).unwrap();
        two.cost_settles("nor does one of an open file", |_| open_all(&rw), Counts::is_empty);
        drop(file);
        // What A does to the file matters.
        fs::set_permissions(at.a(&name(1)), PermissionsExt::from_mode(0o600)).unwrap();
        two.quiet();
        assert!(!two.cost(|| drop(rw(&at.b(&name(1))))).is_empty(), "changed, so asked for");
        two.cost_settles("it is known again", |_| drop(rw(&at.b(&name(1)))), Counts::is_empty);
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
        // Each pass takes a file that is not known yet, and each kind of open has a directory of
        // its own.
        let next = |sub: usize, pass: usize| at.b(&name(sub + DIRS * (pass % (FILES / DIRS))));
        let one = of([("lookup", 1)]);
        two.cost_settles("an open is a lookup", |pass| open(&next(3, pass)), |asked| to_mdt(asked) == one);
        let write = |pass| drop(rw(&next(4, pass)));
        two.cost_settles("so is one for writing", write, |asked| to_mdt(asked) == one);
        // Takes the directory from A.
        let create = |name: &str| drop(File::create_new(at.b(name)).unwrap());
        create("tree/sub0/first");
        let mut n = 0;
        eventually("a new file costs what it should, and is known once it was opened", || {
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
            // The kernel looks first.
            let made = cost(&|| create(&name)) == of([("close", 1), ("create", 1), ("lookup", 1)]);
            // The mount that made it asks once, and knows it then.
            let first = cost(&|| open(&at.b(&name))) == of([("close", 1), ("open", 1)]);
            made && first && cost(&|| open(&at.b(&name))).is_empty()
        });
    }
}

/// The kernel asks once where it would have to ask twice: for the name, and for what it is.
#[test]
fn a_name_brings_what_stat_tells() {
    let two = two_mounts!(LIMIT);
    for at in [two.dir("d"), two.dir("e").swapped()] {
        plant(&two, &at);
        for i in 0..DIRS {
            fs::metadata(at.b(&format!("tree/sub{i}"))).unwrap();
        }
        // Each pass looks at another directory, whose names are not known yet.
        let look = |pass: usize| {
            for i in (pass % DIRS..FILES).step_by(DIRS) {
                // Not statx(2), which asks for the time of birth as well: names do not bring that.
                rustix::fs::stat(at.b(&name(i))).unwrap();
            }
        };
        two.operations_settle("a stat is a lookup", look, |asked| {
            let of = |what: &str| asked.iter().filter(|(name, _)| name.ends_with(what)).map(|(_, n)| n).sum::<u64>();
            // The attributes that are asked for are the directory's.
            of(" lookup") == (FILES / DIRS) as u64 && of(" getattr") < 3
        });
    }
}

#[test]
fn new_files_in_a_new_directory_are_a_request_each_and_some_for_all() {
    let two = two_mounts!(LIMIT);
    for at in [two.dir("d"), two.dir("e").swapped()] {
        let mut n = 0;
        // Each pass in a directory of its own. Closes with 20 ms between them are not told
        // together.
        eventually("ten creates are a request each, and closes are told together", || {
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
            let closes = of_mdt.get("close").is_some_and(|closes| *closes < 8);
            // No OST.
            let is_mdt_alone = asked.keys().all(|what| what.contains("-mdc-"));
            is_mdt_alone && closes && of_mdt.get("create") == Some(&10) && of_mdt.len() == 2
        });
        // What the directory holds is known, as long as nobody else puts something there.
        let (a, b) = (at.a(&format!("new{n}")), at.b(&format!("new{n}")));
        two.cost_settles("a missing name is known", |_| assert!(!a.join("none").exists()), Counts::is_empty);
        fs::write(b.join("none"), "some").unwrap();
        assert_eq!(fs::read(a.join("none")).unwrap(), b"some");
        fs::rename(a.join("3"), a.join("moved")).unwrap();
        fs::hard_link(a.join("4"), a.join("linked")).unwrap();
        assert!(a.join("moved").exists() && a.join("linked").exists() && !a.join("3").exists());
        assert_eq!(fs::read_dir(&a).unwrap().count(), 12);
    }
}

/// What the kernel is told of a file that it just made holds for its own check alone.
#[test]
fn a_new_file_that_another_mount_writes_to_shows_it_at_once() {
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

/// A mount dies with everything cached and files open.
#[test]
fn a_killed_mount_holds_nobody_up_for_long() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    plant(&two, &at);
    stat_all(&at);
    read_all(&at);
    let open = File::open(at.b(&name(5))).unwrap();
    two.second.kill();
    // The mount stays dead: the end of each change proves that nobody waits for it for ever.
    change_all(&at);
    change_all(&at);
    let evicted = two.evictions();
    assert!(!evicted.is_empty() && evicted.values().all(|n| *n == 1), "once and for all: {evicted:?}");
    drop(open);
}

/// Everything that B has cached is changed by A.
fn change_all(at: &Two) {
    for i in 0..FILES {
        fs::write(at.a(&name(i)), noise(1000 + i as u64, LEN)).unwrap();
        fs::rename(at.a(&name(i)), at.a(&format!("{}.new", name(i)))).unwrap();
        fs::rename(at.a(&format!("{}.new", name(i))), at.a(&name(i))).unwrap();
    }
}

/// A mount that stands still for longer than the servers wait is given up; when it goes on it finds
/// out, and shows what is there.
#[test]
fn a_frozen_mount_is_given_up_and_comes_back_clean() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    plant(&two, &at);
    stat_all(&at);
    read_all(&at);
    two.second.freeze();
    // It stands still all the time: the end of this proves that nobody waits for it for ever.
    change_all(&at);
    two.second.go_on();
    // It may serve what it cached until it notices; soon it does.
    let fresh = |i: usize| fs::read(at.b(&name(i))).is_ok_and(|b| b == noise(1000 + i as u64, LEN));
    eventually("the mount shows what is there now", || (0..FILES).all(fresh));
    fs::write(at.b("again"), "goes on").unwrap();
    assert_eq!(fs::read_to_string(at.a("again")).unwrap(), "goes on");
    fs::write(at.a(&name(5)), "and is called back").unwrap();
    assert_eq!(fs::read_to_string(at.b(&name(5))).unwrap(), "and is called back");
}

/// An unmount in order gives all locks back first.
#[test]
fn an_unmount_holds_nobody_up() {
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
    // A server that had to wait would have evicted it in the end.
    assert_eq!(two.evictions(), Counts::new());
}

/// Locks are not kept for what is gone: the tables of both sides shrink again.
#[test]
fn locks_of_removed_files_are_given_back() {
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
    eventually(format!("of {cached} locks no more are left than before, {before}"), || locks() <= before + 20);
}

/// What A does to a file of a directory, which is to hold these bytes then.
type Change = dyn Fn(&Two, &str, &[u8]);

/// What small files hold, by number, and how often they were changed.
fn small(i: usize, round: u64) -> Vec<u8> {
    noise(round << 32 | i as u64, 1 + i * 37 % 9000)
}

/// Small files of a layout, the first time that B reads them in the order in which it lists them.
/// `change`: what A does to some of those that come [`AHEAD`] later.
fn read_in_order(two: &TwoMounts, layout: &str, name: &str, change: Option<&Change>) -> Counts {
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
fn small_files_that_are_read_in_order_are_read_many_at_a_time() {
    let two = two_mounts!(LIMIT);
    for layout in SMALL_LAYOUTS {
        let mut n = 0;
        // Each pass in a directory of its own.
        eventually("small files are read many at a time", || {
            n += 1;
            let asked = read_in_order(&two, layout, &format!("d{}.{n}", layout.len()), None);
            let of = |what: &str| asked.iter().filter(|(name, _)| name.ends_with(what)).map(|(_, n)| n).sum::<u64>();
            println!("{layout}: {} reads and {} lookups: {asked:?}", of(" read"), of(" lookup"));
            of(" read") + of(" lookup") < SMALL_FILES as u64 / 4
        });
    }
}

#[test]
fn what_is_read_ahead_of_a_reader_is_never_older_than_the_file() {
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

/// Statistics say how a file is read, and begin anew when something is written to them, as a
/// measurement wants it.
#[test]
fn statistics_begin_anew() {
    let (two, at) = two_mounts!(LIMIT, "d");
    const BYTES: usize = 8 << 20;
    fs::write(at.a("f"), noise(1, BYTES)).unwrap();
    // Nothing is to travel later.
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
    // A mount may send something by itself right after that.
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

    // Here and there, past the pages that the kernel has: it may drop them some moments later.
    eventually("missed are the first, and each that is more than 4 MiB from where the last one ended", || {
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
