//! Write-back: small writes stay dirty on their mount for a while and are sent together. Other
//! mounts see them at once, and the OSTs have room for them. As long as their mount lives, they
//! survive whatever they would survive on the servers.
//!
//! A statement is a function of two views of one directory, in which A writes. It runs with each of
//! two mounts in either role: the mount of the serving process, and a mount over tcp. Most
//! statements end with a check that data was dirty at all: else they would prove nothing.

use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Seek, SeekFrom, Write},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    thread,
    time::{Duration, Instant, SystemTime},
};

use rustix::{
    fs::{FallocateFlags, SeekFrom as Where},
    io::Errno,
};
use sheen_control::{Reply, Request, ask_all, sockets};
use sheen_tests::{
    Fs, can_mount, clean_up,
    cluster::Cluster,
    is_mounted, is_root,
    mounts::{Counts, LIMIT, Two, TwoMounts, Watch, between, get_param},
    noise, objects_below,
    posix::{Map, rw},
    progress::{Race, at_least},
    run_command, sh, sheen,
    wait::{EVENTUALLY, eventually, eventually_some, let_pass},
};

mod statements;

/// Interval at which the write-back cache looks for old dirty data.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);
/// How long a killed OST is down, and how long it runs until it is killed again.
const DOWN: Duration = Duration::from_millis(300);
/// Length of a file: several stripes, and no multiple of a page or stripe.
const LEN: usize = 300_017;
const PIECE: usize = 4096;
/// Length of a record, as IOR writes them in the paper on overstriping.
const RECORD: usize = 47_008;
const ROUNDS: u64 = 4;
/// Few objects and many, on one OST and on several.
const LAYOUTS: [&str; 3] = ["-c 1", "-c 4 -S 64K", "-C 8 -S 64K"];
/// Number of objects of a file with any of these layouts, at most.
const OBJECTS_MAX: u64 = 8;
const O_DIRECT: i32 = 0o40000;
const O_SYNC: i32 = 0o4010000;

macro_rules! statements {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            let Some(two) = up() else { return };
            statements::$name(&Stage::new(&two, two.dir("d")));
            statements::$name(&Stage::new(&two, two.dir("e").swapped()));
        })*
    };
}

statements! {
    small_writes_are_sent_in_few_requests
    split_write_tails_cost_few_requests_and_callbacks
    unaligned_records_of_two_mounts_cost_few_callbacks
    overwrites_in_any_order_leave_the_last_data
    stat_elsewhere_sees_each_write_without_a_flush
    sizes_never_shrink_while_a_file_grows
    dirty_data_is_read_on_the_other_mount
    dirty_data_is_read_on_the_same_mount
    seek_data_and_seek_hole_find_dirty_data
    truncate_applies_to_dirty_data
    punch_applies_to_dirty_data
    appends_land_behind_dirty_data
    flush_does_not_move_modification_times
    explicitly_set_time_survives_a_flush
    dirty_data_follows_renames_links_and_unlinks
    processes_share_the_dirty_data_of_one_file
    dirty_data_of_deleted_files_is_discarded
    dirty_data_stays_below_max_dirty_mb
    writeback_0_sends_each_write_at_once
}

fn up() -> Option<TwoMounts> {
    if !can_mount() {
        println!("skipped: /dev/fuse cannot be opened here");
        return None;
    }
    Some(TwoMounts::up(LIMIT))
}

/// One directory on two mounts, and what tests ask about them.
struct Stage<'a> {
    two: &'a TwoMounts,
    at: Two,
    /// Requests sent before the statement began.
    before: Counts,
    /// Number of pieces that [`Stage::write_in`] wrote.
    pieces: AtomicU64,
}

impl<'a> Stage<'a> {
    fn new(two: &'a TwoMounts, at: Two) -> Stage<'a> {
        Stage { two, at, before: two.requests(), pieces: AtomicU64::new(0) }
    }

    /// Calls [`write_in`] and counts the pieces.
    fn write_in(&self, piece: usize, file: &File, data: &[u8], at: u64) {
        self.pieces.fetch_add(data.len().div_ceil(piece) as u64, SeqCst);
        write_in(piece, file, data, at);
    }

    /// Asserts that there were fewer requests than pieces. Otherwise no data was dirty, and a
    /// statement about dirty data proves nothing.
    #[track_caller]
    fn assert_data_was_dirty(&self) {
        let asked = of_kind(&between(&self.before, &self.two.requests()), " ost_write");
        let pieces = self.pieces.load(SeqCst);
        assert!(asked < pieces, "no data was dirty: {asked} requests for {pieces} writes");
    }

    fn a(&self, name: &str) -> PathBuf {
        self.at.a(name)
    }

    fn b(&self, name: &str) -> PathBuf {
        self.at.b(name)
    }

    /// Returns the dirty bytes of all mounts.
    fn dirty_bytes(&self) -> u64 {
        total(self.two, "osc.{}-*.cur_dirty_bytes")
    }

    /// Creates a file with a layout, and opens it for reading and writing.
    fn create(&self, name: &str, layout: &str) -> File {
        setstripe(&self.at.a, layout, name);
        rw(&self.a(name))
    }

    /// Waits until all dirty data has been flushed because of its age.
    #[track_caller]
    fn wait_until_written(&self) {
        eventually("the dirty data is flushed", || self.dirty_bytes() == 0);
    }

    /// Returns the number of requests of a kind that `work` sends to the OSTs.
    fn costs(&self, kind: &str, work: impl FnOnce()) -> u64 {
        of_kind(&self.two.cost(work), kind)
    }
}

fn setstripe(dir: &Path, layout: &str, name: &str) {
    let mut command = Command::new(sheen());
    command.args(["lfs", "setstripe"]).args(layout.split(' ')).arg(name).current_dir(dir);
    sheen_tests::run_command(command).ok();
}

/// Returns an upper bound of the requests that were sent because dirty data got old. On a slow
/// machine there are many.
fn aged(begun: Instant) -> u64 {
    (begun.elapsed().as_millis() / FLUSH_INTERVAL.as_millis()) as u64 * OBJECTS_MAX
}

/// Returns a file name for a layout.
fn file_name_for(layout: &str) -> String {
    format!("f{}", layout.replace(' ', ""))
}

fn of_kind(asked: &Counts, kind: &str) -> u64 {
    asked.iter().filter(|(name, _)| name.starts_with("osc.") && name.ends_with(kind)).map(|(_, n)| n).sum()
}

/// Returns the values of a parameter for all mounts and OSTs.
fn numbers(two: &TwoMounts, pattern: &str) -> Vec<u64> {
    let text = two.param(pattern);
    text.lines().filter_map(|l| l.rsplit_once('=')).map(|(_, n)| n.trim().parse().expect("a number")).collect()
}

fn total(two: &TwoMounts, pattern: &str) -> u64 {
    numbers(two, pattern).iter().sum()
}

/// Returns the sum of a counter of the OSTs' lock servers.
fn counted(two: &TwoMounts, what: &str) -> u64 {
    let text = two.param("ldlm.namespaces.*{}-OST*.stats");
    let lines = text.lines().filter_map(|l| l.strip_prefix(what)).filter_map(|rest| rest.trim().parse::<u64>().ok());
    lines.sum()
}

fn set(two: &TwoMounts, what: &str) {
    sheen_tests::run(sheen(), ["lctl", "set_param", &what.replace("{}", &two.fsname)]).ok();
}

fn direct(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).custom_flags(O_DIRECT).open(path).unwrap()
}

/// Writes in pieces, one write(2) each.
fn write_in(piece: usize, file: &File, data: &[u8], at: u64) {
    for (i, bytes) in data.chunks(piece).enumerate() {
        file.write_all_at(bytes, at + (i * piece) as u64).unwrap();
    }
}

fn read_at(file: &File, at: u64, len: usize) -> Vec<u8> {
    let mut back = vec![0; len];
    let mut n = 0;
    while n < len {
        match file.read_at(&mut back[n..], at + n as u64).unwrap() {
            0 => break,
            more => n += more,
        }
    }
    back.truncate(n);
    back
}

fn all(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap()
}

fn mtime(path: &Path) -> (i64, i64) {
    let m = fs::metadata(path).unwrap();
    (m.mtime(), m.mtime_nsec())
}

/// Asserts that two byte strings are the same. Reports only the difference, which is easier to read
/// than all bytes.
#[track_caller]
fn same(found: &[u8], want: &[u8], what: &str) {
    if found != want {
        let first = found.iter().zip(want).position(|(a, b)| a != b);
        let wrong = found.iter().zip(want).filter(|(a, b)| a != b).count();
        panic!("{what}: {} bytes for {}, {wrong} wrong, the first at {first:?}", found.len(), want.len());
    }
}

/// Counts the object files of a file system's OSTs.
fn objects(fs: &Fs) -> usize {
    (0..4).map(|i| objects_below(&fs.dir().join(format!("ost{i}")))).sum()
}

/// Returns the bytes that mounts have sent to OSTs in writes.
fn sent(two: &TwoMounts) -> u64 {
    let text = two.param("osc.{}-*.stats");
    // NAME COUNT samples [bytes] MIN MAX SUM SQUARES
    let lines = text.lines().filter(|l| l.starts_with("write_bytes"));
    lines.filter_map(|l| l.split_whitespace().nth(6)).map(|sum| sum.parse::<u64>().unwrap()).sum()
}

/// Returns the number of writes that OSTs have received, also while the second mount is stopped.
/// That mount is not queried, because it would not answer. This process sends the queries itself: a
/// child process closes the inherited files when it starts, and such a close waits for a stopped
/// mount.
fn received(two: &TwoMounts) -> u64 {
    let request = Request::Get { pattern: format!("obdfilter.{}-OST*.stats", two.fsname) };
    let stopped = format!("{}.sock", two.second.pid());
    let servers: Vec<PathBuf> = sockets().into_iter().filter(|socket| !socket.ends_with(&stopped)).collect();
    let replies = ask_all(&servers, &request, EVENTUALLY).replies;
    let values = replies.into_iter().filter_map(|reply| if let Reply::Values(v) = reply { Some(v) } else { None });
    let text: Vec<String> = values.flatten().map(|found| found.value).collect();
    let lines = text.iter().flat_map(|value| value.lines()).filter(|l| l.starts_with("write_bytes"));
    lines.filter_map(|l| l.split_whitespace().nth(1)).map(|n| n.parse::<u64>().unwrap()).sum()
}

/// The mount is killed with all its dirty data.
#[test]
fn killed_mount_loses_only_young_unsynced_data() {
    let Some(two) = up() else { return };
    let at = two.dir("d").swapped();
    let pieces = |file: &File, seed| write_in(PIECE, file, &noise(seed, LEN), 0);
    let synced = rw(&at.a("synced"));
    pieces(&synced, 1);
    synced.sync_all().unwrap();
    let data = rw(&at.a("data"));
    pieces(&data, 2);
    data.sync_data().unwrap();
    let osync = OpenOptions::new().write(true).create(true).custom_flags(O_SYNC).open(at.a("osync")).unwrap();
    write_in(50_000, &osync, &noise(3, LEN), 0);
    let old = rw(&at.a("old"));
    pieces(&old, 4);
    pieces(&rw(&at.a("closed")), 5);
    eventually("old dirty data is flushed", || total(&two, "osc.{}-*.cur_dirty_bytes") == 0);
    let again = rw(&at.a("again"));
    pieces(&again, 6);
    again.sync_all().unwrap();
    // Synced, and then written a second time: each byte is the older one or the newer one.
    pieces(&again, 7);
    let young = rw(&at.a("young"));
    pieces(&young, 8);
    two.second.kill();
    // The mount stays dead: that all of this can be read proves that reads do not wait for ever.
    for (name, seed) in [("synced", 1), ("data", 2), ("osync", 3), ("old", 4), ("closed", 5)] {
        same(&all(&at.b(name)), &noise(seed, LEN), name);
    }
    let (older, newer) = (noise(6, LEN), noise(7, LEN));
    let found = all(&at.b("again"));
    assert_eq!(found.len(), LEN);
    let ours = |i: usize| found[i] == older[i] || found[i] == newer[i];
    assert!((0..LEN).all(ours), "bytes that no program wrote");
    let (found, newer) = (all(&at.b("young")), noise(8, LEN));
    assert!(found.len() <= LEN && found.iter().zip(newer).all(|(f, n)| *f == n || *f == 0), "bytes never written");
    drop((synced, data, osync, old, again, young));
}

#[test]
fn unmount_flushes_all_dirty_data() {
    let Some(two) = up() else { return };
    let at = two.dir("d").swapped();
    for (i, layout) in LAYOUTS.into_iter().enumerate() {
        setstripe(&at.a, layout, &format!("f{i}"));
        write_in(PIECE, &rw(&at.a(&format!("f{i}"))), &noise(i as u64, LEN), 0);
    }
    let mut umount = Command::new(sheen());
    umount.arg("umount").arg(&two.second.mnt);
    run_command(umount).ok();
    assert!(!is_mounted(&two.second.mnt));
    for (i, layout) in LAYOUTS.into_iter().enumerate() {
        same(&all(&at.b(&format!("f{i}"))), &noise(i as u64, LEN), layout);
    }
}

/// A mount is frozen with dirty data, and the servers evict it because another mount writes there.
/// The dirty data is older than that write and must be discarded. The next fsync reports the loss.
#[test]
fn evicted_mount_discards_dirty_data_and_fsync_reports_it_once() {
    let Some(two) = up() else { return };
    let at = two.dir("d").swapped();
    let file = rw(&at.a("f"));
    write_in(PIECE, &file, &noise(1, LEN), 0);
    file.sync_all().unwrap();
    let theirs = noise(3, LEN);
    // A slow machine may flush some of the data before the freeze. Then the round proves nothing.
    eventually("a mount is frozen with all its dirty data", || {
        file.sync_all().expect("all is written");
        let before = received(&two);
        write_in(PIECE, &file, &noise(2, LEN), 0);
        two.second.freeze();
        let is_cacheable = received(&two) == before;
        if is_cacheable {
            // The mount stays frozen: that the write ends proves that it does not wait for ever.
            rw(&at.b("f")).write_all_at(&theirs, 0).unwrap();
        }
        two.second.resume();
        is_cacheable
    });
    let error = file.sync_all().expect_err("fsync reports that dirty data was discarded");
    assert_eq!(Errno::from_io_error(&error), Some(Errno::IO));
    file.sync_all().expect("the error is reported once");
    same(&all(&at.b("f")), &theirs, "what B wrote stays");
    eventually("A shows what B wrote", || all(&at.a("f")) == theirs);
    write_in(PIECE, &file, &noise(4, LEN), 0);
    file.sync_all().expect("later writes succeed");
    same(&all(&at.b("f")), &noise(4, LEN), "and B sees it");
    same(&all(&at.a("f")), &noise(4, LEN), "as does A");
}

/// As above, for data that a program has stored through a mapping: the kernel has it, and writes it
/// when the mount has noticed the eviction.
#[test]
fn evicted_mount_discards_stores_into_a_mapping_and_msync_reports_it() {
    let Some(two) = up() else { return };
    let at = two.dir("d").swapped();
    let file = rw(&at.a("f"));
    file.write_all_at(&noise(1, LEN), 0).unwrap();
    let map = Map::new(&file, LEN);
    let theirs = noise(3, LEN);
    // So that the test is short.
    let lock_timeout = |secs: u32| set(&two, &format!("ldlm.namespaces.filter-{{}}-OST*.lock_timeout={secs}"));
    lock_timeout(5);
    // A slow machine may write the page before the freeze. Then the round proves nothing.
    eventually("a mount is frozen with a stored page", || {
        map.sync().expect("all is written");
        let before = received(&two);
        map.write(0, &noise(2, PIECE));
        two.second.freeze();
        let is_stored = received(&two) == before;
        if is_stored {
            // The mount stays frozen: that the write ends proves that it does not wait for ever.
            rw(&at.b("f")).write_all_at(&theirs, 0).unwrap();
        }
        two.second.resume();
        is_stored
    });
    lock_timeout(20);
    assert_eq!(map.sync(), Err(Errno::IO), "msync reports that a store was discarded");
    same(&all(&at.b("f")), &theirs, "what B wrote stays");
    eventually("the mapping shows what B wrote", || map.read(0, LEN) == theirs);
    // While the kernel drops the pages, the stores into others of them are discarded as well.
    eventually("later stores are written", || {
        map.write(0, &noise(4, PIECE));
        map.sync().is_ok()
    });
    let both = [noise(4, PIECE), theirs[PIECE..].to_vec()].concat();
    same(&all(&at.b("f")), &both, "B sees it");
    same(&map.read(0, LEN), &both, "as does the mapping");
}

/// Dirty data that a killed OST has not received is sent after its restart.
#[test]
fn killed_ost_gets_the_dirty_data_after_its_restart() {
    let Some(mut cluster) = Cluster::start_or_skip() else { return };
    let (mount, other) = (cluster.mount(), cluster.mount_as("mnt2"));
    let _watch = Watch::over(&[&mount.mnt, &other.mnt], LIMIT);
    setstripe(&mount.mnt, "-c 2 -S 64K", "f");
    let file = rw(&mount.path("f"));
    file.write_all_at(b"x", 0).unwrap();
    // Killed with dirty data. No program writes while the OST is down.
    write_in(PIECE, &file, &noise(1, LEN), 0);
    cluster.kill("oss");
    let_pass(DOWN);
    cluster.spawn("oss");
    file.sync_all().expect("nothing is lost");
    same(&all(&other.path("f")), &noise(1, LEN), "the other mount");
    // Killed twice while a program writes.
    let data = noise(2, 24 << 20);
    thread::scope(|scope| {
        let writer = scope.spawn(|| write_in(PIECE, &file, &data, 0));
        for _ in 0..2 {
            let_pass(DOWN);
            cluster.kill("oss");
            let_pass(DOWN);
            cluster.spawn("oss");
        }
        writer.join().unwrap();
    });
    same(&all(&other.path("f")), &data, "the other mount, without an fsync");
    file.sync_all().expect("nothing is lost");
    same(&all(&mount.path("f")), &data, "its own mount");
}

/// Two mounts write alternate pieces of one file, one of them past the page cache.
#[test]
fn buffered_and_direct_writers_complete_although_their_ost_is_killed() {
    let Some(mut cluster) = Cluster::start_or_skip() else { return };
    let [a, b, reader] = ["mnt", "mnt2", "mnt3"].map(|name| cluster.mount_as(name));
    let _watch = Watch::over(&[&a.mnt, &b.mnt, &reader.mnt], LIMIT);
    setstripe(&a.mnt, "-c 2 -S 64K", "f");
    let (files, written) = ([rw(&a.path("f")), direct(&b.path("f"))], AtomicU64::new(0));
    let data = noise(1, 4 << 20);
    thread::scope(|scope| {
        for (turn, file) in files.iter().enumerate() {
            let (data, written) = (&data, &written);
            scope.spawn(move || {
                for (i, bytes) in data.chunks(PIECE).enumerate().filter(|(i, _)| i % 2 == turn) {
                    file.write_all_at(bytes, (i * PIECE) as u64).unwrap();
                    written.fetch_add(1, SeqCst);
                }
                file.sync_all().expect("nothing is lost");
            });
        }
        for part in [4, 2] {
            let pieces = (data.len() / PIECE / part) as u64;
            eventually(format!("{pieces} pieces are written"), || written.load(SeqCst) >= pieces);
            cluster.kill("oss");
            let_pass(DOWN);
            cluster.spawn("oss");
        }
    });
    same(&all(&reader.path("f")), &data, "a third mount");
}

/// OSTs on small disks of their own.
struct Small {
    fs: Fs,
    fsname: String,
    osts: usize,
}

impl Small {
    fn up(osts: usize, size: &str) -> Small {
        let fsname = format!("s{:x}", std::process::id());
        let fs = Fs::up_in(Path::new("/dev/shm"), osts as u32, &["--fsname", &fsname]);
        fs.stop().ok();
        let small = Small { fs, fsname, osts };
        for ost in small.disks() {
            let at = ost.display();
            sh(&format!(
                "set -e; mv {at} {at}.was; mkdir {at}; mount -t tmpfs -o size={size},mode=755 none {at}
                 cp -a {at}.was/. {at}/; rm -r {at}.was"
            ))
            .ok();
        }
        small.fs.start(&[]).ok();
        small
    }

    /// Returns the number of write requests to the OSTs.
    fn writes(&self) -> u64 {
        let text = get_param(&format!("osc.{}-*.stats", self.fsname));
        let counts =
            text.lines().filter_map(|l| l.strip_prefix("ost_write ")).filter_map(|l| l.split_whitespace().next());
        counts.map(|n| n.parse::<u64>().unwrap()).sum()
    }

    fn disks(&self) -> Vec<PathBuf> {
        (0..self.osts).map(|i| self.fs.dir().join(format!("ost{i}"))).collect()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        self.fs.end();
        for ost in self.disks() {
            clean_up(Command::new("umount").arg("-l").arg(ost));
        }
    }
}

/// Creates a file on OSTs that were full.
fn create_after_full(path: &Path) -> File {
    let open = || OpenOptions::new().write(true).create(true).truncate(true).open(path).ok();
    eventually_some("the MDT learns that there is room again", open)
}

/// Writes until the OSTs are full, and returns the bytes that were accepted.
fn fill(file: &File, piece: usize, seed: u64) -> Vec<u8> {
    let data = noise(seed, 64 << 20);
    let mut taken = 0;
    let refused = loop {
        match file.write_at(&data[taken..taken + piece], taken as u64) {
            Ok(n) => taken += n,
            Err(e) => break e,
        }
    };
    assert_eq!(Errno::from_io_error(&refused), Some(Errno::NOSPC), "after {taken} bytes");
    file.sync_all().expect("accepted data has its space");
    data[..taken].to_vec()
}

/// An OST grants space before a mount has dirty data for it, and no more than it has.
#[test]
fn dirty_data_within_the_grant_always_fits_on_the_ost() {
    if !can_mount() || !is_root() {
        return println!("skipped: needs root and /dev/fuse");
    }
    let small = Small::up(2, "24m");
    let second = small.fs.second_mount();
    let _watch = Watch::over(&[&small.fs.mnt, &second.mnt], LIMIT);
    small.fs.lfs("setstripe -c 2 -S 64K .").ok();
    for (round, piece) in [PIECE, RECORD, 1000].into_iter().enumerate() {
        let (seed, before) = (round as u64 * 10, small.writes());
        // One writer can fill the OSTs before the other one begins. No file can be created then.
        let files = [small.fs.path("a"), second.path("b")].map(|path| create_after_full(&path));
        let (a, b) = thread::scope(|scope| {
            let a = scope.spawn(|| fill(&files[0], piece, seed));
            let b = scope.spawn(|| fill(&files[1], piece, seed + 1));
            (a.join().unwrap(), b.join().unwrap())
        });
        drop(files);
        // One OST may have stored its part of the write that was refused.
        for (path, taken, whose) in [(second.path("a"), &a, "A's, as B sees it"), (small.fs.path("b"), &b, "and B's")] {
            let found = all(&path);
            assert!((taken.len()..=taken.len() + piece).contains(&found.len()), "{whose}: {} bytes", found.len());
            same(&found[..taken.len()], taken, &format!("pieces of {piece}: {whose}"));
        }
        let taken = a.len() + b.len();
        assert!(taken > 30 << 20, "pieces of {piece}: only {taken} bytes found room in 48 MiB");
        // While a flush returns its grant, each write is a request of its own. So the number of
        // requests depends on the machine. The first small writes always share one.
        let (sent, writes) = (small.writes() - before, taken / piece);
        assert!(piece >= RECORD || sent < writes as u64, "pieces of {piece}: {sent} requests: no data was dirty");
        // The writer that is left gets the space of the larger file, at least half of the whole.
        let sides = [(small.fs.path("a"), small.fs.path("c")), (second.path("b"), second.path("c"))];
        let [(larger, read), (smaller, write)] = if a.len() >= b.len() {
            sides
        } else {
            let [a, b] = sides;
            [b, a]
        };
        fs::remove_file(larger).unwrap();
        eventually("the space comes back", || {
            fs::write(&write, noise(5, 4 << 20)).is_ok() && all(&read) == noise(5, 4 << 20)
        });
        fs::remove_file(smaller).unwrap();
        fs::remove_file(write).unwrap();
        // Objects are destroyed some moments after their file is removed.
        eventually("the OSTs are empty again", || objects_below(&small.fs.dir()) == 0);
    }
}
