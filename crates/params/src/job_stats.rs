//! Statistics by job, in the form of Lustre's `job_stats` files.
//!
//! ```text
//! job_stats:
//! - job_id:          dd.1000
//!   snapshot_time:   1795290918.712480880
//!   start_time:      1795290897.913419543
//!   elapsed_time:    20.799061337
//!   write_bytes:     { samples:           1, unit: bytes, min:  1048576, max:  1048576, sum: …
//! ```
//!
//! As in Lustre 2.16, counters in bytes end with a histogram: `hist: { 4K: 35, 1M: 2045 }`. Each
//! size is the largest of its samples.
//!
//! Invariants:
//! * There are at most [`JOBS_MAX`] jobs. If there would be more, those with the oldest last
//!   samples are removed.
//! * A request without a job costs nothing. Other requests take the lock once, with all their
//!   samples, and read no clock: the caller has read it already to measure the request.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sheen_wire::{JobId, Time};

use crate::histogram::{Buckets, bucket_label};
use crate::snapshot::{Sample, Snapshot};

/// Maximum number of jobs.
pub const JOBS_MAX: usize = 1024;
/// Number of jobs that remain when jobs are removed to make room for others.
const JOBS_LEFT: usize = JOBS_MAX * 7 / 8;
/// Default of Lustre's `job_cleanup_interval`, in seconds.
const CLEANUP_SECS: u64 = 600;
/// Maximum of `job_cleanup_interval`: a year.
pub const CLEANUP_SECS_MAX: u64 = 365 * 86_400;
const NANOS_PER_SEC: u64 = 1_000_000_000;
/// Unit of the counters that have a histogram.
const BYTES: &str = "bytes";
/// The word that removes all jobs (`lctl set_param …job_stats=clear`).
const CLEAR: &str = "clear";
/// Width of names with their colon.
const NAME_WIDTH: usize = 16;

/// Names and units of counters.
type Names = &'static [(&'static str, &'static str)];

/// The statistics of the jobs that use a target.
pub struct JobStats {
    counters: Names,
    jobs: Mutex<BTreeMap<JobId, Job>>,
    /// Seconds after which an idle job is removed; 0: never.
    cleanup_secs: Arc<AtomicU64>,
}

#[derive(Clone)]
struct Job {
    since: Time,
    /// Monotonic seconds of the last sample.
    used: u64,
    /// As [`JobStats::counters`].
    tallies: Vec<Tally>,
}

/// A moment, by two clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// Time of day, which is shown.
    pub wall: Time,
    /// Seconds of a clock that does not jump.
    pub secs: u64,
}

#[derive(Clone, Default)]
struct Tally {
    count: u64,
    min: u64,
    max: u64,
    sum: u64,
    sum_squares: u64,
    /// Of sizes only; otherwise empty.
    sizes: Buckets,
}

/// The statistics of one job.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct JobSnapshot {
    /// The job.
    pub job: String,
    /// All its counters, also those without a sample.
    pub counts: Snapshot,
}

impl Moment {
    /// Creates a moment. `nanos`: nanoseconds of a clock that does not jump.
    pub const fn new(wall: Time, nanos: u64) -> Moment {
        Moment { wall, secs: nanos / NANOS_PER_SEC }
    }
}

impl JobStats {
    /// Creates statistics without jobs. `counters`: names and units, in the order in which they are
    /// printed.
    pub fn new(counters: Names) -> JobStats {
        JobStats { counters, jobs: Mutex::default(), cleanup_secs: Arc::new(AtomicU64::new(CLEANUP_SECS)) }
    }

    /// Returns the place of the counter `name` in the list given to [`JobStats::new`].
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.counters.iter().position(|(counter, _)| *counter == name)
    }

    /// Adds the samples of a request to the counters of its job. A sample is the place of a counter
    /// in the list given to [`JobStats::new`], and a value. Ignores [`JobId::NONE`], and a request
    /// without samples. `nanos`: the present time in nanoseconds of a clock that does not jump.
    /// `wall`: returns the present time of day, which only a new job needs.
    pub fn record(
        &self,
        job: JobId,
        samples: impl IntoIterator<Item = (usize, u64)>,
        nanos: u64,
        wall: impl FnOnce() -> Time,
    ) {
        let mut samples = samples.into_iter().peekable();
        if job.is_none() || samples.peek().is_none() {
            return;
        }
        let (secs, mut jobs) = (nanos / NANOS_PER_SEC, self.jobs.lock());
        if let Some(known) = jobs.get_mut(&job) {
            known.add(self.counters, samples, secs);
            return;
        }
        if jobs.len() >= JOBS_MAX {
            self.make_room(&mut jobs, secs);
        }
        let tallies = vec![Tally::default(); self.counters.len()];
        let mut new = Job { since: wall(), used: secs, tallies };
        new.add(self.counters, samples, secs);
        jobs.insert(job, new);
    }

    /// Removes one job, or all of them.
    pub fn remove(&self, job: Option<JobId>) {
        self.jobs.lock().retain(|id, _| job.is_some_and(|job| *id != job));
    }

    /// Returns the values of now, by job.
    pub fn snapshot(&self, now: Moment) -> Vec<JobSnapshot> {
        // Requests wait for the lock, so the samples are made without it.
        let jobs = {
            let mut jobs = self.jobs.lock();
            self.remove_idle(&mut jobs, now.secs);
            jobs.clone()
        };
        let counts = |job: &Job| {
            let samples = self.counters.iter().zip(&job.tallies).map(|(counter, tally)| tally.sample(*counter));
            Snapshot { taken: Some(now.wall), since: Some(job.since), samples: samples.collect() }
        };
        jobs.iter().map(|(id, job)| JobSnapshot { job: id.to_string(), counts: counts(job) }).collect()
    }

    /// Returns `job_cleanup_interval`: the seconds after which an idle job is removed, up to
    /// [`CLEANUP_SECS_MAX`]; 0: never.
    pub fn cleanup_secs(&self) -> Arc<AtomicU64> {
        self.cleanup_secs.clone()
    }

    fn make_room(&self, jobs: &mut BTreeMap<JobId, Job>, now_secs: u64) {
        self.remove_idle(jobs, now_secs);
        let mut by_use: Vec<(u64, JobId)> = jobs.iter().map(|(id, job)| (job.used, *id)).collect();
        by_use.sort_unstable();
        for (_, id) in by_use.iter().take(jobs.len().saturating_sub(JOBS_LEFT)) {
            jobs.remove(id);
        }
    }

    fn remove_idle(&self, jobs: &mut BTreeMap<JobId, Job>, now_secs: u64) {
        let cleanup = self.cleanup_secs.load(Relaxed);
        if cleanup > 0 {
            jobs.retain(|_, job| job.used.saturating_add(cleanup) >= now_secs);
        }
    }
}

impl Job {
    fn add(&mut self, counters: Names, samples: impl Iterator<Item = (usize, u64)>, secs: u64) {
        self.used = secs;
        for (at, value) in samples {
            if let (Some(tally), Some((_, unit))) = (self.tallies.get_mut(at), counters.get(at)) {
                tally.add(value);
                if *unit == BYTES {
                    tally.sizes.add(value);
                }
            }
        }
    }
}

impl Tally {
    fn add(&mut self, value: u64) {
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count += 1;
        self.sum = self.sum.wrapping_add(value);
        self.sum_squares = self.sum_squares.wrapping_add(value.wrapping_mul(value));
    }

    fn sample(&self, (name, unit): (&str, &str)) -> Sample {
        Sample {
            name: name.to_owned(),
            unit: unit.to_owned(),
            count: self.count,
            min: Some(self.min),
            max: Some(self.max),
            sum: Some(self.sum),
            sum_squares: Some(self.sum_squares),
            buckets: self.sizes.clone(),
        }
    }
}

/// Returns which jobs a value written to `job_stats` removes: `clear` means all of them.
pub(crate) fn removed_by(value: &str) -> Option<JobId> {
    let value = value.trim();
    (value != CLEAR).then(|| JobId::new(value.as_bytes()))
}

/// Returns the text of a `job_stats` file of Lustre.
pub(crate) fn text(jobs: &[JobSnapshot]) -> String {
    let mut out = String::from("job_stats:\n");
    for JobSnapshot { job, counts } in jobs {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "- {:<NAME_WIDTH$} {}", "job_id:", quoted(job));
        for (name, time) in counts.named_times() {
            let _ = writeln!(out, "  {:<NAME_WIDTH$} {}.{:09}", format!("{name}:"), time.sec, time.nsec);
        }
        for Sample { name, unit, count, min, max, sum, sum_squares, buckets } in &counts.samples {
            let [min, max, sum, squares] = [min, max, sum, sum_squares].map(|number| number.unwrap_or_default());
            let hist = if unit == BYTES { hist(buckets) } else { String::new() };
            let _ = writeln!(
                out,
                "  {:<NAME_WIDTH$} {{ samples: {count:>11}, unit: {unit:>5}, min: {min:>8}, max: {max:>8}, \
                 sum: {sum:>16}, sumsq: {squares:>18}{hist} }}",
                format!("{name}:")
            );
        }
    }
    out
}

/// Returns the histogram at the end of a line.
fn hist(sizes: &Buckets) -> String {
    let filled = sizes.counts().iter().enumerate().filter(|(_, count)| **count > 0);
    let sizes: Vec<String> = filled.map(|(i, count)| format!("{}: {count}", bucket_label(i))).collect();
    format!(", hist: {{ {} }}", sizes.join(", "))
}

/// Returns a job as a scalar of YAML: in quotes, unless its characters have no meaning there.
fn quoted(job: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | '+');
    let begins_plain = job.starts_with(|c: char| c.is_ascii_alphanumeric());
    if begins_plain && job.chars().all(is_plain) { job.to_owned() } else { format!("\"{job}\"") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTERS: &[(&str, &str)] = &[("read_bytes", "bytes"), ("open", "usecs")];

    fn at(secs: u64) -> Moment {
        Moment { wall: Time { sec: secs as i64, nsec: 5 }, secs }
    }

    fn job(name: &str) -> JobId {
        JobId::new(name.as_bytes())
    }

    /// Records a sample of the counter `name`, if there is one.
    fn record(stats: &JobStats, name: &str, (counter, value): (&str, u64), secs: u64) {
        let sample = stats.index_of(counter).map(|at| (at, value));
        stats.record(job(name), sample, secs * NANOS_PER_SEC + 7, || at(secs).wall);
    }

    fn jobs(stats: &JobStats, now: u64) -> Vec<String> {
        stats.snapshot(at(now)).into_iter().map(|of| of.job).collect()
    }

    #[test]
    fn job_stats_render_as_in_lustre() {
        let stats = JobStats::new(COUNTERS);
        record(&stats, "dd.1000", ("read_bytes", 4096), 7);
        record(&stats, "dd.1000", ("read_bytes", 1024), 8);
        record(&stats, "@1", ("open", 31), 9);
        let want = "\
job_stats:
- job_id:          \"@1\"
  snapshot_time:   10.000000005
  start_time:      9.000000005
  elapsed_time:    1.000000000
  read_bytes:      { samples:           0, unit: bytes, min:        0, max:        0, sum:                0, sumsq:                  0, hist: {  } }
  open:            { samples:           1, unit: usecs, min:       31, max:       31, sum:               31, sumsq:                961 }
- job_id:          dd.1000
  snapshot_time:   10.000000005
  start_time:      7.000000005
  elapsed_time:    3.000000000
  read_bytes:      { samples:           2, unit: bytes, min:     1024, max:     4096, sum:             5120, sumsq:           17825792, hist: { 1K: 1, 4K: 1 } }
  open:            { samples:           0, unit: usecs, min:        0, max:        0, sum:                0, sumsq:                  0 }
";
        assert_eq!(text(&stats.snapshot(at(10))), want);
        assert_eq!(text(&[]), "job_stats:\n");
    }

    #[test]
    fn job_stats_record_all_samples_of_a_request_and_read_the_time_of_day_for_a_new_job_only() {
        let stats = JobStats::new(COUNTERS);
        let not_needed = || -> Time { panic!("the time of day is not needed") };
        stats.record(JobId::NONE, [(1, 31)], 0, not_needed);
        stats.record(job("a"), [], 0, not_needed);
        assert_eq!(jobs(&stats, 0), [""; 0]);
        stats.record(job("a"), [(0, 4096), (1, 31)], 0, || at(3).wall);
        stats.record(job("a"), [(1, 32), (9, 33)], 9 * NANOS_PER_SEC, not_needed);
        let all = stats.snapshot(at(10));
        let [JobSnapshot { counts, .. }] = &all[..] else { panic!("{all:?}") };
        let sums: Vec<_> = counts.samples.iter().map(|sample| (sample.count, sample.sum)).collect();
        assert_eq!((sums, counts.since), (vec![(1, Some(4096)), (2, Some(63))], Some(at(3).wall)));
        assert_eq!(jobs(&stats, 609), ["a"], "the second request used the job");
        assert_eq!(jobs(&stats, 610), [""; 0]);
    }

    #[test]
    fn job_stats_remove_idle_jobs_and_those_asked_for() {
        let stats = JobStats::new(COUNTERS);
        for (name, time) in [("a", 0), ("b", 500), ("c", 500)] {
            record(&stats, name, ("open", 1), time);
        }
        record(&stats, "d", ("no such", 1), 500);
        assert_eq!(jobs(&stats, 600), ["a", "b", "c"]);
        assert_eq!(jobs(&stats, 601), ["b", "c"]);
        assert_eq!((removed_by("clear\n"), removed_by("b")), (None, Some(job("b"))));
        stats.remove(Some(job("b")));
        assert_eq!(jobs(&stats, 601), ["c"]);
        stats.cleanup_secs().store(0, Relaxed);
        assert_eq!(jobs(&stats, 1 << 40), ["c"]);
        stats.remove(None);
        assert_eq!(jobs(&stats, 601), Vec::<String>::new());
    }

    #[test]
    fn job_stats_have_a_bounded_number_of_jobs() {
        let stats = JobStats::new(COUNTERS);
        for number in 0..=JOBS_MAX {
            let time = if number == 3 { 0 } else { 1 + number as u64 / 1000 };
            record(&stats, &number.to_string(), ("open", 1), time);
        }
        let jobs = jobs(&stats, 10);
        assert_eq!(jobs.len(), JOBS_LEFT + 1);
        assert!(!jobs.contains(&"3".to_owned()) && jobs.contains(&JOBS_MAX.to_string()));
    }
}
