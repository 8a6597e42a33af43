//! Memory in huge pages, cut into pieces.
//!
//! File data is copied into a buffer and out of it again; from pages of 4 KiB that costs a fault
//! for each at first and then more misses of the processor's address cache than the copy itself
//! needs to. Linux gives huge pages to whoever asks for them (`madvise`, the usual setting of
//! transparent huge pages); where it does not, everything works with small ones.
//!
//! Invariants: the pieces of a slab do not overlap; a slab is unmapped when its last piece is
//! dropped.

use std::{
    ptr::{self, NonNull},
    sync::Arc,
};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Bytes of a huge page, and of a slab's usable memory: x86-64, and arm64 with pages of 4 KiB.
pub(crate) const SLAB_BYTES: usize = 2 << 20;
/// Mapped for a slab, so that an aligned one lies within: what is not touched costs only address
/// space.
const MAPPED_BYTES: usize = 2 * SLAB_BYTES;

/// A mapping.
struct Slab(NonNull<u8>);

// SAFETY: Slab only owns the mapping's address and gives access to none of its bytes.
unsafe impl Send for Slab {}
// SAFETY: as above.
unsafe impl Sync for Slab {}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: mapped in `cut` with this length; no piece lives any more, since each holds the
        // slab.
        let unmapped = unsafe { munmap(self.0.as_ptr().cast(), MAPPED_BYTES) };
        debug_assert!(unmapped.is_ok());
    }
}

/// A part of a slab, zeroed when it is new. Dereferences to its bytes.
pub(crate) struct Piece {
    start: NonNull<u8>,
    len: usize,
    _slab: Arc<Slab>,
}

// SAFETY: Piece owns its bytes exclusively, as Box<[u8]> does.
unsafe impl Send for Piece {}
// SAFETY: as above; a shared reference gives shared bytes only.
unsafe impl Sync for Piece {}

/// A new slab cut into as many pieces of `len` bytes as it holds; none where there is no memory to
/// map, or `len` is 0 or too large.
pub(crate) fn cut(len: usize) -> Vec<Piece> {
    let count = SLAB_BYTES.checked_div(len).unwrap_or(0);
    if count == 0 {
        return Vec::new();
    }
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new anonymous mapping, at an address of the kernel's choice, overlaps nothing.
    let mapped = unsafe { mmap_anonymous(ptr::null_mut(), MAPPED_BYTES, access, flags) };
    let Some(mapped) = mapped.ok().and_then(|m| NonNull::new(m.cast::<u8>())) else { return Vec::new() };
    let slab = Arc::new(Slab(mapped));
    let skip = mapped.as_ptr().align_offset(SLAB_BYTES);
    if skip > MAPPED_BYTES - SLAB_BYTES {
        return Vec::new();
    }
    // SAFETY: skip + SLAB_BYTES is within the mapping.
    let start = unsafe { mapped.add(skip) };
    // Advice: a refusal leaves small pages.
    // SAFETY: the range is within our own mapping, and this advice changes no content.
    let _ = unsafe { madvise(start.as_ptr().cast(), SLAB_BYTES, Advice::LinuxHugepage) };
    // SAFETY: i * len + len <= SLAB_BYTES.
    (0..count).map(|i| Piece { start: unsafe { start.add(i * len) }, len, _slab: slab.clone() }).collect()
}

impl Piece {
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the piece's bytes are mapped, initialised (zeros at first), and nobody else's.
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
    fn pieces_are_aligned_zeroed_and_apart() {
        let mut pieces = cut(512 << 10);
        assert_eq!(pieces.len(), 4);
        assert_eq!(pieces[0].bytes().as_ptr() as usize % SLAB_BYTES, 0);
        for (i, piece) in pieces.iter_mut().enumerate() {
            assert_eq!(piece.bytes().len(), 512 << 10);
            assert!(piece.bytes().iter().all(|b| *b == 0), "new, or untouched by its neighbours");
            piece.bytes_mut().fill(i as u8 + 1);
        }
        let last = pieces.pop().unwrap();
        drop(pieces);
        assert!(last.bytes().iter().all(|b| *b == 4), "a piece outlives the others");
    }

    #[test]
    fn what_does_not_fit_is_not_cut() {
        assert!(cut(0).is_empty());
        assert!(cut(SLAB_BYTES + 1).is_empty());
        assert_eq!(cut(SLAB_BYTES).len(), 1);
        assert_eq!(cut(SLAB_BYTES - 4096).len(), 1);
    }
}
