//! Setting POSIX ACLs: `system.posix_acl_access` and `system.posix_acl_default`.
//!
//! * EOPNOTSUPP for a symbolic link; EACCES for a default ACL on a file that is not a directory;
//!   EINVAL for an invalid ACL.
//! * The access ACL sets the permission bits that correspond to it, and is not stored if they
//!   express all of it. Set-group-id is dropped if the caller is not in the file's group. Removing
//!   the ACL leaves the bits.
//! * Removing an ACL that does not exist is no error, as on local file systems.

use sheen_wire::{self as wire, Cred, Errno, Fid, FileKind};

use crate::{
    Namespace, Store,
    access::{SGID, may_keep_sgid},
    acl::Acl,
    interface::Cx,
    record::Inode,
};

/// Which of a file's two ACLs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    Access,
    Default,
}

impl Which {
    pub(crate) fn of(self, inode: &Inode) -> &Option<Acl> {
        match self {
            Which::Access => &inode.access_acl,
            Which::Default => &inode.default_acl,
        }
    }
}

impl<S: Store> Namespace<S> {
    pub(crate) fn set_acl(
        &mut self,
        cx: &Cx,
        cred: &Cred,
        fid: Fid,
        inode: &Inode,
        which: Which,
        value: Option<&[u8]>,
    ) -> wire::Result<()> {
        if inode.kind == FileKind::Symlink {
            return Err(Errno::EOPNOTSUPP);
        }
        let acl = Acl::decode(value.unwrap_or_default())?;
        if which == Which::Default {
            return match acl {
                Some(_) if !inode.is_dir() => Err(Errno::EACCES),
                None if !inode.is_dir() => Ok(()),
                acl => self.edit(fid, |i| {
                    i.default_acl = acl;
                    i.ctime = cx.now;
                }),
            };
        }
        let mut perm = inode.perm;
        let stored = match acl {
            None => None,
            Some(acl) => {
                let (bits, minimal) = acl.mode();
                perm = perm & !0o777 | bits;
                if perm & SGID != 0 && !may_keep_sgid(cred, inode.gid)? {
                    perm &= !SGID;
                }
                (!minimal).then_some(acl)
            }
        };
        self.edit(fid, |i| {
            i.perm = perm;
            i.access_acl = stored;
            i.ctime = cx.now;
        })
    }
}
