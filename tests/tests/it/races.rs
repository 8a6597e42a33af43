//! Races of two and three mounts: nothing is lost, nothing is done twice, nothing hangs, and no
//! mount shows an older state.

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions, Permissions},
    io::{ErrorKind, Write},
    ops::RangeInclusive,
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::{Barrier, Mutex, mpsc},
    thread,
    time::Duration,
};

use rustix::{
    fs::RenameFlags,
    io::Errno,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};
use sheen_tests::{
    mounts::{Two, Watch},
    noise,
    posix::Map,
    progress::{Race, at_least},
    two_mounts,
    wait::let_pass,
};

const LIMIT: Duration = Duration::from_secs(580);

/// Runs all jobs at once, each on a thread of its own, and returns their results.
#[track_caller]
fn run_concurrently<T: Send, J: FnOnce() -> T + Send>(jobs: Vec<J>) -> Vec<T> {
    let start = Barrier::new(jobs.len());
    thread::scope(|scope| {
        let start = &start;
        let run = |job: J| scope.spawn(move || (start.wait(), job()).1);
        let threads: Vec<_> = jobs.into_iter().map(run).collect();
        threads.into_iter().map(|t| t.join().expect("a racer failed")).collect()
    })
}

/// A job of any type.
type Job<'a> = Box<dyn FnOnce() + Send + 'a>;

fn exists<T>(result: Result<T, std::io::Error>) -> bool {
    match result {
        Ok(_) => true,
        Err(e) if e.kind() == ErrorKind::AlreadyExists => false,
        Err(e) => panic!("{e}"),
    }
}

/// Moves the calling thread to one processor, the same for all callers. A thread that is not the
/// busy one gets the lowest priority, so that it seldom runs.
fn pin_to_one_processor(is_busy: bool) {
    let allowed = sched_getaffinity(None).unwrap();
    let mut one = CpuSet::new();
    one.set((0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap());
    sched_setaffinity(None, &one).unwrap();
    if !is_busy {
        rustix::process::nice(19).unwrap();
    }
}

/// The kernel may process a reply long after it was sent: the thread that requested the lookup
/// waits for a processor.
#[test]
fn lookup_reply_that_a_change_overtakes_is_not_cached() {
    /// Changes in each role of the mounts: more than the 20 moments of the lookup at which they
    /// come.
    const ROUNDS: u64 = 30;
    let two = two_mounts!(LIMIT);
    for at in [two.dir("d"), two.dir("e").swapped()] {
        let at = &at;
        let race = &Race::new([at_least(ROUNDS)]);
        // A thread that fails drops its channel ends, so that no other thread waits for it.
        let (begin, begun) = mpsc::channel::<u64>();
        let (looked, was_looked_at) = mpsc::channel();
        let hog = || {
            pin_to_one_processor(true);
            while race.goes_on() {
                std::hint::spin_loop();
            }
        };
        let look = move || {
            let _looker = race.party(0);
            pin_to_one_processor(false);
            for round in begun {
                let _ = rustix::fs::stat(at.b(&format!("f{round}"))).unwrap();
                if looked.send(()).is_err() {
                    break;
                }
            }
        };
        let old = &Mutex::new(Vec::new());
        let change = move || {
            let rounds = race.party(0);
            while rounds.goes_on() {
                let round = rounds.count() + 1;
                let name = format!("f{round}");
                fs::write(at.a(&name), "old").unwrap();
                let file = OpenOptions::new().append(true).open(at.a(&name)).unwrap();
                if begin.send(round).is_err() {
                    break;
                }
                // In each round the change comes at another moment of the lookup.
                let_pass(Duration::from_micros(round % 20 * 500));
                (&file).write_all(b", and new").unwrap();
                fs::set_permissions(at.a(&name), Permissions::from_mode(0o600)).unwrap();
                if was_looked_at.recv().is_err() {
                    break;
                }
                let seen = rustix::fs::stat(at.b(&name)).unwrap();
                if (seen.st_size, seen.st_mode & 0o777) != (12, 0o600) {
                    old.lock().unwrap().push((round, seen.st_size, seen.st_mode));
                }
                rounds.did_one();
            }
        };
        let jobs: Vec<Job> = vec![Box::new(hog), Box::new(change), Box::new(look)];
        run_concurrently(jobs);
        assert_eq!(*old.lock().unwrap(), [], "stale attributes, in {ROUNDS} rounds");
    }
}

#[test]
fn exactly_one_of_many_concurrent_creates_succeeds() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    type Create = fn(&Path, usize) -> std::io::Result<()>;
    let ways: [(&str, Create); 5] = [
        ("O_EXCL", |p, _| File::create_new(p).map(drop)),
        ("mkdir", |p, _| fs::create_dir(p)),
        ("symlink", |p, _| symlink("x", p)),
        ("link", |p, me| fs::hard_link(p.with_file_name(format!("source{me}")), p)),
        ("rename", |p, me| {
            let from = p.with_file_name(format!("mine{me}"));
            fs::write(&from, "x")?;
            Ok(rustix::fs::renameat_with(rustix::fs::CWD, from, rustix::fs::CWD, p, RenameFlags::NOREPLACE)?)
        }),
    ];
    for me in 0..6 {
        fs::write(at.a(&format!("source{me}")), "x").unwrap();
    }
    for (way, create) in ways {
        const NAMES: usize = 40;
        let racer = |me: usize| {
            let dir = at.both()[me % 2];
            move || (0..NAMES).map(|i| exists(create(&dir.join(format!("{way}{i}")), me))).collect::<Vec<_>>()
        };
        let won = run_concurrently((0..6).map(racer).collect());
        for i in 0..NAMES {
            let winners = won.iter().filter(|w| w[i]).count();
            assert_eq!(winners, 1, "{way}: name {i}");
        }
        assert_eq!(listed(&at.b).iter().filter(|n| n.starts_with(way)).count(), NAMES);
    }
}

fn listed(dir: &Path) -> BTreeSet<String> {
    let entries: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    let names: BTreeSet<_> = entries.iter().cloned().collect();
    assert_eq!(names.len(), entries.len(), "listed twice");
    names
}

#[test]
fn appends_are_neither_lost_nor_torn() {
    append_concurrently(1);
}

#[test]
fn appends_to_striped_files_are_neither_lost_nor_torn() {
    append_concurrently(4);
}

/// Four threads append to one file while two look at it now and then, half of each on either mount.
fn append_concurrently(stripes: u32) {
    /// Pause between two looks. Their locks stop the appends.
    const LOOK_PAUSE: Duration = Duration::from_millis(50);
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    two.fs.lfs(&format!("setstripe -c {stripes} -S 64K {}", at.a.display())).ok();
    // A record of the last file spans stripes. Its size is that of IOR's records in the paper on
    // overstriping.
    for (name, len, count) in [("small", 64, 200u64), ("odd", 5003, 100), ("large", 47_008, 40)] {
        fs::write(at.a(name), "").unwrap();
        let all = 4 * count;
        let race = &Race::new([at_least(all)]);
        let write = |me: usize| {
            let path = at.both()[me % 2].join(name);
            move || {
                let appends = race.party(0);
                let mut file = OpenOptions::new().append(true).open(path).unwrap();
                for i in 0..count {
                    let mut record = vec![b'a' + me as u8; len];
                    record[..8].copy_from_slice(&i.to_le_bytes());
                    assert_eq!(file.write(&record).unwrap(), len);
                    appends.did_one();
                }
            }
        };
        let look = |dir: &Path| {
            while race.goes_on() {
                let least = race.count(0) as usize * len;
                let found = fs::metadata(dir.join(name)).unwrap().len() as usize;
                assert!(found >= least, "{name}: {found} bytes, {least} were there before");
                // The locks of this read conflict with those of the appends.
                fs::read(dir.join(name)).unwrap();
                let_pass(LOOK_PAUSE);
            }
        };
        let mut jobs: Vec<Job> = vec![Box::new(|| look(&at.a)), Box::new(|| look(&at.b))];
        (0..4).for_each(|me| jobs.push(Box::new(write(me))));
        run_concurrently(jobs);
        for dir in at.both() {
            let found = fs::read(dir.join(name)).unwrap();
            assert_eq!(found.len() as u64, all * len as u64, "{name}: records are lost");
            let mut next = [0u64; 4];
            for (place, record) in found.chunks(len).enumerate() {
                let me = (record[len - 1] - b'a') as usize;
                assert!(record[8..].iter().all(|b| *b == b'a' + me as u8), "{name}: record {place} is torn");
                let number = u64::from_le_bytes(record[..8].try_into().unwrap());
                assert_eq!(number, next[me], "{name}: record {place}: in the order of its writer");
                next[me] += 1;
            }
        }
    }
}

#[test]
fn a_rename_is_atomic_for_a_reader() {
    const VERSIONS: u64 = 150;
    /// Minimum for each of the readers.
    const READS: u64 = 150;
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    let text = |n: u64| format!("{n:>20}").repeat(5000);
    fs::write(at.a("f"), text(0)).unwrap();
    let race = &Race::new([at_least(VERSIONS), at_least(READS), at_least(READS)]);
    let write = || {
        let versions = race.party(0);
        while versions.goes_on() {
            fs::write(at.a("temporary"), text(versions.count() + 1)).unwrap();
            fs::rename(at.a("temporary"), at.a("f")).unwrap();
            versions.did_one();
        }
    };
    let read = |dir: &Path, part: usize| {
        let reads = race.party(part);
        while reads.goes_on() {
            let least = race.count(0);
            let found = fs::read_to_string(dir.join("f")).expect("the name is always there");
            let number: u64 = found[..20].trim().parse().unwrap();
            assert_eq!(found, text(number), "one version, whole");
            assert!(number >= least, "version {least} was there before the read began; it found {number}");
            reads.did_one();
        }
    };
    let jobs: Vec<Job> = vec![Box::new(write), Box::new(|| read(&at.b, 1)), Box::new(|| read(&at.a, 2))];
    run_concurrently(jobs);
}

/// State that one mount changes and others look at.
struct WatchedState {
    name: &'static str,
    /// Sets the state to `n`.
    change: fn(&Path, u64),
    /// Returns the state.
    look: fn(&Path) -> u64,
}

const WATCHED_STATES: &[WatchedState] = &[
    WatchedState {
        name: "content",
        change: |d, n| open(d, "content").write_all_at(&n.to_le_bytes(), 70_000).unwrap(),
        look: |d| number(&open(d, "content"), 70_000),
    },
    WatchedState {
        name: "size",
        change: |d, n| OpenOptions::new().append(true).open(d.join("size")).unwrap().write_all(&[n as u8]).unwrap(),
        look: |d| fs::metadata(d.join("size")).unwrap().len(),
    },
    WatchedState {
        name: "truncated",
        change: |d, n| open(d, "truncated").set_len(n * 1000).unwrap(),
        look: |d| fs::metadata(d.join("truncated")).unwrap().len() / 1000,
    },
    WatchedState {
        name: "xattr",
        change: |d, n| {
            rustix::fs::setxattr(d.join("xattr"), "user.n", &n.to_le_bytes(), rustix::fs::XattrFlags::empty()).unwrap();
        },
        look: |d| {
            let mut value = [0; 8];
            match rustix::fs::getxattr(d.join("xattr"), "user.n", &mut value[..]) {
                Ok(_) => u64::from_le_bytes(value),
                Err(e) => (assert_eq!(e, Errno::NODATA), 0).1,
            }
        },
    },
    WatchedState {
        name: "name",
        change: |d, n| fs::write(d.join(format!("name{n}")), "x").unwrap(),
        look: |d| {
            // Names are created in order. Doubles a number until its name is missing, which caches
            // the absence. Then finds the last name by bisection.
            let there = |n: u64| n == 0 || d.join(format!("name{n}")).exists();
            let mut above = 1;
            while there(above) {
                above *= 2;
            }
            let mut below = above / 2;
            while above - below > 1 {
                let middle = below.midpoint(above);
                if there(middle) { below = middle } else { above = middle }
            }
            below
        },
    },
    WatchedState {
        name: "links",
        change: |d, n| fs::hard_link(d.join("links"), d.join(format!("link{n}"))).unwrap(),
        look: |d| fs::metadata(d.join("links")).unwrap().nlink() - 1,
    },
    WatchedState {
        name: "listing",
        change: |d, n| drop(File::create(d.join(format!("sub/e{n}"))).unwrap()),
        look: |d| listed(&d.join("sub")).len() as u64,
    },
];

fn open(dir: &Path, name: &str) -> File {
    OpenOptions::new().read(true).write(true).open(dir.join(name)).unwrap()
}

fn number(file: &File, offset: u64) -> u64 {
    let mut bytes = [0; 8];
    let _ = file.read_at(&mut bytes, offset).unwrap();
    u64::from_le_bytes(bytes)
}

/// A look that begins after a change returned sees that change or a later one. Changes go on all
/// the time, and three mounts look.
#[test]
fn reads_never_return_an_older_state() {
    /// Changes of each state. The maximum keeps directories small enough to be listed often.
    const CHANGES: RangeInclusive<u64> = 150..=1000;
    /// Looks on each mount.
    const LOOKS: RangeInclusive<u64> = at_least(150);
    /// A pause of the changes, in which the other mounts cache the state.
    const CACHING_PAUSE: Duration = Duration::from_millis(3);
    let two = two_mounts!(LIMIT);
    let third = two.fs.second_mount();
    let _watch = Watch::over(&[&third.mnt], LIMIT);
    for thing in WATCHED_STATES {
        let at = two.dir(thing.name);
        for name in ["content", "size", "truncated", "xattr", "links"] {
            fs::write(at.a(name), "").unwrap();
        }
        fs::create_dir(at.a("sub")).unwrap();
        let race = &Race::new([CHANGES, LOOKS, LOOKS, LOOKS]);
        let look = |part: usize, dir: PathBuf| {
            move || {
                let (looks, mut last) = (race.party(part), 0);
                while looks.goes_on() {
                    let least = race.count(0).max(last);
                    let found = (thing.look)(&dir);
                    let (name, dir) = (thing.name, dir.display());
                    assert!(found >= least, "{name}: {found} is stale, {least} was there before: {dir}");
                    last = found;
                    looks.did_one();
                }
            }
        };
        let change = || {
            let changes = race.party(0);
            while changes.goes_on() {
                let n = changes.count() + 1;
                (thing.change)(&at.a, n);
                changes.did_one();
                if n.is_multiple_of(16) {
                    let_pass(CACHING_PAUSE);
                }
            }
        };
        let jobs: Vec<Job> = vec![
            Box::new(change),
            Box::new(look(1, at.a.clone())),
            Box::new(look(2, at.b.clone())),
            Box::new(look(3, third.path(thing.name))),
        ];
        run_concurrently(jobs);
        let looks = [1, 2, 3].map(|part| race.count(part));
        println!("{}: {} changes, looks {looks:?}", thing.name, race.count(0));
    }
}

/// The same through a mapping that exists all the time.
#[test]
fn mapping_never_shows_older_data() {
    const CHANGES: u64 = 500;
    /// Looks on each mount.
    const LOOKS: u64 = 500;
    /// Slow enough that one byte distinguishes all changes during a look.
    const CHANGE_PAUSE: Duration = Duration::from_micros(300);
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    fs::write(at.a("f"), noise(1, 200_000)).unwrap();
    open(&at.a, "f").write_all_at(&[0; 8], 131_072).unwrap();
    let race = &Race::new([at_least(CHANGES), at_least(LOOKS), at_least(LOOKS)]);
    let change = || {
        let (changes, file) = (race.party(0), open(&at.a, "f"));
        while changes.goes_on() {
            file.write_all_at(&[(changes.count() + 1) as u8; 8], 131_072).unwrap();
            changes.did_one();
            let_pass(CHANGE_PAUSE);
        }
    };
    let look = |part: usize, dir: &Path| {
        let (looks, file) = (race.party(part), open(dir, "f"));
        let map = Map::new(&file, 200_000);
        while looks.goes_on() {
            let least = race.count(0);
            let found = map.read(131_072, 1)[0];
            let latest = race.count(0);
            // The look may return any change between the two counts, or one that is under way. One
            // byte cannot distinguish more than 250 changes.
            let past = u64::from(found.wrapping_sub(least as u8)) > latest - least + 1;
            let is_past = past && latest - least < 250;
            assert!(!is_past, "the mapping shows {found}; {least} was there before, {latest} after");
            looks.did_one();
        }
    };
    let jobs: Vec<Job> = vec![Box::new(change), Box::new(|| look(1, &at.b)), Box::new(|| look(2, &at.a))];
    run_concurrently(jobs);
}

fn cache_all(at: &Two, names: &[String]) {
    for dir in at.both() {
        for name in names {
            fs::metadata(dir.join(name)).unwrap();
        }
        listed(dir);
    }
}

fn was_found(result: std::io::Result<()>) -> bool {
    match result {
        Ok(()) => true,
        Err(e) if e.kind() == ErrorKind::NotFound => false,
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn concurrent_unlinks_remove_each_name_once() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    for round in 0..3 {
        let names: Vec<_> = (0..150).map(|i| format!("f{round}.{i}")).collect();
        for name in &names {
            fs::write(at.a(name), name).unwrap();
        }
        cache_all(&at, &names);
        let racer = |me: usize| {
            let (dir, names) = (at.both()[me % 2], &names);
            move || names.iter().map(|n| was_found(fs::remove_file(dir.join(n)))).collect::<Vec<_>>()
        };
        let removed = run_concurrently((0..4).map(racer).collect());
        for (i, name) in names.iter().enumerate() {
            assert_eq!(removed.iter().filter(|r| r[i]).count(), 1, "{name} is removed once");
        }
        assert!(listed(&at.a).is_empty() && listed(&at.b).is_empty());
    }
}

#[test]
fn concurrent_renames_keep_every_file_once() {
    /// Minimum for each of the racers.
    const MOVES: u64 = 100;
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    let dirs = ["x", "y"];
    for dir in dirs {
        fs::create_dir(at.a(dir)).unwrap();
    }
    let names: Vec<_> = (0..40).map(|i| format!("f{i}")).collect();
    for name in &names {
        fs::write(at.a(&format!("x/{name}")), name).unwrap();
    }
    let race = &Race::new(vec![at_least(MOVES); 4]);
    let racer = |me: usize| {
        let (dir, names) = (at.both()[me % 2], &names);
        move || {
            let (moves, mut rng) = (race.party(me), fastrand::Rng::with_seed(me as u64));
            while moves.goes_on() {
                let name = &names[rng.usize(..names.len())];
                let (from, to) = (dirs[rng.usize(..2)], dirs[rng.usize(..2)]);
                let (from, to) = (dir.join(from).join(name), dir.join(to).join(name));
                let _ = (fs::metadata(&from), fs::metadata(&to));
                if was_found(fs::rename(&from, &to)) {
                    moves.did_one();
                }
                let _ = fs::read_to_string(&to).inspect(|text| assert_eq!(text, name));
            }
        }
    };
    run_concurrently((0..4).map(racer).collect());
    for dir in at.both() {
        let (x, y) = (listed(&dir.join("x")), listed(&dir.join("y")));
        assert!(x.is_disjoint(&y), "a file is in both directories");
        assert_eq!(&x | &y, names.iter().cloned().collect(), "every file is in one directory");
        for (place, found) in [("x", &x), ("y", &y)] {
            found.iter().for_each(|n| assert_eq!(&fs::read_to_string(dir.join(place).join(n)).unwrap(), n));
        }
    }
}

#[test]
fn concurrent_directory_moves_make_no_cycle_and_lose_nothing() {
    /// Minimum for each of the racers. Most attempts are refused.
    const TRIES: u64 = 400;
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    for dir in ["a", "b", "c"] {
        fs::create_dir_all(at.a(&format!("{dir}/sub"))).unwrap();
    }
    let race = &Race::new(vec![at_least(TRIES); 4]);
    let racer = |me: usize| {
        let dir = at.both()[me % 2];
        move || {
            let (tries, mut rng) = (race.party(me), fastrand::Rng::with_seed(me as u64));
            let places = ["", "a/", "b/", "c/", "a/sub/", "b/sub/", "c/sub/"];
            while tries.goes_on() {
                let name = ["a", "b", "c"][rng.usize(..3)];
                let from = format!("{}{name}", places[rng.usize(..7)]);
                let to = format!("{}{name}", places[rng.usize(..7)]);
                let _ = fs::metadata(dir.join(&to));
                // A rename of a directory into itself, onto an existing name, or of a missing name
                // is refused. It makes no cycle and does not hang.
                let _ = fs::rename(dir.join(from), dir.join(to));
                tries.did_one();
            }
        }
    };
    run_concurrently((0..4).map(racer).collect());
    let count = |dir: &Path| {
        let mut found = Vec::new();
        let mut todo = vec![dir.to_owned()];
        while let Some(dir) = todo.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                found.push(path.file_name().unwrap().to_owned());
                todo.push(path);
            }
        }
        found.sort();
        found
    };
    assert_eq!(count(&at.a), ["a", "b", "c", "sub", "sub", "sub"].map(std::ffi::OsString::from), "no cycle, no loss");
    assert_eq!(count(&at.b), count(&at.a));
}

#[test]
fn concurrent_creates_on_both_mounts_lose_nothing() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    const FILES: usize = 250;
    let racer = |me: usize| {
        let dir = at.both()[me % 2];
        move || {
            for i in 0..FILES {
                let path = dir.join(format!("f{me}.{i}"));
                fs::write(&path, noise(i as u64, i * 7)).unwrap();
                assert_eq!(fs::metadata(&path).unwrap().len(), i as u64 * 7);
            }
        }
    };
    run_concurrently((0..4).map(racer).collect());
    for dir in at.both() {
        assert_eq!(listed(dir).len(), 4 * FILES);
        for me in 0..4 {
            for i in 0..FILES {
                assert!(fs::read(dir.join(format!("f{me}.{i}"))).unwrap() == noise(i as u64, i * 7), "f{me}.{i}");
            }
        }
    }
}

/// Writers of different parts of one page lose none of their writes, whatever the page caches of
/// the mounts hold.
#[test]
fn writes_to_different_parts_of_one_page_lose_nothing() {
    let two = two_mounts!(LIMIT);
    let at = two.dir("d");
    const PIECE: usize = 100;
    const PIECES: usize = 700;
    fs::write(at.a("f"), vec![0; PIECE * PIECES]).unwrap();
    let racer = |me: usize| {
        let dir = at.both()[me % 2];
        move || {
            let file = open(dir, "f");
            for round in 1..=3u8 {
                for i in (me..PIECES).step_by(4) {
                    file.write_all_at(&[me as u8 * 10 + round; PIECE], (i * PIECE) as u64).unwrap();
                    if i % 16 == me {
                        fs::read(dir.join("f")).unwrap();
                    }
                }
            }
        }
    };
    run_concurrently((0..4).map(racer).collect());
    for dir in at.both() {
        for (i, piece) in fs::read(dir.join("f")).unwrap().chunks(PIECE).enumerate() {
            assert!(piece.iter().all(|b| *b == (i % 4) as u8 * 10 + 3), "piece {i} on {}", dir.display());
        }
    }
}
