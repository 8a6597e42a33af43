//! The pages of a directory scan, and the page that an open directory remembers.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_wire::{Attr, FileKind};

use crate::types::Caller;

/// Most pages stored by a mount: about 16 MiB.
const PAGES_MAX: usize = 32;

/// A directory entry with its attributes.
#[derive(Debug)]
pub struct ScanItem {
    /// Name.
    pub name: Bytes,
    /// Its type.
    pub kind: FileKind,
    /// Position for a scan that continues after this entry.
    pub cookie: u64,
    /// Attributes, unless they are not available.
    pub attr: Option<Attr>,
    /// Whether the attributes include those from the OSTs.
    pub sized: bool,
    /// `lustre.lov`, if it has one.
    pub layout: Option<Bytes>,
}

/// Entries of a directory, in the order of their cookies.
#[derive(Debug)]
pub struct ScanPage {
    pub(crate) items: Vec<ScanItem>,
    /// Whether no entry follows the last one.
    pub eof: bool,
    /// Cookie before the first entry.
    pub(crate) after: u64,
    /// Owner of the request for the page.
    pub(crate) who: Caller,
    /// Whether the attributes from the OSTs were requested.
    pub(crate) sizes: bool,
    /// Present if the page may be stored.
    pub(crate) stored: Option<StoredPage>,
}

impl ScanPage {
    /// Returns the entries after a cookie.
    pub fn after(&self, cookie: u64) -> &[ScanItem] {
        &self.items[self.items.partition_point(|item| item.cookie <= cookie)..]
    }

    /// Returns whether the page answers this request.
    fn serves(&self, who: &Caller, cookie: u64, sizes: bool) -> bool {
        let last = self.items.last().map_or(self.after, |last| last.cookie);
        self.who == *who
            && (self.sizes || !sizes)
            && self.after < cookie
            && (cookie < last || self.eof && cookie == last)
    }
}

/// The page of an open directory that is being read.
#[derive(Debug, Default)]
pub(crate) struct Scan(Mutex<Option<Arc<ScanPage>>>);

impl Scan {
    /// Takes the stored page, if it answers this request.
    pub fn take(&self, who: &Caller, cookie: u64, sizes: bool) -> Option<Arc<ScanPage>> {
        let stored = self.0.lock().take();
        stored.filter(|page| page.serves(who, cookie, sizes))
    }

    /// Stores a page that may be larger than one reply to the program.
    pub fn put(&self, page: Arc<ScanPage>) -> Arc<ScanPage> {
        if page.stored.is_some() {
            *self.0.lock() = Some(page.clone());
        }
        page
    }
}

/// Number of pages that a mount stores.
#[derive(Debug, Default)]
pub(crate) struct ScanPages(Arc<AtomicUsize>);

/// One stored page, counted in [`ScanPages`].
#[derive(Debug)]
pub(crate) struct StoredPage(Arc<AtomicUsize>);

impl ScanPages {
    /// Counts another page. `None`: the mount stores as many pages as it may.
    pub fn store(&self) -> Option<StoredPage> {
        let stored = StoredPage(self.0.clone());
        (self.0.fetch_add(1, Relaxed) < PAGES_MAX).then_some(stored)
    }
}

impl Drop for StoredPage {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(cookies: &[u64], after: u64, eof: bool, sizes: bool) -> ScanPage {
        let item = |cookie: &u64| ScanItem {
            name: Bytes::from(cookie.to_string()),
            kind: FileKind::Fifo,
            cookie: *cookie,
            attr: None,
            sized: false,
            layout: None,
        };
        ScanPage { items: cookies.iter().map(item).collect(), eof, after, who: Caller::ROOT, sizes, stored: None }
    }

    #[test]
    fn scan_page_serves_only_its_caller_and_range() {
        let (root, other) = (Caller::ROOT, Caller::new(1, 0, 0));
        let middle = page(&[30, 40, 50], 20, false, true);
        let served = |who, sizes| [0, 20, 25, 30, 45, 50, 60].map(|cookie| middle.serves(who, cookie, sizes));
        assert_eq!(served(&root, true), [false, false, true, true, true, false, false]);
        assert_eq!(served(&other, true), [false; 7], "requested by another caller");
        assert_eq!(middle.after(30).iter().map(|item| item.cookie).collect::<Vec<_>>(), [40, 50]);
        let last = page(&[30], 20, true, false);
        assert!(last.serves(&root, 30, false) && last.after(30).is_empty(), "the end is known");
        assert!(!last.serves(&root, 25, true), "without attributes from the OSTs");
        assert!(!page(&[30], 0, false, true).serves(&root, 0, true), "from the start it is read anew");
    }

    #[test]
    fn stored_scan_pages_are_bounded() {
        let pages = ScanPages::default();
        let mut stored: Vec<StoredPage> = (0..PAGES_MAX).map(|_| pages.store().expect("room")).collect();
        assert!(pages.store().is_none());
        assert!(pages.store().is_none(), "a refused page takes no room");
        stored.pop();
        assert!(pages.store().is_some());
    }
}
