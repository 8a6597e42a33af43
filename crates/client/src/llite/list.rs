//! Directory listing for the kernel, which requests few entries at a time and then looks the names
//! up.
//!
//! The client requests large pages from the MDT and returns them in small parts. Meanwhile it
//! requests the next page. When the kernel asks for attributes, they are in the cache already. They
//! came with the names, if the kernel asked for both, or were requested ahead of lookups in
//! directory order ([`super::statahead`]). Both cases use the same request: entries with attributes
//! after a cookie. Its reply brings thousands of names, each under a lock that guards it. Sizes are
//! requested after that, from each OST for all its files at once. Lookups wait for the sizes,
//! listings do not.
//!
//! A listing shows a directory as it was when its pages were read. That may be before the call, but
//! never before the last rewind.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use sheen_rt::operation;
use sheen_wire::{
    Errno, Fid, Result,
    mds::{DirEntry, Reply, Request},
};

use super::{
    attr_cache::AttrReply,
    readdir::{DOT, DOT_DOT, ENTRIES_MAX, PAGE_BYTES_MAX, dot},
};
use crate::{
    Client, DirItem, DirPage, OpenDir,
    open::listing::{At, Launch, Listed, Listing, Names, Page},
    stats::Op,
};

/// Largest first page of a listing with attributes, in bytes: about 500 files. It is small because
/// the program may not need the attributes.
const FIRST_BYTES: u32 = 128 << 10;
/// Largest page of a listing with names alone, in bytes: about 6,000 names.
const NAMES_BYTES: u32 = 256 << 10;
/// Size of an entry in the kernel's format without its name, in bytes.
const DIRENT_BYTES: usize = 24;
/// Longest time that a lookup waits for a statahead request in progress.
const AHEAD_WAIT: Duration = Duration::from_secs(2);

/// The cached names of a directory, and the files that were read: input of statahead.
struct Known<'a> {
    client: &'a Client,
    dir: Fid,
}

impl Names for Known<'_> {
    fn is_known(&self, name: &Bytes) -> bool {
        self.client.cache.meta.lock().name(self.dir, name).is_some()
    }

    fn was_read(&self, file: Fid) -> bool {
        self.client.cache.data.get(file).is_some_and(|data| data.has_pages())
    }
}

impl Client {
    /// Returns entries after `cookie` (0: from the start), without attributes, as many as fit into
    /// `max_bytes` in the kernel's format. `plus`: the caller will ask for their attributes.
    ///
    /// # Errors
    /// Any error of the MDT.
    pub async fn list(&self, dir: &OpenDir, cookie: u64, max_bytes: u32, plus: bool) -> Result<DirPage> {
        let _timer = self.stats.time(Op::Readdir);
        if let Some(page) = self.virtual_readdir(dir.fid(), cookie) {
            return Ok(page);
        }
        let plus = plus && self.statahead.max() > 0;
        let mut entries = Vec::new();
        if cookie < DOT {
            self.statahead.begin(&dir.listing, self.rt.now());
            entries.push(dot(b".", dir.fid(), DOT));
        } else {
            self.statahead.go_on(&dir.listing, self.rt.now());
        }
        if cookie < DOT_DOT {
            entries.push(dot(b"..", self.parent_of(dir.fid()).await, DOT_DOT));
        }
        let (first, after) = (cookie <= DOT_DOT, if cookie <= DOT_DOT { 0 } else { cookie });
        let page = loop {
            match dir.listing.at(after) {
                At::Page(page) => break page,
                At::Coming(flight) => flight.ended().await,
                At::Unknown => break self.fetch_page(&dir.listing, dir.fid(), after, plus).await?,
            }
        };
        if !first {
            self.fetch_next(dir, &page, plus);
        }
        let mut room = max_bytes as usize;
        let from = page.names.partition_point(|listed| listed.cookie <= after);
        for listed in &page.names[from..] {
            let bytes = DIRENT_BYTES + listed.name.len().next_multiple_of(8);
            if bytes > room && !entries.is_empty() {
                break;
            }
            room = room.saturating_sub(bytes);
            let Listed { name, fid, kind, cookie } = listed.clone();
            entries.push(DirItem { name, fid, kind, cookie, attr: None });
        }
        let eof = page.eof && entries.last().is_none_or(|last| last.cookie >= page.last());
        Ok(DirPage { entries, eof })
    }

    /// Requests the page after this one in the background.
    fn fetch_next(&self, dir: &OpenDir, page: &Arc<Page>, attrs: bool) {
        let (Some(client), Some(landing)) = (self.me(), dir.listing.ask_next(page)) else { return };
        let (listing, fid, after, rewinds) = (dir.listing.clone(), dir.fid(), page.last(), dir.listing.rewinds());
        let fetch = async move {
            // On failure, a listing that waits for the page repeats the request and gets the error.
            let _ = client.fetch_page(&listing, fid, after, attrs).await;
            listing.asked_next(rewinds);
            drop(landing);
        };
        drop(self.rt.spawn("readdir", operation::within(operation::job(), fetch)));
    }

    async fn fetch_page(&self, listing: &Arc<Listing>, fid: Fid, after: u64, attrs: bool) -> Result<Arc<Page>> {
        let max_bytes = match (attrs, after) {
            (false, _) => NAMES_BYTES,
            (true, 0) => FIRST_BYTES,
            (true, _) => PAGE_BYTES_MAX,
        };
        let rewinds = listing.rewinds();
        let (entries, eof, reply) = self.fetch(fid, after, max_bytes, attrs).await?;
        let listed = |e: DirEntry| Listed { name: e.name, fid: e.fid, kind: e.kind, cookie: e.cookie };
        let page = Arc::new(Page { after, names: entries.into_iter().map(listed).collect(), eof });
        let landing = listing.push(rewinds, &page, attrs);
        if attrs && let Some(client) = self.me() {
            self.statahead.note_page();
            let look = async move {
                client.look_ahead(reply).await;
                drop(landing);
            };
            drop(self.rt.spawn("statahead", operation::within(operation::job(), look)));
        }
        Ok(page)
    }

    /// Requests entries after a cookie, and enters the attributes of the reply into the caches.
    async fn fetch(
        &self,
        fid: Fid,
        cookie: u64,
        max_bytes: u32,
        attrs: bool,
    ) -> Result<(Vec<DirEntry>, bool, Vec<Result<AttrReply>>)> {
        let asking = self.asking_unknown();
        let request = Request::ReadDir { fid, cookie, max_bytes, attrs };
        let answer = self.mdc.request(request).with_locks(if attrs { ENTRIES_MAX } else { 0 }).send().await?;
        let Reply::Entries { mut entries, eof } = answer.reply else { return Err(Errno::EPROTO) };
        let replies = if attrs { self.cache_entries(fid, &mut entries, answer.locks, &asking) } else { Vec::new() };
        Ok((entries, eof, replies))
    }

    /// Requests the missing attributes of files' objects, unless `statahead_agl` is off.
    async fn look_ahead(&self, replies: Vec<Result<AttrReply>>) {
        if !self.statahead.fetches_sizes() {
            return;
        }
        let wants = |reply: &Result<AttrReply>| {
            let Ok(reply) = reply else { return false };
            if reply.layout.as_ref().is_some_and(|layout| self.lov.is_unavailable(layout)) {
                return false;
            }
            let lock = reply.lock.and_then(|cookie| self.inode_lock_again(reply.attr.fid, cookie));
            lock.is_some_and(|lock| self.whole(&reply.layout, &reply.attr, &lock).is_none())
        };
        let replies: Vec<_> = replies.into_iter().filter(wants).collect();
        self.statahead.note_sizes(replies.len());
        let layouts: Vec<_> = replies.iter().filter_map(|reply| reply.as_ref().ok()?.layout.clone()).collect();
        // If an OST is disconnected meanwhile, lookups query each file separately.
        drop(self.lov.unless_unavailable(&layouts, self.all_completed(replies)).await);
    }

    /// Records the lookup of a name, starts statahead for the names after it, and waits if its
    /// attributes are on their way. Returns whether they had been requested.
    pub(crate) async fn await_statahead(&self, dir: Fid, name: &Bytes) -> bool {
        let known = Known { client: self, dir };
        let Some(step) = self.statahead.looked_up(dir, name, &known, self.rt.now()) else { return false };
        if let (Some(contents), Some(client)) = (step.contents, self.me()) {
            let fetch = async move { client.fetch_contents(contents).await };
            drop(self.rt.spawn("statahead", operation::within(operation::job(), fetch)));
        }
        for launch in step.launches {
            if let Some(client) = self.me() {
                let run = async move { client.run_ahead(launch).await };
                drop(self.rt.spawn("statahead", operation::within(operation::job(), run)));
            }
        }
        if let Some(flight) = step.flight {
            // An OST that does not answer delays only the lookups that need it.
            let _ = self.rt.timeout(AHEAD_WAIT, flight.ended()).await;
        }
        step.ahead
    }

    async fn run_ahead(&self, launch: Launch) {
        let Launch { dir, mut after, until, bytes, landing, .. } = launch;
        let mut all = Vec::new();
        while after < until {
            // Lookups request the missing attributes themselves.
            let Ok((entries, eof, mut reply)) = self.fetch(dir, after, bytes.min(PAGE_BYTES_MAX), true).await else {
                break;
            };
            all.append(&mut reply);
            match entries.last() {
                Some(last) if !eof => after = last.cookie,
                _ => break,
            }
        }
        self.look_ahead(all).await;
        drop(landing);
    }
}
