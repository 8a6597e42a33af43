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
//! * A mount stores a bounded number of pages. Beyond that, a page is only as large as one
//!   reply to the program.

use std::sync::Arc;

use bytes::Bytes;
use sheen_wire::{
    Attr, Errno, FileKind, Result, entries,
    mds::{Reply, Request},
};

use super::attr_cache::AttrReply;
use crate::{
    Caller, Client, OpenDir, mdc,
    open::{ScanItem, ScanPage},
    stats::Op,
};

/// Size of a page as the MDT counts, in bytes: about 1,200 files of one stripe. Each OST gets few
/// large requests then.
const PAGE_BYTES: u32 = 256 << 10;
/// R_OK and X_OK.
const LIST_AND_SEARCH: u32 = 4 | 1;

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
        if let Some(page) = dir.scan.take(who, cookie, sizes) {
            return Ok(dir.scan.put(page));
        }
        let stored = self.scans.store();
        let max_bytes = if stored.is_some() { PAGE_BYTES } else { entries::PAGE_BYTES as u32 };
        let fid = dir.fid();
        let may = async {
            mdc::done(
                self.mdc.request_as(who, |cred| Request::Access { cred, fid, mask: LIST_AND_SEARCH }).reply().await?,
            )
        };
        let asking = self.asking_unknown();
        let read = self.mdc.request(Request::ReadDir { fid, cookie, max_bytes, attrs: true }).reply();
        let (may, read) = tokio::join!(may, read);
        may?;
        let Reply::Entries { mut entries, eof } = read? else { return Err(Errno::EPROTO) };
        let layouts: Vec<Option<Bytes>> =
            entries.iter().map(|found| found.entry.as_ref().and_then(|entry| entry.layout.clone())).collect();
        let replies = self.cache_entries(fid, &mut entries, Vec::new(), &asking);
        let attrs = Box::pin(self.scanned(replies, sizes, lazy)).await;
        let items = entries.into_iter().zip(layouts).zip(attrs).map(|((entry, layout), (attr, sized))| {
            let layout = layout.filter(|_| entry.kind == FileKind::Regular);
            ScanItem { name: entry.name, kind: entry.kind, cookie: entry.cookie, attr, sized, layout }
        });
        let page = ScanPage { items: items.collect(), eof, after: cookie, who: who.clone(), sizes, stored };
        Ok(dir.scan.put(Arc::new(page)))
    }

    /// Returns the attributes of entries, and whether they include those from the OSTs.
    async fn scanned(&self, replies: Vec<Result<AttrReply>>, sizes: bool, lazy: bool) -> Vec<(Option<Attr>, bool)> {
        let at_hand = |reply: &Result<AttrReply>| match reply {
            Err(_) => Some((None, false)),
            Ok(reply) if reply.layout.is_none() => Some((Some(reply.attr), true)),
            Ok(reply) if !sizes => Some((Some(reply.attr), false)),
            Ok(reply) => self.cached_attr(reply, lazy).map(|attr| (Some(attr), true)),
        };
        let mut attrs: Vec<Option<(Option<Attr>, bool)>> = replies.iter().map(at_hand).collect();
        let missing: Vec<Result<AttrReply>> =
            replies.into_iter().zip(&attrs).filter(|(_, attr)| attr.is_none()).map(|(reply, _)| reply).collect();
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
    fn cached_attr(&self, reply: &AttrReply, lazy: bool) -> Option<Attr> {
        let merged = self.cache.meta.lock().get(reply.attr.fid)?.merged?;
        if lazy {
            return Some(merged);
        }
        let lock = self.inode_lock(reply.attr.fid)?;
        self.whole(&reply.layout, &reply.attr, &lock).map(|entry| entry.attr)
    }
}
