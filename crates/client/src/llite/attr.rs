//! stat(2) and access(2).

use std::sync::Arc;

use bytes::Bytes;
use sheen_layout::Layout;
use sheen_wire::{
    Attr, Fid, FileKind, Result,
    mds::{Request, flags},
};

use super::attr_cache::{AttrReply, KnownAttr};
use crate::{Caller, Client, EntryAttr, OpenFile, cache::Hits, mdc, stats::Op};

impl Client {
    /// Returns the attributes of a file. Needs no permission on the file, as with fstat(2).
    ///
    /// With an open file that seems to be empty, waits for a group of other clients. The kernel
    /// asks so before a read, and sends no read of an empty file. The read would wait.
    ///
    /// # Errors
    /// ENOENT or ESTALE: the file was deleted. Any error of an OST that has objects of the file.
    pub async fn getattr(&self, fid: Fid, file: Option<&OpenFile>) -> Result<EntryAttr> {
        let _timer = self.stats.time(Op::Getattr);
        if let Some(attr) = self.virtual_attr(fid) {
            return Ok(attr);
        }
        let entry = self.getattr_of(fid, file).await?;
        // With cacheable attributes this client has locks, so no group has.
        let seems_empty = entry.attr.kind == FileKind::Regular && entry.attr.size == 0 && !entry.keep.attr;
        let Some(file) = file.filter(|file| seems_empty && flags::reads(file.flags())) else { return Ok(entry) };
        // No lock is in use during the wait.
        let unlocked = EntryAttr::from(entry.attr);
        drop(entry);
        match Box::pin(self.wait_for_group(file)).await {
            true => self.getattr_of(fid, Some(file)).await,
            false => Ok(unlocked),
        }
    }

    /// As [`Client::getattr`]. If `wants_size` returns false, does not wait for a disconnected OST.
    ///
    /// # Errors
    /// As [`Client::getattr`].
    pub async fn getattr_for(&self, fid: Fid, wants_size: impl FnOnce() -> bool) -> Result<EntryAttr> {
        let _timer = self.stats.time(Op::Getattr);
        if let Some(attr) = self.virtual_attr(fid) {
            return Ok(attr);
        }
        match self.mdt_attr(fid, None).await? {
            KnownAttr::Complete(entry) => Ok(entry),
            KnownAttr::OfMdt(reply) => match self.mdt_attr_alone(&reply).filter(|_| !wants_size()) {
                Some(entry) => Ok(entry),
                None => self.completed(reply).await,
            },
        }
    }

    /// As [`Client::getattr`], for a file that is no directory of [`super::dot_lustre`].
    pub(crate) async fn getattr_of(&self, fid: Fid, file: Option<&OpenFile>) -> Result<EntryAttr> {
        match self.mdt_attr(fid, file).await? {
            KnownAttr::Complete(entry) => Ok(entry),
            KnownAttr::OfMdt(reply) => self.completed(reply).await,
        }
    }

    /// As [`Client::getattr_of`], as far as that needs no request to an OST.
    pub(super) async fn mdt_attr(&self, fid: Fid, file: Option<&OpenFile>) -> Result<KnownAttr> {
        self.closes.tell_reads_of(fid).await;
        let unsure = file.is_some_and(OpenFile::is_unsure);
        if !unsure && let Some(known) = self.known_attr(fid) {
            return Ok(known);
        }
        Hits::add(&self.cache.hits.miss);
        let cleared = self.layouts.cleared();
        let sure = file.filter(|f| !f.is_unsure());
        // The reply brings no lock on a layout that it leaves out. The layout may be edited or get
        // mirrors. This client learns of new mirrors only if it has the file open, or holds the
        // lock.
        let (changes, lock) = (sure.map(|f| f.inode.changes()), self.layout_lock(fid).map(|lock| lock.cookie()));
        let known = sure.and_then(|f| f.inode.settled()).or_else(|| self.layouts.get(fid));
        let hears_still = || match sure {
            Some(file) => Some(file.inode.changes()) == changes,
            None => lock.is_some_and(|cookie| self.guard_again(fid, cookie).is_some()),
        };
        let known = known.filter(|layout| layout.is_plain() && hears_still());
        let is_known = known.is_some();
        let mut reply = self.ask_attr(fid, known).await?;
        if is_known && (self.layouts.cleared() != cleared || !hears_still()) {
            // The MDT was restarted in between, or the layout may have changed.
            reply = self.ask_attr(fid, None).await?;
        }
        Ok(KnownAttr::OfMdt(reply))
    }

    /// Asks the MDT for attributes. `known`: the layout that the reply need not contain.
    pub(crate) async fn ask_attr(&self, fid: Fid, known: Option<Arc<Layout>>) -> Result<AttrReply> {
        let request = Request::GetAttr { fid, layout_known: known.is_some() };
        let asking = self.asking(fid).knowing(known);
        let answer = self.mdc.request(request).with_locks(asking.wants()).send().await?;
        self.cache_attr(&mdc::entry(answer.reply)?, &answer.locks, &asking)
    }

    /// access(2): `mask` is the sum of R_OK 4, W_OK 2, X_OK 1.
    ///
    /// # Errors
    /// EACCES: the MDT denies access.
    pub async fn access(&self, who: &Caller, fid: Fid, mask: u32) -> Result<()> {
        if self.virtual_attr(fid).is_some() {
            return self.virtual_access(who, mask);
        }
        mdc::done(self.mdc.request_as(who, |cred| Request::Access { cred, fid, mask }).reply().await?)
    }

    /// Decodes the layout that the MDT sent with attributes; `None` unless the file is a regular
    /// one. The layout is a snapshot.
    pub(crate) fn layout_of(&self, attr: &Attr, layout: Option<&Bytes>) -> Result<Option<Arc<Layout>>> {
        match layout {
            Some(bytes) if attr.kind == FileKind::Regular => self.layouts.read(attr.fid, bytes).map(Some),
            _ => Ok(None),
        }
    }
}
