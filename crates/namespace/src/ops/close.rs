//! close: closes files that the client's programs closed some moments ago.
//!
//! * A handle that is not the client's, or not of the file, is ignored: it may stem from before a
//!   restart. [`NO_HANDLE`] is ignored too: the client had opened that file locally.
//! * The last close of an orphan deletes it and lets its objects be destroyed.
//! * If a file was read, its access time is updated as with the relatime mount option. The present
//!   time must be older than a day, or not newer than the last change of content or attributes. If
//!   the attributes were changed after the close, the access time stays, because that change may
//!   have set it.
//! * A replay sets the access times again, by the same rules and with the times of then.
//! * The reply has the attributes of the files that were read and still have a name.
//! * A close of a file that was open for writing is in the changelog. If the changelog has recorded
//!   the open, it records the last close of that user's opens with these flags. The record has the
//!   user who opened the file, also if the client has opened it again since ([`super::reopen`]).
//! * EINVAL for more than [`CLOSED_MAX`] files.

use sheen_wire::{
    self as wire, Errno,
    changelog::{Kind, open_flags},
    mds::{CLOSED_MAX, Closed, NO_HANDLE, Opener, Reply, reading_shows},
};

use crate::{Namespace, Store, changelog::Changed, interface::Cx};

impl<S: Store> Namespace<S> {
    pub(crate) fn close(&mut self, cx: &Cx, files: &[Closed]) -> wire::Result<Reply> {
        if files.len() > CLOSED_MAX {
            return Err(Errno::EINVAL);
        }
        let mut attrs = Vec::new();
        for Closed { fid, handle, read } in files {
            let mut opener = Opener::UNKNOWN;
            if *handle != NO_HANDLE
                && let Ok(file) = self.handles.get(cx.client, *fid, *handle)
            {
                opener = file.opener;
                let is_shown = self.shows_close(&file);
                self.close_handle(*handle, *fid)?;
                if is_shown {
                    let flags = open_flags(file.flags, false);
                    self.record(cx, &opener.cred(), &Changed { flags, ..Changed::file(Kind::Close, *fid) });
                }
            }
            let Some(micros_ago) = read else { continue };
            let Some(inode) = self.tables.inode(*fid)?.filter(|inode| inode.nlink > 0) else { continue };
            let at = cx.now.micros_ago(*micros_ago);
            if inode.ctime <= at && reading_shows(&inode.attr(*fid), at, self.config.relatime.as_secs()) {
                self.edit(*fid, |inode| inode.atime = at)?;
                self.record(cx, &opener.cred(), &Changed::file(Kind::Atime, *fid));
            }
            attrs.push(self.live(*fid)?.attr(*fid));
        }
        Ok(Reply::Attrs(attrs))
    }
}
