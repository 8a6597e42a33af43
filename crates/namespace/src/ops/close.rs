//! close: the end of an open file.
//!
//! * EBADF for a handle that is not the client's, or not of this file.
//! * If anything was read, the access time is renewed ([`super::accessed`]). The answer shows the attributes then.
//! * The last close of a file without a name removes it and lets its objects be destroyed.

use sheen_wire::{self as wire, Fid, mds::Reply};

use super::nodes::entry;
use crate::{Namespace, Store, engine::Cx};

impl<S: Store> Namespace<S> {
    pub(crate) fn close(&mut self, cx: &Cx, fid: Fid, handle: u64, read: bool) -> wire::Result<Reply> {
        self.handles.get(cx.client, fid, handle)?;
        let is_named = self.tables.inode(fid)?.is_some_and(|inode| inode.nlink > 0);
        self.close_handle(handle, fid)?;
        if !is_named || !read {
            return Ok(Reply::Ok);
        }
        self.note_read(fid, cx.now)?;
        Ok(Reply::Entry(entry(fid, &*self.live(fid)?)))
    }
}
