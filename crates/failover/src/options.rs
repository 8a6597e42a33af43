//! Options and errors of the protection.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use sheen_rt::{Disk, Instant, target_dir::protection::HEARTBEAT};

use crate::record::Server;

/// Intervals of the protection. All servers of a directory must use the same ones.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Time between two beats.
    pub beat: Duration,
    /// Time from the begin of a beat during which the server may serve.
    pub lease: Duration,
    /// Time that a new owner waits after it has written its name.
    pub claim: Duration,
    /// Time without a beat after which the owner counts as dead.
    pub observe: Duration,
    /// Time within which a server that is asked to stop must have stopped.
    pub handover: Duration,
}

impl Default for Times {
    fn default() -> Times {
        Times {
            beat: Duration::from_secs(1),
            lease: Duration::from_secs(4),
            claim: Duration::from_secs(5),
            observe: Duration::from_secs(6),
            handover: Duration::from_secs(300),
        }
    }
}

/// Most seconds of one of the [`Times`].
const SECONDS_MAX: u64 = 3600;

impl Times {
    /// Parses `LEASE,CLAIM,OBSERVE`, each 1 to 3600 seconds; the other times are the usual ones.
    /// `None`: malformed. For tests: with times other than the usual ones, two servers may have a
    /// lease at a time. It takes a lease of each server that is shorter than the claim of every
    /// other one, and claims that are shorter than each observe.
    pub fn parse(text: &str) -> Option<Times> {
        let seconds = text.split(',').map(|part| part.parse().ok().filter(|s| (1..=SECONDS_MAX).contains(s)));
        let seconds: Vec<u64> = seconds.collect::<Option<_>>()?;
        let [lease, claim, observe] = seconds[..] else { return None };
        let [lease, claim, observe] = [lease, claim, observe].map(Duration::from_secs);
        Some(Times { lease, claim, observe, ..Times::default() })
    }
}

/// How to protect a directory.
pub struct Options {
    /// This server, for messages of others.
    pub server: Server,
    /// Asks a server that owns the directory to stop.
    pub takeover: bool,
    /// Intervals.
    pub times: Times,
    /// Called after each beat with the end of the lease, by [`sheen_rt::Rt::boot_time`].
    pub on_beat: Box<dyn Fn(Instant) + Send + Sync>,
}

/// Why a directory cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum FailoverError {
    /// Another server owns it.
    #[error("{} is served by {owner}", dir.display())]
    Owned {
        /// The directory.
        dir: PathBuf,
        /// Its owner.
        owner: Server,
    },
    /// The owner was asked to stop, and still runs.
    #[error("{owner} serves {} and did not stop within {seconds} s", dir.display())]
    Stays {
        /// The directory.
        dir: PathBuf,
        /// Its owner.
        owner: Server,
        /// Time that it had.
        seconds: u64,
    },
    /// The local file system returned an error.
    #[error("cannot use {}: {error}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
}

/// Returns whether a server with this protection has used the directory before. It must be used
/// with it from then on.
pub fn is_protected(disk: &Disk, dir: &Path) -> bool {
    disk.metadata(dir.join(HEARTBEAT)).is_ok()
}
