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

use std::sync::Arc;

use sheen_wire::Fid;

use crate::{
    Component, Composite, LayoutError, MIRRORS_MAX, Pattern, Pool, STRIPES_MAX, Stripe,
    component::{check_components, check_stripe_size, mirror_ids, pattern_of},
    flags,
    index::Index,
};

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
        let mirrors = views(composite.as_ref(), &components);
        let mapped = mapped(composite.as_ref(), &mirrors);
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
        check_mirrors(self.composite.as_ref(), &self.mirrors)?;
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
        mirror_ids(&self.components)
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

/// Returns the mirrors of a composite layout, each as a layout of its own. Empty if there is only
/// one.
fn views(composite: Option<&Composite>, components: &[Component]) -> Vec<Arc<Layout>> {
    let Some(composite) = composite.filter(|c| c.mirror_count > 1) else { return Vec::new() };
    let ids = mirror_ids(components);
    if ids.len() > usize::from(MIRRORS_MAX) {
        return Vec::new();
    }
    let alone = Composite { mirror_count: 1, flags: 0, ..composite.clone() };
    let of = |id: u16| components.iter().filter(|c| c.mirror_id() == id).cloned().collect();
    ids.into_iter().map(|id| Arc::new(Layout::assemble(Some(alone.clone()), of(id)))).collect()
}

/// Checks that all mirrors are usable; see [`Layout::check_usable`].
fn check_mirrors(composite: Option<&Composite>, mirrors: &[Arc<Layout>]) -> Result<(), LayoutError> {
    let count = composite.map_or(1, |c| c.mirror_count);
    if count > 1 && mirrors.len() != usize::from(count) {
        return Err(LayoutError::Mirrors(count));
    }
    mirrors.iter().try_for_each(|m| check_components(true, m.components().iter()))
}

/// Returns the default mirror for mapping: the fresh one that readers prefer, otherwise the first
/// fresh one, otherwise the first one. `None` if the mirrors are not usable.
fn mapped(composite: Option<&Composite>, mirrors: &[Arc<Layout>]) -> Option<u16> {
    check_mirrors(composite, mirrors).ok()?;
    let fresh = |m: &&Arc<Layout>| m.is_fresh();
    let preferred = mirrors.iter().filter(fresh).find(|m| m.is_preferred(flags::PREF_RD));
    let found = preferred.or_else(|| mirrors.iter().find(fresh)).or_else(|| mirrors.first());
    found.map(|m| m.mirror_id())
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
    }
}
