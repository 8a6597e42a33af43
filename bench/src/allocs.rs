//! Counts the memory allocations of a thread. A program that uses this makes [`Counting`] its
//! global allocator.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

thread_local! {
    // Must not allocate memory itself, neither when it is created nor when it is dropped.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn count_one() {
    // A thread that is ending is not counted.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

/// The system's allocator with a counter.
#[derive(Debug)]
pub struct Counting;

// SAFETY: every call goes unchanged to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_one();
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`, which is also the system
        // allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `alloc` or `realloc` above, and so from the system's allocator.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count_one();
        // SAFETY: as in `dealloc`.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Returns the number of allocations and reallocations of this thread so far. 0 in a program with
/// another allocator.
pub fn count() -> u64 {
    COUNT.try_with(Cell::get).unwrap_or(0)
}
