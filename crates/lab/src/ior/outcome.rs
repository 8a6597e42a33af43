//! Results of a run of IOR, computed as IOR does.
//!
//! * The bandwidth of a phase is all bytes, divided by the time from the first open to the last
//!   close.
//! * Operations per second are all transfers, divided by the time from the first transfer to the
//!   last one. The fsync of `-e` is part of that time.
//! * The latency is the mean time of a transfer of one task; the smallest of all tasks is reported.

use crate::{
    ior::{
        plan::Plan,
        step::{Access, Progress, Report},
    },
    predict::shape::JobLayout,
    span::Span,
};

const MIB: f64 = 1_048_576.0;

/// A phase of one repetition.
#[derive(Clone, PartialEq, Debug)]
pub struct Phase {
    /// [`Access::Write`] or [`Access::Read`].
    pub access: Access,
    /// The repetition.
    pub repetition: u32,
    /// Bytes that all tasks transferred.
    pub bytes: u64,
    /// Size of the file, or of all files.
    pub size: u64,
    /// Seconds of the opens.
    pub open: f64,
    /// Seconds of the transfers.
    pub transfer: f64,
    /// Seconds of the closes.
    pub close: f64,
    /// Seconds from the first open to the last close.
    pub total: f64,
    /// Transfers per second.
    pub iops: f64,
    /// Seconds of a transfer.
    pub latency: f64,
    /// Transfers whose data was wrong.
    pub errors: u64,
    /// Progress of each task when the deadline came, with wear-out.
    pub stonewall: Option<Vec<Progress>>,
}

impl Phase {
    /// Combines the reports of the tasks.
    pub fn new(
        plan: &Plan,
        access: Access,
        repetition: u32,
        reports: &[Report],
        stonewall: Option<Vec<Progress>>,
    ) -> Phase {
        let spans = |of: fn(&Report) -> Span| Span::around(reports.iter().map(of));
        let (open, transfer, close) = (spans(|r| r.open), spans(|r| r.access), spans(|r| r.close));
        let bytes = reports.iter().map(|r| r.bytes).sum::<u64>();
        let sizes = reports.iter().map(|r| r.size);
        let latencies = reports.iter().filter(|r| r.transfers > 0).map(|r| r.access.seconds() / r.transfers as f64);
        Phase {
            access,
            repetition,
            bytes,
            size: if plan.file_per_process { sizes.sum() } else { sizes.min().unwrap_or(0) },
            open: open.seconds(),
            transfer: transfer.seconds(),
            close: close.seconds(),
            total: Span { start: open.start, end: close.end }.seconds(),
            iops: bytes as f64 / plan.transfer as f64 / transfer.seconds(),
            latency: latencies.reduce(f64::min).unwrap_or(0.0),
            errors: reports.iter().map(|r| r.errors).sum(),
            stonewall,
        }
    }

    /// Returns the bandwidth in MiB/s.
    pub fn bandwidth(&self) -> f64 {
        self.bytes as f64 / MIB / self.total
    }

    /// Returns the mean time in seconds and bandwidth in MiB/s until the stonewall.
    pub fn until_stonewall(&self) -> Option<(f64, f64)> {
        let tasks = self.stonewall.as_ref()?;
        let seconds = tasks.iter().map(|t| t.time).max().unwrap_or(0) as f64 / 1e9;
        let bytes = tasks.iter().map(|t| t.bytes).sum::<u64>();
        Some((seconds, bytes as f64 / MIB / seconds))
    }

    /// Returns the name of the access in IOR's output.
    pub fn name(&self) -> &'static str {
        if self.access == Access::Write { "write" } else { "read" }
    }
}

/// All results of a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// The phases, in their order.
    pub phases: Vec<Phase>,
    /// Seconds of each removal of the files.
    pub removals: Vec<f64>,
    /// Transfers whose data was wrong, in all checks.
    pub errors: u64,
    /// Whether the layout of the files is wanted.
    pub wants_layout: bool,
    /// Layout of the files. `None`: not known, or no layout of Sheen.
    pub layout: Option<JobLayout>,
}

impl Outcome {
    /// Returns the phases that write, or those that read.
    pub fn of(&self, access: Access) -> impl Iterator<Item = &Phase> {
        self.phases.iter().filter(move |phase| phase.access == access)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(start: u64, transfers: u64) -> Report {
        let span = |from, to| Span { start: start + from, end: start + to };
        Report {
            open: span(0, 100_000_000),
            access: span(100_000_000, 900_000_000),
            close: span(900_000_000, 1_000_000_000),
            bytes: transfers << 20,
            transfers,
            errors: 0,
            size: 12 << 20,
        }
    }

    #[test]
    fn phase_lasts_from_the_first_open_to_the_last_close() {
        let plan = Plan { transfer: 1 << 20, ..Plan::example() };
        let phase = Phase::new(&plan, Access::Write, 0, &[report(0, 4), report(1_000_000_000, 8)], None);
        assert_eq!((phase.total, phase.transfer, phase.bytes), (2.0, 1.8, 12 << 20));
        assert_eq!((phase.bandwidth(), phase.iops, phase.latency), (6.0, 12.0 / 1.8, 0.1));
        assert_eq!(phase.size, 12 << 20, "all tasks see the size of the same file");
    }
}
