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

use sheen_wire::Fid;

use crate::{FILE_SIZE_MAX, Layout, Stripe, index::Extent};

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
pub struct ByteLocation {
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
        if extent.has_one_object() {
            self.offset = end;
            return Chunk { stripe: extent.first, object_offset: file_offset, file_offset, len };
        }
        let (turn, object_offset) = extent.place(file_offset);
        len = len.min(extent.left_in_unit(file_offset));
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

    /// Returns the bytes of the file in `[offset, offset + len)` of the object of stripe `stripe`,
    /// in order. The other bytes of the range are outside of the component, so they are holes.
    pub fn object_chunks(&self, stripe: usize, offset: u64, len: u64) -> impl Iterator<Item = Chunk> {
        let (first, last) = (self.object_offset(0, stripe), self.object_offset(u64::MAX, stripe));
        let (mut at, end) = (offset.max(first), offset.saturating_add(len).min(last));
        std::iter::from_fn(move || {
            let rest = end.checked_sub(at).filter(|rest| *rest > 0)?;
            let chunk = self.map(self.file_offset(stripe, at), rest).next().filter(|chunk| chunk.stripe == stripe)?;
            at += chunk.len;
            Some(chunk)
        })
    }

    /// Returns the location of one byte, if it has an object.
    pub fn locate(&self, offset: u64) -> Option<ByteLocation> {
        let extent = self.index().from(offset).first()?;
        if !extent.has_objects() || offset >= FILE_SIZE_MAX {
            return None;
        }
        let (turn, offset) = extent.place(offset);
        let stripe = extent.first + turn as usize;
        let Stripe { object, ost } = *self.stripes().get(stripe)?;
        Some(ByteLocation { component: extent.component, stripe, object, ost, offset })
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
        self.index().extents().first().map_or(0, |e| if e.on_mdt { e.end } else { 0 })
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

    /// Returns each object of all mirrors with the end of the bytes that it can contain. Objects of
    /// a mirror that maps no bytes are left out.
    pub fn object_ends(&self) -> impl Iterator<Item = (Stripe, u64)> {
        let alone = if self.is_mirrored() { None } else { Some(self) };
        let mirrors = alone.into_iter().chain(self.mirrors().iter().map(|mirror| &**mirror));
        mirrors.flat_map(|mirror| {
            let mapped =
                mirror.stripes().iter().enumerate().filter(move |(n, _)| mirror.index().of_stripe(*n).is_some());
            mapped.map(move |(n, stripe)| (*stripe, mirror.object_offset(u64::MAX, n)))
        })
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

    /// Returns the maximum size of a file of this layout. No object may exceed
    /// [`OBJECT_SIZE_MAX`](sheen_wire::ost::OBJECT_SIZE_MAX), and the file must not exceed 2^63 - 1
    /// or [`Layout::end`]. If the number of a component's objects is not known yet, it counts as
    /// sufficient. For a mirrored layout this is the minimum over all mirrors.
    pub fn max_file_size(&self) -> u64 {
        if self.is_mirrored() {
            return self.mirrors().iter().map(|mirror| mirror.max_file_size()).min().unwrap_or(0);
        }
        let extents = self.index().extents();
        let cut = extents.iter().find(|e| e.file_size_max < e.end);
        let size = cut.map_or(self.end(), |e| e.file_size_max);
        if extents.is_empty() { 0 } else { size.min(FILE_SIZE_MAX) }
    }
}

#[cfg(test)]
mod tests;
