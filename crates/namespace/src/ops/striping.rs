//! Layouts of files, from a user's request or the defaults of directory and root, and the objects
//! of their components.

use bytes::Bytes;
use sheen_layout::{Asked, Layout, LayoutError, Stripe, Wanted, WantedLayout};
use sheen_wire::{self as wire, Errno, Fid, fid};

use crate::{LayoutRequest, Namespace, Store, error::OpResult, interface::Cx, record::Inode};

impl<S: Store> Namespace<S> {
    /// Allocates a layout for `file` in directory `parent` (`None`: the file has no name). In a
    /// composite layout, the components at the beginning of the file get objects. Changes nothing
    /// but id counters, so it comes before all changes.
    pub(crate) fn new_layout(&mut self, cx: &mut Cx, file: Fid, parent: Option<Fid>, own: Asked) -> OpResult<Layout> {
        if let Some(replayed) = self.replayed_layout() {
            return Ok(replayed?);
        }
        let wanted = self.wanted(cx, parent, own)?;
        let objects = self.allot(cx, &wanted.first())?;
        Ok(wanted.layout(file, objects)?)
    }

    /// Returns the parameters in `own`, with the open ones filled in.
    pub(crate) fn wanted(&mut self, cx: &mut Cx, parent: Option<Fid>, own: Asked) -> wire::Result<WantedLayout> {
        let dir = match parent {
            Some(parent) if parent != fid::ROOT => self.default_layout(parent)?,
            _ => None,
        };
        let request = LayoutRequest { own, dir, root: self.default_layout(fid::ROOT)? };
        cx.env.resolve(&request)
    }

    /// Allocates objects for components: for all of them or, with an error, for none.
    pub(crate) fn allot(&mut self, cx: &mut Cx, wanted: &[(usize, &Wanted)]) -> OpResult<Vec<(usize, Vec<Stripe>)>> {
        let place = |(component, wanted): &(usize, &Wanted)| Ok((*component, cx.env.place(wanted)?));
        let placed: Vec<(usize, Vec<u32>)> = wanted.iter().map(place).collect::<wire::Result<_>>()?;
        let osts: Vec<u32> = placed.iter().flat_map(|(_, osts)| osts).copied().collect();
        let mut objects = self.objects.take(&osts)?.into_iter();
        let mut stripes = |osts: Vec<u32>| -> Vec<Stripe> {
            osts.into_iter().zip(&mut objects).map(|(ost, object)| Stripe { object, ost }).collect()
        };
        Ok(placed.into_iter().map(|(component, osts)| (component, stripes(osts))).collect())
    }

    /// Returns a directory's default layout. A default that cannot be decoded any more counts as
    /// none.
    fn default_layout(&mut self, dir: Fid) -> wire::Result<Option<Asked>> {
        let inode = self.tables.inode(dir)?;
        Ok(inode.and_then(|i| if i.is_dir() { Asked::decode(i.layout.as_ref()?).ok() } else { None }))
    }

    /// Returns the layout of a regular file, allocated now if it has none yet. The caller stores it
    /// once nothing can fail any more.
    pub(crate) fn layout_of(&mut self, cx: &mut Cx, file: Fid, inode: &Inode) -> OpResult<Bytes> {
        match &inode.layout {
            Some(layout) => Ok(layout.clone()),
            None => Ok(self.next_layout(cx, file, inode, Asked::default())?.encode().into()),
        }
    }

    /// Allocates a layout for a file that has none, and may have had one before.
    pub(crate) fn next_layout(&mut self, cx: &mut Cx, file: Fid, inode: &Inode, own: Asked) -> OpResult<Layout> {
        let parent = inode.links.first().map(|l| l.parent);
        Ok(with_unused_generation(inode, file, self.new_layout(cx, file, parent, own)?)?)
    }
}

/// Removes a file's layout. Clients tell by the generation which layout is newer, so a generation
/// is never used twice.
pub(crate) fn leave_layout(inode: &mut Inode, left: &Layout) {
    inode.layout = None;
    inode.entries = u64::from(left.generation()) + 1;
}

/// Returns the layout for a file that has none, in a generation above those used before. ERANGE if
/// there is no such generation.
pub(crate) fn with_unused_generation(inode: &Inode, file: Fid, layout: Layout) -> wire::Result<Layout> {
    let used = u32::try_from(inode.entries).map_err(|_| Errno::ERANGE)?;
    match used {
        0 => Ok(layout),
        _ => layout.adopted(file, used.max(layout.generation())).map_err(|_| Errno::ERANGE),
    }
}

/// Returns EOPNOTSUPP for layouts that this version does not serve: several mirrors that begin on
/// the MDT, where their objects would have the same name.
pub(crate) fn check_served(asked: &Asked) -> wire::Result<()> {
    let on_mdt = asked.composite().map_or(0, sheen_layout::Template::on_mdt);
    if on_mdt > 1 { Err(LayoutError::SecondOnMdt.into()) } else { Ok(()) }
}

/// Checks whether a file of this layout can have this size: ENODATA past the end of the layout,
/// EFBIG past its maximum file size.
pub(crate) fn check_size(layout: &[u8], size: u64) -> wire::Result<()> {
    let layout = Layout::decode(layout)?;
    if size > layout.end() {
        return Err(Errno::ENODATA);
    }
    if size > layout.max_file_size() { Err(Errno::EFBIG) } else { Ok(()) }
}
