//! Time to find the job of a program, on one core. `bench/calls.sh` runs it. With `jobid_var`, each
//! request of the kernel looks up its job; the mount reads /proc once a second for each thread.

#![allow(clippy::unwrap_used, reason = "a measurement ends with its first error")]

use std::{hint::black_box, time::Duration};

use sheen_rt::{RealOptions, Rt};

// The code of the mount, which is private to its crate.
#[path = "../src/job_ids.rs"]
#[allow(dead_code, reason = "the mount calls the other functions")]
mod job_ids;
#[path = "../../../bench/calls/rounds.rs"]
mod rounds;

use job_ids::{Caller, JobIds};

/// Lookups of a round.
const LOOKUPS: u32 = 2_000_000;
/// Reads of /proc of a round.
const READS: u32 = 20_000;

fn main() {
    let (runtime, rt) = Rt::real(RealOptions::default()).unwrap();
    let jobs = JobIds::default();
    let caller = Caller { pid: std::process::id(), uid: 0, gid: 0 };
    for (var, name) in [("procname_uid", "name of a program read"), ("PATH", "variable of a program read")] {
        assert!(jobs.set_var(var));
        rounds::print(name, "", READS, || {
            for _ in 0..READS {
                black_box(runtime.block_on(jobs.find(&rt, caller)));
            }
        });
    }
    rounds::print("job of a program looked up", "", LOOKUPS, || {
        for _ in 0..LOOKUPS {
            black_box(jobs.known(&rt, black_box(caller)));
        }
    });
    runtime.shutdown(Duration::from_secs(1));
}
