//! The counters of an OST, and what is counted.

use sheen_params::Moment;
use sheen_rpc::Export;
use sheen_rt::{Instant, operation};
use sheen_wire::ost::Reply;

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
/// Counters of `obdfilter.*.job_stats`: those of Lustre, in its order. The counters of bytes have
/// the same places as in [`COUNTERS`].
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
/// Place of `read_bytes` in both lists.
pub const READ_BYTES: usize = 0;
/// Place of `write_bytes` in both lists.
pub const WRITE_BYTES: usize = 1;

/// Bytes that a request has read or written, and the place of their counter: [`READ_BYTES`] or
/// [`WRITE_BYTES`].
pub(crate) type Bytes = (usize, u64);

impl Ost {
    /// Counts a request that began at `began`, for the target, the client's host and the job that
    /// caused it. `bytes`: of a read or write that succeeded. Returns the request's time in
    /// microseconds.
    pub(crate) fn count(&self, export: &Export, op: &'static str, began: Instant, bytes: Option<Bytes>) -> u64 {
        let now = self.rt.now();
        let usecs = now.since(began).as_micros() as u64;
        let counter = self.stats.index_of(op).map(|counter| (counter, usecs));
        for (counter, value) in [bytes, counter].into_iter().flatten() {
            self.stats.record_at(counter, value);
            self.export_stats.record(export, counter, value);
        }
        let job = operation::job();
        if !job.is_none() {
            let counter = self.jobs.index_of(op).map(|counter| (counter, usecs));
            self.jobs.record(job, [bytes, counter].into_iter().flatten(), now.as_nanos(), || self.rt.wall());
        }
        usecs
    }

    /// Returns the present moment, for statistics of jobs.
    pub(crate) fn moment(&self) -> Moment {
        Moment::new(self.rt.wall(), self.rt.now().as_nanos())
    }
}

/// Returns the bytes of a read or write. `written`: size of the data of a write; `None` for other
/// requests.
pub(crate) fn bytes_of(reply: &Reply, written: Option<usize>) -> Option<Bytes> {
    match (reply, written) {
        (Reply::Read(lens), _) => Some((READ_BYTES, lens.iter().map(|len| u64::from(*len)).sum())),
        (Reply::Done { .. }, Some(bytes)) => Some((WRITE_BYTES, bytes as u64)),
        // Among them a write that has to take a lock first, and is repeated.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_counters_have_the_same_places_in_both_lists() {
        for counters in [COUNTERS, JOB_COUNTERS] {
            assert_eq!(counters[READ_BYTES], ("read_bytes", "bytes"));
            assert_eq!(counters[WRITE_BYTES], ("write_bytes", "bytes"));
        }
    }

    #[test]
    fn bytes_of_a_request_are_those_of_a_read_or_of_a_write_that_was_done() {
        let done = Reply::Done { epoch: 1, granted: 0, transnos: Vec::new(), tight: false };
        assert_eq!(bytes_of(&Reply::Read(vec![4096, 0, 5]), None), Some((READ_BYTES, 4101)));
        assert_eq!(bytes_of(&done, Some(4096)), Some((WRITE_BYTES, 4096)));
        assert_eq!(bytes_of(&done, None), None, "a truncate, for example");
        assert_eq!(bytes_of(&Reply::LockFirst, Some(4096)), None);
    }
}
