//! The recovery of a server: it waits for the clients that were connected before its restart. The
//! engine ([`sheen_recovery::Window`]) knows who has recovered. This crate knows the time: limits,
//! waits of requests, status and parameters.
//!
//! Invariants:
//! * a recovery ends at the latest [`GRACE`] after its hard limit, or after it was aborted;
//! * clients that are back by then have this time to finish, so that only those that are missing
//!   lose something;
//! * nobody waits after the end.

mod params;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use sheen_recovery::{NotAwaited, Stage, Window};
use sheen_rt::{Instant, Rt};
use sheen_wire::Time;
use tokio::sync::Notify;

pub use params::register;

/// Default of `recovery_time_soft`, in seconds. A client that sends no requests notices the loss of
/// a server's host by TCP keepalive, after 30 to 60 s. Then it has to find the server again, in
/// rounds of up to 7 s.
pub const RECOVERY_TIME_SOFT_SECS: u64 = 90;
/// Default of `recovery_time_hard`, in seconds.
pub const RECOVERY_TIME_HARD_SECS: u64 = 270;

/// Time that the clients which are back have to finish, when the wait for the others is over.
pub const GRACE: Duration = Duration::from_secs(10);

/// The state of a recovery. `C`: a change that a client replays. `E`: why one could not be.
pub struct Recovery<C, E> {
    rt: Rt,
    /// The engine. After a change of it, call [`Recovery::notify`].
    pub window: Mutex<Window<C, E>>,
    /// Notified when the window has changed.
    changed: Notify,
    ended: AtomicBool,
    /// An administrator ends the recovery.
    aborted: AtomicBool,
    /// Time that the server waits for a client, in seconds (`recovery_time_soft`).
    soft_secs: AtomicU64,
    /// Longest duration of a recovery, in seconds (`recovery_time_hard`).
    hard_secs: AtomicU64,
    times: Mutex<Times>,
}

/// Limits of a recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Time that the server waits for a client.
    pub soft: Duration,
    /// Longest duration.
    pub hard: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            soft: Duration::from_secs(RECOVERY_TIME_SOFT_SECS),
            hard: Duration::from_secs(RECOVERY_TIME_HARD_SECS),
        }
    }
}

/// The clients for which the wait is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Over {
    /// Those that have not connected.
    Missing,
    /// All for which the recovery waits at the moment.
    Slow,
}

/// When a recovery began and ended, and when the server stops to wait.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// Wall clock at the start.
    start: Time,
    began: Instant,
    /// When a client last connected or made progress, or clients were dropped.
    waits_since: Instant,
    /// Once the wait for missing clients was aborted, or reached the hard limit: the end of the
    /// time for the others.
    last: Option<Instant>,
    /// Duration; `None` while it is under way, and if there was nothing to recover.
    took: Option<Duration>,
}

impl Times {
    /// Returns the end of the wait for the clients that have not recovered.
    fn deadline(&self, limits: Limits, aborted: bool) -> Instant {
        match self.last {
            Some(last) => last,
            None if aborted => self.began,
            None => (self.waits_since + limits.soft).min(self.began + limits.hard),
        }
    }

    /// The wait is over at `now`. Returns for whom, and begins the next wait.
    fn over(&mut self, limits: Limits, aborted: bool, now: Instant) -> Over {
        self.waits_since = now;
        if self.last.is_none() && (aborted || now >= self.began + limits.hard) {
            self.last = Some(now + GRACE);
            return Over::Missing;
        }
        Over::Slow
    }
}

impl<C, E> fmt::Debug for Recovery<C, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recovery").field("ended", &self.is_ended()).finish()
    }
}

impl<C, E> Recovery<C, E> {
    /// Returns whether the server executes new requests.
    pub fn is_ended(&self) -> bool {
        self.ended.load(Relaxed)
    }

    /// Returns the limits.
    pub fn limits(&self) -> Limits {
        let secs = |secs: &AtomicU64| Duration::from_secs(secs.load(Relaxed));
        Limits { soft: secs(&self.soft_secs), hard: secs(&self.hard_secs) }
    }
}

impl<C, E: Clone> Recovery<C, E> {
    /// Begins the recovery of these clients; without any there is none.
    pub fn new(rt: &Rt, clients: Vec<String>, limits: Limits) -> Recovery<C, E> {
        let window = Window::new(clients);
        let ended = AtomicBool::new(window.stage() == Stage::Ended);
        let now = rt.now();
        Recovery {
            rt: rt.clone(),
            window: Mutex::new(window),
            changed: Notify::new(),
            ended,
            aborted: AtomicBool::new(false),
            soft_secs: AtomicU64::new(limits.soft.as_secs()),
            hard_secs: AtomicU64::new(limits.hard.as_secs()),
            times: Mutex::new(Times { start: rt.wall(), began: now, waits_since: now, last: None, took: None }),
        }
    }

    /// Returns when the server began to execute new requests.
    pub fn ended_at(&self) -> Instant {
        let times = self.times.lock();
        times.began + times.took.unwrap_or_default()
    }

    /// Returns the longest time after which the server executes new requests. `None`: it does so
    /// now. A change of the limits changes it.
    pub fn left_max(&self) -> Option<Duration> {
        if self.is_ended() {
            return None;
        }
        let (times, limits) = (*self.times.lock(), self.limits());
        let end = times.last.unwrap_or(times.began + limits.hard + GRACE);
        Some(end.since(self.rt.now()))
    }

    /// Lets the server execute new requests.
    pub fn end(&self) {
        {
            let mut times = self.times.lock();
            times.took = Some(self.rt.now().since(times.began));
        }
        self.ended.store(true, Relaxed);
        self.notify();
    }

    /// Changes the limits in seconds, also of a recovery that is under way.
    pub fn set_limits(&self, soft_secs: Option<u64>, hard_secs: Option<u64>) {
        for (cell, value) in [(&self.soft_secs, soft_secs), (&self.hard_secs, hard_secs)] {
            value.into_iter().for_each(|secs| cell.store(secs, Relaxed));
        }
        self.notify();
    }

    /// Ends the wait for clients that have not recovered. Does nothing after the end.
    pub fn abort(&self) {
        if !self.is_ended() {
            self.aborted.store(true, Relaxed);
            self.notify();
        }
    }

    /// Returns whether an administrator ended the recovery.
    pub fn is_aborted(&self) -> bool {
        self.aborted.load(Relaxed)
    }

    /// Reports a change of the window.
    pub fn notify(&self) {
        self.changed.notify_waiters();
    }

    /// Waits until `done` returns something; called again after each change of the window.
    pub async fn wait_for<T>(&self, mut done: impl FnMut(&Recovery<C, E>) -> Option<T>) -> T {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(value) = done(self) {
                return value;
            }
            changed.await;
        }
    }

    /// Waits until the server executes new requests.
    pub async fn ended(&self) {
        self.wait_for(|me| me.is_ended().then_some(())).await;
    }

    /// Waits until all changes are replayed.
    pub async fn replayed(&self) {
        self.wait_for(|me| (me.is_ended() || me.window.lock().stage() > Stage::Replay).then_some(())).await;
    }

    /// Waits until these changes of a client are executed. Returns their outcomes.
    ///
    /// # Errors
    /// The client was dropped meanwhile.
    pub async fn outcomes(&self, client: &str, transnos: &[u64]) -> Result<Vec<Result<(), E>>, NotAwaited> {
        self.wait_for(|me| me.window.lock().outcomes(client, transnos).transpose()).await
    }

    /// Records that a client makes progress: the wait for clients begins anew.
    pub fn progress(&self) {
        self.times.lock().waits_since = self.rt.now();
    }

    /// Drops the clients for which the wait is over, and returns them.
    pub fn drop_clients(&self, over: Over) -> Vec<String> {
        let mut window = self.window.lock();
        match over {
            Over::Missing => window.drop_missing(),
            Over::Slow => window.drop_awaited(),
        }
    }

    /// Waits until clients have done something, or the wait for some of them is over. Then returns
    /// for which ones. `connected`: the clients that had connected before.
    pub async fn wait_for_clients(&self, connected: &mut usize) -> Option<Over> {
        let (limits, aborted) = (self.limits(), self.is_aborted());
        let waited = self.wait_for(|me| {
            let window = me.window.lock();
            let now_connected = window.counts().connected;
            let has_work = window.stage() == Stage::Ended || window.has_next();
            let is_news = has_work || now_connected != *connected || me.limits() != limits;
            (is_news || me.is_aborted() != aborted).then_some(now_connected)
        });
        let deadline = self.times.lock().deadline(limits, aborted);
        let Ok(now_connected) = self.rt.timeout(deadline.since(self.rt.now()), waited).await else {
            let mut times = self.times.lock();
            let now = self.rt.now();
            let is_over = times.deadline(limits, aborted) <= now;
            return is_over.then(|| times.over(limits, aborted, now));
        };
        if now_connected > *connected {
            self.times.lock().waits_since = self.rt.now();
        }
        *connected = now_connected;
        None
    }
}

#[cfg(test)]
mod tests {
    use sheen_rt::sim::{Sim, SimConfig};
    use sheen_wire::Errno;

    use super::*;

    #[test]
    fn longest_wait_shrinks_to_the_grace_time_after_an_abort_and_ends_with_the_recovery() {
        let sim = Sim::new(1, SimConfig::default());
        let rt = sim.rt(1);
        sim.run(async {
            assert_eq!(Recovery::<(), Errno>::new(&rt, vec![], Limits::default()).left_max(), None);
            let recovery = Recovery::<(), Errno>::new(&rt, vec!["missing".to_owned()], Limits::default());
            let (hard, minute) = (Duration::from_secs(RECOVERY_TIME_HARD_SECS), Duration::from_secs(60));
            assert_eq!(recovery.left_max(), Some(hard + GRACE));
            rt.sleep(minute).await;
            assert_eq!(recovery.left_max(), Some(hard + GRACE - minute));
            recovery.abort();
            assert_eq!(recovery.wait_for_clients(&mut 0).await, Some(Over::Missing));
            assert_eq!(recovery.left_max(), Some(GRACE));
            recovery.end();
            assert_eq!(recovery.left_max(), None);
        })
        .unwrap();
    }
}
