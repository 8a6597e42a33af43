//! Files whose bytes are moved (`lfs migrate`, `lfs swap_layouts`, mirrors) while programs use them and servers are killed.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    thread,
    time::Duration,
};

use crate::{
    Ran,
    cluster::Cluster,
    mounts::Two,
    posix::{layout, rw},
    run_within, sheen,
};

/// How long a command may take: it copies files of some MiB, and waits for others.
const COMMAND_MAX: Duration = Duration::from_secs(60);
/// How long servers are left in peace before the next one is killed, and how long that one is gone.
const PEACE: Duration = Duration::from_millis(1200);
const GONE: Duration = Duration::from_millis(300);
/// Bytes of a file of [`Busy`].
const BUSY_BYTES: usize = 1 << 19;

/// `lfs` with these words, on a file.
pub fn lfs(line: &str, path: &Path) -> Ran {
    let mut command = Command::new(sheen());
    command.arg("lfs").args(line.split_whitespace()).arg(path);
    run_within(command, COMMAND_MAX)
}

/// `lfs setstripe`, which succeeds.
#[track_caller]
pub fn setstripe(options: &str, path: &Path) {
    lfs(&format!("setstripe {options}"), path).ok();
}

/// `lfs migrate`.
pub fn migrate(options: &str, path: &Path) -> Ran {
    lfs(&format!("migrate {options}"), path)
}

/// `lfs swap_layouts`.
pub fn swap(one: &Path, other: &Path) -> Ran {
    let mut command = Command::new(sheen());
    command.args(["lfs", "swap_layouts"]).args([one, other]);
    run_within(command, COMMAND_MAX)
}

/// Where a file's bytes are, those of all mirrors: OST, object, version.
pub fn objects(path: &Path) -> Vec<(u32, u32, u32)> {
    layout(path).all_objects().map(|s| (s.ost, s.object.oid, s.object.ver)).collect()
}

/// Ids of a file's mirrors that are up to date.
pub fn fresh(path: &Path) -> Vec<u16> {
    layout(path).fresh_mirrors().iter().map(|m| m.mirror_id()).collect()
}

/// Does `step` again and again while these servers are killed and started again, one after the other. How often it was done, and how
/// often not.
pub fn while_killed(
    cluster: &mut Cluster,
    kinds: &[&'static str],
    mut step: impl FnMut(usize) -> bool + Send,
) -> (u32, u32) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let steps = scope.spawn(|| {
            let mut counts = (0, 0);
            for n in 0.. {
                *(if step(n) { &mut counts.0 } else { &mut counts.1 }) += 1;
                if done.load(SeqCst) {
                    break;
                }
            }
            counts
        });
        for kind in kinds {
            thread::sleep(PEACE);
            cluster.kill(kind);
            thread::sleep(GONE);
            cluster.spawn(kind);
        }
        thread::sleep(PEACE);
        done.store(true, SeqCst);
        steps.join().expect("no step panics")
    })
}

/// Programs that write all the time: counters at places that all stripes have, overwritten again and again through both mounts, in the file
/// `f`; and numbers that the other mount appends to the file `log`. Both files are there.
pub struct Busy<'a> {
    pub at: &'a Two,
    /// Between two rounds of counters, and between two appends.
    pub pauses: [Duration; 2],
}

impl Busy<'_> {
    /// Has them write while `work` is done, and finds nothing lost afterwards, on either mount. Rounds of counters, and appends.
    pub fn during(&self, work: impl FnOnce()) -> (u32, u32) {
        fs::write(self.at.a("f"), vec![0u8; BUSY_BYTES]).expect("f is written");
        let (done, rounds) = (AtomicBool::new(false), AtomicU32::new(0));
        let appended = thread::scope(|scope| {
            for who in 0..2 {
                let (done, rounds) = (&done, &rounds);
                scope.spawn(move || self.count(who, done, rounds));
            }
            let appends = scope.spawn(|| self.append(&done));
            // Also where it panics: nobody would be waited for in vain.
            let _end = End(&done);
            work();
            done.store(true, SeqCst);
            appends.join().expect("nothing is in the way of appends")
        });
        for log in [self.at.a("log"), self.at.b("log")] {
            let got = fs::read(&log).expect("the log is read");
            assert_eq!(got.len(), 4 * appended as usize, "{}", log.display());
            let numbers = got.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]]));
            assert!(numbers.eq(0..appended), "{} is what was appended", log.display());
        }
        (rounds.into_inner(), appended)
    }

    fn count(&self, who: usize, done: &AtomicBool, rounds: &AtomicU32) {
        let places = || (0..64).map(|n| ((n * 32_749 + who * 16_001) % (BUSY_BYTES - 4)) / 4 * 4 + who * 2);
        let file = rw(&self.at.both()[who].join("f"));
        let mut n = 0u16;
        while !done.load(SeqCst) {
            n = n.wrapping_add(1);
            for place in places() {
                file.write_all_at(&n.to_le_bytes(), place as u64).expect("a counter is written");
            }
            rounds.fetch_add(1, SeqCst);
            thread::sleep(self.pauses[0]);
        }
        for place in places() {
            let mut got = [0; 2];
            file.read_exact_at(&mut got, place as u64).expect("a counter is read");
            assert_eq!(u16::from_le_bytes(got), n, "mount {who}, {place}");
        }
    }

    fn append(&self, done: &AtomicBool) -> u32 {
        let (log, mut n): (PathBuf, u32) = (self.at.b("log"), 0);
        while !done.load(SeqCst) {
            let mut file = OpenOptions::new().append(true).open(&log).expect("the log is opened");
            file.write_all(&n.to_le_bytes()).expect("a record is appended");
            n += 1;
            thread::sleep(self.pauses[1]);
        }
        n
    }
}

/// Says that it is over when dropped.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}
