//! Page-aligned buffers for reuse.
//!
//! A worker reads each request into such a buffer. The payload of a WRITE is then passed on as
//! [`Bytes`] that own the buffer. When the last of them is dropped, the buffer returns to the pool.
//!
//! Invariants:
//!
//! * A buffer has one owner at a time: the pool, a worker, or the owner behind its `Bytes`.
//! * The pool holds at most `max_idle` idle buffers. Memory used by a burst is freed.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    ops::{Deref, DerefMut, Range},
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use parking_lot::Mutex;

/// Alignment of every buffer, in bytes: the page size of x86-64. O_DIRECT on local file systems
/// needs at most this alignment.
pub(crate) const PAGE_BYTES: usize = 4096;

/// A pool of buffers of one size.
#[derive(Debug)]
pub(crate) struct Pool {
    layout: Layout,
    max_idle: usize,
    idle: Mutex<Vec<Memory>>,
    allocated: AtomicU64,
}

impl Pool {
    /// Creates a pool of buffers of `bytes` (rounded up to whole pages, at least one). At most
    /// `max_idle` idle buffers are retained.
    pub(crate) fn new(bytes: usize, max_idle: usize) -> Arc<Pool> {
        let pages = bytes.div_ceil(PAGE_BYTES).max(1);
        // The size is a multiple of the alignment and far below isize::MAX for any size that INIT
        // can negotiate. The fallback, one page, is never used.
        let layout = Layout::from_size_align(pages * PAGE_BYTES, PAGE_BYTES).unwrap_or(Layout::new::<Page>());
        Arc::new(Pool {
            layout,
            max_idle,
            idle: Mutex::new(Vec::with_capacity(max_idle)),
            allocated: AtomicU64::new(0),
        })
    }

    /// Returns an idle buffer or a new one. An idle buffer contains the bytes of its last use.
    pub(crate) fn get(self: &Arc<Pool>) -> Buffer {
        let idle = self.idle.lock().pop();
        let memory = idle.unwrap_or_else(|| {
            self.allocated.fetch_add(1, Ordering::Relaxed);
            Memory::new(self.layout)
        });
        Buffer { memory: Some(memory), pool: self.clone() }
    }

    /// Returns the number of buffers allocated so far.
    pub(crate) fn allocated(&self) -> u64 {
        self.allocated.load(Ordering::Relaxed)
    }

    fn put(&self, memory: Memory) {
        let mut idle = self.idle.lock();
        if idle.len() < self.max_idle {
            idle.push(memory);
        } else {
            drop(idle); // frees the memory outside the lock
            drop(memory);
        }
    }
}

#[repr(align(4096))]
struct Page(#[allow(dead_code, reason = "only its layout is used")] [u8; PAGE_BYTES]);

/// One aligned allocation.
#[derive(Debug)]
struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: Memory owns its allocation exclusively, as Box<[u8]> does, and has no interior
// mutability.
unsafe impl Send for Memory {}
// SAFETY: as above; a shared reference gives shared bytes only.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(layout: Layout) -> Memory {
        // SAFETY: Pool::new makes layouts of at least one page, so the size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Memory { start, layout }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the allocation has layout.size() initialised (zeroed) bytes and lives as long as
        // self.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in bytes(); &mut self makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in Memory::new with this layout, freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// A buffer in use. Returns to its pool when dropped.
#[derive(Debug)]
pub(crate) struct Buffer {
    /// `None` only during drop.
    memory: Option<Memory>,
    pool: Arc<Pool>,
}

impl Buffer {
    /// Returns the bytes of `range` (cut at the buffer's end) without copying. The buffer returns
    /// to the pool when the last clone is dropped.
    pub(crate) fn freeze(self, range: Range<usize>) -> Bytes {
        let whole = Bytes::from_owner(self);
        let end = range.end.min(whole.len());
        whole.slice(range.start.min(end)..end)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], Memory::bytes)
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory.as_mut().map_or(&mut [], Memory::bytes_mut)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.pool.put(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frozen_buffer_is_aligned_and_returns_to_the_pool() {
        let pool = Pool::new(PAGE_BYTES + 1, 2);
        let mut buffer = pool.get();
        assert_eq!(buffer.len(), 2 * PAGE_BYTES);
        assert_eq!(buffer.as_ptr() as usize % PAGE_BYTES, 0);
        buffer[PAGE_BYTES..PAGE_BYTES + 3].copy_from_slice(b"abc");
        let address = buffer.as_ptr() as usize;
        let bytes = buffer.freeze(PAGE_BYTES..PAGE_BYTES + 3);
        let clone = bytes.clone();
        drop(bytes);
        assert_ne!(pool.get().as_ptr() as usize, address, "still in use by the clone");
        assert_eq!(&clone[..], b"abc");
        drop(clone);
        assert_eq!(pool.get().as_ptr() as usize, address, "the last clone returned it");
        assert_eq!(pool.allocated(), 2);
    }

    #[test]
    fn pool_retains_at_most_max_idle_buffers() {
        let pool = Pool::new(1, 2);
        drop((0..10).map(|_| pool.get()).collect::<Vec<_>>());
        assert_eq!(pool.idle.lock().len(), 2);
        assert_eq!(pool.allocated(), 10);
    }

    #[test]
    fn freeze_cuts_ranges_past_the_end() {
        let pool = Pool::new(PAGE_BYTES, 1);
        assert_eq!(pool.get().freeze(PAGE_BYTES - 1..PAGE_BYTES + 10).len(), 1);
        assert_eq!(pool.get().freeze(PAGE_BYTES + 5..PAGE_BYTES + 10).len(), 0);
    }
}
