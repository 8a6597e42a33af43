//! The properties of an entry that can be tested, and the cost of fetching them.

use sheen_layout::{Component, Composite, Layout, Spec, codec::Magic, flags, lmv::LmvUser};
use sheen_wire::{FileKind, Project, Result, control, project};

/// The request that a test needs, cheapest first. Its result serves all other tests as well.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Cost {
    /// None: the directory returned the property.
    Entry,
    /// Attributes, which the client has cached since the directory was read.
    Stat,
    /// An extended attribute that the client answers itself.
    Client,
    /// The layout: a request to the MDT.
    Layout,
    /// Any other extended attribute.
    Xattr,
}

/// An entry under test. The first use of a property may take a request.
pub trait Facts {
    /// The last part of its path.
    fn name(&self) -> &[u8];
    /// Appends its path, which begins as the user wrote it.
    fn write_path(&self, out: &mut Vec<u8>);
    /// File type.
    fn kind(&mut self) -> Result<FileKind>;
    /// Attributes.
    fn stat(&mut self) -> Result<&Stat>;
    /// Striping.
    fn striping(&mut self) -> Result<&Striping>;
    /// Striping of a directory over MDTs. `None` for other files, and outside Sheen.
    fn dir_striping(&mut self) -> Result<Option<&LmvUser>>;
    /// Index of its MDT. `None` outside Sheen.
    fn mdt(&mut self) -> Result<Option<u32>>;
    /// FID as text, without brackets. Empty outside Sheen.
    fn fid(&mut self) -> Result<String>;
    /// An extended attribute, if there is one of that name.
    fn xattr(&mut self, name: &str) -> Result<Option<Vec<u8>>>;

    /// Project id. 0 outside Sheen.
    fn project(&mut self) -> Result<u32> {
        let value = self.xattr(&control::open_name(project::XATTR))?;
        Ok(value.and_then(|value| Project::decode(&value).ok()).unwrap_or_default().id)
    }
}

/// A point in time: seconds since the epoch, nanoseconds.
pub type Moment = (i64, u32);

/// One of an inode's times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stamp {
    /// Last read.
    Access,
    /// Created.
    Birth,
    /// Attributes changed.
    Change,
    /// Data changed.
    Modify,
}

/// Attributes of an inode.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stat {
    /// Type and permissions.
    pub mode: u32,
    /// Inode number.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Blocks of 512 bytes.
    pub blocks: u64,
    /// Number of links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// `STATX_ATTR_*`.
    pub attributes: u64,
    /// Last read.
    pub atime: Moment,
    /// Data changed.
    pub mtime: Moment,
    /// Attributes changed.
    pub ctime: Moment,
    /// Created, if that was requested and is known.
    pub btime: Option<Moment>,
}

impl Stat {
    /// Returns one of the times.
    pub fn time(&self, stamp: Stamp) -> Option<Moment> {
        match stamp {
            Stamp::Access => Some(self.atime),
            Stamp::Birth => self.btime,
            Stamp::Change => Some(self.ctime),
            Stamp::Modify => Some(self.mtime),
        }
    }
}

/// Striping of a file, or the default of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Striping {
    /// No layout.
    None,
    /// A foreign layout.
    Foreign,
    /// A file's layout, or a directory's composite default.
    Layout(Layout),
    /// A directory's default.
    Default(Spec),
}

impl Striping {
    /// Decodes the bytes of `lustre.lov`. Bytes that cannot be decoded, most likely of another
    /// version, count as no layout.
    pub fn decode(bytes: &[u8], is_dir: bool) -> Striping {
        if Magic::of(bytes) == Ok(Magic::Foreign) {
            return Striping::Foreign;
        }
        if is_dir && let Ok(spec) = Spec::decode(bytes) {
            return Striping::Default(spec);
        }
        Layout::decode(bytes).map_or(Striping::None, Striping::Layout)
    }

    /// The components. A plain layout has one; a directory's plain default has none.
    pub fn components(&self) -> &[Component] {
        match self {
            Striping::Layout(layout) => layout.components(),
            _ => &[],
        }
    }

    fn is_composite(&self) -> bool {
        matches!(self, Striping::Layout(layout) if layout.composite().is_some())
    }

    /// The component that stands for a composite layout in tests of one number: the last one with
    /// objects.
    pub fn last_in_use(&self) -> Option<&Component> {
        let all = self.components();
        if !self.is_composite() {
            return all.first();
        }
        all.iter().rev().find(|c| c.flags & flags::INIT != 0 && !c.is_extension())
    }

    /// Number of stripes; 0 without a layout.
    pub fn stripe_count(&self) -> u64 {
        match self {
            Striping::Default(spec) => spec.count.map_or(0, |count| u64::from(count.to_raw())),
            _ => self.last_in_use().map_or(0, |c| u64::from(c.stripe_count)),
        }
    }

    /// Stripe size in bytes; 0 without a layout.
    pub fn stripe_size(&self) -> u64 {
        match self {
            Striping::Default(spec) => u64::from(spec.stripe_size.unwrap_or(0)),
            _ => self.last_in_use().map_or(0, |c| u64::from(c.stripe_size)),
        }
    }

    /// The OSTs with objects, in the order of the stripes.
    pub fn osts(&self) -> impl Iterator<Item = u32> {
        self.components().iter().flat_map(|c| c.objects().iter().map(|s| s.ost))
    }

    /// Whether the layout names the pool `name`. As in Lustre, a component of a composite layout
    /// counts once it has objects. For an empty name: whether it names no pool.
    pub fn is_in_pool(&self, name: &str) -> bool {
        let is_composite = self.is_composite();
        let mut pools = self.pools_of(move |c| !is_composite || c.flags & flags::INIT != 0);
        if name.is_empty() { pools.next().is_none() } else { pools.any(|pool| pool == name) }
    }

    /// The pools that the layout names.
    pub fn pools(&self) -> impl Iterator<Item = &str> {
        self.pools_of(|_| true)
    }

    /// The pools that the components name for which `counts`, and that of a directory's default.
    fn pools_of(&self, counts: impl Fn(&Component) -> bool) -> impl Iterator<Item = &str> {
        let default = match self {
            Striping::Default(spec) => spec.pool.as_ref(),
            _ => None,
        };
        let parts = self.components().iter().filter(move |&c| counts(c)).filter_map(|c| c.pool.as_ref());
        default.into_iter().chain(parts).map(|pool| pool.as_str())
    }

    /// Number of components of a composite layout. As in Lustre, a plain layout has 0.
    pub fn component_count(&self) -> u64 {
        if self.is_composite() { self.components().len() as u64 } else { 0 }
    }

    /// Number of mirrors of a composite layout.
    pub fn mirror_count(&self) -> u64 {
        match self {
            Striping::Layout(layout) => layout.composite().map_or(0, |c| u64::from(c.mirror_count)),
            _ => 0,
        }
    }

    /// State of the mirrors of a composite file: one of [`Composite::STATE`], or 0 for a file
    /// without mirrors. As in Lustre, a plain file has no state, so no test of it matches.
    pub fn mirror_state(&self) -> Option<u16> {
        match self {
            Striping::Layout(layout) => layout.composite().map(|c| c.flags & Composite::STATE),
            _ => None,
        }
    }

    /// Flags of the components. A layout that is not composite counts as one component, which has
    /// objects unless it is a directory's.
    pub fn flags(&self, is_dir: bool) -> impl Iterator<Item = u32> {
        let plain = (!self.is_composite()).then_some(if is_dir { 0 } else { flags::INIT });
        let parts = if plain.is_none() { self.components() } else { &[] };
        plain.into_iter().chain(parts.iter().map(|c| c.flags))
    }
}
