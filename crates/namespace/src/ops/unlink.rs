//! unlink and rmdir: remove a name.
//!
//! * ENOENT if it does not exist; EACCES without write and search permission on the parent; EPERM
//!   in a sticky directory unless owner of the file or the directory.
//! * unlink: EISDIR for a directory. rmdir: ENOTDIR for anything else, ENOTEMPTY, EINVAL for `.`,
//!   ENOTEMPTY for `..`.
//! * Sets mtime and ctime of the parent, and ctime of the file if it lives on.
//! * A file that is open lives until its last close. A removed directory that is open has no
//!   entries, and none can be added (ENOENT).

use sheen_wire::{
    self as wire, Cred, Errno, Fid,
    changelog::{self, Kind},
    mds::Reply,
};

use super::names::may_remove;
use crate::{Namespace, Store, changelog::Changed, interface::Cx};

impl<S: Store> Namespace<S> {
    pub(crate) fn unlink(
        &mut self,
        cx: &mut Cx,
        cred: &Cred,
        parent: Fid,
        name: &[u8],
        dir: bool,
    ) -> wire::Result<Reply> {
        let (parent_inode, found) = self.walk(cred, parent, name)?;
        match (name, dir) {
            (b".", true) => return Err(Errno::EINVAL),
            (b"..", true) => return Err(Errno::ENOTEMPTY),
            (b"." | b"..", false) => return Err(Errno::EISDIR),
            _ => {}
        }
        let found = found.ok_or(Errno::ENOENT)?;
        let victim = self.live(found.fid)?;
        may_remove(&parent_inode, &victim, dir, cred)?;
        if victim.entries > 0 {
            return Err(Errno::ENOTEMPTY);
        }
        self.remove_entry(parent, name)?;
        self.touch_dir(parent, cx.now, -1, if dir { -1 } else { 0 })?;
        self.drop_name(cx, found.fid, parent, name)?;
        let kind = if dir { Kind::Rmdir } else { Kind::Unlnk };
        let flags = if dir || victim.nlink <= 1 { changelog::LAST } else { 0 };
        self.record(cx, cred, &Changed { flags, ..Changed::entry(kind, found.fid, parent, name) });
        Ok(Reply::Ok)
    }
}
