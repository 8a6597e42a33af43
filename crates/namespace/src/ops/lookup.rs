//! lookup: returns the file that a name refers to.
//!
//! * ENOTDIR if the parent is not a directory, ENOENT if it is deleted.
//! * EACCES without search permission on it, also for names that do not exist.
//! * ENAMETOOLONG past 255 bytes; ENOENT if there is no such entry.
//! * `.` is the directory, `..` its parent; the root is its own parent; a removed directory has
//!   none (ENOENT).

use sheen_wire::{self as wire, Cred, Errno, Fid, fid, mds::Reply};

use super::nodes::entry;
use crate::{Namespace, Store};

impl<S: Store> Namespace<S> {
    pub(crate) fn lookup(&mut self, cred: &Cred, parent: Fid, name: &[u8]) -> wire::Result<Reply> {
        let (dir, found) = self.walk(cred, parent, name)?;
        let fid = match (name, found) {
            (b".", _) => parent,
            (b"..", _) if parent == fid::ROOT => parent,
            (b"..", _) => dir.links.first().ok_or(Errno::ENOENT)?.parent,
            (_, found) => found.ok_or(Errno::ENOENT)?.fid,
        };
        let inode = self.live(fid)?;
        Ok(Reply::Entry(entry(fid, &inode)))
    }
}
