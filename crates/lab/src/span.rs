//! Begin and end of a part of a phase, comparable between tasks.

use serde::{Deserialize, Serialize};

/// Begin and end of a part of a phase, in nanoseconds ([`crate::task_clock::now`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Span {
    /// Begin.
    pub start: u64,
    /// End.
    pub end: u64,
}

impl Span {
    /// Returns the seconds between begin and end.
    pub fn seconds(self) -> f64 {
        self.end.saturating_sub(self.start) as f64 / 1e9
    }

    /// Returns the span from the first begin to the last end.
    pub fn around(spans: impl IntoIterator<Item = Span>) -> Span {
        let join = |a: Span, b: Span| Span { start: a.start.min(b.start), end: a.end.max(b.end) };
        spans.into_iter().reduce(join).unwrap_or_default()
    }
}
