//! The counters of an OST.

/// Counters of `obdfilter.*.stats`, with Lustre's names where Lustre has them.
pub const COUNTERS: &[(&str, &str)] = &[
    ("read_bytes", "bytes"),
    ("write_bytes", "bytes"),
    ("read", "usecs"),
    ("write", "usecs"),
    ("getattr", "usecs"),
    ("punch", "usecs"),
    ("fallocate", "usecs"),
    ("seek", "usecs"),
    ("sync", "usecs"),
    ("destroy", "usecs"),
    ("destroy_range", "usecs"),
    ("statfs", "usecs"),
    ("list", "usecs"),
    ("ldlm_enqueue", "usecs"),
    ("ldlm_glimpse", "usecs"),
    ("ldlm_cancel", "usecs"),
    ("data_version", "usecs"),
    ("seal", "usecs"),
    ("unseal", "usecs"),
    ("link", "usecs"),
    ("follow", "usecs"),
    ("inline_dom", "usecs"),
];
/// Place of `read_bytes` among them.
pub const READ_BYTES: usize = 0;
/// Place of `write_bytes` among them.
pub const WRITE_BYTES: usize = 1;
