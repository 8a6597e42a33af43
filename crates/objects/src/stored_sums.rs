//! The checksums that an OST stores with an object at rest, to notice damage on its disk.
//!
//! An object has a checksum (CRC-32C) for each *block* of 64 KiB. Blocks of large objects have a
//! larger power of two, so that all checksums fit in an extended attribute of the object's file.
//! The last block ends with the object.
//!
//! Invariants:
//! * a block that changes loses its checksum before its bytes change;
//! * checksums count only in the epoch of the OST's data in which they were stored. After a power
//!   failure the file may have newer bytes and older checksums.
//!
//! Format, in little endian:
//! * [`MAGIC`], the epoch (8 bytes), the length of the object (8 bytes);
//! * for each block a bit that tells whether it has a checksum ([`BLOCKS_MAX`] bits);
//! * the checksums (4 bytes each), and the CRC-32C of all of this.

use std::ops::Range;

use crc_fast::{CrcAlgorithm, Digest};
use sheen_wire::ost::DamagedBlock;

/// Name of the extended attribute.
pub const NAME: &str = "user.sheen.sums";
/// Smallest size of a block in bytes.
pub const BLOCK_BYTES_MIN: u64 = 64 << 10;
/// Most blocks of an object: the attribute has at most 3.7 KB.
const BLOCKS_MAX: usize = 896;
const MAGIC: &[u8; 8] = b"SHSUMS01";
const HEADER_BYTES: usize = 8 + 8 + 8 + BLOCKS_MAX / 8;
const SUM_BYTES: usize = 4;

/// The stored checksums of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredSums {
    /// The epoch of the OST's data in which they were stored.
    pub epoch: u64,
    /// Length of the object in bytes.
    len: u64,
    block_bytes: u64,
    sums: Vec<Option<u32>>,
}

impl StoredSums {
    /// Returns a set without checksums for an object of `len` bytes.
    pub fn new(epoch: u64, len: u64) -> StoredSums {
        let mut block_bytes = BLOCK_BYTES_MIN;
        while len.div_ceil(block_bytes) > BLOCKS_MAX as u64 {
            block_bytes *= 2;
        }
        StoredSums { epoch, len, block_bytes, sums: vec![None; len.div_ceil(block_bytes) as usize] }
    }

    /// Reads the attribute. `None`: it is not one of ours, or it is damaged.
    pub fn decode(bytes: &[u8]) -> Option<StoredSums> {
        let (content, crc) = bytes.split_last_chunk::<SUM_BYTES>()?;
        let (header, sums) = content.split_at_checked(HEADER_BYTES)?;
        if u32::from_le_bytes(*crc) != crc_of([content]) || !header.starts_with(MAGIC) {
            return None;
        }
        let word = |at: usize| header[at..at + 8].try_into().map(u64::from_le_bytes).ok();
        let mut stored = StoredSums::new(word(8)?, word(16)?);
        if sums.len() != stored.sums.len() * SUM_BYTES {
            return None;
        }
        let bits = &header[24..];
        for (block, (sum, bytes)) in stored.sums.iter_mut().zip(sums.as_chunks::<SUM_BYTES>().0).enumerate() {
            *sum = (bits[block / 8] & 1 << (block % 8) != 0).then(|| u32::from_le_bytes(*bytes));
        }
        Some(stored)
    }

    /// Returns the attribute.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + (self.sums.len() + 1) * SUM_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.epoch.to_le_bytes());
        bytes.extend_from_slice(&self.len.to_le_bytes());
        let mut bits = [0_u8; BLOCKS_MAX / 8];
        for (block, _) in self.sums.iter().enumerate().filter(|(_, sum)| sum.is_some()) {
            bits[block / 8] |= 1 << (block % 8);
        }
        bytes.extend_from_slice(&bits);
        self.sums.iter().for_each(|sum| bytes.extend_from_slice(&sum.unwrap_or(0).to_le_bytes()));
        let crc = crc_of([&bytes[..]]);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Returns a set for an object of `len` bytes, with the checksums of the blocks that have the
    /// same place.
    pub fn resized(&self, len: u64) -> StoredSums {
        let mut resized = StoredSums::new(self.epoch, len);
        for block in 0..resized.block_count().min(self.block_count()) {
            if resized.place(block) == self.place(block) {
                resized.sums[block] = self.sums[block];
            }
        }
        resized
    }

    /// Whether a block has the same place and checksum as before.
    pub fn keeps(&self, before: &StoredSums, block: usize) -> bool {
        block < self.block_count().min(before.block_count())
            && self.place(block) == before.place(block)
            && self.get(block) == before.get(block)
            && self.epoch == before.epoch
    }

    /// Returns the end of the last block that has a checksum; 0 if there is none.
    pub fn known_end(&self) -> u64 {
        let last = self.sums.iter().rposition(Option::is_some);
        last.map_or(0, |block| self.place(block).0 + self.place(block).1)
    }

    /// Returns the size of a block in bytes.
    pub fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// Returns the length of the object in bytes.
    pub fn object_len(&self) -> u64 {
        self.len
    }

    /// Returns the number of blocks.
    pub fn block_count(&self) -> usize {
        self.sums.len()
    }

    /// Whether no block has a checksum.
    pub fn is_empty(&self) -> bool {
        self.sums.iter().all(Option::is_none)
    }

    /// Whether each block has a checksum.
    pub fn is_complete(&self) -> bool {
        self.sums.iter().all(Option::is_some)
    }

    /// Returns the place of a block in the object: offset and bytes. The block must exist.
    pub fn place(&self, block: usize) -> (u64, u64) {
        let offset = block as u64 * self.block_bytes;
        (offset, self.block_bytes.min(self.len.saturating_sub(offset)))
    }

    /// Returns the checksum of a block.
    pub fn get(&self, block: usize) -> Option<u32> {
        self.sums.get(block).copied().flatten()
    }

    /// Returns a block with its checksum, for a report of damage. The block must exist.
    pub fn damaged(&self, block: usize) -> DamagedBlock {
        let (offset, len) = self.place(block);
        DamagedBlock { offset, len, sum: self.get(block).unwrap_or(0) }
    }

    /// Returns the block of a report of damage. `None`: its checksum is not stored any more, so it
    /// was changed since.
    pub fn find(&self, damaged: &DamagedBlock) -> Option<usize> {
        let mut blocks = self.within(damaged.offset, damaged.len);
        blocks.find(|block| self.get(*block).is_some() && self.damaged(*block) == *damaged)
    }

    /// Stores the checksum of a block.
    pub fn set(&mut self, block: usize, sum: u32) {
        if let Some(known) = self.sums.get_mut(block) {
            *known = Some(sum);
        }
    }

    /// Returns the blocks that lie in `[offset, offset + len)` as a whole.
    pub fn within(&self, offset: u64, len: u64) -> Range<usize> {
        let end = offset.saturating_add(len);
        let first = (offset.div_ceil(self.block_bytes) as usize).min(self.sums.len());
        let last = if end >= self.len { self.sums.len() } else { (end / self.block_bytes) as usize };
        first..last.max(first)
    }

    /// Returns the blocks that have bytes in `[offset, offset + len)`.
    pub fn blocks_of(&self, offset: u64, len: u64) -> Range<usize> {
        let end = offset.saturating_add(len).min(self.len);
        if offset >= end {
            return 0..0;
        }
        (offset / self.block_bytes) as usize..end.div_ceil(self.block_bytes) as usize
    }

    /// Removes the checksums of the blocks that a change of `[offset, offset + len)` affects.
    /// Returns whether there were any.
    pub fn forget(&mut self, offset: u64, len: u64) -> bool {
        let blocks = self.blocks_of(offset, len);
        let affected = &mut self.sums[blocks];
        let any = affected.iter().any(Option::is_some);
        affected.fill(None);
        any
    }
}

/// The CRC-32C of bytes that come in pieces.
#[derive(Debug)]
pub struct Crc(Digest);

impl Default for Crc {
    fn default() -> Crc {
        Crc(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl Crc {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the checksum of all bytes.
    pub fn finish(&self) -> u32 {
        self.0.finalize() as u32
    }
}

/// Returns the CRC-32C of bytes in pieces.
pub fn crc_of<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut crc = Crc::default();
    pieces.into_iter().for_each(|piece| crc.update(piece));
    crc.finish()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const B: u64 = BLOCK_BYTES_MIN;

    fn full(len: u64) -> StoredSums {
        let mut stored = StoredSums::new(7, len);
        (0..stored.block_count()).for_each(|block| stored.set(block, block as u32 + 1));
        stored
    }

    #[test]
    fn checksums_of_objects_of_all_sizes_fit_in_an_attribute() {
        for len in [0, 1, B, B + 1, 896 * B, 896 * B + 1, 1 << 40, u64::from(u32::MAX) * 4096] {
            let stored = full(len);
            let bytes = stored.encode();
            assert!(bytes.len() < 3800, "{len}: {}", bytes.len());
            assert_eq!(StoredSums::decode(&bytes), Some(stored.clone()), "{len}");
            let places: Vec<_> = (0..stored.block_count()).map(|block| stored.place(block)).collect();
            assert!(places.windows(2).all(|two| two[0].0 + two[0].1 == two[1].0), "{len}");
            assert_eq!(places.iter().map(|(_, len)| len).sum::<u64>(), len);
        }
    }

    #[test]
    fn change_removes_the_checksums_of_affected_blocks() {
        let known =
            |stored: &StoredSums| (0..stored.block_count()).map(|b| stored.get(b).is_some()).collect::<Vec<_>>();
        let forget = |offset, len| {
            let mut stored = full(3 * B + 5);
            (stored.forget(offset, len), known(&stored))
        };
        assert_eq!(forget(B - 1, 2), (true, vec![false, false, true, true]));
        assert_eq!(forget(2 * B, u64::MAX), (true, vec![true, true, false, false]));
        assert_eq!(forget(3 * B + 5, 100), (false, vec![true; 4]), "an append");
        assert_eq!(forget(B, 0), (false, vec![true; 4]));
        let mut stored = full(B);
        assert!(stored.forget(0, 1) && !stored.forget(0, 1) && stored.is_empty());
        assert_eq!(StoredSums::decode(&stored.encode()), Some(stored));
    }

    #[test]
    fn damaged_block_is_found_until_it_changes() {
        let mut stored = full(3 * B + 5);
        let (second, last) = (stored.damaged(1), stored.damaged(3));
        assert_eq!((second.offset, second.len, second.sum), (B, B, 2));
        assert_eq!((stored.find(&second), stored.find(&last)), (Some(1), Some(3)));
        assert_eq!(stored.find(&DamagedBlock { sum: 7, ..second }), None, "another checksum");
        assert_eq!(stored.find(&DamagedBlock { len: B + 1, ..second }), None, "another block");
        assert_eq!(stored.find(&DamagedBlock { offset: u64::MAX, ..second }), None);
        assert_eq!(full(4 * B).find(&last), None, "it has grown");
        stored.forget(B + 7, 1);
        assert_eq!((stored.find(&second), stored.find(&last)), (None, Some(3)));
        assert_eq!(stored.find(&DamagedBlock { sum: 0, ..second }), None, "without a checksum");
    }

    #[test]
    fn resized_object_keeps_the_checksums_of_unchanged_places() {
        let grown = full(3 * B + 5).resized(4 * B);
        assert_eq!((0..4).map(|block| grown.get(block)).collect::<Vec<_>>(), [Some(1), Some(2), Some(3), None]);
        assert!(full(3 * B).resized(3 * B).is_complete() && full(3 * B).resized(B).is_complete());
        assert!(full(3 * B).resized(900 * B).is_empty(), "larger blocks");
        assert!(full(2 * B).keeps(&full(3 * B), 1) && !full(2 * B).keeps(&full(3 * B), 2));
        assert!(!full(3 * B).keeps(&full(2 * B), 2) && !full(B + 5).keeps(&full(2 * B), 1));
    }

    #[test]
    fn read_covers_whole_blocks_only() {
        let stored = full(3 * B + 5);
        assert_eq!(stored.within(0, 4 * B), 0..4);
        assert_eq!(stored.within(0, 3 * B + 5), 0..4, "the last block ends with the object");
        assert_eq!(stored.within(0, 3 * B + 4), 0..3);
        assert_eq!(stored.within(1, B), 1..1);
        assert_eq!(stored.within(1, 2 * B - 1), 1..2);
        assert!(stored.within(100 * B, B).is_empty() && stored.within(u64::MAX, u64::MAX).is_empty());
    }

    proptest! {
        #[test]
        fn foreign_attributes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..300), flip in 0..180_usize) {
            prop_assert_eq!(StoredSums::decode(&bytes), None);
            let mut damaged = full(9 * B).encode();
            let at = flip % damaged.len();
            damaged[at] ^= 1;
            prop_assert_eq!(StoredSums::decode(&damaged), None);
        }
    }
}
