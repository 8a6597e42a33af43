//! Which bytes of a file lie where in its objects, and what sizes of objects say about the size of the file.
//!
//! RAID0: stripe units of `stripe_size` bytes go round robin over the objects. Nothing here allocates.

use sheen_wire::ost::OBJECT_SIZE_MAX;

use crate::Layout;

/// Largest size of any file: what `off_t` can say.
pub const FILE_SIZE_MAX: u64 = i64::MAX as u64;

/// A run of bytes in one object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// Index into [`Layout::stripes`].
    pub stripe: usize,
    /// First byte inside the object.
    pub object_offset: u64,
    /// First byte inside the file.
    pub file_offset: u64,
    /// Bytes, above 0. At most up to the end of the stripe unit, except in a file of one stripe, where a chunk is all.
    pub len: u64,
}

/// The chunks of a range, in file order.
#[derive(Clone, Debug)]
pub struct Chunks {
    stripe_size: u64,
    stripe_count: u64,
    offset: u64,
    end: u64,
}

impl Iterator for Chunks {
    type Item = Chunk;

    fn next(&mut self) -> Option<Chunk> {
        let left = self.end.saturating_sub(self.offset);
        if left == 0 || self.stripe_count == 0 {
            return None;
        }
        let file_offset = self.offset;
        if self.stripe_count == 1 {
            self.offset = self.end;
            return Some(Chunk { stripe: 0, object_offset: file_offset, file_offset, len: left });
        }
        let (unit, within) = (file_offset / self.stripe_size, file_offset % self.stripe_size);
        let len = left.min(self.stripe_size - within);
        self.offset += len;
        Some(Chunk {
            stripe: (unit % self.stripe_count) as usize,
            object_offset: unit / self.stripe_count * self.stripe_size + within,
            file_offset,
            len,
        })
    }
}

impl Layout {
    /// Stripe size and count, at least 1 and 0: so that a layout that is not usable maps to nothing rather than to a panic.
    fn geometry(&self) -> (u64, u64) {
        let count = if self.check_usable().is_ok() { self.stripe_count() } else { 0 };
        (u64::from(self.stripe_size().max(1)), count as u64)
    }

    /// Where the bytes `[offset, offset + len)` lie. What is past 2^63 is left out.
    pub fn map(&self, offset: u64, len: u64) -> Chunks {
        let (stripe_size, stripe_count) = self.geometry();
        Chunks { stripe_size, stripe_count, offset, end: offset.saturating_add(len).min(FILE_SIZE_MAX) }
    }

    /// Size of the object of stripe `stripe` in a file of `file_size` bytes without holes at its end. The same is the offset in
    /// that object of its first byte at or after file offset `file_size`.
    pub fn object_size(&self, file_size: u64, stripe: usize) -> u64 {
        let (unit, count) = self.geometry();
        let stripe = stripe as u64;
        if stripe >= count {
            return 0;
        }
        let (units, within) = (file_size / unit, file_size % unit);
        let (rows, turn) = (units / count, units % count);
        rows * unit
            + match stripe.cmp(&turn) {
                std::cmp::Ordering::Less => unit,
                std::cmp::Ordering::Equal => within,
                std::cmp::Ordering::Greater => 0,
            }
    }

    /// Where in the file byte `object_offset` of the object of stripe `stripe` lies; [`FILE_SIZE_MAX`] if beyond that.
    pub fn file_offset(&self, stripe: usize, object_offset: u64) -> u64 {
        let (unit, count) = self.geometry();
        let (row, within) = (object_offset / unit, object_offset % unit);
        let offset = (u128::from(row) * u128::from(count) + stripe as u128) * u128::from(unit) + u128::from(within);
        u64::try_from(offset).unwrap_or(u64::MAX).min(FILE_SIZE_MAX)
    }

    /// How large the file is at least, given the size of one of its objects. The file's size is the largest over all stripes.
    pub fn file_size(&self, stripe: usize, object_size: u64) -> u64 {
        match object_size.checked_sub(1) {
            None => 0,
            Some(last) => (self.file_offset(stripe, last) + 1).min(FILE_SIZE_MAX),
        }
    }

    /// Largest size of a file of this layout: no object exceeds [`OBJECT_SIZE_MAX`], nor the file 2^63 - 1.
    pub fn max_file_size(&self) -> u64 {
        let (unit, count) = self.geometry();
        // The first object fills first; its last, cut unit ends the file.
        let (rows, within) = (OBJECT_SIZE_MAX / unit, OBJECT_SIZE_MAX % unit);
        let size = u128::from(rows) * u128::from(count) * u128::from(unit) + u128::from(within);
        u64::try_from(size).unwrap_or(u64::MAX).min(FILE_SIZE_MAX)
    }
}

#[cfg(test)]
mod tests;
