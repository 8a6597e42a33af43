//! chmod, chown, utimensat, truncate, and removal of privilege after a write. All checks come
//! first; every change sets ctime.
//!
//! * chmod: only the owner (EPERM). Set-group-id is dropped silently if the caller is not in the
//!   file's group. The ACL follows: its owner, mask (or group) and others. EOPNOTSUPP for a
//!   symbolic link.
//! * chown: only the superuser (EPERM). The owner may set the owner to itself, and the group to one
//!   that it is in. On files other than directories, chown clears set-user-id. It also clears
//!   set-group-id if the group may execute; otherwise the bit is no privilege, and stays for
//!   members of the group. `chown(-1, -1)` sets only ctime.
//! * utimensat: both times to the present need the owner or write permission (EACCES); anything
//!   else needs the owner (EPERM).
//! * truncate: EISDIR for a directory, EINVAL for other files that are not regular, EACCES without
//!   write permission; by handle EINVAL unless open for writing. EFBIG past the size that the
//!   layout can hold, ENODATA past its end, ETXTBSY if another client runs a program from the file.
//!   Sets mtime, allocates the layout, and removes privilege unless superuser.

use sheen_wire::{
    self as wire, Cred, Errno, Fid, FileKind, Time,
    changelog::Kind,
    mds::{Reply, SetAttr, SetTime, flags},
};

use super::{nodes::entry, striping};
use crate::{
    Namespace, Store,
    access::{self, SGID, WRITE, in_group, is_owner, is_root, may_keep_sgid, without_privilege},
    changelog::Changed,
    error::OpResult,
    interface::Cx,
    record::Inode,
};

impl<S: Store> Namespace<S> {
    pub(crate) fn setattr(
        &mut self,
        cx: &mut Cx,
        cred: &Cred,
        fid: Fid,
        set: &SetAttr,
        handle: Option<u64>,
    ) -> OpResult<Reply> {
        let inode = self.live(fid)?;
        let by_handle = match handle {
            // The file was open for writing; its handle does not exist any more.
            Some(_) if self.replaying.is_some() => Some(true),
            Some(handle) => Some(flags::writes(self.handles.get(cx.client, fid, handle)?.flags)),
            None => None,
        };
        check_size(&inode, cred, set, by_handle)?;
        if set.size.is_some() && self.is_run_elsewhere(cx.client, fid) {
            return Err(Errno::ETXTBSY.into());
        }
        check_chown(&inode, cred, set)?;
        check_times(&inode, cred, set)?;
        let mut perm = new_perm(&inode, cred, set)?;
        if set.kill_priv && by_handle != Some(true) && !is_owner(cred, &inode) {
            access::check(&inode, cred, WRITE)?;
        }
        let chown = set.uid.is_some() || set.gid.is_some();
        let truncate = set.size.is_some() && !is_root(cred);
        let loses = !inode.is_dir() && (chown || truncate || set.kill_priv);
        if loses && set.perm.is_none() {
            perm = without_privilege(&inode, cred)?;
        }
        let mut layout = inode.layout.clone();
        if let Some(size) = set.size {
            let placed = self.layout_of(cx, fid, &inode)?;
            striping::check_size(&placed, size)?;
            layout = Some(placed);
        }
        if loses {
            self.drop_capability(fid)?;
        }
        self.edit(fid, |i| {
            if set.perm.is_some()
                && let Some(acl) = &mut i.access_acl
            {
                acl.chmod(perm);
            }
            i.layout = layout;
            i.perm = perm;
            i.uid = set.uid.unwrap_or(i.uid);
            i.gid = set.gid.unwrap_or(i.gid);
            if set.size.is_some() {
                i.mtime = cx.now;
            }
            if set.size.is_some() || set.mtime.is_some() {
                i.mtime_set = cx.now;
            }
            let at = |t: &SetTime| if let SetTime::At(t) = t { *t } else { cx.now };
            i.atime = set.atime.as_ref().map_or(i.atime, at);
            i.mtime = set.mtime.as_ref().map_or(i.mtime, at);
            i.ctime = cx.now;
        })?;
        let mut kinds = kinds_of(set).into_iter().flatten();
        if let Some(kind) = kinds.find(|kind| self.changelog.mask.has(*kind)) {
            self.record(cx, cred, &Changed::file(kind, fid));
        }
        Ok(Reply::Entry(entry(fid, &*self.live(fid)?)))
    }
}

/// Returns the kinds of change, of which the changelog has the first that a user wants, as in
/// Lustre.
fn kinds_of(set: &SetAttr) -> [Option<Kind>; 5] {
    let is_attr = set.perm.is_some() || set.uid.is_some() || set.gid.is_some() || set.kill_priv;
    [
        set.size.map(|_| Kind::Trunc),
        is_attr.then_some(Kind::Sattr),
        set.mtime.map(|_| Kind::Mtime),
        Some(Kind::Ctime),
        set.atime.map(|_| Kind::Atime),
    ]
}

/// `by_handle`: whether the request's handle is open for writing; `None` without a handle.
fn check_size(inode: &Inode, cred: &Cred, set: &SetAttr, by_handle: Option<bool>) -> wire::Result<()> {
    let Some(size) = set.size else { return Ok(()) };
    match inode.kind {
        FileKind::Regular => {}
        FileKind::Dir => return Err(Errno::EISDIR),
        _ => return Err(Errno::EINVAL),
    }
    match by_handle {
        Some(true) => {}
        Some(false) => return Err(Errno::EINVAL),
        None => access::check(inode, cred, WRITE)?,
    }
    if i64::try_from(size).is_err() { Err(Errno::EFBIG) } else { Ok(()) }
}

fn check_chown(inode: &Inode, cred: &Cred, set: &SetAttr) -> wire::Result<()> {
    // In the system call (uid_t)-1 means "leave unchanged"; no user has this id.
    if set.uid == Some(u32::MAX) || set.gid == Some(u32::MAX) {
        return Err(Errno::EINVAL);
    }
    if is_root(cred) {
        return Ok(());
    }
    let owner = cred.uid == inode.uid;
    let uid = set.uid.is_none_or(|uid| owner && uid == inode.uid);
    let gid = match set.gid {
        Some(_) if !owner || !uid => false,
        Some(gid) => gid == inode.gid || in_group(cred, gid)?,
        None => true,
    };
    if uid && gid { Ok(()) } else { Err(Errno::EPERM) }
}

fn check_times(inode: &Inode, cred: &Cred, set: &SetAttr) -> wire::Result<()> {
    for time in [set.atime, set.mtime] {
        if matches!(time, Some(SetTime::At(Time { nsec: 1_000_000_000.., .. }))) {
            return Err(Errno::EINVAL);
        }
    }
    match (set.atime, set.mtime) {
        (None, None) => Ok(()),
        // truncate may set mtime in the same request.
        (None, Some(SetTime::Now)) if set.size.is_some() => Ok(()),
        _ if is_owner(cred, inode) => Ok(()),
        (Some(SetTime::Now), Some(SetTime::Now)) => access::check(inode, cred, WRITE),
        _ => Err(Errno::EPERM),
    }
}

fn new_perm(inode: &Inode, cred: &Cred, set: &SetAttr) -> wire::Result<u32> {
    let Some(perm) = set.perm else { return Ok(inode.perm) };
    if !is_owner(cred, inode) {
        return Err(Errno::EPERM);
    }
    if inode.kind == FileKind::Symlink {
        return Err(Errno::EOPNOTSUPP);
    }
    let gid = set.gid.unwrap_or(inode.gid);
    let perm = perm & 0o7777;
    Ok(if perm & SGID != 0 && !may_keep_sgid(cred, gid)? { perm & !SGID } else { perm })
}
