//! Directory scan with attributes and layouts, for a program that looks at all entries and needs no
//! caching (`lfs find`).
//!
//! A page takes one request to the MDT, and one to each OST that has objects of its files. The scan
//! takes no locks, so nothing is revoked later and the caches keep their contents. Dirty data of
//! this mount counts, as in stat(2).
//!
//! Invariants:
//! * An entry is as it was at some time between the call that requested its page and now. The open
//!   directory stores a page for callers that continue in it. It does so until another page is
//!   requested, the directory is read from the start, or it is closed.
//! * A page is returned only to the caller that requested it, after the MDT has confirmed that the
//!   caller may both list and search the directory.
//! * A mount stores [`PAGES_MAX`] pages at a time. Beyond that, a page is only as large as one
//!   reply to the program.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_wire::{
    Attr, Errno, FileKind, Result, entries,
    mds::{Reply, Request},
};

use super::known::Told;
use crate::{Caller, Client, OpenDir, mdc, stats::Op};

/// Size of a page as the MDT counts, in bytes: about 1,200 files of one stripe. Each OST gets few
/// large requests then.
const PAGE_BYTES: u32 = 256 << 10;
/// Most pages stored by a mount: about 16 MiB.
const PAGES_MAX: usize = 32;
/// R_OK and X_OK.
const LIST_AND_SEARCH: u32 = 4 | 1;

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
    items: Vec<ScanItem>,
    /// Whether no entry follows the last one.
    pub eof: bool,
    after: u64,
    who: Caller,
    sizes: bool,
    _kept: Option<Kept>,
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

/// Number of pages that a mount stores.
#[derive(Debug, Default)]
pub(crate) struct ScanPages(Arc<AtomicUsize>);

/// One stored page, counted in [`ScanPages`].
#[derive(Debug)]
struct Kept(Arc<AtomicUsize>);

impl ScanPages {
    fn keep(&self) -> Option<Kept> {
        let kept = Kept(self.0.clone());
        (self.0.fetch_add(1, Relaxed) < PAGES_MAX).then_some(kept)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Client {
    /// Returns the page with the entries after `cookie` (0: from the start), without `.` and `..`.
    /// `sizes`: with the attributes from the OSTs. `lazy`: cached attributes of any age will do.
    ///
    /// # Errors
    /// EACCES: the caller may not both list and search the directory. EOPNOTSUPP: a directory of
    /// `.lustre`. Any error of the MDT. An entry whose attributes are not available comes without
    /// them.
    pub async fn scan(
        &self,
        who: &Caller,
        dir: &OpenDir,
        cookie: u64,
        sizes: bool,
        lazy: bool,
    ) -> Result<Arc<ScanPage>> {
        let _timer = self.stats.time(Op::Readdir);
        if self.virtual_attr(dir.fid()).is_some() {
            return Err(Errno::EOPNOTSUPP);
        }
        let there = dir.scan.0.lock().take();
        if let Some(page) = there.filter(|page| page.serves(who, cookie, sizes)) {
            return Ok(dir.keep_for_next(page));
        }
        let kept = self.scans.keep();
        let max_bytes = if kept.is_some() { PAGE_BYTES } else { entries::PAGE_BYTES as u32 };
        let fid = dir.fid();
        let may = async {
            mdc::done(self.mdc.call_as(who, |cred| Request::Access { cred, fid, mask: LIST_AND_SEARCH }).await?)
        };
        let asking = self.asking_unknown();
        let read = self.mdc.call(Request::ReadDir { fid, cookie, max_bytes, attrs: true });
        let (may, read) = tokio::join!(may, read);
        may?;
        let Reply::Entries { mut entries, eof } = read? else { return Err(Errno::EPROTO) };
        let layouts: Vec<Option<Bytes>> =
            entries.iter().map(|found| found.entry.as_ref().and_then(|entry| entry.layout.clone())).collect();
        let told = self.told_entries(fid, &mut entries, Vec::new(), &asking);
        let attrs = Box::pin(self.scanned(told, sizes, lazy)).await;
        let items = entries.into_iter().zip(layouts).zip(attrs).map(|((entry, layout), (attr, sized))| {
            let layout = layout.filter(|_| entry.kind == FileKind::Regular);
            ScanItem { name: entry.name, kind: entry.kind, cookie: entry.cookie, attr, sized, layout }
        });
        let page = ScanPage { items: items.collect(), eof, after: cookie, who: who.clone(), sizes, _kept: kept };
        Ok(dir.keep_for_next(Arc::new(page)))
    }

    /// Returns the attributes of entries, and whether they include those from the OSTs.
    async fn scanned(&self, told: Vec<Result<Told>>, sizes: bool, lazy: bool) -> Vec<(Option<Attr>, bool)> {
        let at_hand = |told: &Result<Told>| match told {
            Err(_) => Some((None, false)),
            Ok(told) if told.layout.is_none() => Some((Some(told.attr), true)),
            Ok(told) if !sizes => Some((Some(told.attr), false)),
            Ok(told) => self.kept_attr(told, lazy).map(|attr| (Some(attr), true)),
        };
        let mut attrs: Vec<Option<(Option<Attr>, bool)>> = told.iter().map(at_hand).collect();
        let missing: Vec<Result<Told>> =
            told.into_iter().zip(&attrs).filter(|(_, attr)| attr.is_none()).map(|(told, _)| told).collect();
        let mut asked = self.all_glimpsed(missing).await.into_iter();
        for attr in attrs.iter_mut().filter(|attr| attr.is_none()) {
            let found = asked.next().and_then(Result::ok);
            *attr = Some((found.as_ref().map(|entry| entry.attr), found.is_some()));
        }
        attrs.into_iter().map(Option::unwrap_or_default).collect()
    }
}

impl Client {
    /// Returns cached attributes that include those from the OSTs: under locks that guard them, or
    /// with `lazy` of any age.
    fn kept_attr(&self, told: &Told, lazy: bool) -> Option<Attr> {
        let merged = self.cache.meta.lock().get(told.attr.fid)?.merged?;
        if lazy {
            return Some(merged);
        }
        let lock = self.inode_lock(told.attr.fid)?;
        self.whole(&told.layout, &told.attr, &lock).map(|entry| entry.attr)
    }
}

impl OpenDir {
    /// Stores a page that may be larger than one reply to the program.
    fn keep_for_next(&self, page: Arc<ScanPage>) -> Arc<ScanPage> {
        if page._kept.is_some() {
            *self.scan.0.lock() = Some(page.clone());
        }
        page
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
        ScanPage { items: cookies.iter().map(item).collect(), eof, after, who: Caller::ROOT, sizes, _kept: None }
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
        let mut kept: Vec<Kept> = (0..PAGES_MAX).map(|_| pages.keep().expect("room")).collect();
        assert!(pages.keep().is_none());
        assert!(pages.keep().is_none(), "a refused page takes no room");
        kept.pop();
        assert!(pages.keep().is_some());
    }
}
