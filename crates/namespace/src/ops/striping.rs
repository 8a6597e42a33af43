//! Layouts of files: from the default of directory and root, or from what a user asks; and the
//! objects of their components.

use bytes::Bytes;
use sheen_layout::{Asked, Layout, LayoutError, Stripe, Wanted, WantedLayout};
use sheen_wire::{self as wire, Errno, Fid, fid};

use crate::{Ask, Namespace, Store, engine::Cx, record::Inode};

impl<S: Store> Namespace<S> {
    /// Allots a layout for `file` in directory `parent` (`None`: it has no name any more). Of a
    /// composite one, the components that begin the file get objects. Changes nothing but counters
    /// of ids, so it comes before all changes.
    pub(crate) fn new_layout(
        &mut self,
        cx: &mut Cx,
        file: Fid,
        parent: Option<Fid>,
        own: Asked,
    ) -> wire::Result<Layout> {
        let wanted = self.wanted(cx, parent, own)?;
        let objects = self.allot(cx, &wanted.first())?;
        Ok(wanted.layout(file, objects)?)
    }

    /// What `own` asks for, with what it leaves open filled in.
    pub(crate) fn wanted(&mut self, cx: &mut Cx, parent: Option<Fid>, own: Asked) -> wire::Result<WantedLayout> {
        let dir = match parent {
            Some(parent) if parent != fid::ROOT => self.default_layout(parent)?,
            _ => None,
        };
        let ask = Ask { own, dir, root: self.default_layout(fid::ROOT)? };
        cx.env.resolve(&ask)
    }

    /// Objects for components: all of them or, with an error, none.
    pub(crate) fn allot(
        &mut self,
        cx: &mut Cx,
        wanted: &[(usize, &Wanted)],
    ) -> wire::Result<Vec<(usize, Vec<Stripe>)>> {
        let place = |(component, wanted): &(usize, &Wanted)| Ok((*component, cx.env.place(wanted)?));
        let placed: Vec<(usize, Vec<u32>)> = wanted.iter().map(place).collect::<wire::Result<_>>()?;
        let osts: Vec<u32> = placed.iter().flat_map(|(_, osts)| osts).copied().collect();
        let mut objects = self.objects.take(&osts)?.into_iter();
        let mut stripes = |osts: Vec<u32>| -> Vec<Stripe> {
            osts.into_iter().zip(&mut objects).map(|(ost, object)| Stripe { object, ost }).collect()
        };
        Ok(placed.into_iter().map(|(component, osts)| (component, stripes(osts))).collect())
    }

    /// A directory's default. One that cannot be read any more counts as none.
    fn default_layout(&mut self, dir: Fid) -> wire::Result<Option<Asked>> {
        let inode = self.tables.inode(dir)?;
        Ok(inode.and_then(|i| if i.is_dir() { Asked::decode(i.layout.as_ref()?).ok() } else { None }))
    }

    /// The layout of a regular file, allotted now if it has none yet. The caller sets it, once
    /// nothing can fail any more.
    pub(crate) fn layout_of(&mut self, cx: &mut Cx, file: Fid, inode: &Inode) -> wire::Result<Bytes> {
        match &inode.layout {
            Some(layout) => Ok(layout.clone()),
            None => Ok(self.next_layout(cx, file, inode, Asked::default())?.encode().into()),
        }
    }

    /// A layout for a file that has none, and may have had some.
    pub(crate) fn next_layout(&mut self, cx: &mut Cx, file: Fid, inode: &Inode, own: Asked) -> wire::Result<Layout> {
        let parent = inode.links.first().map(|l| l.parent);
        following(inode, file, self.new_layout(cx, file, parent, own)?)
    }
}

/// Has a file's layout go. Of generations clients know which layout is the newer one: none is used
/// twice.
pub(crate) fn leave_layout(inode: &mut Inode, left: &Layout) {
    inode.layout = None;
    inode.entries = u64::from(left.generation()) + 1;
}

/// The layout for a file that has none, of a generation above those that it had: ERANGE if there is
/// none.
pub(crate) fn following(inode: &Inode, file: Fid, layout: Layout) -> wire::Result<Layout> {
    let used = u32::try_from(inode.entries).map_err(|_| Errno::ERANGE)?;
    match used {
        0 => Ok(layout),
        _ => layout.adopted(file, used.max(layout.generation())).map_err(|_| Errno::ERANGE),
    }
}

/// EOPNOTSUPP for what this version does not serve: several mirrors that begin on the MDT, where
/// they would have one name.
pub(crate) fn check_served(asked: &Asked) -> wire::Result<()> {
    let on_mdt = asked.composite().map_or(0, sheen_layout::Template::on_mdt);
    if on_mdt > 1 { Err(LayoutError::SecondOnMdt.into()) } else { Ok(()) }
}

/// Where a file of this layout cannot be so large: ENODATA if that is because the layout ends
/// before, else EFBIG.
pub(crate) fn check_size(layout: &[u8], size: u64) -> wire::Result<()> {
    let layout = Layout::decode(layout)?;
    if size > layout.end() {
        return Err(Errno::ENODATA);
    }
    if size > layout.max_file_size() { Err(Errno::EFBIG) } else { Ok(()) }
}
