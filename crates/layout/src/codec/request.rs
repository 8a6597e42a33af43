//! Binary forms of requests: `lov_user_md` plain, in a `lov_comp_md_v1`, and the entries that
//! select components to change.
//!
//! A component's extension size is stored in the stripe size field, in KiB.

use super::structs::{
    CompositeParts, Entry, Magic, OBJECT_BYTES, PlainFields, PlainPart, PlainRequest, V3_BYTES, encode_composite,
};
use crate::{
    Asked, Composite, Count, LayoutError, Mark, Pattern, Pool, SEL_UNIT, STRIPES_MAX, Spec, Template,
    TemplateComponent, component::ANY_OST, flags,
};

impl Spec {
    /// Decodes the value of a `setxattr lustre.lov`, or a directory's stored default. Also accepts
    /// the layout of a file and ignores its objects, so that `getfattr | setfattr` copies a layout
    /// and archivers can restore one.
    pub fn decode(bytes: &[u8]) -> Result<Spec, LayoutError> {
        let (pattern, spec) = decode_part(bytes)?;
        if !pattern.is_striped() {
            return Err(LayoutError::Unsupported("non-raid0"));
        }
        spec.check()?;
        Ok(spec)
    }

    /// Encodes the value of a `setxattr lustre.lov`: 32 bytes, 48 with a pool, or 48 + 24 for each
    /// listed OST.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        encode_part(self.pattern(), self.stripe_size.unwrap_or(0), self, &mut out);
        out
    }
}

impl Asked {
    /// Decodes and checks the value of a `setxattr lustre.lov`, or a directory's stored default.
    /// Also accepts the layout of a file and ignores its objects and ids, so that
    /// `getfattr | setfattr` copies a layout and archivers can restore one.
    pub fn decode(bytes: &[u8]) -> Result<Asked, LayoutError> {
        if !Magic::of(bytes)?.is_composite() {
            return Spec::decode(bytes).map(Asked::Plain);
        }
        let template = decode_template(bytes)?;
        template.check()?;
        Ok(Asked::Composite(template))
    }

    /// Encodes the value of a `setxattr lustre.lov`.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Asked::Plain(spec) => spec.encode(),
            Asked::Composite(template) => template.encode(),
        }
    }
}

impl Template {
    /// Decodes and checks the value of a `setxattr lustre.lov.add`: components for a file whose
    /// present layout ends at `end`.
    pub fn decode_added(bytes: &[u8], end: u64) -> Result<Template, LayoutError> {
        check_composite(bytes)?;
        let template = decode_template(bytes)?;
        template.check_added(end)?;
        Ok(template)
    }

    /// Encodes the value of a `setxattr lustre.lov` or `lustre.lov.add`.
    pub fn encode(&self) -> Vec<u8> {
        let extends = self.components.iter().any(TemplateComponent::is_extension);
        let magic = if extends { Magic::Sel } else { Magic::CompV1 };
        let flags = if self.mirrors > 1 { Composite::READ_ONLY } else { 0 };
        let header = Composite { layout_gen: 0, flags, mirror_count: self.mirrors, rest: [0; 14] };
        encode_composite(magic, &header, &self.components, |c, out| {
            let (pattern, size) = match c.extension_size {
                Some(size) => (c.spec.pattern(), u32::try_from(size / SEL_UNIT).unwrap_or(u32::MAX)),
                None if c.is_on_mdt() => (Pattern::MDT, u32::try_from(c.end).unwrap_or(0)),
                None => (c.spec.pattern(), c.spec.stripe_size.unwrap_or(0)),
            };
            encode_part(pattern, size, &c.spec, out);
            Entry { flags: c.flags, start: c.start, end: c.end, ..Entry::default() }
        })
    }
}

impl Mark {
    /// Creates the mark that an entry with this id and these flags stands for.
    pub fn from_raw(id: u32, flags: u32) -> Mark {
        Mark { id, flags: flags & !flags::NEGATIVE, negative: flags & flags::NEGATIVE != 0 }
    }

    /// Decodes the value of `lustre.lov.del` (only the first mark counts) or
    /// `lustre.lov.set.flags`: entries without data. Returns at least one mark.
    pub fn decode(bytes: &[u8]) -> Result<Vec<Mark>, LayoutError> {
        check_composite(bytes)?;
        let entries = CompositeParts::decode(bytes)?.exact_entries()?;
        Ok(entries.into_iter().map(|(entry, _)| Mark::from_raw(entry.id, entry.flags)).collect())
    }

    /// Encodes the value of a `setxattr`.
    pub fn encode(marks: &[Mark]) -> Vec<u8> {
        let header = Composite { layout_gen: 0, flags: 0, mirror_count: 1, rest: [0; 14] };
        encode_composite(Magic::CompV1, &header, marks, |mark, _| {
            let negative = if mark.negative { flags::NEGATIVE } else { 0 };
            Entry { id: mark.id, flags: mark.flags | negative, ..Entry::default() }
        })
    }
}

/// Refuses bytes that are not a composite layout.
fn check_composite(bytes: &[u8]) -> Result<(), LayoutError> {
    if Magic::of(bytes)?.is_composite() { Ok(()) } else { Err(LayoutError::NotComposite) }
}

/// Decodes a plain part into its pattern and its other parameters. Checks only the form of the
/// bytes.
fn decode_part(bytes: &[u8]) -> Result<(Pattern, Spec), LayoutError> {
    if Magic::of(bytes)?.is_composite() {
        return Err(LayoutError::Unsupported("composite"));
    }
    let part = PlainPart::decode(bytes)?;
    let PlainFields { pattern, stripe_size, stripe_count, gen_or_offset, .. } = part.fields;
    let spec = Spec {
        stripe_size: (stripe_size != 0).then_some(stripe_size),
        count: Count::from_raw(stripe_count),
        overstripe: pattern.has(Pattern::OVERSTRIPING),
        start: (gen_or_offset != ANY_OST).then_some(u32::from(gen_or_offset)),
        osts: if part.magic == Magic::Specific { listed_osts(&part, bytes.len())? } else { Vec::new() },
        pool: Pool::decode(part.pool)?,
    };
    Ok((pattern, spec))
}

/// Returns the list of OSTs of a [`Magic::Specific`] of `have` bytes.
fn listed_osts(part: &PlainPart<'_>, have: usize) -> Result<Vec<u32>, LayoutError> {
    let count = usize::from(part.fields.stripe_count);
    if count == 0 || count > STRIPES_MAX {
        return Err(LayoutError::StripeCount(count as i64));
    }
    let osts: Vec<u32> = part.objects().take(count).map(|object| object.ost).collect();
    let need = V3_BYTES + count * OBJECT_BYTES;
    if osts.len() < count { Err(LayoutError::Truncated { need, have }) } else { Ok(osts) }
}

fn encode_part(pattern: Pattern, stripe_size: u32, spec: &Spec, out: &mut Vec<u8>) {
    let stripe_count = match spec.osts.len() {
        0 => spec.count.map_or(0, Count::to_raw),
        n => u16::try_from(n).unwrap_or(u16::MAX),
    };
    let gen_or_offset = spec.start.and_then(|ost| u16::try_from(ost).ok()).unwrap_or(ANY_OST);
    let fields = PlainFields { pattern, stripe_size, stripe_count, gen_or_offset, ..PlainFields::default() };
    let pool = spec.pool.as_ref().map_or("", Pool::as_str);
    PlainRequest { fields, pool: pool.as_bytes(), osts: &spec.osts }.encode(out);
}

/// Decodes a requested composite layout, without checking it.
fn decode_template(bytes: &[u8]) -> Result<Template, LayoutError> {
    let parts = CompositeParts::decode(bytes)?;
    let entries = parts.exact_entries()?;
    let components: Result<Vec<_>, _> = entries.iter().map(|(entry, data)| decode_asked(entry, data)).collect();
    Ok(Template { components: components?, mirrors: parts.header().mirror_count })
}

fn decode_asked(entry: &Entry, data: &[u8]) -> Result<TemplateComponent, LayoutError> {
    let (pattern, mut spec) = decode_part(data)?;
    // Ignore the flags that only components of existing files have.
    let flags = entry.flags & !(flags::INIT | flags::STALE);
    let pattern = match pattern {
        Pattern::MDT => Pattern::MDT,
        other if other.is_striped() => Pattern::RAID0,
        _ => return Err(LayoutError::Unsupported("non-raid0, non-mdt")),
    };
    let mut extension_size = None;
    if flags & flags::EXTENSION != 0 {
        extension_size = Some(u64::from(spec.stripe_size.take().unwrap_or(0)) * SEL_UNIT);
    } else if pattern == Pattern::MDT {
        // The component's end determines the stripe size.
        spec.stripe_size = None;
    }
    Ok(TemplateComponent { start: entry.start, end: entry.end, flags, pattern, spec, extension_size })
}
