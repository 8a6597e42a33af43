//! LayoutIntent: a client is about to write or truncate where its layout has no objects.
//!
//! * Every component that overlaps `[start, end)` gets its objects, on OSTs that are active and
//!   have space now. An extension component in the range first adds to the component that it
//!   extends, as far as the write needs. On an error none of this happens: ENOSPC and so on as at
//!   creation, ERANGE past the largest layout.
//! * In a mirrored file only the primary mirror gets objects: the fresh mirror or, if several are
//!   fresh, the one that [`Layout::primary`] chooses. The other mirrors become stale.
//! * If the range has objects, in a plain layout, or for an empty range, nothing changes and the
//!   reply is the same. So of several clients that ask at once the first decides, and a request may
//!   be repeated.
//! * A file without a layout gets one first, as when it is opened for writing.
//! * ENODATA if the layout ends at or before `start`. A range that crosses the layout's end is no
//!   error, because the write is cut there. EINVAL for a file that is not regular.
//! * Sets no times: the write does.
//! * The record in the changelog has the user who opened the file, or truncates it by its path.

use sheen_layout::{Component, Layout, Wanted};
use sheen_wire::{
    Errno, Fid, FileKind,
    changelog::Kind,
    mds::{Opener, Reply},
};

use super::nodes::entry;
use crate::{Namespace, Store, changelog::Changed, error::OpResult, interface::Cx};

impl<S: Store> Namespace<S> {
    pub(crate) fn layout_intent(
        &mut self,
        cx: &mut Cx,
        fid: Fid,
        (start, end): (u64, u64),
        opener: Opener,
    ) -> OpResult<Reply> {
        let inode = self.live(fid)?;
        if inode.kind != FileKind::Regular {
            return Err(Errno::EINVAL.into());
        }
        if let Some(replayed) = self.replayed_layout() {
            let new = replayed?.encode().into();
            let before = inode.layout.as_ref().map(|stored| Layout::decode(stored)).transpose()?;
            self.edit(fid, |i| i.layout = Some(new))?;
            let kind = before.as_ref().map_or(Kind::Lyout, kind_of_write);
            self.record(cx, &opener.cred(), &Changed::file(kind, fid));
            return Ok(Reply::Entry(entry(fid, &*self.live(fid)?)));
        }
        let stored = self.layout_of(cx, fid, &inode)?;
        let layout = Layout::decode(&stored)?;
        let touches = start < end;
        if touches && start >= layout.end() {
            return Err(Errno::ENODATA.into());
        }
        let changed = match touches {
            true if layout.is_mirrored() => Some(self.with_primary(cx, &layout, start, end - start)?),
            true => self.with_objects(cx, &layout, start, end - start)?,
            false => None,
        };
        let new = changed.map_or(stored, |layout| layout.encode().into());
        if inode.layout.as_ref() != Some(&new) {
            self.edit(fid, |i| i.layout = Some(new))?;
            self.record(cx, &opener.cred(), &Changed::file(kind_of_write(&layout), fid));
        }
        Ok(Reply::Entry(entry(fid, &*self.live(fid)?)))
    }

    /// Returns the layout for writing: only the primary mirror is fresh, and it has objects
    /// wherever `[offset, offset + len)` overlaps it.
    fn with_primary(&mut self, cx: &mut Cx, layout: &Layout, offset: u64, len: u64) -> OpResult<Layout> {
        let primary = layout.primary(|ost| cx.env.is_up(ost)).ok_or(Errno::EIO)?;
        let marked = if layout.takes_writes() { layout.clone() } else { layout.with_stale_others(primary)? };
        self.with_mirrors_objects(cx, &marked, primary, offset, len)
    }

    /// Returns the layout in which one mirror has objects in that range; unchanged if it has them
    /// already.
    pub(super) fn with_mirrors_objects(
        &mut self,
        cx: &mut Cx,
        layout: &Layout,
        mirror: u16,
        offset: u64,
        len: u64,
    ) -> OpResult<Layout> {
        let one = layout.mirror(mirror).ok_or(Errno::EINVAL)?;
        match self.with_objects(cx, &one, offset, len)? {
            Some(changed) => Ok(layout.with_mirror(&changed)?),
            None => Ok(layout.clone()),
        }
    }

    /// Returns the layout with objects wherever `[offset, offset + len)` overlaps it; `None` if it
    /// has them already.
    fn with_objects(&mut self, cx: &mut Cx, layout: &Layout, offset: u64, len: u64) -> OpResult<Option<Layout>> {
        let grown = layout.grow(offset, len, |component, bytes| cx.env.has_room(component, bytes))?;
        let now = grown.as_ref().unwrap_or(layout);
        let wanting = now.wanting(offset, len);
        if wanting.is_empty() {
            if let Some(new) = &grown {
                report_extended(cx, layout, new);
            }
            return Ok(grown);
        }
        let wanted: Vec<(usize, Wanted)> =
            wanting.into_iter().filter_map(|component| Some((component, now.wanted_of(component)?))).collect();
        let wanted: Vec<(usize, &Wanted)> = wanted.iter().map(|(component, wanted)| (*component, wanted)).collect();
        let objects = self.allot(cx, &wanted)?;
        let mut new = now.clone();
        new.instantiate(objects)?;
        report_extended(cx, layout, &new);
        Ok(Some(new))
    }
}

/// Returns the kind of the record of a write that changes this layout. Either it is the first write
/// after mirrors were in sync, which makes the others stale, or it adds objects.
fn kind_of_write(layout: &Layout) -> Kind {
    if layout.takes_writes() { Kind::Lyout } else { Kind::Flrw }
}

/// Reports the space that components took from their extensions: it will be used, so other files
/// must not count on it. Most of a long range stays a hole (skipped by a seek, truncated, or locked
/// for a group), so it counts as one extension.
fn report_extended(cx: &mut Cx, old: &Layout, new: &Layout) {
    for (i, c) in new.components().iter().enumerate() {
        let before = old.components().iter().find(|o| o.id == c.id && o.is_instantiated());
        let had = old.components().iter().skip_while(|o| o.id != c.id).nth(1);
        let has = new.components().get(i + 1);
        let extension = [had, has].into_iter().flatten().find_map(Component::extension_size);
        let bytes = c.end.saturating_sub(before.map_or(c.start, |o| o.end));
        if let Some(extension) = extension.filter(|_| c.is_instantiated() && bytes > 0) {
            cx.env.extended(c, bytes.min(extension));
        }
    }
}
