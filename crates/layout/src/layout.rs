//! The layout of a file: the objects that hold its bytes.
//!
//! A plain layout is one [`Component`] that covers the whole file. A composite layout has a header
//! ([`Composite`]) and several components. Each covers a range, and gets its objects at the first
//! write into it.
//!
//! Mirrors follow each other in one list of components. Each mirror is also available as a layout
//! of its own ([`Layout::mirrors`]). The layout of the whole file maps bytes through one mirror:
//! the fresh one that readers prefer, or else the first fresh one. While the file is being written,
//! only one mirror is fresh.
//!
//! Invariant: a layout has at least one component.

use std::{borrow::Cow, collections::BTreeSet, fmt, sync::Arc};

use sheen_wire::Fid;

use crate::{LayoutError, MDT_OST, POOL_NAME_MAX, SEL_UNIT, STRIPE_SIZE_UNIT, STRIPES_MAX, flags, map::Index, mirror};

/// How a component stores its bytes: Lustre's `lmm_pattern` bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pattern(pub u32);

impl Pattern {
    /// Round robin over the stripes.
    pub const RAID0: Pattern = Pattern(1);
    /// Data on the MDT, in the file's inode.
    pub const MDT: Pattern = Pattern(0x100);
    /// An OST may hold more than one stripe.
    pub const OVERSTRIPING: Pattern = Pattern(0x200);
    /// Data of another storage system.
    pub const FOREIGN: Pattern = Pattern(0x400);
    /// Round robin with several stripes per OST.
    pub const RAID0_OVERSTRIPED: Pattern = Pattern(Pattern::RAID0.0 | Pattern::OVERSTRIPING.0);

    /// Whether all bits of `other` are set.
    pub fn has(self, other: Pattern) -> bool {
        self.0 & other.0 == other.0
    }
}

impl fmt::Display for Pattern {
    /// Formats as lfs does: `raid0`, `raid0,overstriped`, `mdt`; nothing for no pattern, hex for
    /// unknown patterns.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Pattern(0) => "",
            Pattern::RAID0 => "raid0",
            Pattern::RAID0_OVERSTRIPED => "raid0,overstriped",
            Pattern::MDT => "mdt",
            Pattern::FOREIGN => "foreign",
            Pattern(bits) => return write!(f, "{bits:#x}"),
        })
    }
}

/// Name of an OST pool: 1 to 15 characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Pool(String);

impl Pool {
    /// Creates a name after checking its length and characters.
    pub fn new(name: &str) -> Result<Pool, LayoutError> {
        let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > POOL_NAME_MAX || !name.chars().all(fine) {
            return Err(LayoutError::PoolName(name.to_owned()));
        }
        Ok(Pool(name.to_owned()))
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One stripe: an object on an OST.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stripe {
    /// The object.
    pub object: Fid,
    /// Index of the OST that holds it.
    pub ost: u32,
}

/// A range of a file and the objects that hold it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Component {
    /// Lustre's `lcme_id`; 0 in a plain layout.
    pub id: u32,
    /// Flags of [`flags`]; 0 in a plain layout.
    pub flags: u32,
    /// First byte; 0 in a plain layout.
    pub start: u64,
    /// Byte after the last; `u64::MAX` for no end.
    pub end: u64,
    /// `lcme_layout_gen`. In a Data-on-MDT component that was added to an existing layout: the
    /// layout's generation at that time. It determines the version of the object's FID.
    pub entry_gen: u32,
    /// Offset of the component's data in the encoded layout (`lcme_offset`). Encoding recalculates
    /// it.
    pub offset: u32,
    /// Other bytes of the entry (timestamp and reserved), preserved unchanged.
    pub entry_rest: [u8; 12],
    /// How the objects store the bytes.
    pub pattern: Pattern,
    /// FID of the file (`lmm_oi`).
    pub fid: Fid,
    /// Stripe size in bytes. In an extension: the extension size, in KiB.
    pub stripe_size: u32,
    /// Stripe count as stored. With objects it is their number. Before that it may also be 0
    /// (default) or a negative value.
    pub stripe_count: u16,
    /// `lmm_layout_gen`. Before there are objects: `lmm_stripe_offset` (0xffff: any).
    pub layout_gen: u16,
    /// Pool from which the OSTs were chosen. A layout with a pool has Lustre's v3 form, otherwise
    /// v1.
    pub pool: Option<Pool>,
    /// The objects. Before instantiation: empty, or the requested OSTs, with
    /// object FIDs of zero.
    pub stripes: Vec<Stripe>,
}

/// Header of a composite layout: fields of `lov_comp_md_v1`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Composite {
    /// `lcm_layout_gen`.
    pub layout_gen: u32,
    /// `lcm_flags`: the state of the mirrors.
    pub flags: u16,
    /// Number of mirrors, at least 1.
    pub mirror_count: u16,
    /// Reserved bytes, preserved unchanged.
    pub rest: [u8; 14],
}

impl Composite {
    /// `lcm_flags` of a mirrored file whose fresh mirrors have the same content.
    pub const READ_ONLY: u16 = 1;
    /// `lcm_flags` of a mirrored file that is being written.
    pub const WRITE_PENDING: u16 = 2;
    /// `lcm_flags` of a mirrored file that is being resynced.
    pub const SYNC_PENDING: u16 = 3;
    /// Mask of the state in `lcm_flags`.
    pub const STATE: u16 = 3;
}

/// The layout of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Header; `None` in a plain layout.
    composite: Option<Composite>,
    /// Components; exactly one in a plain layout.
    components: Vec<Component>,
    /// Each mirror as a layout of its own; empty unless there are several. Derived from the
    /// components.
    mirrors: Vec<Arc<Layout>>,
    /// Id of the mirror through which bytes are mapped.
    mapped: Option<u16>,
    /// Index for mapping. Derived from the components.
    index: Index,
}

impl Layout {
    /// Creates a plain layout of 1 to 2000 stripes. Sets the overstriping flag if an OST occurs
    /// more than once, as Lustre does.
    pub fn new(fid: Fid, stripe_size: u32, pool: Option<Pool>, stripes: Vec<Stripe>) -> Result<Layout, LayoutError> {
        check_stripe_size(u64::from(stripe_size))?;
        if stripes.is_empty() || stripes.len() > STRIPES_MAX {
            return Err(LayoutError::StripeCount(stripes.len() as i64));
        }
        let component = Component {
            pattern: pattern_of(&stripes),
            fid,
            stripe_size,
            stripe_count: stripes.len() as u16,
            layout_gen: 0,
            pool,
            stripes,
            ..Component::whole_file()
        };
        Ok(Layout::assemble(None, vec![component]))
    }

    /// Assembles a layout of at least one component; without `composite`, exactly one.
    pub(crate) fn assemble(composite: Option<Composite>, components: Vec<Component>) -> Layout {
        let mirrors = mirror::views(composite.as_ref(), &components);
        let mapped = mirror::mapped(composite.as_ref(), &mirrors);
        let index = Index::of(composite.as_ref(), &components, mapped);
        Layout { composite, components, mirrors, mapped, index }
    }

    /// See [`Layout::mirrors`].
    pub(crate) fn views(&self) -> &[Arc<Layout>] {
        &self.mirrors
    }

    /// Returns the components through which bytes are mapped.
    fn mapped_components(&self) -> impl Iterator<Item = &Component> {
        self.components.iter().filter(|c| self.mapped.is_none_or(|id| c.mirror_id() == id))
    }

    /// Returns the index for mapping.
    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    /// Returns the only component of a plain layout, or the first of a composite one.
    fn first(&self) -> &Component {
        // Every constructor adds at least one component.
        &self.components[0]
    }

    /// Checks that [`Layout::map`] can be used to read and write a file of this layout. Every
    /// mirror must be RAID0, except for a Data-on-MDT component at its beginning
    /// ([`Layout::mdt_end`]). Components without objects are allowed, see [`Layout::missing`].
    ///
    /// # Errors
    /// [`LayoutError::Unsupported`] (EOPNOTSUPP) for foreign and released layouts. EINVAL if
    /// malformed.
    pub fn check_usable(&self) -> Result<(), LayoutError> {
        mirror::check(self.composite.as_ref(), &self.mirrors)?;
        check_components(self.composite.is_some(), self.mapped_components())
    }

    /// Returns the header of a composite layout.
    pub fn composite(&self) -> Option<&Composite> {
        self.composite.as_ref()
    }

    /// Returns all components: at least one, and exactly one in a plain layout.
    pub fn components(&self) -> &[Component] {
        &self.components
    }

    /// Whether the layout is plain, that is, not composite.
    pub fn is_plain(&self) -> bool {
        self.composite.is_none()
    }

    /// Returns the generation, which rises with every change of objects or components:
    /// `lcm_layout_gen`, or a plain layout's [`Layout::layout_gen`].
    pub fn generation(&self) -> u32 {
        self.composite.as_ref().map_or(u32::from(self.layout_gen()), |c| c.layout_gen)
    }

    /// Returns the end of the layout; `u64::MAX` if it has none. A write at or past the end returns
    /// ENODATA. For a mirrored layout this is the smallest end of its mirrors.
    pub fn end(&self) -> u64 {
        match &self.mirrors[..] {
            [] => self.components.last().map_or(0, |c| c.end),
            mirrors => mirrors.iter().map(|m| m.end()).min().unwrap_or(0),
        }
    }

    /// Returns the ids of the mirrors in order. The list is `[0]` if the file was never mirrored.
    pub fn mirror_ids(&self) -> Vec<u16> {
        mirror::mirror_ids(&self.components)
    }

    /// Returns one mirror as a layout of its own, through which bytes can be mapped. `None` if
    /// there is no mirror with this id.
    pub fn mirror(&self, id: u16) -> Option<Layout> {
        let composite = Composite { mirror_count: 1, flags: 0, ..self.composite.clone()? };
        let components: Vec<_> = self.components.iter().filter(|c| c.mirror_id() == id).cloned().collect();
        (!components.is_empty()).then(|| Layout::assemble(Some(composite), components))
    }

    /// Returns the stripe size of the first component, in bytes.
    pub fn stripe_size(&self) -> u32 {
        self.first().stripe_size
    }

    /// Returns the number of [`Layout::stripes`].
    pub fn stripe_count(&self) -> usize {
        self.stripes().len()
    }

    /// Returns the pattern of the first component.
    pub fn pattern(&self) -> Pattern {
        self.first().pattern
    }

    /// Returns `lmm_layout_gen` of the first component; see [`Layout::generation`].
    pub fn layout_gen(&self) -> u16 {
        self.first().layout_gen
    }

    /// Returns the pool from which the first component's OSTs were chosen.
    pub fn pool(&self) -> Option<&Pool> {
        self.first().pool.as_ref()
    }

    /// Returns the file's FID stored in the layout (`lmm_oi`).
    pub fn fid(&self) -> Fid {
        self.first().fid
    }

    /// Returns the objects through which bytes are mapped, by component, then in stripe order. The
    /// mapping functions use positions in this list as stripe numbers. In a plain layout these are
    /// the file's stripes. A Data-on-MDT component counts as one stripe on [`MDT_OST`]. For the
    /// objects of all mirrors see [`Layout::all_objects`].
    pub fn stripes(&self) -> &[Stripe] {
        match &self.composite {
            Some(_) => self.index.stripes(),
            None => &self.first().stripes,
        }
    }

    /// Returns the component that contains this position of [`Layout::stripes`].
    pub fn component_of(&self, stripe: usize) -> Option<usize> {
        let mut first = 0;
        self.components.iter().position(|c| {
            first += if self.mapped.is_none_or(|id| c.mirror_id() == id) { c.stripe_list().len() } else { 0 };
            stripe < first
        })
    }
}

impl Component {
    /// Creates an empty component that covers the whole file.
    pub(crate) fn whole_file() -> Component {
        Component {
            id: 0,
            flags: 0,
            start: 0,
            end: u64::MAX,
            entry_gen: 0,
            offset: 0,
            entry_rest: [0; 12],
            pattern: Pattern::RAID0,
            fid: Fid::ZERO,
            stripe_size: 0,
            stripe_count: 0,
            layout_gen: 0,
            pool: None,
            stripes: Vec::new(),
        }
    }

    /// Whether the component has its objects, or stores its bytes on the MDT.
    pub fn is_instantiated(&self) -> bool {
        // Only components of a composite file layout have ids. The others, in a directory's default
        // or a plain layout, do not use the INIT flag: they are instantiated if they have objects.
        if self.id == 0 {
            self.flags & flags::EXTENSION == 0 && !self.stripes.is_empty()
        } else {
            self.flags & flags::INIT != 0
        }
    }

    /// Returns the existing objects on OSTs; none before instantiation.
    pub fn objects(&self) -> &[Stripe] {
        if self.is_instantiated() { &self.stripes } else { &[] }
    }

    /// Returns the stripes to which the bytes are mapped: the component's objects, or the file's
    /// object in the MDT's data service.
    pub(crate) fn stripe_list(&self) -> Cow<'_, [Stripe]> {
        match self.is_on_mdt() {
            true => Cow::Owned(vec![Stripe { object: self.object_on_mdt(), ost: MDT_OST }]),
            false => Cow::Borrowed(self.objects()),
        }
    }

    /// Returns the FID of the component's object on the MDT: the file's FID with a version. The
    /// version differs each time the file gets such a component.
    pub(crate) fn object_on_mdt(&self) -> Fid {
        Fid { ver: self.entry_gen.saturating_add(1), ..self.fid }
    }

    /// Whether the bytes are stored on the MDT.
    pub fn is_on_mdt(&self) -> bool {
        self.pattern.has(Pattern::MDT)
    }

    /// Whether the component is the space into which the one before it grows.
    pub fn is_extension(&self) -> bool {
        self.flags & flags::EXTENSION != 0
    }

    /// Returns the extension size in bytes, if the component is an extension.
    pub fn extension_size(&self) -> Option<u64> {
        self.is_extension().then(|| u64::from(self.stripe_size) * SEL_UNIT)
    }

    /// Returns the id of the component's mirror; 0 in a file that was never mirrored.
    pub fn mirror_id(&self) -> u16 {
        (self.id >> MIRROR_SHIFT) as u16
    }

    /// Whether the component does not overlap `[start, end)`.
    pub fn is_outside(&self, start: u64, end: u64) -> bool {
        self.start.max(start) >= self.end.min(end)
    }
}

/// Number of bits of a component's id below the mirror id.
pub(crate) const MIRROR_SHIFT: u32 = 16;

/// Returns RAID0, overstriped if an OST occurs more than once.
pub(crate) fn pattern_of(stripes: &[Stripe]) -> Pattern {
    let osts: BTreeSet<u32> = stripes.iter().map(|s| s.ost).collect();
    if osts.len() < stripes.len() { Pattern::RAID0_OVERSTRIPED } else { Pattern::RAID0 }
}

/// [`Layout::check_usable`] for the components of one mirror.
pub(crate) fn check_components<'a>(
    composite: bool,
    components: impl Iterator<Item = &'a Component>,
) -> Result<(), LayoutError> {
    let mut expected = 0;
    for (i, c) in components.enumerate() {
        if c.start != expected {
            return Err(LayoutError::Gap { start: c.start, expected });
        }
        if c.start > c.end {
            return Err(LayoutError::Extent { start: c.start, end: c.end });
        }
        expected = c.end;
        match c.pattern {
            Pattern::MDT if i == 0 && composite => check_no_objects(c)?,
            Pattern::RAID0 | Pattern::RAID0_OVERSTRIPED if c.is_extension() => check_no_objects(c)?,
            Pattern::RAID0 | Pattern::RAID0_OVERSTRIPED => {
                let needs_objects = !composite || c.is_instantiated();
                if needs_objects && c.stripes.is_empty() {
                    return Err(LayoutError::Malformed("a component has no objects"));
                }
                check_stripe_size(u64::from(c.stripe_size))?;
            }
            _ => return Err(LayoutError::Unsupported("non-raid0")),
        }
    }
    Ok(())
}

fn check_no_objects(c: &Component) -> Result<(), LayoutError> {
    if c.objects().is_empty() { Ok(()) } else { Err(LayoutError::Malformed("a component has unexpected objects")) }
}

/// Checks that a stripe size is a positive multiple of 64 KiB below 4 GiB.
pub(crate) fn check_stripe_size(bytes: u64) -> Result<(), LayoutError> {
    if bytes == 0 || bytes > u64::from(u32::MAX) || !bytes.is_multiple_of(u64::from(STRIPE_SIZE_UNIT)) {
        return Err(LayoutError::StripeSize(bytes));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripes(osts: &[u32]) -> Vec<Stripe> {
        osts.iter().enumerate().map(|(i, ost)| Stripe { object: Fid::new(7, i as u32 + 1), ost: *ost }).collect()
    }

    #[test]
    fn new_layout_is_overstriped_only_if_an_ost_repeats() {
        let pattern =
            |osts: &[u32]| Layout::new(Fid::new(1, 1), 65536, None, stripes(osts)).unwrap().pattern().to_string();
        assert_eq!(pattern(&[3, 0, 1]), "raid0");
        assert_eq!(pattern(&[0, 1, 0]), "raid0,overstriped");
    }

    #[test]
    fn limits_are_lustres() {
        let with = |n: usize, size| Layout::new(Fid::new(1, 1), size, None, stripes(&vec![0; n]));
        assert!(with(2000, 65536).is_ok());
        assert_eq!(with(2001, 65536), Err(LayoutError::StripeCount(2001)));
        assert_eq!(with(0, 65536), Err(LayoutError::StripeCount(0)));
        assert_eq!(with(1, 65537), Err(LayoutError::StripeSize(65537)));
        assert_eq!(with(1, 0), Err(LayoutError::StripeSize(0)));
        assert!(with(1, crate::STRIPE_SIZE_MAX).is_ok());
        assert!(Pool::new("fifteen-chars__").is_ok() && Pool::new("sixteen-chars___").is_err());
        assert!(Pool::new("bad pool").is_err() && Pool::new("").is_err());
    }
}
