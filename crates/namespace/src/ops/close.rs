//! close: the end of an open file.
//!
//! * EBADF for a handle that is not the client's, or not of this file.
//! * If anything was read, the access time is renewed as the relatime mount option does: when it is not newer than the last
//!   change of content or attributes, or older than a day.
//! * The last close of a file without a name removes it and lets its objects be destroyed.

use sheen_wire::{self as wire, Fid, Time, mds::Reply};

use crate::{Namespace, Store, engine::Cx, record::Inode};

impl<S: Store> Namespace<S> {
    pub(crate) fn close(&mut self, cx: &Cx, fid: Fid, handle: u64, read: bool) -> wire::Result<Reply> {
        self.handles.get(cx.client, fid, handle)?;
        let old = self.tables.inode(fid)?;
        self.close_handle(handle, fid)?;
        if let Some(inode) = old
            && read
            && inode.nlink > 0
            && is_stale(&inode, cx.now, self.config.relatime.as_secs())
        {
            self.edit(fid, |i| i.atime = cx.now)?;
        }
        Ok(Reply::Ok)
    }
}

fn is_stale(inode: &Inode, now: Time, relatime_secs: u64) -> bool {
    inode.atime <= inode.mtime
        || inode.atime <= inode.ctime
        || now.sec.saturating_sub(inode.atime.sec) >= relatime_secs as i64
}
