//! Degraded files: lookups and changes while an OST that has objects of the file is disconnected.
//!
//! The MDT's attributes are enough to look a file up, to remove, rename or link it, and to change
//! its attributes. Only a request for the size waits for the OST.
//!
//! The kernel knows no file without a size, so it gets a placeholder. No program sees the
//! placeholder:
//! * The kernel may not cache the attributes. So stat(2), open(2) and all other calls that depend
//!   on the size send GETATTR first, and wait.
//! * A file that the kernel knows already may be open, mapped and have pages. It keeps its size:
//!   the kernel ignores the attributes in a LOOKUP reply if the file was invalidated after the
//!   LOOKUP was sent, and the client invalidates the file. The kernel does take the attributes of
//!   replies that end a change (LINK, SETATTR). If the file is open here, these replies wait for
//!   the OST.
//! * GETATTR gets the placeholder only for a permission check ([`Client::getattr_for`]) of a file
//!   that is not open here. The kernel has to take this reply, because it contains the mode.

use sheen_wire::{Attr, Fid, Result, ldlm::Cookie};

use super::attr_cache::{AttrReply, KnownAttr};
use crate::{Client, EntryAttr, failure::Failure, lov::is_absence};

impl Client {
    /// As [`Client::completed`], for a reply that brings a name. Does not wait for a disconnected
    /// OST.
    pub(crate) async fn named(&self, reply: AttrReply) -> Result<EntryAttr> {
        let asks = self.cache.kernel().filter(|kernel| kernel.asks_for_sizes());
        let (Some(_), Some(layout)) = (asks, reply.layout.clone()) else { return self.completed(reply).await };
        let (attr, lock) = (reply.attr, reply.lock);
        match self.lov.unless_unavailable(std::slice::from_ref(&layout), self.try_complete(reply)).await {
            Some(Err(failure)) if is_absence(&failure) => {}
            Some(answer) => return answer.map_err(Failure::into_errno),
            None => {}
        }
        self.cache.begin_drop_attr(attr.fid);
        Ok(self.without_size(attr, lock))
    }

    /// As [`Client::completed`], for a reply that ends a change of a file's attributes on the MDT.
    /// Waits for a disconnected OST only if the file is open here.
    pub(crate) async fn changed(&self, reply: AttrReply) -> Result<EntryAttr> {
        match self.files.any(reply.attr.fid) {
            Some(_) => self.completed(reply).await,
            None => self.named(reply).await,
        }
    }

    /// Returns the MDT's attributes alone, if an OST of the file is known to be disconnected and
    /// the file is not open here.
    pub(super) fn mdt_attr_alone(&self, reply: &AttrReply) -> Option<EntryAttr> {
        let is_unavailable = reply.layout.as_ref().is_some_and(|layout| self.lov.is_unavailable(layout));
        (is_unavailable && self.files.any(reply.attr.fid).is_none()).then(|| self.without_size(reply.attr, reply.lock))
    }

    fn without_size(&self, attr: Attr, lock: Option<Cookie>) -> EntryAttr {
        let lock = lock.and_then(|cookie| self.inode_lock_again(attr.fid, cookie));
        self.entry_attr(attr, lock, None)
    }

    /// Returns whether the attributes that the client sends now may be cached until a blocking
    /// callback. Does not wait for a disconnected OST.
    ///
    /// # Errors
    /// As [`Client::getattr`].
    pub async fn is_cacheable(&self, fid: Fid) -> Result<bool> {
        if let Some(attr) = self.virtual_attr(fid) {
            return Ok(attr.keep.attr);
        }
        let entry = match self.mdt_attr(fid, None).await? {
            KnownAttr::Complete(entry) => entry,
            KnownAttr::OfMdt(reply) => self.named(reply).await?,
        };
        Ok(entry.keep.attr)
    }
}
