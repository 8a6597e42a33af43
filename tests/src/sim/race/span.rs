//! Times of requests and replies.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The time from a request to its reply, in moments of a [`Clock`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Moment of the request.
    pub from: u64,
    /// Moment of the reply. [`Span::NEVER`] if there was none: the operation may have been executed
    /// at any time since the request, or not at all.
    pub to: u64,
}

impl Span {
    /// Later than all moments.
    pub const NEVER: u64 = u64::MAX;

    /// Returns whether this span ended before the other began.
    pub fn before(&self, other: &Span) -> bool {
        self.to < other.from
    }

    /// Returns the span of the same request without a reply.
    pub fn unanswered(self) -> Span {
        Span { to: Span::NEVER, ..self }
    }
}

/// Numbers the moments of a simulation, in the order in which they occur.
#[derive(Default, Debug)]
pub struct Clock(AtomicU64);

impl Clock {
    /// Returns the last moment.
    pub fn now(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Returns a new moment.
    pub fn tick(&self) -> u64 {
        self.0.fetch_add(1, Relaxed) + 1
    }
}
