//! Measures a call for `bench/calls.sh`. Examples of several crates include this file, so that they
//! can measure code that is private to their crate.

#![allow(clippy::disallowed_methods, reason = "it measures time")]

use std::time::Instant;

/// Number of rounds, of which the median counts.
const ROUNDS: usize = 5;

/// Runs rounds of `calls` calls each. Prints a line with the name, the goal (or nothing), and the
/// median, minimum and maximum of a call's time in nanoseconds, with tabs between them.
pub fn print(name: &str, goal: &str, calls: u32, mut round: impl FnMut()) {
    let mut times = [0.0; ROUNDS];
    for time in &mut times {
        let began = Instant::now();
        round();
        *time = began.elapsed().as_secs_f64() * 1e9 / f64::from(calls);
    }
    times.sort_by(f64::total_cmp);
    println!("{name}\t{goal}\t{:.2}\t{:.2}\t{:.2}", times[ROUNDS / 2], times[0], times[ROUNDS - 1]);
}
