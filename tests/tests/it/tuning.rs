//! Parameters of Lustre's tuning guides, on mounts: what the kernel requests and reads ahead.

use std::{fs::File, io::Read, path::Path};

use sheen_tests::sandbox::Sandbox;

/// Bytes that a program reads, page by page.
const READ: u64 = 64 << 10;
const PAGE: usize = 4096;

fn set(s: &Sandbox, setting: &str) {
    s.sh(Path::new("/"), &format!("lctl set_param '{setting}'")).ok();
}

/// Returns the kernel's readahead on the mount at `at`, in KiB.
fn window(s: &Sandbox, at: &str) -> u64 {
    let shown = s.sh(Path::new("/"), &format!("cat /sys/class/bdi/$(mountpoint -d {at})/read_ahead_kb")).ok();
    shown.trim().parse().expect("a number")
}

/// Returns how many bytes the kernel requests from the mounts while a program reads the beginning
/// of a file.
fn requested(s: &Sandbox, path: &str) -> u64 {
    set(s, "llite.*.stats=clear");
    let mut file = File::open(path).expect("a file");
    for _ in 0..READ / PAGE as u64 {
        file.read_exact(&mut [0; PAGE]).expect("a page");
    }
    let stats = s.sh(Path::new("/"), "lctl get_param -n llite.*.stats").ok();
    let rows = stats.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let sums = rows.filter(|words| words.first() == Some(&"read_bytes")).map(|words| words[6].to_owned());
    sums.map(|sum| sum.parse::<u64>().expect("a sum")).sum()
}

#[test]
fn read_ahead_parameters_bound_what_the_kernel_requests() {
    Sandbox::enter("tuning", |s| {
        s.up("sheen", "/mnt/here");
        s.mount_again("/mnt/there");
        let write = "for f in ahead none; do dd if=/dev/zero of=$f bs=1M count=4 conv=fsync 2>/dev/null; done";
        s.sh(Path::new("/mnt/here"), write).ok();
        assert_eq!(window(s, "/mnt/there"), 4096);
        // The second mount has no pages of these files.
        assert!(requested(s, "/mnt/there/ahead") > READ);
        set(s, "llite.*.max_read_ahead_mb=0");
        assert_eq!(requested(s, "/mnt/there/none"), READ, "nothing else");

        set(s, "llite.*.max_read_ahead_mb=8");
        set(s, "llite.*.max_read_ahead_per_file_mb=64");
        assert_eq!([window(s, "/mnt/here"), window(s, "/mnt/there")], [8192, 8192], "the smaller of the two");
        set(s, "llite.*.max_read_ahead_per_file_mb=1");
        assert_eq!(window(s, "/mnt/there"), 1024);

        s.sh(Path::new("/"), "lctl set_param -P llite.*.max_read_ahead_per_file_mb=2").ok();
        s.mount_again("/mnt/later");
        assert_eq!(window(s, "/mnt/later"), 2048, "a permanent setting");
    });
}
