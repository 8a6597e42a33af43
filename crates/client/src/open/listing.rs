//! State of an open directory for its readdir replies: pages of names in the directory's
//! order, since the last rewind. Programs get their entries from it. Handles only names and
//! numbers, and sends no requests.
//!
//! A looked-up name is searched for just after the previous one. If names are looked up in order,
//! the attributes of the following names are to be requested, twice as many each time. A lookup of
//! a name whose attributes are in flight waits for them. If most of the recently looked-up files
//! were read, the following files are to be requested with their data, if they are small
//! ([`Contents`]).
//!
//! Invariants:
//! * a rewind clears the listing, so a program that rewinds sees the present directory;
//! * a listing proves nothing: names go from the replies into the cache, under locks;
//! * a listing remembers at most [`PAGES_MAX`] pages.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_wire::{Fid, FileKind};
use tokio::sync::Notify;

/// Maximum number of remembered pages per listing: a few megabytes.
const PAGES_MAX: usize = 8;
/// Maximum number of names that a program may skip while it still counts as going in order: hidden
/// files, directories.
const SKIPPED_MAX: usize = 16;
/// Number of names in order that start statahead.
const HITS_MIN: u32 = 2;
/// Number of names out of order that stop statahead.
const MISSES_MAX: u32 = 8;
/// Default number of names in the first request.
pub const WINDOW_MIN: usize = 64;
/// Maximum number of attribute requests in flight per listing.
const FLIGHTS_MAX: usize = 2;
/// Number of files whose data is requested ahead: at first, and at most. The maximum is 4 MiB, half
/// of the space for such data.
pub const CONTENTS_MIN: usize = 32;
const CONTENTS_MAX: usize = 256;
/// Number of recently looked-up files that show whether a program reads the files that it looks up.
const RECENT: usize = 4;
/// Estimated size in bytes of an entry in a reply with attributes, without its name: with a layout
/// of a few stripes.
const ENTRY_BYTES: usize = 24 + 128 + 128;

/// Limits of the requests ahead of lookups, in names.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// First window, at least 1. At most `max` counts.
    pub min: usize,
    /// Largest window, at least 1. A request is sent when half of the window has been used.
    pub max: usize,
    /// Most names in one request, at least 1. A window can take several requests.
    pub batch: usize,
}

/// An entry of a listing.
#[derive(Clone, Debug)]
pub struct Listed {
    pub name: Bytes,
    pub fid: Fid,
    pub kind: FileKind,
    pub cookie: u64,
}

/// A page of a directory's entries, from one reply.
#[derive(Debug)]
pub struct Page {
    /// Cookie before the first entry.
    pub after: u64,
    /// Entries in cookie order.
    pub names: Vec<Listed>,
    /// Whether this is the last page.
    pub eof: bool,
}

impl Page {
    /// Returns the cookie at which the next page begins.
    pub fn last(&self) -> u64 {
        self.names.last().map_or(self.after, |listed| listed.cookie)
    }

    /// Whether a reader at this cookie continues in this page.
    fn goes_on(&self, cookie: u64) -> bool {
        self.after <= cookie && (cookie < self.last() || self.eof)
    }
}

/// A request in flight for which others may wait.
#[derive(Debug, Default)]
pub struct Flight {
    over: AtomicBool,
    ended: Notify,
}

impl Flight {
    fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    /// Resolves when the request has ended.
    pub async fn ended(&self) {
        let mut ended = std::pin::pin!(self.ended.notified());
        ended.as_mut().enable();
        if !self.is_over() {
            ended.await;
        }
    }
}

/// Guard of a flight: ends it when dropped, whatever the result was.
#[derive(Debug)]
pub struct Landing(Arc<Flight>);

impl Drop for Landing {
    fn drop(&mut self) {
        self.0.over.store(true, Relaxed);
        self.0.ended.notify_waiters();
    }
}

/// A range of names whose attributes were requested: from `from` to before `to`, counted from the
/// start of the listing.
#[derive(Debug)]
struct Window {
    from: usize,
    to: usize,
    flight: Arc<Flight>,
}

/// The readdir pages and the lookup state that an open directory remembers.
#[derive(Debug)]
pub struct Listing {
    /// The directory.
    pub fid: Fid,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of rewinds so far.
    rewinds: u64,
    /// Consecutive pages.
    pages: VecDeque<Arc<Page>>,
    /// Number of names before the first page.
    before: usize,
    /// The request for the next page, if in flight.
    coming: Option<Arc<Flight>>,
    windows: Vec<Window>,
    /// Index of the name that is expected to be looked up next.
    next: usize,
    hits: u32,
    misses: u32,
    /// Number of names in the last request.
    asked: usize,
    /// Names before this index were requested or already known.
    looked_at: usize,
    /// Files that were recently looked up in order.
    recent: VecDeque<Fid>,
    /// Files before this index were requested with their data.
    contents: usize,
    /// Number of files in the last request for data.
    contents_asked: usize,
    fetching: Option<Arc<Flight>>,
}

/// Where a reader continues.
pub enum At {
    Page(Arc<Page>),
    /// The page is in flight: search again when this has ended.
    Coming(Arc<Flight>),
    Unknown,
}

/// A request for attributes to send.
#[derive(Debug)]
pub struct Launch {
    pub dir: Fid,
    /// Cookie before the first name.
    pub after: u64,
    /// Cookie of the last name.
    pub until: u64,
    /// Estimated size of the reply in bytes.
    pub bytes: u32,
    /// Number of names between the two cookies.
    pub count: usize,
    pub landing: Landing,
}

/// A request for the data of small files to send.
#[derive(Debug)]
pub struct Contents {
    pub files: Vec<Fid>,
    /// Flights that bring the attributes of these files; wait for them first.
    pub after: Vec<Arc<Flight>>,
    pub landing: Landing,
}

/// The caches' knowledge of the names in a listing.
pub trait Names {
    /// Whether the attributes of a name are cached.
    fn is_known(&self, name: &Bytes) -> bool;
    /// Whether a file was read.
    fn was_read(&self, file: Fid) -> bool;
}

/// Result of a lookup in order.
#[derive(Debug, Default)]
pub struct Step {
    /// Files whose data to request now.
    pub contents: Option<Contents>,
    /// Attribute requests to send now.
    pub launches: Vec<Launch>,
    /// Whether this lookup started statahead.
    pub began: bool,
    /// The flight that brings the name's own attributes.
    pub flight: Option<Arc<Flight>>,
    /// Whether the name's attributes were requested ahead or already known.
    pub ahead: bool,
}

impl Listing {
    pub fn new(fid: Fid) -> Arc<Listing> {
        Arc::new(Listing { fid, state: Mutex::default() })
    }

    /// Clears the listing.
    pub fn rewind(&self) {
        let mut state = self.state.lock();
        *state = State { rewinds: state.rewinds + 1, ..State::default() };
    }

    /// Returns the number of rewinds, by which pages from before a rewind are recognized.
    pub fn rewinds(&self) -> u64 {
        self.state.lock().rewinds
    }

    /// Returns where a reader continues after a cookie.
    pub fn at(&self, cookie: u64) -> At {
        let state = self.state.lock();
        if let Some(page) = state.pages.iter().find(|page| page.goes_on(cookie)) {
            return At::Page(page.clone());
        }
        match &state.coming {
            Some(flight) if !flight.is_over() && state.pages.back().is_some_and(|page| page.last() == cookie) => {
                At::Coming(flight.clone())
            }
            _ => At::Unknown,
        }
    }

    /// Registers a request for the page after `page`, if `page` is the last one known and no
    /// request is in flight.
    pub fn ask_next(&self, page: &Arc<Page>) -> Option<Landing> {
        let mut state = self.state.lock();
        if page.eof || state.coming.is_some() || !state.pages.back().is_some_and(|last| Arc::ptr_eq(last, page)) {
            return None;
        }
        let flight = Arc::<Flight>::default();
        state.coming = Some(flight.clone());
        Some(Landing(flight))
    }

    /// Notes that the request for the next page has ended.
    pub fn asked_next(&self, rewinds: u64) {
        let mut state = self.state.lock();
        if state.rewinds == rewinds {
            state.coming = None;
        }
    }

    /// Adds a page, unless its request is from before a rewind. `attrs`: attributes come with it,
    /// and are all cached when the returned landing is dropped.
    pub fn push(&self, rewinds: u64, page: &Arc<Page>, attrs: bool) -> Option<Landing> {
        let mut state = self.state.lock();
        if state.rewinds != rewinds {
            return None;
        }
        if state.pages.back().is_some_and(|last| last.last() != page.after) {
            *state = State { rewinds, ..State::default() };
        }
        let from = state.total();
        state.pages.push_back(page.clone());
        if state.pages.len() > PAGES_MAX
            && let Some(oldest) = state.pages.pop_front()
        {
            state.before += oldest.names.len();
            state.next = state.next.max(state.before);
        }
        if !attrs {
            return None;
        }
        let flight = Arc::<Flight>::default();
        let to = state.total();
        state.windows.push(Window { from, to, flight: flight.clone() });
        Some(Landing(flight))
    }

    /// Processes the lookup of a name. Requests the following unknown names, within `limits`.
    pub fn looked_up(&self, name: &[u8], limits: Limits, names: &dyn Names) -> Option<Step> {
        let mut state = self.state.lock();
        let from = state.next;
        let found = (from..from + SKIPPED_MAX).find(|i| state.name(*i).is_some_and(|listed| listed.name == name));
        let Some(at) = found else {
            state.misses += 1;
            if state.misses >= MISSES_MAX {
                (state.hits, state.asked) = (0, 0);
            }
            return None;
        };
        (state.misses, state.hits, state.next) = (0, state.hits + 1, at + 1);
        state.windows.retain(|window| window.to > at);
        let (mut launches, fresh) = (Vec::new(), state.asked == 0);
        if state.hits >= HITS_MIN {
            while let Some(launch) = state.launch(self.fid, at, limits, names) {
                launches.push(launch);
            }
        }
        let window = state.windows.iter().find(|window| (window.from..window.to).contains(&at));
        let flight = window.filter(|window| !window.flight.is_over()).map(|window| window.flight.clone());
        let ahead = window.is_some() || at < state.looked_at;
        let contents = state.contents(at, limits.max, names);
        Some(Step { contents, began: fresh && !launches.is_empty(), launches, flight, ahead })
    }
}

impl State {
    /// Returns the number of names so far.
    fn total(&self) -> usize {
        self.before + self.pages.iter().map(|page| page.names.len()).sum::<usize>()
    }

    fn name(&self, at: usize) -> Option<&Listed> {
        let mut at = at.checked_sub(self.before)?;
        for page in &self.pages {
            match page.names.get(at) {
                Some(listed) => return Some(listed),
                None => at -= page.names.len(),
            }
        }
        None
    }

    /// Returns the next attribute request for a program at the name `at`.
    fn launch(&mut self, dir: Fid, at: usize, limits: Limits, names: &dyn Names) -> Option<Launch> {
        let covered = self.windows.iter().map(|window| window.to).max().unwrap_or(0);
        let under_way = self.windows.iter().filter(|window| !window.flight.is_over()).count();
        // Send the next request when half of the previous one has been used.
        let (mut from, end) = (covered.max(at).max(self.looked_at), self.total().min(at + self.asked / 2 + 1));
        while from < end && self.name(from).is_some_and(|listed| names.is_known(&listed.name)) {
            from += 1;
        }
        self.looked_at = from;
        if under_way >= FLIGHTS_MAX || from >= end {
            return None;
        }
        self.asked = (self.asked * 2).clamp(limits.min.min(limits.max), limits.max);
        let to = (from + self.asked.min(limits.batch)).min(self.total());
        let after = match from.checked_sub(1) {
            // The name before the first page was dropped, but its cookie is known.
            Some(last) => match self.name(last) {
                Some(listed) => listed.cookie,
                None => self.pages.front()?.after,
            },
            None => 0,
        };
        let asked = (from..to).filter_map(|i| self.name(i));
        let bytes: usize = asked.map(|listed| listed.name.len().next_multiple_of(8) + ENTRY_BYTES).sum();
        let until = self.name(to - 1)?.cookie;
        let flight = Arc::<Flight>::default();
        self.windows.push(Window { from, to, flight: flight.clone() });
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        Some(Launch { dir, after, until, bytes, count: to - from, landing: Landing(flight) })
    }

    /// Returns the next request for data for a program at the name `at`: when half of the files of
    /// the previous request are left.
    fn contents(&mut self, at: usize, max: usize, names: &dyn Names) -> Option<Contents> {
        let read = self.recent.iter().filter(|file| names.was_read(**file)).count();
        let reads = self.recent.len() >= HITS_MIN as usize && 2 * read > self.recent.len();
        if let Some(Listed { fid, kind: FileKind::Regular, .. }) = self.name(at).cloned() {
            self.recent.push_back(fid);
            if self.recent.len() > RECENT {
                self.recent.pop_front();
            }
        }
        let from = self.contents.max(at + 1);
        let is_early = from > at + 1 + self.contents_asked / 2;
        if !reads || is_early || self.fetching.as_ref().is_some_and(|flight| !flight.is_over()) {
            return None;
        }
        let asked = (2 * self.contents_asked).clamp(CONTENTS_MIN, CONTENTS_MAX).min(max);
        // Nothing is known yet of the names behind this.
        let covered = self.windows.iter().map(|window| window.to).fold(self.looked_at, usize::max);
        let to = (from + asked).min(covered).max(from);
        let regular = |i| self.name(i).filter(|listed| listed.kind == FileKind::Regular).map(|listed| listed.fid);
        let files: Vec<Fid> = (from..to).filter_map(regular).collect();
        if files.is_empty() {
            return None;
        }
        let overlaps = |window: &&Window| window.from < to && from < window.to && !window.flight.is_over();
        let after = self.windows.iter().filter(overlaps).map(|window| window.flight.clone()).collect();
        let flight = Arc::<Flight>::default();
        (self.contents, self.contents_asked, self.fetching) = (to, asked, Some(flight.clone()));
        Some(Contents { files, after, landing: Landing(flight) })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const DIR: Fid = Fid::new(0x2_0000_0401, 1);

    /// Returns a page of `count` files after a cookie. The file `f0` has the cookie 10.
    pub(crate) fn page(after: u64, count: u64, eof: bool) -> Arc<Page> {
        let listed = |i: u64| Listed {
            name: Bytes::from(format!("f{i}")),
            fid: Fid::new(0x2_0000_0401, i as u32 + 2),
            kind: FileKind::Regular,
            cookie: 10 + i,
        };
        let from = after.saturating_sub(9);
        Arc::new(Page { after, names: (from..from + count).map(listed).collect(), eof })
    }

    #[test]
    fn listing_serves_cached_pages_until_rewind() {
        let listing = Listing::new(DIR);
        assert!(matches!(listing.at(0), At::Unknown));
        let first = page(0, 3, false);
        assert!(listing.push(listing.rewinds(), &first, false).is_none());
        assert!(matches!(listing.at(11), At::Page(_)));
        assert!(matches!(listing.at(12), At::Unknown), "the next page is not known");
        let landing = listing.ask_next(&first).expect("nobody asked");
        assert!(listing.ask_next(&first).is_none(), "somebody asked");
        assert!(matches!(listing.at(12), At::Coming(_)));
        listing.push(listing.rewinds(), &page(12, 2, true), false);
        listing.asked_next(listing.rewinds());
        drop(landing);
        assert!(matches!(listing.at(12), At::Page(_)));
        assert!(matches!(listing.at(99), At::Page(_)), "after the last one there is nothing");
        let before = listing.rewinds();
        listing.rewind();
        listing.push(before, &first, false);
        assert!(matches!(listing.at(0), At::Unknown), "what was asked before the rewind is not believed");
    }
}
