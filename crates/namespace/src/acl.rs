//! POSIX ACLs: their xattr form, their meaning, and their relation to the permission bits (POSIX
//! 1003.1e draft 17, as in Linux).
//!
//! An [`Acl`] is always valid: entries in canonical order, exactly one for owner, group and others,
//! and a mask if a user or group is named.

use serde::{Deserialize, Serialize};
use sheen_wire::{self as wire, Errno};

/// Maximum entries of one ACL; ext4 has room for about 500.
const ENTRIES_MAX: usize = 1024;
/// POSIX_ACL_XATTR_VERSION.
const XATTR_VERSION: u32 = 2;
/// Id of entries that name no user or group.
const NO_ID: u32 = u32::MAX;

/// ACL_USER_OBJ and the other tags.
pub(crate) const USER_OBJ: u8 = 0x01;
pub(crate) const USER: u8 = 0x02;
pub(crate) const GROUP_OBJ: u8 = 0x04;
pub(crate) const GROUP: u8 = 0x08;
pub(crate) const MASK: u8 = 0x10;
pub(crate) const OTHER: u8 = 0x20;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct AclEntry {
    pub tag: u8,
    /// rwx as 4, 2, 1.
    pub perm: u8,
    /// User or group of a `USER` or `GROUP` entry; else 0.
    pub id: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Acl {
    pub entries: Vec<AclEntry>,
}

/// Replaces the users and groups that an ACL names, in its xattr form.
///
/// # Errors
/// EINVAL: it is not valid, or has a user or group for which there is no other. EOPNOTSUPP: it has
/// another version. ENOSPC: it has too many entries.
pub fn map_ids(
    value: &[u8],
    uid: impl Fn(u32) -> Option<u32>,
    gid: impl Fn(u32) -> Option<u32>,
) -> wire::Result<Vec<u8>> {
    let Some(mut acl) = Acl::decode(value)? else { return Ok(value.to_vec()) };
    for entry in &mut acl.entries {
        match entry.tag {
            USER => entry.id = uid(entry.id).ok_or(Errno::EINVAL)?,
            GROUP => entry.id = gid(entry.id).ok_or(Errno::EINVAL)?,
            _ => {}
        }
    }
    Ok(acl.encode())
}

impl Acl {
    /// Decodes the xattr's value. `None`: no entries, which removes the ACL. EINVAL for an invalid
    /// ACL, EOPNOTSUPP for another version, ENOSPC for too many entries.
    pub(crate) fn decode(value: &[u8]) -> wire::Result<Option<Acl>> {
        if value.is_empty() {
            return Ok(None);
        }
        let (version, rest) = value.split_first_chunk::<4>().ok_or(Errno::EINVAL)?;
        if u32::from_le_bytes(*version) != XATTR_VERSION {
            return Err(Errno::EOPNOTSUPP);
        }
        if rest.len() % 8 != 0 {
            return Err(Errno::EINVAL);
        }
        if rest.len() / 8 > ENTRIES_MAX {
            return Err(Errno::ENOSPC);
        }
        let mut entries = Vec::with_capacity(rest.len() / 8);
        for chunk in rest.chunks_exact(8) {
            let &[tag, 0, perm, 0, a, b, c, d] = chunk else { return Err(Errno::EINVAL) };
            let id = if tag == USER || tag == GROUP { u32::from_le_bytes([a, b, c, d]) } else { 0 };
            entries.push(AclEntry { tag, perm, id });
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let acl = Acl { entries };
        acl.check()?;
        Ok(Some(acl))
    }

    /// Encodes the xattr's value.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(4 + 8 * self.entries.len());
        out.extend_from_slice(&XATTR_VERSION.to_le_bytes());
        for e in &self.entries {
            let id = if e.tag == USER || e.tag == GROUP { e.id } else { NO_ID };
            out.extend_from_slice(&u16::from(e.tag).to_le_bytes());
            out.extend_from_slice(&u16::from(e.perm).to_le_bytes());
            out.extend_from_slice(&id.to_le_bytes());
        }
        out
    }

    /// Checks the entries as Linux's `posix_acl_valid` does.
    fn check(&self) -> wire::Result<()> {
        let mut tags = self.entries.iter().map(|e| e.tag).peekable();
        let mut named = false;
        let mut one = |tag: u8| tags.next_if_eq(&tag).ok_or(Errno::EINVAL);
        one(USER_OBJ)?;
        while one(USER).is_ok() {
            named = true;
        }
        one(GROUP_OBJ)?;
        while one(GROUP).is_ok() {
            named = true;
        }
        let masked = one(MASK).is_ok();
        one(OTHER)?;
        let fine = tags.next().is_none()
            && (masked || !named)
            && self.entries.iter().all(|e| e.perm <= 7 && ((e.tag != USER && e.tag != GROUP) || e.id != NO_ID));
        if fine { Ok(()) } else { Err(Errno::EINVAL) }
    }

    fn perm_of(&self, tag: u8) -> Option<u32> {
        self.entries.iter().find(|e| e.tag == tag).map(|e| u32::from(e.perm))
    }

    /// Returns the permission bits (0o777) that correspond to the ACL, and whether they express all
    /// of it (`posix_acl_equiv_mode`).
    pub(crate) fn mode(&self) -> (u32, bool) {
        let perm = |tag| self.perm_of(tag).unwrap_or(0);
        let group = self.perm_of(MASK).unwrap_or_else(|| perm(GROUP_OBJ));
        let minimal = self.entries.iter().all(|e| matches!(e.tag, USER_OBJ | GROUP_OBJ | OTHER));
        (perm(USER_OBJ) << 6 | group << 3 | perm(OTHER), minimal)
    }

    /// Applies a chmod to `perm` (`posix_acl_chmod`): sets owner, others, and the mask (without a
    /// mask: the group).
    pub(crate) fn chmod(&mut self, perm: u32) {
        let class = if self.perm_of(MASK).is_some() { MASK } else { GROUP_OBJ };
        for e in &mut self.entries {
            match e.tag {
                USER_OBJ => e.perm = (perm >> 6 & 7) as u8,
                OTHER => e.perm = (perm & 7) as u8,
                tag if tag == class => e.perm = (perm >> 3 & 7) as u8,
                _ => {}
            }
        }
    }

    /// Turns an inherited default ACL into the ACL of a new file of mode `perm`
    /// (`posix_acl_create`). ACL and mode retain only what both allow. Returns the new permission
    /// bits; bits above 0o777 stay.
    pub(crate) fn inherit(&mut self, perm: u32) -> u32 {
        let class = if self.perm_of(MASK).is_some() { MASK } else { GROUP_OBJ };
        for e in &mut self.entries {
            match e.tag {
                USER_OBJ => e.perm &= (perm >> 6 & 7) as u8,
                OTHER => e.perm &= (perm & 7) as u8,
                tag if tag == class => e.perm &= (perm >> 3 & 7) as u8,
                _ => {}
            }
        }
        perm & !0o777 | self.mode().0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u8, u8, u32)]) -> Acl {
        Acl { entries: entries.iter().map(|&(tag, perm, id)| AclEntry { tag, perm, id }).collect() }
    }

    #[test]
    fn acl_encodes_in_linux_xattr_form() {
        let a = acl(&[(USER_OBJ, 7, 0), (USER, 6, 1000), (GROUP_OBJ, 5, 0), (MASK, 7, 0), (OTHER, 4, 0)]);
        let bytes = a.encode();
        assert_eq!(bytes.len(), 4 + 5 * 8);
        assert_eq!(&bytes[..20], [2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 6, 0, 0xe8, 3, 0, 0]);
        assert_eq!(Acl::decode(&bytes), Ok(Some(a)));
    }

    #[test]
    fn acl_decode_refuses_invalid_acls() {
        let three = [(USER_OBJ, 7, 0), (GROUP_OBJ, 5, 0), (OTHER, 4, 0)];
        let decode = |entries: &[(u8, u8, u32)]| Acl::decode(&acl(entries).encode());
        assert!(decode(&three).is_ok());
        assert_eq!(decode(&three[..2]), Err(Errno::EINVAL));
        assert_eq!(decode(&[three[1], three[0], three[2]]), Err(Errno::EINVAL));
        assert_eq!(decode(&[three[0], (USER, 7, 1), three[1], three[2]]), Err(Errno::EINVAL), "named without a mask");
        assert_eq!(decode(&[(USER_OBJ, 8, 0), three[1], three[2]]), Err(Errno::EINVAL));
        assert_eq!(decode(&[three[0], three[0], three[1], three[2]]), Err(Errno::EINVAL));
        assert_eq!(Acl::decode(&[1, 0, 0, 0]), Err(Errno::EOPNOTSUPP));
        assert_eq!(Acl::decode(&[2, 0, 0]), Err(Errno::EINVAL));
        assert_eq!(Acl::decode(&[2, 0, 0, 0, 1]), Err(Errno::EINVAL));
        assert_eq!(Acl::decode(&[2, 0, 0, 0]), Ok(None));
        let many = vec![(USER, 7, 1); ENTRIES_MAX + 1];
        assert_eq!(decode(&many), Err(Errno::ENOSPC));
    }

    #[test]
    fn acl_follows_chmod_and_limits_inherited_mode() {
        let mut a = acl(&[(USER_OBJ, 7, 0), (USER, 6, 1), (GROUP_OBJ, 5, 0), (MASK, 6, 0), (OTHER, 1, 0)]);
        assert_eq!(a.mode(), (0o761, false));
        a.chmod(0o640);
        assert_eq!(a.mode().0, 0o640);
        assert_eq!(a.perm_of(GROUP_OBJ), Some(5), "the mask stands for the group class");
        let mut d = acl(&[(USER_OBJ, 7, 0), (GROUP_OBJ, 5, 0), (OTHER, 5, 0)]);
        assert_eq!(d.inherit(0o2666), 0o2644);
        assert_eq!(d.mode(), (0o644, true));
    }
}
