//! `brw_stats`: sizes, times and concurrency of reads and writes, in Lustre's format.
//!
//! Lustre's tables of blocks and fragments are missing, because the local file system allocates
//! the blocks. *Disk I/Os in flight* has powers of two, where Lustre has a line for each number.
//!
//! One request of a client is one RPC. Each run of bytes in one object is one disk I/O. An I/O's
//! time is that of its request, from its begin to its reply.

use std::{
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use parking_lot::Mutex;
use sheen_objects::runs;
use sheen_params::{Histogram, Sample, Snapshot, bucket_label, share_line, shares};
use sheen_wire::{
    Time,
    ost::{Part, Request},
};

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;
const USECS_PER_MSEC: u64 = 1000;
/// The tables, in Lustre's order: title, unit of the counts, unit of the values, and a name. The
/// names of the two statistics are this one after `read_` and `write_`.
const TABLES: [(&str, &str, &str, &str); 4] = [
    ("pages per bulk r/w", "rpcs", "pages", "pages"),
    ("disk I/Os in flight", "ios", "ios", "in_flight"),
    ("I/O time (1/1000s)", "ios", "msecs", "time"),
    ("disk I/O size", "ios", "bytes", "io_size"),
];

/// The direction of a request for data of objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transfer {
    /// It reads.
    Read,
    /// It writes.
    Write,
}

/// The statistics of reads and writes.
pub struct BrwStats {
    read: Transfers,
    write: Transfers,
    since: Mutex<Time>,
}

/// The statistics of one kind.
#[derive(Default)]
struct Transfers {
    /// Requests that are executed now.
    under_way: AtomicU64,
    pages: Histogram,
    in_flight: Histogram,
    msecs: Histogram,
    sizes: Histogram,
}

/// A request that is executed now.
pub struct UnderWay<'a>(&'a Transfers);

impl BrwStats {
    /// Creates statistics without values.
    pub fn new(now: Time) -> BrwStats {
        BrwStats { read: Transfers::default(), write: Transfers::default(), since: Mutex::new(now) }
    }

    /// Counts the begin of a read or write. `None`: the request is neither.
    pub fn begin(&self, request: &Request) -> Option<UnderWay<'_>> {
        let transfers = match request {
            Request::Read { .. } => &self.read,
            Request::Write { .. } => &self.write,
            _ => return None,
        };
        transfers.in_flight.record(transfers.under_way.fetch_add(1, Relaxed) + 1);
        Some(UnderWay(transfers))
    }

    /// Counts the bytes that a request has read or written.
    pub fn transferred(&self, transfer: Transfer, parts: &[Part]) {
        let transfers = self.of(transfer);
        let mut bytes = 0;
        for run in runs(parts).filter(|run| run.len > 0) {
            transfers.sizes.record(run.len as u64);
            bytes += run.len as u64;
        }
        if bytes > 0 {
            transfers.pages.record(bytes.div_ceil(PAGE_BYTES));
        }
    }

    /// Resets all counts.
    pub fn clear(&self, now: Time) {
        *self.since.lock() = now;
        for Transfers { under_way: _, pages, in_flight, msecs, sizes } in [&self.read, &self.write] {
            [pages, in_flight, msecs, sizes].into_iter().for_each(Histogram::clear);
        }
    }

    /// Returns the values of now.
    pub fn snapshot(&self, now: Time) -> Snapshot {
        let since = *self.since.lock();
        let mut samples = Vec::new();
        for (kind, transfers) in [("read", &self.read), ("write", &self.write)] {
            let Transfers { under_way: _, pages, in_flight, msecs, sizes } = transfers;
            for ((_, _, unit, name), histogram) in TABLES.into_iter().zip([pages, in_flight, msecs, sizes]) {
                samples.push(Sample::of_buckets(&format!("{kind}_{name}"), unit, histogram.buckets()));
            }
        }
        Snapshot { taken: Some(now), since: Some(since), samples }
    }

    fn of(&self, transfer: Transfer) -> &Transfers {
        match transfer {
            Transfer::Read => &self.read,
            Transfer::Write => &self.write,
        }
    }
}

impl UnderWay<'_> {
    /// Counts the time of the request, which has succeeded.
    pub fn done(self, usecs: u64) {
        self.0.msecs.record(usecs / USECS_PER_MSEC);
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Relaxed);
    }
}

/// Returns the text of the parameter.
pub fn text(stats: &Snapshot) -> String {
    let mut out = stats.times_of_histogram();
    for (title, counted, _, name) in TABLES {
        let (read, write) = (format!("read_{name}"), format!("write_{name}"));
        // Writing to a string cannot fail.
        let _ = writeln!(out, "\n{:26} read      |     write", "");
        let _ = writeln!(out, "{title:<22} {counted:<5} % cum % |  {counted:<11} % cum %");
        let rows = shares(stats.counts_of(&read), stats.counts_of(&write)).enumerate();
        for (i, row) in rows.skip_while(|(_, (r, w))| r.count == 0 && w.count == 0) {
            out.push_str(&share_line(bucket_label(i), row, 4));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use sheen_wire::{Fid, ost::Grant};

    use super::*;

    fn part(object: u32, offset: u64, len: u32) -> Part {
        Part { object: Fid::new(9, object), offset, len }
    }

    fn write(parts: &[Part]) -> Request {
        let (file, grant) = (Fid::ZERO, Grant::default());
        Request::Write { file, parts: parts.to_vec(), sync: false, mtime: None, grant, held: false }
    }

    #[test]
    fn brw_stats_render_as_in_lustre() {
        let stats = BrwStats::new(Time { sec: 10, nsec: 0 });
        let parts = [part(1, 0, 4096), part(1, 4096, 4096), part(2, 0, 1 << 20)];
        let first = stats.begin(&write(&parts)).unwrap();
        let second = stats.begin(&write(&parts)).unwrap();
        for under_way in [first, second] {
            stats.transferred(Transfer::Write, &parts);
            under_way.done(5_999);
        }
        let read = [part(1, 0, 100), part(1, 8192, 0)];
        let under_way = stats.begin(&Request::Read { parts: read.to_vec() }).unwrap();
        stats.transferred(Transfer::Read, &read);
        under_way.done(80);
        assert!(stats.begin(&Request::StatFs).is_none());
        let want = "\
snapshot_time:            12.000000005 secs.nsecs
start_time:               10.000000000 secs.nsecs
elapsed_time:             2.000000005 secs.nsecs

                           read      |     write
pages per bulk r/w     rpcs  % cum % |  rpcs        % cum %
1:\t\t         1 100 100   |    0   0   0
2:\t\t         0   0 100   |    0   0   0
4:\t\t         0   0 100   |    0   0   0
8:\t\t         0   0 100   |    0   0   0
16:\t\t         0   0 100   |    0   0   0
32:\t\t         0   0 100   |    0   0   0
64:\t\t         0   0 100   |    0   0   0
128:\t\t         0   0 100   |    0   0   0
256:\t\t         0   0 100   |    0   0   0
512:\t\t         0   0 100   |    2 100 100

                           read      |     write
disk I/Os in flight    ios   % cum % |  ios         % cum %
1:\t\t         1 100 100   |    1  50  50
2:\t\t         0   0 100   |    1  50 100

                           read      |     write
I/O time (1/1000s)     ios   % cum % |  ios         % cum %
1:\t\t         1 100 100   |    0   0   0
2:\t\t         0   0 100   |    0   0   0
4:\t\t         0   0 100   |    0   0   0
8:\t\t         0   0 100   |    2 100 100

                           read      |     write
disk I/O size          ios   % cum % |  ios         % cum %
128:\t\t         1 100 100   |    0   0   0
256:\t\t         0   0 100   |    0   0   0
512:\t\t         0   0 100   |    0   0   0
1K:\t\t         0   0 100   |    0   0   0
2K:\t\t         0   0 100   |    0   0   0
4K:\t\t         0   0 100   |    0   0   0
8K:\t\t         0   0 100   |    2  50  50
16K:\t\t         0   0 100   |    0   0  50
32K:\t\t         0   0 100   |    0   0  50
64K:\t\t         0   0 100   |    0   0  50
128K:\t\t         0   0 100   |    0   0  50
256K:\t\t         0   0 100   |    0   0  50
512K:\t\t         0   0 100   |    0   0  50
1M:\t\t         0   0 100   |    2  50 100
";
        assert_eq!(text(&stats.snapshot(Time { sec: 12, nsec: 5 })), want);
    }

    #[test]
    fn brw_stats_clear_leaves_empty_tables_and_the_requests_under_way() {
        let stats = BrwStats::new(Time::default());
        let first = stats.begin(&write(&[])).unwrap();
        stats.clear(Time { sec: 1, nsec: 0 });
        let empty = text(&stats.snapshot(Time { sec: 2, nsec: 0 }));
        assert_eq!((empty.lines().count(), empty.contains(':')), (3 + 4 * 3, true), "{empty}");
        assert!(!empty.contains("1:\t"), "{empty}");
        let second = stats.begin(&write(&[])).unwrap();
        let in_flight = |name: &str| stats.snapshot(Time::default()).get(name).unwrap().buckets.counts().to_vec();
        assert_eq!(in_flight("write_in_flight"), [0, 1], "the second of two");
        drop((first, second));
        drop(stats.begin(&write(&[])));
        assert_eq!(in_flight("write_in_flight"), [1, 1]);
    }
}
