//! Files of which an OST is away. What the MDT says is enough for a name: it can be looked up,
//! removed, moved, linked, and its attributes can be changed. Only who asks for the size waits for
//! the OST.
//!
//! The kernel knows no file without a size, so it is told one that nobody has said. Why nobody sees
//! it:
//! * the attributes are good for no time, so stat(2), open(2) and whatever else goes by a size ask
//!   for it first (GETATTR), and wait;
//! * a file that the kernel knows already, which may be open, mapped, and have pages, keeps the
//!   size that it has: attributes in the answer to LOOKUP are void to the kernel if the file was
//!   invalidated since it asked, and so it is. It takes them all the same from answers that end a
//!   change (LINK, SETATTR): of a file that is open here these wait for the OST;
//! * GETATTR itself is answered so only to who checks permissions ([`Client::getattr_for`]), of a
//!   file that is not open here: this answer is to count, for the mode is in it.

use sheen_wire::{Attr, Fid, Result, ldlm::Cookie};

use super::known::{Heard, Told};
use crate::{Client, EntryAttr, lov::is_absence};

impl Client {
    /// As [`Client::completed`], for an answer that brings a name.
    pub(crate) async fn named(&self, told: Told) -> Result<EntryAttr> {
        let asks = self.cache.kernel().filter(|kernel| kernel.asks_for_sizes());
        let (Some(_), Some(layout)) = (asks, told.layout.clone()) else { return self.completed(told).await };
        let (attr, lock) = (told.attr, told.lock);
        match self.lov.unless_away(std::slice::from_ref(&layout), self.completed(told)).await {
            Some(Err(errno)) if is_absence(errno) => {}
            Some(answer) => return answer,
            None => {}
        }
        self.cache.begin_drop_attr(attr.fid);
        Ok(self.without_size(attr, lock))
    }

    /// As [`Client::completed`], for an answer that ends a change of what the MDT has of a file.
    pub(crate) async fn changed(&self, told: Told) -> Result<EntryAttr> {
        match self.files.any(told.attr.fid) {
            Some(_) => self.completed(told).await,
            None => self.named(told).await,
        }
    }

    /// What the MDT says of a file, if it is known that an OST of it is away, and nothing here goes
    /// by its size.
    pub(super) fn told_alone(&self, told: &Told) -> Option<EntryAttr> {
        let is_away = told.layout.as_ref().is_some_and(|layout| self.lov.is_away(layout));
        (is_away && self.files.any(told.attr.fid).is_none()).then(|| self.without_size(told.attr, told.lock))
    }

    fn without_size(&self, attr: Attr, lock: Option<Cookie>) -> EntryAttr {
        let lock = lock.and_then(|cookie| self.inode_lock_again(attr.fid, cookie));
        self.entry_attr(attr, lock, None)
    }

    /// Whether what is told of a file now may be kept until it is called back. Does not wait for an
    /// OST that is away.
    ///
    /// # Errors
    /// As [`Client::getattr`].
    pub async fn is_kept(&self, fid: Fid) -> Result<bool> {
        if let Some(attr) = self.virtual_attr(fid) {
            return Ok(attr.keep.attr);
        }
        let entry = match self.told_attr(fid, None).await? {
            Heard::Whole(entry) => entry,
            Heard::Told(told) => self.named(told).await?,
        };
        Ok(entry.keep.attr)
    }
}
