//! INTERRUPT messages that arrive before their request.
//!
//! Different threads read a request and its INTERRUPT, so the INTERRUPT may reach the file system
//! first. Such an early interrupt is noted here. The thread that hands the request to the file
//! system repeats the interrupt right after it.
//!
//! No interrupt is lost:
//!
//! * The thread with the INTERRUPT first notes it here, then calls the file system.
//! * The thread with the request first hands it to the file system, then looks for a note here.
//! * The file system registers and looks up requests under one lock, so at least one of the two
//!   threads finds the other's entry.
//!
//! This module takes no lock: requests only read a few words that rarely change. The number
//! of notes is bounded; a new note overwrites the oldest.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

/// Maximum number of early interrupts. A note is needed only between two adjacent steps of another
/// thread. 32 words are four cache lines.
const NOTES: usize = 32;

#[derive(Debug)]
pub(crate) struct EarlyInterrupts {
    /// Uniques of interrupted requests. 0 marks a free slot (the kernel never uses 0).
    notes: [AtomicU64; NOTES],
    next: AtomicUsize,
}

impl EarlyInterrupts {
    pub(crate) fn new() -> EarlyInterrupts {
        EarlyInterrupts { notes: [const { AtomicU64::new(0) }; NOTES], next: AtomicUsize::new(0) }
    }

    /// Handles an INTERRUPT: calls `tell`, which informs the file system. Leaves the note if `tell`
    /// returns false because the file system does not know the request yet.
    pub(crate) fn interrupt(&self, unique: u64, tell: impl FnOnce(u64) -> bool) {
        let slot = &self.notes[self.next.fetch_add(1, SeqCst) % NOTES];
        slot.store(unique, SeqCst);
        if tell(unique) {
            let _ = slot.compare_exchange(unique, 0, SeqCst, SeqCst);
        }
    }

    /// Returns whether a request, which was just handed over, was interrupted before. Returns true
    /// once per interrupt.
    pub(crate) fn was_early(&self, unique: u64) -> bool {
        let mut notes = self.notes.iter();
        notes.any(|n| n.load(SeqCst) == unique && n.compare_exchange(unique, 0, SeqCst, SeqCst).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_interrupt_is_found_once_and_delivered_interrupt_never() {
        let early = EarlyInterrupts::new();
        early.interrupt(8, |u| u != 8);
        early.interrupt(10, |u| u == 10);
        assert!(!early.was_early(10));
        assert!(early.was_early(8));
        assert!(!early.was_early(8));
    }

    #[test]
    fn early_interrupts_are_bounded_and_keep_the_newest() {
        let early = EarlyInterrupts::new();
        (1..=NOTES as u64 + 1).for_each(|u| early.interrupt(u * 2, |_| false));
        assert!(!early.was_early(2));
        assert!((2..=NOTES as u64 + 1).all(|u| early.was_early(u * 2)));
    }
}
