//! Costs of operations on a file in round trips, for several numbers of stripes.
//!
//! The process of the mount delays what it sends. The cost of an operation is the slope of its time
//! over the delay, so that the time without latency does not count. The delay is taken back at the
//! end.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    time::Instant,
};

use serde::Serialize;

use crate::{net::plan::Plan, output::named, processes, program::Sheen, session::Session, stats::median, stop};

/// Parameter of a process: delay of each frame that it sends, in microseconds.
pub(super) const DELAY: &str = "lnet.delay_us";
/// Bytes of a stripe: the smallest.
const STRIPE: usize = 64 << 10;
/// Numbers of stripes.
pub const STRIPES: [usize; 5] = [1, 2, 4, 8, 16];
/// The operations, in their order.
pub const OPERATIONS: [&str; 7] = ["create", "write", "fsync", "close", "open", "read", "stat"];

/// Costs of the operations on a file with some stripes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Costs {
    /// Number of stripes.
    pub stripes: usize,
    /// Round trips of each of [`OPERATIONS`].
    pub round_trips: Vec<f64>,
    /// Medians in milliseconds for each delay.
    pub milliseconds: Vec<Vec<f64>>,
}

impl Costs {
    /// Returns the round trips until new data is on the servers: create, write and fsync.
    pub fn of_new_file(&self) -> f64 {
        self.round_trips[..3].iter().sum()
    }

    /// Returns Lustre's.
    pub fn of_lustre(&self) -> usize {
        of_lustre(self.stripes)
    }

    fn new(stripes: usize, delays: &[f64], milliseconds: Vec<Vec<f64>>) -> Costs {
        let slope = |operation: usize| {
            let times: Vec<f64> = milliseconds.iter().map(|times| times[operation]).collect();
            slope(delays, &times)
        };
        let round_trips = (0..OPERATIONS.len()).map(slope).collect();
        Costs { stripes, round_trips, milliseconds }
    }
}

/// Returns the round trips until Lustre has written to all stripes of a new file. The paper's rule
/// is: the MDT, and one stripe after the other.
pub fn of_lustre(stripes: usize) -> usize {
    stripes + 1
}

/// Returns the slope of the line of least squares.
pub(super) fn slope(x: &[f64], y: &[f64]) -> f64 {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (mx, my) = (mean(x), mean(y));
    let covariance: f64 = x.iter().zip(y).map(|(x, y)| (x - mx) * (y - my)).sum();
    covariance / x.iter().map(|x| (x - mx).powi(2)).sum::<f64>()
}

/// Measures the costs below `dir`. Removes its files and takes back the delay, also after an error.
///
/// # Errors
/// Of an operation, or an interruption by the user.
pub fn measure(plan: &Plan, dir: &Path, session: &Session) -> io::Result<Vec<Costs>> {
    let mount = Delayed(processes::of_mount(dir)?);
    let work = dir.join(format!("wan.{}", std::process::id()));
    fs::create_dir(&work).map_err(|e| named("create", &work, &e))?;
    let costs: io::Result<Vec<Costs>> = STRIPES
        .iter()
        .map(|&stripes| {
            session.begin(&format!("{stripes} stripes"));
            let times = plan.delays.iter().map(|delay| times(plan, &work, &mount, stripes, *delay));
            let costs = Costs::new(stripes, &plan.delays, times.collect::<io::Result<_>>()?);
            session.end(|| {});
            Ok(costs)
        })
        .collect();
    let removed = fs::remove_dir_all(&work).map_err(|e| named("remove", &work, &e));
    costs.and_then(|costs| removed.map(|()| costs))
}

/// Returns the medians of the times in milliseconds with a delay.
fn times(plan: &Plan, work: &Path, mount: &Delayed, stripes: usize, delay: f64) -> io::Result<Vec<f64>> {
    let mut runs = Vec::new();
    for run in 0..plan.repetitions {
        stop::check()?;
        let place = work.join(format!("{stripes}-{delay}-{run}"));
        prepare(&place, stripes)?;
        mount.delay(delay)?;
        let times = operations(&place, stripes);
        mount.delay(0.0)?;
        runs.push(times?);
    }
    let of = |operation: usize| median(&runs.iter().map(|times| times[operation]).collect::<Vec<f64>>());
    Ok((0..OPERATIONS.len()).map(of).collect())
}

/// The process that is delayed. The end takes the delay back.
struct Delayed(processes::Process);

impl Delayed {
    /// Sets the delay in milliseconds.
    fn delay(&self, milliseconds: f64) -> io::Result<()> {
        self.0.set(DELAY, &(milliseconds * 1e3).round().to_string())
    }
}

impl Drop for Delayed {
    fn drop(&mut self) {
        // A process that does not answer has the delay until it is set again.
        let _ = self.delay(0.0);
    }
}

/// Creates a directory whose files have this many stripes.
fn prepare(place: &PathBuf, stripes: usize) -> io::Result<()> {
    fs::create_dir(place).map_err(|e| named("create", place, &e))?;
    Sheen::here()?.setstripe(place, &["-S", &STRIPE.to_string(), "-C", &stripes.to_string()])?;
    fs::metadata(place).map(drop)
}

/// Executes the operations. Returns their times in milliseconds.
fn operations(place: &Path, stripes: usize) -> io::Result<[f64; 7]> {
    let path = place.join("file");
    let data = vec![0x5a; STRIPE * stripes];
    let mut back = vec![0; data.len()];
    let mut times = [0.0; 7];
    let mut note = |operation: usize, start: Instant| times[operation] = start.elapsed().as_secs_f64() * 1e3;
    let failed = |e: io::Error| named("measure", &path, &e);
    let start = Instant::now();
    let mut file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(failed)?;
    note(0, start);
    let start = Instant::now();
    file.write_all(&data).map_err(failed)?;
    note(1, start);
    let start = Instant::now();
    file.sync_all().map_err(failed)?;
    note(2, start);
    let start = Instant::now();
    drop(file);
    note(3, start);
    let start = Instant::now();
    let mut file = fs::File::open(&path).map_err(failed)?;
    note(4, start);
    let start = Instant::now();
    file.read_exact(&mut back).map_err(failed)?;
    note(5, start);
    drop(file);
    let start = Instant::now();
    rustix::fs::stat(&path).map_err(|e| failed(e.into()))?;
    note(6, start);
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_is_the_slope_over_the_delay() {
        let delays = [1.0, 2.0, 4.0];
        let times = |delay: f64| (0..7).map(|operation| 0.5 + f64::from(operation) * delay).collect::<Vec<f64>>();
        let costs = Costs::new(4, &delays, delays.map(times).to_vec());
        for (operation, cost) in costs.round_trips.iter().enumerate() {
            assert!((cost - operation as f64).abs() < 1e-9, "{costs:?}");
        }
        assert!((costs.of_new_file() - 3.0).abs() < 1e-9 && costs.of_lustre() == 5);
    }
}
