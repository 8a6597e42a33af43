//! Binary form of a file's layout: `lov_mds_md`, plain or in a `lov_comp_md_v1`.
//!
//! The header of a plain layout ends with `lmm_layout_gen` in the stored form. As `lustre.lov` it
//! shows 0xffff there ([`Layout::encode_xattr`]), because the same two bytes mean
//! `lmm_stripe_offset` when a layout is set. A restored layout then requests any OST, and not the
//! one whose index equals the generation.

use sheen_wire::Fid;

use super::structs::{
    COMP_ENTRY_BYTES, COMP_HEADER_BYTES, CompositeParts, Entry, Magic, OBJECT_BYTES, PlainFields, PlainPart, V1_BYTES,
    V3_BYTES, encode_composite, write_plain,
};
use crate::{Component, Layout, LayoutError, Pool, STRIPES_MAX, Stripe, component::ANY_OST};

impl Layout {
    /// Decodes a stored layout. [`Layout::check_usable`] tells whether it can be mapped.
    pub fn decode(bytes: &[u8]) -> Result<Layout, LayoutError> {
        if Magic::of(bytes)?.is_composite() {
            return decode_composite(bytes);
        }
        Ok(Layout::assemble(None, vec![decode_plain(bytes)?]))
    }

    /// Encodes the layout for storage and exchange.
    pub fn encode(&self) -> Vec<u8> {
        self.encode_with(|c| c.layout_gen)
    }

    /// Encodes the layout for `lustre.lov` and `trusted.lov`: without the generation of plain
    /// parts.
    pub fn encode_xattr(&self) -> Vec<u8> {
        self.encode_with(|c| if c.is_instantiated() && !c.stripes.is_empty() { ANY_OST } else { c.layout_gen })
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
            return encode_composite(Magic::CompV1, composite, self.components(), |c, out| {
                encode_plain(c, gen_of(c), out);
                let Component { id, flags, start, end, offset, .. } = *c;
                Entry { id, flags, start, end, offset, layout_gen: c.entry_gen, rest: c.entry_rest }
            });
        }
        let mut out = Vec::with_capacity(self.encoded_len());
        for c in self.components() {
            encode_plain(c, gen_of(c), &mut out);
        }
        out
    }
}

fn decode_composite(bytes: &[u8]) -> Result<Layout, LayoutError> {
    let parts = CompositeParts::decode(bytes)?;
    let component = |(entry, data): (Entry, &[u8])| {
        let Entry { id, flags, start, end, offset, layout_gen: entry_gen, rest: entry_rest } = entry;
        Ok(Component { id, flags, start, end, entry_gen, offset, entry_rest, ..decode_plain(data)? })
    };
    let components: Result<Vec<_>, LayoutError> = parts.exact_entries()?.into_iter().map(component).collect();
    Ok(Layout::assemble(Some(parts.header()), components?))
}

/// Decodes one plain part: a whole plain layout, or the data of a composite layout's entry. Objects
/// are all present or all missing. If a component without objects lists OSTs, they are stored in
/// objects with a FID of zero.
fn decode_plain(bytes: &[u8]) -> Result<Component, LayoutError> {
    let part = PlainPart::decode(bytes)?;
    if part.magic == Magic::Specific {
        return Err(LayoutError::Malformed("the layout lists OSTs instead of objects"));
    }
    let PlainFields { pattern, oi_seq, oi_id, stripe_size, stripe_count, gen_or_offset } = part.fields;
    let objects = part.objects();
    let (listed, count) = (objects.len(), usize::from(stripe_count));
    let whole = part.object_bytes().is_multiple_of(OBJECT_BYTES);
    if !whole || (listed != 0 && listed != count) || listed > STRIPES_MAX {
        let need = bytes.len() - part.object_bytes() + count * OBJECT_BYTES;
        return Err(LayoutError::Truncated { need, have: bytes.len() });
    }
    let mut stripes = Vec::with_capacity(listed);
    for object in objects {
        if object.ost_gen != 0 {
            return Err(LayoutError::Malformed("an OST's generation is not 0"));
        }
        stripes.push(Stripe { object: object.fid, ost: object.ost });
    }
    let oid = u32::try_from(oi_id).map_err(|_| LayoutError::Malformed("the file's id exceeds 32 bits"))?;
    Ok(Component {
        pattern,
        fid: Fid::new(oi_seq, oid),
        stripe_size,
        stripe_count,
        layout_gen: gen_or_offset,
        pool: Pool::decode(part.pool)?,
        stripes,
        ..Component::whole_file()
    })
}

pub(super) fn encode_plain(c: &Component, layout_gen: u16, out: &mut Vec<u8>) {
    let fields = PlainFields {
        pattern: c.pattern,
        oi_seq: c.fid.seq,
        oi_id: u64::from(c.fid.oid),
        stripe_size: c.stripe_size,
        stripe_count: c.stripe_count,
        gen_or_offset: layout_gen,
    };
    let (magic, pool) = match &c.pool {
        Some(pool) => (Magic::V3, pool.as_str()),
        None => (Magic::V1, ""),
    };
    write_plain(magic, &fields, pool.as_bytes(), c.stripes.iter().copied(), out);
}
