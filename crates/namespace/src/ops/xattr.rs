//! getxattr, setxattr, removexattr, listxattr.
//!
//! Names, and which callers may read and write them:
//!
//! * `user.*`: read and write permission; only regular files and directories (reading: ENODATA,
//!   writing: EPERM). In sticky directories only the owner may write (EPERM).
//! * `trusted.*`: only the superuser (reading: ENODATA, writing: EPERM), who alone sees them in
//!   lists.
//! * `security.*`: everybody reads, the superuser writes (EPERM).
//! * `system.posix_acl_*`: everybody reads, the owner writes (EPERM), see [`super::xattr_acl`].
//! * `lustre.lov`, `trusted.lov`: everybody reads the first, the superuser the second. Writing: see
//!   [`super::xattr_lov`].
//! * `lustre.lov.default`: read only, the file system's defaults of stripe count and stripe size,
//!   on any inode. A client reads it to show which layout a new file will get.
//! * `lustre.lov.add`, `lustre.lov.del`, `lustre.lov.set.flags`: write only, see
//!   [`super::xattr_comp`].
//! * `lustre.lov.mirror`: write only, see [`super::xattr_mirror`].
//! * `lustre.lmv`, `lustre.dmv`, `trusted.lmv`, `trusted.dmv`: everybody reads the first two, the
//!   superuser the others. Writing: see [`super::xattr_lmv`].
//! * `lustre.project`: everybody reads it, the superuser and permitted owners change it (EPERM),
//!   see [`super::xattr_project`].
//! * `lustre.quota`: write only, by the superuser (EPERM), see [`super::xattr_quota`].
//! * `trusted.link`, `trusted.lma`: the superuser reads them. They are derived from the inode.
//!   Setting them does nothing, so that archives can be restored.
//!
//! Limits and errors:
//!
//! * EOPNOTSUPP for other namespaces, EINVAL for a prefix alone, ERANGE for a name past 255 bytes,
//!   E2BIG for a value past 64 KiB.
//! * CREATE: EEXIST if present; REPLACE, and removing: ENODATA if absent. ENOSPC past 128 KiB of
//!   names and values per file.
//! * Changes set ctime.
//! * Reading a value of `user.*` or an ACL is in the changelog, if it records that.

use bytes::Bytes;
use sheen_wire::{
    self as wire, Cred, Errno, Fid, FileKind,
    changelog::Kind,
    mds::{
        Reply, XATTR_NAME_MAX, XATTR_SIZE_MAX,
        xattr::{CREATE, REPLACE},
    },
    mirror, project, quota,
};

use super::{xattr_acl::Which, xattr_comp::Edit, xattr_lov};
use crate::{
    Namespace, Store,
    access::{self, READ, STICKY, WRITE, is_owner, is_root},
    changelog::Changed,
    error::OpResult,
    interface::Cx,
    record::{Inode, Xattrs},
};

/// Maximum bytes of all names and values of one file, stored in one record. Twice the largest
/// value.
const TOTAL_BYTES_MAX: usize = 2 * XATTR_SIZE_MAX;
const CAPABILITY: &[u8] = b"security.capability";

/// Meaning of a name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Key {
    User,
    Trusted,
    Security,
    Acl(Which),
    Lov,
    /// `lustre.lov.default`.
    LovDefault,
    /// A change to components.
    LovEdit(Edit),
    /// A change to mirrors.
    Mirror,
    /// `lustre.lmv`.
    Lmv,
    /// `trusted.lmv`, as stored.
    StoredLmv,
    /// `lustre.dmv`.
    Dmv,
    /// `trusted.dmv`, as stored.
    StoredDmv,
    /// `lustre.project`.
    Project,
    /// A change of quotas.
    Quota,
    /// `trusted.link`.
    Link,
    /// `trusted.lma`.
    Lma,
    /// Any other `lustre.*`: does not exist.
    NoLustre,
}

impl Key {
    fn parse(name: &[u8]) -> wire::Result<Key> {
        if name.len() > XATTR_NAME_MAX || name.is_empty() {
            return Err(Errno::ERANGE);
        }
        let plain = |prefix: &[u8], key| (name.len() > prefix.len()).then_some(key).ok_or(Errno::EINVAL);
        match name {
            b"lustre.lov" | b"trusted.lov" => Ok(Key::Lov),
            b"lustre.lov.default" => Ok(Key::LovDefault),
            b"lustre.lov.add" => Ok(Key::LovEdit(Edit::Add)),
            b"lustre.lov.del" => Ok(Key::LovEdit(Edit::Delete)),
            b"lustre.lov.set.flags" => Ok(Key::LovEdit(Edit::SetFlags)),
            n if n == mirror::XATTR.as_bytes() => Ok(Key::Mirror),
            n if n == project::XATTR.as_bytes() => Ok(Key::Project),
            n if n == quota::XATTR.as_bytes() => Ok(Key::Quota),
            b"lustre.lmv" => Ok(Key::Lmv),
            b"trusted.lmv" => Ok(Key::StoredLmv),
            b"lustre.dmv" => Ok(Key::Dmv),
            b"trusted.dmv" => Ok(Key::StoredDmv),
            b"trusted.link" => Ok(Key::Link),
            b"trusted.lma" => Ok(Key::Lma),
            b"system.posix_acl_access" => Ok(Key::Acl(Which::Access)),
            b"system.posix_acl_default" => Ok(Key::Acl(Which::Default)),
            n if n.contains(&0) => Err(Errno::EINVAL),
            n if n.starts_with(b"user.") => plain(b"user.", Key::User),
            n if n.starts_with(b"trusted.") => plain(b"trusted.", Key::Trusted),
            n if n.starts_with(b"security.") => plain(b"security.", Key::Security),
            n if n.starts_with(b"lustre.") => plain(b"lustre.", Key::NoLustre),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }
}

/// Checks permission: Linux's `xattr_permission`, and the owner for the names it does not know.
fn check(inode: &Inode, cred: &Cred, name: &[u8], key: Key, write: bool) -> wire::Result<()> {
    if name.starts_with(b"trusted.") && !is_root(cred) {
        return Err(if write { Errno::EPERM } else { Errno::ENODATA });
    }
    match key {
        Key::Security | Key::Quota if write && !is_root(cred) => Err(Errno::EPERM),
        Key::User => {
            if !matches!(inode.kind, FileKind::Regular | FileKind::Dir) {
                return Err(if write { Errno::EPERM } else { Errno::ENODATA });
            }
            if write && inode.is_dir() && inode.perm & STICKY != 0 && !is_owner(cred, inode) {
                return Err(Errno::EPERM);
            }
            access::check(inode, cred, if write { WRITE } else { READ })
        }
        Key::Acl(_) | Key::Lov | Key::LovEdit(_) | Key::Mirror | Key::Lmv | Key::Dmv | Key::Project
            if write && !is_owner(cred, inode) =>
        {
            Err(Errno::EPERM)
        }
        _ => Ok(()),
    }
}

impl<S: Store> Namespace<S> {
    pub(crate) fn getxattr(&mut self, cx: &mut Cx, cred: &Cred, fid: Fid, name: &[u8]) -> wire::Result<Reply> {
        let inode = self.live(fid)?;
        let key = Key::parse(name)?;
        check(&inode, cred, name, key, false)?;
        let value: Option<Bytes> = match key {
            Key::Lov => xattr_lov::lov(&inode)?,
            Key::LovDefault => xattr_lov::lov_default(cx)?,
            Key::Lmv => self.lmv(fid, &inode)?,
            Key::Dmv => self.dmv(fid, &inode)?,
            Key::Project => Some(Bytes::copy_from_slice(&inode.project.encode())),
            Key::Link => xattr_lov::link_ea(&inode),
            Key::Lma => Some(xattr_lov::lma(fid)),
            Key::Acl(which) => which.of(&inode).as_ref().map(|acl| acl.encode().into()),
            Key::LovEdit(_) | Key::Mirror | Key::Quota | Key::NoLustre => None,
            _ if inode.xattr_bytes == 0 => None,
            Key::User | Key::Trusted | Key::Security | Key::StoredLmv | Key::StoredDmv => {
                let xattrs = self.tables.xattrs(fid)?;
                xattrs.position(name).ok().and_then(|i| xattrs.0.get(i)).map(|(_, v)| v.clone())
            }
        };
        let value = value.ok_or(Errno::ENODATA)?;
        if matches!(key, Key::User | Key::Acl(_)) {
            self.record_access(cx, cred, &Changed { xattr: name, ..Changed::file(Kind::Gxatr, fid) });
        }
        Ok(Reply::Bytes(value))
    }

    /// Sets an attribute or, without a value, removes it.
    pub(crate) fn setxattr(
        &mut self,
        cx: &mut Cx,
        cred: &Cred,
        fid: Fid,
        name: &[u8],
        value: Option<&[u8]>,
        flags: u32,
    ) -> OpResult<Reply> {
        let inode = self.live(fid)?;
        let key = Key::parse(name)?;
        if value.is_some_and(|v| v.len() > XATTR_SIZE_MAX) {
            return Err(Errno::E2BIG.into());
        }
        if flags & !(CREATE | REPLACE) != 0 || flags == CREATE | REPLACE {
            return Err(Errno::EINVAL.into());
        }
        check(&inode, cred, name, key, true)?;
        let mut layout_kind = Kind::Lyout;
        match key {
            Key::Lov => self.set_lov(cx, fid, &inode, value, flags)?,
            Key::LovEdit(edit) => self.edit_components(cx, fid, &inode, edit, value)?,
            Key::Mirror => layout_kind = self.change_mirrors(cx, cred, fid, &inode, value)?,
            Key::Lmv | Key::StoredLmv => self.set_lmv(cx, cred, fid, &inode, value)?,
            Key::Dmv | Key::StoredDmv => self.set_dmv(cx, cred, fid, &inode, value, flags)?,
            Key::Acl(which) => self.set_acl(cx, cred, fid, &inode, which, value)?,
            Key::Project => self.set_project(cx, cred, fid, &inode, value)?,
            Key::Quota => self.set_quota(cx, fid, value)?,
            Key::Link | Key::Lma => {}
            Key::LovDefault | Key::NoLustre => return Err(Errno::EOPNOTSUPP.into()),
            Key::User | Key::Trusted | Key::Security => self.set_plain(cx, fid, name, value, flags)?,
        }
        match key {
            Key::Link | Key::Lma => {}
            Key::Lov | Key::LovEdit(_) | Key::Mirror => self.record(cx, cred, &Changed::file(layout_kind, fid)),
            _ => self.record(cx, cred, &Changed { xattr: name, ..Changed::file(Kind::Xattr, fid) }),
        }
        Ok(Reply::Ok)
    }

    /// Sets an attribute that is stored unchanged or, without a value, removes it.
    pub(crate) fn set_plain(
        &mut self,
        cx: &Cx,
        fid: Fid,
        name: &[u8],
        value: Option<&[u8]>,
        flags: u32,
    ) -> wire::Result<()> {
        let mut xattrs = Xattrs::clone(&*self.tables.xattrs(fid)?);
        let at = xattrs.position(name);
        match (at, value) {
            (Ok(_), Some(_)) if flags & CREATE != 0 => return Err(Errno::EEXIST),
            (Err(_), Some(_)) if flags & REPLACE != 0 => return Err(Errno::ENODATA),
            (Err(_), None) => return Err(Errno::ENODATA),
            (Ok(i), Some(value)) => xattrs.0[i].1 = Bytes::copy_from_slice(value),
            (Err(i), Some(value)) => {
                xattrs.0.insert(i, (Bytes::copy_from_slice(name), Bytes::copy_from_slice(value)));
            }
            (Ok(i), None) => drop(xattrs.0.remove(i)),
        }
        let bytes = xattrs.bytes();
        if value.is_some() && bytes > TOTAL_BYTES_MAX {
            return Err(Errno::ENOSPC);
        }
        self.tables.put_xattrs(fid, (bytes > 0).then_some(xattrs));
        self.edit(fid, |i| {
            i.xattr_bytes = bytes as u32;
            i.ctime = cx.now;
        })
    }

    /// Removes file capabilities, as set-user-id, when content or owner change.
    pub(crate) fn drop_capability(&mut self, fid: Fid) -> wire::Result<()> {
        if self.live(fid)?.xattr_bytes == 0 {
            return Ok(());
        }
        let mut xattrs = Xattrs::clone(&*self.tables.xattrs(fid)?);
        if let Ok(i) = xattrs.position(CAPABILITY) {
            xattrs.0.remove(i);
            let bytes = xattrs.bytes();
            self.tables.put_xattrs(fid, (bytes > 0).then_some(xattrs));
            self.edit(fid, |i| i.xattr_bytes = bytes as u32)?;
        }
        Ok(())
    }

    /// Lists `lustre.lov` first, then `trusted.*` for the superuser, then the rest by name.
    pub(crate) fn listxattr(&mut self, cred: &Cred, fid: Fid) -> wire::Result<Reply> {
        let inode = self.live(fid)?;
        let root = is_root(cred);
        let made_up = [
            (b"lustre.lov".as_slice(), inode.layout.is_some()),
            (b"trusted.link", root && !inode.links.is_empty()),
            (b"trusted.lma", root),
            (b"trusted.lov", root && inode.layout.is_some()),
        ];
        let acls = [
            (b"system.posix_acl_access".as_slice(), inode.access_acl.is_some()),
            (b"system.posix_acl_default", inode.default_acl.is_some()),
        ];
        let there = |(name, there): (&'static [u8], bool)| there.then(|| Bytes::from_static(name));
        let mut names: Vec<Bytes> = made_up.into_iter().filter_map(there).collect();
        let mut rest: Vec<Bytes> = acls.into_iter().filter_map(there).collect();
        if inode.xattr_bytes > 0 {
            for (name, _) in &self.tables.xattrs(fid)?.0 {
                match name.starts_with(b"trusted.") {
                    true if root => names.push(name.clone()),
                    true => {}
                    false => rest.push(name.clone()),
                }
            }
        }
        rest.sort();
        names.append(&mut rest);
        Ok(Reply::Names(names))
    }
}
