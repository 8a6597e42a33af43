//! The protection of a server's directory from a second server on another host.

use std::{
    future::pending,
    path::Path,
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    time::Duration,
};

use sheen_failover::{FailoverError, Guard, Lost, Options, Server, Times, is_protected};
use sheen_rt::{Instant, Rt, proc::hostname};

use super::Host;
use crate::{
    args::FailoverArgs,
    error::{Context, Failure, Result},
};

/// Time after the end of the lease for which the runtime may end the process by itself.
const WATCHDOG_DELAY: Duration = Duration::from_millis(500);
/// Exit code of a process that lost its directory.
const LOST: i32 = 1;

/// Environment variable for tests ([`Times::parse`]): with a long lease, a machine that stalls for
/// some seconds ends no server.
const TIMES_ENV: &str = "SHEEN_FAILOVER_TIMES";

/// The protection of a directory; none, if only one host can serve it.
pub struct Protection(Option<(Guard, Rt)>);

impl Host {
    /// Takes the directory for this process, if the options ask for it or a server has done so
    /// before. From then on, this process answers requests and changes files only while the
    /// directory is its own.
    ///
    /// # Errors
    /// Another server has the directory; the message says what to do.
    pub async fn protect(&self, dir: &Path, args: &FailoverArgs) -> Result<Protection> {
        if args.servicenodes.is_empty() {
            if !is_protected(&self.rt.disk(), dir) {
                return match args.takeover {
                    false => Ok(Protection(None)),
                    true => Err(Failure::new(format!("no other host can have {}", dir.display())).advise(
                        "--takeover is for directories that are served with --servicenode, on each host that may serve them",
                    )),
                };
            }
            tracing::info!(
                "protecting {}, because it was served with --servicenode before; to end this, delete {0}/heartbeat \
                 while no server runs",
                dir.display()
            );
        }
        let (rt, watchdog) = (self.rt.clone(), Watchdog::start());
        let options = Options {
            server: Server::new(&hostname(), std::process::id()),
            takeover: args.takeover,
            times: times()?,
            on_beat: Box::new(move |end| {
                rt.lease_until(end, end_after_lease);
                watchdog.renew(end.since(rt.boot_time()));
            }),
        };
        match Guard::take(&self.rt, dir, options).await {
            Ok(guard) => Ok(Protection(Some((guard, self.rt.clone())))),
            Err(e @ FailoverError::Owned { .. }) => {
                Err(Failure::new(e.to_string()).advise("stop that server first, or use --takeover to make it stop"))
            }
            Err(e @ FailoverError::Stays { .. }) => Err(Failure::new(e.to_string())
                .advise("look at its log; if it hangs, end its process, or cut its host off from the storage")),
            failed => failed.map(|_| Protection(None)).context("cannot protect the directory"),
        }
    }
}

/// Returns the intervals of the protection.
///
/// # Errors
/// [`TIMES_ENV`] is malformed.
fn times() -> Result<Times> {
    let Ok(text) = std::env::var(TIMES_ENV) else { return Ok(Times::default()) };
    Times::parse(&text).ok_or_else(|| {
        Failure::new(format!("invalid {TIMES_ENV} '{text}': expected LEASE,CLAIM,OBSERVE, each 1 to 3600 seconds"))
    })
}

impl Protection {
    /// Resolves when another server asks for the directory. This one then stops in order.
    pub async fn asked(&self) {
        let Some((guard, _)) = &self.0 else { return pending().await };
        match guard.lost().await {
            Lost::Asked(other) => tracing::info!("{other} asks for the directory: stopping"),
            // `lost` resolves as well.
            Lost::Taken(_) | Lost::Expired => pending().await,
        }
    }

    /// Resolves when the directory no longer belongs to this process.
    pub async fn lost(&self) {
        let Some((guard, _)) = &self.0 else { return pending().await };
        match guard.lost_for_good().await {
            Lost::Taken(other) => tracing::error!("{other} has taken the directory over: ending at once"),
            Lost::Asked(_) | Lost::Expired => tracing::error!(
                "the storage did not answer in time, and another server may take the directory over: ending at once"
            ),
        }
    }

    /// Hands the directory over, when nothing is written any more.
    pub async fn release(self) {
        if let Some((guard, rt)) = self.0 {
            guard.release().await;
            // Later writes of the process are not in the directory.
            rt.lease_until(Instant::FAR, end_after_lease);
        }
    }
}

/// A thread that ends the process after the lease, also if storage that hangs holds up all threads
/// of the runtime. Dropping this ends the thread.
struct Watchdog(Sender<Duration>);

impl Watchdog {
    fn start() -> Watchdog {
        let (sender, receiver) = channel::<Duration>();
        std::thread::spawn(move || {
            // Until the first beat there is no lease.
            let Ok(mut left) = receiver.recv() else { return };
            loop {
                match receiver.recv_timeout(left + WATCHDOG_DELAY) {
                    Ok(next) => left = next,
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => {
                        eprintln!(
                            "sheen: the storage did not answer in time, and holds up this process: ending at once"
                        );
                        end_at_once()
                    }
                }
            }
        });
        Watchdog(sender)
    }

    /// `left`: the rest of the lease.
    fn renew(&self, left: Duration) {
        // The thread ends only with the process.
        let _ = self.0.send(left);
    }
}

/// Ends the process, which was about to change a file after the end of its lease.
pub fn end_after_lease() {
    eprintln!(
        "sheen: this process was halted, or its storage did not answer, for longer than its lease; another server may \
         have its directory: ending at once"
    );
    end_at_once()
}

/// Ends the process. It writes nothing more to the directory.
pub fn end_at_once<T>() -> T {
    std::process::exit(LOST)
}
