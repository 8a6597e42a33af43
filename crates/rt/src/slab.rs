//! Memory in huge pages, cut into pieces.
//!
//! File data is copied into a buffer and out of it again. With pages of 4 KiB, the first use of
//! each page costs a fault, and later uses cost more time for TLB misses than for the copy. Linux
//! grants huge pages on request (`madvise`, the default setting of transparent huge pages). If
//! Linux refuses, the buffers work with small pages.
//!
//! Invariants:
//!
//! * The pieces of a slab do not overlap.
//! * A slab is unmapped when its last piece is dropped.

use std::{
    ptr::{self, NonNull},
    sync::Arc,
};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Size of a huge page and of a slab's usable memory, in bytes. Valid for x86-64, and for arm64
/// with pages of 4 KiB.
pub(crate) const SLAB_BYTES: usize = 2 << 20;
/// Bytes mapped for a slab. The mapping is larger than a slab so that it contains an aligned slab.
/// Untouched pages cost only address space.
const MAPPED_BYTES: usize = 2 * SLAB_BYTES;

/// An anonymous mapping of [`MAPPED_BYTES`].
struct Slab(NonNull<u8>);

// SAFETY: Slab only owns the mapping's address and gives access to none of its bytes.
unsafe impl Send for Slab {}
// SAFETY: as above.
unsafe impl Sync for Slab {}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: mapped in `cut` with this length. No piece is alive any more, since each piece
        // holds an Arc of the slab.
        let unmapped = unsafe { munmap(self.0.as_ptr().cast(), MAPPED_BYTES) };
        debug_assert!(unmapped.is_ok());
    }
}

/// A part of a slab. Its bytes are zero at first.
pub(crate) struct Piece {
    start: NonNull<u8>,
    len: usize,
    _slab: Arc<Slab>,
}

// SAFETY: Piece owns its bytes exclusively, as Box<[u8]> does.
unsafe impl Send for Piece {}
// SAFETY: as above. A shared reference gives only shared access to the bytes.
unsafe impl Sync for Piece {}

/// Maps a new slab and cuts it into as many pieces of `len` bytes as fit. Returns no pieces if the
/// mapping fails, or if `len` is 0 or exceeds the slab.
pub(crate) fn cut(len: usize) -> Vec<Piece> {
    let count = SLAB_BYTES.checked_div(len).unwrap_or(0);
    if count == 0 {
        return Vec::new();
    }
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new anonymous mapping at an address that the kernel chooses overlaps nothing.
    let mapped = unsafe { mmap_anonymous(ptr::null_mut(), MAPPED_BYTES, access, flags) };
    let Some(mapped) = mapped.ok().and_then(|m| NonNull::new(m.cast::<u8>())) else { return Vec::new() };
    let slab = Arc::new(Slab(mapped));
    let skip = mapped.as_ptr().align_offset(SLAB_BYTES);
    if skip > MAPPED_BYTES - SLAB_BYTES {
        return Vec::new();
    }
    // SAFETY: skip + SLAB_BYTES is within the mapping.
    let start = unsafe { mapped.add(skip) };
    // Advice only: if the kernel refuses, the pages stay small.
    // SAFETY: the range is within our own mapping, and this advice changes no content.
    let _ = unsafe { madvise(start.as_ptr().cast(), SLAB_BYTES, Advice::LinuxHugepage) };
    // SAFETY: i * len + len <= SLAB_BYTES.
    (0..count).map(|i| Piece { start: unsafe { start.add(i * len) }, len, _slab: slab.clone() }).collect()
}

impl Piece {
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the piece's bytes are mapped and initialised (zeros at first), and belong to this
        // piece alone.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in bytes(); &mut self makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slab_pieces_are_aligned_zeroed_and_disjoint() {
        let mut pieces = cut(512 << 10);
        assert_eq!(pieces.len(), 4);
        assert_eq!(pieces[0].bytes().as_ptr() as usize % SLAB_BYTES, 0);
        for (i, piece) in pieces.iter_mut().enumerate() {
            assert_eq!(piece.bytes().len(), 512 << 10);
            assert!(piece.bytes().iter().all(|b| *b == 0), "new, and untouched by the writes to other pieces");
            piece.bytes_mut().fill(i as u8 + 1);
        }
        let last = pieces.pop().unwrap();
        drop(pieces);
        assert!(last.bytes().iter().all(|b| *b == 4), "a piece outlives the others");
    }

    #[test]
    fn slab_cut_returns_nothing_for_bad_lengths() {
        assert!(cut(0).is_empty());
        assert!(cut(SLAB_BYTES + 1).is_empty());
        assert_eq!(cut(SLAB_BYTES).len(), 1);
        assert_eq!(cut(SLAB_BYTES - 4096).len(), 1);
    }
}
