//! The progress of a check on a terminal: one line that is redrawn in place.

use std::{
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

/// A check that ends sooner shows no progress.
const AFTER: Duration = Duration::from_secs(2);
/// Interval at which the line is redrawn.
const INTERVAL: Duration = Duration::from_millis(200);
/// Calls between two looks at the clock.
const CALLS: u64 = 256;

/// The line.
pub struct Progress {
    is_terminal: bool,
    began: Instant,
    drawn: Option<Instant>,
    calls: u64,
}

impl Progress {
    /// Starts the progress of a check.
    pub fn new() -> Progress {
        Progress { is_terminal: io::stderr().is_terminal(), began: Instant::now(), drawn: None, calls: 0 }
    }

    /// Shows how much of `what` was checked. `all`: the approximate number, if it is known.
    pub fn show(&mut self, what: &str, done: u64, all: Option<u64>) {
        self.calls += 1;
        // Records come thousands at a time, objects one by one.
        if !self.is_terminal || (all.is_none() && !self.calls.is_multiple_of(CALLS)) {
            return;
        }
        let now = Instant::now();
        if now - self.began < AFTER || self.drawn.is_some_and(|drawn| now - drawn < INTERVAL) {
            return;
        }
        self.drawn = Some(now);
        let share = all.map(|all| format!(" of about {all} ({} %)", (100 * done / all.max(1)).min(100)));
        eprint!("\rchecked {done} {what}{}\x1b[K", share.unwrap_or_default());
        let _ = io::stderr().flush();
    }

    /// Removes the line.
    pub fn end(self) {
        if self.drawn.is_some() {
            eprint!("\r\x1b[K");
        }
    }
}
