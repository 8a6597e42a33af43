//! RPC parameters and readahead of mounts: the present values, the round trip to their OSTs, and
//! how to set other values.
//!
//! The round trip is that of requests for the space of an OST, which carry no data. The mount sends
//! some for this tool, which reads their times in `osc.*.stats`.
//!
//! Invariant: nothing is set without `--apply`.

use std::{collections::BTreeMap, io, path::Path};

use crate::{
    advise::{
        args::AdviseArgs,
        choice::{Rated, Site},
        rpcs::{Accesses, Mounted, Present, RpcAdvice, Window},
    },
    machine,
    predict::{
        flight::{Link, Requests, Rpcs},
        load::{Direction, Workload},
    },
    processes::{self, Process},
    program::Sheen,
    stop,
    user_mounts::{UserMounts, twice},
};

const MIB: u64 = 1 << 20;
/// Requests for the space of each OST. The fastest one counts, because others may wait for a
/// processor.
const ROUNDS: usize = 4;
/// Name of these requests in `osc.*.stats`.
const STATFS: &str = "ost_statfs";

/// Checks `--mounts`.
///
/// # Errors
/// A message for the user: a directory is on no mount, on one of another file system than PATH, or
/// is named twice.
pub fn check(args: &AdviseArgs) -> Result<(), String> {
    if args.mounts.is_empty() {
        return Ok(());
    }
    if let Some(mount) = twice(&args.mounts) {
        return Err(format!("--mounts: {} is named twice", mount.display()));
    }
    let text = |e: io::Error| e.to_string();
    let (mounts, fsname) =
        (UserMounts::new(&args.mounts).map_err(text)?, processes::mount_info(&args.path).map_err(text)?.fsname);
    match mounts.fsname == fsname {
        true => Ok(()),
        false => Err(format!("--mounts: {} is on {fsname}, not on {}", args.path.display(), mounts.fsname)),
    }
}

/// Recommends RPC parameters for a job with the layout of `rated`. `None`: the round trip of a
/// published system is not stated.
///
/// # Errors
/// A message for the user: the parameters, or the round trip, are not known.
pub fn advise(args: &AdviseArgs, workload: &Workload, rated: &Rated, site: &Site) -> Result<Option<RpcAdvice>, String> {
    let stated = args.round_trip.map(|milliseconds| milliseconds / 1e3);
    let present = match (args.system.is_some(), stated) {
        (false, _) => of_mounts(args, site.osts, stated).map_err(|e| e.to_string())?,
        (true, Some(round_trip)) => Present::of(vec![published(round_trip)], Rpcs::MAX),
        (true, None) => return Ok(None),
    };
    let present = present.ok_or("there is no mount")?;
    let mirrors = |direction| match direction {
        Direction::Write => 1.0,
        Direction::Read => site.mirrors.read_at_once(workload),
    };
    let accesses = rated.rates.iter().filter_map(|(direction, prediction)| {
        let (_, costs) = site.costs.iter().find(|(of, _)| of == direction)?;
        let requests = Requests::of(*direction, workload, &rated.shape, site.osts, mirrors(*direction));
        let link = Link { round_trip: present.round_trip(), ost: args.ost_rate.unwrap_or(1.0 / costs.ost_mib) };
        let rate = args.ost_rate.map_or(prediction.rate, |ost| requests.at_rate_of_ost(ost));
        Some(Accesses { requests, link, rate })
    });
    Ok(Some(RpcAdvice::new(&accesses.collect::<Vec<_>>(), &present)))
}

/// Returns a new mount of any file system.
fn published(round_trip: f64) -> Mounted {
    let window = Some(Window { max_mb: Rpcs::MAX.read_ahead_mb, per_file_mb: Rpcs::DEFAULT.read_ahead_mb });
    let (lowest, highest) = (Rpcs::DEFAULT, Rpcs::DEFAULT);
    Mounted { lowest, highest, window, osts: "osc.*".into(), llite: "llite.*".into(), round_trip }
}

/// Returns the parameters of the job's mounts: of the stated ones, or else of the mount of PATH.
/// Measures the round trips unless one is stated, in seconds. `osts`: number of OSTs of the files.
fn of_mounts(args: &AdviseArgs, osts: u32, stated: Option<f64>) -> io::Result<Option<Present>> {
    let mounts = if args.mounts.is_empty() { std::slice::from_ref(&args.path) } else { &args.mounts[..] };
    let found = mounts.iter().map(|mount| mounted(mount, stated)).collect::<io::Result<Vec<_>>>()?;
    // All OSTs together have dirty data of at most half of the memory.
    let memory = machine::total_memory().map_or(u64::MAX, |bytes| bytes / 2 / u64::from(osts.max(1)) / MIB);
    Ok(Present::of(found, Rpcs { dirty_mb: Rpcs::MAX.dirty_mb.min(memory), ..Rpcs::MAX }))
}

/// Returns the mount that contains a file or directory. Measures the round trip unless it is
/// stated, in seconds.
fn mounted(path: &Path, stated: Option<f64>) -> io::Result<Mounted> {
    let info = processes::mount_info(path)?;
    let (llite, osts) =
        (format!("llite.{}-{}", info.fsname, info.instance), format!("osc.{}-OST*-osc-{}", info.fsname, info.instance));
    let process = process(&format!("{llite}.uuid"))?;
    let values = |name: &str| range(&process.values(&format!("{osts}.{name}"))?);
    let (in_flight, pages, dirty_mb) =
        (values("max_rpcs_in_flight")?, values("max_pages_per_rpc")?, values("max_dirty_mb")?);
    let window = window(&process, &llite);
    let read_ahead_mb = window.map_or(0, |window| window.max_mb.min(window.per_file_mb));
    let lowest = Rpcs { in_flight: in_flight.0, pages: pages.0, dirty_mb: dirty_mb.0, read_ahead_mb };
    let highest = Rpcs { in_flight: in_flight.1, pages: pages.1, dirty_mb: dirty_mb.1, read_ahead_mb };
    let round_trip = match stated {
        Some(round_trip) => round_trip,
        None => round_trip(path, &process, &format!("{osts}.stats"))?,
    };
    Ok(Mounted { lowest, highest, window, osts, llite, round_trip })
}

/// Returns the process with a parameter. Its user may be another one, who lets all users read.
fn process(parameter: &str) -> io::Result<Process> {
    let own = processes::with(parameter).found.into_iter().next();
    let found = own.or_else(|| processes::public_with(parameter).found.into_iter().next());
    found.map(|(_, process)| process).ok_or_else(|| io::Error::other("the mount's parameters are not readable"))
}

/// Returns the lowest and the highest value of a parameter.
fn range(values: &[(String, String)]) -> io::Result<(u64, u64)> {
    let bad = || io::Error::other("the mount has no such parameters for its OSTs");
    let numbers = values.iter().map(|(_, value)| value.trim().parse::<u64>().ok()).collect::<Option<Vec<_>>>();
    let numbers = numbers.ok_or_else(bad)?;
    numbers.iter().copied().min().zip(numbers.iter().copied().max()).ok_or_else(bad)
}

/// Returns the readahead window; `None`: the mount cannot set it.
fn window(process: &Process, llite: &str) -> Option<Window> {
    let value = |name: &str| process.get(&format!("{llite}.{name}")).ok()?.trim().parse::<u64>().ok();
    let (max_mb, per_file_mb) = (value("max_read_ahead_mb")?, value("max_read_ahead_per_file_mb")?);
    Some(Window { max_mb, per_file_mb })
}

/// Measures the round trip to the farthest OST, in seconds. `stats`: pattern of the parameters with
/// the times of requests.
fn round_trip(path: &Path, process: &Process, stats: &str) -> io::Result<f64> {
    let mut fastest: BTreeMap<String, f64> = BTreeMap::new();
    for _ in 0..ROUNDS {
        stop::check()?;
        let before = times(process, stats)?;
        // The list of the OSTs has the space of each.
        processes::osts(path)?;
        for (ost, after) in times(process, stats)? {
            let Some(usecs) = after.mean_since(before.get(&ost).copied().unwrap_or_default()) else { continue };
            fastest.entry(ost).and_modify(|least| *least = least.min(usecs)).or_insert(usecs);
        }
    }
    let farthest = fastest.into_values().reduce(f64::max);
    farthest.map(|usecs| usecs / 1e6).ok_or_else(|| io::Error::other("no OST answers: set --round-trip"))
}

/// Number and sum of the times of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Times {
    count: u64,
    usecs: u64,
}

impl Times {
    /// Reads a value of `osc.*.stats`. `None`: there were no such requests.
    fn of(stats: &str) -> Option<Times> {
        let mut lines = stats.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let line = lines.find(|words| words.first() == Some(&STATFS))?;
        // NAME COUNT samples [usecs] MINIMUM MAXIMUM SUM …
        Some(Times { count: line.get(1)?.parse().ok()?, usecs: line.get(6)?.parse().ok()? })
    }

    /// Returns the mean time of the requests since `before`. `None`: there were none, or the
    /// statistics were cleared.
    fn mean_since(self, before: Times) -> Option<f64> {
        let count = self.count.checked_sub(before.count).filter(|count| *count > 0)?;
        Some(self.usecs.checked_sub(before.usecs)? as f64 / count as f64)
    }
}

/// Returns the times of each OST.
fn times(process: &Process, stats: &str) -> io::Result<BTreeMap<String, Times>> {
    let values = process.values(stats)?.into_iter();
    Ok(values.filter_map(|(name, value)| Some((name, Times::of(&value)?))).collect())
}

/// Sets parameters of mounts, as `lctl set_param`.
///
/// # Errors
/// A process is not one of this user's, does not answer, or refuses a value.
pub fn apply(settings: &[String]) -> io::Result<()> {
    let words = ["lctl", "set_param", "-n"].into_iter().chain(settings.iter().map(String::as_str));
    Sheen::here()?.run(words).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_follows_from_the_requests_between_two_reads() {
        let stats = |count: u64, sum: u64| {
            format!(
                "snapshot_time             1.000000000 secs.nsecs\n\
                 req_waittime              99 samples [usecs] 1 2 3 4\n\
                 ost_statfs                {count} samples [usecs] 50 5000 {sum} 99\n"
            )
        };
        let times = |count, sum| Times::of(&stats(count, sum)).unwrap();
        assert_eq!(times(3, 900), Times { count: 3, usecs: 900 });
        assert_eq!(times(5, 1300).mean_since(times(3, 900)), Some(200.0));
        assert_eq!(times(3, 900).mean_since(Times::default()), Some(300.0));
        assert_eq!(times(3, 900).mean_since(times(3, 900)), None);
        assert_eq!(times(1, 100).mean_since(times(3, 900)), None, "cleared");
        assert_eq!(Times::of("req_waittime 1 samples [usecs] 1 1 1 1\n"), None);
    }

    #[test]
    fn lowest_and_highest_values_of_all_osts_are_found() {
        let values = |of: &[&str]| of.iter().map(|value| ("osc.a".to_owned(), (*value).to_owned())).collect::<Vec<_>>();
        assert_eq!(range(&values(&["8\n", "16", "12"])).unwrap(), (8, 16));
        assert!(range(&[]).is_err() && range(&values(&["8", "x"])).is_err());
    }
}
