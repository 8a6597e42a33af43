//! Mapping between bytes of a file and bytes of its objects, and between object sizes and the size
//! of the file.
//!
//! RAID0: stripe units of `stripe_size` bytes are distributed round robin over the objects. As in
//! Lustre, they are counted from the beginning of the file in every component. So an object of a
//! component that starts later has a hole before that start, and offsets in an object rise with
//! offsets in the file. A component's objects contain no bytes outside its extent.
//!
//! Stripes are positions in [`Layout::stripes`]. Bytes in components without objects have no
//! mapping: readers see a hole, and writers find them by [`Layout::missing`]. Bytes on the MDT
//! ([`Layout::mdt_end`]) map to one stripe, whose object has the file's FID and whose OST is
//! [`MDT_OST`](crate::MDT_OST). An unusable layout ([`Layout::check_usable`]) maps no bytes. In a
//! mirrored layout, bytes are mapped through one mirror.
//!
//! Mapping allocates nothing; the index is allocated when a layout is created. Offsets are below
//! 2^63.

use std::ops::Range;

use sheen_wire::{Fid, ost::OBJECT_SIZE_MAX};

use crate::{Component, Composite, Count, Layout, STRIPE_SIZE_UNIT, STRIPES_MAX, Stripe, layout::check_components};

/// Maximum size of any file, in bytes: the limit of `off_t`.
pub const FILE_SIZE_MAX: u64 = i64::MAX as u64;

/// A contiguous range of bytes in one object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// Index into [`Layout::stripes`].
    pub stripe: usize,
    /// Offset of the first byte in the object.
    pub object_offset: u64,
    /// Offset of the first byte in the file.
    pub file_offset: u64,
    /// Number of bytes, above 0. The range ends at the end of the stripe unit at the latest. In a
    /// component with one stripe it ends at the component's end at the latest.
    pub len: u64,
}

/// Location of a byte of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Index into [`Layout::components`].
    pub component: usize,
    /// Index into [`Layout::stripes`].
    pub stripe: usize,
    /// The object.
    pub object: Fid,
    /// Index of the object's OST.
    pub ost: u32,
    /// Offset of the byte in the object.
    pub offset: u64,
}

/// Index of a layout for mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Index {
    /// Extents of the non-empty components, ascending and adjacent. Empty if the layout
    /// is not usable.
    extents: Vec<Extent>,
    /// Objects of a composite layout. Those of a plain layout are in its component.
    stripes: Vec<Stripe>,
}

/// A non-empty component.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Extent {
    start: u64,
    end: u64,
    /// Stripe size in units of 64 KiB.
    unit: Divisor,
    /// Number of objects; 0 before instantiation.
    count: Divisor,
    /// Position of the first object among all objects.
    first: usize,
    component: usize,
    on_mdt: bool,
    /// [`file_size_max`].
    file_size_max: u64,
}

/// log2 of [`STRIPE_SIZE_UNIT`], of which all stripe sizes are multiples.
const UNIT_SHIFT: u32 = STRIPE_SIZE_UNIT.trailing_zeros();

/// Maximum number of extents that are counted linearly, which takes no branch that depends on the
/// offset. More extents are searched. Counting is twice as fast at random offsets with 3 to 6
/// extents.
const FEW: usize = 8;

/// Division by a multiplication.
///
/// With m = floor(2^63 / d) + 1 = (2^63 + e) / d, 0 < e <= d, the result is floor(n * m / 2^63) =
/// floor(n / d + n * e / (d * 2^63)). It equals floor(n / d) while n * e < 2^63. So the result is
/// exact for n < 2^47 and d <= 2^16. This covers offsets below 2^63 in units of 64 KiB, stripe
/// sizes in the same units, and numbers of stripes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Divisor {
    by: u64,
    magic: u64,
}

impl Divisor {
    fn new(by: u64) -> Divisor {
        debug_assert!(by <= 1 << 16);
        Divisor { by, magic: (1_u64 << 63) / by.max(1) + 1 }
    }

    /// Returns quotient and remainder.
    fn divide(self, n: u64) -> (u64, u64) {
        let quotient = ((u128::from(n) * u128::from(self.magic)) >> 63) as u64;
        (quotient, n - quotient * self.by)
    }
}

impl Index {
    /// Builds the index. `mirror`: the mirror to map through, if there are several.
    pub(crate) fn of(composite: Option<&Composite>, components: &[Component], mirror: Option<u16>) -> Index {
        let mut extents = Vec::new();
        let mut first = 0;
        let of_mirror = |c: &&Component| mirror.is_none_or(|id| c.mirror_id() == id);
        let several = composite.is_some_and(|c| c.mirror_count > 1) && mirror.is_none();
        let usable = !several && check_components(composite.is_some(), components.iter().filter(of_mirror)).is_ok();
        for (component, c) in components.iter().enumerate().filter(|(_, c)| of_mirror(c)) {
            let count = c.stripe_list().len();
            // A Data-on-MDT component has one stripe, so any stripe size will do.
            let unit = if c.is_on_mdt() { 1 } else { c.stripe_size >> UNIT_SHIFT };
            if usable && c.start < c.end {
                extents.push(Extent {
                    start: c.start,
                    end: c.end,
                    unit: Divisor::new(u64::from(unit)),
                    count: Divisor::new(count as u64),
                    first,
                    component,
                    on_mdt: c.is_on_mdt(),
                    file_size_max: file_size_max(c),
                });
            }
            first += count;
        }
        let mapped = components.iter().filter(of_mirror);
        let flat = composite.is_some().then(|| mapped.flat_map(|c| c.stripe_list().into_owned()).collect());
        Index { extents, stripes: flat.unwrap_or_default() }
    }

    pub(crate) fn stripes(&self) -> &[Stripe] {
        &self.stripes
    }

    /// Returns the extents from the one that contains `offset` on.
    fn from(&self, offset: u64) -> &[Extent] {
        let all = &self.extents[..];
        let before = match all.len() {
            0..=FEW => all.iter().filter(|e| e.end <= offset).count(),
            _ => all.partition_point(|e| e.end <= offset),
        };
        &all[before..]
    }

    /// Returns the extent that contains a stripe, and the stripe's index in the extent.
    fn of_stripe(&self, stripe: usize) -> Option<(&Extent, u64)> {
        let extent = self.extents.iter().find(|e| e.stripes().contains(&stripe))?;
        Some((extent, (stripe - extent.first) as u64))
    }
}

/// Returns the maximum size of a file that ends in this component, or the component's start, such
/// that no object exceeds [`OBJECT_SIZE_MAX`].
fn file_size_max(c: &Component) -> u64 {
    if c.is_on_mdt() || c.is_extension() {
        return c.end;
    }
    let count = match Count::from_raw(c.stripe_count) {
        _ if !c.stripes.is_empty() => c.stripes.len(),
        Some(Count::Stripes(n)) => usize::from(n),
        _ => STRIPES_MAX,
    };
    // The first object is the first to become full. The file ends with the truncated last unit of
    // that object.
    let unit = u64::from(c.stripe_size.max(1));
    let (rows, within) = (OBJECT_SIZE_MAX / unit, OBJECT_SIZE_MAX % unit);
    let size = u128::from(rows) * count as u128 * u128::from(unit) + u128::from(within);
    u64::try_from(size).unwrap_or(u64::MAX).clamp(c.start, c.end)
}

impl Extent {
    fn has_objects(&self) -> bool {
        self.count.by > 0
    }

    fn stripes(&self) -> Range<usize> {
        self.first..self.first + self.count.by as usize
    }

    /// Returns the stripe size in bytes.
    fn stripe_size(&self) -> u64 {
        (self.unit.by << UNIT_SHIFT).max(1)
    }

    /// Returns the index of the stripe that contains the byte, and the byte's offset in its object.
    /// Only for extents with objects. `offset` is below 2^63.
    fn place(&self, offset: u64) -> (u64, u64) {
        let (unit, _) = self.unit.divide(offset >> UNIT_SHIFT);
        let (row, turn) = self.count.divide(unit);
        // Before this byte, the object has `unit - row` fewer stripe units than the file.
        (turn, offset - (((unit - row) * self.unit.by) << UNIT_SHIFT))
    }

    /// Returns the number of bytes of stripe `turn` before file offset `offset`.
    fn before(&self, offset: u64, turn: u64) -> u64 {
        let (unit, count) = (self.stripe_size(), self.count.by.max(1));
        let (units, within) = (offset / unit, offset % unit);
        let (rows, at) = (units / count, units % count);
        rows * unit
            + match turn.cmp(&at) {
                std::cmp::Ordering::Less => unit,
                std::cmp::Ordering::Equal => within,
                std::cmp::Ordering::Greater => 0,
            }
    }

    /// Returns the file offset of a byte of stripe `turn`, even outside the extent. At most
    /// [`FILE_SIZE_MAX`].
    fn after(&self, object_offset: u64, turn: u64) -> u64 {
        let unit = self.stripe_size();
        let (row, within) = (object_offset / unit, object_offset % unit);
        let units = u128::from(row) * u128::from(self.count.by) + u128::from(turn);
        let offset = units * u128::from(unit) + u128::from(within);
        u64::try_from(offset).unwrap_or(u64::MAX).min(FILE_SIZE_MAX)
    }
}

/// Iterator over the chunks of a range, in file order.
#[derive(Clone, Debug)]
pub struct Chunks<'a> {
    extents: &'a [Extent],
    offset: u64,
    end: u64,
}

impl Iterator for Chunks<'_> {
    type Item = Chunk;

    fn next(&mut self) -> Option<Chunk> {
        loop {
            let (extent, rest) = self.extents.split_first()?;
            let end = self.end.min(extent.end);
            if self.offset < end && extent.has_objects() {
                return Some(self.chunk(extent, end));
            }
            if end == self.end {
                return None;
            }
            self.offset = end;
            self.extents = rest;
        }
    }
}

impl Chunks<'_> {
    /// Returns the next chunk, up to `end`, in an extent that has objects.
    fn chunk(&mut self, extent: &Extent, end: u64) -> Chunk {
        let file_offset = self.offset;
        let mut len = end - file_offset;
        if extent.count.by == 1 {
            self.offset = end;
            return Chunk { stripe: extent.first, object_offset: file_offset, file_offset, len };
        }
        let (turn, object_offset) = extent.place(file_offset);
        let (_, unit_within) = extent.unit.divide(file_offset >> UNIT_SHIFT);
        let within = (unit_within << UNIT_SHIFT) + file_offset % u64::from(STRIPE_SIZE_UNIT);
        len = len.min(extent.stripe_size() - within);
        self.offset += len;
        Chunk { stripe: extent.first + turn as usize, object_offset, file_offset, len }
    }
}

impl Layout {
    /// Maps the bytes `[offset, offset + len)` to objects. Skips bytes without objects (holes) and
    /// bytes past 2^63.
    pub fn map(&self, offset: u64, len: u64) -> Chunks<'_> {
        let end = offset.saturating_add(len).min(FILE_SIZE_MAX);
        Chunks { extents: self.index().from(offset), offset, end: end.max(offset) }
    }

    /// Returns the location of one byte, if it has an object.
    pub fn locate(&self, offset: u64) -> Option<Place> {
        let extent = self.index().from(offset).first()?;
        if !extent.has_objects() || offset >= FILE_SIZE_MAX {
            return None;
        }
        let (turn, offset) = extent.place(offset);
        let stripe = extent.first + turn as usize;
        let Stripe { object, ost } = *self.stripes().get(stripe)?;
        Some(Place { component: extent.component, stripe, object, ost, offset })
    }

    /// Returns the extent of the first component in `[offset, offset + len)` that has no objects
    /// yet. A writer must request its objects from the MDT before writing there. Ranges past
    /// [`Layout::end`] are not reported, because they cannot get objects (ENODATA).
    pub fn missing(&self, offset: u64, len: u64) -> Option<(u64, u64)> {
        let end = offset.saturating_add(len);
        let mut inside = self.index().from(offset).iter().take_while(|e| e.start < end && offset < end);
        inside.find(|e| !e.has_objects()).map(|e| (e.start, e.end))
    }

    /// Returns the number of bytes at the beginning of the file that are on the MDT; 0 if all bytes
    /// are on OSTs.
    pub fn mdt_end(&self) -> u64 {
        self.index().extents.first().map_or(0, |e| if e.on_mdt { e.end } else { 0 })
    }

    /// Returns the size of the object of stripe `stripe` in a file of `file_size` bytes without
    /// holes. It is one past the file's last byte in this object, or 0 if the object contains none.
    pub fn object_size(&self, file_size: u64, stripe: usize) -> u64 {
        let Some((extent, turn)) = self.index().of_stripe(stripe) else { return 0 };
        let size = extent.before(file_size.min(extent.end), turn);
        // Bytes before the component's start do not count.
        if file_size > extent.start && size > extent.before(extent.start, turn) { size } else { 0 }
    }

    /// Returns the object offset of stripe `stripe`'s first byte at or after file offset `offset`.
    /// If the component lies before `offset`, returns one past its last byte in the object.
    pub fn object_offset(&self, offset: u64, stripe: usize) -> u64 {
        let Some((extent, turn)) = self.index().of_stripe(stripe) else { return 0 };
        extent.before(offset.clamp(extent.start, extent.end), turn)
    }

    /// Returns the file offset of byte `object_offset` of the object of stripe `stripe`, at most
    /// [`FILE_SIZE_MAX`]. Bytes before the component's extent are mapped to its start,
    /// bytes behind it to its end.
    pub fn file_offset(&self, stripe: usize, object_offset: u64) -> u64 {
        let Some((extent, turn)) = self.index().of_stripe(stripe) else { return FILE_SIZE_MAX };
        extent.after(object_offset, turn).clamp(extent.start, extent.end).min(FILE_SIZE_MAX)
    }

    /// Returns the minimum size of the file, given the size of one of its objects. 0 if the object
    /// has no byte of its component. The file's size is the maximum over all stripes.
    pub fn file_size(&self, stripe: usize, object_size: u64) -> u64 {
        let (Some(last), Some((extent, turn))) = (object_size.checked_sub(1), self.index().of_stripe(stripe)) else {
            return 0;
        };
        let last = extent.after(last, turn);
        if last < extent.start { 0 } else { (last + 1).min(extent.end).min(FILE_SIZE_MAX) }
    }

    /// Returns the maximum size of a file of this layout. No object may exceed [`OBJECT_SIZE_MAX`],
    /// and the file must not exceed 2^63 - 1 or [`Layout::end`]. If the number of a component's
    /// objects is not known yet, it counts as sufficient. For a mirrored layout this is the minimum
    /// over all mirrors.
    pub fn max_file_size(&self) -> u64 {
        if self.is_mirrored() {
            return self.mirrors().iter().map(|mirror| mirror.max_file_size()).min().unwrap_or(0);
        }
        let extents = &self.index().extents;
        let cut = extents.iter().find(|e| e.file_size_max < e.end);
        let size = cut.map_or(self.end(), |e| e.file_size_max);
        if extents.is_empty() { 0 } else { size.min(FILE_SIZE_MAX) }
    }
}

#[cfg(test)]
mod tests;
