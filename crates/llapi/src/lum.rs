//! Layouts as bytes: `lov_user_md` v1, v3 and with a list of OSTs, `lov_comp_md_v1`. Little-endian
//! on every machine, as in the attribute `lustre.lov`.
//!
//! Sizes: v1 32 bytes, v3 48, an object 24; composite header 32, entry 48. Bytes to decode may come
//! from anywhere: invalid ones are refused with an errno. Encoded bytes are a request for a layout.
//! It contains no objects, but may contain a list of OSTs.

use sheen_layout::{LAYOUT_BYTES_MAX, STRIPES_MAX, codec::Magic};
use sheen_wire::{Errno, Result};
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, LE, Unaligned,
    byteorder::{U16, U32, U64},
};

use crate::layout::{
    Component, DEFAULT, EXTENSION_UNIT, INVALID, Layout, MDT, OST_UNSET, OVERSTRIPING, RAID0, WIDE, WIDE_MAX, flag,
};

/// The objects of a layout do not agree with its stripe counts.
pub const EBADSLT: Errno = Errno(57);

const PLAIN_BYTES: usize = size_of::<Plain>();
const POOL_BYTES: usize = 16;
const OBJECT_BYTES: usize = size_of::<Object>();
const HEADER_BYTES: usize = size_of::<Header>();
const ENTRY_BYTES: usize = size_of::<Entry>();
const _: () = assert!(PLAIN_BYTES == 32 && OBJECT_BYTES == 24 && HEADER_BYTES == 32 && ENTRY_BYTES == 48);

/// Largest number of components whose layout fits into [`LAYOUT_BYTES_MAX`].
pub const COMPONENTS_MAX: usize = (LAYOUT_BYTES_MAX - HEADER_BYTES) / (ENTRY_BYTES + PLAIN_BYTES);

/// Bits of `lmm_pattern`.
const PATTERN_RAID0: u32 = 1;
const PATTERN_MDT: u32 = 0x100;
const PATTERN_OVERSTRIPED: u32 = 0x201;
/// `lmm_stripe_offset` if no OST is given.
const ANY_OST: u16 = u16::MAX;

/// `lov_user_md_v1` without objects. In v3 the pool's name follows.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Plain {
    magic: U32<LE>,
    pattern: U32<LE>,
    oi: [u8; 16],
    stripe_size: U32<LE>,
    stripe_count: U16<LE>,
    /// The first OST. With objects: a generation, or unused.
    offset: U16<LE>,
}

/// `lov_user_ost_data_v1`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Object {
    oi: [u8; 16],
    generation: U32<LE>,
    ost: U32<LE>,
}

/// `lov_comp_md_v1` without entries.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    magic: U32<LE>,
    size: U32<LE>,
    generation: U32<LE>,
    flags: U16<LE>,
    entry_count: U16<LE>,
    /// Number of mirrors, minus one.
    mirror_count: U16<LE>,
    rest: [u8; 14],
}

/// `lov_comp_md_entry_v1`.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Entry {
    id: U32<LE>,
    flags: U32<LE>,
    start: U64<LE>,
    end: U64<LE>,
    offset: U32<LE>,
    size: U32<LE>,
    generation: U32<LE>,
    timestamp: U64<LE>,
    rest: [u8; 4],
}

fn head<T: FromBytes + KnownLayout + Immutable + Unaligned>(bytes: &[u8]) -> Result<(T, &[u8])> {
    T::read_from_prefix(bytes).map_err(|_| Errno::ERANGE)
}

/// Returns the magic. ERANGE: too short, or of no known kind. EOPNOTSUPP: a foreign layout.
fn magic(bytes: &[u8]) -> Result<Magic> {
    match Magic::of(bytes).map_err(|_| Errno::ERANGE)? {
        Magic::Foreign => Err(Errno::EOPNOTSUPP),
        magic => Ok(magic),
    }
}

/// Returns the length in bytes that a layout states in its first bytes.
///
/// Errors: as [`decode`].
pub fn length(first: &[u8; HEADER_BYTES]) -> Result<usize> {
    let magic = magic(first)?;
    let bytes = match magic {
        Magic::CompV1 | Magic::Sel => head::<Header>(first)?.0.size.get() as usize,
        // A request for a file like this one needs no objects, but it needs a list of OSTs.
        Magic::Specific => {
            PLAIN_BYTES + POOL_BYTES + usize::from(head::<Plain>(first)?.0.stripe_count.get()) * OBJECT_BYTES
        }
        Magic::V1 => PLAIN_BYTES,
        _ => PLAIN_BYTES + POOL_BYTES,
    };
    if (HEADER_BYTES..=LAYOUT_BYTES_MAX).contains(&bytes) { Ok(bytes) } else { Err(Errno::EINVAL) }
}

/// Decodes a layout. `check`: it belongs to a file, which must have as many objects as stripes.
///
/// # Errors
/// ERANGE: truncated, or no layout. EOPNOTSUPP: a foreign layout. EINVAL: it is inconsistent.
/// [`EBADSLT`]: the check fails.
pub fn decode(bytes: &[u8], check: bool) -> Result<Layout> {
    match magic(bytes)? {
        Magic::CompV1 | Magic::Sel => decode_composite(bytes, check),
        _ => {
            let (component, stripes) = decode_plain(bytes)?;
            if check && component.osts.len() != stripes {
                return Err(EBADSLT);
            }
            Ok(Layout::plain(component))
        }
    }
}

fn decode_composite(bytes: &[u8], check: bool) -> Result<Layout> {
    let (header, mut entries) = head::<Header>(bytes)?;
    let mut components = Vec::new();
    for _ in 0..header.entry_count.get() {
        let (entry, after) = head::<Entry>(entries)?;
        entries = after;
        let from = entry.offset.get() as usize;
        let part = from.checked_add(entry.size.get() as usize).and_then(|to| bytes.get(from..to));
        let (plain, stripes) = decode_plain(part.ok_or(Errno::EINVAL)?)?;
        let flags = entry.flags.get();
        let objects = if flags & flag::INIT != 0 { stripes } else { 0 };
        if check && plain.osts.len() != objects {
            return Err(EBADSLT);
        }
        components.push(Component {
            id: entry.id.get(),
            flags,
            start: entry.start.get(),
            end: entry.end.get(),
            timestamp: entry.timestamp.get(),
            stripe_size: match plain.stripe_size {
                size if flags & flag::EXTENSION != 0 && size != DEFAULT => size * EXTENSION_UNIT,
                size => size,
            },
            ..plain
        });
    }
    let mut layout = Layout::composite(components)?;
    layout.generation = header.generation.get();
    layout.flags = header.flags.get();
    layout.mirror_count = header.mirror_count.get().saturating_add(1);
    Ok(layout)
}

/// Returns the component, and the number of objects that it has once they exist.
fn decode_plain(bytes: &[u8]) -> Result<(Component, usize)> {
    let magic = magic(bytes)?;
    let (plain, mut rest) = head::<Plain>(bytes)?;
    let mut pool = Vec::new();
    match magic {
        Magic::V1 => {}
        Magic::V3 | Magic::Specific => {
            let name;
            (name, rest) = head::<[u8; POOL_BYTES]>(rest)?;
            pool = name.split(|b| *b == 0).next().unwrap_or_default().to_vec();
            if pool.len() == POOL_BYTES {
                return Err(Errno::EINVAL);
            }
        }
        // A component that is itself composite.
        _ => return Err(Errno::EINVAL),
    }
    if rest.len() / OBJECT_BYTES > STRIPES_MAX {
        return Err(Errno::EINVAL);
    }
    let osts: Vec<u32> =
        rest.chunks_exact(OBJECT_BYTES).map(|object| Ok(head::<Object>(object)?.0.ost.get())).collect::<Result<_>>()?;
    let start_ost = match (osts.first(), plain.offset.get()) {
        (Some(first), _) => u64::from(*first),
        (None, ANY_OST) => DEFAULT,
        (None, offset) => u64::from(offset),
    };
    let stripes = plain.stripe_count.get();
    let component = Component {
        pattern: pattern_from(plain.pattern.get()),
        stripe_size: match plain.stripe_size.get() {
            0 => DEFAULT,
            bytes => u64::from(bytes),
        },
        stripe_count: count_from(stripes),
        start_ost,
        osts,
        specific: magic == Magic::Specific,
        pool,
        ..Component::default()
    };
    Ok((component, usize::from(stripes)))
}

fn count_from(raw: u16) -> u64 {
    let wide = WIDE + u64::from(u16::MAX - raw);
    match raw {
        0 => DEFAULT,
        _ if wide <= WIDE_MAX => wide,
        n => u64::from(n),
    }
}

fn count_to(count: u64) -> Result<u16> {
    match count {
        DEFAULT => Ok(0),
        WIDE..=WIDE_MAX => Ok(u16::MAX - (count - WIDE) as u16),
        n => u16::try_from(n).map_err(|_| Errno::EINVAL),
    }
}

fn pattern_from(bits: u32) -> u64 {
    match bits {
        0 => DEFAULT,
        PATTERN_RAID0 => RAID0,
        PATTERN_MDT => MDT,
        PATTERN_OVERSTRIPED => OVERSTRIPING,
        // Unknown bits whose value has a meaning as a number of the interface.
        other if matches!(u64::from(other), MDT | OVERSTRIPING) => INVALID,
        other => u64::from(other),
    }
}

/// Returns the bits of a pattern. For [`DEFAULT`] they are those of Lustre's default.
pub fn pattern_to(pattern: u64) -> u32 {
    match pattern {
        DEFAULT | RAID0 => PATTERN_RAID0,
        MDT => PATTERN_MDT,
        OVERSTRIPING => PATTERN_OVERSTRIPED,
        other => other as u32,
    }
}

/// Encodes a request for this layout.
///
/// # Errors
/// EINVAL: a list of OSTs with gaps, or of another length than the stripe count; a component on the
/// MDT without an end; an invalid pattern. E2BIG: more than 65,536 bytes.
pub fn encode(layout: &Layout) -> Result<Vec<u8>> {
    let components = layout.components();
    let mut parts = Vec::new();
    if !layout.composite {
        encode_plain(layout.current(), &mut parts)?;
        return within_bounds(parts);
    }
    let first = HEADER_BYTES + components.len() * ENTRY_BYTES;
    let mut entries = Vec::with_capacity(components.len());
    for c in components {
        let offset = first + parts.len();
        encode_plain(c, &mut parts)?;
        entries.push(Entry {
            id: U32::new(c.id),
            flags: U32::new(c.flags),
            start: U64::new(c.start),
            end: U64::new(c.end),
            offset: U32::new(offset as u32),
            size: U32::new((first + parts.len() - offset) as u32),
            timestamp: U64::new(c.timestamp),
            ..Entry::default()
        });
    }
    let magic = if components.iter().any(Component::is_extension) { Magic::Sel } else { Magic::CompV1 };
    let header = Header {
        magic: U32::new(magic as u32),
        size: U32::new((first + parts.len()) as u32),
        generation: U32::new(layout.generation),
        flags: U16::new(layout.flags),
        entry_count: U16::new(components.len() as u16),
        mirror_count: U16::new(layout.mirror_count.saturating_sub(1)),
        rest: [0; 14],
    };
    within_bounds([header.as_bytes(), entries.as_bytes(), &parts].concat())
}

/// Encodes a selection of components by id and flags alone. A request with it deletes these
/// components from a file's layout, or sets their flags.
pub fn encode_selection(chosen: &[(u32, u32)]) -> Result<Vec<u8>> {
    let entry = |(id, flags): &(u32, u32)| Entry { id: U32::new(*id), flags: U32::new(*flags), ..Entry::default() };
    let entries: Vec<Entry> = chosen.iter().map(entry).collect();
    let header = Header {
        magic: U32::new(Magic::CompV1 as u32),
        size: U32::new((HEADER_BYTES + chosen.len() * ENTRY_BYTES) as u32),
        generation: U32::new(0),
        flags: U16::new(0),
        entry_count: U16::new(chosen.len() as u16),
        mirror_count: U16::new(0),
        rest: [0; 14],
    };
    within_bounds([header.as_bytes(), entries.as_bytes()].concat())
}

fn within_bounds(bytes: Vec<u8>) -> Result<Vec<u8>> {
    if bytes.len() > LAYOUT_BYTES_MAX { Err(Errno::E2BIG) } else { Ok(bytes) }
}

fn encode_plain(c: &Component, out: &mut Vec<u8>) -> Result<()> {
    let in_mdt = c.pattern == MDT;
    let listed: &[u32] = if c.specific && !in_mdt { &c.osts } else { &[] };
    let count = match listed.len() {
        _ if in_mdt => 0,
        0 => count_to(c.stripe_count)?,
        n if c.stripe_count != DEFAULT && c.stripe_count != n as u64 => return Err(Errno::EINVAL),
        n => n as u16,
    };
    if listed.contains(&OST_UNSET) || c.pattern == INVALID {
        return Err(Errno::EINVAL);
    }
    let size = match c.stripe_size {
        // A component on the MDT is one stripe.
        _ if in_mdt => c.end,
        DEFAULT => 0,
        bytes if c.is_extension() => bytes / EXTENSION_UNIT,
        bytes => bytes,
    };
    let magic = match (listed.is_empty(), c.pool.is_empty()) {
        (false, _) => Magic::Specific,
        (true, false) => Magic::V3,
        (true, true) => Magic::V1,
    };
    let plain = Plain {
        magic: U32::new(magic as u32),
        pattern: U32::new(pattern_to(c.pattern)),
        oi: [0; 16],
        stripe_size: U32::new(u32::try_from(size).map_err(|_| Errno::EINVAL)?),
        stripe_count: U16::new(count),
        offset: U16::new(match c.start_ost {
            _ if in_mdt => ANY_OST,
            DEFAULT => ANY_OST,
            ost => u16::try_from(ost).ok().filter(|ost| *ost != ANY_OST).ok_or(Errno::EINVAL)?,
        }),
    };
    out.extend_from_slice(plain.as_bytes());
    if magic != Magic::V1 {
        let mut name = [0; POOL_BYTES];
        let room = name.get_mut(..c.pool.len()).ok_or(Errno::EINVAL)?;
        room.copy_from_slice(&c.pool);
        out.extend_from_slice(&name);
    }
    for ost in listed {
        let object = Object { oi: [0; 16], generation: U32::new(0), ost: U32::new(*ost) };
        out.extend_from_slice(object.as_bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
