//! The epoch of an OST's data: a number that changes when answered changes may be lost that no sync
//! has made durable. That is so if the OST had not been stopped in order, and its page cache is
//! another one. Its host was restarted then, another host serves the OST, or its local file system
//! was mounted anew. Clients replay such changes.
//!
//! A new mount counts because a local file system can shut down after an error. It has lost changes
//! then, and the OST cannot record this. If the mount only looks new, clients replay changes that
//! are there, and checksums at rest are computed again.
//!
//! The file `DIR/epoch` also has the number of the OST's present life, for the order of changes
//! over restarts, and the transno up to which all changes are durable. Its words are the epoch, the
//! page cache, the state, the life, the transno, and the epochs that are not all replayed yet. The
//! last one of these comes first. All numbers are hexadecimal. The page cache is a hash of the boot
//! of the host and the mount of the file system.
//!
//! Invariants:
//! * the state is `stopped` only while everything is durable and no process writes;
//! * it is `replaying` from the start of an epoch until the clients have replayed their changes;
//! * a transno of a life is higher than those of all earlier lives.

use std::{
    io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use parking_lot::Mutex;
use sheen_rt::{Rt, stable_hash};

/// Name of the file.
pub const EPOCH: &str = "epoch";
const STOPPED: &str = "stopped";
const SERVING: &str = "serving";
const REPLAYING: &str = "replaying";
/// Stands for a page cache that no host has.
const NO_CACHE: u64 = 0;
/// Bits of a transno, and of a data version, below the number of the life.
pub const LIFE_SHIFT: u32 = 40;
/// Maximum number of epochs for which clients replay. One is added when a host fails in the middle
/// of a recovery.
const LOST_MAX: usize = 8;
/// Lowest life of an OST whose file was damaged.
const LIFE_UNKNOWN: u64 = 1 << 16;
/// No OST starts this many times.
const LIFE_MAX: u64 = 1 << (u64::BITS - LIFE_SHIFT - 1);

/// The epoch of an OST that is served.
pub struct Epoch {
    rt: Rt,
    path: PathBuf,
    /// The present page cache.
    cache: u64,
    number: u64,
    life: u64,
    is_new: bool,
    /// All changes up to this transno are durable.
    committed: AtomicU64,
    /// Epochs whose changes are not all replayed yet, the last one first. Locked while the file is
    /// written.
    lost: Mutex<Vec<u64>>,
    /// Data of this epoch may be lost already.
    failed: AtomicBool,
}

/// The content of the file.
struct Record {
    number: u64,
    cache: u64,
    state: String,
    life: u64,
    committed: u64,
    lost: Vec<u64>,
}

impl Epoch {
    /// Reads the epoch of the directory, or begins a new one.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn open(rt: &Rt, dir: &Path) -> io::Result<Epoch> {
        let (path, cache) = (dir.join(EPOCH), page_cache(rt, dir)?);
        let before = match rt.disk().read(&path) {
            // Not a file of Sheen, or a damaged one: data may be lost as well.
            Ok(bytes) => Some(parse(&bytes)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(e),
        };
        let (life, committed) = match &before {
            Some(Some(before)) => (before.life + 1, before.committed),
            // The transnos of before are unknown.
            Some(None) => (u64::from(rt.random_u64() as u16) + LIFE_UNKNOWN, 0),
            None => (1, 0),
        };
        let (number, is_new, lost) = match before {
            Some(Some(before)) if before.is_valid(cache) => (before.number, false, Vec::new()),
            Some(Some(Record { number, mut lost, .. })) => {
                lost.insert(0, number);
                lost.truncate(LOST_MAX);
                (rt.random_u64(), true, lost)
            }
            Some(None) => (rt.random_u64(), true, Vec::new()),
            // A new OST.
            None => (rt.boot_id(), true, Vec::new()),
        };
        let (known, lost) = (AtomicU64::new(committed), Mutex::new(lost));
        let epoch = Epoch {
            rt: rt.clone(),
            path,
            cache,
            number,
            life,
            is_new,
            committed: known,
            lost,
            failed: AtomicBool::new(false),
        };
        epoch.write(committed, &epoch.lost.lock())?;
        Ok(epoch)
    }

    /// Returns the number of the epoch.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether the epoch began with this start.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Returns the epochs whose changes clients have to replay, the last one first.
    pub fn lost(&self) -> Vec<u64> {
        self.lost.lock().clone()
    }

    /// Returns the transno before the first one of this life.
    pub fn first_transno(&self) -> u64 {
        self.life << LIFE_SHIFT
    }

    /// Returns the transno up to which all changes are durable.
    pub fn committed(&self) -> u64 {
        self.committed.load(Relaxed)
    }

    /// Records that all changes up to this transno are durable.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn commit(&self, transno: u64) -> io::Result<()> {
        let lost = self.lost.lock();
        if transno > self.committed() {
            self.write(transno, &lost)?;
            // Only now may clients drop them.
            self.committed.store(transno, Relaxed);
        }
        Ok(())
    }

    /// Records that all clients which the OST waited for have replayed their changes.
    ///
    /// # Errors
    /// The file cannot be written: after the next restart, clients replay them again.
    pub fn replayed(&self) -> io::Result<()> {
        let mut lost = self.lost.lock();
        if lost.is_empty() {
            return Ok(());
        }
        lost.clear();
        self.write(self.committed(), &lost)
    }

    /// Records that everything is durable and nothing will be written.
    ///
    /// # Errors
    /// The file cannot be written: the next start with another page cache begins a new epoch.
    pub fn stopped(&self) -> io::Result<()> {
        let lost = self.lost.lock();
        // Changes that are still to be replayed are not there.
        let word = match lost.is_empty() {
            _ if self.has_failed() => SERVING,
            true => STOPPED,
            false => REPLAYING,
        };
        self.write_as(word, self.committed(), &lost)
    }

    /// Records that data of this epoch may be lost already, because it could not be made durable.
    /// The next start begins another epoch, also in this boot.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn failed(&self) -> io::Result<()> {
        self.failed.store(true, Relaxed);
        self.write(self.committed(), &self.lost.lock())
    }

    /// Whether [`Epoch::failed`] was called.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Relaxed)
    }

    fn write(&self, committed: u64, lost: &[u64]) -> io::Result<()> {
        let word = if lost.is_empty() { SERVING } else { REPLAYING };
        self.write_as(word, committed, lost)
    }

    fn write_as(&self, word: &str, committed: u64, lost: &[u64]) -> io::Result<()> {
        let cache = if self.has_failed() { NO_CACHE } else { self.cache };
        let mut text = format!("{:016x} {cache:016x} {word} {:x} {committed:x}", self.number, self.life);
        lost.iter().for_each(|epoch| text.push_str(&format!(" {epoch:016x}")));
        text.push('\n');
        self.rt.disk().write_atomic(&self.path, text.as_bytes())
    }
}

impl Record {
    /// Whether all of the epoch's data is still there. `cache`: the present page cache.
    fn is_valid(&self, cache: u64) -> bool {
        self.state == STOPPED || (self.state == SERVING && self.cache == cache)
    }
}

/// Returns the identity of the page cache of a directory. As long as it is the same, changes that
/// were not synced are still there.
fn page_cache(rt: &Rt, dir: &Path) -> io::Result<u64> {
    Ok(stable_hash(&[rt.boot_id(), rt.disk().mount_id(dir)?].map(u64::to_le_bytes).concat()))
}

fn parse(bytes: &[u8]) -> Option<Record> {
    let hex = |word: &str| u64::from_str_radix(word, 16).ok();
    let words: Vec<&str> = str::from_utf8(bytes).ok()?.split_whitespace().collect();
    // Earlier releases wrote three words.
    let (life, committed) = match words.get(3..5) {
        Some(more) => (hex(more[0])?, hex(more[1])?),
        None => (0, 0),
    };
    if life >= LIFE_MAX {
        return None;
    }
    let lost = words.get(5..).unwrap_or_default().iter().map(|word| hex(word)).collect::<Option<_>>()?;
    let state = (*words.get(2)?).to_owned();
    Some(Record { number: hex(words.first()?)?, cache: hex(words.get(1)?)?, state, life, committed, lost })
}

#[cfg(test)]
mod tests {
    use sheen_rt::sim::{Sim, SimConfig};

    use super::*;

    /// Runs a test with a new directory on a simulated disk, and a function that opens the epoch.
    fn with_directory(test: impl FnOnce(&Sim, &Path, &dyn Fn() -> Epoch)) {
        let (sim, dir) = (Sim::new(1, SimConfig::default()), Path::new("/ost"));
        sim.run(async {
            sim.rt(1).disk().create_dir_all(dir).unwrap();
            sim.rt(1).disk().sync_fs("/").await.unwrap();
            test(&sim, dir, &|| Epoch::open(&sim.rt(1), dir).unwrap());
        })
        .unwrap();
    }

    #[test]
    fn epoch_ends_with_the_boot_unless_the_ost_stopped_in_order() {
        with_directory(|sim, dir, open| {
            let first = open().number();
            assert_eq!(open().number(), first, "the process was killed");
            sim.crash_host(1);
            let second = open();
            assert_ne!(second.number(), first);
            second.replayed().unwrap();
            second.stopped().unwrap();
            sim.crash_host(1);
            let third = open();
            assert_eq!(third.number(), second.number(), "stopped in order");
            sim.crash_host(1);
            assert_ne!(open().number(), third.number());
            let fourth = open();
            fourth.failed().unwrap();
            fourth.replayed().unwrap();
            fourth.stopped().unwrap();
            let fifth = open();
            assert!(fifth.number() != fourth.number() && fifth.lost() == [fourth.number()], "a sync failed");
            sim.rt(1).disk().write_atomic(dir.join(EPOCH), b"damaged").unwrap();
            assert_ne!(open().number(), third.number());
        });
    }

    #[test]
    fn epoch_ends_with_the_mount_of_the_local_file_system_unless_the_ost_stopped_in_order() {
        with_directory(|sim, _, open| {
            let first = open();
            sim.remount_disk(1);
            assert_eq!(sim.rt(1).boot_id(), first.rt.boot_id(), "the host was not restarted");
            let second = open();
            assert!(second.is_new() && second.lost() == [first.number()]);
            second.replayed().unwrap();
            assert_eq!(open().number(), second.number(), "the process was killed");
            second.stopped().unwrap();
            sim.remount_disk(1);
            let third = open();
            assert_eq!(third.number(), second.number(), "stopped in order");
            assert!(!third.is_new() && third.lost().is_empty());
        });
    }

    #[test]
    fn transnos_rise_and_lost_epochs_stay_until_they_are_replayed() {
        with_directory(|sim, dir, open| {
            let first = open();
            assert!(first.lost().is_empty() && first.committed() == 0 && first.first_transno() > 0);
            let last = first.first_transno() + 5;
            first.commit(last).unwrap();
            first.commit(last - 1).unwrap();
            let killed = open();
            assert!(killed.first_transno() > last && killed.lost().is_empty());
            sim.crash_host(1);
            let second = open();
            assert_eq!((second.committed(), second.lost()), (last, vec![first.number()]));
            let again = open();
            assert!(again.is_new(), "the clients had not replayed everything");
            assert_eq!(again.lost(), [second.number(), first.number()]);
            again.stopped().unwrap();
            let third = open();
            assert_eq!(third.lost(), [again.number(), second.number(), first.number()], "nor at the stop");
            third.replayed().unwrap();
            assert_eq!((open().number(), open().lost()), (third.number(), vec![]));
            let old = format!("{:016x} {:016x} stopped\n", 7, 0);
            sim.rt(1).disk().write_atomic(dir.join(EPOCH), old.as_bytes()).unwrap();
            assert_eq!((open().number(), open().committed()), (7, 0), "of an earlier release");
        });
    }
}
