//! Layouts of files: from the default of directory and root, or from what a user asks.

use bytes::Bytes;
use sheen_layout::{Layout, Spec, Stripe};
use sheen_wire::{self as wire, Errno, Fid, fid};

use crate::{Ask, Namespace, Store, engine::Cx, record::Inode};

impl<S: Store> Namespace<S> {
    /// Allots a layout for `file` in directory `parent` (`None`: it has no name any more). Changes nothing but counters of
    /// ids, so it comes before all changes.
    pub(crate) fn new_layout(&mut self, cx: &mut Cx, file: Fid, parent: Option<Fid>, own: Spec) -> wire::Result<Bytes> {
        let dir = match parent {
            Some(parent) if parent != fid::ROOT => self.default_layout(parent)?,
            _ => None,
        };
        let ask = Ask { own, dir, root: self.default_layout(fid::ROOT)? };
        let placed = cx.env.allocate(&ask)?;
        let objects = self.objects.take(&placed.osts)?;
        let stripes = objects.into_iter().zip(&placed.osts).map(|(object, ost)| Stripe { object, ost: *ost }).collect();
        Ok(Layout::new(file, placed.stripe_size, placed.pool, stripes)?.encode().into())
    }

    /// A directory's default. One that cannot be read any more counts as none.
    fn default_layout(&mut self, dir: Fid) -> wire::Result<Option<Spec>> {
        let inode = self.tables.inode(dir)?;
        Ok(inode.and_then(|i| if i.is_dir() { Spec::decode(i.layout.as_ref()?).ok() } else { None }))
    }

    /// The layout of a regular file, allotted now if it has none yet. The caller sets it, once nothing can fail any more.
    pub(crate) fn layout_of(&mut self, cx: &mut Cx, file: Fid, inode: &Inode) -> wire::Result<Bytes> {
        match &inode.layout {
            Some(layout) => Ok(layout.clone()),
            None => self.new_layout(cx, file, inode.links.first().map(|l| l.parent), Spec::default()),
        }
    }
}

/// EFBIG where a file of this layout cannot be so large.
pub(crate) fn check_size(layout: &[u8], size: u64) -> wire::Result<()> {
    let layout = Layout::decode(layout)?;
    if size > layout.max_file_size() { Err(Errno::EFBIG) } else { Ok(()) }
}
