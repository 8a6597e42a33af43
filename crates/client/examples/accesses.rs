//! Time to note an access of an open file in `llite.*.access_patterns`, on one core.
//! `bench/calls.sh` runs it.

#![allow(clippy::unwrap_used, reason = "a measurement ends with its first error")]

use std::time::Duration;

use sheen_rt::{RealOptions, Rt};
use sheen_wire::Fid;

// The code of the client, which is private to its crate.
#[path = "../src/access_patterns.rs"]
#[allow(dead_code, reason = "the client calls the other functions")]
mod access_patterns;
#[path = "../../../bench/calls/rounds.rs"]
mod rounds;

use access_patterns::{Access, AccessPatterns, OpenAccesses};

/// Accesses of a round.
const CALLS: u32 = 10_000_000;
/// Bytes of an access.
const BYTES: usize = 4096;

fn main() {
    let (runtime, rt) = Rt::real(RealOptions::default()).unwrap();
    let (patterns, open) = (AccessPatterns::new(&rt), OpenAccesses::default());
    rounds::print("access noted in `access_patterns`", "", CALLS, || {
        for n in 0..CALLS {
            patterns.note(Fid::new(1, 1), &open, Access::Read, u64::from(n) * BYTES as u64, BYTES);
        }
    });
    runtime.shutdown(Duration::from_secs(1));
}
