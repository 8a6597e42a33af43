//! Helpers for tests that move files' data (`lfs migrate`, `lfs swap_layouts`, mirrors) while
//! programs use the files and servers are killed.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    ops::RangeInclusive,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    process::Command,
    thread,
    time::Duration,
};

use crate::{
    Ran,
    cluster::Cluster,
    mounts::Two,
    posix::{layout, rw},
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
