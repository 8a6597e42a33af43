//! Composite layouts requested by a user or stored as a directory's default: Lustre's
//! `lov_user_md` in a `lov_comp_md_v1`.
//!
//! A [`Template`] specifies how each range of a file is stored. It names no objects, and OSTs only
//! if the user does. Mirrors follow each other in one list; each begins with a component that
//! starts at 0.
//!
//! A **self-extending** component (`-z`) is a pair: the component, and behind it one with
//! [`flags::EXTENSION`] that never has objects. Whenever the first is full, it takes
//! [`TemplateComponent::extension_size`] bytes from the second. The first may be empty, but not
//! at the beginning of a file.
//!
//! Invariant: results of [`Asked::decode`] have passed [`Asked::check`].

use crate::{
    Count, EXTENSION_SIZE_MAX, EXTENSION_SIZE_MIN, LAYOUT_BYTES_MAX, LayoutError, MIRRORS_MAX, Pattern, Pool,
    STRIPE_SIZE_DEFAULT, STRIPE_SIZE_UNIT, Spec,
    codec::{COMP_ENTRY_BYTES, COMP_HEADER_BYTES, OBJECT_BYTES, V3_BYTES},
    flags,
};

/// Maximum size of a component in a layout without its objects, in bytes.
const COMP_BYTES_MAX: usize = COMP_ENTRY_BYTES + V3_BYTES;

/// A layout requested with `setxattr lustre.lov`, or a directory's default.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Asked {
    /// The same parameters for the whole file.
    Plain(Spec),
    /// Parameters by ranges of the file.
    Composite(Template),
}

/// A requested composite layout.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Template {
    /// Components by mirror, then by offset; at least one.
    pub components: Vec<TemplateComponent>,
    /// Number of mirrors, 1 to 16: the number of components that start at 0.
    pub mirrors: u16,
}

/// A range of the file, and how its bytes are stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TemplateComponent {
    /// First byte; a multiple of 64 KiB.
    pub start: u64,
    /// Byte after the last, a multiple of 64 KiB; `u64::MAX` for no end.
    pub end: u64,
    /// Flags of [`flags::ASKABLE`]. [`flags::EXTENSION`] if and only if there is an
    /// `extension_size`.
    pub flags: u32,
    /// [`Pattern::RAID0`] (overstriped if `spec` says so), or [`Pattern::MDT`] in the first
    /// component.
    pub pattern: Pattern,
    /// Stripe parameters. Nothing is specified for data on the MDT.
    pub spec: Spec,
    /// Bytes by which the component before this one grows into it. Only with [`flags::EXTENSION`].
    pub extension_size: Option<u64>,
}

impl Default for Asked {
    /// Returns a request that specifies nothing.
    fn default() -> Asked {
        Asked::Plain(Spec::default())
    }
}

impl From<Spec> for Asked {
    fn from(spec: Spec) -> Asked {
        Asked::Plain(spec)
    }
}

impl Asked {
    /// Whether nothing is specified. Setting such a default on a directory deletes its present
    /// default.
    pub fn is_default(&self) -> bool {
        matches!(self, Asked::Plain(spec) if spec.is_default())
    }

    /// Returns the parameters for the whole file, if the request is plain.
    pub fn plain(&self) -> Option<&Spec> {
        match self {
            Asked::Plain(spec) => Some(spec),
            Asked::Composite(_) => None,
        }
    }

    /// Returns the parameters by ranges, if the request is composite.
    pub fn composite(&self) -> Option<&Template> {
        match self {
            Asked::Plain(_) => None,
            Asked::Composite(template) => Some(template),
        }
    }

    /// Checks Lustre's limits and rules that do not depend on the file system.
    pub fn check(&self) -> Result<(), LayoutError> {
        match self {
            Asked::Plain(spec) => spec.check(),
            Asked::Composite(template) => template.check(),
        }
    }

    /// Returns the OSTs requested by index, which must exist.
    pub fn osts(&self) -> impl Iterator<Item = u32> {
        self.specs().flat_map(|s| s.start.iter().chain(&s.osts).copied())
    }

    /// Returns the requested pools, which must exist.
    pub fn pools(&self) -> impl Iterator<Item = &Pool> {
        self.specs().filter_map(|s| s.pool.as_ref())
    }

    fn specs(&self) -> impl Iterator<Item = &Spec> {
        let components = self.composite().map_or(&[][..], |t| &t.components[..]);
        self.plain().into_iter().chain(components.iter().map(|c| &c.spec))
    }
}

impl Template {
    /// Creates a template of one mirror with these components.
    pub fn new(components: Vec<TemplateComponent>) -> Template {
        Template { components, mirrors: 1 }
    }

    /// Returns the smallest end of the mirrors.
    pub fn end(&self) -> u64 {
        let is_last = |i: usize| self.components.get(i + 1).is_none_or(|next| next.start == 0);
        let ends = self.components.iter().enumerate().filter(|(i, _)| is_last(*i)).map(|(_, c)| c.end);
        ends.min().unwrap_or(0)
    }

    /// Returns the number of mirrors with a Data-on-MDT component. A file may have at most one.
    pub fn on_mdt(&self) -> usize {
        self.components.iter().filter(|c| c.is_on_mdt()).count()
    }

    /// Checks Lustre's limits and rules for a new file or a directory's default.
    pub fn check(&self) -> Result<(), LayoutError> {
        if !(1..=MIRRORS_MAX).contains(&self.mirrors) {
            return Err(LayoutError::Mirrors(self.mirrors));
        }
        self.check_chain(0)?;
        let found = self.components.iter().filter(|c| c.start == 0).count();
        if found != usize::from(self.mirrors) {
            return Err(LayoutError::MirrorsMissing { said: self.mirrors, found });
        }
        Ok(())
    }

    /// Checks Lustre's rules for components that are added to a file whose present layout ends at
    /// `end`, which is not 0.
    pub fn check_added(&self, end: u64) -> Result<(), LayoutError> {
        if self.mirrors != 1 {
            return Err(LayoutError::Mirrored);
        }
        self.check_chain(end)
    }

    /// Checks that each component starts at the end of the one before it in its mirror, and the
    /// first at `first`.
    fn check_chain(&self, first: u64) -> Result<(), LayoutError> {
        if self.components.is_empty() {
            return Err(LayoutError::NoComponent);
        }
        let mut before: Option<&TemplateComponent> = None;
        for c in &self.components {
            if first == 0 && c.start == 0 {
                // Another mirror begins.
                before.map_or(Ok(()), TemplateComponent::check_last)?;
                before = None;
            }
            let expected = before.map_or(first, |b| b.end);
            if c.start != expected {
                return Err(LayoutError::Gap { start: c.start, expected });
            }
            c.check(before)?;
            before = Some(c);
        }
        before.map_or(Ok(()), TemplateComponent::check_last)?;
        let bytes = self.bytes_max();
        if bytes > LAYOUT_BYTES_MAX { Err(LayoutError::TooLarge(bytes)) } else { Ok(()) }
    }

    /// Returns the maximum size of a file's layout once all components have their objects, in
    /// bytes. Each component may have a pool. If the number of objects depends on the OSTs, counts
    /// one.
    fn bytes_max(&self) -> usize {
        let stripes: usize = self.components.iter().map(TemplateComponent::stripes_max).sum();
        COMP_HEADER_BYTES + self.components.len() * COMP_BYTES_MAX + stripes * OBJECT_BYTES
    }
}

impl Default for TemplateComponent {
    /// Returns a component that covers the whole file.
    fn default() -> TemplateComponent {
        TemplateComponent {
            start: 0,
            end: u64::MAX,
            flags: 0,
            pattern: Pattern::RAID0,
            spec: Spec::default(),
            extension_size: None,
        }
    }
}

impl TemplateComponent {
    /// Creates a component `[start, end)` striped as `spec` says.
    pub fn striped(start: u64, end: u64, spec: Spec) -> TemplateComponent {
        TemplateComponent { start, end, spec, ..TemplateComponent::default() }
    }

    /// Creates a component with the first `end` bytes on the MDT (`-L mdt`).
    pub fn on_mdt(end: u64) -> TemplateComponent {
        TemplateComponent { end, pattern: Pattern::MDT, ..TemplateComponent::default() }
    }

    /// Splits a component as `-z size` does: into a component of `size` bytes at the beginning of a
    /// file, otherwise of no bytes, and the extension into which it grows. Returns only the
    /// component if no space is left for an extension.
    pub fn extendable(self, size: u64) -> Vec<TemplateComponent> {
        let full = if self.start == 0 { size.min(self.end) } else { self.start };
        if full == self.end {
            return vec![self];
        }
        let extension = TemplateComponent {
            start: full,
            flags: self.flags | flags::EXTENSION,
            spec: Spec { count: self.spec.count, overstripe: self.spec.overstripe, ..Spec::default() },
            extension_size: Some(size),
            ..self.clone()
        };
        vec![TemplateComponent { end: full, ..self }, extension]
    }

    /// Whether the component is the space into which the one before it grows.
    pub fn is_extension(&self) -> bool {
        self.flags & flags::EXTENSION != 0
    }

    /// Whether the bytes are on the MDT.
    pub fn is_on_mdt(&self) -> bool {
        self.pattern == Pattern::MDT
    }

    fn check(&self, before: Option<&TemplateComponent>) -> Result<(), LayoutError> {
        let TemplateComponent { start, end, .. } = *self;
        // An empty component must be able to grow. One at 0 is used at once, so it must not be
        // empty.
        if start > end || (start == end && (start == 0 || self.is_extension() || self.is_on_mdt())) {
            return Err(LayoutError::Extent { start, end });
        }
        for boundary in [start, end] {
            if boundary != u64::MAX && !boundary.is_multiple_of(u64::from(STRIPE_SIZE_UNIT)) {
                return Err(LayoutError::Boundary(boundary));
            }
        }
        if self.flags & !flags::ASKABLE != 0 {
            return Err(LayoutError::ComponentFlags(self.flags));
        }
        if !self.is_extension() {
            before.map_or(Ok(()), TemplateComponent::check_last)?;
        }
        match (self.pattern, self.extension_size) {
            (Pattern::MDT, None) => self.check_mdt(),
            (Pattern::RAID0, None) => self.check_stripes(),
            (Pattern::RAID0, Some(size)) => self.check_extension(size, before),
            _ => Err(LayoutError::Unsupported("other than raid0 and mdt")),
        }
    }

    /// Checks that the component does not require an extension behind it.
    fn check_last(&self) -> Result<(), LayoutError> {
        if self.start == self.end { Err(LayoutError::ZeroLength(self.start)) } else { Ok(()) }
    }

    fn check_mdt(&self) -> Result<(), LayoutError> {
        if self.start != 0 {
            return Err(LayoutError::MdtNotFirst(self.start));
        }
        if self.is_extension() {
            return Err(LayoutError::ComponentFlags(self.flags));
        }
        let Spec { stripe_size, count, overstripe, start, osts, pool } = &self.spec;
        for (given, option) in [
            (stripe_size.is_some_and(|size| u64::from(size) != self.end), "stripe size other than its end"),
            (start.is_some() || !osts.is_empty(), "OST"),
            (count.is_some() || *overstripe, "stripe count"),
            (pool.is_some(), "pool"),
        ] {
            if given {
                return Err(LayoutError::MdtOption(option));
            }
        }
        Ok(())
    }

    fn check_stripes(&self) -> Result<(), LayoutError> {
        if self.is_extension() {
            return Err(LayoutError::ExtensionSize(0));
        }
        self.spec.check()?;
        match self.spec.stripe_size {
            Some(stripe_size) if self.end != u64::MAX && !self.end.is_multiple_of(u64::from(stripe_size)) => {
                Err(LayoutError::EndAlignment { end: self.end, stripe_size })
            }
            _ => Ok(()),
        }
    }

    fn check_extension(&self, size: u64, before: Option<&TemplateComponent>) -> Result<(), LayoutError> {
        let grows = before.filter(|b| !b.is_extension() && !b.is_on_mdt() && self.is_extension());
        let grows = grows.ok_or(LayoutError::Malformed("an extension follows no component that could grow"))?;
        let stripe_size = u64::from(grows.spec.stripe_size.unwrap_or(STRIPE_SIZE_UNIT));
        if !(EXTENSION_SIZE_MIN..=EXTENSION_SIZE_MAX).contains(&size)
            || !size.is_multiple_of(u64::from(STRIPE_SIZE_UNIT))
            || !size.is_multiple_of(stripe_size)
        {
            return Err(LayoutError::ExtensionSize(size));
        }
        self.spec.check()
    }

    /// Returns the maximum number of objects of the component, as far as it is known.
    fn stripes_max(&self) -> usize {
        if self.is_extension() || self.is_on_mdt() {
            return 0;
        }
        let (start, end) = (self.start, self.end);
        match self.spec.count {
            _ if !self.spec.osts.is_empty() => self.spec.osts.len(),
            Some(Count::Stripes(n)) => {
                let size = stripe_size_within(end, self.spec.stripe_size.unwrap_or(STRIPE_SIZE_DEFAULT));
                usize::from(n.min(stripes_within(start, end, size).unwrap_or(u16::MAX)))
            }
            _ => 1,
        }
    }
}

/// Returns the stripe size for a component with this end: `size` if it divides the end, otherwise
/// the largest power of two that divides the end, as in Lustre.
pub(crate) fn stripe_size_within(end: u64, size: u32) -> u32 {
    if end == u64::MAX || size == 0 || end.is_multiple_of(u64::from(size)) {
        return size;
    }
    // Below 2^31, because stripe sizes are below 4 GiB. An end of 0 is a multiple of all sizes.
    1 << end.trailing_zeros().min(31)
}

/// Returns the number of stripe units of a component (rounded up); more stripes would stay
/// empty. `None` if the component has no end, or is still empty.
pub(crate) fn stripes_within(start: u64, end: u64, stripe_size: u32) -> Option<u16> {
    if end == u64::MAX || end <= start {
        return None;
    }
    let units = (end - start).div_ceil(u64::from(stripe_size.max(1)));
    Some(u16::try_from(units).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests;
