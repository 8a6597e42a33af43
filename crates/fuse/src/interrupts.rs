//! Interrupts that overtake their request.
//!
//! Request and INTERRUPT are read by different threads, so the INTERRUPT may reach the file system
//! before the request does. Such an early interrupt is kept here, and given again by the thread
//! that hands the request over, right after it did.
//!
//! Why none is lost: the thread with the INTERRUPT first notes it here and then asks the file
//! system; the thread with the request first hands it to the file system and then looks here. The
//! file system registers and looks up requests under one lock, so at least one of the two finds the
//! other. No lock is taken here: requests only read a few words that hardly ever change. The number
//! of notes is bounded; the oldest is overwritten.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

/// Early interrupts kept. A note matters only for the time between two adjacent steps of another
/// thread; 32 words are four cache lines.
const NOTES: usize = 32;

#[derive(Debug)]
pub(crate) struct EarlyInterrupts {
    /// Uniques of interrupted requests; 0 is empty (the kernel never uses it).
    notes: [AtomicU64; NOTES],
    next: AtomicUsize,
}

impl EarlyInterrupts {
    pub(crate) fn new() -> EarlyInterrupts {
        EarlyInterrupts { notes: [const { AtomicU64::new(0) }; NOTES], next: AtomicUsize::new(0) }
    }

    /// An INTERRUPT came: `tell` the file system, and keep the note if it does not know the request
    /// (yet).
    pub(crate) fn interrupt(&self, unique: u64, tell: impl FnOnce(u64) -> bool) {
        let slot = &self.notes[self.next.fetch_add(1, SeqCst) % NOTES];
        slot.store(unique, SeqCst);
        if tell(unique) {
            let _ = slot.compare_exchange(unique, 0, SeqCst, SeqCst);
        }
    }

    /// A request was handed over: whether it was interrupted before. Says so once.
    pub(crate) fn was_early(&self, unique: u64) -> bool {
        let mut notes = self.notes.iter();
        notes.any(|n| n.load(SeqCst) == unique && n.compare_exchange(unique, 0, SeqCst, SeqCst).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_early_interrupt_is_found_once_and_a_delivered_one_never() {
        let early = EarlyInterrupts::new();
        early.interrupt(8, |u| u != 8);
        early.interrupt(10, |u| u == 10);
        assert!(!early.was_early(10));
        assert!(early.was_early(8));
        assert!(!early.was_early(8));
    }

    #[test]
    fn notes_are_bounded_and_the_newest_stay() {
        let early = EarlyInterrupts::new();
        (1..=NOTES as u64 + 1).for_each(|u| early.interrupt(u * 2, |_| false));
        assert!(!early.was_early(2));
        assert!((2..=NOTES as u64 + 1).all(|u| early.was_early(u * 2)));
    }
}
