//! `osc.*.stats`, `mdc.*.stats` and `mdc.*.md_stats`: the requests of an import, by Lustre's names.
//!
//! One name of Lustre may count several kinds of requests of Sheen. A kind that Lustre does not
//! have gets the prefix of its service, such as `ost_seal`.

use sheen_params::{Buckets, Sample, Snapshot};
use sheen_rpc::{ImportStats, OpStats};
use sheen_wire::{Mds, Protocol, Time};

/// Lustre's names and order of the requests, with the kinds that each of them counts.
type Names = &'static [(&'static str, &'static [&'static str])];

/// Requests to an OST, or to the data service of an MDT.
const OF_OST: Names = &[
    ("ldlm_extent_enqueue", &["ldlm_enqueue"]),
    ("ost_getattr", &["getattr"]),
    (READ, &["read"]),
    (WRITE, &["write"]),
    ("ost_destroy", &["destroy"]),
    ("ost_punch", &["punch"]),
    ("ost_statfs", &["statfs"]),
    ("ost_sync", &["sync"]),
    ("ost_fallocate", &["fallocate"]),
    ("ost_seek", &["seek"]),
    ("ldlm_cancel", &["ldlm_cancel"]),
    // The reply to it is a request of its own.
    ("ldlm_gl_callback", &["ldlm_glimpse"]),
];
const READ: &str = "ost_read";
const WRITE: &str = "ost_write";

/// Requests to an MDT. The only locks that are requests of their own are file locks and those of
/// layouts.
const OF_MDT: Names = &[
    ("ldlm_flock_enqueue", &["ldlm_enqueue"]),
    ("ldlm_ibits_enqueue", &["layout_intent"]),
    ("mds_reint_setattr", &["setattr"]),
    ("mds_reint_create", &["mkdir", "mknod", "symlink"]),
    ("mds_reint_link", &["link"]),
    ("mds_reint_unlink", &["rmdir", "unlink"]),
    ("mds_reint_rename", &["rename"]),
    ("mds_reint_open", &["create", "open", "tmpfile"]),
    ("mds_reint_setxattr", &["removexattr", "setxattr"]),
    ("mds_getattr", &["getattr", "readlink"]),
    ("mds_getattr_lock", &["lookup"]),
    ("mds_close", &["close"]),
    ("mds_readpage", &["readdir"]),
    ("mds_get_root", &["root"]),
    ("mds_statfs", &["statfs"]),
    ("mds_sync", &["sync"]),
    ("mds_getxattr", &["getxattr", "listxattr"]),
    ("mds_get_info", &["fid2path"]),
    ("mds_swap_layouts", &["swap_layouts"]),
    ("ldlm_cancel", &["ldlm_cancel"]),
    ("seq_query", &["alloc_seq"]),
];

/// The operations of `md_stats`, with the kinds that each of them counts.
const MD_STATS: Names = &[
    ("close", &["close"]),
    ("create", &["mkdir", "mknod", "symlink"]),
    ("enqueue", &["ldlm_enqueue"]),
    ("getattr", &["getattr", "readlink"]),
    ("intent_lock", &["create", "layout_intent", "lookup", "open", "tmpfile"]),
    ("link", &["link"]),
    ("rename", &["rename"]),
    ("setattr", &["setattr"]),
    ("fsync", &["sync"]),
    ("read_page", &["readdir"]),
    ("unlink", &["rmdir", "unlink"]),
    ("setxattr", &["removexattr", "setxattr"]),
    ("getxattr", &["getxattr", "listxattr"]),
];

/// Returns the requests with their times and, in samples of their own, their bulk bytes.
pub fn import_stats<P: Protocol>(stats: &ImportStats, now: Time) -> Snapshot {
    let (names, prefix) = if P::NAME == Mds::NAME { (OF_MDT, "mds") } else { (OF_OST, P::NAME) };
    let mut requests = by_name(names, &stats.ops);
    let own = stats.ops.iter().filter(|(op, _)| names.iter().all(|(_, kinds)| !kinds.contains(op)));
    requests.extend(own.map(|(op, s)| (format!("{prefix}_{op}"), vec![s])));

    let times: Vec<Sample> = requests.iter().map(|(name, kinds)| total(name, "usecs", kinds, times)).collect();
    let mut waits = Sample::of_count("req_waittime", "usecs", 0);
    times.iter().for_each(|sample| waits.merge(sample));
    // Metrics add up the histograms of all operations, so the sum of all must not have one.
    waits.buckets = Buckets::default();
    let active = Sample { name: "req_active".to_owned(), ..stats.active.clone() };
    let bytes = requests.iter().flat_map(|(name, kinds)| bytes_of(name, kinds));
    let samples = [waits, active].into_iter().chain(bytes).chain(times).filter(|sample| sample.count > 0);
    Snapshot { taken: Some(now), since: Some(stats.since), samples: samples.collect() }
}

/// Returns the counts of `md_stats`.
pub fn md_stats(stats: &ImportStats, now: Time) -> Snapshot {
    let count = |(name, kinds): (String, Vec<&OpStats>)| {
        Sample::of_count(&name, "reqs", kinds.iter().map(|stats| stats.count).sum())
    };
    let samples = by_name(MD_STATS, &stats.ops).into_iter().map(count).collect();
    Snapshot { taken: Some(now), since: Some(stats.since), samples }
}

/// Returns the names of which there were requests, each with the statistics of its kinds.
fn by_name<'a>(names: Names, ops: &'a [(&'static str, OpStats)]) -> Vec<(String, Vec<&'a OpStats>)> {
    let of = |kinds: &[&str]| -> Vec<&'a OpStats> {
        ops.iter().filter(|(op, _)| kinds.contains(op)).map(|(_, stats)| stats).collect()
    };
    let all = names.iter().map(|&(name, kinds)| (name.to_owned(), of(kinds)));
    all.filter(|(_, kinds)| !kinds.is_empty()).collect()
}

/// Returns the sum of what `part` returns for each kind.
fn total(name: &str, unit: &str, kinds: &[&OpStats], part: fn(&OpStats) -> Sample) -> Sample {
    let mut all = Sample::of_count(name, unit, 0);
    kinds.iter().for_each(|stats| all.merge(&part(stats)));
    all
}

fn times(stats: &OpStats) -> Sample {
    Sample {
        count: stats.count,
        min: Some(stats.time_ns_min / 1000),
        max: Some(stats.time_ns_max / 1000),
        sum: Some(stats.time_ns / 1000),
        sum_squares: Some(stats.usecs_squared),
        buckets: stats.latency.clone(),
        ..Sample::default()
    }
}

/// Returns the bytes of the requests and those of the replies. Reads and writes have Lustre's
/// names. Lustre counts no bytes of other requests.
fn bytes_of(name: &str, kinds: &[&OpStats]) -> [Sample; 2] {
    let received = if name == READ { "read_bytes".to_owned() } else { format!("{name}_bytes_received") };
    let sent = if name == WRITE { "write_bytes".to_owned() } else { format!("{name}_bytes_sent") };
    [
        total(&received, "bytes", kinds, |stats| stats.received.clone()),
        total(&sent, "bytes", kinds, |stats| stats.sent.clone()),
    ]
}

#[cfg(test)]
mod tests {
    use sheen_params::Histogram;
    use sheen_wire::Ost;

    use super::*;

    /// Requests that took one millisecond and two.
    fn two_requests() -> OpStats {
        let histogram = Histogram::default();
        [1000, 2000].into_iter().for_each(|usecs| histogram.record(usecs));
        OpStats {
            count: 2,
            time_ns: 3_000_999,
            time_ns_min: 1_000_500,
            time_ns_max: 2_000_499,
            usecs_squared: 5_000_000,
            latency: histogram.buckets(),
            ..OpStats::default()
        }
    }

    fn bytes(count: u64, each: u64) -> Sample {
        let (sum, sum_squares) = (Some(count * each), Some(count * each * each));
        Sample { min: Some(each), max: Some(each), sum, sum_squares, ..Sample::of_count("", "bytes", count) }
    }

    fn stats(ops: Vec<(&'static str, OpStats)>) -> ImportStats {
        let active = Sample { unit: "reqs".into(), ..bytes(4, 1) };
        ImportStats { ops, active, since: Time { sec: 10, nsec: 0 }, ..ImportStats::default() }
    }

    const NOW: Time = Time { sec: 17, nsec: 5 };

    #[test]
    fn import_stats_of_an_ost_render_as_in_lustre() {
        let write = OpStats { sent: bytes(2, 4096), ..two_requests() };
        let read = OpStats { received: bytes(1, 512), ..two_requests() };
        let stats = stats(vec![("read", read), ("seal", two_requests()), ("write", write)]);
        let snapshot = import_stats::<Ost>(&stats, NOW);
        let want = "\
snapshot_time                       17.000000005 secs.nsecs
start_time                          10.000000000 secs.nsecs
elapsed_time                        7.000000005 secs.nsecs
req_waittime                        6 samples [usecs] 1000 2000 9000 15000000
req_active                          4 samples [reqs] 1 1 4 4
read_bytes                          1 samples [bytes] 512 512 512 262144
write_bytes                         2 samples [bytes] 4096 4096 8192 33554432
ost_read                            2 samples [usecs] 1000 2000 3000 5000000
ost_write                           2 samples [usecs] 1000 2000 3000 5000000
ost_seal                            2 samples [usecs] 1000 2000 3000 5000000
";
        assert_eq!(snapshot.stats_text(), want);
        let buckets = |name: &str| snapshot.get(name).map(|sample| sample.buckets.count());
        assert_eq!((buckets("ost_write"), buckets("req_waittime")), (Some(2), Some(0)), "metrics add up histograms");
    }

    #[test]
    fn import_stats_of_an_mdt_add_the_kinds_of_a_name() {
        let readdir = OpStats { received: bytes(2, 100), ..two_requests() };
        let ops = ["alloc_seq", "create", "lookup", "mkdir", "open"].map(|op| (op, two_requests()));
        let stats = stats(ops.into_iter().chain([("readdir", readdir), ("access", two_requests())]).collect());
        let snapshot = import_stats::<Mds>(&stats, NOW);
        let names: Vec<(&str, u64)> = snapshot.samples.iter().map(|s| (s.name.as_str(), s.count)).collect();
        let want = [
            ("req_waittime", 14),
            ("req_active", 4),
            ("mds_readpage_bytes_received", 2),
            ("mds_reint_create", 2),
            ("mds_reint_open", 4),
            ("mds_getattr_lock", 2),
            ("mds_readpage", 2),
            ("seq_query", 2),
            ("mds_access", 2),
        ];
        assert_eq!(names, want);
    }

    #[test]
    fn md_stats_count_requests_by_operation() {
        let ops = ["close", "create", "lookup", "mkdir", "rmdir"].map(|op| (op, two_requests()));
        let want = "\
snapshot_time                       17.000000005 secs.nsecs
start_time                          10.000000000 secs.nsecs
elapsed_time                        7.000000005 secs.nsecs
close                               2 samples [reqs]
create                              2 samples [reqs]
intent_lock                         4 samples [reqs]
unlink                              2 samples [reqs]
";
        assert_eq!(md_stats(&stats(ops.to_vec()), NOW).stats_text(), want);
    }
}
