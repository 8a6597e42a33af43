//! Lustre's structs of a layout: their fields and their places in the bytes. The values of the
//! fields are not checked here.
//!
//! | read as | written by | Lustre's struct |
//! |---|---|---|
//! | [`PlainPart`] | [`PlainRequest`], `write_plain` | `lov_user_md_v1`, `_v3`, `lov_mds_md` |
//! | [`CompositeParts`] | [`encode_composite`] | `lov_comp_md_v1` |
//! | [`Entry`] | [`encode_composite`] | `lov_comp_md_entry_v1` |
//!
//! The bytes to read may be any. Where they end too early, the error is [`LayoutError::Truncated`].

use sheen_wire::Fid;
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, LE, Unaligned,
    byteorder::{U16, U32, U64},
};

use crate::{Composite, LAYOUT_BYTES_MAX, LayoutError, POOL_NAME_MAX, Pattern, Stripe};

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

    /// Whether the layout is composite.
    pub fn is_composite(self) -> bool {
        matches!(self, Magic::CompV1 | Magic::Sel)
    }

    /// Reads the magic number of a layout.
    pub fn of(bytes: &[u8]) -> Result<Magic, LayoutError> {
        if bytes.len() > LAYOUT_BYTES_MAX {
            return Err(LayoutError::TooLarge(bytes.len()));
        }
        let raw = read::<U32<LE>>(bytes)?.0.get();
        Magic::ALL.into_iter().find(|m| *m as u32 == raw).ok_or(LayoutError::BadMagic(raw))
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
/// Largest number of components of a layout that fits into [`LAYOUT_BYTES_MAX`].
pub const COMPONENTS_MAX: usize = (LAYOUT_BYTES_MAX - COMP_HEADER_BYTES) / (COMP_ENTRY_BYTES + V1_BYTES);
const POOL_BYTES: usize = POOL_NAME_MAX + 1;

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
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
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

/// Fields of a plain part before the pool and the objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PlainFields {
    /// `lmm_pattern`.
    pub pattern: Pattern,
    /// Sequence of the file's FID (`lmm_oi`). Requests may have any value.
    pub oi_seq: u64,
    /// Object id of the file's FID (`lmm_oi`). Requests may have any value.
    pub oi_id: u64,
    /// `lmm_stripe_size`.
    pub stripe_size: u32,
    /// `lmm_stripe_count`.
    pub stripe_count: u16,
    /// `lmm_layout_gen` if there are objects, otherwise `lmm_stripe_offset`.
    pub gen_or_offset: u16,
}

/// One plain part: a whole plain layout, or the data of a composite layout's entry.
#[derive(Clone, Copy, Debug)]
pub struct PlainPart<'a> {
    /// [`Magic::V1`], [`Magic::V3`] or [`Magic::Specific`].
    pub magic: Magic,
    /// The fields.
    pub fields: PlainFields,
    /// Name of the pool; empty if there is none.
    pub pool: &'a [u8],
    objects: &'a [u8],
}

/// An object of a plain part. In a request it only names an OST.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Object {
    /// FID of the object.
    pub fid: Fid,
    /// Generation of the OST, which is always 0.
    pub ost_gen: u32,
    /// Index of the OST.
    pub ost: u32,
}

impl<'a> PlainPart<'a> {
    /// Reads a plain part.
    ///
    /// # Errors
    /// [`LayoutError::Truncated`], [`LayoutError::BadMagic`]. [`LayoutError::Unsupported`] for a
    /// foreign layout. [`LayoutError::Malformed`] if it is composite, or the pool's name has no
    /// end.
    pub fn decode(bytes: &'a [u8]) -> Result<PlainPart<'a>, LayoutError> {
        let magic = Magic::of(bytes)?;
        if magic == Magic::Foreign {
            return Err(LayoutError::Unsupported("foreign"));
        }
        let (head, rest) = read::<Head>(bytes)?;
        let (pool, objects) = match magic {
            Magic::V1 => (&[][..], rest),
            Magic::V3 | Magic::Specific => read_pool(rest)?,
            _ => return Err(LayoutError::Malformed("a component is composite")),
        };
        let fields = PlainFields {
            pattern: Pattern(head.pattern.get()),
            oi_seq: head.oi_seq.get(),
            oi_id: head.oi_id.get(),
            stripe_size: head.stripe_size.get(),
            stripe_count: head.stripe_count.get(),
            gen_or_offset: head.gen_or_offset.get(),
        };
        Ok(PlainPart { magic, fields, pool, objects })
    }

    /// Returns the objects that follow the fields, however many the stripe count says. Ignores an
    /// incomplete last one.
    pub fn objects(&self) -> impl ExactSizeIterator<Item = Object> + use<'a> {
        let entries = <[ObjectEntry]>::ref_from_prefix(self.objects).map_or(&[][..], |(entries, _)| entries);
        entries.iter().map(|entry| Object {
            fid: Fid { seq: entry.seq.get(), oid: entry.oid.get(), ver: entry.ver.get() },
            ost_gen: entry.ost_gen.get(),
            ost: entry.ost.get(),
        })
    }

    /// Returns the number of bytes after the fields, a multiple of [`OBJECT_BYTES`] if all objects
    /// are complete.
    pub fn object_bytes(&self) -> usize {
        self.objects.len()
    }
}

/// Reads the name of a pool up to its NUL.
fn read_pool(bytes: &[u8]) -> Result<(&[u8], &[u8]), LayoutError> {
    let need = POOL_BYTES;
    let (name, rest) = bytes.split_at_checked(need).ok_or(LayoutError::Truncated { need, have: bytes.len() })?;
    let end = name.iter().position(|b| *b == 0).ok_or(LayoutError::Malformed("the pool name is not terminated"))?;
    Ok((&name[..end], rest))
}

/// A plain part of a request for a layout. It has no objects, but may list OSTs.
#[derive(Clone, Copy, Debug)]
pub struct PlainRequest<'a> {
    /// The fields.
    pub fields: PlainFields,
    /// Name of the pool, at most [`POOL_NAME_MAX`] bytes; empty for none.
    pub pool: &'a [u8],
    /// Exactly these OSTs; empty for any.
    pub osts: &'a [u32],
}

impl PlainRequest<'_> {
    /// Appends the part to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let magic = match (self.osts.is_empty(), self.pool.is_empty()) {
            (false, _) => Magic::Specific,
            (true, false) => Magic::V3,
            (true, true) => Magic::V1,
        };
        let listed = self.osts.iter().map(|ost| Stripe { object: Fid::ZERO, ost: *ost });
        write_plain(magic, &self.fields, self.pool, listed, out);
    }
}

/// Appends a plain part. [`Magic::V1`] has no room for a pool.
pub(super) fn write_plain(
    magic: Magic,
    fields: &PlainFields,
    pool: &[u8],
    stripes: impl Iterator<Item = Stripe>,
    out: &mut Vec<u8>,
) {
    let head = Head {
        magic: U32::new(magic as u32),
        pattern: U32::new(fields.pattern.0),
        oi_id: U64::new(fields.oi_id),
        oi_seq: U64::new(fields.oi_seq),
        stripe_size: U32::new(fields.stripe_size),
        stripe_count: U16::new(fields.stripe_count),
        gen_or_offset: U16::new(fields.gen_or_offset),
    };
    out.extend_from_slice(head.as_bytes());
    if magic != Magic::V1 {
        let mut name = [0; POOL_BYTES];
        let len = pool.len().min(POOL_NAME_MAX);
        name[..len].copy_from_slice(&pool[..len]);
        out.extend_from_slice(&name);
    }
    for Stripe { object, ost } in stripes {
        let entry = ObjectEntry {
            seq: U64::new(object.seq),
            oid: U32::new(object.oid),
            ver: U32::new(object.ver),
            ost_gen: U32::new(0),
            ost: U32::new(ost),
        };
        out.extend_from_slice(entry.as_bytes());
    }
}

/// Fields of a composite layout's entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Entry {
    /// `lcme_id`.
    pub id: u32,
    /// `lcme_flags`.
    pub flags: u32,
    /// First byte.
    pub start: u64,
    /// Byte after the last.
    pub end: u64,
    /// Offset of the component's data in the layout. Ignored when an entry is encoded.
    pub offset: u32,
    /// `lcme_layout_gen`.
    pub layout_gen: u32,
    /// `lcme_timestamp` ([`Entry::timestamp`]) and reserved bytes.
    pub rest: [u8; 12],
}

impl Entry {
    /// Returns `lcme_timestamp`.
    pub fn timestamp(&self) -> u64 {
        self.rest.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// Returns the entry with another `lcme_timestamp`.
    pub fn with_timestamp(mut self, timestamp: u64) -> Entry {
        if let Some(bytes) = self.rest.first_chunk_mut() {
            *bytes = timestamp.to_le_bytes();
        }
        self
    }
}

/// A composite layout: its header, and its entries with their data.
#[derive(Clone, Copy, Debug)]
pub struct CompositeParts<'a> {
    bytes: &'a [u8],
    header: CompHeader,
    entries: &'a [u8],
}

impl<'a> CompositeParts<'a> {
    /// Reads the header. [`Magic::of`] must have said that the layout is composite.
    ///
    /// # Errors
    /// [`LayoutError::Truncated`].
    pub fn decode(bytes: &'a [u8]) -> Result<CompositeParts<'a>, LayoutError> {
        let (header, entries) = read(bytes)?;
        Ok(CompositeParts { bytes, header, entries })
    }

    /// Returns the header.
    pub fn header(&self) -> Composite {
        Composite {
            layout_gen: self.header.layout_gen.get(),
            flags: self.header.flags.get(),
            mirror_count: self.header.mirror_count.get().saturating_add(1),
            rest: self.header.rest,
        }
    }

    /// Returns the entries, each with its data. The data of several entries may overlap.
    ///
    /// # Errors
    /// [`LayoutError::Truncated`] if an entry is incomplete. [`LayoutError::Malformed`] if its data
    /// lies outside the layout.
    pub fn entries(&self) -> impl Iterator<Item = Result<(Entry, &'a [u8]), LayoutError>> + use<'a> {
        let (bytes, mut entries) = (self.bytes, self.entries);
        (0..self.header.entry_count.get()).map(move |_| -> Result<(Entry, &'a [u8]), LayoutError> {
            let (entry, after) = read::<CompEntry>(entries)?;
            entries = after;
            let offset = entry.offset.get();
            let start = offset as usize;
            let data = start.checked_add(entry.size.get() as usize).and_then(|end| bytes.get(start..end));
            let fields = Entry {
                id: entry.id.get(),
                flags: entry.flags.get(),
                start: entry.start.get(),
                end: entry.end.get(),
                offset,
                layout_gen: entry.layout_gen.get(),
                rest: entry.rest,
            };
            Ok((fields, data.ok_or(LayoutError::Malformed("a component lies outside the layout"))?))
        })
    }

    /// Returns the entries of a layout that has exactly the size that its header says. There is at
    /// least one entry. The total size of the data does not exceed the layout, so that few bytes
    /// cannot claim many objects.
    ///
    /// # Errors
    /// Those of [`CompositeParts::entries`]. [`LayoutError::Truncated`] or
    /// [`LayoutError::Malformed`] if one of these rules is broken.
    pub fn exact_entries(&self) -> Result<Vec<(Entry, &'a [u8])>, LayoutError> {
        let (need, have) = (self.header.size.get() as usize, self.bytes.len());
        if need != have {
            return Err(LayoutError::Truncated { need, have });
        }
        let (mut exact, mut left) = (Vec::new(), have);
        for entry in self.entries() {
            let (entry, data) = entry?;
            left = left.checked_sub(data.len()).ok_or(LayoutError::Malformed("the components overlap"))?;
            exact.push((entry, data));
        }
        if exact.is_empty() { Err(LayoutError::Malformed("the layout has no components")) } else { Ok(exact) }
    }
}

/// Encodes a composite layout of these components. `part` appends the data of a component, or
/// nothing if the entry only selects it, and returns the entry.
pub fn encode_composite<T>(
    magic: Magic,
    header: &Composite,
    components: &[T],
    part: impl Fn(&T, &mut Vec<u8>) -> Entry,
) -> Vec<u8> {
    let first = COMP_HEADER_BYTES + components.len() * COMP_ENTRY_BYTES;
    let (mut entries, mut data) = (Vec::new(), Vec::new());
    for c in components {
        let start = data.len();
        let entry = part(c, &mut data);
        let size = data.len() - start;
        let entry = CompEntry {
            id: U32::new(entry.id),
            flags: U32::new(entry.flags),
            start: U64::new(entry.start),
            end: U64::new(entry.end),
            offset: U32::new(if size > 0 { (first + start) as u32 } else { 0 }),
            size: U32::new(size as u32),
            layout_gen: U32::new(entry.layout_gen),
            rest: entry.rest,
        };
        entries.extend_from_slice(entry.as_bytes());
    }
    let header = CompHeader {
        magic: U32::new(magic as u32),
        size: U32::new((first + data.len()) as u32),
        layout_gen: U32::new(header.layout_gen),
        flags: U16::new(header.flags),
        entry_count: U16::new(u16::try_from(components.len()).unwrap_or(u16::MAX)),
        mirror_count: U16::new(header.mirror_count.saturating_sub(1)),
        rest: header.rest,
    };
    [header.as_bytes(), &entries, &data].concat()
}

/// Returns the length in bytes that a layout states in its first [`COMP_HEADER_BYTES`] bytes. The
/// OSTs that a request lists count; the objects of a plain layout do not, because a request for a
/// file like it needs none.
///
/// # Errors
/// [`LayoutError::Truncated`], [`LayoutError::BadMagic`]. [`LayoutError::Unsupported`] for a
/// foreign layout. [`LayoutError::Malformed`] if no layout has this length.
pub fn stated_len(first: &[u8]) -> Result<usize, LayoutError> {
    let bytes = match Magic::of(first)? {
        Magic::CompV1 | Magic::Sel => read::<CompHeader>(first)?.0.size.get() as usize,
        Magic::Specific => V3_BYTES + usize::from(read::<Head>(first)?.0.stripe_count.get()) * OBJECT_BYTES,
        Magic::V1 => V1_BYTES,
        Magic::V3 => V3_BYTES,
        Magic::Foreign => return Err(LayoutError::Unsupported("foreign")),
    };
    let possible = (V1_BYTES..=LAYOUT_BYTES_MAX).contains(&bytes);
    if possible { Ok(bytes) } else { Err(LayoutError::Malformed("the stated length is impossible")) }
}

/// Returns `lmm_layout_gen` of a plain layout; `None` for other bytes.
pub fn plain_layout_gen(bytes: &[u8]) -> Option<u16> {
    let plain = matches!(Magic::of(bytes), Ok(Magic::V1 | Magic::V3));
    read::<Head>(bytes).ok().filter(|_| plain).map(|(head, _)| head.gen_or_offset.get())
}

/// Sets `lmm_stripe_offset` of a plain layout. Shorter bytes stay as they are.
pub fn set_stripe_offset(plain: &mut [u8], ost: u16) {
    if let Ok((head, _)) = Head::mut_from_prefix(plain) {
        head.gen_or_offset = U16::new(ost);
    }
}
