//! The counters of an OST, and what is counted.

use sheen_params::Moment;
use sheen_rpc::Export;
use sheen_rt::operation;

use crate::Ost;

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
/// Counters of `obdfilter.*.job_stats`: those of Lustre, in its order.
pub const JOB_COUNTERS: &[(&str, &str)] = &[
    ("read_bytes", "bytes"),
    ("write_bytes", "bytes"),
    ("read", "usecs"),
    ("write", "usecs"),
    ("getattr", "usecs"),
    ("punch", "usecs"),
    ("sync", "usecs"),
    ("destroy", "usecs"),
    ("statfs", "usecs"),
    ("fallocate", "usecs"),
];
/// Place of `read_bytes` among them.
pub const READ_BYTES: usize = 0;
/// Place of `write_bytes` among them.
pub const WRITE_BYTES: usize = 1;

impl Ost {
    /// Counts a request, for the target, the client's host and the job that caused it.
    pub(crate) fn count(&self, export: &Export, op: &'static str, usecs: u64) {
        if let Some(counter) = self.stats.index_of(op) {
            self.stats.record_at(counter, usecs);
            self.export_stats.record(export, counter, usecs);
        }
        self.jobs.record(operation::job(), op, usecs, || self.moment());
    }

    /// Returns the present moment, for statistics of jobs.
    pub(crate) fn moment(&self) -> Moment {
        Moment::new(self.rt.wall(), self.rt.now().as_nanos())
    }

    /// Counts the bytes of a read or write: `counter` is [`READ_BYTES`] or [`WRITE_BYTES`].
    pub(crate) fn count_bytes(&self, export: &Export, counter: usize, bytes: u64) {
        self.stats.record_at(counter, bytes);
        self.export_stats.record(export, counter, bytes);
        let job = operation::job();
        if !job.is_none()
            && let Some((name, _)) = COUNTERS.get(counter)
        {
            self.jobs.record(job, name, bytes, || self.moment());
        }
    }
}
