//! Layouts as values of `lustre.lov`: conversion between the numbers of the C library and the
//! fields of [`sheen_layout::codec`].
//!
//! Bytes to decode may come from anywhere: invalid ones are refused with an errno. The library
//! tolerates more than the file system, such as components that overlap and objects that are
//! missing. Encoded bytes are a request for a layout. It contains no objects, but may contain a
//! list of OSTs.

use sheen_layout::{
    ANY_OST, Composite, Count, LAYOUT_BYTES_MAX, LayoutError, Mark, POOL_NAME_MAX, Pattern, SEL_UNIT, STRIPES_MAX,
    codec::{self, CompositeParts, Entry, Magic, PlainFields, PlainPart, PlainRequest},
    flags,
};
use sheen_wire::{Errno, Result};

use crate::layout::{Component, DEFAULT, INVALID, Layout, MDT, OST_UNSET, OVERSTRIPING, RAID0, WIDE, WIDE_MAX};

/// The objects of a layout do not agree with its stripe counts.
pub const EBADSLT: Errno = Errno(57);

/// Returns the errno of the C library. ERANGE: too short, or of no known kind.
fn refused(e: LayoutError) -> Errno {
    match e {
        LayoutError::Truncated { .. } | LayoutError::BadMagic(_) => Errno::ERANGE,
        e => e.errno(),
    }
}

/// Returns the length in bytes that a layout states in its first bytes: [`codec::stated_len`].
///
/// Errors: as [`decode`].
pub fn length(first: &[u8]) -> Result<usize> {
    codec::stated_len(first).map_err(refused)
}

/// Decodes a layout. `check`: it belongs to a file, which must have as many objects as stripes.
///
/// # Errors
/// ERANGE: truncated, or no layout. EOPNOTSUPP: a foreign layout. EINVAL: it is inconsistent.
/// [`EBADSLT`]: the check fails.
pub fn decode(bytes: &[u8], check: bool) -> Result<Layout> {
    if Magic::of(bytes).map_err(refused)?.is_composite() {
        return decode_composite(bytes, check);
    }
    let (component, stripes) = decode_plain(bytes)?;
    if check && component.osts.len() != stripes { Err(EBADSLT) } else { Ok(Layout::plain(component)) }
}

fn decode_composite(bytes: &[u8], check: bool) -> Result<Layout> {
    let parts = CompositeParts::decode(bytes).map_err(refused)?;
    let mut components = Vec::new();
    for entry in parts.entries() {
        let (entry, data) = entry.map_err(refused)?;
        let (plain, stripes) = decode_plain(data)?;
        let objects = if entry.flags & flags::INIT != 0 { stripes } else { 0 };
        if check && plain.osts.len() != objects {
            return Err(EBADSLT);
        }
        components.push(Component {
            id: entry.id,
            flags: entry.flags,
            start: entry.start,
            end: entry.end,
            timestamp: entry.timestamp(),
            stripe_size: match plain.stripe_size {
                size if entry.flags & flags::EXTENSION != 0 && size != DEFAULT => size * SEL_UNIT,
                size => size,
            },
            ..plain
        });
    }
    let mut layout = Layout::composite(components)?;
    let header = parts.header();
    (layout.generation, layout.flags, layout.mirror_count) = (header.layout_gen, header.flags, header.mirror_count);
    Ok(layout)
}

/// Returns the component, and the number of objects that it has once they exist.
fn decode_plain(bytes: &[u8]) -> Result<(Component, usize)> {
    let part = PlainPart::decode(bytes).map_err(refused)?;
    if part.objects().len() > STRIPES_MAX {
        return Err(Errno::EINVAL);
    }
    let PlainFields { pattern, stripe_size, stripe_count, gen_or_offset, .. } = part.fields;
    let osts: Vec<u32> = part.objects().map(|object| object.ost).collect();
    let start_ost = match (osts.first(), gen_or_offset) {
        (Some(first), _) => u64::from(*first),
        (None, ANY_OST) => DEFAULT,
        (None, offset) => u64::from(offset),
    };
    let component = Component {
        pattern: pattern_from(pattern),
        stripe_size: if stripe_size == 0 { DEFAULT } else { u64::from(stripe_size) },
        stripe_count: count_from(stripe_count),
        start_ost,
        osts,
        specific: part.magic == Magic::Specific,
        pool: part.pool.to_vec(),
        ..Component::default()
    };
    Ok((component, usize::from(stripe_count)))
}

fn count_from(raw: u16) -> u64 {
    match Count::from_raw(raw) {
        None => DEFAULT,
        Some(Count::All) => WIDE,
        Some(Count::PerOst(n)) => WIDE + u64::from(n) - 1,
        Some(Count::Stripes(n)) => u64::from(n),
    }
}

fn count_to(count: u64) -> Result<u16> {
    match count {
        DEFAULT => Ok(0),
        WIDE..=WIDE_MAX => {
            let per_ost = (count - WIDE + 1) as u16;
            let count = if per_ost == 1 { Count::All } else { Count::PerOst(per_ost) };
            Ok(count.to_raw())
        }
        n => u16::try_from(n).map_err(|_| Errno::EINVAL),
    }
}

fn pattern_from(pattern: Pattern) -> u64 {
    match pattern {
        Pattern(0) => DEFAULT,
        Pattern::RAID0 => RAID0,
        Pattern::MDT => MDT,
        Pattern::RAID0_OVERSTRIPED => OVERSTRIPING,
        // Unknown bits whose value has a meaning as a number of the interface.
        Pattern(other) if matches!(u64::from(other), MDT | OVERSTRIPING) => INVALID,
        Pattern(other) => u64::from(other),
    }
}

/// Returns the bits of a pattern. For [`DEFAULT`] they are those of Lustre's default.
pub fn pattern_to(pattern: u64) -> Pattern {
    match pattern {
        DEFAULT | RAID0 => Pattern::RAID0,
        MDT => Pattern::MDT,
        OVERSTRIPING => Pattern::RAID0_OVERSTRIPED,
        other => Pattern(other as u32),
    }
}

/// Encodes a request for this layout.
///
/// # Errors
/// EINVAL: a list of OSTs with gaps, or of another length than the stripe count; a component on the
/// MDT without an end; an invalid pattern. E2BIG: more than 65,536 bytes.
pub fn encode(layout: &Layout) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if layout.composite {
        bytes = encode_composite(layout)?;
    } else {
        request(layout.current())?.encode(&mut bytes);
    }
    if bytes.len() > LAYOUT_BYTES_MAX { Err(Errno::E2BIG) } else { Ok(bytes) }
}

fn encode_composite(layout: &Layout) -> Result<Vec<u8>> {
    let components = layout.components();
    let entry = |c: &Component| {
        let entry = Entry { id: c.id, flags: c.flags, start: c.start, end: c.end, ..Entry::default() };
        entry.with_timestamp(c.timestamp)
    };
    let parts = components.iter().map(|c| Ok((entry(c), request(c)?))).collect::<Result<Vec<_>>>()?;
    let magic = if components.iter().any(Component::is_extension) { Magic::Sel } else { Magic::CompV1 };
    let header = Composite {
        layout_gen: layout.generation,
        flags: layout.flags,
        mirror_count: layout.mirror_count,
        rest: [0; 14],
    };
    Ok(codec::encode_composite(magic, &header, &parts, |(entry, request), out| {
        request.encode(out);
        *entry
    }))
}

/// Encodes a selection of components by id and flags alone. A request with it deletes these
/// components from a file's layout, or sets their flags.
pub fn encode_selection(chosen: &[(u32, u32)]) -> Vec<u8> {
    let marks: Vec<Mark> = chosen.iter().map(|(id, flags)| Mark::from_raw(*id, *flags)).collect();
    Mark::encode(&marks)
}

/// Returns the request for one component.
fn request(c: &Component) -> Result<PlainRequest<'_>> {
    let in_mdt = c.pattern == MDT;
    let osts: &[u32] = if c.specific && !in_mdt { &c.osts } else { &[] };
    let stripe_count = match osts.len() {
        _ if in_mdt => 0,
        0 => count_to(c.stripe_count)?,
        n if c.stripe_count != DEFAULT && c.stripe_count != n as u64 => return Err(Errno::EINVAL),
        n => n as u16,
    };
    if osts.contains(&OST_UNSET) || c.pattern == INVALID || c.pool.len() > POOL_NAME_MAX {
        return Err(Errno::EINVAL);
    }
    let stripe_size = match c.stripe_size {
        // A component on the MDT is one stripe.
        _ if in_mdt => c.end,
        DEFAULT => 0,
        bytes if c.is_extension() => bytes / SEL_UNIT,
        bytes => bytes,
    };
    let gen_or_offset = match c.start_ost {
        _ if in_mdt => ANY_OST,
        DEFAULT => ANY_OST,
        ost => u16::try_from(ost).ok().filter(|ost| *ost != ANY_OST).ok_or(Errno::EINVAL)?,
    };
    let fields = PlainFields {
        pattern: pattern_to(c.pattern),
        stripe_size: u32::try_from(stripe_size).map_err(|_| Errno::EINVAL)?,
        stripe_count,
        gen_or_offset,
        ..PlainFields::default()
    };
    Ok(PlainRequest { fields, pool: &c.pool, osts })
}

#[cfg(test)]
mod tests;
