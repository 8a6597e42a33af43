//! Checksums of the bytes in an object's file, so that the OST can send them without reading them.
//!
//! A sum is the CRC-32C of a *chunk*: 64 KiB at a multiple of 64 KiB. A request that has the bytes
//! in memory stores it: a write that came over the network, or a read whose reply goes there. The
//! sums of adjacent chunks are combined into the sum of a whole run.
//!
//! Invariant: a sum is valid only while the chunk's bytes do not change. Every request that changes
//! or reads bytes announces its begin and end ([`Sums::begin`], [`Sums::end`]). A change drops the
//! sums of the chunks that it touches. A request notes sums only if no other request changed the
//! same chunks in the meantime. A sum can still be wrong if a program other than the OST changed
//! the file. This does no harm: the receiver detects it and asks for a copy.

use std::{
    ops::Range,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use crc_fast::{CrcAlgorithm, checksum, checksum_combine};
use rustc_hash::FxHashMap;

/// Bytes of a chunk: the smallest stripe size, so that each stripe consists of whole chunks.
pub const CHUNK_BYTES: u64 = 64 << 10;
/// Chunks whose sums are stored together: 1 MiB, the usual stripe size.
const GROUP_CHUNKS: u64 = 16;
/// Maximum groups of an OST, 20 MiB of memory: sums of 256 GiB, more than its host's page cache
/// usually holds.
const GROUPS_MAX: usize = 256 << 10;

/// Number of groups that all objects of an OST have together.
#[derive(Clone, Default, Debug)]
pub struct Budget(Arc<AtomicUsize>);

/// The sums of an object.
#[derive(Debug)]
pub struct Sums {
    groups: FxHashMap<u64, Group>,
    busy: Vec<Busy>,
    next: u64,
    budget: Budget,
}

#[derive(Clone, Copy, Debug, Default)]
struct Group {
    /// Valid entries of `sums`, by bit.
    known: u16,
    sums: [u32; GROUP_CHUNKS as usize],
}

/// A request in progress on a range.
#[derive(Debug)]
struct Busy {
    id: u64,
    chunks: Range<u64>,
    writes: bool,
    /// Another request changed the same chunks at the same time.
    mixed: bool,
}

/// A request in progress, from [`Sums::begin`] to [`Sums::end`].
#[derive(Debug)]
#[must_use = "pass it to `Sums::end`"]
pub struct Claim(u64);

impl Sums {
    /// Creates an empty set of sums within the OST's budget.
    pub fn new(budget: &Budget) -> Sums {
        Sums { groups: FxHashMap::default(), busy: Vec::new(), next: 0, budget: budget.clone() }
    }

    /// Returns the sum of bytes with the sum `before` (none: 0) followed by
    /// `[offset, offset + len)`. `None` unless the range consists of whole chunks whose sums are
    /// all known.
    pub fn combined(&self, before: u32, offset: u64, len: u64) -> Option<u32> {
        if !offset.is_multiple_of(CHUNK_BYTES) || !len.is_multiple_of(CHUNK_BYTES) {
            return None;
        }
        let mut chunks = offset / CHUNK_BYTES..offset.checked_add(len)? / CHUNK_BYTES;
        chunks.try_fold(before, |crc, chunk| Some(append(crc, self.get(chunk)?)))
    }

    /// Begins a change (`writes`) or a read of `[offset, offset + len)`.
    pub fn begin(&mut self, offset: u64, len: u64, writes: bool) -> Claim {
        let chunks = offset / CHUNK_BYTES..offset.saturating_add(len).div_ceil(CHUNK_BYTES);
        let mut mixed = false;
        for other in &mut self.busy {
            if other.chunks.start < chunks.end && chunks.start < other.chunks.end {
                other.mixed |= writes;
                mixed |= other.writes;
            }
        }
        if writes {
            self.forget(&chunks);
        }
        self.next += 1;
        self.busy.push(Busy { id: self.next, chunks, writes, mixed });
        Claim(self.next)
    }

    /// Whether no other request has changed the same chunks since [`Sums::begin`].
    pub fn is_undisturbed(&self, claim: &Claim) -> bool {
        self.busy.iter().any(|b| b.id == claim.0 && !b.mixed)
    }

    /// Ends a request. `sums`: those of whole chunks that it wrote or read, within the range of
    /// `begin`.
    pub fn end(&mut self, claim: Claim, sums: impl IntoIterator<Item = (u64, u32)>) {
        let Some(at) = self.busy.iter().position(|b| b.id == claim.0) else { return };
        if !self.busy.swap_remove(at).mixed {
            sums.into_iter().for_each(|(chunk, crc)| self.note(chunk, crc));
        }
    }

    /// Drops all sums.
    pub fn clear(&mut self) {
        self.budget.0.fetch_sub(self.groups.len(), Ordering::Relaxed);
        self.groups = FxHashMap::default();
    }

    fn get(&self, chunk: u64) -> Option<u32> {
        let group = self.groups.get(&(chunk / GROUP_CHUNKS))?;
        let at = chunk % GROUP_CHUNKS;
        (group.known & 1 << at != 0).then(|| group.sums[at as usize])
    }

    fn note(&mut self, chunk: u64, crc: u32) {
        let (key, at) = (chunk / GROUP_CHUNKS, chunk % GROUP_CHUNKS);
        if !self.groups.contains_key(&key) {
            if self.budget.0.load(Ordering::Relaxed) >= GROUPS_MAX {
                // Free the sums of this object, which are at hand. Other objects free theirs when
                // they get here, or are closed.
                self.clear();
            }
            self.budget.0.fetch_add(1, Ordering::Relaxed);
        }
        let group = self.groups.entry(key).or_default();
        group.known |= 1 << at;
        group.sums[at as usize] = crc;
    }

    fn forget(&mut self, chunks: &Range<u64>) {
        // A truncate extends to the maximum offset: then walk the groups, not the range.
        if (chunks.end - chunks.start) / GROUP_CHUNKS >= self.groups.len() as u64 {
            for (key, group) in &mut self.groups {
                group.known &= !mask(*key, chunks);
            }
        } else {
            for key in chunks.start / GROUP_CHUNKS..=chunks.end / GROUP_CHUNKS {
                if let Some(group) = self.groups.get_mut(&key) {
                    group.known &= !mask(key, chunks);
                }
            }
        }
    }
}

impl Drop for Sums {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Returns the bits of group `key` whose chunks lie in `chunks`.
fn mask(key: u64, chunks: &Range<u64>) -> u16 {
    let base = key * GROUP_CHUNKS;
    (0..GROUP_CHUNKS).filter(|at| chunks.contains(&(base + at))).fold(0, |mask, at| mask | 1 << at)
}

/// Returns the sums of the whole chunks in bytes at `offset` of the object, given in pieces.
pub fn of_pieces<'a>(offset: u64, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<(u64, u32)> {
    let mut sums = Vec::new();
    let mut digest = crc_fast::Digest::new(CrcAlgorithm::Crc32Iscsi);
    let (mut at, mut whole) = (offset, offset.is_multiple_of(CHUNK_BYTES));
    for mut piece in pieces {
        while !piece.is_empty() {
            let left = (CHUNK_BYTES - at % CHUNK_BYTES) as usize;
            let (now, rest) = piece.split_at(left.min(piece.len()));
            let ends = now.len() == left;
            if whole && ends && at.is_multiple_of(CHUNK_BYTES) {
                sums.push((at / CHUNK_BYTES, checksum(CrcAlgorithm::Crc32Iscsi, now) as u32));
            } else if whole {
                digest.update(now);
                if ends {
                    sums.push((at / CHUNK_BYTES, digest.finalize_reset() as u32));
                }
            }
            whole |= ends;
            at += now.len() as u64;
            piece = rest;
        }
    }
    sums
}

/// Returns the CRC-32C of a run followed by a chunk.
fn append(first: u32, chunk: u32) -> u32 {
    // The shift over a chunk is linear in the bits of `first`, so it is a table lookup per byte.
    static SHIFT: LazyLock<[[u32; 256]; 4]> = LazyLock::new(|| {
        let mut table = [[0; 256]; 4];
        for (byte, row) in table.iter_mut().enumerate() {
            for (value, out) in row.iter_mut().enumerate() {
                let crc = (value as u64) << (8 * byte);
                *out = checksum_combine(CrcAlgorithm::Crc32Iscsi, crc, 0, CHUNK_BYTES) as u32;
            }
        }
        table
    });
    first.to_le_bytes().iter().zip(SHIFT.iter()).fold(chunk, |crc, (byte, row)| crc ^ row[usize::from(*byte)])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const C: u64 = CHUNK_BYTES;

    fn bytes(len: u64, seed: u8) -> Vec<u8> {
        (0..len).map(|i| (i * 7 + i / 251) as u8 ^ seed).collect()
    }

    fn crc(bytes: &[u8]) -> u32 {
        checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
    }

    /// Does a write or a read without another request at the same time.
    fn through(sums: &mut Sums, offset: u64, data: &[u8], writes: bool) {
        let claim = sums.begin(offset, data.len() as u64, writes);
        sums.end(claim, of_pieces(offset, [data]));
    }

    #[test]
    fn combined_sum_of_noted_chunks_equals_that_of_their_bytes() {
        let (mut sums, data) = (Sums::new(&Budget::default()), bytes(20 * C, 1));
        through(&mut sums, 3 * C, &data, true);
        assert_eq!(sums.combined(0, 3 * C, 20 * C), Some(crc(&data)));
        assert_eq!(sums.combined(0, 5 * C, C), Some(crc(&data[2 * C as usize..3 * C as usize])));
        let two = [&b"before"[..], &data[..C as usize]].concat();
        assert_eq!(sums.combined(crc(b"before"), 3 * C, C), Some(crc(&two)));
        assert_eq!(sums.combined(0, 2 * C, 2 * C), None, "begins before");
        assert_eq!(sums.combined(0, 22 * C, 2 * C), None, "ends after");
        assert_eq!(sums.combined(0, 3 * C + 1, C), None);
        assert_eq!(sums.combined(0, 3 * C, C + 1), None);
    }

    #[test]
    fn change_drops_the_sums_of_changed_chunks_only() {
        let mut sums = Sums::new(&Budget::default());
        through(&mut sums, 0, &bytes(40 * C, 1), true);
        through(&mut sums, 17 * C + 5, b"x", true);
        assert!(sums.combined(0, 0, 17 * C).is_some() && sums.combined(0, 18 * C, 22 * C).is_some());
        assert_eq!(sums.combined(0, 17 * C, C), None);
        let cut = sums.begin(20 * C + 1, u64::MAX, true);
        sums.end(cut, []);
        assert!(sums.combined(0, 18 * C, 2 * C).is_some());
        assert!((20..40).all(|chunk| sums.combined(0, chunk * C, C).is_none()));
    }

    #[test]
    fn request_overlapped_by_a_write_notes_no_sums() {
        let data = bytes(C, 1);
        let noted = |first_writes, second_writes, second_ends_first| {
            let mut sums = Sums::new(&Budget::default());
            let mut two = [sums.begin(0, C, first_writes), sums.begin(C - 1, 1, second_writes)].map(Some);
            if second_ends_first {
                sums.end(two[1].take().unwrap(), []);
            }
            sums.end(two[0].take().unwrap(), of_pieces(0, [&data[..]]));
            sums.combined(0, 0, C).is_some()
        };
        for ends_first in [false, true] {
            assert!(noted(false, false, ends_first), "readers do not disturb each other");
            assert!(noted(true, false, ends_first), "nor does a reader disturb a writer");
            assert!(!noted(true, true, ends_first) && !noted(false, true, ends_first));
        }
    }

    #[test]
    fn sums_stay_within_the_osts_budget() {
        let budget = Budget::default();
        let mut first = Sums::new(&budget);
        for group in 0..GROUPS_MAX as u64 + 10 {
            let claim = first.begin(group << 20, C, true);
            first.end(claim, [(group * GROUP_CHUNKS, 1)]);
        }
        assert!(budget.0.load(Ordering::Relaxed) <= GROUPS_MAX && first.groups.len() >= 10);
        drop(first);
        assert_eq!(budget.0.load(Ordering::Relaxed), 0);
    }

    proptest! {
        #[test]
        fn sums_of_pieces_are_independent_of_the_cuts(offset in 0..2 * C, cuts in prop::collection::vec(1..3 * C, 0..6)) {
            let data = bytes(5 * C, 9);
            let mut pieces = Vec::new();
            let mut rest = &data[..];
            for cut in cuts {
                let (piece, more) = rest.split_at((cut as usize).min(rest.len()));
                pieces.push(piece);
                rest = more;
            }
            pieces.push(rest);
            let got = of_pieces(offset, pieces);
            let first = offset.div_ceil(C);
            let want: Vec<_> = (first..(offset + 5 * C) / C)
                .map(|chunk| (chunk, crc(&data[(chunk * C - offset) as usize..][..C as usize])))
                .collect();
            prop_assert_eq!(got, want);
        }
    }
}
