//! Creation and deletion of files.

use bytes::Bytes;
use sheen_wire::{self as wire, Cred, Errno, Fid, FileKind, mds::Entry};

use super::xattr_project;
use crate::{
    Namespace, Store,
    access::{SGID, STICKY, is_owner, may_keep_sgid},
    interface::Cx,
    key,
    record::{Inode, encode},
};

/// Parameters common to all operations that create a file.
pub(crate) struct New<'a> {
    pub cred: &'a Cred,
    pub parent: Fid,
    pub fid: Fid,
    pub mode: u32,
    pub umask: u32,
}

/// Returns a file in the form of replies.
pub(crate) fn entry(fid: Fid, inode: &Inode) -> Entry {
    let layout = if inode.kind == FileKind::Regular { inode.layout.clone() } else { None };
    let xattrs = inode.xattr_bytes > 0 || inode.access_acl.is_some() || inode.default_acl.is_some();
    Entry { attr: inode.attr(fid), layout, xattrs }
}

/// Returns a new inode for directory `dir`. Owner, group, mode and ACLs follow `inode_init_owner`
/// and `posix_acl_create`:
///
/// * The group is the caller's, or the directory's if that has set-group-id; subdirectories inherit
///   this bit.
/// * Set-group-id with group execute is dropped if the caller is not in the group.
/// * A default ACL of the directory replaces the umask.
///
/// For the project see [`super::xattr_project`].
pub(crate) fn new_inode(cx: &Cx, new: &New, dir: &Inode, kind: FileKind) -> wire::Result<Inode> {
    let project = xattr_project::inherited(dir, kind);
    let mut inode = Inode { uid: new.cred.uid, gid: new.cred.gid, project, ..Inode::new(kind, cx.now) };
    if kind == FileKind::Symlink {
        inode.perm = 0o777;
        if dir.perm & SGID != 0 {
            inode.gid = dir.gid;
        }
        return Ok(inode);
    }
    let mut perm = new.mode & if kind == FileKind::Dir { 0o777 | STICKY } else { 0o7777 };
    if dir.perm & SGID != 0 {
        inode.gid = dir.gid;
        if kind == FileKind::Dir {
            perm |= SGID;
        } else if perm & (SGID | 0o010) == SGID | 0o010 && !may_keep_sgid(new.cred, dir.gid)? {
            perm &= !SGID;
        }
    }
    match &dir.default_acl {
        None => perm &= !(new.umask & 0o777),
        Some(default) => {
            let mut acl = default.clone();
            perm = acl.inherit(perm);
            inode.access_acl = (!acl.mode().1).then_some(acl);
            inode.default_acl = (kind == FileKind::Dir).then(|| default.clone());
        }
    }
    inode.perm = perm;
    if kind == FileKind::Dir {
        inode.nlink = 2;
    }
    Ok(inode)
}

impl<S: Store> Namespace<S> {
    /// Checks whether a client may use this FID for a new file: EINVAL outside the sequences handed
    /// out, or if the FID was used.
    pub(crate) fn check_new_fid(&mut self, fid: Fid) -> wire::Result<()> {
        if self.sequences.check(fid)? && self.tables.inode(fid)?.is_some() {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }

    /// Whether the file of this FID, which exists, belongs to the caller. Then a request that
    /// creates it is a resend. Otherwise somebody has chosen another user's FID.
    pub(crate) fn is_own(&mut self, new: &New) -> wire::Result<bool> {
        Ok(is_owner(new.cred, &*self.live(new.fid)?))
    }

    /// Removes a name from a file (from a directory: its only one). Without names the file lives on
    /// while it is open.
    pub(crate) fn drop_name(&mut self, cx: &Cx, fid: Fid, parent: Fid, name: &[u8]) -> wire::Result<()> {
        let mut inode = Inode::clone(&*self.live(fid)?);
        inode.nlink = if inode.is_dir() { 0 } else { inode.nlink.saturating_sub(1) };
        inode.ctime = cx.now;
        if inode.nlink > 0 {
            inode.remove_link(parent, name);
        } else {
            inode.links.clear();
            self.hold_orphan(cx, fid, &inode);
            if !self.handles.is_open(fid) && !self.clients.recovering {
                return self.destroy(fid, &inode);
            }
            self.put_orphan(fid)?;
        }
        self.tables.put_inode(fid, inode);
        Ok(())
    }

    /// Records in the store that the file is an orphan, to be deleted when it is no longer open.
    pub(crate) fn put_orphan(&mut self, fid: Fid) -> wire::Result<()> {
        let value = encode(&(), Vec::new());
        let value = self.tables.fail(value)?;
        self.tables.put_raw(key::orphan(fid), Some(value));
        Ok(())
    }

    /// Deletes a file that has no name and is not open.
    pub(crate) fn destroy_orphan(&mut self, fid: Fid) -> wire::Result<()> {
        let inode = self.tables.inode(fid)?;
        self.tables.put_raw(key::orphan(fid), None);
        match inode {
            Some(inode) if inode.nlink == 0 => self.destroy(fid, &inode),
            _ => Ok(()),
        }
    }

    /// Deletes the inode and its xattrs; the objects go into the unlink log.
    fn destroy(&mut self, fid: Fid, inode: &Inode) -> wire::Result<()> {
        if let (FileKind::Regular, Some(layout)) = (inode.kind, &inode.layout) {
            self.log_destroy(layout)?;
        }
        if inode.xattr_bytes > 0 {
            self.tables.put_xattrs(fid, None);
        }
        self.tables.remove_inode(fid);
        if self.counters.files == 0
            && let Some(watch) = &mut self.tables.watch
        {
            watch.files_below_zero();
        }
        self.counters.files = self.counters.files.saturating_sub(1);
        Ok(())
    }

    /// Adds the objects of a layout, in its encoded form, to the unlink log.
    pub(crate) fn log_destroy(&mut self, layout: &Bytes) -> wire::Result<()> {
        let record = encode(layout, Vec::new());
        let record = self.tables.fail(record)?;
        self.counters.destroy += 1;
        self.tables.put_raw(key::destroy(self.counters.destroy), Some(record));
        Ok(())
    }

    /// Closes an open file. The last close of an orphan deletes it, but not in a recovery.
    pub(crate) fn close_handle(&mut self, handle: u64, fid: Fid) -> wire::Result<()> {
        if self.handles.close(handle)
            && !self.clients.recovering
            && let Some(inode) = self.tables.inode(fid)?
            && inode.nlink == 0
        {
            self.destroy_orphan(fid)?;
        }
        Ok(())
    }
}
