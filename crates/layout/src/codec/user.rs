//! Binary forms of requests: `lov_user_md` plain, in a `lov_comp_md_v1`, and the entries that
//! select components to change.
//!
//! A component's extension size is stored in the stripe size field, in KiB.

use super::*;
use crate::{Count, Mark, SEL_UNIT, Spec, Template, TemplateComponent, flags};

/// Decodes a plain part into its pattern and its other parameters. Checks only the form of the
/// bytes.
pub(crate) fn user_spec(bytes: &[u8]) -> Result<(Pattern, Spec), LayoutError> {
    let magic = Magic::of(bytes)?;
    match magic {
        Magic::CompV1 | Magic::Sel => return Err(LayoutError::Unsupported("composite")),
        Magic::Foreign => return Err(LayoutError::Unsupported("foreign")),
        Magic::V1 | Magic::V3 | Magic::Specific => {}
    }
    let (head, rest) = read::<Head>(bytes)?;
    let pool = if magic == Magic::V1 { None } else { read_pool(rest)?.0 };
    let (pattern, count) = (Pattern(head.pattern.get()), head.stripe_count.get());
    let stripe_size = head.stripe_size.get();
    let offset = head.gen_or_offset.get();
    let osts = if magic == Magic::Specific { ost_list(bytes, usize::from(count))? } else { Vec::new() };
    let spec = Spec {
        stripe_size: (stripe_size != 0).then_some(stripe_size),
        count: Count::from_raw(count),
        overstripe: pattern.has(Pattern::OVERSTRIPING),
        start: (offset != u16::MAX).then_some(u32::from(offset)),
        osts,
        pool,
    };
    Ok((pattern, spec))
}

/// Decodes the list of OSTs of a [`Magic::Specific`].
fn ost_list(bytes: &[u8], count: usize) -> Result<Vec<u32>, LayoutError> {
    if count == 0 || count > STRIPES_MAX {
        return Err(LayoutError::StripeCount(count as i64));
    }
    let need = V3_BYTES + count * OBJECT_BYTES;
    let list = bytes.get(V3_BYTES..need).ok_or(LayoutError::Truncated { need, have: bytes.len() })?;
    list.chunks_exact(OBJECT_BYTES).map(|entry| Ok(read::<ObjectEntry>(entry)?.0.ost.get())).collect()
}

pub(crate) fn encode_spec(spec: &Spec) -> Vec<u8> {
    let mut out = Vec::new();
    encode_part(spec.pattern(), spec.stripe_size.unwrap_or(0), spec, &mut out);
    out
}

fn encode_part(pattern: Pattern, stripe_size: u32, spec: &Spec, out: &mut Vec<u8>) {
    let magic = match (spec.osts.is_empty(), &spec.pool) {
        (false, _) => Magic::Specific,
        (true, Some(_)) => Magic::V3,
        (true, None) => Magic::V1,
    };
    let count = match spec.osts.len() {
        0 => spec.count.map_or(0, |c| c.to_raw()),
        n => u16::try_from(n).unwrap_or(u16::MAX),
    };
    let head = Head {
        magic: U32::new(magic as u32),
        pattern: U32::new(pattern.0),
        oi_id: U64::new(0),
        oi_seq: U64::new(0),
        stripe_size: U32::new(stripe_size),
        stripe_count: U16::new(count),
        gen_or_offset: U16::new(spec.start.and_then(|i| u16::try_from(i).ok()).unwrap_or(u16::MAX)),
    };
    out.extend_from_slice(head.as_bytes());
    if magic != Magic::V1 {
        write_pool(out, spec.pool.as_ref());
    }
    for ost in &spec.osts {
        write_object(out, Fid::ZERO, *ost);
    }
}

/// Decodes a requested composite layout, without checking it.
pub(crate) fn decode_template(bytes: &[u8]) -> Result<Template, LayoutError> {
    let (header, parts) = read_composite(bytes)?;
    let components: Result<Vec<_>, _> = parts.into_iter().map(|(entry, part)| decode_asked(&entry, part)).collect();
    Ok(Template { components: components?, mirrors: header.mirror_count.get().saturating_add(1) })
}

fn decode_asked(entry: &CompEntry, part: &[u8]) -> Result<TemplateComponent, LayoutError> {
    let (pattern, mut spec) = user_spec(part)?;
    // Ignore the flags that only components of existing files have.
    let flags = entry.flags.get() & !(flags::INIT | flags::STALE);
    let pattern = match pattern {
        Pattern::MDT => Pattern::MDT,
        other if other.0 & !Pattern::RAID0_OVERSTRIPED.0 == 0 => Pattern::RAID0,
        _ => return Err(LayoutError::Unsupported("non-raid0, non-mdt")),
    };
    let mut extension_size = None;
    if flags & flags::EXTENSION != 0 {
        extension_size = Some(u64::from(spec.stripe_size.take().unwrap_or(0)) * SEL_UNIT);
    } else if pattern == Pattern::MDT {
        // The component's end determines the stripe size.
        spec.stripe_size = None;
    }
    Ok(TemplateComponent { start: entry.start.get(), end: entry.end.get(), flags, pattern, spec, extension_size })
}

pub(crate) fn encode_template(template: &Template) -> Vec<u8> {
    let extends = template.components.iter().any(TemplateComponent::is_extension);
    let magic = if extends { Magic::Sel } else { Magic::CompV1 };
    let parts = template.components.iter().map(|c| {
        let (pattern, size) = match c.extension_size {
            Some(size) => (c.spec.pattern(), u32::try_from(size / SEL_UNIT).unwrap_or(u32::MAX)),
            None if c.is_on_mdt() => (Pattern::MDT, u32::try_from(c.end).unwrap_or(0)),
            None => (c.spec.pattern(), c.spec.stripe_size.unwrap_or(0)),
        };
        let mut part = Vec::new();
        encode_part(pattern, size, &c.spec, &mut part);
        (entry(0, c.flags, (c.start, c.end)), part)
    });
    let state = if template.mirrors > 1 { Composite::READ_ONLY } else { 0 };
    write_composite(magic, state, template.mirrors, parts.collect())
}

/// Decodes the selected components and their flag changes: entries without data.
pub(crate) fn decode_marks(bytes: &[u8]) -> Result<Vec<Mark>, LayoutError> {
    match Magic::of(bytes)? {
        Magic::CompV1 | Magic::Sel => {}
        _ => return Err(LayoutError::NotComposite),
    }
    let (_, parts) = read_composite(bytes)?;
    let mark = |(entry, _): Part<'_>| {
        let flags = entry.flags.get();
        let negative = flags & flags::NEGATIVE != 0;
        Mark { id: entry.id.get(), flags: flags & !flags::NEGATIVE, negative }
    };
    Ok(parts.into_iter().map(mark).collect())
}

pub(crate) fn encode_marks(marks: &[Mark]) -> Vec<u8> {
    let entries = marks.iter().map(|m| {
        let negative = if m.negative { flags::NEGATIVE } else { 0 };
        (entry(m.id, m.flags | negative, (0, 0)), Vec::new())
    });
    write_composite(Magic::CompV1, 0, 1, entries.collect())
}

fn entry(id: u32, flags: u32, (start, end): (u64, u64)) -> CompEntry {
    CompEntry {
        id: U32::new(id),
        flags: U32::new(flags),
        start: U64::new(start),
        end: U64::new(end),
        offset: U32::new(0),
        size: U32::new(0),
        layout_gen: U32::new(0),
        rest: [0; 12],
    }
}

/// Writes the header, the entries, then the data of the entries that have any.
fn write_composite(magic: Magic, state: u16, mirrors: u16, parts: Vec<(CompEntry, Vec<u8>)>) -> Vec<u8> {
    let mut at = COMP_HEADER_BYTES + parts.len() * COMP_ENTRY_BYTES;
    let (mut entries, mut bodies) = (Vec::new(), Vec::new());
    let count = parts.len();
    for (mut entry, part) in parts {
        if !part.is_empty() {
            entry.offset = U32::new(at as u32);
            entry.size = U32::new(part.len() as u32);
        }
        at += part.len();
        entries.extend_from_slice(entry.as_bytes());
        bodies.extend(part);
    }
    let header = CompHeader {
        magic: U32::new(magic as u32),
        size: U32::new(at as u32),
        layout_gen: U32::new(0),
        flags: U16::new(state),
        entry_count: U16::new(u16::try_from(count).unwrap_or(u16::MAX)),
        mirror_count: U16::new(mirrors.saturating_sub(1)),
        rest: [0; 14],
    };
    [header.as_bytes(), &entries, &bodies].concat()
}
