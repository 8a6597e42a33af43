//! A file's layout: which objects hold its bytes.
//!
//! A plain layout is one [`Component`] that covers the whole file. A composite one is several
//! behind a header ([`Composite`]): each covers a range, and gets its objects when it is first
//! written into. Mirrors follow each other in one list; bytes are mapped through one of them: each
//! is a layout of its own ([`Layout::mirrors`]), and the layout of the whole file maps through the
//! fresh one that readers prefer, or the first fresh one: the only one that there is where the file
//! is being written.
//!
//! Invariant: a layout has at least one component.

use std::{borrow::Cow, collections::BTreeSet, fmt, sync::Arc};

use sheen_wire::Fid;

use crate::{LayoutError, MDT_OST, POOL_NAME_MAX, SEL_UNIT, STRIPE_SIZE_UNIT, STRIPES_MAX, flags, map::Index, mirror};

/// How a component's stripes hold its bytes, as Lustre's `lmm_pattern` bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pattern(pub u32);

impl Pattern {
    /// Round robin over the stripes.
    pub const RAID0: Pattern = Pattern(1);
    /// Data in the inode.
    pub const MDT: Pattern = Pattern(0x100);
    /// More than one stripe on an OST.
    pub const OVERSTRIPING: Pattern = Pattern(0x200);
    /// Data of another system.
    pub const FOREIGN: Pattern = Pattern(0x400);
    /// Round robin, several stripes an OST.
    pub const RAID0_OVERSTRIPED: Pattern = Pattern(Pattern::RAID0.0 | Pattern::OVERSTRIPING.0);

    /// Whether all bits of `other` are set.
    pub fn has(self, other: Pattern) -> bool {
        self.0 & other.0 == other.0
    }
}

impl fmt::Display for Pattern {
    /// As lfs prints it: `raid0`, `raid0,overstriped`, `mdt`; nothing for no pattern; hex for what
    /// has no name.
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

/// Name of a pool of OSTs: 1 to 15 characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Pool(String);

impl Pool {
    /// Checks length and characters.
    pub fn new(name: &str) -> Result<Pool, LayoutError> {
        let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > POOL_NAME_MAX || !name.chars().all(fine) {
            return Err(LayoutError::PoolName(name.to_owned()));
        }
        Ok(Pool(name.to_owned()))
    }

    /// The name.
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
    /// Of [`flags`]; 0 in a plain layout.
    pub flags: u32,
    /// First byte, 0 in a plain layout.
    pub start: u64,
    /// Byte after the last; `u64::MAX` for no end.
    pub end: u64,
    /// `lcme_layout_gen`. On the MDT: the layout's generation when the file got the component, if
    /// it had a layout before.
    pub entry_gen: u32,
    /// Where the entry says that its part lies in the encoded layout. Rewritten by encoding.
    pub offset: u32,
    /// Bytes of an entry (timestamp and reserved) that are kept as they came.
    pub entry_rest: [u8; 12],
    /// How the objects hold the bytes.
    pub pattern: Pattern,
    /// The file, as `lmm_oi` has it.
    pub fid: Fid,
    /// Bytes of a stripe before the next object's turn. Of an extension, bytes by which the one
    /// before it grows, in KiB.
    pub stripe_size: u32,
    /// As stored: the number of stripes once there are objects; before that also 0 (default) and
    /// negative values.
    pub stripe_count: u16,
    /// `lmm_layout_gen`; before there are objects, `lmm_stripe_offset` (0xffff: any).
    pub layout_gen: u16,
    /// Pool from which OSTs were taken. A layout with a pool is of Lustre's v3 form, else v1.
    pub pool: Option<Pool>,
    /// The objects. Where they are not yet allotted: none, or the OSTs that were asked for, with
    /// objects without an id.
    pub stripes: Vec<Stripe>,
}

/// What a composite layout has beyond its components: fields of `lov_comp_md_v1`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Composite {
    /// `lcm_layout_gen`.
    pub layout_gen: u32,
    /// `lcm_flags`: the state of the mirrors.
    pub flags: u16,
    /// Mirrors, from 1.
    pub mirror_count: u16,
    /// Reserved bytes kept as they came.
    pub rest: [u8; 14],
}

impl Composite {
    /// `lcm_flags` of a mirrored file whose fresh mirrors are the same.
    pub const READ_ONLY: u16 = 1;
    /// `lcm_flags` of a mirrored file that is being written.
    pub const WRITE_PENDING: u16 = 2;
    /// `lcm_flags` of a mirrored file whose mirrors are being brought up to date.
    pub const SYNC_PENDING: u16 = 3;
    /// The bits of `lcm_flags` that hold the state.
    pub const STATE: u16 = 3;
}

/// Which objects hold a file's bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Present in a composite layout.
    composite: Option<Composite>,
    /// One in a plain layout.
    components: Vec<Component>,
    /// Each mirror by itself, where there are several; follows from the components.
    mirrors: Vec<Arc<Layout>>,
    /// The mirror through which bytes are mapped.
    mapped: Option<u16>,
    /// What mapping needs of it; follows from the components.
    index: Index,
}

impl Layout {
    /// A plain layout of 1 to 2000 stripes. The overstriping flag is set where an OST occurs more
    /// than once, as in Lustre.
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

    /// Of at least one component, exactly one where there is no `composite`.
    pub(crate) fn assemble(composite: Option<Composite>, components: Vec<Component>) -> Layout {
        let mirrors = mirror::views(composite.as_ref(), &components);
        let mapped = mirror::mapped(composite.as_ref(), &mirrors);
        let index = Index::of(composite.as_ref(), &components, mapped);
        Layout { composite, components, mirrors, mapped, index }
    }

    /// [`Layout::mirrors`].
    pub(crate) fn views(&self) -> &[Arc<Layout>] {
        &self.mirrors
    }

    /// The components through which bytes are mapped.
    fn mapped_components(&self) -> impl Iterator<Item = &Component> {
        self.components.iter().filter(|c| self.mapped.is_none_or(|id| c.mirror_id() == id))
    }

    /// What mapping needs.
    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    /// The sole component of a plain layout; the first of a composite one.
    fn first(&self) -> &Component {
        // Every constructor puts at least one component in.
        &self.components[0]
    }

    /// Whether a file of this layout can be read and written through [`Layout::map`]: RAID0
    /// everywhere but for a beginning on the MDT ([`Layout::mdt_end`]), in each mirror. Components
    /// without objects are fine, see [`Layout::missing`].
    ///
    /// # Errors
    /// [`LayoutError::Unsupported`] (EOPNOTSUPP): foreign, released. EINVAL: malformed.
    pub fn check_usable(&self) -> Result<(), LayoutError> {
        mirror::check(self.composite.as_ref(), &self.mirrors)?;
        check_components(self.composite.is_some(), self.mapped_components())
    }

    /// The header of a composite layout.
    pub fn composite(&self) -> Option<&Composite> {
        self.composite.as_ref()
    }

    /// All components; at least one, exactly one in a plain layout.
    pub fn components(&self) -> &[Component] {
        &self.components
    }

    /// Whether it is not composite.
    pub fn is_plain(&self) -> bool {
        self.composite.is_none()
    }

    /// Raised whenever objects or components change: `lcm_layout_gen`, or a plain layout's
    /// [`Layout::layout_gen`].
    pub fn generation(&self) -> u32 {
        self.composite.as_ref().map_or(u32::from(self.layout_gen()), |c| c.layout_gen)
    }

    /// Where it ends: writing there is ENODATA. `u64::MAX` if it does not end. Of a mirrored one
    /// where the first of its mirrors ends.
    pub fn end(&self) -> u64 {
        match &self.mirrors[..] {
            [] => self.components.last().map_or(0, |c| c.end),
            mirrors => mirrors.iter().map(|m| m.end()).min().unwrap_or(0),
        }
    }

    /// Ids of its mirrors, in order: 0 alone where there is only one that was never mirrored.
    pub fn mirror_ids(&self) -> Vec<u16> {
        mirror::mirror_ids(&self.components)
    }

    /// One mirror as a layout of its own, through which bytes can be mapped. `None`: there is none
    /// with that id.
    pub fn mirror(&self, id: u16) -> Option<Layout> {
        let composite = Composite { mirror_count: 1, flags: 0, ..self.composite.clone()? };
        let components: Vec<_> = self.components.iter().filter(|c| c.mirror_id() == id).cloned().collect();
        (!components.is_empty()).then(|| Layout::assemble(Some(composite), components))
    }

    /// Bytes of a stripe before the next object's turn; of the first component.
    pub fn stripe_size(&self) -> u32 {
        self.first().stripe_size
    }

    /// Number of [`Layout::stripes`].
    pub fn stripe_count(&self) -> usize {
        self.stripes().len()
    }

    /// How the first component holds its bytes.
    pub fn pattern(&self) -> Pattern {
        self.first().pattern
    }

    /// `lmm_layout_gen` of the first component; see [`Layout::generation`].
    pub fn layout_gen(&self) -> u16 {
        self.first().layout_gen
    }

    /// Pool from which the first component's OSTs were taken.
    pub fn pool(&self) -> Option<&Pool> {
        self.first().pool.as_ref()
    }

    /// The file's FID as the layout has it (`lmm_oi`).
    pub fn fid(&self) -> Fid {
        self.first().fid
    }

    /// The objects through which bytes are mapped: by component, then in stripe order. Their
    /// positions are what mapping calls stripes. In a plain layout, the file's stripes. A component
    /// on the MDT counts as one stripe, of [`MDT_OST`]. Those of all mirrors are
    /// [`Layout::all_objects`].
    pub fn stripes(&self) -> &[Stripe] {
        match &self.composite {
            Some(_) => self.index.stripes(),
            None => &self.first().stripes,
        }
    }

    /// Which component has the stripe at that position of [`Layout::stripes`].
    pub fn component_of(&self, stripe: usize) -> Option<usize> {
        let mut first = 0;
        self.components.iter().position(|c| {
            first += if self.mapped.is_none_or(|id| c.mirror_id() == id) { c.stripe_list().len() } else { 0 };
            stripe < first
        })
    }
}

impl Component {
    /// An empty component that covers the whole file.
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

    /// Whether its objects are allotted, or its bytes lie on the MDT.
    pub fn is_instantiated(&self) -> bool {
        // Only components of files have ids; a directory's have neither, and a plain layout's
        // nothing but objects.
        if self.id == 0 {
            self.flags & flags::EXTENSION == 0 && !self.stripes.is_empty()
        } else {
            self.flags & flags::INIT != 0
        }
    }

    /// The objects that there are on OSTs; none of what is only asked for.
    pub fn objects(&self) -> &[Stripe] {
        if self.is_instantiated() { &self.stripes } else { &[] }
    }

    /// What its bytes are mapped to: its objects, or the one that the MDT's data service has of the
    /// file.
    pub(crate) fn stripe_list(&self) -> Cow<'_, [Stripe]> {
        match self.is_on_mdt() {
            true => Cow::Owned(vec![Stripe { object: self.object_on_mdt(), ost: MDT_OST }]),
            false => Cow::Borrowed(self.objects()),
        }
    }

    /// What its bytes are on the MDT. Its name is the file's, and another one each time that the
    /// file gets such a component.
    pub(crate) fn object_on_mdt(&self) -> Fid {
        Fid { ver: self.entry_gen.saturating_add(1), ..self.fid }
    }

    /// Whether its bytes lie on the MDT.
    pub fn is_on_mdt(&self) -> bool {
        self.pattern.has(Pattern::MDT)
    }

    /// Whether it is the space into which the one before it grows.
    pub fn is_extension(&self) -> bool {
        self.flags & flags::EXTENSION != 0
    }

    /// Bytes by which the component before it grows into this extension.
    pub fn extension_size(&self) -> Option<u64> {
        self.is_extension().then(|| u64::from(self.stripe_size) * SEL_UNIT)
    }

    /// The mirror that it belongs to; 0 in a file that was never mirrored.
    pub fn mirror_id(&self) -> u16 {
        (self.id >> MIRROR_SHIFT) as u16
    }

    /// Whether it holds none of `[start, end)`.
    pub fn is_outside(&self, start: u64, end: u64) -> bool {
        self.start.max(start) >= self.end.min(end)
    }
}

/// Bits of a component's id below those of its mirror's.
pub(crate) const MIRROR_SHIFT: u32 = 16;

/// Overstriped exactly where an OST occurs more than once.
pub(crate) fn pattern_of(stripes: &[Stripe]) -> Pattern {
    let osts: BTreeSet<u32> = stripes.iter().map(|s| s.ost).collect();
    if osts.len() < stripes.len() { Pattern::RAID0_OVERSTRIPED } else { Pattern::RAID0 }
}

/// [`Layout::check_usable`] of the components of one mirror.
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
                    return Err(LayoutError::Malformed("it has no objects"));
                }
                check_stripe_size(u64::from(c.stripe_size))?;
            }
            _ => return Err(LayoutError::Unsupported("other than raid0")),
        }
    }
    Ok(())
}

fn check_no_objects(c: &Component) -> Result<(), LayoutError> {
    if c.objects().is_empty() { Ok(()) } else { Err(LayoutError::Malformed("a component has objects that needs none")) }
}

/// A positive multiple of 64 KiB below 4 GiB.
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
    fn overstriped_exactly_when_an_ost_repeats() {
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
