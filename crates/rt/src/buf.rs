//! Page-aligned buffers for reuse.
//!
//! File data enters the process into such a buffer, from the kernel or from a socket. It is then
//! passed on as [`Bytes`] without a copy. The buffer returns to its pool when the last [`Bytes`] is
//! dropped.
//!
//! Invariants:
//!
//! * Memory is zeroed only once, at its allocation. A buffer from
//!   the pool contains the bytes of its last use, but never uninitialised memory.
//! * A pool holds at most `max_idle` idle buffers. The number of buffers in use is bounded by the
//!   users of the pool (requests in flight, dirty limits).
//! * Large buffers are cut from huge pages, a few from each slab. A slab's memory returns
//!   to the system when all its buffers are dropped.

use std::{
    ops::{Deref, DerefMut, Range},
    sync::Arc,
};

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::slab::{self, Piece};

/// Alignment of every buffer and unit of its capacity, in bytes: one page. This alignment also
/// suffices for direct I/O.
pub const PAGE: usize = 4096;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; PAGE]);

/// Minimum size in bytes for buffers cut from huge pages. One smaller buffer in use
/// would keep the memory of many others allocated.
const HUGE_BYTES_MIN: usize = 512 << 10;

/// The memory of a buffer.
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

/// A pool of buffers of one capacity. Clones share the pool.
#[derive(Clone)]
pub struct BufferPool(Arc<Shared>);

struct Shared {
    pages: usize,
    max_idle: usize,
    // Last in, first out: the buffer used last is the most likely one to be in the processor's
    // caches.
    free: Mutex<Vec<Pages>>,
}

impl BufferPool {
    /// Creates a pool of buffers of `buffer_bytes` (rounded up to whole pages, at least one). At
    /// most `max_idle` idle buffers are retained.
    pub fn new(buffer_bytes: usize, max_idle: usize) -> BufferPool {
        let pages = buffer_bytes.div_ceil(PAGE).max(1);
        BufferPool(Arc::new(Shared { pages, max_idle, free: Mutex::default() }))
    }

    /// Returns the capacity of this pool's buffers, in bytes.
    pub fn buffer_bytes(&self) -> usize {
        self.0.pages * PAGE
    }

    /// Returns the number of idle buffers in the pool.
    pub fn idle(&self) -> usize {
        self.0.free.lock().len()
    }

    /// Returns a buffer whose length is its capacity. Its content is unspecified.
    pub fn get(&self) -> Buffer {
        let idle = self.0.free.lock().pop();
        let pages = idle.or_else(|| self.cut()).unwrap_or_else(|| allocate(self.0.pages));
        Buffer { len: pages.bytes().len(), pages, pool: Some(self.clone()) }
    }

    /// Maps a new slab and returns one of its buffers. The other ones go to the pool, up to its
    /// limit.
    fn cut(&self) -> Option<Pages> {
        if self.buffer_bytes() < HUGE_BYTES_MIN {
            return None;
        }
        let mut pieces = slab::cut(self.buffer_bytes()).into_iter().map(Pages::Huge);
        let first = pieces.next();
        let mut free = self.0.free.lock();
        let room = self.0.max_idle.saturating_sub(free.len());
        free.extend(pieces.take(room));
        first
    }

    /// Returns a buffer of `len` bytes. If `len` exceeds the pool's buffer size, the buffer is
    /// allocated separately and freed after use. Its content is unspecified.
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
    /// Allocates a buffer of `len` zero bytes that belongs to no pool.
    pub fn unpooled(len: usize) -> Buffer {
        Buffer { pages: allocate(len.div_ceil(PAGE)), len, pool: None }
    }

    /// Returns the maximum length, in bytes.
    pub fn capacity(&self) -> usize {
        self.pages.bytes().len()
    }

    /// Sets the length, at most the capacity. Bytes that become visible have unspecified
    /// content.
    pub fn set_len(&mut self, len: usize) {
        debug_assert!(len <= self.capacity());
        self.len = len.min(self.capacity());
    }

    /// Converts the bytes in `range`, cut at the length, to read-only [`Bytes`] without a copy.
    /// The memory returns to its pool when the last clone or slice of the result is dropped.
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
        if free.len() < pool.0.max_idle {
            free.push(pages);
        } else {
            drop(free); // frees the memory outside the lock
            drop(pages);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_get_and_take_return_aligned_buffers_of_the_length() {
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
    fn frozen_buffer_returns_after_its_last_slice_up_to_the_limit() {
        let pool = BufferPool::new(PAGE, 2);
        let mut b = pool.get();
        b[..5].copy_from_slice(b"hello");
        let at = b.as_ptr();
        let bytes = b.freeze(1..4);
        let tail = bytes.slice(2..);
        assert_eq!(&bytes[..], b"ell");
        drop(bytes);
        assert_eq!(pool.idle(), 0, "a slice still lives");
        drop(tail);
        assert_eq!(pool.idle(), 1);
        assert_eq!(pool.get().as_ptr(), at, "the same memory is used again");

        let many: Vec<_> = (0..5).map(|_| pool.get()).collect();
        drop(many);
        assert_eq!(pool.idle(), 2, "at most max_kept idle buffers");
    }

    #[test]
    fn large_buffers_share_a_slab_and_are_pooled() {
        let pool = BufferPool::new(1 << 20, 2);
        let mut a = pool.get();
        assert_eq!(pool.idle(), 1, "cut along with the first");
        let mut b = pool.get();
        assert_eq!((a.len(), b.len(), pool.idle()), (1 << 20, 1 << 20, 0));
        assert_eq!((a.as_ptr() as usize % PAGE, b.as_ptr() as usize % PAGE), (0, 0));
        assert!(a.iter().chain(b.iter()).all(|&x| x == 0), "all memory is zeroed");
        a.fill(1);
        b.fill(2);
        let bytes = a.freeze(0..1 << 20);
        assert!(bytes.iter().all(|&x| x == 1) && b.iter().all(|&x| x == 2));
        let at = bytes.as_ptr();
        drop(bytes);
        assert_eq!(pool.get().as_ptr(), at, "last in, first out");
        drop((0..5).map(|_| pool.get()).collect::<Vec<_>>());
        assert_eq!(pool.idle(), 2, "at most max_kept idle buffers");
        assert!(b.iter().all(|&x| x == 2), "still in use");
    }

    #[test]
    fn oversized_buffers_are_not_pooled_and_empty_freeze_returns_at_once() {
        let pool = BufferPool::new(PAGE, 2);
        drop(pool.take(PAGE + 1));
        assert_eq!(pool.idle(), 0);
        assert!(pool.get().freeze(9..9).is_empty());
        assert_eq!(pool.idle(), 1);
        let short = pool.take(10).freeze(4..4000);
        assert_eq!(short.len(), 6, "cut at the length");
    }
}
