//! The counters of `mdt.*.job_stats`: Lustre's operations, by job.

use sheen_params::Moment;
use sheen_rt::Rt;

/// Names and units, in the order in which Lustre prints them. Closes are missing: clients gather
/// those of several programs in one request.
pub(crate) const COUNTERS: &[(&str, &str)] = &[
    ("open", "usecs"),
    ("mknod", "usecs"),
    ("link", "usecs"),
    ("unlink", "usecs"),
    ("mkdir", "usecs"),
    ("rmdir", "usecs"),
    ("rename", "usecs"),
    ("getattr", "usecs"),
    ("setattr", "usecs"),
    ("getxattr", "usecs"),
    ("setxattr", "usecs"),
    ("statfs", "usecs"),
    ("sync", "usecs"),
];

/// Returns the counters of a request. Those of requests that Lustre does not know are not in
/// [`COUNTERS`].
pub(crate) fn counters_of(op: &'static str) -> [&'static str; 2] {
    match op {
        "create" | "tmpfile" => ["open", "mknod"],
        "symlink" => ["mknod", ""],
        "lookup" | "access" | "readlink" => ["getattr", ""],
        "listxattr" => ["getxattr", ""],
        "removexattr" => ["setxattr", ""],
        op => [op, ""],
    }
}

/// Returns the present moment, for statistics of jobs.
pub(crate) fn moment(rt: &Rt) -> Moment {
    Moment::new(rt.wall(), rt.now().as_nanos())
}
