//! What is cached costs no request, and a mount that is gone does not keep others from changing what it cached.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::Write,
    os::unix::fs::{FileExt, PermissionsExt, symlink},
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use sheen_tests::{
    is_mounted,
    mounts::{EVICTION_MAX, Two, TwoMounts, between},
    noise,
    posix::Map,
    run_command, run_within, sheen, two_mounts,
};

const LIMIT: Duration = Duration::from_secs(180);
const FILES: usize = 50;
/// A name in a directory and what is below it, of several stripes.
const LEN: usize = 300_000;
const SMALL_FILES: usize = 300;
const SMALL_LAYOUTS: [&str; 2] = ["-c 1", "-E 64K -L mdt -E -1 -c 1"];
/// Files between one that is read and one that is changed.
const AHEAD: usize = 10;

fn name(i: usize) -> String {
    format!("tree/sub{}/f{i}", i % 5)
}

fn plant(at: &Two) {
    for i in 0..5 {
        fs::create_dir_all(at.a(&format!("tree/sub{i}"))).unwrap();
    }
    for i in 0..FILES {
        fs::write(at.a(&name(i)), noise(i as u64, if i % 5 == 0 { LEN } else { 100 })).unwrap();
        symlink(format!("f{i}"), at.a(&format!("{}.link", name(i)))).unwrap();
    }
    // Closes are told together, some moments later.
    thread::sleep(Duration::from_millis(100));
}

/// What `look` costs in requests to the servers.
#[track_caller]
fn cost(two: &TwoMounts, look: impl FnOnce()) -> BTreeMap<String, u64> {
    let before = two.requests();
    look();
    between(&before, &two.requests())
}

fn none() -> BTreeMap<String, u64> {
    BTreeMap::new()
}

fn stat_all(at: &Two) {
    for i in 0..FILES {
        let len = fs::metadata(at.b(&name(i))).unwrap().len();
        assert_eq!(len as usize, if i % 5 == 0 { LEN } else { 100 });
        assert!(fs::symlink_metadata(at.b(&format!("{}.link", name(i)))).unwrap().is_symlink());
    }
}

#[test]
fn a_second_stat_asks_no_server() {
    let two = two_mounts!(LIMIT);
    for at in [two.dir("d"), two.dir("e").swapped()] {
        plant(&at);
        assert!(!cost(&two, || stat_all(&at)).is_empty(), "the first look asks: the counters count");
        stat_all(&at);
        assert_eq!(cost(&two, || stat_all(&at)), none());
        // Others' work on other things changes nothing about it.
        fs::write(at.a("elsewhere"), noise(1, LEN)).unwrap();
        fs::create_dir(at.a("dir")).unwrap();
        fs::rename(at.a("elsewhere"), at.a("dir/f")).unwrap();
        stat_all(&at);
        assert_eq!(cost(&two, || stat_all(&at)), none(), "after A did something else");
        // What A changes is asked for once, the rest not at all.
        OpenOptions::new().append(true).open(at.a(&name(1))).unwrap().write_all(b"x").unwrap();
        let asked = cost(&two, || assert_eq!(fs::metadata(at.b(&name(1))).unwrap().len(), 101));
        assert!(!asked.is_empty(), "changed, so asked for");
        // A lock that is taken away as soon as it was granted may be let be for a while, but not for long.
        let start = Instant::now();
        while cost(&two, || assert_eq!(fs::metadata(at.b(&name(1))).unwrap().len(), 101)) != none() {
            assert!(start.elapsed() < Duration::from_secs(10), "it is kept again");
            thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(
            cost(&two, || assert!(fs::metadata(at.b(&name(2))).unwrap().is_file())),
            none(),
            "its neighbour was kept"
        );
    }
}

/// Where the kernel can be told to forget names (FUSE 7.44, Linux 6.16), it keeps them, and attributes.
#[test]
fn a_second_stat_does_not_even_reach_the_mount() {
    let two = two_mounts!(LIMIT);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let version: Vec<u32> = release.split(['.', '-']).filter_map(|w| w.parse().ok()).take(2).collect();
    if version < vec![6, 16] {
        return println!("skipped: this kernel ({release}) cannot be told to forget names");
    }
    for at in [two.dir("d"), two.dir("e").swapped()] {
        plant(&at);
        stat_all(&at);
        stat_all(&at);
        let before = two.operations();
        stat_all(&at);
        assert_eq!(between(&before, &two.operations()), none());
    }
}

#[test]
fn a_second_look_at_a_missing_name_asks_no_server() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    plant(&at);
    let look = || (0..20).for_each(|i| assert!(!at.b(&format!("tree/missing{i}")).exists()));
    look();
    assert_eq!(cost(&two, look), none());
    fs::write(at.a("tree/missing7"), "x").unwrap();
    assert!(at.b("tree/missing7").exists());
}

#[test]
fn a_second_readlink_asks_no_server() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    plant(&at);
    let look = || (0..FILES).for_each(|i| drop(fs::read_link(at.b(&format!("{}.link", name(i)))).unwrap()));
    look();
    assert_eq!(cost(&two, look), none());
}

fn rw(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

fn read_all(at: &Two) {
    for i in (0..FILES).step_by(5) {
        assert!(fs::read(at.b(&name(i))).unwrap() == noise(i as u64, LEN));
    }
}

/// Reads until that asks nobody, and a moment later neither. What is read while the writer gives back its locks may go again, on a busy machine after it
/// was read a second time.
fn read_until_kept(two: &TwoMounts, at: &Two) {
    let began = Instant::now();
    let mut kept = 0;
    while kept < 2 {
        assert!(began.elapsed() < LIMIT / 4, "what is read is not kept");
        kept = if cost(two, || read_all(at)) == none() { kept + 1 } else { 0 };
        quiet(two);
    }
}

/// Shows something of pages that stay in the kernel, in one direction and the other. Who runs the machine may have the kernel let go of pages at any
/// moment, which counts like a failure of ours: so it must come out in one of some tries, each in a directory of its own.
fn in_one_of_some_tries(two: &TwoMounts, show: impl Fn(&Two)) {
    const TRIES: usize = 6;
    for (name, swapped) in [("d", false), ("e", true)] {
        for n in 1..=TRIES {
            let at = two.dir(&format!("{name}{n}"));
            let at = if swapped { at.swapped() } else { at };
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| show(&at))) {
                Ok(()) => break,
                Err(panic) if n == TRIES => std::panic::resume_unwind(panic),
                Err(_) => println!("once more"),
            }
        }
    }
}

/// Of requests, those to the MDT, by operation.
fn to_mdt(asked: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let of_mdt = asked.into_iter().filter(|(what, _)| what.contains("-mdc-"));
    of_mdt.filter_map(|(what, n)| Some((what.rsplit_once(' ')?.1.to_owned(), n))).collect()
}

fn of<const N: usize>(requests: [(&str, u64); N]) -> BTreeMap<String, u64> {
    requests.into_iter().map(|(what, n)| (what.to_owned(), n)).collect()
}

/// Waits until the end of what programs do not wait for: closes.
fn quiet(two: &TwoMounts) {
    while cost(two, || thread::sleep(Duration::from_millis(100))) != none() {}
}

#[test]
fn a_second_open_asks_no_server() {
    let two = two_mounts!(LIMIT);
    in_one_of_some_tries(&two, |at| {
        plant(at);
        read_until_kept(&two, at);
        quiet(&two);
        assert_eq!(cost(&two, || read_all(at)), none(), "nor does a second read: it does not move the access time");
        let open_all = |open: &dyn Fn(&Path) -> File| (0..FILES).for_each(|i| drop(open(&at.b(&name(i)))));
        open_all(&|path| File::open(path).unwrap());
        assert_eq!(cost(&two, || open_all(&|path| File::open(path).unwrap())), none());
        assert_eq!(cost(&two, || open_all(&rw)), none(), "for writing");
        // As long as it is open, too.
        let file = File::open(at.b(&name(5))).unwrap();
        assert_eq!(cost(&two, || open_all(&rw)), none());
        drop(file);
        // What A does elsewhere does not matter, but what it does to the file.
        fs::write(at.a("tree/new"), "x").unwrap();
        fs::remove_file(at.a("tree/new")).unwrap();
        fs::set_permissions(at.a(&name(1)), fs::Permissions::from_mode(0o600)).unwrap();
        fs::metadata(at.b("tree")).unwrap();
        assert_eq!(cost(&two, || drop(rw(&at.b(&name(2))))), none());
        assert_ne!(cost(&two, || drop(rw(&at.b(&name(1))))), none());
        assert_eq!(cost(&two, || drop(rw(&at.b(&name(1))))), none(), "known again");
    });
}

#[test]
fn a_first_open_is_one_request_to_the_mdt() {
    let two = two_mounts!(LIMIT);
    for at in [two.dir("d"), two.dir("e").swapped()] {
        plant(&at);
        for i in 0..5 {
            fs::metadata(at.b(&format!("tree/sub{i}"))).unwrap();
        }
        quiet(&two);
        let open = |path: &Path| drop(File::open(path).unwrap());
        assert_eq!(to_mdt(cost(&two, || open(&at.b(&name(3))))), of([("lookup", 1)]));
        assert_eq!(to_mdt(cost(&two, || drop(rw(&at.b(&name(4)))))), of([("lookup", 1)]), "for writing");
        let create = |name: &str| drop(File::create_new(at.b(name)).unwrap());
        // Takes the directory from A.
        create("tree/sub0/first");
        fs::metadata(at.b("tree/sub0")).unwrap();
        quiet(&two);
        let asked = to_mdt(cost(&two, || {
            create("tree/sub0/new");
            quiet(&two);
        }));
        assert_eq!(asked, of([("close", 1), ("create", 1), ("lookup", 1)]), "the kernel looks first");
        fs::metadata(at.b("tree/sub0")).unwrap();
        let first = to_mdt(cost(&two, || {
            open(&at.b("tree/sub0/new"));
            quiet(&two);
        }));
        assert_eq!(first, of([("close", 1), ("open", 1)]), "who made it asks once");
        assert_eq!(to_mdt(cost(&two, || open(&at.b("tree/sub0/new")))), none(), "and knows it then");
    }
}

/// The kernel asks once where it would have to ask twice: for the name, and for what it is.
#[test]
fn a_name_brings_what_stat_tells() {
    let two = two_mounts!(LIMIT);
    for at in [two.dir("d"), two.dir("e").swapped()] {
        plant(&at);
        quiet(&two);
        fs::metadata(at.b("tree/sub0")).unwrap();
        let before = two.operations();
        for i in (0..FILES).step_by(5) {
            // Not statx(2), which asks for the time of birth as well: names do not bring that.
            rustix::fs::stat(at.b(&name(i))).unwrap();
        }
        let asked = between(&before, &two.operations());
        let of = |what: &str| asked.iter().filter(|(name, _)| name.ends_with(what)).map(|(_, n)| n).sum::<u64>();
        assert_eq!(of(" lookup"), (FILES / 5) as u64, "{asked:?}");
        assert!(of(" getattr") < 3, "the directory's: {asked:?}");
    }
}

#[test]
fn new_files_in_a_new_directory_are_a_request_each_and_some_for_all() {
    let two = two_mounts!(LIMIT);
    for at in [two.dir("d"), two.dir("e").swapped()] {
        fs::create_dir(at.a("new")).unwrap();
        quiet(&two);
        let asked = cost(&two, || {
            (0..10).for_each(|i| drop(File::create_new(at.a(&format!("new/{i}"))).unwrap()));
            quiet(&two);
        });
        assert!(asked.keys().all(|what| what.contains("-mdc-")), "no OST: {asked:?}");
        let asked = to_mdt(asked);
        assert_eq!(asked["create"], 10);
        assert!(asked["close"] < 8 && asked.len() == 2, "closes are told together: {asked:?}");
        // What the directory holds is known, as long as nobody else puts something there.
        assert_eq!(cost(&two, || assert!(!at.a("new/none").exists())), none());
        fs::write(at.b("new/none"), "some").unwrap();
        assert_eq!(fs::read(at.a("new/none")).unwrap(), b"some");
        fs::rename(at.a("new/3"), at.a("new/moved")).unwrap();
        fs::hard_link(at.a("new/4"), at.a("new/linked")).unwrap();
        assert!(at.a("new/moved").exists() && at.a("new/linked").exists() && !at.a("new/3").exists());
        assert_eq!(fs::read_dir(at.a("new")).unwrap().count(), 12);
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

#[test]
fn a_second_read_asks_no_ost() {
    let two = two_mounts!(LIMIT);
    in_one_of_some_tries(&two, |at| {
        plant(at);
        read_until_kept(&two, at);
        assert_eq!(cost(&two, || read_all(at)), none());
        let file = File::open(at.b(&name(5))).unwrap();
        let mut bytes = vec![0; LEN];
        let mut again = || file.read_exact_at(&mut bytes, 0).unwrap();
        again();
        assert_eq!(cost(&two, again), none(), "a file that stays open");
        let map = Map::new(&rw(&at.b(&name(10))), LEN);
        map.read(0, LEN);
        assert_eq!(cost(&two, || drop(map.read(0, LEN))), none(), "a mapping");
    });
}

/// What others do to other things leaves a file's pages where they are.
#[test]
fn work_elsewhere_leaves_pages_cached() {
    let two = two_mounts!(LIMIT);
    in_one_of_some_tries(&two, |at| {
        plant(at);
        read_until_kept(&two, at);
        fs::write(at.a("elsewhere"), noise(1, LEN)).unwrap();
        // What A keeps of it would go to the servers at any time.
        File::open(at.a("elsewhere")).unwrap().sync_all().unwrap();
        quiet(&two);
        // The directory itself changed, and the kernel wants its attributes to pass it.
        let asked = cost(&two, || assert!(fs::metadata(at.b("")).unwrap().is_dir()));
        assert_eq!(asked.values().sum::<u64>(), 1, "{asked:?}");
        assert_eq!(cost(&two, || read_all(at)), none(), "after A made another file");
        rw(&at.a(&name(1))).write_all_at(b"short", 0).unwrap();
        assert_eq!(cost(&two, || read_all(at)), none(), "after A wrote to another file");
    });
}

/// A mount dies with everything cached and files open.
#[test]
fn a_killed_mount_holds_nobody_up_for_long() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    plant(&at);
    stat_all(&at);
    read_all(&at);
    let open = File::open(at.b(&name(5))).unwrap();
    two.second.kill();
    let start = Instant::now();
    change_all(&at);
    let took = start.elapsed();
    assert!(took < EVICTION_MAX, "held up for {took:?}");
    let start = Instant::now();
    change_all(&at);
    assert!(start.elapsed() < EVICTION_MAX / 4, "given up once and for all: {:?}", start.elapsed());
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

/// A mount that stands still for longer than the servers wait is given up; when it goes on it finds out, and shows what is there.
#[test]
fn a_frozen_mount_is_given_up_and_comes_back_clean() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    plant(&at);
    stat_all(&at);
    read_all(&at);
    two.second.freeze();
    let start = Instant::now();
    change_all(&at);
    let took = start.elapsed();
    // Goes on before anything is asserted: nothing of this test may stay stopped.
    two.second.go_on();
    assert!(took < EVICTION_MAX, "held up for {took:?}");
    // It may serve what it cached until it notices; soon it does.
    let start = Instant::now();
    let fresh = |i: usize| fs::read(at.b(&name(i))).is_ok_and(|b| b == noise(1000 + i as u64, LEN));
    while !(0..FILES).all(fresh) {
        assert!(start.elapsed() < Duration::from_secs(30), "the past is still shown");
        thread::sleep(Duration::from_millis(50));
    }
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
    plant(&at);
    stat_all(&at);
    read_all(&at);
    let mut umount = std::process::Command::new(sheen_tests::sheen());
    umount.arg("umount").arg(&two.second.mnt);
    run_within(umount, Duration::from_secs(20)).ok();
    assert!(!is_mounted(&two.second.mnt));
    let start = Instant::now();
    change_all(&at);
    assert!(start.elapsed() < EVICTION_MAX / 4, "held up for {:?}", start.elapsed());
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
    plant(&at);
    stat_all(&at);
    read_all(&at);
    let cached = locks();
    assert!(cached > before + FILES as u64, "caching takes locks: {before}, {cached}");
    fs::remove_dir_all(at.a("tree")).unwrap();
    let start = Instant::now();
    while locks() > before + 20 {
        assert!(start.elapsed() < Duration::from_secs(20), "{} locks are left, {cached} of {before} before", locks());
        thread::sleep(Duration::from_millis(50));
    }
}

/// What A does to a file of a directory, which is to hold these bytes then.
type Change = dyn Fn(&Two, &str, &[u8]);

/// What small files hold, by number, and how often they were changed.
fn small(i: usize, round: u64) -> Vec<u8> {
    noise(round << 32 | i as u64, 1 + i * 37 % 9000)
}

/// Small files of a layout, the first time that B reads them in the order in which it lists them. `change`: what A does to some of those that come [`AHEAD`] later.
fn read_in_order(two: &TwoMounts, layout: &str, name: &str, change: Option<&Change>) -> BTreeMap<String, u64> {
    let at = two.dir(name);
    let mut setstripe = Command::new(sheen());
    setstripe.args(["lfs", "setstripe"]).args(layout.split(' ')).arg(&at.a);
    run_command(setstripe).ok();
    for i in 0..SMALL_FILES {
        fs::write(at.a(&format!("f{i}")), small(i, 0)).unwrap();
    }
    let number = |name: &str| name[1..].parse::<usize>().unwrap();
    cost(two, || {
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
        let asked = read_in_order(&two, layout, &format!("d{}", layout.len()), None);
        let of = |what: &str| asked.iter().filter(|(name, _)| name.ends_with(what)).map(|(_, n)| n).sum::<u64>();
        let (reads, lookups) = (of(" read"), of(" lookup"));
        assert!(reads + lookups < SMALL_FILES as u64 / 4, "{layout}: {reads} reads and {lookups} lookups: {asked:?}");
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

/// Statistics say how a file is read, and begin anew when something is written to them, as a measurement wants it.
#[test]
fn statistics_begin_anew() {
    let (two, at) = two_mounts!(LIMIT, "d");
    const BYTES: usize = 8 << 20;
    fs::write(at.a("f"), noise(1, BYTES)).unwrap();
    // Nothing is to travel later.
    File::open(at.a("f")).unwrap().sync_all().unwrap();
    let set = |what: &str| {
        let mut lctl = Command::new(sheen());
        lctl.args(["lctl", "set_param", "-n", &what.replace("{}", &two.fsname)]);
        run_within(lctl, Duration::from_secs(20)).ok()
    };
    let pages = |of: &str| -> u64 {
        let text = two.param("llite.{}-*.read_ahead_stats");
        let lines = text.lines().filter(|line| line.split_whitespace().next() == Some(of));
        lines.map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum()
    };
    let requests = || two.requests().values().sum::<u64>();
    let large = || two.param("osc.{}-*.rpc_stats").lines().filter(|line| line.starts_with("16:")).count();
    assert!(requests() > 0);
    for stats in ["osc.{}-*.stats", "dom.{}-*.stats", "mdc.{}-*.stats", "osc.{}-*.rpc_stats", "llite.{}-*.stats"] {
        assert_eq!(set(&format!("{stats}=clear")), "");
    }
    for stats in ["read_ahead_stats", "statahead_stats", "cache_stats"] {
        set(&format!("llite.{{}}-*.{stats}=0"));
    }
    assert_eq!((requests(), large(), pages("hits"), pages("misses")), (0, 0, 0, 0));
    assert!(!two.param("llite.{}-*.cache_stats").lines().any(|line| line.ends_with(|c| ('1'..='9').contains(&c))));

    assert_eq!(fs::read(at.b("f")).unwrap().len(), BYTES);
    let (hits, misses) = (pages("hits"), pages("misses"));
    assert!(hits > 4 * misses && hits + misses >= BYTES as u64 / 4096, "{hits} pages in order, {misses} not");
    assert!(requests() > 0 && large() > 0, "{}", two.param("osc.{}-*.rpc_stats"));
    set("llite.{}-*.read_ahead_stats=0");
    set("osc.{}-*.max_dirty_mb=32M");
    assert!(two.param("osc.{}-OST0000-*.max_dirty_mb").lines().all(|line| line.ends_with("=32")));
    set("lod.{}-*.dom_stripesize_max_kb=128K");
    assert!(two.param("lod.{}-*.dom_stripesize").ends_with("=131072\n"));

    // Here and there, past the pages that the kernel has.
    set("ldlm.namespaces.{}-OST*.lru_size=clear");
    let file = File::open(at.b("f")).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
    for place in [5, 0, 7, 1, 6] {
        file.read_exact_at(&mut [0; 4096], (place << 20) + 4096).unwrap();
    }
    assert_eq!(pages("misses"), 5, "the first, and each that is more than 4 MiB from where the last one ended");
}
