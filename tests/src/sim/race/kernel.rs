//! A model of the kernel above a mount. It caches file sizes, and pages of files that are open for
//! reading only.
//!
//! It behaves like Linux with FUSE:
//! * A page stays until it is dropped explicitly.
//! * A page is locked while it is read. Other reads wait for it, and do not request it again.
//! * Pages whose read is running when pages of the file are dropped are not cached.
//! * A write bypasses the page cache. Before it is sent, the pages in its range are dropped, and no
//!   others.
//! * A truncate or a hole drops pages when it is done.
//!
//! The mount must do everything else. Only whole pages are cached, so each read of the end of a
//! file asks the mount.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
};

use bytes::Bytes;
use sheen_client::{Client, Invalidate, OpenFile};
use sheen_wire::{Fid, Result};
use tokio::sync::Notify;

const PAGE: u64 = 4096;

/// The caches of a kernel.
#[derive(Default, Debug)]
pub struct Kernel {
    files: Mutex<BTreeMap<Fid, CachedFile>>,
    /// Signals that pages were unlocked.
    unlocked: Notify,
}

#[derive(Default, Debug)]
struct CachedFile {
    pages: BTreeMap<u64, Bytes>,
    /// Pages that are being read.
    locked: BTreeSet<u64>,
    size: Option<u64>,
    /// Counts how often pages were dropped, and how often attributes were.
    drops: (u64, u64),
}

impl Invalidate for Kernel {
    fn names(&self) {}

    fn attr(&self, fid: Fid) -> bool {
        let mut all = self.all();
        let cached = all.entry(fid).or_default();
        cached.size = None;
        cached.drops.1 += 1;
        true
    }

    fn data(&self, fid: Fid) {
        self.drop_pages(fid, 0, u64::MAX);
    }

    fn part(&self, fid: Fid, start: u64, end: u64) {
        self.drop_pages(fid, start, end);
    }

    fn keeps_names(&self) -> bool {
        true
    }
}

impl Kernel {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Fid, CachedFile>> {
        self.files.lock().expect("no panic is survived")
    }

    fn drops(&self, fid: Fid) -> (u64, u64) {
        self.all().entry(fid).or_default().drops
    }

    /// Returns a cached page. Waits while another read has it locked.
    async fn page(&self, fid: Fid, number: u64) -> Option<Bytes> {
        loop {
            let mut unlocked = pin!(self.unlocked.notified());
            unlocked.as_mut().enable();
            match self.all().get(&fid) {
                Some(file) if file.locked.contains(&number) => {}
                file => return file?.pages.get(&number).cloned(),
            }
            unlocked.await;
        }
    }

    /// Locks the first of `pages` and those that follow it, up to one that is cached or locked.
    fn lock_missing(&self, fid: Fid, pages: Range<u64>) -> LockedPages<'_> {
        let mut all = self.all();
        let file = all.entry(fid).or_default();
        let start = pages.start;
        let missing = pages.take_while(|page| !file.pages.contains_key(page) && !file.locked.contains(page)).count();
        let pages = start..start + missing as u64;
        file.locked.extend(pages.clone());
        LockedPages { kernel: self, fid, pages }
    }

    /// Drops the cached pages that overlap a range.
    pub fn drop_pages(&self, fid: Fid, start: u64, end: u64) {
        let mut all = self.all();
        let cached = all.entry(fid).or_default();
        cached.drops.0 += 1;
        cached.pages.retain(|page, _| (page + 1) * PAGE <= start || page * PAGE >= end);
    }

    /// Handles the open of a file: drops its pages unless the mount allows them to stay.
    pub fn opened(&self, file: &OpenFile) {
        if file.cached() && !file.keep_cache() {
            self.drop_pages(file.fid(), 0, u64::MAX);
        }
    }

    /// Returns the file's size, from the cache if possible.
    ///
    /// # Errors
    /// Errors of the client.
    pub async fn size(&self, client: &Client, fid: Fid) -> Result<u64> {
        if let Some(size) = self.all().get(&fid).and_then(|cached| cached.size) {
            return Ok(size);
        }
        let drops = self.drops(fid);
        let attr = client.getattr(fid, None).await?;
        let mut all = self.all();
        let cached = all.entry(fid).or_default();
        if attr.keep.attr && cached.drops.1 == drops.1 {
            cached.size = Some(attr.attr.size);
        }
        // Dropping `keep` allows the lock to be cancelled, so the size must be in the cache before.
        drop(attr.keep);
        Ok(attr.attr.size)
    }

    /// Reads through the page cache. Adjacent missing pages are requested together.
    ///
    /// # Errors
    /// Errors of the client.
    pub async fn read(&self, client: &Client, file: &Arc<OpenFile>, offset: u64, len: usize) -> Result<Vec<u8>> {
        let (fid, end) = (file.fid(), offset + len as u64);
        let mut bytes = Vec::new();
        let mut at = offset / PAGE * PAGE;
        while at < end {
            if let Some(page) = self.page(fid, at / PAGE).await {
                bytes.extend_from_slice(&page);
                at += PAGE;
                continue;
            }
            let locked = self.lock_missing(fid, at / PAGE..end.div_ceil(PAGE));
            let missing = locked.pages.clone().count();
            let drops = self.drops(fid);
            let data = client.read_as(file, at, missing * PAGE as usize, true).await?;
            let whole = data.bulk.into_bytes();
            let mut all = self.all();
            let cached = all.entry(fid).or_default();
            if cached.drops.0 == drops.0 {
                let pages = whole.chunks_exact(PAGE as usize).enumerate();
                cached.pages.extend(pages.map(|(n, page)| (at / PAGE + n as u64, Bytes::copy_from_slice(page))));
            }
            drop(all);
            drop(locked);
            drop(data.refs);
            bytes.extend_from_slice(&whole);
            if whole.len() < missing * PAGE as usize {
                break;
            }
            at += whole.len() as u64;
        }
        let skip = ((offset % PAGE) as usize).min(bytes.len());
        bytes.drain(..skip);
        bytes.truncate(len);
        Ok(bytes)
    }
}

/// Pages that a read has locked.
struct LockedPages<'a> {
    kernel: &'a Kernel,
    fid: Fid,
    pages: Range<u64>,
}

impl Drop for LockedPages<'_> {
    fn drop(&mut self) {
        if let Some(file) = self.kernel.all().get_mut(&self.fid) {
            file.locked.retain(|page| !self.pages.contains(page));
        }
        self.kernel.unlocked.notify_waiters();
    }
}
