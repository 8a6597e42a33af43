//! `osc.*.rpc_stats`: the sizes of read and write requests. Many small requests where large ones
//! were expected are the first thing to look for when a file system is slow.

use std::fmt::Write;

use sheen_params::{Histogram, Sample, Snapshot, share_line, shares};
use sheen_wire::Time;

use crate::limits::PAGE_BYTES;

/// Name of the sample of the requests that are under way.
const IN_FLIGHT: &str = "in_flight";

/// Histograms of requests by pages.
#[derive(Default)]
pub struct PagesPerRpc {
    read: Histogram,
    write: Histogram,
}

impl PagesPerRpc {
    /// Counts a read.
    pub fn read(&self, bytes: u64) {
        self.read.record(bytes.div_ceil(PAGE_BYTES));
    }

    /// Counts a write.
    pub fn write(&self, bytes: u64) {
        self.write.record(bytes.div_ceil(PAGE_BYTES));
    }

    /// Resets all counts.
    pub fn clear(&self) {
        self.read.clear();
        self.write.clear();
    }

    /// Returns the values of the parameter.
    pub fn snapshot(&self, in_flight: usize, now: Time) -> Snapshot {
        let of = |name, histogram: &Histogram| Sample::of_buckets(name, "pages", histogram.buckets());
        let in_flight = Sample::of_count(IN_FLIGHT, "reqs", in_flight as u64);
        let samples = vec![in_flight, of("read", &self.read), of("write", &self.write)];
        Snapshot { taken: Some(now), since: None, samples }
    }
}

/// Returns the text of the parameter, in Lustre's format.
pub fn rpc_stats_text(stats: &Snapshot) -> String {
    let now = stats.taken.unwrap_or_default();
    let in_flight = stats.get(IN_FLIGHT).map_or(0, |s| s.count);
    let mut out = format!("snapshot_time:         {}.{:09} (secs.nsecs)\n", now.sec, now.nsec);
    let _ = writeln!(out, "RPCs in flight:        {in_flight}\n");
    out.push_str("\t\t\tread\t\t\twrite\n");
    out.push_str("pages per rpc         rpcs   % cum % |       rpcs   % cum %\n");
    for (i, row) in shares(stats.counts_of("read"), stats.counts_of("write")).enumerate() {
        out.push_str(&share_line(1u64 << i, row, 10));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rpc_stats_count_requests_by_powers_of_two_of_pages() {
        let pages = PagesPerRpc::default();
        for bytes in [1, 4096, 4097, 1 << 20, 1 << 20, 16 << 20] {
            pages.read(bytes);
        }
        pages.write(47008);
        let text = rpc_stats_text(&pages.snapshot(3, Time::default()));
        let line =
            |start: &str| text.lines().find(|l| l.starts_with(start)).unwrap().split_whitespace().collect::<Vec<_>>();
        assert_eq!(line("1:"), ["1:", "2", "33", "33", "|", "0", "0", "0"]);
        assert_eq!(line("2:")[1], "1");
        assert_eq!(line("16:")[5..], ["1", "100", "100"]);
        assert_eq!(line("256:")[1], "2");
        assert_eq!(line("4096:")[1..4], ["1", "16", "100"]);
        assert!(text.ends_with("4096:\t\t         1  16 100   |          0   0 100\n"), "{text}");
        assert!(text.contains("RPCs in flight:        3"));
        pages.clear();
        let text = rpc_stats_text(&pages.snapshot(0, Time::default()));
        assert!(text.ends_with("1:\t\t         0   0   0   |          0   0   0\n"), "{text}");
    }
}
