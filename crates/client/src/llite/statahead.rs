//! Detection of programs that look up the names of a directory in order (Lustre's statahead). The
//! listings of open directories ([`Listing`]) decide what to request ahead for them; the requests
//! are in `list`.
//!
//! Invariant: at most [`LISTINGS_MAX`] listings remember pages.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use parking_lot::Mutex;
use sheen_params::Snapshot;
use sheen_wire::Fid;

use crate::open::{Listing, Names, Step};

/// Default number of names per request. Their attributes arrive well before a program has looked up
/// as many again, even over a long distance.
pub const STATAHEAD_MAX_DEFAULT: u64 = 1024;
/// Maximum number of names per request: as many as fit into one reply.
pub const STATAHEAD_MAX_LIMIT: u64 = 4096;
/// Maximum number of remembered listings.
const LISTINGS_MAX: usize = 16;

/// The statahead state of a mount.
pub struct Statahead {
    max: AtomicU64,
    /// Remembered listings; the most recently rewound one is the last.
    listings: Mutex<Vec<Arc<Listing>>>,
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
            listings: Mutex::default(),
            total: zero(),
            names: zero(),
            pages: zero(),
            sizes: zero(),
            contents: zero(),
            hits: zero(),
            misses: zero(),
        }
    }

    /// Returns the maximum number of names per request; 0: statahead is off.
    pub fn max(&self) -> u64 {
        self.max.load(Relaxed)
    }

    /// Sets [`Statahead::max`].
    pub fn set_max(&self, max: u64) {
        self.max.store(max.min(STATAHEAD_MAX_LIMIT), Relaxed);
    }

    /// Notes that a directory is read from its start.
    pub fn begin(&self, listing: &Arc<Listing>) {
        listing.rewind();
        let mut listings = self.listings.lock();
        listings.retain(|other| !Arc::ptr_eq(other, listing));
        listings.push(listing.clone());
        let oldest = (listings.len() > LISTINGS_MAX).then(|| listings.remove(0));
        drop(listings);
        if let Some(oldest) = oldest {
            oldest.rewind();
        }
    }

    /// Processes the lookup of a name. `None`: no program looks up this directory in order.
    pub fn looked_up(&self, dir: Fid, name: &[u8], names: &dyn Names) -> Option<Step> {
        let max = self.max() as usize;
        if max == 0 {
            return None;
        }
        let listings = self.listings.lock();
        let mut of_dir = listings.iter().rev().filter(|listing| listing.fid == dir);
        let step = of_dir.find_map(|listing| listing.looked_up(name, max, names));
        drop(listings);
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
    use crate::open::listing::{CONTENTS_MIN, WINDOW_MIN, tests::page};

    const DIR: Fid = Fid::new(0x2_0000_0401, 1);

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
        ahead.begin(&listing);
        listing.push(listing.rewinds(), &page(0, 1000, true), false);
        let look = |i: u64| ahead.looked_up(DIR, format!("f{i}").as_bytes(), &NOTHING);
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
        ahead.begin(&listing);
        listing.push(listing.rewinds(), &page(0, 1000, true), false);
        for i in 0..1000 {
            let step = ahead.looked_up(DIR, format!("f{i}").as_bytes(), &Seen(Some("f700"), false)).expect("in order");
            let from: Vec<u64> = step.launches.iter().map(|launch| launch.after).collect();
            assert_eq!(from, if i == 700 { vec![10 + 699] } else { vec![] }, "{i}: only one is not known");
        }
        ahead.set_max(0);
        ahead.begin(&listing);
        assert!(look(0).is_none(), "switched off");
    }

    #[test]
    fn statahead_skips_names_that_came_with_attributes() {
        let (ahead, listing) = (Statahead::new(), Listing::new(DIR));
        ahead.begin(&listing);
        let landing = listing.push(listing.rewinds(), &page(0, 10, false), true).expect("with attributes");
        let look = |i: u64| ahead.looked_up(DIR, format!("f{i}").as_bytes(), &NOTHING).expect("in order");
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
        ahead.begin(&listing);
        drop(listing.push(listing.rewinds(), &page(0, 1000, true), true));
        let look =
            |i: u64, reads| ahead.looked_up(DIR, format!("f{i}").as_bytes(), &Seen(None, reads)).expect("in order");
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
