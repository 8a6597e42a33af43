//! Mirrors of files: how many of them reads use, and the time of a resync.
//!
//! A write goes to one mirror, at the cost of a write without mirrors. The others are then stale
//! until a resync has copied the data. A node reads one of the mirrors that are up to date, which
//! it chooses by a random number of its own.

use crate::predict::{
    costs::Costs,
    load::{Load, Workload},
    shape::Shape,
};

/// Bytes that a resync copies at a time: `CHUNK_BYTES` of `sheen-admin`.
const COPIED_BYTES: u64 = 4 << 20;

/// The mirrors of a job's files.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Mirrors {
    /// Their number, at least 1.
    pub count: u16,
    /// Number of mirrors that are up to date when the job reads, at least 1.
    pub fresh: u16,
    /// Costs of writes and of reads, by which a resync is predicted. `None`: the model lacks reads.
    pub copy: Option<(Costs, Costs)>,
    /// Whether a resync is part of the job.
    pub resync: bool,
}

impl Mirrors {
    /// Files without mirrors.
    pub const ONE: Mirrors = Mirrors { count: 1, fresh: 1, copy: None, resync: false };

    /// Returns the mean number of mirrors that are read at the same time. Tasks with a file each
    /// gain nothing: the files are on different OSTs already.
    pub fn read_at_once(&self, workload: &Workload) -> f64 {
        if workload.files {
            return 1.0;
        }
        let (mirrors, nodes) = (f64::from(self.fresh.max(1)), f64::from(workload.nodes.max(1)));
        mirrors * (1.0 - (1.0 - 1.0 / mirrors).powf(nodes))
    }

    /// Returns the seconds of a resync of all files of a job, by one command. `None`: there are no
    /// mirrors, or the model does not know. `osts`: of the file system or pool.
    pub fn resync_seconds(&self, workload: &Workload, shape: &Shape, osts: u32) -> Option<f64> {
        let targets = self.count.checked_sub(1).filter(|targets| *targets > 0)?;
        let (write, read) = self.copy?;
        let (size, files) = match workload.files {
            true => (workload.size, workload.tasks),
            false => (workload.size.saturating_mul(workload.tasks.into()), 1),
        };
        let size = size.max(1);
        // One task copies one file after the other, and writes one mirror after the other.
        let transfer = COPIED_BYTES.min(size);
        let copy = Workload { tasks: 1, nodes: 1, transfer, block: size, size, files: false };
        let load = Load::of(&copy, shape, osts);
        let seconds = |costs: &Costs| load.mib / costs.predict(&load).rate;
        Some(f64::from(files) * (seconds(&read) + f64::from(targets) * seconds(&write)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::costs::COSTS;

    const MI: u64 = 1 << 20;

    fn job(tasks: u32, files: bool) -> Workload {
        Workload { tasks, nodes: tasks, transfer: MI, block: MI, size: 100 * MI, files }
    }

    /// Costs of an OST of so many MiB/s, which alone limits.
    fn ost(rate: f64) -> Costs {
        Costs { ost_mib: 1.0 / rate, ..Costs::from_array([1e-12; COSTS]) }
    }

    #[test]
    fn nodes_choose_among_the_mirrors_that_are_up_to_date() {
        let read = |fresh, nodes| Mirrors { count: 4, fresh, ..Mirrors::ONE }.read_at_once(&job(nodes, false));
        assert_eq!((read(1, 8), read(2, 1), read(2, 2)), (1.0, 1.0, 1.5));
        assert!(read(4, 64) > 3.99);
        assert_eq!(Mirrors { count: 2, fresh: 2, ..Mirrors::ONE }.read_at_once(&job(8, true)), 1.0);
    }

    #[test]
    fn resync_reads_once_and_writes_each_further_mirror() {
        let shape = Shape { stripes: 1, osts: 1, stripe_size: MI, all_osts: None };
        let seconds = |count, job: &Workload| {
            let copy = Some((ost(100.0), ost(200.0)));
            Mirrors { count, copy, ..Mirrors::ONE }.resync_seconds(job, &shape, 4)
        };
        let is = |found: Option<f64>, seconds: f64| (found.unwrap() / seconds - 1.0).abs() < 1e-3;
        assert!(is(seconds(2, &job(1, false)), 1.5), "100 MiB: 0.5 s to read, 1 s to write");
        assert!(is(seconds(3, &job(1, false)), 2.5));
        assert!(is(seconds(2, &job(4, false)), 6.0), "400 MiB");
        assert!(is(seconds(2, &job(4, true)), 6.0), "one file after the other");
        assert_eq!(seconds(1, &job(1, false)), None);
        assert_eq!(Mirrors { count: 2, ..Mirrors::ONE }.resync_seconds(&job(1, false), &shape, 4), None);
    }
}
