//! open(O_TMPFILE): a regular file without a name.
//!
//! * Needs write and search permission on the directory (EACCES); ENOTDIR, ENOENT as for any create. EINVAL unless opened
//!   for writing.
//! * Owner, group, mode and layout are those of a file created in the directory, whose times do not change.
//! * Gone at its last close (also if the client dies), unless linked before. O_EXCL: it can never be linked.

use sheen_wire::{
    self as wire, Errno, FileKind,
    mds::{
        Reply,
        flags::{self, EXCL},
    },
};

use super::{create::New, names::may_add, nodes::new_inode};
use crate::{Namespace, Store, engine::Cx, record::Inode};

impl<S: Store> Namespace<S> {
    pub(crate) fn tmpfile(&mut self, cx: &mut Cx, new: &New, flags: u32) -> wire::Result<Reply> {
        let dir = self.dir(new.parent)?;
        may_add(&dir, new.cred)?;
        if !flags::writes(flags) {
            return Err(Errno::EINVAL);
        }
        let inode = new_inode(cx, new, &dir, FileKind::Regular)?;
        self.handles.check_room(cx.client)?;
        self.check_new_fid(new.fid)?;
        let layout = Some(self.new_layout(cx, new.fid, Some(new.parent), Default::default())?);
        self.put_orphan(new.fid)?;
        self.tables.put_inode(new.fid, Inode { layout, nlink: 0, linkable: flags & EXCL == 0, ..inode });
        self.counters.files += 1;
        self.opened(cx, new.fid, flags, true)
    }
}
