//! accessed: files that a client had open by itself were read, some moments ago.
//!
//! * The access time is renewed as the relatime mount option does: when it is not newer than the last change of content or attributes, or
//!   older than a day.
//! * Where the attributes were changed after the file was read, nothing is done: the change may have set the access time.
//! * Files that are gone, or have no name, are left out.
//! * EINVAL for more than [`ACCESSED_MAX`] files.

use sheen_wire::{
    self as wire, Errno, Fid, Time,
    mds::{ACCESSED_MAX, Reply, reading_shows},
};

use crate::{Namespace, Store, engine::Cx};

impl<S: Store> Namespace<S> {
    pub(crate) fn accessed(&mut self, cx: &Cx, files: &[(Fid, u32)]) -> wire::Result<Reply> {
        if files.len() > ACCESSED_MAX {
            return Err(Errno::EINVAL);
        }
        let mut attrs = Vec::with_capacity(files.len());
        for (fid, micros_ago) in files {
            let at = cx.now.micros_ago(*micros_ago);
            let Some(inode) = self.tables.inode(*fid)?.filter(|inode| inode.nlink > 0) else { continue };
            if inode.ctime <= at {
                self.note_read(*fid, at)?;
            }
            attrs.push(self.live(*fid)?.attr(*fid));
        }
        Ok(Reply::Attrs(attrs))
    }

    /// A file with a name was read.
    pub(crate) fn note_read(&mut self, fid: Fid, at: Time) -> wire::Result<()> {
        if reading_shows(&self.live(fid)?.attr(fid), at, self.config.relatime.as_secs()) {
            self.edit(fid, |inode| inode.atime = at)?;
        }
        Ok(())
    }
}
