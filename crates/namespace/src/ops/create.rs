//! mkdir, mknod, symlink: creates a file and its directory entry.
//!
//! * EEXIST if the name exists, whatever it names (also a dangling symlink); this comes before the
//!   check of write permission. Exception: the name refers to the FID in the request, and the file
//!   is the caller's. Clients never use a FID twice, so the request is a resend: its first
//!   execution survived a crash, its reply did not. It succeeds, also if another client has removed
//!   the file since. Usually the record of the request says so (module `executed`); the comparison
//!   of FIDs is for clients that a recovery did not wait for, which have no records.
//! * EACCES without write and search permission on the parent; ENOENT if the parent was removed.
//! * EPERM for devices unless superuser (except character device 0:0, overlayfs's whiteout).
//! * EDQUOT if the owner may have no more files, see [`super::xattr_quota`].
//! * A symlink's target: ENOENT if empty, ENAMETOOLONG past 4095 bytes. Its mode is 0777.
//! * Owner, group, mode, ACLs: see [`super::nodes::new_inode`]. A directory inherits the parent's
//!   default layout, except the root's, which applies everywhere. For inherited directory layouts
//!   see [`super::xattr_lmv`].
//! * Sets all times of the new file, and mtime and ctime of the parent. A directory adds a link to
//!   its parent.
//! * A regular file gets its layout only when the layout is set, or when the file is truncated or
//!   first opened for writing.

use std::sync::Arc;

use bytes::Bytes;
use sheen_wire::{
    self as wire, Cred, Errno, FileKind,
    changelog::Kind,
    fid,
    mds::{Entry, NewNode, Reply, SYMLINK_MAX},
};

use super::{
    names::{is_dots, may_add},
    nodes::{New, entry, new_inode},
};
use crate::{
    Namespace, Store,
    changelog::Changed,
    interface::Cx,
    record::{Inode, Name},
};

impl<S: Store> Namespace<S> {
    pub(crate) fn create(&mut self, cx: &mut Cx, new: &New, name: &[u8], node: &NewNode) -> wire::Result<Reply> {
        let (dir, found) = self.walk(new.cred, new.parent, name)?;
        if found.as_ref().is_some_and(|f| f.fid == new.fid) && self.is_own(new)? {
            return Ok(Reply::Entry(entry(new.fid, &*self.live(new.fid)?)));
        }
        if found.is_some() || is_dots(name) {
            return Err(Errno::EEXIST);
        }
        may_add(&dir, new.cred)?;
        let mut inode = match node {
            NewNode::Dir => {
                let layout = if new.parent == fid::ROOT { None } else { dir.layout.clone() };
                Inode { layout, ..new_inode(cx, new, &dir, FileKind::Dir)? }
            }
            NewNode::Symlink(target) => {
                check_target(target)?;
                let target = Some(Bytes::copy_from_slice(target));
                Inode { target, ..new_inode(cx, new, &dir, FileKind::Symlink)? }
            }
            NewNode::Node { kind, rdev } => {
                let rdev = check_node(new.cred, *kind, *rdev)?;
                Inode { rdev, ..new_inode(cx, new, &dir, *kind)? }
            }
        };
        self.check_new_fid(new.fid)?;
        self.check_quota(cx, &inode)?;
        let xattrs = if inode.is_dir() { self.inherit_lmv(new.parent, &dir, new.fid)? } else { None };
        inode.xattr_bytes = xattrs.as_ref().map_or(0, |x| x.bytes() as u32);
        let inode = self.enter(cx, new, name, inode)?;
        if xattrs.is_some() {
            self.tables.put_xattrs(new.fid, xattrs);
        }
        Ok(Reply::Entry(entry(new.fid, &inode)))
    }

    /// Adds a new file and its entry. The caller has done all checks.
    pub(crate) fn enter(&mut self, cx: &Cx, new: &New, name: &[u8], mut inode: Inode) -> wire::Result<Arc<Inode>> {
        let kind = match inode.kind {
            FileKind::Dir => Kind::Mkdir,
            FileKind::Regular => Kind::Creat,
            FileKind::Symlink => Kind::Slink,
            FileKind::Fifo | FileKind::Socket | FileKind::Char | FileKind::Block => Kind::Mknod,
        };
        let entry = Name::new(name);
        self.add_entry(new.parent, entry.clone(), new.fid, inode.kind)?;
        inode.add_link(new.parent, entry);
        self.touch_dir(new.parent, cx.now, 1, i64::from(inode.is_dir()))?;
        self.tables.put_inode(new.fid, inode);
        self.counters.files += 1;
        self.record(cx, new.cred, &Changed::entry(kind, new.fid, new.parent, name));
        self.live(new.fid)
    }
}

/// Returns the reply to a resent request whose file was removed since: the attributes that the file
/// began with, and no link.
pub(crate) fn removed_entry(cx: &Cx, new: &New, node: &NewNode) -> wire::Result<Entry> {
    let (kind, rdev) = match node {
        NewNode::Dir => (FileKind::Dir, 0),
        NewNode::Symlink(_) => (FileKind::Symlink, 0),
        NewNode::Node { kind, rdev } => (*kind, *rdev),
    };
    let target = if let NewNode::Symlink(target) = node { Some(target.clone()) } else { None };
    let inode = new_inode(cx, new, &Inode::new(FileKind::Dir, cx.now), kind)?;
    Ok(entry(new.fid, &Inode { nlink: 0, rdev, target, ..inode }))
}

fn check_target(target: &[u8]) -> wire::Result<()> {
    match target.len() {
        0 => Err(Errno::ENOENT),
        n if n > SYMLINK_MAX => Err(Errno::ENAMETOOLONG),
        _ if target.contains(&0) => Err(Errno::EINVAL),
        _ => Ok(()),
    }
}

/// Checks a node's kind and returns the device number to store.
fn check_node(cred: &Cred, kind: FileKind, rdev: u32) -> wire::Result<u32> {
    match kind {
        FileKind::Regular | FileKind::Fifo | FileKind::Socket => Ok(0),
        FileKind::Char if rdev == 0 => Ok(0),
        FileKind::Char | FileKind::Block if cred.uid == 0 => Ok(rdev),
        FileKind::Char | FileKind::Block => Err(Errno::EPERM),
        FileKind::Dir | FileKind::Symlink => Err(Errno::EINVAL),
    }
}
