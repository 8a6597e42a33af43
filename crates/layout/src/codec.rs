//! Lustre's binary forms of layouts: `lov_mds_md_v1`/`_v3`, `lov_user_md`, `lov_comp_md_v1`.
//! Little-endian.
//!
//! Sizes: v1 32 + 24·n bytes, v3 48 + 24·n, composite header 32, entry 48. The tests contain
//! layouts stored by a real Lustre.
//!
//! The header of a plain layout ends with `lmm_layout_gen` in the stored form. As `lustre.lov` it
//! shows 0xffff there ([`Layout::encode_xattr`]), because the same two bytes mean
//! `lmm_stripe_offset` when a layout is set. A restored layout then requests any OST, and not the
//! one whose index equals the generation.

use sheen_wire::Fid;
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, LE, Unaligned,
    byteorder::{U16, U32, U64},
};

use crate::{Component, Composite, LAYOUT_BYTES_MAX, Layout, LayoutError, Pattern, Pool, STRIPES_MAX, Stripe};

mod plain_view;
mod user;

pub(crate) use user::{decode_marks, decode_template, encode_marks, encode_spec, encode_template, user_spec};

/// Magic number: the first four bytes of a layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Magic {
    /// Plain layout without a pool.
    V1 = 0x0BD1_0BD0,
    /// Plain layout with a pool.
    V3 = 0x0BD3_0BD0,
    /// As v3, with a list of OSTs to use. Only in requests.
    Specific = 0x0BD5_0BD0,
    /// Composite layout.
    CompV1 = 0x0BD6_0BD0,
    /// Layout of another storage system.
    Foreign = 0x0BD7_0BD0,
    /// Composite layout with self-extending components.
    Sel = 0x0BD8_0BD0,
}

impl Magic {
    const ALL: [Magic; 6] = [Magic::V1, Magic::V3, Magic::Specific, Magic::CompV1, Magic::Foreign, Magic::Sel];

    fn from_raw(raw: u32) -> Result<Magic, LayoutError> {
        Magic::ALL.into_iter().find(|m| *m as u32 == raw).ok_or(LayoutError::BadMagic(raw))
    }

    /// Reads the magic number of a layout.
    pub fn of(bytes: &[u8]) -> Result<Magic, LayoutError> {
        if bytes.len() > LAYOUT_BYTES_MAX {
            return Err(LayoutError::TooLarge(bytes.len()));
        }
        Magic::from_raw(read::<U32<LE>>(bytes)?.0.get())
    }
}

/// Size of a v1 header, in bytes.
pub const V1_BYTES: usize = size_of::<Head>();
/// Size of a v3 header, in bytes: v1 and the pool's name.
pub const V3_BYTES: usize = V1_BYTES + POOL_BYTES;
/// Size of an object in a layout, in bytes.
pub const OBJECT_BYTES: usize = size_of::<ObjectEntry>();
/// Size of a composite layout's header, in bytes.
pub const COMP_HEADER_BYTES: usize = size_of::<CompHeader>();
/// Size of a composite layout's entry, in bytes. There is one entry per component.
pub const COMP_ENTRY_BYTES: usize = size_of::<CompEntry>();
const POOL_BYTES: usize = 16;

const _: () = assert!(V1_BYTES == 32 && V3_BYTES == 48 && OBJECT_BYTES == 24);
const _: () = assert!(COMP_HEADER_BYTES == 32 && COMP_ENTRY_BYTES == 48);

/// `lov_mds_md_v1` and `lov_user_md_v1` without objects.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    magic: U32<LE>,
    pattern: U32<LE>,
    oi_id: U64<LE>,
    oi_seq: U64<LE>,
    stripe_size: U32<LE>,
    stripe_count: U16<LE>,
    /// `lmm_layout_gen` if there are objects, otherwise `lmm_stripe_offset`.
    gen_or_offset: U16<LE>,
}

/// `lov_ost_data_v1`, with the object id as a FID.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ObjectEntry {
    seq: U64<LE>,
    oid: U32<LE>,
    ver: U32<LE>,
    ost_gen: U32<LE>,
    ost: U32<LE>,
}

/// `lov_comp_md_v1` without entries.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct CompHeader {
    magic: U32<LE>,
    size: U32<LE>,
    layout_gen: U32<LE>,
    flags: U16<LE>,
    entry_count: U16<LE>,
    /// Number of mirrors minus one.
    mirror_count: U16<LE>,
    rest: [u8; 14],
}

/// `lov_comp_md_entry_v1`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct CompEntry {
    id: U32<LE>,
    flags: U32<LE>,
    start: U64<LE>,
    end: U64<LE>,
    offset: U32<LE>,
    size: U32<LE>,
    layout_gen: U32<LE>,
    rest: [u8; 12],
}

/// Reads the struct at the beginning of `bytes`. Returns it and the remaining bytes.
fn read<T: FromBytes + KnownLayout + Immutable + Unaligned>(bytes: &[u8]) -> Result<(T, &[u8]), LayoutError> {
    T::read_from_prefix(bytes).map_err(|_| LayoutError::Truncated { need: size_of::<T>(), have: bytes.len() })
}

fn read_pool(bytes: &[u8]) -> Result<(Option<Pool>, &[u8]), LayoutError> {
    let (name, rest) = read::<[u8; POOL_BYTES]>(bytes)?;
    let end = name.iter().position(|b| *b == 0).ok_or(LayoutError::Malformed("the pool name is not terminated"))?;
    let text = String::from_utf8_lossy(&name[..end]);
    let pool = if text.is_empty() { None } else { Some(Pool::new(&text)?) };
    Ok((pool, rest))
}

fn write_pool(out: &mut Vec<u8>, pool: Option<&Pool>) {
    let mut name = [0; POOL_BYTES];
    if let Some(pool) = pool {
        // The name of a pool has at most 15 bytes.
        name[..pool.as_str().len()].copy_from_slice(pool.as_str().as_bytes());
    }
    out.extend_from_slice(&name);
}

/// Decodes one plain part: a whole plain layout, or the data of a composite layout's entry. Objects
/// are all present or all missing. If a component without objects lists OSTs, they are stored in
/// objects with a FID of zero.
fn decode_plain(bytes: &[u8]) -> Result<Component, LayoutError> {
    let (head, mut rest) = read::<Head>(bytes)?;
    let mut pool = None;
    match Magic::from_raw(head.magic.get())? {
        Magic::V1 => {}
        Magic::V3 => (pool, rest) = read_pool(rest)?,
        Magic::Specific => return Err(LayoutError::Malformed("the layout lists OSTs instead of objects")),
        Magic::CompV1 | Magic::Sel => return Err(LayoutError::Malformed("a component is composite")),
        Magic::Foreign => return Err(LayoutError::Unsupported("foreign")),
    }
    let count = head.stripe_count.get();
    let listed = rest.len() / OBJECT_BYTES;
    if rest.len() % OBJECT_BYTES != 0 || (listed != 0 && listed != usize::from(count)) || listed > STRIPES_MAX {
        let need = bytes.len() - rest.len() + usize::from(count) * OBJECT_BYTES;
        return Err(LayoutError::Truncated { need, have: bytes.len() });
    }
    let mut stripes = Vec::with_capacity(listed);
    while !rest.is_empty() {
        let (entry, after) = read::<ObjectEntry>(rest)?;
        if entry.ost_gen.get() != 0 {
            return Err(LayoutError::Malformed("an OST's generation is not 0"));
        }
        let object = Fid { seq: entry.seq.get(), oid: entry.oid.get(), ver: entry.ver.get() };
        stripes.push(Stripe { object, ost: entry.ost.get() });
        rest = after;
    }
    let oid = u32::try_from(head.oi_id.get()).map_err(|_| LayoutError::Malformed("the file's id exceeds 32 bits"))?;
    Ok(Component {
        pattern: Pattern(head.pattern.get()),
        fid: Fid::new(head.oi_seq.get(), oid),
        stripe_size: head.stripe_size.get(),
        stripe_count: count,
        layout_gen: head.gen_or_offset.get(),
        pool,
        stripes,
        ..Component::whole_file()
    })
}

fn encode_plain(c: &Component, layout_gen: u16, out: &mut Vec<u8>) {
    let magic = if c.pool.is_some() { Magic::V3 } else { Magic::V1 };
    let head = Head {
        magic: U32::new(magic as u32),
        pattern: U32::new(c.pattern.0),
        oi_id: U64::new(u64::from(c.fid.oid)),
        oi_seq: U64::new(c.fid.seq),
        stripe_size: U32::new(c.stripe_size),
        stripe_count: U16::new(c.stripe_count),
        gen_or_offset: U16::new(layout_gen),
    };
    out.extend_from_slice(head.as_bytes());
    if c.pool.is_some() {
        write_pool(out, c.pool.as_ref());
    }
    for stripe in &c.stripes {
        write_object(out, stripe.object, stripe.ost);
    }
}

fn write_object(out: &mut Vec<u8>, object: Fid, ost: u32) {
    let entry = ObjectEntry {
        seq: U64::new(object.seq),
        oid: U32::new(object.oid),
        ver: U32::new(object.ver),
        ost_gen: U32::new(0),
        ost: U32::new(ost),
    };
    out.extend_from_slice(entry.as_bytes());
}

/// An entry of a composite layout, and its data.
type Part<'a> = (CompEntry, &'a [u8]);

/// Reads a composite layout's header and its entries, each with its data. The total size of the
/// data does not exceed `bytes`, so that few bytes cannot claim many objects.
fn read_composite(bytes: &[u8]) -> Result<(CompHeader, Vec<Part<'_>>), LayoutError> {
    let (header, mut entries) = read::<CompHeader>(bytes)?;
    if header.size.get() as usize != bytes.len() {
        return Err(LayoutError::Truncated { need: header.size.get() as usize, have: bytes.len() });
    }
    let count = usize::from(header.entry_count.get());
    if count == 0 || count * COMP_ENTRY_BYTES > entries.len() {
        return Err(LayoutError::Malformed("the component entries exceed the layout"));
    }
    let mut parts = Vec::with_capacity(count);
    let mut left = bytes.len();
    for _ in 0..count {
        let (entry, after) = read::<CompEntry>(entries)?;
        entries = after;
        let start = entry.offset.get() as usize;
        let part = start.checked_add(entry.size.get() as usize).and_then(|end| bytes.get(start..end));
        let part = part.ok_or(LayoutError::Malformed("a component lies outside the layout"))?;
        left = left.checked_sub(part.len()).ok_or(LayoutError::Malformed("the components overlap"))?;
        parts.push((entry, part));
    }
    Ok((header, parts))
}

fn decode_composite(bytes: &[u8]) -> Result<Layout, LayoutError> {
    let (header, parts) = read_composite(bytes)?;
    let component = |(entry, part): Part<'_>| {
        Ok(Component {
            id: entry.id.get(),
            flags: entry.flags.get(),
            start: entry.start.get(),
            end: entry.end.get(),
            entry_gen: entry.layout_gen.get(),
            offset: entry.offset.get(),
            entry_rest: entry.rest,
            ..decode_plain(part)?
        })
    };
    let components: Result<Vec<_>, LayoutError> = parts.into_iter().map(component).collect();
    let composite = Composite {
        layout_gen: header.layout_gen.get(),
        flags: header.flags.get(),
        mirror_count: header.mirror_count.get().saturating_add(1),
        rest: header.rest,
    };
    Ok(Layout::assemble(Some(composite), components?))
}

fn encode_composite(composite: &Composite, components: &[Component], gen_of: impl Fn(&Component) -> u16) -> Vec<u8> {
    let mut parts = Vec::new();
    let mut entries = Vec::new();
    let first_part = COMP_HEADER_BYTES + components.len() * COMP_ENTRY_BYTES;
    for c in components {
        let offset = first_part + parts.len();
        encode_plain(c, gen_of(c), &mut parts);
        let entry = CompEntry {
            id: U32::new(c.id),
            flags: U32::new(c.flags),
            start: U64::new(c.start),
            end: U64::new(c.end),
            offset: U32::new(offset as u32),
            size: U32::new((first_part + parts.len() - offset) as u32),
            layout_gen: U32::new(c.entry_gen),
            rest: c.entry_rest,
        };
        entries.extend_from_slice(entry.as_bytes());
    }
    let header = CompHeader {
        magic: U32::new(Magic::CompV1 as u32),
        size: U32::new((first_part + parts.len()) as u32),
        layout_gen: U32::new(composite.layout_gen),
        flags: U16::new(composite.flags),
        entry_count: U16::new(components.len() as u16),
        mirror_count: U16::new(composite.mirror_count.saturating_sub(1)),
        rest: composite.rest,
    };
    [header.as_bytes(), &entries, &parts].concat()
}

impl Layout {
    /// Decodes a stored layout. [`Layout::check_usable`] tells whether it can be mapped.
    pub fn decode(bytes: &[u8]) -> Result<Layout, LayoutError> {
        match Magic::of(bytes)? {
            Magic::CompV1 | Magic::Sel => decode_composite(bytes),
            _ => Ok(Layout::assemble(None, vec![decode_plain(bytes)?])),
        }
    }

    /// Encodes the layout for storage and exchange.
    pub fn encode(&self) -> Vec<u8> {
        self.encode_with(|c| c.layout_gen)
    }

    /// Encodes the layout for `lustre.lov` and `trusted.lov`: without the generation of plain
    /// parts.
    pub fn encode_xattr(&self) -> Vec<u8> {
        self.encode_with(|c| if c.is_instantiated() && !c.stripes.is_empty() { u16::MAX } else { c.layout_gen })
    }

    /// Returns the size of [`Layout::encode`], in bytes.
    pub fn encoded_len(&self) -> usize {
        let part = |c: &Component| {
            let header = if c.pool.is_some() { V3_BYTES } else { V1_BYTES };
            header + c.stripes.len() * OBJECT_BYTES
        };
        let parts: usize = self.components().iter().map(part).sum();
        match self.composite() {
            Some(_) => COMP_HEADER_BYTES + self.components().len() * COMP_ENTRY_BYTES + parts,
            None => parts,
        }
    }

    fn encode_with(&self, gen_of: impl Fn(&Component) -> u16) -> Vec<u8> {
        if let Some(composite) = self.composite() {
            return encode_composite(composite, self.components(), gen_of);
        }
        let mut out = Vec::with_capacity(self.encoded_len());
        for c in self.components() {
            encode_plain(c, gen_of(c), &mut out);
        }
        out
    }
}

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod tests;
