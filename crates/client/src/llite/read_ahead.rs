//! Readahead: its window, and `llite.*.read_ahead_stats`: how many pages were read at the expected
//! position, and how many elsewhere.
//!
//! On a FUSE mount, the kernel reads ahead. The kernel has one window for each open file, all of
//! the same maximum size, and no bound on the sum. The client does not see which cached pages
//! programs read, but only the kernel's requests. A request that continues where the last one of
//! the open file ended belongs to a readahead window and counts as hits. Other requests count as
//! misses.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use parking_lot::Mutex;
use sheen_params::{Sample, Snapshot, Stats};
use sheen_rt::Rt;
use sheen_wire::Result;

use crate::{limits::PAGE_BYTES, open::ReadEnd};

/// Name and unit of the size statistics of sequential requests.
const REQUESTS: (&str, &str) = ("readahead_pages", "pages");
/// Width of the names.
const NAME_WIDTH: usize = 25;
/// Default of `max_read_ahead_mb`, as in Lustre.
const READ_AHEAD_MB_DEFAULT: u64 = 256;
/// Maximum of `max_read_ahead_mb` and `max_read_ahead_per_file_mb`.
pub const READ_AHEAD_MB_LIMIT: u64 = 4096;

type SetWindow = Box<dyn Fn(u64) -> Result<()> + Send + Sync>;

/// The readahead window of a cache outside the client, such as the kernel of a mount, and the
/// parameters that set it.
pub struct ReadAheadWindow {
    limits: Mutex<Limits>,
    set: SetWindow,
}

/// The parameters, in MiB. The smaller one is the window of each file.
#[derive(Clone, Copy)]
struct Limits {
    max: u64,
    per_file: u64,
}

impl fmt::Debug for ReadAheadWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadAheadWindow({} MiB, {} MiB per file)", self.max_mb(), self.per_file_mb())
    }
}

impl ReadAheadWindow {
    /// Sets the window to `per_file_mb` MiB. `set` gets the size of the window in bytes, now and
    /// after each change; with 0 the cache does not read ahead.
    ///
    /// # Errors
    /// The error of `set`: the window cannot be changed.
    pub fn set(per_file_mb: u64, set: impl Fn(u64) -> Result<()> + Send + Sync + 'static) -> Result<ReadAheadWindow> {
        let limits = Mutex::new(Limits { max: READ_AHEAD_MB_DEFAULT, per_file: per_file_mb });
        let window = ReadAheadWindow { limits, set: Box::new(set) };
        window.change(|_| ())?;
        Ok(window)
    }

    /// Returns `max_read_ahead_mb`.
    pub(crate) fn max_mb(&self) -> u64 {
        self.limits.lock().max
    }

    /// Returns `max_read_ahead_per_file_mb`.
    pub(crate) fn per_file_mb(&self) -> u64 {
        self.limits.lock().per_file
    }

    /// Sets `max_read_ahead_mb`.
    pub(crate) fn set_max_mb(&self, mb: u64) -> Result<()> {
        self.change(|limits| limits.max = mb)
    }

    /// Sets `max_read_ahead_per_file_mb`.
    pub(crate) fn set_per_file_mb(&self, mb: u64) -> Result<()> {
        self.change(|limits| limits.per_file = mb)
    }

    /// Changes the limits, and sets the window. On an error, the limits stay as they are.
    fn change(&self, change: impl FnOnce(&mut Limits)) -> Result<()> {
        let mut limits = self.limits.lock();
        let mut changed = *limits;
        change(&mut changed);
        (self.set)(changed.max.min(changed.per_file).saturating_mul(1 << 20))?;
        *limits = changed;
        Ok(())
    }
}

/// The readahead statistics of a mount.
pub struct ReadAhead {
    rt: Rt,
    requests: Stats,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl ReadAhead {
    /// Creates the statistics, all zero.
    pub fn new(rt: &Rt) -> ReadAhead {
        let zero = || AtomicU64::new(0);
        ReadAhead { rt: rt.clone(), requests: Stats::new(&[REQUESTS], rt.wall()), hits: zero(), misses: zero() }
    }

    /// Counts a read of an open file.
    pub fn note(&self, file: &ReadEnd, offset: u64, len: u64) {
        let pages = len.div_ceil(PAGE_BYTES);
        if file.goes_on(offset, len) {
            self.hits.fetch_add(pages, Relaxed);
            self.requests.record_at(0, pages);
        } else {
            self.misses.fetch_add(pages, Relaxed);
        }
    }

    /// Resets all statistics.
    pub fn clear(&self) {
        self.requests.clear(self.rt.wall());
        self.hits.store(0, Relaxed);
        self.misses.store(0, Relaxed);
    }

    /// Returns the values of now. Counters without a sample are left out.
    pub fn snapshot(&self) -> Snapshot {
        let mut stats = self.requests.snapshot(self.rt.wall());
        let counts = [("hits", &self.hits), ("misses", &self.misses)].map(|(name, n)| (name, n.load(Relaxed)));
        let counts = counts.into_iter().filter(|(_, pages)| *pages > 0);
        stats.samples.splice(..0, counts.map(|(name, pages)| Sample::of_count(name, REQUESTS.1, pages)));
        stats
    }
}

/// Returns the text of the parameter in Lustre's format.
pub fn read_ahead_text(stats: &Snapshot) -> String {
    stats.samples.iter().fold(stats.times(), |out, sample| out + &sample.line(NAME_WIDTH))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sheen_rt::sim::{Sim, SimConfig};
    use sheen_wire::Errno;

    use super::*;

    #[test]
    fn smaller_limit_sets_the_window_and_0_stops_readahead() {
        let bytes = Arc::new(AtomicU64::new(u64::MAX));
        let cell = bytes.clone();
        let set = move |bytes: u64| {
            // Larger windows are refused.
            if bytes > 64 << 20 {
                return Err(Errno::EINVAL);
            }
            cell.store(bytes, Relaxed);
            Ok(())
        };
        let window = ReadAheadWindow::set(4, set).unwrap();
        let mib = || bytes.load(Relaxed) >> 20;
        assert_eq!((mib(), window.max_mb(), window.per_file_mb()), (4, READ_AHEAD_MB_DEFAULT, 4));
        window.set_per_file_mb(16).unwrap();
        assert_eq!(mib(), 16);
        window.set_max_mb(8).unwrap();
        assert_eq!((mib(), window.max_mb(), window.per_file_mb()), (8, 8, 16));
        window.set_max_mb(0).unwrap();
        assert_eq!(mib(), 0);
        window.set_max_mb(100).unwrap();
        assert_eq!(mib(), 16);
        assert_eq!(window.set_per_file_mb(100), Err(Errno::EINVAL));
        assert_eq!((mib(), window.per_file_mb()), (16, 16), "as before");
        assert!(ReadAheadWindow::set(4, |_| Err(Errno::EACCES)).is_err());
    }

    #[test]
    fn read_ahead_stats_count_sequential_and_other_reads() {
        let sim = Sim::new(1, SimConfig::default());
        let counts = ReadAhead::new(&sim.rt(1));
        let lines = || read_ahead_text(&counts.snapshot()).lines().skip(3).map(str::to_owned).collect::<Vec<_>>();
        assert!(lines().is_empty());
        let (file, other) = (ReadEnd::default(), ReadEnd::default());
        const M: u64 = 1 << 20;
        // The requests of the window arrive out of order.
        for mib in [0, 2, 1, 3] {
            counts.note(&file, mib * M, M);
        }
        counts.note(&other, 0, 100);
        counts.note(&other, 100 * M, 5000);
        assert_eq!(
            lines(),
            [
                "hits                      768 samples [pages]",
                "misses                    259 samples [pages]",
                "readahead_pages           3 samples [pages] 256 256 768 196608",
            ]
        );
        counts.clear();
        assert!(lines().is_empty());
    }
}
