//! Page-aligned buffers that are used again.
//!
//! File data enters the process into such a buffer (from the kernel or from a socket), travels on
//! as [`Bytes`] without being copied, and returns to its pool when the last [`Bytes`] is dropped.
//!
//! Invariants: memory is zeroed once, when it is allocated, and never again: a buffer fresh from
//! the pool shows what its last user left there, but never uninitialised memory. A pool keeps at
//! most `max_kept` unused buffers; what is in use is bounded by whoever takes buffers (requests in
//! flight, dirty limits). Large buffers are cut from huge pages, a few from each: the memory goes
//! back to the system when all of them are gone.

use std::{
    ops::{Deref, DerefMut, Range},
    sync::Arc,
};

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::slab::{self, Piece};

/// Alignment of every buffer and unit of its capacity, in bytes: a page, which is also enough for
/// direct I/O.
pub const PAGE: usize = 4096;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; PAGE]);

/// From this size on the buffers of a pool are cut from huge pages: below, one that stays in use
/// would hold on to many others.
const HUGE_BYTES_MIN: usize = 512 << 10;

/// Where a buffer's bytes lie.
enum Pages {
    Plain(Box<[Page]>),
    Huge(Piece),
}

impl Pages {
    fn bytes(&self) -> &[u8] {
        match self {
            Pages::Plain(pages) => pages.as_bytes(),
            Pages::Huge(piece) => piece.bytes(),
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Pages::Plain(pages) => pages.as_mut_bytes(),
            Pages::Huge(piece) => piece.bytes_mut(),
        }
    }
}

impl Default for Pages {
    fn default() -> Pages {
        Pages::Plain(Box::default())
    }
}

/// A pool of buffers of one capacity. A handle: clones share the pool.
#[derive(Clone)]
pub struct BufferPool(Arc<Shared>);

struct Shared {
    pages: usize,
    max_kept: usize,
    // Last in, first out: the buffer that was used last is the likeliest to be in the processor's
    // caches.
    free: Mutex<Vec<Pages>>,
}

impl BufferPool {
    /// Buffers of `buffer_bytes` (rounded up to whole pages, at least one), of which at most
    /// `max_kept` lie unused.
    pub fn new(buffer_bytes: usize, max_kept: usize) -> BufferPool {
        let pages = buffer_bytes.div_ceil(PAGE).max(1);
        BufferPool(Arc::new(Shared { pages, max_kept, free: Mutex::default() }))
    }

    /// Bytes that a buffer of this pool holds.
    pub fn buffer_bytes(&self) -> usize {
        self.0.pages * PAGE
    }

    /// Unused buffers in the pool now.
    pub fn kept(&self) -> usize {
        self.0.free.lock().len()
    }

    /// A buffer whose length is its capacity. Its content is unspecified.
    pub fn get(&self) -> Buffer {
        let kept = self.0.free.lock().pop();
        let pages = kept.or_else(|| self.cut()).unwrap_or_else(|| allocate(self.0.pages));
        Buffer { len: pages.bytes().len(), pages, pool: Some(self.clone()) }
    }

    /// A buffer of a new slab, whose others are kept.
    fn cut(&self) -> Option<Pages> {
        if self.buffer_bytes() < HUGE_BYTES_MIN {
            return None;
        }
        let mut pieces = slab::cut(self.buffer_bytes()).into_iter().map(Pages::Huge);
        let first = pieces.next();
        let mut free = self.0.free.lock();
        let room = self.0.max_kept.saturating_sub(free.len());
        free.extend(pieces.take(room));
        first
    }

    /// A buffer of `len` bytes: one of the pool's if they are large enough, else one that is freed
    /// after use. Its content is unspecified.
    pub fn take(&self, len: usize) -> Buffer {
        if len > self.buffer_bytes() {
            return Buffer::unpooled(len);
        }
        let mut buffer = self.get();
        buffer.len = len;
        buffer
    }
}

fn allocate(pages: usize) -> Pages {
    match <[Page]>::new_box_zeroed_with_elems(pages) {
        Ok(pages) => Pages::Plain(pages),
        Err(_) => std::alloc::handle_alloc_error(
            std::alloc::Layout::from_size_align(pages.saturating_mul(PAGE), PAGE)
                .unwrap_or_else(|_| std::alloc::Layout::new::<Page>()),
        ),
    }
}

/// Page-aligned bytes. Dereferences to the first [`Buffer::len`] of its [`Buffer::capacity`].
pub struct Buffer {
    pages: Pages,
    len: usize,
    pool: Option<BufferPool>,
}

impl Buffer {
    /// A buffer of `len` zero bytes that belongs to no pool.
    pub fn unpooled(len: usize) -> Buffer {
        Buffer { pages: allocate(len.div_ceil(PAGE)), len, pool: None }
    }

    /// Bytes that fit.
    pub fn capacity(&self) -> usize {
        self.pages.bytes().len()
    }

    /// Makes `len` bytes visible, at most the capacity. What becomes visible keeps its
    /// (unspecified) content.
    pub fn set_len(&mut self, len: usize) {
        debug_assert!(len <= self.capacity());
        self.len = len.min(self.capacity());
    }

    /// Hands the bytes in `range` on for reading, without a copy; what lies past the length is left
    /// out. The memory goes back to its pool when the last clone or slice of the answer is dropped.
    pub fn freeze(mut self, range: Range<usize>) -> Bytes {
        let end = range.end.min(self.len);
        let start = range.start.min(end);
        if start == end {
            return Bytes::new();
        }
        self.len = end;
        let mut bytes = Bytes::from_owner(self);
        bytes.advance(start); // unlike slicing, touches no reference count
        bytes
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.pages.bytes()[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.pages.bytes_mut()[..self.len]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Some(pool) = self.pool.take() else { return };
        let pages = std::mem::take(&mut self.pages);
        let mut free = pool.0.free.lock();
        if free.len() < pool.0.max_kept {
            free.push(pages);
        } else {
            drop(free); // free the memory without holding up others
            drop(pages);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_sized() {
        let pool = BufferPool::new(5000, 2);
        let mut b = pool.get();
        assert_eq!((b.len(), b.capacity(), b.as_ptr() as usize % PAGE), (8192, 8192, 0));
        assert!(b.iter().all(|&x| x == 0));
        b.set_len(3);
        b.copy_from_slice(b"abc");
        assert_eq!(&b[..], b"abc");
        let odd = pool.take(100_000);
        assert_eq!((odd.len(), odd.as_ptr() as usize % PAGE), (100_000, 0));
        assert_eq!(pool.take(17).len(), 17);
        assert_eq!(pool.take(0).len(), 0);
    }

    #[test]
    fn memory_returns_after_the_last_bytes_and_is_bounded() {
        let pool = BufferPool::new(PAGE, 2);
        let mut b = pool.get();
        b[..5].copy_from_slice(b"hello");
        let at = b.as_ptr();
        let bytes = b.freeze(1..4);
        let tail = bytes.slice(2..);
        assert_eq!(&bytes[..], b"ell");
        drop(bytes);
        assert_eq!(pool.kept(), 0, "a slice still lives");
        drop(tail);
        assert_eq!(pool.kept(), 1);
        assert_eq!(pool.get().as_ptr(), at, "the same memory is used again");

        let many: Vec<_> = (0..5).map(|_| pool.get()).collect();
        drop(many);
        assert_eq!(pool.kept(), 2, "at most max_kept stay");
    }

    #[test]
    fn large_buffers_share_huge_pages_and_are_kept_like_others() {
        let pool = BufferPool::new(1 << 20, 2);
        let mut a = pool.get();
        assert_eq!(pool.kept(), 1, "cut along with the first");
        let mut b = pool.get();
        assert_eq!((a.len(), b.len(), pool.kept()), (1 << 20, 1 << 20, 0));
        assert_eq!((a.as_ptr() as usize % PAGE, b.as_ptr() as usize % PAGE), (0, 0));
        assert!(a.iter().chain(b.iter()).all(|&x| x == 0), "no memory that was not zeroed");
        a.fill(1);
        b.fill(2);
        let bytes = a.freeze(0..1 << 20);
        assert!(bytes.iter().all(|&x| x == 1) && b.iter().all(|&x| x == 2));
        let at = bytes.as_ptr();
        drop(bytes);
        assert_eq!(pool.get().as_ptr(), at, "last in, first out");
        drop((0..5).map(|_| pool.get()).collect::<Vec<_>>());
        assert_eq!(pool.kept(), 2, "at most max_kept stay");
        assert!(b.iter().all(|&x| x == 2), "still in use");
    }

    #[test]
    fn odd_sizes_are_not_kept_and_empty_freezes_return_at_once() {
        let pool = BufferPool::new(PAGE, 2);
        drop(pool.take(PAGE + 1));
        assert_eq!(pool.kept(), 0);
        assert!(pool.get().freeze(9..9).is_empty());
        assert_eq!(pool.kept(), 1);
        let short = pool.take(10).freeze(4..4000);
        assert_eq!(short.len(), 6, "cut at the length");
    }
}
