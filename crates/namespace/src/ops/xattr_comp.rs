//! Changes to the components of a file: setting `lustre.lov.add`, `lustre.lov.del`,
//! `lustre.lov.set.flags` (`lfs setstripe --component-add`, `--component-del`, `--component-set`).
//! [`sheen_layout::edit`] defines which changes are allowed.
//!
//! * Only the owner may do it (EPERM), on regular files (EOPNOTSUPP). EINVAL for a file without a
//!   composite layout.
//! * Added components have parameters like those of a new layout, and get their objects when they
//!   are first written.
//! * The objects of deleted components are destroyed like those of an unlinked file. A file whose
//!   last component is deleted has no layout any more, and gets one when it is next opened for
//!   writing. If the file begins on the MDT, deleting the last component is EOPNOTSUPP: its next
//!   object there would have the same name as the one that is being destroyed.
//! * The values cannot be read (ENODATA) nor removed (EOPNOTSUPP). Sets ctime.

use sheen_layout::{Asked, Layout, LayoutError, Mark, STRIPE_SIZE_UNIT, STRIPES_MAX, Template, WantedLayout};
use sheen_wire::{self as wire, Errno, Fid, FileKind};

use super::striping::leave_layout;
use crate::{Namespace, Store, interface::Cx, record::Inode};

/// Kind of change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edit {
    Add,
    Delete,
    SetFlags,
}

impl<S: Store> Namespace<S> {
    pub(crate) fn edit_components(
        &mut self,
        cx: &mut Cx,
        fid: Fid,
        inode: &Inode,
        edit: Edit,
        value: Option<&[u8]>,
    ) -> wire::Result<()> {
        let (FileKind::Regular, Some(value)) = (inode.kind, value) else { return Err(Errno::EOPNOTSUPP) };
        let old = Layout::decode(inode.layout.as_ref().ok_or(LayoutError::NotComposite)?)?;
        let layout = match edit {
            Edit::Add => Some(self.with_added(cx, inode, &old, value)?),
            Edit::SetFlags => Some(old.with_flags(&Mark::decode(value)?)?),
            Edit::Delete => {
                // A client without notice of the change would write to destroyed objects.
                self.check_openers_have_layout_lock(cx, fid, &old)?;
                let marks = Mark::decode(value)?;
                let (remaining, objects) = old.without_components(marks.first().ok_or(LayoutError::NoComponent)?)?;
                if remaining.is_none() && old.mdt_end() > 0 {
                    return Err(Errno::EOPNOTSUPP);
                }
                for some in objects.chunks(STRIPES_MAX) {
                    self.log_destroy(&Layout::new(fid, STRIPE_SIZE_UNIT, None, some.to_vec())?.encode().into())?;
                }
                remaining
            }
        };
        self.edit(fid, |i| {
            match layout {
                Some(layout) => i.layout = Some(layout.encode().into()),
                None => leave_layout(i, &old),
            }
            i.ctime = cx.now;
        })
    }

    fn with_added(&mut self, cx: &mut Cx, inode: &Inode, layout: &Layout, value: &[u8]) -> wire::Result<Layout> {
        if let Some(replayed) = self.replayed_layout() {
            return replayed;
        }
        let added = Asked::Composite(Template::decode_added(value, layout.end())?);
        cx.env.check(&added)?;
        match self.wanted(cx, inode.links.first().map(|l| l.parent), added)? {
            WantedLayout::Composite(components) => Ok(layout.with_components(&components)?),
            WantedLayout::Plain(_) => Err(Errno::EINVAL),
        }
    }
}
