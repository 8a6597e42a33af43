//! open(O_TMPFILE): a regular file without a name.
//!
//! * Needs write and search permission on the directory (EACCES); ENOTDIR, ENOENT as for any
//!   create. EINVAL unless opened for writing.
//! * Owner, group, mode and layout are those of a file created in the directory. The directory's
//!   times do not change.
//! * If the FID in the request is that of an orphan, the request is a resend, as in
//!   [`super::open_create`]: the file is opened.
//! * The file is deleted at its last close (also if the client dies), unless it was linked before.
//!   O_EXCL: it can never be linked.

use sheen_wire::{
    self as wire, Errno, Fid, FileKind,
    mds::{
        Reply,
        flags::{self, EXCL},
    },
};

use super::{
    names::may_add,
    nodes::{New, new_inode},
};
use crate::{Namespace, Store, error::OpResult, interface::Cx, record::Inode};

impl<S: Store> Namespace<S> {
    pub(crate) fn tmpfile(&mut self, cx: &mut Cx, new: &New, flags: u32) -> OpResult<Reply> {
        let dir = self.dir(new.parent)?;
        may_add(&dir, new.cred)?;
        if !flags::writes(flags) {
            return Err(Errno::EINVAL.into());
        }
        let inode = new_inode(cx, new, &dir, FileKind::Regular)?;
        self.handles.check_room(cx.client)?;
        match self.check_new_fid(new.fid) {
            Err(Errno::EINVAL) if self.is_orphan(new.fid)? => {
                return Ok(self.opened(cx, new.fid, flags, true)?);
            }
            checked => checked?,
        }
        let layout = self.new_layout(cx, new.fid, Some(new.parent), Default::default())?;
        self.put_orphan(new.fid)?;
        self.tables.put_inode(
            new.fid,
            Inode { layout: Some(layout.encode().into()), nlink: 0, linkable: flags & EXCL == 0, ..inode },
        );
        self.counters.files += 1;
        Ok(self.opened(cx, new.fid, flags, true)?)
    }

    fn is_orphan(&mut self, fid: Fid) -> wire::Result<bool> {
        Ok(self.tables.inode(fid)?.is_some_and(|i| i.kind == FileKind::Regular && i.nlink == 0))
    }
}
