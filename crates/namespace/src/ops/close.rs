//! close: the end of open files, some moments ago.
//!
//! * A handle that is not the client's, or not of the file, is passed over: it may be one of before
//!   a restart. So is [`NO_HANDLE`], of a file that the client had opened by itself.
//! * The last close of a file without a name removes it and lets its objects be destroyed.
//! * Where anything was read, the access time is renewed as the relatime mount option does: when it
//!   is not newer than the last change of content or attributes, or older than a day. Where the
//!   attributes were changed after the file was closed, nothing is done: the change may have set
//!   the access time. The answer shows the attributes then, of what has a name.
//! * EINVAL for more than [`CLOSED_MAX`] files.

use sheen_wire::{
    self as wire, Errno,
    mds::{CLOSED_MAX, Closed, NO_HANDLE, Reply, reading_shows},
};

use crate::{Namespace, Store, engine::Cx};

impl<S: Store> Namespace<S> {
    pub(crate) fn close(&mut self, cx: &Cx, files: &[Closed]) -> wire::Result<Reply> {
        if files.len() > CLOSED_MAX {
            return Err(Errno::EINVAL);
        }
        let mut attrs = Vec::new();
        for Closed { fid, handle, read } in files {
            if *handle != NO_HANDLE && self.handles.get(cx.client, *fid, *handle).is_ok() {
                self.close_handle(*handle, *fid)?;
            }
            let Some(micros_ago) = read else { continue };
            let Some(inode) = self.tables.inode(*fid)?.filter(|inode| inode.nlink > 0) else { continue };
            let at = cx.now.micros_ago(*micros_ago);
            if inode.ctime <= at && reading_shows(&inode.attr(*fid), at, self.config.relatime.as_secs()) {
                self.edit(*fid, |inode| inode.atime = at)?;
            }
            attrs.push(self.live(*fid)?.attr(*fid));
        }
        Ok(Reply::Attrs(attrs))
    }
}
