//! When something was asked for and answered.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// From the question to the answer, in moments that a [`Clock`] numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// When it was asked.
    pub from: u64,
    /// When it was answered; [`Span::NEVER`] if nobody heard: it may have been done at any time
    /// since, or not at all.
    pub to: u64,
}

impl Span {
    /// Later than everything.
    pub const NEVER: u64 = u64::MAX;

    /// Whether it was over when the other began.
    pub fn before(&self, other: &Span) -> bool {
        self.to < other.from
    }

    /// Asked, and not known to have been done.
    pub fn unanswered(self) -> Span {
        Span { to: Span::NEVER, ..self }
    }
}

/// Numbers moments: those of a simulation, in the order in which they happen.
#[derive(Default, Debug)]
pub struct Clock(AtomicU64);

impl Clock {
    /// The last moment.
    pub fn now(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// The next moment.
    pub fn tick(&self) -> u64 {
        self.0.fetch_add(1, Relaxed) + 1
    }
}
