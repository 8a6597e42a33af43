//! How often a thread asks for memory: the system's allocator, counted. A program that wants to
//! know makes [`Counting`] its global allocator.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

thread_local! {
    // Needs no memory itself, neither to begin nor to end.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn count_one() {
    // Nothing is counted where the thread is ending.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

/// The system's allocator, which counts.
#[derive(Debug)]
pub struct Counting;

// SAFETY: every call goes to the system's allocator as it is, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_one();
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`, which is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `alloc` or `realloc` above, so from the system's.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count_one();
        // SAFETY: as in `dealloc`.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Allocations and reallocations of this thread so far; 0 in a program whose allocator is another.
pub fn count() -> u64 {
    COUNT.try_with(Cell::get).unwrap_or(0)
}
