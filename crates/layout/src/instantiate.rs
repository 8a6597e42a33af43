//! Instantiation of composite layouts. A new layout has the objects of its first component; other
//! components get theirs at the first write into them.
//!
//! As in Lustre, component ids follow the layout's generation, which counts the changes of the
//! layout. A new file's generation is its number of components. Every later change raises it by
//! one.

use std::collections::BTreeSet;

use sheen_wire::Fid;

use crate::{
    Component, Composite, Count, Holds, LAYOUT_BYTES_MAX, Layout, LayoutError, Pattern, SEL_UNIT, STRIPES_MAX, Stripe,
    Wanted, WantedComponent,
    component::{ANY_OST, MIRROR_SHIFT, pattern_of},
    flags,
    template::stripes_within,
};

impl Layout {
    /// Creates a new file's layout. `objects` are those of the components that get them at once:
    /// see [`crate::WantedLayout::first`].
    ///
    /// # Errors
    /// EINVAL if there are no components, or `objects` is not given for exactly these components.
    /// ERANGE if the layout is too large.
    pub fn from_template(
        file: Fid,
        components: &[WantedComponent],
        objects: Vec<(usize, Vec<Stripe>)>,
    ) -> Result<Layout, LayoutError> {
        let needed: BTreeSet<usize> = (0..components.len()).filter(|i| is_first(&components[*i])).collect();
        if components.is_empty() || needed != objects.iter().map(|(i, _)| *i).collect::<BTreeSet<_>>() {
            return Err(LayoutError::Malformed("objects are not given for exactly the components that begin a mirror"));
        }
        let mirror_count = components.iter().filter(|c| c.start == 0).count() as u16;
        let mut composite = Composite {
            layout_gen: 0,
            flags: if mirror_count > 1 { Composite::READ_ONLY } else { 0 },
            mirror_count,
            rest: [0; 14],
        };
        let mut mirror = 0;
        let mut made = Vec::with_capacity(components.len());
        for c in components {
            mirror += u32::from(mirror_count > 1 && c.start == 0);
            let id = composite.next_id(mirror, &made)?;
            made.push(component(id, file, c));
        }
        attach_objects(&mut made, objects)?;
        Layout::assemble(Some(composite), made).checked()
    }

    /// Returns the parameters for placing a component that has no objects yet. `None` if it has
    /// objects or never gets any.
    pub fn wanted_of(&self, component: usize) -> Option<Wanted> {
        let c = self.components().get(component)?;
        let grows = self.components().get(component + 1).is_some_and(Component::is_extension);
        Some(Wanted { room: if grows { c.end - c.start } else { 0 }, ..c.wanted()? })
    }

    /// Returns the components of all mirrors that must get objects before `[offset, offset + len)`
    /// can be written. Extensions are not among them.
    pub fn wanting(&self, offset: u64, len: u64) -> Vec<usize> {
        let end = offset.saturating_add(len);
        let inside = |i: &usize| !self.components()[*i].is_outside(offset, end);
        (0..self.components().len()).filter(|i| inside(i) && self.wanted_of(*i).is_some()).collect()
    }

    /// Gives components their objects, and raises the generation by one. An error leaves the layout
    /// unchanged.
    ///
    /// # Errors
    /// EINVAL if a component takes no objects, or the number of objects is not 1 to 2000. ERANGE if
    /// the layout would be too large.
    pub fn instantiate(&mut self, objects: Vec<(usize, Vec<Stripe>)>) -> Result<(), LayoutError> {
        let mut components = self.components().to_vec();
        attach_objects(&mut components, objects)?;
        *self = self.changed(components)?;
        Ok(())
    }

    /// Returns the layout of the next generation with other components.
    pub(crate) fn changed(&self, components: Vec<Component>) -> Result<Layout, LayoutError> {
        let mut composite = self.composite().ok_or(LayoutError::NotComposite)?.clone();
        composite.raise();
        Layout::assemble(Some(composite), components).checked()
    }

    /// Returns the layout, or ERANGE if it is too large.
    pub(crate) fn checked(self) -> Result<Layout, LayoutError> {
        match self.encoded_len() {
            bytes if bytes > LAYOUT_BYTES_MAX => Err(LayoutError::TooLarge(bytes)),
            _ => Ok(self),
        }
    }
}

impl Component {
    /// See [`Layout::wanted_of`].
    fn wanted(&self) -> Option<Wanted> {
        if self.is_instantiated() || self.is_extension() || self.is_on_mdt() {
            return None;
        }
        let overstripe = self.pattern.has(Pattern::OVERSTRIPING);
        let osts: Vec<u32> = self.stripes.iter().map(|s| s.ost).collect();
        let count = match Count::from_raw(self.stripe_count).unwrap_or(Count::Stripes(1)) {
            // No more stripes than the component has stripe units. Without overstriping each is on
            // its own OST anyway.
            Count::All if !overstripe => match stripes_within(self.start, self.end, self.stripe_size) {
                Some(n) if usize::from(n) <= STRIPES_MAX => Count::Stripes(n),
                _ => Count::All,
            },
            count => count,
        };
        let start = (osts.is_empty() && self.layout_gen != ANY_OST).then_some(u32::from(self.layout_gen));
        Some(Wanted { stripe_size: self.stripe_size, count, overstripe, start, osts, pool: self.pool.clone(), room: 0 })
    }
}

/// Gives components their objects.
fn attach_objects(components: &mut [Component], objects: Vec<(usize, Vec<Stripe>)>) -> Result<(), LayoutError> {
    for (i, stripes) in objects {
        let c = components.get_mut(i).ok_or(LayoutError::NoComponent)?;
        if c.wanted().is_none() {
            return Err(LayoutError::NotWanting(c.id));
        }
        if stripes.is_empty() || stripes.len() > STRIPES_MAX {
            return Err(LayoutError::StripeCount(stripes.len() as i64));
        }
        c.flags |= flags::INIT;
        c.pattern = pattern_of(&stripes);
        c.stripe_count = stripes.len() as u16;
        c.layout_gen = 0;
        c.stripes = stripes;
    }
    Ok(())
}

impl Composite {
    /// Raises the generation. It is never 0, not even after an overflow.
    pub(crate) fn raise(&mut self) {
        self.layout_gen = self.layout_gen.checked_add(1).unwrap_or(1);
    }

    /// Returns an id for a new component of `mirror` that differs from the ids of `others`. Raises
    /// the generation.
    pub(crate) fn next_id(&mut self, mirror: u32, others: &[Component]) -> Result<u32, LayoutError> {
        const IDS: u32 = (1 << MIRROR_SHIFT) - 1;
        self.raise();
        let from = (self.layout_gen - 1) % IDS;
        let mut ids = (0..IDS).map(|i| (mirror << MIRROR_SHIFT) | ((from + i) % IDS + 1));
        // A layout has fewer components than there are ids.
        ids.find(|id| others.iter().all(|c| c.id != *id)).ok_or(LayoutError::TooLarge(LAYOUT_BYTES_MAX + 1))
    }
}

fn is_first(c: &WantedComponent) -> bool {
    c.start == 0 && matches!(c.holds, Holds::Objects(_))
}

/// Creates a component of a file, before it has objects.
pub(crate) fn component(id: u32, file: Fid, wanted: &WantedComponent) -> Component {
    let WantedComponent { start, end, flags, ref holds } = *wanted;
    let c = Component { id, flags, start, end, fid: file, layout_gen: ANY_OST, ..Component::whole_file() };
    match holds {
        // The whole component is one stripe.
        Holds::Mdt => Component {
            flags: flags | flags::INIT,
            pattern: Pattern::MDT,
            stripe_size: u32::try_from(end).unwrap_or(0),
            ..c
        },
        Holds::Objects(wanted) => Component { stripe_size: wanted.stripe_size, ..striped(c, wanted) },
        Holds::Extension(size, wanted) => Component {
            flags: flags | flags::EXTENSION,
            stripe_size: u32::try_from(size / SEL_UNIT).unwrap_or(u32::MAX),
            layout_gen: ANY_OST,
            stripes: Vec::new(),
            ..striped(c, wanted)
        },
    }
}

fn striped(c: Component, wanted: &Wanted) -> Component {
    let first = wanted.start.or(wanted.osts.first().copied());
    Component {
        pattern: if wanted.overstripe { Pattern::RAID0_OVERSTRIPED } else { Pattern::RAID0 },
        stripe_count: wanted.count.to_raw(),
        layout_gen: first.and_then(|ost| u16::try_from(ost).ok()).unwrap_or(ANY_OST),
        pool: wanted.pool.clone(),
        stripes: wanted.osts.iter().map(|ost| Stripe { object: Fid::ZERO, ost: *ost }).collect(),
        ..c
    }
}

#[cfg(test)]
mod tests;
