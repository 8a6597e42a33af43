//! close: the end of an open file.
//!
//! * EBADF for a handle that is not the client's, or not of this file. [`NO_HANDLE`] closes nothing: the client had opened the file by
//!   itself, and tells that it was read.
//! * If anything was read, the access time is renewed as the relatime mount option does: when it is not newer than the last
//!   change of content or attributes, or older than a day. The answer shows the attributes then.
//! * The last close of a file without a name removes it and lets its objects be destroyed.

use sheen_wire::{
    self as wire, Fid,
    mds::{NO_HANDLE, Reply, reading_shows},
};

use super::nodes::entry;
use crate::{Namespace, Store, engine::Cx};

impl<S: Store> Namespace<S> {
    pub(crate) fn close(&mut self, cx: &Cx, fid: Fid, handle: u64, read: bool) -> wire::Result<Reply> {
        if handle != NO_HANDLE {
            self.handles.get(cx.client, fid, handle)?;
        }
        let named = self.tables.inode(fid)?.filter(|inode| inode.nlink > 0);
        if handle != NO_HANDLE {
            self.close_handle(handle, fid)?;
        }
        let Some(inode) = named.filter(|_| read) else { return Ok(Reply::Ok) };
        if reading_shows(&inode.attr(fid), cx.now, self.config.relatime.as_secs()) {
            self.edit(fid, |i| i.atime = cx.now)?;
        }
        Ok(Reply::Entry(entry(fid, &*self.live(fid)?)))
    }
}
