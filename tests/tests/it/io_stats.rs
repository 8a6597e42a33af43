//! I/O statistics in Lustre's form: `brw_stats` of OSTs, statistics of exports, and the sizes and
//! offsets of a mount's reads and writes.

use std::path::Path;

use sheen_tests::{sandbox::Sandbox, wait::eventually};

const DISABLED: &str = "disabled\n write anything to this file to activate, then '0' or 'disable' to deactivate\n";
/// Bytes that the test writes and reads, in four calls.
const BYTES: u64 = 256 << 10;

fn param(s: &Sandbox, name: &str) -> String {
    s.sh(Path::new("/"), &format!("lctl get_param -n '{name}'")).ok()
}

fn set(s: &Sandbox, setting: &str) {
    s.sh(Path::new("/"), &format!("lctl set_param '{setting}'")).ok();
}

/// Returns the counts of reads and writes of all rows of this table of `brw_stats`.
fn rows(stats: &str, table: &str) -> (u64, u64) {
    let mut sum = (0, 0);
    let mut is_inside = false;
    for line in stats.lines() {
        if let Some((_, counts)) = line.split_once(":\t\t").filter(|_| is_inside) {
            let words: Vec<&str> = counts.split_whitespace().collect();
            sum.0 += words[0].parse::<u64>().expect("reads");
            sum.1 += words[4].parse::<u64>().expect("writes");
        } else {
            is_inside = line.starts_with(table);
        }
    }
    sum
}

/// Returns the sum of the values of a counter.
fn sum(stats: &str, counter: &str) -> u64 {
    let lines = stats.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.filter(|words| words.first() == Some(&counter)).map(|words| words[6].parse::<u64>().expect("a sum")).sum()
}

#[test]
fn io_statistics_show_what_programs_read_and_write() {
    Sandbox::enter("io_stats", |s| {
        s.up("sheen", "/mnt/here");
        s.mount_again("/mnt/there");
        for name in ["extents_stats", "extents_stats_per_process", "offset_stats"] {
            assert_eq!(param(s, &format!("llite.*.{name}")), DISABLED.repeat(2), "{name}");
        }
        set(s, "llite.*.offset_stats=1");
        let dd = |at: &str, args: &str| s.sh(Path::new(at), &format!("dd bs=64k count=4 {args} 2>/dev/null")).ok();
        dd("/mnt/here", "if=/dev/zero of=file conv=fsync");
        dd("/mnt/there", "if=file of=/dev/null iflag=direct");
        s.sh(Path::new("/mnt/there"), "mkdir dir").ok();

        let extents = param(s, "llite.*.extents_stats");
        let row: Vec<Vec<&str>> = extents
            .lines()
            .filter_map(|line| Some(line.strip_prefix("  64K -  128K :")?.split_whitespace().collect()))
            .collect();
        let counts = row.iter().map(|words| (words[0], words[4])).collect::<Vec<_>>();
        assert!(counts.contains(&("0", "4")) && counts.contains(&("4", "0")), "{extents}");
        assert!(param(s, "llite.*.extents_stats_per_process").contains("\nPID: "));
        let offsets = param(s, "llite.*.offset_stats");
        for access in ["R", "W"] {
            let is_run = |line: &str| {
                let words: Vec<&str> = line.split_whitespace().collect();
                words.first() == Some(&access) && words[2..] == ["0", "262144", "65536", "65536", "0"]
            };
            assert!(offsets.lines().any(is_run), "{access}: {offsets}");
        }
        set(s, "llite.*.extents_stats=disable");
        assert_eq!(param(s, "llite.*.offset_stats"), DISABLED.repeat(2));

        let brw = param(s, "obdfilter.*.brw_stats");
        for table in ["pages per bulk r/w", "disk I/Os in flight", "I/O time (1/1000s)", "disk I/O size"] {
            let (reads, writes) = rows(&brw, table);
            assert!(reads >= 1 && writes >= 1, "{table}: {brw}");
        }
        assert_eq!(param(s, "osd-*.*OST*.brw_stats").matches("disk I/O size").count(), 4);
        set(s, "obdfilter.*.brw_stats=0");
        assert_eq!(rows(&param(s, "obdfilter.*.brw_stats"), "disk I/O size").1, 0);

        let there = "127.0.0.1@tcp";
        assert!(sum(&param(s, &format!("obdfilter.*.exports.{there}.stats")), "read_bytes") >= BYTES);
        assert!(sum(&param(s, "obdfilter.*.exports.*.stats"), "write_bytes") >= BYTES);
        let mdt = format!("mdt.*.exports.{there}");
        assert!(param(s, &format!("{mdt}.stats")).contains("\nmkdir "));
        let uuids = param(s, "mdt.*.exports.*.uuid");
        for uuid in param(s, "llite.*.uuid").split_whitespace() {
            assert!(uuids.lines().any(|line| line == uuid), "{uuid}: {uuids}");
        }
        set(s, "mdt.*.exports.clear=1");
        assert!(!param(s, "mdt.*.exports.*.stats").contains("\nmkdir "));
        s.sh(Path::new("/"), "sheen umount /mnt/there").ok();
        let is_removed = || s.sh(Path::new("/"), &format!("lctl get_param '{mdt}.uuid'")).code == 2;
        eventually("the statistics of the unmounted client are removed", is_removed);
    });
}
