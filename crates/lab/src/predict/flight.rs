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
//!   `max_pages_per_rpc`. It also waits at the start and the end of its file, and until its grant
//!   suffices (`Writers`).
//! * A read: `max_rpcs_in_flight`, the readahead window of each task, and the requests that the
//!   kernel sends to a mount at a time. `max_pages_per_rpc` can only divide these requests.
//!
//! Invariants:
//! * Larger parameters never mean less data in flight.
//! * The round trips at the start and the end of a file are those of the client's code. No
//!   measurement has chosen them.

use serde::Serialize;

use crate::predict::{
    load::{Direction, Load, REQUEST_BYTES_MAX, Workload, filled, own_osts},
    shape::Shape,
};

const MIB: f64 = 1_048_576.0;
/// Bytes of a page of `max_pages_per_rpc`.
const PAGE_BYTES: f64 = 4096.0;
/// Bytes of the first grant: `FIRST_BYTES` of the client. With each flight the grant doubles.
const FIRST_GRANT: f64 = 8.0 * MIB;
/// Round trips to the MDT for a new file, and of the fsync at its end: the OSTs and the MDT answer
/// that at the same time. A close waits for nothing.
const OPEN_AND_SYNC: f64 = 2.0;
/// Part of a flight that is a rounding error of its size.
const ROUNDING: f64 = 1e-9;
/// Bytes that the kernel requests at a time without a readahead window, or with a smaller one.
const READ_AHEAD_MIN: u64 = 128 << 10;
/// Readahead requests that the kernel sends to a mount at a time: `max_background` of the mount.
const BACKGROUND_MAX: f64 = 64.0;

/// Number of parameters.
pub const RPCS: usize = 4;

/// Parameters of a mount that bound its requests to an OST.
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
    /// MiB of the readahead window of each open file. 0: none, or the mount cannot set it.
    #[serde(rename = "max_read_ahead_per_file_mb")]
    pub read_ahead_mb: u64,
}

impl Rpcs {
    /// Names of the parameters, in the order of [`Rpcs::to_array`].
    pub const NAMES: [&str; RPCS] = [
        "osc.*.max_rpcs_in_flight",
        "osc.*.max_pages_per_rpc",
        "osc.*.max_dirty_mb",
        "llite.*.max_read_ahead_per_file_mb",
    ];
    /// The values of a new mount of root.
    pub const DEFAULT: Rpcs = Rpcs { in_flight: 8, pages: 1024, dirty_mb: 64, read_ahead_mb: 4 };
    /// The largest values that a mount accepts, or that make a difference: a larger window is more
    /// than the kernel requests at a time.
    pub const MAX: Rpcs = Rpcs { in_flight: 256, pages: 4096, dirty_mb: 2048, read_ahead_mb: 64 };

    /// Returns the values as a list.
    pub fn to_array(self) -> [u64; RPCS] {
        [self.in_flight, self.pages, self.dirty_mb, self.read_ahead_mb]
    }

    /// Returns the values of a list.
    pub fn from_array([in_flight, pages, dirty_mb, read_ahead_mb]: [u64; RPCS]) -> Rpcs {
        Rpcs { in_flight, pages, dirty_mb, read_ahead_mb }
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
    wanted: Wanted,
}

/// Bytes that programs and the kernel request from the OST at a time.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Wanted {
    /// Mounts buffer as much as they may.
    Buffered(Writers),
    /// `bytes` at a time, in requests of at most `largest`.
    Direct { largest: f64, bytes: f64 },
    /// A readahead window of each reader.
    Ahead(Readers),
}

/// Tasks that write through the cache of their mount.
///
/// A flight is all requests that a mount has in flight at a time. It takes one round trip, and the
/// transfer of a request. The last flight takes as long if it is not full. The first one is not
/// larger than the first grant of 8 MiB, which comes with the first write to the OST. The replies
/// to each flight bring a grant for one twice as large.
///
/// Beside the flights, a task waits one round trip for each of these:
/// * the MDT, which creates the file;
/// * the first write to each OST, which is not buffered: there is no grant yet;
/// * the lock on each object;
/// * fsync, after the last flight.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Writers {
    /// Bytes of a request, at most.
    largest: f64,
    /// Bytes that a mount writes to the OST.
    bytes: f64,
    /// Round trips of a task beside the flights.
    round_trips: f64,
}

impl Writers {
    /// `mounts`: number of mounts that use the OST. `osts`: number of OSTs of a file.
    fn of(workload: &Workload, shape: &Shape, load: &Load, mounts: f64, osts: f64) -> Writers {
        let contiguous = workload.contiguous().min(workload.size).max(1);
        let units = workload.size.div_ceil(contiguous).saturating_mul(contiguous.div_ceil(shape.stripe_size));
        // Tasks of a shared file may write to some of its objects only.
        let objects = filled(workload.file_bytes(), shape).min(units as f64).max(1.0);
        Writers {
            largest: (load.mib * MIB * load.object_part).max(PAGE_BYTES),
            bytes: (load.mib * MIB * load.ost_part / mounts).max(PAGE_BYTES),
            round_trips: OPEN_AND_SYNC + osts.min(objects) + objects,
        }
    }

    /// Returns the bytes of a flight, on average. `requests`: bytes of `max_rpcs_in_flight` ones.
    /// `dirty`: bytes of `max_dirty_mb`.
    fn flight(&self, requests: f64, dirty: f64) -> f64 {
        // A program that has filled the buffer waits until half of it is free.
        let full = requests.min(dirty / 2.0);
        let (mut flights, mut left, mut granted) = (0.0, self.bytes, FIRST_GRANT);
        while granted < full && left > 0.0 {
            flights += 1.0;
            left -= granted;
            granted *= 2.0;
        }
        self.bytes / (flights + (left / full - ROUNDING).ceil().max(0.0))
    }
}

/// Readers with a readahead window each.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Readers {
    readers: f64,
    /// Mounts with readers.
    nodes: f64,
    /// Bytes that a reader reads without a gap.
    contiguous: u64,
    stripe_size: u64,
    /// OSTs of a file.
    osts: f64,
}

impl Readers {
    /// Returns the bytes of a request to an OST, and those that are requested from all OSTs at a
    /// time.
    fn wanted(&self, read_ahead_mb: u64) -> (f64, f64) {
        let window = read_ahead_mb.saturating_mul(1 << 20).max(READ_AHEAD_MIN).min(self.contiguous.max(1));
        let request = window.min(REQUEST_BYTES_MAX);
        let most = self.nodes * BACKGROUND_MAX * request as f64;
        let width = width(request, self.stripe_size, self.osts);
        (request as f64 / width, (self.readers * window as f64).min(most))
    }
}

/// Returns the number of OSTs to which a request of the kernel goes.
fn width(request: u64, stripe_size: u64, osts: f64) -> f64 {
    (request.div_ceil(stripe_size) as f64).clamp(1.0, osts)
}

impl Requests {
    /// Computes the requests for one kind of accesses. `osts`: number of OSTs of the file system or
    /// pool. `mirrors`: number of mirrors that are used at the same time, at least 1.
    pub fn of(direction: Direction, workload: &Workload, shape: &Shape, osts: u32, mirrors: f64) -> Requests {
        let load = Load::of(workload, shape, osts).over_mirrors(mirrors, osts);
        let own = own_osts(workload.file_bytes(), shape, osts);
        let ost_part = load.ost_part;
        let using = if workload.files { load.files * own * ost_part } else { load.nodes / mirrors };
        let mounts = using.clamp(1.0, load.nodes);
        let wanted = match direction {
            Direction::Write if load.direct_mib == 0.0 => {
                Wanted::Buffered(Writers::of(workload, shape, &load, mounts, own))
            }
            // Tasks of a mount that write one file take turns.
            Direction::Write => {
                let request = workload.transfer.min(REQUEST_BYTES_MAX);
                let largest = request as f64 / width(request, shape.stripe_size, own);
                Wanted::Direct { largest, bytes: load.inodes * request as f64 * ost_part }
            }
            Direction::Read => Wanted::Ahead(Readers {
                readers: load.tasks,
                nodes: load.nodes,
                contiguous: workload.contiguous(),
                stripe_size: shape.stripe_size,
                osts: own,
            }),
        };
        Requests { ost_part, mounts, wanted }
    }

    /// Returns the rate of the job that data in flight allows, in MiB/s, without the start and the
    /// end of files.
    pub fn rate(&self, rpcs: &Rpcs, link: &Link) -> f64 {
        let request = |largest: f64| largest.min(rpcs.pages as f64 * PAGE_BYTES);
        let requests = |bytes: f64| rpcs.in_flight as f64 * bytes;
        let (bytes, in_flight) = match self.wanted {
            Wanted::Buffered(writers) => {
                let bytes = request(writers.largest);
                (bytes, self.mounts * writers.flight(requests(bytes), rpcs.dirty_mb as f64 * MIB))
            }
            Wanted::Direct { largest, bytes: wanted } => {
                let bytes = request(largest);
                (bytes, wanted.min(self.mounts * requests(bytes)))
            }
            Wanted::Ahead(readers) => {
                let (largest, of_all) = readers.wanted(rpcs.read_ahead_mb);
                let bytes = request(largest);
                (bytes, (of_all * self.ost_part).min(self.mounts * requests(bytes)))
            }
        };
        in_flight / MIB / (link.round_trip + bytes / MIB / link.ost) / self.ost_part
    }

    /// Returns the rate of the job in MiB/s, with the start and the end of files. `most`: the rate
    /// in between that everything but data in flight allows.
    pub fn rate_of_job(&self, most: f64, rpcs: &Rpcs, link: &Link) -> f64 {
        let rate = self.rate(rpcs, link).min(most);
        match self.wanted {
            Wanted::Buffered(writers) => {
                let mib = writers.bytes * self.mounts / self.ost_part / MIB;
                mib / (mib / rate + writers.round_trips * link.round_trip)
            }
            Wanted::Direct { .. } | Wanted::Ahead(_) => rate,
        }
    }

    /// Returns the round trips of a task at the start and the end of its file, beside those of the
    /// data. `None`: they are not known, and do not count.
    pub fn round_trips(&self) -> Option<f64> {
        match self.wanted {
            Wanted::Buffered(writers) => Some(writers.round_trips),
            Wanted::Direct { .. } | Wanted::Ahead(_) => None,
        }
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
        !matches!(self.wanted, Wanted::Buffered(_))
    }

    /// Whether they are reads, which the readahead window bounds.
    pub fn are_reads(&self) -> bool {
        matches!(self.wanted, Wanted::Ahead(_))
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
        let of = |workload: &Workload, osts| Requests::of(Direction::Write, workload, &shape(1), osts, 1.0);
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
        let requests = Requests::of(Direction::Write, &job(1, 1, 65_536), &shape(1), 1, 1.0);
        let of = |pages, dirty_mb| rate(&requests, Rpcs { pages, dirty_mb, ..Rpcs::DEFAULT });
        assert_eq!(of(1024, 64), 2151, "1 GiB in 34 flights of 14 ms, the first ones of 8 and 16 MiB");
        assert_eq!(of(1024, 2048), 2151, "8 requests of 4 MiB");
        assert_eq!(of(256, 64), 727, "8 requests of 1 MiB");
        assert_eq!(of(2048, 128), 2994, "19 flights of 18 ms");
        assert_eq!(of(4096, 2048), 3282, "12 flights of 26 ms");
        assert_eq!(rate(&requests, Rpcs { in_flight: 1, ..Rpcs::DEFAULT }), 286, "4 MiB in 14 ms");
        let more = Rpcs { in_flight: 32, pages: 256, ..Rpcs::DEFAULT };
        assert_eq!(rate(&requests, more), 2738, "34 flights of 11 ms");
        let small = Workload { size: MI, block: MI, ..job(1, 1, 65_536) };
        let small = Requests::of(Direction::Write, &small, &shape(1), 1, 1.0);
        assert_eq!(rate(&small, Rpcs::DEFAULT), 91, "1 MiB in 11 ms");
    }

    /// Measured: 256 MiB in writes of 64 KiB, by one task, while other programs ran.
    #[test]
    fn buffered_writes_over_40_ms_take_the_measured_times() {
        let file = Workload { size: 256 * MI, block: 256 * MI, ..job(1, 1, 65_536) };
        let requests = Requests::of(Direction::Write, &file, &shape(1), 1, 1.0);
        let link = Link { round_trip: 0.04, ost: 1300.0 };
        for (in_flight, pages, expected, measured) in
            [(2, 256, 48.0, 42.0), (8, 256, 175.0, 161.0), (32, 256, 451.0, 374.0), (8, 1024, 433.0, 398.0)]
        {
            let rpcs = Rpcs { in_flight, pages, ..Rpcs::DEFAULT };
            let rate = requests.rate_of_job(f64::INFINITY, &rpcs, &link);
            assert_eq!(rate.round(), expected, "{in_flight} requests of {pages} pages");
            assert!((rate / measured - 1.0).abs() < 0.21, "{in_flight} requests: {rate} instead of {measured}");
        }
        let slow = requests.rate_of_job(100.0, &Rpcs::DEFAULT, &link);
        assert!((slow - 256.0 / (2.56 + 0.16)).abs() < 1e-6, "the start and the end come on top: {slow}");
        let long = Workload { size: 256 * 1024 * MI, ..file };
        let long = Requests::of(Direction::Write, &long, &shape(1), 1, 1.0);
        let rpcs = Rpcs { in_flight: 32, pages: 256, ..Rpcs::DEFAULT };
        assert_eq!(long.rate_of_job(f64::INFINITY, &rpcs, &link).round(), 784.0, "32 MiB in 40.8 ms");
    }

    #[test]
    fn first_writes_to_osts_and_locks_on_objects_take_round_trips() {
        let of =
            |workload: &Workload, shape: &Shape| Requests::of(Direction::Write, workload, shape, 4, 1.0).round_trips();
        let own = job(1, 1, 65_536);
        assert_eq!(of(&own, &shape(1)), Some(4.0), "create, write, lock, fsync");
        assert_eq!(of(&own, &shape(4)), Some(10.0), "four OSTs with an object each");
        assert_eq!(of(&own, &Shape { osts: 2, ..shape(4) }), Some(8.0), "two OSTs with two objects each");
        let small = Workload { size: 2 * MI, ..own };
        assert_eq!(of(&small, &shape(4)), Some(6.0), "two stripes have data");
        let block = Workload { files: false, size: MI, block: MI, ..job(4, 4, 65_536) };
        assert_eq!(of(&block, &shape(4)), Some(4.0), "a task writes one stripe of four");
        assert_eq!(of(&job(1, 1, MI), &shape(1)), None, "not buffered");
    }

    #[test]
    fn reads_request_as_much_as_the_readahead_window() {
        let of = |workload: &Workload, read_ahead_mb| {
            let requests = Requests::of(Direction::Read, workload, &shape(1), 1, 1.0);
            rate(&requests, Rpcs { read_ahead_mb, ..Rpcs::DEFAULT })
        };
        assert_eq!(of(&job(1, 1, 65_536), 4), 364, "4 MiB in 11 ms");
        assert_eq!(of(&job(4, 1, 65_536), 4), 727, "8 MiB of 16");
        assert_eq!(of(&job(1, 1, 65_536), 8), 727, "a larger window");
        assert_eq!(of(&job(1, 1, MI), 0), 12, "128 KiB in 10.125 ms");
        let in_turn = Workload { files: false, block: 65_536, ..job(8, 8, 65_536) };
        assert_eq!(of(&in_turn, 4), 50, "each task 64 KiB in 10.06 ms");
    }

    #[test]
    fn kernel_bounds_the_readahead_of_all_files_of_a_mount() {
        let requests = Requests::of(Direction::Read, &job(32, 1, MI), &shape(1), 1, 1.0);
        assert_eq!(rate(&requests, Rpcs::MAX), 5818, "64 MiB in 11 ms");
        let of_two = Requests::of(Direction::Read, &job(32, 2, MI), &shape(1), 1, 1.0);
        assert_eq!(rate(&of_two, Rpcs::MAX), 11_636);
    }

    #[test]
    fn mounts_that_read_several_mirrors_use_more_osts() {
        let shared = Workload { files: false, ..job(8, 8, MI) };
        let of = |mirrors| Requests::of(Direction::Read, &shared, &shape(1), 4, mirrors);
        let (one, two) = (of(1.0), of(2.0));
        assert_eq!((one.at_rate_of_ost(100.0), two.at_rate_of_ost(100.0)), (100.0, 200.0));
        assert_eq!(rate(&one, Rpcs::DEFAULT), rate(&two, Rpcs::DEFAULT), "each mount has as much in flight");
    }
}
