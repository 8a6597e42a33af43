//! link: adds a name to a file.
//!
//! * EEXIST if the name exists; EACCES without write and search permission on the parent; ENOENT if
//!   the parent was removed.
//! * EPERM for a directory; EMLINK past 65,000 names; EXDEV into another project
//!   ([`super::xattr_project`]).
//! * ENOENT for an orphan, unless O_TMPFILE created it (without O_EXCL): it becomes an ordinary
//!   file.
//! * Sets ctime of the file, mtime and ctime of the parent. Of a symbolic link, the link itself
//!   gets the name, not its target.

use sheen_wire::{
    self as wire, Cred, Errno, Fid,
    changelog::Kind,
    mds::{LINK_MAX, Reply},
};

use super::{
    names::{is_dots, may_add},
    nodes::entry,
    xattr_project::check_boundary,
};
use crate::{Namespace, Store, changelog::Changed, interface::Cx, key, record::Name};

impl<S: Store> Namespace<S> {
    pub(crate) fn link(&mut self, cx: &mut Cx, cred: &Cred, fid: Fid, parent: Fid, name: &[u8]) -> wire::Result<Reply> {
        let (dir, found) = self.walk(cred, parent, name)?;
        if found.is_some() || is_dots(name) {
            return Err(Errno::EEXIST);
        }
        let inode = self.live(fid)?;
        may_add(&dir, cred)?;
        if inode.is_dir() {
            return Err(Errno::EPERM);
        }
        if inode.nlink == 0 && !inode.linkable {
            return Err(Errno::ENOENT);
        }
        if inode.nlink >= LINK_MAX {
            return Err(Errno::EMLINK);
        }
        check_boundary(&dir, &inode)?;
        let entry_name = Name::new(name);
        self.add_entry(parent, entry_name.clone(), fid, inode.kind)?;
        self.touch_dir(parent, cx.now, 1, 0)?;
        if inode.nlink == 0 {
            self.tables.put_raw(key::orphan(fid), None);
        }
        self.edit(fid, |i| {
            i.nlink += 1;
            i.linkable = false;
            i.ctime = cx.now;
            i.add_link(parent, entry_name);
        })?;
        self.record(cx, cred, &Changed::entry(Kind::Hlink, fid, parent, name));
        Ok(Reply::Entry(entry(fid, &*self.live(fid)?)))
    }
}
