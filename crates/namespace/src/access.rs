//! Permission checks: Linux's `generic_permission` and related functions.
//!
//! The superuser (uid 0) has these capabilities: DAC_OVERRIDE, FOWNER, FSETID, CHOWN, MKNOD,
//! SYS_ADMIN, SETFCAP. A request may leave out the supplementary groups. A check returns
//! [`Errno::NEED_GROUPS`] only if its result depends on them.

use sheen_wire::{self as wire, Cred, Errno, nodemap::Nodemap};

use crate::{
    acl::{self, Acl},
    record::Inode,
};

/// Permission to read.
pub const READ: u32 = 4;
/// Permission to write.
pub const WRITE: u32 = 2;
/// Permission to execute a file, or to search a directory.
pub const EXEC: u32 = 1;

pub(crate) const SUID: u32 = 0o4000;
pub(crate) const SGID: u32 = 0o2000;
pub(crate) const STICKY: u32 = 0o1000;

pub(crate) fn is_root(cred: &Cred) -> bool {
    cred.uid == 0
}

/// Whether the caller owns the file or is the superuser.
pub(crate) fn is_owner(cred: &Cred, inode: &Inode) -> bool {
    is_root(cred) || cred.uid == inode.uid
}

/// Whether the caller is in a group.
pub(crate) fn in_group(cred: &Cred, gid: u32) -> wire::Result<bool> {
    match &cred.groups {
        _ if cred.gid == gid => Ok(true),
        Some(groups) => Ok(groups.contains(&gid)),
        None => Err(Errno::NEED_GROUPS),
    }
}

/// Whether the caller may keep set-group-id for a file of group `gid`.
pub(crate) fn may_keep_sgid(cred: &Cred, gid: u32) -> wire::Result<bool> {
    if is_root(cred) { Ok(true) } else { in_group(cred, gid) }
}

/// Checks that all of `mask` ([`READ`], [`WRITE`], [`EXEC`]) is allowed: else EACCES.
pub(crate) fn check(inode: &Inode, cred: &Cred, mask: u32) -> wire::Result<()> {
    let allowed = if is_root(cred) {
        inode.is_dir() || mask & EXEC == 0 || inode.perm & 0o111 != 0
    } else if cred.uid == inode.uid {
        inode.perm >> 6 & mask == mask
    } else if let Some(acl) = &inode.access_acl
        && inode.perm & 0o070 != 0
    {
        acl_allows(acl, inode.gid, cred, mask)?
    } else {
        let (group, other) = (inode.perm >> 3 & mask == mask, inode.perm & mask == mask);
        // If both give the same result, membership does not matter.
        if group != other && in_group(cred, inode.gid)? { group } else { other }
    };
    if allowed { Ok(()) } else { Err(Errno::EACCES) }
}

/// Returns the bits that the group, the others and the access control list give to any user of a
/// client in a nodemap.
pub(crate) fn of_all(inode: &Inode, nodemap: &Nodemap) -> u32 {
    let others = if nodemap.has_users() { inode.perm & 7 } else { 0 };
    let of_group = if nodemap.may_be_in(inode.gid) { 7 } else { 0 };
    let Some(acl) = &inode.access_acl else { return others | (inode.perm >> 3 & of_group) };
    let bits = |entry: &acl::AclEntry| match entry.tag {
        acl::USER if nodemap.may_be(entry.id) => u32::from(entry.perm),
        acl::GROUP if nodemap.may_be_in(entry.id) => u32::from(entry.perm),
        acl::GROUP_OBJ => u32::from(entry.perm) & of_group,
        _ => 0,
    };
    // The bits of the group are those of the mask.
    others | (acl.entries.iter().fold(0, |all, entry| all | bits(entry)) & inode.perm >> 3)
}

/// Evaluates the ACL for a caller that is not the owner.
fn acl_allows(acl: &Acl, gid: u32, cred: &Cred, mask: u32) -> wire::Result<bool> {
    let masked = acl.entries.iter().find(|e| e.tag == acl::MASK).map_or(7, |e| u32::from(e.perm));
    if let Some(user) = acl.entries.iter().find(|e| e.tag == acl::USER && e.id == cred.uid) {
        return Ok(u32::from(user.perm) & masked & mask == mask);
    }
    // Over the groups that the caller is in: does one grant access, was one found? The other two
    // variables: the same for groups of which the membership is unknown.
    let (mut grants, mut found, mut may_grant, mut may_be_found) = (false, false, false, false);
    for e in acl.entries.iter().filter(|e| matches!(e.tag, acl::GROUP_OBJ | acl::GROUP)) {
        let granted = u32::from(e.perm) & masked & mask == mask;
        match in_group(cred, if e.tag == acl::GROUP { e.id } else { gid }) {
            Ok(true) => (grants, found) = (grants || granted, true),
            Ok(false) => {}
            Err(_) if granted => may_grant = true,
            Err(_) => may_be_found = true,
        }
    }
    let other = acl.entries.iter().any(|e| e.tag == acl::OTHER && u32::from(e.perm) & mask == mask);
    let known = if found { grants } else { other };
    let undecided = !grants && ((may_grant && !known) || (may_be_found && !found && known));
    if undecided { Err(Errno::NEED_GROUPS) } else { Ok(known) }
}

/// Checks the sticky bit of `dir`: only the owner of the file or of the directory may remove or
/// rename (EPERM).
pub(crate) fn check_sticky(dir: &Inode, victim: &Inode, cred: &Cred) -> wire::Result<()> {
    if dir.perm & STICKY != 0 && !is_owner(cred, victim) && cred.uid != dir.uid {
        return Err(Errno::EPERM);
    }
    Ok(())
}

/// Returns the permission bits after a write or a change of owner took away privilege. Clears
/// set-user-id. Clears set-group-id if the group may execute the file (otherwise the bit marks
/// mandatory locking), or if the caller is not in the group.
pub(crate) fn without_privilege(inode: &Inode, cred: &Cred) -> wire::Result<u32> {
    let mut perm = inode.perm & !SUID;
    if perm & SGID != 0 && (perm & 0o010 != 0 || !may_keep_sgid(cred, inode.gid)?) {
        perm &= !SGID;
    }
    Ok(perm)
}
