//! Files of which an owner is near a limit of space.
//!
//! An OST cannot refuse a write that the client has cached: the program was answered. So writes to
//! these files bypass the write-back cache. The servers name them in their replies (`tight`).
//!
//! Invariants:
//! * a file is tight until [`LIFE`] after the last reply that said so. A reply of another target
//!   that does not say so ends nothing;
//! * while no file is tight, a test costs one load.

use std::{
    num::NonZeroUsize,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use lru::LruCache;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use sheen_rt::{Instant, Rt};
use sheen_wire::Fid;

/// How long a file is tight after a reply.
const LIFE: Duration = Duration::from_secs(10);
/// Maximum number of tight files. With more, the one whose reply is the oldest is dropped.
const TIGHT_MAX: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// The tight files of a mount.
pub struct TightFiles {
    rt: Rt,
    /// Number of files in `until`.
    count: AtomicUsize,
    /// When each file ceases to be tight. The order of use is the order of these times.
    until: Mutex<LruCache<Fid, Instant, FxBuildHasher>>,
}

impl TightFiles {
    /// Creates an empty set.
    pub fn new(rt: &Rt) -> TightFiles {
        let until = Mutex::new(LruCache::with_hasher(TIGHT_MAX, FxBuildHasher));
        TightFiles { rt: rt.clone(), count: AtomicUsize::new(0), until }
    }

    /// Processes a reply about a file. `tight`: whether an owner of it is near a limit.
    pub fn note(&self, file: Fid, tight: bool) {
        if !tight {
            return;
        }
        let mut until = self.until.lock();
        until.put(file, self.rt.now() + LIFE);
        self.count.store(until.len(), Relaxed);
    }

    /// Whether writes to this file bypass the write-back cache.
    pub fn contains(&self, file: Fid) -> bool {
        if self.count.load(Relaxed) == 0 {
            return false;
        }
        let mut until = self.until.lock();
        let now = self.rt.now();
        while until.peek_lru().is_some_and(|(_, end)| *end <= now) {
            until.pop_lru();
        }
        self.count.store(until.len(), Relaxed);
        // `peek` leaves the order as it is.
        until.peek(&file).is_some()
    }
}

#[cfg(test)]
mod tests {
    use sheen_rt::sim::{Sim, SimConfig};

    use super::*;

    fn with(test: impl AsyncFnOnce(Rt)) {
        let sim = Sim::new(1, SimConfig::default());
        let rt = sim.rt(1);
        sim.run(test(rt)).unwrap();
    }

    fn fid(oid: u32) -> Fid {
        Fid::new(9, oid)
    }

    #[test]
    fn file_is_tight_for_a_time_after_the_last_reply() {
        with(async |rt| {
            let files = TightFiles::new(&rt);
            files.note(fid(1), false);
            assert!(!files.contains(fid(1)));
            files.note(fid(1), true);
            files.note(fid(2), true);
            assert!(files.contains(fid(1)) && files.contains(fid(2)) && !files.contains(fid(3)));
            rt.sleep(LIFE / 2).await;
            files.note(fid(1), true);
            files.note(fid(2), false);
            assert!(files.contains(fid(2)), "the reply of another target");
            rt.sleep(LIFE / 2).await;
            assert!(files.contains(fid(1)) && !files.contains(fid(2)));
            assert_eq!(files.count.load(Relaxed), 1);
            rt.sleep(LIFE / 2).await;
            assert!(!files.contains(fid(1)));
            assert_eq!(files.count.load(Relaxed), 0, "a test needs no lock any more");
        });
    }

    #[test]
    fn oldest_of_too_many_tight_files_is_dropped() {
        with(async |rt| {
            let (files, max) = (TightFiles::new(&rt), TIGHT_MAX.get() as u32);
            (1..=max).for_each(|oid| files.note(fid(oid), true));
            // Tests do not count as replies.
            assert!(files.contains(fid(1)));
            files.note(fid(max + 1), true);
            assert!(!files.contains(fid(1)) && files.contains(fid(2)) && files.contains(fid(max + 1)));
            assert_eq!(files.count.load(Relaxed), TIGHT_MAX.get());
        });
    }
}
