//! What a user asks for as a composite layout, or what a directory passes on: Lustre's
//! `lov_user_md` in a `lov_comp_md_v1`.
//!
//! A [`Template`] says which range of a file is kept how; it names neither objects nor, but where a
//! user insists, OSTs. Mirrors follow each other in one list, each beginning with a component that
//! starts at 0.
//!
//! A **self-extending** component (`-z`) is a pair: the component, and behind it one with
//! [`flags::EXTENSION`] that has no objects ever: the space from which the first takes
//! [`TemplateComponent::extension_size`] bytes whenever it is full. The first may be empty, but not
//! at the beginning of a file.
//!
//! Invariant: what [`Asked::decode`] returns has passed [`Asked::check`].

use crate::{
    COMP_BYTES_MAX, Count, EXTENSION_SIZE_MAX, EXTENSION_SIZE_MIN, LAYOUT_BYTES_MAX, LayoutError, MIRRORS_MAX, Pattern,
    STRIPE_SIZE_DEFAULT, STRIPE_SIZE_UNIT, Spec,
    codec::{self, COMP_HEADER_BYTES, Magic, OBJECT_BYTES},
    flags,
};

/// What a user asks for with `setxattr lustre.lov`, or a directory's default.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Asked {
    /// The same for the whole file.
    Plain(Spec),
    /// By ranges of the file.
    Composite(Template),
}

/// A composite layout as it is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Template {
    /// In order of mirrors, then of offsets; at least one.
    pub components: Vec<TemplateComponent>,
    /// Mirrors, 1 to 16: as many as there are components that start at 0.
    pub mirrors: u16,
}

/// A range of the file, and how its bytes are to be kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TemplateComponent {
    /// First byte; a multiple of 64 KiB.
    pub start: u64,
    /// Byte after the last, a multiple of 64 KiB; `u64::MAX` for no end.
    pub end: u64,
    /// Of [`flags::ASKABLE`]. [`flags::EXTENSION`] exactly where there is an `extension_size`.
    pub flags: u32,
    /// [`Pattern::RAID0`] (overstriped where `spec` says so), or [`Pattern::MDT`] in the first
    /// component.
    pub pattern: Pattern,
    /// Stripes; nothing for data on the MDT.
    pub spec: Spec,
    /// Bytes by which the component before this one grows into it; only with [`flags::EXTENSION`].
    pub extension_size: Option<u64>,
}

impl Default for Asked {
    /// Nothing in particular.
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
    /// Whether nothing is asked for. Setting such a default on a directory deletes the one it has.
    pub fn is_default(&self) -> bool {
        matches!(self, Asked::Plain(spec) if spec.is_default())
    }

    /// What is asked for the whole file, if that is all.
    pub fn plain(&self) -> Option<&Spec> {
        match self {
            Asked::Plain(spec) => Some(spec),
            Asked::Composite(_) => None,
        }
    }

    /// What is asked for by ranges of the file.
    pub fn composite(&self) -> Option<&Template> {
        match self {
            Asked::Plain(_) => None,
            Asked::Composite(template) => Some(template),
        }
    }

    /// Lustre's limits and rules, as far as they can be known without the file system.
    pub fn check(&self) -> Result<(), LayoutError> {
        match self {
            Asked::Plain(spec) => spec.check(),
            Asked::Composite(template) => template.check(),
        }
    }

    /// Reads and checks the value of a `setxattr lustre.lov`, or a directory's stored default. The
    /// layout of a file is accepted too, its objects and ids ignored: so a layout is copied with
    /// `getfattr | setfattr`, and restored by archivers.
    pub fn decode(bytes: &[u8]) -> Result<Asked, LayoutError> {
        match Magic::of(bytes)? {
            Magic::CompV1 | Magic::Sel => {
                let template = codec::decode_template(bytes)?;
                template.check()?;
                Ok(Asked::Composite(template))
            }
            _ => Spec::decode(bytes).map(Asked::Plain),
        }
    }

    /// The value of a `setxattr lustre.lov`.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Asked::Plain(spec) => spec.encode(),
            Asked::Composite(template) => template.encode(),
        }
    }

    /// The OSTs that are asked for by index: those that must exist.
    pub fn osts(&self) -> impl Iterator<Item = u32> {
        self.specs().flat_map(|s| s.start.iter().chain(&s.osts).copied())
    }

    /// The pools that are asked for: those that must exist.
    pub fn pools(&self) -> impl Iterator<Item = &crate::Pool> {
        self.specs().filter_map(|s| s.pool.as_ref())
    }

    fn specs(&self) -> impl Iterator<Item = &Spec> {
        let components = self.composite().map_or(&[][..], |t| &t.components[..]);
        self.plain().into_iter().chain(components.iter().map(|c| &c.spec))
    }
}

impl Template {
    /// One mirror of these components.
    pub fn new(components: Vec<TemplateComponent>) -> Template {
        Template { components, mirrors: 1 }
    }

    /// The value of a `setxattr lustre.lov` (or `lustre.lov.add`).
    pub fn encode(&self) -> Vec<u8> {
        codec::encode_template(self)
    }

    /// Where the bytes end that all mirrors have a place for.
    pub fn end(&self) -> u64 {
        let is_last = |i: usize| self.components.get(i + 1).is_none_or(|next| next.start == 0);
        let ends = self.components.iter().enumerate().filter(|(i, _)| is_last(*i)).map(|(_, c)| c.end);
        ends.min().unwrap_or(0)
    }

    /// How many of the mirrors begin on the MDT: a file has one such at most.
    pub fn on_mdt(&self) -> usize {
        self.components.iter().filter(|c| c.is_on_mdt()).count()
    }

    /// Lustre's limits and rules for a new file or a directory's default.
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

    /// Reads and checks the value of a `setxattr lustre.lov.add`: components for a file whose
    /// present ones end at `end`.
    pub fn decode_added(bytes: &[u8], end: u64) -> Result<Template, LayoutError> {
        match Magic::of(bytes)? {
            Magic::CompV1 | Magic::Sel => {}
            _ => return Err(LayoutError::NotComposite),
        }
        let template = codec::decode_template(bytes)?;
        template.check_added(end)?;
        Ok(template)
    }

    /// Lustre's rules for components that are added to a file whose present ones end at `end`,
    /// which is not 0.
    pub fn check_added(&self, end: u64) -> Result<(), LayoutError> {
        if self.mirrors != 1 {
            return Err(LayoutError::Mirrored);
        }
        self.check_chain(end)
    }

    /// Each component where the one before it (in its mirror) ends, the first at `first`.
    fn check_chain(&self, first: u64) -> Result<(), LayoutError> {
        if self.components.is_empty() {
            return Err(LayoutError::NoComponent);
        }
        let mut before: Option<&TemplateComponent> = None;
        for c in &self.components {
            if first == 0 && c.start == 0 {
                // Another mirror.
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

    /// Bytes of a file's layout once all components have their objects; each might lie in a pool.
    /// Where their number depends on the OSTs, one is counted.
    fn bytes_max(&self) -> usize {
        let stripes: usize = self.components.iter().map(TemplateComponent::stripes_max).sum();
        COMP_HEADER_BYTES + self.components.len() * COMP_BYTES_MAX + stripes * OBJECT_BYTES
    }
}

impl Default for TemplateComponent {
    /// One that covers the whole file.
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
    /// Bytes `[start, end)` in stripes as `spec` says.
    pub fn striped(start: u64, end: u64, spec: Spec) -> TemplateComponent {
        TemplateComponent { start, end, spec, ..TemplateComponent::default() }
    }

    /// The first `end` bytes on the MDT (`-L mdt`).
    pub fn on_mdt(end: u64) -> TemplateComponent {
        TemplateComponent { end, pattern: Pattern::MDT, ..TemplateComponent::default() }
    }

    /// What `-z size` makes of a component: one that begins with `size` bytes at the beginning of a
    /// file, else with none, and the space into which it grows. Only the component where there is
    /// nothing left to grow into.
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

    /// Whether it is the space into which the one before it grows.
    pub fn is_extension(&self) -> bool {
        self.flags & flags::EXTENSION != 0
    }

    /// Whether its bytes are on the MDT.
    pub fn is_on_mdt(&self) -> bool {
        self.pattern == Pattern::MDT
    }

    fn check(&self, before: Option<&TemplateComponent>) -> Result<(), LayoutError> {
        let TemplateComponent { start, end, .. } = *self;
        // Who has no bytes must be able to grow; what is at 0 is used at once.
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

    /// Whether no extension needs to follow.
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

    /// Most objects that it can have, as far as that is known.
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

/// The stripe size for a component with that end: `size`, or the largest power of two that divides
/// the end, as in Lustre.
pub(crate) fn stripe_size_within(end: u64, size: u32) -> u32 {
    if end == u64::MAX || size == 0 || end.is_multiple_of(u64::from(size)) {
        return size;
    }
    // Below 2^31 as stripe sizes are below 4 GiB; an end of 0 is a multiple of all.
    1 << end.trailing_zeros().min(31)
}

/// More stripes than this would stay empty in a component of that length: it has so many stripe
/// units (rounded up). `None` where it has no end, or has yet to grow.
pub(crate) fn stripes_within(start: u64, end: u64, stripe_size: u32) -> Option<u16> {
    if end == u64::MAX || end <= start {
        return None;
    }
    let units = (end - start).div_ceil(u64::from(stripe_size.max(1)));
    Some(u16::try_from(units).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests;
