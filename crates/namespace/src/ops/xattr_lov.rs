//! Lustre's own xattrs: the layout (`lustre.lov`), and what Lustre's OSD keeps of names and FID
//! (`trusted.link`, `trusted.lma`).
//!
//! Setting the layout (the owner's, EPERM):
//!
//! * On a regular file without one: the value says what is wanted (objects in it are ignored), the
//!   rest comes from directory, root and file system; EINVAL and so on as `LayoutError::errno`.
//!   Then the file is left without a layout. Of a composite layout the first component gets its
//!   objects at once, the others when they are written into ([`super::layout_intent`]).
//! * On a regular file that has one: EEXIST with CREATE (which `lfs setstripe` passes); else it is
//!   accepted and does nothing, so that archives can be restored and `cp -a` copies over what
//!   exists.
//! * With REPLACE, on a nameless file (O_TMPFILE): the layout becomes another one. Its objects go:
//!   it is for a file that was just made.
//! * On a directory: the default for what is made in it, EINVAL if it names OSTs that do not exist.
//!   A value that asks for nothing removes the default.
//! * EOPNOTSUPP for any other file, for several mirrors that begin on the MDT, and for data on an
//!   MDT that has no place for it ([`crate::Env::check`]).
//!
//! Removing: the default of a directory, with no error if there is none; of a file it is accepted
//! and does nothing.

use bytes::{BufMut, Bytes};
use sheen_layout::{Asked, Layout};
use sheen_wire::{
    self as wire, Errno, Fid, FileKind,
    mds::xattr::{CREATE, REPLACE},
};

use super::striping::{check_served, following};
use crate::{
    Namespace, Store,
    engine::Cx,
    record::{Inode, LINK_ENTRY_BYTES},
};

/// LINK_EA_MAGIC.
const LINK_MAGIC: u32 = 0x11ea_f1df;
/// `struct link_ea_header`: magic, count, length (u64), time of overflow, padding.
const LINK_HEADER_BYTES: usize = 24;

impl<S: Store> Namespace<S> {
    pub(crate) fn set_lov(
        &mut self,
        cx: &mut Cx,
        fid: Fid,
        inode: &Inode,
        value: Option<&[u8]>,
        flags: u32,
    ) -> wire::Result<()> {
        let layout = match (inode.kind, value) {
            (FileKind::Dir, None) => None,
            (FileKind::Dir, Some(value)) => {
                let asked = self.asked(cx, value)?;
                (!asked.is_default()).then(|| asked.encode().into())
            }
            (FileKind::Regular, None) => return Ok(()),
            (FileKind::Regular, Some(value)) if inode.nlink == 0 && flags & REPLACE != 0 => {
                Some(self.another_layout(cx, fid, inode, value)?.encode().into())
            }
            (FileKind::Regular, Some(_)) if inode.layout.is_some() => {
                return if flags & CREATE != 0 { Err(Errno::EEXIST) } else { Ok(()) };
            }
            (FileKind::Regular, Some(value)) => {
                let asked = self.asked(cx, value)?;
                Some(self.next_layout(cx, fid, inode, asked)?.encode().into())
            }
            _ => return Err(Errno::EOPNOTSUPP),
        };
        if layout.is_none() && inode.layout.is_none() {
            return Ok(());
        }
        self.edit(fid, |i| {
            i.layout = layout;
            i.ctime = cx.now;
        })
    }

    /// A layout in the place of the one that there is, which is to be forgotten: the generation
    /// goes on.
    fn another_layout(&mut self, cx: &mut Cx, fid: Fid, inode: &Inode, value: &[u8]) -> wire::Result<Layout> {
        let asked = self.asked(cx, value)?;
        let new = self.new_layout(cx, fid, None, asked)?;
        let Some(stored) = &inode.layout else { return following(inode, fid, new) };
        let next = Layout::decode(stored)?.generation().checked_add(1).ok_or(Errno::ERANGE)?;
        self.log_destroy(stored)?;
        Ok(new.adopted(fid, next)?)
    }

    /// What a user asks for, as far as it can be had.
    pub(super) fn asked(&mut self, cx: &mut Cx, value: &[u8]) -> wire::Result<Asked> {
        let asked = Asked::decode(value)?;
        check_served(&asked)?;
        cx.env.check(&asked)?;
        Ok(asked)
    }
}

/// `lustre.lov`: a file's layout without its generation, as Lustre shows it; a directory's default.
pub(crate) fn lov(inode: &Inode) -> wire::Result<Option<Bytes>> {
    match &inode.layout {
        Some(layout) if inode.kind == FileKind::Regular => Ok(Some(Layout::decode(layout)?.encode_xattr().into())),
        other => Ok(other.clone()),
    }
}

/// `trusted.link`: the names that are known. Header little-endian, entries big-endian: length
/// (u16), parent's FID, name.
pub(crate) fn link_ea(inode: &Inode) -> Option<Bytes> {
    if inode.links.is_empty() {
        return None;
    }
    let body: usize = inode.links.iter().map(|l| LINK_ENTRY_BYTES + l.name.len()).sum();
    let mut ea = Vec::with_capacity(LINK_HEADER_BYTES + body);
    ea.put_u32_le(LINK_MAGIC);
    ea.put_u32_le(inode.links.len() as u32);
    ea.put_u64_le((LINK_HEADER_BYTES + body) as u64);
    ea.put_u64_le(0);
    for link in &inode.links {
        ea.put_u16((LINK_ENTRY_BYTES + link.name.len()) as u16);
        ea.put_slice(&link.parent.to_key());
        ea.put_slice(&link.name);
    }
    Some(ea.into())
}

/// `trusted.lma`: compat and incompat flags, then the FID, little-endian.
pub(crate) fn lma(fid: Fid) -> Bytes {
    let mut ea = Vec::with_capacity(24);
    ea.put_u64_le(0);
    ea.put_u64_le(fid.seq);
    ea.put_u32_le(fid.oid);
    ea.put_u32_le(fid.ver);
    ea.into()
}
