//! How often this program asks for memory: the system's allocator, counted. A program that wants to know makes [`Counting`] its global
//! allocator.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

static COUNT: AtomicU64 = AtomicU64::new(0);

/// The system's allocator, which counts.
#[derive(Debug)]
pub struct Counting;

// SAFETY: every call goes to the system's allocator as it is, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Relaxed);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`, which is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `alloc` or `realloc` above, so from the system's.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.fetch_add(1, Relaxed);
        // SAFETY: as in `dealloc`.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Allocations and reallocations so far, of all threads; 0 in a program whose allocator is another.
pub fn count() -> u64 {
    COUNT.load(Relaxed)
}
