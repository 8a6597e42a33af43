//! Lustre's own xattrs: the layout (`lustre.lov`), and the names and FID that Lustre's OSD stores
//! (`trusted.link`, `trusted.lma`).
//!
//! Setting the layout (only the owner, EPERM):
//!
//! * On a regular file without a layout: the value requests parameters (objects in it are ignored);
//!   directory, root and file system supply the rest. EINVAL and so on as `LayoutError::errno`; the
//!   file then stays without a layout. In a composite layout the first component gets its objects
//!   at once, the others when they are first written ([`super::layout_intent`]).
//! * On a regular file with a layout: EEXIST with CREATE (which `lfs setstripe` passes). Otherwise
//!   the value is accepted and ignored, so that archives can be restored and `cp -a` copies over
//!   existing files.
//! * With REPLACE, on an orphan (O_TMPFILE): the value replaces the layout, and the old objects are
//!   destroyed. This is for a file that was just created.
//! * On a directory: the default for files created in it. EINVAL if it names OSTs that do not
//!   exist. A value that requests nothing removes the default.
//! * EOPNOTSUPP for any other file, for several mirrors that begin on the MDT, and for data on an
//!   MDT that has no space for it ([`crate::Env::check`]).
//!
//! Removing deletes the default of a directory, with no error if there is none. On a file it is
//! accepted and ignored.

use bytes::{BufMut, Bytes};
use sheen_layout::{Asked, Layout, Spec, WantedLayout};
use sheen_wire::{
    self as wire, Errno, Fid, FileKind,
    mds::xattr::{CREATE, REPLACE},
};

use super::striping::{check_served, with_unused_generation};
use crate::{
    LayoutRequest, Namespace, Store,
    error::OpResult,
    interface::Cx,
    record::{Inode, LINK_ENTRY_BYTES},
};

/// Lustre's LINK_EA_MAGIC.
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
    ) -> OpResult<()> {
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
                return if flags & CREATE != 0 { Err(Errno::EEXIST.into()) } else { Ok(()) };
            }
            (FileKind::Regular, Some(value)) => {
                let asked = self.asked(cx, value)?;
                Some(self.next_layout(cx, fid, inode, asked)?.encode().into())
            }
            _ => return Err(Errno::EOPNOTSUPP.into()),
        };
        if layout.is_none() && inode.layout.is_none() {
            return Ok(());
        }
        self.edit(fid, |i| {
            i.layout = layout;
            i.ctime = cx.now;
        })?;
        Ok(())
    }

    /// Allocates a layout that replaces the present one, whose objects are destroyed. The
    /// generation continues.
    fn another_layout(&mut self, cx: &mut Cx, fid: Fid, inode: &Inode, value: &[u8]) -> OpResult<Layout> {
        let asked = self.asked(cx, value)?;
        let new = self.new_layout(cx, fid, None, asked)?;
        let Some(stored) = &inode.layout else { return Ok(with_unused_generation(inode, fid, new)?) };
        let next = Layout::decode(stored)?.generation().checked_add(1).ok_or(Errno::ERANGE)?;
        self.log_destroy(stored)?;
        Ok(new.adopted(fid, next)?)
    }

    /// Decodes a user's request and checks that it can be served.
    pub(super) fn asked(&mut self, cx: &mut Cx, value: &[u8]) -> wire::Result<Asked> {
        let asked = Asked::decode(value)?;
        check_served(&asked)?;
        // A restarted MDT may not know the OSTs yet when it replays.
        if self.replaying.is_none() {
            cx.env.check(&asked)?;
        }
        Ok(asked)
    }
}

/// Returns `lustre.lov`: a file's layout without its generation, as Lustre shows it; a directory's
/// default.
pub(crate) fn lov(inode: &Inode) -> wire::Result<Option<Bytes>> {
    match &inode.layout {
        Some(layout) if inode.kind == FileKind::Regular => Ok(Some(Layout::decode(layout)?.encode_xattr().into())),
        other => Ok(other.clone()),
    }
}

/// Returns `lustre.lov.default`: stripe count and stripe size of a file if neither its directory
/// nor the root has a default.
pub(crate) fn lov_default(cx: &mut Cx) -> wire::Result<Option<Bytes>> {
    let WantedLayout::Plain(wanted) = cx.env.resolve(&LayoutRequest::default())? else { return Ok(None) };
    let (stripe_size, count) = (Some(wanted.stripe_size), Some(wanted.count));
    Ok(Some(Spec { stripe_size, count, overstripe: wanted.overstripe, ..Spec::default() }.encode().into()))
}

/// Returns `trusted.link`: the stored names. Header little-endian, entries big-endian: length
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

/// Returns `trusted.lma`: compat and incompat flags, then the FID, little-endian.
pub(crate) fn lma(fid: Fid) -> Bytes {
    let mut ea = Vec::with_capacity(24);
    ea.put_u64_le(0);
    ea.put_u64_le(fid.seq);
    ea.put_u32_le(fid.oid);
    ea.put_u32_le(fid.ver);
    ea.into()
}
