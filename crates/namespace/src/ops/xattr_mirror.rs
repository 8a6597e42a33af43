//! Changes to the mirrors of a file: setting `lustre.lov.mirror` ([`sheen_wire::mirror`]). Module
//! `mirror` of `sheen_layout` defines which changes are allowed.
//!
//! * Only the owner may do it (EPERM), of both files where there are two; regular files only
//!   (EOPNOTSUPP). EINVAL for a file without a layout where one is needed.
//! * **Extend**, **merge**: the new mirrors are stale. EBUSY if a client has the file open and
//!   would not learn that it is mirrored now: that client might continue to write to the first
//!   mirror alone. The same holds for the other file, which loses its objects. A layout that is
//!   mirrored already or lacks objects is exempt, because clients expect it to change.
//! * **Split**: the mirror becomes the layout of a file that has none (EEXIST), or its objects are
//!   destroyed like those of an unlinked file.
//! * **Resync**, **resynced**: between the two, clients do not read the mirrors that are being
//!   copied to (EUCLEAN if no other is fresh). A client that writes must ask the MDT first, which
//!   makes another generation, so that resynced fails (EBUSY). Resync advances the generation by
//!   one, so that a tool recognizes its own change. The modification time stays: the caller passes
//!   it, as with `TakeLayout`, within the same bounds.
//! * The value cannot be read (ENODATA) nor removed (EOPNOTSUPP). Sets ctime, of both files.

use sheen_layout::{Asked, Layout, LayoutError, MIRRORS_MAX, WantedComponent, WantedLayout};
use sheen_wire::{self as wire, Cred, Errno, Fid, FileKind, Time, changelog::Kind, ldlm::bits, mirror::MirrorChange};

use super::striping::{leave_layout, with_unused_generation};
use crate::{Namespace, Store, access::is_owner, error::OpResult, held::INTERNAL_CLIENT, interface::Cx, record::Inode};

/// Maximum nanoseconds of a time.
const NSEC_MAX: u32 = 999_999_999;

impl<S: Store> Namespace<S> {
    /// Makes a change. Returns the kind of its record in the changelog.
    pub(crate) fn change_mirrors(
        &mut self,
        cx: &mut Cx,
        cred: &Cred,
        fid: Fid,
        inode: &Inode,
        value: Option<&[u8]>,
    ) -> OpResult<Kind> {
        let (FileKind::Regular, Some(value)) = (inode.kind, value) else { return Err(Errno::EOPNOTSUPP.into()) };
        let change = MirrorChange::decode(value)?;
        let stored = match (&change, &inode.layout) {
            (_, Some(layout)) => layout.clone(),
            (MirrorChange::Extend { .. }, None) => self.layout_of(cx, fid, inode)?,
            _ => return Err(LayoutError::NotMirrored.into()),
        };
        let layout = Layout::decode(&stored)?;
        let kind = if matches!(change, MirrorChange::Resynced { .. }) { Kind::Resync } else { Kind::Lyout };
        let changed = match change {
            MirrorChange::Extend { template } => self.extended(cx, fid, inode, layout, &template)?,
            MirrorChange::Merge { other } => self.merge(cx, cred, (fid, &layout), other)?,
            MirrorChange::Split { mirror, into } => self.split(cx, cred, (fid, &layout), mirror, into)?,
            MirrorChange::Resync { mirrors, end } => {
                let mirrors = several(mirrors)?;
                let mut begun = layout.resync_begun(&mirrors)?;
                let within = end.min(begun.end());
                for mirror in mirrors {
                    begun = self.with_mirrors_objects(cx, &begun, mirror, 0, within)?;
                }
                begun.as_one_change_of(&layout)
            }
            MirrorChange::Resynced { generation, mirrors, mtime } => {
                let resynced = layout.resynced(generation, &several(mirrors)?)?;
                let mtime = Time { nsec: mtime.nsec.min(NSEC_MAX), ..mtime };
                self.edit(fid, |i| {
                    i.mtime = mtime.clamp(i.mtime, cx.now.max(i.mtime));
                    // So that the modification times of the copied objects, which are before `now`,
                    // do not show.
                    i.mtime_set = cx.now;
                })?;
                resynced
            }
            MirrorChange::Objects { mirror, start, end } => {
                self.with_mirrors_objects(cx, &layout, mirror, start, end.saturating_sub(start))?
            }
        };
        self.put_layout(cx, fid, &changed)?;
        Ok(kind)
    }

    fn put_layout(&mut self, cx: &Cx, fid: Fid, layout: &Layout) -> wire::Result<()> {
        self.edit(fid, |i| {
            i.layout = Some(layout.encode().into());
            i.ctime = cx.now;
        })
    }

    fn extended(
        &mut self,
        cx: &mut Cx,
        fid: Fid,
        inode: &Inode,
        mut layout: Layout,
        template: &[u8],
    ) -> OpResult<Layout> {
        self.check_openers_have_layout_lock(cx, fid, &layout)?;
        let asked = self.asked(cx, template)?;
        let (Asked::Composite(_), parent) = (&asked, inode.links.first().map(|l| l.parent)) else {
            return Err(LayoutError::NotComposite.into());
        };
        let WantedLayout::Composite(components) = self.wanted(cx, parent, asked)? else {
            return Err(LayoutError::NotComposite.into());
        };
        for mirror in by_mirror(components) {
            let wanted = WantedLayout::Composite(mirror);
            let objects = self.allot(cx, &wanted.first())?;
            layout = layout.with_merged(&wanted.layout(fid, objects)?)?;
        }
        Ok(layout)
    }

    fn merge(&mut self, cx: &mut Cx, cred: &Cred, (fid, layout): (Fid, &Layout), other: Fid) -> wire::Result<Layout> {
        let victim = self.live(other)?;
        check_other(cred, fid, other, &victim)?;
        let theirs = Layout::decode(victim.layout.as_ref().ok_or(Errno::EINVAL)?)?;
        theirs.check_usable()?;
        self.check_openers_have_layout_lock(cx, fid, layout)?;
        self.check_openers_have_layout_lock(cx, other, &theirs)?;
        let merged = layout.with_merged(&theirs)?;
        self.edit(other, |i| {
            leave_layout(i, &theirs);
            i.ctime = cx.now;
        })?;
        self.tables.log_owner(fid);
        Ok(merged)
    }

    fn split(
        &mut self,
        cx: &mut Cx,
        cred: &Cred,
        (fid, layout): (Fid, &Layout),
        mirror: u16,
        into: Option<Fid>,
    ) -> wire::Result<Layout> {
        let (rest, removed) = layout.split(mirror, into.unwrap_or(fid))?;
        match into {
            None => self.log_destroy(&removed.encode().into())?,
            Some(other) => {
                let target = self.live(other)?;
                check_other(cred, fid, other, &target)?;
                if target.layout.is_some() {
                    return Err(Errno::EEXIST);
                }
                self.put_layout(cx, other, &with_unused_generation(&target, other, removed)?)?;
                self.tables.log_owner(other);
            }
        }
        Ok(rest)
    }

    /// Returns EBUSY if a client has the file open, assumes that its layout does not change, and
    /// has no LAYOUT lock whose cancel would tell it otherwise.
    pub(super) fn check_openers_have_layout_lock(&self, cx: &Cx, fid: Fid, layout: &Layout) -> wire::Result<()> {
        let stays = layout.is_plain() || !layout.is_mirrored() && layout.missing(0, u64::MAX).is_none();
        let locks = cx.env.locks(fid);
        let has = |client, bit| locks.iter().any(|(of, bits)| *of == client && bits & bit != 0);
        let is_deaf = |client| client != cx.client && client != INTERNAL_CLIENT && !has(client, bits::LAYOUT);
        let opened = self.handles.is_open_by(fid, is_deaf);
        let may_open = locks.iter().any(|(client, bits)| bits & bits::OPEN != 0 && is_deaf(*client));
        if stays && (opened || may_open) { Err(Errno::EBUSY) } else { Ok(()) }
    }
}

/// Checks the second file: EINVAL for the same file or one that is not regular, EPERM if the caller
/// does not own it.
fn check_other(cred: &Cred, fid: Fid, other: Fid, inode: &Inode) -> wire::Result<()> {
    if other == fid || inode.kind != FileKind::Regular {
        return Err(Errno::EINVAL);
    }
    if is_owner(cred, inode) { Ok(()) } else { Err(Errno::EPERM) }
}

/// Removes duplicates from a user's mirrors; EINVAL for more than there can be.
fn several(mut mirrors: Vec<u16>) -> wire::Result<Vec<u16>> {
    if mirrors.len() > usize::from(MIRRORS_MAX) {
        return Err(Errno::EINVAL);
    }
    mirrors.sort_unstable();
    mirrors.dedup();
    Ok(mirrors)
}

/// Groups the components of several mirrors by mirror.
fn by_mirror(components: Vec<WantedComponent>) -> Vec<Vec<WantedComponent>> {
    let mut mirrors: Vec<Vec<WantedComponent>> = Vec::new();
    for c in components {
        match mirrors.last_mut().filter(|_| c.start != 0) {
            Some(mirror) => mirror.push(c),
            None => mirrors.push(vec![c]),
        }
    }
    mirrors
}
