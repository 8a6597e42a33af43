//! What can be known of an entry, and what it costs to learn it.

use sheen_layout::{Component, Composite, Layout, Spec, codec::Magic, flags, lmv::LmvUser};
use sheen_wire::{FileKind, Result};

/// What has to be fetched, cheapest first; what is fetched for one test is there for the others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Cost {
    /// Nothing: the directory told.
    Entry,
    /// Attributes, which the client has had since the directory was read.
    Stat,
    /// An extended attribute that the client knows itself.
    Client,
    /// The layout: a request to the MDT.
    Layout,
    /// Any other extended attribute.
    Xattr,
}

/// An entry under test. What is asked for the first time may take a request.
pub trait Facts {
    /// The last part of its path.
    fn name(&self) -> &[u8];
    /// Prints its path, which begins as the user wrote it.
    fn write_path(&self, out: &mut Vec<u8>);
    /// What it is.
    fn kind(&mut self) -> Result<FileKind>;
    /// Attributes.
    fn stat(&mut self) -> Result<&Stat>;
    /// How it is striped.
    fn striping(&mut self) -> Result<&Striping>;
    /// Over which MDTs a directory is spread; none of anything else, and none outside Sheen.
    fn dir_striping(&mut self) -> Result<Option<&LmvUser>>;
    /// Index of its MDT; none outside Sheen.
    fn mdt(&mut self) -> Result<Option<u32>>;
    /// FID as text, without brackets; empty outside Sheen.
    fn fid(&mut self) -> Result<String>;
    /// An extended attribute, if there is one of that name.
    fn xattr(&mut self, name: &str) -> Result<Option<Vec<u8>>>;
}

/// A point in time: seconds since the epoch, nanoseconds.
pub type Moment = (i64, u32);

/// Which of an inode's times.
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
    /// Number.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Blocks of 512 bytes.
    pub blocks: u64,
    /// Names.
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
    /// Created, where that was asked for and is known.
    pub btime: Option<Moment>,
}

impl Stat {
    /// One of the times.
    pub fn time(&self, stamp: Stamp) -> Option<Moment> {
        match stamp {
            Stamp::Access => Some(self.atime),
            Stamp::Birth => self.btime,
            Stamp::Change => Some(self.ctime),
            Stamp::Modify => Some(self.mtime),
        }
    }
}

/// How a file is striped, or what a directory passes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Striping {
    /// No layout.
    None,
    /// Data of another system.
    Foreign,
    /// A file's layout, or a directory's composite default.
    Layout(Layout),
    /// A directory's default.
    Default(Spec),
}

impl Striping {
    /// From the bytes of `lustre.lov`. What cannot be read is no layout to test: another version's,
    /// most likely.
    pub fn decode(bytes: &[u8], is_dir: bool) -> Striping {
        if Magic::of(bytes) == Ok(Magic::Foreign) {
            return Striping::Foreign;
        }
        if is_dir && let Ok(spec) = Spec::decode(bytes) {
            return Striping::Default(spec);
        }
        Layout::decode(bytes).map_or(Striping::None, Striping::Layout)
    }

    /// Its components; none without a layout, one in a plain one.
    pub fn components(&self) -> &[Component] {
        match self {
            Striping::Layout(layout) => layout.components(),
            _ => &[],
        }
    }

    fn is_composite(&self) -> bool {
        matches!(self, Striping::Layout(layout) if layout.composite().is_some())
    }

    /// The component that stands for a composite layout in what asks for one number: the last one
    /// that has its objects.
    pub fn last_in_use(&self) -> Option<&Component> {
        let all = self.components();
        if !self.is_composite() {
            return all.first();
        }
        all.iter().rev().find(|c| c.flags & flags::INIT != 0 && !c.is_extension())
    }

    /// Stripes; 0 without any.
    pub fn stripe_count(&self) -> u64 {
        match self {
            Striping::Default(spec) => spec.count.map_or(0, |count| u64::from(count.to_raw())),
            _ => self.last_in_use().map_or(0, |c| u64::from(c.stripe_count)),
        }
    }

    /// Bytes in one stripe before the next begins; 0 where there is none.
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

    /// Whether a pool of that name is named; of an empty name, whether none is.
    pub fn is_in_pool(&self, name: &str) -> bool {
        let mut pools = self.pools();
        if name.is_empty() { pools.next().is_none() } else { pools.any(|pool| pool == name) }
    }

    /// Names of pools.
    pub fn pools(&self) -> impl Iterator<Item = &str> {
        let default = match self {
            Striping::Default(spec) => spec.pool.as_ref(),
            _ => None,
        };
        let parts = self.components().iter().filter_map(|c| c.pool.as_ref());
        default.into_iter().chain(parts).map(|pool| pool.as_str())
    }

    /// Components of a composite layout; a plain one has none, as Lustre counts.
    pub fn component_count(&self) -> u64 {
        if self.is_composite() { self.components().len() as u64 } else { 0 }
    }

    /// Mirrors of a composite layout.
    pub fn mirror_count(&self) -> u64 {
        match self {
            Striping::Layout(layout) => layout.composite().map_or(0, |c| u64::from(c.mirror_count)),
            _ => 0,
        }
    }

    /// State of a mirrored file, of [`Composite::STATE`].
    pub fn mirror_state(&self) -> Option<u16> {
        match self {
            Striping::Layout(layout) => {
                layout.composite().map(|c| c.flags & Composite::STATE).filter(|state| *state != 0)
            }
            _ => None,
        }
    }

    /// Flags of the components. What is not composite counts as one: that has its objects, unless
    /// it is a directory.
    pub fn flags(&self, is_dir: bool) -> impl Iterator<Item = u32> {
        let plain = (!self.is_composite()).then_some(if is_dir { 0 } else { flags::INIT });
        let parts = if plain.is_none() { self.components() } else { &[] };
        plain.into_iter().chain(parts.iter().map(|c| c.flags))
    }
}
