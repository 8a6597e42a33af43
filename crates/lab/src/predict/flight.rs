//! Data in flight between mounts and an OST, and the rate that it allows over a distance.
//!
//! An OST answers a request after the round trip and the transfer of its bytes. So requests of `s`
//! bytes, `n` at a time, carry
//!
//! ```text
//! n × s / (round trip + s / rate of the OST)
//! ```
//!
//! until something else limits them. With a small `s`, this is the unthrottled regime of `sheen lab
//! wan`. The client bounds `n` and `s` for each kind of access:
//!
//! * A write that is not buffered: `max_rpcs_in_flight`, and one request of the kernel at a time
//!   for each open file. `max_pages_per_rpc` can only divide that request.
//! * A buffered write: `max_rpcs_in_flight`, and half of `max_dirty_mb`. A request has up to
//!   `max_pages_per_rpc`, and not more than a grant.
//! * A read: `max_rpcs_in_flight`, and the readahead window of each task. `max_pages_per_rpc` can
//!   only divide the requests of the kernel.
//!
//! Invariant: larger parameters never mean less data in flight.

use serde::Serialize;

use crate::predict::{
    load::{Direction, Load, REQUEST_BYTES_MAX, Workload, own_osts},
    shape::Shape,
};

const MIB: f64 = 1_048_576.0;
/// Bytes of a page of `max_pages_per_rpc`.
const PAGE_BYTES: f64 = 4096.0;
/// Bytes of grant that a mount requests at a time, at least: `GRANT_BYTES` of the client. Larger
/// requests could use up the grant before the replies renew it.
const GRANT_BYTES: f64 = 8.0 * MIB;
/// Bytes that the kernel requests at a time without a readahead window, or with a smaller one.
pub const READ_AHEAD_MIN: u64 = 128 << 10;
/// Readahead window of a mount of root, in bytes: `READAHEAD_MB` of the mount.
pub const READ_AHEAD_DEFAULT: u64 = 4 << 20;

/// Parameters of a mount's requests to an OST.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Rpcs {
    /// Requests at a time.
    #[serde(rename = "max_rpcs_in_flight")]
    pub in_flight: u64,
    /// Pages of 4 KiB of a request.
    #[serde(rename = "max_pages_per_rpc")]
    pub pages: u64,
    /// MiB of buffered writes.
    #[serde(rename = "max_dirty_mb")]
    pub dirty_mb: u64,
}

impl Rpcs {
    /// Names of the parameters, in the order of [`Rpcs::to_array`].
    pub const NAMES: [&str; 3] = ["max_rpcs_in_flight", "max_pages_per_rpc", "max_dirty_mb"];
    /// The values of a new mount.
    pub const DEFAULT: Rpcs = Rpcs { in_flight: 8, pages: 1024, dirty_mb: 64 };
    /// The largest values that a mount accepts.
    pub const MAX: Rpcs = Rpcs { in_flight: 256, pages: 4096, dirty_mb: 2048 };

    /// Returns the values as a list.
    pub fn to_array(self) -> [u64; 3] {
        [self.in_flight, self.pages, self.dirty_mb]
    }

    /// Returns the values of a list.
    pub fn from_array([in_flight, pages, dirty_mb]: [u64; 3]) -> Rpcs {
        Rpcs { in_flight, pages, dirty_mb }
    }
}

/// The connection of a mount to an OST.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Link {
    /// Seconds of a request without data.
    pub round_trip: f64,
    /// MiB/s of the OST, above 0.
    pub ost: f64,
}

/// Requests of a job to the OST that gets most of its bytes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Requests {
    /// Part of the bytes that are on this OST.
    ost_part: f64,
    /// Mounts that use it at the same time.
    mounts: f64,
    /// Largest request that the kernel or a file allows, in bytes.
    largest: f64,
    /// Bytes that programs and the kernel request from it at a time. `None`: mounts buffer as much
    /// as they may.
    wanted: Option<f64>,
}

impl Requests {
    /// Computes the requests for one kind of accesses. `osts`: number of OSTs of the file system.
    /// `read_ahead`: window of the mounts, in bytes.
    pub fn of(direction: Direction, workload: &Workload, shape: &Shape, osts: u32, read_ahead: u64) -> Requests {
        let load = Load::of(workload, shape, osts);
        let own = own_osts(workload.file_bytes(), shape, osts);
        let using = if workload.files { load.files * own * load.ost_part } else { load.nodes };
        let mounts = using.clamp(1.0, load.nodes);
        let is_buffered = direction == Direction::Write && load.direct_mib == 0.0;
        if is_buffered {
            let of_object = load.mib * MIB * load.object_part;
            let largest = of_object.clamp(PAGE_BYTES, GRANT_BYTES);
            return Requests { ost_part: load.ost_part, mounts, largest, wanted: None };
        }
        // Tasks of a mount that write one file take turns. Each reader has a window of its own.
        let (requesters, at_a_time) = match direction {
            Direction::Write => (load.inodes, workload.transfer.min(REQUEST_BYTES_MAX)),
            Direction::Read => (load.tasks, read_ahead.max(READ_AHEAD_MIN).min(workload.contiguous().max(1))),
        };
        let request = at_a_time.min(REQUEST_BYTES_MAX);
        let width = (request.div_ceil(shape.stripe_size) as f64).clamp(1.0, own);
        let wanted = requesters * at_a_time as f64 * load.ost_part;
        Requests { ost_part: load.ost_part, mounts, largest: request as f64 / width, wanted: Some(wanted) }
    }

    /// Returns the rate of the job that data in flight allows, in MiB/s.
    pub fn rate(&self, rpcs: &Rpcs, link: &Link) -> f64 {
        let bytes = self.largest.min(rpcs.pages as f64 * PAGE_BYTES);
        let in_flight = match self.wanted {
            Some(wanted) => wanted.min(self.mounts * rpcs.in_flight as f64 * bytes),
            // A program that has filled the buffer waits until half of it is free.
            None => self.mounts * (rpcs.in_flight as f64 * bytes).min(rpcs.dirty_mb as f64 * MIB / 2.0),
        };
        in_flight / MIB / (link.round_trip + bytes / MIB / link.ost) / self.ost_part
    }

    /// Returns the rate of the job, in MiB/s, at which its fullest OST has this rate.
    pub fn at_rate_of_ost(&self, ost: f64) -> f64 {
        ost / self.ost_part
    }

    /// Returns the rate between a mount and the fullest OST, in MiB/s, if the job has this rate.
    pub fn of_mount(&self, rate: f64) -> f64 {
        rate * self.ost_part / self.mounts
    }

    /// Whether programs and readahead bound the bytes that are requested at a time.
    pub fn are_bounded(&self) -> bool {
        self.wanted.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MI: u64 = 1 << 20;

    fn job(tasks: u32, nodes: u32, transfer: u64) -> Workload {
        Workload { tasks, nodes, transfer, block: 1024 * MI, size: 1024 * MI, files: true }
    }

    fn shape(stripes: u32) -> Shape {
        Shape { stripes, osts: stripes, stripe_size: MI, all_osts: None }
    }

    /// Round trip of 10 ms, and an OST of 1000 MiB/s: a MiB takes 11 ms.
    const LINK: Link = Link { round_trip: 0.01, ost: 1000.0 };

    fn rate(requests: &Requests, rpcs: Rpcs) -> u64 {
        requests.rate(&rpcs, &LINK).round() as u64
    }

    #[test]
    fn unbuffered_writes_have_one_request_of_the_kernel_for_each_file() {
        let of = |workload: &Workload, osts| Requests::of(Direction::Write, workload, &shape(1), osts, 4 * MI);
        let one = of(&job(1, 1, 4 * MI), 1);
        assert_eq!(rate(&one, Rpcs::DEFAULT), 91, "1 MiB in 11 ms");
        assert_eq!(rate(&one, Rpcs::MAX), 91, "the program writes no more at a time");
        let many = of(&job(16, 1, MI), 1);
        assert_eq!(rate(&many, Rpcs::DEFAULT), 727, "8 MiB in 11 ms");
        assert_eq!(rate(&many, Rpcs { in_flight: 16, ..Rpcs::DEFAULT }), 1455);
        assert_eq!(rate(&many, Rpcs { pages: 64, ..Rpcs::DEFAULT }), 195, "2 MiB in 10.25 ms");
        assert_eq!(rate(&of(&job(16, 16, MI), 1), Rpcs::DEFAULT), 1455, "each mount has slots of its own");
        let spread = of(&job(16, 1, MI), 4);
        assert_eq!((rate(&spread, Rpcs::DEFAULT), spread.of_mount(1000.0)), (1455, 250.0), "4 files on each OST");
        assert_eq!(spread.at_rate_of_ost(500.0), 2000.0);
    }

    #[test]
    fn buffered_writes_depend_on_the_size_of_requests_and_on_the_buffer() {
        let requests = Requests::of(Direction::Write, &job(1, 1, 65_536), &shape(1), 1, 4 * MI);
        let of = |pages, dirty_mb| rate(&requests, Rpcs { pages, dirty_mb, ..Rpcs::DEFAULT });
        assert_eq!(of(1024, 64), 2286, "32 MiB in 14 ms");
        assert_eq!(of(1024, 2048), 2286, "8 requests of 4 MiB");
        assert_eq!(of(256, 64), 727, "8 requests of 1 MiB");
        assert_eq!(of(2048, 128), 3556, "64 MiB in 18 ms");
        assert_eq!(of(4096, 2048), of(2048, 128), "a grant is 8 MiB");
        assert_eq!(rate(&requests, Rpcs { in_flight: 1, ..Rpcs::DEFAULT }), 286, "4 MiB in 14 ms");
        let more = Rpcs { in_flight: 32, pages: 256, dirty_mb: 64 };
        assert_eq!(rate(&requests, more), 2909, "32 MiB in 11 ms");
        let small = Workload { size: MI, block: MI, ..job(1, 1, 65_536) };
        let small = Requests::of(Direction::Write, &small, &shape(1), 1, 4 * MI);
        assert_eq!(rate(&small, Rpcs::DEFAULT), 727, "the object has 1 MiB");
    }

    #[test]
    fn reads_request_as_much_as_the_readahead_window() {
        let of = |workload: &Workload, window| Requests::of(Direction::Read, workload, &shape(1), 1, window);
        let rate = |requests: &Requests| rate(requests, Rpcs::DEFAULT);
        assert_eq!(rate(&of(&job(1, 1, 65_536), 4 * MI)), 364, "4 MiB in 11 ms");
        assert_eq!(rate(&of(&job(4, 1, 65_536), 4 * MI)), 727, "8 MiB of 16");
        assert_eq!(rate(&of(&job(1, 1, MI), 0)), 12, "128 KiB in 10.125 ms");
        let in_turn = Workload { files: false, block: 65_536, ..job(8, 8, 65_536) };
        assert_eq!(rate(&of(&in_turn, 4 * MI)), 50, "each task 64 KiB in 10.06 ms");
    }
}
