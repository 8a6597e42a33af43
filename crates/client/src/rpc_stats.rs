//! `osc.*.rpc_stats`: the sizes of read and write requests. Many small requests where large ones
//! were expected are the first thing to look for when a file system is slow.

use std::{
    array,
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use sheen_wire::Time;

use crate::limits::PAGE_BYTES;

/// One bucket per power of two from 1 to 4096 pages, the largest bulk.
const BUCKETS: usize = 13;

/// Counts of requests by pages, rounded up to powers of two.
pub struct PagesPerRpc {
    read: [AtomicU64; BUCKETS],
    write: [AtomicU64; BUCKETS],
}

impl Default for PagesPerRpc {
    fn default() -> PagesPerRpc {
        PagesPerRpc { read: array::from_fn(|_| AtomicU64::new(0)), write: array::from_fn(|_| AtomicU64::new(0)) }
    }
}

fn bucket(bytes: u64) -> usize {
    let pages = bytes.div_ceil(PAGE_BYTES).max(1);
    (pages.next_power_of_two().trailing_zeros() as usize).min(BUCKETS - 1)
}

impl PagesPerRpc {
    /// Counts a read.
    pub fn read(&self, bytes: u64) {
        self.read[bucket(bytes)].fetch_add(1, Relaxed);
    }

    /// Counts a write.
    pub fn write(&self, bytes: u64) {
        self.write[bucket(bytes)].fetch_add(1, Relaxed);
    }

    /// Resets all counts.
    pub fn clear(&self) {
        self.read.iter().chain(&self.write).for_each(|count| count.store(0, Relaxed));
    }

    /// Returns the text of the parameter, in Lustre's format.
    pub fn render(&self, in_flight: usize, now: Time) -> String {
        let load = |counts: &[AtomicU64; BUCKETS]| -> [u64; BUCKETS] { array::from_fn(|i| counts[i].load(Relaxed)) };
        let (read, write) = (load(&self.read), load(&self.write));
        let (reads, writes): (u64, u64) = (read.iter().sum(), write.iter().sum());
        let mut out = format!("snapshot_time:         {}.{:09} (secs.nsecs)\n", now.sec, now.nsec);
        let _ = writeln!(out, "RPCs in flight:        {in_flight}\n");
        out.push_str("\t\t\tread\t\t\twrite\n");
        out.push_str("pages per rpc         rpcs   % cum % |       rpcs   % cum %\n");
        let last = (0..BUCKETS).rfind(|i| read[*i] + write[*i] > 0).unwrap_or(0);
        let (mut read_cum, mut write_cum) = (0, 0);
        for i in 0..=last {
            read_cum += read[i];
            write_cum += write[i];
            let share = |n: u64, of: u64| n * 100 / of.max(1);
            let _ = writeln!(
                out,
                "{}:\t\t{:10} {:3} {:3}   | {:10} {:3} {:3}",
                1 << i,
                read[i],
                share(read[i], reads),
                share(read_cum, reads),
                write[i],
                share(write[i], writes),
                share(write_cum, writes),
            );
        }
        out
    }
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
        let text = pages.render(3, Time::default());
        let line =
            |start: &str| text.lines().find(|l| l.starts_with(start)).unwrap().split_whitespace().collect::<Vec<_>>();
        assert_eq!(line("1:"), ["1:", "2", "33", "33", "|", "0", "0", "0"]);
        assert_eq!(line("2:")[1], "1");
        assert_eq!(line("16:")[5..], ["1", "100", "100"]);
        assert_eq!(line("256:")[1], "2");
        assert_eq!(line("4096:")[1..4], ["1", "16", "100"]);
        assert!(text.contains("RPCs in flight:        3"));
    }
}
