//! Time to count a read of 4 KiB in the statistics of an OST, on one core. `bench/calls.sh` runs
//! it. These statistics have no switch; `bench/src/bin/costs.rs` measures those that have one.

#![allow(clippy::unwrap_used, reason = "a measurement ends with its first error")]

use std::time::Duration;

use sheen_lnet::Nid;
use sheen_params::{JobStats, Params};
use sheen_rpc::{Export, ExportStats};
use sheen_rt::{RealOptions, Rt};
use sheen_wire::{
    Fid, JobId,
    ost::{Part, Request},
};

// The code of the OST, which is private to its crate.
#[path = "../src/brw_stats.rs"]
#[allow(dead_code, reason = "the OST calls the other functions")]
mod brw_stats;
#[path = "../../../bench/calls/rounds.rs"]
mod rounds;

use brw_stats::{BrwStats, Transfer};

/// Reads of a round.
const CALLS: u32 = 2_000_000;
/// Bytes of a read.
const BYTES: u64 = 4096;
/// Time of a read in microseconds.
const USECS: u64 = 40;
/// Jobs with statistics.
const JOBS: usize = 100;
/// The counters of a read.
const COUNTERS: &[(&str, &str)] = &[("read_bytes", "bytes"), ("read", "usecs")];

fn main() {
    let (runtime, rt) = Rt::real(RealOptions::default()).unwrap();
    let parts = [Part { object: Fid::new(1, 1), offset: 0, len: BYTES as u32 }];
    let request = Request::Read { parts: parts.to_vec() };
    let brw = BrwStats::new(rt.wall());
    rounds::print("read counted in `brw_stats`", "", CALLS, || {
        for _ in 0..CALLS {
            let under_way = brw.begin(&request).unwrap();
            brw.transferred(Transfer::Read, &parts);
            under_way.done(USECS);
        }
    });

    let exports = ExportStats::new(&rt, &Params::default(), "obdfilter.sheen-OST0000", COUNTERS);
    let client = Export::new("client", 1, 0, Nid::Lo);
    rounds::print("read counted in `exports.*.stats`", "", CALLS, || {
        for _ in 0..CALLS {
            exports.record(&client, 0, BYTES);
            exports.record(&client, 1, USECS);
        }
    });

    let stats = JobStats::new(COUNTERS);
    let jobs: Vec<JobId> = (0..JOBS).map(|n| JobId::new(format!("dd.{n}").as_bytes())).collect();
    rounds::print("read counted in `job_stats`, 100 jobs", "", CALLS, || {
        for (_, job) in (0..CALLS).zip(jobs.iter().cycle()) {
            stats.record(*job, [(0, BYTES), (1, USECS)], 0, || rt.wall());
        }
    });
    runtime.shutdown(Duration::from_secs(1));
}
