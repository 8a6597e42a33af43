//! Detection of programs that look up the names of a directory in order (Lustre's statahead). The
//! listings of open directories ([`Listing`]) decide what to request ahead for them; the requests
//! are in `list`.
//!
//! Statahead of a directory ends when more directories have it than may, or when neither lookups in
//! order nor readdir have used it for `statahead_timeout`. It starts again at the next rewind.
//!
//! Invariant: statahead runs for at most [`STATAHEAD_RUNNING_LIMIT`] listings.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use sheen_params::Snapshot;
use sheen_rt::Instant;
use sheen_wire::Fid;

use crate::open::{Limits, Listing, Names, Step, listing::WINDOW_MIN};

/// Default of `statahead_max`. The attributes of so many names arrive well before a program has
/// looked up as many again, even over a long distance.
pub const STATAHEAD_MAX_DEFAULT: u64 = 1024;
/// Maximum of `statahead_min`, `statahead_max` and `statahead_batch_max`: as many names as fit into
/// one reply.
pub const STATAHEAD_MAX_LIMIT: u64 = 4096;
/// Default of `statahead_running_max`, as in Lustre.
const STATAHEAD_RUNNING_DEFAULT: u64 = 16;
/// Maximum of `statahead_running_max`. A listing remembers a few megabytes.
pub const STATAHEAD_RUNNING_LIMIT: u64 = 256;

/// Default of `statahead_timeout` in seconds, as in Lustre.
const STATAHEAD_TIMEOUT_DEFAULT: u64 = 30;
/// Maximum of `statahead_timeout` in seconds: an hour.
pub const STATAHEAD_TIMEOUT_LIMIT: u64 = 3600;

/// A listing for which statahead runs.
struct Running {
    listing: Arc<Listing>,
    /// Time of the last rewind, readdir or lookup in order.
    used: Instant,
}

impl Running {
    fn is_idle(&self, now: Instant, timeout: Duration) -> bool {
        now.since(self.used) > timeout
    }
}

/// The statahead state of a mount. The public fields are parameters: `min` is `statahead_min`.
pub struct Statahead {
    max: AtomicU64,
    /// Number of names that are requested first; 0 counts as 1.
    pub min: AtomicU64,
    /// Maximum number of names per request; 0 counts as 1.
    pub batch_max: AtomicU64,
    /// Maximum number of directories for which statahead runs. They are those that were opened or
    /// rewound last.
    pub running_max: AtomicU64,
    /// Seconds without use after which statahead of a directory ends.
    pub timeout: AtomicU64,
    /// Whether the sizes of files are requested ahead as well.
    pub agl: AtomicBool,
    /// The most recently rewound one is the last.
    running: Mutex<Vec<Running>>,
    /// Number of times that statahead started.
    total: AtomicU64,
    /// Number of names requested because of lookups in order, and number of pages that came with
    /// attributes.
    names: AtomicU64,
    pages: AtomicU64,
    /// Number of files whose sizes were requested ahead.
    sizes: AtomicU64,
    /// Number of files whose data came ahead.
    contents: AtomicU64,
    /// Number of names looked up in order whose attributes were known in time, and were not.
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Statahead {
    pub fn new() -> Statahead {
        let zero = || AtomicU64::new(0);
        Statahead {
            max: AtomicU64::new(STATAHEAD_MAX_DEFAULT),
            min: AtomicU64::new(WINDOW_MIN as u64),
            batch_max: AtomicU64::new(STATAHEAD_MAX_LIMIT),
            running_max: AtomicU64::new(STATAHEAD_RUNNING_DEFAULT),
            timeout: AtomicU64::new(STATAHEAD_TIMEOUT_DEFAULT),
            agl: AtomicBool::new(true),
            running: Mutex::default(),
            total: zero(),
            names: zero(),
            pages: zero(),
            sizes: zero(),
            contents: zero(),
            hits: zero(),
            misses: zero(),
        }
    }

    /// Returns the maximum number of names that are requested ahead; 0: statahead is off.
    pub fn max(&self) -> u64 {
        self.max.load(Relaxed)
    }

    /// Sets [`Statahead::max`]. A larger value than [`STATAHEAD_MAX_LIMIT`] counts as the limit.
    pub fn set_max(&self, max: u64) {
        self.max.store(max.min(STATAHEAD_MAX_LIMIT), Relaxed);
    }

    /// Whether the sizes of files are requested ahead.
    pub fn fetches_sizes(&self) -> bool {
        self.agl.load(Relaxed)
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout.load(Relaxed))
    }

    /// Notes that a directory is read from its start.
    pub fn begin(&self, listing: &Arc<Listing>, now: Instant) {
        listing.rewind();
        let (max, timeout) = (self.running_max.load(Relaxed).min(STATAHEAD_RUNNING_LIMIT) as usize, self.timeout());
        let mut running = self.running.lock();
        running.retain(|other| !Arc::ptr_eq(&other.listing, listing));
        running.push(Running { listing: listing.clone(), used: now });
        let excess = running.len().saturating_sub(max);
        let mut ended: Vec<_> = running.drain(..excess).collect();
        ended.extend(running.extract_if(.., |other| other.is_idle(now, timeout)));
        drop(running);
        ended.iter().for_each(|ended| ended.listing.rewind());
    }

    /// Notes that a directory is read further.
    pub fn go_on(&self, listing: &Arc<Listing>, now: Instant) {
        let mut running = self.running.lock();
        if let Some(found) = running.iter_mut().find(|other| Arc::ptr_eq(&other.listing, listing)) {
            found.used = now;
        }
    }

    fn limits(&self) -> Limits {
        let load = |number: &AtomicU64| number.load(Relaxed) as usize;
        let batch = load(&self.batch_max).max(1);
        Limits { min: load(&self.min).max(1), max: load(&self.max), batch }
    }

    /// Processes the lookup of a name. `None`: no program looks up this directory in order.
    pub fn looked_up(&self, dir: Fid, name: &[u8], names: &dyn Names, now: Instant) -> Option<Step> {
        let (limits, timeout) = (self.limits(), self.timeout());
        if limits.max == 0 {
            return None;
        }
        let mut running = self.running.lock();
        let idle = |other: &mut Running| other.listing.fid == dir && other.is_idle(now, timeout);
        let ended: Vec<_> = running.extract_if(.., idle).collect();
        let mut of_dir = running.iter_mut().rev().filter(|other| other.listing.fid == dir);
        let step = of_dir.find_map(|other| {
            let step = other.listing.looked_up(name, limits, names)?;
            other.used = now;
            Some(step)
        });
        drop(running);
        ended.iter().for_each(|ended| ended.listing.rewind());
        if let Some(step) = &step {
            self.total.fetch_add(u64::from(step.began), Relaxed);
            let asked: usize = step.launches.iter().map(|launch| launch.count).sum();
            self.names.fetch_add(asked as u64, Relaxed);
        }
        step
    }

    /// Counts a page that came with attributes.
    pub fn note_page(&self) {
        self.pages.fetch_add(1, Relaxed);
    }

    /// Counts files whose sizes are requested ahead.
    pub fn note_sizes(&self, files: usize) {
        self.sizes.fetch_add(files as u64, Relaxed);
    }

    /// Counts files whose data came ahead.
    pub fn note_contents(&self, files: usize) {
        self.contents.fetch_add(files as u64, Relaxed);
    }

    /// Counts a lookup of a name whose attributes were requested ahead. `known`: they had arrived.
    pub fn note_use(&self, known: bool) {
        (if known { &self.hits } else { &self.misses }).fetch_add(1, Relaxed);
    }

    /// Resets all counters.
    pub fn clear(&self) {
        let counts = [&self.total, &self.names, &self.pages, &self.sizes, &self.contents, &self.hits, &self.misses];
        counts.iter().for_each(|count| count.store(0, Relaxed));
    }

    /// Returns the values of now: Lustre's in its order, then two more.
    pub fn snapshot(&self) -> Snapshot {
        let counts = [
            ("statahead total", &self.total),
            ("agl total", &self.sizes),
            ("list_total", &self.names),
            ("hit_total", &self.hits),
            ("miss_total", &self.misses),
            ("readdir pages", &self.pages),
            ("contents total", &self.contents),
        ];
        Snapshot::of_counts(counts.map(|(name, count)| (name, count.load(Relaxed))))
    }
}

/// Returns the text of the parameter.
pub fn statahead_text(stats: &Snapshot) -> String {
    stats.counts_text(|name, count| format!("{name}: {count}\n"))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::open::listing::{CONTENTS_MIN, tests::page};

    const DIR: Fid = Fid::new(0x2_0000_0401, 1);
    const NOW: Instant = Instant::ZERO;

    /// Test double: all names are known except the given one; with `None`, no name is. The flag
    /// tells whether files were read.
    struct Seen(Option<&'static str>, bool);

    impl Names for Seen {
        fn is_known(&self, name: &Bytes) -> bool {
            self.0.is_some_and(|unknown| name != unknown)
        }

        fn was_read(&self, _file: Fid) -> bool {
            self.1
        }
    }

    const NOTHING: Seen = Seen(None, false);

    #[test]
    fn only_lookups_in_order_request_following_names_ahead() {
        let (ahead, listing) = (Statahead::new(), Listing::new(DIR));
        ahead.begin(&listing, NOW);
        listing.push(listing.rewinds(), &page(0, 1000, true), false);
        let look = |i: u64| ahead.looked_up(DIR, format!("f{i}").as_bytes(), &NOTHING, NOW);
        assert!(look(500).is_none(), "not in order");
        let first = look(0).expect("in order");
        assert!(first.launches.is_empty() && !first.ahead, "one name is no pattern");
        let second = look(2).expect("in order but for one");
        assert_eq!(second.launches.iter().map(|l| l.count).collect::<Vec<_>>(), [WINDOW_MIN]);
        assert_eq!((second.launches[0].after, second.launches[0].until), (11, 12 + WINDOW_MIN as u64 - 1));
        assert!(second.flight.is_some(), "it is among those that are on their way");
        drop(second);
        let mut asked = WINDOW_MIN;
        for i in 3..1000 {
            let step = look(i).expect("in order");
            assert!(step.ahead, "{i} was asked for before it was looked up");
            asked += step.launches.iter().map(|l| l.count).sum::<usize>();
        }
        assert_eq!(asked, 998, "each name once");
        ahead.begin(&listing, NOW);
        listing.push(listing.rewinds(), &page(0, 1000, true), false);
        for i in 0..1000 {
            let step =
                ahead.looked_up(DIR, format!("f{i}").as_bytes(), &Seen(Some("f700"), false), NOW).expect("in order");
            let from: Vec<u64> = step.launches.iter().map(|launch| launch.after).collect();
            assert_eq!(from, if i == 700 { vec![10 + 699] } else { vec![] }, "{i}: only one is not known");
        }
        ahead.set_max(0);
        ahead.begin(&listing, NOW);
        assert!(look(0).is_none(), "switched off");
    }

    /// Looks all names of a new listing up, and returns the sizes of the requests.
    fn requests(ahead: &Statahead, listing: &Arc<Listing>) -> Vec<usize> {
        ahead.begin(listing, NOW);
        listing.push(listing.rewinds(), &page(0, 1000, true), false);
        let looked_up =
            (0..1000).filter_map(|i| ahead.looked_up(listing.fid, format!("f{i}").as_bytes(), &NOTHING, NOW));
        looked_up.flat_map(|step| step.launches).map(|launch| launch.count).collect()
    }

    #[test]
    fn parameters_bound_the_requests_of_statahead() {
        let (ahead, listing) = (Statahead::new(), Listing::new(DIR));
        let set = |[min, max, batch]: [u64; 3]| {
            ahead.min.store(min, Relaxed);
            ahead.set_max(max);
            ahead.batch_max.store(batch, Relaxed);
        };
        let defaults = requests(&ahead, &listing);
        assert_eq!(defaults[..2], [WINDOW_MIN, 2 * WINDOW_MIN], "each is twice as large");
        set([8, 32, 4096]);
        let some = requests(&ahead, &listing);
        assert_eq!((some[..3].to_vec(), some[3..].iter().max()), (vec![8, 16, 32], Some(&32)));
        set([8, 32, 5]);
        assert_eq!(requests(&ahead, &listing).iter().max(), Some(&5));
        set([4096, 32, 4096]);
        assert_eq!(requests(&ahead, &listing)[0], 32, "never more than the maximum");
        set([0, 32, 0]);
        let single = requests(&ahead, &listing);
        assert!(single.len() > 900 && single.iter().all(|count| *count == 1), "{single:?}");
    }

    #[test]
    fn statahead_runs_for_the_directories_opened_last() {
        let other = Fid::new(0x2_0000_0401, 5000);
        let (ahead, one, two) = (Statahead::new(), Listing::new(DIR), Listing::new(other));
        let look = |dir: Fid, i: u64| ahead.looked_up(dir, format!("f{i}").as_bytes(), &NOTHING, NOW);
        let open = |listing: &Arc<Listing>| {
            ahead.begin(listing, NOW);
            listing.push(listing.rewinds(), &page(0, 10, true), false);
        };
        open(&one);
        open(&two);
        assert!(look(DIR, 0).is_some() && look(other, 0).is_some());
        ahead.running_max.store(1, Relaxed);
        open(&one);
        open(&two);
        assert!(look(DIR, 0).is_none() && look(other, 0).is_some());
        ahead.running_max.store(0, Relaxed);
        open(&one);
        assert!(look(DIR, 0).is_none() && look(other, 1).is_none());
    }

    #[test]
    fn statahead_of_an_idle_directory_ends_after_the_timeout() {
        let at = |secs: u64| Instant::ZERO + Duration::from_secs(secs);
        let (ahead, listing, other) = (Statahead::new(), Listing::new(DIR), Listing::new(DIR));
        let begin = |now| {
            ahead.begin(&listing, now);
            listing.push(listing.rewinds(), &page(0, 100, true), false);
        };
        let look = |i: u64, now| ahead.looked_up(DIR, format!("f{i}").as_bytes(), &NOTHING, now);
        begin(at(0));
        for (i, secs) in [(0, 30), (1, 60), (2, 90)] {
            assert!(look(i, at(secs)).is_some(), "each lookup is a use");
        }
        ahead.go_on(&listing, at(120));
        assert!(look(3, at(150)).is_some(), "as is readdir");
        let rewinds = listing.rewinds();
        assert!(look(4, at(181)).is_none() && look(5, at(181)).is_none());
        assert_eq!(listing.rewinds(), rewinds + 1, "its pages are freed");
        begin(at(182));
        assert!(look(0, at(183)).is_some(), "it starts again");
        ahead.timeout.store(1, Relaxed);
        let rewinds = listing.rewinds();
        ahead.begin(&other, at(185));
        assert_eq!(listing.rewinds(), rewinds + 1, "another directory ends it as well");
    }

    #[test]
    fn statahead_skips_names_that_came_with_attributes() {
        let (ahead, listing) = (Statahead::new(), Listing::new(DIR));
        ahead.begin(&listing, NOW);
        let landing = listing.push(listing.rewinds(), &page(0, 10, false), true).expect("with attributes");
        let look = |i: u64| ahead.looked_up(DIR, format!("f{i}").as_bytes(), &NOTHING, NOW).expect("in order");
        assert!(look(0).flight.is_some());
        drop(landing);
        for i in 1..10 {
            let step = look(i);
            assert!(step.launches.is_empty() && step.flight.is_none() && step.ahead);
        }
        listing.push(listing.rewinds(), &page(19, 10, true), false);
        assert_eq!(look(10).launches.len(), 1, "these came without");
    }

    #[test]
    fn lookups_followed_by_reads_request_data_of_following_files() {
        let (ahead, listing) = (Statahead::new(), Listing::new(DIR));
        ahead.begin(&listing, NOW);
        drop(listing.push(listing.rewinds(), &page(0, 1000, true), true));
        let look = |i: u64, reads| {
            ahead.looked_up(DIR, format!("f{i}").as_bytes(), &Seen(None, reads), NOW).expect("in order")
        };
        (0..10).for_each(|i| assert!(look(i, false).contents.is_none(), "it only looks"));
        let first = look(10, true).contents.expect("it reads");
        let file = |i: u32| Fid::new(0x2_0000_0401, i + 2);
        assert_eq!((first.files[0], first.files.len()), (file(11), CONTENTS_MIN));
        assert!(look(20, true).contents.is_none(), "they are on their way");
        drop(first);
        let mut asked = 11 + CONTENTS_MIN as u32;
        for i in 21..1000 {
            if let Some(contents) = look(i, true).contents {
                assert_eq!(contents.files[0], file(asked), "each once, in order");
                asked += contents.files.len() as u32;
            }
            assert!(u64::from(asked) > i, "{i} was asked for before it was looked up");
        }
        assert_eq!(asked, 1000);
    }
}
