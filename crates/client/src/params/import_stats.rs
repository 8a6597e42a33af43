//! `osc.*.stats`, `mdc.*.stats`: requests of an import by kind.

use std::fmt::Write;

use sheen_params::{Sample, Snapshot};
use sheen_rpc::ImportStats;
use sheen_wire::Time;

/// Width of the names.
const NAME_WIDTH: usize = 25;

/// Returns the requests with their times and, in samples of their own, their bulk bytes.
pub fn import_stats(stats: &ImportStats, now: Time) -> Snapshot {
    let mut samples = Vec::new();
    for (op, s) in &stats.ops {
        samples.push(Sample {
            min: Some(s.time_ns_min / 1000),
            max: Some(s.time_ns_max / 1000),
            sum: Some(s.time_ns / 1000),
            buckets: s.latency.clone(),
            ..Sample::of_count(op, "usecs", s.count)
        });
        for (what, bytes) in [("sent", s.bytes_sent), ("received", s.bytes_received)] {
            if bytes > 0 {
                let sum = Some(bytes);
                samples.push(Sample { sum, ..Sample::of_count(&format!("{op}_bytes_{what}"), "bytes", s.count) });
            }
        }
    }
    Snapshot { taken: Some(now), since: None, samples }
}

/// Returns the text of the parameter.
pub fn import_stats_text(stats: &Snapshot) -> String {
    let now = stats.taken.unwrap_or_default();
    let mut out = format!("{:<NAME_WIDTH$} {}.{:09} secs.nsecs\n", "snapshot_time", now.sec, now.nsec);
    for s in &stats.samples {
        let (sum, max) = (s.sum.unwrap_or(0), s.max.unwrap_or(0));
        // Writing to a string cannot fail.
        let _ = write!(out, "{:<NAME_WIDTH$} {} samples ", s.name, s.count);
        let _ = match s.unit.as_str() {
            "bytes" => writeln!(out, "[bytes] sum {sum}"),
            _ => writeln!(out, "[reqs] mean_usecs {} max_usecs {max}", sum / s.count.max(1)),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use sheen_rpc::OpStats;

    use super::*;

    #[test]
    fn import_stats_print_requests_and_bytes() {
        let write = OpStats {
            count: 3,
            bytes_sent: 12288,
            time_ns: 3_000_999,
            time_ns_min: 900,
            time_ns_max: 2_000_999,
            ..OpStats::default()
        };
        let stats = ImportStats { ops: vec![("write", write)], ..ImportStats::default() };
        let snapshot = import_stats(&stats, Time { sec: 17, nsec: 5 });
        assert_eq!(snapshot.get("write").map(|s| (s.min, s.max, s.sum)), Some((Some(0), Some(2000), Some(3000))));
        let want = "\
snapshot_time             17.000000005 secs.nsecs
write                     3 samples [reqs] mean_usecs 1000 max_usecs 2000
write_bytes_sent          3 samples [bytes] sum 12288
";
        assert_eq!(import_stats_text(&snapshot), want);
    }
}
