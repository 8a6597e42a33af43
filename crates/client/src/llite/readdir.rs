//! Directory reading.
//!
//! No state is remembered: every call continues at its cookie, so seekdir(3) works and the entries
//! are current. With attributes, one request per OST queries the objects of all files of a page.
//! The kernel's requests use [`Client::list`].

use bytes::Bytes;
use rustc_hash::FxHashMap;
use sheen_wire::{
    Errno, Fid, FileKind, Result,
    ldlm::Cookie,
    mds::{DirEntry, Reply, Request},
};

use super::attr_cache::{Asking, AttrReply};
use crate::{Caller, Client, DirItem, DirPage, EntryAttr, OpenDir, locks::LockRef, stats::Op};

/// Most bytes of entries in one request.
pub(super) const PAGE_BYTES_MAX: u32 = 1 << 20;
/// More than a page has entries; each entry may bring a lock.
pub(super) const ENTRIES_MAX: u64 = 1 << 16;
/// Cookies of the two entries that the client adds.
pub(super) const DOT: u64 = 1;
pub(super) const DOT_DOT: u64 = 2;

impl Client {
    /// Returns entries after `cookie` (0: from the start), about as many as fill `max_bytes`. With
    /// `plus`, also their attributes.
    ///
    /// # Errors
    /// Any error of the MDT. An entry whose attributes are not available comes without them.
    pub async fn readdir(&self, dir: &OpenDir, cookie: u64, max_bytes: u32, plus: bool) -> Result<DirPage> {
        let _timer = self.stats.time(Op::Readdir);
        if let Some(page) = self.virtual_readdir(dir.fid(), cookie) {
            return Ok(page);
        }
        let fid = dir.fid();
        let mut page = DirPage::default();
        if cookie < DOT {
            page.entries.push(dot(b".", fid, DOT));
        }
        if cookie < DOT_DOT {
            page.entries.push(dot(b"..", self.parent_of(fid).await, DOT_DOT));
        }
        let cookie = if cookie <= DOT_DOT { 0 } else { cookie };
        let max_bytes = max_bytes.min(PAGE_BYTES_MAX);
        let asking = self.asking_unknown();
        let request = Request::ReadDir { fid, cookie, max_bytes, attrs: plus };
        let answer = self.mdc.request(request).with_locks(if plus { ENTRIES_MAX } else { 0 }).send().await?;
        let Reply::Entries { entries, eof } = answer.reply else { return Err(Errno::EPROTO) };
        page.eof = eof;
        if plus {
            self.add_with_attrs(fid, entries, answer.locks, &asking, &mut page.entries).await;
        } else {
            page.entries.extend(entries.into_iter().map(|e| item(e, None)));
        }
        Ok(page)
    }

    /// Returns the parent directory. A removed directory has none, and is returned itself.
    pub(super) async fn parent_of(&self, fid: Fid) -> Fid {
        if fid == self.root() {
            return fid;
        }
        if let Some(_lock) = self.inode_lock(fid)
            && let Some(parent) = self.cache.meta.lock().parent(fid)
        {
            return parent;
        }
        let request = Request::Lookup { cred: Caller::ROOT.cred, parent: fid, name: Bytes::from_static(b"..") };
        match self.mdc.request(request).reply().await {
            Ok(Reply::Entry(entry)) => entry.attr.fid,
            _ => fid,
        }
    }

    async fn add_with_attrs(
        &self,
        dir: Fid,
        mut entries: Vec<DirEntry>,
        locks: Vec<(Fid, LockRef)>,
        asking: &Asking,
        items: &mut Vec<DirItem>,
    ) {
        let replies = self.cache_entries(dir, &mut entries, locks, asking);
        let attrs = self.all_completed(replies).await;
        items.extend(entries.into_iter().zip(attrs).map(|(entry, attr)| item(entry, attr.ok())));
    }

    /// Enters the names and attributes of entries into the caches.
    pub(super) fn cache_entries(
        &self,
        dir: Fid,
        entries: &mut [DirEntry],
        locks: Vec<(Fid, LockRef)>,
        asking: &Asking,
    ) -> Vec<Result<AttrReply>> {
        let of: FxHashMap<Fid, Cookie> = locks.iter().map(|(fid, lock)| (*fid, lock.cookie())).collect();
        let mut replies = Vec::with_capacity(entries.len());
        for found in entries {
            let entry = found.entry.take().ok_or(Errno::ENOENT);
            let this = entry.and_then(|e| self.cache_attr_under(&e, of.get(&e.attr.fid).copied(), asking));
            if let Ok(reply) = &this {
                self.cache_name(dir, &found.name, reply);
            }
            replies.push(this);
        }
        replies
    }
}

pub(super) fn dot(name: &'static [u8], fid: Fid, cookie: u64) -> DirItem {
    DirItem { name: Bytes::from_static(name), fid, kind: FileKind::Dir, cookie, attr: None }
}

fn item(entry: DirEntry, attr: Option<EntryAttr>) -> DirItem {
    DirItem { name: entry.name, fid: entry.fid, kind: entry.kind, cookie: entry.cookie, attr }
}
