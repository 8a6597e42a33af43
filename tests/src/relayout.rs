//! Helpers for tests that move files' data (`lfs migrate`, `lfs swap_layouts`, mirrors) while
//! programs use the files and servers are killed.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    ops::RangeInclusive,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use crate::{
    Mount, Ran,
    cluster::Cluster,
    mounts::Two,
    noise,
    posix::{Map, layout, rw},
    progress::{Party, Race, at_least},
    run_within, sheen,
    wait::{eventually, let_pass},
};

/// Time limit of a command. It is below the test's limit, so that the message names the command.
pub const COMMAND_MAX: Duration = Duration::from_secs(240);
/// Steps that succeed between two kills. The first of them may have begun before the servers
/// restarted.
const STEPS_BETWEEN: u64 = 2;
/// Pause between these steps and the next kill, so that it hits a step at an arbitrary moment.
const PAUSE_BEFORE_KILL: Duration = Duration::from_millis(400);
/// Time between the kill of servers and their restart.
const DOWN: Duration = Duration::from_millis(300);
/// Minimum rounds of counters on each mount, and minimum appends, of [`BusyWriters`] programs.
const ROUNDS: RangeInclusive<u64> = at_least(11);
const APPENDS: RangeInclusive<u64> = at_least(50);
/// Size in bytes of file `f` of [`BusyWriters`].
const BUSY_BYTES: usize = 1 << 19;
/// Bytes of the mapping of [`OpenDescriptors`] that are compared.
const MAP_CHECKED: usize = 1 << 20;
/// Size in bytes to which `DescriptorUse::Truncate` truncates the file for a moment.
const CUT: usize = 2 << 20;

/// Runs `lfs` with these words on a file.
pub fn lfs(line: &str, path: &Path) -> Ran {
    let mut command = Command::new(sheen());
    command.arg("lfs").args(line.split_whitespace()).arg(path);
    run_within(command, COMMAND_MAX)
}

/// Runs `lfs setstripe`, which must succeed.
#[track_caller]
pub fn setstripe(options: &str, path: &Path) {
    lfs(&format!("setstripe {options}"), path).ok();
}

/// Runs `lfs migrate`.
pub fn migrate(options: &str, path: &Path) -> Ran {
    lfs(&format!("migrate {options}"), path)
}

/// Runs `lfs swap_layouts`.
pub fn swap(one: &Path, other: &Path) -> Ran {
    let mut command = Command::new(sheen());
    command.args(["lfs", "swap_layouts"]).args([one, other]);
    run_within(command, COMMAND_MAX)
}

/// Returns a file's objects, of all mirrors, as (OST, object id, object version).
pub fn objects(path: &Path) -> Vec<(u32, u32, u32)> {
    layout(path).all_objects().map(|s| (s.ost, s.object.oid, s.object.ver)).collect()
}

/// Returns the ids of a file's mirrors that are not stale.
pub fn fresh(path: &Path) -> Vec<u16> {
    layout(path).fresh_mirrors().iter().map(|m| m.mirror_id()).collect()
}

/// Returns the number of non-empty object files below a directory, and how many of them have
/// several hard links.
pub fn stored_objects(place: &Path) -> (usize, usize) {
    let mut count = (0, 0);
    let mut dirs = vec![place.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(m) if m.is_dir() => dirs.push(entry.path()),
                Ok(m) if m.len() > 0 && entry.path().to_string_lossy().contains("/O/") => {
                    count.0 += 1;
                    count.1 += usize::from(m.nlink() > 1);
                }
                _ => {}
            }
        }
    }
    count
}

/// Waits until `wanted` objects below a directory hold data and each of them has one hard link.
#[track_caller]
pub fn expect_stored_objects(place: &Path, wanted: usize) {
    let mut last = None;
    eventually(format!("{wanted} objects hold bytes, each with one name"), || {
        let now = stored_objects(place);
        if last.replace(now) != Some(now) {
            println!("{} objects hold bytes, {} of them have several names", now.0, now.1);
        }
        now == (wanted, 0)
    });
}

/// Repeats `step` while these servers are killed and restarted one after another. At least
/// `STEPS_BETWEEN` steps succeed before each kill and after the last restart. Returns the numbers
/// of successful and failed steps.
pub fn while_killed(
    cluster: &mut Cluster,
    kinds: &[&'static str],
    mut step: impl FnMut(usize) -> bool + Send,
) -> (u32, u32) {
    const KILLING: usize = 0;
    const STEPPING: usize = 1;
    // The killing is one step, counted when all servers have been killed and restarted.
    let race = Race::new([at_least(1), at_least(1)]);
    thread::scope(|scope| {
        let steps = scope.spawn(|| {
            let (steps, mut failed) = (race.party(STEPPING), 0);
            for n in 0.. {
                if !steps.goes_on() {
                    break;
                }
                if step(n) { steps.did_one() } else { failed += 1 }
            }
            failed
        });
        let killing = race.party(KILLING);
        for kind in kinds {
            race.wait_for(STEPPING, STEPS_BETWEEN);
            let_pass(PAUSE_BEFORE_KILL);
            cluster.kill(kind);
            let_pass(DOWN);
            cluster.spawn(kind);
        }
        race.wait_for(STEPPING, STEPS_BETWEEN);
        killing.did_one();
        let failed = steps.join().expect("no step panics");
        (race.count(STEPPING) as u32, failed)
    })
}

/// Programs that write all the time. Two programs, one per mount, overwrite counters in file `f`,
/// at offsets that lie in all stripes. A third one appends numbers to file `log` through mount B.
/// `log` must exist.
pub struct BusyWriters<'a> {
    pub at: &'a Two,
    /// Pause between two rounds of counters, and pause between two appends.
    pub pauses: [Duration; 2],
}

impl BusyWriters<'_> {
    /// Runs the programs while `work` runs. Then it asserts that no write and no append was lost,
    /// on either mount. `parts`: the parts of the race that `work` does. Returns the rounds of
    /// counters and the appends.
    pub fn during(&self, parts: &[RangeInclusive<u64>], work: impl FnOnce(&Race)) -> (u64, u64) {
        fs::write(self.at.a("f"), vec![0u8; BUSY_BYTES]).expect("f is written");
        let (counting, appending) = ([parts.len(), parts.len() + 1], parts.len() + 2);
        let race = Race::new(parts.iter().cloned().chain([ROUNDS, ROUNDS, APPENDS]));
        thread::scope(|scope| {
            for (who, part) in counting.into_iter().enumerate() {
                let rounds = race.party(part);
                scope.spawn(move || self.count(who, &rounds));
            }
            let appends = race.party(appending);
            scope.spawn(move || self.append(&appends));
            work(&race);
        });
        let appended = race.count(appending);
        for log in [self.at.a("log"), self.at.b("log")] {
            let got = fs::read(&log).expect("the log is read");
            assert_eq!(got.len() as u64, 4 * appended, "{}", log.display());
            let numbers = got.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]]));
            assert!(numbers.eq(0..appended as u32), "{} is what was appended", log.display());
        }
        (counting.map(|part| race.count(part)).iter().sum(), appended)
    }

    /// Migrates `f` and `log` to these layouts in turn while the programs run, `f` with `-n` and
    /// with `-b`. At least as many migrations of each file complete as there are layouts. `is_done`
    /// says which commands count as completed. The others must fail with EBUSY.
    pub fn during_migrations(&self, layouts: &[&str], mut is_done: impl FnMut(&Ran) -> bool) {
        let minimum = at_least(layouts.len() as u64);
        let mut migrated = [0; 3];
        let (rounds, appends) = self.during(&[minimum.clone(), minimum], |race| {
            let parties = [0, 1].map(|part| race.party(part));
            for options in layouts.iter().cycle().take_while(|_| race.goes_on()) {
                for (i, (part, name, how)) in [(0, "f", "-n"), (1, "log", "-b"), (0, "f", "-b")].into_iter().enumerate()
                {
                    let ran = migrate(&format!("{how} {options}"), &self.at.a(name));
                    if is_done(&ran) {
                        migrated[i] += 1;
                        parties[part].did_one();
                    } else {
                        let is_busy = ran.err.contains("cannot swap layout: Device or resource busy");
                        assert!(ran.code == 16 && is_busy, "{ran:?}");
                    }
                }
            }
        });
        println!("{migrated:?} migrations beside {rounds} rounds of writes and {appends} appends");
    }

    fn count(&self, who: usize, rounds: &Party) {
        let places = || (0..64).map(|n| ((n * 32_749 + who * 16_001) % (BUSY_BYTES - 4)) / 4 * 4 + who * 2);
        let file = rw(&self.at.both()[who].join("f"));
        let mut n = 0u16;
        while rounds.goes_on() {
            n = n.wrapping_add(1);
            for place in places() {
                file.write_all_at(&n.to_le_bytes(), place as u64).expect("a counter is written");
            }
            rounds.did_one();
            let_pass(self.pauses[0]);
        }
        for place in places() {
            let mut got = [0; 2];
            file.read_exact_at(&mut got, place as u64).expect("a counter is read");
            assert_eq!(u16::from_le_bytes(got), n, "mount {who}, {place}");
        }
    }

    fn append(&self, appends: &Party) {
        let log = self.at.b("log");
        while appends.goes_on() {
            let mut file = OpenOptions::new().append(true).open(&log).expect("the log is opened");
            file.write_all(&(appends.count() as u32).to_le_bytes()).expect("a record is appended");
            appends.did_one();
            let_pass(self.pauses[1]);
        }
    }
}

/// Descriptors and a mapping of file `f`, opened on mount B before its migrations.
pub struct OpenDescriptors<'a> {
    at: &'a Two,
    reader: File,
    writer: File,
    appender: File,
    map: Map,
    /// The expected content.
    data: Vec<u8>,
}

/// One use of [`OpenDescriptors`].
#[derive(Clone, Copy)]
enum DescriptorUse {
    Read,
    Write,
    Append,
    WriteMap,
    /// Truncates the file to [`CUT`] bytes, and extends it again.
    Truncate,
    Punch,
}

impl DescriptorUse {
    const ALL: [DescriptorUse; 6] = [
        DescriptorUse::Read,
        DescriptorUse::Write,
        DescriptorUse::Append,
        DescriptorUse::WriteMap,
        DescriptorUse::Truncate,
        DescriptorUse::Punch,
    ];
}

impl OpenDescriptors<'_> {
    /// Opens `f`, which holds `data`.
    pub fn open(at: &Two, data: Vec<u8>) -> OpenDescriptors<'_> {
        let path = at.b("f");
        let (reader, writer) = (File::open(&path).expect("f is opened"), rw(&path));
        let appender = OpenOptions::new().append(true).open(&path).expect("f is opened");
        let map = Map::new(&writer, data.len());
        let opened = OpenDescriptors { at, reader, writer, appender, map, data };
        opened.read();
        assert!(opened.map.read(0, 4096) == opened.data[..4096]);
        opened
    }

    fn read(&self) {
        let mut read = vec![0; self.data.len()];
        self.reader.read_exact_at(&mut read, 0).expect("f is read");
        assert!(read == self.data, "read through a descriptor");
    }

    /// Migrates `f` to each of these layouts, and uses one descriptor after each migration.
    pub fn survive_migrations<'o>(mut self, layouts: impl Iterator<Item = &'o str>) {
        for (options, kind) in layouts.zip(DescriptorUse::ALL.into_iter().cycle()) {
            migrate(options, &self.at.a("f")).ok();
            self.use_one(kind, options);
        }
    }

    /// Uses one of them after a migration with these options. Then it asserts that all of them, and
    /// both mounts, show the same data.
    fn use_one(&mut self, kind: DescriptorUse, options: &str) {
        let data = &mut self.data;
        match kind {
            DescriptorUse::Read => self.read(),
            DescriptorUse::Write => {
                self.writer.write_all_at(b"written", 100_000).expect("f is written");
                data[100_000..100_007].copy_from_slice(b"written");
            }
            DescriptorUse::Append => {
                self.appender.write_all(b"appended").expect("f is appended to");
                data.extend_from_slice(b"appended");
            }
            DescriptorUse::WriteMap => {
                self.map.write(200_000, b"mapped");
                self.map.sync().expect("the mapping is written back");
                data[200_000..200_006].copy_from_slice(b"mapped");
            }
            DescriptorUse::Truncate => {
                let whole = data.len();
                self.writer.set_len(CUT as u64).expect("f is truncated");
                self.writer.set_len(whole as u64).expect("f is extended");
                data[CUT..].fill(0);
            }
            DescriptorUse::Punch => {
                let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&self.writer, punch, 300_000, 100_000).expect("a hole is punched");
                data[300_000..400_000].fill(0);
            }
        }
        let there = self.at.b("f");
        assert_eq!(fs::metadata(&there).expect("f exists").len(), self.data.len() as u64, "{options}");
        for look in [self.at.a("f"), there] {
            assert!(fs::read(&look).expect("f is read") == self.data, "{options}: {}", look.display());
        }
        assert!(self.map.read(0, MAP_CHECKED) == self.data[..MAP_CHECKED], "{options}: the map");
    }
}

/// Files on servers that are killed. A second mount opens the files before they are migrated.
/// The fields are dropped in this order: a mount must not be stopped while files on it are open.
pub struct FilesOfKilledServers {
    open: Vec<File>,
    /// The mount that migrates the files.
    here: Mount,
    /// The mount that opened the files.
    there: Mount,
    cluster: Cluster,
    data: Vec<Vec<u8>>,
}

impl FilesOfKilledServers {
    /// Starts servers and mounts, and creates files of `size` bytes with `create`.
    pub fn create(files: usize, size: usize, create: impl Fn(&Path, &[u8])) -> FilesOfKilledServers {
        let cluster = Cluster::start();
        let (here, there) = (cluster.mount(), cluster.mount_as("other"));
        let data: Vec<Vec<u8>> = (0..files).map(|n| noise(n as u64, size)).collect();
        for (n, data) in data.iter().enumerate() {
            create(&here.path(&file_name(n)), data);
        }
        // The second mount has cached the layouts since before all migrations.
        let open = (0..files).map(|n| rw(&there.path(&file_name(n)))).collect();
        let created = FilesOfKilledServers { open, here, there, cluster, data };
        (0..files).for_each(|n| created.expect_open_file(n));
        created
    }

    /// Migrates the files in turn, step `n` with the options `options(n)`, while these servers are
    /// killed and restarted.
    pub fn migrate<'a>(&mut self, servers: &[&'static str], options: impl Fn(usize) -> &'a str + Send) {
        let paths: Vec<PathBuf> = (0..self.data.len()).map(|n| self.here.path(&file_name(n))).collect();
        let step = move |n: usize| migrate(options(n), &paths[n % paths.len()]).code == 0;
        let (done, failed) = while_killed(&mut self.cluster, servers, step);
        println!("{done} migrations, {failed} failed");
    }

    /// Asserts that no file has lost data, and that writes through the open descriptors arrive.
    /// `check` gets a file's path on both mounts and its content.
    pub fn expect_data(&mut self, check: impl Fn(&Path, &Path, &[u8])) {
        for n in 0..self.data.len() {
            self.expect_open_file(n);
            self.open[n].write_all_at(b"new", 5).expect("a file is written");
            self.data[n][5..8].copy_from_slice(b"new");
            let (here, there, want) = (self.here.path(&file_name(n)), self.there.path(&file_name(n)), &self.data[n]);
            assert!(fs::read(&here).expect("a file is read") == *want, "file {n} here");
            assert!(fs::read(&there).expect("a file is read") == *want, "file {n} there");
            check(&here, &there, want);
        }
    }

    fn expect_open_file(&self, n: usize) {
        let mut read = vec![0; self.data[n].len()];
        self.open[n].read_exact_at(&mut read, 0).expect("a file is read");
        assert!(read == self.data[n], "file {n} through a descriptor that was open all the time");
    }
}

fn file_name(n: usize) -> String {
    format!("f{n}")
}
